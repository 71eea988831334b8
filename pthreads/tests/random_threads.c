// SPDX-License-Identifier: Apache-2.0
/*
 * A random program of threads: random_threads SEED STEPS. Its steps come from the seed alone; each
 * checks what POSIX says of it. It tells how many of each there were, and sums of what they did,
 * which are the same however the threads are run.
 *
 * No step can wait for ever: a thread takes from a queue, pipe or semaphore only what it has put
 * there, or more, and locks are taken in one order.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 12
#define MOST_STEPS 60 /* of a thread */
#define CT_LOCKS 3    /* of a kind */
#define LONG 600      /* s */

/* ==== Random numbers ========================================================================= */

typedef struct {
    uint64_t state;
} random_t;

static uint32_t next(random_t *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t bits = random->state;
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(bits >> 32);
}

static uint32_t below(random_t *random, uint32_t end)
{
    return next(random) % end;
}

/* ==== Shared by the threads ================================================================= */

typedef struct {
    pthread_mutex_t mutex;
    int type;
    long value; /* no atomic one */
} counter_t;

static counter_t counters[CT_LOCKS + 1]; /* one of each type */

static struct {
    pthread_rwlock_t lock;
    long first, second; /* the same */
} pairs[CT_LOCKS];

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    long ct, sum;
} queue;

static sem_t tokens;
static int pipes[2];
static pthread_spinlock_t spin;
static long spun;
static pthread_once_t once;
static long ct_once;
static pthread_key_t key;
static long ct_destroyed; /* atomic */
static pthread_barrier_t barrier;

static __thread long own = 17;
static __thread sem_t *handled;
static __thread volatile sig_atomic_t ct_handled;

/* Things that a thread has done. */
typedef struct {
    random_t random;
    long ct_steps;
    int depth;
    int meets; /* all meet at a barrier at its end */
    long sum;
} thread_t;

static void nap(random_t *random)
{
    switch (below(random, 8)) {
    case 0:
        usleep(below(random, 100));
        break;
    case 1:
    case 2:
        sched_yield();
        break;
    default:
        break;
    }
}

static struct timespec in_a_long_time(clockid_t clock)
{
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    time.tv_sec += LONG;
    return time;
}

/* ==== Locks ================================================================================== */

static void lock(counter_t *counter, random_t *random)
{
    struct timespec time;
    switch (below(random, 4)) {
    case 0:
        while (pthread_mutex_trylock(&counter->mutex) != 0) {
            sched_yield();
        }
        break;
    case 1:
        time = in_a_long_time(CLOCK_REALTIME);
        CHECK(pthread_mutex_timedlock(&counter->mutex, &time) == 0);
        break;
    case 2:
        time = in_a_long_time(CLOCK_MONOTONIC);
        CHECK(pthread_mutex_clocklock(&counter->mutex, CLOCK_MONOTONIC, &time) == 0);
        break;
    default:
        CHECK(pthread_mutex_lock(&counter->mutex) == 0);
    }
}

static void lock_mutexes(thread_t *thread)
{
    random_t *random = &thread->random;
    uint32_t from = below(random, CT_LOCKS + 1);
    for (uint32_t i = from; i <= CT_LOCKS; i++) {
        lock(&counters[i], random);
        int type = counters[i].type;
        CHECK(type != PTHREAD_MUTEX_ERRORCHECK ||
              pthread_mutex_lock(&counters[i].mutex) == EDEADLK);
        CHECK(type != PTHREAD_MUTEX_RECURSIVE || pthread_mutex_lock(&counters[i].mutex) == 0);
    }
    for (uint32_t i = from; i <= CT_LOCKS; i++) {
        long before = counters[i].value;
        nap(random);
        counters[i].value = before + 1;
        thread->sum++;
        CHECK(counters[i].type != PTHREAD_MUTEX_RECURSIVE ||
              pthread_mutex_unlock(&counters[i].mutex) == 0);
        CHECK(pthread_mutex_unlock(&counters[i].mutex) == 0);
        CHECK(counters[i].type != PTHREAD_MUTEX_ERRORCHECK ||
              pthread_mutex_unlock(&counters[i].mutex) == EPERM);
    }
}

