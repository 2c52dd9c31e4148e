/* py_numpy.c - kiln.Tensor -> numpy.ndarray over the same memory, through NumPy's own function table.
 *
 * Of the table, whose places are fixed by NumPy's binary interface (major versions 1 and 2), three entries
 * are used; with another NumPy, DLPack does the same more slowly. */
#include "kilnpy.h"

enum { TABLE_VERSION = 0, TABLE_TYPE = 2, TABLE_NEW = 93, TABLE_SET_BASE = 282 };
enum { NUMPY_ALIGNED = 0x100, NUMPY_WRITEABLE = 0x400 };

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

/* NumPy's table, or NULL without an exception.  Asked for once. */
static void *const *table_of(kp_state *st) {
    if (st->numpy_asked) return st->numpy_table;
    st->numpy_asked = true;
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
