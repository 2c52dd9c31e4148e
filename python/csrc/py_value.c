/* py_value.c - the arguments of a Python call -> kiln_values, and what must live until the call is over.
 *
 * A value's kind follows from its Python type; the schema is asked only where PyTorch does so too: a number
 * for a Tensor argument becomes a tensor, a tensor of rank 0 for a number argument a number, a text for a dtype
 * argument a dtype. */
#include <string.h>

#include "kilnpy.h"

/* -- the frame ------------------------------------------------------------------------------------- */

void kp_frame_init(kp_frame *f, kp_state *st) {
    f->st = st;
    f->nargs = 0;
    f->nheld = 0;
    f->held_cap = KP_HELD;
    f->held = f->first_held;
    f->blocks = NULL;
    f->nspare = 0;
    f->loans = NULL;
    f->foreign = st->foreign;
    f->keep = NULL;
    f->recorded = NULL;
    f->torch = f->writes = f->owns = false;
    f->nheaders = 0;
}

/* Deleters may run Python code, which must not meet the exception of a call that failed. */
void kp_frame_release(kp_frame *f) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (int k = 0; k < f->nheld; k++)
        if (f->held[k].release) kiln_tensor_release(f->held[k].t);
    if (f->held != f->first_held) PyMem_Free(f->held);
    while (f->blocks) {
        kp_block *next = f->blocks->next;
        PyMem_Free(f->blocks);
        f->blocks = next;
    }
    while (f->loans) {
        kp_loan *next = f->loans->next;
        PyMem_Free(f->loans);
        f->loans = next;
    }
    Py_CLEAR(f->keep);
    PyErr_Restore(type, value, trace);
}

int kp_keep(kp_frame *f, PyObject *stolen) {
    if (!stolen) return -1;
    f->owns = true;
    if (!f->keep) f->keep = PyList_New(0);
    int st = f->keep ? PyList_Append(f->keep, stolen) : -1;
    Py_DECREF(stolen);
    return st;
}

int kp_hold_more(kp_frame *f, size_t n) {
    size_t cap = 2 * (size_t)f->held_cap, held = (size_t)f->nheld;
    if (cap < held + n) cap = held + n;
    kp_held *more = cap <= INT32_MAX ? PyMem_Malloc(cap * sizeof *more) : NULL;
    if (!more) return PyErr_NoMemory(), -1;
    memcpy(more, f->held, held * sizeof *more);
    if (f->held != f->first_held) PyMem_Free(f->held);
    f->owns = true;
    f->held = more;
    f->held_cap = (int)cap;
    return 0;
}

kp_loan *kp_loan_new(kp_frame *f) {
    kp_loan *loan = PyMem_Malloc(sizeof *loan);
    if (!loan) return (kp_loan *)PyErr_NoMemory();
    loan->next = f->loans;
    f->loans = loan;
    f->owns = true;
    return loan;
}

static kiln_value *items_new(kp_frame *f, size_t n) {
    kp_block *block = PyMem_Malloc(sizeof *block + n * sizeof *block->items);
    if (!block) return (kiln_value *)PyErr_NoMemory();
    block->next = f->blocks;
    f->blocks = block;
    f->owns = true;
    return block->items;
}

/* The bridge gives strides, so that a header needs its first words alone. */
int kp_expect(kp_frame *f, size_t n) {
    size_t nbytes = n * KP_HEADER_BYTES;
    if (n > (size_t)(f->held_cap - f->nheld) && kp_hold_more(f, n) < 0) return -1;
    if (nbytes <= f->nspare) return 0;
    kiln_value *block = items_new(f, nbytes / sizeof(kiln_value) + 1);
    if (!block) return -1;
    f->spare = (char *)block;
    f->nspare = nbytes;
    return 0;
}

/* -- numbers and texts ----------------------------------------------------------------------------- */

const char *kp_text(PyObject *o) {
    Py_ssize_t n;
    if (!PyUnicode_Check(o)) return PyErr_Format(PyExc_TypeError, "expected a text, not %.200R", o), NULL;
    const char *text = PyUnicode_AsUTF8AndSize(o, &n);
    if (text && strlen(text) != (size_t)n) {
        PyErr_Format(PyExc_ValueError, "the text %.200R holds a NUL character", o);
        return NULL;
    }
    return text;
}

static int value_of_text(const kp_param *param, PyObject *o, kiln_value *out) {
    const char *text = kp_text(o);
    kiln_dtype dtype;
    if (!text) return -1;
    *out = kiln_v_str(text);
    if (!param || param->kind != KILN_DTYPE_V) return 0;
    if (kp_dtype_parse(text, &dtype) < 0) return -1;
    *out = kiln_v_dtype(dtype);
    return 0;
}

/* A float parameter takes ints of any size, an int one those below 2^63, all others those below 2^64. */
static int value_of_number(const kp_param *param, kp_number n, kiln_value *out) {
    bool as_float = param && param->kind == KILN_FLOAT_V && n.kind == NUM_INT;
    *out = as_float ? kiln_v_float(kp_as_double(n)) : kp_value_of(n);
    if (as_float || !(n.huge || (out->kind == KILN_UINT_V && param && param->kind == KILN_INT_V))) return 0;
    PyErr_SetString(PyExc_OverflowError, "an int argument does not fit 64 bits with its sign");
    return -1;
}

