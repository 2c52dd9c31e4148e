/* py_exchange.c - tensors of a library with DLPack's exchange table, which is PyTorch: in, out, and written to.
 *
 * On the way in no Python code runs: the table lends the object's own sizes and strides, and what it does not say is
 * asked of PyTorch's library itself (py_torch.c). */
#include <stdlib.h>
#include <string.h>

#include "kilnpy.h"
#include "torch_bridge.h"

/* PyTorch's own errors about tensors that DLPack cannot express become one kind.  Only their first line is
 * meant for readers. */
static int as_unsupported(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *line = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyObject *first = line ? PyUnicode_DecodeUTF8(line, (Py_ssize_t)strcspn(line, "\n"), "replace") : NULL;
    PyErr_Clear();
    PyErr_Format(PyExc_NotImplementedError, "this tensor is not served: %S", first ? first : Py_None);
    Py_XDECREF(first);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

/* -- in -------------------------------------------------------------------------------------------- */

/* What a method of o without arguments says: 1, 0 also where there is none, or -1 with an exception. */
static int ask(kp_state *st, PyObject *o, const char *method) {
    if (kp_foreign(st) < 0) return -1;
    if (!PyObject_HasAttrString(o, method)) return 0;
    PyObject *answer = PyObject_CallMethod(o, method, NULL);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* Whether o's elements are to be negated or conjugated when they are read: 1, 0, or -1 with an exception. */
static int is_lazy(kp_state *st, const kp_type *type, PyObject *o, const dl_tensor *t) {
    const kp_torch *torch = &st->torch;
    if (type->torch && torch->place) {
        const void *tensor = kp_torch_tensor(torch, o);
        return torch->is_neg(tensor) || (t->code == DL_COMPLEX && torch->is_conj(tensor));
    }
    if (!type->lazy) return 0;
    int neg = ask(st, o, "is_neg");
    return neg ? neg : ask(st, o, "is_conj");
}

/* 1: *t says all of o.  0: o is a view that was not carried out yet, or at an odd address.  -1: exception. */
static int look(kp_state *st, const kp_type *type, PyObject *o, dl_tensor *t, kiln_dtype *dtype) {
    if (type->scripted && kp_foreign(st) < 0) return -1;
    if (type->exchange->borrow_from_object(o, t) != 0) return as_unsupported();
    if (kp_accept(t, o, dtype) < 0) return -1;
    int lazy = is_lazy(st, type, o, t);
    if (lazy != 0) return lazy < 0 ? -1 : 0;
    size_t align = kiln_dtype_size(*dtype) / (t->code == DL_COMPLEX ? 2 : 1);
    return (((uintptr_t)t->data + t->byte_offset) & (align - 1)) == 0;
}

/* Whether PyTorch records what is done to o, a torch tensor: 1, 0, or -1 with an exception. */
static int is_recorded(kp_state *st, PyObject *o) {
    const kp_torch *torch = &st->torch;
    if (!torch->place) {
        PyObject *call = kp_helper(st, "is_recorded");
        PyObject *answer = call ? PyObject_CallFunctionObjArgs(call, o, NULL) : NULL;
        int yes = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(call);
        Py_XDECREF(answer);
        return yes;
    }
    const void *tensor = kp_torch_tensor(torch, o), *impl = *(const void *const *)tensor;
    if (!torch->meta(impl)) return 0;
    return (torch->requires_grad(impl) && torch->grad_mode()) ||
           *(const void *const *)torch->tangent(impl, 0, tensor) != torch->undefined;
}

void kp_refuse_recorded(void) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "the tensor requires grad or has a tangent, and Kiln records no gradients: give x.detach(), or "
        "call under torch.no_grad() where it requires grad");
}

int kp_find_recorded(kp_frame *f) {
    int recorded = 0;
    for (int k = 0; k < f->nheld && recorded == 0; k++) {
        recorded = f->held[k].torch && !f->held[k].bare ? is_recorded(f->st, f->held[k].object) : 0;
        if (recorded > 0) f->recorded = f->held[k].t;
    }
    return recorded < 0 ? -1 : 0;
}

