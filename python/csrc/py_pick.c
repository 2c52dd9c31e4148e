/* py_pick.c - a short name and a call's arguments -> the overload they mean.
 *
 * Names with an overload part never come here.  Taken is the overload whose parameters fit the kinds of the arguments
 * best, the default one where several do, and one that copies into its outputs only where no other fits.  A number fits
 * a Tensor parameter and a tensor without dimensions (a NumPy scalar) a Scalar one, but less well than what they are
 * made for.
 * `out=None` is absent, and the items of a tuple are the outputs of an overload that has several, as in PyTorch. */
#include <string.h>

#include "kilnpy.h"

/* -- how an argument fits a parameter -------------------------------------------------------------- */

enum { NO = -1, HARDLY = 0, FAIR = 1, WELL = 2 };

static bool is_number(kp_kind k) {
    return (k >= KP_BOOL && k <= KP_COMPLEX) || k == KP_INDEX || k == KP_NUMPY_SCALAR;
}

/* numbers: whether one may stand for a tensor. */
static int fit(const kp_param *p, kp_kind k, bool numbers) {
    if (k == KP_NONE) return p->optional ? WELL : NO;
    bool tensor = k >= KP_KILN, list = k == KP_LIST || k == KP_TUPLE;
    switch (p->kind) {
    case PARAM_TENSOR:
        if (tensor) return WELL;
        if (!numbers || !is_number(k) || p->written) return NO;
        return k == KP_NUMPY_SCALAR ? WELL : FAIR;
    case PARAM_SCALAR: return tensor || k == KP_NUMPY_SCALAR ? HARDLY : is_number(k) ? WELL : NO;
    case PARAM_INT:
        if (k == KP_INT) return WELL;
        return is_number(k) && k != KP_FLOAT && k != KP_COMPLEX ? FAIR : tensor ? HARDLY : NO;
    case PARAM_FLOAT:
        if (k == KP_FLOAT) return WELL;
        return is_number(k) && k != KP_COMPLEX ? FAIR : tensor ? HARDLY : NO;
    case PARAM_BOOL: return k == KP_BOOL ? WELL : k == KP_NUMPY_SCALAR ? FAIR : NO;
    case PARAM_STR: return k == KP_STR ? WELL : NO;
    case PARAM_DTYPE: return k == KP_DTYPE ? WELL : k == KP_OTHER || k == KP_STR ? FAIR : NO;
    case PARAM_LIST: return list ? WELL : k == KP_INT ? FAIR : NO;
    case PARAM_OTHER: break;
    }
    return tensor || list ? NO : HARDLY;
}

static long rank_of(PyObject *o) {
    PyObject *ndim = PyObject_GetAttrString(o, "ndim");
    long rank = ndim ? PyLong_AsLong(ndim) : 0; /* where nothing says so, the call itself finds out */
    Py_XDECREF(ndim);
    PyErr_Clear();
    return rank;
}

/* An int from 2^63 up. */
static bool is_wide(kp_kind k, PyObject *o) {
    int overflow = 0;
    if (k != KP_INT && (k != KP_NUMPY_SCALAR || !PyIndex_Check(o))) return false;
    PyObject *i = k == KP_INT ? Py_NewRef(o) : PyNumber_Index(o);
    if (i) PyLong_AsLongLongAndOverflow(i, &overflow);
    Py_XDECREF(i);
    PyErr_Clear();
    return overflow > 0;
}

/* Whether o is a tensor of u64. */
static bool is_u64(kp_state *st, PyObject *o) {
    PyObject *dtype = PyObject_GetAttrString(o, "dtype");
    kiln_dtype t;
    bool yes = dtype && kp_dtype_from(st, dtype, &t) == 0 && t == KILN_U64;
    Py_XDECREF(dtype);
    PyErr_Clear();
    return yes;
}

/* A number's parameter takes no tensor with dimensions, and a Scalar one no int from 2^63 up beside a u64: a tensor of u64
 * does. */
static int look_closer(kp_state *st, const kp_given *given, kp_kind k, PyObject *o, int points) {
    if (k >= KP_KILN) return rank_of(o) > 0 ? NO : points;
    for (Py_ssize_t j = 0; j < given->nargs; j++)
        if (is_u64(st, given->args[j])) return HARDLY;
    return points;
}