static void lock_rwlocks(thread_t *thread)
{
    random_t *random = &thread->random;
    uint32_t i = below(random, CT_LOCKS);
    if (below(random, 3) == 0) {
        CHECK(pthread_rwlock_wrlock(&pairs[i].lock) == 0);
        CHECK(pthread_rwlock_trywrlock(&pairs[i].lock) != 0);
        pairs[i].first++;
        nap(random);
        pairs[i].second++;
        thread->sum++;
    } else {
        CHECK(pthread_rwlock_rdlock(&pairs[i].lock) == 0);
        long first = pairs[i].first;
        nap(random);
        CHECK(first == pairs[i].second);
    }
    CHECK(pthread_rwlock_unlock(&pairs[i].lock) == 0);
}

static void lock_spinning(thread_t *thread)
{
    CHECK(pthread_spin_lock(&spin) == 0);
    long before = spun;
    if (below(&thread->random, 4) == 0) {
        sched_yield();
    }
    spun = before + 1;
    thread->sum++;
    CHECK(pthread_spin_unlock(&spin) == 0);
}

/* ==== Things that are passed ================================================================= */

static void pass_by_queue(thread_t *thread)
{
    long mine = (long)below(&thread->random, 1000);
    CHECK(pthread_mutex_lock(&queue.mutex) == 0);
    queue.ct++;
    queue.sum += mine;
    CHECK((below(&thread->random, 2) == 0 ? pthread_cond_signal(&queue.cond)
                                          : pthread_cond_broadcast(&queue.cond)) == 0);
    CHECK(pthread_mutex_unlock(&queue.mutex) == 0);
    nap(&thread->random);
    struct timespec time = in_a_long_time(CLOCK_REALTIME);
    int is_timed = below(&thread->random, 2) == 0;
    CHECK(pthread_mutex_lock(&queue.mutex) == 0);
    while (queue.ct == 0) {
        CHECK((is_timed ? pthread_cond_timedwait(&queue.cond, &queue.mutex, &time)
                        : pthread_cond_wait(&queue.cond, &queue.mutex)) == 0);
    }
    queue.ct--;
    thread->sum += mine;
    CHECK(pthread_mutex_unlock(&queue.mutex) == 0);
}

static void pass_by_semaphore(thread_t *thread)
{
    struct timespec time = in_a_long_time(CLOCK_REALTIME);
    CHECK(sem_post(&tokens) == 0);
    nap(&thread->random);
    CHECK((below(&thread->random, 2) == 0 ? sem_wait(&tokens) : sem_timedwait(&tokens, &time)) ==
          0);
}

static void pass_by_pipe(thread_t *thread)
{
    struct pollfd polled = {pipes[0], POLLIN, 0};
    char byte = 'b';
    CHECK(write(pipes[1], &byte, 1) == 1);
    nap(&thread->random);
    if (below(&thread->random, 2) == 0) {
        CHECK(poll(&polled, 1, -1) == 1);
    }
    byte = 0;
    CHECK(read(pipes[0], &byte, 1) == 1 && byte == 'b');
}

/* ==== Values ================================================================================= */

static void destroy(void *value)
{
    __atomic_add_fetch(&ct_destroyed, value != NULL, __ATOMIC_RELAXED);
}

static void keep_values(thread_t *thread)
{
    long value = (long)next(&thread->random);
    long before = own;
    void *set = pthread_getspecific(key);
    CHECK(pthread_setspecific(key, thread) == 0 && (set == NULL || set == thread));
    own = value;
    errno = (int)(value & 0xff);
    nap(&thread->random);
    CHECK(own == value && pthread_getspecific(key) == thread);
    CHECK(pthread_setspecific(key, set) == 0);
    own = before;
}

static void call_once(void)
{
    ct_once++;
    sched_yield();
}

static void begin_once(thread_t *thread)
{
    CHECK(pthread_once(&once, call_once) == 0 && ct_once == 1);
    (void)thread;
}

/* ==== Other threads ========================================================================== */

static void *run(void *arg);

