/* py_borrow.c - tensors of other libraries -> kiln_tensor, without copying elements.
 *
 * kp_borrow is for the length of a call: the caller holds the object.  kp_import makes a tensor that
 * keeps the object's memory alive by itself.  Memory that must not be written is marked so; Kiln refuses it
 * as an output. */
#include <stdlib.h>
#include <string.h>

#include "kilnpy.h"

/* -- memory with an owner -------------------------------------------------------------------------- */

/* A managed tensor of our own, for what kiln_tensor_wrap cannot say: read-only. */
typedef struct fixed_view {
    dl_managed managed;
    void (*deleter)(void *);
    void *owner;
    int64_t dims[];
} fixed_view;

static void fixed_delete(dl_managed *m) {
    fixed_view *v = m->context;
    if (v->deleter) v->deleter(v->owner);
    free(v);
}

kiln_status kp_wrap(const kp_memory *m, void (*deleter)(void *), void *owner, kiln_tensor **out) {
    if (!m->readonly)
        return kiln_tensor_wrap(m->data, m->dtype, m->rank, m->sizes, m->strides, deleter, owner, out);
    size_t dims = (size_t)m->rank * sizeof(int64_t);
    fixed_view *v = calloc(1, sizeof *v + 2 * dims);
    if (!v) return KILN_E_NOMEM;
    v->deleter = deleter;
    v->owner = owner;
    v->managed = (dl_managed){DL_MAJOR, DL_MINOR, v, fixed_delete, DL_READ_ONLY, {0}};
    dl_tensor *t = &v->managed.tensor;
    t->data = m->data;
    t->device_type = DL_CPU;
    t->ndim = m->rank;
    kp_dl_of_dtype(m->dtype, t);
    t->shape = v->dims;
    t->strides = m->strides ? v->dims + m->rank : NULL;
    if (dims) memcpy(v->dims, m->sizes, dims);
    if (dims && m->strides) memcpy(v->dims + m->rank, m->strides, dims);
    kiln_status st = kiln_tensor_from_dlpack(&v->managed, out);
    if (st != KILN_OK) free(v);
    return st;
}

/* A Python object whose memory a tensor shows. */
typedef struct kp_kept {
    struct kp_kept *next; /* of those that were left */
    PyObject *object;
    int64_t home; /* its interpreter */
} kept;

_Atomic(struct kp_kept *) kp_left;

static int64_t this_interpreter(void) { return PyInterpreterState_GetID(PyInterpreterState_Get()); }

static int drop_left_soon(void *unused) {
    (void)unused;
    kp_drop_left();
    return 0;
}

static bool leave(kept *k) { /* whether it is the first */
    k->next = atomic_load(&kp_left);
    while (!atomic_compare_exchange_weak(&kp_left, &k->next, k)) {}
    return !k->next;
}

/* The last reference to a tensor may go on any thread, with or without the GIL, in another interpreter, and after Python's
 * end; and a thread cannot be asked whether it holds the GIL and of which interpreter.  So the object is left to whoever
 * holds the right one for certain: kp_drop_left, which Python is asked to call soon. */
static void leave_object(void *owner) {
    if (leave(owner) && Py_IsInitialized()) (void)Py_AddPendingCall(drop_left_soon, NULL);
}

void kp_drop_left(void) {
    int64_t here = this_interpreter();
    kept *next, *k = atomic_exchange(&kp_left, NULL);
    for (; k; k = next) {
        next = k->next;
        if (k->home != here) {
            leave(k);
            continue;
        }
        Py_DECREF(k->object);
        free(k);
    }
}

static kept *keep_object(PyObject *o) { /* or NULL with an exception */
    kept *k = malloc(sizeof *k);
    if (!k) return (kept *)PyErr_NoMemory();
    *k = (kept){NULL, Py_NewRef(o), this_interpreter()};
    return k;
}

/* -- NumPy: the struct behind __array_struct__ ----------------------------------------------------- */

typedef struct array_struct {
    int two; /* 2, as a check */
    int nd;
    char typekind;
    int itemsize;
    int flags;
    intptr_t *shape;
    intptr_t *strides; /* in bytes */
    void *data;
    PyObject *descr;
} array_struct;
enum { ARRAY_ALIGNED = 0x100, ARRAY_NATIVE = 0x200, ARRAY_WRITEABLE = 0x400 };

