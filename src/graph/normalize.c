/* normalize.c - a call's arguments, laid out by the schema of what it calls.
 *
 * For each overload the call may mean, its schema becomes a signature as the call's form sees it
 * (torch.add calls `self` input, a method has no name for it); bind_args.c binds; types decide among the
 * overloads that bind.  docs/GRAPH.md states the rules.  Changes nodes only in kiln_graph_normalize. */
#include <stdio.h>
#include <string.h>

#include "graph/fit.h"
#include "graph/overloads.h"
#include "graph/torch_python.h"

enum { MAX_SIG = KILN_MAX_ARGS + 3, MAX_CALL = 256 };

/* A call's arguments as one overload reads them. */
typedef struct attempt {
    kiln_graph *g;
    const kiln_schema *schema;
    kiln_call_form form;
    bool gathered; /* items were given for a list: what takes them as they are fits better */
    bool named;    /* the call names the overload, so types decide nothing */
    kiln_sig_param sig[MAX_SIG];
    const kiln_type *type[MAX_SIG]; /* of each parameter; NULL: any */
    size_t nsig;
    const kiln_gval *const *args;
    size_t nargs;
    kiln_kwarg kwargs[MAX_CALL];
    size_t nkwargs;
} attempt;

/* -- signatures --------------------------------------------------------------------------------------- */

static kiln_status default_value(kiln_graph *g, const kiln_default *d, const kiln_gval **out) {
    switch (d->kind) {
    case KILN_DEF_ABSENT: *out = NULL; return KILN_OK;
    case KILN_DEF_NONE: *out = kiln_graph_none(g); return KILN_OK;
    case KILN_DEF_BOOL: return kiln_graph_value(g, &(kiln_gval){.kind = KILN_G_BOOL, .u.i = d->i}, out);
    case KILN_DEF_INT: return kiln_graph_int(g, d->i, out);
    case KILN_DEF_FLOAT: return kiln_graph_float(g, d->f, out);
    case KILN_DEF_STR:
    case KILN_DEF_NAME: return kiln_graph_str(g, KILN_G_STR, d->s, strlen(d->s), out);
    case KILN_DEF_LIST: break;
    }
    const kiln_gval **items = kiln_arena_alloc(&g->arena, ((size_t)d->nitems + 1) * sizeof *items);
    if (!items) return KILN_NOMEM();
    for (int i = 0; i < d->nitems; i++) KILN_TRY(default_value(g, &d->items[i], &items[i]));
    return kiln_graph_items(g, KILN_G_LIST, items, (size_t)d->nitems, out);
}

/* `int[2] padding=0` means [0, 0]. */
static kiln_status spread_default(kiln_graph *g, const kiln_type *type, const kiln_gval **v) {
    if (!*v || type->kind != KILN_T_LIST || type->size <= 0) return KILN_OK;
    if ((*v)->kind == KILN_G_NONE || kiln_gkind_is_items((*v)->kind)) return KILN_OK;
    const kiln_gval **items = kiln_arena_alloc(&g->arena, (size_t)type->size * sizeof *items);
    if (!items) return KILN_NOMEM();
    for (int i = 0; i < type->size; i++) items[i] = *v;
    return kiln_graph_items(g, KILN_G_LIST, items, (size_t)type->size, v);
}

/* `MemoryFormat memory_format=0`: an overload takes the number, Python's bindings take the name. */
static kiln_status name_default(kiln_graph *g, const kiln_type *type, const kiln_gval **v) {
    static const char *const formats[] = {"contiguous_format", "preserve_format", "channels_last",
                                          "channels_last_3d"};
    bool format = *v && (*v)->kind == KILN_G_INT && type->kind == KILN_T_OTHER &&
                  strcmp(type->name, "MemoryFormat") == 0;
    if (!format || (*v)->u.i < 0 || (*v)->u.i >= (int64_t)(sizeof formats / sizeof *formats)) return KILN_OK;
    const char *name = formats[(*v)->u.i];
    return kiln_graph_str(g, KILN_G_MEMORY_FORMAT, name, strlen(name), v);
}

