/* row_parse.c - the text of one row -> kiln_row.
 *
 *   FAMILY SCHEMA [: ATTRIBUTES] [= BODY, ...]
 *       CLAUSE ...
 * Reads the head line and hands each indented clause to row_clause.c.  Checks names as it goes; types
 * are checked later, for every dtype (row_check.c). */
#include <stdio.h>
#include <string.h>

#include "op/row.h"

static const struct {
    const char *name;
    bool served;
} families[KILN_FAMILY_COUNT] = {
#define F(NAME, name, served) [KILN_FAMILY_##NAME] = {#name, served},
#include "op/family.def"
#undef F
};

const char *kiln_family_name(kiln_family f) { return families[f].name; }
bool kiln_family_served(kiln_family f) { return families[f].served; }

/* -- attributes ---------------------------------------------------------------------------------------- */

/* u16, u32 and u64 are never meant by a kind: PyTorch's operators that take them are few. */
static kiln_dtypes kinds(int lowest, int highest) {
    kiln_dtypes set = 0;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        int kind = (int)kiln_dtype_kind((kiln_dtype)t);
        if (kind >= lowest && kind <= highest && !kiln_dtype_is_limited((kiln_dtype)t)) set |= KILN_DT(t);
    }
    return set;
}

/* A word of a `takes` list: a kind of dtype or one dtype. */
static bool dtype_word(const kiln_lex *lx, kiln_dtypes *set) {
    kiln_dtype t;
    if (lx->tok != KILN_TOK_NAME) return false;
    if (kiln_lex_is(lx, "bool"))
        *set |= KILN_DT(KILN_BOOL);
    else if (kiln_lex_is(lx, "int"))
        *set |= kinds(KILN_KIND_INT, KILN_KIND_INT);
    else if (kiln_lex_is(lx, "float"))
        *set |= kinds(KILN_KIND_FLOAT, KILN_KIND_FLOAT);
    else if (kiln_lex_is(lx, "real"))
        *set |= kinds(KILN_KIND_INT, KILN_KIND_FLOAT);
    else if (kiln_lex_is(lx, "all"))
        *set |= kinds(KILN_KIND_BOOL, KILN_KIND_FLOAT);
    else if (kiln_lex_is(lx, "unsigned"))
        *set |= KILN_DT(KILN_U16) | KILN_DT(KILN_U32) | KILN_DT(KILN_U64);
    else if (kiln_lex_is(lx, "complex"))
        *set |= kinds(KILN_KIND_COMPLEX, KILN_KIND_COMPLEX);
    else {
        for (t = 0; t < KILN_DTYPE_COUNT && !kiln_lex_is(lx, kiln_dtype_name(t)); t++) {}
        if (t == KILN_DTYPE_COUNT) return false;
        *set |= KILN_DT(t);
    }
    return true;
}

kiln_status kiln_row_arg(kiln_lex *lx, const kiln_row *row, int *out) {
    if (lx->tok != KILN_TOK_NAME || (*out = kiln_schema_arg(row->schema, lx->str)) < 0)
        return kiln_lex_fail(lx, "the name of an argument");
    return kiln_lex_next(lx);
}

/* takes KIND...   or   takes ARG: KIND... */
static kiln_status parse_takes(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    (void)t;
    kiln_dtypes set = 0;
    int arg = -1;
    if (lx->tok == KILN_TOK_NAME && kiln_schema_arg(row->schema, lx->str) >= 0 && !dtype_word(lx, &set)) {
        KILN_TRY(kiln_row_arg(lx, row, &arg));
        KILN_TRY(kiln_lex_expect(lx, ":"));
    }
    set = 0;
    if (!dtype_word(lx, &set))
        return kiln_lex_fail(lx, "a dtype or one of bool int unsigned float real complex all");
    while (!lx->first_on_line && dtype_word(lx, &set)) KILN_TRY(kiln_lex_next(lx));
    if (arg >= 0)
        row->arg_takes[arg] |= set;
    else
        row->takes = set;
    return KILN_OK;
}

kiln_status kiln_row_operator(kiln_lex *lx, const char **out) {
    const char *start = lx->start, *end = start;
    while (lx->start == end && (lx->tok == KILN_TOK_NAME || kiln_lex_is(lx, ".") || kiln_lex_is(lx, "::"))) {
        end += lx->len;
        KILN_TRY(kiln_lex_next(lx));
    }
    *out = kiln_arena_strndup(lx->arena, start, (size_t)(end - start));
    return *out ? KILN_OK : KILN_NOMEM();
}

