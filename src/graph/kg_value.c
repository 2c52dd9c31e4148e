/* kg_value.c - the words, strings and values of .kg text -> values of a graph, by recursive descent.
 *
 * Values nest at most KILN_GRAPH_MAX_NEST deep, so the recursion is bounded.  A node may be named only after
 * its line.  Positions are worked out only when something fails.  Must not know what a node is made of. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/kg.h"

/* -- errors ------------------------------------------------------------------------------------------- */

kiln_status kiln_kg_placed(const kg_parser *p, const char *where, kiln_status st) {
    char why[400];
    if (st == KILN_OK || st == KILN_E_NOMEM) return st;
    snprintf(why, sizeof why, "%s", kiln_last_error());
    return KG_FAIL(st, p, where, "%s", why);
}

/* -- words -------------------------------------------------------------------------------------------- */

void kiln_kg_skip_word(kg_parser *p, const char *joiners) {
    for (;;) {
        char c = kg_peek(p);
        bool joins = c && strchr(joiners, c) && (kg_is_word_char(kg_peek2(p)) || kg_peek2(p) == ':');
        if (!kg_is_word_char(c) && !joins) return;
        p->at++;
    }
}

kiln_status kiln_kg_push(kg_parser *p, const kiln_gval *v) {
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

static kiln_status parse_hex(kg_parser *p, int digits, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        char c = kg_peek(p);
        int d = kg_is_digit(c)         ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return kiln_kg_expected(p, "a hexadecimal digit");
        *out = *out << 4 | (uint32_t)d;
    }
    return KILN_OK;
}

/* After a backslash. */
static kiln_status parse_escape(kg_parser *p, bool bytes) {
    static const char letters[] = "ntr\\\"", meanings[] = "\n\t\r\\\"";
    char c = kg_peek(p);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        p->at++;
        kiln_sb_putc(&p->text, meanings[letter - letters]);
        return KILN_OK;
    }
    int digits = c == 'x' ? 2 : bytes ? 0 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!digits) return kiln_kg_expected(p, "one of n t r \\ \" x u U after '\\'");
    const char *where = p->at++;
    uint32_t point;
    KILN_TRY(parse_hex(p, digits, &point));
    if (point > 0x10ffff) return KG_FAIL(KILN_E_PARSE, p, where, "expected a code point of at most 10ffff");
    if (bytes)
        kiln_sb_putc(&p->text, (char)point);
    else
        put_utf8(&p->text, point);
    return KILN_OK;
}

kiln_status kiln_kg_string(kg_parser *p, bool bytes) {
    p->at++;
    p->text.len = 0;
    kiln_sb_putn(&p->text, "", 0);
    for (;;) {
        const char *run = p->at;
        while (p->at < p->end && *p->at != '"' && *p->at != '\\' && *p->at != '\n') p->at++;
        kiln_sb_putn(&p->text, run, (size_t)(p->at - run));
        if (kg_peek(p) == '"') break;
        if (p->at == p->end || *p->at == '\n') return kiln_kg_expected(p, "'\"' to end the string");
        p->at++;
        KILN_TRY(parse_escape(p, bytes));
    }
    p->at++;
    return p->text.failed ? KILN_NOMEM() : KILN_OK;
}

kiln_status kiln_kg_name(kg_parser *p, const char *what, const char **s, size_t *n) {
    kg_skip_blanks(p);
    if (kg_peek(p) == '"') {
        KILN_TRY(kiln_kg_string(p, false));
        *s = p->text.p;
        *n = p->text.len;
        return KILN_OK;
    }
    *s = p->at;
    if (!kg_is_letter(kg_peek(p))) return kiln_kg_expected(p, what);
    kiln_kg_skip_word(p, "");
    *n = (size_t)(p->at - *s);
    return KILN_OK;
}

/* -- values ------------------------------------------------------------------------------------------- */

/* Values up to `close`, pushed on the stack. */
static kiln_status parse_items(kg_parser *p, char close) {
    if (kg_eat(p, close)) return KILN_OK;
    do {
        const kiln_gval *item;
        kg_skip_blanks(p);
        if (kg_peek(p) == close) break; /* after a last comma */
        KILN_TRY(kiln_kg_value(p, &item));
        KILN_TRY(kiln_kg_push(p, item));
    } while (kg_eat(p, ','));
    if (kg_eat(p, close)) return KILN_OK;
    char what[] = "',' or ' '";
    what[8] = close;
    return kiln_kg_expected(p, what);
}

/* Makes the items pushed since `base` into one value. */
static kiln_status collect(kg_parser *p, kiln_gkind kind, size_t base, const char *where,
                           const kiln_gval **out) {
    kiln_status st = kiln_graph_items(p->g, kind, p->stack + base, p->nstack - base, out);
    p->nstack = base;
    return kiln_kg_placed(p, where, st);
}

static kiln_status parse_sequence(kg_parser *p, kiln_gkind kind, char close, const char *where,
                                  const kiln_gval **out) {
    size_t base = p->nstack;
    KILN_TRY(parse_items(p, close));
    return collect(p, kind, base, where, out);
}

