// SPDX-License-Identifier: Apache-2.0
/*
 * Joining threads, calling functions once, and barriers.
 *
 * A helper thread of its own joins for each task. If the task gives up, the helper is cancelled,
 * and the other thread can still be joined.
 */
#include "waiting.h"

#include <dlfcn.h>
#include <signal.h>

HOOKS_OF(threads);

#define INTERVAL 1000000 /* ns between interruptions of a call, as one may come before it begins */

/* ==== Threads that make a call =============================================================== */

static void tell_end(void *arg)
{
    caller_t *caller = (caller_t *)arg;
    lock(&caller->lock);
    aco_task_t *task = caller->task;
    caller->has_ended = 1;
    int is_claimed = !caller->is_left && aco_i_claim(task, WAIT_EVENT);
    unlock(&caller->lock);
    if (is_claimed) {
        aco_i_make_ready(task); /* it joins this thread before it frees `caller` */
    }
}

static void *run_caller(void *arg)
{
    caller_t *caller = (caller_t *)arg;
    pthread_cleanup_push(tell_end, caller);
    caller->call(caller);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* a late one must not stop the report */
    pthread_cleanup_pop(1);
    return NULL;
}

static int start_caller(caller_t *caller)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&caller->thread, NULL, run_caller, caller);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Sets whether the thread leaves the task alone. */
static void leave(caller_t *caller, int is_left)
{
    lock(&caller->lock);
    caller->is_left = (char)is_left;
    unlock(&caller->lock);
}

static int handle_interrupt(caller_t *caller, const limit_t *limit)
{
    leave(caller, 1);
    int goes_on = goes_on_after(WAIT_INTERRUPTED, limit);
    leave(caller, 0);
    return goes_on;
}

/* Waits until the thread has reported its end. 0, or why the task gives up. */
static int wait_for_caller(caller_t *caller, const limit_t *limit)
{
    SHIELD_LATER(shield);
    for (;;) {
        lock(&caller->lock);
        if (caller->has_ended) {
            unlock(&caller->lock);
            return 0;
        }
        aco_i_open_wait(caller->task, FOR_HELPER);
        unlock(&caller->lock);
        outcome_t outcome = aco_i_wait_within(caller->task, limit);
        if (outcome == WAIT_EVENT || outcome == WAIT_NONE ||
            (outcome == WAIT_INTERRUPTED && handle_interrupt(caller, limit))) {
            continue;
        }
        if (outcome != WAIT_INTERRUPTED && aco_i_limit_goes_on(limit)) {
            shield = aco_i_enter_shielded();
        } else {
            return aco_i_error_of(outcome);
        }
    }
}

static void interrupt(caller_t *caller)
{
    int is_ended = 0;
    while (!is_ended) {
        caller->interrupt(caller);
        aco_shielded
        {
            struct timespec time = timespec_of(aco_i_after(INTERVAL));
            limit_t soon = {.time = &time, .clock = CLOCK_MONOTONIC};
            is_ended = wait_for_caller(caller, &soon) == 0;
        }
    }
}

HOOK(int, pthread_join, (pthread_t thread, void **result), (thread, result), EBUSY);

int aco_i_call_by_thread(caller_t *caller, const limit_t *limit)
{
    caller->task = aco_i_running_task();
    int error = start_caller(caller);
    if (error != 0) {
        return error;
    }
    error = wait_for_caller(caller, limit);
    if (error != 0) {
        interrupt(caller);
    }
    real_pthread_join(caller->thread, NULL);
    return error;
}

/* ==== Ends and jumps ========================================================================= */

/* libc would unwind the task's stack, and end at its first frame. */
HOOK(void, pthread_exit, (void *result), (result), (void)0)
{
    if (is_in_task()) {
        aco_i_misuse_of("pthread_exit", "a task does not end its thread: return from its function");
    }
    real_pthread_exit(result);
}

HOOK(void, thrd_exit, (int result), (result), (void)0)
{
    if (is_in_task()) {
        aco_i_misuse_of("thrd_exit", "a task does not end its thread: return from its function");
    }
    real_thrd_exit(result);
}

/* While the thread waits for all its tasks, a signal handler alone can jump, and the frames that it
 * jumps to are those of a task that waits. */
static void check_jump(const char *call)
{
    if (aco_i_loop != NULL && aco_i_loop->running == NULL && aco_i_is_in_run()) {
        aco_i_misuse_of(call,
                        "a signal handler jumps into a task that waits: limit the wait by "
                        "aco_within(), or let the handler call aco_unpark()");
    }
}

#define HOOK_JUMP(name, shown)                                                                     \
    HOOK(void, name, (void *buf, int value), (buf, value), (void)0)                                \
    {                                                                                              \
        check_jump(shown);                                                                         \
        real_##name(buf, value);                                                                   \
    }                                                                                              \
    _Static_assert(1, "")

HOOK_JUMP(longjmp, "longjmp");
HOOK_JUMP(_longjmp, "_longjmp");
HOOK_JUMP(siglongjmp, "siglongjmp");
HOOK_JUMP(__longjmp_chk, "siglongjmp");

