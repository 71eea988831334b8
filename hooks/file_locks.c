// SPDX-License-Identifier: Apache-2.0
/*
 * Locks of files. fcntl() locks belong to the process or the open file, and flock() locks to the
 * open file, so another thread can wait for them. If the task gives up, a signal ends the call of
 * that thread, and the task learns whether it got the lock first.
 */
#include "waiting.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

HOOKS_OF(file_locks);

/* ==== The signal ============================================================================= */

static lock_t signal_lock;
static int signal_number; /* 0: none was taken yet */

static void do_nothing(int number)
{
    (void)number;
}

/* The last real-time signal that the program does not use; 0: there is none. It is sent only to
 * threads of these hooks. */
static int take_signal(void)
{
    lock(&signal_lock);
    for (int i = SIGRTMAX; signal_number == 0 && i >= SIGRTMIN; i--) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
            action.sa_handler == SIG_DFL) {
            action.sa_handler = do_nothing;
            action.sa_flags = 0; /* without SA_RESTART */
            signal_number = sigaction(i, &action, NULL) == 0 ? i : 0;
        }
    }
    int number = signal_number;
    unlock(&signal_lock);
    return number;
}

/* ==== Waiting ================================================================================ */

/* The kernel's structure where addresses and offsets have 32 bits. */
typedef struct {
    short type, whence;
    long start, length;
    pid_t pid;
} small_lock_t;

typedef int (*fcntl_t)(int fd, int command, void *arg);

typedef struct {
    caller_t caller;
    int fd;
    fcntl_t fcntl; /* NULL: flock() */
    int command;   /* for fcntl() or flock() */
    int signal;
    int result, error;
    union {
        struct flock64 large;
        small_lock_t small;
    } lock;
} file_lock_t;

HOOK(int, flock, (int fd, int operation), (fd, operation), syscall(SYS_flock, fd, operation));

static void call_lock(caller_t *caller)
{
    file_lock_t *l = (file_lock_t *)caller;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, l->signal);
    pthread_sigmask(l->signal != 0 ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
    l->result = l->fcntl == NULL ? real_flock(l->fd, l->command)
                                 : l->fcntl(l->fd, l->command, &l->lock);
    l->error = errno;
}

static void interrupt_lock(caller_t *caller)
{
    const file_lock_t *l = (const file_lock_t *)caller;
    if (l->signal != 0) {
        pthread_kill(caller->thread, l->signal);
    }
}

static int wait_for_lock(file_lock_t *l, const void *caller)
{
    limit_t never = {.caller = caller, .is_of_io = 1, .signals = SIGNALS_RESTART};
    l->caller.call = call_lock;
    l->caller.interrupt = interrupt_lock;
    l->signal = take_signal();
    l->result = -1;
    l->error = EINTR;
    int error = aco_i_call_by_thread(&l->caller, &never);
    int result = l->result;
    error = l->error != EINTR || error == 0 ? l->error : error;
    aco_i_release(l);
    return result >= 0 ? result : (int)refuse_to(caller, error);
}

static file_lock_t *new_lock(int fd, fcntl_t function, int command)
{
    file_lock_t *l = (file_lock_t *)aco_i_allocate(sizeof(*l));
    if (l == NULL) {
        errno = ENOLCK;
        return NULL;
    }
    memset(l, 0, sizeof(*l));
    l->fd = fd;
    l->fcntl = function;
    l->command = command;
    return l;
}

/* ==== flock() ================================================================================ */

int hook_flock(int fd, int operation)
{
    if (!is_in_task() || (operation & (LOCK_NB | LOCK_UN)) != 0) {
        return real_flock(fd, operation);
    }
    int result = real_flock(fd, operation | LOCK_NB);
    if (result == 0 || errno != EWOULDBLOCK) {
        return result;
    }
    file_lock_t *l = new_lock(fd, NULL, operation);
    return l == NULL ? -1 : wait_for_lock(l, CALLER);
}

/* ==== fcntl() and lockf() ==================================================================== */

/* The variant of a command that does not wait; 0: the command never waits. */
static int at_once(int command)
{
    switch (command) {
    case 7: /* F_SETLKW for the small structure, if there are two */
        return 6;
    case F_OFD_SETLKW:
        return F_OFD_SETLK;
#if __SIZEOF_POINTER__ == 4
    case F_SETLKW64:
        return F_SETLK64;
#endif
    default:
        return 0;
    }
}

static int lock_range(fcntl_t function, int fd, int command, void *arg, size_t sz,
                      const void *caller)
{
    int result = function(fd, at_once(command), arg);
    if (result == 0 || (errno != EAGAIN && errno != EACCES)) {
        return result;
    }
    file_lock_t *l = new_lock(fd, function, command);
    if (l == NULL) {
        return -1;
    }
    memcpy(&l->lock, arg, sz);
    return wait_for_lock(l, caller);
}

/* The size of what `arg` points to: F_SETLKW takes the small structure, and so does fcntl(), unlike
 * fcntl64(), with locks of open files. */
static size_t size_for(int command, int is_fcntl64)
{
    int is_small = command == 7 || (command == F_OFD_SETLKW && !is_fcntl64);
    return is_small && sizeof(void *) == 4 ? sizeof(small_lock_t) : sizeof(struct flock64);
}

#if __SIZEOF_POINTER__ == 8
#define SYS_FCNTL SYS_fcntl
#else
#define SYS_FCNTL SYS_fcntl64
#endif

/* The argument may also be an integer, or missing. */
#define HOOK_FCNTL(name, is_64)                                                                    \
    HOOK(int, name, (int fd, int command, void *arg), (fd, command, arg),                          \
         syscall(SYS_FCNTL, fd, command, arg))                                                     \
    {                                                                                              \
        int result = is_in_task() && at_once(command) != 0                                         \
                         ? lock_range(real_##name, fd, command, arg, size_for(command, is_64),     \
                                      CALLER)                                                      \
                         : real_##name(fd, command, arg);                                          \
        if (command == F_SETFL) {                                                                  \
            aco_i_tell_change(fd);                                                                 \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
    _Static_assert(1, "")

HOOK_FCNTL(fcntl, 0);
#if __SIZEOF_POINTER__ == 8
HOOK_ALIAS(fcntl64, fcntl);
HOOK_ALIAS(__fcntl, fcntl);
#else
HOOK_FCNTL(fcntl64, 1);
HOOK_FCNTL(__fcntl_time64, 1);
HOOK_ALIAS(__fcntl, fcntl);
#endif

static int lock_from_here(int fd, int64_t length, const void *caller)
{
    struct flock64 range = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = length};
#if __SIZEOF_POINTER__ == 4
    return lock_range(real_fcntl64, fd, F_SETLKW64, &range, sizeof(range), caller);
#else
    return lock_range(real_fcntl, fd, F_SETLKW, &range, sizeof(range), caller);
#endif
}

HOOK(int, lockf64, (int fd, int command, int64_t length), (fd, command, length), refuse(ENOSYS))
{
    return is_in_task() && command == F_LOCK ? lock_from_here(fd, length, CALLER)
                                             : real_lockf64(fd, command, length);
}

#if __SIZEOF_POINTER__ == 8
HOOK_ALIAS(lockf, lockf64);
#else
HOOK(int, lockf, (int fd, int command, long length), (fd, command, length), refuse(ENOSYS))
{
    return is_in_task() && command == F_LOCK ? lock_from_here(fd, length, CALLER)
                                             : real_lockf(fd, command, length);
}
#endif
