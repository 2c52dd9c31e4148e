/* py_encode.c - nodes of torch.fx and the Python objects they hold -> nodes and values of a kiln_graph.
 *
 * One pass over the nodes, in their order; each object is turned into a value by its exact type, and what C does not know
 * is described by the bridge (py_graph.h).  Must not know PyTorch. */
#include <string.h>

#include "py_graph.h"

enum { FEW = 16 }; /* items that need no heap */

/* -- objects seen before ----------------------------------------------------------------------------- */

static kp_seen *place_of(kp_seen *seen, size_t cap, const PyObject *o) {
    size_t at = ((uintptr_t)o >> 4) * 0x9E3779B97F4A7C15u;
    for (at ^= at >> 29;; at++) {
        kp_seen *place = &seen[at & (cap - 1)];
        if (!place->object || place->object == o) return place;
    }
}

static const kiln_gval *find_seen(const kp_encoder *e, const PyObject *o) {
    return e->cap ? place_of(e->seen, e->cap, o)->value : NULL;
}

static int grow(kp_encoder *e) {
    size_t cap = e->cap ? e->cap * 2 : 1024;
    kp_seen *seen = PyMem_Calloc(cap, sizeof *seen);
    if (!seen) return PyErr_NoMemory(), -1;
    for (size_t k = 0; k < e->cap; k++)
        if (e->seen[k].object) *place_of(seen, cap, e->seen[k].object) = e->seen[k];
    PyMem_Free(e->seen);
    e->seen = seen;
    e->cap = cap;
    return 0;
}

static int note_seen(kp_encoder *e, PyObject *o, const kiln_gval *value) {
    if ((e->nseen + 1) * 2 > e->cap && grow(e) < 0) return -1;
    *place_of(e->seen, e->cap, o) = (kp_seen){Py_NewRef(o), value};
    e->nseen++;
    return 0;
}

enum { N_OP, N_NAME, N_TARGET, N_ARGS, N_KWARGS, N_TYPE };
static const char *const field_names[KP_NODE_FIELDS] = {"op", "name", "target", "args", "kwargs", "type"};

int kp_encoder_init(kp_encoder *e, kiln_graph *g, PyObject *bridge) {
    *e = (kp_encoder){.g = g};
    for (int k = 0; k < KP_NODE_FIELDS; k++)
        if (!(e->fields[k] = PyUnicode_InternFromString(field_names[k]))) return -1;
    e->node_type = PyObject_GetAttrString(bridge, "node_type");
    e->types = e->node_type ? PyObject_GetAttrString(bridge, "types") : NULL;
    e->describe = e->types ? PyObject_GetAttrString(bridge, "describe") : NULL;
    return e->describe ? 0 : -1;
}

void kp_encoder_fini(kp_encoder *e) {
    for (size_t k = 0; k < e->cap; k++) Py_XDECREF(e->seen[k].object);
    PyMem_Free(e->seen);
    for (int k = 0; k < KP_NODE_FIELDS; k++) Py_XDECREF(e->fields[k]);
    Py_XDECREF(e->node_type);
    Py_XDECREF(e->types);
    Py_XDECREF(e->describe);
}

/* -- texts and numbers --------------------------------------------------------------------------------- */

static int raised(kiln_status status) { return status == KILN_OK ? 0 : (kp_raise(status), -1); }

static int encode_text(kp_encoder *e, kiln_gkind kind, PyObject *o, const kiln_gval **out) {
    Py_ssize_t n;
    const char *s = PyUnicode_AsUTF8AndSize(o, &n);
    if (s) return raised(kiln_graph_str(e->g, kind, s, (size_t)n, out));
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
    PyErr_Clear(); /* lone surrogates */
    PyObject *bytes = PyUnicode_AsEncodedString(o, "utf-8", "surrogatepass");
    char *data;
    if (!bytes) return -1;
    int bad = PyBytes_AsStringAndSize(bytes, &data, &n);
    if (!bad) bad = raised(kiln_graph_str(e->g, kind, data, (size_t)n, out));
    Py_DECREF(bytes);
    return bad;
}

