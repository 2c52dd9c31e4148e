/* py_torch.c - what PyTorch's own library says of one of its tensors: its functions, found in the running process.
 *
 * Python's methods for the same questions give up the GIL and take it back, which costs as much as a small call.
 * The functions take `at::Tensor const &`, as their mangled names say: a pointer to the at::Tensor inside the Python
 * object.  Where that lies is read off an object and proved on it; all of it is tried on tensors whose answers are known.
 * If anything is missing or answers otherwise, nothing of this is used and Python's methods are called. */
#include <dlfcn.h>
#include <string.h>

#include "kilnpy.h"

static const struct {
    const char *name;
    size_t field; /* of kp_torch */
} symbols[] = {
    {"_ZN2at6native6is_negERKNS_6TensorE", offsetof(kp_torch, is_neg)},
    {"_ZN2at6native7is_conjERKNS_6TensorE", offsetof(kp_torch, is_conj)},
    {"_ZN2at6native12is_inferenceERKNS_6TensorE", offsetof(kp_torch, is_inference)},
    {"_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", offsetof(kp_torch, bump)},
    {"_ZNK3c1010TensorImpl13autograd_metaEv", offsetof(kp_torch, meta)},
    {"_ZNK3c1010TensorImpl13requires_gradEv", offsetof(kp_torch, requires_grad)},
    {"_ZN3c108GradMode10is_enabledEv", offsetof(kp_torch, grad_mode)},
    {"_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE", offsetof(kp_torch, tangent)},
    {"_ZN3c1019UndefinedTensorImpl10_singletonE", offsetof(kp_torch, undefined)},
    {"_ZN3c1031get_default_dtype_as_scalartypeEv", offsetof(kp_torch, default_type)},
};

/* Of a library that is loaded already, for the life of the process: PyTorch cannot be unloaded. */
static bool find_symbol(const char *library, const char *name, void *to) {
    void *handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    void *address = handle ? dlsym(handle, name) : NULL;
    if (handle) dlclose(handle);
    memcpy(to, &address, sizeof address);
    return address != NULL;
}

static bool find_symbols(kp_torch *out) {
    bool all = true;
    for (size_t k = 0; all && k < sizeof symbols / sizeof *symbols; k++)
        all = find_symbol("libtorch_cpu.so", symbols[k].name, (char *)out + symbols[k].field);
    return all;
}

/* Where the at::Tensor, a pointer, lies in the object o: PyTorch keeps the sizes of a small tensor inside what the
 * pointer shows, and the exchange table lends their address.  0 if it is at none of the likely places. */
static size_t find_place(const dl_exchange *table, PyObject *o) {
    enum { IMPL_BYTES = 512 }; /* more than a TensorImpl has */
    dl_tensor t;
    if (table->borrow_from_object(o, &t) != 0) return PyErr_Clear(), 0;
    for (size_t place = sizeof(PyObject); place <= sizeof(PyObject) + sizeof(void *);
         place += sizeof(void *)) {
        uintptr_t impl;
        memcpy(&impl, (const char *)o + place, sizeof impl);
        if ((uintptr_t)t.shape > impl && (uintptr_t)t.shape - impl < IMPL_BYTES) return place;
    }
    return 0;
}

/* Whether tensor number `which` of kiln._helpers.torch_samples answers as it must. */
static bool answers(const kp_torch *torch, PyObject *o, Py_ssize_t which) {
    const void *t = kp_torch_tensor(torch, o), *impl = *(const void *const *)t;
    return torch->is_neg(t) == (which == 1) && torch->is_conj(t) == (which == 2) &&
           torch->requires_grad(impl) == (which == 3) && !torch->is_inference(t) &&
           (which == 0 || which == 3 ? (torch->meta(impl) != NULL) == (which == 3) : true) &&
           *(const void *const *)torch->tangent(impl, 0, t) == torch->undefined;
}

/* Whether the last sample, of the default dtype, is what default_type says. */
static bool answers_default(const kp_torch *torch, const dl_exchange *table, PyObject *o) {
    dl_tensor t;
    kiln_dtype dtype;
    if (table->borrow_from_object(o, &t) != 0 || kp_accept(&t, o, &dtype) < 0) return PyErr_Clear(), false;
    return (torch->default_type() == KP_TORCH_FLOAT) == (dtype == KILN_F32);
}

static long version_of(PyObject *o) {
    PyObject *version = PyObject_GetAttrString(o, "_version");
    long n = version ? PyLong_AsLong(version) : -1;
    Py_XDECREF(version);
    return n;
}

