// SPDX-License-Identifier: Apache-2.0
/* Runs a runtime from its start to its end: a loop for each thread, the caller's first. */
#include "start/start.h"

/* The folder may be left out. */
#if __has_include("observe/observe.h")
#include "observe/observe.h"
#define HAS_OBSERVERS
#endif

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_SZ ((size_t)256 << 10) /* bytes */
#define MAX_THREADS 1024
#define MOST_HELPERS 64 /* for each kind */
#define MOST_HELPERS_FOR_NAMES 16

/* ==== A loop ================================================================================= */

static int open_descriptors(loop_t *loop)
{
    loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = ACO_I_INBOX};
    if (loop->event_fd < 0 || loop->epoll_fd < 0) {
        errno = errno == ENFILE ? EMFILE : errno;
        return -1;
    }
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &event);
}

/* Runs on the thread of the loop, as end_loop() does. */
static int begin_loop(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    loop->error = &errno;
    loop->handling = aco_i_handling();
    loop->thread = pthread_self();
    __atomic_store_n(&loop->tid, (int)syscall(SYS_gettid), __ATOMIC_RELAXED);
    if (aco_i_observer != NULL) {
        aco_i_observer->begin_loop(loop);
    }
    pthread_getcpuclockid(loop->thread, &loop->clock);
    loop->now = aco_i_clock();
    loop->random = (uint32_t)loop->now | 1;
    aco_stack_pool_t *pool = aco_stack_pool_try_new(runtime->stack_sz, runtime->pool_flags);
    __atomic_store_n(&loop->pool, pool, __ATOMIC_RELEASE);
    loop->main_co = aco_try_create(NULL, NULL, 0, NULL, NULL);
    if (loop->pool == NULL || loop->main_co == NULL || aco_i_reserve_timers(loop, 1) != 0) {
        errno = ENOMEM;
        return -1;
    }
    return open_descriptors(loop);
}

static void end_loop(loop_t *loop)
{
    if (aco_i_observer != NULL) {
        aco_i_observer->end_loop(loop);
    }
    if (loop->share_stack != NULL) {
        aco_share_stack_destroy(loop->share_stack);
    }
    aco_i_lock_runtimes(); /* aco_stats() reads the pool */
    aco_stack_pool_t *pool = loop->pool;
    loop->pool = NULL;
    aco_stack_pool_t *classes[CT_CLASSES];
    memcpy(classes, loop->classes, sizeof(classes));
    memset(loop->classes, 0, sizeof(classes));
    aco_i_unlock_runtimes();
    if (loop->spare_co != NULL) {
        aco_stack_pool_destroy_co(pool, loop->spare_co);
    }
    if (pool != NULL) {
        aco_stack_pool_destroy(pool);
    }
    for (int i = 0; i < CT_CLASSES; i++) {
        if (classes[i] != NULL) {
            aco_stack_pool_destroy(classes[i]);
        }
    }
    if (loop->main_co != NULL) {
        aco_destroy(loop->main_co);
    }
    aco_i_release(loop->timers);
    aco_i_end_ring(loop);
}

/* Called when nothing is left that might wake the loop. */
static void close_descriptors(loop_t *loop)
{
    aco_i_forget_loop(loop);
    const int fds[] = {loop->event_fd, loop->epoll_fd, loop->timer_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* ==== Threads ================================================================================ */

/* Counts the threads that have begun or failed to. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int ct_begun;
    int error;
    int may_run; /* 1: all have begun; -1: one has not, so end */
} start_t;

typedef struct {
    loop_t *loop;
    start_t *start;
} thread_arg_t;

static void run_loop(loop_t *loop)
{
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0); /* all five, as memcheck looks at them */
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* ns that the kernel may be late; 50,000 else */
    aco_t *before = aco_gtls_co;
    aco_i_loop = loop;
    aco_i_run_loop(loop);
    aco_i_loop = NULL;
    aco_gtls_co = before;
    prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
}

