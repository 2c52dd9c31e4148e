/* graph_run.c - kiln_graph_run: a graph, node by node, through kiln_call.
 *
 * An overload that is named is called as it stands.  For torch.add, x.add and operator.add the values at hand choose
 * the overload, as in any call by a short name.  A value is released after its last use.  Must not know what any
 * operator computes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/ctx.h"
#include "graph/overloads.h"

typedef struct runner {
    kiln_ctx *ctx;
    kiln_graph *g;
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

/* An int that is no int64. */
static kiln_status big_int(const kiln_node *node, const char *digits, kiln_value *out) {
    char *end;
    errno = 0;
    unsigned long long u = strtoull(digits, &end, 0);
    if (digits[0] == '-' || *end || errno) return unsupported(node, "an int does not fit 64 bits");
    *out = kiln_v_uint(u);
    return KILN_OK;
}

/* What is the only choice here may be said, and means nothing. */
static bool is_the_default(const kiln_gval *v) {
    if (v->kind == KILN_G_DEVICE) return strcmp(v->u.s, "cpu") == 0;
    if (v->kind == KILN_G_LAYOUT) return strcmp(v->u.s, "strided") == 0;
    return v->kind == KILN_G_MEMORY_FORMAT &&
           (strcmp(v->u.s, "contiguous_format") == 0 || strcmp(v->u.s, "preserve_format") == 0);
}

