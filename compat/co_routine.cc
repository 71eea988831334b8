// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines as libco has them. Each is a task of the runtime, resumed by aco_i_resume(). Whenever
 * it waits, it returns to where it was resumed, and the thread's loop, which co_eventloop() runs,
 * resumes it afterwards. The task is freed when the coroutine ends; the stCoRoutine_t remains until
 * co_release().
 */
#include "coroutine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define NS_A_MS 1000000

static __thread stCoEpoll_t *thread; /* NULL before its first call */

/* ==== Threads ================================================================================ */

/* Drops the tasks of the coroutines of a thread that ends. */
static int end_thread(void)
{
    int ct_left = 0;
    for (stCoRoutine_t *co = thread->first, *next; co != NULL; co = next) {
        next = co->next;
        ct_left += co->task != NULL && aco_i_drop("the end of the thread", co->task) != 0;
        co->task = NULL;
        co->thread = NULL;
    }
    co_i_free_values(&thread->main);
    free(thread);
    thread = NULL;
    return ct_left;
}

static stCoEpoll_t *begin_thread(void)
{
    if (thread != NULL && aco_i_loop != NULL) { /* no child after fork() */
        return thread;
    }
    if (aco_i_is_in_run()) {
        errno = EBUSY;
        return NULL;
    }
    stCoEpoll_t *made = static_cast<stCoEpoll_t *>(calloc(1, sizeof(*made)));
    if (made == NULL || aco_i_own_loop(end_thread) == NULL) {
        free(made);
        return NULL;
    }
    made->main.thread = made;
    return thread = made;
}

PUBLIC void co_init_curr_thread_env()
{
    begin_thread();
}

PUBLIC stCoRoutineEnv_t *co_get_curr_thread_env()
{
    return thread;
}

PUBLIC stCoEpoll_t *co_get_epoll_ct()
{
    return begin_thread();
}

static int64_t idle_interval = 64 * NS_A_MS; /* atomic */

PUBLIC void co_set_idle_interval(int ms)
{
    __atomic_store_n(&idle_interval, (ms > 1 ? ms : 1) * static_cast<int64_t>(NS_A_MS),
                     __ATOMIC_RELAXED);
}

PUBLIC void co_eventloop(stCoEpoll_t *, pfn_co_eventloop_t fn, void *arg)
{
    if (aco_self() != NULL) {
        aco_i_misuse_of("co_eventloop", "a coroutine calls it: call it on the thread's own stack");
    }
    if (begin_thread() == NULL) {
        aco_i_misuse_of("co_eventloop", "the thread has no loop: see errno of co_create()");
    }
    aco_i_run_turns(aco_i_loop, fn, arg, __atomic_load_n(&idle_interval, __ATOMIC_RELAXED));
}

/* ==== Coroutines ============================================================================= */

struct stShareStack_t {
    stShareStack_t *older;
    unsigned ct, next;
    aco_share_stack_t *stacks[1];
};

static stShareStack_t *newest; /* atomic; a list by which leak checkers find all of them */

PUBLIC stShareStack_t *co_alloc_sharestack(int ct, int sz)
{
    if (ct <= 0 || sz <= 0) {
        errno = EINVAL;
        return NULL;
    }
    size_t more_sz = static_cast<size_t>(ct - 1) * sizeof(aco_share_stack_t *);
    stShareStack_t *made = static_cast<stShareStack_t *>(calloc(1, sizeof(*made) + more_sz));
    while (made != NULL && made->ct < static_cast<unsigned>(ct)) {
        aco_share_stack_t *stack = aco_try_share_stack_new2(static_cast<size_t>(sz), 1);
        if (stack == NULL) {
            while (made->ct != 0) {
                aco_share_stack_destroy(made->stacks[--made->ct]);
            }
            free(made);
            errno = ENOMEM;
            return NULL;
        }
        made->stacks[made->ct++] = stack;
    }
    if (made != NULL) {
        made->older = __atomic_exchange_n(&newest, made, __ATOMIC_ACQ_REL);
    }
    return made;
}

