// SPDX-License-Identifier: Apache-2.0
/* CPython: the lock of the interpreter, while a thread of Python computes, and a lock of Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "late.h"

static const char code[] =
    "import threading, time\n"
    "lock = threading.Lock()\n"
    "lock.acquire()\n"
    "is_over = False\n"
    "def burn():\n"
    "    while not is_over:\n"
    "        sum(range(1000))\n"
    "threading.Thread(target=burn, daemon=True).start()\n"
    "def wait():\n"
    "    end = time.monotonic() + 0.05\n"
    "    while time.monotonic() < end:\n"
    "        sum(range(100))\n"
    "    lock.acquire()\n"
    "    return 'acquired'\n";

static void begin(void)
{
    Py_InitializeEx(0);
    PyRun_SimpleString(code);
    PyEval_SaveThread();
}

/* Calls a function of Python by a state of its own. */
static void call(const char *name, char *text, size_t sz)
{
    PyThreadState *state = PyThreadState_New(PyInterpreterState_Main());
    PyEval_RestoreThread(state);
    PyObject *result = PyRun_String(name, Py_eval_input,
                                    PyModule_GetDict(PyImport_AddModule("__main__")), NULL);
    if (result == NULL) {
        PyErr_Print();
    }
    snprintf(text, sz, "%s", result != NULL ? PyUnicode_AsUTF8(result) : "an exception");
    Py_XDECREF(result);
    PyThreadState_Clear(state);
    PyThreadState_DeleteCurrent();
}

static void wait(char *text, size_t sz)
{
    call("wait()", text, sz);
}

static void release(void)
{
    char text[100];
    call("str(lock.release())", text, sizeof(text));
}

static int works(void)
{
    char text[100];
    call("str(40 + 2)", text, sizeof(text));
    return strcmp(text, "42") == 0;
}

const late_t late = {begin, wait, release, works};
