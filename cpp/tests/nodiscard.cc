// SPDX-License-Identifier: Apache-2.0
/* Drops results, of which compilers are to warn: test_cpp.sh reads the marks. Compiles in C++20. */
#include "aco.hpp"

void drop(aco::task<int> &t, aco::channel<int> &c, aco::mutex &m, aco::shared_mutex &r,
          aco::semaphore &s, aco::latch &l);

void drop(aco::task<int> &t, aco::channel<int> &c, aco::mutex &m, aco::shared_mutex &r,
          aco::semaphore &s, aco::latch &l)
{
    constexpr std::chrono::milliseconds ms(1);
    constexpr std::chrono::steady_clock::time_point then;
    const aco::task_options options = {};
    const int one = 1;
    aco::spawn([] {});             /* dropped */
    aco::spawn(options, [] {});    /* dropped */
    t.join();                      /* dropped */
    t.then([](int) {});            /* dropped */
    std::move(t).then([](int) {}); /* dropped */
    t.get_stop_token();            /* dropped */
    t.get_stop_source();           /* dropped */
    aco::this_task_stop_token();   /* dropped */
    c.recv();                      /* dropped */
    c.try_recv();                  /* dropped */
    c.try_send(1);                 /* dropped */
    c.try_send(one);               /* dropped */
    c.recv_for(ms);                /* dropped */
    c.recv_until(then);            /* dropped */
    c.send_for(ms, 1);             /* dropped */
    c.send_for(ms, one);           /* dropped */
    c.send_until(then, 1);         /* dropped */
    c.send_until(then, one);       /* dropped */
    aco::co::recv(c);              /* dropped */
    m.try_lock();                  /* dropped */
    m.try_lock_for(ms);            /* dropped */
    m.try_lock_until(then);        /* dropped */
    r.try_lock();                  /* dropped */
    r.try_lock_shared();           /* dropped */
    s.try_acquire();               /* dropped */
    s.try_acquire_for(ms);         /* dropped */
    s.try_acquire_until(then);     /* dropped */
    l.try_wait();                  /* dropped */
}
