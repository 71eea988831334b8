// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of the calls. A row of the table is one kind of call. Coroutines that copy use one share
 * stack, and are resumed in turn, in the order in which they were created: each timed aco_resume()
 * saves out the frames of one, restores those of another and returns when that yields. The first
 * resume of a coroutine, which starts it, and its last one, in which it checks its data and ends,
 * are not timed. Frames have a least size, and grow by 16 bytes: a group of rows gets the size
 * nearest to its nominal one that this compiler makes, and says which. Each group runs in a process
 * of its own, so that its peak of resident memory is its own too. At the end stands processor time
 * beside wall time: where it is much less, others took the processor, and figures mean nothing.
 *
 * The status is 1 if a resume was lost or a byte of a coroutine's data was wrong.
 */
#include "aco.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/wait.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "aco_assert_override.h"

#ifdef ACO_USE_VALGRIND
#define IS_ON_VALGRIND (RUNNING_ON_VALGRIND != 0)
#else
#define IS_ON_VALGRIND 0
#endif
#ifdef ACO_CONFIG_STRESS
#define IS_STRESS 1
#else
#define IS_STRESS 0
#endif

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KIBI 1024.0
#define NS_PER_S 1e9
#define NUMBER_TEXT_SZ 32u /* bytes of a 64-bit number with commas, at least */
#define COMMENT_SZ 64u     /* bytes */
#define PROGRESS_WIDTH 60  /* columns */
#define BUSY_SHARE 0.95    /* of a group's time; with less of a processor, its rows mean nothing */
#define LIFE_BATCH 1000u   /* coroutines created at a time where nothing is copied */
#define CO_OVERHEAD_SZ 48u /* bytes of a coroutine beside aco_t and save stack, at most */

/* ==== Measured calls ========================================================================= */

enum kind {
    STANDALONE,
    STANDALONE_INEXACT, /* main has done an inexact division, which raised a flag in its MXCSR */
    COPYING
};

struct group {
    enum kind kind;
    size_t amount;     /* coroutines */
    size_t nominal_sz; /* bytes that a resume copies, each way */
};

static const struct group all_groups[] = {
    {STANDALONE, 1, 0},       {STANDALONE, 1, 0},       {STANDALONE_INEXACT, 1, 0},
    {COPYING, 2000000, 8},    {COPYING, 2000000, 24},   {COPYING, 2000000, 40},
    {COPYING, 2000000, 56},   {COPYING, 2000000, 120},  {COPYING, 10000000, 8},
    {COPYING, 10000000, 24},  {COPYING, 10000000, 40},  {COPYING, 10000000, 56},
    {COPYING, 10000000, 120}, {COPYING, 2000000, 136},  {COPYING, 2000000, 136},
    {COPYING, 2000000, 152},  {COPYING, 2000000, 232},  {COPYING, 2000000, 488},
    {COPYING, 2000000, 488},  {COPYING, 1000000, 1000}, {COPYING, 1000000, 1000},
    {COPYING, 100000, 1000},  {COPYING, 100000, 2024},  {COPYING, 100000, 4072},
    {COPYING, 100000, 7992},
};

static const struct group headline_groups[] = {
    {STANDALONE, 1, 0},     {STANDALONE_INEXACT, 1, 0}, {COPYING, 100000, 56},
    {COPYING, 100000, 120}, {COPYING, 100000, 1000},
};

/* The amount of work. */
static struct {
    size_t amount_divisor; /* divides the coroutines of a group that copies */
    size_t resumes;        /* timed resumes of a group: whole rounds, and at least one round */
    size_t life_batches;   /* at least one */
} scale = {1, 20000000, 1000};

static void scale_down(const char *why, size_t amount_divisor, size_t resume_divisor)
{
    scale.amount_divisor *= amount_divisor;
    scale.resumes /= resume_divisor;
    scale.life_batches = (scale.life_batches + resume_divisor - 1) / resume_divisor;
    printf("%s: 1/%zu of the coroutines where they copy, 1/%zu of the resumes\n", why,
           amount_divisor, resume_divisor);
}

/* ==== Output ================================================================================= */

static struct {
    size_t group, groups; /* the one that runs, from 1 on, and how many there are */
} progress;

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%*s\r", PROGRESS_WIDTH, "");
    }
}

