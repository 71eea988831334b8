// SPDX-License-Identifier: Apache-2.0
/* Buffered readers: the bytes that they take and leave, and their buffers. */
#define _GNU_SOURCE
#include "tasks.h"

#include <fcntl.h>
#include <unistd.h>

#define CT_RANDOM_BYTES 200000
#define CT_ROUNDS 20

static int ends[2]; /* of a pipe; other tasks use it, so it is on no stack */
static aco_reader_t reader;
static char *text;

static void say(const char *string)
{
    CHECK(write(ends[1], string, strlen(string)) == (ssize_t)strlen(string));
}

static void begin(void *buffer, size_t sz)
{
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    aco_reader_init(&reader, ends[0], buffer, sz);
}

static void finish(void)
{
    aco_reader_free(&reader);
    CHECK(aco_close(ends[0]) == 0);
    if (ends[1] >= 0) {
        CHECK(aco_close(ends[1]) == 0);
    }
}

static void end_stream(void)
{
    CHECK(aco_close(ends[1]) == 0);
    ends[1] = -1;
}

static int is_text(ssize_t sz, const char *expected)
{
    return sz == (ssize_t)strlen(expected) && memcmp(text, expected, (size_t)sz) == 0;
}

#define UNTIL(delimiter, limit) aco_reader_until(&reader, delimiter, limit, &text)
#define CHECK_SHOWS(sz, expected) CHECK(is_text(aco_reader_peek(&reader, sz, &text), expected))

/* ==== Taking text ============================================================================ */

static void *takes_requests(void *arg)
{
    begin(arg, arg == NULL ? 0 : 64);
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET");
    CHECK(is_text(UNTIL("\r\n\r\n", SIZE_MAX), "GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    CHECK(is_text(UNTIL("\r\n", SIZE_MAX), "POST / HTTP/1.1\r\n"));
    text[0] = 'p'; /* the text is the caller's */
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "Content-Length: 3\r\n"));
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "\r\n"));
    CHECK(aco_reader_exactly(&reader, 3, &text) == 1 && is_text(3, "abc"));
    CHECK_SHOWS(0, "GET");
    CHECK_SHOWS(3, "GET");
    CHECK(is_text(UNTIL("E", SIZE_MAX), "GE"));
    CHECK(is_text(UNTIL("T", SIZE_MAX), "T"));
    end_stream();
    CHECK(UNTIL("T", SIZE_MAX) == 0);
    CHECK(aco_reader_exactly(&reader, 1, &text) == 0);
    CHECK_SHOWS(1, "");
    finish();
    return NULL;
}

static void *takes_messages(void *arg)
{
    begin(NULL, 100);
    CHECK(write(ends[1], "\0\3abc\0\0one\0two\0", 15) == 15);
    CHECK(aco_reader_exactly(&reader, 2, &text) == 1 && text[1] == 3);
    CHECK(aco_reader_exactly(&reader, 3, &text) == 1 && is_text(3, "abc"));
    CHECK(aco_reader_exactly(&reader, 2, &text) == 1 && text[1] == 0);
    CHECK(aco_reader_exactly(&reader, 0, &text) == 1 && text != NULL); /* an empty message */
    CHECK(UNTIL("", SIZE_MAX) == 4 && strcmp(text, "one") == 0);
    CHECK(UNTIL("", SIZE_MAX) == 4 && strcmp(text, "two") == 0);
    CHECK_FAILS(aco_reader_exactly(&reader, 101, &text), EMSGSIZE);
    end_stream();
    CHECK(aco_reader_exactly(&reader, 0, &text) == 1);
    finish();
    return arg;
}

static char small[64];

static void lines_and_messages_are_taken(void **state)
{
    (void)state;
    run_tasks(takes_requests, NULL);
    run_tasks(takes_requests, small);
    run_tasks(takes_messages, NULL);
}

