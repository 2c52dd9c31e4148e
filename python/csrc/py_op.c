/* py_op.c - kiln.op(name): a builtin function bound to an Op object, and the call it makes.
 *
 * A builtin takes its arguments as an array (METH_FASTCALL), which no other callable does within the limited
 * API of 3.10.  Op objects are shared by name; they look their operator up again when the context changed. */
#include <stdio.h>
#include <string.h>

#include "kilnpy.h"

/* Elements from which a call takes longer than giving up the GIL and taking it back. */
enum { GIL_ELEMENTS = 4096 };

/* -- arguments ------------------------------------------------------------------------------------- */

static const kp_param *param_named(const kp_op *op, const char *name) {
    for (int k = 0; k < op->nparams; k++)
        if (strcmp(op->params[k].name, name) == 0) return &op->params[k];
    return NULL;
}

/* Whether v is a number, and which. */
static bool read_number(const kiln_value *v, kp_number *out) {
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V: *out = (kp_number){.kind = NUM_BOOL, .i = v->u.i}; return true;
    case KILN_INT_V: *out = (kp_number){.kind = NUM_INT, .i = v->u.i}; return true;
    case KILN_FLOAT_V: *out = (kp_number){.kind = NUM_FLOAT, .f = v->u.f}; return true;
    case KILN_COMPLEX_V:
        *out = (kp_number){.kind = NUM_COMPLEX, .f = v->u.c.re, .im = v->u.c.im};
        return true;
    default: return false;
    }
}

/* The dtype of the tensor that a number for a Tensor argument becomes: one that takes part in promotion as
 * PyTorch's numbers do, that is below every tensor of its kind or a higher one. */
static kiln_dtype number_dtype(const kp_frame *f, kp_num_kind kind) {
    static const kiln_dtype widest[] = {KILN_BOOL, KILN_I64, KILN_F64, KILN_C128};
    kiln_dtype alone[] = {KILN_BOOL, KILN_I64, KILN_F32, KILN_C64}; /* beside tensors of lower kinds */
    bool found = false;
    for (int k = 0; k < f->nheld; k++) {
        kiln_dtype t = kiln_tensor_dtype(f->held[k].t);
        if (f->held[k].kind < KP_KILN) continue;
        if (t == KILN_F64) alone[NUM_COMPLEX] = KILN_C128; /* a complex number is of the tensors' precision */
        if (kp_dtype_kind(t) < kind) continue;
        if (kiln_tensor_rank(f->held[k].t) > 0) return widest[kind];
        if (!found) alone[kind] = t;
        found = true;
    }
    return alone[kind];
}

static int number_to_tensor(kp_frame *f, kiln_value *v) {
    kp_number n;
    if (!read_number(v, &n)) return 0;
    kiln_dtype dtype = number_dtype(f, n.kind);
    kp_held h = {.kind = KP_NONE, .release = true};
    kiln_status status = kiln_tensor_new(dtype, 0, NULL, NULL, &h.t);
    if (status != KILN_OK) return kp_raise(status), -1;
    kp_cast(dtype, kiln_tensor_data(h.t), n);
    kp_held *room = kp_hold(f);
    if (!room) return kiln_tensor_release(h.t), -1;
    *room = h;
    v->kind = KILN_TENSOR;
    v->u.tensor = h.t;
    return 0;
}

static int too_many(const kp_op *op, Py_ssize_t n) {
    PyErr_Format(PyExc_TypeError, "%s: takes at most %d arguments, but %zd were given", op->name, op->nparams,
                 n);
    return -1;
}

int kp_frame_fill(kp_frame *f, kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t nnamed = kwnames ? PyTuple_Size(kwnames) : 0;
    uint64_t numbers = 0;
    if (nargs + nnamed > KILN_MAX_ARGS) return too_many(op, nargs + nnamed);
    for (Py_ssize_t k = 0; k < nargs + nnamed; k++) {
        const kp_param *param = k < op->nparams && k < nargs ? &op->params[k] : NULL;
        const char *name = NULL;
        if (k >= nargs) {
            name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(kwnames, k - nargs), NULL);
            if (!name) return -1;
            param = param_named(op, name);
        }
        kiln_value *v = &f->args[k];
        if (kp_value(f, param, args[k], v) < 0) return -1;
        v->name = name;
        if (param && param->kind == PARAM_TENSOR && !param->written && v->kind != KILN_TENSOR)
            numbers |= (uint64_t)1 << k;
    }
    f->nargs = (size_t)(nargs + nnamed);
    /* After all tensors are known: a number's dtype follows theirs. */
    for (size_t k = 0; numbers; k++, numbers >>= 1)
        if ((numbers & 1) && number_to_tensor(f, &f->args[k]) < 0) return -1;
    return 0;
}

