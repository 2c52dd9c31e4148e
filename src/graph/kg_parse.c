/* kg_parse.c - .kg text -> a graph, by recursive descent straight over the characters.
 *
 * docs/GRAPH.md has the grammar.  A node may use only nodes of earlier lines, so what parses is in order.
 * Positions are worked out only when something fails.  Must not know schemas or Python. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/kg.h"

enum { MAX_TEXT = 1 << 30 };

typedef struct parser {
    const char *start, *at, *end;
    kiln_graph *g;
    int depth;               /* values open around `at` */
    const kiln_gval **stack; /* items of the values that are open, innermost last */
    size_t nstack, stack_cap;
    kiln_sb text; /* of the string read last */
} parser;

/* -- errors ------------------------------------------------------------------------------------------- */

#define FAIL_AT(st, p, where, ...) (set_error_at((p), (where), (st), __VA_ARGS__), (st))

static void set_error_at(const parser *p, const char *where, kiln_status st, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void set_error_at(const parser *p, const char *where, kiln_status st, const char *fmt, ...) {
    int line = 1;
    const char *line_start = p->start;
    for (const char *c = p->start; c < where; c++) {
        if (*c != '\n') continue;
        line++;
        line_start = c + 1;
    }
    char problem[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(problem, sizeof problem, fmt, ap);
    va_end(ap);
    kiln_set_error(__FILE__, __LINE__, st, "graph:%d:%d: %s", line, (int)(where - line_start) + 1, problem);
}

static char peek(const parser *p) { return p->at < p->end ? *p->at : '\0'; }

static kiln_status expected(const parser *p, const char *what) {
    unsigned char c = (unsigned char)peek(p);
    if (p->at == p->end)
        return FAIL_AT(KILN_E_PARSE, p, p->at, "expected %s, found the end of the text", what);
    if (c == '\n') return FAIL_AT(KILN_E_PARSE, p, p->at, "expected %s, found the end of the line", what);
    if (c < ' ' || c > '~') return FAIL_AT(KILN_E_PARSE, p, p->at, "expected %s, found byte 0x%02x", what, c);
    return FAIL_AT(KILN_E_PARSE, p, p->at, "expected %s, found '%c'", what, c);
}

/* Says where a value or node that could not be made stands. */
static kiln_status placed(const parser *p, const char *where, kiln_status st) {
    char why[400];
    if (st == KILN_OK || st == KILN_E_NOMEM) return st;
    snprintf(why, sizeof why, "%s", kiln_last_error());
    return FAIL_AT(st, p, where, "%s", why);
}

/* -- characters --------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_word_char(char c) { return is_letter(c) || is_digit(c); }
static char peek2(const parser *p) { return p->end - p->at > 1 ? p->at[1] : '\0'; }

static void skip_blanks(parser *p) {
    while (peek(p) == ' ' || peek(p) == '\t' || peek(p) == '\r') p->at++;
}

static bool eat(parser *p, char c) {
    skip_blanks(p);
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static void skip_word(parser *p, const char *joiners) {
    for (;;) {
        char c = peek(p);
        bool joins = c && strchr(joiners, c) && (is_word_char(peek2(p)) || peek2(p) == ':');
        if (!is_word_char(c) && !joins) return;
        p->at++;
    }
}

static kiln_status push(parser *p, const kiln_gval *v) {
    if (p->nstack == p->stack_cap) {
        size_t cap = p->stack_cap ? p->stack_cap * 2 : 256;
        const kiln_gval **grown = kiln_realloc(p->stack, cap * sizeof *grown);
        if (!grown) return KILN_NOMEM();
        p->stack = grown;
        p->stack_cap = cap;
    }
    p->stack[p->nstack++] = v;
    return KILN_OK;
}

/* -- strings ------------------------------------------------------------------------------------------ */

static void put_utf8(kiln_sb *out, uint32_t c) {
    char text[4];
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, c >>= 6) text[i] = (char)(0x80 | (c & 63));
    text[0] = (char)(lead[n] | c);
    kiln_sb_putn(out, text, (size_t)n);
}

static kiln_status parse_hex(parser *p, int digits, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        char c = peek(p);
        int d = is_digit(c)            ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return expected(p, "a hexadecimal digit");
        *out = *out << 4 | (uint32_t)d;
    }
    return KILN_OK;
}

