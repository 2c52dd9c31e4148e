/* graph_run.c - kiln_graph_run: a graph, node by node, through kiln_call.
 *
 * An overload that is named is called as it stands.  For torch.add, x.add and operator.add the overload is
 * chosen by the values at hand: they are laid into a scratch graph, whose one call is normalised there.  A
 * value is released after its last use.  Must not know what any operator computes. */
#include <stdio.h>
#include <string.h>

#include "api/ctx.h"
#include "kiln/kiln_graph.h"

typedef struct runner {
    kiln_ctx *ctx;
    kiln_graph *g;
    kiln_schemas *schemas; /* NULL until a call needs it */
    kiln_lookup_fn lookup;
    void *user;
    kiln_value *results; /* by node->order; lists are in the arena */
    uint32_t *left;      /* users that have yet to run */
    kiln_arena arena;
    const kiln_value *inputs;
    size_t ninputs, next_input;
} runner;

static kiln_status unsupported(const kiln_node *node, const char *what) {
    return KILN_FAIL(KILN_E_UNSUP, "node %.80s (%s %.80s): %s", node->name, kiln_node_op_name(node->op),
                     node->target->u.s, what);
}

/* -- values ------------------------------------------------------------------------------------------- */

static void each_tensor(const kiln_value *v, bool retain) {
    const kiln_value *items = v->kind == KILN_LIST_V ? v->u.list : v;
    uint32_t n = v->kind == KILN_LIST_V ? v->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].kind != KILN_TENSOR) continue;
        if (retain)
            kiln_tensor_retain(items[i].u.tensor);
        else
            kiln_tensor_release(items[i].u.tensor);
    }
}

static kiln_status constant(runner *r, const kiln_node *node, const char *name, kiln_value *out) {
    kiln_tensor *t = r->lookup ? r->lookup(r->user, name) : NULL;
    if (!t)
        return KILN_FAIL(KILN_E_NOTFOUND, "node %.80s: no tensor named '%.80s' was given", node->name, name);
    *out = kiln_v_tensor(t);
    return KILN_OK;
}

/* What is the only choice here may be said, and means nothing. */
static bool is_the_default(const kiln_gval *v) {
    if (v->kind == KILN_G_DEVICE) return strcmp(v->u.s, "cpu") == 0;
    if (v->kind == KILN_G_LAYOUT) return strcmp(v->u.s, "strided") == 0;
    return v->kind == KILN_G_MEMORY_FORMAT &&
           (strcmp(v->u.s, "contiguous_format") == 0 || strcmp(v->u.s, "preserve_format") == 0);
}

static kiln_status evaluate(runner *r, const kiln_node *node, const kiln_gval *v, const kiln_value *by_order,
                            kiln_value *out) {
    kiln_dtype dtype;
    switch ((kiln_gkind)v->kind) {
    case KILN_G_NONE: *out = kiln_v_none(); return KILN_OK;
    case KILN_G_BOOL: *out = kiln_v_bool(v->u.i != 0); return KILN_OK;
    case KILN_G_INT: *out = kiln_v_int(v->u.i); return KILN_OK;
    case KILN_G_FLOAT: *out = kiln_v_float(v->u.f); return KILN_OK;
    case KILN_G_COMPLEX: *out = kiln_v_complex(v->u.c.re, v->u.c.im); return KILN_OK;
    case KILN_G_STR: *out = kiln_v_str(v->u.s); return KILN_OK;
    case KILN_G_CONST: return constant(r, node, v->u.s, out);
    case KILN_G_NODE: *out = by_order[v->u.node->order]; return KILN_OK;
    case KILN_G_DTYPE:
        KILN_TRY(kiln_note(kiln_dtype_parse(v->u.s, &dtype), "node %.80s", node->name));
        *out = kiln_v_dtype(dtype);
        return KILN_OK;
    case KILN_G_LIST:
    case KILN_G_TUPLE:
    case KILN_G_SIZE: break;
    default:
        if (!is_the_default(v)) return unsupported(node, "an argument of this kind cannot be run");
        *out = kiln_v_none();
        return KILN_OK;
    }
    kiln_value *items = kiln_arena_alloc(&r->arena, (v->n + 1) * sizeof *items);
    if (!items) return KILN_NOMEM();
    for (uint32_t i = 0; i < v->n; i++) KILN_TRY(evaluate(r, node, v->u.items[i], by_order, &items[i]));
    *out = kiln_v_list(items, v->n);
    return KILN_OK;
}

/* -- calls -------------------------------------------------------------------------------------------- */

