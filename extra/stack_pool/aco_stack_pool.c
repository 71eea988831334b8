// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_stack_pool.h. A slab is one mapping: an array of `co_t`, one for each of its
 * slots, and above it the slots. A slot, drawn with low addresses at the bottom:
 *
 *   slot + slot_sz ->  +--------------------------+
 *                      | colour                   |  a varying number of unused cache lines
 *                      +--------------------------+
 *                      | head_t                   |
 *                      +--------------------------+
 *                      | aco_share_stack_t        |  begins a cache line
 *     align_highptr -> +--------------------------+
 *                      | the stack                |
 *   slot + guard_sz -> +--------------------------+
 *                      | guard                    |  none with ACO_STACK_POOL_NO_GUARD
 *             slot ->  +--------------------------+
 *
 * A guard thus lies between each stack and what is below it, the array of `co_t` included.
 *
 * Slots are prepared in the order of addresses. A prepared slot is in use, warm or cold; warm and
 * cold ones are idle. The memory of a cold one was given back, including its struct; its guard
 * stays.
 *
 * Invariants, for a pool:
 *   P1  idle[0..cold_ct) are cold, idle[cold_ct..idle_ct) are warm, in the order in which they were
 *       put back
 *   P2  head->out is the struct of a stack in use, and NULL for an idle one
 *   P3  only the last slab may have slots that are not prepared
 *   P4  for a warm stack and one in use, head->co is the co_t with the index of its slot
 */

/* Declares MAP_ANONYMOUS and similar in strict dialects too. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "aco_stack_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#ifdef ACO_USE_ASAN
#include <sanitizer/lsan_interface.h>
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13, include/uapi/asm-generic/mman-common.h */
#endif

#define STACK_DEFAULT_SZ ((size_t)128 << 10) /* bytes */
#define STACK_MIN_SZ ((size_t)4096)          /* bytes */
#define GUARD_DEFAULT_SZ ((size_t)64 << 10)  /* bytes: for frames of 32 KiB and their callees */
#define FIRST_SLAB_CT 64u                    /* stacks */
#define PERIOD_MIN 1024u                     /* puts from one review of idle stacks to the next */
#define PERIOD_PER_STACK 16u                 /* more puts for each stack */
#define RESERVE_CT 64u                       /* idle stacks kept until aco_stack_pool_trim() */
#define CACHE_LINE_SZ 64u                    /* bytes; matters for speed only */
#define CO_ALIGNMENT 16u                     /* bytes; of an aco_t and of a share stack's struct */
/* Number of different tops, a cache line apart. They leave enough of a page's 64 lines for the
 * structs and a KiB of frames, so that most stacks take one page of memory. */
#ifndef ACO_STACK_POOL_COLOURS
#define ACO_STACK_POOL_COLOURS 40u
#endif

#define ROUND_UP(n, multiple) (((n) + (multiple)-1) / (multiple) * (multiple))

/* The place of an aco_t of aco_stack_pool_create_co(): whole cache lines, so that a resume touches
 * only one of them. */
typedef union {
    aco_t co;
    char lines[ROUND_UP(sizeof(aco_t), CACHE_LINE_SZ)];
} co_t;

/* Lies above the struct of a stack. */
typedef struct {
    aco_share_stack_t *out; /* P2 */
    co_t *co;               /* P4 */
} head_t;

/* Bytes from the struct of a stack to its head, and to the colour. */
#define HEAD_DISTANCE ROUND_UP(sizeof(aco_share_stack_t), CO_ALIGNMENT)
#define TOP_SZ ROUND_UP(HEAD_DISTANCE + sizeof(head_t), CACHE_LINE_SZ)
#define COLOURS_SZ ((ACO_STACK_POOL_COLOURS - 1) * (size_t)CACHE_LINE_SZ)

typedef struct {
    co_t *cos; /* the mapping begins with them */
    size_t sz; /* bytes mapped */
    char *slots;
    size_t first_colour;
    size_t ct;          /* slots */
    size_t prepared_ct; /* prepared slots, from the lowest on */
    size_t prepared_sz; /* their bytes */
} slab_t;

