/* py_make.c - numbers in nested lists <-> tensors, and copies as another dtype.
 *
 * Element by element: for data written by hand and for looking at results, not for bulk work. */
#include <string.h>

#include "kilnpy.h"

/* -- nested lists -> Tensor ------------------------------------------------------------------------ */

typedef struct builder {
    kp_state *st;
    int rank;
    int64_t sizes[KILN_MAX_RANK];
    bool any[4]; /* by kp_num_kind: whether there are such numbers */
    bool known;  /* dtype was asked for */
    kiln_dtype dtype;
    char *next; /* where the next element goes; NULL while measuring */
} builder;

static int leaf(builder *b, PyObject *o, int depth) {
    kp_number n;
    if (b->rank < 0) b->rank = depth;
    int found = depth == b->rank ? kp_number_from(b->st, o, &n) : 0;
    if (found < 0) return -1;
    if (!found) {
        PyErr_Format(depth == b->rank ? PyExc_TypeError : PyExc_ValueError,
                     depth == b->rank ? "%R is not a number" : "expected a list where %R is", o);
        return -1;
    }
    b->any[n.kind] = true;
    if (!b->next) return 0;
    int st = kp_store(b->dtype, b->next, n);
    b->next += kiln_dtype_size(b->dtype);
    return st;
}

static int walk(builder *b, PyObject *o, int depth);

static int walk_items(builder *b, PyObject *tuple, int depth) {
    Py_ssize_t n = PyTuple_Size(tuple);
    if (depth == KILN_MAX_RANK || depth == b->rank) {
        PyErr_Format(PyExc_ValueError,
                     depth == b->rank ? "expected a number at depth %d, not a list"
                                      : "lists nested deeper than %d are not served",
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

/* Lists, tuples, and tensors of any kind among them. */
static int walk(builder *b, PyObject *o, int depth) {
    const kp_type *type = kp_type_of(b->st, o);
    if (!type) return -1;
    if (type->kind >= KP_KILN) {
        PyObject *plain = PyObject_CallMethod(o, "tolist", NULL);
        int st = plain ? walk(b, plain, depth) : -1;
        Py_XDECREF(plain);
        return st;
    }
    if (type->kind != KP_LIST && type->kind != KP_TUPLE) return leaf(b, o, depth);
    PyObject *tuple = PySequence_Tuple(o);
    int st = tuple ? walk_items(b, tuple, depth) : -1;
    Py_XDECREF(tuple);
    return st;
}

/* The dtype PyTorch gives numbers: float32 if any is a float, complex64 if any is complex. */
static kiln_dtype natural_dtype(const builder *b) {
    if (b->any[NUM_COMPLEX]) return KILN_C64;
    if (b->any[NUM_FLOAT]) return KILN_F32;
    if (b->any[NUM_INT]) return KILN_I64;
    return b->any[NUM_BOOL] ? KILN_BOOL : KILN_F32;
}

/* The object must stay as it was measured: it is walked twice, with a Python number's methods in between. */
PyObject *kp_nested(kp_state *st, PyObject *o, PyObject *dtype) {
    builder b = {.st = st, .rank = -1, .known = dtype != Py_None};
    kiln_tensor *t;
    for (int d = 0; d < KILN_MAX_RANK; d++) b.sizes[d] = -1;
    if (b.known && kp_dtype_from(st, dtype, &b.dtype) < 0) return NULL;
    if (walk(&b, o, 0) < 0) return NULL;
    if (!b.known) b.dtype = natural_dtype(&b);
    kiln_status status = kiln_tensor_new(b.dtype, b.rank, b.sizes, NULL, &t);
    if (status != KILN_OK) return kp_raise(status), NULL;
    b.next = kiln_tensor_data(t);
    if (kiln_tensor_nelem(t) > 0 && walk(&b, o, 0) < 0) return kiln_tensor_release(t), NULL;
    return kp_tensor_object(st, t, false);
}

/* -- Tensor -> nested lists ------------------------------------------------------------------------ */

static PyObject *list_from(const kiln_tensor *t, int dim, const char *at) {
    kiln_dtype dtype = kiln_tensor_dtype(t);
    if (dim == kiln_tensor_rank(t)) return kp_number_object(kp_load(dtype, at));
    int64_t n = kiln_tensor_sizes(t)[dim],
            step = kiln_tensor_strides(t)[dim] * (int64_t)kiln_dtype_size(dtype);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t k = 0; list && k < n; k++) {
        PyObject *item = list_from(t, dim + 1, at + k * step);
        if (!item || PyList_SetItem(list, (Py_ssize_t)k, item) < 0) Py_CLEAR(list);
    }
    return list;
}

PyObject *kp_tolist(const kiln_tensor *t) { return list_from(t, 0, kiln_tensor_data(t)); }

/* -- another dtype --------------------------------------------------------------------------------- */

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

PyObject *kp_recast(kp_state *st, PyObject *tensor, kiln_dtype to) {
    const kiln_tensor *from = ((kp_tensor *)tensor)->t;
    kiln_tensor *t;
    kiln_status status = kiln_tensor_new(to, kiln_tensor_rank(from), kiln_tensor_sizes(from), NULL, &t);
    if (status != KILN_OK) return kp_raise(status), NULL;
    char *next = kiln_tensor_data(t);
    if (kiln_tensor_nelem(from) > 0) cast_from(from, 0, kiln_tensor_data(from), to, &next);
    return kp_tensor_object(st, t, false);
}
