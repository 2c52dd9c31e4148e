/* graph.c - nodes: their list, names and uses, and every change to them.
 *
 * Owns the arena that all nodes and values live in.  Keeps, for each node, the nodes that use it, so that
 * replacing and erasing cost what they touch.  Must not know schemas, Python or text. */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

const char *kiln_node_op_name(kiln_node_op op) {
    static const char *const names[KILN_NODE_OP_COUNT] = {"placeholder", "get_attr",    "call_function",
                                                          "call_method", "call_module", "output"};
    return op < KILN_NODE_OP_COUNT ? names[op] : "?";
}

/* -- the graph ---------------------------------------------------------------------------------------- */

static const kiln_gval *constant(kiln_graph *g, kiln_gkind kind, int64_t i) {
    kiln_gval *v = kiln_arena_alloc(&g->arena, sizeof *v);
    if (v) *v = (kiln_gval){.kind = (uint8_t)kind, .u.i = i};
    return v;
}

kiln_status kiln_graph_new(kiln_graph **out) {
    KILN_NEED(out);
    kiln_graph *g = kiln_calloc(1, sizeof *g);
    if (!g) return KILN_NOMEM();
    kiln_arena_init(&g->arena);
    g->none = constant(g, KILN_G_NONE, 0);
    g->ellipsis = constant(g, KILN_G_ELLIPSIS, 0);
    g->bools[0] = constant(g, KILN_G_BOOL, 0);
    g->bools[1] = constant(g, KILN_G_BOOL, 1);
    if (!g->none || !g->ellipsis || !g->bools[0] || !g->bools[1]) {
        kiln_graph_free(g);
        return KILN_NOMEM();
    }
    *out = g;
    return KILN_OK;
}

void kiln_graph_free(kiln_graph *g) {
    if (!g) return;
    kiln_arena_free(&g->arena);
    kiln_free(g->names);
    kiln_free(g);
}

kiln_node *kiln_graph_first(const kiln_graph *g) { return g ? g->first : NULL; }
kiln_node *kiln_graph_last(const kiln_graph *g) { return g ? g->last : NULL; }
size_t kiln_graph_count(const kiln_graph *g) { return g ? g->count : 0; }

/* -- names -------------------------------------------------------------------------------------------- */

static kiln_gname *place(kiln_gname *table, size_t cap, const char *text, size_t n, uint32_t hash) {
    size_t k = hash & (cap - 1);
    while (table[k].text && (table[k].hash != hash || table[k].n != n || memcmp(table[k].text, text, n) != 0))
        k = (k + 1) & (cap - 1);
    return &table[k];
}

static bool grow_names(kiln_graph *g) {
    size_t cap = g->names_cap ? g->names_cap * 2 : 256;
    kiln_gname *table = kiln_calloc(cap, sizeof *table);
    if (!table) return false;
    for (size_t k = 0; k < g->names_cap; k++) {
        const kiln_gname *old = &g->names[k];
        if (old->text) *place(table, cap, old->text, old->n, old->hash) = *old;
    }
    kiln_free(g->names);
    g->names = table;
    g->names_cap = cap;
    return true;
}

kiln_gname *kiln_graph_intern(kiln_graph *g, const char *text, size_t n) {
    if (2 * (g->nnames + 1) > g->names_cap && !grow_names(g)) return NULL;
    uint32_t hash = (uint32_t)kiln_hash64_keyed(text, n);
    kiln_gname *at = place(g->names, g->names_cap, text, n, hash);
    if (at->text) return at;
    char *copy = kiln_arena_strndup(&g->arena, text, n);
    if (!copy) return NULL;
    *at = (kiln_gname){.text = copy, .n = (uint32_t)n, .hash = hash};
    g->nnames++;
    return at;
}

kiln_node *kiln_graph_find(const kiln_graph *g, const char *name, size_t n) {
    if (!g || !name || !g->names_cap) return NULL;
    return place(g->names, g->names_cap, name, n, (uint32_t)kiln_hash64_keyed(name, n))->node;
}