struct aco_stack_pool_s {
    aco_share_stack_t **idle; /* P1 */
    size_t idle_ct;
    size_t cold_ct;
    size_t lowest_ct;    /* the smallest idle_ct since the last review */
    size_t until_upkeep; /* puts until keep_up() is due */
    size_t ct_put;       /* all puts, plus those in until_upkeep */
    size_t surplus_ct;   /* stacks that the next puts give back, one each */
    size_t stack_ct;     /* prepared slots */
    size_t ct_given_back;
    size_t most_in_use; /* until the last review */
    size_t idle_room;   /* entries at idle, at least stack_ct */
    slab_t *slabs;
    slab_t *slabs_end;
    size_t stack_sz; /* bytes */
    size_t slot_sz;  /* bytes, whole pages */
    size_t guard_sz; /* bytes, whole pages or 0 */
    size_t page_sz;  /* bytes */
    char has_mprotect;
    char is_shared;
    /* Taken by all calls of a shared pool, and by the slow calls of others. Not a spin lock: its
     * holder may be in a system call of some microseconds. */
    pthread_mutex_t lock;
};

/* ==== Failure ================================================================================ */

static inline void demand(int holds, const char *call, const aco_t *co, const char *rule_and_remedy)
{
    if (aco_unlikely(!holds)) {
        aco_i_fail(call, co, rule_and_remedy);
    }
}

static inline void demand_pool(const aco_stack_pool_t *pool, const char *call)
{
    demand(pool != NULL, call, NULL, "the pool is NULL: pass what aco_stack_pool_new() returned");
}

/* Sets `*why`, for callers that want a message, and errno; returns NULL. */
static void *refuse(const char **why, const char *reason_and_remedy)
{
    *why = reason_and_remedy;
    errno = ENOMEM;
    return NULL;
}

/* Moves an array of `sz` bytes, if any, to a larger block; it stays if there is no memory. */
static void *enlarge(void *array, size_t sz, size_t new_sz, const char **why)
{
    void *block = aco_i_allocate(new_sz);
    if (block == NULL) {
        return refuse(why, "there is no memory for a list of stacks: free some first");
    }
    if (sz != 0) {
        memcpy(block, array, sz);
    }
    aco_i_release(array);
    return block;
}

/* ==== Slots ================================================================================== */

static inline head_t *head_of(aco_share_stack_t *s)
{
    return (head_t *)(void *)((char *)s + HEAD_DISTANCE);
}

static inline int is_in(const slab_t *slab, const void *s)
{
    return (uintptr_t)s - (uintptr_t)slab->slots < slab->prepared_sz;
}

/* The slab that contains `s`, or NULL. The last slab, as large as all others together, is the most
 * likely. */
static inline const slab_t *find_slab(const aco_stack_pool_t *pool, const void *s)
{
    const slab_t *slab = pool->slabs_end;
    while (slab != pool->slabs) {
        if (aco_likely(is_in(--slab, s))) {
            return slab;
        }
    }
    return NULL;
}

/* The struct of a slot's stack. */
static aco_share_stack_t *stack_at(const aco_stack_pool_t *pool, const slab_t *slab, size_t index)
{
    size_t colour = (slab->first_colour + index) % ACO_STACK_POOL_COLOURS;
    char *top = slab->slots + (index + 1) * pool->slot_sz - colour * CACHE_LINE_SZ;
    return (aco_share_stack_t *)(void *)(top - TOP_SZ);
}

/* Makes the stack of a slot that is cold or has just been prepared. */
static void warm_up(const aco_stack_pool_t *pool, aco_share_stack_t *s)
{
    const slab_t *slab = find_slab(pool, s);
    size_t index = (size_t)((char *)s - slab->slots) / pool->slot_sz;
    char *slot = slab->slots + index * pool->slot_sz;
    head_t *head = head_of(s);
    char *low = slot + pool->guard_sz;
    aco_share_stack_t *made = aco_share_stack_new_in(low, (size_t)((char *)head - low));
    aco_assert(made == s);
    s->guard_page_enabled = pool->guard_sz != 0;
    s->is_pooled = 1;
    s->real_ptr = slot;
    head->co = &slab->cos[index];
#ifdef ACO_USE_ASAN
    __lsan_register_root_region(head->co, sizeof(aco_t));
#endif
}

/* Destroys a warm stack, but not its memory. */
static void forget(aco_share_stack_t *s)
{
#ifdef ACO_USE_ASAN
    __lsan_unregister_root_region(head_of(s)->co, sizeof(aco_t));
#endif
    s->is_pooled = 0;
    aco_share_stack_destroy(s);
}

/* Gives the memory of the warm stack that was idle longest back to the system. Its guard stays: the
 * range begins above it, and MADV_DONTNEED would not remove it. */
