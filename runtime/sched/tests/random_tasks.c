// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs of tasks against a model, in a time of their own: clock_gettime() returns it, and
 * where the loop would sleep, it advances to the end of that sleep. The seed thus repeats a
 * program, which takes no longer than its instructions.
 *
 * The model knows the owner of each object and the tasks that wait for it, in the order in which
 * they came. The checks are:
 *   - a wait ends at the instant at which something ends it, not later: time stands still while a
 *     task can run;
 *   - the first task in the queue goes on first, and no other task does; but a mutex that is
 *     unlocked is free for others, too, until the first one has been losing for 1 ms;
 *   - each item that was sent is received once, in order, unless its send has failed;
 *   - a deadline and a cancellation end a wait then and there, and a shield keeps them off;
 *   - the tasks of a group have its maker's deadline and are cancelled with it, but not during the
 *     shield that the group was made in; the joiner of a group goes on when its last task ends;
 *   - a loop sleeps for ever only if none of its tasks could go on;
 *   - a task whose calls need not wait lets the others run after as many calls as its turn has, or
 *     after 1 ms: some programs have calls that take time.
 *
 *     random_tasks [CT_PROGRAMS [SEED]]
 */
// build: -Wl,--wrap=clock_gettime,--wrap=epoll_wait,--wrap=syscall
#include "random_turns.h"

#define MAX_STEPS 24
#define LONG_UNIT 10000 /* ns; 100 of these are the 1 ms after which a lock is given */

/* ==== Steps of a task ======================================================================== */

static void *acts(void *arg);

static void sleeps(actor_t *self)
{
    int64_t ns = below(200) * unit, until = now + ns, since = now;
    if (ended_well(self, aco_sleep(ns), since)) {
        CHECK(now == until);
    }
}

/* The first task in a line, before `end`, whose wait was not ended otherwise; NULL: none. */
static actor_t *first_of(const line_t *line, long end)
{
    for (size_t i = line->first; i < line->end && line->entries[i] != end; i++) {
        if (!is_cut(line->entries[i])) {
            return &actors[line->entries[i] - 1];
        }
    }
    return NULL;
}

static int takes_mutex(actor_t *self, size_t i)
{
    int64_t since = now;
    line_t *line = &mutexes[i].line;
    int is_free = mutexes[i].holder == 0;
    CHECK(!is_free || first_of(line, 0) == NULL || mutexes[i].freed_at == now);
    mutexes[i].holder = is_free ? self->no : mutexes[i].holder;
    begin_wait(self, is_free ? NULL : line);
    int is_locked = ended_well(self, aco_mutex_lock(&mutexes[i].it), since);
    CHECK(is_locked || (!is_free && !self->is_granted));
    if (!is_free) {
        CHECK(!is_locked || mutexes[i].holder == (self->is_granted ? self->no : 0));
        CHECK(!is_locked || first_of(line, self->no) == NULL);
        leave_line(line, self->no);
    }
    return is_locked;
}

/* A time as sync.c measures it. */
static int64_t moment(int64_t ns)
{
    return (ns >> 10) | 1;
}

/* Unlocks a mutex. A task that is woken to try again does so in this very instant, and waits on if
 * it loses. */
static void gives_up_mutex(size_t i)
{
    actor_t *first = mutexes[i].it.is_woken ? NULL : first_of(&mutexes[i].line, 0);
    mutexes[i].holder = 0;
    mutexes[i].freed_at = now;
    if (first != NULL && first->woken_at >= 0 && moment(now) - moment(first->woken_at) >= 1000) {
        mutexes[i].holder = first->no;
        first->is_granted = 1;
        ct_given++;
    } else if (first != NULL && first->woken_at < 0) {
        first->woken_at = now;
    }
    CHECK(aco_mutex_unlock(&mutexes[i].it) == 0);
}

static void locks(actor_t *self, int depth)
{
    size_t i = below(CT_OBJECTS);
    if (mutexes[i].holder == self->no) {
        CHECK(aco_mutex_lock(&mutexes[i].it) == -1 && errno == EDEADLK);
        return;
    }
    if (!takes_mutex(self, i)) {
        return;
    }
    mutexes[i].holder = self->no;
    if (below(2) == 0) {
        aco_yield();
    } else if (depth < 3) {
        sleeps(self);
    }
    CHECK(mutexes[i].holder == self->no);
    gives_up_mutex(i);
}