static kiln_status check_name(const char *name, size_t n) {
    if (n == 0 || memchr(name, 0, n)) return KILN_FAIL(KILN_E_ARG, "a name is empty or holds a NUL byte");
    if (n > KILN_GRAPH_MAX_NAME)
        return KILN_FAIL(KILN_E_LIMIT, "a name of %zu bytes; at most %d are allowed", n, KILN_GRAPH_MAX_NAME);
    return kiln_gtext_is_utf8(name, n) ? KILN_OK : KILN_FAIL(KILN_E_ARG, "a name is not UTF-8");
}

/* Gives node the name, or the name with the first number that makes it new. */
static kiln_status take_name(kiln_graph *g, kiln_node *node, const char *wanted, size_t n) {
    KILN_TRY(check_name(wanted, n));
    kiln_gname *at = kiln_graph_intern(g, wanted, n);
    if (!at) return KILN_NOMEM();
    if (at->node) {
        char *text = kiln_arena_alloc(&g->arena, n + 12);
        if (!text) return KILN_NOMEM();
        memcpy(text, wanted, n);
        uint32_t number = at->next_suffix;
        const char *base = at->text;
        do {
            int more = snprintf(text + n, 12, "_%u", ++number);
            at = kiln_graph_intern(g, text, n + (size_t)more);
        } while (at && at->node);
        if (!at) return KILN_NOMEM();
        place(g->names, g->names_cap, base, n, (uint32_t)kiln_hash64_keyed(base, n))->next_suffix = number;
    }
    at->node = node;
    node->name = at->text;
    node->name_len = at->n;
    node->name_hash = at->hash;
    node->plain = kiln_gtext_is_identifier(at->text, at->n) && !kiln_gtext_is_keyword(at->text, at->n);
    return KILN_OK;
}

/* The wanted name of a node that was given none: the last part of its target. */
static void default_name(const kiln_node_spec *spec, const char **name, size_t *n) {
    const char *s = spec->target->u.s, *end = s + spec->target->n, *from = end;
    bool op = spec->target->kind == KILN_G_OP;
    const char *stop = op ? memchr(s, '.', spec->target->n) : NULL;
    if (stop) end = from = stop;
    while (from > s && from[-1] != '.' && from[-1] != ':' && from[-1] != '*') from--;
    *name = from < end ? from : "node";
    *n = from < end ? (size_t)(end - from) : 4;
}

/* -- uses --------------------------------------------------------------------------------------------- */

typedef struct linking {
    kiln_node *user;
    bool failed;
} linking;

static void add_use(void *state, kiln_node *used) {
    linking *l = state;
    if (used->mark == l->user || l->failed) return;
    kiln_use *u = kiln_arena_alloc(&used->graph->arena, sizeof *u);
    if (!u) {
        l->failed = true;
        return;
    }
    *u = (kiln_use){.user = l->user, .prev = used->last_user, .of_user = l->user->uses, .used = used};
    *(used->last_user ? &used->last_user->next : &used->first_user) = u;
    used->last_user = u;
    used->nusers++;
    used->mark = l->user;
    l->user->uses = u;
}

static void drop_uses(kiln_node *user) {
    for (kiln_use *u = user->uses; u; u = u->of_user) {
        *(u->prev ? &u->prev->next : &u->used->first_user) = u->next;
        *(u->next ? &u->next->prev : &u->used->last_user) = u->prev;
        u->used->nusers--;
    }
    user->uses = NULL;
}

/* Notes what node uses; on failure it uses nothing. */
static kiln_status link_uses(kiln_node *node) {
    linking l = {node, false};
    for (uint32_t i = 0; i < node->nargs; i++) kiln_gval_visit(node->args[i], add_use, &l);
    for (uint32_t i = 0; i < node->nkwargs; i++) kiln_gval_visit(node->kwargs[i].value, add_use, &l);
    for (kiln_use *u = node->uses; u; u = u->of_user) u->used->mark = NULL;
    if (!l.failed) return KILN_OK;
    drop_uses(node);
    return KILN_NOMEM();
}

/* -- checks of one node ---------------------------------------------------------------------------------- */

static void foreign(void *state, kiln_node *used) {
    kiln_node **node = state; /* in: a node of the graph; out: one that is not, or is erased */
    if (used->graph != (*node)->graph || used->erased) *node = used;
}

