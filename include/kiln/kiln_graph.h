/* kiln_graph.h - graphs of operator calls, shaped like torch.fx's: build, check, edit, normalise, print, run.
 *
 *   kiln_graph *g;                        kiln_graph_new(&g);
 *   kiln_node *x, *y;                     kiln_graph_placeholder(g, "x", 1, NULL, &x);
 *   ...                                   kiln_graph_add(g, NULL, &spec, &y);
 *   char *src;                            kiln_graph_text(g, &src);          (.kg, see docs/GRAPH.md)
 *
 * Rules, beside those of kiln.h:
 *   - Nodes and values belong to their graph and live until kiln_graph_free; an erased node's memory stays.
 *   - Their structs are open for reading and never written by the caller: kiln_graph_* functions change them.
 *   - Values are immutable trees, and may be shared by nodes of one graph.
 *   - Texts are UTF-8; `str` values may hold what Python's "surrogatepass" makes of lone surrogates.
 *   - One thread at a time per graph. */
#ifndef KILN_GRAPH_H
#define KILN_GRAPH_H
#include "kiln/kiln.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KILN_GRAPH_MAX_NEST 90        /* brackets inside brackets in one value, as Python would print it */
#define KILN_GRAPH_MAX_NAME 65535     /* bytes of a name, target or key */
#define KILN_GRAPH_MAX_META 32        /* metadata of one node */
#define KILN_GRAPH_MAX_ITEMS 16777216 /* items of one value, arguments of one node */

typedef struct kiln_graph kiln_graph;
typedef struct kiln_node kiln_node;
typedef struct kiln_gval kiln_gval;
typedef struct kiln_schemas kiln_schemas; /* PyTorch's schemas by name; see normalisation */

/* -- values ---------------------------------------------------------------------------------------- */

typedef enum kiln_gkind {
    KILN_G_NONE,
    KILN_G_ELLIPSIS,
    KILN_G_BOOL,          /* u.i: 0 or 1 */
    KILN_G_INT,           /* u.i */
    KILN_G_BIGINT,        /* u.s: "-123..." or "0x1f...", outside 64 bits */
    KILN_G_FLOAT,         /* u.f */
    KILN_G_COMPLEX,       /* u.c */
    KILN_G_STR,           /* u.s */
    KILN_G_BYTES,         /* u.s */
    KILN_G_DTYPE,         /* u.s: "float32", as in torch.float32 */
    KILN_G_DEVICE,        /* u.s: "cuda:0" */
    KILN_G_LAYOUT,        /* u.s: "strided" */
    KILN_G_MEMORY_FORMAT, /* u.s: "channels_last" */
    KILN_G_OP,    /* u.s: "aten::add.Tensor", "aten::relu.default", or "aten::add" for all overloads */
    KILN_G_FUNC,  /* u.s: "module:qualified.name" of a function, class or object that can be imported */
    KILN_G_CONST, /* u.s: name of an object the graph's owner keeps (a tensor, a generator, ...) */
    KILN_G_NODE,  /* u.node */
    KILN_G_TUPLE, /* u.items, here and below */
    KILN_G_LIST,
    KILN_G_SET,
    KILN_G_FROZENSET,
    KILN_G_SIZE,       /* torch.Size */
    KILN_G_DICT,       /* key, value, key, value, ... */
    KILN_G_SLICE,      /* start, stop, step */
    KILN_G_RANGE,      /* start, stop, step */
    KILN_G_NAMEDTUPLE, /* type (FUNC or CONST), TUPLE of field names (STR), then the fields */
    KILN_G_STRUCTSEQ,  /* type, then the fields: torch.return_types.max and its like */
    KILN_G_ENUM,       /* type, member name (STR) */
    KILN_G_KIND_COUNT
} kiln_gkind;

struct kiln_gval {
    uint8_t kind;     /* kiln_gkind */
    uint8_t has_node; /* a node is somewhere inside */
    uint16_t nest;    /* brackets its Python text nests */
    uint32_t n;       /* bytes of u.s (a NUL follows them), or items of u.items; else 0 */
    union {
        int64_t i;
        double f;
        struct {
            double re, im;
        } c;
        const char *s;
        kiln_node *node;
        const kiln_gval *const *items;
    } u;
};

/* A value made from `v`: its text and item list are copied, the items themselves are shared and must be of
 * this graph.  nest and has_node are filled in.  KILN_E_LIMIT: nested too deep or too long; KILN_E_ARG: the
 * kind, the number of items or the spelling is wrong. */
KILN_API kiln_status kiln_graph_value(kiln_graph *g, const kiln_gval *v,
                                      const kiln_gval **out) KILN_MUST_CHECK;

