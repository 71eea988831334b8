// SPDX-License-Identifier: Apache-2.0
/*
 * Makes system calls by io_uring. A request for a socket is withdrawn if it would wait: no other
 * way tries accept4() and connect() on a blocking socket without O_NONBLOCK, which belongs to all
 * who share the socket. For a read of a file, the task waits. A loop has a ring of its own from its
 * first request on, which only its thread uses.
 */
#include "io/io.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __has_include
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif

#if defined(IORING_FEAT_FAST_POLL) && defined(SYS_io_uring_setup)

#define ENTRIES 2u   /* a request, and its withdrawal */
#define REQUEST 1    /* user_data of the former; that of a read is the address of an awaited_t */
#define WITHDRAWAL 2 /* user_data of the latter */
#define RESULTS 1024u
#define MOST_AWAITED (RESULTS - ENTRIES)
/* One mapping, and requests that wait for an event instead of taking a thread: Linux 5.7. */
#define NEEDED (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_FAST_POLL)

/* Positions in the ring's memory, which the kernel shares. */
struct aco_i_ring_s {
    unsigned *sq_tail, *sq_array, sq_mask;
    unsigned *cq_head, *cq_tail, cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *memory;
    size_t memory_sz, sqes_sz;
    unsigned ct_awaited; /* requests of tasks that wait */
    int is_watched;      /* by the loop's epoll */
    int is_busy;         /* a signal handler may have interrupted what uses the ring */
};

typedef struct aco_i_ring_s ring_t;

/* ==== The ring of a loop ===================================================================== */

/* Maps a part of the ring; a child after fork() does not get it. */
static void *map(int fd, size_t sz, off_t what)
{
    void *memory = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, sz, MADV_DONTFORK);
    return memory;
}

static void unmap(ring_t *ring)
{
    if (ring->memory != NULL) {
        munmap(ring->memory, ring->memory_sz);
    }
    if (ring->sqes != NULL) {
        munmap(ring->sqes, ring->sqes_sz);
    }
    aco_i_release(ring);
}

/* Returns NULL if the memory is not there. */
static ring_t *map_ring(int fd, const struct io_uring_params *params)
{
    ring_t *ring = (ring_t *)aco_i_allocate(sizeof(*ring));
    if (ring == NULL) {
        return NULL;
    }
    size_t sq_sz = params->sq_off.array + params->sq_entries * sizeof(unsigned);
    size_t cq_sz = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
    *ring = (ring_t){.memory_sz = sq_sz > cq_sz ? sq_sz : cq_sz,
                     .sqes_sz = params->sq_entries * sizeof(struct io_uring_sqe)};
    ring->memory = map(fd, ring->memory_sz, IORING_OFF_SQ_RING);
    ring->sqes = (struct io_uring_sqe *)map(fd, ring->sqes_sz, IORING_OFF_SQES);
    if (ring->memory == NULL || ring->sqes == NULL) {
        unmap(ring);
        return NULL;
    }
    char *at = (char *)ring->memory;
    ring->sq_tail = (unsigned *)(at + params->sq_off.tail);
    ring->sq_array = (unsigned *)(at + params->sq_off.array);
    ring->sq_mask = params->sq_entries - 1;
    ring->cq_head = (unsigned *)(at + params->cq_off.head);
    ring->cq_tail = (unsigned *)(at + params->cq_off.tail);
    ring->cq_mask = params->cq_entries - 1;
    ring->cqes = (struct io_uring_cqe *)(at + params->cq_off.cqes);
    return ring;
}

/* Makes the ring of a loop; if that fails, the loop won't have one. */
static ring_t *make_ring(loop_t *loop)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof(params));
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = RESULTS;
    loop->lacks_ring = 1;
    int fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (fd < 0) {
        return NULL;
    }
    loop->ring = (params.features & NEEDED) == NEEDED ? map_ring(fd, &params) : NULL;
    if (loop->ring == NULL) {
        aco_i_libc.close(fd);
        return NULL;
    }
    loop->ring_fd = fd;
    loop->lacks_ring = 0;
    return loop->ring;
}

/* Returns NULL if the loop has none, or is in the middle of a request. */
static ring_t *take_ring(loop_t *loop)
{
    if (loop->lacks_ring) {
        return NULL;
    }
    ring_t *ring = loop->ring != NULL ? loop->ring : make_ring(loop);
    return ring == NULL || ring->is_busy ? NULL : ring;
}