static kiln_status check_parts(kiln_node *node) {
    kiln_node *bad = node;
    for (uint32_t i = 0; i < node->nargs && bad == node; i++) kiln_gval_visit(node->args[i], foreign, &bad);
    for (uint32_t i = 0; i < node->nkwargs && bad == node; i++)
        kiln_gval_visit(node->kwargs[i].value, foreign, &bad);
    if (bad == node) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "node %.60s is %s", bad->name, bad->erased ? "erased" : "of another graph");
}

static kiln_status check_shape(const kiln_node *node) {
    bool call = node->op == KILN_CALL_FUNCTION;
    kiln_gkind t = node->target->kind;
    if (call ? t != KILN_G_OP && t != KILN_G_FUNC && t != KILN_G_CONST : t != KILN_G_STR || !node->target->n)
        return KILN_FAIL(KILN_E_ARG, "the target of %s must be %s", kiln_node_op_name(node->op),
                         call ? "an operator, function or constant" : "a name");
    if (!call) KILN_TRY(check_name(node->target->u.s, node->target->n));
    uint32_t least = node->op == KILN_OUTPUT || node->op == KILN_CALL_METHOD;
    uint32_t most = node->op == KILN_GET_ATTR                                 ? 0
                    : node->op == KILN_PLACEHOLDER || node->op == KILN_OUTPUT ? 1
                                                                              : UINT32_MAX;
    if (node->nargs < least || node->nargs > most || (node->nkwargs && most <= 1))
        return KILN_FAIL(KILN_E_ARG, "%s has %u arguments and %u by keyword", kiln_node_op_name(node->op),
                         node->nargs, node->nkwargs);
    return KILN_OK;
}

static kiln_status copy_args(kiln_node *node, const kiln_gval *const *args, size_t nargs,
                             const kiln_kwarg *kwargs, size_t nkwargs) {
    kiln_graph *g = node->graph;
    kiln_arena *arena = &g->arena;
    uint32_t list_id = ++g->keyword_lists;
    if (nargs > KILN_GRAPH_MAX_ITEMS || nkwargs > KILN_GRAPH_MAX_ITEMS)
        return KILN_FAIL(KILN_E_LIMIT, "more than %d arguments", KILN_GRAPH_MAX_ITEMS);
    const kiln_gval **list = nargs ? kiln_arena_alloc(arena, nargs * sizeof *list) : NULL;
    kiln_kwarg *named = nkwargs ? kiln_arena_alloc(arena, nkwargs * sizeof *named) : NULL;
    if ((nargs && !list) || (nkwargs && !named)) return KILN_NOMEM();
    for (size_t i = 0; i < nargs; i++)
        if (!(list[i] = args[i])) return KILN_FAIL(KILN_E_ARG, "argument %zu is NULL", i);
    for (size_t i = 0; i < nkwargs; i++) {
        if (!kwargs[i].name || !kwargs[i].value)
            return KILN_FAIL(KILN_E_ARG, "the name or value of keyword argument %zu is NULL", i);
        size_t n = strlen(kwargs[i].name);
        if (n) KILN_TRY(check_name(kwargs[i].name, n)); /* "" can be passed in Python, by ** */
        kiln_gname *name = kiln_graph_intern(g, kwargs[i].name, n);
        if (!name) return KILN_NOMEM();
        if (name->keyword_of == list_id)
            return KILN_FAIL(KILN_E_ARG, "keyword argument '%.60s' is given twice", name->text);
        name->keyword_of = list_id;
        named[i] = (kiln_kwarg){name->text, kwargs[i].value};
    }
    node->args = list;
    node->nargs = (uint32_t)nargs;
    node->kwargs = named;
    node->nkwargs = (uint32_t)nkwargs;
    KILN_TRY(check_shape(node));
    return check_parts(node);
}

/* -- the list ----------------------------------------------------------------------------------------- */

static void insert(kiln_graph *g, kiln_node *node, kiln_node *before) {
    node->next = before;
    node->prev = before ? before->prev : g->last;
    *(node->prev ? &node->prev->next : &g->first) = node;
    *(before ? &before->prev : &g->last) = node;
}

static void unlink_node(kiln_graph *g, kiln_node *node) {
    *(node->prev ? &node->prev->next : &g->first) = node->next;
    *(node->next ? &node->next->prev : &g->last) = node->prev;
}