static void *meets_limits(void *arg)
{
    begin(arg, 8);
    say("abcd\nefgh\n");
    CHECK_FAILS(UNTIL("\n", 0), EMSGSIZE);
    CHECK_FAILS(UNTIL("\n", 4), EMSGSIZE);
    CHECK(is_text(UNTIL("\n", 5), "abcd\n"));
    CHECK_FAILS(UNTIL("gh\n", 4), EMSGSIZE);
    CHECK(is_text(UNTIL("gh\n", 5), "efgh\n"));
    say("12345678");
    CHECK_FAILS(UNTIL("\n", SIZE_MAX), EMSGSIZE);
    CHECK_FAILS(UNTIL("\n", 100), EMSGSIZE);
    CHECK_FAILS(aco_reader_peek(&reader, 9, &text), EMSGSIZE);
    CHECK_SHOWS(8, "12345678");
    CHECK(is_text(UNTIL("8", SIZE_MAX), "12345678"));
    finish();
    return NULL;
}

static void a_limit_is_an_error_and_takes_nothing(void **state)
{
    (void)state;
    run_tasks(meets_limits, NULL);
    run_tasks(meets_limits, small);
}

/* ==== Waits that fail ======================================================================== */

static void *resumes_after_deadlines(void *arg)
{
    begin(arg, 64);
    const char *parts[] = {"first", " li", "ne\r", "\nsec"};
    for (size_t i = 0; i < ARRAY_SZ(parts); i++) {
        aco_within(MS)
        {
            CHECK_FAILS(UNTIL("\r\n", SIZE_MAX), ETIMEDOUT);
        }
        say(parts[i]);
    }
    CHECK(is_text(UNTIL("\r\n", SIZE_MAX), "first line\r\n"));
    aco_within(MS)
    {
        CHECK_FAILS(aco_reader_exactly(&reader, 6, &text), ETIMEDOUT);
        CHECK_FAILS(aco_reader_peek(&reader, 6, &text), ETIMEDOUT);
        CHECK_SHOWS(3, "sec"); /* does not wait */
    }
    say("ond");
    CHECK(aco_reader_exactly(&reader, 6, &text) == 1 && is_text(6, "second"));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    CHECK_FAILS(UNTIL("\n", SIZE_MAX), EAGAIN);
    finish();
    return NULL;
}

static void *is_cancelled(void *arg)
{
    CHECK_FAILS(UNTIL("\n", SIZE_MAX), ECANCELED);
    CHECK_SHOWS(0, "half");
    return arg;
}

static void *cancels(void *arg)
{
    begin(arg, 64);
    say("half");
    aco_task_t *task = aco_spawn(is_cancelled, NULL);
    aco_sleep(MS);
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0);
    say(" a line\n");
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "half a line\n"));
    finish();
    return NULL;
}

static void *meets_the_end(void *arg)
{
    begin(arg, 64);
    say("a line\nthe rest");
    end_stream();
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "a line\n"));
    CHECK_FAILS(UNTIL("\n", SIZE_MAX), ENODATA);
    CHECK_FAILS(aco_reader_exactly(&reader, 9, &text), ENODATA);
    CHECK_SHOWS(9, "the rest");
    CHECK(aco_reader_exactly(&reader, 8, &text) == 1 && is_text(8, "the rest"));
    CHECK(UNTIL("\n", SIZE_MAX) == 0);
    finish();
    aco_reader_init(&reader, -1, arg, 64);
    CHECK_FAILS(UNTIL("\n", SIZE_MAX), EBADF);
    aco_reader_free(&reader);
    return NULL;
}

static void a_failed_wait_loses_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        void *buffer = i == 0 ? NULL : small;
        run_tasks(resumes_after_deadlines, buffer);
        run_tasks(cancels, buffer);
        run_tasks(meets_the_end, buffer);
    }
}

/* ==== Buffers ================================================================================ */

static char big[50000];

