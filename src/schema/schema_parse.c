/* schema_parse.c - schema text -> kiln_schema, by recursive descent straight over the characters.
 *
 *   schema  = [name "::"] name ["." name] "(" args ")" "->" returns
 *   args    = [arg {"," arg}] with one "*" before the keyword-only ones and "..." allowed last
 *   arg     = type name ["=" default]
 *   returns = "..." | type [name] | "(" [type [name] {"," type [name]}] ["," "..."] ")"
 *   type    = (name {"." name} | "(" types ")" | Dict "(" types ")") {"?" | "[" [number] "]" | alias}
 *   alias   = "(" set ["!"] ["->" set] ")" where set = "*" | name {"|" name}
 *
 * Blanks and line ends may stand between tokens, but not inside a type or an operator's name.
 * Positions are worked out only when something fails.  Must not know what a type or default means. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schema/schema_reader.h"

/* -- types --------------------------------------------------------------------------------------- */

/* `height` is how many brackets a type holds inside one another, so that depth + height is limited
 * and everything that walks a type may recurse. */
static kiln_status parse_type(parser *p, const kiln_type **out, int *height);

static const struct {
    const char *name;
    kiln_tkind kind;
} known[] = {
    {"Tensor", KILN_T_TENSOR}, {"int", KILN_T_INT},          {"SymInt", KILN_T_SYMINT},
    {"float", KILN_T_FLOAT},   {"bool", KILN_T_BOOL},        {"Scalar", KILN_T_SCALAR},
    {"str", KILN_T_STR},       {"ScalarType", KILN_T_DTYPE},
};

/* Brackets after these hold types; after any other name they hold an alias annotation. */
static bool takes_types(const char *name, size_t n) {
    static const char *const names[] = {"Dict", "Future", "RRef", "Await", "Union"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return true;
    return false;
}

/* The items of "(a, b)"; stands at "(". */
static kiln_status parse_items(parser *p, kiln_type *t, int *height) {
    KILN_TRY(open_bracket(p));
    int tallest = 0;
    do {
        int h;
        const kiln_type **items = grow(p, t->items, t->nitems, sizeof *items);
        if (!items) return KILN_NOMEM();
        t->items = items;
        skip_space(p);
        KILN_TRY(parse_type(p, &items[t->nitems], &h));
        t->nitems++;
        if (h > tallest) tallest = h;
        skip_space(p);
    } while (eat(p, ","));
    if (!eat(p, ")")) return expected(p, "',' or ')'");
    p->depth--;
    *height = tallest + 1;
    return KILN_OK;
}

static kiln_status parse_named(parser *p, kiln_type *t, int *height) {
    const char *from = p->at;
    while (is_letter(peek(p)) || is_digit(peek(p)) || (peek(p) == '.' && is_letter(peek2(p)))) p->at++;
    size_t n = (size_t)(p->at - from);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != n || memcmp(known[i].name, from, n) != 0) continue;
        t->kind = known[i].kind;
        return KILN_OK;
    }
    t->kind = KILN_T_OTHER;
    KILN_TRY(copy(p, from, &t->name));
    if (peek(p) != '(' || !takes_types(from, n)) return KILN_OK;
    t->kind = KILN_T_APPLY;
    return parse_items(p, t, height);
}

static kiln_status parse_alias_set(parser *p) {
    if (eat(p, "*")) return KILN_OK;
    do {
        skip_space(p);
        if (!is_letter(peek(p))) return expected(p, "an alias name or '*'");
        while (is_letter(peek(p)) || is_digit(peek(p))) p->at++;
        skip_space(p);
    } while (eat(p, "|"));
    return KILN_OK;
}

/* "(a!)", "(a|b -> *)"; stands at "(". */
static kiln_status parse_alias(parser *p, kiln_type *t) {
    p->at++;
    const char *from = p->at;
    kiln_alias *alias = kiln_arena_alloc(p->arena, sizeof *alias);
    if (!alias) return KILN_NOMEM();
    skip_space(p);
    KILN_TRY(parse_alias_set(p));
    skip_space(p);
    alias->writes = eat(p, "!");
    skip_space(p);
    bool arrow = eat(p, "->");
    if (arrow) {
        skip_space(p);
        KILN_TRY(parse_alias_set(p));
        skip_space(p);
    }
    if (peek(p) != ')')
        return expected(p, arrow ? "')'" : alias->writes ? "'->' or ')'" : "'|', '!', '->' or ')'");
    KILN_TRY(copy(p, from, &alias->text));
    p->at++;
    t->alias = alias;
    return KILN_OK;
}

