/* py_protocol.c - kiln.Tensor under Python's general functions: pickle, copy, format, round and `in`.
 *
 * A pickle holds the dtype's name, the sizes and the elements' bytes in row-major order, whatever the layout was. */
#include <string.h>

#include "kilnpy.h"

static kiln_tensor *of(PyObject *self) { return ((kp_tensor *)self)->t; }

/* self, or a row-major copy of it; new reference. */
static PyObject *row_major(PyObject *self) {
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    if (!st) return NULL;
    return kp_row_major(of(self)) ? Py_NewRef(self) : kp_recast(st, self, kiln_tensor_dtype(of(self)));
}

static size_t bytes_of(const kiln_tensor *t) {
    return (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(kiln_tensor_dtype(t));
}

/* -- pickle and copy ------------------------------------------------------------------------------- */

PyObject *kp_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *module = PyType_GetModule(Py_TYPE(self)); /* borrowed */
    PyObject *restore = module ? PyObject_GetAttrString(module, "restore") : NULL;
    PyObject *plain = restore ? row_major(self) : NULL;
    PyObject *shape = plain ? PyObject_GetAttrString(plain, "shape") : NULL, *out = NULL;
    if (shape)
        out = Py_BuildValue("O(sOy#)", restore, kp_dtype_text(kiln_tensor_dtype(of(plain))), shape,
                            bytes_of(of(plain)) ? kiln_tensor_data(of(plain)) : "",
                            (Py_ssize_t)bytes_of(of(plain)));
    Py_XDECREF(shape);
    Py_XDECREF(plain);
    Py_XDECREF(restore);
    return out;
}

static int read_shape(PyObject *shape, int64_t *sizes) {
    Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > KILN_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "a pickled Tensor has %zd dimensions, more than %d", rank,
                     KILN_MAX_RANK);
        return -1;
    }
    for (Py_ssize_t d = 0; d < rank; d++) {
        sizes[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        if (sizes[d] == -1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

PyObject *kp_restore(PyObject *module, PyObject *args) {
    const char *name, *data;
    PyObject *shape;
    Py_ssize_t nbytes;
    kiln_dtype dtype;
    kiln_tensor *t;
    int64_t sizes[KILN_MAX_RANK];
    if (!PyArg_ParseTuple(args, "sO!y#:restore", &name, &PyTuple_Type, &shape, &data, &nbytes)) return NULL;
    if (kp_dtype_parse(name, &dtype) < 0 || read_shape(shape, sizes) < 0) return NULL;
    kiln_status status = kiln_tensor_new(dtype, (int)PyTuple_Size(shape), sizes, NULL, &t);
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (bytes_of(t) != (size_t)nbytes) {
        PyErr_Format(PyExc_ValueError, "a pickled Tensor of shape %R holds %zd bytes, not %zu", shape, nbytes,
                     bytes_of(t));
        return kiln_tensor_release(t), NULL;
    }
    if (nbytes > 0) memcpy(kiln_tensor_data(t), data, (size_t)nbytes);
    return kp_tensor_object(kp_state_of(module), t, false);
}

PyObject *kp_copy(PyObject *self, PyObject *unused) {
    (void)unused;
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    return st ? kp_recast(st, self, kiln_tensor_dtype(of(self))) : NULL;
}

/* -- format, round, in ----------------------------------------------------------------------------- */

PyObject *kp_format(PyObject *self, PyObject *spec) {
    if (!PyUnicode_Check(spec)) return PyErr_Format(PyExc_TypeError, "a format is a str, not %R", spec), NULL;
    const kiln_tensor *t = of(self);
    bool plain = PyUnicode_GetLength(spec) == 0;
    if (kiln_tensor_rank(t) == 0 || (kiln_tensor_nelem(t) == 1 && !plain)) {
        PyObject *item = kp_number_object(kp_load(kiln_tensor_dtype(t), kiln_tensor_data(t)));
        PyObject *text = item ? PyObject_Format(item, spec) : NULL;
        Py_XDECREF(item);
        return text;
    }
    if (plain) return PyObject_Str(self);
    PyErr_Format(PyExc_TypeError, "the format %R is for one number, not for a tensor with %lld elements",
                 spec, (long long)kiln_tensor_nelem(t));
    return NULL;
}

PyObject *kp_round(PyObject *self, PyObject *args) {
    PyObject *digits = Py_None;
    if (!PyArg_ParseTuple(args, "|O:__round__", &digits)) return NULL;
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    if (!st) return NULL;
    if (digits == Py_None) return kp_call_named(st, "aten::round", self, NULL);
    PyObject *call = kp_helper(st, "rounded");
    PyObject *out = call ? PyObject_CallFunctionObjArgs(call, self, digits, NULL) : NULL;
    Py_XDECREF(call);
    return out;
}

int kp_contains(PyObject *self, PyObject *o) {
    PyObject *same = PyObject_RichCompare(self, o, Py_EQ);
    if (same &&
        Py_TYPE(same) != Py_TYPE(self)) { /* what Tensor does not compare with is compared by identity */
        PyErr_Format(PyExc_RuntimeError, "`in` a Tensor looks for a tensor or a number, not for %R", o);
        Py_CLEAR(same);
    }
    PyObject *plain = same ? row_major(same) : NULL;
    int found = -1;
    if (plain) found = bytes_of(of(plain)) && memchr(kiln_tensor_data(of(plain)), 1, bytes_of(of(plain)));
    Py_XDECREF(plain);
    Py_XDECREF(same);
    return found;
}
