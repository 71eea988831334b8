// SPDX-License-Identifier: Apache-2.0
/*
 * aco for C++: coroutines, generators, and tasks that wait, without void *. C++17; -std=c++20 adds
 * the parts that need C++20. Relies on the headers in aco/, each of which may be included alone:
 *
 *   coroutine.hpp  coroutine: runs a callable, and passes values both ways; stack_options,
 *                  stack_pool_stats. Without the runtime
 *   generator.hpp  generator: an input range. Without the runtime
 *   task.hpp       run, spawn, task, this_task_id, yield, sleep_for, sleep_until, within, shielded
 *   stop.hpp       stop_token, stop_source, stop_callback, this_task_stop_token
 *   group.hpp      group, when_all, when_any, when_some
 *   sync.hpp       mutex, recursive_mutex, shared_mutex, condition_variable,
 *                  condition_variable_any, counting_semaphore, latch, barrier, once_flag,
 *                  task_local
 *   channel.hpp    channel, select
 *   future.hpp     promise, future, shared_task
 *   await.hpp      C++20: co_await of tasks, futures, channels, time and descriptors; await
 *   asio.hpp       use_task, for Boost.Asio: included here if an Asio header comes before
 *
 * Rules
 *   - A wait that fails throws std::system_error: ETIMEDOUT after a deadline, ECANCELED in a task
 *     that was cancelled, EPIPE for a closed channel. Nothing has happened then.
 *   - An exception leaves a task only by join(); that of a detached task ends the program. A task
 *     is never unwound by force.
 *   - A task that is dropped is cancelled and joined; detach() lets it go on alone.
 *   - A task may wait while it handles an exception, or while one unwinds it.
 *   - With -fno-exceptions, a wait that fails ends the process: use the calls of aco_runtime.h for
 *     waits that may fail. Coroutines and generators that have not ended are destroyed, not
 *     unwound. Files with and without exceptions may be linked, but share no object of aco.
 *   - A coroutine or generator belongs to the thread that resumes it first.
 *   - Programs link with the runtime, and with extra/cancel for coroutine and generator.
 */
#ifndef ACO_HPP
#define ACO_HPP

#include "aco/channel.hpp"
#include "aco/coroutine.hpp"
#include "aco/future.hpp"
#include "aco/generator.hpp"
#include "aco/group.hpp"
#include "aco/sync.hpp"
#include "aco/stop.hpp"
#include "aco/task.hpp"

#ifdef __cpp_impl_coroutine
#include "aco/await.hpp"
#endif

#if defined(BOOST_ASIO_ASYNC_RESULT_HPP)
#include "aco/asio.hpp"
#endif

#endif
