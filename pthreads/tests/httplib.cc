// SPDX-License-Identifier: Apache-2.0
/* cpp-httplib: its server's pool of threads, and clients of it in threads of their own. */
#include "check.h"

#include <atomic>
#include <future>
#include <httplib.h>
#include <string>
#include <thread>
#include <vector>

static constexpr size_t CT_SERVING = 100; // threads
static constexpr int CT_CLIENTS = 60, CT_REQUESTS = 10, CT_CHUNKS = 20;

static thread_local int ct_answered;
static std::atomic<int> ct_all, ct_inside, most_inside;

/* One that the thread answers while others wait in theirs. */
static void echo(const httplib::Request &request, httplib::Response &response)
{
    const int ct = ++ct_answered, inside = ++ct_inside;
    for (int most = most_inside;
         inside > most && !most_inside.compare_exchange_weak(most, inside);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(ct == ct_answered);
    ct_inside--;
    ct_all++;
    response.set_content(request.body, "text/plain");
}

static void send_chunks(const httplib::Request &, httplib::Response &response)
{
    response.set_chunked_content_provider("text/plain", [](size_t, httplib::DataSink &sink) {
        for (int i = 0; i < CT_CHUNKS; i++) {
            const std::string chunk = "chunk " + std::to_string(i) + '\n';
            sink.write(chunk.data(), chunk.size());
        }
        sink.done();
        return true;
    });
}

static std::string chunks()
{
    std::string text;
    for (int i = 0; i < CT_CHUNKS; i++) {
        text += "chunk " + std::to_string(i) + '\n';
    }
    return text;
}

/* The server's queue of connections is short, so the clients connect one after another. */
static void load(int port, int number, std::promise<void> has_connected)
{
    httplib::Client client("127.0.0.1", port);
    client.set_keep_alive(true);
    client.set_tcp_nodelay(true);
    client.set_read_timeout(60);
    for (int i = 0; i < CT_REQUESTS; i++) {
        const std::string body(static_cast<size_t>(1000 * i + number), static_cast<char>('a' + i));
        auto result = client.Post("/echo", body, "text/plain");
        CHECK(result && result->status == 200 && result->body == body);
        result = client.Get("/chunks");
        CHECK(result && result->body == chunks());
        if (i == 0) {
            has_connected.set_value();
        }
    }
}

int main()
{
    httplib::Server server;
    server.new_task_queue = [] { return new httplib::ThreadPool(CT_SERVING); };
    server.set_keep_alive_max_count(2 * CT_REQUESTS);
    server.set_keep_alive_timeout(60);
    server.set_tcp_nodelay(true);
    server.Post("/echo", echo);
    server.Get("/chunks", send_chunks);
    const int port = server.bind_to_any_port("127.0.0.1");
    CHECK(port > 0);
    std::thread listening([&] { server.listen_after_bind(); });
    std::vector<std::thread> clients;
    for (int i = 0; i < CT_CLIENTS; i++) {
        std::promise<void> has_connected;
        std::future<void> connected = has_connected.get_future();
        clients.emplace_back(load, port, i, std::move(has_connected));
        connected.wait();
    }
    for (auto &client : clients) {
        client.join();
    }
    server.stop();
    listening.join();
    CHECK(ct_all == CT_CLIENTS * CT_REQUESTS && most_inside > 1 && ct_inside == 0);
    printf("%d requests\n", ct_all.load());
    return EXIT_SUCCESS;
}