static kiln_status add_param(attempt *a, const char *name, kiln_param_kind kind, const kiln_type *type,
                             const kiln_gval *fallback) {
    if (a->nsig == MAX_SIG) return KILN_FAIL(KILN_E_LIMIT, "a signature of more than %d parameters", MAX_SIG);
    a->sig[a->nsig] = (kiln_sig_param){name, kind, fallback, 0};
    a->type[a->nsig++] = type;
    return KILN_OK;
}

/* torch.add calls a tensor named self `input`, unless another parameter is called that; a number stays
 * self. */
static const char *param_name(const attempt *a, int k) {
    const kiln_param *p = &a->schema->args[k];
    bool renamed = a->form == KILN_FORM_TORCH && strcmp(p->name, "self") == 0 &&
                   p->type->kind == KILN_T_TENSOR;
    return renamed && kiln_schema_arg(a->schema, "input") < 0 ? "input" : p->name;
}

/* Trailing parameters that torch.max takes as one, `out`. */
static int trailing_outs(const attempt *a) {
    int n = 0;
    if (a->form != KILN_FORM_TORCH) return 0;
    for (int k = a->schema->nargs - 1;
         k >= 0 && a->schema->args[k].kwarg_only && kiln_param_writes(&a->schema->args[k]); k--)
        n++;
    return n;
}

static bool takes_tensor_options(const kiln_schema *s) {
    return kiln_schema_arg(s, "dtype") >= 0 && kiln_schema_arg(s, "device") >= 0 &&
           kiln_schema_arg(s, "layout") >= 0;
}

/* What Python's bindings add to every schema of their kind, given only if the call gives it. */
static kiln_status add_python_params(attempt *a, int outs) {
    for (size_t k = 0; k < a->nkwargs; k++) {
        const char *name = a->kwargs[k].name;
        bool none = a->kwargs[k].value->kind == KILN_G_NONE;
        bool out = a->form == KILN_FORM_TORCH && strcmp(name, "out") == 0 && none && outs == 0;
        bool grad = a->form != KILN_FORM_OVERLOAD && strcmp(name, "requires_grad") == 0 &&
                    takes_tensor_options(a->schema);
        bool extra = a->form != KILN_FORM_OVERLOAD && kiln_torch_takes(a->schema->name, name);
        if ((out || grad || extra) && kiln_schema_arg(a->schema, name) < 0)
            KILN_TRY(add_param(a, name, KILN_KEYWORD_ONLY, NULL, a->kwargs[k].value));
    }
    return KILN_OK;
}

/* A name that Python cannot write, or that two parameters bear, makes itself and all before it positional. */
static void mark_positional(attempt *a) {
    for (size_t i = a->nsig; i-- > 0;) {
        if (a->sig[i].kind != KILN_POSITIONAL_OR_KEYWORD) continue;
        bool odd = kiln_gtext_is_keyword(a->sig[i].name, strlen(a->sig[i].name));
        for (size_t j = 0; j < i && !odd; j++) odd = strcmp(a->sig[i].name, a->sig[j].name) == 0;
        if (!odd) continue;
        for (size_t j = 0; j <= i; j++) a->sig[j].positional = 1;
        return;
    }
}

static kiln_status make_signature(attempt *a) {
    int outs = trailing_outs(a), n = a->schema->nargs - outs;
    a->nsig = 0;
    for (int k = 0; k < n; k++) {
        const kiln_param *p = &a->schema->args[k];
        const kiln_gval *fallback;
        kiln_param_kind kind = p->kwarg_only ? KILN_KEYWORD_ONLY : KILN_POSITIONAL_OR_KEYWORD;
        if (k == 0 && a->form == KILN_FORM_METHOD) kind = KILN_POSITIONAL_ONLY;
        KILN_TRY(default_value(a->g, &p->def, &fallback));
        KILN_TRY(spread_default(a->g, p->type, &fallback));
        if (a->form != KILN_FORM_OVERLOAD) KILN_TRY(name_default(a->g, p->type, &fallback));
        KILN_TRY(add_param(a, param_name(a, k), kind, p->type, fallback));
    }
    if (outs)
        KILN_TRY(add_param(a, "out", KILN_KEYWORD_ONLY, outs == 1 ? a->schema->args[n].type : NULL, NULL));
    if (a->schema->vararg) KILN_TRY(add_param(a, "args", KILN_VAR_POSITIONAL, NULL, NULL));
    KILN_TRY(add_python_params(a, outs));
    mark_positional(a);
    return KILN_OK;
}