/* After a backslash. */
static kiln_status parse_escape(parser *p, bool bytes) {
    static const char letters[] = "ntr\\\"", meanings[] = "\n\t\r\\\"";
    char c = peek(p);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        p->at++;
        kiln_sb_putc(&p->text, meanings[letter - letters]);
        return KILN_OK;
    }
    int digits = c == 'x' ? 2 : bytes ? 0 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!digits) return expected(p, "one of n t r \\ \" x u U after '\\'");
    const char *where = p->at++;
    uint32_t point;
    KILN_TRY(parse_hex(p, digits, &point));
    if (point > 0x10ffff) return FAIL_AT(KILN_E_PARSE, p, where, "expected a code point of at most 10ffff");
    if (bytes)
        kiln_sb_putc(&p->text, (char)point);
    else
        put_utf8(&p->text, point);
    return KILN_OK;
}

/* Stands at the quote; the text is in p->text then. */
static kiln_status parse_string(parser *p, bool bytes) {
    p->at++;
    p->text.len = 0;
    kiln_sb_putn(&p->text, "", 0);
    for (;;) {
        const char *run = p->at;
        while (p->at < p->end && *p->at != '"' && *p->at != '\\' && *p->at != '\n') p->at++;
        kiln_sb_putn(&p->text, run, (size_t)(p->at - run));
        if (peek(p) == '"') break;
        if (p->at == p->end || *p->at == '\n') return expected(p, "'\"' to end the string");
        p->at++;
        KILN_TRY(parse_escape(p, bytes));
    }
    p->at++;
    return p->text.failed ? KILN_NOMEM() : KILN_OK;
}

/* An identifier or a string; *s is valid until the next string is read. */
static kiln_status parse_name(parser *p, const char *what, const char **s, size_t *n) {
    skip_blanks(p);
    if (peek(p) == '"') {
        KILN_TRY(parse_string(p, false));
        *s = p->text.p;
        *n = p->text.len;
        return KILN_OK;
    }
    *s = p->at;
    if (!is_letter(peek(p))) return expected(p, what);
    skip_word(p, "");
    *n = (size_t)(p->at - *s);
    return KILN_OK;
}

/* -- values ------------------------------------------------------------------------------------------- */

static kiln_status parse_value(parser *p, const kiln_gval **out);

/* Values up to `close`, pushed on the stack. */
static kiln_status parse_items(parser *p, char close) {
    if (eat(p, close)) return KILN_OK;
    do {
        const kiln_gval *item;
        skip_blanks(p);
        if (peek(p) == close) break; /* after a last comma */
        KILN_TRY(parse_value(p, &item));
        KILN_TRY(push(p, item));
    } while (eat(p, ','));
    if (eat(p, close)) return KILN_OK;
    char what[] = "',' or ' '";
    what[8] = close;
    return expected(p, what);
}

/* Makes the items pushed since `base` into one value. */
static kiln_status collect(parser *p, kiln_gkind kind, size_t base, const char *where,
                           const kiln_gval **out) {
    kiln_status st = kiln_graph_items(p->g, kind, p->stack + base, p->nstack - base, out);
    p->nstack = base;
    return placed(p, where, st);
}

static kiln_status parse_sequence(parser *p, kiln_gkind kind, char close, const char *where,
                                  const kiln_gval **out) {
    size_t base = p->nstack;
    KILN_TRY(parse_items(p, close));
    return collect(p, kind, base, where, out);
}

static kiln_status parse_dict(parser *p, const char *where, const kiln_gval **out) {
    size_t base = p->nstack;
    const kiln_gval *v;
    if (!eat(p, '}')) {
        do {
            KILN_TRY(parse_value(p, &v));
            KILN_TRY(push(p, v));
            if (!eat(p, ':')) return expected(p, "':'");
            KILN_TRY(parse_value(p, &v));
            KILN_TRY(push(p, v));
        } while (eat(p, ','));
        if (!eat(p, '}')) return expected(p, "',' or '}'");
    }
    return collect(p, KILN_G_DICT, base, where, out);
}

