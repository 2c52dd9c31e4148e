/* py_graph.c - _kiln.Graph and _kiln.Schemas: a kiln_graph, and PyTorch's schemas, as Python objects.
 *
 * Graphs are made from torch.fx nodes or from .kg text, changed only by normalisation, and read as text, as Python and node
 * by node.  kiln/fx.py is the face; nothing here is public.  Everything runs with the GIL held, so one thread at a time
 * has a graph. */
#include <string.h>

#include "py_graph.h"

typedef struct kp_graph {
    PyObject_HEAD kiln_graph *g;
    kiln_node **nodes; /* by id */
    size_t n;
} kp_graph;

typedef struct kp_schemas {
    PyObject_HEAD kiln_schemas *s;
} kp_schemas;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *owned_text(char *text) {
    PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogatepass");
    kiln_text_free(text);
    return out;
}

/* -- making ------------------------------------------------------------------------------------------- */

static kp_graph *new_graph(PyObject *type) {
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    return (kp_graph *)alloc((PyTypeObject *)type, 0);
}

static int append(kp_graph *self, kiln_node *node, size_t *cap) {
    if (self->n == *cap) {
        size_t more = *cap ? *cap * 2 : 256;
        kiln_node **nodes = PyMem_Realloc(self->nodes, more * sizeof *nodes);
        if (!nodes) return PyErr_NoMemory(), -1;
        self->nodes = nodes;
        *cap = more;
    }
    self->nodes[self->n++] = node;
    return 0;
}