static kiln_status fill(kiln_graph *g, kiln_node *node, const kiln_node_spec *spec) {
    const char *name = spec->name;
    size_t n = spec->name_len;
    KILN_TRY(copy_args(node, spec->args, spec->nargs, spec->kwargs, spec->nkwargs));
    if (!name) default_name(spec, &name, &n);
    KILN_TRY(take_name(g, node, name, n));
    kiln_status st = link_uses(node);
    if (st != KILN_OK) kiln_graph_intern(g, node->name, node->name_len)->node = NULL;
    return st;
}

kiln_status kiln_graph_add(kiln_graph *g, kiln_node *before, const kiln_node_spec *spec, kiln_node **out) {
    KILN_NEED(g, spec, out);
    KILN_NEED(spec->target);
    KILN_NEED_ITEMS(spec->args, spec->nargs);
    KILN_NEED_ITEMS(spec->kwargs, spec->nkwargs);
    if (spec->op >= KILN_NODE_OP_COUNT) return KILN_FAIL(KILN_E_ARG, "no node is of kind %d", (int)spec->op);
    if (before && (before->graph != g || before->erased))
        return KILN_FAIL(KILN_E_ARG, "node %.60s is not in the graph", before->name);
    kiln_node *node = kiln_arena_alloc(&g->arena, sizeof *node);
    if (!node) return KILN_NOMEM();
    node->op = (uint8_t)spec->op;
    node->graph = g;
    node->target = spec->target;
    node->type = spec->type;
    node->ref = (kiln_gval){.kind = KILN_G_NODE, .has_node = 1, .u.node = node};
    KILN_TRY(fill(g, node, spec));
    node->id = g->next_id++;
    insert(g, node, before);
    g->count++;
    g->nplaceholders += node->op == KILN_PLACEHOLDER;
    *out = node;
    return KILN_OK;
}

kiln_status kiln_graph_placeholder(kiln_graph *g, const char *name, size_t n, const kiln_gval *fallback,
                                   kiln_node **out) {
    KILN_NEED(g, name, out);
    kiln_node_spec spec = {.op = KILN_PLACEHOLDER, .args = &fallback, .nargs = fallback ? 1 : 0};
    KILN_TRY(kiln_graph_str(g, KILN_G_STR, name, n, &spec.target));
    return kiln_graph_add(g, NULL, &spec, out);
}

/* -- editing ------------------------------------------------------------------------------------------ */

kiln_status kiln_node_set_args(kiln_node *node, const kiln_gval *const *args, size_t nargs,
                               const kiln_kwarg *kwargs, size_t nkwargs) {
    KILN_NEED(node);
    KILN_NEED_ITEMS(args, nargs);
    KILN_NEED_ITEMS(kwargs, nkwargs);
    kiln_node old = *node;
    kiln_status st = copy_args(node, args, nargs, kwargs, nkwargs);
    node->uses = NULL;
    if (st == KILN_OK) st = link_uses(node);
    if (st != KILN_OK) {
        node->args = old.args, node->nargs = old.nargs;
        node->kwargs = old.kwargs, node->nkwargs = old.nkwargs;
        node->uses = old.uses;
        return st;
    }
    kiln_use *now = node->uses;
    node->uses = old.uses;
    drop_uses(node);
    node->uses = now;
    return KILN_OK;
}

kiln_status kiln_node_set_target(kiln_node *node, const kiln_gval *target) {
    KILN_NEED(node, target);
    const kiln_gval *old = node->target;
    node->target = target;
    kiln_status st = check_shape(node);
    if (st != KILN_OK) node->target = old;
    return st;
}

kiln_status kiln_node_set_meta(kiln_node *node, const char *key, const char *text, size_t n) {
    KILN_NEED(node, key);
    KILN_NEED_ITEMS(text, n);
    kiln_graph *g = node->graph;
    kiln_meta *m = node->meta;
    KILN_TRY(check_name(key, strlen(key)));
    if (!text) text = "";
    if (memchr(text, 0, n) || !kiln_gtext_is_utf8(text, n))
        return KILN_FAIL(KILN_E_ARG, "the text of '%.60s' holds a NUL byte or is not UTF-8", key);
    int others = 0;
    for (; m && strcmp(m->key, key) != 0; m = m->next) others++;
    if (!m && others == KILN_GRAPH_MAX_META)
        return KILN_FAIL(KILN_E_LIMIT, "node %.60s has %d metadata already", node->name, KILN_GRAPH_MAX_META);
    char *copy = kiln_arena_strndup(&g->arena, text, n);
    if (!copy) return KILN_NOMEM();
    if (!m) {
        const kiln_gname *name = kiln_graph_intern(g, key, strlen(key));
        m = kiln_arena_alloc(&g->arena, sizeof *m);
        if (!name || !m) return KILN_NOMEM();
        *m = (kiln_meta){.key = name->text, .next = node->meta};
        node->meta = m;
    }
    m->text = copy;
    return KILN_OK;
}