static void give_back(aco_stack_pool_t *pool)
{
    aco_share_stack_t *s = pool->idle[pool->cold_ct++];
    char *low = (char *)s->ptr;
    char *slot = low - pool->guard_sz;
    forget(s);
    madvise(low, (size_t)(slot + pool->slot_sz - low), MADV_DONTNEED);
    pool->ct_given_back++;
}

/* ==== Slabs ================================================================================== */

/* Maps a slab of `ct` slots; returns whether that succeeded. */
static int map_slab(const aco_stack_pool_t *pool, slab_t *slab, size_t ct)
{
    if (ct > (SIZE_MAX - pool->page_sz) / (pool->slot_sz + sizeof(co_t))) {
        return 0;
    }
    size_t cos_sz = ROUND_UP(ct * sizeof(co_t), pool->page_sz);
    size_t sz = cos_sz + ct * pool->slot_sz;
    void *mapping = mmap(NULL, sz, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapping == MAP_FAILED) {
        return 0;
    }
#ifdef MADV_NOHUGEPAGE
    /* Huge pages would make small stacks take 2 MiB. Not all kernels take MAP_STACK for this. */
    (void)madvise(mapping, sz, MADV_NOHUGEPAGE);
#endif
    memset(slab, 0, sizeof(*slab));
    slab->cos = (co_t *)mapping;
    slab->sz = sz;
    slab->slots = (char *)mapping + cos_sz;
    slab->first_colour = pool->stack_ct;
    slab->ct = ct;
    return 1;
}

/* Adds a slab, with fewer slots if memory is short. */
static slab_t *add_slab(aco_stack_pool_t *pool, const char **why)
{
    size_t slab_ct = (size_t)(pool->slabs_end - pool->slabs), sz = slab_ct * sizeof(slab_t);
    slab_t *slabs = (slab_t *)enlarge(pool->slabs, sz, sz + sizeof(slab_t), why);
    if (slabs == NULL) {
        return NULL;
    }
    pool->slabs = slabs;
    pool->slabs_end = slabs + slab_ct;
    size_t ct = pool->stack_ct > FIRST_SLAB_CT ? pool->stack_ct : FIRST_SLAB_CT;
    for (; ct > 0; ct /= 2) {
        if (map_slab(pool, pool->slabs_end, ct)) {
            return pool->slabs_end++;
        }
    }
    return (slab_t *)refuse(why,
                            "mmap() of a stack failed: put or free some first, or raise the "
                            "limit on memory (ulimit -v) or on mappings (vm.max_map_count)");
}

/* Makes the guard of a slot; returns whether it exists. */
static int guard(aco_stack_pool_t *pool, char *slot, const char **why)
{
    size_t sz = pool->guard_sz;
    if (sz == 0 || (!pool->has_mprotect && madvise(slot, sz, MADV_GUARD_INSTALL) == 0)) {
        return 1;
    }
    pool->has_mprotect = 1;
    return mprotect(slot, sz, PROT_NONE) == 0 ||
           refuse(why,
                  "mprotect() of a guard failed: it takes two mappings, and the process "
                  "has as many as vm.max_map_count allows: raise that, use Linux 6.13 or later, "
                  "where guards take none, or put some stacks first") != NULL;
}

/* Makes room in `idle` for one more stack. */
static int make_room(aco_stack_pool_t *pool, const char **why)
{
    if (pool->stack_ct < pool->idle_room) {
        return 1;
    }
    size_t room = 2 * pool->idle_room + FIRST_SLAB_CT;
    void *idle = enlarge(pool->idle, pool->idle_ct * sizeof(pool->idle[0]),
                         room * sizeof(pool->idle[0]), why);
    if (idle == NULL) {
        return 0;
    }
    pool->idle = (aco_share_stack_t **)idle;
    pool->idle_room = room;
    return 1;
}

static slab_t *slab_with_room(aco_stack_pool_t *pool, const char **why)
{
    slab_t *end = pool->slabs_end;
    return end != pool->slabs && end[-1].prepared_ct < end[-1].ct ? end - 1 : add_slab(pool, why);
}

/* Prepares the next slot. */
static aco_share_stack_t *prepare(aco_stack_pool_t *pool, const char **why)
{
    slab_t *slab = make_room(pool, why) ? slab_with_room(pool, why) : NULL;
    if (slab == NULL || !guard(pool, slab->slots + slab->prepared_sz, why)) {
        return NULL;
    }
    pool->stack_ct++;
    slab->prepared_sz += pool->slot_sz;
    return stack_at(pool, slab, slab->prepared_ct++);
}

