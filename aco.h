// SPDX-License-Identifier: Apache-2.0
/*
 * aco: asymmetric coroutines for C and C++. This header is the whole public interface, and the
 * switch itself: it is inlined at the place that resumes or yields, where the compiler knows which
 * registers are live. It needs no other file of the project; link with aco.c and acosw.S, compiled
 * with the same configuration macros as the program.
 *
 * Vocabulary
 *   main coroutine      runs on its thread's own stack
 *   non-main coroutine  runs on a share stack while it is resumed
 *   parent              who resumes a coroutine, its main_co: the main one, or a non-main one that
 *                       runs on another share stack
 *   share stack         a stack that coroutines run on
 *   standalone          said of a coroutine that has its share stack to itself: it is never copied
 *   copying             said of coroutines that use one share stack in turn
 *   owner               the coroutine whose frames lie on a share stack right now: in place
 *   save stack          the memory of a coroutine for its live frames while another is the owner
 *   control words       the x87 control word and the control bits of MXCSR, or what a processor has
 *                       instead of them
 *
 * A non-main coroutine is in state init (never resumed, or reset), running, yielded (in place on
 * its share stack, or saved out to its save stack), or end.
 *
 * Rules
 *   - A thread calls aco_thread_init() and then makes its main coroutine. Nothing is shared
 *     between threads: a coroutine is resumed only on the thread that made its main coroutine.
 *   - An entry function ends with aco_exit(); returning from it is an error.
 *   - A thread ends on its own stack. If it calls pthread_exit() or is cancelled while a coroutine
 *     runs, it is not unwound beyond the entry function, and that ends in one line and abort().
 *   - A local variable of a copying coroutine is at its address only while that coroutine runs.
 *   - Failed allocations, and misuse that can be seen, end in one line on stderr and abort(). Calls
 *     that have `try` or `in` in their names return NULL with errno instead. The use of a coroutine
 *     that was destroyed is not seen, nor of a local variable while its coroutine does not run:
 *     AddressSanitizer and ACO_CONFIG_STRESS find these.
 */
#ifndef ACO_H
#define ACO_H

#ifdef __ASSEMBLER__
#pragma GCC system_header /* for -Wpedantic, which takes assembly for C90 */
#endif

/* ==== Version ================================================================================ */

#define ACO_VERSION_MAJOR 2
#define ACO_VERSION_MINOR 0
#define ACO_VERSION_PATCH 0
#define ACO_VERSION (ACO_VERSION_MAJOR * 10000 + ACO_VERSION_MINOR * 100 + ACO_VERSION_PATCH)

/* ==== Configuration ========================================================================== */

/*
 * Of the whole program, library included:
 *   ACO_CONFIG_SHARE_FPU_MXCSR_ENV  all coroutines share one set of control words: the switch
 *                                   neither saves nor loads them, which on x86 costs it some 10 ns
 *   ACO_USE_VALGRIND                tells memcheck of share stacks and of copies
 *   ACO_USE_ASAN, ACO_USE_TSAN      tell AddressSanitizer, ThreadSanitizer of stacks and switches;
 *                                   set by this header if the compiler says that one is on, and
 *                                   unset if not
 *   ACO_CONFIG_LIST                 keeps a list of each thread's coroutines, for debuggers; destroy
 *                                   one on its own thread, or after that has ended, and of an aco_t
 *                                   and its copies the original
 *   ACO_CONFIG_STRESS               every yield evicts, every eviction moves the save stack, and
 *                                   what lies unused is overwritten: finds stray pointers
 * Of a single translation unit, if so wanted:
 *   ACO_CONFIG_NO_INLINE_SWITCH     the inline functions call acosw(). Needed where a function gets
 *                                   more registers from an attribute than from the options; and
 *                                   where a variable is kept in a register for good, as by
 *                                   `register long v __asm__("r15")` outside of all functions: gcc
 *                                   does not say that the inline switch loses it, while acosw()
 *                                   keeps a callee-saved one for each coroutine
 *   ACO_CONFIG_DLOPEN               it refers to nothing that it does not call, for a program that
 *                                   opens the library at run time
 *
 * A translation unit that includes this header and a library of different configuration do not
 * link: each refers to the library by a name with its configuration. Instead of by the linker,
 * ACO_CONFIG_DLOPEN lets it be found by dlsym(library, ACO_CONFIG_NAME("aco_thread_init")), which
 * is NULL if the configuration is another one, otherwise void (*)(aco_cofuncp_t, int): it does
 * what aco_thread_init() does, and its second argument is ACO_VERSION.
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

/* Not all are needed here; programs have always got them through this header. */
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

/* For a function that does not follow its n-th argument: what that points to may have no value. */
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
 * reg[] holds what a suspended coroutine keeps nowhere else. Its words mean the same after an
 * inline suspension and after one in acosw(), so that either way of switching continues the other.
 */
