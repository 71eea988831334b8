// SPDX-License-Identifier: Apache-2.0
/* Each coroutine polls ten descriptors at once, and reads from those that are ready, until all have
 * been read from. */
#include "co_routine.h"

#include "check.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

enum { CT = 10, CT_COROUTINES = 20 };

struct job_t {
    int in[CT], out[CT];
    int ct_read;
    int ct_polls;
};

static int ct_done;

static void *poll_all(void *arg)
{
    job_t *job = static_cast<job_t *>(arg);
    struct pollfd fds[CT];
    co_enable_hook_sys();
    for (int i = 0; i < CT; i++) {
        fds[i].fd = job->in[i];
        fds[i].events = POLLIN;
    }
    while (job->ct_read < CT) {
        int ct = co_poll(co_get_epoll_ct(), fds, CT, -1), ct_seen = 0;
        CHECK(ct > 0);
        job->ct_polls++;
        for (int i = 0; i < CT; i++) {
            char byte;
            if (fds[i].revents != 0) {
                CHECK(fds[i].revents == POLLIN && read(job->in[i], &byte, 1) == 1 && byte == i);
                fds[i].fd = -1;
                ct_seen++;
            }
        }
        CHECK(ct_seen == ct);
        job->ct_read += ct;
    }
    ct_done++;
    return NULL;
}

/* Writes to one after the other, for all jobs. */
static void *feed(void *arg)
{
    std::vector<job_t> &jobs = *static_cast<std::vector<job_t> *>(arg);
    for (int i = 0; i < CT; i++) {
        for (size_t j = 0; j < jobs.size(); j++) {
            int which = (i * 7 + static_cast<int>(j)) % CT;
            char byte = static_cast<char>(which);
            CHECK(write(jobs[j].out[which], &byte, 1) == 1);
        }
        co_poll(co_get_epoll_ct(), NULL, 0, i % 3);
    }
    return NULL;
}

static int end_when_done(void *)
{
    return ct_done == CT_COROUTINES ? -1 : 0;
}

int main()
{
    std::vector<job_t> jobs(CT_COROUTINES);
    std::vector<stCoRoutine_t *> all(CT_COROUTINES + 1);
    for (size_t j = 0; j < jobs.size(); j++) {
        jobs[j].ct_read = jobs[j].ct_polls = 0;
        for (int i = 0; i < CT; i++) {
            int fds[2];
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
            jobs[j].in[i] = fds[0];
            jobs[j].out[i] = fds[1];
        }
        CHECK(co_create(&all[j], NULL, poll_all, &jobs[j]) == 0);
        co_resume(all[j]);
        CHECK(jobs[j].ct_polls == 0);
    }
    CHECK(co_create(&all.back(), NULL, feed, &jobs) == 0);
    co_resume(all.back());
    co_eventloop(co_get_epoll_ct(), end_when_done, NULL);
    for (size_t j = 0; j < all.size(); j++) {
        co_release(all[j]);
    }
    return ct_failed != 0;
}