/* One line on the terminal, if there is one, which the next output replaces. */
static void show_progress(const char *what)
{
    clear_progress();
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "group %zu of %zu: %s ...", progress.group, progress.groups, what);
    }
}

/* Writes `number` to the end of `text`, with a comma before every third digit. */
static const char *with_commas(char text[NUMBER_TEXT_SZ], uint64_t number)
{
    char *at = text + NUMBER_TEXT_SZ - 1;
    *at = '\0';
    for (unsigned digits = 0; digits == 0 || number != 0; digits++) {
        if (digits != 0 && digits % 3 == 0) {
            *--at = ',';
        }
        *--at = (char)('0' + number % 10);
        number /= 10;
    }
    return at;
}

static void print_head(void)
{
    printf("\n%-47s %12s %14s %13s %18s\n", "comment", "task_amount", "all_time_cost", "ns_per_op",
           "speed");
}

/* One kind of call: `calls` of them took `ns`. */
static void print_row(const char *comment, size_t amount, size_t calls, uint64_t ns)
{
    char amount_text[NUMBER_TEXT_SZ], speed_text[NUMBER_TEXT_SZ];
    double per_call = (double)ns / (double)calls;
    double speed = ns != 0 ? NS_PER_S / per_call : 0;
    clear_progress();
    printf("%-47s %12s %12.3f s %10.2f ns %12s ops/s\n", comment, with_commas(amount_text, amount),
           (double)ns / NS_PER_S, per_call, with_commas(speed_text, (uint64_t)speed));
}

static void print_peak_memory(size_t amount)
{
    struct rusage usage;
    int got = getrusage(RUSAGE_SELF, &usage);
    assert(got == 0);
    double peak = (double)usage.ru_maxrss * KIBI;
    printf("    peak of resident memory: %.1f MiB, %.0f B per coroutine\n", peak / KIBI / KIBI,
           peak / (double)amount);
}

/* ==== Coroutines ============================================================================= */

/* Orders of main to them all. */
static struct {
    size_t data_sz; /* bytes of data of enter_with_data() */
    int is_over;    /* at the next resume they check their data and end */
} order;

/* The count is the coroutine's arg, because there it takes no room on the stack. */
static void count_resume(aco_t *co)
{
    co->arg = (char *)co->arg + 1;
}

static size_t resumes_of(const aco_t *co)
{
    return (size_t)(uintptr_t)co->arg;
}

/* Differs from one coroutine to the next, so that frames of a wrong one are noticed. */
static unsigned char datum(size_t i)
{
    return (unsigned char)(((uintptr_t)aco_get_co() >> 4) + i);
}

/* Not inlined, nor is check(): the data have to be in memory, and frames as small as can be. */
__attribute__((noinline)) static void fill(unsigned char *data, size_t sz)
{
    for (size_t i = 0; i < sz; i++) {
        data[i] = datum(i);
    }
}

__attribute__((noinline)) static void check(const unsigned char *data, size_t sz)
{
    for (size_t i = 0; i < sz; i++) {
        assert(data[i] == datum(i));
    }
}

/* Inlined, so that the caller's is the only frame. */
__attribute__((always_inline)) static inline void yield_until_over(void)
{
    count_resume(aco_get_co());
    while (!order.is_over) {
        aco_yield();
        count_resume(aco_get_co());
    }
}

static void enter_bare(void)
{
    yield_until_over();
    aco_exit();
}

static void enter_with_word(void)
{
    unsigned char data[sizeof(uint64_t)];
    fill(data, sizeof(data));
    yield_until_over();
    check(data, sizeof(data));
    aco_exit();
}

static void enter_with_data(void)
{
    unsigned char data[order.data_sz];
    fill(data, sizeof(data));
    yield_until_over();
    check(data, sizeof(data));
    aco_exit();
}

static void enter_by_acosw(void)
{
    aco_t *co = aco_get_co();
    count_resume(co);
    while (!order.is_over) {
        acosw(co, co->main_co);
        count_resume(co);
    }
    aco_exit();
}

/* ==== Many coroutines ======================================================================== */

/* Coroutines of one kind on one share stack. */
struct crowd {
    aco_t *main_co;
    aco_share_stack_t *share_stack;
    aco_cofuncp_t fp;
    size_t save_stack_sz;
    size_t amount;
    aco_t **co;
};

