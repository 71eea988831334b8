// SPDX-License-Identifier: Apache-2.0
/*
 * Share stacks, save stacks and the life of coroutines. The switch itself is in aco.h (inline) and
 * acosw.S; this file prepares for it what does not lie in place. Relies on libc and mmap() only,
 * and compiles as C99 and as C++11.
 *
 * Invariants, for a share stack s and a non-main coroutine co:
 *   I1  s->owner == NULL, or s->owner->share_stack == s; co->is_owner says the same from its side
 *   I2  co suspended and owner: its frames are in place, and reg[SP] lies within the stack, at or
 *       below align_retptr
 *   I3  co suspended and not owner: save_stack.valid_sz == align_retptr - reg[SP] <= save_stack.sz
 *       (0 in init)
 *   I4  *align_retptr is the protector's address
 *   I5  co runs if and only if aco_gtls_co is co; it and its ancestors, which wait for it, own
 *       their stacks, each until its aco_exit()
 *   I6  co->save_stack.ptr is to be freed if and only if co->blocks says so; otherwise it came in
 *       one block with co, or with the aco_t that co was copied from
 */

/* For MAP_ANONYMOUS and its kind, also where the dialect is strict. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

/* Emits the functions that are inline elsewhere. */
#define ACO_INLINE
#include "aco.h"

#include <errno.h>
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
#define SAVE_STACK_DEFAULT_SZ 64u          /* bytes: an entry function that mostly yields */
#define SAVE_STACK_GRANULE 16u             /* bytes; of the block of an aco_t and of later ones */
#define CO_SZ round_up(sizeof(aco_t), SAVE_STACK_GRANULE)
#define COPY_INLINE_MAX 255u               /* bytes; above, memcpy() is faster */
#define PREFETCH_MAX_SZ 2048u              /* bytes; more gained nothing */
#define CACHE_LINE_SZ 64u                  /* bytes; only speed depends on it */
#define FAILURE_LINE_SZ 400u               /* bytes, on a coroutine's stack */
#define RED_ZONE_SZ 128u                   /* bytes below SP that a leaf function may use */
#define FAKE_STACK_MIN_SZ ((size_t)1 << 16) /* bytes; of the stacks that ASan's limits allow */
#define FAKE_STACK_MAX_SZ ((size_t)1 << 20) /* bytes */
#define STRESS_FILL_SZ ((size_t)16 << 10)  /* bytes; as deep as tests go */
#define STRESS_PATTERN 0xa5

#define ALWAYS_INLINE inline __attribute__((always_inline))

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* ==== Failure ================================================================================ */

/*
 * Every failure ends in one line on stderr and abort(). The line is put together by hand, as it may
 * be on the last bytes of a coroutine's stack: printf() takes several KiB.
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

ACO_NORETURN static void die(line_t *line, const aco_t *co)
{
    put(line, " (coroutine 0x");
    put_number(line, (uintptr_t)co, 16);
    if (co != NULL) {
        put(line, ", entry function 0x");
        put_number(line, (uintptr_t)co->fp, 16);
    }
    put(line, ")");
    line->text[line->sz++] = '\n';
    for (size_t done = 0; done < line->sz;) {
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

/* Misuse: which call, which rule was broken and what to do, which coroutine. */
ACO_NORETURN static void fail(const char *call, const aco_t *co, const char *rule_and_remedy)
{
    line_t line;
    begin(&line, call);
    put(&line, rule_and_remedy);
    die(&line, co);
}

static inline void demand(int holds, const char *call, const aco_t *co, const char *rule_and_remedy)
{
    if (aco_unlikely(!holds)) {
        fail(call, co, rule_and_remedy);
    }
}

void aco_assert_failed(const char *text, const char *file, int line_number, const char *function)
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

