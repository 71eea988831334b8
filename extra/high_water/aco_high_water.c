// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_high_water.h. A share stack is a fresh mapping of zeros. The kernel knows which of
 * its pages were touched, and the lowest byte in these that is not zero is the mark.
 *
 * Both are needed. Reading an untouched page would enter it in the page table, and next time it
 * would seem touched. A touched page may hold zeros only: it was read, or is part of a huge page.
 */

/* Declares mincore() and pread() in strict dialects too. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif

#include "aco_high_water.h"

#include <fcntl.h>

/* Bits of an entry of /proc/PID/pagemap (Linux, Documentation/admin-guide/mm/pagemap.rst): 62 is
 * "swapped", 63 is "present". */
#define PAGEMAP_TOUCHED (UINT64_C(3) << 62)

#define BATCH 64u /* pages per query; each takes 9 bytes of stack */

/* memcheck takes memory below the stack pointer for unaddressable. */
#ifdef ACO_USE_VALGRIND
#define begin_foreign_reads() VALGRIND_DISABLE_ERROR_REPORTING
#define end_foreign_reads() VALGRIND_ENABLE_ERROR_REPORTING
#else
#define begin_foreign_reads() ((void)0)
#define end_foreign_reads() ((void)0)
#endif

/* Sets bit 0 of touched[i] if page `i` of the `ct` pages at `pages` was ever touched. */
static void find_touched(int pagemap, const char *pages, size_t ct, size_t page_sz,
                         unsigned char *touched)
{
    uint64_t entries[BATCH];
    size_t sz = ct * sizeof(entries[0]);
    off_t offset = (off_t)((uintptr_t)pages / page_sz * sizeof(entries[0]));
    if (pread(pagemap, entries, sz, offset) == (ssize_t)sz) {
        for (size_t i = 0; i < ct; i++) {
            touched[i] = (entries[i] & PAGEMAP_TOUCHED) != 0;
        }
    } else if (mincore((void *)(uintptr_t)pages, ct * page_sz, touched) != 0) {
        memset(touched, 1, ct);
    }
}

/* The first byte from `from` on that is not zero, or `end`. */
static aco_attr_no_asan const char *skip_zeros(const char *from, const char *end)
{
    begin_foreign_reads();
    while (from < end && *from == 0) {
        from++;
    }
    end_foreign_reads();
    return from;
}

/* The lowest byte from `low` on that is not zero, or `end`. */
static const char *find_mark(int pagemap, const char *low, const char *end, size_t page_sz)
{
    const char *pages = low - (uintptr_t)low % page_sz;
    unsigned char touched[BATCH];
    while (pages < end) {
        size_t ct = ((size_t)(end - pages) + page_sz - 1) / page_sz;
        ct = ct < BATCH ? ct : BATCH;
        find_touched(pagemap, pages, ct, page_sz, touched);
        for (size_t i = 0; i < ct; i++, pages += page_sz) {
            const char *page_end = (size_t)(end - pages) < page_sz ? end : pages + page_sz;
            const char *from = pages > low ? pages : low;
            const char *mark = touched[i] & 1 ? skip_zeros(from, page_end) : page_end;
            if (mark != page_end) {
                return mark;
            }
        }
    }
    return end;
}

size_t aco_share_stack_high_water(const aco_share_stack_t *share_stack)
{
    if (share_stack == NULL) {
        aco_i_fail("aco_share_stack_high_water", NULL,
                   "the share stack is NULL: pass what aco_share_stack_new() returned");
    }
    const char *end = (const char *)share_stack->align_retptr;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const char *mark = find_mark(pagemap, (const char *)share_stack->ptr, end,
                                 (size_t)sysconf(_SC_PAGESIZE));
    close(pagemap); /* or nothing, if it is -1 */
    return (size_t)(end - mark);
}
