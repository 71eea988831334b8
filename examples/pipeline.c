// pipeline.c shows producer, filter and consumer: coroutines that resume each other.
// SPDX-License-Identifier: Apache-2.0
//
// A pipeline, each part of which is a loop of its own over a stream. The filter is the parent of
// the producer, the consumer that of the filter, and values come up from one to the next.
// build: -Iextra/value -Iextra/returning extra/value/aco_value.c extra/returning/aco_returning.c
/*
 * The job for which coroutines were invented (M. E. Conway, Design of a Separable
 * Transition-Diagram Compiler, 1963): the producer reads cards, the filter makes one ^ of every two
 * asterisks, and the consumer prints the stream in lines of another length than the cards have.
 * None of them knows where the others stand in their loops. It prints:
 *
 *     a cube has the volume a^3 an
 *     d the surface 6a^2; a*b^*c i
 *     s a number, as is a^^b.
 */
#include "aco_returning.h"
#include "aco_value.h"

#define LINE_SZ 28 /* characters */

static const char *const cards[] = {
    "a cube has the volume a*",
    "*3 and the surface 6a**2",
    "; a*b***c is a number, a",
    "s is a****b.",
    NULL,
};

/* A stage gives characters one by one, by their address; NULL at the end. */
static const char *next_from(aco_t *stage)
{
    return stage->is_end ? NULL : (const char *)aco_resume_value(stage, NULL);
}

static void give(const char *c)
{
    aco_yield_value((void *)(uintptr_t)c);
}

static void produce(void)
{
    for (const char *const *card = cards; *card != NULL; card++) {
        for (const char *c = *card; *c != '\0'; c++) {
            give(c);
        }
    }
}

static void filter(void)
{
    aco_t *producer = (aco_t *)aco_get_arg();
    const char *c = next_from(producer);
    while (c != NULL) {
        const char *after = next_from(producer);
        if (*c == '*' && after != NULL && *after == '*') {
            give("^");
            after = next_from(producer);
        } else {
            give(c);
        }
        c = after;
    }
}

static void consume(aco_t *filter_co)
{
    int ct = 0;
    for (const char *c = next_from(filter_co); c != NULL; c = next_from(filter_co)) {
        putchar(*c);
        if (++ct % LINE_SZ == 0) {
            putchar('\n');
        }
    }
    if (ct % LINE_SZ != 0) {
        putchar('\n');
    }
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    /* One stack each, as the filter waits on its own while the producer runs. */
    aco_share_stack_t *stacks[] = {aco_share_stack_new(0), aco_share_stack_new(0)};
    aco_t *filter_co = aco_create(main_co, stacks[0], 0, filter, NULL);
    aco_t *producer = aco_create(filter_co, stacks[1], 0, produce, NULL);
    filter_co->arg = producer;
    aco_return_ends(filter_co);
    aco_return_ends(producer);

    consume(filter_co);

    aco_destroy(producer);
    aco_destroy(filter_co);
    aco_share_stack_destroy(stacks[0]);
    aco_share_stack_destroy(stacks[1]);
    aco_destroy(main_co);
    return 0;
}
