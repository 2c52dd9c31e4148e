/* overloads.h - PyTorch's schemas by operator name, and which operator a node calls; not for users. */
#ifndef KILN_GRAPH_OVERLOADS_H
#define KILN_GRAPH_OVERLOADS_H
#include "graph/graph.h"
#include "schema/schema.h"

typedef struct kiln_overload {
    const char *line; /* of the list */
    size_t n;
    const kiln_schema *schema;  /* NULL until it is asked for */
    const char *name;           /* "aten::add.Tensor"; with the schema */
    struct kiln_overload *next; /* of the same operator, in the list's order */
} kiln_overload;

/* The overloads of "aten::add", or NULL. */
kiln_overload *kiln_schemas_find(const kiln_schemas *s, const char *name, size_t n);
/* Parses the line, once. */
kiln_status kiln_overload_schema(kiln_schemas *s, kiln_overload *o, const kiln_schema **out) KILN_MUST_CHECK;

/* How a call reaches an operator. */
typedef enum kiln_call_form {
    KILN_FORM_NONE,     /* no schema is known */
    KILN_FORM_OVERLOAD, /* torch.ops.aten.add.Tensor, or .add */
    KILN_FORM_TORCH,    /* torch.add: `self` is called input, results go to `out` */
    KILN_FORM_METHOD    /* x.add(...), torch.Tensor.add(x, ...): the first argument has no name */
} kiln_call_form;

/* The full name of the operator that a node's target means, "aten::add", whether there is one or not; an overload part
 * may follow where the form is OVERLOAD. */
enum { KILN_CALLEE_MAX = 256 };
kiln_call_form kiln_callee_name(const kiln_node *node, char full[KILN_CALLEE_MAX]);

/* The form of a call, the overloads it may mean, and which one it names, if it does. */
typedef struct kiln_callee {
    kiln_call_form form;
    kiln_overload *first; /* of the operator */
    kiln_overload *only;  /* the one that is named, or NULL */
} kiln_callee;
kiln_status kiln_callee_of(kiln_schemas *s, const kiln_node *node, kiln_callee *out) KILN_MUST_CHECK;
#endif
