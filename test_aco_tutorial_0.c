// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 0: one coroutine that has a share stack to itself (a standalone one). It keeps its place
 * and its local variables from one resume to the next, may yield from inside a function that it
 * calls, and both sides can ask at any time who is running.
 */
#include "aco.h"

#include <stdio.h>

#include "aco_assert_override.h"

#define DEPOSITS 4

struct account {
    int deposit; /* main puts this in before it resumes the coroutine */
    int balance; /* the coroutine says this before it yields */
};

/* Yields on behalf of its caller: a coroutine is suspended with all its frames. */
static int next_deposit(struct account *account, int balance)
{
    account->balance = balance;
    aco_yield();
    return account->deposit;
}

static void keep_account(void)
{
    const aco_t *self = aco_get_co();
    struct account *account = aco_get_arg();
    assert(self->arg == account);
    assert(!aco_is_main_co(self));

    int balance = 0;
    for (;;) {
        int deposit = next_deposit(account, balance);
        assert(aco_get_co() == self);
        if (deposit == 0) {
            break;
        }
        balance += deposit;
    }
    printf("coroutine: closed with %d\n", balance);
    aco_exit();
}

static void make_deposits(aco_t *co, struct account *account)
{
    int expected = 0;
    for (int i = 1; i <= DEPOSITS; i++) {
        account->deposit = 10 * i;
        expected += account->deposit;
        aco_resume(co);
        printf("main: deposited %d, the balance is %d\n", account->deposit, account->balance);
        assert(account->balance == expected);
        assert(!co->is_end);
    }
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    assert(aco_is_main_co(main_co));
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    struct account account = {0, -1};
    aco_t *co = aco_create(main_co, share_stack, 0, keep_account, &account);

    /* Creating does not run anything. */
    assert(account.balance == -1);
    assert(aco_get_co() == NULL);

    aco_resume(co);
    assert(account.balance == 0);
    assert(aco_get_co() == main_co);

    make_deposits(co, &account);

    account.deposit = 0;
    aco_resume(co);
    assert(co->is_end);
    assert(aco_get_co() == main_co);
    printf("main: the coroutine has ended\n");

    aco_destroy(co);
    aco_share_stack_destroy(share_stack);
    aco_destroy(main_co);
    return 0;
}
