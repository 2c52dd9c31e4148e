/* py_index.c - tensor[key]: ints, slices, None, Ellipsis and tuples of them -> a view of the same memory.
 *
 * A view holds a reference to the tensor that has the memory, be it a view of a view: a long chain of them would end in a
 * release inside a release, as deep as the chain is long. */
#include <string.h>

#include "kilnpy.h"

typedef struct view {
    kp_view of;
    int dim, rank;  /* dimensions of `of` used up, and made */
    int64_t offset; /* in elements */
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
} view;

static int full(view *v) {
    if (v->rank < KILN_MAX_RANK) return 0;
    PyErr_Format(PyExc_IndexError, "an index may not make more than %d dimensions", KILN_MAX_RANK);
    return -1;
}

static int add_dim(view *v, int64_t size, int64_t stride) {
    if (full(v) < 0) return -1;
    v->sizes[v->rank] = size;
    v->strides[v->rank++] = stride;
    return 0;
}

static int take_all(view *v, int dims) {
    for (; dims > 0; dims--, v->dim++)
        if (add_dim(v, v->of.sizes[v->dim], v->of.strides[v->dim]) < 0) return -1;
    return 0;
}

static int take_int(view *v, PyObject *key) {
    int64_t size = v->of.sizes[v->dim], at = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) return -1;
    if (at < -size || at >= size) {
        PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld",
                     (long long)at, v->dim, (long long)size);
        return -1;
    }
    v->offset += (at < 0 ? at + size : at) * v->of.strides[v->dim++];
    return 0;
}

static int take_slice(view *v, PyObject *key) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) return -1;
    int64_t stride = v->of.strides[v->dim];
    Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)v->of.sizes[v->dim], &start, &stop, step);
    if (n > 0) v->offset += start * stride;
    v->dim++;
    return add_dim(v, n, n > 1 ? stride * step : stride);
}

/* used: dimensions that the keys other than Ellipsis use up. */
static int take_key(view *v, PyObject *key, int used) {
    int rank = v->of.rank;
    if (key == Py_None) return add_dim(v, 1, 0);
    if (key == Py_Ellipsis) return take_all(v, rank - used);
    if (v->dim == rank) {
        PyErr_Format(PyExc_IndexError, "too many indices for a tensor of %d dimensions", rank);
        return -1;
    }
    if (PySlice_Check(key)) return take_slice(v, key);
    if (PyIndex_Check(key) && !PyBool_Check(key)) return take_int(v, key);
    PyErr_Format(PyExc_TypeError, "a tensor is indexed by ints, slices, None and Ellipsis, not by %R", key);
    return -1;
}

static int take_keys(view *v, PyObject *keys) {
    int used = 0, dots = 0;
    Py_ssize_t n = PyTuple_Size(keys);
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *key = PyTuple_GetItem(keys, k);
        dots += key == Py_Ellipsis;
        used += key != Py_Ellipsis && key != Py_None && used < KILN_MAX_RANK + 1;
    }
    if (dots > 1)
        return PyErr_SetString(PyExc_IndexError, "an index can only have a single ellipsis ('...')"), -1;
    for (Py_ssize_t k = 0; k < n; k++)
        if (take_key(v, PyTuple_GetItem(keys, k), used) < 0) return -1;
    return take_all(v, v->of.rank - v->dim);
}

static void release(void *owner) { kiln_tensor_release(owner); }

PyObject *kp_subscript(PyObject *self, PyObject *key) {
    kp_tensor *base = (kp_tensor *)self;
    kiln_tensor *root = base->root ? base->root : base->t, *t;
    view v;
    v.dim = v.rank = 0;
    v.offset = 0;
    kp_look_at(base->t, &v.of);
    PyObject *keys = PyTuple_Check(key) ? Py_NewRef(key) : PyTuple_Pack(1, key);
    int taken = keys ? take_keys(&v, keys) : -1;
    Py_XDECREF(keys);
    if (taken < 0) return NULL;
    char *data = v.of.data;
    if (data) data += v.offset * (int64_t)kiln_dtype_size(v.of.dtype);
    const kp_memory seen = {data, v.of.dtype, v.rank, v.sizes, v.strides, base->readonly};
    kiln_status status = kp_wrap(&seen, release, kiln_tensor_retain(root), &t);
    if (status != KILN_OK) return kiln_tensor_release(root), kp_raise(status), NULL;
    PyObject *made = kp_tensor_object(kp_state_of_type(Py_TYPE(self)), t, base->readonly);
    if (made) ((kp_tensor *)made)->root = root;
    return made;
}