/* Memory is taken as bytes come, not as they are announced, and given back. */
static void *grows(void *arg)
{
    begin(NULL, 1 << 20);
    CHECK(reader.buffer == NULL);
    say("x");
    aco_within(MS)
    {
        CHECK_FAILS(aco_reader_exactly(&reader, 1 << 20, &text), ETIMEDOUT);
    }
    CHECK(reader.sz == 4096);
    CHECK(write(ends[1], big, sizeof(big)) == (ssize_t)sizeof(big));
    CHECK(aco_reader_exactly(&reader, sizeof(big) + 1, &text) == 1);
    CHECK(text[0] == 'x' && memcmp(text + 1, big, sizeof(big)) == 0);
    CHECK(reader.sz == 65536);
    say("after\n");
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "after\n"));
    CHECK(reader.sz == 4096);
    aco_reader_free(&reader);
    CHECK(reader.buffer == NULL);
    say("again\n");
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "again\n"));
    finish();
    return arg;
}

static void *reads_past(void *arg)
{
    char bytes[8192];
    begin(arg, 64);
    say("line\nrest");
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "line\n"));
    CHECK(aco_reader_read(&reader, bytes, 0) == 0);
    CHECK(aco_reader_read(&reader, bytes, 3) == 3 && memcmp(bytes, "res", 3) == 0);
    CHECK(write(ends[1], big, 5000) == 5000);
    CHECK(aco_reader_read(&reader, bytes, sizeof(bytes)) == 1 && bytes[0] == 't');
    CHECK(aco_reader_read(&reader, bytes, sizeof(bytes)) == 5000);
    CHECK(memcmp(bytes, big, 5000) == 0);
    CHECK_SHOWS(0, "");
    say("abc");
    CHECK(aco_reader_read(&reader, bytes, 2) == 2 && memcmp(bytes, "ab", 2) == 0);
    CHECK_SHOWS(0, "c");
    end_stream();
    CHECK(aco_reader_read(&reader, bytes, 2) == 1);
    CHECK(aco_reader_read(&reader, bytes, 2) == 0);
    finish();
    return NULL;
}

static void buffers_grow_and_shrink(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (char)(i * 7 / 5);
    }
    run_tasks(grows, NULL);
    run_tasks(reads_past, NULL);
    run_tasks(reads_past, small);
}

static void *talks(void *arg)
{
    const char *letter = (const char *)arg;
    for (int i = 0; i < CT_ROUNDS; i++) {
        CHECK(aco_write(ends[1], letter++, 1) == 1);
        aco_sleep(MS / 10);
    }
    return NULL;
}

/* The reader and its buffer lie where other tasks have their frames while it waits. */
static void *listens(void *arg)
{
    aco_reader_t mine;
    char buffer[32], *line;
    aco_reader_init(&mine, ends[0], buffer, sizeof(buffer));
    CHECK(aco_reader_until(&mine, "\n", SIZE_MAX, &line) == CT_ROUNDS);
    CHECK(line == buffer && memcmp(line, arg, CT_ROUNDS) == 0);
    return NULL;
}

static void *shares_stacks(void *arg)
{
    static char letters[] = "nineteen characters\n";
    aco_task_options_t options = {.shares_stack = 1};
    aco_task_t *tasks[2];
    begin(NULL, 0);
    CHECK(aco_go_with(&options, listens, letters, &tasks[0]) == 0);
    CHECK(aco_go_with(&options, talks, letters, &tasks[1]) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    finish();
    return arg;
}

static void buffers_may_be_on_shared_stacks(void **state)
{
    (void)state;
    run_tasks(shares_stacks, NULL);
}

static void threads_read_files(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    fputs("one\ntwo\nthree", file);
    rewind(file);
    ct_failed = 0;
    aco_reader_init(&reader, fileno(file), NULL, 0);
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "one\n"));
    CHECK(is_text(UNTIL("\n", SIZE_MAX), "two\n"));
    CHECK_FAILS(UNTIL("\n", SIZE_MAX), ENODATA);
    CHECK_SHOWS(0, "three");
    aco_reader_free(&reader);
    fclose(file);
    assert_int_equal(ct_failed, 0);
}

/* ==== Random calls =========================================================================== */

static char stream[CT_RANDOM_BYTES];
static unsigned state_of_random;

static unsigned random_below(unsigned ct)
{
    state_of_random = state_of_random * 1103515245u + 12345u;
    return (state_of_random >> 8) % ct;
}