static kiln_status parse_dict(kg_parser *p, const char *where, const kiln_gval **out) {
    size_t base = p->nstack;
    const kiln_gval *v;
    if (!kg_eat(p, '}')) {
        do {
            KILN_TRY(kiln_kg_value(p, &v));
            KILN_TRY(kiln_kg_push(p, v));
            if (!kg_eat(p, ':')) return kiln_kg_expected(p, "':'");
            KILN_TRY(kiln_kg_value(p, &v));
            KILN_TRY(kiln_kg_push(p, v));
        } while (kg_eat(p, ','));
        if (!kg_eat(p, '}')) return kiln_kg_expected(p, "',' or '}'");
    }
    return collect(p, KILN_G_DICT, base, where, out);
}

/* namedtuple(type, x=1, y=2); stands after the bracket. */
static kiln_status parse_named_tuple(kg_parser *p, const char *where, const kiln_gval **out) {
    size_t base = p->nstack;
    const kiln_gval *v, *names = NULL;
    KILN_TRY(kiln_kg_value(p, &v));
    KILN_TRY(kiln_kg_push(p, v));
    KILN_TRY(kiln_kg_push(p, NULL)); /* the names' place */
    while (kg_eat(p, ',')) {
        const char *s;
        size_t n;
        KILN_TRY(kiln_kg_name(p, "the name of a field", &s, &n));
        KILN_TRY(kiln_kg_placed(p, where, kiln_graph_str(p->g, KILN_G_STR, s, n, &v)));
        KILN_TRY(kiln_kg_push(p, v));
        if (!kg_eat(p, '=')) return kiln_kg_expected(p, "'='");
        KILN_TRY(kiln_kg_value(p, &v));
        KILN_TRY(kiln_kg_push(p, v));
    }
    if (!kg_eat(p, ')')) return kiln_kg_expected(p, "',' or ')'");
    size_t first = base + 2, n = (p->nstack - first) / 2;
    for (size_t i = 0; i < n; i++)
        KILN_TRY(kiln_kg_push(p, p->stack[first + 2 * i])); /* names apart from fields */
    KILN_TRY(kiln_graph_items(p->g, KILN_G_TUPLE, p->stack + p->nstack - n, n, &names));
    for (size_t i = 0; i < n; i++) p->stack[first + i] = p->stack[first + 2 * i + 1];
    p->stack[base + 1] = names;
    p->nstack = first + n;
    return collect(p, KILN_G_NAMEDTUPLE, base, where, out);
}

static kiln_status parse_number(kg_parser *p, const kiln_gval **out) {
    const char *from = p->at;
    bool fraction = false;
    if (kg_peek(p) == '-') p->at++;
    if (kg_peek(p) == 'i' || kg_peek(p) == 'n') {
        const char *word = p->at;
        kiln_kg_skip_word(p, "");
        bool inf = p->at - word == 3 && memcmp(word, "inf", 3) == 0;
        if (!inf && (p->at - word != 3 || memcmp(word, "nan", 3) != 0))
            return p->at = word, kiln_kg_expected(p, "a number");
        return kiln_graph_float(p->g, inf ? -INFINITY : copysign(NAN, -1.0), out);
    }
    if (!kg_is_digit(kg_peek(p))) return kiln_kg_expected(p, "a number");
    bool hex = kg_peek(p) == '0' && kg_peek2(p) == 'x';
    while (kg_is_word_char(kg_peek(p)) || (!hex && kg_peek(p) == '.') ||
           (!hex && (kg_peek(p) == '-' || kg_peek(p) == '+') && (p->at[-1] == 'e' || p->at[-1] == 'E'))) {
        fraction |= !hex && memchr(".eE", *p->at, 3) != NULL;
        p->at++;
    }
    size_t n = (size_t)(p->at - from);
    double f;
    if (!fraction) return kiln_kg_placed(p, from, kiln_graph_str(p->g, KILN_G_BIGINT, from, n, out));
    if (!kiln_f64_parse(from, n, &f) || !isfinite(f))
        return KG_FAIL(KILN_E_PARSE, p, from, "expected a number that fits a double");
    return kiln_graph_float(p->g, f, out);
}

static kiln_status parse_complex(kg_parser *p, const char *where, const kiln_gval **out) {
    size_t base = p->nstack;
    double part[2];
    KILN_TRY(parse_items(p, ')'));
    size_t n = p->nstack - base;
    p->nstack = base;
    for (size_t i = 0; i < n && i < 2; i++) {
        if (p->stack[base + i]->kind != KILN_G_FLOAT) n = 0;
        part[i] = p->stack[base + i]->u.f;
    }
    if (n != 2) return KG_FAIL(KILN_E_PARSE, p, where, "complex takes two floats, as complex(0.0, 1.0)");
    return kiln_graph_value(p->g, &(kiln_gval){.kind = KILN_G_COMPLEX, .u.c = {part[0], part[1]}}, out);
}