static bool try_out(kp_torch *torch, const dl_exchange *table, PyObject *samples) {
    Py_ssize_t n = PyTuple_Size(samples) - 1;
    if (!answers_default(torch, table, PyTuple_GetItem(samples, n))) return false;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = PyTuple_GetItem(samples, k);
        size_t place = find_place(table, o);
        if (k == 0) torch->place = place;
        if (!place || place != torch->place || !answers(torch, o, k)) return false;
    }
    PyObject *plain = PyTuple_GetItem(samples, 0);
    long before = version_of(plain);
    torch->bump(kp_torch_tensor(torch, plain));
    return before >= 0 && version_of(plain) == before + 1;
}

/* -- tensors of PyTorch's over memory of ours --------------------------------------------------------- */

/* What they are tried on.  Not on the stack: it must stay if a tensor over it does, against all expectation. */
static struct {
    dl_managed managed;
    int64_t sizes[2];
    double room[12]; /* for six elements of any dtype */
    int ended;
} trial;

static void end_trial(dl_managed *m) {
    (void)m;
    trial.ended++;
}

static dl_managed *new_trial(kiln_dtype dtype) {
    trial.sizes[0] = 2;
    trial.sizes[1] = 3;
    trial.ended = 0;
    trial.managed = (dl_managed){DL_MAJOR, DL_MINOR, NULL, end_trial, 0, {trial.room, DL_CPU}};
    trial.managed.tensor.ndim = 2;
    trial.managed.tensor.shape = trial.sizes;
    kp_dl_of_dtype(dtype, &trial.managed.tensor);
    return &trial.managed;
}

/* Whether o, of which a reference is taken over, is a tensor of that type over the trial, which ends with it. */
static bool is_trial(const dl_exchange *table, PyObject *o, PyTypeObject *type, kiln_dtype dtype) {
    dl_tensor t;
    kiln_dtype got;
    bool same = Py_TYPE(o) == type && table->borrow_from_object(o, &t) == 0 && kp_accept(&t, o, &got) == 0;
    same = same && got == dtype && t.ndim == 2 && t.shape[0] == 2 && t.shape[1] == 3 && t.strides[0] == 3 &&
           t.strides[1] == 1 && (char *)t.data + t.byte_offset == (char *)trial.room && trial.ended == 0;
    Py_DECREF(o);
    return same && trial.ended == 1;
}

/* What the table's function refuses is an exception of C++ to from_dlpack: so that goes first. */
static bool makes(const kp_torch *torch, const dl_exchange *table, PyTypeObject *type) {
    for (int k = 0; k < KILN_DTYPE_COUNT; k++) {
        kp_torch_function empty = {0};
        void *o = NULL;
        if (table->object_from_managed(new_trial((kiln_dtype)k), &o) != 0) return false;
        if (!is_trial(table, o, type, (kiln_dtype)k)) return false;
        kp_torch_made made = torch->from_dlpack(new_trial((kiln_dtype)k), &empty);
        o = torch->wrap(&made);
        if (!o || !is_trial(table, o, type, (kiln_dtype)k)) return false;
    }
    return true;
}

static void find_makers(kp_torch *out, const dl_exchange *table, PyTypeObject *type) {
    if (find_symbol("libtorch_cpu.so",
                    "_ZN2at19fromDLPackVersionedEP24DLManagedTensorVersionedSt8functionIFvPvEE",
                    &out->from_dlpack) &&
        find_symbol("libtorch_python.so", "_Z16THPVariable_WrapON2at10TensorBaseE", &out->wrap) &&
        makes(out, table, type))
        return;
    out->from_dlpack = NULL;
    PyErr_Clear();
}

void kp_torch_find(kp_state *st, const dl_exchange *table) {
    kp_torch found = {0};
    if (st->torch_asked) return;
    st->torch_asked = true;
    PyObject *make = find_symbols(&found) ? kp_helper(st, "torch_samples") : NULL;
    PyObject *samples = make ? PyObject_CallFunctionObjArgs(make, NULL) : NULL;
    if (samples && PyTuple_Check(samples) && try_out(&found, table, samples)) {
        find_makers(&found, table, Py_TYPE(PyTuple_GetItem(samples, 0)));
        found.borrow = st->torch.borrow;
        found.object = st->torch.object;
        st->torch = found;
    }
    Py_XDECREF(samples);
    Py_XDECREF(make);
    PyErr_Clear();
}