static int add_all(kp_graph *self, kp_encoder *e, PyObject *iterator) {
    size_t cap = 0;
    for (PyObject *node; (node = PyIter_Next(iterator));) {
        kiln_node *made;
        int bad = kp_encode_node(e, node, &made);
        Py_DECREF(node);
        if (bad || append(self, made, &cap) < 0) return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int fill_from(kp_graph *self, PyObject *nodes, PyObject *bridge) {
    kp_encoder e;
    kiln_status status = kiln_graph_new(&self->g);
    if (status != KILN_OK) return kp_raise(status), -1;
    PyObject *iterator = PyObject_GetIter(nodes);
    int bad = kp_encoder_init(&e, self->g, bridge);
    if (!iterator) bad = -1;
    if (!bad) bad = add_all(self, &e, iterator);
    kp_encoder_fini(&e);
    Py_XDECREF(iterator);
    if (bad) return -1;
    status = kiln_graph_verify(self->g);
    return status == KILN_OK ? 0 : (kp_raise(status), -1);
}

/* from_nodes(nodes, bridge) */
static PyObject *g_from_nodes(PyObject *type, PyObject *args) {
    PyObject *nodes, *bridge;
    if (!PyArg_ParseTuple(args, "OO:from_nodes", &nodes, &bridge)) return NULL;
    kp_graph *self = new_graph(type);
    if (self && fill_from(self, nodes, bridge) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *g_parse(PyObject *type, PyObject *text) {
    Py_ssize_t n;
    size_t cap = 0;
    if (!PyUnicode_Check(text))
        return PyErr_Format(PyExc_TypeError, "a graph's text must be str, not %R", (PyObject *)Py_TYPE(text)),
               NULL;
    const char *s = PyUnicode_AsUTF8AndSize(text, &n);
    kp_graph *self = s ? new_graph(type) : NULL;
    if (!self) return NULL;
    kiln_status status = kiln_graph_parse(s, (size_t)n, &self->g);
    if (status != KILN_OK) return Py_DECREF(self), kp_raise_value(status), NULL;
    for (kiln_node *node = kiln_graph_first(self->g); node; node = node->next)
        if (append(self, node, &cap) < 0) return Py_DECREF(self), NULL;
    return (PyObject *)self;
}

static void g_dealloc(PyObject *object) {
    kp_graph *self = (kp_graph *)object;
    kiln_graph_free(self->g);
    PyMem_Free(self->nodes);
    free_object(object);
}

/* kinds() -> {"none": 0, ...}: what describe() and build() call the kinds of values */
static PyObject *g_kinds(PyObject *type, PyObject *unused) {
    static const char *const names[KILN_G_KIND_COUNT] = {
        [KILN_G_NONE] = "none",
        [KILN_G_ELLIPSIS] = "ellipsis",
        [KILN_G_BOOL] = "bool",
        [KILN_G_INT] = "int",
        [KILN_G_BIGINT] = "bigint",
        [KILN_G_FLOAT] = "float",
        [KILN_G_COMPLEX] = "complex",
        [KILN_G_STR] = "str",
        [KILN_G_BYTES] = "bytes",
        [KILN_G_DTYPE] = "dtype",
        [KILN_G_DEVICE] = "device",
        [KILN_G_LAYOUT] = "layout",
        [KILN_G_MEMORY_FORMAT] = "memory_format",
        [KILN_G_OP] = "op",
        [KILN_G_FUNC] = "func",
        [KILN_G_CONST] = "const",
        [KILN_G_NODE] = "node",
        [KILN_G_TUPLE] = "tuple",
        [KILN_G_LIST] = "list",
        [KILN_G_SET] = "set",
        [KILN_G_FROZENSET] = "frozenset",
        [KILN_G_SIZE] = "size",
        [KILN_G_DICT] = "dict",
        [KILN_G_SLICE] = "slice",
        [KILN_G_RANGE] = "range",
        [KILN_G_NAMEDTUPLE] = "namedtuple",
        [KILN_G_STRUCTSEQ] = "structseq",
        [KILN_G_ENUM] = "enum",
    };
    (void)type;
    (void)unused;
    PyObject *dict = PyDict_New();
    for (int k = 0; dict && k < KILN_G_KIND_COUNT; k++) {
        PyObject *number = PyLong_FromLong(k);
        if (!number || PyDict_SetItemString(dict, names[k], number) < 0) Py_CLEAR(dict);
        Py_XDECREF(number);
    }
    return dict;
}

/* -- looking ------------------------------------------------------------------------------------------ */

static Py_ssize_t g_len(PyObject *self) { return (Py_ssize_t)((kp_graph *)self)->n; }

static PyObject *g_text(PyObject *self, PyObject *unused) {
    (void)unused;
    char *text;
    kiln_status status = kiln_graph_text(((kp_graph *)self)->g, &text);
    return status == KILN_OK ? owned_text(text) : (kp_raise(status), NULL);
}

static PyObject *globals_list(const kiln_python *p, PyObject *build) {
    PyObject *list = PyList_New(0);
    for (size_t k = 0; list && k < p->nglobals; k++) {
        const char *name = p->globals[k].name;
        PyObject *value = kp_decode(p->globals[k].value, NULL, build);
        PyObject *pair = value ? Py_BuildValue("sO", name, value) : NULL;
        if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_XDECREF(value);
    }
    return list;
}

/* Node by line, the first line being 0.  Of numbers alone, so that Python's garbage collector does not look at it. */
static PyObject *line_map(const kiln_python *p) {
    PyObject *map = PyDict_New();
    for (size_t k = 0; map && k < p->nlines; k++) {
        PyObject *line = PyLong_FromUnsignedLong(p->lines[k].line - 1);
        PyObject *node = line ? PyLong_FromUnsignedLong(p->lines[k].node) : NULL;
        if (!node || PyDict_SetItem(map, line, node) < 0) Py_CLEAR(map);
        Py_XDECREF(line);
        Py_XDECREF(node);
    }
    return map;
}

/* (source, [(name, object)], {line: node}) */
static PyObject *printed(const kiln_python *p, PyObject *build) {
    PyObject *source = PyUnicode_DecodeUTF8(p->source, (Py_ssize_t)p->nsource, "strict");
    PyObject *globals = source ? globals_list(p, build) : NULL, *lines = globals ? line_map(p) : NULL;
    PyObject *out = lines ? PyTuple_Pack(3, source, globals, lines) : NULL;
    Py_XDECREF(source);
    Py_XDECREF(globals);
    Py_XDECREF(lines);
    return out;
}

/* python(bridge, function, self, verbose, taken): taken is a tuple of names that the source keeps off */
static PyObject *g_python(PyObject *self, PyObject *args) {
    PyObject *bridge, *taken, *out = NULL;
    kiln_python p;
    kiln_python_options options = {.size = sizeof options};
    if (!PyArg_ParseTuple(args, "OssiO!:python", &bridge, &options.function, &options.self, &options.verbose,
                          &PyTuple_Type, &taken))
        return NULL;
    options.ntaken = (size_t)PyTuple_Size(taken);
    const char **names = PyMem_Calloc(options.ntaken + 1, sizeof *names);
    PyObject *build = names ? PyObject_GetAttrString(bridge, "build") : PyErr_NoMemory();
    bool bad = !build;
    for (size_t k = 0; k < options.ntaken && !bad; k++)
        bad = !(names[k] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(taken, (Py_ssize_t)k), NULL));
    options.taken = names;
    if (!bad) {
        kiln_status status = kiln_graph_python(((kp_graph *)self)->g, &options, &p);
        out = status == KILN_OK ? printed(&p, build) : (kp_raise(status), NULL);
        if (status == KILN_OK) kiln_python_free(&p);
    }
    PyMem_Free(names);
    Py_XDECREF(build);
    return out;
}

/* make(id, op, name, target, args, kwargs, type) -> the object that stands for the node from here on */
static PyObject *rebuilt(const kiln_node *node, PyObject *const *nodes, PyObject *make, PyObject *build) {
    PyObject *target = kp_decode(node->target, nodes, build);
    PyObject *args = target ? kp_decode_list(node->args, node->nargs, nodes, build) : NULL;
    PyObject *kwargs = args ? kp_decode_kwargs(node, nodes, build) : NULL;
    PyObject *type = kwargs && node->type ? kp_decode(node->type, nodes, build) : Py_NewRef(Py_None);
    PyObject *made = NULL;
    if (kwargs && type)
        made = PyObject_CallFunction(make, "Iss#OOOO", node->id, kiln_node_op_name(node->op), node->name,
                                     (Py_ssize_t)node->name_len, target, args, kwargs, type);
    Py_XDECREF(target);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(type);
    return made;
}

/* rebuild(bridge, make): every node again, in order, as make() makes it; the list of what it made, by id. */
static PyObject *g_rebuild(PyObject *object, PyObject *args) {
    kp_graph *self = (kp_graph *)object;
    PyObject *bridge, *make, *build, *list = NULL;
    if (!PyArg_ParseTuple(args, "OO:rebuild", &bridge, &make)) return NULL;
    if (!(build = PyObject_GetAttrString(bridge, "build"))) return NULL;
    PyObject **nodes = PyMem_Calloc(self->n + 1, sizeof *nodes);
    bool bad = !nodes;
    if (!nodes) PyErr_NoMemory();
    for (kiln_node *node = kiln_graph_first(self->g); node && !bad; node = node->next)
        bad = !(nodes[node->id] = rebuilt(node, nodes, make, build));
    if (!bad && (list = PyList_New((Py_ssize_t)self->n)))
        for (size_t k = 0; k < self->n; k++) PyList_SetItem(list, (Py_ssize_t)k, Py_NewRef(nodes[k]));
    for (size_t k = 0; nodes && k < self->n; k++) Py_XDECREF(nodes[k]);
    PyMem_Free(nodes);
    Py_DECREF(build);
    return list;
}

/* -- changing ----------------------------------------------------------------------------------------- */

static kiln_node *node_at(const kp_graph *self, Py_ssize_t id) {
    if (id >= 0 && (size_t)id < self->n) return self->nodes[id];
    PyErr_Format(PyExc_IndexError, "no node has the id %zd", id);
    return NULL;
}

static PyObject *g_set_meta(PyObject *self, PyObject *args) {
    Py_ssize_t id, n;
    const char *key, *text;
    if (!PyArg_ParseTuple(args, "nss#:set_meta", &id, &key, &text, &n)) return NULL;
    kiln_node *node = node_at((kp_graph *)self, id);
    if (!node) return NULL;
    kiln_status status = kiln_node_set_meta(node, key, text, (size_t)n);
    return status == KILN_OK ? Py_NewRef(Py_None) : (kp_raise(status), NULL);
}

static PyObject *applied(kiln_node *node, const kiln_bound_args *b) {
    kiln_status status = kiln_node_set_args(node, b->args, b->nargs, b->kwargs, b->nkwargs);
    if (status != KILN_OK) return kp_raise(status), NULL;
    return b->overload ? PyUnicode_FromString(b->overload) : Py_NewRef(Py_True);
}

/* normalize(id, schemas, flags): the overload whose schema the node's arguments now follow, or None if none is known */
static PyObject *g_normalize(PyObject *self, PyObject *args) {
    Py_ssize_t id;
    PyObject *schemas, *schemas_type = NULL;
    unsigned flags;
    kiln_bound_args bound;
    if (!PyArg_ParseTuple(args, "nOI:normalize", &id, &schemas, &flags)) return NULL;
    PyObject *module = PyType_GetModule(Py_TYPE(self)); /* borrowed */
    if (module) schemas_type = PyObject_GetAttrString(module, "Schemas");
    int fits = schemas_type ? PyObject_IsInstance(schemas, schemas_type) : -1;
    Py_XDECREF(schemas_type);
    if (fits == 0) PyErr_SetString(PyExc_TypeError, "normalize() needs Schemas");
    kiln_node *node = fits > 0 ? node_at((kp_graph *)self, id) : NULL;
    if (!node) return NULL;
    kiln_status status = kiln_node_normalized(((kp_schemas *)schemas)->s, node, flags, &bound);
    if (status == KILN_E_NOTFOUND) return Py_NewRef(Py_None);
    return status == KILN_OK ? applied(node, &bound) : (kp_raise(status), NULL);
}

/* params: (name, kind, (default,) or None, printed by position) each */
static int read_signature(kp_encoder *e, PyObject *params, kiln_sig_param *sig) {
    for (Py_ssize_t k = 0; k < PyTuple_Size(params); k++) {
        PyObject *fallback;
        int kind;
        sig[k] = (kiln_sig_param){0};
        if (!PyArg_ParseTuple(PyTuple_GetItem(params, k), "siOp:bind", &sig[k].name, &kind, &fallback,
                              &sig[k].positional))
            return -1;
        sig[k].kind = (kiln_param_kind)kind;
        if (fallback == Py_None) continue;
        if (!PyTuple_Check(fallback) || PyTuple_Size(fallback) != 1)
            return PyErr_SetString(PyExc_TypeError, "bind(): a default is a tuple of one"), -1;
        if (kp_encode(e, PyTuple_GetItem(fallback, 0), 0, &sig[k].fallback) < 0) return -1;
    }
    return 0;
}

/* bind(id, bridge, params, flags): the same by a signature of Python. */
static PyObject *g_bind(PyObject *object, PyObject *args) {
    kp_graph *self = (kp_graph *)object;
    Py_ssize_t id;
    PyObject *bridge, *params, *out = NULL;
    unsigned flags;
    kp_encoder e;
    kiln_bound_args bound;
    if (!PyArg_ParseTuple(args, "nOO!I:bind", &id, &bridge, &PyTuple_Type, &params, &flags)) return NULL;
    kiln_node *node = node_at(self, id);
    size_t nsig = (size_t)PyTuple_Size(params);
    kiln_sig_param *sig = node ? PyMem_Calloc(nsig + 1, sizeof *sig) : NULL;
    if (!sig) return node ? PyErr_NoMemory() : NULL;
    if (kp_encoder_init(&e, self->g, bridge) == 0 && read_signature(&e, params, sig) == 0) {
        kiln_status status = kiln_graph_bind(self->g, sig, nsig, node->args, node->nargs, node->kwargs,
                                             node->nkwargs, flags, &bound);
        out = status == KILN_OK ? applied(node, &bound) : (kp_raise(status), NULL);
    }
    kp_encoder_fini(&e);
    PyMem_Free(sig);
    return out;
}

/* -- the types ---------------------------------------------------------------------------------------- */

static PyObject *schemas_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    if (!PyArg_ParseTuple(args, ":Schemas")) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    kp_schemas *self = (kp_schemas *)alloc(type, 0);
    kiln_status status = self ? kiln_schemas_new(&self->s) : KILN_OK;
    if (status == KILN_OK) return (PyObject *)self;
    kp_raise(status);
    Py_DECREF(self);
    return NULL;
}

static void schemas_dealloc(PyObject *self) {
    kiln_schemas_free(((kp_schemas *)self)->s);
    free_object(self);
}

static PyMethodDef graph_methods[] = {
    {"from_nodes", g_from_nodes, METH_VARARGS | METH_CLASS, "from_nodes(nodes, bridge, /)"},
    {"parse", g_parse, METH_O | METH_CLASS, "parse(text, /)"},
    {"kinds", g_kinds, METH_NOARGS | METH_CLASS, "kinds()"},
    {"text", g_text, METH_NOARGS, "text()"},
    {"python", g_python, METH_VARARGS, "python(bridge, function, self, verbose, taken, /)"},
    {"rebuild", g_rebuild, METH_VARARGS, "rebuild(bridge, make, /)"},
    {"set_meta", g_set_meta, METH_VARARGS, "set_meta(id, key, text, /)"},
    {"normalize", g_normalize, METH_VARARGS, "normalize(id, schemas, flags, /)"},
    {"bind", g_bind, METH_VARARGS, "bind(id, bridge, params, flags, /)"},
    {0},
};
static PyType_Slot graph_slots[] = {
    {Py_tp_dealloc, g_dealloc}, {Py_tp_methods, graph_methods}, {Py_sq_length, g_len}, {0, NULL}};
PyType_Spec kp_graph_spec = {
    .name = "kiln._kiln.Graph",
    .basicsize = sizeof(kp_graph),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = graph_slots,
};

static PyType_Slot schemas_slots[] = {{Py_tp_new, schemas_new}, {Py_tp_dealloc, schemas_dealloc}, {0, NULL}};
PyType_Spec kp_schemas_spec = {
    .name = "kiln._kiln.Schemas",
    .basicsize = sizeof(kp_schemas),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = schemas_slots,
};