/* What o stands for, as elements in memory of their own.  New reference. */
static PyObject *carry_out(PyObject *o) {
    static const char *const steps[] = {"detach", "resolve_conj", "resolve_neg", "clone"};
    Py_INCREF(o);
    for (size_t k = 0; o && k < sizeof steps / sizeof *steps; k++) {
        PyObject *next = PyObject_CallMethod(o, steps[k], NULL);
        Py_DECREF(o);
        o = next;
    }
    return o;
}

/* o, or a copy of it that *t says all of.  New reference; *t is good as long as that lives. */
static PyObject *readable(kp_state *st, const kp_type *type, PyObject *o, dl_tensor *t, kiln_dtype *dtype) {
    const dl_exchange *table = type->exchange; /* *type may be replaced while Python code runs */
    int plain = look(st, type, o, t, dtype);
    if (plain) return plain > 0 ? Py_NewRef(o) : NULL;
    PyObject *copy = kp_foreign(st) < 0 ? NULL : carry_out(o);
    if (copy && table->borrow_from_object(copy, t) != 0) as_unsupported();
    if (copy && (PyErr_Occurred() || kp_accept(t, copy, dtype) < 0)) Py_CLEAR(copy);
    return copy;
}

/* Room for one more header; NULL with an exception. */
static kiln_tensor_header *next_header(kp_frame *f) {
    if (f->nheaders < KP_HEADERS) return &f->headers[f->nheaders++];
    kp_loan *loan = kp_loan_new(f);
    return loan ? &loan->header : NULL;
}

/* What the bridge says of h, which it has lent. */
static void set_lent(kp_held *h, int lent) {
    h->plain = true;
    h->bare = lent & KILN_LENT_BARE;
    h->counted = lent & KILN_LENT_COUNTED;
}

/* What most calls are given: a torch tensor that can be looked into.  One that is written has elements, else it may have
 * to be given others.  Below 0: with an exception. */
static int borrow_plain(kp_frame *f, PyObject *o, kp_held *h) {
    const kp_torch *torch = &f->st->torch;
    if (!torch->place || !(torch->borrow || (torch->plain_class && !h->scripted))) return 0;
    bool listed = f->nspare >= KP_HEADER_BYTES;
    kiln_tensor_header *header = listed ? (kiln_tensor_header *)f->spare : next_header(f);
    if (!header) return -1;
    int lent = kp_torch_borrow(torch, kp_torch_tensor(torch, o), h->written, header, &h->t);
    if (!lent || (h->written && kiln_tensor_nelem(h->t) == 0)) return 0;
    if (listed) {
        f->spare += KP_HEADER_BYTES;
        f->nspare -= KP_HEADER_BYTES;
    }
    set_lent(h, lent);
    h->copy = NULL;
    h->resize = false;
    return 1;
}

bool kp_exchange_lend(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out) {
    const kp_torch *torch = &f->st->torch;
    const kp_type *type = &f->st->types[f->st->recent];
    if (type->type != Py_TYPE(o) || !type->torch || type->scripted || !torch->borrow || !torch->place)
        return false;
    if (f->nspare < KP_HEADER_BYTES || f->nheld == f->held_cap) return false;
    kiln_tensor_header *header = (kiln_tensor_header *)f->spare;
    int lent = torch->borrow(kp_torch_tensor(torch, o), param->written, header, &out->u.tensor);
    if (!lent || (param->written && kiln_tensor_nelem(out->u.tensor) == 0)) return false;
    f->spare += KP_HEADER_BYTES;
    f->nspare -= KP_HEADER_BYTES;
    kp_held *h = &f->held[f->nheld++];
    *h = (kp_held){.t = out->u.tensor,
                   .object = o,
                   .name = param->name,
                   .exchange = type->exchange,
                   .kind = type->kind,
                   .torch = true,
                   .written = param->written};
    set_lent(h, lent);
    f->torch = true;
    f->writes = f->writes || param->written;
    out->kind = KILN_TENSOR;
    out->n = 0;
    out->name = NULL;
    return true;
}

/* An output without elements takes the result's shape, as PyTorch has it: memory of Kiln's own stands in.  So does a copy
 * for an output that cannot be written as it is. */
