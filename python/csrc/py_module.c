/* py_module.c - the module kiln._kiln: its state, its context and its functions.
 *
 * The context is opened by the first use and replaced by configure; calls that run meanwhile keep theirs.
 * At the interpreter's end the state is cleared while objects may still live: they then raise. */
#include <string.h>

#include "kilnpy.h"
#include "py_graph.h"

static struct PyModuleDef module_def;

kp_state *kp_state_of(PyObject *module) { return PyModule_GetState(module); }
kp_state *kp_state_of_type(PyTypeObject *type) { return PyType_GetModuleState(type); }

bool kp_in_main_interpreter(void) { return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0; }

/* -- errors ---------------------------------------------------------------------------------------- */

static PyObject *exception_for(kiln_status status) {
    switch (status) {
    case KILN_E_NOMEM: return PyExc_MemoryError;
    case KILN_E_TYPE: return PyExc_TypeError;
    case KILN_E_INDEX: return PyExc_IndexError;
    case KILN_E_VALUE: return PyExc_ValueError;
    case KILN_E_UNSUP:
    case KILN_E_NOTFOUND: return PyExc_NotImplementedError;
    default: return PyExc_RuntimeError;
    }
}

/* What Python's users write instead, behind the library's message; "" where nothing is known. */
static const char *advice_for(kiln_status status, const char *text) {
    bool is_list = status == KILN_E_TYPE && strstr(text, "must be Tensor, not list");
    return is_list ? "; kiln.Tensor(...) or numpy.array(...) makes a tensor of a list" : "";
}

static void raise_as(PyObject *exception, kiln_status status) {
    const char *text = kiln_last_error();
    if (!text[0]) text = kiln_status_text(status);
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    const char *advice = advice_for(status, text);
    if (message && advice[0]) {
        PyObject *longer = PyUnicode_FromFormat("%U%s", message, advice);
        Py_DECREF(message);
        message = longer;
    }
    if (message) PyErr_SetObject(exception, message);
    Py_XDECREF(message);
}

void kp_raise(kiln_status status) {
    if (status != KILN_E_INTERRUPTED || !PyErr_Occurred()) raise_as(exception_for(status), status);
}

PyObject *kp_text_or_raise(kiln_status status, char *text) {
    if (status != KILN_OK) return kp_raise(status), NULL;
    PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    kiln_text_free(text);
    return out;
}

void kp_raise_value(kiln_status status) {
    bool given = status == KILN_E_ARG || status == KILN_E_PARSE || status == KILN_E_LIMIT ||
                 status == KILN_E_VERIFY;
    raise_as(given ? PyExc_ValueError : exception_for(status), status);
}

/* Only of Python's own exceptions with one text: others mean more than their text says. */
static bool is_plain_error(PyObject *type) {
    PyObject *const plain[] = {PyExc_TypeError,           PyExc_ValueError,    PyExc_RuntimeError,
                               PyExc_NotImplementedError, PyExc_OverflowError, PyExc_BufferError};
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
        if (type == plain[k]) return true;
    return false;
}

/* The exception stays the same object, with its cause and its traceback. */
void kp_blame(const char *op, const char *arg) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *args = is_plain_error(type) ? PyObject_GetAttrString(value, "args") : NULL;
    PyObject *text = args && PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
    PyObject *more = NULL;
    if (text && PyUnicode_Check(text))
        more = arg ? PyUnicode_FromFormat("%s: argument '%s': %U", op, arg, text)
                   : PyUnicode_FromFormat("%s: %U", op, text);
    PyObject *changed = more ? PyTuple_Pack(1, more) : NULL;
    if (changed) PyObject_SetAttrString(value, "args", changed);
    Py_XDECREF(changed);
    Py_XDECREF(more);
    Py_XDECREF(args);
    PyErr_Restore(type, value, trace); /* in the place of any that came up here */
}

PyObject *kp_helper(kp_state *st, const char *name) {
    if (st->closed) return PyErr_SetString(PyExc_RuntimeError, "kiln is being unloaded"), NULL;
    if (kp_foreign(st) < 0) return NULL;
    if (!st->helpers) st->helpers = PyImport_ImportModule("kiln._helpers");
    return st->helpers ? PyObject_GetAttrString(st->helpers, name) : NULL;
}

