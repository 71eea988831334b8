// SPDX-License-Identifier: Apache-2.0
/*
 * The short names of assertions, after <assert.h> and whatever NDEBUG says. The argument tells
 * which one is to fail; without one, none does.
 */
#include "aco.h"

#include <assert.h>

#define likely(EX) "somebody else's, which must not be in the way"

#include "aco_assert_override.h"

static int ct_evaluated;

static int evaluate(int value)
{
    ct_evaluated++;
    return value;
}

int main(int argc, char **argv)
{
    int failing = argc == 2 ? atoi(argv[1]) : 0;
    const char *ptr = failing == 2 || failing == 4 ? NULL : "";
    if (likely(failing != 1) && unlikely(failing == -1)) {
        return 2;
    }
    if likely (failing == -1) {
        return 3;
    }
    assert(evaluate(failing != 1));
    assertptr(failing == 2 ? ptr : "");
    assertalloc_bool(evaluate(failing != 3));
    assertalloc_ptr(failing == 4 ? ptr : "");
    if (evaluate(1)) {
        assert(evaluate(1));
    } else {
        assert(evaluate(0));
    }
    return ct_evaluated != 4;
}
