/* py_evaluate.c - kiln.evaluate(text): a formula over the caller's variables -> one call of an operator made of that formula.
 *
 * A text is kept with its names, and for each combination of types and dtypes it was given (a variant) with the operator of
 * its row, which kiln/_evaluate.py writes.  A call that is like one before looks up the text and the names, compares types, and
 * calls the operator: it reads no formula.  At most MOST variants are kept; the one that was not used for longest makes room.
 * Knows what tells arguments apart, and nothing of formulas, rows or promotion. */
#include <string.h>

#include "kilnpy.h"

enum { MOST = 1000 };

/* What tells one kind of argument from another. */
typedef struct arg_key {
    PyTypeObject *type;
    uintptr_t dtype; /* of an array: which; the address of an object, or a number */
    bool single;     /* an array without dimensions */
    bool object;     /* dtype is an object, which the variant holds */
} arg_key;

typedef struct variant {
    struct variant *next; /* of the same text */
    PyObject *op, *form;  /* Ops: the functional and the out form; NULL: all arguments are Python's numbers */
    kp_box *box;          /* the context they were made for; compared only */
    uint64_t used;        /* the clock when it was last called */
    int64_t default_type; /* PyTorch's when the row was written */
    int shown;            /* calls that print its row now: it is not freed meanwhile */
    int nargs;
    uint8_t order[KILN_MAX_ARGS]; /* the operator's k-th argument is this name's value */
    arg_key key[];                /* of each name */
} variant;

typedef struct formula {
    PyObject_HEAD PyObject *names; /* tuple of str */
    variant *variants;
} formula;

/* -- formulas --------------------------------------------------------------------------------------- */

static void variant_free(variant *v, int n) {
    for (int k = 0; k < n; k++) {
        Py_XDECREF(v->key[k].type);
        if (v->key[k].object) Py_DECREF((PyObject *)v->key[k].dtype);
    }
    Py_XDECREF(v->form);
    Py_XDECREF(v->op);
    PyMem_Free(v);
}

static int count_names(const formula *f) { return (int)PyTuple_Size(f->names); }

static int formula_traverse(PyObject *self, visitproc visit, void *arg) {
    formula *f = (formula *)self;
    Py_VISIT(Py_TYPE(self));
    for (variant *v = f->variants; v; v = v->next) {
        Py_VISIT(v->op);
        Py_VISIT(v->form);
        for (int k = 0; k < count_names(f); k++) {
            Py_VISIT(v->key[k].type);
            if (v->key[k].object) Py_VISIT((PyObject *)v->key[k].dtype);
        }
    }
    return 0;
}

static int formula_clear(PyObject *self) {
    formula *f = (formula *)self;
    while (f->variants) {
        variant *v = f->variants;
        f->variants = v->next;
        variant_free(v, count_names(f));
    }
    return 0;
}

static void formula_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    formula_clear(self);
    Py_XDECREF(((formula *)self)->names);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot formula_slots[] = {
    {Py_tp_dealloc, formula_dealloc},
    {Py_tp_traverse, formula_traverse},
    {Py_tp_clear, formula_clear},
    {0, NULL},
};
PyType_Spec kp_formula_spec = {"kiln._Formula", sizeof(formula), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                   Py_TPFLAGS_IMMUTABLETYPE,
                               formula_slots};

/* A function of kiln/_evaluate.py. */
static PyObject *translator(kp_state *st, const char *name) {
    if (kp_foreign(st) < 0) return NULL;
    PyObject *module = PyImport_ImportModule("kiln._evaluate");
    PyObject *function = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return function;
}

