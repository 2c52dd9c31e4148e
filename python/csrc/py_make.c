/* py_make.c - numbers in nested sequences <-> tensors, and copies as another dtype.
 *
 * Element by element: for data written by hand and for looking at results, not for bulk work. */
#include <string.h>

#include "kilnpy.h"

/* -- nested sequences -> Tensor -------------------------------------------------------------------- */

typedef struct builder {
    kp_state *st;
    int rank;
    int64_t sizes[KILN_MAX_RANK];
    bool known; /* dtype was asked for, or found by measuring */
    bool any;   /* there are elements, and dtype is theirs so far */
    bool typed; /* the elements at hand are of a tensor, whose dtype is `of` */
    kiln_dtype dtype, of;
    char *next; /* where the next element goes; NULL while measuring */
} builder;

/* The dtype PyTorch gives a number: its own if it is NumPy's. */
static int dtype_of_number(kp_state *st, PyObject *o, kp_number n, kiln_dtype *out) {
    static const kiln_dtype of_kind[] = {
        [NUM_BOOL] = KILN_BOOL, [NUM_INT] = KILN_I64, [NUM_FLOAT] = KILN_F32, [NUM_COMPLEX] = KILN_C64};
    const kp_type *type = kp_type_of(st, o);
    if (!type) return -1;
    *out = of_kind[n.kind];
    if (type->kind != KP_NUMPY_SCALAR) return 0;
    PyObject *own = PyObject_GetAttrString(o, "dtype");
    if (!own) return -1;
    int bad = kp_dtype_from(st, own, out);
    Py_DECREF(own);
    return bad;
}

static int note_dtype(builder *b, PyObject *o, kp_number n) {
    kiln_dtype of = b->of;
    if (!b->typed && dtype_of_number(b->st, o, n, &of) < 0) return -1;
    if (b->any) return kp_dtype_promote(b->dtype, of, &b->dtype);
    b->any = true;
    b->dtype = of;
    return 0;
}

static int leaf(builder *b, PyObject *o, int depth) {
    kp_number n;
    if (b->rank < 0) b->rank = depth;
    int found = depth == b->rank ? kp_number_from(b->st, o, &n) : 0;
    if (found < 0) return -1;
    if (!found) {
        PyErr_Format(depth == b->rank ? PyExc_TypeError : PyExc_ValueError,
                     depth == b->rank ? "%R is no bool, int, float or complex number that is served"
                                      : "expected a sequence where %R is",
                     o);
        return -1;
    }
    if (!b->known) return note_dtype(b, o, n);
    if (!b->next) return 0;
    int bad = kp_store(b->dtype, b->next, n, o);
    b->next += kiln_dtype_size(b->dtype);
    return bad;
}

static int walk(builder *b, PyObject *o, int depth);

static int walk_items(builder *b, PyObject *tuple, int depth) {
    Py_ssize_t n = PyTuple_Size(tuple);
    if (depth == KILN_MAX_RANK || depth == b->rank) {
        PyErr_Format(PyExc_ValueError,
                     depth == b->rank ? "expected a number at depth %d, not a sequence"
                                      : "sequences nested deeper than %d are not served",
                     depth);
        return -1;
    }
    if (b->sizes[depth] < 0) b->sizes[depth] = n;
    if (b->sizes[depth] != n) {
        PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)",
                     (long long)b->sizes[depth], depth, n);
        return -1;
    }
    if (n == 0 && b->rank < 0) b->rank = depth + 1;
    for (Py_ssize_t k = 0; k < n; k++)
        if (walk(b, PyTuple_GetItem(tuple, k), depth + 1) < 0) return -1;
    return 0;
}

static int walk_tensor(builder *b, const kp_type *type, PyObject *o, int depth) {
    kiln_tensor *t;
    bool readonly;
    if (kp_import(b->st, type, o, &t, &readonly) < 0) return -1;
    b->typed = true;
    b->of = kiln_tensor_dtype(t);
    PyObject *plain = kp_tolist(t);
    int bad = plain ? walk(b, plain, depth) : -1;
    b->typed = false;
    Py_XDECREF(plain);
    kiln_tensor_release(t);
    return bad;
}

/* range, deque, array.array, ...: what is read by position, and is neither a text nor looked up by keys. */
static bool is_sequence(const kp_type *type, PyObject *o) {
    if (type->kind == KP_LIST || type->kind == KP_TUPLE) return true;
    return type->kind == KP_OTHER && PySequence_Check(o) && !PyBytes_Check(o) &&
           !PyObject_HasAttrString(o, "keys");
}

