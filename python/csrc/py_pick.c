/* py_pick.c - a short name and a call's arguments -> the overload they mean.
 *
 * Names with an overload part never come here.  The library chooses, by what the types of the arguments say; their
 * values are looked at only where that leaves a doubt.  `out=None` is absent, and the items of a tuple are the outputs
 * of an overload that has several, as in PyTorch. */
#include <string.h>

#include "kilnpy.h"

/* -- what an argument is --------------------------------------------------------------------------- */

/* Kinds of an argument for the choice: of its type, or a list that begins with a tensor, or with a number. */
enum { TENSORS = KP_REFUSED + 1, NUMBERS, KINDS };

/* -1 with an exception. */
static int kind_of(kp_state *st, PyObject *o, const kp_type **type) {
    *type = kp_type_of(st, o);
    if (!*type) return -1;
    int kind = (*type)->kind;
    bool own = PyList_CheckExact(o) || PyTuple_CheckExact(o); /* reading it runs nobody's code */
    if (!own || PySequence_Size(o) == 0) return kind;
    PyObject *item = PySequence_GetItem(o, 0);
    const kp_type *of = item ? kp_type_of(st, item) : NULL;
    if (of && of->kind >= KP_KILN && of->kind < KP_REFUSED) kind = TENSORS;
    if (of && (of->kind == KP_FLOAT || of->kind == KP_INT || of->kind == KP_COMPLEX)) kind = NUMBERS;
    Py_XDECREF(item);
    return of ? kind : -1;
}

/* As much of a value as an overload is chosen by; a tensor is taken for one without dimensions. */
static kiln_value sketch(int kind, const kp_type *type) {
    static const kiln_value tensor = {.kind = KILN_TENSOR}, number = {.kind = KILN_FLOAT_V};
    switch (kind) {
    case TENSORS: return kiln_v_list(&tensor, 1);
    case NUMBERS: return kiln_v_list(&number, 1);
    case KP_NONE: return kiln_v_none();
    case KP_BOOL: return kiln_v_bool(0);
    case KP_INT:
    case KP_INDEX: return kiln_v_int(0);
    case KP_FLOAT: return kiln_v_float(0);
    case KP_COMPLEX: return kiln_v_complex(0, 0);
    case KP_STR: return kiln_v_str("");
    case KP_LIST:
    case KP_TUPLE: return kiln_v_list(NULL, 0);
    case KP_DTYPE: return kiln_v_dtype(KILN_F32);
    case KP_NUMPY_SCALAR: return (kiln_value){.kind = KILN_NUMBER_V};
    case KP_OTHER: return (kiln_value){.kind = KILN_OBJECT_V, .u.s = type->name};
    default: return kiln_v_tensor(NULL);
    }
}

/* A keyword as the library reads it.  No argument has a name that is no UTF-8, or has a NUL in it. */
static const char *keyword_text(PyObject *name) {
    Py_ssize_t n;
    const char *text = PyUnicode_AsUTF8AndSize(name, &n);
    if (!text) PyErr_Clear();
    return text && strlen(text) == (size_t)n ? text : "?";
}

static int sketch_all(const kp_op *set, const kp_given *given, Py_ssize_t n, kiln_value *out) {
    for (Py_ssize_t k = 0; k < n; k++) {
        const kp_type *type;
        int kind = kind_of(set->st, given->args[k], &type);
        if (kind < 0) return -1;
        out[k] = sketch(kind, type);
        if (k >= given->nargs) out[k].name = keyword_text(PyTuple_GetItem(given->kwnames, k - given->nargs));
    }
    return 0;
}

/* -- where types leave a doubt ---------------------------------------------------------------------- */

/* Where o does not say what was asked, the call itself finds out; a Ctrl-C meanwhile stays. */
static void forget_exception(void) {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
}

static long rank_of(PyObject *o) {
    PyObject *ndim = PyObject_GetAttrString(o, "ndim");
    long rank = ndim ? PyLong_AsLong(ndim) : 0;
    Py_XDECREF(ndim);
    forget_exception();
    return rank;
}

int kp_param_index(const kp_op *op, PyObject *name) {
    for (int k = 0; k < op->nparams; k++)
        if (PyUnicode_CompareWithASCIIString(name, op->params[k].name) == 0) return k;
    return -1;
}

/* The parameter of op that argument k is for; -1: there is none. */
static int place_in(const kp_op *op, const kp_given *given, Py_ssize_t k) {
    if (k >= given->nargs) return kp_param_index(op, PyTuple_GetItem(given->kwnames, k - given->nargs));
    return k < op->nparams ? (int)k : -1;
}

/* Looks at the values for which op was chosen in doubt: a number's parameter takes no tensor with dimensions.
 * 1 if a sketch has changed, 0 if none has, -1 with an exception. */