/* The formula of a text that was not met before; borrowed from the dict. */
static formula *formula_new(kp_state *st, PyObject *text) {
    PyObject *read = translator(st, "names");
    PyObject *names = read ? PyObject_CallFunctionObjArgs(read, text, NULL) : NULL;
    Py_XDECREF(read);
    if (names && PyTuple_Size(names) > KILN_MAX_ARGS - 1) {
        PyErr_Format(PyExc_ValueError, "kiln.evaluate: a formula has at most %d names, and this one has %zd",
                     KILN_MAX_ARGS - 1, PyTuple_Size(names));
        Py_CLEAR(names);
    }
    formula *f = names ? PyObject_GC_New(formula, st->formula_type) : NULL;
    if (!f) return Py_XDECREF(names), NULL;
    f->names = names;
    f->variants = NULL;
    PyObject_GC_Track((PyObject *)f);
    int done = PyDict_SetItem(st->formulas, text, (PyObject *)f);
    Py_DECREF((PyObject *)f);
    return done == 0 ? f : NULL;
}

/* Takes the variant out and frees it, and the formula if that was its last. */
static void forget(kp_state *st, PyObject *text, formula *f, variant *gone) {
    variant **link = &f->variants;
    while (*link && *link != gone) link = &(*link)->next;
    if (*link) *link = gone->next;
    st->nformulas--;
    int n = count_names(f);
    Py_INCREF(text);
    if (!f->variants && PyDict_DelItem(st->formulas, text) < 0) PyErr_Clear();
    Py_DECREF(text);
    variant_free(gone, n);
}

/* Takes a formula without variants out, as one that is wrong, if it is still there. */
static void forget_empty(kp_state *st, PyObject *text, const formula *f) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (PyDict_GetItemWithError(st->formulas, text) == (PyObject *)f &&
        PyDict_DelItem(st->formulas, text) < 0)
        PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

void kp_formulas_forget(kp_state *st) {
    PyDict_Clear(st->formulas);
    st->nformulas = 0;
}

/* Frees the variant that was not used for longest. */
static void forget_oldest(kp_state *st) {
    Py_ssize_t at = 0;
    PyObject *text, *value, *oldest_text = NULL;
    formula *oldest_of = NULL;
    variant *oldest = NULL;
    while (PyDict_Next(st->formulas, &at, &text, &value)) {
        for (variant *v = ((formula *)value)->variants; v; v = v->next) {
            if (v->shown || (oldest && v->used >= oldest->used)) continue;
            oldest = v;
            oldest_of = (formula *)value;
            oldest_text = text;
        }
    }
    if (oldest) forget(st, oldest_text, oldest_of, oldest);
}

/* -- values ------------------------------------------------------------------------------------------- */

/* dict[name] as a new reference; NULL without an exception if it is not there. */
static PyObject *look_up(PyObject *dict, PyObject *name) {
    if (PyDict_CheckExact(dict)) return Py_XNewRef(PyDict_GetItemWithError(dict, name));
    PyObject *value = PyObject_GetItem(dict, name);
    if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
    return value;
}

static int no_such_name(kp_state *st, PyObject *text, PyObject *name) {
    PyObject *make = translator(st, "no_such_name");
    PyObject *error = make ? PyObject_CallFunctionObjArgs(make, text, name, NULL) : NULL;
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(make);
    return -1;
}

typedef struct asked {
    PyObject *text, *locals, *globals, *out; /* borrowed; all but text may be NULL */
    bool show;
} asked;

/* The values of the formula's names, as new references; *n counts them. */
static int find_values(kp_state *st, const formula *f, const asked *a, PyObject **values, int *n) {
    for (; *n < count_names(f); ++*n) {
        PyObject *name = PyTuple_GetItem(f->names, *n);
        PyObject *value = a->locals ? look_up(a->locals, name) : NULL;
        if (!value && !PyErr_Occurred() && a->globals) value = look_up(a->globals, name);
        if (!value) return PyErr_Occurred() ? -1 : no_such_name(st, a->text, name);
        values[*n] = value;
    }
    return 0;
}

/* Does what find_values does, with the caller's variables where `locals` or `globals` is not given.  For a function's frame, Python copies
 * the local variables to a dict, which would keep arrays alive after the function has released them.  So this function empties that
 * dict, unless other code has a reference to the dict. */
