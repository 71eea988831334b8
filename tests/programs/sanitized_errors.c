// SPDX-License-Identifier: Apache-2.0
/*
 * A program with errors inside coroutines, of which the argument names the one that is made; see
 * `errors`. A sanitizer must report it, of the right kind and at the line that ends in a comment
 * with its name. Exits with 0 if nothing stops it. Relies on aco.h and pthreads.
 */
#include "aco.h"

#include <pthread.h>

#define NOINLINE __attribute__((noinline))

/* Makes the compiler forget what it knows of the memory at `ptr`, and take it as read. */
#define ESCAPE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")

#define ARRAY_SZ 20 /* bytes */

/* The index of the byte behind an array, which no compiler can know. */
static volatile size_t behind = ARRAY_SZ;

/* No compiler can know either what it points to. */
static char *volatile pointer;

/* ==== Errors of one coroutine ================================================================= */

static NOINLINE void overflow_stack(void)
{
    char array[ARRAY_SZ];
    ESCAPE(array);
    array[behind] = 1; /* overflow_stack */
    ESCAPE(array);
}

static NOINLINE void overflow_stack_after_restore(void)
{
    char array[ARRAY_SZ];
    ESCAPE(array);
    aco_yield();
    array[behind] = 1; /* overflow_stack_after_restore */
    ESCAPE(array);
}

/* The array is that of a caller, which was saved out and restored more than once. */
static NOINLINE void write_to_caller(char *array)
{
    aco_yield();
    aco_yield();
    array[behind] = 1; /* overflow_caller_after_restore */
}

static NOINLINE void overflow_caller_after_restore(void)
{
    char array[ARRAY_SZ];
    ESCAPE(array);
    write_to_caller(array);
    ESCAPE(array);
}

static NOINLINE void overflow_heap(void)
{
    char *block = (char *)malloc(ARRAY_SZ);
    aco_yield();
    block[behind] = 1; /* overflow_heap */
    ESCAPE(block);
    free(block);
}

static NOINLINE void use_after_free(void)
{
    pointer = (char *)malloc(ARRAY_SZ);
    free(pointer);
    aco_yield();
    pointer[behind - 1] = 1; /* use_after_free */
}

static NOINLINE void point_to(char *ptr)
{
    pointer = ptr;
}

/* clang keeps the locals of a function with inline assembly off the fake stack. */
static NOINLINE void point_to_local(void)
{
    char array[ARRAY_SZ];
    point_to(array);
}

static NOINLINE void use_after_return(void)
{
    point_to_local();
    aco_yield();
    pointer[behind - 1] = 1; /* use_after_return */
}

/* A fake stack that is never emptied is full after that many calls that don't return. */
#define RESET_CT 20
#define RESET_DEPTH 1000u

static int is_to_reset;

static NOINLINE void wait_for_reset(void)
{
    is_to_reset = 1;
    aco_yield();
}

static NOINLINE void dive(unsigned depth)
{
    char array[ARRAY_SZ];
    point_to(array);
    if (depth == 0) {
        wait_for_reset();
    } else {
        dive(depth - 1);
    }
    point_to(array);
}

static NOINLINE void use_after_return_after_resets(void)
{
    static unsigned ct_starts;
    if (ct_starts++ < RESET_CT) {
        dive(RESET_DEPTH);
    }
    point_to_local();
    pointer[behind - 1] = 1; /* use_after_return_after_resets */
}

static NOINLINE void overflow_integer(void)
{
    volatile int most = INT_MAX;
    aco_yield();
    most = most + 1; /* overflow_integer */
}

static NOINLINE void leak(void)
{
    char *block = (char *)malloc(ARRAY_SZ); /* leak */
    ESCAPE(block);
    aco_yield();
}

/* ==== A race of two threads' coroutines ======================================================= */

static int shared_number;
static pthread_barrier_t barrier;

static NOINLINE void race(void)
{
    aco_yield();
    pthread_barrier_wait(&barrier);
    shared_number++; /* race */
}

/* ==== Coroutines ============================================================================== */

/* A callee makes the error, so a report has its name above that of its caller. */
static void makes_error(void)
{
    void (*const *error)(void) = (void (*const *)(void))aco_get_arg();
    (*error)();
    aco_exit();
}

static NOINLINE void yield_deep(unsigned depth)
{
    char array[50];
    memset(array, 1, sizeof(array));
    ESCAPE(array);
    aco_yield();
    if (depth != 0) {
        yield_deep(depth - 1);
    }
    ESCAPE(array);
}

/* Has arrays where the erring one has its frames. */
static void yields_deep(void)
{
    for (;;) {
        yield_deep(5);
    }
}

/* The pattern by which programs do it. */
static void reset_by_hand(aco_t *co)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    co->save_stack.valid_sz = 0;
    is_to_reset = 0;
}

static void points_to_local(void)
{
    point_to_local();
    aco_yield();
}