/* namedtuple(type, x=1, y=2); stands after the bracket. */
static kiln_status parse_named_tuple(parser *p, const char *where, const kiln_gval **out) {
    size_t base = p->nstack;
    const kiln_gval *v, *names = NULL;
    KILN_TRY(parse_value(p, &v));
    KILN_TRY(push(p, v));
    KILN_TRY(push(p, NULL)); /* the names' place */
    while (eat(p, ',')) {
        const char *s;
        size_t n;
        KILN_TRY(parse_name(p, "the name of a field", &s, &n));
        KILN_TRY(placed(p, where, kiln_graph_str(p->g, KILN_G_STR, s, n, &v)));
        KILN_TRY(push(p, v));
        if (!eat(p, '=')) return expected(p, "'='");
        KILN_TRY(parse_value(p, &v));
        KILN_TRY(push(p, v));
    }
    if (!eat(p, ')')) return expected(p, "',' or ')'");
    size_t first = base + 2, n = (p->nstack - first) / 2;
    for (size_t i = 0; i < n; i++) KILN_TRY(push(p, p->stack[first + 2 * i])); /* names apart from fields */
    KILN_TRY(kiln_graph_items(p->g, KILN_G_TUPLE, p->stack + p->nstack - n, n, &names));
    for (size_t i = 0; i < n; i++) p->stack[first + i] = p->stack[first + 2 * i + 1];
    p->stack[base + 1] = names;
    p->nstack = first + n;
    return collect(p, KILN_G_NAMEDTUPLE, base, where, out);
}

static kiln_status parse_number(parser *p, const kiln_gval **out) {
    const char *from = p->at;
    bool fraction = false;
    if (peek(p) == '-') p->at++;
    if (peek(p) == 'i' || peek(p) == 'n') {
        const char *word = p->at;
        skip_word(p, "");
        bool inf = p->at - word == 3 && memcmp(word, "inf", 3) == 0;
        if (!inf && (p->at - word != 3 || memcmp(word, "nan", 3) != 0))
            return p->at = word, expected(p, "a number");
        return kiln_graph_float(p->g, inf ? -INFINITY : copysign(NAN, -1.0), out);
    }
    if (!is_digit(peek(p))) return expected(p, "a number");
    bool hex = peek(p) == '0' && peek2(p) == 'x';
    while (is_word_char(peek(p)) || (!hex && peek(p) == '.') ||
           (!hex && (peek(p) == '-' || peek(p) == '+') && (p->at[-1] == 'e' || p->at[-1] == 'E'))) {
        fraction |= !hex && memchr(".eE", *p->at, 3) != NULL;
        p->at++;
    }
    size_t n = (size_t)(p->at - from);
    double f;
    if (!fraction) return placed(p, from, kiln_graph_str(p->g, KILN_G_BIGINT, from, n, out));
    if (!kiln_f64_parse(from, n, &f) || !isfinite(f))
        return FAIL_AT(KILN_E_PARSE, p, from, "expected a number that fits a double");
    return kiln_graph_float(p->g, f, out);
}

static kiln_status parse_complex(parser *p, const char *where, const kiln_gval **out) {
    size_t base = p->nstack;
    double part[2];
    KILN_TRY(parse_items(p, ')'));
    size_t n = p->nstack - base;
    p->nstack = base;
    for (size_t i = 0; i < n && i < 2; i++) {
        if (p->stack[base + i]->kind != KILN_G_FLOAT) n = 0;
        part[i] = p->stack[base + i]->u.f;
    }
    if (n != 2) return FAIL_AT(KILN_E_PARSE, p, where, "complex takes two floats, as complex(0.0, 1.0)");
    return kiln_graph_value(p->g, &(kiln_gval){.kind = KILN_G_COMPLEX, .u.c = {part[0], part[1]}}, out);
}

