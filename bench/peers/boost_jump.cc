// SPDX-License-Identifier: Apache-2.0
/*
 * The switch below Boost.Context, jump_fcontext(), by itself. It is no public interface, and so
 * only `pure` is measured.
 *
 * kind: stackful
 * needs: libboost-context-dev
 * peer: Boost jump_fcontext
 * build: $CXX -std=c++20 -O2 -DNDEBUG $SRC -o $OUT -l:libboost_context.a
 *
 * needs: libboost-context-dev cargo-web/cargo
 * registry: crates.io context 2.1.0
 * peer: Boost jump_fcontext, no control words
 * build: objects=$(bench/peers/boost.sh no_control_words $OUT) && \
 *        $CXX -std=c++20 -O2 -DNDEBUG $SRC $objects -o $OUT -l:libboost_context.a
 */
#include "peer.h"

#include <boost/context/detail/fcontext.hpp>

using namespace boost::context::detail;

static long yields;

static void flat(transfer_t from)
{
    for (;;) {
        yields++;
        from = jump_fcontext(from.fctx, nullptr);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[1], "pure") != 0) {
        absent("no such workload");
    }
    const size_t stack_sz = 16 << 10;
    long n = strtol(argv[2], nullptr, 10);
    char *stack = static_cast<char *>(get_memory(stack_sz));
    transfer_t co = jump_fcontext(make_fcontext(stack + stack_sz, stack_sz, flat), nullptr);
    yields = 0;
    int64_t start = now_ns();
    for (long i = 0; i < n; i++) {
        co = jump_fcontext(co.fctx, nullptr);
    }
    double ns = mean_ns(start, (double)n);
    check(yields == n, "a switch was lost");
    print_metric("ns", ns);
    return 0;
}
