// SPDX-License-Identifier: Apache-2.0
/*
 * aco: asymmetric coroutines for C and C++. This header is the API, and below the bar "Internals"
 * the switch itself: it is inlined where a coroutine resumes or yields, so that the compiler saves
 * only live registers. The header needs no other file of the project. Link with aco.c and acosw.S,
 * compiled with the same configuration macros as the program.
 *
 * Vocabulary
 *   main coroutine      runs on its thread's own stack
 *   non-main coroutine  runs on a share stack
 *   parent              the coroutine that resumes another one, which has it as main_co: a main
 *                       coroutine, or a non-main one on another share stack
 *   share stack         a stack that coroutines run on
 *   standalone          a coroutine that has a share stack to itself: it is never copied
 *   copying             coroutines that take turns on one share stack
 *   owner               the coroutine whose frames lie on a share stack now: they are in place
 *   save stack          memory for the live frames of a coroutine while another one is the owner
 *   control words       the x87 control word and the control bits of MXCSR, or the counterpart on
 *                       another processor
 *
 * The states of a non-main coroutine are init (never resumed, or reset), running, yielded (in place
 * on its share stack, or saved out to its save stack) and end.
 *
 * Rules
 *   - A thread calls aco_thread_init(), then creates its main coroutine. Threads share nothing: a
 *     coroutine is resumed only on the thread that created its main coroutine.
 *   - An entry function ends with aco_exit(); returning from it is an error.
 *   - A thread ends on its own stack. If it calls pthread_exit() or is cancelled while a coroutine
 *     runs, unwinding reaches the entry function and ends in a message and abort().
 *   - The address of a local variable of a copying coroutine is valid only while that coroutine
 *     runs.
 *   - A failed allocation, and misuse that is detected, end in a message of one line on stderr and
 *     abort(). Functions named `*_try_*` or `*_in` return NULL with errno when memory runs out or
 *     does not suit. The use of a destroyed coroutine is not detected, nor is that of a local
 *     variable while its coroutine does not run: AddressSanitizer and ACO_CONFIG_STRESS find these.
 */
#ifndef ACO_H
#define ACO_H

#ifdef __ASSEMBLER__
#pragma GCC system_header /* -Wpedantic takes assembly for C90 */
#endif

/* ==== Version ================================================================================ */

#define ACO_VERSION_MAJOR 2
#define ACO_VERSION_MINOR 0
#define ACO_VERSION_PATCH 0
#define ACO_VERSION (ACO_VERSION_MAJOR * 10000 + ACO_VERSION_MINOR * 100 + ACO_VERSION_PATCH)

/* ==== Configuration ========================================================================== */

/*
 * For the whole program, library included:
 *   ACO_CONFIG_SHARE_FPU_MXCSR_ENV  all coroutines share one set of control words. The switch
 *                                   neither saves nor loads them: on x86 it is some 10 ns faster
 *   ACO_USE_VALGRIND                tells memcheck about share stacks and copies
 *   ACO_USE_ASAN, ACO_USE_TSAN      tell AddressSanitizer and ThreadSanitizer about stacks and
 *                                   switches. This header defines them if the compiler has the
 *                                   sanitizer on, and undefines them if not
 *   ACO_CONFIG_LIST                 lists the coroutines of each thread, for debuggers. Destroy a
 *                                   coroutine on its own thread, or after that thread has ended;
 *                                   if the aco_t was copied, destroy the original
 *   ACO_CONFIG_STRESS               finds stray pointers: every yield evicts, every eviction moves
 *                                   the save stack, and unused memory is overwritten
 * For a single translation unit:
 *   ACO_CONFIG_NO_INLINE_SWITCH     inline functions call acosw() instead of switching themselves.
 *                                   Needed where an attribute gives a function more registers than
 *                                   the compiler's options do; and with a global register variable
 *                                   such as `register long v __asm__("r15")`, which the inline
 *                                   switch overwrites without a warning by gcc, while acosw() keeps
 *                                   a value for each coroutine if the register is callee-saved
 *   ACO_CONFIG_DLOPEN               refers only to functions that it calls, for a program that
 *                                   opens the library at run time
 *
 * A translation unit and a library of different configurations do not link: the unit refers to the
 * library by a name that contains the configuration. With ACO_CONFIG_DLOPEN the program looks that
 * name up, as dlsym(library, ACO_CONFIG_NAME("aco_thread_init")). The result is NULL if the
 * configurations differ. Otherwise it is a void (*)(aco_cofuncp_t, int) that does what
 * aco_thread_init() does, and takes ACO_VERSION as its second argument.
 */

#if !defined(__ASSEMBLER__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ACO_SEES_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define ACO_SEES_TSAN
#endif
#endif
#undef ACO_USE_ASAN
#undef ACO_USE_TSAN
#if defined(__SANITIZE_ADDRESS__) || defined(ACO_SEES_ASAN)
#define ACO_USE_ASAN
#endif
#if defined(__SANITIZE_THREAD__) || defined(ACO_SEES_TSAN)
#define ACO_USE_TSAN
#endif

/* ==== System headers ========================================================================= */

#if defined(_WIN32) || defined(__CYGWIN__)
#error "aco has no block for Windows, whose ABI is another one: build for Linux, as in WSL"
#endif

#ifndef __ASSEMBLER__

/* Programs rely on getting all of these through this header. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef ACO_USE_VALGRIND
#include <valgrind/valgrind.h>
#endif

#define ACO_NORETURN __attribute__((noreturn))

/* The function does not dereference its n-th argument, which may point to uninitialized memory. */
#if defined(__GNUC__) && __GNUC__ >= 11
#define ACO_NOT_FOLLOWED(n) __attribute__((access(none, n)))
#else
#define ACO_NOT_FOLLOWED(n)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#endif /* __ASSEMBLER__ */

/* ==== Types ================================================================================== */

/*
 * The words of reg[], which hold the state of a suspended coroutine that is not on its stack. They
 * mean the same after an inline switch and after acosw(), so either can continue the other.
 */
#define ACO_REG_IDX_RETADDR 0 /* address at which it continues */
#define ACO_REG_IDX_SP 1      /* stack pointer */
#define ACO_REG_IDX_BP 2      /* frame pointer */
#define ACO_REG_IDX_FPU 3     /* control words; absent with ACO_CONFIG_SHARE_FPU_MXCSR_ENV */

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define ACO_REG_WORDS 3
#else
#define ACO_REG_WORDS 4
#endif

#ifndef __ASSEMBLER__

typedef struct aco_s aco_t;
typedef struct aco_share_stack_s aco_share_stack_t;

/* An entry function, or a last-word function. */
typedef void (*aco_cofuncp_t)(void);

/* Private memory of a coroutine for its live frames while another one owns its share stack. */
typedef struct {
    void *ptr;         /* the saved frames: ptr[0..valid_sz); in a main coroutine, &aco_gtls_co of
                        * its thread, or NULL if the program made it by hand */
    size_t sz;         /* bytes at ptr; grows when a save needs more */
    size_t valid_sz;   /* bytes saved out now; 0 in init and for the owner */
    size_t max_cpsz;   /* largest valid_sz so far: the best save_stack_sz */
    size_t ct_save;    /* times saved out */
    size_t ct_restore; /* times restored */
} aco_save_stack_t;

/* A stack that coroutines run on. It grows from align_retptr down to ptr. */
struct aco_share_stack_s {
    void *ptr;               /* lowest byte of the stack */
    size_t sz;               /* bytes at ptr; whole pages, unless in memory of the caller */
    void *align_highptr;     /* end of the part in use, aligned to 16 */
    void *align_retptr;      /* a word below it that always holds the protector's address */
    size_t align_limit;      /* bytes from ptr to align_retptr: the most that frames can take */
    size_t align_validsz;    /* bytes from ptr to align_highptr; the library does not use it */
    aco_t *owner;            /* in_place, to be read; a program may set it to NULL */
    size_t ct_coroutines;    /* private: coroutines that will start, or have started, on it */
    aco_t *in_place;         /* private: the owner, or NULL */
    size_t usual_sz;         /* private: bytes of a save stack where no size is given */
    char guard_page_enabled; /* 1: a write to the page below ptr faults */
    char is_pooled;          /* private: 1 if it belongs to a stack pool, which destroys it */
    char is_destroyed;       /* private: 1 if only this struct is left, for coroutines on it */
    void *real_ptr;          /* the mapping, guard page included */
    size_t real_sz;          /* its bytes; 0 in memory of the caller, which is not freed */
#ifdef ACO_USE_VALGRIND
    unsigned valgrind_stk_id; /* returned by VALGRIND_STACK_REGISTER */
#endif
};

