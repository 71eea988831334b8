// SPDX-License-Identifier: Apache-2.0
/*
 * No coroutines: a bare pass over as much memory as those of aco have on a share stack. Every word
 * of each block is read and written, once for each resume that it stands for, as no copying library
 * can do with less. Where a library takes as long, it is memory that is measured.
 *
 * kind: memory
 * peer: bare pass over the memory
 * build: $CC -O3 -I. -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT
 */
#include "aco.h"

#include "peer.h"

#define SMALLEST_FRAME_SZ 56 /* bytes; of an entry function that only yields */

int main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], "share") != 0) {
        absent("no such workload");
    }
    size_t count = strtoul(argv[2], NULL, 10), live_sz = strtoul(argv[3], NULL, 10);
    uint64_t rounds = strtoul(argv[4], NULL, 10);
    live_sz = live_sz < SMALLEST_FRAME_SZ ? SMALLEST_FRAME_SZ : live_sz;
    size_t word_ct = (sizeof(aco_t) + live_sz) / sizeof(uint64_t);
    uint64_t **blocks = (uint64_t **)get_memory(count * sizeof(*blocks));
    for (size_t i = 0; i < count; i++) {
        blocks[i] = (uint64_t *)get_memory(word_ct * sizeof(uint64_t));
        memset(blocks[i], 0, word_ct * sizeof(uint64_t));
    }
    int64_t start = now_ns();
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < word_ct; k++) {
                blocks[i][k]++;
            }
        }
    }
    double ns = mean_ns(start, (double)count * (double)rounds);
    for (size_t i = 0; i < count; i++) {
        check(blocks[i][0] == rounds && blocks[i][word_ct - 1] == rounds, "a word was left out");
    }
    print_metric("ns", ns);
    return 0;
}