int kp_help(kp_state *st, const char *name, PyObject *a, PyObject *b) {
    PyObject *call = kp_helper(st, name);
    PyObject *done = call ? PyObject_CallFunctionObjArgs(call, a, b, NULL) : NULL;
    Py_XDECREF(call);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* -- the context ----------------------------------------------------------------------------------- */

void kp_box_close(kp_box *box) {
    kiln_close(box->ctx);
    PyMem_Free(box);
}

/* A setting's text, or NULL where it is absent.  Borrowed from the dict.  *bad is set with an exception. */
static const char *setting(PyObject *settings, const char *name, bool *bad) {
    PyObject *value = PyDict_GetItemString(settings, name);
    const char *text = value ? kp_text(value) : NULL;
    if (value && !text) *bad = true;
    return text;
}

/* A setting's number, or 0 where it is absent. */
static long count_setting(PyObject *settings, const char *name, bool *bad) {
    PyObject *value = PyDict_GetItemString(settings, name);
    int overflow = 0;
    long n = value ? PyLong_AsLongAndOverflow(value, &overflow) : 0;
    if (n == -1 && PyErr_Occurred()) *bad = true;
    if (!*bad && (overflow || n < 0 || n > INT32_MAX)) {
        PyErr_Format(PyExc_ValueError, "%s must be from 0 (the default) to %d, but is %R", name, INT32_MAX,
                     value);
        *bad = true;
    }
    return n;
}

static int mode_of(const char *text, kiln_mode *out) {
    static const struct {
        const char *name;
        kiln_mode mode;
    } modes[] = {{"default", KILN_MODE_DEFAULT},
                 {"tiered", KILN_MODE_TIERED},
                 {"sync", KILN_MODE_SYNC},
                 {"interp", KILN_MODE_INTERP},
                 {"frozen", KILN_MODE_FROZEN}};
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        if (strcmp(modes[k].name, text) != 0) continue;
        *out = modes[k].mode;
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "unknown mode '%s': expected default, tiered, sync, interp or frozen",
                 text);
    return -1;
}

/* *cache: NULL for "default".  -1 with an exception. */
static int check_cache(const char **cache) {
    static const char *const known[] = {"disk", "memory", "off"};
    if (!*cache) return 0;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strcmp(known[k], *cache) == 0) return 0;
    if (strcmp(*cache, "default") == 0) return *cache = NULL, 0;
    PyErr_Format(PyExc_ValueError, "unknown cache '%s': expected default, disk, memory or off", *cache);
    return -1;
}

/* Settings of the kernels that are kept. */
static void kept_settings(PyObject *settings, kiln_config *config, bool *bad) {
    PyObject *size = PyDict_GetItemString(settings, "cache_size");
    config->cache = setting(settings, "cache", bad);
    config->key_file = setting(settings, "key_file", bad);
    config->packs = setting(settings, "packs", bad);
    config->redis_url = setting(settings, "redis_url", bad);
    config->cache_shared = count_setting(settings, "cache_shared", bad) != 0;
    if (!*bad && check_cache(&config->cache) < 0) *bad = true;
    config->cache_size = size && !*bad ? PyLong_AsSize_t(size) : 0;
    if (*bad || !PyErr_Occurred()) return;
    PyErr_Format(PyExc_ValueError, "cache_size must be a number of bytes, or 0 (the default), but is %R",
                 size);
    *bad = true;
}

static int open_context(kp_state *st, PyObject *settings, kiln_ctx **out) {
    bool bad = false;
    kiln_config config = {.size = sizeof config, .interrupted = kp_interrupted, .log = kp_log};
    const char *mode = setting(settings, "mode", &bad);
    config.cc = setting(settings, "cc", &bad);
    config.cache_dir = setting(settings, "cache_dir", &bad);
    config.isa = setting(settings, "isa", &bad);
    config.dump_dir = setting(settings, "dump_dir", &bad);
    config.max_kernels = (size_t)count_setting(settings, "max_kernels", &bad);
    config.threads = (int)count_setting(settings, "threads", &bad);
    kept_settings(settings, &config, &bad);
    if (bad || (mode && mode_of(mode, &config.mode) < 0) || kp_log_open() < 0 || kp_stats_check() < 0)
        return -1;
    kiln_status status = kiln_open(&config, out);
    if (status != KILN_OK) return kp_raise_value(status), -1;
    if (kp_rows_replay(st, *out) == 0) return 0;
    kiln_close(*out);
    return -1;
}

