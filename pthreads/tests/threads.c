// SPDX-License-Identifier: Apache-2.0
/* Threads that all wait at once: their variables, keys, names, stacks and results. The argument is
 * how many. With a second one, tells how many threads of the kernel there are meanwhile. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <locale.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int is_open;
static long ct_waiting;
static pthread_key_t key;
static long ct_destroyed;

static __thread long number = 7;
static __thread char text[300] = "initial";

static void destroy(void *value)
{
    static __thread int round;
    __atomic_add_fetch(&ct_destroyed, 1, __ATOMIC_SEQ_CST);
    if (round++ == 0) {
        CHECK(pthread_setspecific(key, value) == 0); /* called once more */
    }
}

static void wait_at_gate(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    ct_waiting++;
    CHECK(pthread_cond_broadcast(&cond) == 0);
    while (!is_open) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *run(void *arg)
{
    long mine = (long)arg;
    pthread_t self = pthread_self();
    int *error = &errno;
    pid_t tid = gettid();
    CHECK(number == 7 && strcmp(text, "initial") == 0);
    CHECK(pthread_getspecific(key) == NULL);
    number = mine;
    snprintf(text, sizeof(text), "%ld", mine);
    CHECK(pthread_setspecific(key, text) == 0);
    *error = (int)mine;
    wait_at_gate();
    usleep(100);
    CHECK(number == mine && strtol(text, NULL, 10) == mine);
    CHECK(pthread_getspecific(key) == text);
    CHECK(pthread_equal(self, pthread_self()));
    CHECK(tid == gettid() && tid == (pid_t)syscall(SYS_gettid));
    if (mine % 3 == 0) {
        pthread_exit((void *)(mine + 1));
    }
    return (void *)(mine + 1);
}

static int ct_kernel_threads(void)
{
    int ct = 0;
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) {
        ct++;
    }
    closedir(folder);
    return ct - 2; /* . and .. */
}

static void run_many(long ct, int tells)
{
    pthread_t *threads = (pthread_t *)malloc(sizeof(*threads) * (size_t)ct);
    for (long i = 0; i < ct; i++) {
        threads[i] = start(run, (void *)i);
    }
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while (ct_waiting < ct) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    if (tells) {
        printf("%d threads of the kernel\n", ct_kernel_threads());
    }
    is_open = 1;
    CHECK(pthread_cond_broadcast(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    for (long i = 0; i < ct; i++) {
        CHECK(result_of(threads[i]) == (void *)(i + 1));
    }
    CHECK(ct_destroyed == 2 * ct);
    CHECK(number == 7);
    free(threads);
}

/* ==== Attributes ============================================================================= */

#define STACK_SZ ((size_t)1 << 20)

static void *has_stack(void *sz)
{
    pthread_attr_t attributes;
    void *lowest;
    size_t stack_sz;
    char here;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &lowest, &stack_sz) == 0);
    CHECK(&here > (char *)lowest && &here < (char *)lowest + stack_sz);
    CHECK(stack_sz >= *(size_t *)sz);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    char *deep = (char *)__builtin_alloca(*(size_t *)sz - 65536);
    memset(deep, 1, *(size_t *)sz - 65536);
    __asm__ volatile("" : : "r"(deep) : "memory");
    return sz;
}

static void stacks_have_the_size_asked_for(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    size_t sz;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_getstacksize(&attributes, &sz) == 0);
    CHECK(result_of(start(has_stack, &sz)) == &sz);
    sz = STACK_SZ;
    CHECK(pthread_attr_setstacksize(&attributes, sz) == 0);
    CHECK(pthread_create(&thread, &attributes, has_stack, &sz) == 0);
    CHECK(result_of(thread) == &sz);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* Whether the kernel knows the calling thread. */
static void *is_known(void *yes)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d", gettid());
    return access(path, F_OK) == 0 ? yes : NULL;
}

static void *memory;

static void *is_in_memory(void *known)
{
    pthread_attr_t attributes;
    void *lowest;
    size_t sz;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &lowest, &sz) == 0);
    CHECK(lowest == memory && sz == STACK_SZ);
    CHECK(&lowest > (void **)memory && (char *)&lowest < (char *)memory + STACK_SZ);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    CHECK(is_known(memory) == known);
    return has_stack(&sz);
}

