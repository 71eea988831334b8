// SPDX-License-Identifier: Apache-2.0
/*
 * Generators of C++20's stackless coroutines.
 *
 * kind: stackless
 * needs: g++
 * peer: C++20
 * build: $CXX -O2 -std=c++20 -Ibench/peers $SRC -o $OUT
 * peer: C++20, by loops
 * build: $CXX -O2 -std=c++20 -Ibench/peers -DBY_LOOPS $SRC -o $OUT
 */
#include "stackless_generator.hpp"
#include "values.hpp"

#ifdef BY_LOOPS
/* Passes each value on by hand, level for level. */
stackless::generator<int> walk(const node *n)
{
    if (n->left != nullptr) {
        for (int value : walk(n->left)) {
            co_yield value;
        }
    }
    co_yield n->value;
    if (n->right != nullptr) {
        for (int value : walk(n->right)) {
            co_yield value;
        }
    }
}
#else
stackless::generator<int> walk(const node *n)
{
    using nested = stackless::elements_of<stackless::generator<int>>;
    if (n->left != nullptr) {
        co_yield nested(walk(n->left));
    }
    co_yield n->value;
    if (n->right != nullptr) {
        co_yield nested(walk(n->right));
    }
}

__attribute__((noinline)) stackless::generator<int> count(int ct)
{
    for (int i = 0; i < ct; i++) {
        co_yield i;
    }
}
#endif

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "tree") == 0) {
        measure_tree(walk, atol(argv[2]));
        return 0;
    }
#ifndef BY_LOOPS
    if (argc == 3 && strcmp(argv[1], "flat") == 0) {
        measure_flat(count, atol(argv[2]));
        return 0;
    }
#endif
    absent("no such workload");
}
