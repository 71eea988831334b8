// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the programs that test_real.sh builds, one for each library, which gives the functions
 * of library_t. real.c runs them in threads or in tasks, as its arguments say.
 */
#ifndef REAL_H
#define REAL_H

#include "aco_runtime.h"

#include <stddef.h>
#include <stdint.h>

/* A job, which runs in a thread or a task of its own, and its report. */
typedef struct {
    int number;
    char text[2000];
} job_t;

typedef struct {
    /* Calls the library for results, errors and timeouts, and reports them all. */
    void (*talk)(job_t *job);

    /* Waits for the server, as the function below says, and reports how that ended. */
    void (*wait)(job_t *job);

    /* Called before the waits start. NULL: the server is stopped instead, and release() continues
     * it. */
    void (*prepare)(void);

    /* The number of jobs that wait, as the server counts them. NULL: as many as have called
     * about_to_wait(). */
    int (*ct_waiting)(void);
    void (*release)(int ct);

    /* Some calls at random, from connecting to closing, with results that it checks. */
    void (*session)(job_t *job, unsigned *seed);

    /* Called once, at the start. May be NULL. */
    void (*init)(void);
} library_t;

extern const library_t library;

/* The port of the server, and that of one that takes connections and never answers. */
extern int port, silent_port;
#define HOST "127.0.0.1"
enum { REFUSED_PORT = 1, TEXT_SZ = 200 };

void tell(job_t *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void about_to_wait(void);

/* Ends the program with a line, unless it `holds`. */
#define CHECK(holds) ((holds) ? (void)0 : failed(#holds, __FILE__, __LINE__))
void failed(const char *what, const char *file, int line) __attribute__((noreturn));

/* The time for which library.wait() may wait, in a block of aco_within(). */
extern int64_t patience;

/* Fills a buffer with bytes that look random; and a checksum of bytes. */
void fill(char *buffer, size_t sz, unsigned seed);
uint32_t sum_of(uint32_t sum, const void *bytes, size_t sz);

#endif