static void stacks_may_be_the_callers(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *known = NULL;
    memory = aligned_alloc(4096, STACK_SZ);
    CHECK(pthread_create(&thread, NULL, is_known, memory) == 0);
    CHECK(pthread_join(thread, &known) == 0);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, memory, STACK_SZ) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&thread, &attributes, is_in_memory, known) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        memset(memory, 0xa5, STACK_SZ); /* it is the caller's again */
    }
    CHECK(pthread_attr_destroy(&attributes) == 0);
    free(memory);
}

#define GUARD_SZ ((size_t)1 << 20)

static void *has_guard(void *null)
{
    pthread_attr_t attributes;
    void *lowest;
    size_t sz, guard;
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &lowest, &sz) == 0);
    CHECK(pthread_attr_getguardsize(&attributes, &guard) == 0 && guard == GUARD_SZ);
    CHECK(write(ends[1], lowest, 1) == 1);
    for (size_t i = 4096; i <= GUARD_SZ; i += 4096) {
        CHECK(write(ends[1], (char *)lowest - i, 1) == -1 && errno == EFAULT);
    }
    CHECK(pthread_attr_destroy(&attributes) == 0);
    close(ends[0]);
    close(ends[1]);
    wait_at_gate();
    return null;
}

static long ct_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    long ct = 0;
    CHECK(file != NULL);
    for (int c; (c = getc(file)) != EOF;) {
        ct += c == '\n';
    }
    fclose(file);
    return ct;
}

static void guards_have_the_size_asked_for(void)
{
    pthread_attr_t attributes;
    pthread_t threads[3];
    is_open = 0;
    ct_waiting = 0;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK_SZ) == 0);
    CHECK(pthread_attr_setguardsize(&attributes, GUARD_SZ) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], &attributes, has_guard, NULL) == 0);
    }
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while (ct_waiting < 3) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    is_open = 1;
    CHECK(pthread_cond_broadcast(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    for (int i = 0; i < 3; i++) {
        result_of(threads[i]);
    }
    long ct_mappings = ct_lines("/proc/self/maps");
    for (int i = 0; i < 100; i++) {
        CHECK(pthread_create(&threads[0], &attributes, has_guard, NULL) == 0);
        result_of(threads[0]);
    }
    CHECK(ct_lines("/proc/self/maps") < ct_mappings + 50);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

static void *is_named(void *gate)
{
    char name[16];
    wait_at_gate();
    CHECK(pthread_getname_np(pthread_self(), name, sizeof(name)) == 0);
    CHECK(strcmp(name, "worker") == 0);
    return gate;
}

static void threads_have_names(void)
{
    char name[16];
    is_open = 0;
    pthread_t thread = start(is_named, NULL);
    CHECK(pthread_setname_np(thread, "worker") == 0);
    CHECK(pthread_setname_np(thread, "sixteen letters.") == ERANGE);
    CHECK(pthread_getname_np(thread, name, sizeof(name)) == 0 && strcmp(name, "worker") == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    is_open = 1;
    CHECK(pthread_cond_broadcast(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    result_of(thread);
}

static void *knows_schedule(void *arg)
{
    struct sched_param param;
    cpu_set_t all, set;
    clockid_t clock;
    struct timespec time;
    int policy;
    CHECK(pthread_getschedparam(pthread_self(), &policy, &param) == 0);
    CHECK(policy == SCHED_OTHER && param.sched_priority == 0);
    CHECK(pthread_setschedparam(pthread_self(), policy, &param) == 0);
    CHECK(pthread_setschedprio(pthread_self(), 0) == 0);
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof(all), &all) == 0 && CPU_COUNT(&all) > 0);
    CPU_ZERO(&set);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == EINVAL);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof(all), &all) == 0);
    CHECK(pthread_getcpuclockid(pthread_self(), &clock) == 0 && clock_gettime(clock, &time) == 0);
    return arg;
}

/* ==== Joining ================================================================================ */

static void *returns(void *arg)
{
    return arg;
}

static void *joins(void *thread)
{
    return result_of(*(pthread_t *)thread);
}