static int encode_bytes(kp_encoder *e, PyObject *o, const kiln_gval **out) {
    char *data;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(o, &data, &n) < 0) return -1;
    return raised(kiln_graph_str(e->g, KILN_G_BYTES, data, (size_t)n, out));
}

static int encode_int(kp_encoder *e, PyObject *o, const kiln_gval **out) {
    int overflow;
    long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) return i == -1 && PyErr_Occurred() ? -1 : raised(kiln_graph_int(e->g, i, out));
    PyObject *hex = PyNumber_ToBase(o,
                                    16); /* decimal would be quadratic, and is refused beyond 4,300 digits */
    int bad = hex ? encode_text(e, KILN_G_BIGINT, hex, out) : -1;
    Py_XDECREF(hex);
    return bad;
}

static int encode_number(kp_encoder *e, PyObject *o, const kiln_gval **out) {
    kiln_gval v = {.kind = KILN_G_COMPLEX};
    if (PyFloat_CheckExact(o)) return raised(kiln_graph_float(e->g, PyFloat_AsDouble(o), out));
    v.u.c.re = PyComplex_RealAsDouble(o);
    v.u.c.im = PyComplex_ImagAsDouble(o);
    return raised(kiln_graph_value(e->g, &v, out));
}

static int encode_bool(kp_encoder *e, PyObject *o, const kiln_gval **out) {
    return raised(kiln_graph_value(e->g, &(kiln_gval){.kind = KILN_G_BOOL, .u.i = o == Py_True}, out));
}

/* -- containers -------------------------------------------------------------------------------------- */

static int encode_all(kp_encoder *e, kiln_gkind kind, PyObject *tuple, int depth, const kiln_gval **out) {
    const kiln_gval *few[FEW], **items = few;
    size_t n = (size_t)PyTuple_Size(tuple);
    if (n > FEW && !(items = PyMem_Malloc(n * sizeof *items))) return PyErr_NoMemory(), -1;
    int bad = 0;
    for (size_t k = 0; k < n && !bad; k++)
        bad = kp_encode(e, PyTuple_GetItem(tuple, (Py_ssize_t)k), depth + 1, &items[k]);
    if (!bad) bad = raised(kiln_graph_items(e->g, kind, items, n, out));
    if (items != few) PyMem_Free(items);
    return bad;
}

static int encode_stolen(kp_encoder *e, kiln_gkind kind, PyObject *tuple, int depth, const kiln_gval **out) {
    int bad = tuple ? encode_all(e, kind, tuple, depth, out) : -1;
    Py_XDECREF(tuple);
    return bad;
}

static PyObject *flat_items(PyObject *dict) {
    PyObject *key, *value, *flat = PyTuple_New(2 * PyDict_Size(dict));
    Py_ssize_t at = 0, k = 0;
    while (flat && PyDict_Next(dict, &at, &key, &value)) {
        PyTuple_SetItem(flat, k++, Py_NewRef(key));
        PyTuple_SetItem(flat, k++, Py_NewRef(value));
    }
    return flat;
}

