/* py_scalar.c - element types and single elements: kiln.dtype objects, and numbers in and out of memory.
 *
 * Half precision is converted here in software: these paths serve one element at a time (item, tolist,
 * nested lists), never an operator. */
#include <math.h>
#include <string.h>

#include "kilnpy.h"

/* -- kiln.dtype ------------------------------------------------------------------------------------ */

typedef struct kp_dtype {
    PyObject_HEAD kiln_dtype value;
} kp_dtype;

kiln_dtype kp_dtype_value(PyObject *dtype) { return ((kp_dtype *)dtype)->value; }

const char *kp_dtype_text(kiln_dtype t) {
    switch (t) {
#define D(NAME, value, name, bytes, kind, torch) \
    case KILN_##NAME:                            \
        return torch;
#include "kiln/dtype.def"
#undef D
    case KILN_DTYPE_COUNT: break;
    }
    return "?";
}

kp_num_kind kp_dtype_kind(kiln_dtype t) {
    switch (t) {
#define D(NAME, value, name, bytes, kind, torch) \
    case KILN_##NAME:                            \
        return NUM_##kind;
#include "kiln/dtype.def"
#undef D
    case KILN_DTYPE_COUNT: break;
    }
    return NUM_BOOL;
}

static bool is_unsigned(kiln_dtype t) { return t == KILN_U8 || kiln_dtype_is_limited(t); }

int kp_dtype_promote(kiln_dtype a, kiln_dtype b, kiln_dtype *out) {
    kiln_dtype t = kiln_dtype_promote(a, b);
    if (t == KILN_DTYPE_COUNT) {
        PyErr_Format(PyExc_RuntimeError, "%s and %s have no dtype in common: give one", kp_dtype_text(a),
                     kp_dtype_text(b));
        return -1;
    }
    *out = t;
    return 0;
}

static PyObject *dtype_repr(PyObject *self) {
    return PyUnicode_FromFormat("kiln.%s", kp_dtype_text(kp_dtype_value(self)));
}

static PyObject *dtype_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(kp_dtype_text(kp_dtype_value(self)));
}

static PyObject *dtype_str(PyObject *self) { return dtype_name(self, NULL); }

static PyObject *dtype_short(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(kiln_dtype_name(kp_dtype_value(self)));
}

static PyObject *dtype_itemsize(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(kiln_dtype_size(kp_dtype_value(self)));
}

/* Pickles as the attribute of this name of module kiln. */
static PyObject *dtype_reduce(PyObject *self, PyObject *unused) { return dtype_name(self, unused); }

static void dtype_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef dtype_methods[] = {{"__reduce__", dtype_reduce, METH_NOARGS, NULL}, {0}};
static PyGetSetDef dtype_getset[] = {
    {"name", dtype_name, NULL, "the name PyTorch and NumPy use: 'float32'", NULL},
    {"short", dtype_short, NULL, "the name in call texts: 'f32'", NULL},
    {"itemsize", dtype_itemsize, NULL, "bytes of an element", NULL},
    {0},
};
static PyType_Slot dtype_slots[] = {
    {Py_tp_dealloc, dtype_dealloc},
    {Py_tp_repr, dtype_repr},
    {Py_tp_str, dtype_str},
    {Py_tp_methods, dtype_methods},
    {Py_tp_getset, dtype_getset},
    {Py_tp_doc, "An element type: kiln.float32, ..."},
    {0, NULL},
};
PyType_Spec kp_dtype_spec = {
    "kiln.dtype", sizeof(kp_dtype), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, dtype_slots};

int kp_dtypes_init(kp_state *st, PyObject *module) {
    for (int k = 0; k < KILN_DTYPE_COUNT; k++) {
        kp_dtype *d = PyObject_New(kp_dtype, st->dtype_type);
        if (!d) return -1;
        d->value = (kiln_dtype)k;
        st->dtypes[k] = (PyObject *)d;
        if (PyModule_AddObjectRef(module, kp_dtype_text((kiln_dtype)k), st->dtypes[k]) < 0) return -1;
    }
    return 0;
}

int kp_dtype_parse(const char *text, kiln_dtype *out) {
    if (strncmp(text, "torch.", 6) == 0 || strncmp(text, "numpy.", 6) == 0) text += 6;
    if (kiln_dtype_parse(text, out) == KILN_OK) return 0;
    PyErr_Format(PyExc_TypeError, "'%.80s' is not a dtype that Kiln serves", text);
    return -1;
}

