// SPDX-License-Identifier: Apache-2.0
/*
 * Share stacks, save stacks and the life of coroutines. The switch itself is in aco.h (inline) and
 * acosw.S; this file puts frames in place first. Needs only libc and mmap(), and compiles as
 * gnu89, C99, C++11 and later.
 *
 * Invariants, for a share stack s and a non-main coroutine co:
 *   I1  s->in_place is NULL or a coroutine whose share_stack is s; co->is_owner is 1 if and only if
 *       co->share_stack->in_place == co. s->owner is a copy for programs, which may write to it:
 *       nothing here reads it
 *   I2  co suspended and owner: its frames are in place, and reg[SP] lies within the stack, at or
 *       below align_retptr
 *   I3  co suspended and not owner: save_stack.valid_sz == align_retptr - reg[SP] <= save_stack.sz
 *       (0 in init)
 *   I4  *align_retptr is the protector's address
 *   I5  co runs if and only if aco_gtls_co is co; it and its ancestors, which wait for it, own
 *       their stacks, each until its aco_exit()
 *   I6  co->save_stack.ptr is freed if and only if co->blocks says so; otherwise it is part of the
 *       block of co, or save_stack.sz is 0 from the start on: in a copy of an aco_t
 *   I7  s is not freed while s->ct_coroutines != 0: at least the number of coroutines that have
 *       started on s or were created on it
 */

/* Declares MAP_ANONYMOUS and dl_iterate_phdr() in strict dialects too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

/* Emits the functions that are inline in programs; in a file that includes this one, they remain
 * inline. */
#ifndef ACO_H
#define ACO_INLINE
#include "aco.h"
#endif

#include <errno.h>
#ifdef __ELF__
#include <link.h>
#endif
#include <pthread.h>
#include <stddef.h>
#ifdef ACO_USE_VALGRIND
#include <valgrind/memcheck.h>
#endif
#ifdef ACO_USE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#ifdef ACO_USE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* ==== Compile-time checks ==================================================================== */

#define CHECK(name, EX) typedef char aco_check_##name[(EX) ? 1 : -1]
CHECK(the_switch_finds_reg_first, offsetof(aco_t, reg) == 0);
CHECK(a_word_is_a_pointer, sizeof(void *) == ACO_WORD && sizeof(aco_cofuncp_t) == ACO_WORD);
CHECK(control_words_fit_a_word, sizeof(uint32_t) <= ACO_WORD);
CHECK(the_switch_finds_base, offsetof(aco_t, base) == ACO_BASE);

/* ==== Sizes ================================================================================== */

#define STACK_ALIGNMENT 16u                /* bytes; of SP before a call */
#define STACK_DEFAULT_SZ ((size_t)2 << 20) /* bytes */
#define STACK_MIN_SZ ((size_t)4096)        /* bytes */
#define TOP_SZ 16u                         /* bytes; unused above the protector */
#define SAVE_STACK_DEFAULT_SZ 64u          /* bytes; for an entry function that mostly yields */
#define SAVE_STACK_USUAL_MAX_SZ 512u       /* bytes; the limit of usual_sz */
#define SAVE_STACK_GRANULE 16u             /* bytes; alignment of an aco_t and its save stacks */
#define CO_SZ round_up(sizeof(aco_t), SAVE_STACK_GRANULE)
#define COPY_INLINE_MAX 255u                /* bytes; memcpy() is faster for more */
#define PREFETCH_MAX_SZ 2048u               /* bytes; measured: more gains nothing */
#define CACHE_LINE_SZ 64u                   /* bytes; affects only speed */
#define FAILURE_LINE_SZ 400u                /* bytes, on a coroutine's stack */
#define PROGRAM_NAME_SZ 256u                /* bytes, on the same stack; at most half is shown */
#define RED_ZONE_SZ 128u                    /* bytes below SP that a leaf function may use */
#define FAKE_STACK_MIN_SZ ((size_t)1 << 16) /* bytes; limits of ASan for each class of frames */
#define FAKE_STACK_MAX_SZ ((size_t)1 << 20) /* bytes */
#define STRESS_FILL_SZ ((size_t)16 << 10)   /* bytes; frames of tests are not deeper */
#define STRESS_PATTERN 0xa5

#define ALWAYS_INLINE inline __attribute__((always_inline))

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* ==== Failure ================================================================================ */

/*
 * Every failure writes one line to stderr and calls abort(). The line is composed without printf(),
 * which needs several KiB of stack: a coroutine may have less left.
 */
typedef struct {
    char text[FAILURE_LINE_SZ];
    size_t sz;
} line_t;

static void put(line_t *line, const char *text)
{
    while (*text != '\0' && line->sz < sizeof(line->text) - 1) {
        line->text[line->sz++] = *text++;
    }
}

static void put_number(line_t *line, uintptr_t number, unsigned base)
{
    char digits[3 * sizeof(number) + 1], *first = digits + sizeof(digits) - 1;
    *first = '\0';
    do {
        *--first = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0);
    put(line, first);
}

static void put_address(line_t *line, uintptr_t address)
{
    put(line, "0x");
    put_number(line, address, 16);
}

/* A file that includes this one behind system headers may have none of GNU's names. */
#if defined(__ELF__) && (defined(__USE_GNU) || !defined(__GLIBC__))

/* A program or shared library, and an address in it. */
typedef struct {
    uintptr_t address;
    uintptr_t base; /* load address minus address in the file */
    const char *file;
} place_t;

