/* py_numpy.c - numpy.ndarray <-> memory as Kiln has it, by what NumPy's binary interface (major versions 1 and 2) fixes.
 *
 * Out: kiln.Tensor -> array over the same memory, by three entries of NumPy's function table; with another NumPy, DLPack
 * does the same more slowly.  In: by the first fields of an array's struct, which runs no code of anybody's; with another
 * NumPy, arrays are asked for __array_struct__ (py_borrow.c). */
#include <string.h>

#include "kilnpy.h"

enum { TABLE_VERSION = 0, TABLE_TYPE = 2, TABLE_NEW = 93, TABLE_SET_BASE = 282 };
enum { NUMPY_CONTIGUOUS = 1, NUMPY_ALIGNED = 0x100, NUMPY_WRITEABLE = 0x400 };

typedef unsigned (*version_fn)(void);
typedef PyObject *(*new_fn)(PyTypeObject *type, int nd, const intptr_t *sizes, int type_number,
                            const intptr_t *steps, void *data, int itemsize, int flags, PyObject *finalize);
typedef int (*set_base_fn)(PyObject *array, PyObject *stolen_base);

static int type_number(kiln_dtype t) {
    switch (t) {
    case KILN_BOOL: return 0;
    case KILN_I8: return 1;
    case KILN_U8: return 2;
    case KILN_I16: return 3;
    case KILN_I32: return 5;
    case KILN_I64: return sizeof(long) == 8 ? 7 : 9;
    case KILN_F32: return 11;
    case KILN_F64: return 12;
    case KILN_F16: return 23;
    case KILN_U16: return 4;
    case KILN_U32: return 6;
    case KILN_U64: return sizeof(long) == 8 ? 8 : 10;
    case KILN_C64: return 14;
    case KILN_C128: return 15;
    case KILN_BF16:
    case KILN_DTYPE_COUNT: break;
    }
    return -1;
}

static bool dtype_of(int number, kiln_dtype *out) {
    if (sizeof(long) == 8 && (number == 9 || number == 10))
        number -= 2;                                            /* long long is long by another name */
    for (int t = 0; t < KILN_DTYPE_COUNT && number >= 0; t++) { /* users' dtypes may have -1 */
        if (type_number((kiln_dtype)t) != number) continue;
        *out = (kiln_dtype)t;
        return true;
    }
    return false;
}

/* NumPy's table, or NULL without an exception.  Asked for once. */
static void *const *table_of(kp_state *st) {
    if (st->numpy_asked) return st->numpy_table;
    st->numpy_asked = true;
    st->foreign++; /* an import */
    PyObject *core = PyImport_ImportModule("numpy._core._multiarray_umath");
    if (!core) PyErr_Clear();
    if (!core) core = PyImport_ImportModule("numpy.core._multiarray_umath"); /* before NumPy 2 */
    PyObject *capsule = core ? PyObject_GetAttrString(core, "_ARRAY_API") : NULL;
    void *const *table = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    PyErr_Clear();
    unsigned major = table ? (*(version_fn *)&table[TABLE_VERSION])() >> 24 : 0;
    if (major == 1 || major == 2) st->numpy_table = table;
    Py_XDECREF(capsule);
    Py_XDECREF(core); /* sys.modules keeps it */
    return st->numpy_table;
}

static PyObject *from_table(void *const *table, kp_tensor *self) {
    intptr_t sizes[KILN_MAX_RANK], steps[KILN_MAX_RANK];
    int rank = kiln_tensor_rank(self->t);
    kiln_dtype dtype = kiln_tensor_dtype(self->t);
    for (int d = 0; d < rank; d++) {
        sizes[d] = (intptr_t)kiln_tensor_sizes(self->t)[d];
        steps[d] = (intptr_t)(kiln_tensor_strides(self->t)[d] * (int64_t)kiln_dtype_size(dtype));
    }
    void *data = kiln_tensor_data(self->t);
    if (!data) data = self; /* no element is read; NumPy would allocate for NULL */
    PyObject *array = (*(new_fn *)&table[TABLE_NEW])(
        table[TABLE_TYPE], rank, sizes, type_number(dtype), steps, data, 0,
        NUMPY_ALIGNED | (self->readonly ? 0 : NUMPY_WRITEABLE), NULL);
    if (array && (*(set_base_fn *)&table[TABLE_SET_BASE])(array, Py_NewRef((PyObject *)self)) < 0)
        Py_CLEAR(array);
    return array;
}

PyObject *kp_numpy(kp_state *st, kp_tensor *self) {
    if (kiln_tensor_dtype(self->t) == KILN_BF16) {
        PyErr_SetString(PyExc_TypeError, "NumPy has no bfloat16; use a kiln.Tensor or a torch tensor");
        return NULL;
    }
    void *const *table = table_of(st);
    if (table) return from_table(table, self);
    PyObject *make = kp_helper(st, "numpy_view");
    PyObject *array = make ? PyObject_CallFunctionObjArgs(make, (PyObject *)self, NULL) : NULL;
    Py_XDECREF(make);
    return array;
}

/* -- in -------------------------------------------------------------------------------------------- */

typedef struct array_descr {
    PyObject_HEAD PyTypeObject *scalar;
    char kind, letter, byteorder, flags;
    int number;
} array_descr;

typedef struct array_object {
    PyObject_HEAD char *data;
    int nd;
    intptr_t *sizes, *steps;
    PyObject *base;
    array_descr *descr;
    int flags;
} array_object;

bool kp_numpy_plain(kp_state *st, PyObject *o, kp_array *out) {
    const array_object *a = (const array_object *)o;
    const int plain = NUMPY_CONTIGUOUS | NUMPY_ALIGNED;
    if (!table_of(st) || (a->flags & plain) != plain || a->nd < 0 || a->nd > KP_SMALL_RANK) return false;
    if (!strchr("=|", a->descr->byteorder) || !dtype_of(a->descr->number, &out->dtype)) return false;
    out->rank = a->nd;
    out->data = a->data;
    out->readonly = !(a->flags & NUMPY_WRITEABLE);
    for (int d = 0; d < a->nd; d++) out->sizes[d] = a->sizes[d];
    return true;
}

bool kp_numpy_fields(kp_state *st, PyObject *o, kp_view *v) {
    const array_object *a = (const array_object *)o;
    if (!table_of(st) || a->nd < 0 || a->nd > KILN_MAX_RANK || !dtype_of(a->descr->number, &v->dtype))
        return false;
    intptr_t size = (intptr_t)kiln_dtype_size(v->dtype);
    v->rank = a->nd;
    v->data = a->data;
    v->readonly = !(a->flags & NUMPY_WRITEABLE);
    v->copy = !(a->flags & NUMPY_ALIGNED) || !strchr("=|", a->descr->byteorder);
    for (int d = 0; d < a->nd; d++) {
        v->sizes[d] = a->sizes[d];
        v->strides[d] = a->steps[d] / size;
        if (a->steps[d] % size && a->sizes[d] > 1) v->copy = true;
    }
    return true;
}

PyObject *kp_numpy_dtype(kp_state *st, PyObject *o, bool *single) {
    const array_object *a = (const array_object *)o;
    if (!table_of(st)) return NULL;
    *single = a->nd == 0;
    return (PyObject *)a->descr;
}
