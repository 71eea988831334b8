// SPDX-License-Identifier: Apache-2.0
/* libuv: a loop that waits for another task, and locks. */
#include "late.h"

#include <uv.h>

static uv_async_t async;
static uv_sem_t semaphore;
static uv_mutex_t mutex;
static uv_cond_t cond;
static int is_released;

static void close_it(uv_async_t *handle)
{
    uv_close((uv_handle_t *)handle, NULL);
}

static void begin(void)
{
    uv_sem_init(&semaphore, 0);
    uv_mutex_init(&mutex);
    uv_cond_init(&cond);
}

static void wait(char *text, size_t sz)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    uv_async_init(&loop, &async, close_it);
    int result = uv_run(&loop, UV_RUN_DEFAULT);
    uv_sem_wait(&semaphore);
    uv_mutex_lock(&mutex);
    while (!is_released) {
        uv_cond_wait(&cond, &mutex);
    }
    is_released = 0;
    uv_mutex_unlock(&mutex);
    snprintf(text, sz, "run %d, close %d", result, uv_loop_close(&loop));
}

static void release(void)
{
    uv_async_send(&async);
    uv_sem_post(&semaphore);
    uv_mutex_lock(&mutex);
    is_released = 1;
    uv_cond_signal(&cond);
    uv_mutex_unlock(&mutex);
}

static void count(uv_timer_t *timer)
{
    ++*(int *)timer->data;
}

static int works(void)
{
    uv_loop_t loop;
    uv_timer_t timer;
    int ct = 0;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    timer.data = &ct;
    uv_timer_start(&timer, count, 5, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    return ct == 1 && uv_loop_close(&loop) == 0;
}

const late_t late = {begin, wait, release, works};
