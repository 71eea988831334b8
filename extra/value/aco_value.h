// SPDX-License-Identifier: Apache-2.0
/*
 * Values: resume and yield pass a pointer each way, as generators need it. Optional; nothing of aco
 * depends on it. Relies on aco.h.
 *
 *     static void count(void)                     aco_t *co = aco_create(main_co, stack, 0, count,
 *     {                                                                  NULL);
 *         int *to = aco_first_value();            int ten = 10;
 *         for (int i = 1; i <= *to; i++) {        for (int *i = aco_resume_value(co, &ten);
 *             aco_yield_value(&i);                     i != NULL; i = aco_resume_value(co, NULL)) {
 *         }                                           printf("%d\n", *i);
 *         aco_exit();                             }
 *     }
 *
 * (What lies on the stack of a copying coroutine, such as `i`, may be looked at until the next
 * resume of any coroutine.)
 */
#ifndef ACO_VALUE_H
#define ACO_VALUE_H

#include "aco.h"

#ifndef ACO_VALUE_INLINE
#define ACO_VALUE_INLINE extern inline __attribute__((ACO_ALWAYS gnu_inline))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * aco_resume(co), giving it `value`: where it is continued in aco_yield_value(), that returns it,
 * and where it starts, aco_first_value(). Elsewhere the value is lost. Returns what the coroutine
 * that continues the caller passes to aco_yield_value(); NULL if it did so by another call, as by
 * aco_exit(). Costs and aborts as aco_resume() does.
 */
void *aco_resume_value(aco_t *co, void *value);

/*
 * aco_yield(), giving `value` to the caller's parent: aco_resume_value() returns it there.
 * Elsewhere it is lost. Returns what the parent passes to aco_resume_value(), and NULL if the
 * caller is continued by another call. Costs and aborts as aco_yield() does.
 */
void *aco_yield_value(void *value);

/*
 * What the parent passed to aco_resume_value() when it started the calling coroutine; NULL if
 * it started it by another call. To be called once, before any other of these calls and any switch.
 * Aborts if the caller is no coroutine.
 */
void *aco_first_value(void);

/* ==== Inline ================================================================================= */

/* A value under way in this thread, and the only one to get it; NULL for nobody. */
typedef struct {
    const aco_t *to;
    void *value;
} aco_letter_t;
extern __thread aco_letter_t aco_gtls_letter;

ACO_VALUE_INLINE void aco_send(const aco_t *to, void *value)
{
    aco_gtls_letter.to = to;
    aco_gtls_letter.value = value;
}

/* What was sent to `co`; then nothing is under way. */
ACO_VALUE_INLINE void *aco_receive(const aco_t *co)
{
    void *value = aco_gtls_letter.to == co ? aco_gtls_letter.value : NULL;
    aco_gtls_letter.to = NULL;
    return value;
}

ACO_VALUE_INLINE void *aco_resume_value(aco_t *co, void *value)
{
    ACO_LAUNDER(co);
    aco_t *parent = co != NULL ? co->main_co : NULL;
    aco_send(co, value);
    aco_resume(co);
    return aco_receive(parent);
}

ACO_VALUE_INLINE void *aco_yield_value(void *value)
{
    aco_t *co = aco_gtls_co;
    aco_send(co != NULL ? co->main_co : NULL, value);
    aco_yield();
    return aco_receive(co);
}

ACO_VALUE_INLINE void *aco_first_value(void)
{
    aco_t *co = aco_gtls_co;
    if (aco_unlikely(co == NULL || co->main_co == NULL)) {
        aco_misuse("aco_first_value", co);
    }
    return aco_receive(co);
}

#ifdef __cplusplus
}
#endif

#endif