static bool array_dtype(const array_struct *a, kiln_dtype *out) {
    int code = a->typekind == 'b'   ? DL_BOOL
               : a->typekind == 'u' ? DL_UINT
               : a->typekind == 'i' ? DL_INT
               : a->typekind == 'c' ? DL_COMPLEX
                                    : DL_FLOAT;
    bool known = strchr("buifc", a->typekind) && a->typekind;
    return known && a->itemsize <= 16 && kp_dtype_of_dl((uint8_t)code, (uint8_t)(a->itemsize * 8), out);
}

static int read_struct(PyObject *o, const array_struct *a, kp_view *v) {
    if (a->two != 2 || a->nd < 0 || a->nd > KILN_MAX_RANK) {
        PyErr_Format(PyExc_TypeError, "an array of %d dimensions is not served; at most %d are", a->nd,
                     KILN_MAX_RANK);
        return -1;
    }
    if (!array_dtype(a, &v->dtype)) {
        PyObject *dtype = PyObject_GetAttrString(o, "dtype");
        if (dtype) PyErr_Format(PyExc_NotImplementedError, "NumPy arrays of dtype %S are not served", dtype);
        Py_XDECREF(dtype);
        return -1;
    }
    v->rank = a->nd;
    v->data = a->data;
    v->readonly = !(a->flags & ARRAY_WRITEABLE);
    v->copy = (a->flags & (ARRAY_ALIGNED | ARRAY_NATIVE)) != (ARRAY_ALIGNED | ARRAY_NATIVE);
    for (int d = 0; d < a->nd; d++) {
        v->sizes[d] = a->shape[d];
        v->strides[d] = a->strides[d] / a->itemsize;
        if (a->strides[d] % a->itemsize && a->shape[d] > 1) v->copy = true;
    }
    return 0;
}

static int read_array(kp_state *st, PyObject *o, kp_view *v) {
    if (kp_numpy_fields(st, o, v)) return 0;
    PyObject *capsule = kp_foreign(st) < 0 ? NULL : PyObject_GetAttrString(o, "__array_struct__");
    const array_struct *a = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    int read = a ? read_struct(o, a, v) : -1;
    Py_XDECREF(capsule);
    return read;
}

/* o itself, or a copy of it in native layout.  New reference. */
static PyObject *readable_array(kp_state *st, PyObject *o, kp_view *v) {
    if (read_array(st, o, v) < 0) return NULL;
    if (!v->copy) return Py_NewRef(o);
    PyObject *make = kp_helper(st, "native_array");
    PyObject *copy = make ? PyObject_CallFunctionObjArgs(make, o, NULL) : NULL;
    Py_XDECREF(make);
    bool readonly = v->readonly;
    if (copy && read_array(st, copy, v) < 0) Py_CLEAR(copy);
    v->copy = true;
    v->readonly = readonly;
    return copy;
}

static int import_array(kp_state *st, PyObject *o, kiln_tensor **out, bool *readonly) {
    kp_view v;
    PyObject *source = readable_array(st, o, &v);
    kept *owner = source ? keep_object(source) : NULL;
    Py_XDECREF(source);
    if (!owner) return -1;
    bool fixed = v.readonly && !v.copy;
    const kp_memory memory = {v.data, v.dtype, v.rank, v.sizes, v.strides, fixed};
    kiln_status status = kp_wrap(&memory, leave_object, owner, out);
    *readonly = fixed;
    if (status == KILN_OK) return 0;
    leave_object(owner);
    kp_raise(status);
    return -1;
}

static int borrow_plain(kp_frame *f, const kp_array *a, kp_held *h) {
    kiln_status status = kiln_tensor_borrow(&f->headers[f->nheaders++], a->data, a->dtype, a->rank, a->sizes,
                                            NULL, a->readonly, &h->t);
    h->readonly = a->readonly;
    return status == KILN_OK ? 0 : (kp_raise(status), -1);
}

static int borrow_array(kp_frame *f, PyObject *o, kp_held *h) {
    kp_array *plain = &f->arrays[f->nheaders];
    if (f->nheaders < KP_HEADERS && kp_numpy_plain(f->st, o, plain)) return borrow_plain(f, plain, h);
    kp_loan *loan = kp_loan_new(f);
    PyObject *source = loan ? readable_array(f->st, o, &loan->view) : NULL;
    if (!source) return -1;
    if (source == o)
        Py_DECREF(source); /* the caller holds it */
    else if (kp_keep(f, source) < 0)
        return -1;
    const kp_view *v = &loan->view;
    kiln_status status = kiln_tensor_borrow(&loan->header, v->data, v->dtype, v->rank, v->sizes, v->strides,
                                            v->readonly, &h->t);
    if (status != KILN_OK) return kp_raise(status), -1;
    h->readonly = v->readonly;
    h->copy = v->copy ? source : NULL;
    return 0;
}

