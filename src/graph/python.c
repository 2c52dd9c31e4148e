/* python.c - a graph -> the source of a Python function that means what the graph means.
 *
 * One statement per node, in order; values are let go after their last use.  Linear in the size of the
 * graph and without recursion over nodes.  Names are python_names.c's business, expressions
 * python_value.c's. */
#include <string.h>

#include "graph/python.h"

/* What is let go after a statement: a list per node, by order. */
typedef struct frees {
    uint32_t *head; /* first value whose last use is this node, plus 1; 0: none */
    uint32_t *next; /* of a value: the next one in its list, plus 1 */
} frees;

/* -- last uses ------------------------------------------------------------------------------------------ */

static void let_go(frees *f, const kiln_node *value, const kiln_node *after) {
    f->next[value->order] = f->head[after->order];
    f->head[after->order] = value->order + 1;
}

/* From the end, the first use met is the last; what nothing uses is let go at once. */
static kiln_status find_last_uses(const kiln_graph *g, frees *f) {
    enum { UNSEEN = UINT32_MAX };
    f->head = kiln_calloc(g->count + 1, 2 * sizeof *f->head);
    if (!f->head) return KILN_NOMEM();
    f->next = f->head + g->count + 1;
    memset(f->next, 0xff, (g->count + 1) * sizeof *f->next);
    for (const kiln_node *node = g->last; node; node = node->prev) {
        bool output = node->op == KILN_OUTPUT;
        if (!output && node->op != KILN_PLACEHOLDER && f->next[node->order] == UNSEEN) let_go(f, node, node);
        for (const kiln_use *u = node->uses; u; u = u->of_user) {
            if (f->next[u->used->order] != UNSEEN) continue;
            f->next[u->used->order] = 0;
            if (!output) let_go(f, u->used, node);
        }
    }
    return KILN_OK;
}

static void put_frees(py_printer *p, const frees *f, const kiln_node *node) {
    uint32_t k = f->head ? f->head[node->order] : 0;
    if (!k) return;
    kiln_py_text(p, ";  ");
    for (; k; k = f->next[k - 1]) {
        kiln_py_text(p, p->node_names[k - 1]);
        kiln_sb_putn(&p->out, " = ", 3);
    }
    kiln_sb_putn(&p->out, "None", 4);
}

/* -- calls -------------------------------------------------------------------------------------------- */

/* name=value, and **{"from": value} for names that Python could not write. */
static void put_keywords(py_printer *p, const kiln_node *node, bool comma) {
    for (uint32_t i = 0; i < node->nkwargs; i++) {
        const kiln_kwarg *k = &node->kwargs[i];
        size_t n = strlen(k->name);
        if (comma) kiln_sb_putn(&p->out, ", ", 2);
        comma = true;
        if (kiln_py_plain(k->name, n)) {
            kiln_sb_putn(&p->out, k->name, n);
            kiln_sb_putc(&p->out, '=');
            kiln_py_value(p, k->value);
            continue;
        }
        kiln_py_text(p, "**{");
        kiln_gtext_string(&p->out, k->name, n);
        kiln_sb_putn(&p->out, ": ", 2);
        kiln_py_value(p, k->value);
        kiln_sb_putc(&p->out, '}');
    }
}

static void put_args(py_printer *p, const kiln_node *node, uint32_t from) {
    kiln_sb_putc(&p->out, '(');
    for (uint32_t i = from; i < node->nargs; i++) {
        if (i > from) kiln_sb_putn(&p->out, ", ", 2);
        kiln_py_value(p, node->args[i]);
    }
    put_keywords(p, node, node->nargs > from);
    kiln_sb_putc(&p->out, ')');
}

/* self.layers.weight */
static void put_attribute(py_printer *p, const kiln_node *node) {
    enum { MOST = 64 };
    const char *path[MOST], *s = node->target->u.s;
    size_t n[MOST], parts = 0;
    for (bool more = true; more; s += n[parts++] + 1) {
        if (parts == MOST || !p->self[0]) {
            kiln_py_fail(p, KILN_FAIL(parts == MOST ? KILN_E_LIMIT : KILN_E_ARG,
                                      "node %.60s: attribute '%.60s' cannot be reached", node->name,
                                      node->target->u.s));
            return;
        }
        path[parts] = s;
        n[parts] = strcspn(s, ".");
        more = s[n[parts]] != 0;
    }
    kiln_py_path(p, p->self, path, n, parts);
}