/* A coroutine. The fields that a switch in place uses come first. */
struct aco_s {
    void *reg[ACO_REG_WORDS];       /* if it is suspended: see ACO_REG_IDX_* */
    aco_t *main_co;                 /* its parent; NULL for a main coroutine */
    char is_end;                    /* 1 after aco_exit() */
    char is_owner;                  /* 1 if it is share_stack->in_place */
    char blocks;                    /* ACO_BLOCK_*: what aco_destroy() frees; ACO_HAS_MARK */
    char wakes;                     /* not 0: see aco_set_waker() */
    int32_t base;                   /* see ACO_BASE; before the start, see ACO_HAS_MARK */
    aco_share_stack_t *share_stack; /* where it runs; NULL for a main coroutine */
    aco_save_stack_t save_stack;    /* at first in memory behind this struct */
    aco_cofuncp_t fp;               /* entry function */
    void *arg;                      /* the user's; see aco_get_arg() */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
    void *sanitizer_state;  /* ASan's fake stack while it is suspended; TSan's fiber */
    void *sanitizer_shadow; /* ASan's shadow bytes of saved frames */
    const void *stack_ptr;  /* lowest byte of the stack it runs on */
    size_t stack_sz;        /* bytes of that stack */
    void *sanitizer_sp;     /* no frame of a suspended main coroutine lies below; otherwise NULL */
#endif
#ifdef ACO_CONFIG_LIST
    aco_t *list_next; /* the next older coroutine of its thread */
    aco_t *list_prev; /* the next newer one; NULL for the newest */
    aco_t *list_self; /* this coroutine; in a copy, the original, since copies are not listed */
#endif
};

/* ==== Life of a thread ======================================================================= */

/*
 * Prepares the calling thread; call it once per thread before any other function. Coroutines that
 * the thread creates later start with the control words that the thread has now. When a coroutine
 * returns from its entry function, `last_word` is called on the coroutine's stack; the process
 * aborts when it returns. NULL keeps the last-word function that is set; the default one prints a
 * message with the coroutine and its entry function. May be called again, to change either. Where
 * it was not called, aco_create() calls it with NULL. Aborts if the library contradicts itself (see
 * aco_runtime_test()), and if the caller's header is of another major version than the library, or
 * newer.
 */
void aco_thread_init(aco_cofuncp_t last_word);

/*
 * Sets the allocator: `allocate` returns blocks of `sz` bytes aligned to 16, or NULL with errno;
 * `release` frees them. Call it before any other function. It applies to all threads; the default
 * is malloc() and free(). Share stacks are mapped, not allocated.
 */
void aco_set_allocator(void *(*allocate)(size_t sz), void (*release)(void *ptr));

/* The version of the linked library, to be compared with ACO_VERSION, the version of the header. */
int aco_version(void);

/*
 * Checks at run time that aco.c, acosw.S and the system fit together, as far as this cannot be
 * checked earlier. Aborts with a message if they do not. aco_thread_init() calls it.
 */
void aco_runtime_test(void);

/* ==== Share stacks =========================================================================== */

/*
 * Creates a share stack with room for `sz` bytes of frames or more, at least 4096; 0 means 2 MiB.
 * Sizes are rounded up to whole pages. If `guard_page_enabled` is 1, a write to the page below
 * faults, so that an overflow is a SIGSEGV; if it is 0, an overflow silently corrupts memory. A
 * frame larger than a page can skip the guard page, unless the program is compiled with
 * -fstack-clash-protection, which makes functions touch each page of such a frame. Memory is
 * committed when it is first touched, in small pages. Cost: some microseconds (system calls, and a
 * page fault for each page when first touched); reuse share stacks. Aborts if memory or mappings
 * run out.
 */
aco_share_stack_t *aco_share_stack_new2(size_t sz, char guard_page_enabled);

/* The same as aco_share_stack_new2(sz, 1). */
aco_share_stack_t *aco_share_stack_new(size_t sz);

/* The same as aco_share_stack_new2(), but returns NULL with errno if memory or mappings run out. */
aco_share_stack_t *aco_try_share_stack_new2(size_t sz, char guard_page_enabled);

/*
 * Creates a share stack in the `sz` bytes at `memory`: the struct lies at their end, and the stack
 * below it. The memory is the caller's again after the share stack and all coroutines on it are
 * destroyed. Nothing is allocated. There is no guard page, unless the caller places one below and
 * sets guard_page_enabled and real_ptr accordingly. Huge pages, one of which makes a small stack
 * cost 2 MiB, are not kept away: call madvise() for that. Returns NULL with EINVAL if `memory` is
 * NULL or too small for a stack of 4096 bytes.
 */
aco_share_stack_t *aco_share_stack_new_in(void *memory, size_t sz);

/*
 * Frees a share stack. Coroutines on it that do not run may be destroyed later, in any order. Until
 * then the struct remains, and resuming one of them aborts. Cost: some microseconds (a system
 * call). Aborts if it is NULL, or if a coroutine on it is running or waits for one that it resumed.
 */
void aco_share_stack_destroy(aco_share_stack_t *share_stack);

/* ==== Life of a coroutine ==================================================================== */

/*
 * Creates a coroutine in state init. It runs `fp` on `share_stack` when its parent `main_co` first
 * resumes it. The parent is a main coroutine, or any other one on another share stack. None of the
 * three may be NULL, except `fp` if reg[] is set by hand before the first resume. `arg` is for
 * aco_get_arg(). `save_stack_sz` is the size of its first save stack in bytes, which grows when
 * needed; 0 means 64, or up to 512 if coroutines on this share stack have needed that. The
 * arguments (NULL, NULL, 0, fp, arg), of which the last two are usually NULL, create the main
 * coroutine of the calling thread. May be called from any coroutine. Cost: one malloc(). Aborts on
 * misuse and if memory runs out.
 */
aco_t *aco_create(aco_t *main_co, aco_share_stack_t *share_stack, size_t save_stack_sz,
                  aco_cofuncp_t fp, void *arg);

/* The same as aco_create(), but returns NULL with errno if memory runs out. */
aco_t *aco_try_create(aco_t *main_co, aco_share_stack_t *share_stack, size_t save_stack_sz,
                      aco_cofuncp_t fp, void *arg);

/*
 * The same as aco_create() in the `sz` bytes at `memory`, which belong to the caller before and
 * after: they hold the aco_t and, in the rest, its first save stack. Nothing is allocated, now or
 * later, unless the save stack must grow. Returns NULL with EINVAL if `memory` is not aligned to 16
 * bytes or has fewer than sizeof(aco_t) rounded up to 16.
 */
aco_t *aco_create_in(void *memory, size_t sz, aco_t *main_co, aco_share_stack_t *share_stack,
                     aco_cofuncp_t fp, void *arg);

/*
 * Resets a coroutine in any state but running to init, to run `fp` with `arg`. It keeps its share
 * stack, save stack and statistics, and gets the control words that aco_thread_init() last found.
 * Nothing on its stack is unwound. Cost: a few ns. Aborts on misuse.
 */
void aco_reset(aco_t *co, aco_cofuncp_t fp, void *arg);

/*
 * Starts or continues `co`; returns when it yields or exits. The caller must be co->main_co, and
 * `co` must not have ended. Cost: a few ns if `co` owns its share stack or no coroutine does.
 * Otherwise the live frames of the owner are copied out, and those of `co` in. The caller keeps its
 * control words, and `co` has its own, unless the configuration shares them. Aborts on misuse, if
 * the owner has overrun its share stack, and if memory for the owner's save stack runs out.
 */
void aco_resume(aco_t *co);

/*
 * Suspends the calling coroutine and continues its parent; returns when resumed. The caller must be
 * a non-main coroutine, and in aco_yield1() it must be `co`. Cost: a few ns. Aborts on misuse.
 */
void aco_yield(void);
void aco_yield1(aco_t *co);

/*
 * Suspends the calling coroutine and starts or continues `co`, another one of the same parent that
 * has not ended: does what aco_yield(), and then aco_resume(co) by the parent, would do, with one
 * switch. When one of the two yields, the parent continues behind its last resume. Cost: a few ns
 * if `co` owns its share stack. Otherwise frames are copied as in aco_resume(), by code that runs
 * on the stack of the parent and needs some KiB there. Aborts on misuse and as aco_resume() does.
 */
void aco_yield_to(aco_t *co);

/*
 * Ends the calling coroutine, which gives up its share stack, and continues its parent. The caller
 * must be a non-main coroutine, and in aco_exit1() it must be `co`. Nothing on its stack is
 * unwound. Cost: a few ns. Aborts on misuse.
 */
