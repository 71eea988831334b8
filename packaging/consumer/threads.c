// SPDX-License-Identifier: Apache-2.0
/*
 * A program with threads that knows nothing of aco: exits with 0 if they are tasks, so that the
 * kernel has few threads for them. Is C as well as C++.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 1000
#define MOST_OF_KERNEL 500 /* loops of all processors, and a few */

static pthread_barrier_t barrier;

static int count_of_kernel(void)
{
    int ct = -2; /* `.` and `..` */
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL) {
        ct++;
    }
    closedir(tasks);
    return ct;
}

static void *meet(void *arg)
{
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, meet, NULL) != 0) {
            return 1;
        }
    }
    pthread_barrier_wait(&barrier);
    int ct = count_of_kernel();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    if (ct > MOST_OF_KERNEL) {
        printf("%d threads of the kernel run %d threads\n", ct, THREADS);
        return 1;
    }
    puts("threads are tasks");
    return 0;
}