void aco_i_end_ring(loop_t *loop)
{
    if (loop->ring == NULL) {
        return;
    }
    unmap(loop->ring);
    loop->ring = NULL;
    if (!loop->lacks_ring) {
        aco_i_libc.close(loop->ring_fd);
    }
}

/* Lets the kernel begin with a request; 0, or -1 with errno. */
static int submit(const loop_t *loop, const struct io_uring_sqe *request)
{
    ring_t *ring = loop->ring;
    unsigned tail = *ring->sq_tail, index = tail & ring->sq_mask;
    ring->sqes[index] = *request;
    ring->sq_array[index] = index;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, loop->ring_fd, 1u, 0u, 0u, NULL, 0ul) == 1) {
        return 0;
    }
    __atomic_store_n(ring->sq_tail, tail, __ATOMIC_RELEASE);
    return -1;
}

static void end_wait(ring_t *ring, awaited_t *awaited, int result)
{
    aco_task_t *task = awaited->task;
    ring->ct_awaited--;
    awaited->result = result;
    awaited->is_done = 1;
    if (aco_i_claim(task, WAIT_EVENT)) {
        aco_i_make_ready(task); /* it may free `awaited` */
    }
}

/* Takes the results that are there, and wakes tasks that wait for theirs; returns how many others
 * there were, and the result of the request that was among them. */
static unsigned take_results(ring_t *ring, int *result)
{
    unsigned head = *ring->cq_head, ct = 0;
    unsigned tail = __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE);
    for (; head != tail; head++) {
        const struct io_uring_cqe *cqe = &ring->cqes[head & ring->cq_mask];
        if (cqe->user_data > WITHDRAWAL) {
            end_wait(ring, (awaited_t *)(uintptr_t)cqe->user_data, cqe->res);
            continue;
        }
        *result = cqe->user_data == REQUEST ? cqe->res : *result;
        ct++;
    }
    __atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
    return ct;
}

/* Wakes tasks whose requests have ended; called by their loop. */
static void wake_tasks(loop_t *loop)
{
    ring_t *ring = loop->ring;
    int ignored;
    if (ring->ct_awaited != 0 && !ring->is_busy) {
        ring->is_busy = 1;
        take_results(ring, &ignored);
        ring->is_busy = 0;
    }
}

/* ==== Requests =============================================================================== */

/* Whether the program has closed the ring's descriptor. */
static int is_closed(void)
{
    return errno == EBADF || errno == EOPNOTSUPP;
}

/* Ends a request that waits; returns its result. */
static int withdraw(const loop_t *loop)
{
    struct io_uring_sqe withdrawal;
    memset(&withdrawal, 0, sizeof(withdrawal));
    withdrawal.opcode = IORING_OP_ASYNC_CANCEL;
    withdrawal.addr = REQUEST;
    withdrawal.user_data = WITHDRAWAL;
    int result = -ECANCELED;
    while (submit(loop, &withdrawal) != 0 && !is_closed()) {
        sched_yield(); /* the kernel lacks memory for a moment */
    }
    for (unsigned ct = 0; (ct += take_results(loop->ring, &result)) < 2;) {
        unsigned flags = IORING_ENTER_GETEVENTS;
        if (syscall(SYS_io_uring_enter, loop->ring_fd, 0u, 2 - ct, flags, NULL, 0ul) < 0 &&
            is_closed()) {
            break;
        }
    }
    return result == -EINTR ? -ECANCELED : result;
}

/* Returns the result of the request, or -1 with errno: ECANCELED if it would wait, ENOSYS if there
 * is no ring for it. */
static int perform(struct io_uring_sqe *request)
{
    loop_t *loop = aco_i_self()->loop;
    ring_t *ring = take_ring(loop);
    int result = -ENOSYS, before = errno;
    if (ring != NULL) {
        ring->is_busy = 1;
        request->user_data = REQUEST;
        if (submit(loop, request) != 0) {
            loop->lacks_ring = is_closed();
        } else if (take_results(ring, &result) == 0) {
            result = withdraw(loop);
        }
        ring->is_busy = 0;
    }
    errno = result < 0 ? -result : before;
    return result < 0 ? -1 : result;
}

