// kill.cc shows a task that is ended with a reason, and cleans up.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     cleaned up
 *     killed: the server is full (7)
 */
#include "aco.hpp"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

/* The exception that leaves a task that was killed. */
struct killed : std::runtime_error {
    int code;
    killed(int c, const std::string &reason) : runtime_error(reason), code(c)
    {
    }
};

/* A task that can be killed with a reason: cancelling carries none, so that lies beside it. */
class job {
    std::shared_ptr<std::unique_ptr<killed>> why_ = std::make_shared<std::unique_ptr<killed>>();
    aco::task<void> task_;

public:
    template <class F>
    explicit job(F f)
        : task_(aco::spawn([f, why = why_] {
              try {
                  f();
              } catch (const std::system_error &) {
                  if (*why == nullptr) {
                      throw;
                  }
                  throw killed(**why);
              }
          }))
    {
    }
    void kill(int code, const std::string &reason)
    {
        *why_ = std::make_unique<killed>(code, reason);
        task_.cancel();
    }
    void join()
    {
        task_.join();
    }
};

struct cleanup {
    ~cleanup()
    {
        aco::shielded([] { aco::yield(); }); /* it may wait */
        std::puts("cleaned up");
    }
};

} // namespace

int main()
{
    aco::run([] {
        job endless([] {
            cleanup at_end;
            aco::sleep_for(std::chrono::hours(1));
        });
        aco::yield();
        endless.kill(7, "the server is full");
        try {
            endless.join();
        } catch (const killed &e) {
            std::printf("killed: %s (%d)\n", e.what(), e.code);
        }
    });
}
