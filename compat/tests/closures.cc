// SPDX-License-Identifier: Apache-2.0
/* Closures, run by threads and by coroutines. */
#include "co_closure.h"
#include "co_routine.h"

#include "check.h"

#include <pthread.h>
#include <string>
#include <vector>

static void *run(void *arg)
{
    static_cast<stCoClosure_t *>(arg)->exec();
    return NULL;
}

static void run_in_threads(const std::vector<stCoClosure_t *> &closures)
{
    std::vector<pthread_t> threads(closures.size());
    for (size_t i = 0; i < closures.size(); i++) {
        CHECK(pthread_create(&threads[i], NULL, run, closures[i]) == 0);
    }
    for (size_t i = 0; i < closures.size(); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void run_in_coroutines(const std::vector<stCoClosure_t *> &closures)
{
    for (size_t i = 0; i < closures.size(); i++) {
        stCoRoutine_t *co;
        CHECK(co_create(&co, NULL, run, closures[i]) == 0);
        co_resume(co);
        co_release(co);
    }
}

/* Returns how often a closure has counted that was made of a reference. */
static int count_by(int &ct)
{
    const int step = 2;
    co_func(count, ct, step)
    {
        ct += step;
    }
    co_func_end;
    stCoClosure_t *closure = new count(ct, step);
    closure->exec();
    closure->exec();
    delete closure;
    return ct;
}

int main()
{
    int ct = 1;
    CHECK(count_by(ct) == (__cplusplus >= 201103L ? 5 : 1));
    std::vector<stCoClosure_t *> closures;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int total = 0;
    std::vector<int> seen;
    const std::string word("word");
    co_ref(ref, total, seen, mutex);
    for (int i = 0; i < 10; i++) {
        co_func(add, ref, i, word)
        {
            std::string own = word;
            pthread_mutex_lock(&ref.mutex);
            ref.total += i;
            ref.seen.push_back(own == "word" ? i : -1);
            pthread_mutex_unlock(&ref.mutex);
        }
        co_func_end;
        closures.push_back(new add(ref, i, word));
    }
    run_in_threads(closures);
    run_in_coroutines(closures);
    CHECK(total == 90 && seen.size() == 20);
    int a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
    int i = 9, j = 10, k = 11, l = 12, m = 13, n = 14, o = 15;
    co_ref(sum, total);
    co_func(many, sum, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    {
        sum.total = a + b + c + d + e + f + g + h + i + j + k + l + m + n + o;
    }
    co_func_end;
    static int ct_calls;
    co_func(none)
    {
        ct_calls++;
    }
    co_func_end;
    closures.push_back(new many(sum, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o));
    closures.push_back(new none());
    a = 100; /* the closure has a copy */
    closures[10]->exec();
    closures[11]->exec();
    CHECK(total == 120 && ct_calls == 1);
    for (size_t at = 0; at < closures.size(); at++) {
        delete closures[at];
    }
    return ct_failed != 0;
}