static void acquires(actor_t *self)
{
    size_t i = below(CT_OBJECTS);
    int64_t since = now;
    int is_free = semaphores[i].ct != 0;
    semaphores[i].ct -= (size_t)is_free;
    begin_wait(self, is_free ? NULL : &semaphores[i].line);
    int is_acquired = ended_well(self, aco_semaphore_acquire(&semaphores[i].it), since);
    CHECK(is_acquired == (is_free || self->is_granted));
    if (!is_free) {
        leave_line(&semaphores[i].line, self->no);
    }
}

static void releases(void)
{
    size_t i = below(CT_OBJECTS);
    semaphores[i].ct += !grant(&semaphores[i].line);
    CHECK(aco_semaphore_release(&semaphores[i].it) == 0);
}

static void receives_item(size_t i, long item)
{
    leave_line(&chans[i].items, item);
    chans[i].ct_received++;
}

/* Checks that items that were sent and received by calls for one channel went to its receivers in
 * order. */
static void check_order(void)
{
    for (size_t i = 0; i < CT_OBJECTS; i++) {
        long last = 0;
        for (size_t start = 0; start < chans[i].ct_starts; start++) {
            long item = chans[i].received[start];
            CHECK(item == 0 || items[item].is_selected || item > last);
            last = item == 0 || items[item].is_selected ? last : item;
        }
    }
}

static void sends(actor_t *self)
{
    size_t i = below(CT_OBJECTS);
    int64_t since = now;
    long item = new_item(self, 0);
    begin_wait(self, NULL);
    join_line(&chans[i].items, item);
    int result = aco_chan_send(chans[i].it, &item);
    if (ended_well(self, result, since)) {
        chans[i].ct_sent++;
        return;
    }
    CHECK(errno != EPIPE || chans[i].is_closed);
    leave_line(&chans[i].items, item); /* the item was not received */
}

static void receives(actor_t *self)
{
    size_t i = below(CT_OBJECTS);
    int64_t since = now;
    long item = 0;
    size_t start = chans[i].ct_starts++;
    CHECK(start < MAX_QUEUE);
    int result = aco_chan_recv(chans[i].it, &item);
    if (ended_well(self, result, since)) {
        if (result == 1) {
            chans[i].received[start] = item;
            receives_item(i, item);
        } else {
            CHECK(chans[i].is_closed);
        }
    }
}

static void selects(actor_t *self)
{
    aco_case_t cases[2 * CT_OBJECTS];
    long sent[2 * CT_OBJECTS], received[2 * CT_OBJECTS];
    size_t ct = 1 + below(2 * CT_OBJECTS);
    int64_t since = now;
    for (size_t i = 0; i < ct; i++) {
        int is_send = below(2) == 0;
        sent[i] = is_send ? new_item(self, 1) : 0;
        cases[i] = (aco_case_t){.chan = chans[i % CT_OBJECTS].it};
        cases[i].send = is_send ? &sent[i] : NULL;
        cases[i].recv = is_send ? NULL : &received[i];
        if (is_send) {
            join_line(&chans[i % CT_OBJECTS].items, sent[i]);
        }
    }
    int k = aco_select(cases, ct, 1);
    for (size_t i = 0; i < ct; i++) { /* the others were not sent */
        if (sent[i] != 0 && ((int)i != k || cases[i].result < 0)) {
            leave_line(&chans[i % CT_OBJECTS].items, sent[i]);
        }
    }
    if (!ended_well(self, k, since)) {
        return;
    }
    size_t i = (size_t)k % CT_OBJECTS;
    if (sent[k] != 0) {
        CHECK(cases[k].result == 0 || (chans[i].is_closed && cases[k].error == EPIPE));
        chans[i].ct_sent += cases[k].result == 0;
    } else if (cases[k].result == 1) {
        receives_item(i, received[k]);
    } else {
        CHECK(cases[k].result == 0 && chans[i].is_closed);
    }
}

static void *acts_in_group(void *arg)
{
    actor_t *self = (actor_t *)arg;
    self->task = aco_self();
    CHECK(aco_deadline() == self->group->deadline);
    acts(self);
    self->group->last_end = now;
    return self;
}

