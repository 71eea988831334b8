// SPDX-License-Identifier: Apache-2.0
/*
 * The runtime: tasks that wait. Optional; nothing of aco depends on it. Relies on aco.h, the stack
 * pool, POSIX threads and Linux.
 *
 *     static void *greet(void *name)
 *     {
 *         aco_sleep(1000000);
 *         printf("hello, %s\n", (char *)name);
 *         return NULL;
 *     }
 *
 *     static void *first(void *arg)
 *     {
 *         aco_go(greet, "world");
 *         aco_go(greet, "moon");
 *         return arg;
 *     }
 *
 *     int main(void) { return aco_run(NULL, first, NULL, NULL); }
 *
 * Vocabulary
 *   task    a coroutine that the runtime schedules; it has an entry function of pthread's form
 *   wait    a call of this header in which a task stays while others run, until it is woken
 *   loop    runs the tasks of one thread
 *   group   tasks that end together
 *
 * Rules
 *   - A task stays on the thread on which it starts. Tasks of one thread run in turn: between two
 *     calls that may wait, a task is alone on its thread.
 *   - A call that may wait, but need not, is one of some 100 that a task has in its turn: after
 *     these, or after 1 ms, the next one begins by letting others run, as aco_yield() does. This
 *     is no wait, so it does not fail. Calls named `*_try_*` do not wait, nor do unlocks and
 *     releases.
 *   - The third wait in a row that fails at once, as its task is late or cancelled, takes 1 ms, and
 *     so does each that follows: loops that try again in spite of that don't keep the thread.
 *   - A wait fails with ETIMEDOUT once the deadline of its task has passed, and with ECANCELED once
 *     the task was cancelled. Nothing of the call has happened then, unless its contract says so.
 *     A call that need not wait may succeed all the same.
 *   - Calls return 0 or what their contract says, or -1 (NULL) with errno. errno is the task's own:
 *     other tasks don't change it during a wait.
 *   - Calls made outside of a task block the thread, and know neither deadlines nor cancelling.
 *   - aco_yield() in a task lets other tasks that are ready run first. It is no wait: neither a
 *     deadline nor cancelling ends it. aco_exit() ends the task as if its function had returned
 *     NULL; in a task of aco.hpp or compat/ it aborts. In a coroutine that the task resumes, both
 *     are about that coroutine.
 *   - Times are nanoseconds; points in time are those of CLOCK_MONOTONIC.
 *   - Misuse that is detected ends in one line on stderr and abort().
 *   - In a child after fork(), the runtime is off: the calling task goes on alone, as a thread
 *     outside of tasks, and its end ends the process by exit(0), as that of a last thread does.
 *     All other tasks are the parent's, so the child must not wait for them. The locks that the
 *     task holds, and its task-local values, are the child's own; deadlines don't count in it.
 */
#ifndef ACO_RUNTIME_H
#define ACO_RUNTIME_H

#include "aco.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aco_task_s aco_task_t;
typedef struct aco_group_s aco_group_t;

/* ==== Running ================================================================================ */

#define ACO_ALL_PROCESSORS (-1)

/* Options of a runtime; zero in a field is its default. */
typedef struct {
    int ct_threads;  /* threads that run tasks, with the caller; 0: 1; ACO_ALL_PROCESSORS */
    size_t stack_sz; /* bytes of a task's stack; 0: 256 KiB. These are addresses: only pages that
                        were touched take memory, until the stack has been idle for a second. At
                        least 16 KiB, with which each call of this header works */
    size_t guard_sz; /* bytes below such a stack that fault; 0: 64 KiB. It is a page below share
                        stacks, and below those of more than 8 MiB that tasks ask for */
    int ct_offload;  /* most helper threads for aco_offload() and files; 0: 64 */
    int ct_offload_names; /* most for name look-ups; 0: 16 */
} aco_run_options_t;

/*
 * Runs `fn(arg)` as the first task, and the tasks that it makes. Returns 0 once all tasks have
 * ended, with what `fn` returned in `*result`, unless `result` is NULL. NULL options are all the
 * defaults. Several threads may call it; their runtimes are independent. It prepares the thread
 * itself if aco_thread_init() was not called; tasks start with the control words of the thread.
 * Plain coroutines of the thread go on working, before, within and after. The first call in a
 * process also installs a handler of SIGSEGV, which reports on stderr a task that has overflowed
 * its stack, and then does what the signal would have done: it calls the former handler, as it
 * does for all other faults. Fails with EAGAIN, ENOMEM or EMFILE if threads, memory or descriptors
 * are short, with EINVAL on options that make no sense, and with EBUSY in a task or where the
 * caller runs another runtime already.
 */