static void *writes_stream(void *arg)
{
    for (size_t done = 0; done < sizeof(stream);) {
        size_t sz = 1 + random_below(random_below(5) == 0 ? 10000 : 20);
        sz = sz < sizeof(stream) - done ? sz : sizeof(stream) - done;
        CHECK(aco_write_all(ends[1], stream + done, sz) == (ssize_t)sz);
        done += sz;
        if (random_below(4) == 0) {
            aco_yield();
        }
    }
    end_stream();
    return arg;
}

/* The result that aco_reader_until() should have at a place of the stream. */
static ssize_t expected_until(size_t done, const char *delimiter, size_t limit)
{
    size_t left = sizeof(stream) - done, sz = left < limit ? left : limit;
    char *found = (char *)memmem(stream + done, sz, delimiter, strlen(delimiter));
    if (found != NULL) {
        return found - (stream + done) + (ssize_t)strlen(delimiter);
    }
    return sz == limit ? -EMSGSIZE : left == 0 ? 0 : -ENODATA;
}

/* Makes a call, and returns how many bytes it took, or should have shown without taking them. */
static size_t call_once(size_t done, size_t most)
{
    static const char *const delimiters[] = {"a", "ab", "aab", "abab"};
    size_t left = sizeof(stream) - done, sz = random_below((unsigned)most + 1);
    char bytes[300];
    ssize_t got;
    switch (random_below(4)) {
    case 0: {
        const char *delimiter = delimiters[random_below(4)];
        ssize_t expected = expected_until(done, delimiter, sz + 1);
        errno = 0;
        got = UNTIL(delimiter, sz + 1);
        CHECK(got == (expected < 0 ? -1 : expected) && (expected >= 0 || errno == -expected));
        break;
    }
    case 1:
        got = aco_reader_exactly(&reader, sz, &text);
        CHECK(got == (sz <= left ? 1 : left == 0 ? 0 : -1));
        got = got == 1 ? (ssize_t)sz : 0;
        break;
    case 2:
        got = aco_reader_peek(&reader, sz, &text);
        CHECK(got >= (ssize_t)(sz < left ? sz : left));
        CHECK(memcmp(text, stream + done, (size_t)got) == 0);
        return 0;
    default:
        got = aco_reader_read(&reader, bytes, sz % sizeof(bytes));
        CHECK(got >= 0 && (size_t)got <= sz && (got > 0 || left == 0 || sz % sizeof(bytes) == 0));
        text = bytes;
    }
    CHECK(got <= 0 || memcmp(text, stream + done, (size_t)got) == 0);
    return got > 0 ? (size_t)got : 0;
}

static void *reads_at_random(void *arg)
{
    static char buffer[500];
    size_t done = 0, most = arg == NULL ? 9000 : sizeof(buffer) - 1;
    begin(arg == NULL ? NULL : buffer, arg == NULL ? 9001 : sizeof(buffer));
    aco_task_t *writer = aco_spawn(writes_stream, NULL);
    while (done < sizeof(stream) && ct_failed == 0) {
        done += call_once(done, random_below(3) == 0 ? most : 20);
    }
    CHECK(UNTIL("a", SIZE_MAX) == 0);
    aco_task_cancel(writer);
    CHECK(aco_join(writer, NULL) == 0);
    finish();
    return NULL;
}

static void random_calls_take_the_stream(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        state_of_random = seed;
        for (size_t i = 0; i < sizeof(stream); i++) {
            stream[i] = (char)('a' + random_below(3) % (i / 50000 + 2));
        }
        run_tasks(reads_at_random, seed % 2 ? NULL : "buffer");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_messages_are_taken),
        cmocka_unit_test(a_limit_is_an_error_and_takes_nothing),
        cmocka_unit_test(a_failed_wait_loses_nothing),
        cmocka_unit_test(buffers_grow_and_shrink),
        cmocka_unit_test(buffers_may_be_on_shared_stacks),
        cmocka_unit_test(threads_read_files),
        cmocka_unit_test(random_calls_take_the_stream),
    };
    return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
