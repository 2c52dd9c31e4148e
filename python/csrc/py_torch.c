/* py_torch.c - what PyTorch's own library says of one of its tensors: its functions, found in the running process.
 *
 * Python's methods for the same questions give up the GIL and take it back, which costs as much as a small call.
 * The functions take `at::Tensor const &`, as their mangled names say: a pointer to the at::Tensor inside the Python
 * object.  Where that lies is read off an object and proved on it; all of it is tried on tensors whose answers are known.
 * If anything is missing or answers otherwise, nothing of this is used and Python's methods are called.
 *
 * What DLPack's table does say and make is quicker to have from the library, too: the table's functions take the GIL
 * several times.  That part (`direct`) is found and tried by itself. */
#include <dlfcn.h>
#include <string.h>

#include "kilnpy.h"

typedef struct symbol {
    const char *library, *name;
    size_t field; /* of kp_torch */
} symbol;

#define CPU "libtorch_cpu.so"

static const symbol asked[] = {
    {CPU, "_ZN2at6native6is_negERKNS_6TensorE", offsetof(kp_torch, is_neg)},
    {CPU, "_ZN2at6native7is_conjERKNS_6TensorE", offsetof(kp_torch, is_conj)},
    {CPU, "_ZN2at6native12is_inferenceERKNS_6TensorE", offsetof(kp_torch, is_inference)},
    {CPU, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", offsetof(kp_torch, bump)},
    {CPU, "_ZNK3c1010TensorImpl13autograd_metaEv", offsetof(kp_torch, meta)},
    {CPU, "_ZNK3c1010TensorImpl13requires_gradEv", offsetof(kp_torch, requires_grad)},
    {CPU, "_ZN3c108GradMode10is_enabledEv", offsetof(kp_torch, grad_mode)},
    {CPU, "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE", offsetof(kp_torch, tangent)},
    {CPU, "_ZN3c1019UndefinedTensorImpl10_singletonE", offsetof(kp_torch, undefined)},
    {CPU, "_ZN3c1031get_default_dtype_as_scalartypeEv", offsetof(kp_torch, default_type)},
    {NULL, NULL, 0},
};

/* Those that calls can do without. */
static const symbol direct[] = {
    {CPU, "aoti_torch_get_data_ptr", offsetof(kp_torch, get_data)},
    {CPU, "aoti_torch_get_sizes", offsetof(kp_torch, get_sizes)},
    {CPU, "aoti_torch_get_strides", offsetof(kp_torch, get_strides)},
    {CPU, "aoti_torch_get_dim", offsetof(kp_torch, get_rank)},
    {CPU, "aoti_torch_get_dtype", offsetof(kp_torch, get_dtype)},
    {CPU, "aoti_torch_get_device_type", offsetof(kp_torch, get_device)},
    {CPU, "_ZN2at19fromDLPackVersionedEP24DLManagedTensorVersionedSt8functionIFvPvEE",
     offsetof(kp_torch, from_dlpack)},
    {"libtorch_python.so", "_Z16THPVariable_WrapON2at10TensorBaseE", offsetof(kp_torch, wrap)},
    {CPU, "_ZTVN3c1010TensorImplE", offsetof(kp_torch, plain_class)},
    {NULL, NULL, 0},
};

/* The libraries are loaded already, for the life of the process: PyTorch cannot be unloaded. */
static bool find_symbols(const symbol *all, kp_torch *out) {
    bool found = true;
    for (; found && all->name; all++) {
        void *library = dlopen(all->library, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
        void *address = library ? dlsym(library, all->name) : NULL;
        if (library) dlclose(library);
        memcpy((char *)out + all->field, &address, sizeof address);
        found = address != NULL;
    }
    return found;
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

/* -- in and out without the exchange table ------------------------------------------------------------ */

enum { TORCH_CPU = 0 }; /* c10::DeviceType::CPU */

/* A tensor of another class may be refused, with a message that PyTorch prints: so the class is looked at first. */
int kp_torch_lend(const kp_torch *torch, const void *tensor, kiln_tensor_header *header, kiln_tensor **out) {
    const void *impl = *(const void *const *)tensor;
    int32_t number, device;
    int64_t rank, *sizes, *strides;
    void *data;
    if (*(const void *const *)impl != torch->plain_class) return 0;
    if (torch->get_device(tensor, &device) != 0 || device != TORCH_CPU) return 0;
    if (torch->get_dtype(tensor, &number) != 0 || (uint32_t)number >= KP_TORCH_DTYPES) return 0;
    if (!torch->dtypes[number]) return 0;
    kiln_dtype dtype = (kiln_dtype)(torch->dtypes[number] - 1);
    bool complex = kp_dtype_kind(dtype) == NUM_COMPLEX;
    if (torch->is_neg(tensor) || (complex && torch->is_conj(tensor))) return 0;
    if (torch->get_rank(tensor, &rank) != 0 || rank > KILN_MAX_RANK) return 0;
    if (torch->get_sizes(tensor, &sizes) != 0 || torch->get_strides(tensor, &strides) != 0) return 0;
    size_t align = kiln_dtype_size(dtype) / (complex ? 2 : 1);
    if (torch->get_data(tensor, &data) != 0 || !data || ((uintptr_t)data & (align - 1))) return 0;
    return kiln_tensor_borrow(header, data, dtype, (int)rank, sizes, strides, 0, out) == KILN_OK;
}

/* What all of it is tried on.  Not on the stack: it must stay if a tensor over it does, against all expectation. */
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

/* Whether o, of which a reference is taken over, is a tensor of that type over the trial, which ends with it; and whether
 * it is lent as what it is. */
static bool is_trial(const kp_torch *torch, PyObject *o, PyTypeObject *type, kiln_dtype dtype) {
    kiln_tensor_header header;
    kiln_tensor *t;
    bool same = Py_TYPE(o) == type && kp_torch_lend(torch, kp_torch_tensor(torch, o), &header, &t);
    if (same) {
        const int64_t *sizes = kiln_tensor_sizes(t), *strides = kiln_tensor_strides(t);
        same = kiln_tensor_dtype(t) == dtype && kiln_tensor_rank(t) == 2 && sizes[0] == 2 && sizes[1] == 3 &&
               strides[0] == 3 && strides[1] == 1 && kiln_tensor_data(t) == trial.room && trial.ended == 0;
    }
    Py_DECREF(o);
    return same && trial.ended == 1;
}

/* One dtype.  By the table first: what that refuses would be an exception of C++ to from_dlpack. */
static bool try_dtype(kp_torch *torch, const dl_exchange *table, PyTypeObject *type, kiln_dtype dtype) {
    void *o = NULL;
    int32_t number = -1;
    kp_torch_function empty = {0};
    if (table->object_from_managed(new_trial(dtype), &o) != 0) return PyErr_Clear(), false;
    if (torch->get_dtype(kp_torch_tensor(torch, o), &number) == 0 && (uint32_t)number < KP_TORCH_DTYPES)
        torch->dtypes[number] = (uint8_t)(dtype + 1);
    if (!is_trial(torch, o, type, dtype)) return false;
    kp_torch_made made = torch->from_dlpack(new_trial(dtype), &empty);
    o = torch->wrap(&made);
    return o ? is_trial(torch, o, type, dtype) : (PyErr_Clear(), false);
}

/* What C++ calls a class's table begins two words before what objects of the class point to. */
static void find_direct(kp_torch *torch, const dl_exchange *table, PyObject *plain) {
    bool good = find_symbols(direct, torch);
    if (good) torch->plain_class = (const void *const *)torch->plain_class + 2;
    for (int k = 0; good && k < KILN_DTYPE_COUNT; k++)
        good = try_dtype(torch, table, Py_TYPE(plain), (kiln_dtype)k);
    if (!good) torch->plain_class = NULL;
}

void kp_torch_find(kp_state *st, const dl_exchange *table) {
    kp_torch found = {0};
    if (st->torch_asked) return;
    st->torch_asked = true;
    PyObject *make = find_symbols(asked, &found) ? kp_helper(st, "torch_samples") : NULL;
    PyObject *samples = make ? PyObject_CallFunctionObjArgs(make, NULL) : NULL;
    if (samples && PyTuple_Check(samples) && try_out(&found, table, samples)) {
        find_direct(&found, table, PyTuple_GetItem(samples, 0));
        found.borrow = st->torch.borrow;
        found.object = st->torch.object;
        st->torch = found;
    }
    Py_XDECREF(samples);
    Py_XDECREF(make);
    PyErr_Clear();
}
