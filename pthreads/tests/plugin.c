// SPDX-License-Identifier: Apache-2.0
/* A shared object with thread-local variables, which plugins.c loads. */
static __thread int ct_calls = 100;
static __thread char unused[3000];

int call_plugin(void)
{
    unused[ct_calls % 3000]++;
    return ++ct_calls;
}