ACO_NORETURN void aco_exit(void);
ACO_NORETURN void aco_exit1(aco_t *co);

/*
 * Frees a coroutine in any state but running, and its save stack. If it owns its share stack, it
 * gives that up. Nothing on its stack is unwound. A main coroutine is destroyed by its own thread,
 * on the thread's stack. Coroutines whose parent is destroyed must not be resumed any more, which
 * is not detected: destroy them, too. Cost: one or two free(). Aborts on misuse.
 */
void aco_destroy(aco_t *co);

/* ==== Questions ============================================================================== */

/*
 * The running coroutine, which is also in the thread-local variable aco_gtls_co. On the thread's
 * own stack: NULL before the first aco_resume() of the thread, the main coroutine after it.
 */
aco_t *aco_get_co(void);
aco_t *aco_co(void);

/* aco_get_co()->arg. Aborts if aco_get_co() is NULL. */
void *aco_get_arg(void);

/* 1 if `co` is a main coroutine, otherwise 0. Aborts if it is NULL. */
int aco_is_main_co(const aco_t *co);

/* The state of `co`. The coroutine that runs is running, and so is each that waits for one that it
 * resumed, up to the main coroutine. Other main coroutines are suspended, and so is the thread's
 * own before its first resume. Aborts if `co` is NULL. */
typedef enum {
    ACO_STATUS_INIT,
    ACO_STATUS_RUNNING,
    ACO_STATUS_SUSPENDED,
    ACO_STATUS_END
} aco_status_t;
aco_status_t aco_status(const aco_t *co);

/*
 * Whether `ptr` points into the share stack that the caller runs on; 0 on the thread's own stack.
 * Debug checks use it for pointers that something else, such as the kernel or another coroutine,
 * keeps while the caller is suspended: the stack of a copying coroutine then holds other frames,
 * while a standalone one may pass such pointers. Any pointer will do, as it is not dereferenced.
 * Where AddressSanitizer detects use after return, locals lie on no stack and stay in place: 0.
 */
int aco_on_own_stack(const void *ptr) ACO_NOT_FOLLOWED(1);

/* ==== Assertions ============================================================================= */

/* Check a condition, in every build: on failure, print a message with the place, then abort(). */
#define aco_assert(EX) ACO_ASSERT(EX, "assertion failed: " #EX)
#define aco_assertptr(ptr) ACO_ASSERT((ptr) != NULL, "assertion failed: " #ptr " is NULL")
#define aco_assertalloc_bool(b) ACO_ASSERT(b, "out of memory: " #b)
#define aco_assertalloc_ptr(ptr) ACO_ASSERT((ptr) != NULL, "out of memory: " #ptr " is NULL")

/* Sets `ptr` to `sz` bytes from malloc(), or prints a message and aborts. */
#define aco_new(ptr, sz)                                                                           \
    do {                                                                                           \
        (ptr) = ACO_CAST(__typeof__(ptr), malloc(sz));                                             \
        aco_assertalloc_ptr(ptr);                                                                  \
    } while (0)

/* Tell the compiler that a condition usually holds, or usually does not. */
#define aco_likely(EX) (__builtin_expect(!!(EX), 1))
#define aco_unlikely(EX) (__builtin_expect(!!(EX), 0))

/* ==== For bindings, debuggers and the curious ================================================ */

/*
 * The switch as a function, in assembly (acosw.S): suspends `from`, which must be the caller, and
 * continues `to`, which must be suspended with its frames in place. Returns when `from` is
 * continued; the value means nothing. Nothing is checked or copied, and the caller sets
 * aco_gtls_co. With a sanitizer, call ACO_TELL_SWITCH(from, to) right before. It does not matter by
 * which of acosw() and the inline switch a coroutine was suspended.
 */
void *acosw(aco_t *from, aco_t *to);

/* Writes the caller's control words to the 4 bytes at `p`, in the form of reg[ACO_REG_IDX_FPU]. */
void aco_save_fpucw_mxcsr(void *p);

/*
 * Sets the function that a woken coroutine calls, for optional parts. When a suspended coroutine
 * whose field `wakes` is not 0 is continued, it calls `waker` on its own stack before it returns
 * from aco_yield() or aco_yield_to(); `wakes` is 0 again by then. This does not apply if it was
 * suspended by acosw() alone. The process has one waker.
 */
void aco_set_waker(void (*waker)(aco_t *co));

/* The return address of entry functions, which every *align_retptr holds. Not callable. */
void aco_funcp_protector_asm(void);

/* Called by aco_funcp_protector_asm(): calls the thread's last-word function, then aborts. */
ACO_NORETURN void aco_funcp_protector(void);

/* Keeps AddressSanitizer out of a function that accesses another coroutine's frames. */
#define aco_attr_no_asan __attribute__((no_sanitize_address))

#endif /* __ASSEMBLER__ */

/* ==== Internals: users can stop reading here ================================================= */

/*
 * Below are the inline switch and what it needs. Names that appear neither above this line nor in
 * the section "For parts" may change with any version.
 */

/* The configuration, as a part of names. */
#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define ACO_SWITCH_CONFIG aco_acosw_shareFPUenv
#else
#define ACO_SWITCH_CONFIG aco_acosw_standaloneFPUenv
#endif
#ifdef ACO_USE_VALGRIND
#define ACO_TAG_VALGRIND "_valgrind"
#else
#define ACO_TAG_VALGRIND "_no_valgrind"
#endif
#if defined(ACO_USE_ASAN)
#define ACO_TAG_SANITIZER "_asan"
#elif defined(ACO_USE_TSAN)
#define ACO_TAG_SANITIZER "_tsan"
#else
#define ACO_TAG_SANITIZER ""
#endif
#ifdef ACO_CONFIG_LIST
#define ACO_TAG_LIST "_list"
#else
#define ACO_TAG_LIST ""
#endif
#ifdef ACO_CONFIG_STRESS
#define ACO_TAG_STRESS "_stress"
#else
#define ACO_TAG_STRESS ""
#endif
#define ACO_CONFIG_NAME(name)                                                                      \
    name "_" ACO_STR(ACO_SWITCH_CONFIG)                                                            \
        ACO_TAG_VALGRIND ACO_TAG_SANITIZER ACO_TAG_LIST ACO_TAG_STRESS
#define ACO_CONFIGURED(name) ACO_SYMBOL(ACO_CONFIG_NAME(name))

/* Gives a declaration a name for linkers that is not its own. */
#define ACO_SYMBOL(name) __asm__(ACO_STR(__USER_LABEL_PREFIX__) name)

/* ==== Processor ============================================================================== */

/* clang-format off */

/*
 * Each processor has one block here and one in acosw.S; docs/porting.md has the requirements. The
 * block defines
 *   ACO_WORD           bytes of a register
 *   ACO_RETPTR_SZ      bytes from align_retptr to align_highptr, such that SP at align_retptr is as
 *                      an entry function expects
 *   ACO_AT(offset, co) the memory operand at an offset from the register `co`
 * and may define
 *   ACO_SWITCH_ASM(from, to)  a statement that suspends `from` and continues `to`. When `from`
 *                             is continued, the variable `to` holds it.
 * Without the latter, the inline functions call acosw(). The statement fills reg[] and declares
 * every other register as clobbered, so the compiler saves those that are live, and no others.
 *
 * All switches share one convention: the register that holds `to` at the jump still holds it on
 * arrival, and so tells the coroutine that is continued which one it is.
 */
#define ACO_STR(...) ACO_STR_EXPANDED(__VA_ARGS__)
#define ACO_STR_EXPANDED(...) #__VA_ARGS__

/* Operand syntax and instruction separator shared by acosw.S and the inline assembly. */
#define ACO_REG(name, co) ACO_AT(ACO_WORD*ACO_REG_IDX_##name, co)
#if !defined(__APPLE__) || !defined(__aarch64__)
#define ACO_NL ;
#elif defined(__ASSEMBLER__)
#define ACO_NL %%
#else
#define ACO_NL %%%%
#endif

/* gcc has no macro for -fsanitize=shadow-call-stack, which does not work with aco either. */
#ifdef __has_feature
#if __has_feature(shadow_call_stack) || __has_feature(ptrauth_calls)
#error "aco switches no shadow call stack, and signs no function pointer: compile without these"
#endif
#if __has_feature(safe_stack)
#error "aco does not switch the second stack of -fsanitize=safe-stack: compile without it"
#endif
#endif

#if defined(__x86_64__) && defined(__LP64__)

#define ACO_ARCH_X86_64
#define ACO_WORD 8
#define ACO_RETPTR_SZ 8
#ifdef __APPLE__
#define ACO_LOAD_CONTROL_WORDS call _aco_i_load_fpucw_mxcsr
#else
#define ACO_LOAD_CONTROL_WORDS call aco_i_load_fpucw_mxcsr@PLT
#endif