int aco_run(const aco_run_options_t *options, void *(*fn)(void *), void *arg, void **result);

/*
 * Returns a descriptor that is readable when tasks have something to do, for a thread with a main
 * loop of its own, of glib, Qt or libuv, say. It becomes readable once more when memory that
 * is idle can be given back. It stays the same. From the first call on, the thread may make tasks
 * outside of tasks; they run in aco_run_once(), and must have ended when the thread ends, which
 * closes the descriptor. Fails as aco_run().
 */
int aco_loop_fd(void);

/*
 * Runs a turn of tasks: those that are ready, but not for long. If none is, waits for `timeout` ns
 * at most, or with `timeout` < 0 until one is. Returns 1, or 0 if the thread has no task. Fails as
 * aco_loop_fd(), which need not have been called.
 */
int aco_run_once(int64_t timeout);

/* ==== Tasks ================================================================================== */

/* Where a task runs: on the thread that makes it, on the first one that is idle, or on thread n of
 * its runtime; thread 0 has called aco_run(). */
#define ACO_HERE 0
#define ACO_ANY (-1)
#define ACO_THREAD(n) ((n) + 1)

/* Options of a task; zero in a field is its default. */
typedef struct {
    const char *name;   /* shown by messages and aco_print_tasks(); kept, not copied; NULL: the
                           name of the function is shown */
    size_t stack_sz;    /* bytes of a stack, at least 16 KiB, rounded up to a power of two up to
                           8 MiB; 0: that of the runtime's options */
    int shares_stack;   /* 1: it runs on the share stack of its thread, which has the size of the
                           runtime's options; its frames are copied while it waits */
    int thread;         /* ACO_HERE, ACO_ANY or ACO_THREAD(n) */
    aco_group_t *group; /* group that it belongs to; NULL: none */
} aco_task_options_t;

/*
 * Makes a task on the caller's thread that runs `fn(arg)` and frees itself at its end. The caller
 * is a task, or has a loop by aco_loop_fd(); EPERM if not. It goes on; the new task runs when the
 * caller waits. Aborts if `arg` points into a stack that others use meanwhile, such as that of a
 * caller with `shares_stack`. Cost: some 40 ns with its end. Fails with ENOMEM.
 */
int aco_go(void *(*fn)(void *), void *arg);

/*
 * The same as aco_go(), but the task is joined by aco_join(), exactly once, and remains until then.
 * One that is never joined is freed at the end of its runtime; the watchdog reports it.
 */
aco_task_t *aco_spawn(void *(*fn)(void *), void *arg);

/*
 * Makes a task with options: as aco_spawn() does, with the result in `*task`; or, with NULL for
 * `task`, as aco_go() does. Fails also with EINVAL for a thread that does not exist, for a stack
 * below the least size, and for a size with `shares_stack`; with ECANCELED for a group that was
 * cancelled, and with ENOMEM for a stack that can't be had. If no stack is free when the task is to
 * start, it starts later.
 */
int aco_go_with(const aco_task_options_t *options, void *(*fn)(void *), void *arg,
                aco_task_t **task);

/*
 * Waits for the end of `task` and frees it; `*result` is what its function returned, unless
 * `result` is NULL. If the wait fails, the task remains to be joined. Fails with EDEADLK for the
 * running task. The caller may be a task of another runtime, or a thread, but not later than
 * aco_run() returns, which frees all tasks. Aborts then, and if `task` is NULL or another one joins
 * it already.
 */
int aco_join(aco_task_t *task, void **result);

/* The running task; NULL outside of one. */
aco_task_t *aco_self(void);

/* The id of a task: a number from 1 on that no other task of the process has or had. */
uint64_t aco_task_id(const aco_task_t *task);

/* The name that a task was given, or "". */
const char *aco_task_name(const aco_task_t *task);

/*
 * Cancels a task and the groups that it made: each of their waits fails with ECANCELED from now on,
 * the present one too. From any thread. The task must not have been freed: it is one to be joined,
 * or known not to have ended.
 */
