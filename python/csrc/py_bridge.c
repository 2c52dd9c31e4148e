/* py_bridge.c - the bridge to PyTorch, loaded: which operators it takes, and what it has counted.
 *
 * The bridge (torch_bridge.cpp) is a shared object of its own, built for one PyTorch.  It calls the library by the table
 * made here, without the GIL, so a context that it was given lives as long as the process.  When the module's context or
 * its rows are replaced, what is taken is taken again.  kiln.torch decides what; nothing here knows PyTorch. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "kilnpy.h"
#include "torch_bridge.h"

/* The process's one bridge to PyTorch; NULL until it is opened.  Only the main interpreter can import kiln.torch, so only it uses the bridge. */
static const kiln_bridge *bridge;

static kiln_status call_patiently(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                  kiln_tensor **outs, size_t nouts) {
    kp_patient(true);
    kiln_status status = kiln_call(ctx, op, args, nargs, outs, nouts);
    kp_patient(false);
    return status;
}

static kiln_status call_values(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                               kiln_value *out, int patiently) {
    if (patiently) kp_patient(true);
    kiln_status status = kiln_call_values(ctx, op, args, nargs, out, 1);
    if (patiently) kp_patient(false);
    return status;
}

static void look(const kiln_tensor *t, kiln_bridge_view *out) {
    out->data = kiln_tensor_data(t);
    out->sizes = kiln_tensor_sizes(t);
    out->strides = kiln_tensor_strides(t);
    out->nelem = kiln_tensor_nelem(t);
    out->dtype = kiln_tensor_dtype(t);
    out->rank = kiln_tensor_rank(t);
}

static const kiln_op *find_for_torch(kiln_ctx *ctx, const char *name) {
    const kiln_op *op;
    return kiln_op_find(ctx, name, &op) == KILN_OK ? kiln_op_for_torch(op) : NULL;
}

static const kiln_bridge_api api = {
    .call = kiln_call,
    .call_patiently = call_patiently,
    .call_values = call_values,
    .values_release = kiln_values_release,
    .borrow = kiln_tensor_borrow,
    .new_tensor = kiln_tensor_new,
    .release = kiln_tensor_release,
    .look = look,
    .quiet = kiln_quiet,
    .last_error = kiln_last_error,
    .find = find_for_torch,
    .op_form = kiln_op_form,
    .op_nrets = kiln_op_nrets,
    .op_ret_kind = kiln_op_ret_kind,
    .op_arg_at = kiln_op_arg_at,
};

/* bridge_open(path): the version of PyTorch that it was built for. */
PyObject *kp_bridge_open(PyObject *module, PyObject *path) {
    const char *name = kp_text(path);
    if (!name) return NULL;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return PyErr_Format(PyExc_ImportError, "cannot load %U: %s", path, dlerror()), NULL;
    kiln_bridge_open_fn open = (kiln_bridge_open_fn)dlsym(library, KILN_BRIDGE_SYMBOL);
    const kiln_bridge *found = open ? open(&api) : NULL;
    if (!found || found->version != KILN_BRIDGE_VERSION) {
        dlclose(library);
        return PyErr_Format(PyExc_ImportError, "%U is no bridge of this version of Kiln", path), NULL;
    }
    bridge = found;
    kp_state_of(module)->torch.borrow = found->borrow;
    kp_state_of(module)->torch.object = found->object;
    return PyUnicode_FromString(found->torch_version);
}

static bool is_open(void) {
    if (!bridge) PyErr_SetString(PyExc_RuntimeError, "the bridge to PyTorch is not loaded");
    return bridge != NULL;
}

/* The boxes whose contexts the bridge was given.  Calls may come at any time, from any thread, so none of these is closed. */
static kp_box *lent;

/* Takes over the reference to box. */
static void lend(kp_box *box) {
    for (const kp_box *other = lent; other; other = other->next_lent)
        if (other == box) return kp_box_drop(box);
    box->next_lent = lent;
    lent = box;
}

