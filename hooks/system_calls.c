// SPDX-License-Identifier: Apache-2.0
/*
 * syscall(). The standard libraries of C++ and Rust, and GLib, wait for futexes by it; some
 * programs make any call by it. In tasks, a call that has a hook under a name of libc goes there.
 * libc calls no handlers of fork() in a child of syscall() or _Fork(), so it is prepared here.
 */
#include "waiting.h"

#include <linux/sched.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

HOOKS_OF(system_calls);

/* ==== Without libc =========================================================================== */

/* The hooks' own calls of syscall() come here: libc's function may be unknown as yet, and the hook
 * is for others. Returns -errno. */
long aco_i_raw_syscall(long number, long a, long b, long c, long d, long e, long f);

/* clang-format off */
#if defined(__x86_64__)
#define RAW_SYSCALL                                                                                \
    "movq %rdi, %rax; movq %rsi, %rdi; movq %rdx, %rsi; movq %rcx, %rdx;"                          \
    "movq %r8, %r10; movq %r9, %r8; movq 8(%rsp), %r9; syscall; ret"
#elif defined(__i386__)
#define RAW_SYSCALL                                                                                \
    "pushl %ebx; pushl %esi; pushl %edi; pushl %ebp;"                                              \
    "movl 20(%esp), %eax; movl 24(%esp), %ebx; movl 28(%esp), %ecx; movl 32(%esp), %edx;"          \
    "movl 36(%esp), %esi; movl 40(%esp), %edi; movl 44(%esp), %ebp; int $0x80;"                    \
    "popl %ebp; popl %edi; popl %esi; popl %ebx; ret"
#elif defined(__aarch64__)
#define RAW_SYSCALL                                                                                \
    "mov x8, x0; mov x0, x1; mov x1, x2; mov x2, x3; mov x3, x4; mov x4, x5; mov x5, x6;"          \
    "svc #0; ret"
#elif defined(__arm__)
#define RAW_SYSCALL                                                                                \
    "mov ip, sp; push {r4-r7}; mov r7, r0; mov r0, r1; mov r1, r2; mov r2, r3;"                    \
    "ldmia ip, {r3-r5}; svc #0; pop {r4-r7}; bx lr"
#elif defined(__riscv)
#define RAW_SYSCALL                                                                                \
    "mv t0, a0; mv a0, a1; mv a1, a2; mv a2, a3; mv a3, a4; mv a4, a5; mv a5, a6;"                 \
    "mv a7, t0; ecall; ret"
#else
#error "aco: write RAW_SYSCALL for this processor"
#endif
#ifdef __thumb__
#define FUNCTION ".thumb_func; .type aco_i_raw_syscall, %function;"
#else
#define FUNCTION ".type aco_i_raw_syscall, %function;"
#endif
__asm__(".pushsection .text; .balign 16; .globl aco_i_raw_syscall; .hidden aco_i_raw_syscall;"
        FUNCTION "aco_i_raw_syscall:" RAW_SYSCALL ";"
        ".size aco_i_raw_syscall, .-aco_i_raw_syscall; .popsection");
/* clang-format on */

/* Takes all six arguments, as libc's function does. */
HIDDEN EARLY long hook_own_syscall(long number, long a, long b, long c, long d, long e,
                                   long f) __asm__("aco_i_syscall");
long hook_own_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long result = aco_i_raw_syscall(number, a, b, c, d, e, f);
    return result < 0 && result >= -4095 ? refuse((int)-result) : result;
}

/* ==== In tasks =============================================================================== */

#undef syscall

HOOK(long, syscall, (long number, long a, long b, long c, long d, long e, long f),
     (number, a, b, c, d, e, f), aco_i_syscall(number, a, b, c, d, e, f));

long aco_i_libc_syscall(long number, const args_t *args)
{
    const long *at = args->at;
    return real_syscall(number, at[0], at[1], at[2], at[3], at[4], at[5]);
}

