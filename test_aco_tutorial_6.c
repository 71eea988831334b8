// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 6: a simple scheduler. It creates tasks, resumes them and now and then gives one up
 * before it has finished, all at random; a task is a coroutine that does a random number of rounds,
 * in each of which it yields with a random amount of data on its stack and then looks whether the
 * data is still right. Most tasks use one of a few common share stacks, of different sizes; some
 * are standalone. In the end the books must balance.
 *
 * Usage: test_aco_tutorial_6 [seed]
 */
#include "aco.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "aco_assert_override.h"

#ifdef ACO_USE_VALGRIND
#define IS_ON_VALGRIND (RUNNING_ON_VALGRIND != 0)
#else
#define IS_ON_VALGRIND 0
#endif

#define TASKS 30000u            /* created in all */
#define TASKS_ON_VALGRIND 1500u /* the same where everything takes some 30 times as long */
#define PLACES 400u             /* places for tasks at the same time */
#define COMMON_STACKS 4u
#define ROUNDS_MAX 24u           /* rounds of a task */
#define DATA_MAX_SZ 1500u        /* bytes on the stack of a task */
#define STANDALONE_ONE_IN 50u    /* tasks */
#define OWN_STACK_SZ (16u << 10) /* bytes */
#define DEFAULT_SEED 1u

/* ==== Chance ================================================================================= */

struct dice {
    uint32_t state; /* never 0 */
};

static struct dice dice_new(uint32_t seed)
{
    struct dice dice = {seed != 0 ? seed : 1};
    return dice;
}

/* A number from 0 to sides - 1 (an xorshift generator: the same sequence everywhere). */
static unsigned roll(struct dice *dice, unsigned sides)
{
    dice->state ^= dice->state << 13;
    dice->state ^= dice->state >> 17;
    dice->state ^= dice->state << 5;
    return dice->state % sides;
}

/* ==== A task ================================================================================= */

struct task {
    aco_t *co;                    /* NULL in a place that is free */
    aco_share_stack_t *own_stack; /* NULL unless it is standalone */
    uint32_t seed;
    unsigned rounds;      /* rounds that it will do */
    unsigned rounds_done; /* counted by the task */
    unsigned resumes;     /* counted by the scheduler */
};

/* `dice` lies on the stack of the task itself: there, its address is always good. */
static void do_round(struct task *task, struct dice *dice)
{
    size_t sz = 1 + roll(dice, DATA_MAX_SZ);
    unsigned salt = roll(dice, 256);
    volatile unsigned char data[sz];
    for (size_t i = 0; i < sz; i++) {
        data[i] = (unsigned char)(salt + i);
    }
    aco_yield();
    assert(aco_get_arg() == task);
    for (size_t i = 0; i < sz; i++) {
        assert(data[i] == (unsigned char)(salt + i));
    }
}

static void work(void)
{
    struct task *task = aco_get_arg();
    struct dice dice = dice_new(task->seed);
    while (task->rounds_done < task->rounds) {
        do_round(task, &dice);
        task->rounds_done++;
    }
    aco_exit();
}

/* ==== The scheduler ========================================================================== */

struct scheduler {
    aco_t *main_co;
    aco_share_stack_t *common_stacks[COMMON_STACKS];
    struct task places[PLACES];
    struct dice dice;
    unsigned tasks; /* to be created in all */
    unsigned created, started, finished, given_up;
    unsigned long resumes, rounds; /* sums over the tasks destroyed so far */
};

static void create_task(struct scheduler *scheduler, struct task *task)
{
    struct dice *dice = &scheduler->dice;
    aco_share_stack_t *share_stack = scheduler->common_stacks[roll(dice, COMMON_STACKS)];
    task->own_stack = NULL;
    if (roll(dice, STANDALONE_ONE_IN) == 0) {
        share_stack = task->own_stack = aco_share_stack_new(OWN_STACK_SZ);
    }
    task->seed = dice->state;
    task->rounds = roll(dice, ROUNDS_MAX + 1);
    task->rounds_done = 0;
    task->resumes = 0;
    task->co = aco_create(scheduler->main_co, share_stack, 0, work, task);
    scheduler->created++;
}

