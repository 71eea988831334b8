// SPDX-License-Identifier: Apache-2.0
/*
 * Probes that perf and bpftrace can be told of: in the program, a nop and a note each. There are
 * none where <sys/sdt.h> is missing, of Debian's systemtap-sdt-dev.
 */
#ifndef ACO_RUNTIME_PROBES_H
#define ACO_RUNTIME_PROBES_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif

#ifdef DTRACE_PROBE2
#define ACO_I_PROBE(name, a, b) DTRACE_PROBE2(aco, name, a, b)
#else
#define ACO_I_PROBE(name, a, b) ((void)0)
#endif

#endif
