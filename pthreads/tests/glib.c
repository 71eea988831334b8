// SPDX-License-Identifier: Apache-2.0
/* GLib: its own locks, which wait by futexes, pools, queues and main loops. */
#include "check.h"

#include <glib.h>
#include <string.h>
#include <unistd.h>

#define CT_THREADS 40

/* Runs a function in many threads, with their numbers, and joins them. */
static void run_many(GThreadFunc fn)
{
    GThread *threads[CT_THREADS];
    for (int i = 0; i < CT_THREADS; i++) {
        char *name = g_strdup_printf("thread %d", i);
        threads[i] = g_thread_try_new(name, fn, GINT_TO_POINTER(i), NULL);
        CHECK(threads[i] != NULL);
        g_free(name);
    }
    for (int i = 0; i < CT_THREADS; i++) {
        CHECK(GPOINTER_TO_INT(g_thread_join(threads[i])) == i);
    }
}

/* ==== Locks ================================================================================== */

static GMutex mutex;
static GCond cond;
static GRWLock lock;
static GRecMutex recursive;
static int turn, pair[2], ct_nested;

static void *take_turn(void *arg)
{
    g_mutex_lock(&mutex);
    while (turn != GPOINTER_TO_INT(arg)) {
        g_cond_wait(&cond, &mutex);
    }
    turn++;
    g_cond_broadcast(&cond);
    g_mutex_unlock(&mutex);
    return arg;
}

static void *read_or_write(void *arg)
{
    for (int i = 0; i < 20; i++) {
        if (GPOINTER_TO_INT(arg) % 4 == 0) {
            g_rw_lock_writer_lock(&lock);
            pair[0]++;
            g_usleep(10);
            pair[1]++;
            g_rw_lock_writer_unlock(&lock);
        } else {
            g_rw_lock_reader_lock(&lock);
            int first = pair[0];
            g_usleep(10);
            CHECK(first == pair[1]);
            g_rw_lock_reader_unlock(&lock);
        }
        g_rec_mutex_lock(&recursive);
        g_rec_mutex_lock(&recursive);
        int ct = ct_nested;
        g_thread_yield();
        ct_nested = ct + 1;
        g_rec_mutex_unlock(&recursive);
        g_rec_mutex_unlock(&recursive);
    }
    return arg;
}

static void *wait_in_vain(void *arg)
{
    gint64 end = g_get_monotonic_time() + 2 * G_TIME_SPAN_MILLISECOND;
    g_mutex_lock(&mutex);
    while (g_cond_wait_until(&cond, &mutex, end)) {
    }
    g_mutex_unlock(&mutex);
    CHECK(g_get_monotonic_time() >= end);
    return arg;
}

static void test_locks(void)
{
    run_many(take_turn);
    CHECK(turn == CT_THREADS);
    run_many(read_or_write);
    CHECK(pair[0] == CT_THREADS / 4 * 20 && pair[1] == pair[0]);
    CHECK(ct_nested == CT_THREADS * 20);
    run_many(wait_in_vain);
}

/* ==== Once, and values of threads ============================================================ */

static int ct_made, ct_destroyed;

static void destroy(void *value)
{
    g_atomic_int_inc(&ct_destroyed);
    g_free(value);
}

static GPrivate key = G_PRIVATE_INIT(destroy);

static void *make_once(void *arg)
{
    g_usleep(1000);
    g_atomic_int_inc(&ct_made);
    return arg;
}

static void *use_own(void *arg)
{
    static GOnce once = G_ONCE_INIT;
    static gsize is_made;
    CHECK(g_private_get(&key) == NULL);
    char *text = g_strdup_printf("thread %d", GPOINTER_TO_INT(arg));
    g_private_set(&key, text);
    CHECK(g_once(&once, make_once, &once) == &once && ct_made >= 1);
    if (g_once_init_enter(&is_made)) {
        g_usleep(1000);
        g_atomic_int_inc(&ct_made);
        g_once_init_leave(&is_made, 1);
    }
    CHECK(ct_made == 2);
    CHECK(g_private_get(&key) == text);
    g_private_replace(&key, g_strdup(text));
    return arg;
}

static void test_own_values(void)
{
    run_many(use_own);
    CHECK(ct_made == 2 && ct_destroyed == 2 * CT_THREADS);
}

/* ==== Pools and queues ======================================================================= */

