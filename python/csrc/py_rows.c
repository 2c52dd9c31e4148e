/* py_rows.c - texts of rows -> operators of the module's context: load_ops, and what kiln.torch.define does with rows.
 *
 * Owns the history, a list of what was loaded that a new context loads again in the same order.  An item is a text that
 * load_ops was given, or a tuple (name, text) of a row of define's.  Of a row of define's that was replaced or dropped only
 * the last is kept, unless a later item names its operator and may need the row.  Must not know what PyTorch is. */
#include <string.h>

#include "kilnpy.h"

static int load_text(kiln_ctx *ctx, PyObject *text, bool replace) {
    Py_ssize_t n;
    kiln_status status;
    const char *rows = PyUnicode_AsUTF8AndSize(text, &n);
    if (!rows) return -1;
    Py_BEGIN_ALLOW_THREADS status = (replace ? kiln_ops_replace : kiln_ops_load_from)(ctx, "rows", rows,
                                                                                      (size_t)n);
    Py_END_ALLOW_THREADS if (status != KILN_OK) kp_raise(status);
    return status == KILN_OK ? 0 : -1;
}

/* -- history ----------------------------------------------------------------------------------------- */

/* The text of an item; borrowed. */
static PyObject *text_of(PyObject *item) { return PyTuple_Check(item) ? PyTuple_GetItem(item, 1) : item; }

int kp_rows_replay(kp_state *st, kiln_ctx *ctx) {
    for (Py_ssize_t k = 0; k < PyList_Size(st->rows); k++)
        if (load_text(ctx, text_of(PyList_GetItem(st->rows, k)), true) < 0) return -1;
    return 0;
}

/* Whether an item after the k-th contains the name: 1 or 0, -1 with an exception. */
static int is_named_after(PyObject *rows, Py_ssize_t k, PyObject *name) {
    int found = 0;
    for (k++; found == 0 && k < PyList_Size(rows); k++)
        found = PyUnicode_Contains(text_of(PyList_GetItem(rows, k)), name);
    return found;
}

/* Takes the last row of that name out of the history, if it is define's and no later item may need it. */
static int forget(PyObject *rows, PyObject *name) {
    for (Py_ssize_t k = PyList_Size(rows); k-- > 0;) {
        PyObject *item = PyList_GetItem(rows, k);
        if (!PyTuple_Check(item)) continue;
        int same = PyObject_RichCompareBool(PyTuple_GetItem(item, 0), name, Py_EQ);
        if (same == 0) continue;
        int needed = same < 0 ? -1 : is_named_after(rows, k, name);
        return needed == 0 ? PyList_SetSlice(rows, k, k + 1, NULL) : needed < 0 ? -1 : 0;
    }
    return 0;
}

/* After the context's rows were changed: operators are looked up again. */
static void look_up_again(kp_state *st) {
    st->epoch++;
    PyDict_Clear(st->ops); /* a short name may have other overloads now */
}

/* -- load_ops ---------------------------------------------------------------------------------------- */

/* For kiln_ops_draft: refuses a row that would replace one of define's, whose gradients would stay the old row's. */
static kiln_status refuse_defined(void *user, const kiln_op *op) {
    const kiln_op *now;
    if (!kp_bridge_owns(kiln_op_name(op)) || kiln_op_find(user, kiln_op_name(op), &now) != KILN_OK ||
        now == op)
        return KILN_OK;
    PyErr_Format(
        PyExc_RuntimeError,
        "%s was defined by kiln.torch.define: use kiln.torch.define(..., replace=True) to replace it",
        kiln_op_name(op));
    return KILN_E_ARG;
}

static int check_replaced(kiln_ctx *ctx, PyObject *text) {
    Py_ssize_t n;
    const char *rows = PyUnicode_AsUTF8AndSize(text, &n);
    if (!rows) return -1;
    kiln_status status = kiln_ops_draft(ctx, "rows", rows, (size_t)n, refuse_defined, ctx);
    return status != KILN_OK && PyErr_Occurred() ? -1 : 0; /* loading says what is wrong with the rows */
}

static int load_and_note(kp_state *st, kiln_ctx *ctx, PyObject *text, bool replace) {
    if (replace && check_replaced(ctx, text) < 0) return -1;
    if (load_text(ctx, text, replace) < 0) return -1;
    int known = replace ? 0 : PySet_Contains(st->texts, text);
    if (known < 0 || (!known && PyList_Append(st->rows, text) < 0)) return -1;
    if (PySet_Add(st->texts, text) < 0) return -1;
    look_up_again(st);
    return 0;
}

PyObject *kp_load_ops(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"", "replace", NULL};
    kp_state *st = kp_state_of(module);
    PyObject *text;
    int replace = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:load_ops", names, &text, &replace)) return NULL;
    if (!PyUnicode_Check(text)) return PyErr_Format(PyExc_TypeError, "rows must be str, not %R", text), NULL;
    kp_box *box = kp_box_take(st);
    if (!box) return NULL;
    int done = load_and_note(st, box->ctx, text, replace);
    kp_box_drop(box);
    if (done == 0) done = kp_bridge_again(st);
    return done == 0 ? Py_NewRef(Py_None) : NULL;
}

