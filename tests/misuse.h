// SPDX-License-Identifier: Apache-2.0
/*
 * Cases of misuse in tables, for tests that expect a line of each. Before it is included, the test
 * has defined world_t: the coroutines that its cases use, `ended`, `yielded` and `self` among them.
 */
#ifndef TESTS_MISUSE_H
#define TESTS_MISUSE_H

#include "tests/harness.h"

/* Where: on the thread's own stack before and after the first resume, in a coroutine, or in one
 * that this has resumed. */
typedef enum { FRESH, MAIN, COROUTINE, CHILD } place_t;

typedef struct {
    int line;
    void (*act)(world_t *world);
    place_t place;
    const char *call;  /* that the line must name */
    const char *words; /* that it must hold: the rule */
    size_t culprit;    /* offset in world_t of the coroutine that it must name, or NOBODY */
} misuse_t;

#define NOBODY ((size_t)-1)
#define CO(member) offsetof(world_t, member)
/* clang-format off */
#define CASE(...) {__LINE__, __VA_ARGS__}
/* clang-format on */

/* One case in a world of its own; `misuse` first, so that the entry function finds the rest. */
typedef struct {
    const misuse_t *misuse;
    world_t world;
} scene_t;

/* In the child process. */
static void play(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    if (scene->misuse->place != FRESH) {
        aco_resume(scene->world.ended);
        aco_resume(scene->world.yielded);
    }
    if (scene->misuse->place >= COROUTINE) {
        aco_resume(scene->world.self);
    } else {
        scene->misuse->act(&scene->world);
    }
}

#endif
