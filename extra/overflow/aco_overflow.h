// SPDX-License-Identifier: Apache-2.0
/*
 * Overflow report: names the coroutine that ran off its share stack before the process dies of it.
 * Optional; nothing of aco depends on it. Relies on aco.h, sigaltstack() and, for the backtrace,
 * glibc.
 */
#ifndef ACO_OVERFLOW_H
#define ACO_OVERFLOW_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Handles SIGSEGV for the process and gives the calling thread an alternate signal stack: call it
 * in every thread that runs coroutines, as a handler can't run on a stack that is used up. Calling
 * it again changes nothing. Cost: some system calls, and the first call loads the unwinder. None
 * for the switch. On failure ends in one line on stderr and abort().
 *
 * Overflow. When the running coroutine touches the guard page of its share stack, these lines go to
 * stderr, then the default action for SIGSEGV follows, whoever handled the signal before: the
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
 * SIZE is the share stack's sz. Functions that the program does not export lack their names: link
 * with -rdynamic, or ask `addr2line -fe PROGRAM +OFFSET`. Only the first line is sure to come if
 * the overflow has destroyed the frames, and if another thread faults meanwhile; where libc is not
 * glibc, it is all. The report itself is made of calls that glibc's manual calls async-signal-safe, and of backtrace(), which is that
 * once its library is loaded.
 *
 * What is no overflow in this sense: that of a stack without a guard page, a frame larger than a
 * page whose first access is beyond the guard page (compile with -fstack-clash-protection), and a
 * signal for whose frame there is no room (use SA_ONSTACK).
 *
 * A fault elsewhere, and a SIGSEGV that was sent, goes to whoever handled it before the first call,
 * with the same arguments, signal mask, SA_NODEFER and SA_RESETHAND as without this function. It
 * may leave by siglongjmp(). It runs on the alternate stack, though, also if it did not ask for
 * SA_ONSTACK. Where nobody handled it, the default action follows.
 *
 * Who installs a handler for SIGSEGV later replaces this one; it should keep what sigaction() gives
 * it as the old action, call that for faults that are not its own, and set SA_ONSTACK.
 *
 * The alternate stack (POSIX, sigaltstack(): each thread has its own) takes MINSIGSTKSZ and 64 KiB
 * with a guard page below, and is freed when the thread ends. One that the thread has already is
 * kept if it has MINSIGSTKSZ and 16 KiB, and otherwise replaced.
 */
void aco_install_overflow_handler(void);

#ifdef __cplusplus
}
#endif

#endif