static int look_closer(const kp_op *op, const kp_given *given, Py_ssize_t n, kiln_value *sketches) {
    int changed = 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        kiln_value *v = &sketches[k];
        PyObject *o = given->args[k];
        int at = place_in(op, given, k);
        if (at < 0) continue; /* op was chosen for what it says of that */
        bool tensor = v->kind == KILN_TENSOR && !v->n && kp_takes_number(&op->params[at]);
        if (tensor && kp_foreign(op->st) < 0) return -1;
        if (tensor && rank_of(o) > 0) v->n = 1, changed = 1;
        if (tensor && PyErr_Occurred()) return -1;
    }
    return changed;
}

/* -- outputs by other names ------------------------------------------------------------------------ */

/* The place of `out` among the keywords, or -1. */
static Py_ssize_t out_place(const kp_given *given) {
    Py_ssize_t n = given->kwnames ? PyTuple_Size(given->kwnames) : 0;
    for (Py_ssize_t k = 0; k < n; k++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(given->kwnames, k), "out") == 0) return k;
    return -1;
}

static bool is_output(const kp_param *p) { return p->written && p->by_name; }

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

static bool is_one_output(PyObject *out) {
    return out != Py_None && !PyTuple_Check(out) && !PyList_Check(out);
}

/* How many outputs `out` must be, where overloads have several and none is called so; 0: one is, or there are none. */
static Py_ssize_t outputs_wanted(PyObject *overloads) {
    const char *names[KILN_MAX_RETS];
    Py_ssize_t most = 0;
    for (Py_ssize_t k = 0; k < PyTuple_Size(overloads); k++) {
        const kp_op *op = (kp_op *)PyTuple_GetItem(overloads, k);
        Py_ssize_t n = outputs_of(op, names);
        if (n > most) most = n;
        for (int p = 0; p < op->nparams; p++)
            if (strcmp(op->params[p].name, "out") == 0) return 0;
    }
    return most;
}

/* out=(a, b) becomes the outputs of the first overload that has so many. */
static int split_out(const kp_op *set, kp_given *given, Py_ssize_t place, PyObject *out) {
    const char *names[KILN_MAX_RETS];
    Py_ssize_t nnamed = PyTuple_Size(given->kwnames), wanted = outputs_wanted(given->overloads);
    bool fits = given->nargs + nnamed + KILN_MAX_RETS <= KILN_MAX_ARGS;
    if (!is_one_output(out)) given->own[1] = out = PySequence_Tuple(out); /* a list may change meanwhile */
    if (!out) return -1;
    for (Py_ssize_t k = 0; fits && given->own[1] && k < PyTuple_Size(given->overloads); k++) {
        Py_ssize_t n = outputs_of((kp_op *)PyTuple_GetItem(given->overloads, k), names);
        if (n > 0 && n == PyTuple_Size(out)) return replace_keyword(given, place, n, names, out);
    }
    if (!wanted) return 0;
    PyErr_Format(PyExc_TypeError, "%s: argument 'out' must be a tuple of %zd tensors", set->name, wanted);
    return -1;
}

/* Removes out=None, and splits a tuple. */
static int settle_out(const kp_op *set, kp_given *given) {
    Py_ssize_t place = out_place(given);
    if (place < 0 || given->nargs + PyTuple_Size(given->kwnames) > KILN_MAX_ARGS)
        return 0; /* refused by choose */
    PyObject *out = given->args[given->nargs + place];
    if (out == Py_None) return replace_keyword(given, place, 0, NULL, NULL);
    return is_one_output(out) && !set->tuple_out ? 0 : split_out(set, given, place, out);
}

/* -- the choice ------------------------------------------------------------------------------------ */

/* The library's operators, of a context that the caller holds: code run by an argument may make the set anew. */
typedef struct choice {
    const kiln_op *ops[KP_OVERLOADS];
    kiln_value sketches[KILN_MAX_ARGS];
} choice;

/* The kinds of n arguments, one after the other; 0: there are too many. */
static uint32_t kinds_of(kp_state *st, PyObject *const *args, Py_ssize_t n) {
    enum { BITS = 5, MOST = 6 };
    _Static_assert(KINDS <= 1 << BITS, "a kind needs more bits");
    if (n > MOST) return 0;
    uint32_t kinds = 1;
    for (Py_ssize_t k = 0; k < n; k++) {
        const kp_type *type;
        int kind = kind_of(st, args[k], &type);
        if (kind < 0) return PyErr_Clear(), 0;
        kinds = kinds << BITS | (uint32_t)kind;
    }
    return kinds;
}

static Py_ssize_t count_given(Py_ssize_t nargs, PyObject *kwnames) {
    return nargs + (kwnames ? PyTuple_Size(kwnames) : 0);
}

/* The same kinds by the same keywords will mean the same overload; not where a number's parameter was given a tensor,
 * whose dimensions count, nor where `out` became something else, nor where code run by an argument made the set anew. */
