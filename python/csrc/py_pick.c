/* py_pick.c - a short name and a call's arguments -> the overload they mean.
 *
 * Names with an overload part, and full names of default overloads, never come here.  Taken is the overload whose
 * parameters fit the kinds of the arguments best, the default one where several do.  A number fits a Tensor parameter
 * and a tensor a Scalar one, but less well than what they are made for.  Values are not looked at. */
#include <string.h>

#include "kilnpy.h"

enum { NO = -1, HARDLY = 0, FAIR = 1, WELL = 2 }; /* how an argument fits a parameter */

static bool is_number(kp_kind k) { return (k >= KP_BOOL && k <= KP_COMPLEX) || k == KP_NUMPY_SCALAR; }

static int fit(const kp_param *p, kp_kind k) {
    if (k == KP_NONE) return p->optional ? WELL : NO;
    bool tensor = k >= KP_KILN, list = k == KP_LIST || k == KP_TUPLE;
    switch (p->kind) {
    case PARAM_TENSOR: return tensor ? WELL : is_number(k) && !p->written ? FAIR : NO;
    case PARAM_SCALAR: return is_number(k) ? WELL : tensor ? HARDLY : NO;
    case PARAM_INT:
        return k == KP_INT ? WELL : k == KP_BOOL || k == KP_OTHER || k == KP_NUMPY_SCALAR ? FAIR : NO;
    case PARAM_FLOAT: return k == KP_FLOAT ? WELL : is_number(k) && k != KP_COMPLEX ? FAIR : NO;
    case PARAM_BOOL: return k == KP_BOOL ? WELL : NO;
    case PARAM_STR: return k == KP_STR ? WELL : NO;
    case PARAM_DTYPE: return k == KP_DTYPE ? WELL : k == KP_OTHER || k == KP_STR ? FAIR : NO;
    case PARAM_LIST: return list ? WELL : k == KP_INT ? FAIR : NO;
    case PARAM_OTHER: break;
    }
    return tensor || list ? NO : HARDLY;
}

int kp_param_index(const kp_op *op, PyObject *name) {
    for (int k = 0; k < op->nparams; k++)
        if (PyUnicode_CompareWithASCIIString(name, op->params[k].name) == 0) return k;
    return -1;
}

/* How well the arguments fit op: NO, or a sum that is comparable among overloads.  -2 with an exception. */
static int fit_all(kp_state *st, const kp_op *op, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames) {
    Py_ssize_t nnamed = kwnames ? PyTuple_Size(kwnames) : 0;
    uint64_t given = 0;
    int sum = 0;
    for (Py_ssize_t k = 0; k < nargs + nnamed; k++) {
        int at = k < nargs ? (int)k : kp_param_index(op, PyTuple_GetItem(kwnames, k - nargs));
        if (at < 0 || at >= op->nparams || given >> at & 1 || (k < nargs && op->params[at].named)) return NO;
        const kp_type *type = kp_type_of(st, args[k]);
        if (!type) return -2;
        int points = fit(&op->params[at], type->kind);
        if (points == NO) return NO;
        given |= (uint64_t)1 << at;
        sum += points;
    }
    for (int k = 0; k < op->nparams; k++)
        if (!op->params[k].defaulted && !(given >> k & 1)) return NO;
    return sum;
}

static kp_op *none_fits(const kp_op *set) {
    PyObject *lines = PyUnicode_FromFormat("%s: no overload fits these arguments; there are", set->name);
    for (Py_ssize_t k = 0; lines && k < PyTuple_Size(set->overloads); k++) {
        const kp_op *op = (kp_op *)PyTuple_GetItem(set->overloads, k);
        PyObject *more = PyUnicode_FromFormat("%U\n  %s", lines, op->doc);
        Py_DECREF(lines);
        lines = more;
    }
    if (lines) PyErr_SetObject(PyExc_TypeError, lines);
    Py_XDECREF(lines);
    return NULL;
}

kp_op *kp_pick(kp_op *set, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    kp_op *best = NULL;
    int most = NO;
    kp_box *box = kp_box_take(set->st);
    int fresh = box ? kp_op_fresh(set, box) : -1;
    kp_box_drop(box);
    if (fresh < 0) return NULL;
    for (Py_ssize_t k = 0; k < PyTuple_Size(set->overloads); k++) {
        kp_op *op = (kp_op *)PyTuple_GetItem(set->overloads, k);
        int points = fit_all(set->st, op, args, nargs, kwnames);
        if (points == -2) return NULL;
        if (points > most) best = op, most = points;
    }
    if (best) return best;
    /* The default overload's own complaint says more. */
    kp_op *first = (kp_op *)PyTuple_GetItem(set->overloads, 0);
    return first && !strchr(first->name, '.') ? first : none_fits(set);
}

/* -- finding overloads ----------------------------------------------------------------------------- */

/* Names of served overloads of `full`, which has none itself, the default one first; new reference. */
static PyObject *overload_names(kp_box *box, const char *full) {
    PyObject *list = PyList_New(0);
    size_t n = strlen(full);
    for (size_t k = 0; list && k < kiln_op_count(box->ctx); k++) {
        const kiln_op *op = kiln_op_at(box->ctx, k);
        const char *name = kiln_op_name(op);
        if (strncmp(name, full, n) != 0 || (name[n] && name[n] != '.') || !kiln_op_served(op)) continue;
        PyObject *text = PyUnicode_FromString(name);
        if (!text || PyList_Insert(list, name[n] ? PyList_Size(list) : 0, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

int kp_overloads(kp_state *st, kp_box *box, const char *full, PyObject **out) {
    PyObject *names = overload_names(box, full);
    Py_ssize_t n = names ? PyList_Size(names) : -1;
    *out = NULL;
    PyObject *tuple = n > 1 ? PyTuple_New(n) : NULL;
    for (Py_ssize_t k = 0; tuple && k < n; k++) {
        PyObject *op = kp_op_get(st, PyList_GetItem(names, k));
        if (!op || PyTuple_SetItem(tuple, k, op) < 0) Py_CLEAR(tuple);
    }
    Py_XDECREF(names);
    *out = tuple;
    return n < 0 || (n > 1 && !tuple) ? -1 : 0;
}