/* -- what Python's bindings allow beyond the schema --------------------------------------------------- */

static size_t find_param(const attempt *a, const char *name) {
    for (size_t i = 0; i < a->nsig; i++)
        if (strcmp(a->sig[i].name, name) == 0) return i;
    return SIZE_MAX;
}

/* Other names that bindings take: torch.sum(x, axis=0). */
static void rename_keywords(attempt *a) {
    for (size_t k = 0; k < a->nkwargs && a->form != KILN_FORM_OVERLOAD; k++) {
        const char *name = a->kwargs[k].name, *meant;
        if (find_param(a, name) != SIZE_MAX) continue;
        for (size_t i = 0; (meant = kiln_torch_alias(name, i)); i++)
            if (find_param(a, meant) != SIZE_MAX) a->kwargs[k].name = meant;
    }
}

static bool is_int_list(const kiln_type *t) {
    return t && t->kind == KILN_T_LIST && (t->elem->kind == KILN_T_INT || t->elem->kind == KILN_T_SYMINT);
}

/* x.view(2, 3) for x.view([2, 3]): where a list of integers is the only positional parameter, its items
 * may be the arguments.  One node alone may be the list or an item, so it stays where it is. */
static kiln_status gather_items(attempt *a) {
    size_t self = a->form == KILN_FORM_METHOD, npos = 0;
    while (npos < a->nsig && a->sig[npos].kind <= KILN_POSITIONAL_OR_KEYWORD) npos++;
    if (a->form == KILN_FORM_OVERLOAD || npos != self + 1 || !is_int_list(a->type[self]) || a->nargs <= self)
        return KILN_OK;
    const kiln_gval *first = a->args[self];
    bool several = a->nargs > npos,
         one_int = !several && (first->kind == KILN_G_INT || first->kind == KILN_G_BOOL);
    if (!several && first->kind == KILN_G_NODE) a->sig[self].positional = 1;
    if (!several && !one_int) return KILN_OK;
    for (size_t i = self; i < a->nargs; i++)
        if (kiln_fit(a->args[i], a->type[self]->elem) < 0) return KILN_OK;
    const kiln_gval **args = kiln_arena_alloc(&a->g->arena, 2 * sizeof *args);
    if (!args) return KILN_NOMEM();
    if (self) args[0] = a->args[0];
    KILN_TRY(kiln_graph_items(a->g, KILN_G_LIST, a->args + self, a->nargs - self, &args[self]));
    a->args = args;
    a->nargs = self + 1;
    a->gathered = true;
    return KILN_OK;
}

/* -- one overload ------------------------------------------------------------------------------------- */

/* Values by parameter: what was given, else NULL.  Walks as bind_args.c has laid them out. */
static int total_cost(const attempt *a, const kiln_bound_args *bound, const char **bad) {
    int total = 0;
    for (size_t i = 0, k = 0; i < a->nsig; i++) {
        const kiln_gval *v = NULL;
        if (a->sig[i].kind == KILN_VAR_POSITIONAL) break;
        if (i < bound->nargs)
            v = bound->args[i];
        else if (k < bound->nkwargs && strcmp(bound->kwargs[k].name, a->sig[i].name) == 0)
            v = bound->kwargs[k++].value;
        if (!v || !a->type[i]) continue;
        int cost = kiln_fit(v, a->type[i]);
        if (cost < 0) return *bad = a->sig[i].name, -1;
        total += cost;
    }
    return total;
}

static kiln_status try_overload(attempt *a, const kiln_node *node, unsigned flags, kiln_bound_args *out,
                                int *cost) {
    kiln_bound_args given;
    const char *bad = "";
    if (node->nkwargs > MAX_CALL) return KILN_FAIL(KILN_E_LIMIT, "more than %d keyword arguments", MAX_CALL);
    a->gathered = false;
    a->args = node->args;
    a->nargs = node->nargs;
    a->nkwargs = node->nkwargs;
    if (node->nkwargs) memcpy(a->kwargs, node->kwargs, node->nkwargs * sizeof *a->kwargs);
    KILN_TRY(make_signature(a));
    rename_keywords(a);
    KILN_TRY(gather_items(a));
    KILN_TRY(kiln_graph_bind(a->g, a->sig, a->nsig, a->args, a->nargs, a->kwargs, a->nkwargs,
                             KILN_NO_DEFAULTS, &given));
    *cost = total_cost(a, &given, &bad);
    if (*cost >= 0) *cost += a->gathered;
    if (*cost < 0 && !a->named) return KILN_FAIL(KILN_E_TYPE, "argument '%s' is of another type", bad);
    if (*cost < 0) *cost = 0;
    return kiln_graph_bind(a->g, a->sig, a->nsig, a->args, a->nargs, a->kwargs, a->nkwargs, flags, out);
}