static void *run_thread(void *arg)
{
    loop_t *loop = ((thread_arg_t *)arg)->loop;
    start_t *start = ((thread_arg_t *)arg)->start;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* as in aco_run() */
    int error = begin_loop(loop) == 0 ? 0 : errno;
    pthread_mutex_lock(&start->mutex);
    start->ct_begun++;
    start->error = error != 0 ? error : start->error;
    pthread_cond_broadcast(&start->cond);
    while (start->may_run == 0) {
        pthread_cond_wait(&start->cond, &start->mutex);
    }
    int may_run = start->may_run > 0;
    pthread_mutex_unlock(&start->mutex);
    if (may_run) {
        run_loop(loop);
    }
    end_loop(loop);
    return NULL;
}

/* Starts the other threads, and ends them again if not all can be had. Returns how many there are,
 * or -1 with errno. */
static int start_threads(runtime_t *runtime, start_t *start, thread_arg_t *args)
{
    int ct = 0, error = 0;
    while (error == 0 && ct < runtime->ct_loops - 1) {
        args[ct] = (thread_arg_t){&runtime->loops[ct + 1], start};
        error = pthread_create(&runtime->loops[ct + 1].thread, NULL, run_thread, &args[ct]);
        ct += error == 0;
    }
    pthread_mutex_lock(&start->mutex);
    while (start->ct_begun < ct) {
        pthread_cond_wait(&start->cond, &start->mutex);
    }
    error = error != 0 ? error : start->error;
    if (error != 0) {
        start->may_run = -1;
        pthread_cond_broadcast(&start->cond);
    }
    pthread_mutex_unlock(&start->mutex);
    if (error == 0) {
        return ct;
    }
    for (int i = 0; i < ct; i++) {
        pthread_join(runtime->loops[i + 1].thread, NULL);
    }
    errno = error;
    return -1;
}

/* ==== A runtime ============================================================================== */

/* Makes the first task, with its stack, so that aco_run() fails if that can't be had. NULL with
 * ENOMEM. */
static aco_task_t *start_first(runtime_t *runtime, void *(*fn)(void *), void *arg)
{
    loop_t *loop = &runtime->loops[0];
    aco_task_t *task = aco_i_new_task(loop, fn, arg);
    if (task == NULL || aco_i_start(loop, task, NULL) != 0) {
        errno = ENOMEM;
        return NULL;
    }
    task->loop = loop;
    runtime->ct_tasks = 1;
    return task;
}

/* Runs `fn` as the first task. The caller's loop is ready to run; the others are started here. */
static int run_first(runtime_t *runtime, void *(*fn)(void *), void *arg, void **result)
{
    start_t start = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    size_t sz = (size_t)runtime->ct_loops * sizeof(thread_arg_t);
    thread_arg_t *args = (thread_arg_t *)aco_i_allocate(sz);
    loop_t *loop = &runtime->loops[0];
    aco_task_t *task = args == NULL ? NULL : start_first(runtime, fn, arg);
    int ct = task == NULL ? -1 : start_threads(runtime, &start, args);
    if (ct < 0) {
        if (task != NULL) {
            KEEP_ERRNO();
            aco_i_reap(loop, task); /* it has not begun */
        }
        aco_i_release(args);
        return -1;
    }
    task->is_joinable = 1;
    pthread_mutex_lock(&start.mutex);
    start.may_run = 1;
    pthread_cond_broadcast(&start.cond);
    pthread_mutex_unlock(&start.mutex);
    aco_i_loop = loop;
    aco_i_make_ready(task);
    run_loop(loop);
    for (int i = 0; i < ct; i++) {
        pthread_join(runtime->loops[i + 1].thread, NULL);
    }
    if (result != NULL) {
        *result = task->arg;
    }
    aco_i_free_task(task);
    aco_i_release(args);
    return 0;
}

/* Returns 0, or the errno for wrong options or a wrong caller. */
static int check(const aco_run_options_t *o, void *(*fn)(void *))
{
    aco_t *co = aco_get_co();
    if (aco_i_loop != NULL || (co != NULL && !aco_is_main_co(co))) {
        return EBUSY;
    }
    int makes_sense = o == NULL ||
                      (o->ct_threads >= ACO_ALL_PROCESSORS && o->ct_threads <= MAX_THREADS &&
                       (o->stack_sz == 0 || o->stack_sz >= LEAST_STACK_SZ) &&
                       o->guard_sz >> 10 < 1u << 23 && o->ct_offload >= 0 &&
                       o->ct_offload_names >= 0);
    return fn != NULL && makes_sense ? 0 : EINVAL;
}

