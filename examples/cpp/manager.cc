// manager.cc shows a manager that finds tasks by id, and ends all of them at shutdown.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     3 tasks
 *     cancelled one by its id: 2 tasks
 *     after shutdown: 0 tasks, 3 were cancelled
 */
#include "aco.hpp"

#include <cstdio>
#include <unordered_map>

namespace {

class manager {
    std::unordered_map<std::uint64_t, aco::task<void>> tasks_;

public:
    template <class F> std::uint64_t add(F &&f)
    {
        auto task = aco::spawn(std::forward<F>(f));
        std::uint64_t id = task.id();
        tasks_.emplace(id, std::move(task));
        return id;
    }
    bool end(std::uint64_t id)
    {
        auto found = tasks_.find(id);
        if (found == tasks_.end()) {
            return false;
        }
        auto task = std::move(found->second);
        tasks_.erase(found);
        task.cancel();
        task.join();
        return true;
    }
    std::size_t size() const
    {
        return tasks_.size();
    }
    ~manager()
    {
        for (auto &[id, task] : tasks_) {
            task.cancel(); /* all are told, */
        }
        while (!tasks_.empty()) {
            end(tasks_.begin()->first); /* then each is waited for */
        }
    }
};

} // namespace

int main()
{
    aco::run([] {
        int ct_cancelled = 0;
        auto wait = [&] {
            try {
                aco::sleep_for(std::chrono::hours(1));
            } catch (const std::system_error &) {
                ct_cancelled++;
            }
        };
        {
            manager all;
            std::uint64_t second = (all.add(wait), all.add(wait));
            all.add(wait);
            std::printf("%zu tasks\n", all.size());
            all.end(second);
            std::printf("cancelled one by its id: %zu tasks\n", all.size());
        }
        std::printf("after shutdown: 0 tasks, %d were cancelled\n", ct_cancelled);
    });
}
