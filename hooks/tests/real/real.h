// SPDX-License-Identifier: Apache-2.0
/*
 * What the programs that test_real.sh builds have in common: one for each library, which gives the
 * functions of library_t. real.c runs them in threads or in tasks, as its arguments say.
 */
#ifndef REAL_H
#define REAL_H

#include "aco_runtime.h"

#include <stddef.h>
#include <stdint.h>

/* Something that runs in a thread or a task of its own, and what it tells. */
typedef struct {
    int number;
    char text[2000];
} job_t;

typedef struct {
    /* Calls the library for results, errors and timeouts, and tells them all. */
    void (*talk)(job_t *job);

    /* Waits for the server, as the function below says; tells how that ended. */
    void (*wait)(job_t *job);

    /* Called before the waits start. NULL: the server is stopped then, release() lets it go on. */
    void (*prepare)(void);

    /* How many wait, by the server. NULL: as many as have called about_to_wait(). */
    int (*ct_waiting)(void);
    void (*release)(int ct);

    /* Some calls at random, from connecting to closing, with results that it checks. */
    void (*session)(job_t *job, unsigned *seed);

    /* Called once, at the start. May be NULL. */
    void (*init)(void);
} library_t;

extern const library_t library;

/* Where the server is, and where one is that takes connections and never answers. */
extern int port, silent_port;
#define HOST "127.0.0.1"
enum { REFUSED_PORT = 1, TEXT_SZ = 200 };

void tell(job_t *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void about_to_wait(void);

/* Ends the program with a line, unless it `holds`. */
#define CHECK(holds) ((holds) ? (void)0 : failed(#holds, __FILE__, __LINE__))
void failed(const char *what, const char *file, int line) __attribute__((noreturn));

/* How long library.wait() may wait for, in a block of aco_within(). */
extern int64_t patience;

/* Bytes that look random, and a sum of bytes that tells whether they are the same. */
void fill(char *buffer, size_t sz, unsigned seed);
uint32_t sum_of(uint32_t sum, const void *bytes, size_t sz);

#endif