static int accept_at(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags)
{
    struct io_uring_sqe request;
    memset(&request, 0, sizeof(request));
    request.opcode = IORING_OP_ACCEPT;
    request.fd = fd;
    request.addr = (uintptr_t)addr;
    request.addr2 = (uintptr_t)addr_sz;
    request.accept_flags = (unsigned)flags;
    return perform(&request);
}

/* The address is copied from here: memcheck and MSan don't see what io_uring writes. */
int aco_i_ring_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags)
{
    struct sockaddr_storage copy = {0};
    if (addr == NULL || addr_sz == NULL ||
        *addr_sz > INT_MAX) { /* the kernel refuses the last two */
        return accept_at(fd, addr, addr_sz, flags);
    }
    socklen_t sz = *addr_sz < sizeof(copy) ? *addr_sz : sizeof(copy), copied_sz = sz;
    int accepted = accept_at(fd, (struct sockaddr *)&copy, &copied_sz, flags);
    if (accepted >= 0) {
        memcpy(addr, &copy, copied_sz < sz ? copied_sz : sz);
        *addr_sz = copied_sz;
    }
    return accepted;
}

int aco_i_ring_connect(int fd, const struct sockaddr *addr, socklen_t addr_sz)
{
    struct io_uring_sqe request;
    memset(&request, 0, sizeof(request));
    request.opcode = IORING_OP_CONNECT;
    request.fd = fd;
    request.addr = (uintptr_t)addr;
    request.off = addr_sz;
    return perform(&request);
}

/* ==== Files ================================================================================== */

/* Lets the loop see results when it looks and while it sleeps; 0, or -1. */
static int watch(loop_t *loop, ring_t *ring)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = ACO_I_RING};
    if (!ring->is_watched) {
        if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->ring_fd, &event) != 0) {
            return -1;
        }
        ring->is_watched = 1;
        loop->has_descriptors = 1;
        loop->take_results = wake_tasks;
    }
    return 0;
}

/* Submits a request of the running task; 0, or -1: nothing was tried. */
static int submit_awaited(loop_t *loop, struct io_uring_sqe *request, awaited_t *awaited)
{
    ring_t *ring = take_ring(loop);
    int error = -1, ignored;
    if (ring == NULL || ring->ct_awaited >= MOST_AWAITED) {
        return -1;
    }
    ring->is_busy = 1;
    if (watch(loop, ring) == 0) {
        request->user_data = (uintptr_t)awaited;
        error = submit(loop, request);
        if (error == 0) {
            ring->ct_awaited++;
            take_results(ring, &ignored);
        } else {
            loop->lacks_ring = is_closed();
        }
    }
    ring->is_busy = 0;
    return error;
}

/* The kernel writes to the buffers, so a task that is late or cancelled waits all the same. */
static void wait_for_result(awaited_t *awaited)
{
    if (awaited->is_done) {
        return;
    }
    aco_i_open_wait(awaited->task, FOR_FILE);
    if (aco_i_wait(awaited->task) != WAIT_EVENT) {
        aco_shielded
        {
            wait_for_result(awaited);
        }
    }
}

int aco_i_ring_read(awaited_t *awaited, int fd, const struct iovec *iov, int ct, int64_t offset)
{
    struct io_uring_sqe request;
    int before = errno;
    memset(&request, 0, sizeof(request));
    request.opcode = IORING_OP_READV;
    request.fd = fd;
    request.addr = (uintptr_t)iov;
    request.len = (unsigned)ct;
    request.off = (uint64_t)offset;
    *awaited = (awaited_t){.task = aco_i_self()};
    if (submit_awaited(awaited->task->loop, &request, awaited) != 0) {
        errno = before;
        return 0;
    }
    wait_for_result(awaited);
    errno = before;
    return 1;
}

#else

int aco_i_ring_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags)
{
    (void)fd, (void)addr, (void)addr_sz, (void)flags;
    errno = ENOSYS;
    return -1;
}

int aco_i_ring_connect(int fd, const struct sockaddr *addr, socklen_t addr_sz)
{
    (void)fd, (void)addr, (void)addr_sz;
    errno = ENOSYS;
    return -1;
}

int aco_i_ring_read(awaited_t *awaited, int fd, const struct iovec *iov, int ct, int64_t offset)
{
    (void)awaited, (void)fd, (void)iov, (void)ct, (void)offset;
    return 0;
}

void aco_i_end_ring(loop_t *loop)
{
    (void)loop;
}

#endif
