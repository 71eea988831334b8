// SPDX-License-Identifier: Apache-2.0
/*
 * Probes for perf and bpftrace: each is a nop in the program, and a note about it. There are none
 * where <sys/sdt.h> is missing, which is in Debian's systemtap-sdt-dev.
 */
#ifndef ACO_RUNTIME_PROBES_H
#define ACO_RUNTIME_PROBES_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif

/* Operands are in memory or constants, which costs no instruction. */
#ifdef DTRACE_PROBE3
#define ACO_I_PROBE(name, task, about) DTRACE_PROBE3(aco, name, (task)->id, about, (task)->fn)
#else
#define ACO_I_PROBE(name, task, about) ((void)0)
#endif

#endif
