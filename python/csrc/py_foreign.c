/* py_foreign.c - code that is not ours: counted where it may run, stopped before the stack ends, and let in by a Ctrl-C.
 *
 * An argument's methods may call Kiln with arguments whose methods call Kiln, and so on.  Python counts its own frames,
 * but does not know how large ours are or what a thread's stack holds, so the stack itself is asked.  Python handles
 * signals between its own instructions, so a wait in the library is left for them, and taken up again after. */
#include <pthread.h>

#include "kilnpy.h"

/* What is left to code that runs from here on: Python's, another library's, and a call of Kiln in it. */
enum { RESERVE = 256 << 10 };

/* This thread's stack: addresses from low to floor are the reserve. */
static _Thread_local struct { uintptr_t low, floor; /* floor 0: not asked yet */ } stack;

static void ask_stack(void) {
    pthread_attr_t attr;
    void *low;
    size_t size;
    stack.floor = 1; /* where nothing is known, nothing is refused */
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return;
    if (pthread_attr_getstack(&attr, &low, &size) == 0) {
        stack.low = (uintptr_t)low;
        size_t most = size / 16 * 11; /* of a small stack */
        stack.floor = stack.low + (most < RESERVE ? most : RESERVE);
    }
    pthread_attr_destroy(&attr);
}

int kp_foreign(kp_state *st) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    st->foreign++;
    if (!stack.floor) ask_stack();
    if (here >= stack.floor || here < stack.low) return 0; /* below: not on the thread's own stack */
    PyErr_SetString(PyExc_RecursionError,
                    "the stack is too small for so many calls of Kiln inside each other's arguments");
    return -1;
}

/* -- waiting ---------------------------------------------------------------------------------------- */

/* This thread's, while it has given up the GIL for the library. */
static _Thread_local PyThreadState *waiting;

void kp_wait_begin(void) { waiting = PyEval_SaveThread(); }

void kp_wait_end(void) {
    PyThreadState *thread = waiting;
    waiting = NULL;
    PyEval_RestoreThread(thread);
}

/* This thread may have the GIL or not, and must not ask. */
static _Thread_local bool patient;

void kp_patient(bool on) { patient = on; }

/* Looks only, so that no handler calls Kiln in the middle of a build: a SIGINT that was seen is put back. */
int kp_interrupted(void *unused) {
    (void)unused;
    if (patient) return 0;
    if (!waiting) return 1; /* it has the GIL */
    PyEval_RestoreThread(waiting);
    int seen = PyOS_InterruptOccurred();
    if (seen) PyErr_SetInterrupt();
    waiting = PyEval_SaveThread();
    return seen;
}

bool kp_wait_again(kp_state *st, kiln_status status) {
    return status == KILN_E_INTERRUPTED && kp_foreign(st) == 0 && PyErr_CheckSignals() == 0;
}