/* Shorthands for the kinds that are met most. */
KILN_API const kiln_gval *kiln_graph_none(kiln_graph *g); /* shared; never NULL */
KILN_API kiln_status kiln_graph_int(kiln_graph *g, int64_t i, const kiln_gval **out) KILN_MUST_CHECK;
KILN_API kiln_status kiln_graph_float(kiln_graph *g, double f, const kiln_gval **out) KILN_MUST_CHECK;
KILN_API kiln_status kiln_graph_str(kiln_graph *g, kiln_gkind kind, const char *s, size_t n,
                                    const kiln_gval **out) KILN_MUST_CHECK; /* every kind with u.s */
KILN_API kiln_status kiln_graph_items(kiln_graph *g, kiln_gkind kind, const kiln_gval *const *items, size_t n,
                                      const kiln_gval **out) KILN_MUST_CHECK; /* every kind with u.items */
KILN_API const kiln_gval *kiln_graph_ref(kiln_node *node); /* the node as a value; never NULL */

/* Same kind and content; floats by their bits, any NaN equal to one of the same sign. */
KILN_API int kiln_gval_equal(const kiln_gval *a, const kiln_gval *b);

/* -- nodes ----------------------------------------------------------------------------------------- */

typedef enum kiln_node_op {
    KILN_PLACEHOLDER,   /* target STR: the parameter, "*args" or "**kwargs"; args: its default, or none */
    KILN_GET_ATTR,      /* target STR: "layer.weight"; no arguments */
    KILN_CALL_FUNCTION, /* target OP, FUNC or CONST */
    KILN_CALL_METHOD,   /* target STR: the method's name; args[0]: the object */
    KILN_CALL_MODULE,   /* target STR: "layers.0" */
    KILN_OUTPUT,        /* target STR: "output"; args[0]: the result */
    KILN_NODE_OP_COUNT
} kiln_node_op;

typedef struct kiln_kwarg {
    const char *name; /* NUL-terminated, unique in its node */
    const kiln_gval *value;
} kiln_kwarg;

/* Something known of a node: key -> text.  Keys with a meaning here: "val" is what the node yields, as
 * `f32[2, 3]`, `int`, `float`, `bool`, `complex`, `str`, `Tensor[]` ...: verbose printing shows it and the
 * choice of an overload uses it; "comment" is printed above the node by verbose printing. */
typedef struct kiln_meta {
    const char *key;
    const char *text;
    struct kiln_meta *next;
} kiln_meta;

typedef struct kiln_use {
    kiln_node *user;
    struct kiln_use *prev, *next; /* among the users of the used node, oldest first */
    struct kiln_use *of_user;     /* the user's next use */
    kiln_node *used;
} kiln_use;

struct kiln_node {
    uint32_t id;    /* stable; counts up from 0 in the order of making */
    uint32_t order; /* position in the graph as of the last kiln_graph_verify; scratch of passes */
    uint8_t op;     /* kiln_node_op */
    uint8_t erased;
    uint8_t plain;  /* the name is one that Python could have */
    uint32_t epoch; /* of the last pass that came by; scratch of passes */
    uint32_t name_len, name_hash, nargs, nkwargs;
    kiln_node *next;  /* in execution order; NULL at the end */
    const char *name; /* unique in the graph */
    const kiln_gval *target;
    const kiln_gval *const *args;
    const kiln_kwarg *kwargs;
    kiln_use *uses;                   /* the nodes this one uses */
    kiln_use *first_user, *last_user; /* one per node that uses this one, however often */
    uint32_t nusers;
    const kiln_gval *type; /* annotation, or NULL */
    kiln_meta *meta;       /* newest first */
    kiln_node *prev;
    kiln_node *mark; /* scratch of passes */
    kiln_graph *graph;
    kiln_gval ref; /* what kiln_graph_ref returns */
};

/* What a new node is made from; borrowed.  name NULL: made from the target.  A name that is taken gets a
 * number. */
typedef struct kiln_node_spec {
    kiln_node_op op;
    const char *name;
    size_t name_len;
    const kiln_gval *target;
    const kiln_gval *const *args;
    size_t nargs;
    const kiln_kwarg *kwargs;
    size_t nkwargs;
    const kiln_gval *type;
} kiln_node_spec;