static int value_of_any_number(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out) {
    kp_number n;
    int found = kp_number_from(f->st, o, &n);
    if (found == 0) PyErr_Format(PyExc_NotImplementedError, "the number %R is not served", o);
    return found <= 0 ? -1 : value_of_number(param, n, out);
}

/* dtypes of other libraries, generators; kiln._helpers knows what else has a meaning. */
static int value_of_other(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out) {
    PyObject *ask = kp_helper(f->st, "plain_value");
    PyObject *plain = ask ? PyObject_CallFunctionObjArgs(ask, o, NULL) : NULL;
    Py_XDECREF(ask);
    if (!plain || kp_keep(f, plain) < 0) return -1;
    if (plain == o) return *out = kiln_v_generator(o), 0;
    if (Py_TYPE(plain) == f->st->dtype_type) return *out = kiln_v_dtype(kp_dtype_value(plain)), 0;
    return value_of_text(param, plain, out);
}

/* -- lists ----------------------------------------------------------------------------------------- */

/* Any item of a list. */
static int value_of_item(kp_frame *f, const kp_param *plain, PyObject *item, kiln_value *out) {
    if (PyList_Check(item) || PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError,
                        "lists in lists are not served as arguments; make a kiln.Tensor of them");
        return -1;
    }
    if (kp_value(f, plain, item, out) < 0) return -1;
    out->name = NULL;
    return 0;
}

/* Items are read from a tuple of our own: another thread may change the list while the GIL is released. */
static int value_of_sequence(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out) {
    bool own = PyList_CheckExact(o) || PyTuple_CheckExact(o); /* reading it runs nobody's code */
    PyObject *tuple = !own && kp_foreign(f->st) < 0 ? NULL : PySequence_Tuple(o);
    if (!tuple || kp_keep(f, tuple) < 0) return -1;
    Py_ssize_t n = PyTuple_Size(tuple);
    if (n > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a list argument is too long");
        return -1;
    }
    kiln_value *items = items_new(f, (size_t)n);
    bool tensors = param && param->item == KILN_TENSOR;
    if (!items || (tensors && kp_expect(f, (size_t)n) < 0)) return -1;
    const kp_param plain = {.name = param ? param->name : NULL,
                            .kind = param ? param->item : KILN_OBJECT_V,
                            .written = param && param->written};
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PyTuple_GetItem(tuple, k);
        if (tensors && kp_exchange_lend(f, &plain, item, &items[k])) continue;
        if (value_of_item(f, &plain, item, &items[k]) < 0) return -1;
    }
    *out = kiln_v_list(items, (uint32_t)n);
    return 0;
}

/* -- one argument ---------------------------------------------------------------------------------- */

static int value_of_tensor(kp_frame *f, const kp_type *type, const kp_param *param, PyObject *o,
                           kiln_value *out) {
    if (kp_borrow(f, type, o, param, out) < 0) return -1;
    kiln_tensor *t = out->u.tensor;
    if (!param || !kp_takes_number(param)) return 0;
    if (kp_settle(f) < 0) return -1;
    if (kiln_tensor_rank(t) > 0) return 0;
    return value_of_number(param, kp_load(kiln_tensor_dtype(t), kiln_tensor_data(t)), out);
}

/* A NumPy scalar as the array without dimensions that it stands for. */
static int value_of_numpy_scalar(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out) {
    PyObject *array = kp_foreign(f->st) < 0 ? NULL : PyObject_CallMethod(o, "__array__", NULL);
    if (!array || kp_keep(f, array) < 0) return -1;
    const kp_type *type = kp_type_of(f->st, array);
    if (!type) return -1;
    if (type->kind != KP_NUMPY) return PyErr_Format(PyExc_TypeError, "%R gives no array", o), -1;
    if (kp_borrow(f, type, array, param, out) < 0) return -1;
    f->held[f->nheld - 1].scalar = true;
    return 0;
}

int kp_value(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out) {
    const kp_type *type = kp_type_of(f->st, o);
    if (!type) return -1;
    if (type->kind == KP_NUMPY_SCALAR && param && param->kind == KILN_TENSOR && !param->written)
        return value_of_numpy_scalar(f, param, o, out);
    switch (type->kind) {
    case KP_NONE: return *out = kiln_v_none(), 0;
    case KP_BOOL: return *out = kiln_v_bool(o == Py_True), 0;
    case KP_INT:
    case KP_FLOAT:
    case KP_COMPLEX:
    case KP_INDEX:
    case KP_NUMPY_SCALAR: return value_of_any_number(f, param, o, out);
    case KP_STR: return value_of_text(param, o, out);
    case KP_LIST:
    case KP_TUPLE: return value_of_sequence(f, param, o, out);
    case KP_DTYPE: return *out = kiln_v_dtype(kp_dtype_value(o)), 0;
    case KP_KILN:
    case KP_EXCHANGE:
    case KP_NUMPY:
    case KP_DLPACK:
    case KP_REFUSED: return value_of_tensor(f, type, param, o, out);
    case KP_OTHER: break;
    }
    return value_of_other(f, param, o, out);
}