#define ACO_REG_IDX_RETADDR 0 /* address at which it continues */
#define ACO_REG_IDX_SP 1      /* stack pointer */
#define ACO_REG_IDX_BP 2      /* frame pointer */
#define ACO_REG_IDX_FPU 3     /* control words; no such word with ACO_CONFIG_SHARE_FPU_MXCSR_ENV */

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

/* Private memory of a coroutine for its live frames while another owns its share stack. */
typedef struct {
    void *ptr;         /* the frames of one that is saved out: ptr[0..valid_sz) */
    size_t sz;         /* bytes at ptr; grows when a save needs more */
    size_t valid_sz;   /* bytes saved out now; 0 in init and for the owner */
    size_t max_cpsz;   /* largest valid_sz so far: the save_stack_sz that would have been right */
    size_t ct_save;    /* times saved out */
    size_t ct_restore; /* times restored */
} aco_save_stack_t;

/* A stack that coroutines run on. It grows from align_retptr down to ptr. */
struct aco_share_stack_s {
    void *ptr;               /* lowest byte of the stack */
    size_t sz;               /* bytes from ptr on; whole pages, unless the memory is the caller's */
    void *align_highptr;     /* end of what is used, aligned to 16 */
    void *align_retptr;      /* below: a word that always holds the protector's address */
    size_t align_limit;      /* bytes from ptr to align_retptr: no coroutine has more live bytes */
    size_t align_validsz;    /* bytes from ptr to align_highptr; nothing depends on it */
    aco_t *owner;            /* in_place, to be read; a program may set it to NULL */
    size_t ct_coroutines;    /* private: coroutines that start, or have started, on it */
    aco_t *in_place;         /* private: the owner, NULL if there is none */
    size_t usual_sz;         /* private: bytes of a save stack where no size is asked for */
    char guard_page_enabled; /* 1: the page below ptr faults when written */
    char is_pooled;          /* private: 1 if it is a stack pool's, which alone destroys it */
    char is_destroyed;       /* private: only this struct is left, for coroutines that outlive it */
    void *real_ptr;          /* the mapping, guard page included */
    size_t real_sz;          /* its bytes; 0 if the memory is the caller's, to be left alone */
#ifdef ACO_USE_VALGRIND
    unsigned valgrind_stk_id; /* what VALGRIND_STACK_REGISTER gave */
#endif
};

/* A coroutine. What a switch in place touches comes first. */
struct aco_s {
    void *reg[ACO_REG_WORDS];       /* of a suspended one: see ACO_REG_IDX_* */
    aco_t *main_co;                 /* its parent, who resumes it; NULL for a main coroutine */
    char is_end;                    /* 1 once it has called aco_exit() */
    char is_owner;                  /* 1 if share_stack->in_place is this one */
    char blocks;                    /* ACO_BLOCK_*: what aco_destroy() frees; ACO_HAS_MARK */
    char wakes;                     /* 1: see aco_set_waker() */
    int32_t base;                   /* see ACO_BASE; before the start, see ACO_HAS_MARK */
    aco_share_stack_t *share_stack; /* where it runs, or starts; NULL for a main coroutine */
    aco_save_stack_t save_stack;    /* at first, memory that follows this struct */
    aco_cofuncp_t fp;               /* entry function */
    void *arg;                      /* the user's; see aco_get_arg() */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
    void *sanitizer_state;  /* ASan's fake stack while it is suspended; TSan's fiber */
    void *sanitizer_shadow; /* ASan's shadow bytes of the frames that are saved out */
    const void *stack_ptr;  /* lowest byte of the stack it runs on */
    size_t stack_sz;        /* its bytes */
    void *sanitizer_sp;     /* of a suspended main coroutine: no frame lies below; else NULL */
#endif
#ifdef ACO_CONFIG_LIST
    aco_t *list_next; /* the next older coroutine of its thread */
    aco_t *list_prev; /* the next newer one; NULL for the newest */
    aco_t *list_self; /* this one, but in a copy of an aco_t, which is in no list */
#endif
};

/* ==== Life of a thread ======================================================================= */

/*
 * Prepares the calling thread; call it once per thread before anything else. New coroutines of
 * the thread start with the control words that the thread has now. `last_word` is called, on the
 * offender's stack, when a coroutine returns from its entry function; the process aborts when it
 * returns. NULL keeps the one there was: at first the default one, which names the coroutine on
 * stderr. May be called again, to change either. Where it was not called, aco_create() calls it
 * with NULL. Aborts if the library contradicts itself (see aco_runtime_test()), and if the caller's
 * header is of another major version than the library, or newer.
 */
void aco_thread_init(aco_cofuncp_t last_word);

/*
 * Sets where memory comes from: what is allocated from now on, in any thread, comes from `allocate`
 * (bytes, in blocks aligned to 16; NULL with errno on failure) and goes back by `release`. Call it
 * before all else; malloc() and free() are the default. Share stacks are mapped, not allocated.
 */
