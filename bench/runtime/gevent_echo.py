#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
#
# An echo server on gevent, a greenlet for each connection. Relies on Debian's python3-gevent.
#
# peer: Python gevent
# kind: interpreted, stackful
# needs: python3-gevent
# build: printf '#!/bin/sh\nexec "%s" "$@"' "$SRC" > "$OUT"

import sys
from socket import IPPROTO_TCP, TCP_NODELAY

from gevent.server import StreamServer
from gevent.socket import socket

ABSENT = 77
BUFFER_SZ = 1024
BACKLOG = 4096


def serve(connection: socket, _: object) -> None:
    connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    while data := connection.recv(BUFFER_SZ):
        connection.sendall(data)


def main() -> None:
    if sys.argv[1:] != ["echo", "1"]:
        sys.exit(ABSENT)
    server = StreamServer(("127.0.0.1", 0), serve, backlog=BACKLOG)
    server.start()
    print("port", server.server_port, flush=True)
    server.serve_forever()


main()