static void add_double(void *number, void *queue)
{
    g_usleep(100);
    g_async_queue_push((GAsyncQueue *)queue, GINT_TO_POINTER(2 * GPOINTER_TO_INT(number)));
}

static long sum_of(GAsyncQueue *queue, int ct)
{
    long sum = 0;
    for (int i = 0; i < ct; i++) {
        sum += GPOINTER_TO_INT(g_async_queue_pop(queue));
    }
    return sum;
}

static void test_pools(void)
{
    const int ct_jobs = 1000;
    GAsyncQueue *queue = g_async_queue_new();
    for (int is_exclusive = 0; is_exclusive < 2; is_exclusive++) {
        GThreadPool *pool = g_thread_pool_new(add_double, queue, 8, is_exclusive, NULL);
        for (int i = 1; i <= ct_jobs; i++) {
            CHECK(g_thread_pool_push(pool, GINT_TO_POINTER(i), NULL));
        }
        CHECK(sum_of(queue, ct_jobs) == ct_jobs * (ct_jobs + 1));
        CHECK(g_async_queue_timeout_pop(queue, 1000) == NULL);
        CHECK(g_async_queue_try_pop(queue) == NULL);
        g_thread_pool_free(pool, FALSE, TRUE);
    }
    g_async_queue_unref(queue);
}

/* ==== Main loops ============================================================================= */

typedef struct {
    GMainContext *context;
    GMainLoop *loop;
    int ct_calls, ct_ticks;
    char text[8];
} service_t;

static void *serve(void *arg)
{
    service_t *service = (service_t *)arg;
    g_main_context_push_thread_default(service->context);
    g_main_loop_run(service->loop);
    g_main_context_pop_thread_default(service->context);
    return arg;
}

static gboolean count_call(void *arg)
{
    service_t *service = (service_t *)arg;
    CHECK(g_main_context_is_owner(service->context));
    service->ct_calls++;
    return G_SOURCE_REMOVE;
}

static void quit_if_done(service_t *service)
{
    if (service->ct_ticks == 3 && service->text[0] != '\0') {
        g_main_loop_quit(service->loop);
    }
}

static gboolean count_tick(void *arg)
{
    service_t *service = (service_t *)arg;
    service->ct_ticks++;
    quit_if_done(service);
    return service->ct_ticks < 3 ? G_SOURCE_CONTINUE : G_SOURCE_REMOVE;
}

static gboolean read_text(GIOChannel *channel, GIOCondition condition, void *arg)
{
    service_t *service = (service_t *)arg;
    gsize sz;
    CHECK((condition & G_IO_IN) != 0);
    CHECK(g_io_channel_read_chars(channel, service->text, sizeof(service->text), &sz, NULL) ==
          G_IO_STATUS_NORMAL);
    CHECK(sz == 5 && service->ct_calls == CT_THREADS);
    quit_if_done(service);
    return G_SOURCE_REMOVE;
}

static service_t service;

static void *call_service(void *arg)
{
    g_main_context_invoke(service.context, count_call, &service);
    return arg;
}

static void attach(GSource *source, GSourceFunc fn)
{
    g_source_set_callback(source, fn, &service, NULL);
    g_source_attach(source, service.context);
    g_source_unref(source);
}

static void test_main_loop(void)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    service.context = g_main_context_new();
    service.loop = g_main_loop_new(service.context, FALSE);
    GThread *thread = g_thread_new("service", serve, &service);
    run_many(call_service);
    GIOChannel *channel = g_io_channel_unix_new(fds[0]);
    g_io_channel_set_encoding(channel, NULL, NULL);
    g_io_channel_set_buffered(channel, FALSE);
    attach(g_timeout_source_new(1), count_tick);
    GSource *reading = g_io_create_watch(channel, G_IO_IN);
    attach(reading, (GSourceFunc)(void (*)(void))read_text);
    g_usleep(1000);
    CHECK(write(fds[1], "hello", 5) == 5);
    CHECK(g_thread_join(thread) == &service);
    CHECK(memcmp(service.text, "hello", 5) == 0);
    g_io_channel_unref(channel);
    g_main_loop_unref(service.loop);
    g_main_context_unref(service.context);
}

int main(void)
{
    test_locks();
    test_own_values();
    test_pools();
    test_main_loop();
    puts("all held");
    return 0;
}