/* torch.add and x.add mean operators on tensors, not TorchScript's on numbers and lists. */
static bool is_candidate(const kiln_schema *s, kiln_call_form form) {
    if (form == KILN_FORM_OVERLOAD) return true;
    if (form == KILN_FORM_METHOD)
        return s->nargs > 0 && strcmp(s->args[0].name, "self") == 0 && s->args[0].type->kind == KILN_T_TENSOR;
    for (int k = 0; k < s->nargs + s->nrets; k++) {
        const kiln_type *t = kiln_type_strip(k < s->nargs ? s->args[k].type : s->rets[k - s->nargs].type,
                                             NULL);
        if (t->kind == KILN_T_LIST) t = kiln_type_strip(t->elem, NULL);
        if (t->kind == KILN_T_TENSOR) return true;
    }
    return false;
}

/* -- all overloads ------------------------------------------------------------------------------------ */

typedef struct choice {
    kiln_bound_args best;
    int cost;    /* -1: none fits yet */
    kiln_sb why; /* what is wrong with those that do not */
    int tried;
} choice;

static kiln_status consider(kiln_schemas *s, attempt *a, kiln_overload *o, const kiln_node *node,
                            unsigned flags, choice *c) {
    kiln_bound_args bound;
    int cost = 0;
    KILN_TRY(kiln_overload_schema(s, o, &a->schema));
    if (!is_candidate(a->schema, a->form)) return KILN_OK;
    kiln_status st = try_overload(a, node, flags, &bound, &cost);
    if (st != KILN_OK && st != KILN_E_TYPE) return st;
    c->tried++;
    if (st == KILN_E_TYPE) {
        if (c->why.len < 1500)
            kiln_sb_printf(&c->why, "%s%s: %s", c->why.len ? "; " : "", o->name, kiln_last_error());
        return KILN_OK;
    }
    if (c->cost < 0 || cost < c->cost) {
        c->best = bound;
        c->best.overload = o->name;
        c->cost = cost;
    }
    return KILN_OK;
}

static kiln_status choose(kiln_schemas *s, kiln_node *node, const kiln_callee *callee, unsigned flags,
                          choice *c) {
    attempt *a = kiln_alloc(sizeof *a); /* large */
    if (!a) return KILN_NOMEM();
    memset(a, 0, sizeof *a);
    a->g = node->graph;
    a->form = callee->form;
    a->named = callee->only != NULL;
    kiln_status st = KILN_OK;
    if (callee->only) st = consider(s, a, callee->only, node, flags, c);
    for (kiln_overload *o = callee->first; !callee->only && o && st == KILN_OK; o = o->next)
        st = consider(s, a, o, node, flags, c);
    kiln_free(a);
    return st;
}

/* -- methods ------------------------------------------------------------------------------------------ */

/* Whether a call may yield one tensor, as far as the schemas of what it calls say. */
static kiln_status may_yield_tensor(kiln_schemas *s, const kiln_node *node, bool *out) {
    kiln_callee callee;
    KILN_TRY(kiln_callee_of(s, node, &callee));
    *out = callee.form == KILN_FORM_NONE;
    for (kiln_overload *o = callee.only ? callee.only : callee.first; o && !*out;
         o = callee.only ? NULL : o->next) {
        const kiln_schema *schema;
        KILN_TRY(kiln_overload_schema(s, o, &schema));
        if (!is_candidate(schema, callee.form)) continue;
        *out = schema->varret || (schema->nrets == 1 && schema->rets[0].type->kind == KILN_T_TENSOR);
    }
    return KILN_OK;
}

