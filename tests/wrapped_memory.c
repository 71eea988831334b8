// SPDX-License-Identifier: Apache-2.0
/*
 * Implements wrapped_memory.h. Functions that free memory leave an error of their own in errno, as
 * they may: the reason of a failure must survive that.
 */
#include "wrapped_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/types.h>

wrapped_memory_t memory;

/* Notes a request; returns whether it is the one to be refused. */
static int is_refused(size_t sz)
{
    if (!memory.is_on) {
        return 0;
    }
    if (memory.ct_requests < MEMORY_LOG_SZ) {
        memory.log[memory.ct_requests].call = memory.call;
        memory.log[memory.ct_requests].sz = sz;
    }
    if (++memory.ct_requests != memory.refused) {
        return 0;
    }
    errno = memory.error != 0 ? memory.error : ENOMEM;
    return 1;
}

void *__real_calloc(size_t ct, size_t sz);
void *__real_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *ptr, size_t sz);
int __real_mprotect(void *ptr, size_t sz, int protection);
void *__wrap_malloc(size_t sz);
void *__wrap_calloc(size_t ct, size_t sz);
void __wrap_free(void *ptr);
void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *ptr, size_t sz);
int __wrap_mprotect(void *ptr, size_t sz, int protection);

void *__wrap_malloc(size_t sz)
{
    if (is_refused(sz)) {
        return NULL;
    }
    memory.ct_blocks += memory.is_on;
    return __real_malloc(sz);
}

void *__wrap_calloc(size_t ct, size_t sz)
{
    if (is_refused(ct * sz)) {
        return NULL;
    }
    memory.ct_blocks += memory.is_on;
    return __real_calloc(ct, sz);
}

void __wrap_free(void *ptr)
{
    memory.ct_blocks -= memory.is_on && ptr != NULL;
    __real_free(ptr);
    errno = memory.is_on ? EBADF : errno;
}

void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset)
{
    if (is_refused(sz)) {
        return MAP_FAILED;
    }
    memory.mapped_sz += memory.is_on ? (long)sz : 0;
    return __real_mmap(ptr, sz, protection, flags, fd, offset);
}

int __wrap_munmap(void *ptr, size_t sz)
{
    memory.mapped_sz -= memory.is_on ? (long)sz : 0;
    int result = __real_munmap(ptr, sz);
    errno = memory.is_on ? EBADF : errno;
    return result;
}

int __wrap_mprotect(void *ptr, size_t sz, int protection)
{
    return is_refused(sz) ? -1 : __real_mprotect(ptr, sz, protection);
}
