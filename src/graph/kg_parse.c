/* kg_parse.c - .kg text -> a graph, line by line.
 *
 * docs/GRAPH.md has the grammar.  A node may use only nodes of earlier lines, so what parses is in order.
 * Values are kg_value.c's.  Must not know schemas or Python. */
#include <string.h>

#include "graph/kg.h"

enum { MAX_TEXT = 1 << 30 };

/* -- nodes -------------------------------------------------------------------------------------------- */

/* The name of a keyword argument, if one stands here; the caller copies it at once. */
static kiln_status parse_keyword(kg_parser *p, bool *found, const kiln_gval **name) {
    const char *from = p->at, *s;
    size_t n;
    *found = false;
    if (!kg_is_letter(kg_peek(p)) && kg_peek(p) != '"') return KILN_OK;
    if (kg_peek(p) == 'b' && kg_peek2(p) == '"') return KILN_OK;
    KILN_TRY(kiln_kg_name(p, "a name", &s, &n));
    *found = kg_eat(p, '=');
    if (!*found) {
        p->at = from;
        return KILN_OK;
    }
    if (memchr(s, 0, n)) return KG_FAIL(KILN_E_PARSE, p, from, "a name holds a NUL byte");
    return kiln_kg_placed(p, from, kiln_graph_str(p->g, KILN_G_STR, s, n, name));
}

/* "(1, %x, dim=2)": values, then name and value by turns, all on the stack. */
static kiln_status parse_args(kg_parser *p, size_t *nargs) {
    bool named = false, found;
    *nargs = 0;
    if (kg_eat(p, ')')) return KILN_OK;
    do {
        const kiln_gval *name, *value;
        kg_skip_blanks(p);
        KILN_TRY(parse_keyword(p, &found, &name));
        if (named && !found) return kiln_kg_expected(p, "a keyword argument, since one came before");
        named |= found;
        if (found)
            KILN_TRY(kiln_kg_push(p, name));
        else
            ++*nargs;
        KILN_TRY(kiln_kg_value(p, &value));
        KILN_TRY(kiln_kg_push(p, value));
    } while (kg_eat(p, ','));
    return kg_eat(p, ')') ? KILN_OK : kiln_kg_expected(p, "',' or ')'");
}

static kiln_status parse_op(kg_parser *p, kiln_node_op *out) {
    kg_skip_blanks(p);
    const char *from = p->at;
    kiln_kg_skip_word(p, "");
    for (int op = 0; op < KILN_NODE_OP_COUNT; op++) {
        const char *name = kiln_node_op_name((kiln_node_op)op);
        if (strlen(name) != (size_t)(p->at - from) || memcmp(name, from, strlen(name)) != 0) continue;
        *out = (kiln_node_op)op;
        return KILN_OK;
    }
    p->at = from;
    return kiln_kg_expected(p, "placeholder, get_attr, call_function, call_method, call_module or output");
}

static kiln_status parse_target(kg_parser *p, kiln_node_op op, const kiln_gval **out) {
    kg_skip_blanks(p);
    const char *from = p->at;
    if (op == KILN_CALL_FUNCTION) return kiln_kg_value(p, out);
    if (op == KILN_OUTPUT && kg_peek(p) == '(') return kiln_graph_str(p->g, KILN_G_STR, "output", 6, out);
    if (kg_peek(p) == '"') return kiln_kg_value(p, out);
    while (kg_is_word_char(kg_peek(p)) || kg_peek(p) == '.' || kg_peek(p) == '*') p->at++;
    if (p->at == from) return kiln_kg_expected(p, "a target");
    return kiln_kg_placed(p, from, kiln_graph_str(p->g, KILN_G_STR, from, (size_t)(p->at - from), out));
}

static kiln_status parse_meta(kg_parser *p, kiln_node *node) {
    do {
        const kiln_gval *key;
        bool found;
        kg_skip_blanks(p);
        const char *where = p->at;
        KILN_TRY(parse_keyword(p, &found, &key));
        if (!found) return kiln_kg_expected(p, "a key and '='");
        kg_skip_blanks(p);
        if (kg_peek(p) != '"') return kiln_kg_expected(p, "a string");
        KILN_TRY(kiln_kg_string(p, false));
        if (kiln_node_get_meta(node, key->u.s))
            return KG_FAIL(KILN_E_PARSE, p, where, "a key is given twice");
        KILN_TRY(kiln_kg_placed(p, where, kiln_node_set_meta(node, key->u.s, p->text.p, p->text.len)));
    } while (kg_eat(p, ','));
    return kg_eat(p, '}') ? KILN_OK : kiln_kg_expected(p, "',' or '}'");
}