/* ==== Joining ================================================================================ */

typedef struct {
    caller_t caller;
    pthread_t thread;
    void *result;
    int error; /* ECANCELED: it was not joined */
} join_t;

HOOK(int, pthread_clockjoin_np,
     (pthread_t thread, void **result, clockid_t clock, const struct timespec *time),
     (thread, result, clock, time), EBUSY);

static void call_join(caller_t *caller)
{
    join_t *join = (join_t *)caller;
    join->error = real_pthread_join(join->thread, &join->result);
}

static void cancel_join(caller_t *caller)
{
    pthread_cancel(caller->thread);
}

static int join_in_task(pthread_t thread, void **result, const limit_t *limit)
{
    int error = pthread_equal(thread, pthread_self()) ? EDEADLK
                                                      : pthread_tryjoin_np(thread, result);
    if (error != EBUSY) {
        return error;
    }
    join_t *join = (join_t *)aco_i_allocate(sizeof(*join));
    if (join == NULL) {
        return EAGAIN;
    }
    memset(join, 0, sizeof(*join));
    join->caller.call = call_join;
    join->caller.interrupt = cancel_join;
    join->thread = thread;
    join->error = ECANCELED;
    error = aco_i_call_by_thread(&join->caller, limit);
    error = join->error != ECANCELED ? join->error : error;
    if (error == 0 && result != NULL) {
        *result = join->result;
    }
    aco_i_release(join);
    return error;
}

int hook_pthread_join(pthread_t thread, void **result)
{
    limit_t limit = {.caller = CALLER};
    return is_in_task() ? join_in_task(thread, result, &limit) : real_pthread_join(thread, result);
}

int hook_pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock,
                              const struct timespec *time)
{
    limit_t limit = {.time = time, .clock = clock, .caller = CALLER};
    return is_in_task() && is_for_waits(clock) && (time == NULL || is_valid(time))
               ? join_in_task(thread, result, &limit)
               : real_pthread_clockjoin_np(thread, result, clock, time);
}

HOOK(int, pthread_timedjoin_np, (pthread_t thread, void **result, const struct timespec *time),
     (thread, result, time), EBUSY)
{
    limit_t limit = {.time = time, .clock = CLOCK_REALTIME, .caller = CALLER};
    return is_in_task() && (time == NULL || is_valid(time))
               ? join_in_task(thread, result, &limit)
               : real_pthread_timedjoin_np(thread, result, time);
}

/* ==== Once =================================================================================== */

/* Bits of a pthread_once_t: a thread calls the function; the function has returned. TSan has bits
 * of its own. */
#ifdef ACO_USE_TSAN
#define ONCE_BEGUN (1 << 16)
#define ONCE_DONE 1
#else
#define ONCE_BEGUN 1
#define ONCE_DONE 2
#endif

static int try_once(void *once)
{
    int bits = __atomic_load_n((pthread_once_t *)once, __ATOMIC_ACQUIRE);
    return (bits & (ONCE_BEGUN | ONCE_DONE)) == ONCE_BEGUN ? EBUSY : 0;
}

/* The end of a call is not seen if an exception leaves the function. */
static int is_once_watched(const void *once)
{
    (void)once;
    return 0;
}

/* libstdc++ leaves in these what std::call_once() calls. They belong to the kernel's thread, and
 * other tasks set them while one waits. NULL: `fn` is not of libstdc++. */
typedef struct {
    void **callable, **call;
} of_libstdcxx_t;

static of_libstdcxx_t find_in(void *library)
{
    return (of_libstdcxx_t){(void **)dlsym(library, "_ZSt15__once_callable"),
                            (void **)dlsym(library, "_ZSt11__once_call")};
}

/* A library that was loaded for another one alone is found by its name. */
static of_libstdcxx_t find_variables(const void *fn)
{
    Dl_info info;
    if (dladdr(fn, &info) == 0 || info.dli_sname == NULL ||
        strcmp(info.dli_sname, "__once_proxy") != 0) {
        return (of_libstdcxx_t){NULL, NULL};
    }
    of_libstdcxx_t variables = find_in(RTLD_DEFAULT);
    void *library = variables.call == NULL ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library != NULL) {
        variables = find_in(library);
        dlclose(library);
    }
    return variables;
}

static void wait_for_once(pthread_once_t *once, const void *fn)
{
    static const lockable_t kind = {try_once, is_once_watched, 1, FOR_MUTEX};
    static const limit_t never;
    of_libstdcxx_t variables = find_variables(fn);
    int is_found = variables.callable != NULL && variables.call != NULL;
    void *callable = is_found ? *variables.callable : NULL;
    void *call = is_found ? *variables.call : NULL;
    aco_shielded
    {
        aco_i_obtain(&kind, once, &never);
    }
    if (is_found) {
        *variables.callable = callable;
        *variables.call = call;
    }
}