void aco_set_allocator(void *(*allocate)(size_t sz), void (*release)(void *ptr));

/*
 * The version of the library that is linked, to be compared with the header's ACO_VERSION.
 */
int aco_version(void);

/*
 * Checks at run time what can't be checked before: that aco.c, acosw.S and the system fit together.
 * Aborts with words if not. aco_thread_init() calls it.
 */
void aco_runtime_test(void);

/* ==== Share stacks =========================================================================== */

/*
 * Makes a share stack on which a coroutine can have at least `sz` bytes of frames, and at least
 * 4096; 0 means 2 MiB. Sizes are rounded up to whole pages. With `guard_page_enabled` 1 the page
 * below faults when written, so that an overflow is a SIGSEGV; with 0 it is silent corruption. A
 * frame larger than a page can miss it, unless the program is compiled with
 * -fstack-clash-protection, which makes functions touch each page of such a frame in turn. Memory
 * is committed as it is touched, in small pages. Cost: some microseconds (system calls, and a page
 * fault for every page when first touched); reuse share stacks. Aborts if memory or mappings run
 * out.
 */
aco_share_stack_t *aco_share_stack_new2(size_t sz, char guard_page_enabled);

/* The same as aco_share_stack_new2(sz, 1). */
aco_share_stack_t *aco_share_stack_new(size_t sz);

/* The same as aco_share_stack_new2(), but if memory or mappings run out, returns NULL with errno. */
aco_share_stack_t *aco_try_share_stack_new2(size_t sz, char guard_page_enabled);

/*
 * Makes a share stack in the `sz` bytes at `memory`: the struct lies at their end, the stack below.
 * They are the caller's again once the share stack and all coroutines on it were destroyed. Nothing
 * is allocated. There is no guard page, unless the caller puts one below and says so in
 * guard_page_enabled and real_ptr; nor are huge pages kept away, of which one would make a small
 * stack cost 2 MiB: that is the caller's madvise(). Returns NULL with EINVAL if `memory` is NULL or
 * so small that the stack would have less than 4096 bytes.
 */
aco_share_stack_t *aco_share_stack_new_in(void *memory, size_t sz);

/*
 * Frees a share stack. Coroutines on it that don't run may be destroyed later, in any order; until
 * then the struct remains, and resuming one aborts. Cost: some microseconds (a system call). Aborts
 * if it is NULL, or a coroutine on it is running or waits for one that it resumed.
 */
void aco_share_stack_destroy(aco_share_stack_t *share_stack);

/* ==== Life of a coroutine ==================================================================== */

/*
 * Makes a coroutine in state init, which runs `fp` on `share_stack` when `main_co`, its parent,
 * resumes it; neither may be NULL, nor `fp` unless reg[] is set by hand before the first resume.
 * `arg` is for aco_get_arg(). The parent is a main coroutine, or any other one on another share
 * stack. `save_stack_sz` is the size in bytes of its first save stack, which grows when needed; 0
 * means 64, or up to 512 if coroutines on this share stack came to need that. With (NULL, NULL, 0,
 * fp, arg), of which the last two are usually NULL, makes the calling thread's main coroutine
 * instead. May be called from any coroutine. Cost: one malloc(). Aborts on misuse and when memory
 * runs out.
 */
aco_t *aco_create(aco_t *main_co, aco_share_stack_t *share_stack, size_t save_stack_sz,
                  aco_cofuncp_t fp, void *arg);

/* The same as aco_create(), but if memory runs out, returns NULL with errno. */
aco_t *aco_try_create(aco_t *main_co, aco_share_stack_t *share_stack, size_t save_stack_sz,
                      aco_cofuncp_t fp, void *arg);

/*
 * The same as aco_create() in the `sz` bytes at `memory`, which are the caller's before and after:
 * the aco_t, and its first save stack in what remains. Nothing is allocated, now or later, unless
 * the save stack must grow. Returns NULL with EINVAL if `memory` is not aligned to 16 bytes or less
 * than sizeof(aco_t) rounded up to 16.
 */
aco_t *aco_create_in(void *memory, size_t sz, aco_t *main_co, aco_share_stack_t *share_stack,
                     aco_cofuncp_t fp, void *arg);

/*
 * Brings a coroutine in any state but running back to init, to run `fp` with `arg`: on the same
 * share stack, with the same save stack and statistics, and the control words that aco_thread_init()
 * last found. Nothing on its stack is unwound. Cost: a few ns. Aborts on misuse.
 */
void aco_reset(aco_t *co, aco_cofuncp_t fp, void *arg);

/*
 * Starts or continues `co`; returns when it yields or exits. The caller must be co->main_co, and
 * `co` not ended. Cost: a few ns where `co` owns its share stack or nobody does. Otherwise the
 * owner's live frames are copied out and those of `co` in. Control words of the caller are kept;
 * those of `co` are its own, unless the configuration shares them. Aborts on misuse, when the
 * owner has overrun its share stack, and when memory for the owner's save stack runs out.
 */
