// SPDX-License-Identifier: Apache-2.0
/*
 * Hooks: blocking calls of libc that let other tasks run. Optional, on top of aco_runtime.h.
 *
 * Linked with a program or preloaded, they take the place of libc's calls that wait: read(),
 * poll(), connect(), nanosleep(), pthread_mutex_lock() and so on, with their fortified and 64-bit
 * variants. In a task, such a call of any library makes the task wait instead of the thread, so
 * clients of databases and the like work in tasks as they are. There is nothing to be called; link
 * with
 *
 *     -Wl,--push-state,--no-as-needed,-laco_hooks,--pop-state -laco_runtime -laco
 *
 * before other libraries, or start a program that uses libaco_runtime.so with
 * LD_PRELOAD=libaco_hooks.so. Without the options, many linkers leave out a library of which the
 * program names nothing.
 *
 * Rules
 *   - A call returns what the kernel would have returned, sets errno to the same, and leaves the
 *     descriptor as that would: O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO and the MSG_ flags count.
 *   - What sets O_NONBLOCK or a timeout counts at once if it is hooked: fcntl(), ioctl() and
 *     setsockopt(). If another process does so, or a direct system call, it may take a second.
 *   - A call that waits fails also with ETIMEDOUT once the deadline of its task has passed, and
 *     with ECANCELED once the task was cancelled; pthread_ functions return these. But without a
 *     limit in time, pthread_mutex_lock(), pthread_rwlock_rdlock() and _wrlock() wait in any case:
 *     hardly a caller would notice that it does not have the lock.
 *   - Mutexes, rwlocks and semaphores belong to tasks, so one that is held over a wait never stops
 *     the thread. Tasks get them in the order in which they came; threads may be faster. Mutexes
 *     that processes share, and those that are robust or have a priority protocol, belong to the
 *     thread, but tasks find them taken all the same. If these are also recursive or check errors,
 *     they are left to libc, and the thread waits for them; so are rwlocks, conditions and
 *     semaphores that processes share.
 *   - A pthread_cond_wait() that fails has locked the mutex again. Callers that ignore the failure
 *     and wait again find others run meanwhile.
 *   - Waits for locks of files, by flock(), lockf() and fcntl(), and for threads, by
 *     pthread_join(), are left to a thread for each. To end the former, the last real-time signal
 *     is taken that the program does not use then.
 *   - A task that waits is not interrupted by signals.
 *   - Closing a descriptor, by any thread, ends the waits of tasks for it with EBADF before the
 *     number is used again.
 *   - Outside of tasks, and in a child after fork() until exec, each call is libc's.
 *   - Calls that libc makes inside of itself, such as those of stdio, and direct system calls are
 *     not reached: they block the thread. aco_offload() runs such code on a helper thread.
 */
#ifndef ACO_HOOKS_H
#define ACO_HOOKS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Whether libraries that the program has loaded reach the hooks. When a runtime starts and they
 * don't, a line on stderr tells why. */
int aco_hooks_active(void);

/*
 * Names the libraries whose pthread keys have values of their own in each task, instead of each
 * thread: words that the names of their files begin with, parted by spaces. Must be called before
 * these make their keys. Without a call: "libcrypto". Returns 0; or -1 with ENOMEM, or EINVAL
 * for NULL.
 */
int aco_hooks_own_keys(const char *libraries);

#ifdef __cplusplus
}
#endif

#endif