/* x.method(...), through getattr if the method's name is no Python name. */
static void put_method(py_printer *p, const kiln_node *node) {
    const kiln_gval *t = node->target;
    bool plain = kiln_py_plain(t->u.s, t->n);
    if (!plain) {
        kiln_py_text(p, kiln_py_builtin(p, "getattr"));
        kiln_sb_putc(&p->out, '(');
        kiln_py_value(p, node->args[0]);
        kiln_sb_putn(&p->out, ", ", 2);
        kiln_gtext_string(&p->out, t->u.s, t->n);
        kiln_sb_putc(&p->out, ')');
    } else {
        kiln_py_atom(p, node->args[0]);
        kiln_sb_putc(&p->out, '.');
        kiln_sb_putn(&p->out, t->u.s, t->n);
    }
    put_args(p, node, 1);
}

static void put_expression(py_printer *p, const kiln_node *node) {
    switch ((kiln_node_op)node->op) {
    case KILN_CALL_FUNCTION:
        if (kiln_py_operator(p, node)) break;
        kiln_py_value(p, node->target);
        put_args(p, node, 0);
        break;
    case KILN_CALL_METHOD: put_method(p, node); break;
    case KILN_CALL_MODULE:
        put_attribute(p, node);
        put_args(p, node, 0);
        break;
    case KILN_GET_ATTR: put_attribute(p, node); break;
    default: break;
    }
}

/* -- statements --------------------------------------------------------------------------------------- */

static void put_annotation(py_printer *p, const kiln_node *node) {
    const char *val = p->verbose ? kiln_node_get_meta(node, "val") : NULL;
    if (!val && !node->type) return;
    kiln_sb_putn(&p->out, " : ", 3);
    if (val)
        kiln_gtext_string(&p->out, val, strlen(val));
    else
        kiln_py_value(p, node->type);
}

/* What would end the line, and the surrogates that no source may hold, are made harmless. */
static char in_comment(const char *s) {
    unsigned char c = (unsigned char)*s;
    bool surrogate = c == 0xed && (unsigned char)s[1] >= 0xa0;
    return c < ' ' || c == 127 ? ' ' : surrogate ? '\xee' : *s; /* U+D800.. become U+E800.., of private use */
}

/* Text above a node, each line made a comment. */
static uint32_t put_comment(py_printer *p, const kiln_node *node) {
    const char *s = p->verbose ? kiln_node_get_meta(node, "comment") : NULL;
    uint32_t lines = 0;
    while (s && *s) {
        kiln_py_text(p, "    # ");
        for (; *s && *s != '\n'; s++) kiln_sb_putc(&p->out, in_comment(s));
        kiln_sb_putc(&p->out, '\n');
        if (*s) s++;
        lines++;
    }
    return lines;
}

static void put_statement(py_printer *p, const kiln_node *node, const frees *f) {
    kiln_py_text(p, "    ");
    if (node->op == KILN_OUTPUT) {
        kiln_py_text(p, "return ");
        kiln_py_value(p, node->args[0]);
    } else if (node->op != KILN_CALL_FUNCTION || !kiln_py_operator_statement(p, node)) {
        kiln_py_node(p, node);
        put_annotation(p, node);
        kiln_sb_putn(&p->out, " = ", 3);
        put_expression(p, node);
    }
    if (node->op != KILN_OUTPUT) put_frees(p, f, node);
    kiln_sb_putc(&p->out, '\n');
}

/* -- the function ------------------------------------------------------------------------------------- */

/* How many leading parameters must be given: a default before one that has none could never be used, and
 * is left out. */
static size_t count_required(const py_printer *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->nparams && p->params[i]->target->u.s[0] != '*'; i++)
        if (!p->params[i]->nargs) n = i + 1;
    return n;
}

static kiln_status check_stars(const py_printer *p) {
    const char *star = NULL, *stars = NULL;
    for (size_t i = 0; i < p->nparams; i++) {
        const char *name = p->params[i]->target->u.s;
        size_t n = strspn(name, "*");
        if (stars || n > 2 || (n == 1 && star))
            return KILN_FAIL(KILN_E_ARG, "placeholder '%.60s' cannot stand after '%.60s'", name,
                             stars  ? stars
                             : star ? star
                                    : "");
        if (n && p->params[i]->nargs)
            return KILN_FAIL(KILN_E_ARG, "placeholder '%.60s' cannot have a default", name);
        if (n == 1) star = name;
        if (n == 2) stars = name;
    }
    return KILN_OK;
}