int kp_param_index(const kp_op *op, PyObject *name) {
    for (int k = 0; k < op->nparams; k++)
        if (PyUnicode_CompareWithASCIIString(name, op->params[k].name) == 0) return k;
    return -1;
}

/* Why an overload does not fit, or that values must be looked at before it does. */
typedef struct misfit {
    enum { DOUBT = 1, UNKNOWN, TWICE, TOO_MANY, WRONG, MISSING } why;
    int param;
    Py_ssize_t arg;
} misfit;

/* How well the arguments fit op: NO, or a sum that is comparable among overloads.  -2 with an exception. */
static int fit_all(const kp_op *set, const kp_op *op, const kp_given *given, bool closer, misfit *why) {
    Py_ssize_t nargs = given->nargs, nnamed = given->kwnames ? PyTuple_Size(given->kwnames) : 0;
    uint64_t seen = 0;
    int sum = 0;
    why->why = 0;
    for (Py_ssize_t k = 0; k < nargs + nnamed; k++) {
        bool named = k >= nargs;
        int at = named ? kp_param_index(op, PyTuple_GetItem(given->kwnames, k - nargs)) : (int)k;
        if (at < 0) return *why = (misfit){UNKNOWN, 0, k}, NO;
        if (at >= op->nparams || (!named && op->params[at].named)) return *why = (misfit){TOO_MANY, 0, k}, NO;
        if (seen >> at & 1) return *why = (misfit){TWICE, at, k}, NO;
        const kp_type *type = kp_type_of(set->st, given->args[k]);
        if (!type) return -2;
        const kp_param *p = &op->params[at];
        int points = fit(p, type->kind, set->numbers);
        bool doubt = type->kind >= KP_KILN ? kp_takes_number(p)
                                           : p->kind == PARAM_SCALAR && is_wide(type->kind, given->args[k]);
        if (doubt) why->why = DOUBT;
        if (doubt && closer && kp_foreign(set->st) < 0) return -2;
        if (doubt && closer) points = look_closer(set->st, given, type->kind, given->args[k], points);
        if (points == NO) return *why = (misfit){WRONG, at, k}, NO;
        seen |= (uint64_t)1 << at;
        sum += points;
    }
    for (int k = 0; k < op->nneeded; k++)
        if (!op->params[k].defaulted && !(seen >> k & 1)) return *why = (misfit){MISSING, k, -1}, NO;
    return sum;
}

/* The overload that fits best, or NULL.  1 if that is in doubt, 0, or -1 with an exception. */
static int best_of(const kp_op *set, const kp_given *given, bool closer, kp_op **out) {
    int most = 0, doubt = 0;
    *out = NULL;
    for (Py_ssize_t k = 0; k < PyTuple_Size(given->overloads); k++) {
        kp_op *op = (kp_op *)PyTuple_GetItem(given->overloads, k);
        misfit why;
        int points = fit_all(set, op, given, closer, &why);
        if (points == -2) return -1;
        if (points == NO || (*out && op->aside > (*out)->aside)) continue;
        if (*out && op->aside == (*out)->aside && points <= most) continue;
        *out = op;
        most = points;
        doubt = why.why == DOUBT;
    }
    return doubt;
}

/* -- outputs by other names ------------------------------------------------------------------------ */

/* The place of `out` among the keywords, or -1. */
static Py_ssize_t out_place(const kp_given *given) {
    Py_ssize_t n = given->kwnames ? PyTuple_Size(given->kwnames) : 0;
    for (Py_ssize_t k = 0; k < n; k++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(given->kwnames, k), "out") == 0) return k;
    return -1;
}

static bool is_output(const kp_param *p) { return p->written && p->named; }

/* How many outputs op writes that are not called out; names: theirs. */
static Py_ssize_t outputs_of(const kp_op *op, const char *names[KILN_MAX_RETS]) {
    Py_ssize_t n = 0;
    for (int k = 0; k < op->nparams && n < KILN_MAX_RETS; k++)
        if (is_output(&op->params[k])) names[n++] = op->params[k].name;
    return n == 1 && strcmp(names[0], "out") == 0 ? 0 : n;
}

