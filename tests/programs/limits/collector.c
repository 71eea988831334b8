// SPDX-License-Identifier: Apache-2.0
/*
 * Boehm's collector with coroutines that share stacks, of one thread. The program reports this to
 * it when it collects, so that a switch costs what it always does:
 *   - which stack is in use: begin_mark()
 *   - frames of coroutines that don't run, and are in place: push_frames()
 *   - frames that are saved out: they lie in memory of the collector's, by aco_set_allocator()
 * Coroutines, main ones too, keep lists in their frames alone, and look at whether these are whole.
 */
#include "aco.h"

#include <gc/gc.h>
#include <gc/gc_mark.h>

#define CT_STACKS 3
#define CT_COROUTINES 20
#define CT_CELLS 2000 /* of a list */
#define ROUNDS 3

static struct {
    struct GC_stack_base base; /* of the thread's own stack */
    void *thread;
    void (*push_others)(void);
    aco_share_stack_t *stacks[CT_STACKS];
} collector;

static void begin_mark(GC_EventType event)
{
    const aco_t *co = aco_get_co();
    struct GC_stack_base base = collector.base;
    if (event == GC_EVENT_MARK_START) {
        if (co != NULL && co->share_stack != NULL) {
            base.mem_base = co->share_stack->align_highptr;
        }
        GC_set_stackbottom(collector.thread, &base);
    }
}

static void push_suspended(const aco_t *co)
{
    GC_push_all_eager(co->reg[ACO_REG_IDX_SP], co->share_stack != NULL
                                                   ? co->share_stack->align_highptr
                                                   : collector.base.mem_base);
}

/* Those that wait for the running one, and of each other share stack its owner. */
static void push_frames(void)
{
    const aco_t *running = aco_get_co();
    collector.push_others();
    for (const aco_t *co = running; co != NULL && co->main_co != NULL; co = co->main_co) {
        push_suspended(co->main_co);
    }
    for (int i = 0; i < CT_STACKS; i++) {
        const aco_t *owner = collector.stacks[i]->owner;
        if (owner != NULL && owner != running) {
            push_suspended(owner);
        }
    }
}

static void start_collector(void)
{
    GC_INIT();
    collector.thread = GC_get_my_stackbottom(&collector.base);
    collector.push_others = GC_get_push_other_roots();
    GC_set_push_other_roots(push_frames);
    GC_set_on_collection_event(begin_mark);
    aco_set_allocator(GC_malloc_uncollectable, GC_free);
}

typedef struct cell_s {
    struct cell_s *next;
    uintptr_t number;
} cell_t;

static cell_t *add_cell(cell_t *list, uintptr_t number)
{
    cell_t *cell = (cell_t *)GC_MALLOC(sizeof(*cell));
    aco_assertalloc_ptr(cell);
    cell->next = list;
    cell->number = number;
    return cell;
}

static void check_list(const cell_t *list, uintptr_t ct)
{
    for (; list != NULL; list = list->next) {
        aco_assert(list->number == --ct);
    }
    aco_assert(ct == 0);
}

static void makes_lists(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        cell_t *list = NULL;
        for (uintptr_t i = 0; i < CT_CELLS; i++) {
            list = add_cell(list, i);
            if (i % 200 == 0) {
                GC_gcollect();
            }
            if (i % 7 == 0) {
                aco_yield();
            }
        }
        check_list(list, CT_CELLS);
    }
    aco_exit();
}

int main(void)
{
    start_collector();
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL), *cos[CT_COROUTINES];
    for (int i = 0; i < CT_STACKS; i++) {
        collector.stacks[i] = aco_share_stack_new(65536);
    }
    for (int i = 0; i < CT_COROUTINES; i++) {
        cos[i] = aco_create(main_co, collector.stacks[i % CT_STACKS], 0, makes_lists, NULL);
    }
    cell_t *list = NULL;
    uintptr_t ct = 0;
    for (int ct_live = CT_COROUTINES; ct_live > 0; list = add_cell(list, ct++)) {
        ct_live = 0;
        for (int i = 0; i < CT_COROUTINES; i++) {
            if (!cos[i]->is_end) {
                aco_resume(cos[i]);
                ct_live++;
            }
        }
        if (ct % 10 == 0) {
            GC_gcollect();
        }
    }
    check_list(list, ct);
    aco_assert(GC_get_heap_size() < (size_t)32 << 20);
    return 0;
}
