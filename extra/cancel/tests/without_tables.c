// SPDX-License-Identifier: Apache-2.0
/*
 * A function that is compiled without unwind tables, for the test of cancellation.
 */
void call_without_tables(void (*function)(void));

void call_without_tables(void (*function)(void))
{
    function();
    __asm__ volatile(""); /* prevents a tail call */
}