/* -- running --------------------------------------------------------------------------------------- */

/* Whether to give up the GIL: for work over a few microseconds, and for a call that differs from all before
 * it in a way that may mean another class, since that one may wait for a compiler. */
static bool is_long(kp_op *op, const kp_frame *f) {
    int64_t nelem = 0;
    uint32_t hash = 2166136261u;
    for (size_t k = 0; k < f->nargs; k++) hash = (hash ^ f->args[k].kind) * 16777619u;
    for (int k = 0; k < f->nheld; k++) {
        const kiln_tensor *t = f->held[k].t;
        int rank = kiln_tensor_rank(t);
        int64_t step = rank ? kiln_tensor_strides(t)[rank - 1] : 0;
        nelem += kiln_tensor_nelem(t);
        hash = (hash ^ ((uint32_t)kiln_tensor_dtype(t) << 4 | (uint32_t)(rank > 2 ? 2 : rank) << 2 |
                        (step == 1 ? 1u
                         : step    ? 2u
                                   : 0u))) *
               16777619u;
    }
    hash ^= hash >> 15;
    uint64_t bit = (uint64_t)1 << (hash & 63), *word = &op->seen[hash >> 6 & 3];
    bool seen = *word & bit;
    *word |= bit;
    return !seen || nelem >= GIL_ELEMENTS;
}

static kiln_status run(bool release_gil, kiln_ctx *ctx, const kiln_op *what, kp_frame *f,
                       kiln_tensor **outs) {
    if (!release_gil) return kiln_call(ctx, what, f->args, f->nargs, outs, KILN_MAX_RETS);
    kiln_status status;
    Py_BEGIN_ALLOW_THREADS status = kiln_call(ctx, what, f->args, f->nargs, outs, KILN_MAX_RETS);
    Py_END_ALLOW_THREADS return status;
}

/* -- results --------------------------------------------------------------------------------------- */

static PyObject *exchange_object(const dl_exchange *table, kiln_tensor *stolen) {
    void *managed, *object = NULL;
    kiln_status status = kiln_tensor_to_dlpack(stolen, &managed);
    kiln_tensor_release(stolen); /* the export holds its own reference */
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (table->object_from_managed(managed, &object) != 0) return NULL;
    return object;
}

static PyObject *result_object(kp_frame *f, kiln_tensor *stolen) {
    const kp_held *first = NULL;
    for (int k = 0; k < f->nheld; k++) {
        const kp_held *h = &f->held[k];
        if (h->t == stolen && h->object) { /* written in place: the very object */
            kiln_tensor_release(stolen);
            return Py_NewRef(h->object);
        }
        if (!first && h->kind >= KP_KILN) first = h;
    }
    if (first && first->kind == KP_EXCHANGE) return exchange_object(first->exchange, stolen);
    PyObject *tensor = kp_tensor_object(f->st, stolen, false);
    if (!tensor || !first || first->kind != KP_NUMPY) return tensor;
    PyObject *array = kp_numpy(f->st, (kp_tensor *)tensor);
    Py_DECREF(tensor);
    return array;
}

/* All results, as one object; releases outs. */
static PyObject *result(kp_frame *f, kiln_tensor **outs, size_t n) {
    if (n == 1) return result_object(f, outs[0]);
    if (n == 0) return Py_NewRef(Py_None);
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    size_t k = 0;
    for (; tuple && k < n; k++) {
        PyObject *item = result_object(f, outs[k]);
        if (!item || PyTuple_SetItem(tuple, (Py_ssize_t)k, item) < 0) Py_CLEAR(tuple);
    }
    for (; k < n; k++) kiln_tensor_release(outs[k]);
    return tuple;
}

/* -- writes to PyTorch's tensors ------------------------------------------------------------------- */

