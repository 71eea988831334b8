// SPDX-License-Identifier: Apache-2.0
/*
 * For the test of cancellation: a function that is compiled without unwind tables.
 */
void call_without_tables(void (*function)(void));

void call_without_tables(void (*function)(void))
{
    function();
    __asm__ volatile(""); /* prevents a tail call */
}