/* "[]" or "[2]"; stands at "[". */
static kiln_status parse_list_size(parser *p, int *size) {
    p->at++;
    *size = -1;
    const char *from = p->at;
    for (; is_digit(peek(p)); p->at++) {
        int digit = *p->at - '0', before = *size < 0 ? 0 : *size;
        if (before > (INT_MAX - digit) / 10)
            return FAIL_AT(KILN_E_PARSE, p, from, "expected a list size of at most %d", INT_MAX);
        *size = before * 10 + digit;
    }
    return eat(p, "]") ? KILN_OK : expected(p, *size < 0 ? "a list size or ']'" : "']'");
}

/* Makes a LIST or OPTIONAL around t. */
static kiln_type *wrap(parser *p, const kiln_type *t, kiln_tkind kind) {
    kiln_type *outer = kiln_arena_alloc(p->arena, sizeof *outer);
    if (!outer) return NULL;
    outer->kind = kind;
    outer->elem = t;
    return outer;
}

static kiln_status parse_type(parser *p, const kiln_type **out, int *height) {
    kiln_type *t = kiln_arena_alloc(p->arena, sizeof *t);
    if (!t) return KILN_NOMEM();
    *height = 0;
    if (peek(p) == '(') {
        t->kind = KILN_T_TUPLE;
        KILN_TRY(parse_items(p, t, height));
    } else {
        if (!is_letter(peek(p))) return expected(p, "a type");
        KILN_TRY(parse_named(p, t, height));
    }
    for (;;) {
        if (peek(p) == '[') {
            if (p->depth + ++*height > KILN_SCHEMA_MAX_NEST) return too_deep(p);
            if (!(t = wrap(p, t, KILN_T_LIST))) return KILN_NOMEM();
            KILN_TRY(parse_list_size(p, &t->size));
        } else if (peek(p) == '?' && t->kind != KILN_T_OPTIONAL) {
            p->at++;
            if (!(t = wrap(p, t, KILN_T_OPTIONAL))) return KILN_NOMEM();
        } else if (peek(p) == '(' && !t->alias) {
            KILN_TRY(parse_alias(p, t));
        } else {
            *out = t;
            return KILN_OK;
        }
    }
}

/* -- arguments, returns, the whole --------------------------------------------------------------- */

static kiln_status parse_param_name(parser *p, const kiln_param *before, int nbefore, const char *what,
                                    const char **out) {
    const char *from = p->at;
    KILN_TRY(parse_name(p, what, out));
    for (int i = 0; p->distinct && i < nbefore; i++)
        if (strcmp(before[i].name, *out) == 0)
            return FAIL_AT(KILN_E_PARSE, p, from, "expected a new name, but '%.60s' was used before", *out);
    return KILN_OK;
}

static kiln_status parse_arg(parser *p, kiln_param *args, int nargs, bool kwarg_only) {
    if (nargs == KILN_MAX_ARGS)
        return FAIL_AT(KILN_E_LIMIT, p, p->at, "a schema may have at most %d arguments", KILN_MAX_ARGS);
    int height;
    kiln_param *arg = &args[nargs];
    memset(arg, 0, sizeof *arg);
    arg->kwarg_only = kwarg_only;
    KILN_TRY(parse_type(p, &arg->type, &height));
    skip_space(p);
    KILN_TRY(parse_param_name(p, args, nargs, "the name of an argument behind its type, as in 'Tensor x'",
                              &arg->name));
    skip_space(p);
    if (!eat(p, "=")) {
        bool gap = nargs && !kwarg_only && args[nargs - 1].def.kind != KILN_DEF_ABSENT;
        return gap ? expected(p, "'=' and a default, as the argument before has one") : KILN_OK;
    }
    skip_space(p);
    return kiln_schema_value(p, &arg->def);
}

/* Copies params found on the stack to where they stay. */
static kiln_status keep(parser *p, const kiln_param *found, int n, kiln_param **out) {
    *out = kiln_arena_alloc(p->arena, (size_t)n * sizeof *found);
    if (!*out) return KILN_NOMEM();
    if (n) memcpy(*out, found, (size_t)n * sizeof *found);
    return KILN_OK;
}