static size_t count_idle_in(const aco_stack_pool_t *pool, const slab_t *slab)
{
    size_t ct = 0;
    for (size_t i = 0; i < pool->idle_ct; i++) {
        ct += (size_t)is_in(slab, pool->idle[i]);
    }
    return ct;
}

/* Unmaps a slab whose stacks are all idle. */
static void unmap(aco_stack_pool_t *pool, slab_t *slab)
{
    size_t kept_ct = 0, cold_ct = pool->cold_ct;
    for (size_t i = 0; i < pool->idle_ct; i++) {
        aco_share_stack_t *s = pool->idle[i];
        if (!is_in(slab, s)) {
            pool->idle[kept_ct++] = s;
        } else if (i < cold_ct) {
            pool->cold_ct--;
        } else {
            forget(s);
            pool->ct_given_back++;
        }
    }
    pool->idle_ct = kept_ct;
    pool->stack_ct -= slab->prepared_ct;
    munmap(slab->cos, slab->sz);
    pool->slabs_end--;
    memmove(slab, slab + 1, (size_t)(pool->slabs_end - slab) * sizeof(*slab));
}

/* ==== Idleness =============================================================================== */

static size_t most_in_use(const aco_stack_pool_t *pool)
{
    /* If a stack was prepared since the last review, none was idle then: lowest_ct was 0. */
    size_t since_review = pool->stack_ct - pool->lowest_ct;
    return since_review > pool->most_in_use ? since_review : pool->most_in_use;
}

static void begin_period(aco_stack_pool_t *pool, size_t surplus_ct)
{
    pool->lowest_ct = pool->idle_ct;
    pool->surplus_ct = surplus_ct;
    pool->ct_put -= pool->until_upkeep;
    pool->until_upkeep = surplus_ct != 0 ? 1 : PERIOD_MIN + PERIOD_PER_STACK * pool->stack_ct;
    pool->ct_put += pool->until_upkeep;
}

/* Half of the warm stacks that were idle throughout a period, less the reserve, are surplus at its
 * end. Each put from then on gives one of them back. Giving one back and taking it again costs some
 * 3000 ns: with the length of a period, less than 100 ns a put. */
static __attribute__((noinline)) void keep_up(aco_stack_pool_t *pool)
{
    pool->most_in_use = most_in_use(pool);
    if (pool->surplus_ct == 0) {
        size_t kept_ct = pool->cold_ct + RESERVE_CT;
        begin_period(pool, pool->lowest_ct > kept_ct ? (pool->lowest_ct - kept_ct + 1) / 2 : 0);
        return;
    }
    if (pool->idle_ct > pool->cold_ct) {
        give_back(pool);
    }
    begin_period(pool, pool->surplus_ct - 1);
}

void aco_stack_pool_trim(aco_stack_pool_t *pool)
{
    demand_pool(pool, "aco_stack_pool_trim");
    pthread_mutex_lock(&pool->lock);
    pool->most_in_use = most_in_use(pool);
    for (slab_t *slab = pool->slabs_end; slab != pool->slabs;) {
        slab--;
        if (count_idle_in(pool, slab) == slab->prepared_ct) {
            unmap(pool, slab);
        }
    }
    while (pool->cold_ct < pool->idle_ct) {
        give_back(pool);
    }
    begin_period(pool, 0);
    pthread_mutex_unlock(&pool->lock);
}

/* ==== Life of a pool ========================================================================= */

static void check_flags(unsigned flags)
{
    unsigned guard_kib = flags / ACO_STACK_POOL_GUARD_KIB(1);
    unsigned others = flags % ACO_STACK_POOL_GUARD_KIB(1);
    demand((others & ~(ACO_STACK_POOL_NO_GUARD | ACO_STACK_POOL_SHARED)) == 0 &&
               !((others & ACO_STACK_POOL_NO_GUARD) && guard_kib != 0),
           "aco_stack_pool_new", NULL,
           "there is no such flag, or a size of guards beside "
           "ACO_STACK_POOL_NO_GUARD: pass 0, or a sum of ACO_STACK_POOL_*");
}

/* Bytes, whole pages or 0; SIZE_MAX if there can't be so many. */
static size_t guard_sz_of(unsigned flags, size_t page_sz)
{
    size_t kib = flags / ACO_STACK_POOL_GUARD_KIB(1);
    if (flags & ACO_STACK_POOL_NO_GUARD) {
        return 0;
    }
    if (kib > SIZE_MAX / 2048) {
        return SIZE_MAX;
    }
    return ROUND_UP(kib == 0 ? GUARD_DEFAULT_SZ : kib * 1024, page_sz);
}