/* Marks the tasks of coroutines. These are not joined, so it is never called. */
static void is_coroutine(aco_task_t *, void *)
{
}

static void *run(void *arg)
{
    stCoRoutine_t *co = static_cast<stCoRoutine_t *>(arg);
    aco_i_name(NULL, reinterpret_cast<void *>(co->routine));
    co->routine(co->arg);
    co->task = NULL;
    return NULL;
}

/* Gives a coroutine a task. Returns whether there is memory for one. */
static bool make_task(stCoRoutine_t *co)
{
    stShareStack_t *shared = co->share_stack;
    aco_share_stack_t *stack = shared == NULL ? NULL : shared->stacks[shared->next % shared->ct];
    co->task = aco_i_new_suspended(run, co, co->stack_sz, stack);
    if (co->task == NULL) {
        return false;
    }
    if (shared != NULL) {
        shared->next++;
    }
    co->task->discard = is_coroutine;
    co->task->exit = EXIT_MISUSED; /* aco_exit() would skip the end of run() */
    co->task->is_unhooked = !co->is_hooked;
    co->has_begun = false;
    return true;
}

PUBLIC int co_create(stCoRoutine_t **co, const stCoRoutineAttr_t *attr, pfn_co_routine_t routine,
                     void *arg)
{
    if (begin_thread() == NULL) {
        return -1;
    }
    stCoRoutine_t *made = static_cast<stCoRoutine_t *>(calloc(1, sizeof(*made)));
    if (made == NULL) {
        return -1;
    }
    made->thread = thread;
    made->routine = routine;
    made->arg = arg;
    if (attr != NULL) {
        made->share_stack = attr->share_stack;
        made->stack_sz = attr->stack_size > 0 ? static_cast<size_t>(attr->stack_size) : 0;
    }
    if (!make_task(made)) {
        free(made);
        return -1;
    }
    made->next = thread->first;
    if (made->next != NULL) {
        made->next->prev = made;
    }
    *co = thread->first = made;
    return 0;
}

static void check(const char *call, const stCoRoutine_t *co)
{
    if (co == NULL || (co->thread != NULL && co == &co->thread->main)) {
        aco_i_misuse_of(call, "no coroutine: pass what co_create() made");
    }
}

static void fail_to_end(const char *call)
{
    aco_i_misuse_of(call, "the coroutine waits for a lock or a helper thread: let it go on first");
}

PUBLIC void co_resume(stCoRoutine_t *co)
{
    check("co_resume", co);
    if (co->task != NULL) {
        co->has_begun = true;
        aco_i_resume("co_resume", co->task);
    }
}

static void yield(const char *call)
{
    if (co_i_running() == NULL) {
        aco_i_misuse_of(call, "no coroutine runs: call it in one");
    }
    aco_i_wait_for_resume(NO_DEADLINE);
}

PUBLIC void co_yield (stCoRoutine_t *)
{
    yield("co_yield");
}

PUBLIC void co_yield_ct()
{
    yield("co_yield_ct");
}

PUBLIC void co_reset(stCoRoutine_t *co)
{
    check("co_reset", co);
    if (!co->has_begun || co->thread == NULL) {
        return;
    }
    if (co->task == NULL) {
        if (co->thread != thread || !make_task(co)) {
            aco_i_misuse_of("co_reset", "another thread owns it, or memory is out: release it");
        }
    } else {
        co->task->fn = run; /* messages have named it by another function */
        if (aco_i_restart("co_reset", co->task) != 0) {
            fail_to_end("co_reset");
        }
    }
    co->has_begun = false;
}

PUBLIC void co_release(stCoRoutine_t *co)
{
    check("co_release", co);
    if (co->task != NULL && aco_i_drop("co_release", co->task) != 0) {
        fail_to_end("co_release");
    }
    if (co->thread != NULL) {
        if (co->thread != thread) {
            aco_i_misuse_of("co_release", "the coroutine is another thread's: release it there");
        }
        *(co->prev != NULL ? &co->prev->next : &thread->first) = co->next;
        if (co->next != NULL) {
            co->next->prev = co->prev;
        }
    }
    co_i_free_values(co);
    co_i_free_variables(co);
    free(co);
}