static int ct_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static runtime_t *new_runtime(const aco_run_options_t *o)
{
    int ct = o->ct_threads == ACO_ALL_PROCESSORS ? ct_processors() : o->ct_threads;
    ct = ct == 0 ? 1 : ct;
    size_t sz = sizeof(runtime_t) + (size_t)ct * sizeof(loop_t);
    runtime_t *runtime = (runtime_t *)aco_i_allocate(sz);
    if (runtime == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    memset(runtime, 0, sz);
    runtime->loops = (loop_t *)(runtime + 1);
    runtime->ct_loops = ct;
    runtime->stack_sz = o->stack_sz == 0 ? STACK_SZ : o->stack_sz;
    runtime->most_helpers[HELPERS_FOR_FILES] = runtime->most_helpers[HELPERS_FOR_PROCESSES] =
        o->ct_offload == 0 ? MOST_HELPERS : o->ct_offload;
    runtime->most_helpers[HELPERS_FOR_NAMES] = o->ct_offload_names == 0 ? MOST_HELPERS_FOR_NAMES
                                                                        : o->ct_offload_names;
    runtime->most_helpers[HELPERS_FOR_LONG] = INT_MAX;
    runtime->pool_flags = ACO_STACK_POOL_GUARD_KIB((o->guard_sz + 1023) / 1024);
    for (int i = 0; i < ct; i++) {
        loop_t *loop = &runtime->loops[i];
        loop->runtime = runtime;
        loop->index = i;
        loop->event_fd = loop->epoll_fd = loop->timer_fd = loop->ring_fd = -1;
        loop->trim_at = NO_DEADLINE;
        loop->enter = aco_i_enter_task;
    }
    return runtime;
}

#ifdef HAS_OBSERVERS
static void set_observer(void)
{
    aco_i_observer = &aco_i_observe;
}

static void begin_observers(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_observer);
    aco_i_observer->begin_runtime();
}
#else
static void begin_observers(void)
{
}
#endif

runtime_t *aco_i_begin_runtime(const aco_run_options_t *options)
{
    static const aco_run_options_t defaults;
    if (aco_i_check_hooks != NULL) {
        aco_i_check_hooks();
    }
    begin_observers();
    runtime_t *runtime = aco_i_watch_fork() != 0
                             ? NULL
                             : new_runtime(options == NULL ? &defaults : options);
    if (runtime != NULL && begin_loop(&runtime->loops[0]) != 0) {
        KEEP_ERRNO();
        end_loop(&runtime->loops[0]);
        close_descriptors(&runtime->loops[0]);
        aco_i_release(runtime);
        return NULL;
    }
    if (runtime != NULL) {
        aco_i_enter_runtime(runtime);
    }
    return runtime;
}

void aco_i_end_runtime(runtime_t *runtime)
{
    aco_i_take_runtime(runtime);
    while (__atomic_load_n(&runtime->ct_holders, __ATOMIC_ACQUIRE) != 0) {
        sched_yield();
    }
    aco_i_end_helpers(runtime);
    end_loop(&runtime->loops[0]);
    for (int i = 0; i < runtime->ct_loops; i++) {
        close_descriptors(&runtime->loops[i]);
    }
    size_t ct_groups = aco_i_free_groups(runtime);
    if (aco_i_observer != NULL) {
        aco_i_observer->end_runtime(runtime, ct_groups);
    }
    aco_i_free_chunks(runtime);
    aco_i_release(runtime);
}

static int run(const aco_run_options_t *options, void *(*fn)(void *), void *arg, void **result)
{
    runtime_t *runtime = aco_i_begin_runtime(options);
    if (runtime == NULL) {
        return -1;
    }
    int outcome = run_first(runtime, fn, arg, result);
    KEEP_ERRNO();
    aco_i_end_runtime(runtime);
    return outcome;
}

/* pthread_cancel() would unwind from any call of a task or the loop, so it waits for the end. */
int aco_run(const aco_run_options_t *options, void *(*fn)(void *), void *arg, void **result)
{
    int state, error = check(options, fn);
    if (error != 0) {
        errno = error;
        return -1;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int outcome = run(options, fn, arg, result);
    pthread_setcancelstate(state, NULL);
    return outcome;
}
