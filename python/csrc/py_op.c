/* py_op.c - kiln.op(name): Op objects, and the builtin functions bound to them.
 *
 * A builtin takes its arguments as an array (METH_FASTCALL), which no other callable does within the limited
 * API of 3.10.  Op objects are shared by name; they look their operator up again when the context changed. */
#include <stdio.h>
#include <string.h>

#include "kilnpy.h"

PyObject *kp_op_callable(PyObject *op) { return PyCFunction_NewEx(&((kp_op *)op)->method, op, NULL); }

/* -- Op objects ------------------------------------------------------------------------------------ */

static char *text_copy(const char *text) {
    char *copy = PyMem_Malloc(strlen(text) + 1);
    if (!copy) return (char *)PyErr_NoMemory();
    return strcpy(copy, text);
}

/* The overloads of a short name, found again.  If the context changed for one that has fewer, the old ones say so when
 * they are called. */
static int set_fresh(kp_op *op, kp_box *box) {
    if (kp_overloads_find(op, box, op->name) < 0) return -1;
    op->epoch = op->st->epoch;
    return 0;
}

/* Parameters are read once, since an operator that has a row cannot get another schema; and names are copied, since an
 * Op outlives contexts. */
static int read_params(kp_op *op, const kiln_op *from) {
    kp_param param;
    size_t n = 0, bytes = 0;
    for (; kiln_op_arg_at(from, n, &param); n++) bytes += strlen(param.name) + 1;
    kp_param *params = PyMem_Malloc(n * sizeof *params + bytes + 1);
    if (!params) return PyErr_NoMemory(), -1;
    char *names = (char *)(params + n);
    for (size_t k = 0; k < n; k++) {
        (void)kiln_op_arg_at(from, k, &params[k]);
        size_t len = strlen(params[k].name) + 1;
        params[k].name = memcpy(names, params[k].name, len);
        names += len;
        if (!params[k].defaulted) op->nneeded = (int)k + 1;
    }
    op->params = params;
    op->nparams = (int)n;
    return 0;
}

static bool is_read_tensor(const kp_param *p) { return p->kind == KILN_TENSOR && !p->written && !p->by_name; }

/* Counts op's first parameters that are only read, if its result is one tensor. */
static void count_plain(kp_op *op) {
    int n = 0;
    if (op->nrets == 1 && op->ret == KILN_TENSOR)
        while (n < op->nparams && is_read_tensor(&op->params[n])) n++;
    op->nplain = op->nsimple = n;
    for (; n > 0 && n < op->nparams; op->nsimple = ++n)
        if (!is_read_tensor(&op->params[n]) && (op->params[n].by_name || !kp_takes_number(&op->params[n])))
            break;
}

/* Makes op the Op of an operator that was found. */
static int take_operator(kp_op *op, const kiln_op *found) {
    if (!op->params && read_params(op, found) < 0) return -1;
    op->op = found;
    op->nrets = kiln_op_nrets(found);
    op->ret = kiln_op_ret_kind(found, 0);
    count_plain(op);
    op->epoch = op->st->epoch;
    return 0;
}

int kp_op_find(kp_op *op, kp_box *box) {
    if (op->overloads) return set_fresh(op, box);
    const kiln_op *found;
    if (op->lone && op->lone == box) return op->epoch = op->st->epoch, 0;
    if (op->lone) return PyErr_SetString(PyExc_RuntimeError, "this operator's context was closed"), -1;
    kiln_status status = kiln_op_find(box->ctx, op->name, &found);
    if (status != KILN_OK) return kp_raise(status), -1;
    if (op->doc && strcmp(op->doc, kiln_op_schema(found)) != 0) {
        PyErr_Format(PyExc_RuntimeError, "%s: was %s, now is %s", op->name, op->doc, kiln_op_schema(found));
        return -1;
    }
    return take_operator(op, found);
}

static int op_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((kp_op *)self)->overloads);
    Py_VISIT(((kp_op *)self)->kwnames);
    Py_VISIT(((kp_op *)self)->base);
    return 0;
}

static int op_clear(PyObject *self) {
    ((kp_op *)self)->usual = NULL;
    Py_CLEAR(((kp_op *)self)->overloads);
    Py_CLEAR(((kp_op *)self)->kwnames);
    return 0;
}