static void join(pthread_t id, void *expected, random_t *random)
{
    void *result = NULL;
    struct timespec time;
    int error;
    switch (below(random, 4)) {
    case 0:
        while ((error = pthread_tryjoin_np(id, &result)) == EBUSY) {
            sched_yield();
        }
        CHECK(error == 0);
        break;
    case 1:
        time = in_a_long_time(CLOCK_REALTIME);
        CHECK(pthread_timedjoin_np(id, &result, &time) == 0);
        break;
    case 2:
        time = in_a_long_time(CLOCK_MONOTONIC);
        CHECK(pthread_clockjoin_np(id, &result, CLOCK_MONOTONIC, &time) == 0);
        break;
    default:
        CHECK(pthread_join(id, &result) == 0);
    }
    CHECK(result == expected);
}

static void create(thread_t *thread)
{
    thread_t child = {.random = {next(&thread->random)}, .depth = thread->depth + 1};
    pthread_attr_t attributes;
    pthread_t id;
    if (thread->depth > 1) {
        return;
    }
    child.ct_steps = below(&thread->random, MOST_STEPS / 4);
    CHECK(pthread_attr_init(&attributes) == 0);
    if (below(&thread->random, 2) == 0) {
        size_t sz = (size_t)(64 + below(&thread->random, 1000)) << 10;
        CHECK(pthread_attr_setstacksize(&attributes, sz) == 0);
    }
    CHECK(pthread_create(&id, &attributes, run, &child) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    nap(&thread->random);
    join(id, &child, &thread->random);
    thread->sum += child.sum;
}

static void *is_detached(void *arg)
{
    CHECK(own == 17);
    CHECK(sem_post((sem_t *)arg) == 0);
    return arg;
}

static void detach(thread_t *thread)
{
    sem_t ended;
    CHECK(sem_init(&ended, 0, 0) == 0);
    CHECK(pthread_detach(start(is_detached, &ended)) == 0);
    nap(&thread->random);
    CHECK(sem_wait(&ended) == 0 && sem_destroy(&ended) == 0);
}

/* ==== Cancelling ============================================================================= */

typedef struct {
    int wait;     /* which one */
    int disables; /* it can't be cancelled at first */
    int ct_cleaned;
    sem_t is_ready, may_go;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
} victim_t;

static void clean(void *arg)
{
    ((victim_t *)arg)->ct_cleaned++;
}

static void clean_mutex(void *arg)
{
    victim_t *victim = (victim_t *)arg;
    victim->ct_cleaned++;
    CHECK(pthread_mutex_unlock(&victim->mutex) == 0); /* a wait that is cancelled has it again */
}

static void wait_in(victim_t *victim)
{
    switch (victim->wait) {
    case 0:
        sleep(LONG);
        break;
    case 1:
        pause();
        break;
    case 2:
        sem_wait(&victim->may_go);
        break;
    case 3:
        poll(NULL, 0, -1);
        break;
    case 4:
        CHECK(pthread_mutex_lock(&victim->mutex) == 0);
        pthread_cleanup_push(clean_mutex, victim);
        for (;;) {
            pthread_cond_wait(&victim->cond, &victim->mutex);
        }
        pthread_cleanup_pop(0);
        break;
    case 5:
        for (;;) {
            pthread_testcancel();
            sched_yield();
        }
    default:
        pthread_join(pthread_self(), NULL);
        usleep(LONG * 1000);
        sleep(LONG);
    }
}

static void *is_cancelled(void *arg)
{
    victim_t *victim = (victim_t *)arg;
    pthread_cleanup_push(clean, victim);
    if (victim->disables) {
        int before;
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
        CHECK(before == PTHREAD_CANCEL_ENABLE);
        CHECK(sem_post(&victim->is_ready) == 0);
        CHECK(sem_wait(&victim->may_go) == 0); /* it has been cancelled meanwhile */
        pthread_testcancel();
        CHECK(victim->ct_cleaned == 0);
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    } else {
        CHECK(sem_post(&victim->is_ready) == 0);
    }
    wait_in(victim);
    pthread_cleanup_pop(0);
    CHECK(0);
    return arg;
}

static void cancel(thread_t *thread)
{
    victim_t victim = {.wait = (int)below(&thread->random, 7)};
    victim.disables = below(&thread->random, 2) == 0;
    CHECK(sem_init(&victim.is_ready, 0, 0) == 0 && sem_init(&victim.may_go, 0, 0) == 0);
    CHECK(pthread_mutex_init(&victim.mutex, NULL) == 0);
    CHECK(pthread_cond_init(&victim.cond, NULL) == 0);
    pthread_t id = start(is_cancelled, &victim);
    CHECK(sem_wait(&victim.is_ready) == 0);
    nap(&thread->random);
    CHECK(pthread_cancel(id) == 0);
    if (victim.disables) {
        CHECK(sem_post(&victim.may_go) == 0);
    }
    join(id, PTHREAD_CANCELED, &thread->random);
    CHECK(victim.ct_cleaned >= 1 && victim.ct_cleaned <= 2);
    CHECK(victim.wait == 4 || victim.ct_cleaned == 1);
    CHECK(pthread_mutex_destroy(&victim.mutex) == 0);
    CHECK(pthread_cond_destroy(&victim.cond) == 0);
    thread->sum++;
}

/* ==== Signals ================================================================================ */

static void handle(int number)
{
    int error = errno;
    CHECK(number == SIGUSR1);
    ct_handled++;
    CHECK(sem_post(handled) == 0);
    errno = error;
}

typedef struct {
    int wait, ct_signals;
    sem_t is_ready, was_handled;
    int pipes[2];
} target_t;

static void *gets_signals(void *arg)
{
    target_t *target = (target_t *)arg;
    struct pollfd polled = {target->pipes[0], POLLIN, 0};
    sigset_t set;
    char byte;
    handled = &target->was_handled;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(sem_post(&target->is_ready) == 0);
    while (ct_handled < target->ct_signals) {
        CHECK(target->wait != 0 || usleep(1000) == 0 || errno == EINTR);
        CHECK(target->wait != 1 || poll(&polled, 1, 1) >= 0 || errno == EINTR);
        CHECK(target->wait != 2 || sched_yield() == 0);
    }
    CHECK(read(target->pipes[0], &byte, 1) == 1); /* SA_RESTART */
    CHECK(ct_handled == target->ct_signals);
    return arg;
}

static void send_signals(thread_t *thread)
{
    target_t target = {.wait = (int)below(&thread->random, 3)};
    target.ct_signals = (int)below(&thread->random, 4);
    CHECK(sem_init(&target.is_ready, 0, 0) == 0 && sem_init(&target.was_handled, 0, 0) == 0);
    CHECK(pipe(target.pipes) == 0);
    pthread_t id = start(gets_signals, &target);
    CHECK(sem_wait(&target.is_ready) == 0);
    for (int i = 0; i < target.ct_signals; i++) {
        CHECK(pthread_kill(id, SIGUSR1) == 0);
        CHECK(sem_wait(&target.was_handled) == 0);
    }
    nap(&thread->random);
    CHECK(write(target.pipes[1], "", 1) == 1);
    join(id, &target, &thread->random);
    CHECK(close(target.pipes[0]) == 0 && close(target.pipes[1]) == 0);
    thread->sum += target.ct_signals;
}

static void block_signals(thread_t *thread)
{
    sem_t posted, *before = handled;
    sigset_t set, old, pending;
    int ct = ct_handled;
    CHECK(sem_init(&posted, 0, 0) == 0);
    handled = &posted;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &old) == 0 && sigismember(&old, SIGUSR1));
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    nap(&thread->random);
    CHECK(ct_handled == ct && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    if (below(&thread->random, 2) == 0) {
        int number;
        CHECK(sigwait(&set, &number) == 0 && number == SIGUSR1 && ct_handled == ct);
    } else {
        CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0 && ct_handled == ct + 1);
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    }
    handled = before;
    thread->sum++;
}

