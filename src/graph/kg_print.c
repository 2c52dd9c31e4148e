/* kg_print.c - a graph -> its .kg text (docs/GRAPH.md has the grammar).
 *
 * One node per line.  What this prints, kg_parse.c reads back to an equal graph; names and texts that the
 * grammar could misread are quoted.  Must not know Python. */
#include <string.h>

#include "graph/kg.h"

/* -- words -------------------------------------------------------------------------------------------- */

static bool is_word(const char *s, size_t n, const char *extra) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
        if (!plain && !strchr(extra, c)) return false;
    }
    return n > 0;
}

static void put_name(kiln_sb *out, const char *s, size_t n) {
    if (kiln_gtext_is_identifier(s, n))
        kiln_sb_putn(out, s, n);
    else
        kiln_gtext_string(out, s, n);
}

/* "kind(text)", the text quoted unless it is a plain word. */
static void put_wrapped(kiln_sb *out, const char *kind, const kiln_gval *v) {
    kiln_sb_puts(out, kind);
    kiln_sb_putc(out, '(');
    put_name(out, v->u.s, v->n);
    kiln_sb_putc(out, ')');
}

/* -- values ------------------------------------------------------------------------------------------- */

static void put_value(kiln_sb *out, const kiln_gval *v);

static void put_list(kiln_sb *out, const char *open, const kiln_gval *const *items, size_t n,
                     const char *close) {
    kiln_sb_puts(out, open);
    for (size_t i = 0; i < n; i++) {
        if (i) kiln_sb_putn(out, ", ", 2);
        put_value(out, items[i]);
    }
    kiln_sb_puts(out, close);
}

static void put_dict(kiln_sb *out, const kiln_gval *v) {
    kiln_sb_putc(out, '{');
    for (uint32_t i = 0; i < v->n; i += 2) {
        if (i) kiln_sb_putn(out, ", ", 2);
        put_value(out, v->u.items[i]);
        kiln_sb_putn(out, ": ", 2);
        put_value(out, v->u.items[i + 1]);
    }
    kiln_sb_putc(out, '}');
}

/* namedtuple(type, x=1, y=2) */
static void put_named_tuple(kiln_sb *out, const kiln_gval *v) {
    const kiln_gval *const *names = v->u.items[1]->u.items;
    kiln_sb_puts(out, "namedtuple(");
    put_value(out, v->u.items[0]);
    for (uint32_t i = 2; i < v->n; i++) {
        kiln_sb_putn(out, ", ", 2);
        put_name(out, names[i - 2]->u.s, names[i - 2]->n);
        kiln_sb_putc(out, '=');
        put_value(out, v->u.items[i]);
    }
    kiln_sb_putc(out, ')');
}

static void put_complex(kiln_sb *out, const kiln_gval *v) {
    kiln_sb_puts(out, "complex(");
    kiln_gtext_float(out, v->u.c.re);
    kiln_sb_putn(out, ", ", 2);
    kiln_gtext_float(out, v->u.c.im);
    kiln_sb_putc(out, ')');
}

static void put_qualified(kiln_sb *out, const kiln_gval *v) {
    bool func = v->kind == KILN_G_FUNC, colon_last = v->u.s[v->n - 1] == ':';
    if (is_word(v->u.s, v->n, ".:") && !colon_last && (v->u.s[0] < '0' || v->u.s[0] > '9') &&
        v->u.s[0] != '.') {
        kiln_sb_putn(out, v->u.s, v->n);
        return;
    }
    put_wrapped(out, func ? "func" : "op", v);
}

