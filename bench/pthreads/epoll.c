// SPDX-License-Identifier: Apache-2.0
/*
 * The server that the others are compared with, and what measures them, are those of the runtime.
 *
 * peer: epoll
 * kind: callbacks
 * build: $CC -O2 -pthread -Ibench/peers bench/runtime/epoll.c -o $OUT
 * peer: client
 * kind: client
 * build: $CC -O2 -pthread -Ibench/peers bench/runtime/client.c -o $OUT
 */
