// SPDX-License-Identifier: Apache-2.0
/*
 * Implements harness.h. Linked to every test program.
 */
/* For dladdr(), also where the dialect is strict. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define CHILD_TIME_LIMIT 60 /* seconds */
#define CHILD_TEXT_SZ 16384 /* bytes of a child's stderr; more is a failure anyway */

/* ==== Instance ================================================================================ */

int make_instance(void **state)
{
    instance_t *in = (instance_t *)malloc(sizeof(*in));
    if (in == NULL) {
        return -1;
    }
    aco_thread_init(NULL);
    in->main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    in->stack = aco_share_stack_new(0);
    *state = in;
    return 0;
}

int delete_instance(void **state)
{
    instance_t *in = (instance_t *)*state;
    /* A failed test leaves coroutines behind, or one running; that must not end the program. */
    int is_clean = in->stack->ct_coroutines == 0;
    if (is_clean) {
        aco_share_stack_destroy(in->stack);
    } else {
        aco_gtls_co = in->main_co;
    }
    aco_destroy(in->main_co);
    free(in);
    assert_co_checks();
    return is_clean ? 0 : -1;
}

aco_t *make_co(const instance_t *in, aco_cofuncp_t fp, void *arg)
{
    return aco_create(in->main_co, in->stack, 0, fp, arg);
}

void yields_for_ever(void)
{
    for (;;) {
        aco_yield();
    }
}

void ends_at_once(void)
{
    aco_exit();
}

/* ==== Checks ================================================================================== */

/* The first note, and how many there are. Coroutines of several threads may take notes. */
static struct {
    pthread_mutex_t lock;
    unsigned ct;
    const char *text;
    const char *file;
    int line;
} notes = {PTHREAD_MUTEX_INITIALIZER, 0, NULL, NULL, 0};

void note_failure(const char *text, const char *file, int line)
{
    pthread_mutex_lock(&notes.lock);
    if (notes.ct == 0) {
        notes.text = text;
        notes.file = file;
        notes.line = line;
    }
    notes.ct++;
    pthread_mutex_unlock(&notes.lock);
}

void assert_co_checks(void)
{
    if (notes.ct != 0) {
        print_error("in a coroutine, %u failed, the first was: %s\n", notes.ct, notes.text);
        notes.ct = 0;
        _fail(notes.file, notes.line);
    }
}

void assert_invariants(const aco_t *co)
{
    const aco_share_stack_t *s = co->share_stack;
    const char *high = (const char *)s->align_retptr;
    const char *sp = (const char *)co->reg[ACO_REG_IDX_SP];
    assert_true(s->in_place == NULL || s->in_place->share_stack == s);
    assert_int_equal(co->is_owner, s->in_place == co);
    assert_true(sp <= high);
    assert_true((size_t)(high - sp) <= s->align_limit);
    assert_int_equal(co->save_stack.valid_sz, co->is_owner || co->is_end ? 0 : live_sz(co));
    assert_true(co->save_stack.valid_sz <= co->save_stack.sz);
    assert_ptr_equal(*(void **)s->align_retptr, (void *)(uintptr_t)aco_funcp_protector_asm);
}

int is_save_stack_embedded(const aco_t *co)
{
    size_t distance = (size_t)((const char *)co->save_stack.ptr - (const char *)co);
    return !(co->blocks & ACO_BLOCK_SAVE_STACK) && distance >= sizeof(*co) &&
           distance < sizeof(*co) + 16;
}

size_t live_sz(const aco_t *co)
{
    return (size_t)((char *)co->share_stack->align_retptr - (char *)co->reg[ACO_REG_IDX_SP]);
}

const char *live_frames(const aco_t *co)
{
    return (const char *)(co->is_owner ? co->reg[ACO_REG_IDX_SP] : co->save_stack.ptr);
}

uint32_t next_random(uint32_t *random)
{
    uint32_t x = *random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *random = x;
    return x;
}

void fill_from_seed(void *ptr, size_t sz, uint32_t seed)
{
    unsigned char *bytes = (unsigned char *)ptr;
    uint32_t random = seed | 1;
    for (size_t i = 0; i < sz; i++) {
        bytes[i] = (unsigned char)(next_random(&random) >> 24);
    }
}

int is_from_seed(const void *ptr, size_t sz, uint32_t seed)
{
    const unsigned char *bytes = (const unsigned char *)ptr;
    uint32_t random = seed | 1;
    for (size_t i = 0; i < sz; i++) {
        if (bytes[i] != (unsigned char)(next_random(&random) >> 24)) {
            return 0;
        }
    }
    return 1;
}

/* ==== Children ================================================================================ */

/* How the last child ended. */
static struct {
    int status;
    char text[CHILD_TEXT_SZ + 1];
} child;