static int values_of_caller(kp_state *st, const formula *f, const asked *a, PyObject **values, int *n) {
    PyObject *frame_globals = a->globals && a->locals ? NULL : PyEval_GetGlobals();
    PyObject *frame_locals = a->locals ? NULL : PyEval_GetLocals(); /* both borrowed */
    asked all = *a;
    if (!all.locals && !frame_locals) PyErr_Clear();
    Py_XINCREF(frame_locals);
    if (!all.locals) all.locals = frame_locals;
    if (!all.globals) all.globals = frame_globals;
    int done = find_values(st, f, &all, values, n);
    if (frame_locals && frame_locals != frame_globals && PyDict_CheckExact(frame_locals) &&
        Py_REFCNT(frame_locals) == 2)
        PyDict_Clear(frame_locals);
    Py_XDECREF(frame_locals);
    return done;
}

/* o.dtype and whether o.ndim is 0, for arrays of any library; -1 with an exception. */
static int asked_key(PyObject *o, arg_key *key) {
    PyObject *dtype = PyObject_GetAttrString(o, "dtype");
    PyObject *ndim = dtype ? PyObject_GetAttrString(o, "ndim") : NULL;
    key->single = ndim && PyLong_Check(ndim) && PyLong_AsLong(ndim) == 0;
    key->dtype = (uintptr_t)dtype;
    key->object = dtype != NULL;
    Py_XDECREF(ndim);
    return dtype ? 0 : -1;
}

/* The key of an argument; its type is borrowed, and a dtype that is an object belongs to the caller. */
static int key_of(kp_state *st, PyObject *o, arg_key *key) {
    *key = (arg_key){.type = Py_TYPE(o)};
    const kp_type *type = kp_type_of(st, o);
    if (!type) return -1;
    if (type->kind == KP_KILN) {
        const kiln_tensor *t = ((kp_tensor *)o)->t;
        key->dtype = (uintptr_t)kiln_tensor_dtype(t);
        key->single = kiln_tensor_rank(t) == 0;
    } else if (type->kind == KP_NUMPY) {
        PyObject *dtype = kp_numpy_dtype(st, o, &key->single);
        if (!dtype) return asked_key(o, key);
        key->dtype = (uintptr_t)Py_NewRef(dtype);
        key->object = true;
    } else if (type->kind > KP_KILN && type->kind != KP_REFUSED) {
        if (asked_key(o, key) < 0) PyErr_Clear(); /* the translator says what is wrong with o */
    }
    return 0;
}

static bool same_key(const arg_key *a, const arg_key *b) {
    return a->type == b->type && a->dtype == b->dtype && a->single == b->single;
}

static int64_t default_type(const kp_state *st) {
    return st->torch.place ? st->torch.default_type() : KP_TORCH_FLOAT;
}

/* -- variants ----------------------------------------------------------------------------------------- */

/* The variant for such arguments, which becomes the first; NULL: there is none. */
static variant *find_variant(kp_state *st, formula *f, const arg_key *key, int n) {
    int64_t type = default_type(st);
    for (variant **link = &f->variants; *link; link = &(*link)->next) {
        variant *v = *link;
        int k = 0;
        while (k < n && same_key(&v->key[k], &key[k])) k++;
        if (k < n || v->default_type != type || (v->op && v->box != st->box)) continue;
        *link = v->next;
        v->next = f->variants;
        f->variants = v;
        return v;
    }
    return NULL;
}

/* Makes the operator of a row, and sets the order of its arguments. */
static int make_operator(kp_state *st, variant *v, PyObject *row, PyObject *order) {
    char *places;
    Py_ssize_t n;
    if (row == Py_None) return 0;
    if (PyBytes_AsStringAndSize(order, &places, &n) < 0) return -1;
    v->nargs = (int)n;
    memcpy(v->order, places, (size_t)n);
    kp_box *box = kp_box_take(st);
    if (!box) return -1;
    v->box = box;
    v->op = kp_op_lone(st, box, row, &v->form);
    kp_box_drop(box);
    return v->op ? 0 : -1;
}