static struct crowd crowd_new(aco_t *main_co, aco_share_stack_t *share_stack, aco_cofuncp_t fp,
                              size_t save_stack_sz, size_t amount)
{
    struct crowd crowd = {main_co, share_stack, fp, save_stack_sz, amount, NULL};
    crowd.co = malloc(amount * sizeof(crowd.co[0]));
    assertalloc_ptr(crowd.co);
    return crowd;
}

static void crowd_free(struct crowd *crowd)
{
    free(crowd->co);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* These return how long they took, in ns. */

static uint64_t create_all(struct crowd *crowd)
{
    uint64_t begin = now();
    for (size_t i = 0; i < crowd->amount; i++) {
        crowd->co[i] = aco_create(crowd->main_co, crowd->share_stack, crowd->save_stack_sz,
                                  crowd->fp, NULL);
    }
    return now() - begin;
}

static uint64_t resume_all(struct crowd *crowd, size_t rounds)
{
    uint64_t begin = now();
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < crowd->amount; i++) {
            aco_resume(crowd->co[i]);
        }
    }
    return now() - begin;
}

static uint64_t destroy_all(struct crowd *crowd)
{
    uint64_t begin = now();
    for (size_t i = 0; i < crowd->amount; i++) {
        aco_destroy(crowd->co[i]);
    }
    return now() - begin;
}

/* Lets all end; `rounds` is how often each has been resumed until now. */
static void end_all(struct crowd *crowd, size_t rounds)
{
    order.is_over = 1;
    resume_all(crowd, 1);
    order.is_over = 0;
    uint64_t resumes = 0;
    for (size_t i = 0; i < crowd->amount; i++) {
        assert(crowd->co[i]->is_end);
        resumes += resumes_of(crowd->co[i]);
    }
    assert(resumes == (uint64_t)crowd->amount * (rounds + 1));
}

/* ==== A group that copies ==================================================================== */

/* A way to have a certain number of live bytes at a yield. */
struct shape {
    aco_cofuncp_t fp;
    size_t data_sz; /* for enter_with_data() */
    size_t live_sz; /* as measured */
};

static struct shape measure_shape(aco_t *main_co, aco_share_stack_t *share_stack, aco_cofuncp_t fp,
                                  size_t data_sz)
{
    struct crowd pair = crowd_new(main_co, share_stack, fp, 0, 2);
    order.data_sz = data_sz;
    create_all(&pair);
    resume_all(&pair, 1);
    struct shape shape = {fp, data_sz, pair.co[0]->save_stack.max_cpsz};
    end_all(&pair, 1);
    destroy_all(&pair);
    crowd_free(&pair);
    return shape;
}

