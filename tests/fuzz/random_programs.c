// SPDX-License-Identifier: Apache-2.0
/*
 * Stands in for libFuzzer, where there is none: gives pseudo-random programs to fuzz_programs.c.
 * The first argument is how many; a second one, the number of the only one to run. A failure prints
 * a line with that number before the message of the model. Relies on next_random() of harness.h.
 */
#include "tests/harness.h"

#include <signal.h>

#define PROGRAM_SZ 200 /* bytes, as in test_fuzz.sh */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz);

static void run_program(unsigned number)
{
    uint8_t program[PROGRAM_SZ];
    uint32_t random = number * 2654435761u + 1; /* a multiplier of Knuth's: neighbours differ */
    for (size_t i = 0; i < sizeof(program); i++) {
        program[i] = (uint8_t)(next_random(&random) >> 16);
    }
    printf("program %u\n", number);
    fflush(stdout);
    LLVMFuzzerTestOneInput(program, sizeof(program));
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        run_program((unsigned)strtoul(argv[2], NULL, 10));
        return 0;
    }
    unsigned ct = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    for (unsigned number = 0; number < ct; number++) {
        run_program(number);
    }
    return ct == 0;
}