static void *waits(void *arg)
{
    wait_at_gate();
    return arg;
}

static void *joins_itself(void *arg)
{
    CHECK(pthread_join(pthread_self(), NULL) == EDEADLK);
    return arg;
}

static void threads_are_joined(void)
{
    int value;
    struct timespec soon;
    is_open = 0;
    pthread_t first = start(waits, &value), second = start(joins, &first);
    CHECK(pthread_tryjoin_np(first, NULL) == EBUSY);
    CHECK(clock_gettime(CLOCK_REALTIME, &soon) == 0);
    CHECK(pthread_timedjoin_np(second, NULL, &soon) == ETIMEDOUT);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &soon) == 0);
    CHECK(pthread_clockjoin_np(second, NULL, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    is_open = 1;
    CHECK(pthread_cond_broadcast(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(result_of(second) == &value);
    result_of(start(joins_itself, NULL));
}

static void *detaches_itself(void *arg)
{
    CHECK(pthread_detach(pthread_self()) == 0);
    CHECK(pthread_detach(pthread_self()) == EINVAL);
    wait_at_gate();
    return arg;
}

static void threads_are_detached(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    is_open = 1;
    start(detaches_itself, NULL);
    CHECK(pthread_detach(start(returns, NULL)) == 0);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    for (int i = 0; i < 1000; i++) { /* their handles are used again */
        CHECK(pthread_create(&thread, &attributes, returns, NULL) == 0);
    }
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* ==== C11, locale ============================================================================ */

static int returns_int(void *arg)
{
    return arg == NULL ? -7 : 7;
}

static void c11_threads_return_an_int(void)
{
    thrd_t thread;
    int result;
    CHECK(thrd_create(&thread, returns_int, NULL) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result == -7);
}

static tss_t value;
static int ct_values_destroyed; /* atomic */

static void destroy_value(void *own)
{
    __atomic_add_fetch(&ct_values_destroyed, own != NULL, __ATOMIC_SEQ_CST);
}

static int has_own_value(void *arg)
{
    int own;
    CHECK(tss_get(value) == NULL && tss_set(value, &own) == thrd_success);
    thrd_yield();
    CHECK(tss_get(value) == &own);
    return arg == NULL;
}

static void c11_threads_have_values(void)
{
    thrd_t threads[10];
    CHECK(tss_create(&value, destroy_value) == thrd_success);
    for (int i = 0; i < 10; i++) {
        CHECK(thrd_create(&threads[i], has_own_value, NULL) == thrd_success);
    }
    for (int i = 0; i < 10; i++) {
        CHECK(thrd_join(threads[i], NULL) == thrd_success);
    }
    CHECK(ct_values_destroyed == 10);
    tss_delete(value);
}

static void *has_locale(void *name)
{
    locale_t locale = newlocale(LC_ALL_MASK, (const char *)name, (locale_t)0);
    CHECK(locale != (locale_t)0 && uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
    CHECK(uselocale(locale) == LC_GLOBAL_LOCALE);
    wait_at_gate();
    usleep(100);
    CHECK(uselocale((locale_t)0) == locale);
    CHECK(uselocale(LC_GLOBAL_LOCALE) == locale);
    freelocale(locale);
    return name;
}

static void threads_have_locales(void)
{
    is_open = 0;
    pthread_t first = start(has_locale, "C"), second = start(has_locale, "C.UTF-8");
    CHECK(pthread_mutex_lock(&mutex) == 0);
    is_open = 1;
    CHECK(pthread_cond_broadcast(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    result_of(first);
    result_of(second);
}

int main(int argc, char **argv)
{
    CHECK(pthread_key_create(&key, destroy) == 0);
    run_many(argc > 1 ? strtol(argv[1], NULL, 10) : 100, argc > 2);
    stacks_have_the_size_asked_for();
    stacks_may_be_the_callers();
    guards_have_the_size_asked_for();
    threads_have_names();
    result_of(start(knows_schedule, NULL));
    threads_are_joined();
    threads_are_detached();
    c11_threads_return_an_int();
    c11_threads_have_values();
    threads_have_locales();
    puts("all held");
    return 0;
}