/* Calls the operator of that full name.  torch.add's `input` is the schema's self. */
static kiln_status call_named(runner *r, const kiln_node *node, const char *name, const kiln_bound_args *b,
                              const kiln_value *by_order, kiln_value *out) {
    const kiln_op *op;
    KILN_TRY(kiln_note(kiln_op_find(r->ctx, name, &op), "node %.80s", node->name));
    size_t n = b->nargs + b->nkwargs, nrets = kiln_op_nrets(op);
    if (n > KILN_MAX_ARGS) return unsupported(node, "more arguments than an operator has");
    kiln_value args[KILN_MAX_ARGS];
    kiln_tensor *outs[KILN_MAX_RETS];
    for (size_t i = 0; i < n; i++) {
        const kiln_gval *v = i < b->nargs ? b->args[i] : b->kwargs[i - b->nargs].value;
        KILN_TRY(evaluate(r, node, v, by_order, &args[i]));
        if (i < b->nargs) continue;
        const char *keyword = b->kwargs[i - b->nargs].name;
        bool self = strcmp(keyword, "input") == 0 && kiln_schema_arg(op->schema, "input") < 0;
        args[i].name = self ? "self" : keyword;
    }
    kiln_value *list = kiln_arena_alloc(&r->arena, (nrets + 1) * sizeof *list);
    if (!list) return KILN_NOMEM();
    KILN_TRY(kiln_note(kiln_call(r->ctx, op, args, n, outs, nrets), "node %.80s", node->name));
    for (size_t i = 0; i < nrets; i++) list[i] = kiln_v_tensor(outs[i]);
    *out = nrets == 1 ? list[0] : kiln_v_list(list, (uint32_t)nrets);
    return KILN_OK;
}

/* A value of the run as a value of the scratch graph: tensors are placeholders there, the rest literals. */
static kiln_status to_scratch(runner *r, kiln_graph *scratch, const kiln_value *v, kiln_value *by_order,
                              const kiln_gval **out) {
    kiln_node *node;
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: *out = kiln_graph_none(scratch); return KILN_OK;
    case KILN_BOOL_V: return kiln_graph_value(scratch, &(kiln_gval){.kind = KILN_G_BOOL, .u.i = v->u.i}, out);
    case KILN_INT_V: return kiln_graph_int(scratch, v->u.i, out);
    case KILN_FLOAT_V: return kiln_graph_float(scratch, v->u.f, out);
    case KILN_COMPLEX_V:
        return kiln_graph_value(scratch, &(kiln_gval){.kind = KILN_G_COMPLEX, .u.c = {v->u.c.re, v->u.c.im}},
                                out);
    case KILN_STR_V: return kiln_graph_str(scratch, KILN_G_STR, v->u.s, strlen(v->u.s), out);
    case KILN_DTYPE_V: {
        const char *name = kiln_dtype_torch_name((kiln_dtype)v->u.i);
        return kiln_graph_str(scratch, KILN_G_DTYPE, name, strlen(name), out);
    }
    case KILN_TENSOR:
        KILN_TRY(kiln_graph_placeholder(scratch, "t", 1, NULL, &node));
        KILN_TRY(kiln_node_set_meta(node, "val", "Tensor", 6));
        if (node->id >= KILN_MAX_ARGS)
            return KILN_FAIL(KILN_E_LIMIT, "more than %d tensors in one call", KILN_MAX_ARGS);
        node->order = node->id;
        by_order[node->id] = *v;
        *out = kiln_graph_ref(node);
        return KILN_OK;
    case KILN_LIST_V: break;
    }
    const kiln_gval **items = kiln_arena_alloc(&r->arena, (v->n + 1) * sizeof *items);
    if (!items) return KILN_NOMEM();
    for (uint32_t i = 0; i < v->n; i++) KILN_TRY(to_scratch(r, scratch, &v->u.list[i], by_order, &items[i]));
    return kiln_graph_items(scratch, KILN_G_LIST, items, v->n, out);
}

