/* py_look.c - looks at a call without making it: the text of one stage, the results that it would have, or its kernels, which are
 * compiled.  Also returns the row of an operator's gradient.
 *
 * Arguments, short names and errors are handled as in py_call.c; explain_text alone parses a text.  No result is computed. */
#include "cli/calltext.h"
#include "kilnpy.h"

typedef struct looked_at {
    const kiln_op *op;
    const kiln_value *args;
    size_t nargs;
} looked_at;

/* The text of a stage of the call, or NULL with an exception.  f: the frame that holds its arguments, or NULL. */
static PyObject *explain_values(kp_state *st, kp_box *box, kp_frame *f, const looked_at *call,
                                const char *stage) {
    char *text = NULL;
    kiln_status status;
    do {
        kp_wait_begin();
        status = kiln_explain(box->ctx, call->op, call->args, call->nargs, stage, &text);
        kp_wait_end();
    } while (kp_wait_again(st, status) && (!f || kp_settle(f) == 0));
    return kp_text_or_raise(status, text);
}

/* What a function makes of a call that is not made; frame: its arguments. */
typedef PyObject *(*with_call)(kp_box *box, kp_frame *frame, const kiln_op *op, const void *how);

static PyObject *with_frame(kp_op *op, kp_box *box, const kp_given *given, with_call make, const void *how) {
    kp_frame frame;
    PyObject *out = NULL;
    kp_frame_init(&frame, op->st);
    if (kp_op_fresh(op, box) == 0) {
        const kiln_op *what = op->op;
        if (kp_frame_fill(&frame, op, given->args, given->nargs, given->kwnames) == 0)
            out = make(box, &frame, what, how);
    }
    kp_frame_fini(&frame);
    return out;
}

/* Calls `make` with the operator called `name` and the arguments.  A short name means the overload that the arguments choose.
 * Ends the use of `given`. */
static PyObject *with_arguments(kp_state *st, PyObject *name, kp_given *given, with_call make,
                                const void *how) {
    PyObject *op = kp_op_get(st, name);
    if (op && ((kp_op *)op)->overloads) {
        PyObject *one = Py_XNewRef((PyObject *)kp_pick((kp_op *)op, given));
        Py_DECREF(op);
        op = one;
    }
    kp_box *box = op ? kp_box_take(st) : NULL;
    PyObject *out = box ? with_frame((kp_op *)op, box, given, make, how) : NULL;
    kp_box_drop(box);
    kp_given_fini(given);
    Py_XDECREF(op);
    return out;
}

/* explain_text(call, stage): the call in the command's own language. */
PyObject *kp_explain_text(PyObject *module, PyObject *args) {
    const char *text, *stage;
    Py_ssize_t n;
    char err[CALLTEXT_ERROR_MAX];
    const kiln_op *op;
    calltext call;
    if (!PyArg_ParseTuple(args, "s#s:explain_text", &text, &n, &stage)) return NULL;
    kp_state *st = kp_state_of(module);
    kp_box *box = kp_box_take(st);
    if (!box) return NULL;
    PyObject *out = NULL;
    const calltext_limits limits = {.max_bytes = CALLTEXT_BYTES, .no_data = true};
    if (!calltext_parse(text, (size_t)n, &limits, &call, err)) {
        PyErr_SetString(PyExc_ValueError, err);
    } else {
        kiln_status status = kiln_op_choose(box->ctx, call.op, call.args, call.nargs, &op);
        if (status != KILN_OK)
            kp_raise(status);
        else
            out = explain_values(st, box, NULL, &(looked_at){op, call.args, call.nargs}, stage);
        calltext_free(&call);
    }
    kp_box_drop(box);
    return out;
}

static PyObject *explain_call(kp_box *box, kp_frame *f, const kiln_op *op, const void *stage) {
    return explain_values(f->st, box, f, &(looked_at){op, f->args, f->nargs}, stage);
}