/* ==== Steps ================================================================================== */

static const struct {
    const char *name;
    void (*fn)(thread_t *thread);
} kinds[] = {
    {"mutexes", lock_mutexes},
    {"rwlocks", lock_rwlocks},
    {"spin locks", lock_spinning},
    {"queue", pass_by_queue},
    {"semaphore", pass_by_semaphore},
    {"pipe", pass_by_pipe},
    {"values", keep_values},
    {"once", begin_once},
    {"threads", create},
    {"detached", detach},
    {"cancelled", cancel},
    {"signals", send_signals},
    {"blocked signals", block_signals},
};
#define CT_KINDS (sizeof(kinds) / sizeof(kinds[0]))
static long cts[CT_KINDS]; /* of steps; atomic */

/* Steps with threads of their own are rarer. */
static uint32_t kind_of_step(random_t *random)
{
    uint32_t kind = below(random, CT_KINDS);
    return kind >= 8 && kind <= 11 && below(random, 4) != 0 ? kind - 8 : kind;
}

static void *run(void *arg)
{
    thread_t *thread = (thread_t *)arg;
    CHECK(own == 17 && ct_handled == 0 && pthread_getspecific(key) == NULL);
    for (long i = 0; i < thread->ct_steps; i++) {
        uint32_t kind = kind_of_step(&thread->random);
        kinds[kind].fn(thread);
        __atomic_add_fetch(&cts[kind], 1, __ATOMIC_RELAXED);
        CHECK(own == 17);
    }
    CHECK(pthread_setspecific(key, thread) == 0);
    if (thread->meets) {
        pthread_barrier_wait(&barrier);
    }
    if (below(&thread->random, 2) == 0) {
        pthread_exit(thread);
    }
    return thread;
}