/* Numbers among the settings may have code that calls configure: both then take effect, this one last. */
static int reopen_with(kp_state *st, PyObject *settings) {
    kiln_ctx *ctx;
    if (st->closed) return PyErr_SetString(PyExc_RuntimeError, "kiln is being unloaded"), -1;
    if (open_context(st, settings, &ctx) < 0) return -1;
    kp_box *box = PyMem_Malloc(sizeof *box);
    if (!box) return kiln_close(ctx), PyErr_NoMemory(), -1;
    *box = (kp_box){.ctx = ctx, .refs = 1};
    kp_box *old = st->box;
    PyObject *before = st->settings;
    st->box = box;
    st->epoch++;
    st->settings = Py_NewRef(settings);
    Py_XDECREF(before);
    kp_formulas_forget(st);
    kp_box_drop(old);
    return 0;
}

int kp_reopen(kp_state *st) {
    PyObject *settings = Py_XNewRef(st->settings);
    int done = reopen_with(st, settings);
    Py_XDECREF(settings);
    return done;
}

/* -- functions: operators -------------------------------------------------------------------------- */

static PyObject *f_op(PyObject *module, PyObject *name) {
    PyObject *op = kp_op_get(kp_state_of(module), name);
    PyObject *callable = op ? kp_op_callable(op) : NULL;
    Py_XDECREF(op);
    return callable;
}

static PyObject *f_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    if (nargs < 1) return PyErr_SetString(PyExc_TypeError, "call() needs an operator's name"), NULL;
    PyObject *op = kp_op_get(kp_state_of(module), args[0]);
    PyObject *out = op ? kp_op_call(op, args + 1, nargs - 1, kwnames) : NULL;
    Py_XDECREF(op);
    return out;
}

