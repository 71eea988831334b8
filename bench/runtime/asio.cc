// SPDX-License-Identifier: Apache-2.0
/*
 * Echo servers on Boost.Asio, on one thread: a chain of callbacks for each connection, or a
 * coroutine with a stack of its own by spawn().
 *
 * needs: libboost-dev
 * peer: Boost.Asio callbacks
 * kind: callbacks
 * build: $CXX -std=c++17 -O2 -DNDEBUG -pthread -Ibench/peers $SRC -o $OUT
 * needs: libboost-dev libboost-coroutine-dev libboost-context-dev
 * peer: Boost.Asio spawn
 * kind: stackful
 * build: $CXX -std=c++17 -O2 -DNDEBUG -DSPAWN -pthread -Ibench/peers $SRC -o $OUT \
 *        -lboost_coroutine -lboost_context
 */
#define BOOST_ALLOW_DEPRECATED_HEADERS
#define BOOST_COROUTINES_NO_DEPRECATION_WARNING
#define BOOST_ASIO_DISABLE_THREADS // there is one
#include "echo.h"

#include <boost/asio.hpp>
#ifdef SPAWN
#include <boost/asio/spawn.hpp>
#endif
#include <memory>

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

#ifdef SPAWN
static void start(tcp::socket socket)
{
    auto owned = std::make_shared<tcp::socket>(std::move(socket));
    asio::spawn(owned->get_executor(), [owned](asio::yield_context yield) {
        char buffer[BUFFER_SZ];
        error_code error;
        for (;;) {
            size_t sz = owned->async_read_some(asio::buffer(buffer), yield[error]);
            if (!error) {
                asio::async_write(*owned, asio::buffer(buffer, sz), yield[error]);
            }
            if (error) {
                return;
            }
        }
    });
}
#else
struct connection : std::enable_shared_from_this<connection> {
    tcp::socket socket;
    char buffer[BUFFER_SZ];

    explicit connection(tcp::socket given) : socket(std::move(given))
    {
    }

    void read()
    {
        socket.async_read_some(asio::buffer(buffer),
                               [self = shared_from_this()](error_code error, size_t sz) {
                                   if (!error) {
                                       self->write(sz);
                                   }
                               });
    }

    void write(size_t sz)
    {
        asio::async_write(socket, asio::buffer(buffer, sz),
                          [self = shared_from_this()](error_code error, size_t) {
                              if (!error) {
                                  self->read();
                              }
                          });
    }
};

static void start(tcp::socket socket)
{
    std::make_shared<connection>(std::move(socket))->read();
}
#endif

static void accept_next(tcp::acceptor &acceptor)
{
    acceptor.async_accept([&acceptor](error_code error, tcp::socket socket) {
        check(!error, "accept fails");
        socket.set_option(tcp::no_delay(true));
        start(std::move(socket));
        accept_next(acceptor);
    });
}

int main(int argc, char **argv)
{
    int port = 0;
    echo_threads(argc, argv, 1);
    asio::io_context context(1);
    tcp::acceptor acceptor(context, tcp::v4(), echo_listen(&port, 0));
    tell_port(port);
    accept_next(acceptor);
    context.run();
}