static kiln_status parse_args(parser *p, kiln_schema *s) {
    kiln_param args[KILN_MAX_ARGS];
    int nargs = 0;
    bool star = false;
    KILN_TRY(need(p, "(", "'('"));
    skip_space(p);
    for (bool more = peek(p) != ')'; more; more = eat(p, ",")) {
        skip_space(p);
        if (eat(p, "...")) {
            s->vararg = true;
            skip_space(p);
            break;
        }
        if (!star && eat(p, "*")) {
            star = true;
            KILN_TRY(need(p, ",", "',' after '*'"));
            skip_space(p);
        }
        KILN_TRY(parse_arg(p, args, nargs, star));
        nargs++;
        skip_space(p);
    }
    if (!eat(p, ")")) {
        bool typed = nargs && args[nargs - 1].def.kind != KILN_DEF_ABSENT;
        return expected(p, s->vararg ? "')' after '...'" : typed ? "',' or ')'" : "'=', ',' or ')'");
    }
    s->nargs = nargs;
    return keep(p, args, nargs, &s->args);
}

static kiln_status parse_ret(parser *p, kiln_param *rets, int nrets) {
    if (nrets == KILN_MAX_RETS)
        return FAIL_AT(KILN_E_LIMIT, p, p->at, "a schema may have at most %d returns", KILN_MAX_RETS);
    int height;
    kiln_param *ret = &rets[nrets];
    memset(ret, 0, sizeof *ret);
    ret->name = "";
    KILN_TRY(parse_type(p, &ret->type, &height));
    const char *type_end = p->at;
    skip_blanks(p); /* a name stands on the type's line, so that text on the next one is not taken for it */
    if (p->at > type_end && is_letter(peek(p))) return parse_param_name(p, rets, nrets, "a name", &ret->name);
    p->at = type_end;
    return KILN_OK;
}

static kiln_status parse_ret_list(parser *p, kiln_schema *s, kiln_param *rets) {
    s->ret_parens = true;
    skip_space(p);
    for (bool more = peek(p) != ')'; more; more = eat(p, ",")) {
        skip_space(p);
        if (eat(p, "...")) {
            s->varret = true;
            skip_space(p);
            break;
        }
        KILN_TRY(parse_ret(p, rets, s->nrets));
        s->nrets++;
        skip_space(p);
    }
    return eat(p, ")") ? KILN_OK : expected(p, s->varret ? "')' after '...'" : "',' or ')'");
}

static kiln_status parse_rets(parser *p, kiln_schema *s) {
    kiln_param rets[KILN_MAX_RETS];
    KILN_TRY(need(p, "->", "'->'"));
    skip_space(p);
    if (eat(p, "...")) {
        s->varret = true;
    } else if (eat(p, "(")) {
        KILN_TRY(parse_ret_list(p, s, rets));
    } else {
        KILN_TRY(parse_ret(p, rets, 0));
        s->nrets = 1;
    }
    return keep(p, rets, s->nrets, &s->rets);
}

static kiln_status parse_schema(parser *p, kiln_schema *s) {
    s->ns = s->overload = "";
    skip_space(p);
    KILN_TRY(parse_name(p, "an operator name", &s->name));
    if (eat(p, "::")) {
        s->ns = s->name;
        KILN_TRY(parse_name(p, "an operator name after '::'", &s->name));
    }
    if (eat(p, ".")) KILN_TRY(parse_name(p, "an overload name after '.'", &s->overload));
    KILN_TRY(parse_args(p, s));
    KILN_TRY(parse_rets(p, s));
    return p->at == p->end && p->cut ? too_long(p) : KILN_OK;
}

static kiln_status parse_start(parser *p, kiln_arena *arena, const char *text, kiln_schema **out) {
    size_t n = (size_t)(p->within->end - text);
    p->cut = n > KILN_SCHEMA_MAX_TEXT;
    p->start = p->at = text;
    p->end = text + (p->cut ? KILN_SCHEMA_MAX_TEXT : n);
    p->arena = arena;
    *out = kiln_arena_alloc(arena, sizeof **out);
    return *out ? parse_schema(p, *out) : KILN_NOMEM();
}

kiln_status kiln_schema_parse_prefix(kiln_arena *arena, const kiln_source *within, const char *at,
                                     size_t *used, kiln_schema **out) {
    parser p = {.within = within, .distinct = true};
    kiln_schema *s;
    KILN_TRY(parse_start(&p, arena, at, &s));
    *used = (size_t)(p.at - at);
    *out = s;
    return KILN_OK;
}

kiln_status kiln_schema_parse(kiln_arena *arena, const char *text, size_t n, kiln_schema **out) {
    kiln_source within = {"schema", text, text + n, 0};
    parser p = {.within = &within, .distinct = false};
    kiln_schema *s;
    if (n > KILN_SCHEMA_MAX_TEXT) return p.start = text, too_long(&p);
    KILN_TRY(parse_start(&p, arena, text, &s));
    skip_space(&p);
    if (p.at < p.end) return expected(&p, "the end of the schema");
    *out = s;
    return KILN_OK;
}
