// SPDX-License-Identifier: Apache-2.0
/* The beginning and the end of a runtime. */
#ifndef ACO_RUNTIME_START_H
#define ACO_RUNTIME_START_H

#include "io/io.h"

/* ---- run.c ---- */

/* Makes a runtime whose first loop, the caller's, may run; NULL with errno. */
HIDDEN runtime_t *aco_i_begin_runtime(const aco_run_options_t *options);
HIDDEN void aco_i_end_runtime(runtime_t *runtime);

#endif