/* For the inline functions: what only a running coroutine may call, or what wants a coroutine. */
void aco_misuse(const char *call, const aco_t *co)
{
    demand(co != NULL, call, co, "no coroutine: the argument or aco_get_co() is NULL: "
           "call it in a coroutine, or pass what aco_create() returned");
    demand(co->main_co != NULL, call, co, "called by or for a main coroutine: "
           "call it in the entry function of a coroutine, or in what that calls");
    fail(call, co, "the coroutine is not the one that runs: let it call this itself");
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

/* The last request that failed, for words about it. */
static __thread struct {
    const char *function;
    size_t sz; /* bytes */
} failed;

/* Notes that `function` could not provide `sz` bytes; errno says why. */
static void *note_failure(const char *function, size_t sz)
{
    failed.function = function;
    failed.sz = sz;
    return NULL;
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
    put(&line, ": free something first, or raise the limit on memory or on mappings"
               " (vm.max_map_count)");
    die(&line, co);
}

static void *try_allocate(size_t sz)
{
    void *ptr = allocate(sz);
    return ptr != NULL ? ptr : note_failure("malloc", sz);
}

/* ==== Thread state =========================================================================== */

__thread aco_t *aco_gtls_co;
#ifdef ACO_CONFIG_LIST
__thread aco_t *aco_gtls_list;
#endif

/* The names without a configuration, for debuggers and bindings. */
extern __thread aco_t *aco_gtls_co_plain __asm__(ACO_STR(__USER_LABEL_PREFIX__) "aco_gtls_co")
    __attribute__((alias(ACO_SYMBOL("aco_gtls_co"))));
void aco_thread_init_plain(aco_cofuncp_t last_word) __asm__(ACO_STR(__USER_LABEL_PREFIX__)
    "aco_thread_init") __attribute__((alias(ACO_SYMBOL("aco_thread_init"))));

static __thread struct {
    char is_ready;            /* aco_thread_init() was called */
    uint32_t control_words;   /* of new coroutines, in the form of reg[ACO_REG_IDX_FPU] */
    aco_cofuncp_t last_word;  /* never NULL once ready */
} aco_thread;

int aco_version(void)
{
    return ACO_VERSION;
}

static void default_last_word(void)
{
    fail("aco_exit", aco_gtls_co,
         "the entry function returned: end it with aco_exit(), or see aco_return_ends()");
}

void aco_funcp_protector(void)
{
    aco_thread.last_word();
    abort();
}

/* Defined by acosw.S under a name with its configuration: another one does not link. */
extern const char ACO_SWITCH_CONFIG[];

void aco_runtime_test(void)
{
    const char *switch_config = ACO_SWITCH_CONFIG;
    ACO_LAUNDER(switch_config);
    aco_assert(switch_config != NULL); /* always so; without a use, there is no reference */
    long page_sz = sysconf(_SC_PAGESIZE);
    aco_assert(page_sz > 0 && (size_t)page_sz % STACK_ALIGNMENT == 0);
}

void aco_thread_init(aco_cofuncp_t last_word)
{
    aco_runtime_test();
    aco_save_fpucw_mxcsr(&aco_thread.control_words);
    aco_thread.last_word = last_word != NULL ? last_word : default_last_word;
    aco_thread.is_ready = 1;
}

/* ==== What tools must know =================================================================== */

/*
 * tell_stack_new(s), tell_stack_destroyed(s)
 * tell_created(co)
 * tell_saved(co, sp)     the frames of `co` from `sp` up were copied out of its share stack
 * tell_acquired(co, sp)  `co` gets its share stack, and its frames are about to come to `sp`
 * tell_ferry(ferry, parent)  `ferry` is switched to in the place of `parent`, on its stack
 * tell_abandoned(co)     `co`, which owns its share stack, will never use its frames again
 * tell_destroyed(co)
 */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)

/* Whether the switch to `co` is a call of its entry function. */
static int starts(const aco_t *co)
{
    return co->share_stack != NULL && co->reg[ACO_REG_IDX_SP] == co->share_stack->align_retptr;
}

#endif
#if defined(ACO_USE_VALGRIND) && !defined(NVALGRIND) /* it says so where it has no port */

static void tell_stack_new(aco_share_stack_t *s)
{
    s->valgrind_stk_id = VALGRIND_STACK_REGISTER(s->ptr, (char *)s->ptr + s->sz - 1);
}

static void tell_stack_destroyed(aco_share_stack_t *s)
{
    VALGRIND_STACK_DEREGISTER(s->valgrind_stk_id);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(s->ptr, s->sz); /* it may be the caller's */
}

/* Sets `ptr` to the frames from `sp` up, less the red zone below; returns their bytes. */
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

/* Definedness travels with the copy that follows. */
static void tell_acquired(aco_t *co, char *sp)
{
    char *ptr;
    size_t sz = frames(co->share_stack, sp, &ptr);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(ptr, sz);
}

