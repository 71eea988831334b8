// manager.cc shows a manager that finds tasks by id, and ends all of them at shutdown.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     3 tasks
 *     cancelled one by its id: 2 tasks
 *     one has ended by itself: 1 task
 *     after shutdown: 2 were cancelled
 */
#include "aco.hpp"

#include <cstdio>
#include <unordered_map>

namespace {

/* A task leaves the map when it ends, and is alone from then on. An exception that it throws is
 * dropped. */
class manager {
    aco::mutex mutex_;
    aco::condition_variable left_;
    std::unordered_map<std::uint64_t, aco::task<void>> tasks_;

    void leave()
    {
        aco::shielded([this] { /* it may have been cancelled */
                               std::scoped_lock lock(mutex_);
                               auto self = tasks_.find(aco::this_task_id());
                               self->second.detach();
                               tasks_.erase(self);
                               left_.notify_all();
        });
    }

public:
    template <class F> std::uint64_t add(F f)
    {
        std::scoped_lock lock(mutex_);
        auto task = aco::spawn([this, f = std::move(f)] {
            try {
                f();
            } catch (...) {
            }
            leave();
        });
        std::uint64_t id = task.id();
        tasks_.emplace(id, std::move(task));
        return id;
    }
    /* Whether it was there; returns when it has ended. */
    bool end(std::uint64_t id)
    {
        std::unique_lock lock(mutex_);
        auto found = tasks_.find(id);
        if (found == tasks_.end()) {
            return false;
        }
        found->second.cancel();
        left_.wait(lock, [&] { return tasks_.count(id) == 0; });
        return true;
    }
    std::size_t size()
    {
        std::scoped_lock lock(mutex_);
        return tasks_.size();
    }
    ~manager()
    {
        aco::shielded([this] { /* so no wait throws */
                               std::unique_lock lock(mutex_);
                               for (auto &[id, task] : tasks_) {
                                   task.cancel();
                               }
                               left_.wait(lock, [this] { return tasks_.empty(); });
        });
    }
};

} // namespace

int main()
{
    aco::run([] {
        int ct_cancelled = 0;
        aco::semaphore may_end(0);
        auto wait = [&] {
            try {
                may_end.acquire();
            } catch (const std::system_error &) {
                ct_cancelled++;
                throw;
            }
        };
        {
            manager all;
            std::uint64_t first = all.add(wait);
            all.add(wait);
            all.add(wait);
            std::printf("%zu tasks\n", all.size());
            all.end(first);
            std::printf("cancelled one by its id: %zu tasks\n", all.size());
            may_end.release();
            while (all.size() == 2) {
                aco::yield();
            }
            std::printf("one has ended by itself: %zu task\n", all.size());
        }
        std::printf("after shutdown: %d were cancelled\n", ct_cancelled);
    });
}
