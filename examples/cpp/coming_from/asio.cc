// asio.cc runs each row of "Coming from Boost.Asio" in docs/cpp.md with both libraries.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <boost/asio.hpp>

#include "rows.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace std::chrono_literals;

namespace {

namespace theirs {

namespace asio = boost::asio;
using asio::ip::tcp;
using error_code = boost::system::error_code;

std::string run()
{
    asio::io_context io;
    int value = 0;
    asio::post(io, [&] { value = 42; });
    io.run();
    return std::to_string(value);
}

std::string timer()
{
    asio::io_context io;
    asio::steady_timer timer(io, 2ms);
    std::string said;
    timer.async_wait([&](error_code e) { said = e ? "failed" : "waited"; });
    io.run();
    return said;
}

std::string cancel()
{
    asio::io_context io;
    asio::steady_timer timer(io, 1h);
    std::string said;
    timer.async_wait(
        [&](error_code e) { said = e == asio::error::operation_aborted ? "cancelled" : "waited"; });
    asio::post(io, [&] { timer.cancel(); });
    io.run();
    return said;
}

std::string deadline()
{
    asio::io_context io;
    int fds[2];
    if (pipe(fds) != 0) {
        return "no pipe";
    }
    asio::posix::stream_descriptor in(io, fds[0]), out(io, fds[1]);
    asio::steady_timer timer(io, 2ms);
    std::string said;
    char byte;
    in.async_read_some(asio::buffer(&byte, 1), [&](error_code e, std::size_t) {
        said = e == asio::error::operation_aborted ? "too late" : "read";
    });
    timer.async_wait([&](error_code) { in.cancel(); });
    io.run();
    return said;
}

/* A server that returns a line, and its client. */
struct echo_server {
    tcp::acceptor acceptor;
    std::optional<tcp::socket> peer{};
    std::string line{};

    void serve()
    {
        acceptor.async_accept([this](error_code, tcp::socket accepted) {
            peer.emplace(std::move(accepted));
            asio::async_read_until(
                *peer, asio::dynamic_buffer(line), '\n', [this](error_code, std::size_t) {
                    asio::async_write(*peer, asio::buffer(line), [](error_code, std::size_t) {});
                });
        });
    }
};

std::string sockets()
{
    asio::io_context io;
    echo_server server{tcp::acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0))};
    server.serve();
    tcp::socket client(io);
    std::string got;
    client.async_connect(server.acceptor.local_endpoint(), [&](error_code) {
        asio::async_write(client, asio::buffer("hello\n", 6), [&](error_code, std::size_t) {
            asio::async_read_until(client, asio::dynamic_buffer(got), '\n',
                                   [](error_code, std::size_t) {});
        });
    });
    io.run();
    return got.substr(0, 5);
}

std::string resolve()
{
    asio::io_context io;
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::resolver resolver(io);
    tcp::socket client(io);
    std::string said;
    resolver.async_resolve("127.0.0.1", std::to_string(acceptor.local_endpoint().port()),
                           [&](error_code, tcp::resolver::results_type found) {
                               asio::async_connect(client, found,
                                                   [&](error_code e, const tcp::endpoint &) {
                                                       said = e ? "failed" : "connected";
                                                   });
                           });
    io.run();
    return said;
}

std::string descriptor()
{
    asio::io_context io;
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], "x", 1) != 1) {
        return "no pipe";
    }
    asio::posix::stream_descriptor in(io, fds[0]), out(io, fds[1]);
    std::string said;
    in.async_wait(asio::posix::stream_descriptor::wait_read,
                  [&](error_code) { said = "readable"; });
    io.run();
    return said;
}

std::string strand()
{
    asio::io_context io;
    auto one = asio::make_strand(io);
    int sum = 0; /* no lock: handlers of a strand don't overlap */
    for (int i = 0; i < 1000; i++) {
        asio::post(one, [&] { sum++; });
    }
    std::thread a([&] { io.run(); }), b([&] { io.run(); });
    a.join();
    b.join();
    return std::to_string(sum);
}

std::string threads()
{
    asio::thread_pool pool(2);
    std::atomic<int> ct_there{0};
    for (int i = 0; i < 2; i++) {
        asio::post(pool, [&] {
            ct_there++;
            while (ct_there < 2) { /* needs two threads */
            }
        });
    }
    pool.join();
    return std::to_string(ct_there);
}

std::string coroutine()
{
    asio::io_context io;
    std::string said;
    auto wait = [&]() -> asio::awaitable<void> {
        asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);
        co_await timer.async_wait(asio::use_awaitable);
        said = "waited";
    };
    asio::co_spawn(io, wait(), asio::detached);
    io.run();
    return said;
}

std::string future()
{
    asio::io_context io;
    asio::steady_timer timer(io, 1ms);
    auto ended = timer.async_wait(asio::use_future);
    std::thread runner([&] { io.run(); });
    ended.get();
    runner.join();
    return "waited";
}