/* ==== Rounds ================================================================================= */

static void begin(void)
{
    static const int types[CT_LOCKS + 1] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
                                            PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigset_t set;
    for (int i = 0; i <= CT_LOCKS; i++) {
        pthread_mutexattr_t attributes;
        CHECK(pthread_mutexattr_init(&attributes) == 0);
        CHECK(pthread_mutexattr_settype(&attributes, types[i]) == 0);
        CHECK(pthread_mutex_init(&counters[i].mutex, &attributes) == 0);
        counters[i].type = types[i];
    }
    for (int i = 0; i < CT_LOCKS; i++) {
        CHECK(pthread_rwlock_init(&pairs[i].lock, NULL) == 0);
    }
    CHECK(pthread_mutex_init(&queue.mutex, NULL) == 0 && pthread_cond_init(&queue.cond, NULL) == 0);
    CHECK(sem_init(&tokens, 0, 0) == 0 && pipe(pipes) == 0);
    CHECK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE) == 0);
    CHECK(pthread_key_create(&key, destroy) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* which threads inherit */
}

/* Runs some threads, and returns what they have done. */
static long run_round(random_t *random, long most_steps)
{
    static const pthread_once_t new_once = PTHREAD_ONCE_INIT;
    thread_t threads[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    uint32_t ct = 1 + below(random, MOST_THREADS);
    int meets = below(random, 2) == 0;
    long sum = 0;
    once = new_once;
    ct_once = 0;
    CHECK(pthread_barrier_init(&barrier, NULL, ct) == 0);
    for (uint32_t i = 0; i < ct; i++) {
        threads[i] = (thread_t){.random = {((uint64_t)next(random) << 32) | i}, .meets = meets};
        long steps = (long)below(random, MOST_STEPS);
        threads[i].ct_steps = steps < most_steps ? steps : most_steps;
        CHECK(pthread_create(&ids[i], NULL, run, &threads[i]) == 0);
    }
    for (uint32_t i = 0; i < ct; i++) {
        join(ids[i], &threads[i], random);
        sum += threads[i].sum;
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    return sum;
}

static long ct_steps(void)
{
    long ct = 0;
    for (size_t i = 0; i < CT_KINDS; i++) {
        ct += cts[i];
    }
    return ct;
}

int main(int argc, char **argv)
{
    random_t random = {argc > 1 ? strtoull(argv[1], NULL, 10) : 1};
    long steps = argc > 2 ? strtol(argv[2], NULL, 10) : 1000, sum = 0, locked = 0;
    begin();
    while (ct_steps() < steps) {
        sum += run_round(&random, steps);
    }
    for (size_t i = 0; i < CT_KINDS; i++) {
        printf("%s: %ld\n", kinds[i].name, cts[i]);
    }
    for (int i = 0; i <= CT_LOCKS; i++) {
        locked += counters[i].value;
    }
    for (int i = 0; i < CT_LOCKS; i++) {
        CHECK(pairs[i].first == pairs[i].second);
        locked += pairs[i].first;
    }
    CHECK(queue.ct == 0);
    printf("sum %ld, locked %ld, spun %ld, passed %ld, destroyed %ld\n", sum, locked, spun,
           queue.sum, ct_destroyed);
    return 0;
}