/* explain(name, stage, args, kwargs): kiln/__init__.py gives it its Python face. */
PyObject *kp_explain(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    if (nargs < 2) return PyErr_SetString(PyExc_TypeError, "explain() needs a name and a stage"), NULL;
    const char *stage = kp_text(args[1]);
    if (!stage) return NULL;
    kp_given given;
    kp_given_init(&given, args + 2, nargs - 2, kwnames);
    return with_arguments(kp_state_of(module), args[0], &given, explain_call, stage);
}

PyObject *kp_tuple_of(const int64_t *v, int n) {
    PyObject *tuple = PyTuple_New(n);
    for (int k = 0; tuple && k < n; k++) {
        PyObject *item = PyLong_FromLongLong(v[k]);
        if (!item || PyTuple_SetItem(tuple, k, item) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

/* (dtype, shape, strides, name of the argument that is returned or None); None: a result that is not given. */
static PyObject *result_tuple(kp_state *st, const kiln_op *op, const kiln_result_info *r) {
    if (r->rank < 0) return Py_NewRef(Py_None);
    const char *arg = r->arg < 0 ? NULL : kiln_op_arg_name(op, (size_t)r->arg);
    return Py_BuildValue("(ONNz)", st->dtypes[r->dtype], kp_tuple_of(r->sizes, r->rank),
                         kp_tuple_of(r->strides, r->rank), arg);
}

static PyObject *infer_call(kp_box *box, kp_frame *f, const kiln_op *op, const void *unused) {
    kiln_result_info info[KILN_MAX_RETS];
    size_t n;
    (void)unused;
    kiln_status status = kiln_infer_results(box->ctx, op, f->args, f->nargs, info, KILN_MAX_RETS, &n);
    if (status != KILN_OK) return kp_raise(status), NULL;
    PyObject *list = PyList_New(0);
    for (size_t k = 0; list && k < n; k++) {
        PyObject *one = result_tuple(f->st, op, &info[k]);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* infer_results(name, args, kwargs), as tuples: kiln/__init__.py gives them names. */
PyObject *kp_infer_results(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    if (nargs < 1) return PyErr_SetString(PyExc_TypeError, "infer_results() needs an operator's name"), NULL;
    kp_given given;
    kp_given_init(&given, args + 1, nargs - 1, kwnames);
    return with_arguments(kp_state_of(module), args[0], &given, infer_call, NULL);
}

static PyObject *prepare_call(kp_box *box, kp_frame *f, const kiln_op *op, const void *unused) {
    kiln_status status;
    (void)unused;
    do {
        kp_wait_begin();
        status = kiln_prepare(box->ctx, op, f->args, f->nargs, NULL);
        kp_wait_end();
    } while (kp_wait_again(f->st, status) && kp_settle(f) == 0);
    return status == KILN_OK ? Py_NewRef(Py_None) : (kp_raise(status), NULL);
}

/* prepare(name, args, kwargs): compiles what the call would run. */
PyObject *kp_prepare(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    if (nargs < 1) return PyErr_SetString(PyExc_TypeError, "prepare() needs an operator's name"), NULL;
    kp_given given;
    kp_given_init(&given, args + 1, nargs - 1, kwnames);
    return with_arguments(kp_state_of(module), args[0], &given, prepare_call, NULL);
}

/* op_grad(name, arg): the row of a gradient. */
PyObject *kp_op_grad(PyObject *module, PyObject *args) {
    const char *name;
    const kiln_op *op;
    Py_ssize_t arg;
    char *text = NULL;
    if (!PyArg_ParseTuple(args, "sn:op_grad", &name, &arg)) return NULL;
    kp_box *box = kp_box_take(kp_state_of(module));
    if (!box) return NULL;
    kiln_status status = kiln_op_find(box->ctx, name, &op);
    if (status == KILN_OK) status = kiln_op_grad(op, (size_t)arg, &text);
    PyObject *out = kp_text_or_raise(status, text);
    kp_box_drop(box);
    return out;
}