/* -- rows of define's -------------------------------------------------------------------------------- */

/* The gradients' rows of an operator, one str for each argument, "" where there is none. */
static PyObject *gradient_rows(const kiln_op *op, kiln_status *status) {
    kiln_op_arg_info info;
    PyObject *rows = PyList_New(0);
    for (size_t k = 0; rows && kiln_op_arg_at(op, k, &info); k++) {
        char *text = NULL;
        *status = kiln_op_grad(op, k, &text);
        PyObject *row = kp_text_or_raise(*status, text);
        if (!row || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

typedef struct draft {
    PyObject *list;
    int gradients;
} draft;

static kiln_status describe(void *user, const kiln_op *op) {
    draft *d = user;
    kiln_status status = KILN_OK;
    PyObject *rows = d->gradients ? gradient_rows(op, &status) : Py_NewRef(Py_None);
    const char *word;
    int untraced = (int)kiln_op_untraced(op, &word), fit = kp_bridge_fit_own(op);
    PyObject *one = rows ? Py_BuildValue("(sssiNiz)", kiln_op_name(op), kiln_op_schema(op),
                                         kiln_op_family(op), fit, rows, untraced, word)
                         : NULL;
    int done = one ? PyList_Append(d->list, one) : -1;
    Py_XDECREF(one);
    return done == 0 ? KILN_OK : status != KILN_OK ? status : KILN_E_NOMEM;
}

/* draft_ops(text, gradients): of each row of the text (name, schema, family, a kiln_bridge_fit, gradients' rows or None,
 * a kiln_untraced, its word or None).  Nothing is loaded. */
PyObject *kp_draft_ops(PyObject *module, PyObject *args) {
    const char *text;
    Py_ssize_t n;
    draft d = {0};
    if (!PyArg_ParseTuple(args, "s#p:draft_ops", &text, &n, &d.gradients)) return NULL;
    kp_box *box = kp_box_take(kp_state_of(module));
    if (!box) return NULL;
    d.list = PyList_New(0);
    kiln_status status = d.list ? kiln_ops_draft(box->ctx, "rows", text, (size_t)n, describe, &d)
                                : KILN_E_NOMEM;
    if (status != KILN_OK && !PyErr_Occurred()) kp_raise(status);
    if (status != KILN_OK) Py_CLEAR(d.list);
    kp_box_drop(box);
    return d.list;
}

/* Loads the rows of all items (name, row) as one text, so that all or none are loaded. */
static int replace_all(kiln_ctx *ctx, PyObject *items) {
    PyObject *text = PyUnicode_FromString("");
    for (Py_ssize_t k = 0; text && k < PyList_Size(items); k++) {
        PyObject *more = PyUnicode_Concat(text, text_of(PyList_GetItem(items, k)));
        Py_DECREF(text);
        text = more;
    }
    int done = text ? load_text(ctx, text, true) : -1;
    Py_XDECREF(text);
    return done;
}

static int drop_one(kiln_ctx *ctx, PyObject *name) {
    const char *text = kp_text(name);
    kiln_status status = text ? kiln_ops_drop(ctx, &text, 1) : KILN_OK;
    if (status != KILN_OK) kp_raise(status);
    return text && status == KILN_OK ? 0 : -1;
}

static int change_rows(kp_state *st, kiln_ctx *ctx, PyObject *items, PyObject *gone) {
    if (PyList_Size(items) && replace_all(ctx, items) < 0) return -1;
    look_up_again(st);
    for (Py_ssize_t k = 0; k < PyList_Size(items); k++) {
        PyObject *item = PyList_GetItem(items, k);
        if (forget(st->rows, PyTuple_GetItem(item, 0)) < 0 || PyList_Append(st->rows, item) < 0) return -1;
    }
    for (Py_ssize_t k = 0; k < PyList_Size(gone); k++) {
        PyObject *name = PyList_GetItem(gone, k);
        if (drop_one(ctx, name) < 0 || forget(st->rows, name) < 0) return -1;
    }
    return 0;
}

/* define_rows([(name, row)], [name]): loads the rows, which replace those of their names, and drops the rows of the other
 * names. */
PyObject *kp_define_rows(PyObject *module, PyObject *args) {
    PyObject *items, *gone;
    if (!PyArg_ParseTuple(args, "O!O!:define_rows", &PyList_Type, &items, &PyList_Type, &gone)) return NULL;
    for (Py_ssize_t k = 0; k < PyList_Size(items); k++) {
        PyObject *name, *row, *item = PyList_GetItem(items, k);
        if (!PyTuple_Check(item)) return PyErr_SetString(PyExc_TypeError, "a (name, row) is wanted"), NULL;
        if (!PyArg_ParseTuple(item, "UU", &name, &row)) return NULL;
    }
    kp_state *st = kp_state_of(module);
    kp_box *box = kp_box_take(st);
    if (!box) return NULL;
    int done = change_rows(st, box->ctx, items, gone);
    kp_box_drop(box);
    return done == 0 ? Py_NewRef(Py_None) : NULL;
}
