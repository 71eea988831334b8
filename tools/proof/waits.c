// SPDX-License-Identifier: Apache-2.0
/*
 * Programs of two or three threads that wait for one another by the runtime's own sources, which
 * orders.c runs in every way. A program is refused if a thread waits for ever, if a task goes on
 * without a wake or is made ready twice, and if memory is used after it was freed, or in a data
 * race.
 *
 * A thread with a loop has one task at most, which runs on the thread's own stack: its wait calls
 * the loop's look until the task is ready. The kernel's part is modelled here.
 */
#include "waits.h"

#include "io/io.h"
#include "orders.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define CT_LOOPS 2
#define CT_BLOCKS 2
#define FD 0 /* a descriptor; those of loops have the loop's index */
#define DEADLINE 1000000

static struct {
    runtime_t runtime;
    loop_t loops[CT_LOOPS];
    aco_task_t tasks[CT_LOOPS + 1];
    aco_task_t thread_tasks[MOST_THREADS];
    int counts[CT_LOOPS]; /* of their eventfds */
    int wakes;            /* of the futex of a thread */
    aco_mutex_t mutex;
    aco_semaphore_t semaphore;
    int ct_done, ct_due;         /* plain */
    int ct_freed;                /* tasks */
    void *item;                  /* received */
    int has_input, is_closed;    /* the descriptor */
    void *blocks[CT_BLOCKS][32]; /* allocated one after the other */
    int ct_blocks;
    fd_t part[1024];
} m;

/* A thread's own. */
static struct {
    loop_t *loop;
    int64_t now;
    int ct_held_fds;
} own[MOST_THREADS];
static int this_thread;

char waits_is_single;
__thread loop_t *aco_i_loop;
__thread aco_task_t aco_i_thread_task;
__thread aco_task_t *aco_i_forked_task;
const aco_i_observer_t *aco_i_observer;
unsigned aco_i_ct_forks;
int aco_i_is_watched;
locks_of_hooks_t aco_i_locks_of_hooks;

static void at_switch(int thread)
{
    own[this_thread].loop = aco_i_loop;
    own[this_thread].ct_held_fds = aco_i_ct_held_fds;
    this_thread = thread;
    aco_i_loop = own[thread].loop;
    aco_i_ct_held_fds = own[thread].ct_held_fds;
    waits_thread_task = &m.thread_tasks[thread];
}

/* ==== In place of other sources ============================================================== */

int64_t aco_i_clock(void)
{
    return own[this_thread].now;
}

int64_t aco_i_after(int64_t ns)
{
    return own[this_thread].now + ns;
}

/* Leaves out attempts that fail, which change nothing. */
void aco_i_lock_slowly(lock_t *lock)
{
    take_lock(&lock->is_held);
}

uint64_t aco_i_new_id(void)
{
    return (uint64_t)this_thread + 1;
}

void *waits_allocate(size_t sz)
{
    return sz == sizeof(m.part)        ? (void *)m.part
           : sz <= sizeof(m.blocks[0]) ? m.blocks[m.ct_blocks++]
                                       : NULL;
}

void waits_release(void *block)
{
    free_memory(block, sizeof(m.blocks[0]));
}

aco_task_t *aco_self(void)
{
    return aco_i_loop == NULL ? NULL : aco_i_loop->running;
}

void aco_i_at_fork(aco_i_fork_handler_t *handler)
{
    (void)handler;
}

void aco_i_misuse_of(const char *call, const char *rule)
{
    (void)call;
    refuse(rule);
}

aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg)
{
    aco_task_t *task = &m.tasks[CT_LOOPS];
    task->runtime = loop->runtime;
    task->state = TASK_NEW;
    task->fn = fn;
    task->arg = arg;
    task->deadline = NO_DEADLINE;
    return task;
}

void aco_i_free_task(aco_task_t *task)
{
    __atomic_fetch_add(&m.ct_freed, 1, __ATOMIC_RELAXED);
    free_memory(task, sizeof(*task));
}

static void not_called(void)
{
    refuse("a function is called that waits.c lacks");
}

#define LACKS(name) void lacks_##name(void) __asm__(#name) __attribute__((alias("not_called")));
LACKS(aco_i_read_memory)
LACKS(aco_i_trim_tasks)
LACKS(aco_i_run_destructors)
LACKS(aco_i_note_reader)
LACKS(aco_i_drop_reader)
LACKS(aco_i_is_on_shared_stack)
LACKS(aco_i_has_group)
LACKS(aco_i_has_task)
LACKS(aco_i_hold_runtime_of)
LACKS(aco_stack_pool_stats)
LACKS(aco_stack_pool_trim)
LACKS(aco_stack_pool_destroy_co)
LACKS(aco_stack_pool_try_create_co)
LACKS(aco_stack_pool_try_new)

