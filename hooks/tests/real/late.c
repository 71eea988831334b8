// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the functions of a late_t: the library waits in a task whose deadline comes, in one whose
 * deadline has passed, and in one that is cancelled, and then must still work. Prints how each wait
 * ended.
 */
#include "late.h"

#define MS INT64_C(1000000) /* ns */
#define LONG_ENOUGH (100 * MS)

static char text[200];

static void *wait_till_deadline(void *ns)
{
    aco_within(*(int64_t *)ns)
    {
        late.wait(text, sizeof(text));
    }
    return NULL;
}

static void *wait_till_cancelled(void *unused)
{
    late.wait(text, sizeof(text));
    return unused;
}

/* Waits for the end of a task, which may need its release, and reports. */
static void finish(const char *what, aco_task_t *task)
{
    if (late.release != NULL) {
        aco_sleep(LONG_ENOUGH);
        late.release();
    }
    if (aco_join(task, NULL) != 0) {
        perror("aco_join");
    }
    fprintf(stderr, "%s: %s; %s\n", what, text, late.works() ? "works" : "BROKEN");
}

static void *first(void *unused)
{
    int64_t soon = 20 * MS, passed = 0;
    finish("deadline", aco_spawn(wait_till_deadline, &soon));
    finish("passed", aco_spawn(wait_till_deadline, &passed));
    aco_task_t *task = aco_spawn(wait_till_cancelled, NULL);
    aco_sleep(20 * MS);
    aco_task_cancel(task);
    finish("cancelled", task);
    return unused;
}

int main(void)
{
    if (late.begin != NULL) {
        late.begin();
    }
    return aco_run(&(aco_run_options_t){.stack_sz = 1 << 20}, first, NULL, NULL);
}