static kiln_status evaluate(runner *r, const kiln_node *node, const kiln_gval *v, kiln_value *out) {
    kiln_dtype dtype;
    switch ((kiln_gkind)v->kind) {
    case KILN_G_NONE: *out = kiln_v_none(); return KILN_OK;
    case KILN_G_BOOL: *out = kiln_v_bool(v->u.i != 0); return KILN_OK;
    case KILN_G_INT: *out = kiln_v_int(v->u.i); return KILN_OK;
    case KILN_G_BIGINT: return big_int(node, v->u.s, out);
    case KILN_G_FLOAT: *out = kiln_v_float(v->u.f); return KILN_OK;
    case KILN_G_COMPLEX: *out = kiln_v_complex(v->u.c.re, v->u.c.im); return KILN_OK;
    case KILN_G_STR: *out = kiln_v_str(v->u.s); return KILN_OK;
    case KILN_G_CONST: return constant(r, node, v->u.s, out);
    case KILN_G_NODE: *out = r->results[v->u.node->order]; return KILN_OK;
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
    for (uint32_t i = 0; i < v->n; i++) KILN_TRY(evaluate(r, node, v->u.items[i], &items[i]));
    *out = kiln_v_list(items, v->n);
    return KILN_OK;
}

/* -- calls -------------------------------------------------------------------------------------------- */

/* The node's arguments as values, the first two swapped on request; out=None, as torch's functions take it, is left
 * out.  Too many for any operator are refused. */
static kiln_status take_arguments(runner *r, const kiln_node *node, bool swapped, kiln_value *args,
                                  size_t *n) {
    size_t all = node->nargs + node->nkwargs;
    *n = 0;
    if (all > KILN_MAX_ARGS) return unsupported(node, "more arguments than an operator has");
    for (uint32_t i = 0; i < all; i++) {
        const kiln_kwarg *k = i < node->nargs ? NULL : &node->kwargs[i - node->nargs];
        const kiln_gval *v = k ? k->value : node->args[swapped && i < 2 ? 1 - i : i];
        if (k && v->kind == KILN_G_NONE && strcmp(k->name, "out") == 0) continue;
        KILN_TRY(evaluate(r, node, v, &args[*n]));
        args[(*n)++].name = k ? k->name : NULL;
    }
    return KILN_OK;
}

/* torch.add's `input` is the schema's self, unless the operator has an argument of that name. */
static void rename_input(runner *r, const char *name, kiln_value *args, size_t n) {
    const kiln_op *first;
    if (kiln_op_overloads(r->ctx, name, &first, 1) == 0 || kiln_schema_arg(first->schema, "input") >= 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (args[i].name && strcmp(args[i].name, "input") == 0) args[i].name = "self";
}

/* Calls the operator of that name; a short one means the overload that the arguments choose. */
static kiln_status call_named(runner *r, const kiln_node *node, const char *name, kiln_call_form form,
                              bool swapped, kiln_value *out) {
    kiln_value args[KILN_MAX_ARGS];
    const kiln_op *op;
    size_t n;
    KILN_TRY(take_arguments(r, node, swapped, args, &n));
    if (form == KILN_FORM_TORCH) rename_input(r, name, args, n);
    if (form == KILN_FORM_METHOD && (n == 0 || args[0].kind != KILN_TENSOR || args[0].name))
        return unsupported(node, "methods of other things than tensors cannot be run");
    bool open = !strchr(name, '.') && strncmp(name, "aten::", 6) == 0;
    if (open) name += 6; /* with its name space it would be the default overload's name */
    KILN_TRY(kiln_note(kiln_op_choose(r->ctx, name, args, n, &op), "node %.80s", node->name));
    size_t nrets = kiln_op_nrets(op);
    kiln_value *list = kiln_arena_alloc(&r->arena, (nrets + 1) * sizeof *list);
    if (!list) return KILN_NOMEM();
    KILN_TRY(kiln_note(kiln_call_values(r->ctx, op, args, n, list, nrets), "node %.80s", node->name));
    *out = nrets == 1 ? list[0] : kiln_v_list(list, (uint32_t)nrets);
    return KILN_OK;
}

/* -- Python's operators ------------------------------------------------------------------------------- */

static const struct py_operator {
    const char *name, *op, *number_first;
} operators[] = {
#define S(name, form, text)
#define O(name, form, text, slot, op, overload, number_first) {name, op, number_first},
#include "kiln/operator.def"
#undef O
#undef S
};

static kiln_status get_item(runner *r, const kiln_node *node, kiln_value *out) {
    kiln_value list, index;
    if (node->nargs != 2 || node->nkwargs) return unsupported(node, "expected a tuple and an index");
    KILN_TRY(evaluate(r, node, node->args[0], &list));
    KILN_TRY(evaluate(r, node, node->args[1], &index));
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

static kiln_status call_operator(runner *r, const kiln_node *node, const char *name, kiln_value *out) {
    const struct py_operator *found = NULL;
    if (strcmp(name, "getitem") == 0) return get_item(r, node, out);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strcmp(operators[i].name, name) == 0) found = &operators[i];
    if (!found || node->nargs < 1 || node->nkwargs) return unsupported(node, "no operator stands for it");
    kiln_value first;
    KILN_TRY(evaluate(r, node, node->args[0], &first));
    const char *op = found->op;
    bool number = kiln_is_number(&first), swapped = false;
    if (number && !found->number_first) return unsupported(node, "a number cannot come first");
    if (number && found->number_first[0]) op = found->number_first, swapped = node->nargs == 2;
    return call_named(r, node, op, KILN_FORM_OVERLOAD, swapped, out);
}

/* -- nodes -------------------------------------------------------------------------------------------- */

static kiln_status call_node(runner *r, const kiln_node *node, kiln_value *out) {
    static const char operator[] = "operator:";
    char name[KILN_CALLEE_MAX];
    const kiln_gval *t = node->target;
    if (t->kind == KILN_G_CONST) return unsupported(node, "it is an object of its owner's");
    if (t->kind == KILN_G_FUNC && strncmp(t->u.s, operator, sizeof operator- 1) == 0)
        return call_operator(r, node, t->u.s + sizeof operator- 1, out);
    kiln_call_form form = kiln_callee_name(node, name);
    if (form == KILN_FORM_NONE)
        return KILN_FAIL(KILN_E_NOTFOUND, "node %.80s: no schema is known for its target '%.80s'", node->name,
                         t->u.s);
    return call_named(r, node, name, form, false, out);
}

static kiln_status take_input(runner *r, const kiln_node *node, kiln_value *out) {
    if (node->target->u.s[0] == '*') return unsupported(node, "arguments with a star cannot be run");
    if (r->next_input < r->ninputs)
        *out = r->inputs[r->next_input++];
    else if (node->nargs)
        KILN_TRY(evaluate(r, node, node->args[0], out));
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
    case KILN_CALL_FUNCTION:
    case KILN_CALL_METHOD: return call_node(r, node, out);
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
        KILN_TRY(evaluate(r, node, node->args[0], &v));
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
    kiln_arena_free(&r.arena);
    return st;
}