/* Sequences, and tensors of any kind among them. */
static int walk(builder *b, PyObject *o, int depth) {
    const kp_type *type = kp_type_of(b->st, o);
    if (!type) return -1;
    if (type->kind >= KP_KILN) return walk_tensor(b, type, o, depth);
    if (!is_sequence(type, o)) return leaf(b, o, depth);
    PyObject *tuple = kp_foreign(b->st) < 0 ? NULL : PySequence_Tuple(o);
    int bad = tuple ? walk_items(b, tuple, depth) : -1;
    Py_XDECREF(tuple);
    return bad;
}

/* The object must stay as it was measured: it is walked twice, with a Python number's methods in between. */
PyObject *kp_nested(kp_state *st, PyObject *o, PyObject *dtype) {
    builder b = {.st = st, .rank = -1, .known = dtype != Py_None, .dtype = KILN_F32};
    kiln_tensor *t;
    for (int d = 0; d < KILN_MAX_RANK; d++) b.sizes[d] = -1;
    if (b.known && kp_dtype_from(st, dtype, &b.dtype) < 0) return NULL;
    if (walk(&b, o, 0) < 0) return NULL;
    b.known = true;
    kiln_status status = kiln_tensor_new(b.dtype, b.rank, b.sizes, NULL, &t);
    if (status != KILN_OK) return kp_raise(status), NULL;
    b.next = kiln_tensor_data(t);
    if (kiln_tensor_nelem(t) > 0 && walk(&b, o, 0) < 0) return kiln_tensor_release(t), NULL;
    return kp_tensor_object(st, t, false);
}

/* -- Tensor -> nested lists ------------------------------------------------------------------------ */

void kp_look_at(const kiln_tensor *t, kp_view *v) {
    size_t dims = (size_t)kiln_tensor_rank(t) * sizeof(int64_t);
    v->dtype = kiln_tensor_dtype(t);
    v->rank = kiln_tensor_rank(t);
    v->data = kiln_tensor_data(t);
    if (dims) memcpy(v->sizes, kiln_tensor_sizes(t), dims);
    if (dims) memcpy(v->strides, kiln_tensor_strides(t), dims);
}

static PyObject *list_from(const kp_view *v, int dim, const char *at) {
    if (dim == v->rank) return kp_number_object(kp_load(v->dtype, at));
    int64_t n = v->sizes[dim], step = v->strides[dim] * (int64_t)kiln_dtype_size(v->dtype);
    PyObject *list = PyList_New((Py_ssize_t)n); /* may collect garbage, whose end runs Python code */
    for (int64_t k = 0; list && k < n; k++) {
        PyObject *item = list_from(v, dim + 1, at + k * step);
        if (!item || PyList_SetItem(list, (Py_ssize_t)k, item) < 0) Py_CLEAR(list);
    }
    return list;
}

PyObject *kp_tolist(const kiln_tensor *t) {
    kp_view v;
    kp_look_at(t, &v);
    return list_from(&v, 0, v.data);
}

/* -- copies ---------------------------------------------------------------------------------------- */

static void cast_from(const kiln_tensor *t, int dim, const char *at, kiln_dtype to, char **next) {
    kiln_dtype dtype = kiln_tensor_dtype(t);
    if (dim == kiln_tensor_rank(t)) {
        kp_cast(to, *next, kp_load(dtype, at));
        *next += kiln_dtype_size(to);
        return;
    }
    int64_t n = kiln_tensor_sizes(t)[dim],
            step = kiln_tensor_strides(t)[dim] * (int64_t)kiln_dtype_size(dtype);
    for (int64_t k = 0; k < n; k++) cast_from(t, dim + 1, at + k * step, to, next);
}

bool kp_row_major(const kiln_tensor *t) {
    int64_t step = 1;
    for (int d = kiln_tensor_rank(t) - 1; d >= 0; d--) {
        int64_t size = kiln_tensor_sizes(t)[d];
        if (size == 0) return true;
        if (size > 1 && kiln_tensor_strides(t)[d] != step) return false;
        step *= size;
    }
    return true;
}

PyObject *kp_recast(kp_state *st, PyObject *tensor, kiln_dtype to) {
    const kiln_tensor *from = ((kp_tensor *)tensor)->t;
    kiln_tensor *t;
    kiln_status status = kiln_tensor_new(to, kiln_tensor_rank(from), kiln_tensor_sizes(from), NULL, &t);
    if (status != KILN_OK) return kp_raise(status), NULL;
    char *next = kiln_tensor_data(t);
    size_t nelem = (size_t)kiln_tensor_nelem(from);
    if (nelem > 0 && to == kiln_tensor_dtype(from) && kp_row_major(from))
        memcpy(next, kiln_tensor_data(from), nelem * kiln_dtype_size(to));
    else if (nelem > 0)
        cast_from(from, 0, kiln_tensor_data(from), to, &next);
    return kp_tensor_object(st, t, false);
}