#define ACO_SWITCH_ASM(from, to)                                                                   \
    __asm__ volatile(ACO_ATT_BEGIN                                                                 \
                     ACO_SAVE_BASE("movq %%rbx, %%rax\n\tsubq %%rsp, %%rax\n\tmovl %%eax, ",       \
                                       rdi)                                                        \
                     "leaq 1f(%%rip), %%rax\n\t"                                                   \
                     "movq %%rax, " ACO_STR(ACO_REG(RETADDR, rdi)) "\n\t"                          \
                     "movq %%rsp, " ACO_STR(ACO_REG(SP, rdi)) "\n\t"                               \
                     "movq %%rbp, " ACO_STR(ACO_REG(BP, rdi)) "\n\t"                               \
                     ACO_STR(ACO_SWITCH_CONTROL_WORDS(rdi, rsi, ACO_LOAD_CONTROL_WORDS)) "\n\t"    \
                     ACO_CFI_BEGIN(0x75, 6, 16)                                                    \
                     "movq " ACO_STR(ACO_REG(BP, rsi)) ", %%rbp\n\t"                               \
                     "movq " ACO_STR(ACO_REG(SP, rsi)) ", %%rsp\n\t"                               \
                     "jmpq *" ACO_STR(ACO_REG(RETADDR, rsi)) "\n\t"                                \
                     ACO_CFI_END("int3")                                                           \
                     "1:\n\t" ACO_LANDING_PAD("endbr64\n\t")                                       \
                     ACO_RESTORE_BASE("movslq ", rsi, ", %%rbx\n\taddq %%rsp, %%rbx\n\t")          \
                     ACO_ATT_END                                                                   \
                     : "+D"(from), "+S"(to)                                                        \
                     :                                                                             \
                     : "memory", "cc", "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11",       \
                       "r12", "r13", "r14", "r15" ACO_CLOBBER_X87 ACO_CLOBBER_VECTOR               \
                       ACO_CLOBBER_VECTOR_64 ACO_CLOBBER_APX)

#elif defined(__i386__)

#define ACO_ARCH_I386
#define ACO_WORD 4
#define ACO_RETPTR_SZ 4

/* Position-independent code gets its address from aco_i_get_pc_edx, and loads ebx to call through
 * the PLT. Each object has that function, since one in another library would itself be called
 * through the PLT. It is written in bytes, which are right in both syntaxes. Link-time optimization
 * may replace its label by that of another object: so it is in no section group, and its size is a
 * number. */
#ifdef __PIC__
#define ACO_LEA_RESUME_ADDRESS call aco_i_get_pc_edx; 3: leal 1f-3b(ACO_R(edx)), ACO_R(edx)
#define ACO_LOAD_CONTROL_WORDS                                                                     \
    call aco_i_get_pc_edx; 4: leal _GLOBAL_OFFSET_TABLE_+(.-4b)(ACO_R(edx)), ACO_R(ebx);           \
    call aco_i_load_fpucw_mxcsr@PLT
#ifndef __ASSEMBLER__
__asm__(".ifndef aco_i_get_pc_edx\n"
        ".pushsection .text.aco_i_get_pc_edx, \"ax\", @progbits\n"
        ".weak aco_i_get_pc_edx\n"
        ".hidden aco_i_get_pc_edx\n"
        ".type aco_i_get_pc_edx, @function\n"
        "aco_i_get_pc_edx:\n"
        ".cfi_startproc\n"
        ".byte 0x8b, 0x14, 0x24\n" /* movl (%esp), %edx */
        ".byte 0xc3\n"             /* ret */
        ".cfi_endproc\n"
        ".size aco_i_get_pc_edx, 4\n"
        ".popsection\n"
        ".endif\n");
#endif
#else
#define ACO_LEA_RESUME_ADDRESS leal 1f, ACO_R(edx)
#define ACO_LOAD_CONTROL_WORDS call aco_i_load_fpucw_mxcsr
#endif

#define ACO_SWITCH_ASM(from, to)                                                                   \
    __asm__ volatile(ACO_ATT_BEGIN                                                                 \
                     ACO_SAVE_BASE("movl %%esi, %%edx\n\tsubl %%esp, %%edx\n\tmovl %%edx, ",       \
                                       eax)                                                        \
                     ACO_STR(ACO_LEA_RESUME_ADDRESS) "\n\t"                                        \
                     "movl %%edx, " ACO_STR(ACO_REG(RETADDR, eax)) "\n\t"                          \
                     "movl %%esp, " ACO_STR(ACO_REG(SP, eax)) "\n\t"                               \
                     "movl %%ebp, " ACO_STR(ACO_REG(BP, eax)) "\n\t"                               \
                     ACO_STR(ACO_SWITCH_CONTROL_WORDS(eax, ecx, ACO_LOAD_CONTROL_WORDS)) "\n\t"    \
                     ACO_CFI_BEGIN(0x70, 5, 8)                                                     \
                     "movl " ACO_STR(ACO_REG(BP, ecx)) ", %%ebp\n\t"                               \
                     "movl " ACO_STR(ACO_REG(SP, ecx)) ", %%esp\n\t"                               \
                     "jmpl *" ACO_STR(ACO_REG(RETADDR, ecx)) "\n\t"                                \
                     ACO_CFI_END("int3")                                                           \
                     "1:\n\t" ACO_LANDING_PAD("endbr32\n\t")                                       \
                     ACO_RESTORE_BASE("movl ", ecx, ", %%esi\n\taddl %%esp, %%esi\n\t")            \
                     ACO_ATT_END                                                                   \
                     : "+a"(from), "+c"(to)                                                        \
                     :                                                                             \
                     : "memory", "cc", "ebx", "edx", "esi", "edi" ACO_CLOBBER_X87                  \
                       ACO_CLOBBER_VECTOR)

#elif defined(__aarch64__) && defined(__LP64__) && !defined(__AARCH64EB__)

#define ACO_ARCH_ARM64
#define ACO_WORD 8
#define ACO_RETPTR_SZ 16
#define ACO_AT(offset, co) [co, offset]

/* The jump is by x17, one of the two registers by which a jump may arrive at a landing pad for
 * calls, the only one that an entry function has. x30 is loaded from the word at SP, which is the
 * return address of an entry function; otherwise x30 is clobbered anyway. */