static void op_dealloc(PyObject *self) {
    kp_op *op = (kp_op *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    op_clear(self);
    if (op->lone && !op->base) kiln_op_free(op->lone->ctx, op->op);
    kp_box_drop(op->lone);
    Py_CLEAR(op->base);
    PyMem_Free(op->params);
    PyMem_Free(op->ops);
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

/* A name without an overload part: 1 if it has several overloads. */
static int set_fill(kp_op *op, kp_box *box, const char *name) {
    if (strchr(name, '.') || strlen(name) > 256) return 0;
    char full[264];
    snprintf(full, sizeof full, "%s%s", strstr(name, "::") ? "" : "aten::", name);
    int several = kp_overloads_find(op, box, full);
    if (several <= 0) return several;
    op->name = text_copy(full);
    op->doc = op->name ? schemas_of(op->overloads) : NULL;
    op->epoch = op->st->epoch;
    method_fill(op);
    return op->doc ? 1 : -1;
}

/* Both names are the operator's full one: `add.Tensor` and `aten::add.Tensor` read the same. */
static int op_fill(kp_op *op, kp_box *box, const char *name, bool alone) {
    int several = alone ? 0 : set_fill(op, box, name);
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

/* An Op of zeros. */
static kp_op *op_blank(kp_state *st) {
    kp_op *op = PyObject_GC_New(kp_op, st->op_type);
    if (!op) return NULL;
    memset((char *)op + sizeof(PyObject), 0, sizeof *op - sizeof(PyObject));
    op->st = st;
    PyObject_GC_Track((PyObject *)op);
    return op;
}

static PyObject *op_new(kp_state *st, const char *name, bool alone) {
    kp_box *box = kp_box_take(st);
    if (!box) return NULL;
    kp_op *op = op_blank(st);
    if (op && op_fill(op, box, name, alone) < 0) Py_CLEAR(op);
    kp_box_drop(box);
    return (PyObject *)op;
}

/* The Op of an operator of kiln_op_new, which it owns unless it has a base. */
static PyObject *lone_new(kp_state *st, kp_box *box, const kiln_op *from, PyObject *base) {
    kp_op *op = op_blank(st);
    if (!op) {
        if (!base) kiln_op_free(box->ctx, from);
        return NULL;
    }
    op->op = from;
    op->base = Py_XNewRef(base);
    op->lone = box;
    box->refs++;
    op->name = text_copy("kiln::evaluate");
    op->doc = text_copy(kiln_op_schema(from));
    if (!op->name || !op->doc || take_operator(op, from) < 0) Py_CLEAR(op);
    if (op) method_fill(op);
    return (PyObject *)op;
}

PyObject *kp_op_lone(kp_state *st, kp_box *box, PyObject *row, PyObject **form) {
    const kiln_op *op, *out;
    Py_ssize_t n;
    const char *text = PyUnicode_AsUTF8AndSize(row, &n);
    kiln_status status = text ? kiln_op_new(box->ctx, "row", text, (size_t)n, &op, &out) : KILN_E_ARG;
    if (status != KILN_OK) return PyErr_Occurred() ? NULL : (kp_raise_value(status), NULL);
    PyObject *made = lone_new(st, box, op, NULL);
    *form = made ? lone_new(st, box, out, made) : NULL;
    if (!*form) Py_CLEAR(made);
    return made;
}

PyObject *kp_op_alone(kp_state *st, const char *name) { return op_new(st, name, true); }

/* An operator of torch.ops stands for its name. */
static PyObject *get_by_object(kp_state *st, PyObject *o) {
    PyObject *ask = kp_helper(st, "operator_name");
    PyObject *name = ask ? PyObject_CallFunctionObjArgs(ask, o, NULL) : NULL;
    PyObject *op = name && PyUnicode_Check(name) ? kp_op_get(st, name) : NULL;
    Py_XDECREF(ask);
    Py_XDECREF(name);
    return op;
}

PyObject *kp_op_get(kp_state *st, PyObject *name) {
    if (st->closed) return PyErr_SetString(PyExc_RuntimeError, "kiln is being unloaded"), NULL;
    if (!PyUnicode_Check(name)) return get_by_object(st, name);
    PyObject *op = PyDict_GetItemWithError(st->ops, name); /* borrowed */
    if (op || PyErr_Occurred()) return Py_XNewRef(op);
    Py_ssize_t n;
    const char *text = PyUnicode_AsUTF8AndSize(name, &n);
    if (text && strlen(text) != (size_t)n)
        return PyErr_Format(PyExc_NotImplementedError, "no operator %R", name), NULL;
    op = text ? op_new(st, text, false) : NULL;
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