/* Writes the formula below an exception's text. */
static void blame_formula(PyObject *text) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *args = value ? PyObject_GetAttrString(value, "args") : NULL;
    PyObject *said = args && PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
    PyObject *more = said && PyUnicode_Check(said)
                         ? PyUnicode_FromFormat("%U\n  in the formula %U", said, text)
                         : NULL;
    PyObject *changed = more ? PyTuple_Pack(1, more) : NULL;
    if (changed) PyObject_SetAttrString(value, "args", changed);
    Py_XDECREF(changed);
    Py_XDECREF(more);
    Py_XDECREF(args);
    PyErr_Restore(type, value, trace);
}

/* A new variant of f for these values, of which key says the kinds; NULL with an exception. */
static variant *variant_new(kp_state *st, PyObject *text, formula *f, PyObject *const *values,
                            const arg_key *key, int n) {
    PyObject *write = translator(st, "row"), *row = NULL, *order = NULL, *list = PyTuple_New(n);
    variant *v = PyMem_Calloc(1, sizeof *v + (size_t)n * sizeof *v->key);
    if (!v) PyErr_NoMemory();
    for (int k = 0; v && list && k < n; k++) PyTuple_SetItem(list, k, Py_NewRef(values[k]));
    PyObject *pair = v && list && write ? PyObject_CallFunctionObjArgs(write, text, f->names, list, NULL)
                                        : NULL;
    int done = pair && PyArg_ParseTuple(pair, "OO", &row, &order) ? make_operator(st, v, row, order) : -1;
    if (done < 0 && row) blame_formula(text);
    Py_XDECREF(pair);
    Py_XDECREF(list);
    Py_XDECREF(write);
    if (done < 0) return PyMem_Free(v), NULL;
    for (int k = 0; k < n; k++) {
        v->key[k] = key[k];
        Py_INCREF(key[k].type);
        if (key[k].object) Py_INCREF((PyObject *)key[k].dtype);
    }
    v->default_type = default_type(st);
    v->next = f->variants;
    f->variants = v;
    v->used = ++st->formula_clock;
    if (PyDict_GetItemWithError(st->formulas, text) != (PyObject *)f)
        return v; /* it was forgotten meanwhile */
    if (++st->nformulas > MOST) forget_oldest(st);
    return v;
}

/* -- the call ----------------------------------------------------------------------------------------- */

static int read_arguments(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, asked *a) {
    static const char *const names[] = {"ex", "local_dict", "global_dict", "out", "show"};
    PyObject *given[5] = {NULL};
    if (nargs > 4)
        return PyErr_SetString(PyExc_TypeError,
                               "kiln.evaluate takes ex, local_dict, global_dict and out by position"),
               -1;
    for (Py_ssize_t k = 0; k < nargs; k++) given[k] = args[k];
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_Size(kwnames); k++) {
        int which = 0;
        PyObject *name = PyTuple_GetItem(kwnames, k);
        while (which < 5 && PyUnicode_CompareWithASCIIString(name, names[which]) != 0) which++;
        if (which == 5 || given[which]) {
            PyErr_Format(
                PyExc_TypeError,
                which == 5
                    ? "kiln.evaluate has no argument '%U': expected ex, local_dict, global_dict, out or show"
                    : "kiln.evaluate was given '%U' twice",
                name);
            return -1;
        }
        given[which] = args[nargs + k];
    }
    if (!given[0] || !PyUnicode_CheckExact(given[0])) {
        PyErr_Format(PyExc_TypeError, "kiln.evaluate: expected a formula as str, found %.100R",
                     given[0] ? given[0] : Py_None);
        return -1;
    }
    for (int k = 1; k < 4; k++)
        if (given[k] == Py_None) given[k] = NULL;
    int show = given[4] ? PyObject_IsTrue(given[4]) : 0;
    *a = (asked){given[0], given[1], given[2], given[3], show > 0};
    return show < 0 ? -1 : 0;
}