PUBLIC void co_free(stCoRoutine_t *co)
{
    co_release(co);
}

stCoRoutine_t *co_i_running()
{
    const aco_task_t *self = aco_self();
    return self != NULL && self->discard == is_coroutine ? static_cast<stCoRoutine_t *>(self->arg)
                                                         : NULL;
}

PUBLIC stCoRoutine_t *co_self()
{
    stCoRoutine_t *co = co_i_running();
    return co != NULL || thread == NULL ? co : &thread->main;
}

/* ==== Waiting ================================================================================ */

/* As aco_poll(), but a coroutine that need not wait yields, too. */
static int poll_and_yield(struct pollfd fds[], nfds_t ct, int timeout)
{
    if (co_i_running() == NULL || timeout == 0) {
        return aco_poll(fds, ct, timeout);
    }
    uint64_t ct_switches = aco_i_ct_switches();
    int polled = aco_poll(fds, ct, timeout);
    aco_i_let_go(ct_switches);
    return polled;
}

PUBLIC int co_poll(stCoEpoll_t *, struct pollfd fds[], nfds_t ct, int timeout)
{
    int polled = poll_and_yield(fds, ct, timeout);
    if (polled < 0 && errno == ETIMEDOUT && aco_deadline() == NO_DEADLINE) { /* by co_resume() */
        for (nfds_t i = 0; i < ct; i++) {
            fds[i].revents = 0;
        }
        return 0;
    }
    return polled;
}

struct stCoCond_t {
    queue_t waiting;
};

PUBLIC stCoCond_t *co_cond_alloc()
{
    return static_cast<stCoCond_t *>(calloc(1, sizeof(stCoCond_t)));
}

PUBLIC int co_cond_free(stCoCond_t *cond)
{
    free(cond);
    return 0;
}

PUBLIC int co_cond_timedwait(stCoCond_t *cond, int timeout)
{
    const stCoRoutine_t *co = co_i_running();
    if (co == NULL) {
        aco_i_misuse_of("co_cond_timedwait", "no coroutine runs: call it in one");
    }
    int64_t until = timeout > 0 ? aco_i_after(static_cast<int64_t>(timeout) * NS_A_MS)
                                : NO_DEADLINE;
    node_t *node = &co->task->node;
    enqueue(&cond->waiting, node);
    bool is_resumed = aco_i_wait_for_resume(until) != 0;
    dequeue(node);
    if (!is_resumed) {
        errno = ETIMEDOUT;
    }
    return 0;
}

PUBLIC int co_cond_signal(stCoCond_t *cond)
{
    node_t *node = aco_i_claim_first(&cond->waiting, WAIT_EVENT);
    if (node != NULL) {
        aco_i_make_ready(node->task);
    }
    return 0;
}

PUBLIC int co_cond_broadcast(stCoCond_t *cond)
{
    while (cond->waiting.first != NULL) {
        co_cond_signal(cond);
    }
    return 0;
}

/* ==== Hooks ================================================================================== */

static void set_hooked(bool is_hooked)
{
    stCoRoutine_t *co = co_self();
    if (co != NULL) {
        co->is_hooked = is_hooked;
    }
    if (co != NULL && co->task != NULL) {
        co->task->is_unhooked = !is_hooked;
    }
}

PUBLIC void co_enable_hook_sys()
{
    set_hooked(true);
}

PUBLIC void co_disable_hook_sys()
{
    set_hooked(false);
}

PUBLIC bool co_is_enable_sys_hook()
{
    const stCoRoutine_t *co = co_self();
    return co != NULL && co->is_hooked;
}

PUBLIC int co_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz)
{
    return accept(fd, addr, addr_sz);
}

PUBLIC int co_register_fd(int)
{
    return 0;
}

PUBLIC void co_set_default_timeout(int timeout)
{
    int64_t ns = timeout <= 0 ? NO_DEADLINE : static_cast<int64_t>(timeout) * NS_A_MS;
    __atomic_store_n(&aco_i_default_wait_limit, ns, __ATOMIC_RELAXED);
}

PUBLIC void co_log_err(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
}