/* It and the word below lie below the frames of `parent`. */
static void tell_ferry(aco_t *ferry, const aco_t *parent)
{
    char *low = (char *)ferry - ACO_RETPTR_SZ - RED_ZONE_SZ;
    (void)VALGRIND_MAKE_MEM_UNDEFINED(low, (size_t)((char *)parent->reg[ACO_REG_IDX_SP] - low));
}

#define tell_created(co) ((void)(co))
#define tell_abandoned(co) ((void)(co))
#define tell_destroyed(co) ((void)(co))

#elif defined(ACO_USE_ASAN)

/* The shadow byte of the 8 bytes of the program at `ptr`. */
static char *shadow_of(const void *ptr)
{
    size_t scale, offset;
    __asan_get_shadow_mapping(&scale, &offset);
    return (char *)(((uintptr_t)ptr >> scale) + offset);
}

/* No frame lies below `sp`, or from there up. Where nobody knows how deep frames that were
 * abandoned reached, as when a coroutine is reset by hand, it is the whole stack. */
static void forget_frames(const aco_share_stack_t *s, char *sp)
{
    char *low = sp == s->align_retptr ? (char *)s->ptr : sp;
    __asan_unpoison_memory_region(low, (size_t)((char *)s->align_highptr - low));
}

/* Bytes of the fake stack that ASan makes for a stack of `stack_sz`: a page, flags, and of each of
 * 11 sizes of frames as much as the stack has, rounded up to a power of two within limits. Not more:
 * a guard page may follow, which LSan would read. */
static size_t fake_stack_sz(size_t stack_sz)
{
    size_t sz = FAKE_STACK_MIN_SZ;
    while (sz < stack_sz && sz < FAKE_STACK_MAX_SZ) {
        sz *= 2;
    }
    return 4096 + sz / 32 + 11 * sz;
}

/* LSan finds the stack that a thread runs on; what a suspended coroutine has elsewhere than on a
 * share stack, it is told of: a fake stack and, of a main coroutine, the frames. */
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

/* Not through memcpy(), which ASan watches. */
aco_attr_no_asan static void copy_unwatched(void *to, const void *from, size_t sz)
{
    for (size_t i = 0; i < sz; i++) {
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
}

#define tell_ferry(ferry, parent) (*(ferry) = *(parent))

static void tell_created(aco_t *co)
{
    co->sanitizer_state = NULL;
    co->sanitizer_shadow = NULL;
    co->sanitizer_sp = NULL;
    if (co->share_stack != NULL) {
        co->stack_ptr = co->share_stack->ptr;
        co->stack_sz = co->share_stack->align_validsz;
    }
}

/* The red zones in and around locals travel with the frames. */
static void tell_saved(aco_t *co, char *sp)
{
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
        copy_unwatched(low, co->sanitizer_shadow,
                       (size_t)(shadow_of(co->share_stack->align_highptr) - low));
    }
    drop_shadow(co);
}

/* ASan frees the fake stack of a fiber only when that leaves for the last time. */
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

/* A coroutine that starts, perhaps again: what it left is nobody's. */
static void tell_started(aco_t *co)
{
    forget_frames(co->share_stack, (char *)co->share_stack->align_retptr);
    drop_fake_stack(co);
}

/* To ASan the switch is over before the stack pointer moves: what is in between is no business of
 * its, and a coroutine that starts could not tell it. */