/* sys.stdout may run code that forgets formulas and that shows this one. */
static int show_row(variant *v) {
    PyObject *row = v->op ? PyObject_GetAttrString(v->op, "row")
                          : PyUnicode_FromString("a formula of numbers alone has no row\n");
    const char *text = row ? kp_text(row) : NULL;
    v->shown++;
    if (text) PySys_FormatStdout("%s", text);
    v->shown--;
    Py_XDECREF(row);
    return text ? 0 : -1;
}

/* A formula of Python's numbers alone. */
static PyObject *of_numbers(kp_state *st, const asked *a, const formula *f, PyObject *const *values, int n) {
    PyObject *compute = translator(st, "of_numbers"), *list = PyTuple_New(n), *result = NULL;
    for (int k = 0; list && k < n; k++) PyTuple_SetItem(list, k, Py_NewRef(values[k]));
    if (compute && list)
        result = PyObject_CallFunctionObjArgs(compute, a->text, f->names, list, a->out ? a->out : Py_None,
                                              NULL);
    Py_XDECREF(list);
    Py_XDECREF(compute);
    return result;
}

/* The variant may be freed by what a call runs: it is not used after the call. */
static PyObject *call_variant(kp_state *st, const asked *a, const variant *v, PyObject *const *values) {
    PyObject *args[KILN_MAX_ARGS + 1];
    int n = v->nargs;
    for (int k = 0; k < n; k++) args[k] = values[v->order[k]];
    if (a->out) args[n] = a->out;
    PyObject *op = Py_NewRef(a->out ? v->form : v->op);
    PyObject *result = kp_op_call(op, args, n, a->out ? st->out_keyword : NULL);
    Py_DECREF(op);
    if (!result) blame_formula(a->text);
    return result;
}

static PyObject *call_with(kp_state *st, const asked *a, formula *f, PyObject *const *values, int n) {
    arg_key key[KILN_MAX_ARGS];
    int nkeys = 0;
    PyObject *result = NULL;
    while (nkeys < n && key_of(st, values[nkeys], &key[nkeys]) == 0) nkeys++;
    variant *v = nkeys == n ? find_variant(st, f, key, n) : NULL;
    if (!v && nkeys == n) v = variant_new(st, a->text, f, values, key, n);
    for (int k = 0; k < nkeys; k++)
        if (key[k].object) Py_DECREF((PyObject *)key[k].dtype);
    if (!v || (a->show && show_row(v) < 0)) return NULL;
    v->used = ++st->formula_clock;
    result = v->op ? call_variant(st, a, v, values) : of_numbers(st, a, f, values, n);
    return result;
}

PyObject *kp_evaluate(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    kp_state *st = kp_state_of(module);
    PyObject *values[KILN_MAX_ARGS], *result = NULL;
    asked a;
    int n = 0;
    if (read_arguments(args, nargs, kwnames, &a) < 0) return NULL;
    if (st->closed) return PyErr_SetString(PyExc_RuntimeError, "kiln is being unloaded"), NULL;
    formula *f = (formula *)PyDict_GetItemWithError(st->formulas, a.text);
    if (!f && !PyErr_Occurred()) f = formula_new(st, a.text);
    if (!f) return NULL;
    Py_INCREF((PyObject *)f); /* code that an argument runs may have the formula forgotten */
    if (values_of_caller(st, f, &a, values, &n) == 0) result = call_with(st, &a, f, values, n);
    while (n > 0) Py_DECREF(values[--n]);
    if (!f->variants) forget_empty(st, a.text, f);
    Py_DECREF((PyObject *)f);
    return result;
}
