// generator.c shows values, given and taken, from a recursive walk.
// SPDX-License-Identifier: Apache-2.0
//
// A generator: a recursive walk through a tree, of which a plain loop takes one value at a time, by
// aco_resume_value(), aco_yield_value() and an entry function that returns.
// build: -Iextra/value -Iextra/returning extra/value/aco_value.c extra/returning/aco_returning.c
/*
 * The walk gives the words of the tree in their order, and gets after each whether to go on below.
 * It prints:
 *
 *     ant bee cat cow dog eel
 *     without what follows cow:
 *     ant bee cat cow
 */
#include "aco_returning.h"
#include "aco_value.h"

typedef struct node {
    const char *word;
    const struct node *left, *right;
} node_t;

static const node_t ant = {"ant", NULL, NULL}, cat = {"cat", NULL, NULL}, eel = {"eel", NULL, NULL};
static const node_t bee = {"bee", &ant, &cat}, dog = {"dog", NULL, &eel};
static const node_t cow = {"cow", &bee, &dog};

static char stop[] = "stop";

static void walk(const node_t *node)
{
    if (node != NULL) {
        walk(node->left);
        if (aco_yield_value((void *)(uintptr_t)node->word) != stop) {
            walk(node->right);
        }
    }
}

static void generate(void)
{
    walk((const node_t *)aco_get_arg());
}

/* Starts the generator anew, and prints all words; does not look below the word `last`. */
static void print_words(aco_t *generator, const char *last)
{
    aco_reset(generator, generate, generator->arg);
    aco_return_ends(generator);
    const char *word = (const char *)aco_resume_value(generator, NULL);
    while (word != NULL) {
        printf("%s%s", word == ant.word ? "" : " ", word);
        word = (const char *)aco_resume_value(generator, word == last ? stop : NULL);
    }
    printf("\n");
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *generator = aco_create(main_co, stack, 0, generate, (void *)(uintptr_t)&cow);

    print_words(generator, NULL);
    printf("without what follows cow:\n");
    print_words(generator, cow.word);

    aco_destroy(generator);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