aco_stack_pool_t *aco_stack_pool_try_new(size_t stack_sz, unsigned flags)
{
    check_flags(flags);
    size_t page_sz = (size_t)sysconf(_SC_PAGESIZE), guard_sz = guard_sz_of(flags, page_sz);
    size_t usable_sz = stack_sz == 0 ? STACK_DEFAULT_SZ : stack_sz;
    usable_sz = usable_sz < STACK_MIN_SZ ? STACK_MIN_SZ : usable_sz;
    aco_stack_pool_t *pool = NULL;
    if (usable_sz <= SIZE_MAX / 2 && guard_sz <= SIZE_MAX / 4) {
        pool = (aco_stack_pool_t *)aco_i_allocate(sizeof(*pool));
    }
    if (pool == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    memset(pool, 0, sizeof(*pool));
    pool->stack_sz = usable_sz;
    pool->guard_sz = guard_sz;
    pool->page_sz = page_sz;
    /* CO_ALIGNMENT is for the protector's word. */
    size_t above_guard_sz = usable_sz + CO_ALIGNMENT + TOP_SZ + COLOURS_SZ;
    pool->slot_sz = guard_sz + ROUND_UP(above_guard_sz, page_sz);
    pool->is_shared = (flags & ACO_STACK_POOL_SHARED) != 0;
    pthread_mutex_init(&pool->lock, NULL);
    begin_period(pool, 0);
    return pool;
}

aco_stack_pool_t *aco_stack_pool_new(size_t stack_sz, unsigned flags)
{
    aco_stack_pool_t *pool = aco_stack_pool_try_new(stack_sz, flags);
    demand(pool != NULL, "aco_stack_pool_new", NULL,
           "out of memory: ask for smaller stacks, or free some memory first");
    return pool;
}

void aco_stack_pool_destroy(aco_stack_pool_t *pool)
{
    demand_pool(pool, "aco_stack_pool_destroy");
    demand(pool->idle_ct == pool->stack_ct, "aco_stack_pool_destroy", NULL,
           "a stack of the pool is in use: put it back first");
    aco_stack_pool_trim(pool);
    pthread_mutex_destroy(&pool->lock);
    aco_i_release(pool->idle);
    aco_i_release(pool->slabs);
    aco_i_release(pool);
}

/* ==== Get and put ============================================================================ */

/* Takes the warm stack that was put back last. */
static inline aco_share_stack_t *pop(aco_stack_pool_t *pool)
{
    aco_share_stack_t *s = pool->idle[--pool->idle_ct];
    if (pool->idle_ct < pool->lowest_ct) {
        pool->lowest_ct = pool->idle_ct;
    }
    head_of(s)->out = s;
    return s;
}

/* Makes a warm stack when none is idle; returns whether that succeeded. */
static int provide(aco_stack_pool_t *pool, const char **why)
{
    if (pool->idle_ct == 0) {
        aco_share_stack_t *s = prepare(pool, why);
        if (s == NULL) {
            return 0;
        }
        pool->idle[pool->idle_ct++] = s;
    }
    pool->cold_ct = pool->idle_ct - 1;
    warm_up(pool, pool->idle[pool->cold_ct]);
    return 1;
}

/* Serves shared pools, and others when no warm stack is idle. */
static __attribute__((noinline)) aco_share_stack_t *take_slowly(aco_stack_pool_t *pool,
                                                                const char *call)
{
    const char *why = NULL;
    aco_share_stack_t *s = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->idle_ct > pool->cold_ct || provide(pool, &why)) {
        s = pop(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    demand(s != NULL || call == NULL, call, NULL, why);
    return s;
}

/* Fails in the name of `call` if there is no stack, or returns NULL if that is NULL. */
static inline aco_share_stack_t *take(aco_stack_pool_t *pool, const char *call)
{
    if (aco_likely(!pool->is_shared && pool->idle_ct > pool->cold_ct)) {
        return pop(pool);
    }
    return take_slowly(pool, call);
}

/* Puts `s` back, after checking that it may be. */
static inline void push(aco_stack_pool_t *pool, aco_share_stack_t *s, const char *call)
{
    demand(find_slab(pool, s) != NULL && head_of(s)->out == s, call, NULL,
           "no such stack is out: put it once, and into the pool that it was taken from");
    demand(s->in_place == NULL && s->ct_coroutines == 0, call, s->in_place,
           "a coroutine that was created on the stack still exists: destroy it first");
    head_of(s)->out = NULL;
    pool->idle[pool->idle_ct++] = s;
    if (aco_unlikely(--pool->until_upkeep == 0)) {
        keep_up(pool);
    }
}

static __attribute__((noinline)) void give_shared(aco_stack_pool_t *pool, aco_share_stack_t *s,
                                                  const char *call)
{
    pthread_mutex_lock(&pool->lock);
    push(pool, s, call);
    pthread_mutex_unlock(&pool->lock);
}

static inline void give(aco_stack_pool_t *pool, aco_share_stack_t *s, const char *call)
{
    if (aco_likely(!pool->is_shared)) {
        push(pool, s, call);
    } else {
        give_shared(pool, s, call);
    }
}

aco_share_stack_t *aco_stack_pool_get(aco_stack_pool_t *pool)
{
    const char *call = "aco_stack_pool_get";
    demand_pool(pool, call);
    return take(pool, call);
}

aco_share_stack_t *aco_stack_pool_try_get(aco_stack_pool_t *pool)
{
    demand_pool(pool, "aco_stack_pool_try_get");
    return take(pool, NULL);
}

void aco_stack_pool_put(aco_stack_pool_t *pool, aco_share_stack_t *share_stack)
{
    const char *call = "aco_stack_pool_put";
    demand_pool(pool, call);
    give(pool, share_stack, call);
}

/* ==== Coroutines ============================================================================= */

static inline aco_t *create_co(aco_share_stack_t *s, aco_t *main_co, aco_cofuncp_t fp, void *arg)
{
    co_t *co = head_of(s)->co;
    return aco_create_in(co, sizeof(*co), main_co, s, fp, arg);
}

static inline void demand_arguments(const aco_t *main_co, aco_cofuncp_t fp, const char *call)
{
    demand(main_co != NULL, call, NULL, "main_co is NULL: pass the parent of the new coroutine");
    demand(fp != NULL, call, NULL, "the entry function is NULL: a coroutine needs one");
}

aco_t *aco_stack_pool_create_co(aco_stack_pool_t *pool, aco_t *main_co, aco_cofuncp_t fp, void *arg)
{
    const char *call = "aco_stack_pool_create_co";
    demand_pool(pool, call);
    demand_arguments(main_co, fp, call);
    return create_co(take(pool, call), main_co, fp, arg);
}

aco_t *aco_stack_pool_try_create_co(aco_stack_pool_t *pool, aco_t *main_co, aco_cofuncp_t fp,
                                    void *arg)
{
    const char *call = "aco_stack_pool_try_create_co";
    demand_pool(pool, call);
    demand_arguments(main_co, fp, call);
    aco_share_stack_t *s = take(pool, NULL);
    return s != NULL ? create_co(s, main_co, fp, arg) : NULL;
}

void aco_stack_pool_destroy_co(aco_stack_pool_t *pool, aco_t *co)
{
    const char *call = "aco_stack_pool_destroy_co";
    demand_pool(pool, call);
    demand(co != NULL && co->share_stack != NULL, call, co,
           "the coroutine is NULL or a main coroutine: pass one that runs on a stack of the pool");
    aco_share_stack_t *s = co->share_stack;
    aco_destroy(co);
    give(pool, s, call);
}

/* ==== Statistics ============================================================================= */

void aco_stack_pool_stats(aco_stack_pool_t *pool, aco_stack_pool_stats_t *stats)
{
    const char *call = "aco_stack_pool_stats";
    demand_pool(pool, call);
    demand(stats != NULL, call, NULL,
           "there is nowhere to write to: pass an aco_stack_pool_stats_t");
    pthread_mutex_lock(&pool->lock);
    memset(stats, 0, sizeof(*stats));
    stats->stack_sz = pool->stack_sz;
    stats->in_use = pool->stack_ct - pool->idle_ct;
    stats->most_in_use = most_in_use(pool);
    stats->idle = pool->idle_ct - pool->cold_ct;
    stats->ct_get = pool->ct_put - pool->until_upkeep + stats->in_use; /* puts, and those out */
    stats->ct_given_back = pool->ct_given_back;
    stats->ct_slabs = (size_t)(pool->slabs_end - pool->slabs);
    for (const slab_t *slab = pool->slabs; slab != pool->slabs_end; slab++) {
        stats->mapped_sz += slab->sz;
    }
    stats->has_mprotect = pool->has_mprotect;
    pthread_mutex_unlock(&pool->lock);
}