static size_t distance(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

static struct shape nearest_shape(aco_t *main_co, aco_share_stack_t *share_stack, size_t wanted_sz)
{
    struct shape shapes[3];
    size_t known = 0;
    shapes[known++] = measure_shape(main_co, share_stack, enter_bare, 0);
    shapes[known++] = measure_shape(main_co, share_stack, enter_with_word, 0);
    /* Data of the wanted size make the whole too large by what else is live. */
    struct shape large = measure_shape(main_co, share_stack, enter_with_data, wanted_sz);
    size_t excess_sz = large.live_sz - wanted_sz;
    if (excess_sz < wanted_sz) {
        shapes[known++] = measure_shape(main_co, share_stack, enter_with_data,
                                        wanted_sz - excess_sz);
    }
    struct shape nearest = shapes[0];
    for (size_t i = 1; i < known; i++) {
        if (distance(shapes[i].live_sz, wanted_sz) < distance(nearest.live_sz, wanted_sz)) {
            nearest = shapes[i];
        }
    }
    return nearest;
}

/* Every resume but a coroutine's first one must have copied, and just as much as the row says. */
static void check_copies(const struct crowd *crowd)
{
    for (size_t i = 0; i < crowd->amount; i++) {
        const aco_save_stack_t *save = &crowd->co[i]->save_stack;
        assert(save->max_cpsz == crowd->save_stack_sz);
        assert(save->sz == crowd->save_stack_sz);
        assert(save->ct_restore == resumes_of(crowd->co[i]) - 1);
        assert(save->ct_save == save->ct_restore);
    }
}

static void run_copying(struct crowd *crowd, size_t nominal_sz)
{
    char comment[COMMENT_SZ];
    size_t rounds = scale.resumes > crowd->amount ? scale.resumes / crowd->amount : 1;

    show_progress("aco_create");
    uint64_t create_ns = create_all(crowd);
    snprintf(comment, sizeof(comment), "aco_create, save_stack_sz=%zu", crowd->save_stack_sz);
    print_row(comment, crowd->amount, crowd->amount, create_ns);

    show_progress("aco_resume");
    resume_all(crowd, 1);
    uint64_t resume_ns = resume_all(crowd, rounds);
    end_all(crowd, rounds + 1);
    check_copies(crowd);
    snprintf(comment, sizeof(comment), "aco_resume, copies %zu B (nominal %zu B)",
             crowd->save_stack_sz, nominal_sz);
    print_row(comment, crowd->amount, crowd->amount * rounds, resume_ns);

    show_progress("aco_destroy");
    print_row("aco_destroy", crowd->amount, crowd->amount, destroy_all(crowd));
    print_peak_memory(crowd->amount);
}

static void run_copying_group(const struct group *group, aco_t *main_co)
{
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    struct shape shape = nearest_shape(main_co, share_stack, group->nominal_sz);
    order.data_sz = shape.data_sz;
    struct crowd crowd = crowd_new(main_co, share_stack, shape.fp, shape.live_sz, group->amount);
    run_copying(&crowd, group->nominal_sz);
    crowd_free(&crowd);
    aco_share_stack_destroy(share_stack);
}

/* ==== A group without copying ================================================================ */

/* Volatile, so that the compiler neither does it itself nor leaves it out. */
static void divide_inexactly(void)
{
    volatile double divisor = 3.0;
    volatile double quotient = 1.0 / divisor;
    assert(quotient < divisor);
}

static uint64_t time_standalone_resume(aco_t *main_co, aco_share_stack_t *share_stack)
{
    struct crowd one = crowd_new(main_co, share_stack, enter_bare, 0, 1);
    create_all(&one);
    resume_all(&one, 1);
    /* The same loop with less in it than that of resume_all(). */
    aco_t *co = one.co[0];
    uint64_t begin = now();
    for (size_t i = 0; i < scale.resumes; i++) {
        aco_resume(co);
    }
    uint64_t ns = now() - begin;
    end_all(&one, scale.resumes + 1);
    assert(IS_STRESS || co->save_stack.ct_save == 0);
    destroy_all(&one);
    crowd_free(&one);
    return ns;
}

/* The switch by hand, two of them in each of scale.resumes rounds. */
static uint64_t time_acosw(aco_t *main_co, aco_share_stack_t *share_stack)
{
    struct crowd one = crowd_new(main_co, share_stack, enter_by_acosw, 0, 1);
    create_all(&one);
    /* It starts by aco_resume(), which makes it the owner of its stack. */
    resume_all(&one, 1);
    aco_t *co = one.co[0];
    uint64_t begin = now();
    for (size_t i = 0; i < scale.resumes; i++) {
        aco_gtls_co = co;
        acosw(main_co, co);
        aco_gtls_co = main_co;
    }
    uint64_t ns = now() - begin;
    end_all(&one, scale.resumes + 1);
    destroy_all(&one);
    crowd_free(&one);
    return ns;
}

/* One create or destroy is too short for the clock. */
static void time_life(aco_t *main_co, aco_share_stack_t *share_stack, uint64_t *create_ns,
                      uint64_t *destroy_ns)
{
    struct crowd batch = crowd_new(main_co, share_stack, enter_bare, 0, LIFE_BATCH);
    *create_ns = *destroy_ns = 0;
    for (size_t i = 0; i < scale.life_batches; i++) {
        *create_ns += create_all(&batch);
        *destroy_ns += destroy_all(&batch);
    }
    crowd_free(&batch);
}

/* All is timed before anything is printed, because printing does inexact divisions too. */
static void run_standalone_group(const struct group *group, aco_t *main_co)
{
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    int is_inexact = group->kind == STANDALONE_INEXACT;
    if (is_inexact) {
        divide_inexactly();
    }
    uint64_t create_ns, destroy_ns, acosw_ns = 0;
    show_progress("aco_resume");
    uint64_t resume_ns = time_standalone_resume(main_co, share_stack);
    if (!IS_STRESS) {
        show_progress("acosw");
        acosw_ns = time_acosw(main_co, share_stack);
    }
    show_progress("aco_create, aco_destroy");
    time_life(main_co, share_stack, &create_ns, &destroy_ns);
    aco_share_stack_destroy(share_stack);

    size_t lives = LIFE_BATCH * scale.life_batches;
    print_row("aco_create, in batches", LIFE_BATCH, lives, create_ns);
    print_row(is_inexact ? "aco_resume, standalone, inexact division before"
                         : "aco_resume, standalone",
              group->amount, scale.resumes, resume_ns);
    if (!IS_STRESS) {
        print_row(is_inexact ? "acosw, one way, inexact division before" : "acosw, one way",
                  group->amount, 2 * scale.resumes, acosw_ns);
    }
    print_row("aco_destroy, in batches", LIFE_BATCH, lives, destroy_ns);
}

/* ==== Groups, one process each =============================================================== */

static void run_group(const struct group *group)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    if (group->kind == COPYING) {
        run_copying_group(group, main_co);
    } else {
        run_standalone_group(group, main_co);
    }
    aco_destroy(main_co);
}

