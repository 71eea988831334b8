// SPDX-License-Identifier: Apache-2.0
/* Threads that keep the processor without a call in which they could wait: the others get on, and
 * each finds everything as it has left it. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fenv.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CT_THREADS 8

static int is_over, ct_busy; /* atomic */

static int64_t processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ==== Waiting without a call ================================================================= */

static void *spin(void *arg)
{
    __atomic_add_fetch(&ct_busy, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
    }
    return arg;
}

static void *end_spinning(void *arg)
{
    usleep(1000);
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static void *sleep_long(void *arg)
{
    usleep(30000);
    return arg;
}

/* More than there are loops. They wait for one that is made when they spin already. */
static void spinners_let_others_run(void)
{
    pthread_t threads[CT_THREADS];
    pthread_t sleeper = start(sleep_long, NULL);
    for (int i = 0; i < CT_THREADS; i++) {
        threads[i] = start(spin, NULL);
    }
    while (__atomic_load_n(&ct_busy, __ATOMIC_SEQ_CST) != CT_THREADS) {
        usleep(1000);
    }
    result_of(sleeper);
    pthread_t last = start(end_spinning, NULL);
    for (int i = 0; i < CT_THREADS; i++) {
        result_of(threads[i]);
    }
    result_of(last);
}

/* ==== A lock without calls =================================================================== */

static char spin_lock;
static long ct_inside, sum;

static void *add_under_lock(void *arg)
{
    for (int i = 0; i < 20; i++) {
        while (__atomic_test_and_set(&spin_lock, __ATOMIC_ACQUIRE)) {
        }
        CHECK(++ct_inside == 1);
        for (volatile long j = 0; j < 200000; j++) {
            sum += j % 2;
        }
        ct_inside--;
        __atomic_clear(&spin_lock, __ATOMIC_RELEASE);
    }
    return arg;
}

static void holders_go_on(void)
{
    pthread_t threads[CT_THREADS];
    for (int i = 0; i < CT_THREADS; i++) {
        threads[i] = start(add_under_lock, NULL);
    }
    for (int i = 0; i < CT_THREADS; i++) {
        result_of(threads[i]);
    }
    CHECK(sum == 20L * CT_THREADS * 100000);
}

/* ==== A thread's things ====================================================================== */

static __thread uint64_t own;

/* All registers of the processor are in use, and the rounding mode is the thread's. */
static void *compute(void *arg)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    uint64_t number = (uint64_t)(uintptr_t)arg, words[16];
    double reals[16];
    CHECK(fesetround(modes[number % 4]) == 0);
    errno = (int)number;
    own = number;
    volatile double one = 1, three = 3;
    double third = one / three;
    for (size_t i = 0; i < 16; i++) {
        words[i] = number * 16 + i;
        reals[i] = (double)words[i];
    }
    for (int64_t end = processor_time() + 200000000; processor_time() < end;) {
        uint64_t before[16];
        memcpy(before, words, sizeof(words));
        for (int round = 0; round < 100000; round++) {
            for (size_t i = 0; i < 16; i++) {
                words[i] ^= words[(i + 1) % 16] + (uint64_t)round;
                reals[i] += 1;
            }
        }
        for (int round = 100000; round-- > 0;) {
            for (size_t i = 16; i-- > 0;) {
                words[i] ^= words[(i + 1) % 16] + (uint64_t)round;
                reals[i] -= 1;
            }
        }
        CHECK(memcmp(before, words, sizeof(words)) == 0);
        for (size_t i = 0; i < 16; i++) {
            CHECK(reals[i] == (double)(number * 16 + i));
        }
        CHECK(one / three == third && fegetround() == modes[number % 4]);
        CHECK(errno == (int)number && own == number);
    }
    return arg;
}

/* Memory and text, by functions that must not be left in their middle. */
static void *call_libc(void *arg)
{
    char *texts[64] = {NULL};
    unsigned number = (unsigned)(uintptr_t)arg;
    void *(*volatile allocate)(size_t) = malloc; /* in a program with fixed addresses, its own */
    for (int64_t end = processor_time() + 200000000; processor_time() < end;) {
        for (unsigned i = 0; i < 10000; i++) {
            char **text = &texts[(number * 31 + i * 7) % 64];
            unsigned told = 0, size = 0;
            CHECK(*text == NULL || sscanf(*text, "%u %u", &told, &size) == 2);
            CHECK(*text == NULL || (told == number && (*text)[size - 1] == '#'));
            free(*text);
            size = 32 + i % 2000;
            *text = (char *)allocate(size);
            CHECK(*text != NULL);
            memset(*text, '#', size);
            snprintf(*text, 32, "%u %u ", number, size);
        }
    }
    for (size_t i = 0; i < 64; i++) {
        free(texts[i]);
    }
    return arg;
}

static void threads_keep_what_they_have(void)
{
    pthread_t threads[2 * CT_THREADS];
    for (uintptr_t i = 0; i < CT_THREADS; i++) {
        threads[2 * i] = start(compute, (void *)i);
        threads[2 * i + 1] = start(call_libc, (void *)i);
    }
    for (int i = 0; i < 2 * CT_THREADS; i++) {
        result_of(threads[i]);
    }
}

/* ==== All signals ============================================================================ */

static volatile sig_atomic_t ct_signals;

static void count_signal(int number)
{
    (void)number;
    ct_signals++;
}

/* A program may take any signal, and then sees no other than its own. */
static void *takes_signals(void *arg)
{
    struct sigaction action = {.sa_handler = count_signal};
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++) {
        CHECK(i % 2 == 0 ? signal(i, count_signal) == SIG_DFL : sigaction(i, &action, NULL) == 0);
    }
    for (int64_t end = processor_time() + 100000000; processor_time() < end;) {
    }
    CHECK(ct_signals == 0);
    return arg;
}

int main(void)
{
    spinners_let_others_run();
    holders_go_on();
    threads_keep_what_they_have();
    result_of(start(takes_signals, NULL));
    puts("all held");
    return 0;
}