/* Runs the erring coroutine and another one in turn on one share stack. */
static void *run(void *error)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *erring = aco_create(main_co, stack, 0, makes_error, error);
    aco_t *other = aco_create(main_co, stack, 0, yields_deep, NULL);
    while (!erring->is_end) {
        aco_resume(erring);
        if (is_to_reset) {
            reset_by_hand(erring);
        }
        aco_resume(other);
    }
    aco_destroy(erring);
    aco_destroy(other);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return NULL;
}

/* ==== Leaks around coroutines ================================================================= */

/* A frame of main that was live while a coroutine ran keeps no block once it is left. */
static NOINLINE void resume_with_block(aco_t *co)
{
    char *blocks[500];
    blocks[0] = (char *)malloc(ARRAY_SZ); /* leak_of_main */
    ESCAPE(blocks);
    aco_resume(co);
    ESCAPE(blocks);
}

static void leak_of_main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, yields_deep, NULL);
    resume_with_block(co);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

/* Hides `block` at the address of something that is no more. */
static void put_away(char *block, void *address)
{
    char **blocks = (char **)mmap(address, sizeof(*blocks), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (blocks == MAP_FAILED) {
        exit(3);
    }
    blocks[0] = block;
}

static void leak_where_share_stack_was(void)
{
    aco_share_stack_t *stack = aco_share_stack_new2(0, 0);
    void *ptr = stack->ptr;
    aco_share_stack_destroy(stack);
    put_away((char *)malloc(ARRAY_SZ), ptr); /* leak_where_share_stack_was */
}

static void *fake_stack_of(const aco_t *co)
{
#ifdef ACO_USE_ASAN
    return co->sanitizer_state;
#else
    (void)co;
    return NULL;
#endif
}

static void leak_where_fake_stack_was(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, points_to_local, NULL);
    aco_resume(co);
    void *ptr = fake_stack_of(co);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    put_away((char *)malloc(ARRAY_SZ), ptr); /* leak_where_fake_stack_was */
}

static void points_to_local_and_ends(void)
{
    point_to_local();
    aco_yield();
    aco_exit();
}

static void leak_where_fake_stack_of_ended_was(void)
{
    aco_thread_init(NULL);
    static aco_t *co; /* not destroyed, and no leak */
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    co = aco_create(main_co, stack, 0, points_to_local_and_ends, NULL);
    aco_resume(co);
    void *ptr = fake_stack_of(co);
    aco_resume(co);
    put_away((char *)malloc(ARRAY_SZ), ptr); /* leak_where_fake_stack_of_ended_was */
}

/* ==== Main ==================================================================================== */

/* Some way down, where scrub() will overwrite all. */
static NOINLINE void *run_in_main(void *error)
{
    char room[behind * 50];
    ESCAPE(room);
    (*(void (**)(void))error)();
    ESCAPE(room);
    return NULL;
}

static void yields_for_ever(void)
{
    for (;;) {
        aco_yield();
    }
}

/* The coroutine was moved by value, and the first one given back with its frames. */
static NOINLINE void save_stack_in_freed_memory(void)
{
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 4096, yields_for_ever, NULL), copy;
    aco_t *other = aco_create(main_co, stack, 0, yields_for_ever, NULL);
    aco_resume(co);
    aco_resume(other);
    copy = *co;
    free(co);
    aco_resume(&copy); /* save_stack_in_freed_memory */
}

static void *run_in_two_threads(void *error)
{
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run, error) != 0) {
            exit(3);
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&barrier);
    return NULL;
}

/* Overwrites what is left of pointers to blocks. An array of variable size is never on a fake
 * stack. */
static NOINLINE void scrub(void)
{
    char data[behind * 500];
    memset(data, 0, sizeof(data));
    ESCAPE(data);
}

static struct {
    const char *name;
    void (*make)(void);
    void *(*run)(void *error);
} errors[] = {
/* clang-format off */
#define ERROR(name, run) {#name, name, run}
    /* clang-format on */
    ERROR(overflow_stack, run),
    ERROR(overflow_stack_after_restore, run),
    ERROR(overflow_caller_after_restore, run),
    ERROR(overflow_heap, run),
    ERROR(use_after_free, run),
    ERROR(use_after_return, run),
    ERROR(use_after_return_after_resets, run),
    ERROR(overflow_integer, run),
    ERROR(leak, run),
    ERROR(leak_of_main, run_in_main),
    ERROR(leak_where_share_stack_was, run_in_main),
    ERROR(leak_where_fake_stack_was, run_in_main),
    ERROR(leak_where_fake_stack_of_ended_was, run_in_main),
    ERROR(save_stack_in_freed_memory, run_in_main),
    ERROR(race, run_in_two_threads),
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (argc == 2 && strcmp(argv[1], errors[i].name) == 0) {
            errors[i].run(&errors[i].make);
            scrub();
            return 0;
        }
    }
    fprintf(stderr, "usage: sanitized_errors NAME\n");
    return 2;
}