void aco_task_cancel(aco_task_t *task);

/*
 * Parks the running task until aco_unpark(), the foundation for waits of one's own. An aco_unpark()
 * that came before is not lost, and lets the next aco_park() return at once; several count as one.
 */
int aco_park(void);

/* Lets a task go on that is parked, or that parks next. From any thread, task or not, and from
 * signal handlers. As for aco_task_cancel(), the task must not have been freed. */
void aco_unpark(aco_task_t *task);

/* ==== Time =================================================================================== */

/* The time now. */
int64_t aco_now(void);

/* The deadline of the running task; INT64_MAX if it has none. */
int64_t aco_deadline(void);

/* Waits for `ns` nanoseconds; for less than one, it only lets other tasks run. */
int aco_sleep(int64_t ns);

/*
 * A statement that runs the block behind it with a deadline `ns` from now: once it has passed, each
 * wait of the task in it fails with ETIMEDOUT. With 0 or less it has passed already: a call that
 * need not wait may succeed, others fail. Within another one, the earlier deadline counts. The
 * block may be left by break, return and goto, but not by longjmp().
 *
 *     aco_within(1000000000) {
 *         if (aco_chan_recv(answers, &answer) < 0) { ... }
 *     }
 */
#define aco_within(ns) ACO_I_SCOPE(aco_i_enter_within(ns))

/* A statement that runs the block behind it with neither cancelling nor deadlines from outside of
 * it, for cleaning up. Groups that are made in it are shielded as well, until it ends. It may be
 * left as that of aco_within(). */
#define aco_shielded ACO_I_SCOPE(aco_i_enter_shielded())

/* ==== Groups ================================================================================= */

/*
 * Makes a group. Its tasks have the deadline that the caller, a task, has now, and are cancelled
 * when the caller is; but not before the end of an aco_shielded in which it made the group. One
 * that is never joined is freed at the end of its runtime; the watchdog reports it. Fails with
 * ENOMEM, and with EPERM outside of a task.
 */
aco_group_t *aco_group_new(void);

/*
 * The same as aco_go() for a task of `group`. Every task of the group's runtime may call it, on
 * each of its threads, until aco_group_join() has begun; from then on, only tasks of the group may.
 * Fails with ECANCELED if the group was cancelled. Aborts if it is NULL or of another runtime.
 */
int aco_group_go(aco_group_t *group, void *(*fn)(void *), void *arg);

/* Cancels the tasks of `group`, now and to come, and the groups that these made. */
void aco_group_cancel(aco_group_t *group);

/*
 * Waits for the end of all tasks of `group` and frees it. If the wait fails, cancels the group,
 * waits for its end, frees it, and returns -1 with the error of the wait. One task joins a group.
 * The caller may be a task of another runtime, or a thread, as with aco_join(). Aborts if that is
 * too late, and if `group` is NULL or another one joins it already.
 */
int aco_group_join(aco_group_t *group);

/* ==== Task-local values ====================================================================== */

typedef unsigned aco_key_t;

/*
 * Makes a key for values that each task has of its own, at first NULL. `destructor`, unless NULL,
 * is called for values other than NULL when a task ends, in the task. Fails with EAGAIN after 1024
 * keys.
 */
int aco_key_create(aco_key_t *key, void (*destructor)(void *));

/* Sets the value of the running task. Fails with ENOMEM, with EINVAL if there is no such key, and
 * with EPERM outside of a task. */
int aco_setspecific(aco_key_t key, const void *value);

/* The value of the running task; NULL outside of one. */
void *aco_getspecific(aco_key_t key);

/* ==== Input and output ======================================================================= */

/*
 * These calls are as their namesakes of POSIX, but only the task waits. They work with descriptors
 * of every kind and origin. O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO and MSG_DONTWAIT have the kernel's
 * meaning; for descriptors from aco_accept4() and aco_dial(), set them before the first wait.
 * Several tasks may wait for one descriptor, in both directions. Each call fails also with
 * ETIMEDOUT, ECANCELED and ENOMEM, and with EBADF if aco_close() ends its wait; none with EINTR. If
 * a wait fails after a part was written, the call returns a short count. Buffers may be on any
 * stack. Regular files are read at once as far as they are cached, and else on a helper thread.
 * SO_RCVLOWAT counts if hooks see it set; without them, pass MSG_WAITALL. That with MSG_PEEK may
 * return less than TCP would. The first wait for a descriptor costs a system call. So does each
 * further one, unless the descriptor is from aco_accept4(), aco_dial() or aco_listen(): close those
 * by aco_close().
 */