void aco_resume(aco_t *co);

/*
 * Suspends the calling coroutine and continues its parent; returns when resumed. The caller
 * must be a non-main coroutine; in aco_yield1(), it must be `co`. Cost: a few ns. Aborts on misuse.
 */
void aco_yield(void);
void aco_yield1(aco_t *co);

/*
 * Suspends the calling coroutine and starts or continues `co`, another one of the same parent, not
 * ended: what aco_yield() and then aco_resume(co) by the parent would do, with one switch. The
 * parent goes on where it last resumed when one of them yields. Cost: a few ns where `co` owns its
 * share stack; otherwise copies as in aco_resume(), done on the stack of the parent, which needs
 * some KiB there. Aborts on misuse and as aco_resume() does.
 */
void aco_yield_to(aco_t *co);

/*
 * Ends the calling coroutine, which gives up its share stack, and continues its parent. The
 * caller must be a non-main coroutine; in aco_exit1(), it must be `co`. Cost: a few ns. Nothing on
 * its stack is unwound. Aborts on misuse.
 */
ACO_NORETURN void aco_exit(void);
ACO_NORETURN void aco_exit1(aco_t *co);

/*
 * Frees a coroutine in any state but running, and its save stack; gives up its share stack if it
 * is the owner. Nothing on its stack is unwound. A main coroutine is destroyed by its own thread,
 * on the thread's stack. Those whose parent is destroyed must not be resumed any more, which is not
 * seen: destroy them, too. Cost: one or two free(). Aborts on misuse.
 */
void aco_destroy(aco_t *co);

/* Sets the pointer `ptr` to `sz` new bytes of malloc(), or aborts with words. */
#define aco_new(ptr, sz)                                                                           \
    do {                                                                                           \
        (ptr) = ACO_CAST(__typeof__(ptr), malloc(sz));                                             \
        aco_assertalloc_ptr(ptr);                                                                  \
    } while (0)

/* ==== Questions ============================================================================== */

/*
 * The running coroutine, which is also in the thread-local variable aco_gtls_co. On the thread's
 * own stack: NULL before the first aco_resume() of the thread, the main coroutine after it.
 */
aco_t *aco_get_co(void);
aco_t *aco_co(void);

/* aco_get_co()->arg. Aborts where aco_get_co() is NULL. */
void *aco_get_arg(void);

/* 1 if `co` is a main coroutine, otherwise 0. Aborts if it is NULL. */
int aco_is_main_co(const aco_t *co);

/* The state of `co`. Running are the coroutine that runs and those that wait for one that they have
 * resumed, up to the main coroutine; other main coroutines, and one before its first resume, are
 * suspended. Aborts if it is NULL. */
typedef enum {
    ACO_STATUS_INIT,
    ACO_STATUS_RUNNING,
    ACO_STATUS_SUSPENDED,
    ACO_STATUS_END
} aco_status_t;
aco_status_t aco_status(const aco_t *co);

/*
 * Whether `ptr` points into the share stack that the caller runs on; 0 on the thread's own stack.
 * For debug checks of what somebody keeps while the caller is suspended, be it the kernel or
 * another coroutine: what a copying coroutine has there is then elsewhere, and other frames in its
 * place. A standalone one may let its own be kept. Any pointer will do, it is not followed. (Where
 * AddressSanitizer detects use after return, locals are on no stack, and stay where they are: 0.)
 */
int aco_on_own_stack(const void *ptr) ACO_NOT_FOLLOWED(1);

/* ==== Assertions ============================================================================= */

/* Check what must be true, in every build: on failure, a line on stderr with the place, then
 * abort(). */
#define aco_assert(EX) ACO_ASSERT(EX, "assertion failed: " #EX)
#define aco_assertptr(ptr) ACO_ASSERT((ptr) != NULL, "assertion failed: " #ptr " is NULL")
#define aco_assertalloc_bool(b) ACO_ASSERT(b, "out of memory: " #b)
#define aco_assertalloc_ptr(ptr) ACO_ASSERT((ptr) != NULL, "out of memory: " #ptr " is NULL")

/* Which way a condition usually goes, for the compiler. */
#define aco_likely(EX) __builtin_expect(!!(EX), 1)
#define aco_unlikely(EX) __builtin_expect(!!(EX), 0)

/* ==== For bindings, debuggers and the curious ================================================ */

/*
 * The switch as a function, by hand (acosw.S): suspends `from`, which must be the caller, and
 * continues `to`, which must be suspended with its frames in place. Returns, nothing of use, when
 * `from` is continued. No check, no copy, and aco_gtls_co is the caller's affair; so is, where a
 * sanitizer is in use, ACO_TELL_SWITCH(from, to) right before the call. Whatever either side was or
 * will be resumed with, this and the inline switch go together.
 */
void *acosw(aco_t *from, aco_t *to);

