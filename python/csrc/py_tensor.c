/* py_tensor.c - the type kiln.Tensor: what a tensor knows about itself, and Python's operators over it.
 *
 * An operator of Python's is one call of a Kiln operator; this file holds only which one. */
#include <math.h>

#include "kilnpy.h"

static PyObject *tensor_repr(PyObject *self);

static kiln_tensor *of(PyObject *self) { return ((kp_tensor *)self)->t; }

/* Binary slots get their operands in either order; the type is final, so its own slot tells. */
static bool is_tensor(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    return (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) &&
           PyType_GetSlot(type, Py_tp_repr) == (void *)tensor_repr;
}

/* -- making and dropping --------------------------------------------------------------------------- */

/* Dead Tensors, linked by their first field: most calls make one while another dies.  Guarded by the GIL; the type is final,
 * so all are of one size. */
static struct {
    kp_tensor *head;
    int room;  /* for so many more */
    int users; /* modules, of which a process may have several */
} spares;

void kp_tensor_spares(int users) {
    enum { MOST = 32 };
    if (spares.users == 0) spares.room = MOST;
    spares.users += users;
    if (spares.users > 0) return;
    spares.room = 0;
    while (spares.head) {
        kp_tensor *dead = spares.head;
        spares.head = (kp_tensor *)dead->t;
        PyObject_Free(dead);
    }
}

static kp_tensor *object_new(PyTypeObject *type) {
    kp_tensor *dead = spares.head;
    if (!dead) return PyObject_New(kp_tensor, type);
    spares.head = (kp_tensor *)dead->t;
    spares.room++;
    return (kp_tensor *)PyObject_Init((PyObject *)dead, type);
}

PyObject *kp_tensor_object(kp_state *st, kiln_tensor *stolen, bool readonly) {
    kp_tensor *self = object_new(st->tensor_type);
    if (!self) return kiln_tensor_release(stolen), NULL;
    self->t = stolen;
    self->root = NULL;
    self->readonly = readonly;
    return (PyObject *)self;
}

static void tensor_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    kiln_tensor_release(of(self));
    if (spares.room > 0) {
        spares.room--;
        ((kp_tensor *)self)->t = (kiln_tensor *)spares.head;
        spares.head = (kp_tensor *)self;
    } else {
        PyObject_Free(self);
    }
    Py_DECREF(type);
    if (atomic_load_explicit(&kp_left, memory_order_relaxed)) kp_drop_left();
}

/* The dtype comes first: its name may be asked of Python code, and what is imported has a deleter, which must not meet an
 * exception. */
static PyObject *from_tensor(kp_state *st, const kp_type *found, PyObject *data, PyObject *dtype) {
    const kp_type type = *found; /* *found may be replaced while Python code runs */
    kiln_tensor *t;
    kiln_dtype want;
    bool readonly;
    if (dtype != Py_None && kp_dtype_from(st, dtype, &want) < 0) return NULL;
    if (kp_import(st, &type, data, &t, &readonly) < 0) return NULL;
    PyObject *self = kp_tensor_object(st, t, readonly);
    if (!self || dtype == Py_None) return self;
    PyObject *out = want == kiln_tensor_dtype(t) ? Py_NewRef(self) : kp_recast(st, self, want);
    Py_DECREF(self);
    return out;
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "dtype", NULL};
    PyObject *data, *dtype = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Tensor", names, &data, &dtype)) return NULL;
    kp_state *st = kp_state_of_type(type);
    const kp_type *kind = st ? kp_type_of(st, data) : NULL;
    if (!kind) return NULL;
    return kind->kind >= KP_KILN ? from_tensor(st, kind, data, dtype) : kp_nested(st, data, dtype);
}

/* -- what it is ------------------------------------------------------------------------------------ */

#define GETTER(name, expr)                                \
    static PyObject *name(PyObject *self, void *unused) { \
        (void)unused;                                     \
        return expr;                                      \
    }