/* dtype(float32), device("cuda:0"); stands after the bracket. */
static kiln_status parse_wrapped(kg_parser *p, kiln_gkind kind, const char *where, const kiln_gval **out) {
    const char *s;
    size_t n;
    KILN_TRY(kiln_kg_name(p, "a name or a string", &s, &n));
    KILN_TRY(kiln_kg_placed(p, where, kiln_graph_str(p->g, kind, s, n, out)));
    return kg_eat(p, ')') ? KILN_OK : kiln_kg_expected(p, "')'");
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

static kiln_status parse_call(kg_parser *p, const char *word, size_t n, const kiln_gval **out) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        kiln_gkind kind = calls[i].kind;
        if (strlen(calls[i].word) != n || memcmp(calls[i].word, word, n) != 0) continue;
        if (!kg_eat(p, '(')) return kiln_kg_expected(p, "'('");
        if (kind == KILN_G_COMPLEX) return parse_complex(p, word, out);
        if (kind == KILN_G_NAMEDTUPLE) return parse_named_tuple(p, word, out);
        if (kiln_gkind_is_text(kind)) return parse_wrapped(p, kind, word, out);
        return parse_sequence(p, kind, ')', word, out);
    }
    p->at = word;
    return KG_FAIL(KILN_E_PARSE, p, word, "expected a value, found '%.*s'", n > 60 ? 60 : (int)n, word);
}

static kiln_status parse_word(kg_parser *p, const kiln_gval **out) {
    static const struct {
        const char *word;
        kiln_gval meaning;
    } words[] = {{"None", {.kind = KILN_G_NONE}},
                 {"True", {.kind = KILN_G_BOOL, .u.i = 1}},
                 {"False", {.kind = KILN_G_BOOL, .u.i = 0}},
                 {"inf", {.kind = KILN_G_FLOAT, .u.f = INFINITY}},
                 {"nan", {.kind = KILN_G_FLOAT, .u.f = NAN}}};
    const char *from = p->at;
    kiln_kg_skip_word(p, ".:");
    size_t n = (size_t)(p->at - from);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, from, n) == 0)
            return kiln_graph_value(p->g, &words[i].meaning, out);
    const char *colon = memchr(from, ':', n);
    if (!colon) return parse_call(p, from, n, out);
    kiln_gkind kind = colon + 1 < p->at && colon[1] == ':' ? KILN_G_OP : KILN_G_FUNC;
    return kiln_kg_placed(p, from, kiln_graph_str(p->g, kind, from, n, out));
}

static kiln_status parse_reference(kg_parser *p, const kiln_gval **out) {
    const char *where = p->at++, *s;
    size_t n;
    KILN_TRY(kiln_kg_name(p, "a node's name", &s, &n));
    kiln_node *node = kiln_graph_find(p->g, s, n);
    if (!node)
        return KG_FAIL(KILN_E_PARSE, p, where, "no node named '%.*s' before this line", n > 60 ? 60 : (int)n,
                       s);
    *out = kiln_graph_ref(node);
    return KILN_OK;
}

static kiln_status parse_ellipsis(kg_parser *p, const kiln_gval **out) {
    if (p->end - p->at < 3 || memcmp(p->at, "...", 3) != 0) return kiln_kg_expected(p, "a value");
    p->at += 3;
    return kiln_graph_value(p->g, &(kiln_gval){.kind = KILN_G_ELLIPSIS}, out);
}

static kiln_status parse_inner(kg_parser *p, const kiln_gval **out) {
    const char *where = p->at;
    char c = kg_peek(p);
    switch (c) {
    case '%': return parse_reference(p, out);
    case '.': return parse_ellipsis(p, out);
    case '(': p->at++; return parse_sequence(p, KILN_G_TUPLE, ')', where, out);
    case '[': p->at++; return parse_sequence(p, KILN_G_LIST, ']', where, out);
    case '{': p->at++; return parse_dict(p, where, out);
    case '"':
        KILN_TRY(kiln_kg_string(p, false));
        return kiln_kg_placed(p, where, kiln_graph_str(p->g, KILN_G_STR, p->text.p, p->text.len, out));
    default: break;
    }
    if (c == 'b' && kg_peek2(p) == '"') {
        p->at++;
        KILN_TRY(kiln_kg_string(p, true));
        return kiln_graph_str(p->g, KILN_G_BYTES, p->text.p, p->text.len, out);
    }
    if (c == '-' || kg_is_digit(c)) return parse_number(p, out);
    return kg_is_letter(c) ? parse_word(p, out) : kiln_kg_expected(p, "a value");
}

kiln_status kiln_kg_value(kg_parser *p, const kiln_gval **out) {
    kg_skip_blanks(p);
    if (p->depth == KILN_GRAPH_MAX_NEST)
        return KG_FAIL(KILN_E_LIMIT, p, p->at, "a value nests more than %d brackets", KILN_GRAPH_MAX_NEST);
    p->depth++;
    kiln_status st = parse_inner(p, out);
    p->depth--;
    return st;
}
