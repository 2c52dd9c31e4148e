/* py_types.c - Python types -> what an argument of that type means (kp_kind).
 *
 * Each type is looked at once and remembered: a call then compares addresses.  Knows how tensor types show
 * themselves (DLPack's exchange table, numpy's name, __dlpack__); knows no single tensor. */
#include <stdio.h>
#include <string.h>

#include "kilnpy.h"

/* sys.modules[module].name, or NULL without an exception: nothing is imported for the sake of looking. */
static PyObject *loaded_attribute(const char *module, const char *name) {
    PyObject *modules = PySys_GetObject("modules"); /* borrowed */
    PyObject *m = modules ? PyMapping_GetItemString(modules, module) : NULL;
    PyObject *found = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    if (!found) PyErr_Clear();
    return found;
}

static bool derives(PyTypeObject *type, const char *module, const char *name) {
    PyObject *base = loaded_attribute(module, name);
    bool yes = base && PyType_Check(base) && PyType_IsSubtype(type, (PyTypeObject *)base);
    Py_XDECREF(base);
    return yes;
}

/* Whether type has the attribute as module.base has it. */
static bool same_attribute(PyTypeObject *type, const char *module, const char *base, const char *name) {
    PyObject *from = loaded_attribute(module, base),
             *theirs = from ? PyObject_GetAttrString(from, name) : NULL;
    PyObject *its = PyObject_GetAttrString((PyObject *)type, name);
    bool same = its == theirs;
    PyErr_Clear();
    Py_XDECREF(its);
    Py_XDECREF(theirs);
    Py_XDECREF(from);
    return same;
}

/* The newest table of a major version that is known here, or NULL. */
static const dl_exchange *exchange_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const dl_exchange *table = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    if (!table) PyErr_Clear();
    while (table && table->major > DL_MAJOR) table = table->older;
    return table && table->major == DL_MAJOR && table->borrow_from_object ? table : NULL;
}

static kp_kind plain_kind(PyTypeObject *type) {
    if (PyType_IsSubtype(type, &PyBool_Type)) return KP_BOOL;
    if (PyType_IsSubtype(type, &PyLong_Type)) return KP_INT;
    if (PyType_IsSubtype(type, &PyFloat_Type)) return KP_FLOAT;
    if (PyType_IsSubtype(type, &PyComplex_Type)) return KP_COMPLEX;
    if (PyType_IsSubtype(type, &PyUnicode_Type)) return KP_STR;
    if (PyType_IsSubtype(type, &PyList_Type)) return KP_LIST;
    if (PyType_IsSubtype(type, &PyTuple_Type)) return KP_TUPLE;
    return KP_OTHER;
}

static bool has(PyTypeObject *type, const char *name) {
    return PyObject_HasAttrString((PyObject *)type, name);
}

/* numpy.float64 and complex128 are subclasses of Python's numbers too.  Dates, texts and records are no numbers. */
static bool is_numpy_number(PyTypeObject *type) {
    if (derives(type, "numpy", "timedelta64")) return false;
    return derives(type, "numpy", "number") || derives(type, "numpy", "bool_");
}

static kp_kind array_kind(PyTypeObject *type) {
    bool plain = same_attribute(type, "numpy", "ndarray", "__array_ufunc__");
    return plain && !derives(type, "numpy.ma", "MaskedArray") ? KP_NUMPY : KP_REFUSED;
}

static void copy_name(PyTypeObject *type, char *out, size_t size) {
    PyObject *name = PyObject_GetAttrString((PyObject *)type, "__name__");
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    snprintf(out, size, "%s", text ? text : "an object");
    PyErr_Clear();
    Py_XDECREF(name);
}

static kp_type look(kp_state *st, PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    kp_type entry = {.type = type, .kind = is_numpy_number(type) ? KP_NUMPY_SCALAR : plain_kind(type)};
    if (entry.kind != KP_OTHER) return entry;
    entry.exchange = exchange_of(type);
    if (entry.exchange) {
        entry.kind = KP_EXCHANGE;
        entry.lazy = has(type, "is_neg") || has(type, "is_conj");
        entry.torch = derives(type, "torch", "Tensor");
        entry.scripted = entry.torch && !same_attribute(type, "torch", "Tensor", "__torch_dispatch__");
        if (entry.torch) kp_torch_find(st, entry.exchange);
    } else if (derives(type, "numpy", "ndarray")) {
        entry.kind = array_kind(type);
    } else if (has(type, "__dlpack__")) {
        entry.kind = KP_DLPACK;
    } else if (PyIndex_Check(o)) {
        entry.kind = KP_INDEX;
    } else {
        copy_name(type, entry.name, sizeof entry.name);
    }
    return entry;
}

/* Where the table is full, the oldest type makes room: pointers into it are good until the next look. */
const kp_type *kp_classify(kp_state *st, PyObject *o) {
    if (st->closed) {
        PyErr_SetString(PyExc_RuntimeError, "kiln is being unloaded");
        return NULL;
    }
    if (kp_foreign(st) < 0) return NULL;
    kp_type entry = look(st, o);
    int at = st->ntypes;
    if (at == KP_TYPES) {
        at = st->nfixed + st->replace;
        st->replace = (st->replace + 1) % (KP_TYPES - st->nfixed);
    } else {
        st->ntypes++;
        memset(&st->types[at], 0, sizeof st->types[at]);
    }
    Py_INCREF(entry.type);
    PyTypeObject *old = st->types[at].type;
    st->types[at] = entry;
    if (!old) return &st->types[at];
    Py_DECREF(old); /* its end may run code that has more types looked at */
    return kp_type_of(st, o);
}

void kp_types_drop(kp_state *st) {
    int n = st->ntypes;
    st->ntypes = 0;
    for (int k = 0; k < n; k++) Py_CLEAR(st->types[k].type);
}

int kp_types_init(kp_state *st) {
    const struct {
        PyTypeObject *type;
        kp_kind kind;
    } fixed[] = {
        {st->tensor_type, KP_KILN},    {&PyLong_Type, KP_INT},      {&PyFloat_Type, KP_FLOAT},
        {&PyBool_Type, KP_BOOL},       {Py_TYPE(Py_None), KP_NONE}, {&PyTuple_Type, KP_TUPLE},
        {&PyList_Type, KP_LIST},       {&PyUnicode_Type, KP_STR},   {st->dtype_type, KP_DTYPE},
        {&PyComplex_Type, KP_COMPLEX},
    };
    for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
        st->types[st->ntypes++] = (kp_type){.type = (PyTypeObject *)Py_NewRef(fixed[k].type),
                                            .kind = fixed[k].kind};
    st->nfixed = st->ntypes;
    return 0;
}