static void goes_into(group_t *group)
{
    actor_t *actor = new_actor();
    if (actor == NULL) {
        return;
    }
    actor->group = group;
    if (aco_group_go(group->it, acts_in_group, actor) == 0) {
        CHECK(!group->is_cancelled);
    } else {
        CHECK(errno == ECANCELED && (group->is_cancelled || is_out_of_time(group)));
        ct_actors--;
    }
}

static void spawns(actor_t *self)
{
    if (self != NULL && self->group != NULL && below(2) == 0) {
        goes_into(self->group);
        return;
    }
    actor_t *actor = new_actor();
    if (actor == NULL) {
        return;
    }
    aco_task_options_t options = {.shares_stack = below(3) == 0};
    CHECK(aco_go_with(&options, acts, actor, &actor->task) == 0);
}

static void joins_one(actor_t *self)
{
    actor_t *actor = &actors[below((unsigned)ct_actors)];
    if (actor == self || actor->is_joined || actor->task == NULL || actor->group != NULL) {
        return;
    }
    void *result = NULL;
    int64_t since = now;
    actor->is_joined = 1;
    if (ended_well(self, aco_join(actor->task, &result), since)) {
        CHECK(actor->has_ended && result == actor);
    } else {
        actor->is_joined = 0;
    }
}

static void cancels_one(void)
{
    actor_t *actor = &actors[below((unsigned)ct_actors)];
    if (actor->task != NULL && !actor->is_joined && !actor->has_ended && below(4) == 0) {
        cancel(actor);
        aco_task_cancel(actor->task);
    }
}

static void cancels_group(group_t *group)
{
    if (group->it != NULL) {
        cancel_group(group);
        aco_group_cancel(group->it);
    }
}

static void act(actor_t *self, int depth);

static void acts_within(actor_t *self, int depth)
{
    aco_within(below(300) * unit)
    {
        for (unsigned i = below(4); i != 0; i--) {
            act(self, depth + 1);
        }
    }
}

/* A new group with tasks. */
static group_t *makes_group(actor_t *self)
{
    if (ct_groups == MAX_GROUPS) {
        return NULL;
    }
    group_t *group = &groups[ct_groups++];
    *group = (group_t){.maker = self, .deadline = aco_deadline(), .is_shielded = self->ct_shields};
    group->is_cancelled = self->cancelled_at >= 0 && !group->is_shielded;
    group->it = aco_group_new();
    CHECK(group->it != NULL);
    for (unsigned i = below(4); i != 0; i--) {
        goes_into(group);
    }
    return group;
}

static void joins_group(actor_t *self, group_t *group)
{
    int64_t since = now;
    group->is_waited_for = 1;
    int result = aco_group_join(group->it);
    CHECK(now == (group->last_end > since ? group->last_end : since));
    for (long i = 0; i < ct_actors; i++) {
        CHECK(actors[i].group != group || actors[i].has_ended);
    }
    group->it = NULL;
    self->ct_hopeless = 0;
    if (result < 0) {
        int is_cancelled = self->cancelled_at >= 0 && self->ct_shields == 0;
        CHECK(errno == ECANCELED ? is_cancelled || is_out_of_time(self->group)
                                 : errno == ETIMEDOUT && aco_deadline() <= now);
    }
}

static void groups_tasks(actor_t *self, int depth)
{
    group_t *group = makes_group(self);
    if (group == NULL) {
        return;
    }
    for (unsigned i = below(3); i != 0; i--) {
        act(self, depth + 1);
    }
    if (below(4) == 0) {
        cancels_group(group);
    }
    joins_group(self, group);
}

static void leaves_shield(actor_t *self)
{
    self->ct_shields--;
    for (size_t i = 0; i < ct_groups && self->ct_shields == 0; i++) {
        group_t *group = &groups[i];
        if (group->maker == self && group->is_shielded) {
            group->is_shielded = 0;
            if (group->it != NULL && self->cancelled_at >= 0) {
                cancel_group(group);
            }
        }
    }
}