static void remember(kp_op *set, const kp_op *op, const kp_given *given, size_t which) {
    Py_ssize_t n = count_given(given->nargs, given->kwnames);
    if (given->own[0] || given->own[1] || given->overloads != set->overloads) return;
    for (Py_ssize_t k = 0; k < n; k++) {
        const kp_type *type = kp_type_of(set->st, given->args[k]);
        int at = place_in(op, given, k);
        if (!type || at < 0 || (type->kind >= KP_KILN && kp_takes_number(&op->params[at])))
            return PyErr_Clear();
    }
    PyObject *old = set->kwnames;
    set->kwnames = Py_XNewRef(given->kwnames);
    set->last_kinds = kinds_of(set->st, given->args, n);
    set->last_which = (uint8_t)which;
    Py_XDECREF(old);
}

/* A first look at a type may run code that makes the set anew, so the set is asked after all looks. */
kp_op *kp_remembered(const kp_op *set, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    const kp_state *st = set->st;
    if (!set->last_kinds || set->kwnames != kwnames) return NULL;
    uint32_t kinds = kinds_of(set->st, args, count_given(nargs, kwnames));
    if (!kinds || kinds != set->last_kinds || set->kwnames != kwnames || !st->box || set->epoch != st->epoch)
        return NULL;
    return (kp_op *)PyTuple_GetItem(set->overloads, set->last_which);
}

/* All tensors are looked at before the library says of each overload why it does not fit. */
static void look_at_all(const kp_given *given, Py_ssize_t n, kiln_value *sketches) {
    for (Py_ssize_t k = 0; k < n; k++)
        if (sketches[k].kind == KILN_TENSOR && rank_of(given->args[k]) > 0) sketches[k].n = 1;
}

static int choose(kp_op *set, const kp_given *given, choice *c, size_t *which) {
    size_t nops = (size_t)PyTuple_Size(given->overloads);
    Py_ssize_t n = count_given(given->nargs, given->kwnames);
    if (n > KILN_MAX_ARGS) {
        PyErr_Format(PyExc_TypeError, "%s: no overload fits these arguments: there are %zd", set->name, n);
        return -1;
    }
    memcpy(c->ops, set->ops, nops * sizeof *c->ops);
    if (sketch_all(set, given, n, c->sketches) < 0) return -1;
    bool by_kinds = true; /* until a value counts */
    for (int again = 1; again > 0;) {
        kiln_status status = kiln_op_choose_among(c->ops, nops, c->sketches, (size_t)n, which);
        if (status == KILN_E_TYPE && kp_foreign(set->st) == 0) {
            by_kinds = false;
            look_at_all(given, n, c->sketches);
            if (PyErr_Occurred()) return -1;
            status = kiln_op_choose_among(c->ops, nops, c->sketches, (size_t)n, which);
        }
        if (status != KILN_OK) return kp_raise(status), -1;
        kp_op *op = (kp_op *)PyTuple_GetItem(given->overloads, (Py_ssize_t)*which);
        again = look_closer(op, given, n, c->sketches);
        if (again < 0) return -1;
        by_kinds = by_kinds && again == 0;
        if (by_kinds) remember(set, op, given, *which);
    }
    return 0;
}

kp_op *kp_pick(kp_op *set, kp_given *given) {
    choice c;
    size_t which = 0;
    kp_box *box = kp_box_take(set->st);
    int st = box ? kp_op_fresh(set, box) : -1;
    if (st == 0) {
        given->overloads = Py_NewRef(set->overloads);
        st = given->kwnames ? settle_out(set, given) : 0;
    }
    if (st == 0) st = choose(set, given, &c, &which);
    kp_box_drop(box);
    return st == 0 ? (kp_op *)PyTuple_GetItem(given->overloads, (Py_ssize_t)which) : NULL;
}

/* -- finding overloads ----------------------------------------------------------------------------- */

static int set_overloads(kp_op *set, PyObject *stolen, const kiln_op *const *ops, size_t n) {
    const kiln_op **copy = PyMem_Malloc(n * sizeof *copy);
    if (!copy) return Py_DECREF(stolen), PyErr_NoMemory(), -1;
    memcpy(copy, ops, n * sizeof *copy);
    PyObject *old = set->overloads;
    kp_op *first = (kp_op *)PyTuple_GetItem(stolen, 0);
    set->usual = strchr(first->name, '.') ? NULL : first;
    set->tuple_out = outputs_wanted(stolen) > 0;
    PyMem_Free(set->ops);
    set->ops = copy;
    set->last_kinds = 0;
    set->overloads = stolen;
    Py_XDECREF(old);
    return 0;
}

int kp_overloads_find(kp_op *set, kp_box *box, const char *full) {
    const kiln_op *ops[KP_OVERLOADS];
    size_t n = kiln_op_overloads(box->ctx, full, ops, KP_OVERLOADS);
    if (n > KP_OVERLOADS)
        return PyErr_Format(PyExc_NotImplementedError, "%s: more than %d overloads", full, KP_OVERLOADS), -1;
    if (n < 2) return 0;
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t k = 0; tuple && k < n; k++) {
        PyObject *op = kp_op_alone(set->st, kiln_op_name(ops[k]));
        if (!op || PyTuple_SetItem(tuple, (Py_ssize_t)k, op) < 0) Py_CLEAR(tuple);
    }
    if (!tuple || set_overloads(set, tuple, ops, n) < 0) return -1;
    return 1;
}