GETTER(get_shape, kp_tuple_of(kiln_tensor_sizes(of(self)), kiln_tensor_rank(of(self))))
GETTER(get_strides, kp_tuple_of(kiln_tensor_strides(of(self)), kiln_tensor_rank(of(self))))
GETTER(get_ndim, PyLong_FromLong(kiln_tensor_rank(of(self))))
GETTER(get_size, PyLong_FromLongLong(kiln_tensor_nelem(of(self))))
GETTER(get_itemsize, PyLong_FromSize_t(kiln_dtype_size(kiln_tensor_dtype(of(self)))))
GETTER(get_readonly, PyBool_FromLong(((kp_tensor *)self)->readonly))
#undef GETTER

static PyObject *get_dtype(PyObject *self, void *unused) {
    (void)unused;
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    return st ? Py_XNewRef(st->dtypes[kiln_tensor_dtype(of(self))]) : NULL;
}

static PyObject *tensor_repr(PyObject *self) {
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    PyObject *make = st ? kp_helper(st, "tensor_text") : NULL;
    PyObject *text = make ? PyObject_CallFunctionObjArgs(make, self, NULL) : NULL;
    Py_XDECREF(make);
    return text;
}

static Py_hash_t tensor_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

/* -- values ---------------------------------------------------------------------------------------- */

static int single(PyObject *self, kp_number *out) {
    if (kiln_tensor_nelem(of(self)) != 1) {
        PyErr_Format(PyExc_RuntimeError, "a tensor with %lld elements cannot be converted to a Python number",
                     (long long)kiln_tensor_nelem(of(self)));
        return -1;
    }
    *out = kp_load(kiln_tensor_dtype(of(self)), kiln_tensor_data(of(self)));
    return 0;
}

static PyObject *method_item(PyObject *self, PyObject *unused) {
    (void)unused;
    kp_number n;
    return single(self, &n) < 0 ? NULL : kp_number_object(n);
}

/* The only element as a number that is not complex. */
static int single_real(PyObject *self, kp_number *out) {
    if (single(self, out) < 0) return -1;
    if (out->kind != NUM_COMPLEX || out->im == 0) return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "a complex number with an imaginary part cannot be converted to a real one");
    return -1;
}

static PyObject *to_int(PyObject *self) {
    kp_number n;
    if (single_real(self, &n) < 0) return NULL;
    return n.kind >= NUM_FLOAT ? PyLong_FromDouble(n.f) : kp_int_object(n);
}

static PyObject *to_float(PyObject *self) {
    kp_number n;
    return single_real(self, &n) < 0 ? NULL : PyFloat_FromDouble(kp_as_double(n));
}

static PyObject *method_complex(PyObject *self, PyObject *unused) {
    (void)unused;
    kp_number n;
    return single(self, &n) < 0 ? NULL : PyComplex_FromDoubles(kp_as_double(n), n.im);
}

static PyObject *to_index(PyObject *self) {
    kp_number n = {.kind = NUM_FLOAT};
    if (kiln_tensor_nelem(of(self)) == 1 && single(self, &n) < 0) return NULL;
    if (n.kind < NUM_FLOAT) return kp_int_object(n);
    PyErr_SetString(PyExc_TypeError, "only integer tensors of a single element can be converted to an index");
    return NULL;
}

static int to_bool(PyObject *self) {
    kp_number n;
    if (kiln_tensor_nelem(of(self)) != 1) {
        PyErr_Format(PyExc_RuntimeError, "Boolean value of Tensor with %s is ambiguous",
                     kiln_tensor_nelem(of(self)) ? "more than one value" : "no values");
        return -1;
    }
    if (single(self, &n) < 0) return -1;
    return n.kind >= NUM_FLOAT ? n.f != 0 || n.im != 0 : n.i != 0;
}

static PyObject *method_tolist(PyObject *self, PyObject *unused) {
    (void)unused;
    return kp_tolist(of(self));
}

static PyObject *method_numel(PyObject *self, PyObject *unused) {
    (void)unused;
    return get_size(self, NULL);
}

static PyObject *method_data_ptr(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(kiln_tensor_data(of(self)));
}

static PyObject *method_numpy(PyObject *self, PyObject *unused) {
    (void)unused;
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    return st ? kp_numpy(st, (kp_tensor *)self) : NULL;
}