ssize_t aco_read(int fd, void *buf, size_t sz);
ssize_t aco_readv(int fd, const struct iovec *iov, int ct);
ssize_t aco_recv(int fd, void *buf, size_t sz, int flags);
ssize_t aco_recvfrom(int fd, void *buf, size_t sz, int flags, struct sockaddr *addr,
                     socklen_t *addr_sz);
ssize_t aco_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t aco_write(int fd, const void *buf, size_t sz);
ssize_t aco_writev(int fd, const struct iovec *iov, int ct);
ssize_t aco_send(int fd, const void *buf, size_t sz, int flags);
ssize_t aco_sendto(int fd, const void *buf, size_t sz, int flags, const struct sockaddr *addr,
                   socklen_t addr_sz);
ssize_t aco_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t aco_sendfile(int fd, int in, int64_t *offset, size_t sz);
int aco_connect(int fd, const struct sockaddr *addr, socklen_t addr_sz);
int aco_shutdown(int fd, int how);

/* Accepts a connection. Other processes and plain threads may accept from the same listener, too,
 * unless it is from aco_listen() in this process, or io_uring is refused: then the thread may wait.
 * Set O_NONBLOCK there, and wait by aco_wait_fd(). */
int aco_accept4(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags);

/* Closes a descriptor. Before its number can be used again, the waits for it end in all threads:
 * with EBADF, or in aco_poll() with POLLNVAL. The thread waits if SO_LINGER says so. */
int aco_close(int fd);

/* Read or write until `sz` bytes are done, the end, or an error: then a short count if something is
 * done, or else 0 or -1. SO_RCVTIMEO and SO_SNDTIMEO count for each part anew, as in a loop of
 * aco_read() or aco_write(); aco_within() limits the whole. */
ssize_t aco_read_all(int fd, void *buf, size_t sz);
ssize_t aco_write_all(int fd, const void *buf, size_t sz);

/* Waits for several descriptors. */
int aco_poll(struct pollfd *fds, nfds_t ct, int timeout_ms);

/* Waits for POLLIN, POLLOUT and so on; returns which of `events`, POLLERR and POLLHUP have come. */
int aco_wait_fd(int fd, int events);

/*
 * Listens at or connects to `address` in `network`: "tcp", "tcp4", "tcp6", "udp" with "HOST:PORT",
 * "[::1]:80" or ":0", a port being a number or a name of a service, or "unix" with a path, which
 * with '@' at its start is no file. Returns a close-on-exec descriptor, of TCP with TCP_NODELAY. A
 * listener of TCP has SO_REUSEADDR, and with "tcp+" (also "tcp4+", "tcp6+") SO_REUSEPORT, for one
 * in each thread; without a host it is for both families where there are two. Dialling tries all
 * addresses of the host, families in turn, and the next one 250 ms after the last if that has not
 * answered (RFC 8305); the first to answer counts. "udp" listens without a connection. Fails with
 * EINVAL for an address that makes no sense, ENOENT for a name that is not found, EAGAIN if it can
 * not be looked up now, EMFILE or ENFILE if there is no descriptor, and as bind(2), listen(2) and
 * connect(2) do.
 */
int aco_listen(const char *network, const char *address);
int aco_dial(const char *network, const char *address);

/* The text of gai_strerror(3) if the last aco_dial() or aco_listen() failed by a name look-up. The
 * last call of the running task counts, or outside of tasks that of the thread. NULL if it has
 * succeeded, or failed for another reason, which is in errno. */
const char *aco_lookup_error(void);

/* ==== Buffered input ========================================================================= */

/*
 * A buffered reader of a stream, for lines, messages with their length in front, and whatever else
 * begins and ends in the middle of what a read returns. Its calls wait as aco_read() does, for
 * descriptors of every kind, and outside of tasks, too. A call that fails, by a deadline, say,
 * loses nothing: bytes that have come stay in the buffer, and the next call goes on with them.
 *
 * Pointers that calls return are into the buffer. The caller may change these bytes until the next
 * call for the reader. One task at a time uses a reader; a call while another one waits aborts.
 * Reader and buffer may be on any stack; on one that tasks share, they are copied at each wait.
 * The fields are private.
 */