/* Writes the caller's control words to the 4 bytes at `p`, in the form of reg[ACO_REG_IDX_FPU]. */
void aco_save_fpucw_mxcsr(void *p);

/*
 * Sets what a coroutine calls when it wakes, for optional parts: a suspended coroutine whose field
 * `wakes` is 1 calls `waker` as soon as it is continued, on its own stack, in place of the return
 * from aco_yield() or aco_yield_to(). `wakes` is 0 again by then. Not for one that was suspended by
 * acosw() alone. One waker for the process.
 */
void aco_set_waker(void (*waker)(aco_t *co));

/* Where an entry function would return to: what every *align_retptr holds. Not callable. */
void aco_funcp_protector_asm(void);

/* What aco_funcp_protector_asm() calls: the thread's last-word function, then abort(). */
ACO_NORETURN void aco_funcp_protector(void);

/* For a function that reads or writes another coroutine's frames: AddressSanitizer leaves it be. */
#define aco_attr_no_asan __attribute__((no_sanitize_address))

#endif /* __ASSEMBLER__ */

/* ==== Internals: users can stop reading here ================================================= */

/*
 * The switch, which is inlined, and what it needs. Names that are not mentioned above may change
 * with any version.
 */

/* What stands for a configuration in names. */
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
    name "_" ACO_STR(ACO_SWITCH_CONFIG) ACO_TAG_VALGRIND ACO_TAG_SANITIZER ACO_TAG_LIST            \
        ACO_TAG_STRESS
#define ACO_CONFIGURED(name) __asm__(ACO_STR(__USER_LABEL_PREFIX__) ACO_CONFIG_NAME(name))

/* ==== Processor ============================================================================== */

/*
 * Each processor has one block here and one in acosw.S. docs/porting.md says what both owe. This
 * one defines
 *   ACO_WORD           bytes of a register
 *   ACO_RETPTR_SZ      bytes from align_retptr to align_highptr: so many that SP at align_retptr is
 *                      as the entry function expects it
 *   ACO_AT(offset, co) the memory at an offset from the register `co`, as an operand
 * and may define
 *   ACO_SWITCH_ASM(from, to)  a statement that suspends `from` and continues `to`. When `from`
 *                             is continued, the variable `to` holds it.
 * Where it does not, the inline functions call acosw(). The statement fills reg[] and names every
 * other register as clobbered: the compiler then saves those that are live, and no more.
 *
 * One convention goes with reg[]: on arrival, the register that carried `to` still does, and so
 * holds the coroutine arrived at.
 */
#define ACO_STR(...) ACO_STR_EXPANDED(__VA_ARGS__)
#define ACO_STR_EXPANDED(...) #__VA_ARGS__

/* Of a text that serves acosw.S and inline assembly: an operand, and what ends an instruction. */
#define ACO_REG(name, co) ACO_AT(ACO_WORD*ACO_REG_IDX_##name, co)
#if !defined(__APPLE__) || !defined(__aarch64__)
#define ACO_NL ;
#elif defined(__ASSEMBLER__)
#define ACO_NL %%
#else
#define ACO_NL %%%%
#endif

/* No macro tells of gcc's -fsanitize=shadow-call-stack, which is wrong as well. */
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

/* Position-independent code asks aco_i_get_pc_edx for its address, and calls through the PLT with
 * ebx loaded. That function is in each object, as one of another library would be called through
 * the PLT; written in bytes it is right in both syntaxes. Link-time optimization may take its label
 * away, for that of another object: so it is in no group of that name, and its size is a number. */
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

/* The jump is by x17, one of the two registers from which a landing pad for calls may be jumped to:
 * an entry function has no other. The word at SP, for an entry function its return address, comes
 * with it; where there is none, x30 is free anyway. */
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

/* Keeps FPCR of `from`, and has that of `to` loaded if it differs: it is all control, the flags are
 * in FPSR, which the ABI lets any call change. Changes x2 and x3. */
#define ACO_SWITCH_CONTROL_WORDS(from, to)                                                         \
    ACO_UNLESS_SHARED(mrs x2, fpcr ACO_NL                                                          \
                      str w2, ACO_REG(FPU, from) ACO_NL                                            \
                      ldr w3, ACO_REG(FPU, to) ACO_NL                                              \
                      cmp w2, w3 ACO_NL                                                            \
                      b.eq 2f ACO_NL                                                               \
                      msr fpcr, x3 ACO_NL                                                          \
                      2:)

/* With return addresses signed, that of the function around is, and the one said instead is not. */
#if defined(__ARM_FEATURE_PAC_DEFAULT) && defined(__GCC_HAVE_DWARF2_CFI_ASM)
#define ACO_CFI_UNSIGNED ".cfi_negate_ra_state\n\t"
#else
#define ACO_CFI_UNSIGNED
#endif