/* Callback of dl_iterate_phdr(): whether the object `info` contains the place `arg`. */
static int find_place(struct dl_phdr_info *info, size_t sz, void *arg)
{
    place_t *place = (place_t *)arg;
    const ElfW(Phdr) *segment = info->dlpi_phdr, *end = segment + info->dlpi_phnum;
    (void)sz;
    for (; segment != end; segment++) {
        if (segment->p_type == PT_LOAD &&
            place->address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz) {
            place->base = info->dlpi_addr;
            place->file = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

/* Appends a code address as FILE(+OFFSET), for addr2line. */
static void put_code(line_t *line, uintptr_t address)
{
    char program[PROGRAM_NAME_SZ];
    place_t place = {address, 0, NULL};
    if (dl_iterate_phdr(find_place, &place) == 0) {
        put_address(line, address);
        return;
    }
    if (*place.file == '\0') { /* the program itself */
        ssize_t sz = readlink("/proc/self/exe", program, sizeof(program) - 1);
        program[sz > 0 ? sz : 0] = '\0';
        place.file = program;
    }
    const char *name = strrchr(place.file, '/');
    put(line, name == NULL || strlen(place.file) < PROGRAM_NAME_SZ / 2 ? place.file : name + 1);
    put(line, "(+");
    put_address(line, address - place.base);
    put(line, ")");
}

#else
#define put_code(line, address) put_address(line, address)
#endif

ACO_NORETURN static void die(line_t *line, const aco_t *co)
{
    put(line, " (coroutine ");
    put_address(line, (uintptr_t)co);
    if (co != NULL && co->fp != NULL) {
        put(line, ", entry function ");
        put_code(line, (uintptr_t)co->fp);
    }
    put(line, ")");
    line->text[line->sz++] = '\n';
    size_t done = 0;
    while (done < line->sz) {
        ssize_t written = write(STDERR_FILENO, line->text + done, line->sz - done);
        if (written > 0) {
            done += (size_t)written;
        } else if (errno != EINTR) {
            break;
        }
    }
    abort();
}

static void begin(line_t *line, const char *call)
{
    line->sz = 0;
    put(line, "aco: ");
    put(line, call);
    put(line, ": ");
}

void aco_i_fail(const char *call, const aco_t *co, const char *rule_and_remedy)
{
    line_t line;
    begin(&line, call);
    put(&line, rule_and_remedy);
    die(&line, co);
}

static inline void demand(int holds, const char *call, const aco_t *co, const char *rule_and_remedy)
{
    if (aco_unlikely(!holds)) {
        aco_i_fail(call, co, rule_and_remedy);
    }
}

void aco_i_assert_failed(const char *text, const char *file, int line_number, const char *function)
{
    line_t line;
    begin(&line, file);
    put_number(&line, (uintptr_t)line_number, 10);
    put(&line, ": ");
    put(&line, function);
    put(&line, ": ");
    put(&line, text);
    die(&line, aco_gtls_co);
}

void aco_i_misuse(const char *call, const aco_t *co)
{
    demand(co == aco_gtls_co, call, co,
           "the coroutine is NULL, or not the one that runs: pass aco_get_co()");
    aco_i_fail(call, co,
               "no coroutine is running: call it in an entry function, or in what that "
               "calls");
}

/* ==== Memory ================================================================================= */

static void *(*allocate)(size_t sz) = malloc;
static void (*release)(void *ptr) = free;

void aco_set_allocator(void *(*new_allocate)(size_t sz), void (*new_release)(void *ptr))
{
    demand(new_allocate != NULL && new_release != NULL, "aco_set_allocator", NULL,
           "a function is NULL: pass both, malloc and free for the default ones");
    allocate = new_allocate;
    release = new_release;
}

void *aco_i_allocate(size_t sz)
{
    return allocate(sz);
}

void aco_i_release(void *ptr)
{
    if (ptr != NULL) {
        release(ptr);
    }
}

/* The last request that failed, for the message. */
static __thread struct {
    const char *function;
    size_t sz; /* bytes */
} failed;

/* Records that `function` failed to provide `sz` bytes, with the reason in errno. */
static void *note_failure(const char *function, size_t sz)
{
    failed.function = function;
    failed.sz = sz;
    return NULL;
}

/* The program's own allocator may not set errno: any other value counts as out of memory. */
static const char *remedy_of(int error)
{
    switch (error) {
    case EPERM:
    case EACCES:
    case ENOSYS:
        return ": the system forbids the call: let its seccomp filter or security policy allow it";
    case EAGAIN:
        return ": too much memory is locked: raise the limit on that, or don't mlockall()";
    default:
        return ": free something first, or raise the limit on memory or on mappings"
               " (vm.max_map_count)";
    }
}

ACO_NORETURN static void fail_alloc(const char *call, const aco_t *co)
{
    int error = errno;
    line_t line;
    begin(&line, call);
    put(&line, failed.function);
    put(&line, " of ");
    put_number(&line, failed.sz, 10);
    put(&line, " bytes failed, errno ");
    put_number(&line, (uintptr_t)error, 10);
    put(&line, remedy_of(error));
    die(&line, co);
}

static void *try_allocate(size_t sz)
{
    void *ptr = allocate(sz);
    return ptr != NULL
               ? ptr
               : note_failure(allocate == malloc ? "malloc" : "the program's allocator", sz);
}

/* ==== Hooks for tools ======================================================================== */

/*
 * They tell memcheck and the sanitizers what these can't see by themselves. There is one table for
 * each tool, and an empty one. Each has all hooks:
 *
 *   tell_stack_new(s), tell_stack_destroyed(s)
 *   tell_created(co)
 *   tell_moved(co)             `co` will start on another share stack than it was created on
 *   tell_saved(co, sp)         the frames of `co` from `sp` up were copied out of its share stack
 *   tell_acquired(co, sp)      `co` is the new owner; its frames will be copied to `sp`
 *   tell_ferry(ferry, parent)  `ferry` will run in place of `parent`, on the same stack
 *   tell_abandoned(co)         `co`, the owner, will never use its frames again
 *   tell_destroyed(co)
 *   tell_unwound(main_co, sp)  the stack of `main_co` was unwound up to `sp`, by no switch
 *
 * ACO_TELL_SWITCH() of aco.h calls what a sanitizer must know of a switch.
 */
#if defined(ACO_USE_VALGRIND) && (defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN))
#error "programs with a sanitizer can't run under valgrind: compile without ACO_USE_VALGRIND"
#endif

#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
/* Whether the switch to `co` calls its entry function. */
static int starts(const aco_t *co)
{
    return co->share_stack != NULL && co->reg[ACO_REG_IDX_SP] == co->share_stack->align_retptr;
}
#endif

#if defined(ACO_USE_VALGRIND) && !defined(NVALGRIND) /* defined where valgrind has no port */

static void tell_stack_new(aco_share_stack_t *s)
{
    s->valgrind_stk_id = VALGRIND_STACK_REGISTER(s->ptr, (char *)s->ptr + s->sz - 1);
}

static void tell_stack_destroyed(aco_share_stack_t *s)
{
    VALGRIND_STACK_DEREGISTER(s->valgrind_stk_id);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(s->ptr, s->sz); /* the caller may own it and use it again */
}

#define tell_created(co) ((void)(co))
#define tell_moved(co) ((void)(co))

/* Sets `ptr` to the lowest byte of the red zone below the frames from `sp` up. Returns the bytes
 * from there to their end. */
static size_t frames(const aco_share_stack_t *s, char *sp, char **ptr)
{
    size_t room = (size_t)(sp - (char *)s->ptr);
    *ptr = sp - (room < RED_ZONE_SZ ? room : RED_ZONE_SZ);
    return (size_t)((char *)s->align_retptr - *ptr);
}

static void tell_saved(aco_t *co, char *sp)
{
    char *ptr;
    size_t sz = frames(co->share_stack, sp, &ptr);
    (void)VALGRIND_MAKE_MEM_NOACCESS(ptr, sz);
}

/* The copy that follows makes defined what was defined when it was saved. */
static void tell_acquired(aco_t *co, char *sp)
{
    char *ptr;
    size_t sz = frames(co->share_stack, sp, &ptr);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(ptr, sz);
}

/* The ferry and its return address lie below the frames of `parent`. */
static void tell_ferry(aco_t *ferry, const aco_t *parent)
{
    char *low = (char *)ferry - ACO_RETPTR_SZ - RED_ZONE_SZ;
    (void)VALGRIND_MAKE_MEM_UNDEFINED(low, (size_t)((char *)parent->reg[ACO_REG_IDX_SP] - low));
}

#define tell_abandoned(co) ((void)(co))
#define tell_destroyed(co) ((void)(co))
#define tell_unwound(main_co, sp) ((void)0)

#elif defined(ACO_USE_ASAN)

/* The shadow byte of the 8 bytes at `ptr`. */
static char *shadow_of(const void *ptr)
{
    size_t scale, offset;
    __asan_get_shadow_mapping(&scale, &offset);
    return (char *)(((uintptr_t)ptr >> scale) + offset);
}

/* Removes the red zones of frames from `sp` up. If `sp` is at the top of the stack, their depth is
 * unknown, as when a coroutine was reset by hand: then it removes those of the whole stack. */
static void forget_frames(const aco_share_stack_t *s, char *sp)
{
    char *low = sp == s->align_retptr ? (char *)s->ptr : sp;
    __asan_unpoison_memory_region(low, (size_t)((char *)s->align_highptr - low));
}

/* Bytes of the fake stack that ASan makes for a stack of `stack_sz` bytes: a page, flags, and for
 * each of 11 classes of frames the size of the stack, rounded up to a power of two within limits.
 * Never too large: LSan would read a guard page behind it. */
static size_t fake_stack_sz(size_t stack_sz)
{
    size_t sz = FAKE_STACK_MIN_SZ;
    while (sz < stack_sz && sz < FAKE_STACK_MAX_SZ) {
        sz *= 2;
    }
    return 4096 + sz / 32 + 11 * sz;
}

/* LSan scans the share stacks and the stack that each thread runs on. Calls `tell` with what a
 * suspended coroutine has elsewhere: its fake stack and, of a main coroutine, the frames. */
static void tell_roots(const aco_t *co, void (*tell)(const void *, size_t))
{
    if (co->sanitizer_state != NULL) {
        tell(co->sanitizer_state, fake_stack_sz(co->stack_sz));
    }
    if (co->sanitizer_sp != NULL) {
        const char *end = (const char *)co->stack_ptr + co->stack_sz;
        tell(co->sanitizer_sp, (size_t)(end - (const char *)co->sanitizer_sp));
    }
}

/* ASan checks memcpy(), and frames have red zones. */
aco_attr_no_asan static void copy_unwatched(void *to, const void *from, size_t sz)
{
    size_t i;
    for (i = 0; i < sz; i++) {
        ((volatile char *)to)[i] = ((const volatile char *)from)[i];
    }
}

static void tell_stack_new(aco_share_stack_t *s)
{
    __lsan_register_root_region(s->ptr, s->sz);
}

static void tell_stack_destroyed(aco_share_stack_t *s)
{
    forget_frames(s, (char *)s->ptr);
    __lsan_unregister_root_region(s->ptr, s->sz);
    if (s->ct_coroutines != 0) { /* the struct may never be freed, see mark_of() */
        __lsan_ignore_object(s);
    }
}

static void tell_moved(aco_t *co)
{
    co->stack_ptr = co->share_stack->ptr;
    co->stack_sz = co->share_stack->align_limit + ACO_RETPTR_SZ;
}

static void tell_created(aco_t *co)
{
    co->sanitizer_state = NULL;
    co->sanitizer_shadow = NULL;
    co->sanitizer_sp = NULL;
    if (co->share_stack != NULL) {
        tell_moved(co);
    }
}

/* A save stack in freed memory, as of a coroutine that was freed by hand, is reported here: the
 * copies are not watched. */
static void look_at_save_stack(const aco_t *co, size_t sz)
{
    const void *bad = __asan_region_is_poisoned(co->save_stack.ptr, sz);
    if (bad != NULL) {
        (void)*(const volatile char *)bad;
    }
}

/* The red zones around locals are saved and restored with the frames. */
static void tell_saved(aco_t *co, char *sp)
{
    look_at_save_stack(co, co->save_stack.valid_sz);
    char *low = shadow_of(sp);
    size_t sz = (size_t)(shadow_of(co->share_stack->align_highptr) - low);
    co->sanitizer_shadow = try_allocate(sz);
    if (co->sanitizer_shadow == NULL) {
        fail_alloc("aco_resume", co);
    }
    copy_unwatched(co->sanitizer_shadow, low, sz);
    forget_frames(co->share_stack, sp);
}

static void drop_shadow(aco_t *co)
{
    if (co->sanitizer_shadow != NULL) {
        release(co->sanitizer_shadow);
        co->sanitizer_shadow = NULL;
    }
}

static void tell_acquired(aco_t *co, char *sp)
{
    if (co->save_stack.valid_sz != 0) {
        char *low = shadow_of(sp);
        look_at_save_stack(co, co->save_stack.valid_sz);
        copy_unwatched(low, co->sanitizer_shadow,
                       (size_t)(shadow_of(co->share_stack->align_highptr) - low));
    }
    drop_shadow(co);
}

/* Makes ASan take the ferry for the parent. */
#define tell_ferry(ferry, parent) (*(ferry) = *(parent))

static void tell_abandoned(aco_t *co)
{
    forget_frames(co->share_stack, (char *)co->reg[ACO_REG_IDX_SP]);
}

/* ASan frees the fake stack of a fiber only in the last switch from it, so one is announced. */
aco_attr_no_asan static void drop_fake_stack(aco_t *co)
{
    void *mine;
    const void *stack_ptr;
    size_t stack_sz;
    if (co->sanitizer_state == NULL) {
        return;
    }
    tell_roots(co, __lsan_unregister_root_region);
    __sanitizer_start_switch_fiber(&mine, co->stack_ptr, co->stack_sz);
    __sanitizer_finish_switch_fiber(co->sanitizer_state, &stack_ptr, &stack_sz);
    __sanitizer_start_switch_fiber(NULL, stack_ptr, stack_sz);
    __sanitizer_finish_switch_fiber(mine, NULL, NULL);
    co->sanitizer_state = NULL;
}

static void tell_destroyed(aco_t *co)
{
    drop_shadow(co);
    drop_fake_stack(co);
}

static void tell_unwound(const aco_t *main_co, const char *sp)
{
    const char *low = (const char *)main_co->stack_ptr;
    __asan_unpoison_memory_region(low, (size_t)(sp - low));
}

/* Both halves of ASan's switch are done here, before SP moves: a coroutine that starts could not do
 * the second one. */
aco_attr_no_asan void aco_i_tell_switch(aco_t *from, aco_t *to)
{
    char *sp = (char *)__builtin_frame_address(0);
    if (from->is_end) {
        forget_frames(from->share_stack, sp);
    }
    if (starts(to)) { /* perhaps again: its old frames are gone */
        forget_frames(to->share_stack, (char *)to->share_stack->align_retptr);
        drop_fake_stack(to);
    }
    __sanitizer_start_switch_fiber(from->is_end ? NULL : &from->sanitizer_state, to->stack_ptr,
                                   to->stack_sz);
    __sanitizer_finish_switch_fiber(to->sanitizer_state, &from->stack_ptr, &from->stack_sz);
    /* acosw() is yet to push registers. */
    from->sanitizer_sp = from->main_co == NULL ? sp - RED_ZONE_SZ : NULL;
    tell_roots(from, __lsan_register_root_region);
    tell_roots(to, __lsan_unregister_root_region);
    to->sanitizer_state = to->sanitizer_sp = NULL;
}

#elif defined(ACO_USE_TSAN)

#define tell_stack_new(s) ((void)0)
#define tell_stack_destroyed(s) ((void)0)

/* Non-main coroutines get a fiber when first resumed, so that an aco_t may be copied before. */
static void tell_created(aco_t *co)
{
    co->sanitizer_state = co->main_co == NULL ? __tsan_get_current_fiber() : NULL;
}

#define tell_moved(co) ((void)0)
#define tell_saved(co, sp) ((void)0)
#define tell_acquired(co, sp) ((void)0)

/* Makes TSan take the ferry for the parent. */
#define tell_ferry(ferry, parent) (*(ferry) = *(parent))

#define tell_abandoned(co) ((void)0)

static void tell_destroyed(aco_t *co)
{
    if (co->main_co != NULL && co->sanitizer_state != NULL) {
        __tsan_destroy_fiber(co->sanitizer_state);
    }
}

#define tell_unwound(main_co, sp) ((void)0)

/* A coroutine that starts again gets a new fiber: calls in the old one will never return. */
void *aco_i_fiber_of(aco_t *co)
{
    if (co->sanitizer_state == NULL || starts(co)) {
        tell_destroyed(co);
        co->sanitizer_state = __tsan_create_fiber(0);
    }
    return co->sanitizer_state;
}

#else

#define tell_stack_new(s) ((void)0)
#define tell_stack_destroyed(s) ((void)0)
#define tell_created(co) ((void)0)
#define tell_moved(co) ((void)0)
#define tell_saved(co, sp) ((void)0)
#define tell_acquired(co, sp) ((void)0)
#define tell_ferry(ferry, parent) ((void)0)
#define tell_abandoned(co) ((void)0)
#define tell_destroyed(co) ((void)0)
#define tell_unwound(main_co, sp) ((void)0)

#endif

/* ==== Thread state =========================================================================== */

/* Its only symbol has the configuration in its name. Objects compiled with the header of libaco
 * 1.x, whose structs have another layout, refer to the plain name and don't link. */
__thread aco_t *aco_gtls_co;
#ifdef ACO_CONFIG_LIST
__thread aco_t *aco_i_gtls_list;
#endif

static __thread struct {
    char is_ready;           /* aco_thread_init() was called */
    uint32_t control_words;  /* those of new coroutines, in the form of reg[ACO_REG_IDX_FPU] */
    aco_cofuncp_t last_word; /* not NULL once is_ready */
} aco_thread;

int aco_version(void)
{
    return ACO_VERSION;
}

static void default_last_word(void)
{
    aco_i_fail("aco_exit", aco_gtls_co,
               "the entry function returned: end it with aco_exit(), or see aco_return_ends()");
}

void aco_funcp_protector(void)
{
    aco_thread.last_word();
    abort();
}

/* acosw.S defines it under a name with its configuration: a different one does not link. */
extern const char ACO_SWITCH_CONFIG[];

void aco_runtime_test(void)
{
    const char *switch_config = ACO_SWITCH_CONFIG;
    ACO_LAUNDER(switch_config);
    aco_assert(switch_config != NULL); /* always true; the use makes the reference */
    long page_sz = sysconf(_SC_PAGESIZE);
    aco_assert(page_sz > 0 && (size_t)page_sz % STACK_ALIGNMENT == 0);
}

/* Before glibc 2.34 these are in libpthread, which programs without threads don't link. */
#ifdef __GLIBC__
#if !__GLIBC_PREREQ(2, 34)
#pragma weak pthread_key_create
#pragma weak pthread_key_delete
#pragma weak pthread_setspecific
#define HAS_THREADS (pthread_key_create != NULL)
#endif
#endif
#ifndef HAS_THREADS
#define HAS_THREADS 1
#endif

/* A prepared thread has a value here, so that check_end() runs when it ends. */
static pthread_key_t prepared;
static char sees_ends;

/* The main coroutine above `co`. */
static const aco_t *root_of(const aco_t *co)
{
    while (co->main_co != NULL) {
        co = co->main_co;
    }
    return co;
}

/* pthread_exit() and pthread_cancel() unwind the current stack, which for a coroutine ends at its
 * entry function: the unwinder can't continue in the parent, as an inline switch isn't a call. */
static void check_end(void *thread)
{
    const aco_t *co = aco_gtls_co;
    (void)thread;
    if (co != NULL && co->main_co != NULL) {
        tell_unwound(root_of(co), (const char *)__builtin_frame_address(0));
        aco_i_fail("pthread_exit", co,
                   "the thread has ended, or was cancelled, while the coroutine "
                   "ran, and its own cleanups were left out: let it end on its own stack");
    }
}

static __attribute__((constructor)) void begin_to_see_ends(void)
{
    sees_ends = HAS_THREADS && pthread_key_create(&prepared, check_end) == 0;
}

/* The library may be unloaded before a thread ends: then nothing must call check_end(). */
static __attribute__((destructor)) void see_no_more_ends(void)
{
    if (sees_ends) {
        pthread_key_delete(prepared);
    }
}

static void put_version(line_t *line, int version)
{
    put_number(line, (uintptr_t)version / 10000, 10);
    put(line, ".");
    put_number(line, (uintptr_t)version / 100 % 100, 10);
    put(line, ".");
    put_number(line, (uintptr_t)version % 100, 10);
}

/* A library serves older headers of its major version. */
static void check_version(int version)
{
    if (aco_likely(version <= ACO_VERSION && version / 10000 == ACO_VERSION_MAJOR)) {
        return;
    }
    line_t line;
    begin(&line, "aco_thread_init");
    put(&line, "the library is ");
    put_version(&line, ACO_VERSION);
    put(&line, ", and can't serve what was compiled with aco.h ");
    put_version(&line, version);
    put(&line, ": compile all with the aco.h of the library that is linked");
    die(&line, aco_gtls_co);
}

void aco_i_thread_init(aco_cofuncp_t last_word, int version)
{
    check_version(version);
    aco_runtime_test();
    if (sees_ends) {
        pthread_setspecific(prepared, &aco_thread);
    }
    aco_save_fpucw_mxcsr(&aco_thread.control_words);
    if (last_word != NULL) {
        aco_thread.last_word = last_word;
    } else if (aco_thread.last_word == NULL) {
        aco_thread.last_word = default_last_word;
    }
    aco_thread.is_ready = 1;
}

/* Whether `co` runs, or waits for a coroutine that it has resumed. */
static int is_running(const aco_t *co)
{
    const aco_t *running = aco_gtls_co;
    while (running != NULL && running != co) {
        running = running->main_co;
    }
    return running != NULL;
}

/* ==== Share stacks =========================================================================== */

/* Maps the stack of `s` and its guard page. Returns NULL on failure. */
static void *map_stack(aco_share_stack_t *s, size_t guard_sz)
{
    s->real_sz = s->sz + guard_sz;
    s->real_ptr = mmap(NULL, s->real_sz, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (s->real_ptr == MAP_FAILED) {
        return note_failure("mmap", s->real_sz);
    }
#ifdef MADV_NOHUGEPAGE
    /* A huge page would make a small stack cost 2 MiB. Not all kernels imply this by MAP_STACK. */
    (void)madvise(s->real_ptr, s->real_sz, MADV_NOHUGEPAGE);
#endif
    if (guard_sz != 0 && mprotect(s->real_ptr, guard_sz, PROT_READ) != 0) {
        int error = errno;
        munmap(s->real_ptr, s->real_sz);
        errno = error;
        return note_failure("mprotect", guard_sz);
    }
    s->ptr = (char *)s->real_ptr + guard_sz;
    return s->ptr;
}

/* Finds the end of the stack of `s` and puts the protector there (I4). */
static void lay_out_stack(aco_share_stack_t *s)
{
    /* memcheck's unwinder must read the protector, and doesn't read the last word of a stack. */
    uintptr_t high = ((uintptr_t)s->ptr + s->sz) / STACK_ALIGNMENT * STACK_ALIGNMENT - TOP_SZ;
    s->align_highptr = (void *)high;
    s->align_retptr = (char *)s->align_highptr - ACO_RETPTR_SZ;
    s->align_validsz = high - (uintptr_t)s->ptr;
    s->align_limit = s->align_validsz - ACO_RETPTR_SZ;
    s->usual_sz = SAVE_STACK_DEFAULT_SZ;
    void *protector = (void *)(uintptr_t)aco_funcp_protector_asm;
    memcpy(s->align_retptr, &protector, sizeof(protector));
    tell_stack_new(s);
}

aco_share_stack_t *aco_try_share_stack_new2(size_t sz, char guard_page_enabled)
{
    size_t page_sz = (size_t)sysconf(_SC_PAGESIZE);
    size_t usable_sz = sz == 0 ? STACK_DEFAULT_SZ : sz < STACK_MIN_SZ ? STACK_MIN_SZ : sz;
    if (usable_sz > SIZE_MAX / 2) {
        errno = ENOMEM;
        return (aco_share_stack_t *)note_failure("mmap", sz);
    }
    aco_share_stack_t *s = (aco_share_stack_t *)try_allocate(sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    memset(s, 0, sizeof(*s));
    s->sz = round_up(usable_sz + ACO_RETPTR_SZ + TOP_SZ, page_sz);
    s->guard_page_enabled = guard_page_enabled != 0;
    if (map_stack(s, s->guard_page_enabled ? page_sz : 0) == NULL) {
        int error = errno;
        release(s);
        errno = error;
        return NULL;
    }
    lay_out_stack(s);
    return s;
}

static aco_share_stack_t *new_share_stack(const char *call, size_t sz, char guard_page_enabled)
{
    aco_share_stack_t *s = aco_try_share_stack_new2(sz, guard_page_enabled);
    if (s == NULL) {
        fail_alloc(call, NULL);
    }
    return s;
}

aco_share_stack_t *aco_share_stack_new2(size_t sz, char guard_page_enabled)
{
    return new_share_stack("aco_share_stack_new2", sz, guard_page_enabled);
}

aco_share_stack_t *aco_share_stack_new(size_t sz)
{
    return new_share_stack("aco_share_stack_new", sz, 1);
}

aco_share_stack_t *aco_share_stack_new_in(void *memory, size_t sz)
{
    uintptr_t low = (uintptr_t)memory;
    uintptr_t high = (low + sz - sizeof(aco_share_stack_t)) / STACK_ALIGNMENT * STACK_ALIGNMENT;
    if (memory == NULL || sz > SIZE_MAX - low || sz < sizeof(aco_share_stack_t) ||
        high < low + STACK_MIN_SZ + ACO_RETPTR_SZ + TOP_SZ) {
        errno = EINVAL;
        return NULL;
    }
    aco_share_stack_t *s = (aco_share_stack_t *)high;
    memset(s, 0, sizeof(*s));
    s->ptr = s->real_ptr = memory;
    s->sz = high - low;
    lay_out_stack(s);
    return s;
}

/* Gives up the frames of `co` that are in place, if any. */
static void give_up_stack(aco_t *co)
{
    if (co->is_owner) {
        tell_abandoned(co);
        co->is_owner = 0;
        co->blocks &= ~ACO_HAS_MARK;
        co->share_stack->owner = co->share_stack->in_place = NULL;
    }
}

/* Frees the struct of a destroyed share stack once it has no coroutines (I7). */
static void release_destroyed(aco_share_stack_t *s)
{
    if (s->is_destroyed && s->ct_coroutines == 0 && s->real_sz != 0) {
        release(s);
    }
}

void aco_share_stack_destroy(aco_share_stack_t *share_stack)
{
    const char *call = "aco_share_stack_destroy";
    demand(share_stack != NULL && !share_stack->is_destroyed, call, NULL,
           "the share stack is NULL "
           "or was destroyed: pass what aco_share_stack_new() returned, once");
    demand(!share_stack->is_pooled, call, share_stack->in_place,
           "the share stack is a stack pool's: put it back by aco_stack_pool_put()");
    aco_t *owner = share_stack->in_place;
    if (owner != NULL) {
        demand(!is_running(owner), call, owner,
               "a coroutine on the share stack is running: let it end or yield first");
        give_up_stack(owner);
        if (share_stack->ct_coroutines == 0) { /* the owner is an uncounted copy of an aco_t */
            share_stack->ct_coroutines = 1;
        }
    }
    tell_stack_destroyed(share_stack);
    if (share_stack->real_sz != 0) {
        munmap(share_stack->real_ptr, share_stack->real_sz);
    }
    share_stack->is_destroyed = 1;
    release_destroyed(share_stack);
}

/* ==== Save stacks ============================================================================ */

#ifdef ACO_USE_ASAN
#define copy_frames(to, from, sz, at_once) copy_unwatched(to, from, sz)
#else

/*
 * The bytes that copy_frames() passes to one memcpy(), a compile-time constant. SHORT: there are at
 * most COPY_INLINE_MAX bytes in all. Long frames are saved in pieces, since they are in the cache,
 * where from some 2 KiB on glibc uses `rep movsb`, which is slow on AMD's Zen 3. They are mostly
 * restored from memory, where it is fast.
 */
#define SHORT ((size_t)0)
#define LONG_SAVE ((size_t)2048)
#define LONG_RESTORE SIZE_MAX

/*
 * Saves or restores frames. Most have a few dozen bytes, for which a call would cost more than the
 * copy. The moves must not overlap: restored frames are soon saved again, and a store is forwarded
 * to a load only if it wrote all bytes of the load.
 */
static ALWAYS_INLINE void copy_frames(void *to, const void *from, size_t sz, size_t at_once)
{
#define COPY_PIECE(piece)                                                                          \
    if (sz & (piece)) {                                                                            \
        memcpy(to, from, piece);                                                                   \
        to = (char *)to + (piece);                                                                 \
        from = (const char *)from + (piece);                                                       \
    }
    if (at_once != SHORT) {
        ACO_LAUNDER(at_once); /* keeps compilers from inlining `rep movsb` */
        for (; sz > at_once; sz -= at_once) {
            memcpy(to, from, at_once);
            to = (char *)to + at_once;
            from = (const char *)from + at_once;
        }
        memcpy(to, from, sz);
        return;
    }
    COPY_PIECE(128)
    COPY_PIECE(64)
    COPY_PIECE(32)
    COPY_PIECE(16)
    COPY_PIECE(8)
    if (ACO_WORD == 4) {
        COPY_PIECE(4)
    }
#undef COPY_PIECE
}

#endif

/* Prefetches saved frames, at most PREFETCH_MAX_SZ bytes, while others are being saved. */
static inline void prefetch_frames(const void *ptr, size_t sz)
{
    const char *line = (const char *)ptr;
    const char *end = line + (sz < PREFETCH_MAX_SZ ? sz : PREFETCH_MAX_SZ);
    for (; line < end; line += CACHE_LINE_SZ) {
        __builtin_prefetch(line);
    }
}

/* Gives `co` a new save stack of `sz` bytes. The contents of the old one are lost. */
static void replace_save_stack(aco_t *co, size_t sz)
{
    void *ptr = try_allocate(sz);
    if (ptr == NULL) {
        fail_alloc("aco_resume", co);
    }
#ifdef ACO_CONFIG_STRESS
    memset(co->save_stack.ptr, STRESS_PATTERN, co->save_stack.sz);
#endif
    if (co->blocks & ACO_BLOCK_SAVE_STACK) {
        release(co->save_stack.ptr);
    }
    co->save_stack.ptr = ptr;
    co->save_stack.sz = sz;
    co->blocks |= ACO_BLOCK_SAVE_STACK;
}

/* Makes room for `sz` bytes. A save stack grows by half at least, so that it rarely grows. */
static __attribute__((cold, noinline)) void grow_save_stack(aco_t *co, size_t sz)
{
    size_t half_more = co->save_stack.sz + co->save_stack.sz / 2;
    replace_save_stack(co, round_up(sz > half_more ? sz : half_more, SAVE_STACK_GRANULE));
}

/* Bytes of the frames of `co`, suspended, on `s` (I2, I3). */
static inline size_t live_sz(const aco_share_stack_t *s, const aco_t *co)
{
    return (size_t)((char *)s->align_retptr - (char *)co->reg[ACO_REG_IDX_SP]);
}

/* A coroutine on `s` needs `sz` bytes, more than ever before. usual_sz rises at once and falls
 * slowly, and SAVE_STACK_USUAL_MAX_SZ keeps deep coroutines from making all others large. */
static inline void learn_usual_sz(aco_share_stack_t *s, size_t sz)
{
    if (sz < s->usual_sz) {
        size_t least = sz < SAVE_STACK_DEFAULT_SZ ? SAVE_STACK_DEFAULT_SZ : sz;
        s->usual_sz -= (s->usual_sz - least) / 8;
    } else if (sz <= SAVE_STACK_USUAL_MAX_SZ) {
        s->usual_sz = sz;
    }
}

/*
 * Saves the frames of `co`, the suspended owner of `s` (from I2 to I3). The caller sets another
 * owner, or none. `is_short`, a constant at compile time: there are at most COPY_INLINE_MAX bytes,
 * and they fit the save stack.
 */
static ALWAYS_INLINE void evict(aco_share_stack_t *s, aco_t *co, int is_short)
{
    aco_save_stack_t *save = &co->save_stack;
    char *sp = (char *)co->reg[ACO_REG_IDX_SP];
    size_t sz = live_sz(s, co);
    demand(
        is_short || sz <= s->align_limit, "aco_resume", co,
        "the owner of the share stack has "
        "overrun it: give aco_share_stack_new2() a larger size, and a guard page; or it has left "
        "it: compile without -fsplit-stack");
    if (aco_unlikely(sz > save->sz)) {
        grow_save_stack(co, sz);
    }
#ifdef ACO_CONFIG_STRESS
    replace_save_stack(co, save->sz);
#endif
    co->is_owner = 0;
    save->valid_sz = sz;
    if (sz > save->max_cpsz) {
        save->max_cpsz = sz;
        learn_usual_sz(s, sz);
    }
    save->ct_save++;
    copy_frames(save->ptr, sp, sz, is_short ? SHORT : LONG_SAVE);
    tell_saved(co, sp);
}

/* ==== Create, reset and destroy ============================================================== */

/* Identifies the thread. A main coroutine has no save stack: its save_stack.ptr is this. */
static void *this_thread(void)
{
    return &aco_gtls_co;
}

#ifdef ACO_CONFIG_LIST
void aco_i_enter_in_list(aco_t *co)
{
    co->list_next = aco_i_gtls_list;
    co->list_prev = NULL;
    co->list_self = co;
    if (co->list_next != NULL) {
        co->list_next->list_prev = co;
    }
    aco_i_gtls_list = co;
}

/* The list of a thread that has ended has no head any more. */
void aco_i_take_from_list(aco_t *co)
{
    if (co->list_self == co) {
        co->list_self = NULL;
        if (co->list_prev != NULL) {
            co->list_prev->list_next = co->list_next;
        } else if (aco_i_gtls_list == co) {
            aco_i_gtls_list = co->list_next;
        }
        if (co->list_next != NULL) {
            co->list_next->list_prev = co->list_prev;
        }
    }
}
#endif

/* Prepares the thread if needed, and checks the arguments of aco_create() and similar calls. */
static inline void check_create(const char *call, const aco_t *main_co,
                                const aco_share_stack_t *share_stack, size_t save_stack_sz)
{
    if (aco_unlikely(!aco_thread.is_ready)) {
        aco_thread_init(NULL);
    }
    if (main_co == NULL) {
        demand(share_stack == NULL && save_stack_sz == 0, call, NULL,
               "main_co is NULL, but the "
               "share stack or save_stack_sz is not: pass the main coroutine, or leave out all "
               "three to make one");
    } else {
        demand(share_stack != NULL && !share_stack->is_destroyed, call, NULL,
               "the share stack is "
               "NULL or destroyed: pass what aco_share_stack_new() returned");
        demand(main_co->share_stack != share_stack, call, main_co,
               "main_co runs on the same share stack: give the new one another");
    }
}

/* The entry function of a coroutine created with none, until the program sets one in reg[]. */
static void has_no_entry(void)
{
    aco_i_fail("aco_resume", aco_gtls_co,
               "it has no entry function: pass one to aco_create() or "
               "aco_reset(), or set reg[ACO_REG_IDX_RETADDR]");
}

/* Brings `co` to state init. A frame pointer of 0 ends the chain of frames. */
static void set_init(aco_t *co, aco_cofuncp_t fp, void *arg)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)(fp != NULL ? fp : has_no_entry);
    co->reg[ACO_REG_IDX_SP] = co->share_stack != NULL ? co->share_stack->align_retptr : NULL;
    co->reg[ACO_REG_IDX_BP] = NULL;
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    co->reg[ACO_REG_IDX_FPU] = (void *)(uintptr_t)aco_thread.control_words;
#endif
    co->fp = fp;
    co->arg = arg;
    co->is_end = 0;
    co->is_owner = 0;
    co->wakes = 0;
    co->save_stack.valid_sz = 0;
}

/* Before the start a program may replace `share_stack` by hand. Until then `base` tells which share
 * stack has counted `co`, by 32 bits of its address. The replaced one keeps its count for ever:
 * its struct is not freed, but never too early either (I7). */
static int32_t mark_of(const aco_share_stack_t *s)
{
    return (int32_t)(uint32_t)((uintptr_t)s / STACK_ALIGNMENT);
}

static int is_counted(const aco_t *co)
{
    int has_started = !(co->blocks & ACO_HAS_MARK) || co->is_end;
    return has_started || co->base == mark_of(co->share_stack);
}

static void count(aco_t *co)
{
    co->share_stack->ct_coroutines++;
    co->base = mark_of(co->share_stack);
    co->blocks |= ACO_HAS_MARK;
}

/* ct_coroutines may be 0 already: copies of an aco_t are destroyed, but were never counted. */
static void uncount(const aco_t *co)
{
    aco_share_stack_t *s = co->share_stack;
    if (is_counted(co) && s->ct_coroutines > 0) {
        s->ct_coroutines--;
        release_destroyed(s);
    }
}

/* Makes a coroutine in `sz` bytes at `memory`: the aco_t, then its first save stack. */
static aco_t *create_at(void *memory, size_t sz, aco_t *main_co, aco_share_stack_t *share_stack,
                        aco_cofuncp_t fp, void *arg)
{
    aco_t *co = (aco_t *)memory;
    co->main_co = main_co;
    co->share_stack = share_stack;
    co->blocks = 0;
    co->save_stack.ptr = (char *)memory + CO_SZ;
    co->save_stack.sz = sz - CO_SZ;
    co->save_stack.max_cpsz = 0;
    co->save_stack.ct_save = 0;
    co->save_stack.ct_restore = 0;
    set_init(co, fp, arg);
    tell_created(co);
    aco_i_enter_in_list(co);
    if (main_co == NULL) {
        co->save_stack.ptr = this_thread();
    } else {
        count(co);
    }
    return co;
}

/* aco_try_create() on behalf of `call`. */
static aco_t *try_create(const char *call, aco_t *main_co, aco_share_stack_t *share_stack,
                         size_t save_stack_sz, aco_cofuncp_t fp, void *arg)
{
    check_create(call, main_co, share_stack, save_stack_sz);
    if (main_co != NULL && save_stack_sz == 0) {
        save_stack_sz = share_stack->usual_sz;
    }
    size_t sz = save_stack_sz <= SIZE_MAX - CO_SZ ? CO_SZ + save_stack_sz : SIZE_MAX;
    void *memory = try_allocate(sz);
    if (memory == NULL) {
        return NULL;
    }
    aco_t *co = create_at(memory, sz, main_co, share_stack, fp, arg);
    co->blocks |= ACO_BLOCK_CO;
    return co;
}

aco_t *aco_try_create(aco_t *main_co, aco_share_stack_t *share_stack, size_t save_stack_sz,
                      aco_cofuncp_t fp, void *arg)
{
    return try_create("aco_try_create", main_co, share_stack, save_stack_sz, fp, arg);
}

aco_t *aco_create(aco_t *main_co, aco_share_stack_t *share_stack, size_t save_stack_sz,
                  aco_cofuncp_t fp, void *arg)
{
    const char *call = "aco_create";
    aco_t *co = try_create(call, main_co, share_stack, save_stack_sz, fp, arg);
    if (co == NULL) {
        fail_alloc(call, NULL);
    }
    return co;
}

aco_t *aco_create_in(void *memory, size_t sz, aco_t *main_co, aco_share_stack_t *share_stack,
                     aco_cofuncp_t fp, void *arg)
{
    check_create("aco_create_in", main_co, share_stack, 0);
    if (memory == NULL || (uintptr_t)memory % SAVE_STACK_GRANULE != 0 || sz < CO_SZ) {
        errno = EINVAL;
        return NULL;
    }
    return create_at(memory, sz, main_co, share_stack, fp, arg);
}

void aco_reset(aco_t *co, aco_cofuncp_t fp, void *arg)
{
    const char *call = "aco_reset";
    demand(co != NULL && fp != NULL, call, co,
           "the coroutine or the entry function is NULL: pass both");
    demand(co->main_co != NULL, call, co, "a main coroutine has no entry function: pass another");
    demand(!is_running(co), call, co,
           "the coroutine is running, or waits for one it resumed: let that end first");
    give_up_stack(co);
    set_init(co, fp, arg);
    if (!(co->blocks & ACO_HAS_MARK)) {
        co->base = mark_of(co->share_stack);
        co->blocks |= ACO_HAS_MARK;
    }
}

void aco_destroy(aco_t *co)
{
    const char *call = "aco_destroy";
    demand(co != NULL, call, co, "the coroutine is NULL: pass what aco_create() returned");
    if (co->main_co == NULL) {
        demand(aco_gtls_co == co || !is_running(co), call, co,
               "one of its coroutines is running: yield or exit first");
        if (aco_gtls_co == co) {
            aco_gtls_co = NULL;
        }
    } else {
        demand(co->is_end || !is_running(co), call, co,
               "the coroutine is running, or waits for one it resumed: let another one destroy it");
        give_up_stack(co);
        uncount(co);
    }
    tell_destroyed(co);
    aco_i_take_from_list(co);
    void *save_stack = NULL;
    if (co->blocks & ACO_BLOCK_SAVE_STACK) {
        save_stack = co->save_stack.ptr;
        /* It is far away, and the allocator's words below it arrive while `co` is freed. */
        __builtin_prefetch((char *)save_stack - ACO_WORD, 1);
    }
    if (co->blocks & ACO_BLOCK_CO) {
        release(co);
    }
    aco_i_release(save_stack);
}

aco_status_t aco_status(const aco_t *co)
{
    demand(co != NULL, "aco_status", co, "the coroutine is NULL: pass what aco_create() returned");
    if (co->is_end) {
        return ACO_STATUS_END;
    }
    if (is_running(co)) {
        return ACO_STATUS_RUNNING;
    }
    if (co->main_co == NULL) {
        return ACO_STATUS_SUSPENDED;
    }
    size_t sz = live_sz(co->share_stack, co);
    int was_moved = (co->blocks & ACO_HAS_MARK) && sz > co->share_stack->align_limit;
    return sz == 0 || was_moved ? ACO_STATUS_INIT : ACO_STATUS_SUSPENDED;
}

int aco_on_own_stack(const void *ptr)
{
    const aco_t *co = aco_gtls_co;
    const aco_share_stack_t *s = co != NULL ? co->share_stack : NULL;
    return s != NULL && (uintptr_t)ptr - (uintptr_t)s->ptr < s->sz;
}

/* ==== Resume ================================================================================= */

/*
 * The inline aco_resume() calls it if aco_gtls_co is not the parent of `co`: in the first resume of
 * a thread, after a resume with another main coroutine, or on misuse.
 */
aco_t *aco_i_check_resume(const char *call, const aco_t *co)
{
    const aco_t *caller = aco_gtls_co;
    demand(co != NULL, call, co, "the coroutine is NULL: pass what aco_create() returned");
    demand(co->main_co != NULL, call, co,
           "a main coroutine can't be resumed: aco_yield() continues it");
    demand(!co->is_end, call, co, "the coroutine has ended: test is_end, or make another one");
    demand(!is_running(co), call, co,
           "the coroutine is running, or waits for one it resumed: resume another one");
    demand(caller == co->main_co ||
               ((caller == NULL || caller->main_co == NULL) && co->main_co->main_co == NULL),
           call, co,
           "the caller is not its parent (main_co): call aco_yield() and let that resume it");
    const void *thread = root_of(co)->save_stack.ptr;
    demand(thread == this_thread() || thread == NULL, call, co,
           "its main coroutine belongs to another thread: resume it there, or hand it over");
    return co->main_co;
}

/*
 * Checks that `co`, which is not in place, can be started or continued. The program may have set
 * reg[], and another share stack, by hand to start it: then saved frames are dropped.
 */
static void prepare(aco_t *co)
{
    const char *call = "aco_resume";
    aco_share_stack_t *s = co->share_stack;
    if (co->is_end || co->main_co == NULL) {
        aco_i_check_resume(call, co);
    }
    demand(s != NULL && !s->is_destroyed, call, co,
           "its share stack was destroyed: keep that until the coroutine has ended");
    size_t sz = live_sz(s, co);
    if (sz > s->align_limit) {
        co->reg[ACO_REG_IDX_SP] = s->align_retptr;
    } else if (sz == 0) {
        co->save_stack.valid_sz = 0;
    }
    demand(co->save_stack.valid_sz == 0 || co->save_stack.valid_sz == sz, call, co,
           "its share "
           "stack or reg[ACO_REG_IDX_SP] was changed while frames were saved: set them before a "
           "start only");
    if (!is_counted(co)) {
        s->ct_coroutines++;
        tell_moved(co);
    }
}

/* The memory behind an aco_t that was copied may be freed: its copy gets a block at the first save,
 * as none fits 0 bytes. */
static inline void disown_copied(aco_t *co)
{
    if (aco_unlikely(co->save_stack.ptr != (char *)co + CO_SZ) &&
        !(co->blocks & ACO_BLOCK_SAVE_STACK)) {
        co->save_stack.sz = 0;
    }
}

/* Evicts the owner of `s` and restores `co`. `is_short`: as in evict(), for both copies. */
static ALWAYS_INLINE void exchange(aco_share_stack_t *s, aco_t *co, int is_short)
{
    aco_save_stack_t *save = &co->save_stack;
    size_t sz = save->valid_sz;
    char *sp = (char *)s->align_retptr - sz;
    if (s->in_place != NULL) {
        demand(co->main_co->main_co == NULL || !is_running(s->in_place), "aco_resume", co,
               "the owner of its share stack waits for the caller: give coroutines that resume "
               "each other share stacks of their own");
        evict(s, s->in_place, is_short);
    }
    co->is_owner = 1;
    s->owner = s->in_place = co;
    tell_acquired(co, sp);
    if (sz != 0) {
        save->valid_sz = 0;
        save->ct_restore++;
        copy_frames(sp, save->ptr, sz, is_short ? SHORT : LONG_RESTORE);
    } else {
        co->blocks &= ~ACO_HAS_MARK; /* once started, it stays on this share stack */
        disown_copied(co);
    }
}

/* Does long copies, and what is due after the program has changed fields by hand. */
static __attribute__((noinline)) void exchange_slowly(aco_t *co)
{
    prepare(co);
    aco_share_stack_t *s = co->share_stack;
    if (s->in_place != NULL && s->in_place->is_end) { /* the program set is_end */
        give_up_stack(s->in_place);
    }
    prefetch_frames(co->save_stack.ptr, co->save_stack.valid_sz);
    exchange(s, co, 0);
}

/*
 * Checks, evicts, restores (from I3 to I2). The usual case, short copies, calls no function, so it
 * spills no register.
 */
void aco_i_acquire(aco_t *co)
{
    aco_share_stack_t *s = co->share_stack;
    size_t sz = co->save_stack.valid_sz, owner_sz = 0;
    int is_usual = s != NULL && sz == live_sz(s, co) && !s->is_destroyed &&
                   (sz != 0 || (!co->is_end && co->base == mark_of(s)));
    if (aco_likely(is_usual) && s->in_place != NULL) {
        const aco_t *owner = s->in_place;
        owner_sz = live_sz(s, owner);
        is_usual = owner_sz <= owner->save_stack.sz && !owner->is_end;
    }
    if (aco_likely(is_usual && (owner_sz | sz) <= COPY_INLINE_MAX)) {
        exchange(s, co, 1);
    } else {
        exchange_slowly(co);
    }
}

static void (*waker)(aco_t *co);

void aco_set_waker(void (*new_waker)(aco_t *co))
{
    __atomic_store_n(&waker, new_waker, __ATOMIC_RELAXED);
}

void aco_i_wake(aco_t *co)
{
    co->wakes = 0;
    __atomic_load_n(&waker, __ATOMIC_RELAXED)(co);
}

/* ==== Direct switch ========================================================================== */

/* Aborts on misuse of aco_yield_to(). */
static void check_yield_to(const aco_t *self, const aco_t *co)
{
    const char *call = "aco_yield_to";
    if (self == NULL || self->main_co == NULL) {
        aco_i_misuse(call, self);
    }
    demand(co != NULL, call, co, "the coroutine is NULL: pass what aco_create() returned");
    demand(co->main_co == self->main_co, call, co,
           "it has another parent (main_co) than the caller: yield, and let that resume it");
    demand(!co->is_end, call, co, "the coroutine has ended: test is_end, or make another one");
}

/* Marks a function that never returns: TSan must not count its call, ASan not give it red zones. */
#if defined(ACO_USE_TSAN) && defined(__clang__)
#define UNWATCHED __attribute__((disable_sanitizer_instrumentation))
#elif defined(ACO_USE_TSAN)
#define UNWATCHED __attribute__((no_sanitize_thread))
#else
#define UNWATCHED aco_attr_no_asan
#endif

/* The coroutine that run_ferry() switches to. */
static __thread aco_t *ferried;

UNWATCHED static void run_ferry(void)
{
    aco_t ferry, *from = &ferry, *co = ferried;
    aco_i_acquire(co);
    aco_gtls_co = co;
    ACO_TELL_SWITCH(co->main_co, co);
    ACO_SWITCH_UNTOLD(from, co);
    __builtin_unreachable();
}

/*
 * The inline aco_yield_to() calls it if `co` is not in place. The caller may run on the share stack
 * of `co`, so the copy can't be done there. A ferry does it: a coroutine made below the frames of
 * the parent. Returns the ferry, for the caller to switch to; it exists until `co` runs.
 */
aco_t *aco_i_ferry(aco_t *co)
{
    aco_t *self = aco_gtls_co;
    check_yield_to(self, co);
    aco_t *parent = self->main_co;
    uintptr_t sp = ((uintptr_t)parent->reg[ACO_REG_IDX_SP] - RED_ZONE_SZ - sizeof(aco_t)) /
                   STACK_ALIGNMENT * STACK_ALIGNMENT;
    aco_t *ferry = (aco_t *)sp;
    tell_ferry(ferry, parent);
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    ferry->reg[ACO_REG_IDX_FPU] = parent->reg[ACO_REG_IDX_FPU];
#endif
    void **return_address = (void **)(sp - ACO_RETPTR_SZ);
    *return_address = NULL;
    ferry->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)run_ferry;
    ferry->reg[ACO_REG_IDX_SP] = return_address;
    ferry->reg[ACO_REG_IDX_BP] = NULL;
    ferried = co;
    aco_gtls_co = parent;
    return ferry;
}

/* ==== Stress ================================================================================= */

#ifdef ACO_CONFIG_STRESS
/* Evicts the owner and overwrites the unused stack, after every yield. */
void aco_i_stress(aco_share_stack_t *share_stack)
{
    if (share_stack == NULL) {
        return; /* acosw() switched, and the program set aco_gtls_co */
    }
    aco_t *owner = share_stack->in_place;
    if (owner != NULL && owner->is_end) {
        give_up_stack(owner);
    } else if (owner != NULL) {
        evict(share_stack, owner, 0);
        share_stack->owner = share_stack->in_place = NULL;
    }
#ifndef ACO_USE_VALGRIND
    size_t limit = share_stack->align_limit;
    size_t sz = limit < STRESS_FILL_SZ ? limit : STRESS_FILL_SZ;
    memset((char *)share_stack->align_retptr - sz, STRESS_PATTERN, sz);
#endif
}
#endif