typedef struct {
    char *buffer;
    size_t begin, end; /* where the bytes read and not yet taken are */
    size_t sz, most;   /* bytes that the buffer has, and may have */
    int fd;
    char is_own;  /* the reader allocates the buffer */
    char is_busy; /* a call waits */
} aco_reader_t;

/*
 * Prepares a reader of `fd`, which stays the caller's, with a buffer of `sz` bytes. With NULL for
 * `buffer`, the reader allocates it at the first read: 4 KiB, and up to `sz` only when so many
 * bytes have come that must be held. It gives back more than 4 KiB once the buffer is empty. 0 for
 * `sz` is 64 KiB then. Aborts for a buffer of 0 bytes.
 */
void aco_reader_init(aco_reader_t *reader, int fd, void *buffer, size_t sz);

/* Frees the buffer, if the reader has allocated it, and drops what it holds. Does not close the
 * descriptor. */
void aco_reader_free(aco_reader_t *reader);

/*
 * Takes all bytes up to the end of `delimiter`, such as "\n" or "\r\n\r\n"; "" is a NUL. Returns
 * how many these are, with the delimiter, and sets `*text` to the first one; 0 at the end of the
 * stream. Fails with EMSGSIZE if the delimiter does not end within `limit` bytes, or within what
 * the buffer may have, and with ENODATA if the stream ends before it: aco_reader_peek() shows the
 * rest. Fails also as aco_read(), and with ENOMEM. If it fails, nothing is taken.
 */
ssize_t aco_reader_until(aco_reader_t *reader, const char *delimiter, size_t limit, char **text);

/*
 * Takes `sz` bytes, and sets `*bytes` to the first one. Returns 1, or 0 at the end of the stream.
 * Fails with EMSGSIZE if the buffer may not have that many, with ENODATA if the stream ends before
 * them, as aco_read(), and with ENOMEM. If it fails, nothing is taken. Does not wait for bytes that
 * aco_reader_peek() has shown, nor for 0 bytes, which it always finds.
 */
int aco_reader_exactly(aco_reader_t *reader, size_t sz, char **bytes);

/*
 * Shows the next bytes, and takes none: waits until the buffer holds `sz` bytes, sets `*bytes`
 * to the first one, and returns how many it holds, which may be more, or at the end of the stream
 * fewer. Does not wait for 0 bytes. Fails as aco_reader_exactly(), but not with ENODATA.
 */
ssize_t aco_reader_peek(aco_reader_t *reader, size_t sz, char **bytes);

/* Reads as aco_read() does, but bytes in the buffer come first, alone. Large reads go past the
 * buffer, without a copy. */
ssize_t aco_reader_read(aco_reader_t *reader, void *buf, size_t sz);

/* ==== Between tasks ========================================================================== */

/*
 * Tasks of different threads, and threads that run no task, may share these objects. The first to
 * wait is the first to go on. Zero bytes initialise an object, and nothing needs to be destroyed.
 * It must not be moved or freed while a task waits for it, so it must not lie on the stack of a
 * task with `shares_stack`: a wait for it there aborts. The fields are private.
 *
 * A lock that is unlocked is free, and the first to wait is woken. A task that runs may be faster;
 * the other one then keeps its place, and after about 1 ms of that, the next unlock makes it the
 * owner. So tasks that release everything and retry when a lock is taken, as std::scoped_lock
 * does, always make progress. A lock that a task or thread holds when it ends stays locked.
 */
typedef struct {
    char is_held;
} aco_i_lock_t;
typedef struct {
    struct aco_i_node_s *first, *last;
} aco_i_queue_t;

/* A mutex. Locking fails with EDEADLK if the caller holds it already. Unlocking aborts if the
 * caller does not hold it. Cost: some 4 ns both without contention. */
typedef struct {
    uintptr_t owner; /* 0: it is free */
    aco_i_queue_t waiting;
    aco_i_lock_t lock;
    char is_woken; /* a task that waited will try again */
} aco_mutex_t;
int aco_mutex_lock(aco_mutex_t *mutex);
int aco_mutex_try_lock(aco_mutex_t *mutex); /* EBUSY if it is locked */
int aco_mutex_unlock(aco_mutex_t *mutex);