aco_attr_no_asan void aco_tell_switch(aco_t *from, aco_t *to)
{
    char *sp = (char *)__builtin_frame_address(0);
    if (from->is_end) {
        forget_frames(from->share_stack, sp);
    }
    if (starts(to)) {
        tell_started(to);
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

static void tell_abandoned(aco_t *co)
{
    forget_frames(co->share_stack, (char *)co->reg[ACO_REG_IDX_SP]);
}

static void tell_destroyed(aco_t *co)
{
    drop_shadow(co);
    drop_fake_stack(co);
}

#else

#define tell_stack_new(s) ((void)0)
#define tell_stack_destroyed(s) ((void)0)
#define tell_saved(co, sp) ((void)0)
#define tell_abandoned(co) ((void)0)
#ifdef ACO_USE_TSAN

#define tell_ferry(ferry, parent) (*(ferry) = *(parent))

/* Others get a fiber later: an aco_t that is copied before its first resume has none yet. */
static void tell_created(aco_t *co)
{
    co->sanitizer_state = co->main_co == NULL ? __tsan_get_current_fiber() : NULL;
}

#define tell_acquired(co, sp) ((void)0)

static void tell_destroyed(aco_t *co)
{
    if (co->main_co != NULL && co->sanitizer_state != NULL) {
        __tsan_destroy_fiber(co->sanitizer_state);
    }
}

/* One that starts, perhaps again, gets a new fiber: the old one's calls would never return. */
void *aco_fiber_of(aco_t *co)
{
    if (co->sanitizer_state == NULL || starts(co)) {
        tell_destroyed(co);
        co->sanitizer_state = __tsan_create_fiber(0);
    }
    return co->sanitizer_state;
}

#else
#define tell_created(co) ((void)0)
#define tell_ferry(ferry, parent) ((void)0)
#define tell_acquired(co, sp) ((void)0)
#define tell_destroyed(co) ((void)0)
#endif
#endif

/* ==== Share stacks =========================================================================== */

/* Maps the stack of `s` and its guard page. Returns NULL on failure. */
static void *map_stack(aco_share_stack_t *s, size_t guard_sz)
{
    s->real_sz = s->sz + guard_sz;
    /* MAP_STACK keeps huge pages away, of which one would make a small stack cost 2 MiB. */
    s->real_ptr = mmap(NULL, s->real_sz, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (s->real_ptr == MAP_FAILED) {
        return note_failure("mmap", s->real_sz);
    }
    if (guard_sz != 0 && mprotect(s->real_ptr, guard_sz, PROT_NONE) != 0) {
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
    /* memcheck's unwinder does not read the last word of a stack, but must read the protector. */
    uintptr_t high = ((uintptr_t)s->ptr + s->sz) / STACK_ALIGNMENT * STACK_ALIGNMENT - TOP_SZ;
    s->align_highptr = (void *)high;
    s->align_retptr = (char *)s->align_highptr - ACO_RETPTR_SZ;
    s->align_validsz = high - (uintptr_t)s->ptr;
    s->align_limit = s->align_validsz - ACO_RETPTR_SZ;
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

aco_share_stack_t *aco_share_stack_new2(size_t sz, char guard_page_enabled)
{
    aco_share_stack_t *s = aco_try_share_stack_new2(sz, guard_page_enabled);
    if (s == NULL) {
        fail_alloc("aco_share_stack_new2", NULL);
    }
    return s;
}

aco_share_stack_t *aco_share_stack_new(size_t sz)
{
    return aco_share_stack_new2(sz, 1);
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

void aco_share_stack_destroy(aco_share_stack_t *share_stack)
{
    const char *call = "aco_share_stack_destroy";
    demand(share_stack != NULL, call, NULL,
           "the share stack is NULL: pass what aco_share_stack_new() returned");
    demand(share_stack->owner == NULL && share_stack->ct_coroutines == 0, call, share_stack->owner,
           "a coroutine that was created on the share stack still exists: destroy it first");
    tell_stack_destroyed(share_stack);
    if (share_stack->real_sz != 0) {
        munmap(share_stack->real_ptr, share_stack->real_sz);
        release(share_stack);
    }
}

/* ==== Save stacks ============================================================================ */

/*
 * How much copy_frames() may copy at once; known when this is compiled. SHORT says that all is at
 * most COPY_INLINE_MAX. Long frames are saved out from the cache to the cache: for that glibc's
 * memcpy(), from some 2 KiB on, is slow on Zen 3 of AMD (it leaves the copy to `rep movsb`),
 * hence the pieces. They are mostly restored from memory, where it is right.
 */
#define SHORT ((size_t)0)
#define LONG_SAVE ((size_t)2048)
#define LONG_RESTORE SIZE_MAX

/*
 * Copies frames, either way. Most are a few dozen bytes, for which a call costs more than the copy.
 * The moves must not overlap: what was restored is soon saved out again, and a load gets bytes that
 * are still on their way to the cache only if all of them come from one store.
 */
static ALWAYS_INLINE void copy_frames(void *to, const void *from, size_t sz, size_t at_once)
{
#define COPY_PIECE(piece)                                                                          \
    if (sz & (piece)) {                                                                            \
        memcpy(to, from, piece);                                                                   \
        to = (char *)to + (piece);                                                                 \
        from = (const char *)from + (piece);                                                       \
    }
#ifdef ACO_USE_ASAN
    copy_unwatched(to, from, sz);
    return;
#endif
    if (at_once != SHORT) {
        ACO_LAUNDER(at_once); /* or it is copied inline, with `rep movsb` */
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

/* Asks for saved frames, or the beginning of many, to come to the cache while others are saved. */
static inline void prefetch_frames(const void *ptr, size_t sz)
{
    const char *line = (const char *)ptr;
    const char *end = line + (sz < PREFETCH_MAX_SZ ? sz : PREFETCH_MAX_SZ);
    for (; line < end; line += CACHE_LINE_SZ) {
        __builtin_prefetch(line);
    }
}

/* Gives `co` another save stack, of `sz` bytes; what the old one held is lost. */
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

/*
 * Makes the save stack of `co` hold `sz` bytes. It grows by half at least, so that a stack which
 * gets deeper little by little costs little.
 */
static __attribute__((cold, noinline)) void grow_save_stack(aco_t *co, size_t sz)
{
    size_t half_more = co->save_stack.sz + co->save_stack.sz / 2;
    replace_save_stack(co, round_up(sz > half_more ? sz : half_more, SAVE_STACK_GRANULE));
}

/* Bytes of the frames of `co`, which is suspended and owns `s` (I2). */
static inline size_t in_place_sz(const aco_share_stack_t *s, const aco_t *co)
{
    return (size_t)((char *)s->align_retptr - (char *)co->reg[ACO_REG_IDX_SP]);
}

/*
 * Saves out the owner `co` of `s`, which is suspended (from I2 to I3). The caller gives the stack
 * another owner, or none. `is_short`, which is known when this is compiled: there are at most
 * COPY_INLINE_MAX bytes, and they fit the save stack.
 */
static ALWAYS_INLINE void evict(aco_share_stack_t *s, aco_t *co, int is_short)
{
    aco_save_stack_t *save = &co->save_stack;
    char *sp = (char *)co->reg[ACO_REG_IDX_SP];
    size_t sz = in_place_sz(s, co);
    demand(is_short || sz <= s->align_limit, "aco_resume", co, "the owner of the share stack has "
           "overrun it: give aco_share_stack_new2() a larger size, and a guard page");
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
    }
    save->ct_save++;
    copy_frames(save->ptr, sp, sz, is_short ? SHORT : LONG_SAVE);
    tell_saved(co, sp);
}

/* ==== Create, reset and destroy ============================================================== */

/* A main coroutine saves nothing; its save_stack.ptr tells on which thread it was made. */
static void *this_thread(void)
{
    return &aco_gtls_co;
}

/* Whether `co` runs, or waits for one that it has resumed. */
static int is_running(const aco_t *co)
{
    const aco_t *running = aco_gtls_co;
    while (running != NULL && running != co) {
        running = running->main_co;
    }
    return running != NULL;
}

#ifdef ACO_CONFIG_LIST
static void enter_in_list(aco_t *co)
{
    co->list_next = aco_gtls_list;
    co->list_link = &aco_gtls_list;
    co->list_self = co;
    if (co->list_next != NULL) {
        co->list_next->list_link = &co->list_next;
    }
    aco_gtls_list = co;
}

static void take_from_list(aco_t *co)
{
    if (co->list_self == co) {
        *co->list_link = co->list_next;
        if (co->list_next != NULL) {
            co->list_next->list_link = co->list_link;
        }
    }
}
#else
#define enter_in_list(co) ((void)0)
#define take_from_list(co) ((void)0)
#endif

/* What aco_create() and its kind can know to be wrong. */
static inline void check_create(const char *call, const aco_t *main_co,
                                const aco_share_stack_t *share_stack, size_t save_stack_sz,
                                aco_cofuncp_t fp, const void *arg)
{
    demand(aco_thread.is_ready, call, NULL,
           "the thread is not prepared: call aco_thread_init() first");
    if (main_co == NULL) {
        demand(share_stack == NULL && save_stack_sz == 0 && fp == NULL && arg == NULL, call, NULL,
               "main_co is NULL, but another argument is not: pass the main coroutine, or nothing "
               "at all to make one");
    } else {
        demand(share_stack != NULL && fp != NULL, call, NULL,
               "the share stack or the entry function is NULL: a coroutine needs both");
        demand(main_co->share_stack != share_stack, call, main_co,
               "main_co runs on the same share stack: give the new one another");
    }
}

/* State init: what a jump to `fp` needs. The frame pointer, 0, ends the chain of them. */
static void set_init(aco_t *co, aco_cofuncp_t fp, void *arg)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)fp;
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

/* Makes a coroutine in `sz` bytes at `memory`, the aco_t and its first save stack. */
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
    enter_in_list(co);
    if (main_co == NULL) {
        co->save_stack.ptr = this_thread();
    } else {
        share_stack->ct_coroutines++;
    }
    return co;
}

/* What aco_try_create() does in the name of `call`. */
static aco_t *try_create(const char *call, aco_t *main_co, aco_share_stack_t *share_stack,
                         size_t save_stack_sz, aco_cofuncp_t fp, void *arg)
{
    check_create(call, main_co, share_stack, save_stack_sz, fp, arg);
    if (main_co != NULL && save_stack_sz == 0) {
        save_stack_sz = SAVE_STACK_DEFAULT_SZ;
    }
    size_t sz = save_stack_sz <= SIZE_MAX - CO_SZ ? CO_SZ + save_stack_sz : SIZE_MAX;
    void *memory = try_allocate(sz);
    if (memory == NULL) {
        return NULL;
    }
    aco_t *co = create_at(memory, sz, main_co, share_stack, fp, arg);
    co->blocks = ACO_BLOCK_CO;
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
    check_create("aco_create_in", main_co, share_stack, 0, fp, arg);
    if (memory == NULL || (uintptr_t)memory % SAVE_STACK_GRANULE != 0 || sz < CO_SZ) {
        errno = EINVAL;
        return NULL;
    }
    return create_at(memory, sz, main_co, share_stack, fp, arg);
}

/* Its frames are nobody's any more. */
static void give_up_stack(aco_t *co)
{
    if (co->is_owner) {
        tell_abandoned(co);
        co->share_stack->owner = NULL;
    }
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
        /* A copy of an aco_t may have been destroyed as well. */
        if (co->share_stack->ct_coroutines > 0) {
            co->share_stack->ct_coroutines--;
        }
    }
    tell_destroyed(co);
    take_from_list(co);
    if (co->blocks & ACO_BLOCK_SAVE_STACK) {
        release(co->save_stack.ptr);
    }
    if (co->blocks & ACO_BLOCK_CO) {
        release(co);
    }
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
    return co->main_co != NULL && co->reg[ACO_REG_IDX_SP] == co->share_stack->align_retptr
               ? ACO_STATUS_INIT
               : ACO_STATUS_SUSPENDED;
}

int aco_on_own_stack(const void *ptr)
{
    const aco_t *co = aco_gtls_co;
    const aco_share_stack_t *s = co != NULL ? co->share_stack : NULL;
    return s != NULL && (uintptr_t)ptr - (uintptr_t)s->ptr < s->sz;
}

/* ==== Resume ================================================================================= */

static const aco_t *root_of(const aco_t *co)
{
    while (co->main_co != NULL) {
        co = co->main_co;
    }
    return co;
}

/*
 * For the inline aco_resume(), where the caller is not known to be the parent of `co`: at the first
 * resume of a thread, or after one with another main coroutine. Returns the parent.
 */
aco_t *aco_check_resume(const aco_t *co)
{
    const char *call = "aco_resume";
    const aco_t *caller = aco_gtls_co;
    demand(co != NULL, call, co, "the coroutine is NULL: pass what aco_create() returned");
    demand(co->main_co != NULL, call, co,
           "a main coroutine can't be resumed: aco_yield() continues it");
    demand(!co->is_end, call, co, "the coroutine has ended: test is_end, or make another one");
    demand(!is_running(co), call, co,
           "the coroutine is running, or waits for one it resumed: resume another one");
    demand(caller == co->main_co || ((caller == NULL || caller->main_co == NULL) &&
                                     co->main_co->main_co == NULL), call, co,
           "the caller is not its parent (main_co): call aco_yield() and let that resume it");
    demand(root_of(co)->save_stack.ptr == this_thread(), call, co,
           "its main coroutine belongs to another thread: resume it there, or hand it over");
    return co->main_co;
}

/* What aco_acquire() does with the frames. `is_short`: as for evict(), and so is the other copy. */
static ALWAYS_INLINE void exchange(aco_share_stack_t *s, aco_t *co, int is_short)
{
    aco_save_stack_t *save = &co->save_stack;
    size_t sz = save->valid_sz;
    if (s->owner != NULL) {
        demand(co->main_co->main_co == NULL || !is_running(s->owner), "aco_resume", co,
               "the owner of its share stack waits for the caller: give coroutines that resume "
               "each other share stacks of their own");
        evict(s, s->owner, is_short);
    }
    char *sp = (char *)s->align_retptr - sz;
    co->is_owner = 1;
    s->owner = co;
    tell_acquired(co, sp);
    if (sz != 0) {
        aco_assert(sp == co->reg[ACO_REG_IDX_SP]);
        save->valid_sz = 0;
        save->ct_restore++;
        copy_frames(sp, save->ptr, sz, is_short ? SHORT : LONG_RESTORE);
    }
}

static __attribute__((noinline)) void exchange_long(aco_share_stack_t *s, aco_t *co)
{
    prefetch_frames(co->save_stack.ptr, co->save_stack.valid_sz);
    exchange(s, co, 0);
}

/*
 * For the inline aco_resume(): makes `co`, suspended, the owner of its share stack. Check, evict,
 * restore (from I3 to I2). Where little is to be copied it calls nothing, and so has no registers
 * to keep.
 */
void aco_acquire(aco_t *co)
{
    if (aco_unlikely(co->is_end || co->main_co == NULL)) {
        aco_check_resume(co);
    }
    aco_share_stack_t *s = co->share_stack;
    const aco_t *owner = s->owner;
    size_t owner_sz = owner != NULL ? in_place_sz(s, owner) : 0;
    if (aco_likely((owner_sz | co->save_stack.valid_sz) <= COPY_INLINE_MAX &&
                   (owner == NULL || owner_sz <= owner->save_stack.sz))) {
        exchange(s, co, 1);
    } else {
        exchange_long(s, co);
    }
}

static void (*waker)(aco_t *co);

void aco_set_waker(void (*new_waker)(aco_t *co))
{
    __atomic_store_n(&waker, new_waker, __ATOMIC_RELAXED);
}

void aco_wake(aco_t *co)
{
    co->wakes = 0;
    __atomic_load_n(&waker, __ATOMIC_RELAXED)(co);
}

/* ==== Direct switch ========================================================================== */

/* What aco_yield_to() can know to be wrong. */
static void check_yield_to(const aco_t *self, const aco_t *co)
{
    const char *call = "aco_yield_to";
    if (self == NULL || self->main_co == NULL) {
        aco_misuse(call, self);
    }
    demand(co != NULL, call, co, "the coroutine is NULL: pass what aco_create() returned");
    demand(co->main_co == self->main_co, call, co,
           "it has another parent (main_co) than the caller: yield, and let that resume it");
    demand(!co->is_end, call, co, "the coroutine has ended: test is_end, or make another one");
}

/* What never returns must not be counted by TSan as called, nor have red zones of ASan. */
#if defined(ACO_USE_TSAN) && defined(__clang__)
#define UNWATCHED __attribute__((disable_sanitizer_instrumentation))
#elif defined(ACO_USE_TSAN)
#define UNWATCHED __attribute__((no_sanitize_thread))
#else
#define UNWATCHED aco_attr_no_asan
#endif

/* Whom run_ferry() brings in. */
static __thread aco_t *ferried;

UNWATCHED static void run_ferry(void)
{
    aco_t ferry, *from = &ferry, *co = ferried;
    aco_acquire(co);
    aco_gtls_co = co;
    ACO_TELL_SWITCH(co->main_co, co);
    ACO_SWITCH_UNTOLD(from, co);
    __builtin_unreachable();
}

/*
 * For the inline aco_yield_to(), where `co` is not in place. What copies it there can't run on the
 * stack of the caller, which may be the same: so it runs below the frames of the parent, as a
 * coroutine that is made there, and returned for the caller to switch to. It lasts until `co` runs.
 */
aco_t *aco_ferry(aco_t *co)
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
/* After every yield: nobody's frames stay in place, and what was there is gone. */
void aco_stress(aco_share_stack_t *share_stack)
{
    if (share_stack == NULL) {
        return; /* acosw() alone came back, and aco_gtls_co was set by hand */
    }
    if (share_stack->owner != NULL) {
        evict(share_stack, share_stack->owner, 0);
        share_stack->owner = NULL;
    }
#ifndef ACO_USE_VALGRIND
    size_t limit = share_stack->align_limit;
    size_t sz = limit < STRESS_FILL_SZ ? limit : STRESS_FILL_SZ;
    memset((char *)share_stack->align_retptr - sz, STRESS_PATTERN, sz);
#endif
}
#endif