static PyObject *f_ops(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_box *box = kp_box_take(kp_state_of(module));
    PyObject *list = box ? PyList_New(0) : NULL;
    for (size_t k = 0; list && k < kiln_op_count(box->ctx); k++) {
        kiln_op_entry entry;
        bool served = kiln_op_entry_at(box->ctx, k, &entry) && entry.served;
        PyObject *name = served ? PyUnicode_FromString(entry.name) : Py_NewRef(Py_None);
        if (!name || (name != Py_None && PyList_Append(list, name) < 0)) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    kp_box_drop(box);
    return list;
}

/* -- functions: the library ------------------------------------------------------------------------ */

static PyObject *f_stats(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_box *box = kp_box_take(kp_state_of(module));
    if (!box) return NULL;
    kiln_stats now;
    kiln_stats before = box->before;
    kiln_stats_get(box->ctx, &now, sizeof now);
    kp_box_drop(box);
    before.kernels = before.bytes_cached = 0; /* they say what there is, not what happened */
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
#define C(name, meaning) {#name, now.name - before.name},
#include "kiln/counter.def"
#undef C
    };
    PyObject *dict = PyDict_New();
    for (size_t k = 0; dict && k < sizeof rows / sizeof *rows; k++) {
        PyObject *value = PyLong_FromUnsignedLongLong(rows[k].value);
        if (!value || PyDict_SetItemString(dict, rows[k].name, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* threads(): whose threads run large calls of this thread now, and how many one call may use. */
static PyObject *f_threads(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_box *box = kp_box_take(kp_state_of(module));
    int n;
    if (!box) return NULL;
    const char *owner = kiln_threads_owner(box->ctx, &n);
    kp_box_drop(box);
    return Py_BuildValue("(si)", owner, n);
}

static PyObject *f_wait_idle(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_state *st = kp_state_of(module);
    kp_box *box = kp_box_take(st);
    kiln_status status;
    if (!box) return NULL;
    do {
        kp_wait_begin();
        status = kiln_wait_idle(box->ctx);
        kp_wait_end();
    } while (kp_wait_again(st, status));
    kp_box_drop(box);
    return status == KILN_OK ? Py_NewRef(Py_None) : (kp_raise(status), NULL);
}

static PyObject *f_trim(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    kiln_trim();
    return Py_NewRef(Py_None);
}

static PyObject *f_last_tier(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyUnicode_FromString(kiln_last_tier());
}

static PyObject *f_show_config(PyObject *module, PyObject *unused) {
    (void)unused;
    kp_state *st = kp_state_of(module);
    char *text = NULL;
    kiln_status status;
    kp_box *box = kp_box_take(st);
    if (!box) return NULL;
    do {
        kp_wait_begin();
        status = kiln_doctor(box->ctx, &text);
        kp_wait_end();
    } while (kp_wait_again(st, status));
    PyObject *out = kp_text_or_raise(status, text);
    kp_box_drop(box);
    return out;
}

/* configure(settings): the whole dict of settings; on failure the context and the settings stay. */
static PyObject *f_configure(PyObject *module, PyObject *settings) {
    kp_state *st = kp_state_of(module);
    if (!PyDict_Check(settings)) return PyErr_SetString(PyExc_TypeError, "settings must be a dict"), NULL;
    PyObject *copy = PyDict_Copy(settings);
    int done = copy ? reopen_with(st, copy) : -1;
    Py_XDECREF(copy);
    if (done == 0) done = kp_bridge_again(st);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

/* The mode that settings ask for; -1 with an exception. */
static int mode_in(PyObject *settings, kiln_mode *out) {
    bool bad = false;
    const char *text = setting(settings, "mode", &bad);
    *out = KILN_MODE_DEFAULT;
    return bad ? -1 : text ? mode_of(text, out) : 0;
}

/* set_mode(settings): the same where no setting but the mode has changed: the context stays, with its kernels.  Counters start at zero. */
static PyObject *f_set_mode(PyObject *module, PyObject *settings) {
    kp_state *st = kp_state_of(module);
    kiln_mode mode;
    if (!st->box || !PyDict_Check(settings)) return f_configure(module, settings);
    PyObject *copy = PyDict_Copy(settings);
    if (!copy || mode_in(copy, &mode) < 0) return Py_XDECREF(copy), NULL;
    kp_box *box = kp_box_take(st);
    kiln_status status = box ? kiln_mode_set(box->ctx, mode) : KILN_OK;
    if (box && status == KILN_OK) {
        PyObject *old = st->settings;
        kiln_stats_get(box->ctx, &box->before, sizeof box->before);
        st->settings = copy;
        copy = old;
    }
    Py_XDECREF(copy);
    bool failed = !box || status != KILN_OK;
    if (box && failed) kp_raise_value(status);
    kp_box_drop(box);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* -- the module ------------------------------------------------------------------------------------ */

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddType(module, (PyTypeObject *)type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* Types that only the module's Python side makes. */
static int add_graph_types(PyObject *module) {
    PyTypeObject *graph = add_type(module, &kp_graph_spec);
    PyTypeObject *schemas = graph ? add_type(module, &kp_schemas_spec) : NULL;
    Py_XDECREF(graph);
    Py_XDECREF(schemas);
    return schemas ? 0 : -1;
}

static int module_exec(PyObject *module) {
    kp_state *st = kp_state_of(module);
    st->epoch = 1;
    st->ops = PyDict_New();
    st->formulas = PyDict_New();
    st->out_keyword = Py_BuildValue("(s)", "out");
    st->rows = PyList_New(0);
    st->texts = PySet_New(NULL);
    st->settings = PyDict_New();
    if (!st->ops || !st->rows || !st->texts || !st->settings || !st->formulas || !st->out_keyword) return -1;
    st->dtype_type = add_type(module, &kp_dtype_spec);
    st->tensor_type = st->dtype_type ? add_type(module, &kp_tensor_spec) : NULL;
    st->op_type = st->tensor_type ? add_type(module, &kp_op_spec) : NULL;
    st->formula_type = st->op_type ? (PyTypeObject *)PyType_FromModuleAndSpec(module, &kp_formula_spec, NULL)
                                   : NULL;
    if (!st->formula_type || kp_types_init(st) < 0 || kp_dtypes_init(st, module) < 0) return -1;
    /* NumPy's operators then leave `array + tensor` to Tensor. */
    if (PyObject_SetAttrString((PyObject *)st->tensor_type, "__array_ufunc__", Py_None) < 0) return -1;
    if (add_graph_types(module) < 0 || kp_log_init(module) < 0) return -1;
    PyObject *is_main = kp_in_main_interpreter() ? Py_True : Py_False;
    if (PyModule_AddObjectRef(module, "in_main_interpreter", is_main) < 0) return -1;
    kp_tensor_spares(1);
    st->spares = true;
    return PyModule_AddStringConstant(module, "__version__", kiln_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    kp_state *st = kp_state_of(module);
    if (!st) return 0;
    Py_VISIT(st->tensor_type);
    Py_VISIT(st->op_type);
    Py_VISIT(st->dtype_type);
    Py_VISIT(st->formula_type);
    Py_VISIT(st->formulas);
    Py_VISIT(st->helpers);
    Py_VISIT(st->ops);
    Py_VISIT(st->rows);
    Py_VISIT(st->texts);
    Py_VISIT(st->settings);
    for (int k = 0; k < KILN_DTYPE_COUNT; k++) Py_VISIT(st->dtypes[k]);
    for (int k = 0; k < st->nnamed; k++) Py_VISIT(st->named[k].op);
    for (int k = 0; k < st->ntypes; k++) Py_VISIT(st->types[k].type);
    return 0;
}

static int module_clear(PyObject *module) {
    kp_state *st = kp_state_of(module);
    if (!st) return 0;
    st->closed = true;
    if (st->spares) kp_tensor_spares(-1);
    st->spares = false;
    kp_types_drop(st);
    while (st->nnamed > 0) Py_CLEAR(st->named[--st->nnamed].op);
    Py_CLEAR(st->helpers);
    Py_CLEAR(st->formulas);
    Py_CLEAR(st->out_keyword);
    Py_CLEAR(st->ops);
    Py_CLEAR(st->rows);
    Py_CLEAR(st->texts);
    Py_CLEAR(st->settings);
    for (int k = 0; k < KILN_DTYPE_COUNT; k++) Py_CLEAR(st->dtypes[k]);
    Py_CLEAR(st->tensor_type);
    Py_CLEAR(st->op_type);
    Py_CLEAR(st->dtype_type);
    Py_CLEAR(st->formula_type);
    kp_box *box = st->box;
    st->box = NULL;
    kp_box_drop(box);
    kp_drop_left();
    return 0;
}

static void module_free(void *module) { module_clear(module); }

#define FAST(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef functions[] = {
    {"op", f_op, METH_O, "op(name, /)\n--\n\nThe operator as a fast callable."},
    {"call", FAST(f_call), METH_FASTCALL | METH_KEYWORDS,
     "call(name, /, *args, **kwargs)\n\nCalls an operator by name."},
    {"evaluate", FAST(kp_evaluate), METH_FASTCALL | METH_KEYWORDS,
     "evaluate(ex, local_dict=None, global_dict=None, out=None, *, show=False)\n--\n\n"
     "The value of a formula, element by element, in one pass over its arrays: evaluate(\"2*x + sin(y)**2\").\n\n"
     "Names are those of the caller's local variables, else of its global ones; or of local_dict, else of global_dict.  They may be NumPy\n"
     "arrays and scalars, torch tensors, kiln.Tensors and Python's numbers; another number is not another kernel.  A formula has Python's\n"
     "operators, where(c, a, b), and NumPy's names of functions.  If all arrays are NumPy's, dtypes are those that NumPy gives for each\n"
     "operation, and else those of PyTorch.  The result is of the kind of the arrays, or is written to out and is that.  show=True prints\n"
     "the row that the formula becomes.  docs/PYTHON.md has the whole of it."},
    {"ops", f_ops, METH_NOARGS, "ops()\n--\n\nThe names of the operators that are served."},
    {"load_ops", (PyCFunction)(void *)kp_load_ops, METH_VARARGS | METH_KEYWORDS,
     "load_ops(text, /, *, replace=False)"},
    {"draft_ops", kp_draft_ops, METH_VARARGS, "draft_ops(text, gradients, /)"},
    {"define_rows", kp_define_rows, METH_VARARGS, "define_rows(rows, gone, /)"},
    {"explain", FAST(kp_explain), METH_FASTCALL | METH_KEYWORDS, "explain(name, stage, /, *args, **kwargs)"},
    {"infer_results", FAST(kp_infer_results), METH_FASTCALL | METH_KEYWORDS,
     "infer_results(name, /, *args, **kwargs)"},
    {"prepare", FAST(kp_prepare), METH_FASTCALL | METH_KEYWORDS,
     "prepare(name, /, *args, **kwargs)\n\nCompiles what call(name, *args, **kwargs) would run, in any mode but frozen, and returns when that is "
     "done.\n\nNothing is computed.  Raises what the call would raise for its arguments, and RuntimeError if a kernel cannot be "
     "built."},
    {"op_grad", kp_op_grad, METH_VARARGS, "op_grad(name, arg, /)"},
    {"explain_text", kp_explain_text, METH_VARARGS, "explain_text(call, stage, /)"},
    {"stats", f_stats, METH_NOARGS, "stats()\n--\n\nEvery counter, by name."},
    {"kernels", kp_kernels, METH_NOARGS, "kernels()"},
    {"packed_ops", kp_packed_ops, METH_NOARGS, "packed_ops()"},
    {"stats_text", kp_stats_text, METH_NOARGS, "stats_text()"},
    {"threads", f_threads, METH_NOARGS,
     "threads()\n--\n\nWhose threads run large calls, and how many one call may use."},
    {"wait_idle", f_wait_idle, METH_NOARGS,
     "wait_idle()\n--\n\nReturns when no compile is running or queued."},
    {"trim", f_trim, METH_NOARGS, "trim()\n--\n\nGives memory kept for reuse back to the system."},
    {"last_tier", f_last_tier, METH_NOARGS,
     "last_tier()\n--\n\nWhat ran this thread's last call: 'compiled' or 'interp'."},
    {"show_config", f_show_config, METH_NOARGS,
     "show_config()\n--\n\nWhat was found on this machine, as text."},
    {"configure", f_configure, METH_O, "configure(settings, /)"},
    {"set_mode", f_set_mode, METH_O, "set_mode(settings, /)"},
    {"bridge_open", kp_bridge_open, METH_O, "bridge_open(path, /)"},
    {"bridge_fit", kp_bridge_fit, METH_O, "bridge_fit(name, /)"},
    {"bridge_take", kp_bridge_take, METH_O, "bridge_take(name, /)"},
    {"bridge_own", kp_bridge_own, METH_O, "bridge_own(name, /)"},
    {"bridge_drop", kp_bridge_drop, METH_O, "bridge_drop(name, /)"},
    {"bridge_forget", kp_bridge_forget, METH_O, "bridge_forget(name, /)"},
    {"bridge_taken", kp_bridge_taken, METH_NOARGS, "bridge_taken()"},
    {"bridge_counts", kp_bridge_counts, METH_NOARGS, "bridge_counts()"},
    {"bridge_watch", kp_bridge_watch, METH_O, "bridge_watch(function, /)"},
    {"bridge_compiler", kp_bridge_compiler, METH_NOARGS, "bridge_compiler()"},
    {"restore", kp_restore, METH_VARARGS, "restore(dtype, shape, data, /)\n--\n\nA pickled Tensor."},
    {0},
};
static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};
static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,         .m_name = "kiln._kiln",  .m_doc = "The C side of module kiln.",
    .m_size = sizeof(kp_state),    .m_methods = functions,  .m_slots = module_slots,
    .m_traverse = module_traverse, .m_clear = module_clear, .m_free = module_free,
};

__attribute__((visibility("default"))) PyObject *PyInit__kiln(void) { return PyModuleDef_Init(&module_def); }
