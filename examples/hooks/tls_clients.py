# SPDX-License-Identifier: Apache-2.0
"""Clients of tls_echo: many at a time, faulty ones, and those that are there when it ends.

tls_clients.py PORT PID CERTIFICATE: of the server, which has a limit of a second for handshakes.
Ends it by SIGTERM. Fails by an exception.
"""

import os
import signal
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor

MANY = 200
HANDSHAKE_LIMIT = 1.0  # seconds
PORT, PID, CERTIFICATE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def connect() -> socket.socket:
    return socket.create_connection(("127.0.0.1", PORT), timeout=60)


def connect_by_tls() -> ssl.SSLSocket:
    """Its recv() throws at an end without TLS's notice of it."""
    context = ssl.create_default_context(cafile=CERTIFICATE)
    return context.wrap_socket(
        connect(), server_hostname="localhost", suppress_ragged_eofs=False
    )


def check_echo(client: ssl.SSLSocket, size: int) -> None:
    sent, got = os.urandom(size), b""
    client.sendall(sent)
    while len(got) < size:
        got += client.recv(65536)
    assert got == sent, "the echo differs"


def check_silent() -> None:
    """A client that begins no handshake is left in time."""
    start = time.monotonic()
    with connect() as client:
        assert client.recv(1) == b"", "an answer to nothing"
    seconds = time.monotonic() - start
    assert HANDSHAKE_LIMIT * 0.9 < seconds < 30, f"a handshake may take {seconds} s"


def check_plain() -> None:
    """A client that knows no TLS is left."""
    with connect() as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            while client.recv(100):
                pass
        except ConnectionResetError:
            pass


def check_end(client: ssl.SSLSocket) -> None:
    assert client.recv(1) == b"", "more than the echo"
    client.close()


def check_closed() -> None:
    try:
        connect()
    except ConnectionRefusedError:
        return
    raise AssertionError("a server that ends lets clients in")


def main() -> None:
    with ThreadPoolExecutor(MANY + 2) as pool:
        faulty = [pool.submit(check_silent), pool.submit(check_plain)]
        clients = list(pool.map(lambda _: connect_by_tls(), range(MANY)))
        for size in (1, 5000, 100000):
            list(pool.map(check_echo, clients, [size] * MANY))
        for check in faulty:
            check.result()
        os.kill(PID, signal.SIGTERM)
        list(pool.map(check_end, clients))
        check_closed()


main()