static kiln_status call_in_scratch(runner *r, kiln_graph *scratch, const kiln_node *node,
                                   const kiln_gval *target, bool swapped, kiln_value *out) {
    kiln_value by_order[KILN_MAX_ARGS];
    kiln_node *call;
    kiln_bound_args bound;
    const kiln_gval **args = kiln_arena_alloc(&r->arena, (node->nargs + 1) * sizeof *args);
    kiln_kwarg *kwargs = kiln_arena_alloc(&r->arena, (node->nkwargs + 1) * sizeof *kwargs);
    kiln_node_spec spec = {.op = (kiln_node_op)node->op,
                           .name = node->name,
                           .name_len = node->name_len,
                           .args = args,
                           .nargs = node->nargs,
                           .kwargs = kwargs,
                           .nkwargs = node->nkwargs};
    if (!args || !kwargs) return KILN_NOMEM();
    for (uint32_t i = 0; i < node->nargs + node->nkwargs; i++) {
        bool named = i >= node->nargs;
        const kiln_kwarg *k = named ? &node->kwargs[i - node->nargs] : NULL;
        kiln_value v;
        KILN_TRY(evaluate(r, node, named ? k->value : node->args[swapped ? 1 - i : i], r->results, &v));
        KILN_TRY(to_scratch(r, scratch, &v, by_order, named ? &kwargs[i - node->nargs].value : &args[i]));
        if (named) kwargs[i - node->nargs].name = k->name;
    }
    KILN_TRY(kiln_graph_str(scratch, (kiln_gkind)target->kind, target->u.s, target->n, &spec.target));
    KILN_TRY(kiln_graph_add(scratch, NULL, &spec, &call));
    if (!r->schemas) KILN_TRY(kiln_schemas_new(&r->schemas));
    KILN_TRY(kiln_node_normalized(r->schemas, call, KILN_NO_DEFAULTS, &bound));
    return call_named(r, node, bound.overload, &bound, by_order, out);
}

static kiln_status call_chosen(runner *r, const kiln_node *node, const kiln_gval *target, bool swapped,
                               kiln_value *out) {
    kiln_graph *scratch;
    KILN_TRY(kiln_graph_new(&scratch));
    kiln_status st = call_in_scratch(r, scratch, node, target, swapped, out);
    kiln_graph_free(scratch);
    return st;
}

/* -- Python's operators ------------------------------------------------------------------------------- */

static const struct py_operator {
    const char *name, *op, *number_first;
} operators[] = {
#define R(name, op, number_first) {name, op, number_first},
#include "api/graph_ops.def"
#undef R
};

static kiln_status get_item(runner *r, const kiln_node *node, kiln_value *out) {
    kiln_value list, index;
    if (node->nargs != 2 || node->nkwargs) return unsupported(node, "expected a tuple and an index");
    KILN_TRY(evaluate(r, node, node->args[0], r->results, &list));
    KILN_TRY(evaluate(r, node, node->args[1], r->results, &index));
    if (list.kind != KILN_LIST_V || index.kind != KILN_INT_V)
        return unsupported(node, "only tuples can be indexed, by a number");
    int64_t i = index.u.i < 0 ? index.u.i + list.n : index.u.i;
    if (i < 0 || i >= list.n)
        return KILN_FAIL(KILN_E_INDEX, "node %.80s: index %lld is out of range", node->name,
                         (long long)index.u.i);
    *out = list.u.list[i];
    each_tensor(out, true);
    return KILN_OK;
}

static bool is_number(const kiln_value *v) {
    return v->kind == KILN_BOOL_V || v->kind == KILN_INT_V || v->kind == KILN_FLOAT_V ||
           v->kind == KILN_COMPLEX_V;
}

static kiln_status call_operator(runner *r, const kiln_node *node, const char *name, kiln_value *out) {
    const struct py_operator *found = NULL;
    if (strcmp(name, "getitem") == 0) return get_item(r, node, out);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strcmp(operators[i].name, name) == 0) found = &operators[i];
    if (!found || node->nargs < 1 || node->nkwargs) return unsupported(node, "no operator stands for it");
    kiln_value first;
    KILN_TRY(evaluate(r, node, node->args[0], r->results, &first));
    const char *op = found->op;
    bool number = is_number(&first), swapped = false;
    if (number && !found->number_first) return unsupported(node, "a number cannot come first");
    if (number && found->number_first[0]) op = found->number_first, swapped = node->nargs == 2;
    kiln_gval target = {.kind = KILN_G_OP, .n = (uint32_t)strlen(op), .u.s = op};
    return call_chosen(r, node, &target, swapped, out);
}

/* -- nodes -------------------------------------------------------------------------------------------- */

static kiln_status call_function(runner *r, const kiln_node *node, kiln_value *out) {
    static const char operator[] = "operator:";
    const kiln_gval *t = node->target;
    if (t->kind == KILN_G_CONST) return unsupported(node, "it is an object of its owner's");
    if (t->kind == KILN_G_FUNC && strncmp(t->u.s, operator, sizeof operator- 1) == 0)
        return call_operator(r, node, t->u.s + sizeof operator- 1, out);
    if (t->kind != KILN_G_OP || !strchr(t->u.s, '.')) return call_chosen(r, node, t, false, out);
    kiln_bound_args b = {
        .args = node->args, .nargs = node->nargs, .kwargs = node->kwargs, .nkwargs = node->nkwargs};
    return call_named(r, node, t->u.s, &b, r->results, out);
}

