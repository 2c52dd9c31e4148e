/* schema_default.c - the text of an argument's default -> kiln_default.
 *
 *   default = None | True | False | NUMBER | STRING | NAME | "[" [default {"," default}] "]"
 * Must not know what a default means, or whether it fits the type of its argument. */
#include <math.h>

#include "schema/schema_reader.h"

static kiln_status parse_value_list(parser *p, kiln_default *d) {
    d->kind = KILN_DEF_LIST;
    KILN_TRY(open_bracket(p));
    skip_space(p);
    bool more = peek(p) != ']';
    while (more) {
        kiln_default *items = grow(p, d->items, d->nitems, sizeof *items);
        if (!items) return KILN_NOMEM();
        d->items = items;
        skip_space(p);
        KILN_TRY(kiln_schema_value(p, &items[d->nitems]));
        d->nitems++;
        skip_space(p);
        more = eat(p, ",");
    }
    if (!eat(p, "]")) return expected(p, d->nitems ? "',' or ']'" : "a value or ']'");
    p->depth--;
    return KILN_OK;
}

static kiln_status read_int(const parser *p, const char *from, int64_t *out) {
    bool negative = *from == '-';
    uint64_t limit = (uint64_t)INT64_MAX + negative, v = 0;
    for (const char *c = from + negative; c < p->at; c++) {
        unsigned digit = (unsigned)(*c - '0');
        if (v > (limit - digit) / 10)
            return FAIL_AT(KILN_E_PARSE, p, from, "expected an integer that fits 64 bits");
        v = v * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return KILN_OK;
}

static int skip_digits(parser *p) {
    const char *from = p->at;
    while (is_digit(peek(p))) p->at++;
    return (int)(p->at - from);
}

/* -1, 2., .5, 1e-08 */
static kiln_status parse_number(parser *p, kiln_default *d) {
    const char *from = p->at;
    eat(p, "-");
    int ndigits = skip_digits(p);
    d->kind = KILN_DEF_INT;
    if (eat(p, ".")) {
        d->kind = KILN_DEF_FLOAT;
        ndigits += skip_digits(p);
    }
    if (!ndigits) return expected(p, "a digit");
    if (eat(p, "e") || eat(p, "E")) {
        d->kind = KILN_DEF_FLOAT;
        if (!eat(p, "-")) eat(p, "+");
        if (!skip_digits(p)) return expected(p, "the digits of an exponent");
    }
    if (d->kind == KILN_DEF_INT) return read_int(p, from, &d->i);
    if (!kiln_f64_parse(from, (size_t)(p->at - from), &d->f) || isinf(d->f))
        return FAIL_AT(KILN_E_PARSE, p, from, "expected a number that fits a double");
    return KILN_OK;
}

/* One character after a backslash, or one to three octal digits; stands after the backslash. */
static kiln_status parse_escape(parser *p, char *out) {
    static const char letters[] = "ntrfvab\\\"'", meanings[] = "\n\t\r\f\v\a\b\\\"'";
    const char *from = p->at, *letter = peek(p) ? strchr(letters, peek(p)) : NULL;
    if (letter) {
        p->at++;
        *out = meanings[letter - letters];
        return KILN_OK;
    }
    unsigned v = 0;
    for (int i = 0; i < 3 && peek(p) >= '0' && peek(p) <= '7'; i++) v = v * 8 + (unsigned)(*p->at++ - '0');
    if (p->at == from) return expected(p, "one of n t r f v a b \\ \" ' or octal digits after '\\'");
    if (v == 0 || v > 255) return FAIL_AT(KILN_E_PARSE, p, from, "expected an octal escape from 1 to 377");
    *out = (char)v;
    return KILN_OK;
}

static kiln_status parse_string(parser *p, kiln_default *d) {
    const char quote[2] = {*p->at++, 0};
    const char *limit = p->at;
    while (limit < p->end && *limit != *quote) limit += *limit == '\\' && p->end - limit > 1 ? 2 : 1;
    char *s = kiln_arena_alloc(p->arena, (size_t)(limit - p->at) + 1);
    if (!s) return KILN_NOMEM();
    d->kind = KILN_DEF_STR;
    d->s = s;
    while (!eat(p, quote)) {
        if (p->at == p->end || *p->at == '\n' || *p->at == '\0')
            return expected(p, *quote == '"' ? "'\"' to end the string" : "\"'\" to end the string");
        if (eat(p, "\\"))
            KILN_TRY(parse_escape(p, s++));
        else
            *s++ = *p->at++;
    }
    return KILN_OK;
}

static kiln_status parse_word(parser *p, kiln_default *d) {
    static const struct {
        const char *word;
        kiln_default meaning;
    } words[] = {
        {"None", {.kind = KILN_DEF_NONE}},
        {"True", {.kind = KILN_DEF_BOOL, .i = 1}},
        {"False", {.kind = KILN_DEF_BOOL, .i = 0}},
        {"inf", {.kind = KILN_DEF_FLOAT, .f = INFINITY}},
        {"-inf", {.kind = KILN_DEF_FLOAT, .f = -INFINITY}},
        {"nan", {.kind = KILN_DEF_FLOAT, .f = NAN}},
    };
    const char *from = p->at;
    eat(p, "-");
    while (is_letter(peek(p)) || is_digit(peek(p))) p->at++;
    size_t n = (size_t)(p->at - from);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].word) != n || memcmp(words[i].word, from, n) != 0) continue;
        *d = words[i].meaning;
        return KILN_OK;
    }
    if (*from == '-') return FAIL_AT(KILN_E_PARSE, p, from + 1, "expected a number after '-'");
    d->kind = KILN_DEF_NAME;
    return copy(p, from, &d->s);
}

kiln_status kiln_schema_value(parser *p, kiln_default *d) {
    const char *from = p->at;
    char c = peek(p);
    if (c == '[')
        KILN_TRY(parse_value_list(p, d));
    else if (c == '"' || c == '\'')
        KILN_TRY(parse_string(p, d));
    else if (is_letter(c) || (c == '-' && is_letter(peek2(p))))
        KILN_TRY(parse_word(p, d));
    else if (is_digit(c) || c == '-' || c == '.')
        KILN_TRY(parse_number(p, d));
    else
        return expected(p, "a default value");
    return copy(p, from, &d->text);
}