KILN_API kiln_status kiln_graph_new(kiln_graph **out) KILN_MUST_CHECK;
KILN_API void kiln_graph_free(kiln_graph *g); /* NULL is fine */
KILN_API kiln_node *kiln_graph_first(const kiln_graph *g);
KILN_API kiln_node *kiln_graph_last(const kiln_graph *g);
KILN_API size_t kiln_graph_count(const kiln_graph *g); /* nodes that are not erased */
KILN_API kiln_node *kiln_graph_find(const kiln_graph *g, const char *name, size_t n); /* or NULL */
KILN_API const char *kiln_node_op_name(kiln_node_op op);                              /* "call_function" */

/* Adds a node before `before` (NULL: at the end).  Nothing but types, arity and limits is checked here:
 * order is the verifier's. */
KILN_API kiln_status kiln_graph_add(kiln_graph *g, kiln_node *before, const kiln_node_spec *spec,
                                    kiln_node **out) KILN_MUST_CHECK;
/* A placeholder at the end; fallback may be NULL. */
KILN_API kiln_status kiln_graph_placeholder(kiln_graph *g, const char *name, size_t n,
                                            const kiln_gval *fallback, kiln_node **out) KILN_MUST_CHECK;

/* -- editing --------------------------------------------------------------------------------------- */

KILN_API kiln_status kiln_node_set_args(kiln_node *node, const kiln_gval *const *args, size_t nargs,
                                        const kiln_kwarg *kwargs, size_t nkwargs) KILN_MUST_CHECK;
KILN_API kiln_status kiln_node_set_target(kiln_node *node, const kiln_gval *target) KILN_MUST_CHECK;
KILN_API kiln_status kiln_node_set_meta(kiln_node *node, const char *key, const char *text,
                                        size_t n) KILN_MUST_CHECK;
KILN_API const char *kiln_node_get_meta(const kiln_node *node, const char *key); /* or NULL */
KILN_API void kiln_node_move(kiln_node *node, kiln_node *before);                /* NULL: to the end */
/* Every use of `old`, except in `except` (or NULL), becomes `now`, which may be any value of the graph. */
KILN_API kiln_status kiln_graph_replace_uses(kiln_node *old, const kiln_gval *now,
                                             const kiln_node *except) KILN_MUST_CHECK;
KILN_API kiln_status kiln_graph_erase(kiln_node *node) KILN_MUST_CHECK; /* KILN_E_ARG while it has users */
/* Erases what nothing uses, except placeholders, outputs and nodes that may do more than compute: in-place
 * and out forms, random ones, calls of modules, of unknown functions and of what `keep` (may be NULL)
 * says.  nerased may be NULL. */
typedef int (*kiln_keep_fn)(void *user, const kiln_node *node);
KILN_API kiln_status kiln_graph_dead_code(kiln_schemas *s, kiln_graph *g, kiln_keep_fn keep, void *user,
                                          size_t *nerased) KILN_MUST_CHECK;

/* Order (a node is used only after it was made), arity, unique names, one output and it is last, uses in
 * step. KILN_E_VERIFY names the node. */
KILN_API kiln_status kiln_graph_verify(kiln_graph *g) KILN_MUST_CHECK;

/* -- text ------------------------------------------------------------------------------------------ */

/* The .kg text; heap, kiln_text_free.  Parsing it gives the same graph, and its text again. */
KILN_API kiln_status kiln_graph_text(const kiln_graph *g, char **out) KILN_MUST_CHECK;
/* Errors read "graph:LINE:COLUMN: ...".  A graph that parses also verifies. */
KILN_API kiln_status kiln_graph_parse(const char *text, size_t n, kiln_graph **out) KILN_MUST_CHECK;
/* Graphviz's language, and a picture in SVG; heap, kiln_text_free. */
KILN_API kiln_status kiln_graph_dot(const kiln_graph *g, char **out) KILN_MUST_CHECK;
KILN_API kiln_status kiln_graph_svg(const kiln_graph *g, char **out) KILN_MUST_CHECK;

/* -- normalisation ---------------------------------------------------------------------------------- */

typedef enum kiln_param_kind { /* as in inspect.Parameter */
                               KILN_POSITIONAL_ONLY,
                               KILN_POSITIONAL_OR_KEYWORD,
                               KILN_VAR_POSITIONAL,
                               KILN_KEYWORD_ONLY,
                               KILN_VAR_KEYWORD
} kiln_param_kind;

typedef struct kiln_sig_param {
    const char *name;
    kiln_param_kind kind;
    const kiln_gval *fallback; /* the default; NULL: required */
    int positional; /* may be bound by keyword, but is printed positionally: its name is no Python name */
} kiln_sig_param;

/* What a call's arguments become.  Arrays are the graph's. */
typedef struct kiln_bound_args {
    const kiln_gval *const *args;
    const kiln_kwarg *kwargs;
    size_t nargs, nkwargs;
    const char *overload; /* "aten::add.Tensor" where a schema was chosen, else NULL; static or the index's */
} kiln_bound_args;