/* The vector registers of SVE have their lower parts in v0-v31, and are named with them. Functions
 * that get SVE or branch protection from an attribute instead of an option, or keep SME's ZA or
 * SVE's FFR over a switch, must not contain the inline switch. */
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

/* The jump is by t2: where jumps need landing pads (Zicfilp), one by t2 does not. */
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

/* Keeps the rounding mode of `from`, which is what fcsr has of control, and has that of `to` loaded
 * if it differs. Changes a2 and a3. */
#define ACO_SWITCH_CONTROL_WORDS(from, to)                                                         \
    ACO_UNLESS_SHARED(frrm a2 ACO_NL                                                               \
                      sw a2, ACO_REG(FPU, from) ACO_NL                                             \
                      lw a3, ACO_REG(FPU, to) ACO_NL                                               \
                      beq a2, a3, 2f ACO_NL                                                        \
                      fsrm a3 ACO_NL                                                               \
                      2:)

/* Functions that get vectors from an attribute instead of an option must not contain the inline
 * switch. What vl and vtype are after an asm, compilers don't take for granted. */
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
 * both get the value that was kept. Bit 0 of an address tells that thumb code is there. Unwinders
 * are not told of the inside of the switch: their tables are right between calls only. Functions
 * that an attribute (or -mflip-thumb) compiles to the other code than their file, must not contain
 * the inline switch. */
#ifdef __thumb__
#define ACO_ADR(reg, label) adr.w reg, label ACO_NL orr reg, reg, 1
#define ACO_BP r7
#define ACO_CLOBBER_OTHER_BP "r11"
#else
#define ACO_ADR(reg, label) adr reg, label
#define ACO_BP r11
#define ACO_CLOBBER_OTHER_BP "r7"
#endif

/* A function that never returns may have no frame, if it needs no unwind table: but SP at
 * align_retptr means that a coroutine has not begun. So it gets something to keep. */