/* getattr(x, "shape") and len(x) are no tensors; x.T is one. */
static bool is_python_value(const kiln_node *node) {
    static const char builtins[] = "builtins:", getattr[] = "builtins:getattr";
    static const char *const tensors[] = {"T", "H", "mT", "mH", "data", "grad", "real", "imag"};
    const kiln_gval *t = node->target;
    if (t->kind != KILN_G_FUNC || strncmp(t->u.s, builtins, sizeof builtins - 1) != 0) return false;
    if (strcmp(t->u.s, getattr) != 0 || node->nargs < 2 || node->args[1]->kind != KILN_G_STR) return true;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (strcmp(node->args[1]->u.s, tensors[i]) == 0) return false;
    return true;
}

/* x.sort() means the operator only if x is a tensor: what is known to be none has methods of its own. */
static kiln_status may_be_tensor(kiln_schemas *s, const kiln_gval *v, bool *out) {
    const kiln_type tensor = {.kind = KILN_T_TENSOR};
    *out = kiln_fit(v, &tensor) == 0;
    if (!*out || v->kind != KILN_G_NODE || kiln_node_get_meta(v->u.node, "val")) return KILN_OK;
    const kiln_node *node = v->u.node;
    if (node->op == KILN_CALL_FUNCTION && is_python_value(node)) *out = false;
    return *out ? may_yield_tensor(s, node, out) : KILN_OK;
}

kiln_status kiln_node_normalized(kiln_schemas *s, kiln_node *node, unsigned flags, kiln_bound_args *out) {
    KILN_NEED(s, node, out);
    kiln_callee callee;
    choice c = {.cost = -1};
    bool fits = true;
    KILN_TRY(kiln_callee_of(s, node, &callee));
    if (node->op == KILN_CALL_METHOD) KILN_TRY(may_be_tensor(s, node->args[0], &fits));
    if (callee.form == KILN_FORM_NONE || !fits)
        return KILN_FAIL(KILN_E_NOTFOUND, "node %.80s: no schema is known for its target '%.80s'", node->name,
                         node->target->u.s);
    kiln_sb_init(&c.why);
    kiln_status st = choose(s, node, &callee, flags, &c);
    if (st == KILN_OK && c.cost < 0 && !c.tried)
        st = KILN_FAIL(KILN_E_NOTFOUND, "node %.80s: no schema is known for its target '%.80s'", node->name,
                       node->target->u.s);
    else if (st == KILN_OK && c.cost < 0)
        st = KILN_FAIL(KILN_E_TYPE, "node %.80s: %s", node->name,
                       c.why.p ? c.why.p : "the arguments fit no overload");
    if (st == KILN_OK) *out = c.best;
    kiln_sb_fini(&c.why);
    return st;
}

/* -- a whole graph ------------------------------------------------------------------------------------ */

static bool same_layout(const kiln_node *node, const kiln_bound_args *b) {
    if (node->nargs != b->nargs || node->nkwargs != b->nkwargs) return false;
    for (size_t i = 0; i < b->nargs; i++)
        if (!kiln_gval_equal(node->args[i], b->args[i])) return false;
    for (size_t i = 0; i < b->nkwargs; i++)
        if (strcmp(node->kwargs[i].name, b->kwargs[i].name) != 0 ||
            !kiln_gval_equal(node->kwargs[i].value, b->kwargs[i].value))
            return false;
    return true;
}

kiln_status kiln_graph_normalize(kiln_schemas *s, kiln_graph *g, unsigned flags, size_t *nchanged) {
    KILN_NEED(s, g);
    kiln_bound_args *all = kiln_calloc(g->count + 1, sizeof *all);
    if (!all) return KILN_NOMEM();
    kiln_status st = KILN_OK;
    size_t i = 0, changed = 0;
    for (kiln_node *node = g->first; node && st == KILN_OK; node = node->next, i++) {
        st = kiln_node_normalized(s, node, flags, &all[i]);
        if (st == KILN_E_NOTFOUND) st = KILN_OK;
    }
    i = 0;
    for (kiln_node *node = g->first; node && st == KILN_OK; node = node->next, i++) {
        if (!all[i].overload || same_layout(node, &all[i])) continue;
        st = kiln_node_set_args(node, all[i].args, all[i].nargs, all[i].kwargs, all[i].nkwargs);
        changed++;
    }
    kiln_free(all);
    if (st == KILN_OK && nchanged) *nchanged = changed;
    return st;
}
