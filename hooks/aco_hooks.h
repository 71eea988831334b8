// SPDX-License-Identifier: Apache-2.0
/*
 * Hooks: blocking calls of libc that let other tasks run. Optional, on top of aco_runtime.h.
 *
 * Linked with a program or preloaded, they take the place of libc's calls that wait: read(),
 * poll(), connect(), nanosleep(), pthread_mutex_lock() and so on, with their fortified and 64-bit
 * variants. In a task, such a call of any library makes the task wait instead of the thread, so
 * clients of databases and the like work in tasks as they are. A program need not call anything.
 * Link it with
 *
 *     -Wl,--push-state,--no-as-needed,-laco_hooks,--pop-state -laco_runtime -laco
 *
 * before other libraries, or start a program that uses libaco_runtime.so with
 * LD_PRELOAD=libaco_hooks.so. Without these options, many linkers leave out the library, as the
 * program refers to nothing in it.
 *
 * Rules
 *   - A call returns what the kernel would have returned, with the same errno, and leaves the
 *     descriptor in the same state. O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO and the MSG_ flags count.
 *   - A change of O_NONBLOCK or a timeout counts at once if a hooked call makes it: fcntl(),
 *     ioctl() or setsockopt(). A change by another process or a direct system call may take a
 *     second.
 *   - A call that waits fails also with ETIMEDOUT once the deadline of its task has passed, and
 *     with ECANCELED once the task was cancelled; pthread_ functions return these. But
 *     pthread_mutex_lock(), pthread_rwlock_rdlock() and _wrlock(), which have no time limit, wait
 *     in any case: hardly any caller would notice that it does not have the lock.
 *     aco_hooks_on_deadline() chooses another answer for a library.
 *   - Writes to regular files, fsync() and fdatasync() end in any case, too: a part may have been
 *     written, and databases take a failure for a broken file.
 *   - A wait for a futex, by syscall(), does the same: without a time limit it waits in any case.
 *   - Mutexes, rwlocks and semaphores belong to tasks, so one that is held over a wait never stops
 *     the thread. Tasks get them in the order in which they came; threads may overtake them.
 *     Mutexes that processes share, and those that are robust or have a priority protocol, belong
 *     to the thread, but tasks find them taken all the same. If these are also recursive or check
 *     errors, libc handles them and the thread waits; the same holds for rwlocks that processes
 *     share.
 *   - A task that waits for a semaphore that processes share tries every 50 ms at least. Each wait
 *     for a condition that processes share takes a thread of its own.
 *   - A pthread_cond_wait() that fails has locked the mutex again. Other tasks run meanwhile even
 *     if the caller ignores the failure and waits again.
 *   - Each wait for a file lock, by flock(), lockf() or fcntl(), and each wait for a thread, by
 *     pthread_join(), takes a thread of its own. A signal ends waits for file locks: the last
 *     real-time signal that the program does not use at that time.
 *   - A task that waits is not interrupted by signals.
 *   - Closing a descriptor, by any thread, ends the waits of tasks for it with EBADF before the
 *     number is used again.
 *   - Outside of tasks, and in a child after fork() until exec, each call is libc's.
 *   - pthread_exit() in a task aborts with a message, and so does a signal handler that jumps into
 *     a task that waits.
 *   - Hooks do not reach calls inside libc, such as those of stdio, and system calls by an
 *     instruction of the caller: these block the thread. aco_offload() runs such code on a helper
 *     thread.
 */
#ifndef ACO_HOOKS_H
#define ACO_HOOKS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether the libraries that the program has loaded reach the hooks. If they don't when a
 * runtime starts, a line on stderr says why. */
int aco_hooks_active(void);

/*
 * Adds to the libraries whose pthread keys have a value for each task instead of each thread: at
 * first "libcrypto libpython liblmdb libgit2 libcups libnats libtirpc". `libraries` has prefixes of
 * file names, separated by spaces; that of a program counts for what is linked into it statically.
 * It must be called before they create their keys, and by one thread at a time. Returns 0; or -1
 * with ENOMEM, or with EINVAL for NULL.
 */
int aco_hooks_own_keys(const char *libraries);

/* The same as aco_hooks_own_keys(), but replaces the list; "": no library has keys of its own. */
int aco_hooks_set_own_keys(const char *libraries);

/* Answers to a call of a task whose deadline has passed, or that was cancelled. */
typedef enum {
    ACO_HOOKS_ERROR,      /* it fails with ETIMEDOUT or ECANCELED */
    ACO_HOOKS_LOCKS_WAIT, /* waits for mutexes, rwlocks, conditions, semaphores, futexes and
                             threads go on; other calls fail so */
    ACO_HOOKS_EINTR,      /* the same, but those fail with EINTR, each time */
    ACO_HOOKS_WAIT        /* all waits go on */
} aco_hooks_answer_t;

/*
 * Says how calls by libraries are answered when their task is late: many abort, or lose what they
 * have, if a call fails as it never does in a thread. `libraries` has prefixes of file names,
 * as for aco_hooks_own_keys(); the last answer for a name counts. At first, "libzmq libnanomsg" get
 * ACO_HOOKS_EINTR, "libpython libnng libdb-" ACO_HOOKS_LOCKS_WAIT, "libuv libevent libtevent
 * libglib- libgio-" ACO_HOOKS_WAIT, and all others ACO_HOOKS_ERROR; then the environment counts,
 * such as
 *
 *     ACO_HOOKS_ON_DEADLINE="libzmq=error libfoo=EINTR libbar=wait libbaz=locks-wait"
 *
 * The library is that which calls the hook. Threads that libaco_pthreads makes tasks always get
 * ACO_HOOKS_ERROR. Returns 0; or -1 with ENOMEM, or with EINVAL for NULL or an unknown answer.
 */
int aco_hooks_on_deadline(const char *libraries, aco_hooks_answer_t answer);

#ifdef __cplusplus
}
#endif

#endif