/* dtype(float32), device("cuda:0"); stands after the bracket. */
static kiln_status parse_wrapped(parser *p, kiln_gkind kind, const char *where, const kiln_gval **out) {
    const char *s;
    size_t n;
    KILN_TRY(parse_name(p, "a name or a string", &s, &n));
    KILN_TRY(placed(p, where, kiln_graph_str(p->g, kind, s, n, out)));
    return eat(p, ')') ? KILN_OK : expected(p, "')'");
}

static const struct {
    const char *word;
    kiln_gkind kind;
} calls[] = {{"complex", KILN_G_COMPLEX}, {"dtype", KILN_G_DTYPE},
             {"device", KILN_G_DEVICE},   {"layout", KILN_G_LAYOUT},
             {"const", KILN_G_CONST},     {"memory_format", KILN_G_MEMORY_FORMAT},
             {"func", KILN_G_FUNC},       {"op", KILN_G_OP},
             {"set", KILN_G_SET},         {"frozenset", KILN_G_FROZENSET},
             {"size", KILN_G_SIZE},       {"slice", KILN_G_SLICE},
             {"range", KILN_G_RANGE},     {"structseq", KILN_G_STRUCTSEQ},
             {"enum", KILN_G_ENUM},       {"namedtuple", KILN_G_NAMEDTUPLE}};

static kiln_status parse_call(parser *p, const char *word, size_t n, const kiln_gval **out) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        kiln_gkind kind = calls[i].kind;
        if (strlen(calls[i].word) != n || memcmp(calls[i].word, word, n) != 0) continue;
        if (!eat(p, '(')) return expected(p, "'('");
        if (kind == KILN_G_COMPLEX) return parse_complex(p, word, out);
        if (kind == KILN_G_NAMEDTUPLE) return parse_named_tuple(p, word, out);
        if (kiln_gkind_is_text(kind)) return parse_wrapped(p, kind, word, out);
        return parse_sequence(p, kind, ')', word, out);
    }
    p->at = word;
    return FAIL_AT(KILN_E_PARSE, p, word, "expected a value, found '%.*s'", n > 60 ? 60 : (int)n, word);
}

static kiln_status parse_word(parser *p, const kiln_gval **out) {
    static const struct {
        const char *word;
        kiln_gval meaning;
    } words[] = {{"None", {.kind = KILN_G_NONE}},
                 {"True", {.kind = KILN_G_BOOL, .u.i = 1}},
                 {"False", {.kind = KILN_G_BOOL, .u.i = 0}},
                 {"inf", {.kind = KILN_G_FLOAT, .u.f = INFINITY}},
                 {"nan", {.kind = KILN_G_FLOAT, .u.f = NAN}}};
    const char *from = p->at;
    skip_word(p, ".:");
    size_t n = (size_t)(p->at - from);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, from, n) == 0)
            return kiln_graph_value(p->g, &words[i].meaning, out);
    const char *colon = memchr(from, ':', n);
    if (!colon) return parse_call(p, from, n, out);
    kiln_gkind kind = colon + 1 < p->at && colon[1] == ':' ? KILN_G_OP : KILN_G_FUNC;
    return placed(p, from, kiln_graph_str(p->g, kind, from, n, out));
}

static kiln_status parse_reference(parser *p, const kiln_gval **out) {
    const char *where = p->at++, *s;
    size_t n;
    KILN_TRY(parse_name(p, "a node's name", &s, &n));
    kiln_node *node = kiln_graph_find(p->g, s, n);
    if (!node)
        return FAIL_AT(KILN_E_PARSE, p, where, "no node named '%.*s' before this line", n > 60 ? 60 : (int)n,
                       s);
    *out = kiln_graph_ref(node);
    return KILN_OK;
}

static kiln_status parse_ellipsis(parser *p, const kiln_gval **out) {
    if (p->end - p->at < 3 || memcmp(p->at, "...", 3) != 0) return expected(p, "a value");
    p->at += 3;
    return kiln_graph_value(p->g, &(kiln_gval){.kind = KILN_G_ELLIPSIS}, out);
}

