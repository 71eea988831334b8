// SPDX-License-Identifier: Apache-2.0
/*
 * A runtime from its start to its end: a loop for each thread, of which the first is the caller's.
 */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_SZ ((size_t)256 << 10) /* bytes */
#define MAX_THREADS 1024
#define MOST_HELPERS 64 /* of a kind */
#define MOST_HELPERS_FOR_NAMES 16

static struct {
    lock_t lock; /* of all that follows */
    runtime_t *first;
    runtime_t *parents; /* in a child: the parent's, to which frames of its caller may refer */
    int is_fork_watched;
} all;

/* Stands for the runtimes that have ended: what these have counted. Under the same lock. */
static loop_t ended_loop;
static runtime_t ended = {.loops = &ended_loop, .ct_loops = 1};

/* ==== A loop ================================================================================= */

static int open_descriptors(loop_t *loop)
{
    loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = ACO_I_INBOX};
    if (loop->event_fd < 0 || loop->epoll_fd < 0) {
        return -1;
    }
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &event);
}

/* Both run on the thread of the loop. */
static int begin_loop(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    loop->error = &errno;
    loop->handling = aco_i_handling();
    loop->thread = pthread_self();
    __atomic_store_n(&loop->tid, (int)syscall(SYS_gettid), __ATOMIC_RELAXED);
    aco_i_begin_alt_stack(loop);
    aco_i_begin_trace(loop);
    aco_i_begin_profile(loop);
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
    aco_i_end_profile(loop);
    if (loop->share_stack != NULL) {
        aco_share_stack_destroy(loop->share_stack);
    }
    lock(&all.lock); /* aco_stats() asks the pool */
    aco_stack_pool_t *pool = loop->pool;
    loop->pool = NULL;
    unlock(&all.lock);
    if (loop->spare_co != NULL) {
        aco_stack_pool_destroy_co(pool, loop->spare_co);
    }
    if (pool != NULL) {
        aco_stack_pool_destroy(pool);
    }
    if (loop->main_co != NULL) {
        aco_destroy(loop->main_co);
    }
    aco_i_release(loop->timers);
    aco_i_end_trace(loop);
    aco_i_end_alt_stack(loop);
}

/* When nothing is left that might wake the loop. */
static void close_descriptors(loop_t *loop)
{
    aco_i_forget_loop(loop);
    if (loop->event_fd >= 0) {
        close(loop->event_fd);
    }
    if (loop->epoll_fd >= 0) {
        close(loop->epoll_fd);
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
    int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1); /* ns that the kernel may be late; 50,000 else */
    aco_t *before = aco_gtls_co;
    aco_i_loop = loop;
    aco_i_run_loop(loop);
    aco_i_loop = NULL;
    aco_gtls_co = before;
    prctl(PR_SET_TIMERSLACK, slack);
}