/* Tasks wait here, not in libc, while another task of their thread is in the function. */
HOOK(int, pthread_once, (pthread_once_t * once, void (*fn)(void)), (once, fn), EAGAIN)
{
    if (!is_in_task() || (__atomic_load_n(once, __ATOMIC_ACQUIRE) & ONCE_DONE) != 0) {
        return real_pthread_once(once, fn);
    }
    if (try_once(once) != 0) {
        wait_for_once(once, (const void *)(uintptr_t)fn);
    }
    int error = real_pthread_once(once, fn);
    released(once);
    return error;
}

/* ==== Static variables of C++ functions ====================================================== */

/* Bits of the first word of a guard. C++ runtimes use others for the call that initialises. */
#define GUARD_DONE 1u /* in the first byte, which compilers test */
#define GUARD_BYTE 0xffu
#define GUARD_BEGUN 0x100u

static int try_guard(void *guard)
{
    uint32_t bits = __atomic_load_n((uint32_t *)guard, __ATOMIC_ACQUIRE);
    return bits != 0 && (bits & GUARD_BYTE) == 0 ? EBUSY : 0;
}

/* For programs in which the C++ runtime is no library, so that its functions can't be found. */
static int acquire_guard(uint32_t *guard)
{
    for (uint32_t bits = 0; !__atomic_compare_exchange_n(guard, &bits, GUARD_BEGUN, 0,
                                                         __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
         bits = 0) {
        if ((bits & GUARD_BYTE) != 0) {
            return 0;
        }
        sched_yield();
    }
    return 1;
}

static int set_guard(uint32_t *guard, uint32_t bits)
{
    __atomic_store_n(guard, bits, __ATOMIC_RELEASE);
    return 0;
}

/* TSan's own functions for guards order nothing after an abort. */
#ifdef __SANITIZE_THREAD__
#define ORDER_GUARD(guard) ((void)__atomic_fetch_or(guard, 0, __ATOMIC_ACQ_REL))
#else
#define ORDER_GUARD(guard) ((void)(guard))
#endif

/* Returns whether the caller must initialise the variable. In a process with one thread, C++
 * runtimes take a second task for a recursion; tasks therefore wait here. */
HOOK(int, __cxa_guard_acquire, (uint32_t * guard), (guard), acquire_guard(guard))
{
    static const lockable_t kind = {try_guard, NULL, 1, FOR_MUTEX};
    static const limit_t never;
    if (is_in_task() && try_guard(guard) != 0) {
        aco_shielded
        {
            aco_i_obtain(&kind, guard, &never);
        }
    }
    int must_initialise = real___cxa_guard_acquire(guard);
    ORDER_GUARD(guard);
    return must_initialise;
}

HOOK(void, __cxa_guard_release, (uint32_t * guard), (guard), set_guard(guard, GUARD_DONE))
{
    real___cxa_guard_release(guard);
    released(guard);
}

HOOK(void, __cxa_guard_abort, (uint32_t * guard), (guard), set_guard(guard, 0))
{
    ORDER_GUARD(guard);
    real___cxa_guard_abort(guard);
    released(guard);
}

/* ==== Spin locks ============================================================================= */

#define CT_SPINS 100

HOOK(int, pthread_spin_trylock, (pthread_spinlock_t * lock), (lock), 0)
{
    return real_pthread_spin_trylock(lock);
}

static int try_spin(void *lock)
{
    return real_pthread_spin_trylock((pthread_spinlock_t *)lock);
}

/* Not watched: a release must cost no more than it does. */
static int is_spin_watched(const void *lock)
{
    (void)lock;
    return 0;
}

/* Another task of the thread may hold it over a wait, or another thread for a moment. */
HOOK(int, pthread_spin_lock, (pthread_spinlock_t * lock), (lock), 0)
{
    static const lockable_t kind = {try_spin, is_spin_watched, 1, FOR_MUTEX};
    static const limit_t never;
    if (!is_in_task()) {
        return real_pthread_spin_lock(lock);
    }
    int error = EBUSY;
    for (int ct = 0; ct < CT_SPINS && (error = try_spin((void *)(uintptr_t)lock)) == EBUSY; ct++) {
        aco_i_yield();
    }
    aco_shielded
    {
        return error != EBUSY ? error : aco_i_obtain(&kind, (void *)(uintptr_t)lock, &never);
    }
    return error;
}

/* ==== Barriers =============================================================================== */

/* A helper thread calls libc for each task that waits: libc's barriers have no other call. It can't
 * fail. */
static void *do_barrier_wait(void *barrier);

HOOK(int, pthread_barrier_wait, (pthread_barrier_t * barrier), (barrier), EINVAL)
{
    void *result = NULL;
    if (!is_in_task()) {
        return real_pthread_barrier_wait(barrier);
    }
    aco_shielded
    {
        aco_i_offload(HELPERS_FOR_LONG, do_barrier_wait, barrier, NULL, &result);
    }
    return (int)(intptr_t)result;
}

static void *do_barrier_wait(void *barrier)
{
    return (void *)(intptr_t)real_pthread_barrier_wait((pthread_barrier_t *)barrier);
}
