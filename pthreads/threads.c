// SPDX-License-Identifier: Apache-2.0
/*
 * The start, the end and joining of threads. A thread of the kernel runs the runtime, from the
 * first pthread_create() on. Its first task, the keeper, makes the tasks for threads that threads
 * of the kernel create; a task makes those that it creates itself.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <threads.h>
#include <unistd.h>

typedef void *(*start_t)(void *);

REPLACE(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t *attributes, start_t fn, void *arg),
        (thread, attributes, fn, arg), EAGAIN);

REPLACE(pthread_t, pthread_self, (void), (), 0)
{
    thread_t *thread = this_thread();
    return thread != NULL ? (pthread_t)thread : real_pthread_self();
}

/* ==== Futexes ================================================================================ */

int aco_i_wait_while(const uint32_t *word, uint32_t value, clockid_t clock,
                     const struct timespec *time)
{
    if (is_in_task()) {
        limit_t limit = {.time = time, .clock = clock};
        return aco_i_begin_wait_for_wake(word, value, UINT32_MAX) ? aco_i_end_wait(&limit, NULL)
                                                                  : EAGAIN;
    }
    int op = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
    op |= clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0;
    args_t args = {{(long)word, op, (long)value, (long)time, 0, (long)FUTEX_BITSET_MATCH_ANY}};
    return aco_i_libc_syscall(SYS_futex, &args) == 0 ? 0 : errno;
}