static void destroy_task(struct scheduler *scheduler, struct task *task)
{
    scheduler->started += task->resumes != 0;
    scheduler->resumes += task->resumes;
    scheduler->rounds += task->rounds_done;
    aco_destroy(task->co);
    task->co = NULL;
    if (task->own_stack != NULL) {
        aco_share_stack_destroy(task->own_stack);
    }
}

/* The first resume starts the task, each later one finishes a round. */
static void resume_task(struct scheduler *scheduler, struct task *task)
{
    aco_resume(task->co);
    task->resumes++;
    assert(task->rounds_done == task->resumes - 1);
    if (task->co->is_end) {
        assert(task->rounds_done == task->rounds);
        destroy_task(scheduler, task);
        scheduler->finished++;
    }
}

/* Does something with a place picked at random. */
static void step(struct scheduler *scheduler)
{
    struct task *task = &scheduler->places[roll(&scheduler->dice, PLACES)];
    if (task->co == NULL) {
        if (scheduler->created < scheduler->tasks) {
            create_task(scheduler, task);
        }
    } else if (roll(&scheduler->dice, ROUNDS_MAX) == 0) {
        destroy_task(scheduler, task);
        scheduler->given_up++;
    } else {
        resume_task(scheduler, task);
    }
}

static void set_up(struct scheduler *scheduler, uint32_t seed)
{
    static const size_t sizes[COMMON_STACKS] = {0, 16u << 10, 64u << 10, 1u << 20};
    scheduler->main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t i = 0; i < COMMON_STACKS; i++) {
        scheduler->common_stacks[i] = aco_share_stack_new2(sizes[i], i % 2 == 0);
    }
    scheduler->dice = dice_new(seed);
    scheduler->tasks = IS_ON_VALGRIND ? TASKS_ON_VALGRIND : TASKS;
}

static void tear_down(struct scheduler *scheduler)
{
    for (size_t i = 0; i < COMMON_STACKS; i++) {
        aco_share_stack_destroy(scheduler->common_stacks[i]);
    }
    aco_destroy(scheduler->main_co);
}

static void report(const struct scheduler *scheduler)
{
    printf("%u tasks: %u finished, %u were given up; %lu resumes for %lu rounds\n",
           scheduler->created, scheduler->finished, scheduler->given_up, scheduler->resumes,
           scheduler->rounds);
    assert(scheduler->created == scheduler->tasks);
    assert(scheduler->finished > 0 && scheduler->given_up > 0);
    assert(scheduler->resumes == scheduler->rounds + scheduler->started);
}

/* 1 if the command line is right. */
static int read_seed(int argc, char **argv, uint32_t *seed)
{
    *seed = DEFAULT_SEED;
    if (argc == 2) {
        char *end;
        *seed = (uint32_t)strtoul(argv[1], &end, 0);
        return end != argv[1] && *end == '\0';
    }
    return argc == 1;
}

int main(int argc, char **argv)
{
    static struct scheduler scheduler;
    uint32_t seed;
    if (!read_seed(argc, argv, &seed)) {
        int is_asked = argc == 2 && strcmp(argv[1], "-h") == 0;
        fprintf(is_asked ? stdout : stderr, "usage: %s [-h | SEED, a number]\n", argv[0]);
        return is_asked ? 0 : 2;
    }
    printf("seed %lu\n", (unsigned long)seed);

    aco_thread_init(NULL);
    set_up(&scheduler, seed);
    while (scheduler.finished + scheduler.given_up < scheduler.tasks) {
        step(&scheduler);
    }
    report(&scheduler);
    tear_down(&scheduler);
    return 0;
}