static kiln_status take_input(runner *r, const kiln_node *node, kiln_value *out) {
    if (node->target->u.s[0] == '*') return unsupported(node, "arguments with a star cannot be run");
    if (r->next_input < r->ninputs)
        *out = r->inputs[r->next_input++];
    else if (node->nargs)
        KILN_TRY(evaluate(r, node, node->args[0], r->results, out));
    else
        return KILN_FAIL(KILN_E_TYPE, "placeholder %.80s: no input is left for it (%zu given)", node->name,
                         r->ninputs);
    out->name = NULL;
    each_tensor(out, true);
    return KILN_OK;
}

static kiln_status run_node(runner *r, const kiln_node *node, kiln_value *out) {
    *out = kiln_v_none();
    switch ((kiln_node_op)node->op) {
    case KILN_PLACEHOLDER: return take_input(r, node, out);
    case KILN_GET_ATTR:
        KILN_TRY(constant(r, node, node->target->u.s, out));
        each_tensor(out, true);
        return KILN_OK;
    case KILN_CALL_FUNCTION: return call_function(r, node, out);
    case KILN_CALL_METHOD: return call_chosen(r, node, node->target, false, out);
    default: return unsupported(node, "modules cannot be run");
    }
}

static void drop(runner *r, const kiln_node *node) {
    kiln_value *v = &r->results[node->order];
    each_tensor(v, false);
    *v = kiln_v_none();
}

static kiln_status run_all(runner *r, const kiln_node **output) {
    for (kiln_node *node = kiln_graph_first(r->g); node; node = node->next) {
        if (node->op == KILN_OUTPUT) {
            *output = node;
            break;
        }
        KILN_TRY(run_node(r, node, &r->results[node->order]));
        r->left[node->order] = node->nusers;
        for (const kiln_use *u = node->uses; u; u = u->of_user)
            if (--r->left[u->used->order] == 0) drop(r, u->used);
        if (!node->nusers) drop(r, node);
    }
    if (r->next_input < r->ninputs)
        return KILN_FAIL(KILN_E_TYPE, "inputs given: %zu, placeholders of the graph: %zu", r->ninputs,
                         r->next_input);
    return KILN_OK;
}

/* -- results ------------------------------------------------------------------------------------------ */

/* Tensors inside v, in order; outs NULL: counts only.  SIZE_MAX: something else is there. */
static size_t flatten(const kiln_value *v, kiln_tensor **outs) {
    size_t n = 0;
    if (v->kind == KILN_TENSOR) {
        if (outs) outs[0] = kiln_tensor_retain(v->u.tensor);
        return 1;
    }
    if (v->kind == KILN_NONE) return 0;
    if (v->kind != KILN_LIST_V) return SIZE_MAX;
    for (uint32_t i = 0; i < v->n; i++) {
        size_t more = flatten(&v->u.list[i], outs ? outs + n : NULL);
        if (more == SIZE_MAX) return SIZE_MAX;
        n += more;
    }
    return n;
}

static kiln_status take_output(runner *r, const kiln_node *node, kiln_tensor ***outs, size_t *nouts) {
    kiln_value v = kiln_v_none();
    size_t n = 0;
    if (node) {
        KILN_TRY(evaluate(r, node, node->args[0], r->results, &v));
        n = flatten(&v, NULL);
        if (n == SIZE_MAX) return unsupported(node, "a result is not a tensor");
    }
    kiln_tensor **list = kiln_alloc((n + 1) * sizeof *list);
    if (!list) return KILN_NOMEM();
    flatten(&v, list);
    *outs = list;
    *nouts = n;
    return KILN_OK;
}

kiln_status kiln_graph_run(kiln_ctx *ctx, kiln_graph *g, const kiln_value *inputs, size_t ninputs,
                           kiln_lookup_fn lookup, void *user, kiln_tensor ***outs, size_t *nouts) {
    KILN_NEED(ctx, g, outs, nouts);
    KILN_NEED_ITEMS(inputs, ninputs);
    runner r = {.ctx = ctx, .g = g, .lookup = lookup, .user = user, .inputs = inputs, .ninputs = ninputs};
    const kiln_node *output = NULL;
    KILN_TRY(kiln_graph_verify(g)); /* also numbers the nodes */
    kiln_arena_init(&r.arena);
    r.results = kiln_calloc(kiln_graph_count(g) + 1, sizeof *r.results);
    r.left = kiln_calloc(kiln_graph_count(g) + 1, sizeof *r.left);
    kiln_status st = r.results && r.left ? run_all(&r, &output) : KILN_NOMEM();
    if (st == KILN_OK) st = take_output(&r, output, outs, nouts);
    for (size_t i = 0; r.results && i < kiln_graph_count(g); i++) each_tensor(&r.results[i], false);
    kiln_free(r.results);
    kiln_free(r.left);
    kiln_schemas_free(r.schemas);
    kiln_arena_free(&r.arena);
    return st;
}