static void put_header(py_printer *p, const char *function) {
    size_t required = count_required(p);
    kiln_py_text(p, "def ");
    kiln_py_text(p, function);
    kiln_sb_putc(&p->out, '(');
    kiln_py_text(p, p->self);
    for (size_t i = 0; i < p->nparams; i++) {
        const kiln_node *node = p->params[i];
        if (i || p->self[0]) kiln_sb_putn(&p->out, ", ", 2);
        kiln_sb_putn(&p->out, "**", strspn(node->target->u.s, "*"));
        kiln_py_node(p, node);
        put_annotation(p, node);
        if (!node->nargs || i < required) continue;
        kiln_sb_putn(&p->out, " = ", 3);
        kiln_py_value(p, node->args[0]);
    }
    kiln_sb_putc(&p->out, ')');
    const kiln_node *last = p->g->last;
    if (last && last->op == KILN_OUTPUT && last->type) {
        kiln_py_text(p, " -> ");
        kiln_py_value(p, last->type);
    }
    kiln_py_text(p, ":\n");
}

static kiln_status print_all(py_printer *p, const char *function, const frees *f, kiln_python *out) {
    uint32_t line = 2;
    put_header(p, function);
    kiln_python_line *lines = kiln_alloc((p->g->count + 1) * sizeof *lines);
    if (!lines) return KILN_NOMEM();
    out->lines = lines;
    for (const kiln_node *node = p->g->first; node && p->st == KILN_OK; node = node->next) {
        if (node->op == KILN_PLACEHOLDER) continue;
        if (node->op != KILN_OUTPUT) kiln_py_name_node(p, node);
        line += put_comment(p, node);
        lines[out->nlines++] = (kiln_python_line){line++, node->id};
        put_statement(p, node, f);
    }
    if (!out->nlines) kiln_py_text(p, "    pass\n");
    return p->st;
}

static kiln_status print_graph(py_printer *p, const char *function, bool keep, kiln_python *out) {
    frees f = {0};
    KILN_TRY(kiln_graph_number(p->g));
    KILN_TRY(kiln_py_assign_names(p));
    KILN_TRY(check_stars(p));
    if (!keep) KILN_TRY(find_last_uses(p->g, &f));
    kiln_status st = print_all(p, function, &f, out);
    kiln_free(f.head);
    return st;
}

kiln_status kiln_graph_python(kiln_graph *g, const kiln_python_options *given, kiln_python *out) {
    KILN_NEED(g, out);
    kiln_python_options o = {.size = sizeof o};
    if (given && given->size) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    const char *function = o.function ? o.function : "forward";
    py_printer p = {
        .g = g, .self = o.self ? o.self : "self", .taken = o.taken, .ntaken = o.ntaken, .verbose = o.verbose};
    kiln_python made = {0};
    if (!kiln_py_plain(function, strlen(function)) || (p.self[0] && !kiln_py_plain(p.self, strlen(p.self))))
        return KILN_FAIL(KILN_E_ARG, "'%.60s' or '%.60s' is no Python name", function, p.self);
    kiln_sb_init(&p.out);
    kiln_arena_init(&p.arena);
    kiln_arena *owner = kiln_alloc(sizeof *owner);
    kiln_status st = owner ? print_graph(&p, function, o.keep_values, &made) : KILN_NOMEM();
    if (st == KILN_OK) made.nsource = p.out.len;
    if (st == KILN_OK) st = kiln_sb_take(&p.out, &made.source);
    kiln_py_names_fini(&p);
    kiln_sb_fini(&p.out);
    made.globals = p.list;
    made.nglobals = p.nlist;
    made.owner = owner;
    if (owner) *owner = p.arena;
    if (st == KILN_OK)
        *out = made;
    else
        kiln_python_free(&made);
    return st;
}

void kiln_python_free(kiln_python *p) {
    if (!p) return;
    kiln_free(p->source);
    kiln_free(p->globals);
    kiln_free(p->lines);
    if (p->owner) kiln_arena_free(p->owner);
    kiln_free(p->owner);
    memset(p, 0, sizeof *p);
}