/* start, stop and step of a slice or range. */
static PyObject *three_of(PyObject *o) {
    static const char *const names[3] = {"start", "stop", "step"};
    PyObject *tuple = PyTuple_New(3);
    for (int k = 0; tuple && k < 3; k++) {
        PyObject *part = PyObject_GetAttrString(o, names[k]);
        if (part)
            PyTuple_SetItem(tuple, k, part);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

static int encode_container(kp_encoder *e, kiln_gkind kind, PyObject *o, int depth, const kiln_gval **out) {
    switch (kind) {
    case KILN_G_DICT: return encode_stolen(e, kind, flat_items(o), depth, out);
    case KILN_G_SLICE:
    case KILN_G_RANGE: return encode_stolen(e, kind, three_of(o), depth, out);
    default:
        if (PyTuple_Check(o)) return encode_all(e, kind, o, depth, out);
        return encode_stolen(e, kind, PySequence_Tuple(o), depth, out);
    }
}

/* -- anything ------------------------------------------------------------------------------------------ */

/* (kind, text) or (kind, items) from the bridge. */
static int encode_described(kp_encoder *e, PyObject *o, int depth, const kiln_gval **out) {
    PyObject *said = PyObject_CallFunctionObjArgs(e->describe, o, NULL), *data;
    int kind, bad = -1;
    if (!said || !PyArg_ParseTuple(said, "iO", &kind, &data)) goto done;
    if (PyTuple_Check(data)) {
        bad = encode_all(e, (kiln_gkind)kind, data, depth, out);
    } else if (PyUnicode_Check(data)) {
        bad = encode_text(e, (kiln_gkind)kind, data, out);
        if (!bad) bad = note_seen(e, o, *out);
    } else {
        PyErr_SetString(PyExc_TypeError, "a description holds a text or a tuple");
    }
done:
    Py_XDECREF(said);
    return bad;
}

static int encode_other(kp_encoder *e, PyObject *o, int depth, const kiln_gval **out) {
    *out = find_seen(e, o);
    if (*out) return 0;
    PyObject *kind = PyDict_GetItemWithError(e->types, (PyObject *)Py_TYPE(o)); /* borrowed */
    if (kind) return encode_container(e, (kiln_gkind)PyLong_AsLong(kind), o, depth, out);
    if (PyErr_Occurred()) return -1;
    int is_node = PyObject_IsInstance(o, e->node_type);
    if (!is_node) return encode_described(e, o, depth, out);
    if (is_node > 0)
        PyErr_Format(PyExc_ValueError, "uses node %R, which comes later, was erased or is of another graph",
                     o);
    return -1;
}

int kp_encode(kp_encoder *e, PyObject *o, int depth, const kiln_gval **out) {
    if (depth > KILN_GRAPH_MAX_NEST) {
        PyErr_Format(PyExc_ValueError, "a value nests more than %d deep, or holds itself",
                     KILN_GRAPH_MAX_NEST);
        return -1;
    }
    if (PyTuple_CheckExact(o)) return encode_container(e, KILN_G_TUPLE, o, depth, out);
    if (PyLong_CheckExact(o)) return encode_int(e, o, out);
    if (o == Py_None) return *out = kiln_graph_none(e->g), 0;
    if (PyBool_Check(o)) return encode_bool(e, o, out);
    if (PyFloat_CheckExact(o) || PyComplex_CheckExact(o)) return encode_number(e, o, out);
    if (PyUnicode_CheckExact(o)) return encode_text(e, KILN_G_STR, o, out);
    if (PyList_CheckExact(o)) return encode_container(e, KILN_G_LIST, o, depth, out);
    if (PyDict_CheckExact(o)) return encode_container(e, KILN_G_DICT, o, depth, out);
    if (PyBytes_CheckExact(o)) return encode_bytes(e, o, out);
    if (o == Py_Ellipsis) return raised(kiln_graph_value(e->g, &(kiln_gval){.kind = KILN_G_ELLIPSIS}, out));
    return encode_other(e, o, depth, out);
}

/* -- nodes ----------------------------------------------------------------------------------------------- */

static int op_of(PyObject *text, kiln_node_op *out) {
    const char *s = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    for (kiln_node_op op = 0; s && op < KILN_NODE_OP_COUNT; op++) {
        if (strcmp(kiln_node_op_name(op), s) != 0) continue;
        *out = op;
        return 0;
    }
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "no node is of kind %R", text);
    return -1;
}

static int check_text(PyObject *o, const char *what) {
    if (PyUnicode_Check(o)) return 0;
    PyErr_Format(PyExc_TypeError, "%s is a %R, not a text", what, (PyObject *)Py_TYPE(o));
    return -1;
}

static int encode_kwargs(kp_encoder *e, PyObject *dict, kiln_kwarg *out) {
    PyObject *key, *value;
    Py_ssize_t at = 0, n;
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (check_text(key, "a keyword argument's name") < 0) return -1;
        out->name = PyUnicode_AsUTF8AndSize(key, &n);
        if (!out->name) return -1;
        if (strlen(out->name) != (size_t)n)
            return PyErr_Format(PyExc_ValueError, "the name %R holds a NUL", key), -1;
        if (kp_encode(e, value, 0, &out->value) < 0) return -1;
        out++;
    }
    return 0;
}