static PyObject *method_dlpack_device(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyObject *method_array(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy)) return NULL;
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    PyObject *view = st ? kp_numpy(st, (kp_tensor *)self) : NULL;
    PyObject *convert = view ? kp_helper(st, "as_array") : NULL;
    PyObject *array = convert ? PyObject_CallFunctionObjArgs(convert, view, dtype, copy, NULL) : NULL;
    Py_XDECREF(convert);
    Py_XDECREF(view);
    return array;
}

/* -- as a sequence --------------------------------------------------------------------------------- */

static Py_ssize_t tensor_length(PyObject *self) {
    if (kiln_tensor_rank(of(self)) > 0) return (Py_ssize_t)kiln_tensor_sizes(of(self))[0];
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
}

static PyObject *tensor_item(PyObject *self, Py_ssize_t at) {
    PyObject *key = PyLong_FromSsize_t(at);
    PyObject *item = key ? kp_subscript(self, key) : NULL;
    Py_XDECREF(key);
    return item;
}

static PyObject *tensor_iter(PyObject *self) {
    if (kiln_tensor_rank(of(self)) > 0) return PySeqIter_New(self);
    PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
    return NULL;
}

/* -- operators ------------------------------------------------------------------------------------- */

/* What an operator may be asked to work on.  NEITHER is for Python to ask about. */
typedef enum operand { FAILED = -1, NEITHER, TENSOR, NUMBER } operand;

static operand operand_of(kp_state *st, PyObject *o) {
    const kp_type *type = kp_type_of(st, o);
    if (!type) return FAILED;
    if (type->kind >= KP_BOOL && type->kind <= KP_COMPLEX) return NUMBER;
    return type->kind >= KP_KILN || type->kind == KP_NUMPY_SCALAR ? TENSOR : NEITHER;
}

/* name: the overload of two tensors, `any` all of them: a second operand that is a number needs no tensor to stand for it. */
static PyObject *call_binary(const char *name, const char *any, PyObject *a, PyObject *b) {
    bool ours = is_tensor(a);
    kp_state *st = kp_state_of_type(Py_TYPE(ours ? a : b));
    if (st && ours && Py_TYPE(a) == Py_TYPE(b)) return kp_call_named(st, name, a, b); /* nothing to ask */
    operand left = st ? operand_of(st, a) : FAILED, right = left > 0 ? operand_of(st, b) : left;
    if (left == FAILED || right == FAILED) return NULL;
    if (left == NEITHER || right == NEITHER) return Py_NewRef(Py_NotImplemented);
    return kp_call_named(st, right == NUMBER ? any : name, a, b);
}

static PyObject *call_power(const char *name, const char *any, PyObject *a, PyObject *b, PyObject *modulus) {
    return modulus == Py_None ? call_binary(name, any, a, b) : Py_NewRef(Py_NotImplemented);
}

static PyObject *call_unary(const char *name, PyObject *self) {
    kp_state *st = kp_state_of_type(Py_TYPE(self));
    return st ? kp_call_named(st, name, self, NULL) : NULL;
}

#define METHOD_BINARY(slot, name, any) \
    static PyObject *op_##slot(PyObject *a, PyObject *b) { return call_binary(name, any, a, b); }
#define METHOD_INPLACE(slot, name, any) \
    METHOD_BINARY(slot, name, name) /* mul_.Scalar rounds the number first */
#define METHOD_POWER(slot, name, any)                                   \
    static PyObject *op_##slot(PyObject *a, PyObject *b, PyObject *m) { \
        return call_power(name, any, a, b, m);                          \
    }
#define METHOD_INPLACE_POWER METHOD_POWER
#define METHOD_UNARY(slot, name, any) \
    static PyObject *op_##slot(PyObject *self) { return call_unary(name, self); }
#define METHOD_COMPARE(slot, name, any)
#define S(name, form, text)
#define O(name, form, text, slot, op, overload, number_first) METHOD_##form(slot, op overload, op)
#include "kiln/operator.def"
#undef O
METHOD_UNARY(absolute, "aten::abs", "aten::abs")
static PyObject *op_positive(PyObject *self) { return Py_NewRef(self); }

