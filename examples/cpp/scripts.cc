// scripts.cc shows 100,000 scripts of a game, each a task that keeps a few hundred bytes.
// SPDX-License-Identifier: Apache-2.0
/*
 * Each villager has a script: straight code that waits for ticks, and for an alarm. The game runs a
 * tick by waking the scripts that are due, and lets them run until all wait again. They take turns
 * on one share stack; of a script that waits, the live part of it is kept.
 *
 * It measures memory and time; lines with these begin with "measured:". Beside them, it prints:
 *
 *     100000 villagers live
 *     100 ticks: 3756250 steps, 600000 cups of tea
 *     an alarm: 93750 villagers run home
 *     the game ends: 100000 villagers leave
 */
#include "aco.hpp"

#include <cstdint>
#include <cstdio>
#include <unistd.h>
#include <vector>

namespace {

constexpr int ct_villagers = 100000, ct_ticks = 100;

/* The state of a script beside its stack. It lies outside of that, since others use it while
 * the script waits, and the stack has the frames of another one then. */
struct villager {
    aco::task<void> task;
    int ct_waits = 0;     /* that have ended */
    bool listens = false; /* for the alarm */
    int x = 0, ct_steps = 0, ct_cups = 0, ct_alarms = 0;
};

/* ==== The game =============================================================================== */

/* Thrown in scripts that wait when it ends. */
struct game_over {};

/* All of it is used by one thread, so nothing is locked. */
class game {
    struct wait {
        villager *who;
        int number; /* of it: one that has ended by an alarm is not ended again */
    };
    static constexpr unsigned most_ticks = 64; /* that a wait may take */
    std::vector<wait> due_[most_ticks], due_now_;
    std::vector<villager> villagers_ = std::vector<villager>(ct_villagers);
    unsigned now_ = 0;
    int ct_running_ = 0;

    void end(const wait &w)
    {
        if (w.who->ct_waits == w.number) {
            w.who->ct_waits++;
            w.who->listens = false;
            ct_running_++;
            aco_unpark(w.who->task.handle());
        }
    }
    /* Returns when all scripts wait. */
    void let_run()
    {
        while (ct_running_ > 0) {
            aco::yield();
        }
    }

public:
    /* ---- For scripts ---- */

    void wait_for_ticks(villager &me, unsigned ct)
    {
        due_[(now_ + ct) % most_ticks].push_back({&me, me.ct_waits});
        ct_running_--;
        if (aco_park() != 0) {
            throw game_over();
        }
    }
    /* Whether the alarm has ended the wait, before `ct` ticks were over. */
    bool wait_for_alarm(villager &me, unsigned ct)
    {
        int ct_before = me.ct_alarms;
        me.listens = true;
        wait_for_ticks(me, ct);
        return me.ct_alarms != ct_before;
    }

    /* ---- For the engine ---- */

    /* Starts `script(game, villager)` for each of them. */
    template <class F> explicit game(F script)
    {
        aco::task_options options = {};
        options.shares_stack = 1;
        for (villager &v : villagers_) {
            v.x = -static_cast<int>((&v - villagers_.data()) % 16);
            ct_running_++;
            v.task = aco::spawn(options, [this, &v, script] {
                try {
                    script(*this, v);
                } catch (const game_over &) {
                }
                ct_running_--;
            });
        }
        let_run();
    }
    /* Unwinds the scripts that have not ended. */
    ~game()
    {
        for (villager &v : villagers_) {
            v.task.cancel();
        }
        for (villager &v : villagers_) {
            v.task.join();
        }
    }
    void tick()
    {
        now_++;
        due_now_.clear();
        due_now_.swap(due_[now_ % most_ticks]);
        for (const wait &w : due_now_) {
            end(w);
        }
        let_run();
    }
    /* Returns how many have heard it. */
    int raise_alarm()
    {
        int ct = 0;
        for (villager &v : villagers_) {
            if (v.listens) {
                v.ct_alarms++;
                ct++;
                end({&v, v.ct_waits});
            }
        }
        let_run();
        return ct;
    }
    long sum(int villager::*of) const
    {
        long all = 0;
        for (const villager &v : villagers_) {
            all += v.*of;
        }
        return all;
    }
};

/* ==== A script =============================================================================== */

int ct_left;

void walk(game &g, villager &me, int to)
{
    while (me.x != to) {
        me.x += me.x < to ? 1 : -1;
        me.ct_steps++;
        g.wait_for_ticks(me, 1);
    }
}

void live(game &g, villager &me)
{
    struct farewell {
        ~farewell()
        {
            ct_left++;
        }
    } at_end;
    for (;;) {
        walk(g, me, 10);
        for (int cup = 0; cup < 3; cup++) {
            me.ct_cups++;
            g.wait_for_ticks(me, 5);
        }
        if (g.wait_for_alarm(me, 20)) {
            walk(g, me, 0);
            return;
        }
        walk(g, me, 0);
    }
}

/* Bytes of memory that the process has. */
long memory()
{
    long all = 0, resident = 0;
    std::FILE *file = std::fopen("/proc/self/statm", "r");
    if (file != nullptr) {
        if (std::fscanf(file, "%ld %ld", &all, &resident) != 2) {
            resident = 0;
        }
        std::fclose(file);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

void play()
{
    long before = memory();
    game g(live);
    std::printf("%d villagers live\n", ct_villagers);
    std::printf("measured: %ld bytes a script\n", (memory() - before) / ct_villagers);
    std::int64_t start = aco_now();
    for (int i = 0; i < ct_ticks; i++) {
        g.tick();
    }
    std::int64_t ns = aco_now() - start;
    std::printf("%d ticks: %ld steps, %ld cups of tea\n", ct_ticks, g.sum(&villager::ct_steps),
                g.sum(&villager::ct_cups));
    std::printf("measured: %lld us a tick, %lld ns a turn of a script\n",
                static_cast<long long>(ns / ct_ticks / 1000),
                static_cast<long long>(ns / (g.sum(&villager::ct_waits) + 1)));
    std::printf("an alarm: %d villagers run home\n", g.raise_alarm());
}

} // namespace

int main()
{
    aco::run(play);
    std::printf("the game ends: %d villagers leave\n", ct_left);
}