/* Sizes and strides go to new memory: the array may have more of them now. */
static int settle_array(kp_frame *f, kp_held *h) {
    PyObject *source = h->copy ? h->copy : h->object;
    kp_loan *loan = kp_loan_new(f);
    if (!loan || read_array(f->st, source, &loan->view) < 0) return -1;
    const kp_view *v = &loan->view;
    if (v->copy) {
        PyErr_SetString(PyExc_RuntimeError, "an argument was changed by the code of another one");
        return -1;
    }
    kiln_status status = kiln_tensor_borrow((kiln_tensor_header *)h->t, v->data, v->dtype, v->rank, v->sizes,
                                            v->strides, h->copy ? h->readonly : v->readonly, &h->t);
    return status == KILN_OK ? 0 : (kp_raise(status), -1);
}

/* -- what can be served at all --------------------------------------------------------------------- */

bool kp_has_elements(const dl_tensor *t) {
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] == 0) return false;
    return true;
}

/* By the name that o has for its dtype, if it has one. */
static void refuse_dtype(const dl_tensor *t, PyObject *o) {
    PyObject *dtype = PyObject_GetAttrString(o, "dtype");
    if (dtype) {
        PyErr_Format(PyExc_NotImplementedError, "tensors of dtype %S are not served", dtype);
        Py_DECREF(dtype);
    } else {
        PyErr_Format(PyExc_NotImplementedError,
                     "tensors of DLPack type code %d, %d bits, %d lanes are not served", t->code, t->bits,
                     t->lanes);
    }
}

/* Says what about t is not served. */
static int refuse(const dl_tensor *t, PyObject *o) {
    kiln_dtype dtype;
    if (t->ndim < 0 || t->ndim > KILN_MAX_RANK || (t->ndim > 0 && !t->shape))
        PyErr_Format(PyExc_RuntimeError, "a DLPack tensor of %d dimensions%s; 0 to %d are served",
                     (int)t->ndim, t->shape ? "" : " without sizes", KILN_MAX_RANK);
    else if (t->device_type != DL_CPU)
        PyErr_Format(PyExc_NotImplementedError,
                     "tensors of DLPack device type %d are not served; only the CPU (%d) is",
                     (int)t->device_type, DL_CPU);
    else if (t->lanes != 1 || !kp_dtype_of_dl(t->code, t->bits, &dtype))
        refuse_dtype(t, o);
    else
        PyErr_SetString(PyExc_NotImplementedError,
                        "this tensor is not served: its elements are nowhere in memory");
    return -1;
}

int kp_accept(const dl_tensor *t, PyObject *o, kiln_dtype *dtype) {
    bool shaped = (unsigned)t->ndim <= KILN_MAX_RANK && (t->ndim == 0 || t->shape);
    bool known = t->lanes == 1 && kp_dtype_of_dl(t->code, t->bits, dtype);
    if (shaped && known && t->device_type == DL_CPU && (t->data || !kp_has_elements(t))) return 0;
    return refuse(t, o);
}

/* -- DLPack by Python calls ------------------------------------------------------------------------ */

static PyObject *ask_capsule(kp_state *st, PyObject *o) {
    PyObject *method = kp_foreign(st) < 0 ? NULL : PyObject_GetAttrString(o, "__dlpack__");
    PyObject *none = method ? PyTuple_New(0) : NULL;
    PyObject *kwargs = none ? Py_BuildValue("{s:(ii)}", "max_version", DL_MAJOR, DL_MINOR) : NULL;
    PyObject *capsule = kwargs ? PyObject_Call(method, none, kwargs) : NULL;
    if (!capsule && kwargs && PyErr_ExceptionMatches(PyExc_TypeError)) { /* from before DLPack 1.0 */
        PyErr_Clear();
        capsule = PyObject_Call(method, none, NULL);
    }
    Py_XDECREF(kwargs);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

static void drop_old(void *owner) {
    dl_managed_old *m = owner;
    if (m->deleter) m->deleter(m);
}

static kiln_status import_old(PyObject *o, dl_managed_old *m, kiln_tensor **out) {
    const dl_tensor *t = &m->tensor;
    kiln_dtype dtype;
    if (kp_accept(t, o, &dtype) < 0) return KILN_E_UNSUP;
    char *data = t->data ? (char *)t->data + t->byte_offset : NULL;
    const kp_memory memory = {data, dtype, t->ndim, t->shape, t->strides, false};
    return kp_wrap(&memory, drop_old, m, out);
}

/* A capsule is marked as used once its tensor is ours; until then its own destructor cleans up. */
static int import_capsule(PyObject *o, PyObject *capsule, kiln_tensor **out, bool *readonly) {
    kiln_status status = KILN_E_TYPE;
    *readonly = false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        status = kiln_tensor_from_dlpack(m, out);
        if (status == KILN_OK) *readonly = m->flags & DL_READ_ONLY;
        if (status == KILN_OK && PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0) return -1;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        status = import_old(o, PyCapsule_GetPointer(capsule, "dltensor"), out);
        if (status == KILN_OK && PyCapsule_SetName(capsule, "used_dltensor") < 0) return -1;
    } else {
        PyErr_Format(PyExc_TypeError,
                     "__dlpack__ returned %R, expected a capsule named dltensor_versioned or dltensor",
                     capsule);
    }
    if (status == KILN_OK) return 0;
    if (!PyErr_Occurred()) kp_raise(status);
    return -1;
}