enum {
    KILN_KWARGS_ONLY = 1, /* all by keyword, but for what can only be positional */
    KILN_NO_DEFAULTS = 2  /* do not add defaults */
};

/* Binds as inspect.Signature.bind does, with its error texts (KILN_E_TYPE), then lays the arguments out in
 * the order of the signature: a parameter stays positional iff it was given so and flags do not ask for
 * keywords. */
KILN_API kiln_status kiln_graph_bind(kiln_graph *g, const kiln_sig_param *sig, size_t nsig,
                                     const kiln_gval *const *args, size_t nargs, const kiln_kwarg *kwargs,
                                     size_t nkwargs, unsigned flags, kiln_bound_args *out) KILN_MUST_CHECK;

/* The schemas PyTorch 2.13 ships, read when they are asked for; one thread at a time. */
KILN_API kiln_status kiln_schemas_new(kiln_schemas **out) KILN_MUST_CHECK;
KILN_API void kiln_schemas_free(kiln_schemas *s); /* NULL is fine */

/* The arguments of a call by the schema of its target: an overload, all overloads of an operator, a
 * function of torch that wraps one, or a method of a tensor.  The node is not changed.  KILN_E_NOTFOUND:
 * no schema is known for the target; KILN_E_TYPE: the arguments fit none, with the reason for each. */
KILN_API kiln_status kiln_node_normalized(kiln_schemas *s, kiln_node *node, unsigned flags,
                                          kiln_bound_args *out) KILN_MUST_CHECK;
/* Does so to every node with a schema; nodes whose arguments fit none fail the whole, before anything is
 * changed.  nchanged may be NULL. */
KILN_API kiln_status kiln_graph_normalize(kiln_schemas *s, kiln_graph *g, unsigned flags,
                                          size_t *nchanged) KILN_MUST_CHECK;

/* -- Python ----------------------------------------------------------------------------------------- */

typedef struct kiln_python_options {
    size_t size;          /* sizeof(kiln_python_options); 0: all defaults */
    const char *function; /* NULL: "forward" */
    const char *self;     /* first parameter, through which attributes are reached; NULL: "self"; "": none */
    int verbose;          /* annotate with "val", print "comment" */
    int keep_values;      /* do not free values after their last use */
    const char *const *taken; /* names the source keeps off: code around it uses them */
    size_t ntaken;
} kiln_python_options;

/* A name that the source uses and does not define: what it must be bound to is `value`: FUNC, CONST, or
 * FLOAT for inf and nan.  FUNC "torch:" is the module itself.  Builtins under their own name are not
 * listed. */
typedef struct kiln_python_global {
    const char *name;
    const kiln_gval *value;
} kiln_python_global;

typedef struct kiln_python_line {
    uint32_t line; /* of the source, from 1 */
    uint32_t node; /* id */
} kiln_python_line;

typedef struct kiln_python {
    char *source;
    size_t nsource;
    kiln_python_global *globals;
    size_t nglobals;
    kiln_python_line *lines; /* by line: where each node's statement starts */
    size_t nlines;
    void *owner;
} kiln_python;

/* Python source that, run, means what the graph means.  options may be NULL for all defaults. */
KILN_API kiln_status kiln_graph_python(kiln_graph *g, const kiln_python_options *options,
                                       kiln_python *out) KILN_MUST_CHECK;
KILN_API void kiln_python_free(kiln_python *p); /* NULL is fine */
/* One value as an expression, with the names of the graph's nodes as they are; heap, kiln_text_free. */
KILN_API kiln_status kiln_gval_text(const kiln_gval *v, char **out) KILN_MUST_CHECK;

/* -- running ----------------------------------------------------------------------------------------- */

/* What a get_attr or a CONST stands for; borrowed by the run.  Returns NULL for an unknown name. */
typedef kiln_tensor *(*kiln_lookup_fn)(void *user, const char *name);

/* Runs the graph node by node with kiln_call.  inputs: one per placeholder, those with a default may be
 * left off.  lookup may be NULL where there is nothing to look up.  *outs: the tensors of the output in order, *nouts of them, each to be released and the array
 * freed with kiln_text_free. KILN_E_UNSUP names the node that cannot be run. */
KILN_API kiln_status kiln_graph_run(kiln_ctx *ctx, kiln_graph *g, const kiln_value *inputs, size_t ninputs,
                                    kiln_lookup_fn lookup, void *user, kiln_tensor ***outs,
                                    size_t *nouts) KILN_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