#define ACO_SWITCH_ASM(from, to)                                                                   \
    do {                                                                                           \
        register aco_t *aco_i_from __asm__("x0") = from, *aco_i_to __asm__("x1") = to;             \
        ACO_DIAGNOSTIC_PUSH                                                                        \
        __asm__ volatile(                                                                          \
            ACO_SAVE_BASE("mov x3, sp\n\tsub x2, x19, x3\n\tstr w2, ", x0)                         \
            "adr x2, 1f\n\t"                                                                       \
            "mov x3, sp\n\t"                                                                       \
            "str x2, " ACO_STR(ACO_REG(RETADDR, x0)) "\n\t"                                        \
            "str x3, " ACO_STR(ACO_REG(SP, x0)) "\n\t"                                             \
            "str x29, " ACO_STR(ACO_REG(BP, x0)) "\n\t"                                            \
            ACO_STR(ACO_SWITCH_CONTROL_WORDS(x0, x1)) "\n\t"                                       \
            "ldr x17, " ACO_STR(ACO_REG(RETADDR, x1)) "\n\t"                                       \
            "ldr x3, " ACO_STR(ACO_REG(SP, x1)) "\n\t"                                             \
            ACO_CFI_BEGIN(0x70, 29, 30) ACO_CFI_UNSIGNED                                           \
            "ldr x29, " ACO_STR(ACO_REG(BP, x1)) "\n\t"                                            \
            "mov sp, x3\n\t"                                                                       \
            "ldr x30, [sp]\n\t"                                                                    \
            "br x17\n\t"                                                                           \
            ACO_CFI_END("brk 0")                                                                   \
            "1:\n\t" ACO_LANDING_PAD("hint 36\n\t") /* bti j */                                    \
            ACO_RESTORE_BASE("ldrsw x19, ", x1, "\n\tadd x19, sp, x19\n\t")                        \
            : "+r"(aco_i_from), "+r"(aco_i_to)                                                     \
            :                                                                                      \
            : "memory", "cc", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", \
              "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24",  \
              "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7",   \
              "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19",    \
              "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",         \
              "v31" ACO_CLOBBER_PREDICATES);                                                       \
        ACO_DIAGNOSTIC_POP                                                                         \
        to = aco_i_to;                                                                             \
    } while (0)

/* Stores FPCR of `from`, and loads that of `to` if it differs. FPCR has control bits only; the
 * flags are in FPSR, which any call may change. Changes x2 and x3. */
#define ACO_SWITCH_CONTROL_WORDS(from, to)                                                         \
    ACO_UNLESS_SHARED(mrs x2, fpcr ACO_NL                                                          \
                      str w2, ACO_REG(FPU, from) ACO_NL                                            \
                      ldr w3, ACO_REG(FPU, to) ACO_NL                                              \
                      cmp w2, w3 ACO_NL                                                            \
                      b.eq 2f ACO_NL                                                               \
                      msr fpcr, x3 ACO_NL                                                          \
                      2:)

/* The address in reg[] is not signed, even if the return address of the enclosing function is. */
#if defined(__ARM_FEATURE_PAC_DEFAULT) && defined(__GCC_HAVE_DWARF2_CFI_ASM)
#define ACO_CFI_UNSIGNED ".cfi_negate_ra_state\n\t"
#else
#define ACO_CFI_UNSIGNED
#endif

/* Clobbering v0-v31 clobbers the vector registers of SVE, whose lower parts they are. A function
 * must not contain the inline switch if it gets SVE or branch protection from an attribute instead
 * of an option, or keeps SME's ZA or SVE's FFR over a switch. */
#ifdef __ARM_FEATURE_SVE
#define ACO_CLOBBER_PREDICATES                                                                     \
    , "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13",      \
        "p14", "p15"
#else
#define ACO_CLOBBER_PREDICATES
#endif

#elif defined(__riscv) && __riscv_xlen == 64 && defined(__riscv_float_abi_double)

#define ACO_ARCH_RISCV64
#define ACO_WORD 8
#define ACO_RETPTR_SZ 16
#define ACO_AT(offset, co) offset(co)

/* The jump is by t2, which needs no landing pad where other jumps do (Zicfilp). */
#define ACO_SWITCH_ASM(from, to)                                                                   \
    do {                                                                                           \
        register aco_t *aco_i_from __asm__("a0") = from, *aco_i_to __asm__("a1") = to;             \
        ACO_DIAGNOSTIC_PUSH                                                                        \
        __asm__ volatile(                                                                          \
            ACO_SAVE_BASE("sub a2, s1, sp\n\tsw a2, ", a0)                                         \
            "lla a2, 1f\n\t"                                                                       \
            "sd a2, " ACO_STR(ACO_REG(RETADDR, a0)) "\n\t"                                         \
            "sd sp, " ACO_STR(ACO_REG(SP, a0)) "\n\t"                                              \
            "sd s0, " ACO_STR(ACO_REG(BP, a0)) "\n\t"                                              \
            ACO_STR(ACO_SWITCH_CONTROL_WORDS(a0, a1)) "\n\t"                                       \
            "ld t2, " ACO_STR(ACO_REG(RETADDR, a1)) "\n\t"                                         \
            ACO_CFI_BEGIN(0x7a, 8, 1)                                                              \
            "ld s0, " ACO_STR(ACO_REG(BP, a1)) "\n\t"                                              \
            "ld sp, " ACO_STR(ACO_REG(SP, a1)) "\n\t"                                              \
            "ld ra, 0(sp)\n\t"                                                                     \
            "jr t2\n\t"                                                                            \
            ACO_CFI_END("ebreak")                                                                  \
            "1:\n\t"                                                                               \
            ACO_RESTORE_BASE("lw s1, ", a1, "\n\tadd s1, s1, sp\n\t")                              \
            : "+r"(aco_i_from), "+r"(aco_i_to)                                                     \
            :                                                                                      \
            : "memory", "ra", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a2", "a3", "a4", "a5",    \
              "a6", "a7", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",      \
              "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "ft8", "ft9", "ft10",        \
              "ft11", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6", "fa7", "fs0", "fs1", "fs2", \
              "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11" ACO_CLOBBER_VECTOR); \
        ACO_DIAGNOSTIC_POP                                                                         \
        to = aco_i_to;                                                                             \
    } while (0)

/* Stores the rounding mode of `from`, the only control bits of fcsr, and loads that of `to` if it
 * differs. Changes a2 and a3. */
#define ACO_SWITCH_CONTROL_WORDS(from, to)                                                         \
    ACO_UNLESS_SHARED(frrm a2 ACO_NL                                                               \
                      sw a2, ACO_REG(FPU, from) ACO_NL                                             \
                      lw a3, ACO_REG(FPU, to) ACO_NL                                               \
                      beq a2, a3, 2f ACO_NL                                                        \
                      fsrm a3 ACO_NL                                                               \
                      2:)

/* A function that gets vectors from an attribute instead of an option must not contain the inline
 * switch. Compilers assume nothing of vl and vtype after an asm. */
#ifdef __riscv_vector
#define ACO_CLOBBER_VECTOR                                                                         \
    , "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",      \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", \
        "v27", "v28", "v29", "v30", "v31"
#else
#define ACO_CLOBBER_VECTOR
#endif

#elif defined(__arm__) && defined(__ARM_PCS_VFP) && !defined(__ARMEB__) && !defined(__FDPIC__)

#define ACO_ARCH_ARM
#define ACO_WORD 4
#define ACO_RETPTR_SZ 8
#define ACO_AT(offset, co) [co, offset]

/* The frame pointer is r7 in thumb code and r11 in arm code, and one may switch to the other: so
 * both are loaded with the saved value. Bit 0 of an address marks thumb code. There is no unwind
 * information inside the switch, as the unwind tables of arm are right at calls only. A function
 * that an attribute (or -mflip-thumb) compiles to other code than its file must not contain the
 * inline switch. */
#ifdef __thumb__
#define ACO_ADR(reg, label) adr.w reg, label ACO_NL orr reg, reg, 1
#define ACO_BP r7
#define ACO_CLOBBER_OTHER_BP "r11"
#else
#define ACO_ADR(reg, label) adr reg, label
#define ACO_BP r11
#define ACO_CLOBBER_OTHER_BP "r7"
#endif

/* A function that never returns may have no frame if it needs no unwind table. But SP at
 * align_retptr means that a coroutine has not started, so the statement gives the function a local
 * variable. */
#define ACO_SWITCH_ASM(from, to)                                                                   \
    do {                                                                                           \
        uint64_t aco_i_frame;                                                                      \
        __asm__ volatile("" : "=m"(aco_i_frame));                                                  \
        register aco_t *aco_i_from __asm__("r0") = from, *aco_i_to __asm__("r1") = to;             \
        ACO_DIAGNOSTIC_PUSH                                                                        \
        __asm__ volatile(                                                                          \
            ".syntax unified\n\t" /* gcc sets it after the first asm only */           \
            ACO_SAVE_BASE("mov r2, sp\n\tsub r2, r6, r2\n\tstr r2, ", r0)                          \
            ACO_STR(ACO_ADR(r2, 1f)) "\n\t"                                                        \
            "str r2, " ACO_STR(ACO_REG(RETADDR, r0)) "\n\t"                                        \
            "str sp, " ACO_STR(ACO_REG(SP, r0)) "\n\t"                                             \
            "str " ACO_STR(ACO_BP) ", " ACO_STR(ACO_REG(BP, r0)) "\n\t"                            \
            ACO_STR(ACO_SWITCH_CONTROL_WORDS(r0, r1)) "\n\t"                                       \
            "ldr r12, " ACO_STR(ACO_REG(RETADDR, r1)) "\n\t"                                       \
            "ldr r3, " ACO_STR(ACO_REG(SP, r1)) "\n\t"                                             \
            "ldr r7, " ACO_STR(ACO_REG(BP, r1)) "\n\t"                                             \
            "mov r11, r7\n\t"                                                                      \
            "mov sp, r3\n\t"                                                                       \
            "ldr lr, [sp]\n\t"                                                                     \
            "bx r12\n"                                                                             \
            "1:\n\t"                                                                               \
            ACO_RESTORE_BASE("ldr r6, ", r1, "\n\tadd r6, r6, sp\n\t")                             \
            : "+r"(aco_i_from), "+r"(aco_i_to)                                                     \
            :                                                                                      \
            : "memory", "cc", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10",                     \
              ACO_CLOBBER_OTHER_BP, "r12", "lr", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7",   \
              "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15", "d16", "d17", "d18", "d19",    \
              "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28", "d29", "d30", "d31"); \
        ACO_DIAGNOSTIC_POP                                                                         \
        to = aco_i_to;                                                                             \
    } while (0)

/* Stores FPSCR of `from`, and loads the control bits of `to`, bits 8-26, if they differ. The other
 * bits are flags, which stay. Changes r2 and r3. */
#define ACO_SWITCH_CONTROL_WORDS(from, to)                                                         \
    ACO_UNLESS_SHARED(vmrs r2, fpscr ACO_NL                                                        \
                      str r2, ACO_REG(FPU, from) ACO_NL                                            \
                      ldr r3, ACO_REG(FPU, to) ACO_NL                                              \
                      eor r2, r2, r3 ACO_NL                                                        \
                      lsl r2, r2, 5 ACO_NL                                                         \
                      lsrs r2, r2, 13 ACO_NL                                                       \
                      beq 2f ACO_NL                                                                \
                      lsl r2, r2, 8 ACO_NL                                                         \
                      vmrs r3, fpscr ACO_NL                                                        \
                      eor r3, r3, r2 ACO_NL                                                        \
                      vmsr fpscr, r3 ACO_NL                                                        \
                      2:)

#elif defined(_WIN32)
/* refused above */
#elif defined(__x86_64__)
#error "x32 (-mx32) has no block in aco.h and acosw.S: compile with -m64 or -m32"
#else
#error "aco has no block for this processor, for its other byte order, or for its ABI without \
floating point registers: write one in aco.h, section Processor, and one in acosw.S; \
docs/porting.md says how"
#endif

/* ---- Common to the two x86 blocks ---- */

#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)

#ifdef __ASSEMBLER__
#define ACO_R(name) %name
#else
#define ACO_R(name) %%name
#endif
#define ACO_AT(offset, co) offset(ACO_R(co))

/* reg[FPU] has the lower half of MXCSR, in which bits 6-15 are control bits and the others are
 * sticky flags that any call may change, and above it the x87 control word. */
#define ACO_MXCSR_CONTROL 0xffc0

/* Stores the control words of `from`, and executes `load` if those of `to` differ. Loading a new
 * value may cost tens of ns, and the flags of MXCSR nearly always differ: so only control bits are
 * compared. No load is wider than the store before it, which would delay it. Changes ebx and edx.
 * There are no immediate operands, whose dollar sign clang drops under -masm=intel. */
#define ACO_SWITCH_CONTROL_WORDS(from, to, load)                                                   \
    ACO_UNLESS_SHARED(stmxcsr ACO_REG(FPU, from);                                                  \
                      fnstcw 2+ACO_REG(FPU, from);                                                 \
                      movzwl ACO_REG(FPU, from), ACO_R(edx);                                       \
                      xorw ACO_REG(FPU, to), ACO_R(dx);                                            \
                      leal ACO_MXCSR_CONTROL, ACO_R(ebx);                                          \
                      andl ACO_R(ebx), ACO_R(edx);                                                 \
                      movzwl 2+ACO_REG(FPU, from), ACO_R(ebx);                                     \
                      xorw 2+ACO_REG(FPU, to), ACO_R(bx);                                          \
                      orl ACO_R(ebx), ACO_R(edx);                                                  \
                      jz 2f;                                                                       \
                      load;                                                                        \
                      2:)

/* The assembly is in AT&T syntax, also under -masm=intel. */
#define ACO_ATT_BEGIN "{|.att_syntax prefix\n\t}"
#define ACO_ATT_END "{|.intel_syntax noprefix\n\t}"

/* All registers that the compiler may use under its options. A function must not contain the inline
 * switch if it gets SSE (on i386), AVX-512 or APX from an attribute instead of an option, or keeps
 * AMX tiles of clang's types over a switch. */
#ifdef __MMX__
#define ACO_CLOBBER_MMX , "mm0", "mm1", "mm2", "mm3", "mm4", "mm5", "mm6", "mm7"
#else
#define ACO_CLOBBER_MMX
#endif
#ifdef _SOFT_FLOAT /* gcc without "st": -mgeneral-regs-only, -mno-80387, -msoft-float */
#define ACO_CLOBBER_X87 ACO_CLOBBER_MMX
#else
#define ACO_CLOBBER_X87                                                                            \
    , "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)" ACO_CLOBBER_MMX
#endif
#ifdef __AVX512F__
#define ACO_CLOBBER_MASK , "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#define ACO_CLOBBER_VECTOR_HIGH                                                                    \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",    \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"
#else
#define ACO_CLOBBER_MASK
#define ACO_CLOBBER_VECTOR_HIGH
#endif
#ifdef __SSE__
#define ACO_CLOBBER_VECTOR                                                                         \
    , "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7" ACO_CLOBBER_MASK
#define ACO_CLOBBER_VECTOR_64                                                                      \
    , "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" ACO_CLOBBER_VECTOR_HIGH
#else
#define ACO_CLOBBER_VECTOR
#define ACO_CLOBBER_VECTOR_64
#endif
#if defined(__APX_F__) || defined(__EGPR__) /* gcc, clang */
#define ACO_CLOBBER_APX                                                                            \
    , "r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23", "r24", "r25", "r26", "r27", "r28",   \
        "r29", "r30", "r31"
#else
#define ACO_CLOBBER_APX
#endif

#endif

/* ---- Common to all blocks ---- */

/* Expands to its arguments, or to nothing if all coroutines share the control words. */
#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define ACO_UNLESS_SHARED(...)
#else
#define ACO_UNLESS_SHARED(...) __VA_ARGS__
#endif

/* clang addresses a frame with both over-aligned and variable-sized locals through a base register
 * (rbx, esi, x19, s1, r6), which an asm cannot clobber. Its distance from SP is saved in `base`:
 * pushing the register would make call-frame information wrong. Except on x86, clang warns about
 * such a clobber, and about registers that an option reserves: the pragmas turn that off. */
#define ACO_BASE ACO_WORD*(ACO_REG_WORDS+1)+4 /* offset in aco_t */
#ifdef __clang__
#define ACO_DIAGNOSTIC_PUSH                                                                        \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Winline-asm\"")
#define ACO_DIAGNOSTIC_POP _Pragma("clang diagnostic pop")
#define ACO_SAVE_BASE(store, co) store ACO_STR(ACO_AT(ACO_BASE, co)) "\n\t"
#define ACO_RESTORE_BASE(load, co, add) load ACO_STR(ACO_AT(ACO_BASE, co)) add
#else
#define ACO_DIAGNOSTIC_PUSH
#define ACO_DIAGNOSTIC_POP
#define ACO_SAVE_BASE(store, co)
#define ACO_RESTORE_BASE(load, co, add)
#endif

/* The call-frame information of the compiler is wrong from the load of BP to the jump, whether it
 * refers to SP or to BP. Between BEGIN and END it describes a call from the place where `from` will
 * continue, with SP and BP as in reg[]: so a backtrace shows the enclosing function twice. `breg`
 * is the DW_OP_breg of the register with `from`; `bp` and `pc` are the DWARF numbers of the frame
 * pointer and the return address. Unwinders look up the address before a return address, where
 * `insn` stands, which is never executed. */
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define ACO_CFI_BEGIN(breg, bp, pc)                                                                \
    ".cfi_remember_state\n\t"                                                                      \
    ".cfi_escape 0x0f, 3, " ACO_STR(breg, ACO_WORD*ACO_REG_IDX_SP) ", 0x06\n\t"                    \
    ".cfi_escape 0x10, " ACO_STR(pc, 2, breg, ACO_WORD*ACO_REG_IDX_RETADDR) "\n\t"                 \
    ".cfi_escape 0x10, " ACO_STR(bp, 2, breg, ACO_WORD*ACO_REG_IDX_BP) "\n\t"
#define ACO_CFI_END(insn) ".cfi_restore_state\n\t" insn "\n"
#else
#define ACO_CFI_BEGIN(breg, bp, pc)
#define ACO_CFI_END(insn)
#endif

/* The target of an indirect jump needs a landing pad if branch tracking is on. */
#if (defined(__CET__) && (__CET__ & 1)) || defined(__ARM_FEATURE_BTI_DEFAULT)
#define ACO_LANDING_PAD(insn) insn
#else
#define ACO_LANDING_PAD(insn)
#endif

#ifndef __ASSEMBLER__

/* clang-format on */

/* ==== For parts ============================================================================== */

/*
 * The optional parts in extra/, the runtime and the headers for C++ use this section and the API,
 * and nothing else of the core: tests/test_extra_alone.sh compares the names. Inline functions of
 * parts are compiled into programs, so these names keep their meaning within a major version.
 *
 * Parts tell processors apart by the macro of their block above: ACO_ARCH_X86_64, ACO_ARCH_I386,
 * ACO_ARCH_ARM64, ACO_ARCH_RISCV64 or ACO_ARCH_ARM.
 *
 * Parts may also write these fields of a coroutine:
 *   main_co  while it is suspended: its next parent. NULL: none, so that nothing may resume it
 *   wakes    see aco_set_waker()
 *   reg[]    in state init: where it starts
 */

/* C++ programs may ask for warnings about C casts and about 0 as a null pointer. */
#ifdef __cplusplus
#define ACO_CAST(type, ptr) static_cast<type>(ptr)
#if __cplusplus >= 201103L
#define ACO_NULL nullptr
#else
#define ACO_NULL __null
#endif
#else
#define ACO_CAST(type, ptr) ((type)(ptr))
#define ACO_NULL NULL
#endif

/* Hides from the compiler what it knows of the variable `ptr`. */
#define ACO_LAUNDER(ptr) __asm__("" : "+r"(ptr))

/* An attribute of inline functions that switch. Inlining is not forced with a sanitizer: compilers
 * refuse it where sanitizer attributes differ. */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
#define ACO_ALWAYS
#else
#define ACO_ALWAYS always_inline,
#endif

/* See aco_get_co(). */
extern __thread aco_t *aco_gtls_co ACO_CONFIGURED("aco_gtls_co");

/* Allocate and free by the functions of aco_set_allocator(). aco_i_allocate() returns `sz` bytes
 * aligned to 16, or NULL with errno. aco_i_release() ignores NULL. */
void *aco_i_allocate(size_t sz);
void aco_i_release(void *ptr);

/* Reports misuse, in a message of one line: the call, the rule it broke and the remedy, the
 * coroutine `co` and its entry function. Then aborts. `co` may be NULL. */
ACO_NORETURN __attribute__((cold)) void aco_i_fail(const char *call, const aco_t *co,
                                                   const char *rule_and_remedy);

/* Aborts with a message about `call`, which only a running non-main coroutine `co` may make, for
 * itself. Call it once `co` has been found to be something else. */
ACO_NORETURN __attribute__((cold)) void aco_i_misuse(const char *call, const aco_t *co);

/* Returns the parent of `co` if aco_resume(co) may be called now; otherwise aborts with a message
 * about `call`. */
__attribute__((cold)) aco_t *aco_i_check_resume(const char *call, const aco_t *co);

/* Does what aco_resume(co) does; messages are about `call`. */
void aco_i_continue(const char *call, aco_t *co);

/* Does what aco_yield() does, for the running coroutine `co`; messages are about `call`. */
void aco_i_suspend(const char *call, aco_t *co);

/*
 * A light switch leaves the control words alone, so the coroutine that it continues runs with those
 * of the caller, as a function does. A coroutine that is continued by aco_i_continue_light() is
 * suspended and ended only by the light calls below, and the other way round. Nothing is checked.
 * Where acosw() stands in for the inline switch, control words are switched all the same. The red
 * zone of x86-64 is not saved, so a copying coroutine suspends itself in a function that also
 * contains another call, which is not its last action: such a function has no red zone.
 *
 * aco_i_continue_light() starts or continues `co`, and returns when that is suspended or ends.
 * `self` runs, and is co->main_co. `co` is in init or suspended, and is in place: call
 * aco_i_acquire() first unless co->is_owner.
 *
 * aco_i_suspend_light() suspends `co`, which runs. When it is continued, it returns whether
 * co->wakes is set. If so, the caller calls aco_i_wake(co) next.
 *
 * aco_i_end_light() ends `co`, which runs, and gives up its share stack.
 */
static inline void aco_i_continue_light(aco_t *self, aco_t *co);
static inline int aco_i_suspend_light(aco_t *co);
ACO_NORETURN static inline void aco_i_end_light(aco_t *co);

/* Makes `co`, which is suspended or in init and not the owner of its share stack, the owner, as
 * aco_resume() does: saves out the present owner, and restores the frames of `co`. Must
 * not run on that share stack. aco_i_continue_light() and acosw() need it. Aborts as aco_resume()
 * does. */
void aco_i_acquire(aco_t *co);

/* Clears co->wakes, which is set, and calls the waker; `co` runs. See aco_set_waker(). */
void aco_i_wake(aco_t *co);

/* Called before an inline switch makes `co` the owner of its share stack: its save stack still has
 * its frames. A source of a part may define it before it includes this header, to observe the
 * switches that it contains. aco_yield_to() checks its argument only after that. */
#ifndef ACO_I_PROBE_ACQUIRE
#define ACO_I_PROBE_ACQUIRE(co) ((void)0)
#endif

/* Add `co` to the list of ACO_CONFIG_LIST, as the newest coroutine of this thread, or remove it. */
#ifdef ACO_CONFIG_LIST
void aco_i_enter_in_list(aco_t *co);
void aco_i_take_from_list(aco_t *co);
#else
#define aco_i_enter_in_list(co) ((void)0)
#define aco_i_take_from_list(co) ((void)0)
#endif

/*
 * The exceptions that a thread is handling, as the C++ runtimes libstdc++ and libc++abi lay them
 * out (Itanium C++ ABI, 2.2.2; Exception Handling ABI for the Arm Architecture, 8.2).
 * aco_i_exceptions() is their __cxa_get_globals(), which returns those of the calling thread; in a
 * program without C++ it is NULL. It has a name of its own, as <cxxabi.h> declares it otherwise.
 */
typedef struct {
    void *caught;         /* the innermost, which leads to the others */
    unsigned ct_uncaught; /* as in std::uncaught_exceptions() */
#ifdef ACO_ARCH_ARM
    void *propagating; /* the innermost of those whose cleanups run, which leads to the others; at
                        * most one is not from C++ */
#endif
} aco_i_exceptions_t;
__attribute__((weak, nothrow)) aco_i_exceptions_t *aco_i_exceptions(void)
    ACO_SYMBOL("__cxa_get_globals");

/* ==== For the library ======================================================================== */

#define ACO_BLOCK_CO 1         /* the aco_t, with its first save stack */
#define ACO_BLOCK_SAVE_STACK 2 /* save_stack.ptr, once it has outgrown that */
#define ACO_HAS_MARK 4         /* `base` has address bits of the share stack that counts it */

#ifdef ACO_CONFIG_LIST
extern __thread aco_t *aco_i_gtls_list; /* the newest coroutine of this thread */
#endif

#define ACO_ASSERT(EX, text)                                                                       \
    (aco_likely(EX) ? (void)0 : aco_i_assert_failed(text, __FILE__, __LINE__, __func__))
ACO_NORETURN void aco_i_assert_failed(const char *text, const char *file, int line,
                                      const char *function);

/* ==== The inline switch ====================================================================== */

/*
 * It is fast for two reasons: without calls and returns, the processor predicts return addresses
 * correctly; and only live registers are saved. Two things keep it correct. First, a function that
 * contains it must not use the red zone of x86-64, the bytes below the stack pointer, so it must
 * not be a leaf: the cold paths are calls, but no tail calls, and no compiler can prove them dead.
 * In aco_i_continue() that needs a laundered pointer, as the caller may have tested the same; where
 * a coroutine suspends itself, `wakes` is read after the switch. Second, memory is clobbered, so
 * the compiler reads fields of coroutines anew after a switch.
 *
 * The other pointers are laundered in defence of what is tested and of registers: a compiler that
 * takes one for equal to another value may drop a test for misuse, or let a switch wait for a load.
 */

/* Begins functions that are inline here, and that the library exports under the same names. */
#ifndef ACO_INLINE
#define ACO_INLINE extern inline __attribute__((ACO_ALWAYS gnu_inline))
#endif

/* Begins functions that are inline here, and that the library does not export. */
#define ACO_INLINE_ONLY static inline __attribute__((ACO_ALWAYS unused))

/* Tells the compiler that the coroutine in the variable `co` runs, so that it need not load
 * aco_gtls_co. It may load it from an address that it computed before the switch, which is that of
 * another thread if the coroutine was handed over. This makes that rarer, and aco_threads.h says
 * what is sure: clang 19 still loads in loops. clang uses the older one of two equal values, and
 * gcc the cheaper one: a register after a cast, instead of memory. */
#ifdef __clang__
#define ACO_ASSUME_RUNNING(co)                                                                     \
    do {                                                                                           \
        if (aco_gtls_co != (co)) {                                                                 \
            __builtin_unreachable();                                                               \
        }                                                                                          \
    } while (0)
#else
#define ACO_ASSUME_RUNNING(co)                                                                     \
    do {                                                                                           \
        uintptr_t aco_i_address = (uintptr_t)(co);                                                 \
        ACO_LAUNDER(aco_i_address);                                                                \
        const aco_t *aco_i_running = aco_gtls_co;                                                  \
        (co) = (aco_t *)aco_i_address;                                                             \
        if (aco_i_running != (co)) {                                                               \
            __builtin_unreachable();                                                               \
        }                                                                                          \
    } while (0)
#endif

/* The cold path of aco_yield_to(). */
aco_t *aco_i_ferry(aco_t *co);

/* Shared by several inline functions. */
ACO_NORETURN void aco_i_end(const char *call, aco_t *co);
aco_t *aco_i_check_running(const char *call, aco_t *co);

/* Announces a switch to the sanitizer. TSan counts calls and returns of each coroutine, so the
 * function that switches must call it itself. */
#if defined(ACO_USE_ASAN)
void aco_i_tell_switch(aco_t *from, aco_t *to);
#define ACO_TELL_SWITCH(from, to) aco_i_tell_switch(from, to)
#elif defined(ACO_USE_TSAN)
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void *aco_i_fiber_of(aco_t *co);
#define ACO_TELL_SWITCH(from, to) __tsan_switch_to_fiber(aco_i_fiber_of(to), 0)
#else
#define ACO_TELL_SWITCH(from, to) ((void)0)
#endif

/* Suspends `from` and continues `to`; both are variables. When `from` is continued, `from` still
 * has its value and `to` does not, so neither needs memory on the stack meanwhile. */
#if defined(ACO_SWITCH_ASM) && !defined(ACO_CONFIG_NO_INLINE_SWITCH)
#define ACO_SWITCH_UNTOLD(from, to)                                                                \
    do {                                                                                           \
        ACO_SWITCH_ASM(from, to);                                                                  \
        from = to;                                                                                 \
    } while (0)
#else
#define ACO_SWITCH_UNTOLD(from, to) acosw(from, to)
#endif
#define ACO_SWITCH(from, to)                                                                       \
    do {                                                                                           \
        ACO_TELL_SWITCH(from, to);                                                                 \
        ACO_SWITCH_UNTOLD(from, to);                                                               \
    } while (0)

/* Ends `co`, which runs; a variable. It gives up its share stack: invariant I1 of aco.c. */
#define ACO_END(co)                                                                                \
    do {                                                                                           \
        (co)->is_end = 1;                                                                          \
        (co)->is_owner = 0;                                                                        \
        (co)->share_stack->owner = (co)->share_stack->in_place = ACO_NULL;                         \
        aco_t *aco_i_main_co = (co)->main_co;                                                      \
        ACO_SWITCH(co, aco_i_main_co);                                                             \
        __builtin_unreachable();                                                                   \
    } while (0)

#ifdef ACO_CONFIG_STRESS
void aco_i_stress(aco_share_stack_t *share_stack);
#else
#define aco_i_stress(share_stack) ((void)0)
#endif

/* aco_thread_init() for a caller with a header of `version`. */
void aco_i_thread_init(aco_cofuncp_t last_word, int version) ACO_CONFIGURED("aco_thread_init");

/* Refers to the library of this configuration, even in a translation unit that calls no function.
 * `retain` keeps it when the linker drops unreferenced sections. */
#ifndef ACO_CONFIG_DLOPEN
#if defined(__ELF__) && defined(__has_attribute)
#if __has_attribute(retain)
__attribute__((retain))
#endif
#endif
__attribute__((used)) static void (*const aco_i_library)(aco_cofuncp_t, int) = aco_i_thread_init;
#endif

ACO_INLINE void aco_thread_init(aco_cofuncp_t last_word)
{
    aco_i_thread_init(last_word, ACO_VERSION);
}

ACO_INLINE aco_t *aco_get_co(void)
{
    return aco_gtls_co;
}
ACO_INLINE aco_t *aco_co(void)
{
    return aco_gtls_co;
}

ACO_INLINE void *aco_get_arg(void)
{
    const aco_t *co = aco_gtls_co;
    if (aco_unlikely(co == NULL)) {
        aco_i_misuse("aco_get_arg", co);
    }
    return co->arg;
}

ACO_INLINE int aco_is_main_co(const aco_t *co)
{
    if (aco_unlikely(co == NULL)) {
        aco_i_fail("aco_is_main_co", co, "the coroutine is NULL: pass what aco_create() returned");
    }
    return co->main_co == ACO_NULL;
}

ACO_INLINE void aco_i_continue(const char *call, aco_t *co)
{
    aco_t *caller = aco_gtls_co, *main_co = caller;
    ACO_LAUNDER(co);
    ACO_LAUNDER(main_co);
    if (aco_unlikely(co == NULL || co->main_co != caller)) {
        main_co = aco_i_check_resume(call, co);
    }
    if (aco_unlikely(!co->is_owner)) {
        ACO_I_PROBE_ACQUIRE(co);
        aco_i_acquire(co);
        main_co = co->main_co; /* not kept across the call */
    }
    aco_gtls_co = co;
    ACO_SWITCH(main_co, co);
    aco_i_stress(aco_gtls_co->share_stack); /* whichever yielded, perhaps not `co` */
    aco_gtls_co = main_co;
}

ACO_INLINE void aco_resume(aco_t *co)
{
    aco_i_continue("aco_resume", co);
}

ACO_INLINE void aco_i_suspend(const char *call, aco_t *co)
{
    if (aco_unlikely(co == NULL)) {
        aco_i_misuse(call, co);
    }
    aco_t *main_co = co->main_co;
    ACO_LAUNDER(main_co); /* not `co`: after a switch, compilers know that it isn't NULL */
    if (aco_unlikely(main_co == NULL)) {
        aco_i_misuse(call, co);
    }
    ACO_SWITCH(co, main_co);
    ACO_ASSUME_RUNNING(co);
    if (aco_unlikely(co->wakes)) {
        aco_i_wake(co);
        ACO_ASSUME_RUNNING(co);
    }
}

ACO_INLINE ACO_NORETURN void aco_i_end(const char *call, aco_t *co)
{
    ACO_LAUNDER(co);
    if (aco_unlikely(co == NULL || co->main_co == NULL)) {
        aco_i_misuse(call, co);
    }
    ACO_END(co);
}

ACO_INLINE aco_t *aco_i_check_running(const char *call, aco_t *co)
{
    if (aco_unlikely(co != aco_gtls_co)) {
        aco_i_misuse(call, co);
    }
    return co;
}

ACO_INLINE void aco_yield(void)
{
    aco_i_suspend("aco_yield", aco_gtls_co);
}
ACO_INLINE void aco_yield1(aco_t *co)
{
    aco_i_suspend("aco_yield1", aco_i_check_running("aco_yield1", co));
}

ACO_INLINE void aco_yield_to(aco_t *co)
{
    aco_t *self = aco_gtls_co;
    ACO_LAUNDER(self);
    /* If the caller is a main coroutine, `co` can only be one, too, and these own no stack. */
    if (aco_unlikely(self == NULL || co == NULL || co->main_co != self->main_co || !co->is_owner)) {
        ACO_I_PROBE_ACQUIRE(co);
        co = aco_i_ferry(co);
        ACO_SWITCH(self, co);
    } else {
        aco_gtls_co = co;
        ACO_SWITCH(self, co);
    }
    ACO_ASSUME_RUNNING(self);
    if (aco_unlikely(self->wakes)) {
        aco_i_wake(self);
        ACO_ASSUME_RUNNING(self);
    }
}

ACO_INLINE ACO_NORETURN void aco_exit(void)
{
    aco_i_end("aco_exit", aco_gtls_co);
}
ACO_INLINE ACO_NORETURN void aco_exit1(aco_t *co)
{
    aco_i_end("aco_exit1", aco_i_check_running("aco_exit1", co));
}

/* ---- Light switches ---- */

#pragma push_macro("ACO_SWITCH_CONTROL_WORDS")
#undef ACO_SWITCH_CONTROL_WORDS
#define ACO_SWITCH_CONTROL_WORDS(...)

ACO_INLINE_ONLY void aco_i_continue_light(aco_t *self, aco_t *co)
{
    ACO_LAUNDER(co);
    ACO_LAUNDER(self);
    aco_gtls_co = co;
    ACO_SWITCH(self, co);
    aco_gtls_co = self;
}

ACO_INLINE_ONLY int aco_i_suspend_light(aco_t *co)
{
    aco_t *main_co = co->main_co;
    ACO_LAUNDER(main_co);
    ACO_SWITCH(co, main_co);
    ACO_ASSUME_RUNNING(co);
    return co->wakes != 0;
}

ACO_INLINE_ONLY ACO_NORETURN void aco_i_end_light(aco_t *co)
{
    ACO_END(co);
}

#pragma pop_macro("ACO_SWITCH_CONTROL_WORDS")

#ifdef __cplusplus
}
#endif

#endif /* __ASSEMBLER__ */
#endif /* ACO_H */