/* ==== The kernel ============================================================================= */

/* The kernel takes locks for all that follows, which order it. */
static ssize_t write_to(int fd, const void *bytes, size_t sz)
{
    (void)bytes;
    __atomic_exchange_n(&m.counts[fd], 1, __ATOMIC_ACQ_REL);
    return (ssize_t)sz;
}

static ssize_t read_from(int fd, void *bytes, size_t sz)
{
    (void)bytes;
    __atomic_exchange_n(&m.counts[fd], 0, __ATOMIC_ACQ_REL);
    return (ssize_t)sz;
}

static int close_file(int fd)
{
    (void)fd;
    __atomic_exchange_n(&m.is_closed, 1, __ATOMIC_ACQ_REL);
    return 0;
}

static int yield_to_others(void)
{
    await_change();
    return 0;
}

libc_t aco_i_libc = {
    .read = read_from, .write = write_to, .close = close_file, .sched_yield = yield_to_others};

int epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
    (void)epoll_fd, (void)op, (void)fd, (void)event;
    errno = EBADF;
    return __atomic_load_n(&m.is_closed, __ATOMIC_ACQUIRE) ? -1 : 0;
}

/* Returns whether there was an event before a time, or at all. */
static int wait_for_event(int *count, int is_timed)
{
    if (take_int(count, 1, is_timed) == 0) {
        own[this_thread].now = DEADLINE;
        return 0;
    }
    return 1;
}

int epoll_wait(int epoll_fd, struct epoll_event *events, int ct, int timeout)
{
    (void)ct;
    if (timeout == 0 || !wait_for_event(&m.counts[epoll_fd], 0)) {
        return 0;
    }
    events->events = EPOLLIN;
    events->data.u64 = ACO_I_INBOX;
    return 1;
}

static long wait_for_time(va_list arguments)
{
    int epoll_fd = va_arg(arguments, int);
    struct epoll_event *events = va_arg(arguments, struct epoll_event *);
    events->data.u64 = ACO_I_INBOX;
    return wait_for_event(&m.counts[epoll_fd], 1);
}

static long call_futex(va_list arguments)
{
    int *at = va_arg(arguments, int *);
    if (va_arg(arguments, int) == FUTEX_WAKE_PRIVATE) {
        __atomic_exchange_n(&m.wakes, 1, __ATOMIC_ACQ_REL);
        return 0;
    }
    (void)va_arg(arguments, int);
    int is_timed = va_arg(arguments, const void *) != NULL;
    __atomic_exchange_n(&m.wakes, 0, __ATOMIC_ACQ_REL);
    if (__atomic_load_n(at, __ATOMIC_RELAXED) == 0) {
        wait_for_event(&m.wakes, is_timed);
    }
    return 0;
}

long syscall(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    long result = number == SYS_epoll_pwait2 ? wait_for_time(arguments)
                  : number == SYS_futex      ? call_futex(arguments)
                                             : 0;
    va_end(arguments);
    return result;
}

/* ==== Loops and threads ====================================================================== */

void waits_switch(void)
{
    loop_t *loop = aco_i_loop;
    aco_task_t *task = loop->running;
    loop->running = NULL;
    while (loop->first_ready == NULL) {
        aco_i_look(loop, -1);
    }
    aco_task_t *first = loop->first_ready;
    loop->first_ready = first->next;
    if (first != task || task->wait < WAIT_EVENT || loop->first_ready != NULL) {
        refuse("a task was made ready twice, or without a claim");
    }
    task->state = TASK_RUNNING;
    loop->running = task;
}

static void set_up_loop(int i)
{
    static int error;
    static aco_i_timer_t timers[CT_LOOPS][4];
    loop_t *loop = &m.loops[i];
    loop->runtime = &m.runtime;
    loop->index = i;
    loop->epoll_fd = loop->event_fd = i;
    loop->timer_fd = -1;
    loop->trim_at = NO_DEADLINE;
    loop->seen_at = NO_DEADLINE;
    loop->error = &error;
    loop->timers = timers[i];
    loop->timers_sz = 4;
    loop->calls_left = 100;
    loop->knows_mask = 1;
}