int kp_exchange_borrow(kp_frame *f, const kp_type *type, PyObject *o, kp_held *h) {
    dl_tensor t;
    kiln_dtype dtype;
    kiln_status status;
    h->torch = type->torch;
    f->torch = f->torch || type->torch;
    h->scripted = type->scripted;
    int plain = type->torch ? borrow_plain(f, o, h) : 0;
    if (plain) return plain < 0 ? -1 : 0;
    PyObject *source = readable(f->st, type, o, &t, &dtype);
    if (!source) return -1;
    bool copied = source != o;
    if (copied && kp_keep(f, Py_NewRef(source)) < 0) return Py_DECREF(source), -1;
    Py_DECREF(source); /* held by the caller, or by the frame */
    char *data = t.data ? (char *)t.data + t.byte_offset : NULL;
    h->copy = copied ? source : NULL;
    h->resize = h->written && !copied && !kp_has_elements(&t);
    if (h->resize) {
        h->release = true;
        status = kiln_tensor_new(dtype, t.ndim, t.shape, NULL, &h->t);
    } else {
        kiln_tensor_header *header = next_header(f);
        if (!header) return -1;
        status = kiln_tensor_borrow(header, data, dtype, t.ndim, t.shape, t.strides, !h->written && copied,
                                    &h->t);
    }
    return status == KILN_OK ? 0 : (kp_raise(status), -1);
}

int kp_exchange_settle(const kp_torch *torch, kp_held *h) {
    dl_tensor t;
    kiln_dtype dtype;
    kiln_tensor_header *header = (kiln_tensor_header *)h->t;
    int lent = h->plain ? kp_torch_borrow(torch, kp_torch_tensor(torch, h->object), h->written, header, &h->t)
                        : 0;
    if (lent) return set_lent(h, lent), 0;
    if (h->plain)
        return PyErr_SetString(PyExc_RuntimeError, "a tensor has become another kind meanwhile"), -1;
    PyObject *source = h->copy ? h->copy : h->object;
    if (h->exchange->borrow_from_object(source, &t) != 0) return as_unsupported();
    if (kp_accept(&t, source, &dtype) < 0) return -1;
    char *data = t.data ? (char *)t.data + t.byte_offset : NULL;
    kiln_status status = kiln_tensor_borrow(header, data, dtype, t.ndim, t.shape, t.strides,
                                            !h->written && h->copy, &h->t);
    return status == KILN_OK ? 0 : (kp_raise(status), -1);
}

int kp_exchange_import(kp_state *st, const kp_type *type, PyObject *o, kiln_tensor **out) {
    const dl_exchange *table = type->exchange;
    dl_managed *m;
    dl_tensor t;
    kiln_dtype dtype;
    int recorded = type->torch ? is_recorded(st, o) : 0;
    if (recorded > 0) kp_refuse_recorded();
    PyObject *source = recorded ? NULL : readable(st, type, o, &t, &dtype);
    if (!source) return -1;
    int got = table->managed_from_object(source, &m);
    Py_DECREF(source);
    if (got != 0) return as_unsupported();
    kiln_status status = kiln_tensor_from_dlpack(m, out);
    if (status == KILN_OK) return 0;
    kp_raise(status);
    if (m->deleter) m->deleter(m);
    return -1;
}

/* -- out ------------------------------------------------------------------------------------------- */

/* May run on any thread, with or without the GIL. */
static void delete_result(dl_managed *m) {
    kiln_tensor_release(m->context);
    free(m);
}

static bool is_row_major(const kiln_tensor *t) {
    const int64_t *sizes = kiln_tensor_sizes(t), *strides = kiln_tensor_strides(t);
    int64_t next = 1;
    for (int d = kiln_tensor_rank(t) - 1; d >= 0; d--) {
        if (strides[d] != next) return false;
        next *= sizes[d] > 1 ? sizes[d] : 1;
    }
    return true;
}

/* A result nobody else has: its sizes stay where they are, so no copy of them is made.  Strides that follow from the
 * sizes are left to PyTorch, which is quicker then.  NULL with an exception, and the tensor is released. */