/* The child's side: cmocka's handlers are not its own, a core is of no use, and a hang must end. */
static void be_child(act_t act, void *arg, int stderr_fd)
{
    static const int caught[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
    const struct rlimit no_core = {0, 0};
    for (size_t i = 0; i < ARRAY_SZ(caught); i++) {
        signal(caught[i], SIG_DFL);
    }
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(CHILD_TIME_LIMIT);
    dup2(stderr_fd, STDERR_FILENO);
    close(stderr_fd);
    act(arg);
    _exit(0);
}

/* Removes the line that an emulator adds about a death: the child did not write it. */
static void drop_emulators_word(void)
{
    char *word = strstr(child.text, "qemu: uncaught target signal");
    if (word != NULL) {
        *word = '\0';
    }
}

static void run_child(act_t act, void *arg)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        be_child(act, arg, fds[1]);
    }
    close(fds[1]);
    size_t sz = 0;
    for (;;) {
        char rest[256];
        size_t room = sizeof(child.text) - 1 - sz;
        char *to = room != 0 ? child.text + sz : rest;
        ssize_t got = read(fds[0], to, room != 0 ? room : sizeof(rest));
        if (got <= 0) {
            break;
        }
        sz += room != 0 ? (size_t)got : 0;
    }
    child.text[sz] = '\0';
    assert_null(memchr(child.text, '\0', sz));
    drop_emulators_word();
    close(fds[0]);
    assert_int_equal(waitpid(pid, &child.status, 0), pid);
}

/* Fails the test at the place that expected something else of the child. */
static void fail_on_child(const char *expected, const char *file, int line)
{
    print_error("expected %s; the child's status is %#x (signal %d) and its stderr:\n%s\n",
                expected, (unsigned)child.status,
                WIFSIGNALED(child.status) ? WTERMSIG(child.status) : 0, child.text);
    _fail(file, line);
}

/* Whether `text` is one line of the form that every failure has, and of the call. */
static int is_failure(const char *text, const char *call)
{
    const char *named = strstr(text, call), *co = strstr(text, " (coroutine 0x");
    if (strncmp(text, "aco: ", 5) != 0 || named == NULL || co == NULL ||
        strchr(text, '\n') == NULL || strchr(text, '\n')[1] != '\0') {
        return 0;
    }
    const char *rule = named + strlen(call) + 2, *remedy = strstr(rule, ": ");
    const char *rest = co + strlen(" (coroutine 0x");
    rest += strspn(rest, "0123456789abcdef");
    if (strncmp(rest, ", entry function ", 17) == 0) {
        rest = strstr(rest, "(+0x");
        rest = rest != NULL ? rest + 4 + strspn(rest + 4, "0123456789abcdef") : "";
        rest += *rest == ')';
    }
    return named[-1] == ' ' && memcmp(rule - 2, ": ", 2) == 0 && remedy != NULL && remedy < co &&
           strcmp(rest, ")\n") == 0;
}

const char *expect_abort_at(act_t act, void *arg, const char *call, const char *words,
                            const char *file, int line)
{
    run_child(act, arg);
    if (!WIFSIGNALED(child.status) || WTERMSIG(child.status) != SIGABRT) {
        fail_on_child("death of SIGABRT", file, line);
    }
    if (!is_failure(child.text, call)) {
        fail_on_child("aco: CALL: RULE: REMEDY (coroutine ...", file, line);
    }
    if (strstr(child.text, words) == NULL) {
        fail_on_child(words, file, line);
    }
    return child.text;
}

const char *expect_death_at(act_t act, void *arg, int signal_no, const char *file, int line)
{
    run_child(act, arg);
    if (!WIFSIGNALED(child.status) || WTERMSIG(child.status) != signal_no) {
        fail_on_child(strsignal(signal_no), file, line);
    }
    return child.text;
}

void expect_signal_at(act_t act, void *arg, int signal_no, const char *file, int line)
{
    if (expect_death_at(act, arg, signal_no, file, line)[0] != '\0') {
        fail_on_child("no word on stderr", file, line);
    }
}

void expect_exit_at(act_t act, void *arg, int status, const char *file, int line)
{
    run_child(act, arg);
    if (!WIFEXITED(child.status) || WEXITSTATUS(child.status) != status) {
        fail_on_child("another exit status", file, line);
    }
    if (child.text[0] != '\0') {
        fail_on_child("no word on stderr", file, line);
    }
}

void write_below(void *stack)
{
    const aco_share_stack_t *s = (const aco_share_stack_t *)stack;
    ((volatile char *)s->ptr)[-1] = 1;
}

void write_at_start_of_guard(void *stack)
{
    const aco_share_stack_t *s = (const aco_share_stack_t *)stack;
    *(volatile char *)s->real_ptr = 1;
}

void write_lowest(void *stack)
{
    const aco_share_stack_t *s = (const aco_share_stack_t *)stack;
    *(volatile char *)s->ptr = 1;
}

void assert_names_ptr(const char *line, const void *ptr)
{
    char text[32];
    snprintf(text, sizeof(text), "%p", ptr);
    if (strstr(line, text) == NULL) {
        print_error("\"%s\" does not name %s\n", line, text);
        fail();
    }
}

void assert_names_code(const char *line, aco_cofuncp_t fp)
{
    Dl_info info;
    assert_true(dladdr((const void *)(uintptr_t)fp, &info) != 0);
    const char *offset = strstr(line, "(+0x");
    if (offset == NULL || offset[-1] == ' ') {
        fail_msg("\"%s\" does not name FILE(+OFFSET)", line);
        return;
    }
    /* The file's addresses begin at 0, or are those in memory. */
    uintptr_t base = (uintptr_t)fp - (uintptr_t)strtoul(offset + 4, NULL, 16);
    assert_true(base == 0 || base == (uintptr_t)info.dli_fbase);
    const char *name = strrchr(info.dli_fname, '/');
    assert_non_null(strstr(line, name != NULL ? name + 1 : info.dli_fname));
}