static kiln_status parse_inner(parser *p, const kiln_gval **out) {
    const char *where = p->at;
    char c = peek(p);
    switch (c) {
    case '%': return parse_reference(p, out);
    case '.': return parse_ellipsis(p, out);
    case '(': p->at++; return parse_sequence(p, KILN_G_TUPLE, ')', where, out);
    case '[': p->at++; return parse_sequence(p, KILN_G_LIST, ']', where, out);
    case '{': p->at++; return parse_dict(p, where, out);
    case '"':
        KILN_TRY(parse_string(p, false));
        return placed(p, where, kiln_graph_str(p->g, KILN_G_STR, p->text.p, p->text.len, out));
    default: break;
    }
    if (c == 'b' && peek2(p) == '"') {
        p->at++;
        KILN_TRY(parse_string(p, true));
        return kiln_graph_str(p->g, KILN_G_BYTES, p->text.p, p->text.len, out);
    }
    if (c == '-' || is_digit(c)) return parse_number(p, out);
    return is_letter(c) ? parse_word(p, out) : expected(p, "a value");
}

static kiln_status parse_value(parser *p, const kiln_gval **out) {
    skip_blanks(p);
    if (p->depth == KILN_GRAPH_MAX_NEST)
        return FAIL_AT(KILN_E_LIMIT, p, p->at, "a value nests more than %d brackets", KILN_GRAPH_MAX_NEST);
    p->depth++;
    kiln_status st = parse_inner(p, out);
    p->depth--;
    return st;
}

/* -- nodes -------------------------------------------------------------------------------------------- */

/* The name of a keyword argument, if one stands here; the caller copies it at once. */
static kiln_status parse_keyword(parser *p, bool *found, const kiln_gval **name) {
    const char *from = p->at, *s;
    size_t n;
    *found = false;
    if (!is_letter(peek(p)) && peek(p) != '"') return KILN_OK;
    if (peek(p) == 'b' && peek2(p) == '"') return KILN_OK;
    KILN_TRY(parse_name(p, "a name", &s, &n));
    *found = eat(p, '=');
    if (!*found) {
        p->at = from;
        return KILN_OK;
    }
    if (memchr(s, 0, n)) return FAIL_AT(KILN_E_PARSE, p, from, "a name holds a NUL byte");
    return placed(p, from, kiln_graph_str(p->g, KILN_G_STR, s, n, name));
}

/* "(1, %x, dim=2)": values, then name and value by turns, all on the stack. */
static kiln_status parse_args(parser *p, size_t *nargs) {
    bool named = false, found;
    *nargs = 0;
    if (eat(p, ')')) return KILN_OK;
    do {
        const kiln_gval *name, *value;
        skip_blanks(p);
        KILN_TRY(parse_keyword(p, &found, &name));
        if (named && !found) return expected(p, "a keyword argument, since one came before");
        named |= found;
        if (found)
            KILN_TRY(push(p, name));
        else
            ++*nargs;
        KILN_TRY(parse_value(p, &value));
        KILN_TRY(push(p, value));
    } while (eat(p, ','));
    return eat(p, ')') ? KILN_OK : expected(p, "',' or ')'");
}

static kiln_status parse_op(parser *p, kiln_node_op *out) {
    skip_blanks(p);
    const char *from = p->at;
    skip_word(p, "");
    for (int op = 0; op < KILN_NODE_OP_COUNT; op++) {
        const char *name = kiln_node_op_name((kiln_node_op)op);
        if (strlen(name) != (size_t)(p->at - from) || memcmp(name, from, strlen(name)) != 0) continue;
        *out = (kiln_node_op)op;
        return KILN_OK;
    }
    p->at = from;
    return expected(p, "placeholder, get_attr, call_function, call_method, call_module or output");
}