static kiln_op_entry entry_of(const kiln_op *op) {
    return (kiln_op_entry){.name = kiln_op_name(op),
                           .schema = kiln_op_schema(op),
                           .nschema = strlen(kiln_op_schema(op)),
                           .served = kiln_op_served(op),
                           .op = kiln_op_for_torch(op)};
}

/* Finds the entry of a served operator.  If `name` is the full name of one, the entry comes from the index, mostly without parsing a
 * row.  Otherwise kiln_op_find looks the name up, which may parse a row, or sets the error. */
static kiln_status find(kiln_ctx *ctx, const char *name, kiln_op_entry *out) {
    const kiln_op *op;
    if (kiln_op_entry_find(ctx, name, out) && out->served) {
        out->op = kiln_op_for_torch(out->op);
        return KILN_OK;
    }
    kiln_status status = kiln_op_find(ctx, name, &op);
    if (status == KILN_OK) *out = entry_of(op);
    return status;
}

typedef enum question { FIT, TAKE, OWN } question;

static PyObject *ask(PyObject *module, PyObject *name, question what) {
    const char *text = is_open() ? kp_text(name) : NULL;
    kp_box *box = text ? kp_box_take(kp_state_of(module)) : NULL;
    if (!box) return NULL;
    kiln_op_entry entry;
    kiln_status status = find(box->ctx, text, &entry);
    if (status != KILN_OK) {
        kp_raise(status);
        return kp_box_drop(box), NULL;
    }
    kiln_bridge_fit fit = what == FIT ? bridge->fit(&entry, 0) : bridge->take(box->ctx, &entry, what == OWN);
    if (what == FIT || fit != KILN_FIT_OK)
        kp_box_drop(box);
    else
        lend(box);
    return PyLong_FromLong(fit);
}

/* bridge_fit(name), bridge_take(name), bridge_own(name): a kiln_bridge_fit. */
PyObject *kp_bridge_fit(PyObject *module, PyObject *name) { return ask(module, name, FIT); }
PyObject *kp_bridge_take(PyObject *module, PyObject *name) { return ask(module, name, TAKE); }
PyObject *kp_bridge_own(PyObject *module, PyObject *name) { return ask(module, name, OWN); }

/* bridge_drop(name): gives the operator back, if it is taken. */
PyObject *kp_bridge_drop(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = is_open() ? kp_text(name) : NULL;
    if (!text) return NULL;
    bridge->drop(text);
    return Py_NewRef(Py_None);
}

/* bridge_forget(name): ends one of Kiln's own, before PyTorch's operator is ended. */
PyObject *kp_bridge_forget(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = is_open() ? kp_text(name) : NULL;
    if (!text) return NULL;
    bridge->forget(text);
    return Py_NewRef(Py_None);
}

bool kp_bridge_takes(const char *name) { return bridge && bridge->takes(name); }
bool kp_bridge_owns(const char *name) {
    return bridge && kp_in_main_interpreter() && bridge->takes(name) == 2;
}
int kp_bridge_fit_own(const kiln_op *op) {
    kiln_op_entry entry = entry_of(op);
    return bridge ? (int)bridge->fit(&entry, 1) : KILN_FIT_OK;
}

/* {why: how many calls were handed back} of the k-th operator. */
static PyObject *reasons_dict(size_t k) {
    kiln_bridge_reason r;
    PyObject *back = PyDict_New();
    for (size_t n = 0; back && bridge->reason(k, n, &r); n++) {
        PyObject *calls = PyLong_FromUnsignedLongLong(r.calls);
        if (!calls || PyDict_SetItemString(back, r.text, calls) < 0) Py_CLEAR(back);
        Py_XDECREF(calls);
    }
    return back;
}

