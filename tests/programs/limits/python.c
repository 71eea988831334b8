// SPDX-License-Identifier: Apache-2.0
/*
 * CPython in coroutines: on a stack of PYTHON_STACK_SZ each way of recursing through C ends in a
 * RecursionError; and coroutines, each with a PyThreadState of its own, yield inside Python
 * functions and handlers of exceptions.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "aco.h"

#define PYTHON_STACK_SZ ((size_t)4 << 20) /* bytes; as docs/limits.md advises */
#define CT_COROUTINES 20
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

static const char *const recursions[] = {
    "def f(n): return sorted([n], key=lambda i: f(n + 1))\n"
    "try:\n    f(0)\nexcept RecursionError: pass\nelse: raise SystemError\n",
    "class A:\n    def __getattr__(self, name): return getattr(self, name + 'x')\n"
    "try:\n    A().y\nexcept RecursionError: pass\nelse: raise SystemError\n",
    "import json\nx = []\nx.append([x])\n"
    "try:\n    json.dumps(x, check_circular=False)\n"
    "except RecursionError: pass\nelse: raise SystemError\n",
};

static const char yields_and_raises[] =
    "import aco\n"
    "def dig(n):\n"
    "    try:\n"
    "        aco.yield_()\n"
    "        if n == 0: raise KeyError(n)\n"
    "        dig(n - 1)\n"
    "    finally:\n"
    "        aco.yield_()\n"
    "def work(seed):\n"
    "    for i in range(20):\n"
    "        try:\n"
    "            dig((seed + i) % 7)\n"
    "        except KeyError:\n"
    "            aco.yield_()\n"
    "        else:\n"
    "            raise SystemError\n";

static PyThreadState *main_state;

/* Goes back to the interpreter as the caller left it. */
static PyObject *python_yield(PyObject *self, PyObject *arguments)
{
    (void)self;
    (void)arguments;
    PyThreadState *state = PyThreadState_Swap(main_state);
    aco_yield();
    PyThreadState_Swap(state);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"yield_", python_yield, METH_NOARGS, NULL}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "aco", NULL, -1, methods, 0, 0, 0, 0};

static PyObject *make_module(void)
{
    return PyModule_Create(&module);
}

static void runs_code(void)
{
    PyThreadState *state = PyThreadState_New(PyInterpreterState_Main());
    PyThreadState_Swap(state);
    aco_assert(PyRun_SimpleString((const char *)aco_get_arg()) == 0);
    PyThreadState_Clear(state);
    PyThreadState_Swap(main_state);
    PyThreadState_Delete(state);
    aco_exit();
}

static void check_recursion(aco_t *main_co, const char *code)
{
    aco_share_stack_t *stack = aco_share_stack_new(PYTHON_STACK_SZ);
    aco_t *co = aco_create(main_co, stack, 0, runs_code, (void *)(uintptr_t)code);
    aco_resume(co);
    aco_assert(co->is_end);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

static void check_yields(aco_t *main_co)
{
    static char code[CT_COROUTINES][32];
    aco_t *cos[CT_COROUTINES];
    aco_share_stack_t *stack = aco_share_stack_new(PYTHON_STACK_SZ);
    aco_assert(PyRun_SimpleString(yields_and_raises) == 0);
    for (int i = 0; i < CT_COROUTINES; i++) {
        snprintf(code[i], sizeof(code[i]), "work(%d)\n", i);
        cos[i] = aco_create(main_co, stack, 0, runs_code, code[i]);
    }
    for (int ct_live = 1, turn = 0; ct_live > 0; turn++) {
        ct_live = 0;
        for (int i = 0; i < CT_COROUTINES; i++) {
            ct_live += !cos[i]->is_end;
            if (!cos[i]->is_end && (turn + i) % 3 != 0) {
                aco_resume(cos[i]);
            }
        }
    }
    for (int i = 0; i < CT_COROUTINES; i++) {
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stack);
}

int main(void)
{
    PyImport_AppendInittab("aco", make_module);
    Py_Initialize();
    main_state = PyThreadState_Get();
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t i = 0; i < ARRAY_SZ(recursions); i++) {
        check_recursion(main_co, recursions[i]);
    }
    check_yields(main_co);
    aco_destroy(main_co);
    return Py_FinalizeEx();
}