static kiln_status parse_target(parser *p, kiln_node_op op, const kiln_gval **out) {
    skip_blanks(p);
    const char *from = p->at;
    if (op == KILN_CALL_FUNCTION) return parse_value(p, out);
    if (op == KILN_OUTPUT && peek(p) == '(') return kiln_graph_str(p->g, KILN_G_STR, "output", 6, out);
    if (peek(p) == '"') return parse_value(p, out);
    while (is_word_char(peek(p)) || peek(p) == '.' || peek(p) == '*') p->at++;
    if (p->at == from) return expected(p, "a target");
    return placed(p, from, kiln_graph_str(p->g, KILN_G_STR, from, (size_t)(p->at - from), out));
}

static kiln_status parse_meta(parser *p, kiln_node *node) {
    do {
        const kiln_gval *key;
        bool found;
        skip_blanks(p);
        const char *where = p->at;
        KILN_TRY(parse_keyword(p, &found, &key));
        if (!found) return expected(p, "a key and '='");
        skip_blanks(p);
        if (peek(p) != '"') return expected(p, "a string");
        KILN_TRY(parse_string(p, false));
        if (kiln_node_get_meta(node, key->u.s))
            return FAIL_AT(KILN_E_PARSE, p, where, "a key is given twice");
        KILN_TRY(placed(p, where, kiln_node_set_meta(node, key->u.s, p->text.p, p->text.len)));
    } while (eat(p, ','));
    return eat(p, '}') ? KILN_OK : expected(p, "',' or '}'");
}

/* Makes the node from its head and what parse_args left on the stack. */
static kiln_status add_node(parser *p, kiln_node_spec *spec, size_t base, const char *where,
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
    return placed(p, where, kiln_graph_add(p->g, NULL, spec, out));
}

static kiln_status parse_node(parser *p) {
    const char *where = p->at, *s;
    size_t n, base = p->nstack;
    const kiln_gval *name;
    kiln_node_spec spec = {0};
    kiln_node *node;
    KILN_TRY(parse_name(p, "a node's name", &s, &n));
    if (kiln_graph_find(p->g, s, n))
        return FAIL_AT(KILN_E_PARSE, p, where, "a node named '%.*s' is defined already", n > 60 ? 60 : (int)n,
                       s);
    KILN_TRY(placed(p, where, kiln_graph_str(p->g, KILN_G_STR, s, n, &name)));
    spec.name = name->u.s;
    spec.name_len = name->n;
    if (eat(p, ':')) KILN_TRY(parse_value(p, &spec.type));
    if (!eat(p, '=')) return expected(p, spec.type ? "'='" : "':' or '='");
    KILN_TRY(parse_op(p, &spec.op));
    KILN_TRY(parse_target(p, spec.op, &spec.target));
    if (eat(p, '('))
        KILN_TRY(parse_args(p, &spec.nargs));
    else if (spec.op != KILN_PLACEHOLDER && spec.op != KILN_GET_ATTR)
        return expected(p, "'('");
    KILN_TRY(add_node(p, &spec, base, where, &node));
    return eat(p, '{') ? parse_meta(p, node) : KILN_OK;
}

static kiln_status end_line(parser *p) {
    skip_blanks(p);
    if (peek(p) == '#')
        while (p->at < p->end && *p->at != '\n') p->at++;
    if (p->at < p->end && *p->at != '\n') return expected(p, "the end of the line");
    if (p->at < p->end) p->at++;
    return KILN_OK;
}

static bool at_blank_line(parser *p) {
    skip_blanks(p);
    return p->at == p->end || *p->at == '\n' || *p->at == '#';
}

static kiln_status parse_lines(parser *p) {
    size_t n = sizeof KG_HEADER - 1;
    while (p->at < p->end && at_blank_line(p)) KILN_TRY(end_line(p));
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, KG_HEADER, n) != 0)
        return FAIL_AT(KILN_E_PARSE, p, p->at, "expected the first line to be '" KG_HEADER "'");
    p->at += n;
    KILN_TRY(end_line(p));
    while (p->at < p->end) {
        if (!at_blank_line(p)) KILN_TRY(parse_node(p));
        KILN_TRY(end_line(p));
    }
    return kiln_note(kiln_graph_verify(p->g), "graph");
}

kiln_status kiln_graph_parse(const char *text, size_t n, kiln_graph **out) {
    parser p = {.start = text, .at = text, .end = text + n};
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