static PyObject *counts_tuple(size_t k, const kiln_bridge_counts *c) {
    PyObject *back = reasons_dict(k);
    return back ? Py_BuildValue("(sOKNO)", c->name, c->taken && !c->own ? Py_True : Py_False,
                                (unsigned long long)c->served, back, c->own ? Py_True : Py_False)
                : NULL;
}

/* bridge_counts(): (name, taken, served, {why: handed back}, own) of every operator that was ever taken, but for those of
 * Kiln's own that are not defined any more. */
PyObject *kp_bridge_counts(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    kiln_bridge_counts c;
    PyObject *list = PyList_New(0);
    for (size_t k = 0; list && bridge && bridge->counts(k, &c); k++) {
        if (c.own && !c.taken) continue;
        PyObject *one = counts_tuple(k, &c);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* bridge_taken(): the names of PyTorch's operators that are taken now, as a set. */
PyObject *kp_bridge_taken(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    kiln_bridge_counts c;
    PyObject *set = PySet_New(NULL);
    for (size_t k = 0; set && bridge && bridge->counts(k, &c); k++) {
        if (c.own || !c.taken) continue;
        PyObject *name = PyUnicode_FromString(c.name);
        if (!name || PySet_Add(set, name) < 0) Py_CLEAR(set);
        Py_XDECREF(name);
    }
    return set;
}

/* -- builds that fail ------------------------------------------------------------------------------------------------ */

static PyObject *watcher; /* called without arguments when builds have failed, or NULL; under the GIL */
static atomic_bool is_watched, is_pending;

/* On the main thread, with the GIL, between two of its instructions. */
static int tell_watcher(void *unused) {
    (void)unused;
    atomic_store(&is_pending, false);
    PyObject *call = Py_XNewRef(watcher), *done = call ? PyObject_CallNoArgs(call) : NULL;
    if (call && !done) PyErr_WriteUnraisable(call);
    Py_XDECREF(done);
    Py_XDECREF(call);
    return 0;
}

/* Builds fail on any thread, without the GIL. */
void kp_bridge_log(void *user, int level, const char *topic, const char *text) {
    (void)user;
    (void)text;
    if (level > 1 || strcmp(topic, "compile") != 0 || !atomic_load(&is_watched)) return;
    if (atomic_exchange(&is_pending, true)) return;
    if (Py_AddPendingCall(tell_watcher, NULL) < 0) atomic_store(&is_pending, false); /* too many wait */
}

/* bridge_watch(function or None) */
PyObject *kp_bridge_watch(PyObject *module, PyObject *function) {
    (void)module;
    PyObject *before = watcher;
    watcher = function == Py_None ? NULL : Py_NewRef(function);
    atomic_store(&is_watched, watcher != NULL);
    Py_XDECREF(before);
    return Py_NewRef(Py_None);
}

/* bridge_compiler(): whether Kiln can probably build kernels.  Starts no compiler to find out. */
PyObject *kp_bridge_compiler(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_box *box = kp_box_take(kp_state_of(module));
    if (!box) return NULL;
    int has = kiln_has_compiler(box->ctx);
    kp_box_drop(box);
    return PyBool_FromLong(has);
}

/* An operator that the new context does not have, or that no longer fits, is given back.  A subinterpreter's context has
 * nothing to do with operators of PyTorch's. */
int kp_bridge_again(kp_state *st) {
    const char *name;
    bool any = false;
    if (!bridge || !kp_in_main_interpreter()) return 0;
    kp_box *box = kp_box_take(st);
    if (!box) return -1;
    for (size_t k = 0; (name = bridge->taken_at(k)); k++) {
        kiln_op_entry entry;
        if (!name[0]) continue;
        bool found = find(box->ctx, name, &entry) == KILN_OK;
        if (found && bridge->take(box->ctx, &entry, 0) == KILN_FIT_OK)
            any = true;
        else
            bridge->drop(name);
    }
    if (any)
        lend(box);
    else
        kp_box_drop(box);
    return 0;
}