int kp_dtype_from(kp_state *st, PyObject *o, kiln_dtype *out) {
    if (Py_TYPE(o) == st->dtype_type) {
        *out = kp_dtype_value(o);
        return 0;
    }
    PyObject *name = PyUnicode_Check(o) ? Py_NewRef(o) : NULL;
    if (!name) {
        PyObject *ask = kp_helper(st, "dtype_name");
        name = ask ? PyObject_CallFunctionObjArgs(ask, o, NULL) : NULL;
        Py_XDECREF(ask);
    }
    const char *text = name && name != Py_None ? kp_text(name) : NULL;
    if (name == Py_None) PyErr_Format(PyExc_TypeError, "expected a dtype, not %R", o);
    int st2 = text ? kp_dtype_parse(text, out) : -1;
    Py_XDECREF(name);
    return st2;
}

/* Rows by DLPack's type code, columns by bits: 8, 16, 32, 64, 128. */
#define IS(NAME) (KILN_##NAME + 1)
static const uint8_t dl_dtypes[DL_BOOL + 1][5] = {
    [DL_INT] = {IS(I8), IS(I16), IS(I32), IS(I64)}, [DL_UINT] = {IS(U8), IS(U16), IS(U32), IS(U64)},
    [DL_FLOAT] = {0, IS(F16), IS(F32), IS(F64)},    [DL_BFLOAT] = {0, IS(BF16)},
    [DL_COMPLEX] = {0, 0, 0, IS(C64), IS(C128)},    [DL_BOOL] = {IS(BOOL)},
};
#undef IS

bool kp_dtype_of_dl(uint8_t code, uint8_t bits, kiln_dtype *out) {
    if (code > DL_BOOL || bits < 8 || (bits & (bits - 1))) return false;
    uint8_t found = dl_dtypes[code][__builtin_ctz(bits) - 3];
    if (found) *out = (kiln_dtype)(found - 1);
    return found;
}

void kp_dl_of_dtype(kiln_dtype t, dl_tensor *out) {
    static const uint8_t codes[] = {[NUM_BOOL] = DL_BOOL, [NUM_FLOAT] = DL_FLOAT, [NUM_COMPLEX] = DL_COMPLEX};
    kp_num_kind kind = kp_dtype_kind(t);
    out->code = kind == NUM_INT  ? (is_unsigned(t) ? DL_UINT : DL_INT)
                : t == KILN_BF16 ? DL_BFLOAT
                                 : codes[kind];
    out->bits = (uint8_t)(8 * kiln_dtype_size(t));
    out->lanes = 1;
}

/* -- elements -------------------------------------------------------------------------------------- */

bool kp_number_of(const kiln_value *v, kp_number *out) {
    switch (v->kind) {
    case KILN_BOOL_V: *out = (kp_number){.kind = NUM_BOOL, .i = v->u.i}; return true;
    case KILN_INT_V: *out = (kp_number){.kind = NUM_INT, .i = v->u.i}; return true;
    case KILN_UINT_V: *out = (kp_number){.kind = NUM_INT, .i = v->u.i, .wide = true}; return true;
    case KILN_FLOAT_V: *out = (kp_number){.kind = NUM_FLOAT, .f = v->u.f}; return true;
    case KILN_COMPLEX_V:
        *out = (kp_number){.kind = NUM_COMPLEX, .f = v->u.c.re, .im = v->u.c.im};
        return true;
    default: return false;
    }
}

static bool has_bits(kp_number n) { return n.kind < NUM_FLOAT && !n.huge; }

kiln_value kp_value_of(kp_number n) {
    if (n.kind == NUM_COMPLEX) return kiln_v_complex(n.f, n.im);
    if (!has_bits(n)) return kiln_v_float(n.f);
    if (n.kind == NUM_BOOL) return kiln_v_bool(n.i != 0);
    return n.wide ? kiln_v_uint((uint64_t)n.i) : kiln_v_int(n.i);
}

kp_number kp_load(kiln_dtype t, const char *at) {
    kiln_value v = kiln_element_get(t, at);
    kp_number n = {.kind = NUM_BOOL};
    (void)kp_number_of(&v, &n);
    return n;
}

void kp_cast(kiln_dtype to, char *at, kp_number n) {
    kiln_value v = kp_value_of(n);
    (void)kiln_element_set(to, &v, at);
}

double kp_as_double(kp_number n) { return !has_bits(n) ? n.f : n.wide ? (double)(uint64_t)n.i : (double)n.i; }

/* Whether integer dtype t has n; like PyTorch, a float's fraction counts: 255.5 is beyond uint8. */
static bool fits(kiln_dtype t, kp_number n) {
    int bits = 8 * (int)kiln_dtype_size(t) - !is_unsigned(t); /* without the sign */
    if (!has_bits(n)) {
        double end = ldexp(1, bits);
        return n.kind >= NUM_FLOAT && n.f >= (is_unsigned(t) ? 0 : -end) && n.f <= end - 1 && n.f < end;
    }
    if (n.wide && n.i < 0) return t == KILN_U64;
    if (n.i < 0) return !is_unsigned(t) && n.i >= -INT64_C(1) - (INT64_MAX >> (63 - bits));
    return bits > 63 || n.i <= INT64_MAX >> (63 - bits);
}

