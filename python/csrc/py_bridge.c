/* py_bridge.c - the bridge to PyTorch, loaded: which operators it takes, and what it has counted.
 *
 * The bridge (torch_bridge.cpp) is a shared object of its own, built for one PyTorch.  It calls the library by the table
 * made here, without the GIL, so a context that it was given lives as long as the process.  When the module's context or
 * its rows are replaced, what is taken is taken again.  kiln.torch decides what; nothing here knows PyTorch. */
#include <dlfcn.h>

#include "kilnpy.h"
#include "torch_bridge.h"

static const kiln_bridge *bridge; /* of this process; NULL until it is opened */

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
    .threads_limit = kiln_threads_limit,
    .op_name = kiln_op_name,
    .op_schema = kiln_op_schema,
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

/* The operator of that full name, and the context it belongs to. */
static const kiln_op *find(kp_box *box, PyObject *name) {
    const kiln_op *op = NULL;
    const char *text = kp_text(name);
    kiln_status status = text ? kiln_op_find(box->ctx, text, &op) : KILN_OK;
    if (status != KILN_OK) kp_raise(status);
    return op;
}

typedef enum question { FIT, TAKE, OWN } question;

static PyObject *ask(PyObject *module, PyObject *name, question what) {
    kp_box *box = is_open() ? kp_box_take(kp_state_of(module)) : NULL;
    const kiln_op *op = box ? find(box, name) : NULL;
    if (!op) return kp_box_drop(box), NULL;
    kiln_bridge_fit fit = what == FIT ? bridge->fit(op) : bridge->take(box->ctx, op, what == OWN);
    if (what == FIT || fit != KILN_FIT_OK)
        kp_box_drop(box); /* else kept: calls may come at any time, from any thread */
    return PyLong_FromLong(fit);
}

/* bridge_fit(name), bridge_take(name), bridge_own(name): a kiln_bridge_fit. */
PyObject *kp_bridge_fit(PyObject *module, PyObject *name) { return ask(module, name, FIT); }
PyObject *kp_bridge_take(PyObject *module, PyObject *name) { return ask(module, name, TAKE); }
PyObject *kp_bridge_own(PyObject *module, PyObject *name) { return ask(module, name, OWN); }

/* bridge_drop(names): these, of those that are taken. */
PyObject *kp_bridge_drop(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = is_open() ? kp_text(name) : NULL;
    if (!text) return NULL;
    bridge->drop(text);
    return Py_NewRef(Py_None);
}

bool kp_bridge_takes(const char *name) { return bridge && bridge->takes(name); }

static PyObject *counts_tuple(const kiln_bridge_counts *c) {
    static const char *const names[] = KILN_WHY_NAMES;
    PyObject *back = PyDict_New();
    for (int k = 0; back && k < KILN_WHY_COUNT; k++) {
        if (!c->handed_back[k]) continue;
        PyObject *n = PyLong_FromUnsignedLongLong(c->handed_back[k]);
        if (!n || PyDict_SetItemString(back, names[k], n) < 0) Py_CLEAR(back);
        Py_XDECREF(n);
    }
    return back ? Py_BuildValue("(sOKNO)", c->name, c->taken && !c->own ? Py_True : Py_False,
                                (unsigned long long)c->served, back, c->own ? Py_True : Py_False)
                : NULL;
}

/* bridge_counts(): (name, taken, served, {why: handed back}, own) of every operator that was ever taken. */
PyObject *kp_bridge_counts(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    kiln_bridge_counts c;
    PyObject *list = PyList_New(0);
    for (size_t k = 0; list && bridge && bridge->counts(k, &c); k++) {
        PyObject *one = counts_tuple(&c);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* An operator that the new context does not have, or that no longer fits, is given back. */
int kp_bridge_again(kp_state *st) {
    kiln_bridge_counts c;
    bool any = false;
    if (!bridge) return 0;
    kp_box *box = kp_box_take(st);
    if (!box) return -1;
    for (size_t k = 0; bridge->counts(k, &c); k++) {
        const kiln_op *op;
        if (!c.taken) continue;
        if (kiln_op_find(box->ctx, c.name, &op) == KILN_OK && bridge->take(box->ctx, op, 0) == KILN_FIT_OK)
            any = true;
        else
            bridge->drop(c.name);
    }
    if (!any) kp_box_drop(box);
    return 0;
}