#define INT(i) ((int)args->at[i])
#define UNSIGNED(i) ((unsigned)args->at[i])
#define SZ(i) ((size_t)args->at[i])
#define PTR(i) ((void *)args->at[i])

/* The calls that have a hook, by the names of both. */
#define CALLS(X)                                                                                   \
    X(read, read(INT(0), PTR(1), SZ(2)))                                                           \
    X(write, write(INT(0), PTR(1), SZ(2)))                                                         \
    X(readv, readv(INT(0), PTR(1), INT(2)))                                                        \
    X(writev, writev(INT(0), PTR(1), INT(2)))                                                      \
    X(recvfrom, recvfrom(INT(0), PTR(1), SZ(2), INT(3), PTR(4), PTR(5)))                           \
    X(sendto, sendto(INT(0), PTR(1), SZ(2), INT(3), PTR(4), UNSIGNED(5)))                          \
    X(recvmsg, recvmsg(INT(0), PTR(1), INT(2)))                                                    \
    X(sendmsg, sendmsg(INT(0), PTR(1), INT(2)))                                                    \
    X(accept4, accept4(INT(0), PTR(1), PTR(2), INT(3)))                                            \
    X(connect, connect(INT(0), PTR(1), UNSIGNED(2)))                                               \
    X(shutdown, shutdown(INT(0), INT(1)))                                                          \
    X(splice, splice(INT(0), PTR(1), INT(2), PTR(3), SZ(4), UNSIGNED(5)))                          \
    X(tee, tee(INT(0), INT(1), SZ(2), UNSIGNED(3)))                                                \
    X(vmsplice, vmsplice(INT(0), PTR(1), SZ(2), UNSIGNED(3)))                                      \
    X(close, close(INT(0)))                                                                        \
    X(dup3, dup3(INT(0), INT(1), INT(2)))                                                          \
    X(fsync, fsync(INT(0)))                                                                        \
    X(fdatasync, fdatasync(INT(0)))                                                                \
    X(flock, flock(INT(0), INT(1)))                                                                \
    X(ioctl, ioctl(INT(0), SZ(1), PTR(2)))                                                         \
    X(setsockopt, setsockopt(INT(0), INT(1), INT(2), PTR(3), UNSIGNED(4)))                         \
    X(ppoll, call_ppoll(number, args))                                                             \
    X(pselect6, call_pselect(number, args))                                                        \
    X(epoll_pwait, epoll_pwait(INT(0), PTR(1), INT(2), INT(3), MASK(PTR(4))))                      \
    X(nanosleep, nanosleep(PTR(0), PTR(1)))                                                        \
    X(clock_nanosleep, result_of(clock_nanosleep(INT(0), INT(1), PTR(2), PTR(3))))                 \
    X(sched_yield, sched_yield())                                                                  \
    X(rt_sigtimedwait, sigtimedwait(MASK(PTR(0)), PTR(1), PTR(2)))                                 \
    X(wait4, wait4(INT(0), PTR(1), INT(2), PTR(3)))

/* Some processors have no numbers for these. */
#ifdef SYS_poll
#define OLD_CALLS(X)                                                                               \
    X(poll, poll(PTR(0), UNSIGNED(1), INT(2)))                                                     \
    X(epoll_wait, epoll_wait(INT(0), PTR(1), INT(2), INT(3)))                                      \
    X(dup2, dup2(INT(0), INT(1)))                                                                  \
    X(pause, pause())
#else
#define OLD_CALLS(X)
#endif
#ifdef SYS_accept
#define ACCEPT(X) X(accept, accept(INT(0), PTR(1), PTR(2)))
#else
#define ACCEPT(X)
#endif
/* These have the same arguments as libc's functions only where addresses have 64 bits. */
#if __SIZEOF_POINTER__ == 8
#define LARGE_CALLS(X)                                                                             \
    X(pread64, pread(INT(0), PTR(1), SZ(2), args->at[3]))                                          \
    X(pwrite64, pwrite(INT(0), PTR(1), SZ(2), args->at[3]))                                        \
    X(sendfile, sendfile(INT(0), INT(1), PTR(2), SZ(3)))                                           \
    X(fcntl, fcntl(INT(0), INT(1), PTR(2)))
