// SPDX-License-Identifier: Apache-2.0
/*
 * Callers that know what the inline functions test, so that a compiler might leave out the calls on
 * their cold paths. A function without any call may use the red zone, also for what it needs after
 * the switch. test_registers.sh reads the assembly.
 */
#include "aco.h"
#include "extra/value/aco_value.h"

long resumes(aco_t *co, long a, long b, long c);
long resumes_with_value(aco_t *co, long a, long b, long c);
long yields(long a, long b, long c);
long yields_to(aco_t *co, long a, long b, long c);
long exits(long a, long b, long c);

static int may_be_resumed(const aco_t *co)
{
    return co != NULL && co->main_co != NULL && co->main_co == aco_get_co() && !co->is_end &&
           co->is_owner;
}

long resumes(aco_t *co, long a, long b, long c)
{
    if (!may_be_resumed(co)) {
        return 0;
    }
    aco_resume(co);
    return a * b + c;
}

long resumes_with_value(aco_t *co, long a, long b, long c)
{
    if (!may_be_resumed(co)) {
        return 0;
    }
    (void)aco_resume_value(co, NULL);
    return a * b + c;
}

static int may_yield(const aco_t *co)
{
    return co != NULL && co->main_co != NULL && !co->wakes;
}

long yields(long a, long b, long c)
{
    if (!may_yield(aco_get_co())) {
        return 0;
    }
    aco_yield();
    return a * b + c;
}

long yields_to(aco_t *co, long a, long b, long c)
{
    const aco_t *self = aco_get_co();
    if (!may_yield(self) || co == NULL || co->main_co != self->main_co || !co->is_owner) {
        return 0;
    }
    aco_yield_to(co);
    return a * b + c;
}

long exits(long a, long b, long c)
{
    if (!may_yield(aco_get_co())) {
        return a * b + c;
    }
    aco_exit();
}
