/* py_log.c - messages of the library, from any thread -> lines of KILN_LOG, and messages that wait for kiln.configure(log=...).
 *
 * A builder may log while the thread that waits for it holds the GIL, and calls log with and without it.  So the log takes neither the
 * GIL nor a lock: it pushes messages to a list by compare-and-swap, and a thread of Python's (kiln/_log.py) takes them.  That also holds
 * after a fork, whenever it happened.  Owns the list; must not know who is told. */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cli/loglines.h"
#include "kilnpy.h"

enum { WAITING_MAX = 4096 }; /* Messages that nobody takes are dropped from this number on. */

typedef struct message {
    struct message *next;
    int level;
    char *topic, *text;
} message;

static _Atomic(message *) newest; /* by next, back to the oldest */
static atomic_int nwaiting;
static atomic_bool is_heard, is_ending;
static sem_t posted;

int kp_log_open(void) {
    char why[LOGLINES_WHY_MAX];
    if (loglines_open(-1, why)) return 0;
    PyErr_SetString(PyExc_ValueError, why);
    return -1;
}

static void push(int level, const char *topic, const char *text) {
    message *m = malloc(sizeof *m);
    if (!m) return;
    *m = (message){NULL, level, strdup(topic), strdup(text)};
    m->next = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &m->next, m)) continue;
    atomic_fetch_add(&nwaiting, 1);
    sem_post(&posted);
}

void kp_log(void *user, int level, const char *topic, const char *text) {
    kp_bridge_log(user, level, topic, text);
    loglines_write(level, topic, text);
    if (atomic_load(&is_heard) && atomic_load(&nwaiting) < WAITING_MAX) push(level, topic, text);
}

/* The messages that wait, oldest first. */
static message *take_all(void) {
    message *oldest = NULL, *m = atomic_exchange(&newest, NULL);
    for (message *next; m; m = next) {
        next = m->next;
        m->next = oldest;
        oldest = m;
        atomic_fetch_sub(&nwaiting, 1);
    }
    return oldest;
}

static void drop_all(void) {
    for (message *m = take_all(), *next; m; m = next) {
        next = m->next;
        free(m->topic);
        free(m->text);
        free(m);
    }
}

static PyObject *tuple_of(const message *m) {
    const char *topic = m->topic ? m->topic : "", *text = m->text ? m->text : "";
    return Py_BuildValue("(isN)", m->level, topic,
                         PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
}

/* A list of (level, topic, text); messages that there is no memory for are lost. */
static PyObject *list_all(void) {
    PyObject *list = PyList_New(0);
    for (message *m = take_all(), *next; m; m = next) {
        PyObject *one = list ? tuple_of(m) : NULL;
        if (list && (!one || PyList_Append(list, one) < 0)) Py_CLEAR(list);
        Py_XDECREF(one);
        next = m->next;
        free(m->topic);
        free(m->text);
        free(m);
    }
    return list;
}

/* -- for kiln/_log.py ---------------------------------------------------------------------------------------- */

/* log_hear(on): whether messages are kept for log_take from here on. */
static PyObject *log_hear(PyObject *module, PyObject *on) {
    (void)module;
    int heard = PyObject_IsTrue(on);
    if (heard < 0) return NULL;
    atomic_store(&is_heard, heard);
    if (!heard) drop_all();
    return Py_NewRef(Py_None);
}

/* log_begin(): resets the semaphore and the end flag, and drops messages that wait.  Called before the log thread waits for the first
 * time, and again in a forked child, because a thread of the parent may have been waiting on the semaphore. */
static PyObject *log_begin(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    sem_init(&posted, 0, 0);
    atomic_store(&is_ending, false);
    drop_all();
    return Py_NewRef(Py_None);
}

/* log_wait(): returns when there are messages; False once log_end was called. */
static PyObject *log_wait(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    while (sem_wait(&posted) != 0 && errno == EINTR) continue;
    Py_END_ALLOW_THREADS;
    return PyBool_FromLong(!atomic_load(&is_ending));
}

static PyObject *log_end(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    atomic_store(&is_ending, true);
    sem_post(&posted);
    return Py_NewRef(Py_None);
}

/* log_take(): the messages that wait. */
static PyObject *log_take(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return list_all();
}

/* log_tell(function, arguments): calls it; what it raises goes to sys.unraisablehook. */
static PyObject *log_tell(PyObject *module, PyObject *args) {
    PyObject *function, *given;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!:log_tell", &function, &PyTuple_Type, &given)) return NULL;
    PyObject *done = PyObject_Call(function, given, NULL);
    if (!done) PyErr_WriteUnraisable(function);
    Py_XDECREF(done);
    return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"log_hear", log_hear, METH_O, "log_hear(on, /)"},
    {"log_begin", log_begin, METH_NOARGS, "log_begin()"},
    {"log_wait", log_wait, METH_NOARGS, "log_wait()"},
    {"log_end", log_end, METH_NOARGS, "log_end()"},
    {"log_take", log_take, METH_NOARGS, "log_take()"},
    {"log_tell", log_tell, METH_VARARGS, "log_tell(function, arguments, /)"},
    {0},
};

int kp_log_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
