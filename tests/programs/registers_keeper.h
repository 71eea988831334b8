// SPDX-License-Identifier: Apache-2.0
/*
 * The body of a function that keeps values alive across a switch; registers.c includes it once for
 * each such function, after having defined
 *   KEEPER_NAME     its name
 *   KEEPER_SWITCH   the switch, a statement that may use `co`
 *   KEEPER_AWKWARD  1: its frame has an over-aligned array and one of variable size, so that the
 *                   compiler needs a register of its own to address it; 0: it has neither
 * All values are in registers before the switch, as far as there are any, and wanted in registers
 * after it. Nothing is called but what the switch calls: a call would empty the registers as well,
 * and hide a switch that does not. Returns how many kinds of values have changed.
 */

static NOINLINE unsigned KEEPER_NAME(const keeper_t *keeper, aco_t *co)
{
    unsigned wrong = 0;
    (void)co;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t seed = keeper->seed + round;
        uintptr_t wrong_ints = 0;
        unsigned wrong_floats = 0;
#if KEEPER_AWKWARD
        unsigned char aligned[ALIGNED_SZ] __attribute__((aligned(ALIGNMENT)));
        unsigned char variable[keeper->variable_sz];
        unsigned char *aligned_ptr = aligned, *variable_ptr = variable;
        LAUNDER("r", aligned_ptr);
        LAUNDER("r", variable_ptr);
        for (size_t i = 0; i < ALIGNED_SZ; i++) {
            aligned_ptr[i] = (unsigned char)(seed + i);
        }
        for (size_t i = 0; i < keeper->variable_sz; i++) {
            variable_ptr[i] = (unsigned char)(seed * 3 + i);
        }
#endif
        ALL_INTS(DECLARE_INT)
        ALL_DOUBLES(DECLARE_DOUBLE)
        ALL_FLOATS(DECLARE_FLOAT)
        ALL_LONG_DOUBLES(DECLARE_LONG_DOUBLE)
        ALL_VECTORS(DECLARE_VECTOR)
        ALL_WIDE_VECTORS(DECLARE_WIDE_VECTOR)
        ALL_SCALABLE(DECLARE_SCALABLE)

        KEEPER_SWITCH;

        /* The expected values are worked out anew. */
        seed = keeper->seed + round;
        LAUNDER("r", seed);
        ALL_LONG_DOUBLES(CHECK_LONG_DOUBLE)
        ALL_DOUBLES(CHECK_DOUBLE)
        ALL_FLOATS(CHECK_FLOAT)
        ALL_INTS(CHECK_INT)
        wrong += wrong_ints != 0;
        wrong += wrong_floats != 0;
#ifdef VECTOR_CONSTRAINT
        vector_t wrong_lanes = {0, 0, 0, 0};
        ALL_VECTORS(CHECK_VECTOR)
        wrong += (wrong_lanes[0] | wrong_lanes[1] | wrong_lanes[2] | wrong_lanes[3]) != 0;
#endif
#ifdef WIDE_VECTOR_CONSTRAINT
        wide_vector_t wrong_wide = {0, 0, 0, 0, 0, 0, 0, 0};
        ALL_WIDE_VECTORS(CHECK_WIDE_VECTOR)
        for (int i = 0; i < 8; i++) {
            wrong += wrong_wide[i] != 0;
        }
#endif
        ALL_SCALABLE(CHECK_SCALABLE)
#if KEEPER_AWKWARD
        wrong += (uintptr_t)aligned_ptr % ALIGNMENT != 0;
        for (size_t i = 0; i < ALIGNED_SZ; i++) {
            wrong += aligned[i] != (unsigned char)(seed + i);
        }
        for (size_t i = 0; i < keeper->variable_sz; i++) {
            wrong += variable[i] != (unsigned char)(seed * 3 + i);
        }
#endif
    }
    return wrong;
}

#undef KEEPER_NAME
#undef KEEPER_SWITCH
#undef KEEPER_AWKWARD