static struct {
    uint64_t wall_ns, processor_ns; /* sums over all groups */
    size_t busy_groups;             /* groups that others kept from the processor */
} spent;

/* Processor time of the processes of groups that have ended, in ns. */
static uint64_t processor_time(void)
{
    struct rusage usage;
    int got = getrusage(RUSAGE_CHILDREN, &usage);
    assert(got == 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

/* Adds the time that a group took, and notes whether it had a processor all the while. */
static void add_time(uint64_t wall_ns, uint64_t processor_ns)
{
    spent.wall_ns += wall_ns;
    spent.processor_ns += processor_ns;
    if ((double)processor_ns < BUSY_SHARE * (double)wall_ns) {
        printf("    TOO BUSY: others had the processor %.0f %% of this time; ignore these rows\n",
               100.0 - 100.0 * (double)processor_ns / (double)wall_ns);
        spent.busy_groups++;
    }
}

static void print_time(void)
{
    printf("\n%.1f s of processor time in %.1f s\n", (double)spent.processor_ns / NS_PER_S,
           (double)spent.wall_ns / NS_PER_S);
    if (spent.busy_groups != 0) {
        printf("The machine was TOO BUSY in %zu of %zu groups: run this again when it is idle.\n",
               spent.busy_groups, progress.groups);
    }
}

/* 1 if the process of the group ended as it should. */
static int run_group_apart(const struct group *group)
{
    fflush(NULL);
    uint64_t begin = now(), processor_begin = processor_time();
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        run_group(group);
        exit(EXIT_SUCCESS);
    }
    int status = 0;
    pid_t ended = waitpid(child, &status, 0);
    assert(ended == child);
    clear_progress();
    add_time(now() - begin, processor_time() - processor_begin);
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

/* Bytes that a group may use: not all of the machine's memory, nor of the address space. */
static uint64_t memory_limit(void)
{
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
    uint64_t limit = pages * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3;
    return limit < SIZE_MAX / 2 ? limit : SIZE_MAX / 2;
}

static int fits_memory(const struct group *group)
{
    uint64_t co_sz = sizeof(aco_t) + CO_OVERHEAD_SZ + group->nominal_sz;
    if (group->amount <= memory_limit() / co_sz) {
        return 1;
    }
    char text[NUMBER_TEXT_SZ];
    printf("skipped: %s coroutines copying %zu B need %" PRIu64 " MiB, but only %" PRIu64
           " MiB can be used\n",
           with_commas(text, group->amount), group->nominal_sz, group->amount * co_sz >> 20,
           memory_limit() >> 20);
    return 0;
}

/* Returns how many failed. */
static size_t run_groups(const struct group *groups, size_t amount)
{
    size_t failed = 0;
    progress.groups = amount;
    print_head();
    for (size_t i = 0; i < amount; i++) {
        struct group group = groups[i];
        progress.group = i + 1;
        if (group.kind == COPYING) {
            group.amount /= scale.amount_divisor;
        }
        if (fits_memory(&group) && !run_group_apart(&group)) {
            fprintf(stderr, "group %zu failed: see above\n", progress.group);
            failed++;
        }
    }
    return failed;
}

/* ==== The build ============================================================================== */

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifdef __OPTIMIZE__
#define OPTIMIZATION "optimized"
#else
#define OPTIMIZATION "not optimized"
#endif
#if defined(ACO_ARCH_X86_64)
#define PROCESSOR "x86-64"
#elif defined(ACO_ARCH_I386)
#define PROCESSOR "i386"
#elif defined(ACO_ARCH_ARM64)
#define PROCESSOR "arm64"
#elif defined(ACO_ARCH_RISCV64)
#define PROCESSOR "riscv64"
#elif defined(ACO_ARCH_ARM)
#define PROCESSOR "arm"
#else
#define PROCESSOR "another processor"
#endif
#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define CONTROL_WORDS "shared FPU control words"
#else
#define CONTROL_WORDS "own FPU control words"
#endif
#if defined(ACO_SWITCH_ASM) && !defined(ACO_CONFIG_NO_INLINE_SWITCH)
#define SWITCH "inline switch"
#else
#define SWITCH "switch by acosw"
#endif
#ifdef ACO_USE_VALGRIND
#define VALGRIND_USE "for valgrind"
#else
#define VALGRIND_USE "not for valgrind"
#endif

/* An allocator that replaces libc's is a library among those mapped. */
static const char *replaced_allocator(void)
{
    static const char *const names[] = {"tcmalloc", "jemalloc", "mimalloc"};
    const char *found = NULL;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && found == NULL && fgets(line, sizeof(line), maps) != NULL) {
        for (size_t i = 0; i < COUNT(names); i++) {
            if (strstr(line, names[i]) != NULL) {
                found = names[i];
            }
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

static void print_allocator(void)
{
    const char *replaced = replaced_allocator();
    if (replaced != NULL) {
        printf("allocator: %s\n", replaced);
        return;
    }
#ifdef __GLIBC__
    printf("allocator: that of glibc %s\n", gnu_get_libc_version());
#else
    printf("allocator: that of libc\n");
#endif
}

static void print_build(void)
{
    printf("aco %d.%d.%d (library %d), compiler %s (%s), %s\n", ACO_VERSION_MAJOR,
           ACO_VERSION_MINOR, ACO_VERSION_PATCH, aco_version(), COMPILER, OPTIMIZATION, PROCESSOR);
    printf("%s, %s, %s, %s\n", SWITCH, CONTROL_WORDS, VALGRIND_USE,
           IS_STRESS ? "stress build" : "no stress build");
    printf("sizeof(aco_t): %zu bytes\n", sizeof(aco_t));
    print_allocator();
}

/* ==== Command line =========================================================================== */

static void print_usage(FILE *to)
{
    fprintf(to,
            "usage: test_aco_benchmark [--quick | --check | --headline | -h]\n"
            "  (none)      all groups in full: minutes, and up to 3 GB of memory\n"
            "  --quick     all groups, with fewer coroutines and resumes: half a minute\n"
            "  --check     all groups, with a fiftieth of them: for emulators\n"
            "  --headline  a handful of groups: some seconds\n"
            "  -h          this text\n");
}

int main(int argc, char **argv)
{
    const char *option = argc > 1 ? argv[1] : "";
    int is_quick = strcmp(option, "--quick") == 0;
    int is_check = strcmp(option, "--check") == 0;
    int is_headline = strcmp(option, "--headline") == 0;
    if (strcmp(option, "-h") == 0) {
        print_usage(stdout);
        return EXIT_SUCCESS;
    }
    if (argc > 2 || (argc == 2 && !is_quick && !is_check && !is_headline)) {
        print_usage(stderr);
        return 2;
    }

    print_build();
    if (is_quick) {
        scale_down("--quick", 20, 5);
    }
    if (is_check) {
        scale_down("--check", 50, 50);
    }
    if (IS_ON_VALGRIND) {
        scale_down("on valgrind, whose own the times and the memory are", 100, 100);
    }
    if (IS_STRESS) {
        scale_down("stress build, in which each resume fills memory", 1, 20);
    }
    size_t failed = is_headline ? run_groups(headline_groups, COUNT(headline_groups))
                                : run_groups(all_groups, COUNT(all_groups));
    print_time();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