void aco_i_wake_all_at(uint32_t *word)
{
    args_t args = {{(long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, 0, 0, 0}};
    aco_i_futex(SYS_futex, &args, NULL);
}

void aco_i_set_and_wake(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    aco_i_wake_all_at(word);
}

/* ==== The runtime ============================================================================ */

enum { NOT_STARTED, STARTING, STARTED };

static struct {
    uint32_t state;       /* a futex */
    uint32_t error;       /* why the last start failed */
    aco_chan_t *requests; /* of pointers to threads that are to be started */
    runtime_t *runtime;
    size_t stack_sz;
    uint32_t ct_threads;            /* a futex: that have not ended */
    uint32_t most_threads, ct_made; /* atomic */
    char is_awaited;                /* somebody waits for their ends; atomic */
} keeper;

static int start_task(thread_t *thread);

static void *keep(void *arg)
{
    thread_t *thread;
    keeper.requests = aco_chan_new(sizeof(thread), 128);
    if (keeper.requests == NULL) {
        keeper.error = EAGAIN;
        return NULL;
    }
    keeper.runtime = aco_i_loop->runtime;
    if (aco_go(aco_i_find_receivers, NULL) != 0) {
        keeper.error = EAGAIN;
        return NULL;
    }
    aco_i_set_and_wake(&keeper.state, STARTED);
    while (aco_chan_recv(keeper.requests, &thread) == 1) {
        while (start_task(thread) != 0) {
            aco_sleep(SECOND / 100); /* until there is memory */
        }
    }
    return arg;
}

static void continue_thread(aco_task_t *task)
{
    aco_i_take_variables((thread_t *)task->arg);
}

/* The profile's signal comes to the threads that run loops, which block all others. */
static void unblock_profile(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPROF);
    if (getenv("ACO_PROFILE") != NULL) {
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
}

static void *run_keeper(void *arg)
{
    aco_i_on_return = continue_thread;
    aco_i_on_interrupt = aco_i_handle_interrupt;
    aco_run_options_t options = {.ct_threads = aco_i_ct_loops(), .stack_sz = keeper.stack_sz};
    prctl(PR_SET_NAME, "aco-pthreads");
    unblock_profile();
    keeper.error = 0;
    if (aco_run(&options, keep, NULL, NULL) != 0) {
        keeper.error = EAGAIN;
    }
    aco_i_set_and_wake(&keeper.state, NOT_STARTED);
    return arg;
}

/* The child has the thread that forked alone, and starts a runtime of its own. */
static void begin_child(void)
{
    memset(&keeper, 0, sizeof(keeper));
    aco_i_begin_child_of_handles();
    aco_i_begin_child_of_variables();
    if (this_thread() != NULL) {
        aco_i_take_signals(this_thread());
    }
}

int aco_i_start_own(void *(*fn)(void *), void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all, before;
    pthread_t id;
    pthread_attr_t attributes;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = real_pthread_create(&id, &attributes, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static int start_keeper(void)
{
    static aco_i_fork_handler_t at_fork = {.fn = begin_child};
    aco_i_at_fork(&at_fork);
    aco_i_watch_fork();
    keeper.stack_sz = aco_i_default_stack_sz();
    if (aco_i_list_signal() != 0) {
        aco_print_tasks_on(aco_i_list_signal());
    }
    aco_i_begin_preempting();
    return aco_i_start_own(run_keeper, NULL);
}

/* Returns 0 when the runtime runs. */
static int need_runtime(void)
{
    for (;;) {
        uint32_t state = NOT_STARTED;
        if (__atomic_compare_exchange_n(&keeper.state, &state, STARTING, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            int error = start_keeper();
            if (error != 0) {
                aco_i_set_and_wake(&keeper.state, NOT_STARTED);
                return error;
            }
            state = STARTING;
            while (__atomic_load_n(&keeper.state, __ATOMIC_ACQUIRE) == STARTING) {
                aco_i_wait_while(&keeper.state, STARTING, CLOCK_MONOTONIC, NULL);
            }
            return keeper.state == STARTED ? 0 : (int)keeper.error;
        }
        if (state == STARTED) {
            return 0;
        }
        aco_i_wait_while(&keeper.state, STARTING, CLOCK_MONOTONIC, NULL);
    }
}

/* ==== Stacks ================================================================================= */

#define GUARD_SZ (64u << 10)      /* of the runtime's stacks */
#define LARGE_STACK_SZ (8u << 20) /* above it, their guard is a page */

/* Maps a stack for a thread that asks for a larger guard. Returns 0, or -1 without memory. */
static int map_stack(thread_t *thread)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t guard = (thread->guard_sz + page - 1) / page * page;
    size_t sz = (thread->stack_sz + page - 1) / page * page;
    void *mapped = guard + sz < sz
                       ? MAP_FAILED
                       : mmap(NULL, guard + sz, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapped == MAP_FAILED) {
        return -1;
    }
    thread->mapped_sz = guard + sz;
    thread->stack = (char *)mapped + guard;
    thread->stack_sz = sz;
    return mprotect(thread->stack, sz, PROT_READ | PROT_WRITE);
}

static void unmap_stack(thread_t *thread)
{
    if (thread->mapped_sz != 0) {
        munmap((char *)thread->stack + thread->stack_sz - thread->mapped_sz, thread->mapped_sz);
    }
}

/* Finds the stack that the program gives, or maps one. Returns 0, or -1 without memory. */
static int choose_stack(thread_t *thread, const pthread_attr_t *attributes)
{
    void *stack;
    size_t sz;
    pthread_attr_getstacksize(attributes, &thread->stack_sz);
    pthread_attr_getguardsize(attributes, &thread->guard_sz);
    pthread_attr_getstack(attributes, &stack, &sz); /* glibc keeps where it ends; NULL: no stack */
    if (stack != NULL && (uintptr_t)stack + sz != 0) {
        thread->stack = stack;
        return 0;
    }
    size_t guard = thread->stack_sz > LARGE_STACK_SZ ? (size_t)sysconf(_SC_PAGESIZE) : GUARD_SZ;
    return thread->guard_sz > guard ? map_stack(thread) : 0;
}

/* ==== The life of a thread =================================================================== */

/* Runs on the loop, when nothing of the task is left. */
static void tell_end(aco_task_t *task, void *arg)
{
    thread_t *thread = (thread_t *)arg;
    (void)task;
    unmap_stack(thread);
    aco_i_drop_variables(thread);
    lock(&thread->lock);
    thread->task = NULL;
    int is_detached = thread->state == HANDLE_DETACHED, is_awaited = thread->is_awaited;
    __atomic_store_n(&thread->is_over, 1, __ATOMIC_RELEASE);
    unlock(&thread->lock);
    if (is_awaited) {
        aco_i_wake_all_at(&thread->is_over);
    } else if (is_detached) {
        aco_i_free_handle(thread);
    }
    __atomic_sub_fetch(&keeper.ct_threads, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&keeper.is_awaited, __ATOMIC_SEQ_CST)) {
        aco_i_wake_all_at(&keeper.ct_threads);
    }
}

/* Its own function, as its frame is the last one that pthread_exit() unwinds. */
static __attribute__((noinline)) void call(thread_t *thread)
{
    aco_i_deliver(thread);
    if (thread->is_c11) {
        thrd_start_t fn = (thrd_start_t)(uintptr_t)thread->fn;
        thread->arg = (void *)(intptr_t)fn(thread->arg);
    } else {
        thread->arg = thread->fn(thread->arg);
    }
}

/* Its own function, as the frame of setjmp() may have no variables. */
static __attribute__((noinline)) void run(thread_t *thread)
{
    jmp_buf end;
    thread->end = &end;
    if (setjmp(end) == 0) {
        call(thread);
    }
}

static void *run_thread(void *arg)
{
    thread_t *thread = (thread_t *)arg;
    aco_task_t *task = aco_i_running_task();
    task->is_thread = 1;
    aco_i_detach(task, tell_end); /* here, so that its loop calls it */
    aco_i_begin_cancelling(thread, task);
    aco_i_name(thread->name, (void *)(uintptr_t)thread->fn);
    aco_i_take_variables(thread);
    aco_i_preempt_here();
    run(thread);
    aco_i_stop_cancelling(thread);
    aco_i_run_endings(thread);
    return thread; /* the destructors of its keys still ask for it */
}

/* Called in a task. */
static int start_task(thread_t *thread)
{
    aco_task_t *task;
    if (thread->stack != NULL) {
        return aco_i_go_in(thread->stack, thread->stack_sz, run_thread, thread, &task);
    }
    size_t sz = thread->stack_sz == keeper.stack_sz ? 0 : thread->stack_sz;
    aco_task_options_t options = {.stack_sz = sz, .thread = ACO_ANY};
    return aco_go_with(&options, run_thread, thread, &task);
}

static void count_start(void)
{
    uint32_t ct = __atomic_add_fetch(&keeper.ct_threads, 1, __ATOMIC_RELAXED);
    uint32_t most = __atomic_load_n(&keeper.most_threads, __ATOMIC_RELAXED);
    __atomic_add_fetch(&keeper.ct_made, 1, __ATOMIC_RELAXED);
    while (ct > most && !__atomic_compare_exchange_n(&keeper.most_threads, &most, ct, 1,
                                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static int start(thread_t *thread)
{
    int error = need_runtime();
    if (error != 0) {
        return error;
    }
    count_start();
    int is_task = aco_i_loop != NULL && aco_i_loop->runtime == keeper.runtime;
    if ((is_task ? start_task(thread) : aco_chan_send(keeper.requests, &thread)) != 0) {
        __atomic_sub_fetch(&keeper.ct_threads, 1, __ATOMIC_RELEASE);
        return EAGAIN;
    }
    return 0;
}

/* Whether the kernel must run it: with a policy or processors of its own. */
static int is_for_kernel(const pthread_attr_t *attributes, start_t fn)
{
    int policy = SCHED_OTHER, inherits = PTHREAD_INHERIT_SCHED;
    cpu_set_t set;
    if (aco_i_is_real((const void *)(uintptr_t)fn)) {
        return 1;
    }
    if (attributes == NULL) {
        return 0;
    }
    pthread_attr_getinheritsched(attributes, &inherits);
    pthread_attr_getschedpolicy(attributes, &policy);
    CPU_ZERO(&set);
    int has_set = pthread_attr_getaffinity_np(attributes, sizeof(set), &set) == 0 &&
                  CPU_COUNT(&set) != 0 && CPU_COUNT(&set) < sysconf(_SC_NPROCESSORS_ONLN);
    return has_set || (inherits == PTHREAD_EXPLICIT_SCHED && policy != SCHED_OTHER);
}

/* Returns 0, or -1 without memory. */
static int set_attributes(thread_t *thread, const pthread_attr_t *attributes)
{
    int detached = PTHREAD_CREATE_JOINABLE, error = 0;
    thread->stack_sz = keeper.stack_sz;
    thread->guard_sz = (size_t)sysconf(_SC_PAGESIZE);
    if (attributes != NULL) {
        pthread_attr_getdetachstate(attributes, &detached);
        error = choose_stack(thread, attributes);
    }
    thread->state = detached == PTHREAD_CREATE_DETACHED ? HANDLE_DETACHED : HANDLE_JOINABLE;
    return error;
}

/* Takes everything from a thread that does not start. */
static void drop(thread_t *thread)
{
    unmap_stack(thread);
    aco_i_drop_variables(thread);
    aco_i_free_handle(thread);
}

static thread_t *new_thread(const pthread_attr_t *attributes, start_t fn, void *arg)
{
    const thread_t *creator = this_thread();
    thread_t *thread = aco_i_new_handle();
    if (thread == NULL) {
        return NULL;
    }
    thread->fn = fn;
    thread->arg = arg;
    if (creator != NULL) {
        memcpy(thread->name, creator->name, NAME_SZ);
        thread->nice = creator->nice;
    } else {
        prctl(PR_GET_NAME, thread->name);
    }
    aco_i_begin_signals(thread, creator);
    if (set_attributes(thread, attributes) != 0 || aco_i_new_variables(thread) != 0) {
        drop(thread);
        return NULL;
    }
    return thread;
}

static int create(pthread_t *id, const pthread_attr_t *attributes, start_t fn, void *arg,
                  int is_c11)
{
    KEEP_ERRNO();
    int error = need_runtime();
    thread_t *thread = error != 0 ? NULL : new_thread(attributes, fn, arg);
    if (thread == NULL) {
        return error != 0 ? error : EAGAIN;
    }
    *id = (pthread_t)thread;
    thread->is_c11 = (char)is_c11;
    error = start(thread);
    if (error != 0) {
        drop(thread);
    }
    return error;
}

int name_pthread_create(pthread_t *id, const pthread_attr_t *attributes, start_t fn, void *arg)
{
    return aco_i_is_ours(__builtin_return_address(0)) || is_for_kernel(attributes, fn)
               ? real_pthread_create(id, attributes, fn, arg)
               : create(id, attributes, fn, arg, 0);
}

/* ==== The program's first thread ============================================================= */

/* A thread that ends the process as its last one, after the first, and takes that one's signals. */
static void *end_process(void *first)
{
    aco_i_take_signals(this_thread());
    __atomic_store_n(&keeper.is_awaited, 1, __ATOMIC_SEQ_CST);
    pthread_join((pthread_t)first, NULL);
    uint32_t ct;
    while ((ct = __atomic_load_n(&keeper.ct_threads, __ATOMIC_SEQ_CST)) != 1) {
        aco_i_wait_while(&keeper.ct_threads, ct, CLOCK_MONOTONIC, NULL);
    }
    exit(EXIT_SUCCESS);
}

void aco_i_leave_main(void)
{
    pthread_t id;
    pthread_t self = real_pthread_self();
    if (getpid() == (pid_t)aco_i_syscall(SYS_gettid) &&
        __atomic_load_n(&keeper.state, __ATOMIC_ACQUIRE) == STARTED) {
        create(&id, NULL, end_process, (void *)self, 0);
    }
}

/* ==== Report ================================================================================= */

/* The durations of turns are counted in classes: this is the upper end of the longest one's. */
static int64_t longest_turn(const loop_t *loop)
{
    for (int i = CT_DURATIONS; i >= 0; i--) {
        if (loop->counts.turns.ct[i] != 0) {
            return (int64_t)ACO_I_SHORTEST << i;
        }
    }
    return 0;
}

static __attribute__((destructor)) void report(void)
{
    uint64_t ct_switches = 0;
    int64_t longest = 0;
    if (getenv("ACO_PTHREADS_REPORT") == NULL || keeper.runtime == NULL) {
        return;
    }
    for (int i = 0; i < keeper.runtime->ct_loops; i++) {
        const loop_t *loop = &keeper.runtime->loops[i];
        ct_switches += loop->counts.ct_switches;
        longest = longest_turn(loop) > longest ? longest_turn(loop) : longest;
    }
    fprintf(stderr,
            "aco-run: %u threads, %u at a time, %llu switches, none kept a loop for %.3f ms\n",
            keeper.ct_made, keeper.most_threads, (unsigned long long)ct_switches,
            (double)longest / 1e6);
}

/* ==== Joining ================================================================================ */

REPLACE(int, pthread_detach, (pthread_t id), (id), EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_detach(id);
    }
    lock(&thread->lock);
    int error = thread->state == HANDLE_FREE       ? ESRCH
                : thread->state == HANDLE_DETACHED ? EINVAL
                                                   : 0;
    int is_over = __atomic_load_n(&thread->is_over, __ATOMIC_ACQUIRE) != 0;
    if (error == 0) {
        thread->state = HANDLE_DETACHED;
    }
    unlock(&thread->lock);
    if (error == 0 && is_over) {
        aco_i_free_handle(thread);
    }
    return error;
}

/* Claims a thread for the caller. 0, or an error as of pthread_join(). */
static int begin_join(thread_t *thread)
{
    thread_t *self = this_thread();
    lock(&thread->lock);
    int error = thread->state == HANDLE_FREE                                 ? ESRCH
                : thread == self || (self != NULL && self->joiner == thread) ? EDEADLK
                : thread->state == HANDLE_DETACHED || thread->is_awaited     ? EINVAL
                                                                             : 0;
    if (error == 0) {
        thread->is_awaited = 1;
        thread->joiner = self;
    }
    unlock(&thread->lock);
    return error;
}

static void give_up_join(thread_t *thread)
{
    lock(&thread->lock);
    thread->is_awaited = 0;
    thread->joiner = NULL;
    unlock(&thread->lock);
}

static int join(thread_t *thread, void **result, clockid_t clock, const struct timespec *time)
{
    pthread_testcancel();
    KEEP_ERRNO();
    int error = begin_join(thread);
    if (error != 0) {
        return error;
    }
    while (__atomic_load_n(&thread->is_over, __ATOMIC_ACQUIRE) == 0) {
        set_cancellable(this_thread(), 1);
        error = aco_i_wait_while(&thread->is_over, 0, clock, time);
        set_cancellable(this_thread(), 0);
        if (error == ETIMEDOUT || error == ECANCELED) {
            give_up_join(thread);
            pthread_testcancel();
            return error;
        }
    }
    if (result != NULL) {
        *result = thread->arg;
    }
    lock(&thread->lock); /* tell_end() has it for the last time */
    unlock(&thread->lock);
    aco_i_free_handle(thread);
    return 0;
}

/* Joins a thread of the kernel. */
#define JOIN_OUTSIDE(call)                                                                         \
    __extension__({                                                                                \
        pthread_testcancel();                                                                      \
        set_cancellable(this_thread(), 1);                                                         \
        int error_of_join = (call);                                                                \
        set_cancellable(this_thread(), 0);                                                         \
        if (error_of_join == ECANCELED) {                                                          \
            pthread_testcancel();                                                                  \
        }                                                                                          \
        error_of_join;                                                                             \
    })

REPLACE_HOOK(int, pthread_join, (pthread_t id, void **result))
{
    thread_t *thread = aco_i_handle_of(id);
    return thread != NULL ? join(thread, result, CLOCK_MONOTONIC, NULL)
                          : JOIN_OUTSIDE(hook_pthread_join(id, result));
}

REPLACE_HOOK(int, pthread_clockjoin_np,
             (pthread_t id, void **result, clockid_t clock, const struct timespec *time))
{
    thread_t *thread = aco_i_handle_of(id);
    int is_right = is_for_waits(clock) && (time == NULL || is_valid(time));
    return thread == NULL ? JOIN_OUTSIDE(hook_pthread_clockjoin_np(id, result, clock, time))
           : !is_right    ? EINVAL
                          : join(thread, result, clock, time);
}

REPLACE_HOOK(int, pthread_timedjoin_np, (pthread_t id, void **result, const struct timespec *time))
{
    return aco_i_handle_of(id) == NULL
               ? JOIN_OUTSIDE(hook_pthread_timedjoin_np(id, result, time))
               : name_pthread_clockjoin_np(id, result, CLOCK_REALTIME, time);
}

REPLACE(int, pthread_tryjoin_np, (pthread_t id, void **result), (id, result), EBUSY)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_tryjoin_np(id, result);
    }
    return thread->state != HANDLE_FREE && __atomic_load_n(&thread->is_over, __ATOMIC_ACQUIRE) == 0
               ? EBUSY
               : join(thread, result, CLOCK_MONOTONIC, NULL);
}

/* ==== C11 ==================================================================================== */

static int c11_result(int error)
{
    return error == 0        ? thrd_success
           : error == ENOMEM ? thrd_nomem
           : error == EBUSY  ? thrd_busy
                             : thrd_error;
}

REPLACE(int, thrd_create, (thrd_t * id, thrd_start_t fn, void *arg), (id, fn, arg), thrd_error)
{
    start_t start_of = (start_t)(uintptr_t)fn;
    if (aco_i_is_ours(__builtin_return_address(0)) || is_for_kernel(NULL, start_of)) {
        return real_thrd_create(id, fn, arg);
    }
    return c11_result(create(id, NULL, start_of, arg, 1));
}

REPLACE(thrd_t, thrd_current, (void), (), 0)
{
    return name_pthread_self();
}

REPLACE(int, thrd_detach, (thrd_t id), (id), thrd_error)
{
    return aco_i_handle_of(id) != NULL ? c11_result(name_pthread_detach(id)) : real_thrd_detach(id);
}

REPLACE_HOOK(int, thrd_join, (thrd_t id, int *result))
{
    thread_t *thread = aco_i_handle_of(id);
    void *returned;
    if (thread == NULL) {
        return hook_thrd_join(id, result);
    }
    int error = join(thread, &returned, CLOCK_MONOTONIC, NULL);
    if (error == 0 && result != NULL) {
        *result = (int)(intptr_t)returned;
    }
    return c11_result(error);
}