std::string signal()
{
    asio::io_context io;
    asio::signal_set signals(io, SIGUSR1);
    std::string said;
    signals.async_wait(
        [&](error_code, int number) { said = number == SIGUSR1 ? "SIGUSR1" : "another"; });
    raise(SIGUSR1);
    io.run();
    return said;
}

} // namespace theirs

namespace ours {

std::string run()
{
    int value = 0;
    auto posted = aco::spawn([&] { value = 42; });
    posted.join(); /* aco::run() itself waits for all tasks */
    return std::to_string(value);
}

std::string timer()
{
    aco::sleep_for(2ms);
    return "waited";
}

std::string cancel()
{
    auto waiting = aco::spawn([] { aco::sleep_for(1h); });
    aco::yield();
    waiting.cancel();
    try {
        waiting.join();
        return "waited";
    } catch (const std::system_error &e) {
        return e.code() == std::errc::operation_canceled ? "cancelled" : "failed";
    }
}

std::string deadline()
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return "no pipe";
    }
    char byte;
    ssize_t ct = aco::within(2ms, [&] { return aco_read(fds[0], &byte, 1); });
    std::string said = ct < 0 && errno == ETIMEDOUT ? "too late" : "read";
    aco_close(fds[0]);
    aco_close(fds[1]);
    return said;
}

std::string address_of(int listener)
{
    sockaddr_storage name;
    socklen_t sz = sizeof(name);
    char host[64], port[16];
    getsockname(listener, reinterpret_cast<sockaddr *>(&name), &sz);
    aco_getnameinfo(reinterpret_cast<sockaddr *>(&name), sz, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
    return std::string(host) + ":" + port;
}

std::string sockets()
{
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    auto server = aco::spawn([&] {
        int peer = aco_accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        char line[6];
        aco_read_all(peer, line, sizeof(line));
        aco_write_all(peer, line, sizeof(line));
        aco_close(peer);
    });
    int client = aco_dial("tcp4", address_of(listener).c_str());
    char got[6] = "";
    aco_write_all(client, "hello\n", 6);
    aco_read_all(client, got, sizeof(got));
    server.join();
    aco_close(client);
    aco_close(listener);
    return std::string(got, 5);
}

std::string resolve()
{
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    int client = aco_dial("tcp", address_of(listener).c_str());
    aco_close(listener);
    return client >= 0 && aco_close(client) == 0 ? "connected" : "failed";
}

std::string descriptor()
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0 || aco_write(fds[1], "x", 1) != 1) {
        return "no pipe";
    }
    int events = aco_wait_fd(fds[0], POLLIN);
    aco_close(fds[0]);
    aco_close(fds[1]);
    return (events & POLLIN) != 0 ? "readable" : "failed";
}

std::string strand()
{
    aco::mutex one;
    int sum = 0;
    {
        aco::group g;
        aco::task_options anywhere;
        anywhere.thread = ACO_ANY;
        for (int i = 0; i < 1000; i++) {
            g.spawn(anywhere, [&] {
                std::scoped_lock lock(one);
                sum++;
            });
        }
    }
    return std::to_string(sum);
}

std::string threads() /* in aco::run() with ct_threads = 2 */
{
    std::atomic<int> ct_there{0};
    aco::task_options each;
    std::vector<aco::task<void>> tasks;
    for (int i = 0; i < 2; i++) {
        each.thread = ACO_THREAD(i);
        tasks.push_back(aco::spawn(each, [&] {
            ct_there++;
            while (ct_there < 2) {
            }
        }));
    }
    aco::when_all(tasks);
    return std::to_string(ct_there);
}

std::string coroutine()
{
    std::string said;
    auto wait = [&]() -> aco::future<void> {
        co_await aco::co::sleep_for(1ms);
        said = "waited";
    };
    wait().get();
    return said;
}

std::string future()
{
    boost::asio::io_context io;
    boost::asio::steady_timer timer(io, 1ms);
    auto guard = boost::asio::make_work_guard(io);
    std::thread runner([&] { io.run(); });
    timer.async_wait(aco::use_task); /* only the task waits */
    guard.reset();
    runner.join();
    return "waited";
}

std::string signal()
{
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    raise(SIGUSR1);
    int number = aco_wait_signal(&signals, nullptr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return number == SIGUSR1 ? "SIGUSR1" : "another";
}

} // namespace ours

} // namespace

int main()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    const row rows[] = {ROW(run),     ROW(timer),     ROW(cancel),     ROW(deadline),
                        ROW(sockets), ROW(resolve),   ROW(descriptor), ROW(strand),
                        ROW(threads), ROW(coroutine), ROW(future),     ROW(signal)};
    return run_rows(rows, options);
}