static void *run_thread(void *arg)
{
    loop_t *loop = ((thread_arg_t *)arg)->loop;
    start_t *start = ((thread_arg_t *)arg)->start;
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

/* ==== After fork() =========================================================================== */

static void close_one(int *fd)
{
    if (*fd >= 0) {
        aco_i_libc.close(*fd);
        *fd = -1;
    }
}

unsigned aco_i_ct_forks;

/* A child has none of the runtimes: their threads are not there, and their epoll instances are the
 * parent's, too. */
static void begin_child(void)
{
    aco_task_t *task = aco_i_loop != NULL ? aco_i_loop->running : NULL;
    if (task != NULL) {
        task->state = TASK_IN_CHILD;
        aco_i_forked_task = task;
        aco_i_thread_task.id = task->id; /* so it owns the locks of the task */
    }
    aco_i_loop = NULL;
    aco_i_ct_forks++;
    memset(&all.lock, 0, sizeof(all.lock)); /* perhaps of a thread that is not there */
    runtime_t **link = &all.first;
    for (; *link != NULL; link = &(*link)->next) {
        (*link)->is_of_parent = 1;
        memset(&(*link)->lock, 0, sizeof((*link)->lock));
        for (int i = 0; i < (*link)->ct_loops; i++) {
            loop_t *loop = &(*link)->loops[i];
            close_one(&loop->event_fd);
            close_one(&loop->epoll_fd);
            close_one(&loop->timer_fd);
        }
    }
    *link = all.parents;
    all.parents = all.first;
    all.first = NULL;
    memset(&ended_loop, 0, sizeof(ended_loop));
    aco_i_forget_descriptors();
    aco_i_forget_threads();
    aco_i_forget_places();
    aco_i_forget_watch();
}

int aco_i_watch_fork(void)
{
    lock(&all.lock);
    int error = all.is_fork_watched ? 0 : pthread_atfork(NULL, NULL, begin_child);
    all.is_fork_watched = error == 0;
    unlock(&all.lock);
    errno = error != 0 ? error : errno;
    return error != 0 ? -1 : 0;
}

/* ==== A runtime ============================================================================== */

static void enter_in_list(runtime_t *runtime)
{
    lock(&all.lock);
    runtime->next = all.first;
    all.first = runtime;
    unlock(&all.lock);
}

static void take_from_list(runtime_t *runtime)
{
    lock(&all.lock);
    runtime_t **link = &all.first;
    while (*link != runtime) {
        link = &(*link)->next;
    }
    *link = runtime->next;
    aco_i_add_counts(&ended_loop, runtime);
    unlock(&all.lock);
}

/* A task with its stack, so that one which can't be had is an error of aco_run(). NULL with
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

/* Runs `fn` with the caller's loop ready to run, and all others. */
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
            int error = errno;
            aco_i_reap(loop, task); /* it has not begun */
            errno = error;
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

void aco_i_each_runtime(void (*fn)(runtime_t *runtime, void *arg), void *arg)
{
    lock(&all.lock);
    fn(&ended, arg);
    for (runtime_t *runtime = all.first; runtime != NULL; runtime = runtime->next) {
        fn(runtime, arg);
    }
    unlock(&all.lock);
}

/* Makes room in `touched` for `ct` runtimes, or as many as there is memory for. */
static void make_room(aco_i_touched_t *touched, size_t ct)
{
    size_t sz = ct * sizeof(runtime_t *);
    void *memory = MAP_FAILED;
    if (ct > sizeof(touched->few) / sizeof(touched->few[0])) {
        memory = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    touched->mapped_sz = memory == MAP_FAILED ? 0 : sz;
    touched->runtimes = memory == MAP_FAILED ? touched->few : (runtime_t **)memory;
}

READS_RACILY void aco_i_touch_all(aco_i_touched_t *touched)
{
    size_t most = 0, room;
    int is_locked = aco_i_try_to_lock(&all.lock);
    for (const runtime_t *runtime = all.first; runtime != NULL; runtime = runtime->next) {
        most++;
    }
    make_room(touched, most);
    room = touched->mapped_sz != 0 ? most : sizeof(touched->few) / sizeof(touched->few[0]);
    touched->ct = 0;
    for (runtime_t *runtime = all.first; runtime != NULL && touched->ct < room;
         runtime = runtime->next) {
        aco_i_touch(runtime);
        touched->runtimes[touched->ct++] = runtime;
    }
    touched->ct_left_out = most - touched->ct;
    if (is_locked) {
        unlock(&all.lock);
    }
}

void aco_i_untouch_all(aco_i_touched_t *touched)
{
    for (size_t i = 0; i < touched->ct; i++) {
        aco_i_untouch(touched->runtimes[i]);
    }
    if (touched->mapped_sz != 0) {
        munmap(touched->runtimes, touched->mapped_sz);
    }
}

/* 0, or what is wrong with the options or the caller. */
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
        loop->event_fd = loop->epoll_fd = loop->timer_fd = -1;
        loop->trim_at = NO_DEADLINE;
    }
    return runtime;
}

runtime_t *aco_i_begin_runtime(const aco_run_options_t *options)
{
    static const aco_run_options_t defaults;
    if (aco_i_check_hooks != NULL) {
        aco_i_check_hooks();
    }
    aco_i_begin_watch();
    aco_i_begin_printing();
    aco_i_begin_overflow_reports();
    runtime_t *runtime = aco_i_watch_fork() != 0
                             ? NULL
                             : new_runtime(options == NULL ? &defaults : options);
    if (runtime != NULL && begin_loop(&runtime->loops[0]) != 0) {
        int error = errno;
        end_loop(&runtime->loops[0]);
        close_descriptors(&runtime->loops[0]);
        aco_i_release(runtime);
        errno = error == ENFILE ? EMFILE : error;
        return NULL;
    }
    if (runtime != NULL) {
        enter_in_list(runtime);
    }
    return runtime;
}

void aco_i_end_runtime(runtime_t *runtime)
{
    take_from_list(runtime);
    while (__atomic_load_n(&runtime->ct_touching, __ATOMIC_ACQUIRE) != 0) {
        sched_yield();
    }
    aco_i_end_helpers(runtime);
    end_loop(&runtime->loops[0]);
    for (int i = 0; i < runtime->ct_loops; i++) {
        close_descriptors(&runtime->loops[i]);
    }
    size_t ct_groups = aco_i_free_groups(runtime);
    if (aco_i_is_watched) {
        aco_i_tell_unjoined(runtime, ct_groups);
    }
    aco_i_free_chunks(runtime);
    aco_i_release(runtime);
}

int aco_run(const aco_run_options_t *options, void *(*fn)(void *), void *arg, void **result)
{
    int error = check(options, fn);
    if (error != 0) {
        errno = error;
        return -1;
    }
    runtime_t *runtime = aco_i_begin_runtime(options);
    if (runtime == NULL) {
        return -1;
    }
    int failed = run_first(runtime, fn, arg, result) != 0;
    error = errno;
    aco_i_end_runtime(runtime);
    if (failed) {
        errno = error == ENFILE ? EMFILE : error;
        return -1;
    }
    return 0;
}