static PyObject *tensor_compare(PyObject *a, PyObject *b, int how) {
#define NAME_BINARY(slot, name, any)
#define NAME_INPLACE NAME_BINARY
#define NAME_POWER NAME_BINARY
#define NAME_INPLACE_POWER NAME_BINARY
#define NAME_UNARY NAME_BINARY
#define NAME_COMPARE(slot, name, any) [slot] = {name, any},
#define O(name, form, text, slot, op, overload, number_first) NAME_##form(slot, op overload, op)
    static const char *const names[][2] = {
#include "kiln/operator.def"
    };
#undef O
    return call_binary(names[how][0], names[how][1], a, b);
}

/* -- the type -------------------------------------------------------------------------------------- */

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef methods[] = {
    {"item", method_item, METH_NOARGS, "The only element, as a Python number."},
    {"tolist", method_tolist, METH_NOARGS, "The elements as nested lists of Python numbers."},
    {"numpy", method_numpy, METH_NOARGS, "A NumPy array over the same memory."},
    {"numel", method_numel, METH_NOARGS, "How many elements there are."},
    {"copy", kp_copy, METH_NOARGS, "A row-major copy in memory of its own."},
    {"__copy__", kp_copy, METH_NOARGS, "copy(), for copy.copy."},
    {"__deepcopy__", kp_copy, METH_O, "copy(), for copy.deepcopy."},
    {"__reduce__", kp_reduce, METH_NOARGS, "For pickle: dtype, shape and the elements' bytes, row-major."},
    {"__format__", kp_format, METH_O, "The only element, formatted; without a format the tensor's text."},
    {"__round__", kp_round, METH_VARARGS, "aten::round, to so many decimals."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "The address of element [0, ..., 0]."},
    {"__complex__", method_complex, METH_NOARGS, "The only element, as a complex number."},
    {"__dlpack__", KEYWORDS(kp_dlpack), METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule over the same memory."},
    {"__dlpack_device__", method_dlpack_device, METH_NOARGS, "DLPack's (CPU, 0)."},
    {"__array__", KEYWORDS(method_array), METH_VARARGS | METH_KEYWORDS, "A NumPy array, for numpy.asarray."},
    {0},
};
static PyGetSetDef getset[] = {
    {"shape", get_shape, NULL, "sizes, as a tuple", NULL},
    {"strides", get_strides, NULL, "steps per dimension, in elements", NULL},
    {"dtype", get_dtype, NULL, "element type, such as kiln.float32", NULL},
    {"ndim", get_ndim, NULL, "how many dimensions there are", NULL},
    {"size", get_size, NULL, "how many elements there are", NULL},
    {"itemsize", get_itemsize, NULL, "bytes of an element", NULL},
    {"readonly", get_readonly, NULL, "whether the memory must not be written", NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_repr, tensor_repr},
    {Py_tp_hash, tensor_hash},
    {Py_tp_richcompare, tensor_compare},
    {Py_tp_iter, tensor_iter},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc,
     "Tensor(data, dtype=None)\n--\n\nA tensor: of numbers in nested sequences, or over the memory of a NumPy "
     "array, a torch tensor\nor anything with __dlpack__.  Another dtype makes a copy."},
    {Py_sq_length, tensor_length},
    {Py_sq_item, tensor_item},
    {Py_sq_contains, kp_contains},
    {Py_mp_length, tensor_length},
    {Py_mp_subscript, kp_subscript},
#define SLOT_BINARY(slot) {Py_nb_##slot, op_##slot},
#define SLOT_INPLACE SLOT_BINARY
#define SLOT_POWER SLOT_BINARY
#define SLOT_INPLACE_POWER SLOT_BINARY
#define SLOT_UNARY SLOT_BINARY
#define SLOT_COMPARE(slot)
#define O(name, form, text, slot, op, overload, number_first) SLOT_##form(slot)
#include "kiln/operator.def"
#undef O
#undef S
    {Py_nb_positive, op_positive},
    {Py_nb_absolute, op_absolute},
    {Py_nb_bool, to_bool},
    {Py_nb_int, to_int},
    {Py_nb_float, to_float},
    {Py_nb_index, to_index},
    {0, NULL},
};
PyType_Spec kp_tensor_spec = {"kiln.Tensor", sizeof(kp_tensor), 0, Py_TPFLAGS_DEFAULT, slots};