/* A lock that readers share. New readers wait behind writers that wait. */
typedef struct {
    uintptr_t writer; /* 0: none */
    size_t ct_readers;
    aco_i_queue_t waiting;
    aco_i_lock_t lock;
    unsigned ct_woken; /* tasks that waited, and will try again */
} aco_rwlock_t;
int aco_rwlock_read_lock(aco_rwlock_t *rwlock);
int aco_rwlock_write_lock(aco_rwlock_t *rwlock);
int aco_rwlock_try_read_lock(aco_rwlock_t *rwlock); /* EBUSY where they would wait */
int aco_rwlock_try_write_lock(aco_rwlock_t *rwlock);
int aco_rwlock_unlock(aco_rwlock_t *rwlock);

/* A condition. `mutex` is locked by the caller, unlocked during the wait, and locked again when the
 * call returns, whatever it returns. There are no wake-ups without a signal. */
typedef struct {
    aco_i_queue_t waiting;
    aco_i_lock_t lock;
} aco_cond_t;
int aco_cond_wait(aco_cond_t *cond, aco_mutex_t *mutex);
int aco_cond_signal(aco_cond_t *cond);
int aco_cond_broadcast(aco_cond_t *cond);

/* A semaphore. Acquiring takes one of its count and waits while that is 0. */
typedef struct {
    size_t ct;
    aco_i_queue_t waiting;
    aco_i_lock_t lock;
} aco_semaphore_t;
int aco_semaphore_init(aco_semaphore_t *semaphore, size_t ct);
int aco_semaphore_acquire(aco_semaphore_t *semaphore);
int aco_semaphore_try_acquire(aco_semaphore_t *semaphore); /* EAGAIN while the count is 0 */
int aco_semaphore_release(aco_semaphore_t *semaphore);     /* EOVERFLOW beyond SIZE_MAX */

/* A count of jobs that have to end. aco_wait_group_add() may count down, too; below 0 it aborts. */
typedef struct {
    int64_t ct;
    aco_i_queue_t waiting;
    aco_i_lock_t lock;
} aco_wait_group_t;
int aco_wait_group_add(aco_wait_group_t *wait_group, int64_t ct);
int aco_wait_group_done(aco_wait_group_t *wait_group);
int aco_wait_group_wait(aco_wait_group_t *wait_group);

/* Calls `fn` the first time; all others wait until that has returned. */
typedef struct {
    char is_done;
    aco_mutex_t mutex;
} aco_once_t;
int aco_once(aco_once_t *once, void (*fn)(void));

/* ==== Channels =============================================================================== */

/* A queue of items of one size, between tasks. */
typedef struct aco_chan_s aco_chan_t;

/* A channel for items of `item_sz` bytes, which may be 0, that holds `capacity` of them; 0 makes
 * each send wait for a receiver. Fails with ENOMEM. */
aco_chan_t *aco_chan_new(size_t item_sz, size_t capacity);

/* Sends a copy of the item at `item`. Fails with EPIPE if the channel is closed. */
int aco_chan_send(aco_chan_t *chan, const void *item);

/* Receives an item into `item`; returns 1, or 0 if the channel is closed and empty. */
int aco_chan_recv(aco_chan_t *chan, void *item);

/* Send or receive, but fail with EAGAIN where they would wait. */
int aco_chan_try_send(aco_chan_t *chan, const void *item);
int aco_chan_try_recv(aco_chan_t *chan, void *item);

/* Closes a channel: no more items can be sent; those in it can still be received. Sends that wait
 * fail with EPIPE. Fails with EPIPE if it was closed before. */
int aco_chan_close(aco_chan_t *chan);

/* Frees a channel. Aborts if it is NULL or a task waits for it. Any later use of it aborts, too,
 * unless its memory was given back to the system, or something else has it by then. */
void aco_chan_free(aco_chan_t *chan);

/* A send or receive that aco_select() may do. A case with a NULL channel is left out. */
typedef struct {
    aco_chan_t *chan;
    const void *send; /* the item to send; NULL: it is a receive */
    void *recv;       /* where to receive; NULL: it is a send */
    int result;       /* what send or receive returned, if this case was done */
    int error;        /* errno, where result is -1 */
} aco_case_t;