static void put_value(kiln_sb *out, const kiln_gval *v) {
    switch ((kiln_gkind)v->kind) {
    case KILN_G_NONE: kiln_sb_putn(out, "None", 4); break;
    case KILN_G_ELLIPSIS: kiln_sb_putn(out, "...", 3); break;
    case KILN_G_BOOL: kiln_sb_puts(out, v->u.i ? "True" : "False"); break;
    case KILN_G_INT: kiln_gtext_int(out, v->u.i); break;
    case KILN_G_BIGINT: kiln_sb_putn(out, v->u.s, v->n); break;
    case KILN_G_FLOAT: kiln_gtext_float(out, v->u.f); break;
    case KILN_G_COMPLEX: put_complex(out, v); break;
    case KILN_G_STR: kiln_gtext_string(out, v->u.s, v->n); break;
    case KILN_G_BYTES: kiln_gtext_bytes(out, v->u.s, v->n); break;
    case KILN_G_DTYPE: put_wrapped(out, "dtype", v); break;
    case KILN_G_DEVICE: put_wrapped(out, "device", v); break;
    case KILN_G_LAYOUT: put_wrapped(out, "layout", v); break;
    case KILN_G_MEMORY_FORMAT: put_wrapped(out, "memory_format", v); break;
    case KILN_G_CONST: put_wrapped(out, "const", v); break;
    case KILN_G_OP:
    case KILN_G_FUNC: put_qualified(out, v); break;
    case KILN_G_NODE:
        kiln_sb_putc(out, '%');
        put_name(out, v->u.node->name, v->u.node->name_len);
        break;
    case KILN_G_TUPLE: put_list(out, "(", v->u.items, v->n, v->n == 1 ? ",)" : ")"); break;
    case KILN_G_LIST: put_list(out, "[", v->u.items, v->n, "]"); break;
    case KILN_G_SET: put_list(out, "set(", v->u.items, v->n, ")"); break;
    case KILN_G_FROZENSET: put_list(out, "frozenset(", v->u.items, v->n, ")"); break;
    case KILN_G_SIZE: put_list(out, "size(", v->u.items, v->n, ")"); break;
    case KILN_G_SLICE: put_list(out, "slice(", v->u.items, v->n, ")"); break;
    case KILN_G_RANGE: put_list(out, "range(", v->u.items, v->n, ")"); break;
    case KILN_G_STRUCTSEQ: put_list(out, "structseq(", v->u.items, v->n, ")"); break;
    case KILN_G_ENUM: put_list(out, "enum(", v->u.items, v->n, ")"); break;
    case KILN_G_DICT: put_dict(out, v); break;
    case KILN_G_NAMEDTUPLE: put_named_tuple(out, v); break;
    case KILN_G_KIND_COUNT: break;
    }
}

kiln_status kiln_gval_text(const kiln_gval *v, char **out) {
    KILN_NEED(v, out);
    kiln_sb text;
    kiln_sb_init(&text);
    put_value(&text, v);
    return kiln_sb_take(&text, out);
}

/* -- nodes -------------------------------------------------------------------------------------------- */

static void put_target(kiln_sb *out, const kiln_node *node) {
    const kiln_gval *t = node->target;
    if (t->kind != KILN_G_STR)
        put_value(out, t);
    else if (is_word(t->u.s, t->n, ".*"))
        kiln_sb_putn(out, t->u.s, t->n);
    else
        kiln_gtext_string(out, t->u.s, t->n);
}

static void put_args(kiln_sb *out, const kiln_node *node) {
    kiln_sb_putc(out, '(');
    for (uint32_t i = 0; i < node->nargs; i++) {
        if (i) kiln_sb_putn(out, ", ", 2);
        put_value(out, node->args[i]);
    }
    for (uint32_t i = 0; i < node->nkwargs; i++) {
        if (i || node->nargs) kiln_sb_putn(out, ", ", 2);
        put_name(out, node->kwargs[i].name, strlen(node->kwargs[i].name));
        kiln_sb_putc(out, '=');
        put_value(out, node->kwargs[i].value);
    }
    kiln_sb_putc(out, ')');
}

/* Oldest first, so that parsing gives the same list. */
static void put_meta(kiln_sb *out, const kiln_meta *m) {
    const kiln_meta *list[KILN_GRAPH_MAX_META];
    int n = 0;
    for (; m; m = m->next) list[n++] = m;
    kiln_sb_putn(out, " {", 2);
    while (n--) {
        put_name(out, list[n]->key, strlen(list[n]->key));
        kiln_sb_putc(out, '=');
        kiln_gtext_string(out, list[n]->text, strlen(list[n]->text));
        if (n) kiln_sb_putn(out, ", ", 2);
    }
    kiln_sb_putc(out, '}');
}

static void put_node(kiln_sb *out, const kiln_node *node) {
    bool call = node->op != KILN_PLACEHOLDER && node->op != KILN_GET_ATTR;
    bool implied = node->op == KILN_OUTPUT && node->target->n == 6 &&
                   memcmp(node->target->u.s, "output", 6) == 0;
    put_name(out, node->name, node->name_len);
    if (node->type) {
        kiln_sb_putn(out, " : ", 3);
        put_value(out, node->type);
    }
    kiln_sb_putn(out, " = ", 3);
    kiln_sb_puts(out, kiln_node_op_name(node->op));
    if (!implied) {
        kiln_sb_putc(out, ' ');
        put_target(out, node);
    }
    if (call || node->nargs) put_args(out, node);
    if (node->meta) put_meta(out, node->meta);
    kiln_sb_putc(out, '\n');
}

kiln_status kiln_graph_text(const kiln_graph *g, char **out) {
    KILN_NEED(g, out);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_sb_puts(&text, KG_HEADER "\n");
    for (const kiln_node *node = g->first; node; node = node->next) put_node(&text, node);
    return kiln_sb_take(&text, out);
}