const char *kiln_node_get_meta(const kiln_node *node, const char *key) {
    for (const kiln_meta *m = node && key ? node->meta : NULL; m; m = m->next)
        if (strcmp(m->key, key) == 0) return m->text;
    return NULL;
}

void kiln_node_move(kiln_node *node, kiln_node *before) {
    if (!node || node == before) return;
    unlink_node(node->graph, node);
    insert(node->graph, node, before);
}

/* v with `old` replaced by `now`; shares what does not change. */
static kiln_status replaced(kiln_graph *g, const kiln_gval *v, const kiln_node *old, const kiln_gval *now,
                            const kiln_gval **out) {
    *out = v;
    if (v->kind == KILN_G_NODE) {
        if (v->u.node == old) *out = now;
        return KILN_OK;
    }
    if (!v->has_node) return KILN_OK;
    const kiln_gval **items = kiln_arena_alloc(&g->arena, v->n * sizeof *items);
    if (!items) return KILN_NOMEM();
    bool changed = false;
    for (uint32_t i = 0; i < v->n; i++) {
        KILN_TRY(replaced(g, v->u.items[i], old, now, &items[i]));
        changed |= items[i] != v->u.items[i];
    }
    return changed ? kiln_graph_items(g, v->kind, items, v->n, out) : KILN_OK;
}

static kiln_status replace_in(kiln_node *user, const kiln_node *old, const kiln_gval *now) {
    kiln_graph *g = user->graph;
    const kiln_gval **args = kiln_arena_alloc(&g->arena, (user->nargs + 1) * sizeof *args);
    kiln_kwarg *kwargs = kiln_arena_alloc(&g->arena, (user->nkwargs + 1) * sizeof *kwargs);
    if (!args || !kwargs) return KILN_NOMEM();
    for (uint32_t i = 0; i < user->nargs; i++) KILN_TRY(replaced(g, user->args[i], old, now, &args[i]));
    for (uint32_t i = 0; i < user->nkwargs; i++) {
        kwargs[i].name = user->kwargs[i].name;
        KILN_TRY(replaced(g, user->kwargs[i].value, old, now, &kwargs[i].value));
    }
    return kiln_node_set_args(user, args, user->nargs, kwargs, user->nkwargs);
}

kiln_status kiln_graph_replace_uses(kiln_node *old, const kiln_gval *now, const kiln_node *except) {
    KILN_NEED(old, now);
    if (now->kind == KILN_G_NODE && now->u.node == old) return KILN_OK;
    const kiln_use *last = old->last_user; /* `now` may hold `old`, and so add uses */
    bool more = last != NULL;
    for (kiln_use *u = old->first_user, *next; more; u = next) {
        next = u->next;
        more = u != last;
        if (u->user != except) KILN_TRY(replace_in(u->user, old, now));
    }
    return KILN_OK;
}

kiln_status kiln_graph_erase(kiln_node *node) {
    KILN_NEED(node);
    if (node->erased) return KILN_FAIL(KILN_E_ARG, "node %.60s is erased already", node->name);
    if (node->nusers)
        return KILN_FAIL(KILN_E_ARG, "node %.60s is still used by %.60s", node->name,
                         node->first_user->user->name);
    kiln_graph *g = node->graph;
    drop_uses(node);
    unlink_node(g, node);
    place(g->names, g->names_cap, node->name, node->name_len,
          (uint32_t)kiln_hash64_keyed(node->name, node->name_len))
        ->node = NULL;
    node->erased = 1;
    g->count--;
    g->nplaceholders -= node->op == KILN_PLACEHOLDER;
    return KILN_OK;
}
