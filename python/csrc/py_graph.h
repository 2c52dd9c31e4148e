/* py_graph.h - what the files that bring torch.fx graphs to Kiln's and back share.
 *
 * C knows the values Python itself has; what PyTorch adds is named and made by a bridge, a Python object (kiln/fx.py) with
 *   node_type           torch.fx.Node
 *   types               dict: type -> kind of the containers that are subclasses of Python's
 *   describe(object)    -> (kind, text) or (kind, items), for every other object
 *   build(kind, data)   -> object, the way back
 * so that no line here depends on a version of PyTorch. */
#ifndef PY_GRAPH_H
#define PY_GRAPH_H
#include "kiln/kiln_graph.h"
#include "kilnpy.h"

/* An object that became a value, by identity: nodes, and what describe() gave a text for. */
typedef struct kp_seen {
    PyObject *object; /* strong: its address is not reused meanwhile */
    const kiln_gval *value;
} kp_seen;

enum { KP_NODE_FIELDS = 6 };

typedef struct kp_encoder {
    kiln_graph *g;
    PyObject *node_type, *types, *describe; /* strong, as all here */
    PyObject *fields[KP_NODE_FIELDS];       /* names of a node's attributes */
    kp_seen *seen;                          /* open addressing */
    size_t nseen, cap;
} kp_encoder;

int kp_encoder_init(kp_encoder *e, kiln_graph *g, PyObject *bridge);
void kp_encoder_fini(kp_encoder *e);
int kp_encode(kp_encoder *e, PyObject *o, int depth, const kiln_gval **out); /* 0, or -1 with an exception */
int kp_encode_node(kp_encoder *e, PyObject *node, kiln_node **out);

/* Decoding: objects by node id stand for the nodes inside; NULL with an exception. */
PyObject *kp_decode(const kiln_gval *v, PyObject *const *nodes, PyObject *build);
PyObject *kp_decode_list(const kiln_gval *const *items, size_t n, PyObject *const *nodes, PyObject *build);
PyObject *kp_decode_kwargs(const kiln_node *node, PyObject *const *nodes, PyObject *build);

extern PyType_Spec kp_graph_spec, kp_schemas_spec;
#endif