static void set_up(void)
{
    memset(&m, 0, offsetof(__typeof__(m), part) + sizeof(m.part[0]));
    memset(own, 0, sizeof(own));
    aco_i_loop = NULL;
    aco_i_ct_held_fds = 0;
    waits_is_single = 0;
    m.runtime.loops = m.loops;
    m.runtime.ct_loops = CT_LOOPS;
    m.runtime.ct_tasks = 100;
    for (int i = 0; i < CT_LOOPS; i++) {
        set_up_loop(i);
        m.tasks[i].loop = &m.loops[i];
        m.tasks[i].runtime = &m.runtime;
        m.tasks[i].deadline = NO_DEADLINE;
        m.tasks[i].state = TASK_RUNNING;
        m.tasks[i].id = (uint64_t)i + 10;
        m.tasks[i].is_joinable = 1;
        m.tasks[i].node.task = &m.tasks[i];
    }
}

/* Makes the calling thread run a loop, with a task or without one. */
static aco_task_t *become(int i, int has_task)
{
    aco_i_loop = &m.loops[i];
    if (has_task) {
        m.tasks[i].co = m.tasks[i].suspended = aco_get_co();
        m.loops[i].running = &m.tasks[i];
    }
    return aco_i_loop->running;
}

static void demand(int condition, const char *rule)
{
    if (!condition) {
        refuse(rule);
    }
}

/* ==== Parks ================================================================================== */

static void park(void)
{
    become(0, 1);
    demand(aco_park() == 0, "a park failed");
}

static void park_or_fail(void)
{
    become(0, 1);
    aco_park();
}

static void park_until(void)
{
    become(0, 1)->deadline = DEADLINE;
    demand(aco_park() == 0 || aco_i_clock() >= DEADLINE, "a park ended early");
}

static void park_twice(void)
{
    park();
    m.tasks[0].deadline = DEADLINE;
    aco_park();
}

static void unpark(void)
{
    aco_unpark(&m.tasks[0]);
}

static void unpark_as_task(void)
{
    become(1, 1);
    aco_unpark(&m.tasks[0]);
}

static void cancel(void)
{
    aco_task_cancel(&m.tasks[0]);
}

/* The process begins with one thread, which parks for itself. Its next wait begins before there is
 * a second thread, and goes on after. */
static void park_alone(void)
{
    waits_is_single = 1;
    aco_task_t *self = become(0, 1);
    lock(&m.runtime.lock);
    aco_unpark(self);
    unlock(&m.runtime.lock);
    demand(aco_park() == 0, "a park failed");
    aco_i_open_wait(self, FOR_PARK);
    waits_is_single = 0;
    int canceller = start_thread(cancel), waker = start_thread(unpark);
    aco_i_wait(self);
    join_thread(canceller);
    join_thread(waker);
}

/* ==== Ends of tasks, loops and runtimes ====================================================== */

static void end(void)
{
    become(1, 0);
    aco_i_reap(&m.loops[1], &m.tasks[1]);
}

static void join(void)
{
    become(0, 1);
    demand(aco_join(&m.tasks[1], NULL) == 0, "a join failed");
}

static void join_group(void)
{
    become(0, 1);
    aco_group_t *group = aco_group_new();
    m.tasks[1].is_joinable = 0;
    demand(aco_i_enter_group(group, &m.tasks[1]) == 0, "no group");
    int ending = start_thread(end);
    demand(aco_group_join(group) == 0, "a join failed");
    join_thread(ending);
}

static void join_or_fail(void)
{
    become(0, 1);
    aco_join(&m.tasks[1], NULL);
}

static void await(void)
{
    become(0, 1);
    demand(aco_i_await_end(&m.tasks[1]) == 0, "an await failed");
    aco_i_free_ended(&m.tasks[1]);
}

static void detach(void)
{
    become(0, 1);
    aco_i_detach(&m.tasks[1], NULL);
}

static void end_last(void)
{
    become(0, 0);
    m.tasks[0].is_detached = 1;
    __atomic_store_n(&m.runtime.ct_tasks, 1, __ATOMIC_RELAXED);
    aco_i_reap(&m.loops[0], &m.tasks[0]);
}

static void run_loop(void)
{
    become(1, 0);
    aco_i_run_loop(&m.loops[1]);
}

static void *return_argument(void *arg)
{
    return arg;
}

static void offer_task(void)
{
    become(0, 1);
    aco_task_options_t options = {.thread = ACO_ANY};
    demand(aco_go_with(&options, return_argument, NULL, NULL) == 0, "a start failed");
}

static void take_task(void)
{
    become(1, 0);
    while (m.loops[1].first_ready == NULL) {
        aco_i_look(&m.loops[1], -1);
    }
}