/* The group, if there is one, outlives the shield. */
static void acts_shielded(actor_t *self, int depth)
{
    group_t *group = NULL;
    aco_shielded
    {
        self->ct_shields++;
        aco_within(below(300) * unit)
        {
            group = self->group == NULL && below(2) == 0 ? makes_group(self) : NULL;
            act(self, depth + 1);
        }
        leaves_shield(self);
    }
    if (group != NULL) {
        if (below(2) == 0) {
            act(self, depth + 1);
        }
        if (aco_deadline() < group->deadline) {
            cancels_group(group); /* that would otherwise happen at an instant unknown here */
        }
        joins_group(self, group);
    }
}

static void act(actor_t *self, int depth)
{
    switch (below(depth < 3 ? 15 : 11)) {
    case 0:
        aco_yield();
        break;
    case 1:
        sleeps(self);
        break;
    case 2:
        locks(self, depth);
        break;
    case 3:
        acquires(self);
        break;
    case 4:
        releases();
        break;
    case 5:
        sends(self);
        break;
    case 6:
        receives(self);
        break;
    case 7:
        selects(self);
        break;
    case 8:
        spawns(self);
        break;
    case 9:
        if (ct_groups != 0 && below(4) == 0) {
            cancels_group(&groups[below((unsigned)ct_groups)]);
        } else {
            cancels_one();
        }
        break;
    case 10:
        if (below(4) == 0) {
            makes_calls();
        }
        break;
    case 11:
        acts_within(self, depth);
        break;
    case 12:
        acts_shielded(self, depth);
        break;
    case 13:
        /* The deadline of an outer group cancels a group in a shield at an unknown time. */
        if (self->group == NULL || self->ct_shields == 0) {
            groups_tasks(self, depth);
        }
        break;
    default:
        joins_one(self);
        break;
    }
}

static void *acts(void *arg)
{
    actor_t *self = (actor_t *)arg;
    aco_within(10000 * unit)
    { /* so that each program ends */
        for (unsigned i = below(MAX_STEPS); i != 0; i--) {
            act(self, 0);
        }
    }
    self->has_ended = 1;
    return self;
}

/* ==== A program ============================================================================== */

static void *runs_a_program(void *arg)
{
    for (unsigned i = 1 + below(6); i != 0; i--) {
        spawns(NULL);
    }
    aco_sleep(below(1000) * unit);
    chans[0].is_closed = below(2) == 0;
    if (chans[0].is_closed) {
        CHECK(aco_chan_close(chans[0].it) == 0);
    }
    for (long i = 0; i < ct_actors; i++) { /* more are made meanwhile */
        while (!actors[i].has_ended) {
            aco_sleep(100 * unit);
        }
        if (!actors[i].is_joined && actors[i].group == NULL) {
            actors[i].is_joined = 1;
            CHECK(aco_join(actors[i].task, NULL) == 0);
        }
    }
    return arg;
}

static void run_program(void)
{
    memset(mutexes, 0, sizeof(mutexes));
    memset(semaphores, 0, sizeof(semaphores));
    memset(chans, 0, sizeof(chans));
    ct_actors = last_item = 0;
    ct_groups = 0;
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
    unit = below(2) == 0 ? 1 : LONG_UNIT;
    size_t capacities[CT_OBJECTS];
    for (size_t i = 0; i < CT_OBJECTS; i++) {
        aco_semaphore_init(&semaphores[i].it, semaphores[i].ct = below(3));
        capacities[i] = below(4);
        chans[i].it = aco_chan_new(sizeof(long), capacities[i]);
    }
    CHECK(aco_run(NULL, runs_a_program, NULL, NULL) == 0);
    CHECK(below(16) != 0 || aco_run(NULL, is_beside_busy_tasks, NULL, NULL) == 0);
    check_order();
    for (size_t i = 0; i < CT_OBJECTS; i++) {
        CHECK(mutexes[i].holder == 0 && semaphores[i].line.first == semaphores[i].line.end);
        size_t ct_left = chans[i].items.end - chans[i].items.first;
        CHECK(chans[i].ct_sent - chans[i].ct_received == ct_left && ct_left <= capacities[i]);
        aco_chan_free(chans[i].it);
    }
}

int main(int argc, char **argv)
{
    unsigned long ct = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    for (program_no = 1; program_no <= ct; program_no++, seed++) {
        now = 1000000;
        run_program();
    }
    CHECK(ct < 10000 || ct_given > 0);
    printf("%lu programs\n", ct);
    return 0;
}