static int import_dlpack(kp_state *st, PyObject *o, kiln_tensor **out, bool *readonly) {
    PyObject *capsule = ask_capsule(st, o);
    int done = capsule ? import_capsule(o, capsule, out, readonly) : -1;
    Py_XDECREF(capsule);
    return done;
}

/* -- all of them ----------------------------------------------------------------------------------- */

static int refuse_class(PyObject *o) {
    PyErr_Format(
        PyExc_TypeError,
        "arrays of %R are not taken, since what it adds to the elements (a mask, a unit) would be lost: "
        "give numpy.asarray(x), or x.filled(number) of a masked array",
        (PyObject *)Py_TYPE(o));
    return -1;
}

int kp_import(kp_state *st, const kp_type *type, PyObject *o, kiln_tensor **out, bool *readonly) {
    *readonly = false;
    switch (type->kind) {
    case KP_KILN:
        *out = kiln_tensor_retain(((kp_tensor *)o)->t);
        *readonly = ((kp_tensor *)o)->readonly;
        return 0;
    case KP_EXCHANGE: return kp_exchange_import(st, type, o, out);
    case KP_NUMPY: return import_array(st, o, out, readonly);
    case KP_REFUSED: return refuse_class(o);
    default: return import_dlpack(st, o, out, readonly);
    }
}

static int borrow(kp_frame *f, const kp_type *type, PyObject *o, kp_held *h) {
    switch (type->kind) {
    case KP_KILN:
        h->t = ((kp_tensor *)o)->t;
        h->readonly = ((kp_tensor *)o)->readonly;
        return 0;
    case KP_EXCHANGE: return kp_exchange_borrow(f, type, o, h);
    case KP_NUMPY: return borrow_array(f, o, h);
    case KP_REFUSED: return refuse_class(o);
    default:
        if (import_dlpack(f->st, o, &h->t, &h->readonly) < 0) return -1;
        h->release = true;
        return 0;
    }
}

int kp_borrow(kp_frame *f, const kp_type *type, PyObject *o, const kp_param *param, kiln_value *out) {
    kp_held *h = kp_hold(f);
    bool write = param && param->written;
    if (!h) return -1;
    *h = (kp_held){.object = o,
                   .name = param ? param->name : NULL,
                   .kind = type->kind,
                   .exchange = type->exchange,
                   .written = write};
    if (borrow(f, type, o, h) < 0) {
        f->nheld--; /* nothing that runs meanwhile holds more in this frame */
        return -1;
    }
    f->writes = f->writes || write;
    f->owns = f->owns || h->release;
    if (write && h->readonly) {
        PyErr_SetString(PyExc_ValueError, "the tensor is read-only and cannot be written");
        return -1;
    }
    *out = kiln_v_tensor(h->t);
    return 0;
}

/* Only those over memory that others have can have changed: a kiln.Tensor's header is looked at by the call itself, and what
 * DLPack lent stays until its deleter runs.  Those whose sizes Python code tells come first. */
int kp_settle_again(kp_frame *f) {
    for (int scripted = 1; scripted >= 0; scripted--) {
        for (int k = 0; k < f->nheld; k++) {
            kp_held *h = &f->held[k];
            if (h->scripted != scripted || h->resize) continue;
            if (scripted && kp_foreign(f->st) < 0) return -1;
            if (h->kind == KP_EXCHANGE && kp_exchange_settle(&f->st->torch, h) < 0) return -1;
            if (h->kind == KP_NUMPY && settle_array(f, h) < 0) return -1;
        }
    }
    f->foreign = f->st->foreign;
    return 0;
}