/* Keyword number `place` replaced by n of the given names and values. */
static int replace_keyword(kp_given *given, Py_ssize_t place, Py_ssize_t n, const char **names,
                           PyObject *values) {
    Py_ssize_t nnamed = PyTuple_Size(given->kwnames), all = given->nargs + nnamed, at = 0;
    PyObject *kwnames = PyTuple_New(nnamed - 1 + n);
    if (!kwnames) return -1;
    for (Py_ssize_t k = 0; k < all; k++)
        if (k != given->nargs + place) given->room[at++] = given->args[k];
    for (Py_ssize_t k = 0; k < n; k++) given->room[at++] = PyTuple_GetItem(values, k);
    for (Py_ssize_t k = 0, to = 0; k < nnamed - 1 + n; k++) {
        PyObject *name = k < nnamed - 1 ? Py_NewRef(PyTuple_GetItem(given->kwnames, k + (k >= place)))
                                        : PyUnicode_FromString(names[k - (nnamed - 1)]);
        if (!name || PyTuple_SetItem(kwnames, to++, name) < 0) return Py_DECREF(kwnames), -1;
    }
    given->args = given->room;
    given->kwnames = given->own[0] = kwnames;
    return 0;
}

static bool is_settled(PyObject *out) { return out != Py_None && !PyTuple_Check(out) && !PyList_Check(out); }

/* out=None goes, out=(a, b) becomes the outputs of the first overload that has so many. */
static int settle_out(kp_given *given) {
    const char *names[KILN_MAX_RETS];
    Py_ssize_t nnamed = PyTuple_Size(given->kwnames), first = 0, n = 0;
    while (first < nnamed && is_settled(given->args[given->nargs + first])) first++;
    Py_ssize_t place = first < nnamed ? out_place(given) : -1;
    if (place < 0 || given->nargs + nnamed + KILN_MAX_RETS > KILN_MAX_ARGS) return 0;
    PyObject *out = given->args[given->nargs + place];
    if (out == Py_None) return replace_keyword(given, place, 0, names, NULL);
    if (is_settled(out)) return 0;
    given->own[1] = out = PySequence_Tuple(out); /* a list may change meanwhile */
    if (!out) return -1;
    for (Py_ssize_t k = 0; k < PyTuple_Size(given->overloads); k++) {
        n = outputs_of((kp_op *)PyTuple_GetItem(given->overloads, k), names);
        if (n > 0 && n == PyTuple_Size(out)) return replace_keyword(given, place, n, names, out);
    }
    return 0;
}

/* -- why none fits --------------------------------------------------------------------------------- */

static PyObject *describe(const kp_op *op, const kp_given *given, const misfit *m) {
    const kp_param *p = &op->params[m->param];
    int positional = 0;
    while (positional < op->nparams && !op->params[positional].named) positional++;
    switch (m->why) {
    case UNKNOWN:
        return PyUnicode_FromFormat("has no argument %.200R",
                                    PyTuple_GetItem(given->kwnames, m->arg - given->nargs));
    case TWICE: return PyUnicode_FromFormat("argument '%s' is given twice", p->name);
    case TOO_MANY:
        return PyUnicode_FromFormat("takes %d positional arguments, but %zd were given", positional,
                                    given->nargs);
    case MISSING: return PyUnicode_FromFormat("argument '%s' (%s) is missing", p->name, p->type);
    case DOUBT:
    case WRONG: break;
    }
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(given->args[m->arg]), "__name__");
    PyObject *text = type ? PyUnicode_FromFormat("argument '%s' must be %s, not %U", p->name, p->type, type)
                          : NULL;
    Py_XDECREF(type);
    return text;
}

/* Whether a reader expects op among those a call was compared with: forms with outputs where one is given, the others
 * where none is. */
static bool is_meant(const kp_op *op, const kp_given *given) {
    Py_ssize_t n = given->kwnames ? PyTuple_Size(given->kwnames) : 0;
    bool has = false;
    for (int k = 0; k < op->nparams; k++) has = has || is_output(&op->params[k]);
    if (out_place(given) >= 0) return has;
    for (Py_ssize_t k = 0; k < n && has; k++) {
        int at = kp_param_index(op, PyTuple_GetItem(given->kwnames, k));
        if (at >= 0 && is_output(&op->params[at])) return true;
    }
    return !has;
}