/* As PyTorch raises it: its uint64 is read by another routine than the rest. */
static PyObject *exception_of(kiln_dtype t, kp_number n) {
    if (n.kind >= NUM_FLOAT) return PyExc_RuntimeError;
    if (t == KILN_U64) return PyExc_OverflowError;
    return n.huge || (n.wide && n.i < 0) ? PyExc_ValueError : PyExc_RuntimeError;
}

int kp_store(kiln_dtype t, char *at, kp_number n, PyObject *shown) {
    kp_num_kind kind = kp_dtype_kind(t);
    if (n.kind == NUM_COMPLEX && n.im != 0 && (kind == NUM_INT || kind == NUM_FLOAT)) {
        PyErr_Format(PyExc_RuntimeError, "the complex number %R does not fit %s", shown, kp_dtype_text(t));
        return -1;
    }
    if (kind == NUM_INT && !fits(t, n)) {
        PyErr_Format(exception_of(t, n), "value %R cannot be converted to type %s without overflow", shown,
                     kp_dtype_text(t));
        return -1;
    }
    kp_cast(t, at, n);
    return 0;
}

PyObject *kp_int_object(kp_number n) {
    return n.wide ? PyLong_FromUnsignedLongLong((unsigned long long)n.i) : PyLong_FromLongLong(n.i);
}

PyObject *kp_number_object(kp_number n) {
    switch (n.kind) {
    case NUM_BOOL: return PyBool_FromLong(n.i != 0);
    case NUM_INT: return kp_int_object(n);
    case NUM_FLOAT: return PyFloat_FromDouble(n.f);
    case NUM_COMPLEX: break;
    }
    return PyComplex_FromDoubles(n.f, n.im);
}

/* -- Python numbers -------------------------------------------------------------------------------- */

static int from_int(PyObject *o, kp_number *out) {
    int overflow;
    *out = (kp_number){.kind = NUM_INT};
    out->i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) return out->i == -1 && PyErr_Occurred() ? -1 : 1;
    out->i = (int64_t)PyLong_AsUnsignedLongLong(o);
    out->wide = !PyErr_Occurred();
    if (out->wide) return 1;
    PyErr_Clear();
    out->huge = true;
    out->f = PyLong_AsDouble(o);
    return out->f == -1 && PyErr_Occurred() ? -1 : 1;
}

static int from_float(PyObject *o, kp_number *out) {
    *out = (kp_number){.kind = NUM_FLOAT, .f = PyFloat_AsDouble(o)};
    return 1;
}

static int from_complex(PyObject *o, kp_number *out) {
    *out = (kp_number){.kind = NUM_COMPLEX, .f = PyComplex_RealAsDouble(o), .im = PyComplex_ImagAsDouble(o)};
    return 1;
}

/* A NumPy scalar: item() answers with a Python number, except for numbers that Python has none for. */
static int from_item(kp_state *st, PyObject *o, kp_number *out) {
    if (PyFloat_Check(o)) return from_float(o, out);
    if (PyComplex_Check(o)) return from_complex(o, out);
    PyObject *plain = kp_foreign(st) < 0 ? NULL : PyObject_CallMethod(o, "item", NULL);
    if (!plain) return -1;
    const kp_type *type = kp_type_of(st, plain);
    int found = type ? 0 : -1;
    if (type && type->kind >= KP_BOOL && type->kind <= KP_COMPLEX) found = kp_number_from(st, plain, out);
    Py_DECREF(plain);
    return found;
}

static int from_index(kp_state *st, PyObject *o, kp_number *out) {
    PyObject *i = kp_foreign(st) < 0 ? NULL : PyNumber_Index(o);
    int found = i ? from_int(i, out) : -1;
    Py_XDECREF(i);
    return found;
}

int kp_number_from(kp_state *st, PyObject *o, kp_number *out) {
    const kp_type *type = kp_type_of(st, o);
    if (!type) return -1;
    switch (type->kind) {
    case KP_BOOL: *out = (kp_number){.kind = NUM_BOOL, .i = o == Py_True}; return 1;
    case KP_INT: return from_int(o, out);
    case KP_FLOAT: return from_float(o, out);
    case KP_COMPLEX: return from_complex(o, out);
    case KP_NUMPY_SCALAR: return from_item(st, o, out);
    case KP_INDEX: return from_index(st, o, out);
    default: return 0;
    }
}