kiln_status kiln_row_args(kiln_lex *lx, const kiln_row *row, uint64_t *set) {
    bool more = true;
    while (more) {
        int arg = -1;
        KILN_TRY(kiln_row_arg(lx, row, &arg));
        *set |= 1ull << arg;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

/* promote([number] ARG, ...).  In another order than the schema's, their strides count in that order. */
static kiln_status parse_promoted(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    bool more = true, number, in_order = true;
    int last = -1;
    KILN_TRY(kiln_lex_expect(lx, "("));
    t->args = t->numbers = 0;
    t->norder = 0;
    while (more) {
        int arg = -1;
        KILN_TRY(kiln_lex_accept(lx, "number", &number));
        KILN_TRY(kiln_row_arg(lx, row, &arg));
        bool again = t->args >> arg & 1, tensor = kiln_row_is_tensor(row, arg);
        if (tensor && !again && t->norder < KILN_MAX_OPERANDS) t->order[t->norder++] = (int8_t)arg;
        in_order = in_order && arg > last;
        last = arg;
        t->args |= 1ull << arg;
        if (number) t->numbers |= 1ull << arg;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    if (in_order) t->norder = 0;
    return kiln_lex_expect(lx, ")");
}

static kiln_status parse_ret(kiln_lex *lx, const kiln_row *row, int16_t *out) {
    int arg = lx->tok == KILN_TOK_NAME ? kiln_schema_arg(row->schema, lx->str) : -1;
    *out = KILN_RET_COMMON;
    if (arg >= 0) {
        *out = (int16_t)KILN_RET_ARG(arg);
    } else if (kiln_lex_is(lx, "real")) {
        *out = KILN_RET_REAL;
    } else if (!kiln_lex_is(lx, "same")) {
        int t = 0;
        while (t < KILN_DTYPE_COUNT && !kiln_lex_is(lx, kiln_dtype_name((kiln_dtype)t))) t++;
        if (t == KILN_DTYPE_COUNT) return kiln_lex_fail(lx, "a dtype, 'same', 'real' or an argument");
        *out = (int16_t)t;
    }
    return kiln_lex_next(lx);
}

static kiln_status parse_rets(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    bool list, more = true;
    KILN_TRY(kiln_lex_accept(lx, "(", &list));
    for (int k = 0; more; k++) {
        if (k >= row->schema->nrets) return kiln_lex_fail(lx, "as many dtypes as the schema has results");
        if (!list && row->schema->nrets != 1) return kiln_lex_fail(lx, "'(' and a dtype for each result");
        KILN_TRY(parse_ret(lx, row, &t->ret[k]));
        if (!list) return KILN_OK;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
        if (!more && k + 1 < row->schema->nrets) return kiln_lex_fail(lx, "a dtype for each result");
    }
    return kiln_lex_expect(lx, ")");
}

/* out converts | exact | copied | decides */
static kiln_status parse_out(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    static const char *const words[] = {[KILN_OUT_CONVERTS] = "converts",
                                        [KILN_OUT_EXACT] = "exact",
                                        [KILN_OUT_COPIED] = "copied",
                                        [KILN_OUT_DECIDES] = "decides"};
    (void)row;
    for (int r = KILN_OUT_CONVERTS; r <= KILN_OUT_DECIDES; r++) {
        if (!kiln_lex_is(lx, words[r])) continue;
        t->out = (kiln_out_rule)r;
        if (r == KILN_OUT_DECIDES && t->promo == KILN_PROMO_PROMOTE) t->promo = KILN_PROMO_TO;
        return kiln_lex_next(lx);
    }
    return kiln_lex_fail(lx, "converts, exact, copied or decides");
}

/* item ARG: from here on the tensor is a Scalar.  Only binding knows better. */
static kiln_status parse_item(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    static const kiln_type number = {.kind = KILN_T_SCALAR};
    int arg = lx->tok == KILN_TOK_NAME ? kiln_schema_arg(row->schema, lx->str) : -1;
    if (arg >= 0 && kiln_rules(row)->composes && t == &row->typing) {
        row->items |=
            1ull << arg; /* also of lists, and where one may be absent; maps of items have the number */
        return kiln_lex_next(lx);
    }
    if (arg < 0 || row->schema->args[arg].type->kind != KILN_T_TENSOR || t != &row->typing)
        return kiln_lex_fail(lx, "the name of a tensor, at the head of the row");
    kiln_schema *s = kiln_arena_alloc(lx->arena, sizeof *s);
    kiln_param *args = kiln_arena_alloc(lx->arena, (size_t)row->schema->nargs * sizeof *args);
    if (!s || !args) return KILN_NOMEM();
    *s = *row->schema;
    memcpy(args, row->schema->args, (size_t)s->nargs * sizeof *args);
    args[arg].type = &number;
    s->args = args;
    row->schema = s;
    row->items |= 1ull << arg;
    return kiln_lex_next(lx);
}

/* to(ARG), sum_dtype(ARG) */
static kiln_status parse_dtype_arg(kiln_lex *lx, const kiln_row *row, kiln_promo promo, kiln_typing *t) {
    KILN_TRY(kiln_lex_expect(lx, "("));
    KILN_TRY(kiln_row_arg(lx, row, &t->dtype_arg));
    t->promo = promo;
    return kiln_lex_expect(lx, ")");
}

static kiln_status parse_to(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    return parse_dtype_arg(lx, row, KILN_PROMO_TO, t);
}
static kiln_status parse_sum_dtype(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    return parse_dtype_arg(lx, row, KILN_PROMO_SUM, t);
}
static kiln_status parse_to_float(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    (void)lx, (void)row;
    t->promo = KILN_PROMO_FLOAT;
    return KILN_OK;
}
static kiln_status parse_to_double(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    (void)lx, (void)row;
    t->promo = KILN_PROMO_DOUBLE;
    return KILN_OK;
}

static const struct {
    const char *word;
    kiln_status (*parse)(kiln_lex *lx, kiln_row *row, kiln_typing *t); /* what follows the word */
} attrs[] = {
    {"takes", parse_takes},       {"promote", parse_promoted},    {"to", parse_to},
    {"to_float", parse_to_float}, {"to_double", parse_to_double}, {"sum_dtype", parse_sum_dtype},
    {"out", parse_out},           {"strides", kiln_row_strides},  {"->", parse_rets},
    {"item", parse_item},
};
enum { ATTRS = sizeof attrs / sizeof *attrs };

kiln_status kiln_row_attrs(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    while (!kiln_lex_is(lx, "=") && lx->tok != KILN_TOK_END && !kiln_row_clause_word(lx)) {
        int k = 0;
        while (k < ATTRS && !kiln_lex_is(lx, attrs[k].word)) k++;
        if (k == ATTRS)
            return kiln_lex_fail(
                lx, "takes, promote, to, to_float, to_double, sum_dtype, out, strides, item, '->' or '='");
        if (attrs[k].parse == parse_takes && t != &row->typing)
            return kiln_lex_fail(lx, "takes only at the head of the row");
        KILN_TRY(kiln_lex_next(lx));
        KILN_TRY(attrs[k].parse(lx, row, t));
    }
    return KILN_OK;
}

/* -- bodies ------------------------------------------------------------------------------------------- */

kiln_status kiln_row_branch(kiln_lex *lx, kiln_row *row, kiln_branch **out) {
    if (row->nbranches == KILN_ROW_MAX_BRANCHES) return kiln_lex_fail(lx, "at most 16 branches");
    kiln_branch *grown = kiln_arena_grow(lx->arena, row->branches, (size_t)row->nbranches,
                                         sizeof *row->branches);
    const kiln_expr **bodies = kiln_arena_alloc(lx->arena, (size_t)row->schema->nrets * sizeof *bodies);
    const kiln_expr **access = kiln_arena_alloc(lx->arena, (size_t)row->schema->nargs * sizeof *access);
    const kiln_folding_rules *folding = kiln_rules(row)->folding;
    kiln_reduce *reduce = NULL;
    if (!grown || !bodies || !access) return KILN_NOMEM();
    if (folding) KILN_TRY(folding->begin(lx->arena, &reduce));
    row->branches = grown;
    *out = &row->branches[row->nbranches++];
    **out = (kiln_branch){.typing = row->typing, .body = bodies, .access = access, .reduce = reduce};
    return KILN_OK;
}

kiln_status kiln_row_named(kiln_lex *lx, kiln_nameds *list, const char *most, kiln_named **out) {
    if (list->n == KILN_ROW_MAX_NAMED) return kiln_lex_fail(lx, most);
    kiln_named *grown = kiln_arena_grow(lx->arena, list->at, (size_t)list->n, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    list->at = grown;
    *out = &grown[list->n++];
    **out = (kiln_named){.name = "", .dtype = KILN_DTYPE_COUNT, .line = lx->tok_line, .col = lx->tok_col};
    return KILN_OK;
}

kiln_status kiln_row_bodies(kiln_lex *lx, kiln_row *row, kiln_branch *b) {
    bool more = true;
    while (more) {
        const kiln_expr *body;
        bool from;
        if (b->nbody == row->schema->nrets)
            return kiln_lex_fail(lx, "as many bodies as the schema has results");
        KILN_TRY(kiln_expr_parse(lx, &body));
        KILN_TRY(kiln_lex_accept(lx, "from", &from));
        if (from && !kiln_rules(row)->accumulate)
            return kiln_expr_fail(lx->source, body, KILN_E_PARSE, "a %s row has no accumulator",
                                  kiln_family_name(row->family));
        if (from) return kiln_rules(row)->accumulate(lx, row, body);
        b->body[b->nbody++] = body;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    if (b->nbody != row->schema->nrets)
        return kiln_expr_fail(row->source, b->body[0], KILN_E_PARSE, "%d results but %d bodies",
                              row->schema->nrets, b->nbody);
    return KILN_OK;
}

/* -- the head --------------------------------------------------------------------------------------------- */

static kiln_status parse_family(kiln_lex *lx, kiln_row *row) {
    static const char all[] =
#define F(NAME, name, served) " " #name
#include "op/family.def"
#undef F
        ;
    for (int f = 0; f < KILN_FAMILY_COUNT; f++) {
        if (!kiln_lex_is(lx, families[f].name)) continue;
        row->family = (kiln_family)f;
        return KILN_OK;
    }
    return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                          "expected a family:%s, found '%.*s'; a row reads "
                          "'map my::f(Tensor x) -> Tensor : takes float = x + 1'",
                          all, lx->len > 30 ? 30 : (int)lx->len, lx->start);
}

static kiln_status name_row(kiln_arena *arena, kiln_row *row) {
    const kiln_schema *s = row->schema;
    size_t n = strlen(s->ns) + strlen(s->name) + strlen(s->overload) + 4;
    char *name = kiln_arena_alloc(arena, n);
    if (!name) return KILN_NOMEM();
    snprintf(name, n, "%s::%s%s%s", s->ns, s->name, s->overload[0] ? "." : "", s->overload);
    row->name = name;
    return KILN_OK;
}

/* The schema stands between the family word and ` : `; its own parser reads it. */
static kiln_status parse_schema(kiln_lex *lx, kiln_row *row) {
    while (lx->p < lx->end && (*lx->p == ' ' || *lx->p == '\t')) lx->p++;
    size_t used;
    kiln_schema *schema;
    row->line = lx->line;
    row->col = (int)(lx->p - lx->line_start) + 1;
    kiln_source within = {row->source, lx->line_start, lx->end, lx->line - 1};
    KILN_TRY(kiln_schema_parse_prefix(lx->arena, &within, lx->p, &used, &schema));
    for (size_t k = 0; k < used; k++) {
        if (lx->p[k] != '\n') continue;
        lx->line++;
        lx->line_start = lx->p + k + 1;
    }
    lx->p += used;
    if (schema->nrets > KILN_MAX_RETS)
        return KILN_FAIL_LINE(KILN_E_LIMIT, row->source, row->line, row->col, "more than %d results",
                              KILN_MAX_RETS);
    if (schema->vararg || schema->varret)
        return KILN_FAIL_LINE(KILN_E_UNSUP, row->source, row->line, row->col,
                              "a row cannot take or return '...'");
    if (!schema->ns[0]) schema->ns = "aten";
    row->schema = row->declared = schema;
    row->arg_takes = kiln_arena_alloc(lx->arena, (size_t)schema->nargs * sizeof *row->arg_takes);
    if (!row->arg_takes) return KILN_NOMEM();
    KILN_TRY(name_row(lx->arena, row));
    return kiln_lex_next(lx);
}

static void init_row(kiln_row *row) {
    row->takes = kinds(KILN_KIND_BOOL, KILN_KIND_FLOAT);
    row->domain_lo = -10;
    row->domain_hi = 10;
    row->typing.dtype_arg = -1;
    for (int k = 0; k < KILN_MAX_RETS; k++) row->typing.ret[k] = KILN_RET_COMMON;
}

void kiln_row_default_promotion(kiln_row *row) {
    if (kiln_rules(row)->composes) return; /* it computes nothing itself */
    uint64_t all = 0;
    for (int a = 0; a < row->schema->nargs; a++)
        if (kiln_row_is_tensor(row, a) && !row->arg_takes[a]) all |= 1ull << a;
    if (!row->typing.args) row->typing.args = all;
    for (int b = 0; b < row->nbranches; b++)
        if (!row->branches[b].typing.args) row->branches[b].typing.args = all;
}

/* A branch has the row's clauses where it has none of its own.  A branch of another family than the row's has none of those
 * clauses. */
static void inherit_clauses(kiln_row *row) {
    const kiln_folding_rules *folding = kiln_rules(row)->folding;
    for (int b = 0; b < row->nbranches; b++) {
        kiln_branch *br = &row->branches[b];
        br->family = kiln_rules(row)->branch ? kiln_rules(row)->branch(br) : row->family;
        if (folding && br->family == row->family) folding->inherit(row->reduce, br->reduce);
    }
}

static kiln_status parse_rest(kiln_lex *lx, kiln_row *row, const kiln_written *w) {
    bool did;
    KILN_TRY(kiln_lex_accept(lx, ":", &did));
    if (!did && lx->tok != KILN_TOK_END && !lx->first_on_line && !kiln_lex_is(lx, "="))
        return kiln_lex_fail(lx, "':' and what the row takes, or '=' and a body, behind the schema");
    if (did) KILN_TRY(kiln_row_attrs(lx, row, &row->typing));
    KILN_TRY(kiln_lex_accept(lx, "=", &did));
    if (did) {
        kiln_branch *b = NULL;
        KILN_TRY(kiln_row_branch(lx, row, &b));
        KILN_TRY(kiln_row_bodies(lx, row, b));
    }
    while (lx->tok != KILN_TOK_END) KILN_TRY(kiln_row_clause(lx, row));
    if (w->taken) {
        kiln_lex_init(lx, lx->arena, w->source, w->text + w->taken, w->n - w->taken, w->taken_line);
        KILN_TRY(kiln_lex_next(lx));
        while (lx->tok != KILN_TOK_END) KILN_TRY(kiln_row_clause(lx, row));
    }
    if (!row->nbranches && !kiln_rules(row)->composes) {
        kiln_branch *b = NULL; /* folds with clauses only: one branch that carries the typing */
        KILN_TRY(kiln_row_branch(lx, row, &b));
    }
    inherit_clauses(row);
    return KILN_OK;
}

kiln_status kiln_row_parse(kiln_arena *arena, const kiln_written *w, kiln_row **out) {
    kiln_row *row = kiln_arena_alloc(arena, sizeof *row);
    if (!row) return KILN_NOMEM();
    init_row(row);
    row->source = w->source;
    row->line = w->line;
    row->made = w->made;
    row->text = kiln_arena_strndup(arena, w->text, w->n);
    if (!row->text) return KILN_NOMEM();
    KILN_TRY(kiln_row_digest(w->text, w->n, &row->digest));
    kiln_lex lx;
    kiln_lex_init(&lx, arena, w->source, w->text, w->taken ? w->taken : w->n, w->line);
    KILN_TRY(kiln_lex_next(&lx));
    KILN_TRY(parse_family(&lx, row));
    if (kiln_rules(row)->folding) KILN_TRY(kiln_rules(row)->folding->begin(arena, &row->reduce));
    KILN_TRY(parse_schema(&lx, row));
    KILN_TRY(parse_rest(&lx, row, w));
    row->untraced.function = lx.untraced;
    kiln_row_default_promotion(row);
    KILN_TRY(kiln_row_rules(row));
    KILN_TRY(kiln_row_resolve(row));
    KILN_TRY(kiln_row_find_asked(row));
    kiln_row_find_twins(row);
    if (kiln_rules(row)->complete) KILN_TRY(kiln_rules(row)->complete(arena, row));
    *out = row;
    return KILN_OK;
}