static int each_written(kp_frame *f, const char *helper) {
    PyObject *call = NULL;
    int st = 0;
    for (int k = 0; k < f->nheld && st == 0; k++) {
        const kp_held *h = &f->held[k];
        if (!h->written || h->kind != KP_EXCHANGE) continue;
        if (!call) call = kp_helper(f->st, helper);
        PyObject *done = call ? PyObject_CallFunctionObjArgs(call, h->object, NULL) : NULL;
        st = done ? 0 : -1;
        Py_XDECREF(done);
    }
    Py_XDECREF(call);
    return st;
}

static bool same_sizes(const kp_held *h, PyObject *tensor) {
    PyObject *now = PyObject_GetAttrString(tensor, "shape"),
             *was = PyObject_GetAttrString(h->object, "shape");
    int same = now && was ? PyObject_RichCompareBool(now, was, Py_EQ) : 0;
    Py_XDECREF(now);
    Py_XDECREF(was);
    PyErr_Clear();
    return same == 1;
}

/* Gives outputs that had no elements the shape and the elements of what stood in for them. */
static int resize_written(kp_frame *f) {
    for (int k = 0; k < f->nheld; k++) {
        const kp_held *h = &f->held[k];
        if (!h->resize) continue;
        PyObject *tensor = kp_tensor_object(f->st, kiln_tensor_retain(h->t), false);
        PyObject *call = tensor && !same_sizes(h, tensor) ? kp_helper(f->st, "resize_to") : NULL;
        PyObject *done = call ? PyObject_CallFunctionObjArgs(call, h->object, tensor, NULL) : NULL;
        bool failed = !tensor || PyErr_Occurred();
        Py_XDECREF(done);
        Py_XDECREF(call);
        Py_XDECREF(tensor);
        if (failed) return -1;
    }
    return 0;
}

/* -- the call -------------------------------------------------------------------------------------- */

static PyObject *call_filled(kp_op *op, const kiln_op *what, kp_box *box, kp_frame *f) {
    kiln_tensor *outs[KILN_MAX_RETS];
    bool writes = false;
    for (int k = 0; k < f->nheld; k++) writes = writes || f->held[k].written;
    if (writes && each_written(f, "before_write") < 0) return NULL;
    size_t nouts = kiln_op_nrets(what);
    kiln_status status = run(is_long(op, f), box->ctx, what, f, outs);
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (!writes || (resize_written(f) == 0 && each_written(f, "after_write") == 0))
        return result(f, outs, nouts);
    for (size_t k = 0; k < nouts; k++) kiln_tensor_release(outs[k]);
    return NULL;
}

/* A call of a short name: by the overload its arguments mean. */
static PyObject *call_picked(kp_op *set, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    PyObject *op = (PyObject *)kp_pick(set, args, nargs, kwnames);
    if (!op) return NULL;
    Py_INCREF(op); /* code run by an argument may call kiln.load_ops, which makes the set anew */
    PyObject *out = kp_op_call(op, args, nargs, kwnames);
    Py_DECREF(op);
    return out;
}

PyObject *kp_op_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    kp_op *op = (kp_op *)self;
    PyObject *out = NULL;
    if (op->overloads) return call_picked(op, args, nargs, kwnames);
    kp_frame frame;
    kp_box *box = kp_box_take(op->st);
    if (!box) return NULL;
    kp_frame_init(&frame, op->st);
    if (kp_op_fresh(op, box) == 0) {
        const kiln_op *what = op->op; /* of box's context; code run by an argument may call kiln.configure */
        if (kp_frame_fill(&frame, op, args, nargs, kwnames) == 0) out = call_filled(op, what, box, &frame);
    }
    kp_frame_fini(&frame);
    kp_box_drop(box);
    return out;
}

PyObject *kp_op_callable(PyObject *op) { return PyCFunction_NewEx(&((kp_op *)op)->method, op, NULL); }

/* -- Op objects ------------------------------------------------------------------------------------ */

static char *text_copy(const char *text) {
    char *copy = PyMem_Malloc(strlen(text) + 1);
    if (!copy) return (char *)PyErr_NoMemory();
    return strcpy(copy, text);
}

