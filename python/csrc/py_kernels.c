/* py_kernels.c - the classes of calls that the context has -> tuples, which kiln/__init__.py names, sorts and prints; and the operators that
 * packs have kernels for.
 *
 * Reads what kiln_classes_list and kiln_packed_ops tell.  Must not know what a class or a pack is. */
#include <stdlib.h>
#include <string.h>

#include "cli/statlines.h"
#include "kilnpy.h"

static kiln_status add_class(void *user, const kiln_class_info *info) {
    PyObject *list = user;
    PyObject *one = Py_BuildValue("(sssKdKK)", info->op, info->words, info->tier,
                                  (unsigned long long)info->interp_calls, (double)info->build_ns / 1e6,
                                  (unsigned long long)info->code_bytes,
                                  (unsigned long long)info->failed_builds);
    int done = one ? PyList_Append(list, one) : -1;
    Py_XDECREF(one);
    return done < 0 ? KILN_E_NOMEM : KILN_OK; /* the exception is set */
}

/* kernels(): a list of tuples, in no order. */
PyObject *kp_kernels(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_box *box = kp_box_take(kp_state_of(module));
    PyObject *list = box ? PyList_New(0) : NULL;
    if (list && kiln_classes_list(box->ctx, add_class, list) != KILN_OK) {
        Py_CLEAR(list);
        if (!PyErr_Occurred()) PyErr_NoMemory();
    }
    kp_box_drop(box);
    return list;
}

static kiln_status add_name(void *user, const char *text) {
    PyObject *name = PyUnicode_FromString(text);
    int done = name ? PyList_Append(user, name) : -1;
    Py_XDECREF(name);
    return done < 0 ? KILN_E_NOMEM : KILN_OK; /* the exception is set */
}

/* packed_ops(): names of operators that a pack has a kernel for. */
PyObject *kp_packed_ops(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_box *box = kp_box_take(kp_state_of(module));
    PyObject *list = box ? PyList_New(0) : NULL;
    if (list && kiln_packed_ops(box->ctx, add_name, list) != KILN_OK) {
        Py_CLEAR(list);
        if (!PyErr_Occurred()) PyErr_NoMemory();
    }
    kp_box_drop(box);
    return list;
}

/* -- KILN_STATS ------------------------------------------------------------------------------------------ */

int kp_stats_check(void) {
    const char *wrong;
    (void)statlines_asked(&wrong);
    if (!wrong) return 0;
    PyErr_Format(PyExc_ValueError, "KILN_STATS is '%.40s': expected 0 or 1", wrong);
    return -1;
}

/* stats_text(): what KILN_STATS=1 prints; None where no context is open. */
PyObject *kp_stats_text(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_state *st = kp_state_of(module);
    kp_box *box = st->box ? kp_box_take(st) : NULL;
    if (!box) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    char *text = statlines_text(box->ctx);
    kp_box_drop(box);
    if (!text) return PyErr_NoMemory();
    PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    free(text);
    return out;
}