/*
 * Does one of `ct` cases, and returns its index. If several can be done, each has the same chance.
 * If none can, it waits, or with `wait` 0 fails with EAGAIN. A send on a closed channel, and a
 * receive at its end, can be done. Fails with ENOMEM, and with EINVAL for a case that is neither or
 * both, or if it were to wait for nothing.
 */
int aco_select(aco_case_t *cases, size_t ct, int wait);

/* ==== Broadcasts ============================================================================= */

/*
 * A broadcast passes items of one size to all its subscribers, tasks and threads alike. It keeps
 * the last items once for all of them, and sending never waits: a subscriber that is slow delays no
 * other, and is told if it misses items. A subscriber is no more than the position of the item that
 * it gets next, a number that it keeps; there is nothing to end or to free. Items are numbered from
 * 0 on.
 */
typedef struct aco_broadcast_s aco_broadcast_t;

/* A broadcast of items of `item_sz` bytes, which keeps the last `capacity` of them. Fails with
 * ENOMEM, and with EINVAL for a capacity of 0. */
aco_broadcast_t *aco_broadcast_new(size_t item_sz, size_t capacity);

/* Sends a copy of the item at `item` to all subscribers, without waiting for them. Fails with EPIPE
 * if the broadcast is closed. Cost: some 10 ns, and a wake-up for each that waits. */
int aco_broadcast_send(aco_broadcast_t *broadcast, const void *item);

/* The position of the next item that is sent, for aco_broadcast_recv(). */
uint64_t aco_broadcast_subscribe(aco_broadcast_t *broadcast);

/*
 * Copies the item at `*position` to `item`, waiting until it is sent, and adds 1 to `*position`.
 * Returns 1, or 0 if the broadcast is closed and the subscriber has had all items. Fails with
 * EOVERFLOW if the item is not kept any more: `*position` is then that of the oldest item there is,
 * and the call after that goes on with it. Aborts for a position beyond that of the next item.
 */
int aco_broadcast_recv(aco_broadcast_t *broadcast, uint64_t *position, void *item);

/* Closes a broadcast: no more items can be sent; those that are kept can still be received. Fails
 * with EPIPE if it was closed before. */
int aco_broadcast_close(aco_broadcast_t *broadcast);

/* Frees a broadcast. Aborts if it is NULL or a task waits for it. */
void aco_broadcast_free(aco_broadcast_t *broadcast);

/* ==== Helper threads, files, names, processes, signals ======================================= */

/*
 * Runs `fn(arg)` on a helper thread, while only the task waits, and returns its result, with its
 * errno: for functions that block or compute long. Helpers start when they are needed, up to
 * `ct_offload` of a runtime, and end after some idle seconds; their signals are blocked. More calls
 * than that wait their turn, and then, until it comes, the wait can fail: NULL, and `fn` is not
 * called. Once it has begun, neither cancelling nor a deadline ends the wait. Where no thread can
 * be had, and outside of a task, `fn` runs on the caller's. In a child of a fork() by `fn`, its
 * return on a helper ends the process by exit(0). Aborts if `arg` points into a stack
 * that other tasks use meanwhile, such as that of a task with `shares_stack`. Cost: some 4 us.
 */
void *aco_offload(void *(*fn)(void *), void *arg);

/*
 * These calls are as open(), pread(), pwrite() and fsync(). Cached data is read at once, and other
 * data by io_uring where the kernel has it; helper threads do the rest, as by aco_offload():
 * cancelling and deadlines end the wait for a helper, but not a call that has begun. Opening is
 * different: the wait can end, and the helper, which stays busy while no process has the other end
 * of a FIFO, closes what it opens; but the file may have been made.
 */
int aco_open(const char *path, int flags, ... /* mode_t mode */);
ssize_t aco_pread(int fd, void *buffer, size_t sz, int64_t offset);
ssize_t aco_pwrite(int fd, const void *buffer, size_t sz, int64_t offset);
int aco_fsync(int fd);

/*
 * These calls are as getaddrinfo() and getnameinfo(): they return 0 or an EAI_ error; EAI_SYSTEM
 * with errno if the wait failed. Numeric addresses need no helper; all others are looked up by
 * `ct_offload_names` helpers. One whose task waits no more goes on until the look-up ends, perhaps
 * after aco_run() has returned.
 */
struct addrinfo;
int aco_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                    struct addrinfo **list);
int aco_getnameinfo(const struct sockaddr *address, socklen_t address_sz, char *host,
                    socklen_t host_sz, char *service, socklen_t service_sz, int flags);