/* Its loop is that of aco_i_end_runtime(), as test_waits.sh checks. */
static void park_and_end_runtime(void)
{
    runtime_t *runtime = &m.runtime;
    park();
    while (__atomic_load_n(&runtime->ct_holders, __ATOMIC_ACQUIRE) != 0) {
        await_change();
    }
    free_memory(runtime, sizeof(*runtime));
    free_memory(m.loops, sizeof(m.loops));
}

/* ==== Locks ================================================================================== */

static void use_mutex(void)
{
    demand(aco_mutex_lock(&m.mutex) == 0, "a lock failed");
    m.ct_done++;
    aco_mutex_unlock(&m.mutex);
}

static void use_mutex_in_first(void)
{
    become(0, 1);
    use_mutex();
}

static void use_mutex_in_second(void)
{
    become(1, 1);
    use_mutex();
}

static void acquire(void)
{
    become(0, 1)->deadline = DEADLINE;
    m.ct_done = aco_semaphore_acquire(&m.semaphore) == 0;
}

static void release(void)
{
    aco_semaphore_release(&m.semaphore);
}

/* ==== Channels =============================================================================== */

static aco_chan_t *chans[CT_BLOCKS];

static void make_channels(size_t capacity)
{
    for (int i = 0; i < CT_BLOCKS; i++) {
        chans[i] = aco_chan_new(sizeof(m.item), capacity);
    }
}

static void receive(void)
{
    become(0, 1);
    m.ct_done = aco_chan_recv(chans[0], &m.item);
    demand(m.ct_done < 1 || m.item == &m, "an item is not what was sent");
}

static void receive_or_give_up(void)
{
    m.tasks[0].deadline = DEADLINE;
    receive();
}

static void send_item(void)
{
    void *item = &m;
    become(1, 1);
    demand(aco_chan_send(chans[0], &item) == 0, "a send failed");
}

static void try_to_send(void)
{
    void *item = &m;
    m.ct_due = aco_chan_try_send(chans[0], &item) == 0;
}

static void close_channel(void)
{
    demand(aco_chan_close(chans[0]) == 0, "a close failed");
}

/* ==== Descriptors ============================================================================ */

/* Another loop watches the descriptor, and has a task of its own that waits for it. */
static void watch(void)
{
    fd_t *entry = aco_i_fd(FD);
    entry->loop = &m.loops[1];
    entry->is_ours = 1;
    m.tasks[2].node.task = &m.tasks[2];
    enqueue(&entry->waiting, &m.tasks[2].node);
}

/* Reads as aco_read() does. */
static void await_input(void)
{
    fd_t *entry = aco_i_fd(FD);
    become(0, 1);
    for (;;) {
        moment_t since = aco_i_moment(entry);
        if (__atomic_load_n(&m.has_input, __ATOMIC_ACQUIRE) ||
            __atomic_load_n(&m.is_closed, __ATOMIC_ACQUIRE) ||
            aco_i_wait_for(FD, entry, EPOLLIN, since, NO_DEADLINE) < 0) {
            return;
        }
    }
}

static void report_input(void)
{
    become(1, 0);
    __atomic_store_n(&m.has_input, 1, __ATOMIC_RELEASE);
    aco_i_on_event(FD, EPOLLIN);
}

static void close_it(void)
{
    aco_close(FD);
}

static void hold_entry(void)
{
    fd_t *entry = aco_i_fd(FD);
    aco_i_lock_fd(entry);
    aco_i_unlock_fd(entry);
}

/* A signal handler that interrupts a thread which holds the entry of another descriptor. */
static void close_in_handler(void)
{
    aco_i_ct_held_fds = 1;
    close_it();
    aco_i_ct_held_fds = 0;
}

/* ==== Programs =============================================================================== */

/* Runs threads to their ends: the caller is the first of them. */
static void run(void (*first)(void), void (*second)(void), void (*third)(void))
{
    int started[2], ct = 0;
    if (second != NULL) {
        started[ct++] = start_thread(second);
    }
    if (third != NULL) {
        started[ct++] = start_thread(third);
    }
    first();
    while (ct != 0) {
        join_thread(started[--ct]);
    }
}

static void demand_no_other_wake(void)
{
    for (int i = 0; i < CT_LOOPS; i++) {
        demand(m.loops[i].inbox == NULL, "a task was made ready twice");
    }
}

static void demand_counts(void)
{
    demand_no_other_wake();
    demand(m.mutex.owner == 0 && m.mutex.waiting.first == NULL, "a mutex is not free");
    demand(m.ct_done == m.ct_due, "an update is lost");
}

static void demand_semaphore(void)
{
    demand_no_other_wake();
    demand(m.semaphore.ct + (size_t)m.ct_done == 1, "a release is lost, or counts twice");
}