static dl_managed *managed_of(kiln_tensor *stolen) {
    dl_managed *m = malloc(sizeof *m);
    if (!m) return kiln_tensor_release(stolen), (dl_managed *)PyErr_NoMemory();
    m->major = DL_MAJOR;
    m->minor = DL_MINOR;
    m->context = stolen;
    m->deleter = delete_result;
    m->flags = 0;
    dl_tensor *t = &m->tensor;
    t->data = kiln_tensor_data(stolen);
    t->device_type = DL_CPU;
    t->device_id = 0;
    t->ndim = kiln_tensor_rank(stolen);
    kp_dl_of_dtype(kiln_tensor_dtype(stolen), t);
    t->shape = (int64_t *)kiln_tensor_sizes(stolen);
    t->strides = is_row_major(stolen) ? NULL : (int64_t *)kiln_tensor_strides(stolen);
    t->byte_offset = 0;
    return m;
}

/* The table's function takes the GIL, which is held here, and catches exceptions of C++.  Without it only goes what
 * PyTorch cannot refuse: sizes whose product is the number of elements in memory, and a dtype, each of which was tried. */
PyObject *kp_exchange_object(const kp_torch *torch, const dl_exchange *table, kiln_tensor *stolen) {
    if (torch && torch->object) {
        PyObject *made = torch->object(stolen);
        return made || PyErr_Occurred() ? made : PyErr_NoMemory();
    }
    void *object = NULL;
    dl_managed *m = managed_of(stolen);
    if (!m) return NULL;
    if (!torch || !torch->plain_class || m->tensor.strides || !kp_has_elements(&m->tensor))
        return table->object_from_managed(m, &object) == 0 ? object : NULL;
    kp_torch_function empty = {0};
    kp_torch_made made = torch->from_dlpack(m, &empty);
    return torch->wrap(&made);
}

/* -- written to ------------------------------------------------------------------------------------ */

/* Only a tensor that keeps no count of writes needs a closer look. */
int kp_before_write(kp_frame *f, const kiln_tensor **refused) {
    const kp_torch *torch = &f->st->torch;
    for (int k = 0; k < f->nheld; k++) {
        const kp_held *h = &f->held[k];
        if (!h->written || !h->torch || h->counted) continue;
        const void *tensor = kp_torch_tensor(torch, h->object);
        if (torch->place && !torch->is_inference(tensor)) continue;
        *refused = h->t;
        if (kp_help(f->st, "before_write", h->object, NULL) < 0) return -1;
    }
    return 0;
}

/* PyTorch's count of writes, by which autograd notices that a saved tensor changed. */
static int count_write(kp_state *st, const kp_held *h) {
    const void *tensor = kp_torch_tensor(&st->torch, h->object);
    if (!h->counted && (!st->torch.place || st->torch.is_inference(tensor)))
        return kp_help(st, "after_write", h->object, NULL);
    st->torch.bump(tensor);
    return 0;
}

static bool same_sizes(PyObject *a, PyObject *b) {
    PyObject *x = PyObject_GetAttrString(a, "shape"), *y = PyObject_GetAttrString(b, "shape");
    int same = x && y ? PyObject_RichCompareBool(x, y, Py_EQ) : 0;
    Py_XDECREF(x);
    Py_XDECREF(y);
    PyErr_Clear();
    return same == 1;
}

/* Gives an output that had no elements the shape and the elements of what stood in for it. */
static int resize(kp_state *st, const kp_held *h) {
    PyObject *tensor = kp_tensor_object(st, kiln_tensor_retain(h->t), false);
    if (!tensor) return -1;
    int done = same_sizes(h->object, tensor) ? 0 : kp_help(st, "resize_to", h->object, tensor);
    Py_DECREF(tensor);
    return done;
}

int kp_after_write(kp_frame *f) {
    for (int k = 0; k < f->nheld; k++) {
        const kp_held *h = &f->held[k];
        if (!h->written) continue;
        if (h->copy && kp_help(f->st, "write_back", h->object, h->copy) < 0) return -1;
        if (h->resize && resize(f->st, h) < 0) return -1;
        if (h->torch && count_write(f->st, h) < 0) return -1;
    }
    return 0;
}
