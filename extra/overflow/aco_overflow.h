// SPDX-License-Identifier: Apache-2.0
/*
 * Overflow report: names the coroutine that overflowed its share stack, before the process dies.
 * Optional: the rest of aco does not depend on it. Relies on aco.h, sigaltstack() and, for the
 * backtrace, glibc.
 */
#ifndef ACO_OVERFLOW_H
#define ACO_OVERFLOW_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Handles SIGSEGV for the process, and gives the calling thread an alternate signal stack: call it
 * in every thread that runs coroutines, as a handler can't run on a stack that has overflowed.
 * Calling it again changes nothing. Cost: some system calls; the first call loads the unwinder. The
 * switch costs no more. A failure ends the process with one line on stderr and abort().
 *
 * Overflow. When the running coroutine touches the guard page of its share stack, these lines go to
 * stderr. Then follows the default action for SIGSEGV, even if the signal was handled before: the
 * process dies, and a core shows the coroutine where it faulted.
 *
 *     aco: stack overflow at ADDRESS: the share stack has no more than SIZE bytes (coroutine CO,
 *         entry function FP): ...                                                [a single line]
 *     aco: entry function:
 *     PROGRAM(FUNCTION+OFFSET)[FP]
 *     aco: backtrace, innermost frame first:
 *     PROGRAM(FUNCTION+OFFSET)[ADDRESS]                                  [at most 32 such lines]
 *     aco: more frames are not shown                                          [if that is so]
 *
 * In a task of the runtime, the report is that of aco_run(), which names the task, its function and
 * its options.
 *
 * SIZE is the share stack's sz. Functions that the program does not export lack their names: link
 * with -rdynamic, or run `addr2line -fe PROGRAM +OFFSET`. Only the first line is certain if the
 * overflow destroyed frames or another thread faults meanwhile; without glibc it is the only one.
 * The report uses calls that glibc's manual lists as async-signal-safe, and backtrace(), which is
 * safe once its library is loaded.
 *
 * Not reported: the overflow of a stack without a guard page; that by a frame larger than a page
 * whose first access is beyond the guard page (compile with -fstack-clash-protection); and a signal
 * for whose frame there is no room (use SA_ONSTACK).
 *
 * Other faults, and a SIGSEGV that was sent, go to the handler that was installed before the first
 * call, with the same arguments, signal mask, SA_NODEFER and SA_RESETHAND as without this function.
 * That handler may leave by siglongjmp(). It runs on the alternate stack, even if it did not ask
 * for SA_ONSTACK. If there was none, the default action follows.
 *
 * A handler for SIGSEGV that is installed later replaces this one. It should keep the old action
 * that sigaction() returns, call it for faults that are not its own, and set SA_ONSTACK.
 *
 * The alternate stack has MINSIGSTKSZ and 64 KiB, with a guard page below, and is freed when the
 * thread ends. One that the thread already has is kept if it has MINSIGSTKSZ and 16 KiB, and
 * replaced otherwise.
 */
void aco_install_overflow_handler(void);

#ifdef __cplusplus
}
#endif

#endif