/* The overloads of a short name, found again. */
static int set_fresh(kp_op *op, kp_box *box) {
    PyObject *overloads, *old = op->overloads;
    if (kp_overloads(op->st, box, op->name, &overloads) < 0) return -1;
    op->epoch = op->st->epoch;
    if (!overloads)
        return 0; /* the context changed for one that has fewer: the old ones say so when called */
    op->overloads = overloads;
    Py_DECREF(old);
    return 0;
}

/* Parameters are read once: an operator that already has a row cannot get another schema. */
int kp_op_fresh(kp_op *op, kp_box *box) {
    if ((op->op || op->overloads) && op->epoch == op->st->epoch) return 0;
    if (op->overloads) return set_fresh(op, box);
    const kiln_op *found;
    kiln_status status = kiln_op_find(box->ctx, op->name, &found);
    if (status != KILN_OK) return kp_raise(status), -1;
    if (op->doc && strcmp(op->doc, kiln_op_schema(found)) != 0) {
        PyErr_Format(PyExc_RuntimeError, "%s: was %s, now is %s", op->name, op->doc, kiln_op_schema(found));
        return -1;
    }
    if (!op->params && kp_params_parse(kiln_op_schema(found), &op->nparams, &op->params) < 0) return -1;
    op->op = found;
    op->epoch = op->st->epoch;
    memset(op->seen, 0, sizeof op->seen);
    return 0;
}

static int op_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((kp_op *)self)->overloads);
    return 0;
}

static int op_clear(PyObject *self) {
    Py_CLEAR(((kp_op *)self)->overloads);
    return 0;
}

static void op_dealloc(PyObject *self) {
    kp_op *op = (kp_op *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    op_clear(self);
    kp_params_free(op->nparams, op->params);
    PyMem_Free(op->name);
    PyMem_Free(op->doc);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static char *schemas_of(PyObject *overloads) {
    size_t n = 1;
    for (Py_ssize_t k = 0; k < PyTuple_Size(overloads); k++)
        n += strlen(((kp_op *)PyTuple_GetItem(overloads, k))->doc) + 1;
    char *text = PyMem_Malloc(n), *at = text;
    if (!text) return (char *)PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < PyTuple_Size(overloads); k++)
        at += sprintf(at, "%s%s", k ? "\n" : "", ((kp_op *)PyTuple_GetItem(overloads, k))->doc);
    return text;
}

static void method_fill(kp_op *op) {
    PyCFunction call = (PyCFunction)(void (*)(void))kp_op_call;
    op->method = (PyMethodDef){op->name, call, METH_FASTCALL | METH_KEYWORDS, op->doc};
}

/* A name without an overload part that is no operator's full name: 1 if it has several overloads. */
static int set_fill(kp_op *op, kp_box *box, const char *name) {
    const kiln_op *found;
    if (strchr(name, '.') || strlen(name) > 256) return 0;
    bool space = strstr(name, "::") != NULL;
    if (space && kiln_op_find(box->ctx, name, &found) == KILN_OK && strcmp(kiln_op_name(found), name) == 0)
        return 0;
    char full[264];
    snprintf(full, sizeof full, "%s%s", space ? "" : "aten::", name);
    if (kp_overloads(op->st, box, full, &op->overloads) < 0) return -1;
    if (!op->overloads) return 0;
    op->name = text_copy(full);
    op->doc = op->name ? schemas_of(op->overloads) : NULL;
    op->epoch = op->st->epoch;
    method_fill(op);
    return op->doc ? 1 : -1;
}

/* Both names are the operator's full one: `add.Tensor` and `aten::add.Tensor` read the same. */
static int op_fill(kp_op *op, kp_box *box, const char *name) {
    int several = set_fill(op, box, name);
    if (several) return several < 0 ? -1 : 0;
    op->name = text_copy(name);
    if (!op->name || kp_op_fresh(op, box) < 0) return -1;
    op->doc = text_copy(kiln_op_schema(op->op));
    char *full = text_copy(kiln_op_name(op->op));
    if (!op->doc || !full) return PyMem_Free(full), -1;
    PyMem_Free(op->name);
    op->name = full;
    method_fill(op);
    return 0;
}

static PyObject *op_new(kp_state *st, const char *name) {
    kp_box *box = kp_box_take(st);
    if (!box) return NULL;
    kp_op *op = PyObject_GC_New(kp_op, st->op_type);
    if (op) {
        memset((char *)op + sizeof(PyObject), 0, sizeof *op - sizeof(PyObject));
        op->st = st;
        PyObject_GC_Track((PyObject *)op);
        if (op_fill(op, box, name) < 0) Py_CLEAR(op);
    }
    kp_box_drop(box);
    return (PyObject *)op;
}

PyObject *kp_op_get(kp_state *st, PyObject *name) {
    if (st->closed) return PyErr_SetString(PyExc_RuntimeError, "kiln is being unloaded"), NULL;
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "an operator's name must be str, not %R", name), NULL;
    PyObject *op = PyDict_GetItemWithError(st->ops, name); /* borrowed */
    if (op || PyErr_Occurred()) return Py_XNewRef(op);
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    op = text ? op_new(st, text) : NULL;
    if (op && PyDict_SetItem(st->ops, name, op) < 0) Py_CLEAR(op);
    return op;
}