#else
#define LARGE_CALLS(X)
#endif
#ifdef __x86_64__
#define SELECT(X) X(select, select(INT(0), PTR(1), PTR(2), PTR(3), PTR(4)))
#else
#define SELECT(X)
#endif

static long result_of(int error)
{
    return error == 0 ? 0 : refuse(error);
}

#define MASK_SZ 8u /* bytes of the kernel's set of signals; libc's is larger */

/* Copies a set of the kernel's to one of libc's; NULL if there is none. */
static const sigset_t *mask_in(sigset_t *room, const void *mask)
{
    if (mask == NULL) {
        return NULL;
    }
    memset(room, 0, sizeof(*room));
    memcpy(room, mask, MASK_SZ);
    return room;
}

#define MASK(mask) mask_in(&(sigset_t){{0}}, mask)

/* The kernel, unlike libc, tells how much of the timeout is left. */
static long call_ppoll(long number, const args_t *args)
{
    struct timespec *t = (struct timespec *)PTR(2);
    if ((PTR(3) != NULL && SZ(4) != MASK_SZ) || (t != NULL && !is_valid_time(t))) {
        return aco_i_libc_syscall(number, args);
    }
    int64_t until = end_of(t);
    int result = ppoll(PTR(0), UNSIGNED(1), t, MASK(PTR(3)));
    if (t != NULL && until != 0) {
        *t = left_until(until);
    }
    return result;
}

static long call_pselect(long number, const args_t *args)
{
    struct timespec *t = (struct timespec *)PTR(4);
    const long *mask = (const long *)PTR(5); /* and its size */
    if ((mask != NULL && mask[0] != 0 && (size_t)mask[1] != MASK_SZ) ||
        (t != NULL && !is_valid_time(t))) {
        return aco_i_libc_syscall(number, args);
    }
    int64_t until = end_of(t);
    int result = pselect(INT(0), PTR(1), PTR(2), PTR(3), t,
                         MASK(mask != NULL ? (const void *)mask[0] : NULL));
    if (t != NULL && until != 0) {
        *t = left_until(until);
    }
    return result;
}

static long call_in_task(long number, const args_t *args)
{
    switch (number) {
#define X(name, call)                                                                              \
    case SYS_##name:                                                                               \
        return call;
        CALLS(X)
        OLD_CALLS(X)
        ACCEPT(X)
        LARGE_CALLS(X)
        SELECT(X)
#undef X
    default:
        return aco_i_libc_syscall(number, args);
    }
}

/* ==== Children =============================================================================== */

/* Whether a call makes a child that has a copy of the memory. */
static int may_fork(long number, long first)
{
#ifdef SYS_fork
    if (number == SYS_fork) {
        return 1;
    }
#endif
    return number == SYS_clone    ? (first & CLONE_VM) == 0
           : number == SYS_clone3 ? (*(const uint64_t *)first & CLONE_VM) == 0
                                  : 0;
}

HOOK(pid_t, _Fork, (void), (), refuse(ENOSYS))
{
    pid_t pid = real__Fork();
    if (pid == 0) {
        aco_i_begin_child();
    }
    return pid;
}

/* ==== Any ==================================================================================== */

long hook_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    args_t args = {{a, b, c, d, e, f}};
#ifdef SYS_futex_time64
    if (number == SYS_futex_time64) {
        return aco_i_futex(number, &args, CALLER);
    }
#endif
    if (number == SYS_futex) {
        return aco_i_futex(number, &args, CALLER);
    }
    long result = is_in_task() ? NESTED(call_in_task(number, &args))
                               : real_syscall(number, a, b, c, d, e, f);
    if (result == 0 && may_fork(number, a)) {
        aco_i_begin_child();
    }
    return result;
}
