// SPDX-License-Identifier: Apache-2.0
/* Waits for locks that are not free at once. */
#include "base/base.h"

void aco_i_lock_slowly(lock_t *lock)
{
    for (unsigned ct = 1;; ct++) {
        if (!__atomic_load_n(&lock->is_held, __ATOMIC_RELAXED) &&
            !__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE)) {
            return;
        }
        if (ct % 64 == 0) {
            aco_i_libc.sched_yield(); /* its holder may have lost the processor */
        }
    }
}

int aco_i_try_to_lock(lock_t *lock)
{
    for (int ct = 0; ct < 10000; ct++) {
        if (!__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE)) {
            return 1;
        }
        aco_i_libc.sched_yield();
    }
    return 0;
}