/* Waits for a child as waitpid() does. If the wait fails, no child was taken. Waiting for the end
 * of a single process needs no helper thread; `ct_offload` of them can wait for others. */
pid_t aco_waitpid(pid_t pid, int *status, int options);

/* Waits as sigwaitinfo() does for one of the signals of `set`, which are blocked in all threads,
 * and returns its number. `info` may be NULL. */
#ifdef SI_USER /* <signal.h> has siginfo_t, so unless in strict C without POSIX */
int aco_wait_signal(const sigset_t *set, siginfo_t *info);
#endif

/* ==== Looking inside ========================================================================= */

/* With ACO_WATCHDOG=50ms or so in the environment, a thread reports on stderr tasks that have kept
 * their thread for longer, tasks that wait for each other for ever, and the holders of locks that
 * others want; and, when a runtime ends, its tasks and groups that were never joined.
 * ACO_TRACE=FILE names a file for when each task ran, waited and was woken, in the Trace Event
 * Format; ACO_PROFILE=FILE one for where tasks spend processor time, as collapsed stacks. Both are
 * whole if the process ends by exit(), or by a SIGHUP, SIGINT or SIGTERM that it has no handler
 * for. */

/* Prints the tasks of the process that have not ended: id, name, state, what each waits for and
 * since when, deadline, bytes of its stack that it uses, and a backtrace. Tasks that wait for the
 * same in the same place are one entry, with their number. Tasks that run on other threads
 * meanwhile are shown as they happen to be; SIGURG interrupts these threads for their backtraces,
 * unless the program uses it itself. After 5 s, further tasks have no backtraces. */
void aco_print_tasks(FILE *stream);

/* Prints the tasks on stderr whenever the process gets `signal`. A thread waits for it, and it does
 * nothing else any more: a former handler is not called. If it is SIGABRT or the signal of a fault
 * (SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP), the handler prints the list,
 * without malloc(), and then the signal does what it would have done: a former handler is called,
 * from then on alone; without one, the process ends, even if the signal was ignored. After a stack
 * overflow, the list follows its report. In a child after fork() the list is that of the
 * child, once it runs tasks. Fails as pthread_create(3), pthread_atfork(3) and sigaction(2) do. */
int aco_print_tasks_on(int signal);

/* Counts of the runtimes of the process. Those of what was done include runtimes that have ended,
 * and never fall. */
typedef struct {
    uint64_t ct_tasks;    /* that have not ended */
    uint64_t ct_started;  /* tasks */
    uint64_t ct_switches; /* to a task */
    uint64_t ct_wakes;    /* ends of waits */
    uint64_t ct_polls;    /* looks at what has happened outside */
    uint64_t ct_timers;   /* waits that have a deadline now */
    uint64_t ct_offloads; /* jobs for helper threads */
    uint64_t stacks_sz;   /* bytes mapped for stacks; memory is taken only where touched */
} aco_stats_t;
void aco_stats(aco_stats_t *stats);

/* Prints these counts in the text format of Prometheus, and more: tasks by what they wait for, and
 * two histograms. `aco_turn_seconds` is for how long tasks kept a loop from looking outside;
 * `aco_wake_seconds` is how long a task that was woken from outside waited until it ran, counted up
 * to 50 times a second. */
void aco_print_metrics(FILE *stream);

/* ==== Private ================================================================================ */

typedef struct {
    int64_t deadline; /* to go back to */
    aco_task_t *task;
    int is_shield;
    int is_first; /* 1 until the block has begun */
} aco_i_scope_t;
aco_i_scope_t aco_i_enter_within(int64_t ns);
aco_i_scope_t aco_i_enter_shielded(void);
void aco_i_leave(aco_i_scope_t *scope);
#define ACO_I_JOIN_(a, b) a##b
#define ACO_I_JOIN(a, b) ACO_I_JOIN_(a, b)
#define ACO_I_SCOPE(enter) ACO_I_SCOPE_(enter, ACO_I_JOIN(aco_i_scope_, __LINE__))
#define ACO_I_SCOPE_(enter, scope)                                                                 \
    for (aco_i_scope_t scope __attribute__((cleanup(aco_i_leave))) = enter; scope.is_first;        \
         scope.is_first = 0)

#ifdef __cplusplus
}
#endif

#endif
