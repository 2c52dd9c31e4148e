/* py_decode.c - values of a kiln_graph -> the Python objects they stand for.
 *
 * Python's own kinds are made here; the others by the bridge's build(kind, data), data being a text or a tuple of the
 * decoded items.  Values nest at most KILN_GRAPH_MAX_NEST deep, so walking one may recurse. */
#include "py_graph.h"

static PyObject *text_of(const kiln_gval *v) {
    return PyUnicode_DecodeUTF8(v->u.s, (Py_ssize_t)v->n, "surrogatepass");
}

static PyObject *built(PyObject *build, kiln_gkind kind, PyObject *stolen) {
    PyObject *made = stolen ? PyObject_CallFunction(build, "iO", (int)kind, stolen) : NULL;
    Py_XDECREF(stolen);
    return made;
}

static PyObject *big_integer(const kiln_gval *v) {
    char *end;
    return PyLong_FromString(v->u.s, &end, 0);
}

static PyObject *dict_of(PyObject *flat) {
    PyObject *dict = PyDict_New();
    for (Py_ssize_t k = 0; dict && k + 1 < PyTuple_Size(flat); k += 2)
        if (PyDict_SetItem(dict, PyTuple_GetItem(flat, k), PyTuple_GetItem(flat, k + 1)) < 0) Py_CLEAR(dict);
    return dict;
}

static PyObject *container(kiln_gkind kind, PyObject *items, PyObject *build) {
    switch (kind) {
    case KILN_G_TUPLE: return Py_NewRef(items);
    case KILN_G_LIST: return PySequence_List(items);
    case KILN_G_SET: return PySet_New(items);
    case KILN_G_FROZENSET: return PyFrozenSet_New(items);
    case KILN_G_DICT: return dict_of(items);
    case KILN_G_RANGE: return PyObject_CallObject((PyObject *)&PyRange_Type, items);
    case KILN_G_SLICE:
        return PySlice_New(PyTuple_GetItem(items, 0), PyTuple_GetItem(items, 1), PyTuple_GetItem(items, 2));
    default: return built(build, kind, Py_NewRef(items));
    }
}

PyObject *kp_decode_list(const kiln_gval *const *items, size_t n, PyObject *const *nodes, PyObject *build) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t k = 0; tuple && k < n; k++) {
        PyObject *item = kp_decode(items[k], nodes, build);
        if (item)
            PyTuple_SetItem(tuple, (Py_ssize_t)k, item);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *kp_decode_kwargs(const kiln_node *node, PyObject *const *nodes, PyObject *build) {
    PyObject *dict = PyDict_New();
    for (size_t k = 0; dict && k < node->nkwargs; k++) {
        PyObject *value = kp_decode(node->kwargs[k].value, nodes, build);
        if (!value || PyDict_SetItemString(dict, node->kwargs[k].name, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *node_object(const kiln_node *node, PyObject *const *nodes) {
    PyObject *object = nodes ? nodes[node->id] : NULL;
    if (!object) PyErr_Format(PyExc_ValueError, "node %s is used before it was made", node->name);
    return Py_XNewRef(object);
}

PyObject *kp_decode(const kiln_gval *v, PyObject *const *nodes, PyObject *build) {
    kiln_gkind kind = v->kind;
    switch (kind) {
    case KILN_G_NONE: return Py_NewRef(Py_None);
    case KILN_G_ELLIPSIS: return Py_NewRef(Py_Ellipsis);
    case KILN_G_BOOL: return PyBool_FromLong(v->u.i != 0);
    case KILN_G_INT: return PyLong_FromLongLong(v->u.i);
    case KILN_G_BIGINT: return big_integer(v);
    case KILN_G_FLOAT: return PyFloat_FromDouble(v->u.f);
    case KILN_G_COMPLEX: return PyComplex_FromDoubles(v->u.c.re, v->u.c.im);
    case KILN_G_STR: return text_of(v);
    case KILN_G_BYTES: return PyBytes_FromStringAndSize(v->u.s, (Py_ssize_t)v->n);
    case KILN_G_NODE: return node_object(v->u.node, nodes);
    default: break;
    }
    if (kind < KILN_G_NODE) return built(build, kind, text_of(v));
    PyObject *items = kp_decode_list(v->u.items, v->n, nodes, build);
    PyObject *made = items ? container(kind, items, build) : NULL;
    Py_XDECREF(items);
    return made;
}