static void demand_freed(void)
{
    demand(m.ct_freed == 1, "a task is not freed");
}

static void demand_received(void)
{
    demand_no_other_wake();
    demand(m.ct_done == 1, "an item is lost");
}

static void demand_same_count(void)
{
    demand_no_other_wake();
    demand((m.ct_done == 1) == m.ct_due, "an item is lost, or comes twice");
}

static void demand_close_seen(void)
{
    demand(!aco_i_fd(FD)->missed_close, "a close is not seen");
}

static void demand_nothing(void)
{
}

#define PROGRAM(name, before, first, second, third, after)                                         \
    static void name(void)                                                                         \
    {                                                                                              \
        set_up();                                                                                  \
        before;                                                                                    \
        run(first, second, third);                                                                 \
        after();                                                                                   \
    }

PROGRAM(parks, (void)0, park, unpark, NULL, demand_no_other_wake)
PROGRAM(parks_of_two, (void)0, park, unpark, unpark_as_task, demand_no_other_wake)
PROGRAM(parks_again, (void)0, park_twice, unpark, NULL, demand_no_other_wake)
PROGRAM(parks_for_a_time, (void)0, park_until, unpark, NULL, demand_no_other_wake)
PROGRAM(parks_alone, (void)0, park_alone, NULL, NULL, demand_no_other_wake)
PROGRAM(cancels, (void)0, park_or_fail, cancel, NULL, demand_no_other_wake)
PROGRAM(cancels_or_wakes, (void)0, park_or_fail, cancel, unpark, demand_no_other_wake)
PROGRAM(joins, (void)0, join, end, NULL, demand_freed)
PROGRAM(joins_or_fails, (void)0, join_or_fail, end, cancel, demand_no_other_wake)
PROGRAM(awaits, (void)0, await, end, NULL, demand_freed)
PROGRAM(detaches, (void)0, detach, end, NULL, demand_freed)
PROGRAM(ends_last_task, (void)0, run_loop, end_last, NULL, demand_freed)
PROGRAM(offers, (void)0, offer_task, take_task, NULL, demand_nothing)
PROGRAM(ends_runtime, (void)0, park_and_end_runtime, unpark, NULL, demand_nothing)
PROGRAM(locks, m.ct_due = 2, use_mutex_in_first, use_mutex_in_second, NULL, demand_counts)
PROGRAM(locks_of_thread, m.ct_due = 2, use_mutex_in_first, use_mutex, NULL, demand_counts)
PROGRAM(joins_group, (void)0, join_group, NULL, NULL, demand_freed)
PROGRAM(sends, make_channels(0), receive, send_item, NULL, demand_received)
PROGRAM(sends_for_a_time, make_channels(0), receive_or_give_up, try_to_send, NULL,
        demand_same_count)
PROGRAM(closes_channel, make_channels(1), receive, try_to_send, close_channel, demand_nothing)
PROGRAM(acquires, (void)0, acquire, release, NULL, demand_semaphore)
PROGRAM(reads, watch(), await_input, report_input, NULL, demand_no_other_wake)
PROGRAM(reads_or_closes, watch(), await_input, close_it, NULL, demand_no_other_wake)
PROGRAM(closes_in_handler, (void)0, hold_entry, close_in_handler, NULL, demand_close_seen)

#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name, at_switch                                                                     \
    }
static const program_t programs[] = {
    ROW(parks),
    ROW(parks_of_two),
    ROW(parks_again),
    ROW(parks_for_a_time),
    ROW(parks_alone),
    ROW(cancels),
    ROW(cancels_or_wakes),
    ROW(joins),
    ROW(joins_or_fails),
    ROW(awaits),
    ROW(detaches),
    ROW(ends_last_task),
    ROW(offers),
    ROW(ends_runtime),
    ROW(locks),
    ROW(locks_of_thread),
    ROW(joins_group),
    ROW(sends),
    ROW(sends_for_a_time),
    ROW(closes_channel),
    ROW(acquires),
    ROW(reads),
    ROW(reads_or_closes),
    ROW(closes_in_handler),
};

/* Runs the programs that are named, or all. */
int main(int argc, char **argv)
{
    int ct_wrong = 0;
    aco_i_fd(FD); /* makes room for entries */
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        int is_named = argc < 2;
        for (int j = 1; j < argc; j++) {
            is_named |= strcmp(argv[j], programs[i].name) == 0;
        }
        if (is_named) {
            size_t ct = explore(&programs[i], &m, sizeof(m));
            printf("%s: %zu executions, %zu states\n", programs[i].name, ct, ct_states);
            ct_wrong += ct == 0;
        }
    }
    return ct_wrong != 0;
}
