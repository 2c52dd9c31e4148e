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

/* The library is loaded already, for the life of the process: PyTorch cannot be unloaded. */
static bool find_symbols(kp_torch *out) {
    void *library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    bool all = library != NULL;
    for (size_t k = 0; all && k < sizeof symbols / sizeof *symbols; k++) {
        void *address = dlsym(library, symbols[k].name);
        memcpy((char *)out + symbols[k].field, &address, sizeof address);
        all = address != NULL;
    }
    if (library) dlclose(library);
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

void kp_torch_find(kp_state *st, const dl_exchange *table) {
    kp_torch found = {0};
    if (st->torch_asked) return;
    st->torch_asked = true;
    PyObject *make = find_symbols(&found) ? kp_helper(st, "torch_samples") : NULL;
    PyObject *samples = make ? PyObject_CallFunctionObjArgs(make, NULL) : NULL;
    if (samples && PyTuple_Check(samples) && try_out(&found, table, samples)) {
        found.borrow = st->torch.borrow;
        found.object = st->torch.object;
        st->torch = found;
    }
    Py_XDECREF(samples);
    Py_XDECREF(make);
    PyErr_Clear();
}