static int encode_target(kp_encoder *e, kiln_node_op op, PyObject *target, const kiln_gval **out) {
    if (op == KILN_CALL_FUNCTION) return kp_encode(e, target, 0, out);
    if (check_text(target, "the target") < 0) return -1;
    return encode_text(e, KILN_G_STR, target, out);
}

/* Everything but the arguments, which the caller gives room for. */
static int encode_fields(kp_encoder *e, PyObject *const *field, kiln_node_spec *spec) {
    Py_ssize_t n;
    if (op_of(field[N_OP], &spec->op) < 0 || check_text(field[N_NAME], "the name") < 0) return -1;
    spec->name = PyUnicode_AsUTF8AndSize(field[N_NAME], &n);
    if (!spec->name) return -1;
    spec->name_len = (size_t)n;
    if (n == 0) spec->name = NULL; /* then made from the target */
    if (field[N_TYPE] != Py_None && kp_encode(e, field[N_TYPE], 0, &spec->type) < 0) return -1;
    return encode_target(e, spec->op, field[N_TARGET], &spec->target);
}

static int encode_arguments(kp_encoder *e, PyObject *const *field, PyObject *named, const kiln_gval **args,
                            kiln_kwarg *kwargs, kiln_node_spec *spec) {
    for (size_t k = 0; k < spec->nargs; k++)
        if (kp_encode(e, PyTuple_GetItem(field[N_ARGS], (Py_ssize_t)k), 0, &args[k]) < 0) return -1;
    spec->args = args;
    spec->kwargs = kwargs;
    return encode_kwargs(e, named, kwargs);
}

static int add_node(kp_encoder *e, PyObject *const *field, kiln_node **out) {
    const kiln_gval *few_args[FEW], **args = few_args;
    kiln_kwarg few_kwargs[FEW], *kwargs = few_kwargs;
    kiln_node_spec spec = {0};
    int bad = -1;
    if (!PyTuple_Check(field[N_ARGS]) || !PyDict_Check(field[N_KWARGS]))
        return PyErr_SetString(PyExc_TypeError, "arguments must be a tuple and a dict"), -1;
    /* A copy, since encoding a value may run code that changes the dict. */
    PyObject *named = PyDict_Size(field[N_KWARGS]) ? PyDict_Copy(field[N_KWARGS])
                                                   : Py_NewRef(field[N_KWARGS]);
    if (!named) return -1;
    spec.nargs = (size_t)PyTuple_Size(field[N_ARGS]);
    spec.nkwargs = (size_t)PyDict_Size(named);
    if (spec.nargs > FEW) args = PyMem_Malloc(spec.nargs * sizeof *args);
    if (spec.nkwargs > FEW) kwargs = PyMem_Malloc(spec.nkwargs * sizeof *kwargs);
    if (!args || !kwargs)
        PyErr_NoMemory();
    else if (encode_fields(e, field, &spec) == 0 &&
             encode_arguments(e, field, named, args, kwargs, &spec) == 0)
        bad = raised(kiln_graph_add(e->g, NULL, &spec, out));
    if (args != few_args) PyMem_Free(args);
    if (kwargs != few_kwargs) PyMem_Free(kwargs);
    Py_DECREF(named);
    return bad;
}

/* Puts the node's name before the exception's text. */
static void blame(PyObject *name) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (PyErr_GivenExceptionMatches(type, PyExc_UnicodeError))
        type = PyExc_ValueError; /* takes five arguments */
    PyErr_Format(type, "node %.200S: %S", name ? name : Py_None, value);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

int kp_encode_node(kp_encoder *e, PyObject *node, kiln_node **out) {
    PyObject *field[KP_NODE_FIELDS] = {0};
    int bad = 0;
    for (int k = 0; k < KP_NODE_FIELDS && !bad; k++) bad = !(field[k] = PyObject_GetAttr(node, e->fields[k]));
    if (!bad && find_seen(e, node)) {
        PyErr_SetString(PyExc_ValueError, "the node is listed twice");
        bad = -1;
    }
    if (!bad) bad = add_node(e, field, out);
    if (!bad) bad = note_seen(e, node, kiln_graph_ref(*out));
    if (bad) blame(field[N_NAME]);
    for (int k = 0; k < KP_NODE_FIELDS; k++) Py_XDECREF(field[k]);
    return bad ? -1 : 0;
}
