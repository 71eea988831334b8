// SPDX-License-Identifier: Apache-2.0
/*
 * An echo server on the State Threads library, a thread of its own for each connection. Debian
 * builds it without epoll: it waits by select(), so for 1,024 descriptors at most.
 *
 * peer: State Threads
 * kind: stackful
 * needs: libst-dev
 * build: $CC -O2 -Ibench/peers $SRC -o $OUT -l:libst.a
 */
#include "echo.h"

#include <st.h>

#define STACK_SZ 65536 /* bytes */

static void *serve(void *arg)
{
    st_netfd_t fd = (st_netfd_t)arg;
    char buffer[BUFFER_SZ];
    ssize_t sz;
    while ((sz = st_read(fd, buffer, sizeof(buffer), ST_UTIME_NO_TIMEOUT)) > 0 &&
           st_write(fd, buffer, (size_t)sz, ST_UTIME_NO_TIMEOUT) == sz) {
    }
    st_netfd_close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    int port = 0;
    echo_threads(argc, argv, 1);
    check(st_set_eventsys(ST_EVENTSYS_ALT) == 0 && st_init() == 0, "st_init fails");
    st_netfd_t listener = st_netfd_open_socket(echo_listen(&port, 0));
    check(listener != NULL, "can't listen");
    tell_port(port);
    for (;;) {
        st_netfd_t fd = st_accept(listener, NULL, NULL, ST_UTIME_NO_TIMEOUT);
        check(fd != NULL, "st_accept fails");
        set_nodelay(st_netfd_fileno(fd));
        check(st_thread_create(serve, fd, 0, STACK_SZ) != NULL, "no thread");
    }
}
