// SPDX-License-Identifier: Apache-2.0
/*
 * Buffered readers. Bytes `begin` to `end` of the buffer were read, but not taken yet; every call
 * takes them first. Only aco_read() waits, and nothing else is half done then, so a call that fails
 * leaves the reader as a call that reads less would.
 */
#include "io/io.h"

#include <errno.h>
#include <string.h>

#define FIRST_SZ 4096u /* bytes of a buffer of the reader's own, unless more must be held */
#define DEFAULT_SZ (64u << 10)

static void check(const aco_reader_t *reader, const char *call)
{
    need(reader, call, "the reader is NULL: pass the address of an aco_reader_t");
    if (reader->most == 0) {
        aco_i_misuse_of(call, "the reader was not prepared: call aco_reader_init() before");
    }
    if (reader->is_busy) {
        aco_i_misuse_of(call, "another task reads by it: let one task at a time use a reader");
    }
}

void aco_reader_init(aco_reader_t *reader, int fd, void *buffer, size_t sz)
{
    need(reader, "aco_reader_init", "the reader is NULL: pass the address of an aco_reader_t");
    if (buffer != NULL && sz == 0) {
        aco_i_misuse_of("aco_reader_init", "the buffer has no bytes: pass its size");
    }
    *reader = (aco_reader_t){.fd = fd, .buffer = (char *)buffer, .is_own = buffer == NULL};
    reader->sz = buffer == NULL ? 0 : sz;
    reader->most = sz == 0 ? DEFAULT_SZ : sz;
}

void aco_reader_free(aco_reader_t *reader)
{
    check(reader, "aco_reader_free");
    if (reader->is_own) {
        aco_i_release(reader->buffer);
        reader->buffer = NULL;
        reader->sz = 0;
    }
    reader->begin = reader->end = 0;
}

/* ==== The buffer ============================================================================= */

static size_t held(const aco_reader_t *reader)
{
    return reader->end - reader->begin;
}

/* The first byte that is held. */
static char *start_of(const aco_reader_t *reader)
{
    static char none[1];
    return reader->buffer == NULL ? none : reader->buffer + reader->begin;
}

/* The size of a buffer that holds nothing. */
static size_t idle_sz(const aco_reader_t *reader)
{
    return !reader->is_own ? reader->sz : reader->most < FIRST_SZ ? reader->most : FIRST_SZ;
}

/* The buffer's size for the next read: a buffer of the reader's own doubles when it is full. */
static size_t next_sz(const aco_reader_t *reader)
{
    size_t sz = held(reader);
    if (sz == 0) {
        return idle_sz(reader);
    }
    return !reader->is_own || sz < reader->sz ? reader->sz
           : sz > reader->most / 2            ? reader->most
                                              : sz * 2;
}

static int resize(aco_reader_t *reader, size_t sz)
{
    char *buffer = (char *)aco_i_allocate(sz);
    if (buffer == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(buffer, start_of(reader), held(reader));
    aco_i_release(reader->buffer);
    reader->buffer = buffer;
    reader->sz = sz;
    reader->end = held(reader);
    reader->begin = 0;
    return 0;
}

/* Makes room behind what is held. Fails with ENOMEM, and with EMSGSIZE in a full buffer. */
static int make_room(aco_reader_t *reader)
{
    size_t sz = next_sz(reader), ct = held(reader);
    if (sz != reader->sz && resize(reader, sz) != 0 && sz > reader->sz) {
        return -1;
    }
    if (ct == reader->sz) {
        errno = EMSGSIZE;
        return -1;
    }
    if (ct == 0 || reader->end == reader->sz) {
        memmove(reader->buffer, start_of(reader), ct);
        reader->begin = 0;
        reader->end = ct;
    }
    return 0;
}

static ssize_t read_into(aco_reader_t *reader, void *buf, size_t sz)
{
    reader->is_busy = 1;
    ssize_t result = aco_read(reader->fd, buf, sz);
    reader->is_busy = 0;
    return result;
}

/* Reads more into the buffer; returns what aco_read() does. */
static ssize_t fill(aco_reader_t *reader)
{
    if (make_room(reader) != 0) {
        return -1;
    }
    ssize_t result = read_into(reader, reader->buffer + reader->end, reader->sz - reader->end);
    reader->end += result > 0 ? (size_t)result : 0;
    return result;
}

/* Reads until `sz` bytes are held, and returns 1; or else what aco_read() does. */
static ssize_t fill_up_to(aco_reader_t *reader, size_t sz)
{
    if (sz > reader->most) {
        errno = EMSGSIZE;
        return -1;
    }
    while (held(reader) < sz) {
        ssize_t result = fill(reader);
        if (result <= 0) {
            return result;
        }
    }
    return 1;
}

/* The result of a call whose last read returned `result`, before it had all that it needs. */
static int fail(const aco_reader_t *reader, ssize_t result)
{
    if (result == 0 && held(reader) != 0) {
        errno = ENODATA;
        return -1;
    }
    return (int)result;
}

/* ==== Calls ================================================================================== */

ssize_t aco_reader_until(aco_reader_t *reader, const char *delimiter, size_t limit, char **text)
{
    check(reader, "aco_reader_until");
    need(delimiter, "aco_reader_until", "the delimiter is NULL: pass a string");
    need(text, "aco_reader_until", "there is no place for the text: pass the address of a pointer");
    size_t delimiter_sz = *delimiter == '\0' ? 1 : strlen(delimiter), ct_searched = 0;
    for (;;) {
        char *start = start_of(reader);
        size_t sz = held(reader) < limit ? held(reader) : limit;
        char *found = (char *)memmem(start + ct_searched, sz - ct_searched, delimiter,
                                     delimiter_sz);
        if (found != NULL) {
            sz = (size_t)(found - start) + delimiter_sz;
            reader->begin += sz;
            *text = start;
            return (ssize_t)sz;
        }
        if (sz == limit) {
            errno = EMSGSIZE;
            return -1;
        }
        ct_searched = sz < delimiter_sz ? 0 : sz - delimiter_sz + 1;
        ssize_t result = fill(reader);
        if (result <= 0) {
            return fail(reader, result);
        }
    }
}

int aco_reader_exactly(aco_reader_t *reader, size_t sz, char **bytes)
{
    check(reader, "aco_reader_exactly");
    need(bytes, "aco_reader_exactly",
         "there is no place for the bytes: pass the address of a pointer");
    ssize_t result = fill_up_to(reader, sz);
    if (result <= 0) {
        return fail(reader, result);
    }
    *bytes = start_of(reader);
    reader->begin += sz;
    return 1;
}

ssize_t aco_reader_peek(aco_reader_t *reader, size_t sz, char **bytes)
{
    check(reader, "aco_reader_peek");
    need(bytes, "aco_reader_peek",
         "there is no place for the bytes: pass the address of a pointer");
    if (fill_up_to(reader, sz) < 0) {
        return -1;
    }
    *bytes = start_of(reader);
    return (ssize_t)held(reader);
}

ssize_t aco_reader_read(aco_reader_t *reader, void *buf, size_t sz)
{
    check(reader, "aco_reader_read");
    if (held(reader) == 0 && sz != 0) {
        if (sz >= idle_sz(reader)) {
            return read_into(reader, buf, sz);
        }
        ssize_t result = fill(reader);
        if (result <= 0) {
            return result;
        }
    }
    sz = sz < held(reader) ? sz : held(reader);
    if (sz != 0) {
        memcpy(buf, start_of(reader), sz);
    }
    reader->begin += sz;
    return (ssize_t)sz;
}