/* Makes the node from its head and what parse_args left on the stack. */
static kiln_status add_node(kg_parser *p, kiln_node_spec *spec, size_t base, const char *where,
                            kiln_node **out) {
    size_t nnamed = (p->nstack - base - spec->nargs) / 2;
    const kiln_gval **named = p->stack + base + spec->nargs;
    kiln_kwarg *kwargs = kiln_arena_alloc(&p->g->arena, (nnamed + 1) * sizeof *kwargs);
    if (!kwargs) return KILN_NOMEM();
    for (size_t i = 0; i < nnamed; i++) kwargs[i] = (kiln_kwarg){named[2 * i]->u.s, named[2 * i + 1]};
    spec->args = p->stack + base;
    spec->kwargs = kwargs;
    spec->nkwargs = nnamed;
    p->nstack = base;
    return kiln_kg_placed(p, where, kiln_graph_add(p->g, NULL, spec, out));
}

static kiln_status parse_node(kg_parser *p) {
    const char *where = p->at, *s;
    size_t n, base = p->nstack;
    const kiln_gval *name;
    kiln_node_spec spec = {0};
    kiln_node *node;
    KILN_TRY(kiln_kg_name(p, "a node's name", &s, &n));
    if (kiln_graph_find(p->g, s, n))
        return KG_FAIL(KILN_E_PARSE, p, where, "a node named '%.*s' is defined already", n > 60 ? 60 : (int)n,
                       s);
    KILN_TRY(kiln_kg_placed(p, where, kiln_graph_str(p->g, KILN_G_STR, s, n, &name)));
    spec.name = name->u.s;
    spec.name_len = name->n;
    if (kg_eat(p, ':')) KILN_TRY(kiln_kg_value(p, &spec.type));
    if (!kg_eat(p, '=')) return kiln_kg_expected(p, spec.type ? "'='" : "':' or '='");
    KILN_TRY(parse_op(p, &spec.op));
    KILN_TRY(parse_target(p, spec.op, &spec.target));
    if (kg_eat(p, '('))
        KILN_TRY(parse_args(p, &spec.nargs));
    else if (spec.op != KILN_PLACEHOLDER && spec.op != KILN_GET_ATTR)
        return kiln_kg_expected(p, "'('");
    KILN_TRY(add_node(p, &spec, base, where, &node));
    return kg_eat(p, '{') ? parse_meta(p, node) : KILN_OK;
}

static kiln_status end_line(kg_parser *p) {
    kg_skip_blanks(p);
    if (kg_peek(p) == '#')
        while (p->at < p->end && *p->at != '\n') p->at++;
    if (p->at < p->end && *p->at != '\n') return kiln_kg_expected(p, "the end of the line");
    if (p->at < p->end) p->at++;
    return KILN_OK;
}

static bool at_blank_line(kg_parser *p) {
    kg_skip_blanks(p);
    return p->at == p->end || *p->at == '\n' || *p->at == '#';
}

static kiln_status parse_lines(kg_parser *p) {
    size_t n = sizeof KG_HEADER - 1;
    while (p->at < p->end && at_blank_line(p)) KILN_TRY(end_line(p));
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, KG_HEADER, n) != 0)
        return KG_FAIL(KILN_E_PARSE, p, p->at, "expected the first line to be '" KG_HEADER "'");
    p->at += n;
    KILN_TRY(end_line(p));
    while (p->at < p->end) {
        if (!at_blank_line(p)) KILN_TRY(parse_node(p));
        KILN_TRY(end_line(p));
    }
    return kiln_note(kiln_graph_verify(p->g), "graph");
}

kiln_status kiln_graph_parse(const char *text, size_t n, kiln_graph **out) {
    KILN_NEED(out);
    KILN_NEED_ITEMS(text, n);
    if (!text) text = "";
    kg_parser p = {.start = text, .at = text, .end = text + n};
    if (n > MAX_TEXT)
        return KILN_FAIL(KILN_E_LIMIT, "a graph of %zu bytes; at most %d are allowed", n, MAX_TEXT);
    KILN_TRY(kiln_graph_new(&p.g));
    kiln_sb_init(&p.text);
    kiln_status st = parse_lines(&p);
    kiln_sb_fini(&p.text);
    kiln_free(p.stack);
    if (st == KILN_OK)
        *out = p.g;
    else
        kiln_graph_free(p.g);
    return st;
}