/* name is a literal.  Remembered, since making and hashing a str costs as much as the call. */
static PyObject *named_op(kp_state *st, const char *name) {
    for (int k = 0; k < st->nnamed; k++)
        if (st->named[k].name == name) return Py_NewRef(st->named[k].op);
    PyObject *text = PyUnicode_FromString(name);
    PyObject *op = text ? kp_op_get(st, text) : NULL;
    Py_XDECREF(text);
    if (op && st->nnamed < KP_NAMED) {
        st->named[st->nnamed].name = name;
        st->named[st->nnamed++].op = Py_NewRef(op);
    }
    return op;
}

PyObject *kp_call_named(kp_state *st, const char *name, PyObject *a, PyObject *b) {
    PyObject *op = named_op(st, name), *args[2] = {a, b};
    PyObject *out = op ? kp_op_call(op, args, b ? 2 : 1, NULL) : NULL;
    Py_XDECREF(op);
    return out;
}

/* -- attributes ------------------------------------------------------------------------------------ */

static const char *(*const get_name)(const kiln_op *) = kiln_op_name;
static const char *(*const get_schema)(const kiln_op *) = kiln_op_schema;
static const char *(*const get_family)(const kiln_op *) = kiln_op_family;
static const char *(*const get_form)(const kiln_op *) = kiln_op_form;
static const char *(*const get_row)(const kiln_op *) = kiln_op_row;

/* Of a short name: what all overloads share, or what the first one has. */
static PyObject *op_get(PyObject *self, void *which) {
    kp_op *op = (kp_op *)self;
    PyObject *out = NULL;
    if (op->overloads && which == &get_name) return PyUnicode_FromString(op->name);
    if (op->overloads && which == &get_schema) return PyUnicode_FromString(op->doc);
    if (op->overloads) return op_get(PyTuple_GetItem(op->overloads, 0), which);
    kp_box *box = kp_box_take(op->st);
    if (!box) return NULL;
    if (kp_op_fresh(op, box) == 0) {
        const char *(*get)(const kiln_op *) = *(const char *(*const *)(const kiln_op *))which;
        out = PyUnicode_FromString(get(op->op));
    }
    kp_box_drop(box);
    return out;
}

static PyObject *op_repr(PyObject *self) {
    return PyUnicode_FromFormat("<kiln operator %s>", ((kp_op *)self)->name);
}

static PyGetSetDef op_getset[] = {
    {"name", op_get, NULL, "aten::add.Tensor", (void *)&get_name},
    {"schema", op_get, NULL, "its schema, as PyTorch writes it", (void *)&get_schema},
    {"family", op_get, NULL, "map, fold, ...", (void *)&get_family},
    {"form", op_get, NULL, "functional, inplace or out", (void *)&get_form},
    {"row", op_get, NULL, "the text of its row", (void *)&get_row},
    {0},
};
static PyType_Slot op_slots[] = {
    {Py_tp_dealloc, op_dealloc},
    {Py_tp_traverse, op_traverse},
    {Py_tp_clear, op_clear},
    {Py_tp_repr, op_repr},
    {Py_tp_getset, op_getset},
    {Py_tp_doc, "An operator; the __self__ of what kiln.op returns."},
    {0, NULL},
};
PyType_Spec kp_op_spec = {"kiln.Op", sizeof(kp_op), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                              Py_TPFLAGS_IMMUTABLETYPE,
                          op_slots};