/* How many outputs `out` must be, where overloads have several and none is called so; 0: one is, or there are none. */
static Py_ssize_t outputs_wanted(const kp_given *given) {
    const char *names[KILN_MAX_RETS];
    Py_ssize_t most = 0;
    for (Py_ssize_t k = 0; k < PyTuple_Size(given->overloads); k++) {
        const kp_op *op = (kp_op *)PyTuple_GetItem(given->overloads, k);
        Py_ssize_t n = outputs_of(op, names);
        if (n > most) most = n;
        for (int p = 0; p < op->nparams; p++)
            if (strcmp(op->params[p].name, "out") == 0) return 0;
    }
    return most;
}

/* One line per overload that could be meant; where that is a single one, its own complaint says more. */
static kp_op *none_fits(const kp_op *set, const kp_given *given) {
    Py_ssize_t n = PyTuple_Size(given->overloads), meant = 0;
    Py_ssize_t wanted = out_place(given) >= 0 ? outputs_wanted(given) : 0;
    kp_op *last = NULL;
    if (wanted) {
        PyErr_Format(PyExc_TypeError, "%s: argument 'out' must be a tuple of %zd tensors", set->name, wanted);
        return NULL;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        kp_op *op = (kp_op *)PyTuple_GetItem(given->overloads, k);
        if (is_meant(op, given)) last = op, meant++;
    }
    if (meant == 1 && set->numbers) return last;
    PyObject *lines = PyUnicode_FromFormat("%s: no overload fits these arguments", set->name);
    for (Py_ssize_t k = 0; lines && k < n; k++) {
        const kp_op *op = (kp_op *)PyTuple_GetItem(given->overloads, k);
        misfit why;
        if ((meant && !is_meant(op, given)) || fit_all(set, op, given, true, &why) != NO) continue;
        PyObject *reason = describe(op, given, &why);
        PyObject *more = reason ? PyUnicode_FromFormat("%U\n  %s: %U", lines, op->name, reason) : NULL;
        Py_XDECREF(reason);
        Py_DECREF(lines);
        lines = more;
    }
    if (lines) PyErr_SetObject(PyExc_TypeError, lines);
    Py_XDECREF(lines);
    return NULL;
}

/* -- the choice ------------------------------------------------------------------------------------ */

static int set_fresh(kp_op *set) {
    kp_box *box = kp_box_take(set->st);
    int fresh = box ? kp_op_fresh(set, box) : -1;
    kp_box_drop(box);
    return fresh;
}

kp_op *kp_pick(kp_op *set, kp_given *given) {
    kp_op *best;
    if ((!set->st->box || set->epoch != set->st->epoch) && set_fresh(set) < 0) return NULL;
    given->overloads = Py_NewRef(set->overloads); /* code run by an argument may make the set anew */
    if (given->kwnames && settle_out(given) < 0) return NULL;
    int doubt = best_of(set, given, false, &best);
    if (doubt > 0) doubt = best_of(set, given, true, &best);
    if (doubt < 0) return NULL;
    return best ? best : none_fits(set, given);
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

bool kp_takes_numbers(PyObject *overloads) {
    for (Py_ssize_t k = 0; k < PyTuple_Size(overloads); k++) {
        const kp_op *op = (kp_op *)PyTuple_GetItem(overloads, k);
        for (int p = 0; p < op->nneeded; p++)
            if (op->params[p].kind == PARAM_SCALAR) return true;
    }
    return false;
}

int kp_overloads(kp_state *st, kp_box *box, const char *full, PyObject **out) {
    PyObject *names = overload_names(box, full);
    Py_ssize_t n = names ? PyList_Size(names) : -1;
    *out = NULL;
    PyObject *tuple = n > 1 ? PyTuple_New(n) : NULL;
    for (Py_ssize_t k = 0; tuple && k < n; k++) {
        PyObject *name = PyList_GetItem(names, k);
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
        PyObject *op = !text ? NULL : strchr(text, '.') ? kp_op_get(st, name) : kp_op_alone(st, text);
        if (!op || PyTuple_SetItem(tuple, k, op) < 0) Py_CLEAR(tuple);
    }
    Py_XDECREF(names);
    *out = tuple;
    return n < 0 || (n > 1 && !tuple) ? -1 : 0;
}