#define ACO_SWITCH_ASM(from, to)                                                                   \
    do {                                                                                           \
        uint64_t aco_i_frame;                                                                      \
        __asm__ volatile("" : "=m"(aco_i_frame));                                                  \
        register aco_t *aco_i_from __asm__("r0") = from, *aco_i_to __asm__("r1") = to;             \
        ACO_DIAGNOSTIC_PUSH                                                                        \
        __asm__ volatile(                                                                          \
            ".syntax unified\n\t" /* gcc says so itself behind an asm, and not before */           \
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

/* Keeps FPSCR of `from`, and has the control bits of `to` loaded if they differ: bits 8-26, while
 * the others are flags, which stay. Changes r2 and r3. */
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

#elif defined(__x86_64__)
#error "x32 (-mx32) has no block in aco.h and acosw.S: compile with -m64 or -m32"
#else
#error "aco has no block for this processor, for its other byte order, or for its ABI without floating \
point registers: \
write one in aco.h, section Processor, and one in acosw.S; docs/porting.md says how"
#endif

/* ---- What the two x86 blocks share ---- */

#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)

#ifdef __ASSEMBLER__
#define ACO_R(name) %name
#else
#define ACO_R(name) %%name
#endif
#define ACO_AT(offset, co) offset(ACO_R(co))

/* The word of control words: MXCSR's low half, in which bits 6-15 are control and the others are
 * sticky flags that the ABI lets any call change, and above it the x87 control word. */
#define ACO_MXCSR_CONTROL 0xffc0

/* Keeps the control words of `from`, and has those of `to` loaded if they differ. Loading a new
 * value may cost tens of ns, and MXCSR's flags nearly always differ: so only what is control is
 * compared, each half by a load no wider than its store. Changes ebx and edx. There is no immediate
 * operand, since clang drops the dollar sign of one in Intel's syntax. */
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

/* The text is AT&T syntax also where the compiler writes Intel's (-masm=intel). */
#define ACO_ATT_BEGIN "{|.att_syntax prefix\n\t}"
#define ACO_ATT_END "{|.intel_syntax noprefix\n\t}"

/* Every register that the compiler, as it was asked to, may keep a value in. Functions that get
 * SSE (on i386), AVX-512 or APX from an attribute instead of an option, or keep AMX tiles of clang's
 * types over a switch, must not contain the inline switch. */
#ifdef __MMX__
#define ACO_CLOBBER_MMX , "mm0", "mm1", "mm2", "mm3", "mm4", "mm5", "mm6", "mm7"
#else
#define ACO_CLOBBER_MMX
#endif
#ifdef _SOFT_FLOAT /* gcc with -mgeneral-regs-only, -mno-80387 or -msoft-float, which has no "st" */
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

/* ---- What all blocks share ---- */

/* What it is about, unless all coroutines share the control words. */
#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define ACO_UNLESS_SHARED(...)
#else
#define ACO_UNLESS_SHARED(...) __VA_ARGS__
#endif

/* clang addresses a frame that has both over-aligned and variable-sized locals through a register
 * of its own (rbx, esi, x19, s1, r6), which it does not let an asm clobber. Its distance from SP is
 * kept in `base`: pushing the register would put call-frame information wrong. On other processors
 * than x86 it warns of that, and of registers that an option reserves: not between DIAGNOSTIC_PUSH
 * and DIAGNOSTIC_POP. */
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

/* From the load of BP to the jump, the compiler's call-frame information is wrong, be it in terms of
 * SP or of BP. What is said instead is that this is called from where `from` will continue, with SP
 * and BP as they were stored: so the function around it shows twice there. `breg`: DW_OP_breg of
 * the register with `from`; `bp`, `pc`: their numbers in DWARF, `pc` being that of the return
 * address. Unwinders look up the address before a return address: `insn`, which is never executed,
 * is there for that. */
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

/* An arrival is an indirect jump: with branch tracking on, it needs a landing pad. */
#if (defined(__CET__) && (__CET__ & 1)) || defined(__ARM_FEATURE_BTI_DEFAULT)
#define ACO_LANDING_PAD(insn) insn
#else
#define ACO_LANDING_PAD(insn)
#endif

#ifndef __ASSEMBLER__

/* ==== For the library and its optional parts ================================================= */

#define ACO_BLOCK_CO 1         /* the aco_t, with its first save stack */
#define ACO_BLOCK_SAVE_STACK 2 /* save_stack.ptr, once it has outgrown that */
#define ACO_HAS_MARK 4         /* `base` has bits of the address of the share stack that counts it */

/* See aco_get_co(). */
extern __thread aco_t *aco_gtls_co ACO_CONFIGURED("aco_gtls_co");
#ifdef ACO_CONFIG_LIST
extern __thread aco_t *aco_i_gtls_list; /* the newest coroutine of this thread */

/* For optional parts: lists `co` as the newest of this thread, or no longer. */
void aco_i_enter_in_list(aco_t *co);
void aco_i_take_from_list(aco_t *co);
#endif

/*
 * Memory for the optional parts, from where aco_set_allocator() says: `sz` bytes, or NULL with
 * errno; and back. Releasing NULL does nothing.
 */
void *aco_i_allocate(size_t sz);
void aco_i_release(void *ptr);

#define ACO_ASSERT(EX, text)                                                                       \
    (aco_likely(EX) ? (void)0 : aco_i_assert_failed(text, __FILE__, __LINE__, __func__))
ACO_NORETURN void aco_i_assert_failed(const char *text, const char *file, int line,
                                    const char *function);

/*
 * Misuse, for the library and its optional parts: writes which call it was, which rule it broke and
 * what to do, the coroutine `co` and where its entry function is, in one line, and aborts.
 */
ACO_NORETURN __attribute__((cold)) void aco_i_fail(const char *call, const aco_t *co,
                                                   const char *rule_and_remedy);

/* ==== The inline switch ====================================================================== */

/*
 * Two things make it fast. Nothing is called and nothing returns, so the processor's prediction of
 * return addresses stays right; and only live registers are saved. Two things keep it right. Each
 * function it is inlined into must contain a call, so that it is no leaf and keeps no data below
 * its stack pointer (x86-64's red zone): the cold paths are these calls, no tail calls, and the
 * pointers that lead there are laundered so that no compiler can prove them cold for ever.
 * And memory is clobbered, so nothing read from a coroutine is believed after a switch.
 */
#define ACO_LAUNDER(ptr) __asm__("" : "+r"(ptr))

/* A function that is inline here and exported by the library under the same name. Compilers do not
 * inline into a function that differs in what a sanitizer may do, so there it is not forced. */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
#define ACO_ALWAYS
#else
#define ACO_ALWAYS always_inline,
#endif
#ifndef ACO_INLINE
#define ACO_INLINE extern inline __attribute__((ACO_ALWAYS gnu_inline))
#endif

/* As C++ has it where programs ask for warnings of C's casts and of a zero for a pointer. */
#ifdef __cplusplus
#define ACO_CAST(type, ptr) static_cast<type>(ptr)
#define ACO_NULL nullptr
#else
#define ACO_CAST(type, ptr) ((type)(ptr))
#define ACO_NULL NULL
#endif

/* Tells the compiler that the coroutine in the variable `co` runs, so that it need not load what
 * aco_gtls_co is: were that to be at an address got before the switch, it would be another thread's
 * for who was handed over. Of two equal values, clang goes on with the older one, and gcc with the
 * one that is made with less: a register that is cast, not memory. */
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

/* The cold paths. */
__attribute__((cold)) aco_t *aco_i_check_resume(const char *call, const aco_t *co);
void aco_i_acquire(aco_t *co);
aco_t *aco_i_ferry(aco_t *co);
void aco_i_wake(aco_t *co);
ACO_NORETURN __attribute__((cold)) void aco_i_misuse(const char *call, const aco_t *co);

/* What several of the inline functions have in common. */
void aco_i_continue(const char *call, aco_t *co);
void aco_i_suspend(const char *call, aco_t *co);
ACO_NORETURN void aco_i_end(const char *call, aco_t *co);
aco_t *aco_i_check_running(const char *call, aco_t *co);

/* What a sanitizer must know before a switch. TSan counts calls and returns per coroutine: it is
 * told by the function that switches itself. */
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

/* Suspends `from` and continues `to`, both variables. Once `from` is continued, it is kept, `to` is
 * not: it need not lie on the stack meanwhile. */
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

#ifdef ACO_CONFIG_STRESS
void aco_i_stress(aco_share_stack_t *share_stack);
#else
#define aco_i_stress(share_stack) ((void)0)
#endif

/* aco_thread_init() for a caller whose header is of `version`. */
void aco_i_thread_init(aco_cofuncp_t last_word, int version) ACO_CONFIGURED("aco_thread_init");

/* Refers to the library of this configuration, also where fields are all that is used. It is kept
 * when linkers drop what is not referred to, if the compiler can say so. */
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

ACO_INLINE aco_t *aco_get_co(void) { return aco_gtls_co; }
ACO_INLINE aco_t *aco_co(void) { return aco_gtls_co; }

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

/* What aco_resume() and similar calls do in the name of `call`. */
ACO_INLINE void aco_i_continue(const char *call, aco_t *co)
{
    aco_t *caller = aco_gtls_co, *main_co = caller;
    ACO_LAUNDER(co);
    ACO_LAUNDER(main_co);
    if (aco_unlikely(co == NULL || co->main_co != caller)) {
        main_co = aco_i_check_resume(call, co);
    }
    if (aco_unlikely(!co->is_owner)) {
        aco_i_acquire(co);
        main_co = co->main_co; /* not kept across the call */
    }
    aco_gtls_co = co;
    ACO_SWITCH(main_co, co);
    aco_i_stress(aco_gtls_co->share_stack); /* of the one that yielded, perhaps not `co` */
    aco_gtls_co = main_co;
}

ACO_INLINE void aco_resume(aco_t *co) { aco_i_continue("aco_resume", co); }

/* What aco_yield() and similar calls do in the name of `call`, with `co` that runs. */
ACO_INLINE void aco_i_suspend(const char *call, aco_t *co)
{
    if (aco_unlikely(co == NULL)) {
        aco_i_misuse(call, co);
    }
    aco_t *main_co = co->main_co;
    ACO_LAUNDER(main_co); /* not `co`: after an arrival, compilers know that it isn't NULL */
    if (aco_unlikely(main_co == NULL)) {
        aco_i_misuse(call, co);
    }
    ACO_SWITCH(co, main_co);
    ACO_ASSUME_RUNNING(co);
    if (aco_unlikely(co->wakes)) {
        aco_i_wake(co);
    }
}

ACO_INLINE ACO_NORETURN void aco_i_end(const char *call, aco_t *co)
{
    ACO_LAUNDER(co);
    if (aco_unlikely(co == NULL || co->main_co == NULL)) {
        aco_i_misuse(call, co);
    }
    co->is_end = 1;
    co->is_owner = 0;
    co->share_stack->owner = co->share_stack->in_place = ACO_NULL;
    aco_t *main_co = co->main_co;
    ACO_SWITCH(co, main_co);
    __builtin_unreachable();
}

ACO_INLINE aco_t *aco_i_check_running(const char *call, aco_t *co)
{
    if (aco_unlikely(co != aco_gtls_co)) {
        aco_i_misuse(call, co);
    }
    return co;
}

ACO_INLINE void aco_yield(void) { aco_i_suspend("aco_yield", aco_gtls_co); }
ACO_INLINE void aco_yield1(aco_t *co)
{
    aco_i_suspend("aco_yield1", aco_i_check_running("aco_yield1", co));
}

ACO_INLINE void aco_yield_to(aco_t *co)
{
    aco_t *self = aco_gtls_co;
    ACO_LAUNDER(self);
    /* A main coroutine owns nothing, so the others need no look at what the caller is. */
    if (aco_unlikely(self == NULL || co == NULL || co->main_co != self->main_co ||
                     !co->is_owner)) {
        co = aco_i_ferry(co);
        ACO_SWITCH(self, co);
    } else {
        aco_gtls_co = co;
        ACO_SWITCH(self, co);
    }
    ACO_ASSUME_RUNNING(self);
    if (aco_unlikely(self->wakes)) {
        aco_i_wake(self);
    }
}

ACO_INLINE ACO_NORETURN void aco_exit(void) { aco_i_end("aco_exit", aco_gtls_co); }
ACO_INLINE ACO_NORETURN void aco_exit1(aco_t *co)
{
    aco_i_end("aco_exit1", aco_i_check_running("aco_exit1", co));
}

#ifdef __cplusplus
}
#endif

#endif /* __ASSEMBLER__ */
#endif /* ACO_H */
