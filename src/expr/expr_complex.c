/* expr_complex.c - rules for complex numbers: text -> table, and a function of complex numbers -> its rule, typed.
 *
 * A complex value is typed as one node; what a function makes of it is the typed body of a rule, whose
 * leaves are the function's arguments.  Splitting into two real values is lowering's business.  Names of
 * functions occur here only where a part of the language is meant: re, im, complex. */
#include <string.h>

#include "expr/typer.h"

#define COMPLEX_FAIL(ty, e, ...) \
    (kiln_expr_fail((ty)->env->source, (e), KILN_E_TYPE, __VA_ARGS__), KILN_E_TYPE)

/* -- reading --------------------------------------------------------------------------------------------- */

static kiln_status add_local(kiln_lex *lx, kiln_crule *r) {
    const char *name = NULL;
    int n = r->nargs + r->nlets;
    KILN_TRY(kiln_lex_name(lx, &name));
    for (int k = 0; k < n; k++)
        if (strcmp(r->local[k], name) == 0) return kiln_lex_fail(lx, "another name: this one is taken");
    r->local[n] = name;
    return KILN_OK;
}

static kiln_status parse_head(kiln_lex *lx, kiln_crule *r) {
    bool more = true;
    KILN_TRY(kiln_lex_expect(lx, "complex"));
    r->line = lx->tok_line;
    r->col = lx->tok_col;
    KILN_TRY(kiln_lex_name(lx, &r->name));
    KILN_TRY(kiln_lex_expect(lx, "("));
    while (more) {
        if (r->nargs == KILN_RULE_MAX_ARGS) return kiln_lex_fail(lx, "at most 3 arguments");
        KILN_TRY(add_local(lx, r));
        r->nargs++;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    KILN_TRY(kiln_lex_expect(lx, ")"));
    KILN_TRY(kiln_lex_expect(lx, "="));
    return kiln_expr_parse(lx, &r->body);
}

/* let NAME = EXPR, ...: each may use the ones before it. */
static kiln_status parse_lets(kiln_lex *lx, kiln_crule *r) {
    while (lx->tok != KILN_TOK_END) {
        bool more = true;
        KILN_TRY(kiln_lex_expect(lx, "let"));
        while (more) {
            if (r->nlets == KILN_RULE_MAX_LETS) return kiln_lex_fail(lx, "at most 16 lets");
            KILN_TRY(add_local(lx, r));
            KILN_TRY(kiln_lex_expect(lx, "="));
            KILN_TRY(kiln_expr_parse(lx, &r->let[r->nlets]));
            r->nlets++;
            KILN_TRY(kiln_lex_accept(lx, ",", &more));
        }
    }
    return KILN_OK;
}

static unsigned bucket_of(const char *name) {
    return (unsigned)(kiln_hash64(name, strlen(name)) % KILN_RULE_BUCKETS);
}

kiln_status kiln_crule_parse(kiln_arena *arena, const char *source, const char *text, size_t n, int line,
                             kiln_crule **out) {
    kiln_crule *r = kiln_arena_alloc(arena, sizeof *r);
    if (!r) return KILN_NOMEM();
    kiln_lex lx;
    r->source = source;
    kiln_lex_init(&lx, arena, source, text, n, line);
    KILN_TRY(kiln_lex_next(&lx));
    KILN_TRY(parse_head(&lx, r));
    KILN_TRY(parse_lets(&lx, r));
    *out = r;
    return KILN_OK;
}

kiln_status kiln_crules_put(kiln_crules *rules, kiln_crule *r) {
    if (rules->n == KILN_MAX_RULES)
        return KILN_FAIL_LINE(KILN_E_LIMIT, r->source, r->line, r->col, "at most %d rules", KILN_MAX_RULES);
    kiln_digest pair[2] = {rules->digest, r->digest};
    rules->digest = kiln_hash128(pair, sizeof pair);
    rules->n++;
    r->next = rules->bucket[bucket_of(r->name)];
    rules->bucket[bucket_of(r->name)] = r;
    return KILN_OK;
}

kiln_status kiln_crules_find(const kiln_crules *rules, const char *name, const kiln_crule **out) {
    const kiln_crule *r = rules ? rules->bucket[bucket_of(name)] : NULL;
    while (r && strcmp(r->name, name) != 0) r = r->next;
    *out = r;
    return r || !rules || !rules->more ? KILN_OK : rules->more(name, out);
}

/* -- typing ---------------------------------------------------------------------------------------------- */

/* The names in a rule: its arguments and the lets typed so far. */
typedef struct rule_env {
    kiln_env env;
    const kiln_crule *rule;
    const kiln_texpr *local[KILN_RULE_MAX_LOCALS];
    int n;
} rule_env;

static bool find_local(const kiln_env *env, const char *name, bool rhs, kiln_sym *out) {
    const rule_env *re = (const rule_env *)env;
    memset(out, 0, sizeof *out);
    for (int k = 0; k < re->n && !rhs; k++) {
        if (strcmp(re->rule->local[k], name) != 0) continue;
        out->kind = KILN_SYM_LOCAL;
        out->id = k;
        out->dtype = re->local[k]->dtype;
        return true;
    }
    return false;
}

/* An expression of a rule.  A bare number has the parts' type. */
static kiln_status type_in_rule(kiln_typer *ty, const kiln_expr *e, const kiln_texpr **out) {
    kiln_texpr *v;
    KILN_TRY(kiln_typer_expr(ty, e, &v));
    if (v->weak) KILN_TRY(kiln_typer_coerce(ty, v, ty->env->compute, &v));
    *out = v;
    return KILN_OK;
}

/* Lets, then the body that sees them and the arguments.  Nodes and levels count towards those of the
 * expression that the rule is applied in. */
static kiln_status type_rule(kiln_typer *outer, const kiln_expr *e, rule_env *re, kiln_trule *typed) {
    const kiln_crule *rule = re->rule;
    kiln_applied here = {rule, e, outer->env->source, outer->rule};
    kiln_typer ty = {.env = &re->env, .height = outer->height, .nodes = outer->nodes, .rule = &here};
    for (int k = 0; k < rule->nlets; k++) {
        KILN_TRY(type_in_rule(&ty, rule->let[k], &typed->let[k]));
        re->local[re->n++] = typed->let[k];
    }
    KILN_TRY(type_in_rule(&ty, rule->body, &typed->body));
    typed->nargs = rule->nargs;
    typed->nlets = rule->nlets;
    outer->nodes = ty.nodes;
    return KILN_OK;
}

static kiln_status apply(kiln_typer *ty, const kiln_expr *e, const kiln_crule *rule, kiln_texpr *const *args,
                         kiln_dtype t, kiln_texpr **out) {
    kiln_trule *typed = kiln_arena_alloc(ty->env->arena, sizeof *typed);
    if (!typed) return KILN_NOMEM();
    rule_env re = {.env = {.find = find_local, .compute = kiln_dtype_real(t), .source = rule->source},
                   .rule = rule};
    re.env.arena = ty->env->arena;
    re.env.common = re.env.compute;
    re.env.complex = ty->env->complex;
    re.env.budget = ty->env->budget;
    for (const kiln_applied *a = ty->rule; a; a = a->outer)
        if (a->rule == rule) return COMPLEX_FAIL(ty, e, "the rule for '%s' needs itself", rule->name);
    for (re.n = 0; re.n < rule->nargs; re.n++) re.local[re.n] = args[re.n];
    KILN_TRY(type_rule(ty, e, &re, typed));
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_RULE, typed->body->dtype, e, rule->nargs);
    if (!n) return KILN_NOMEM();
    for (int k = 0; k < rule->nargs; k++) n->args[k] = args[k];
    n->rule = typed;
    *out = n;
    return KILN_OK;
}

kiln_status kiln_typer_complex_prim(kiln_typer *ty, const kiln_expr *e, kiln_texpr *const *args, int first,
                                    kiln_dtype t, kiln_texpr **out) {
    const kiln_crule *rule;
    KILN_TRY(kiln_crules_find(ty->env->complex, kiln_prim_name(e->prim), &rule));
    kiln_texpr *as[KILN_RULE_MAX_ARGS];
    if (!rule || rule->nargs != e->nargs)
        return COMPLEX_FAIL(ty, e, "'%s' does not take %s", kiln_prim_name(e->prim), kiln_dtype_name(t));
    for (int k = 0; k < e->nargs; k++)
        KILN_TRY(kiln_typer_coerce(ty, args[k], k < first ? KILN_BOOL : t, &as[k]));
    return apply(ty, e, rule, as, t, out);
}

/* re(x), im(x): a real number is its own real part, and its imaginary part is 0. */
static kiln_status type_part(kiln_typer *ty, const kiln_expr *e, int part, kiln_texpr **out) {
    kiln_texpr *x, *n;
    if (e->nargs != 1) return COMPLEX_FAIL(ty, e, "'%s' takes 1 argument, found %d", e->name, e->nargs);
    KILN_TRY(kiln_typer_expr(ty, e->args[0], &x));
    *out = x;
    if (!kiln_dtype_is_complex(x->dtype)) {
        if (part == 0) return KILN_OK;
        n = kiln_typer_node(ty, KILN_TE_CONST, x->dtype, e, 0);
    } else {
        n = kiln_typer_node(ty, KILN_TE_PART, kiln_dtype_real(x->dtype), e, 1);
        if (n) n->args[0] = x;
    }
    if (!n) return KILN_NOMEM();
    n->id = part;
    *out = n;
    return KILN_OK;
}

/* complex(a, b): the type is that of the wider part, or where both are bare numbers the one computed with. */
static kiln_status type_pair(kiln_typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_texpr *part[2];
    kiln_dtype t = KILN_DTYPE_COUNT;
    if (e->nargs != 2) return COMPLEX_FAIL(ty, e, "'complex' takes 2 arguments, found %d", e->nargs);
    for (int k = 0; k < 2; k++) {
        KILN_TRY(kiln_typer_expr(ty, e->args[k], &part[k]));
        if (!part[k]->weak)
            t = t == KILN_DTYPE_COUNT ? part[k]->dtype : kiln_dtype_promote(t, part[k]->dtype);
    }
    if (t == KILN_DTYPE_COUNT) t = kiln_dtype_real(ty->env->compute);
    if (t != KILN_F32 && t != KILN_F64)
        return COMPLEX_FAIL(ty, e, "no complex number has parts of %s", kiln_dtype_name(t));
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_COMPLEX, kiln_dtype_complex(t), e, 2);
    if (!n) return KILN_NOMEM();
    for (int k = 0; k < 2; k++) {
        KILN_TRY(kiln_typer_coerce(ty, part[k], t, &part[k]));
        n->args[k] = part[k];
    }
    *out = n;
    return KILN_OK;
}

kiln_status kiln_typer_complex_call(kiln_typer *ty, const kiln_expr *e, bool *did, kiln_texpr **out) {
    *did = true;
    if (strcmp(e->name, "re") == 0) return type_part(ty, e, 0, out);
    if (strcmp(e->name, "im") == 0) return type_part(ty, e, 1, out);
    if (strcmp(e->name, "complex") == 0) return type_pair(ty, e, out);
    const kiln_crule *rule;
    KILN_TRY(kiln_crules_find(ty->env->complex, e->name, &rule));
    *did = rule != NULL;
    if (!rule) return KILN_OK;
    kiln_texpr *x[KILN_RULE_MAX_ARGS];
    if (e->nargs != rule->nargs)
        return COMPLEX_FAIL(ty, e, "'%s' takes %d argument(s), found %d", e->name, rule->nargs, e->nargs);
    for (int k = 0; k < e->nargs; k++) {
        KILN_TRY(kiln_typer_expr(ty, e->args[k], &x[k]));
        if (x[k]->weak) KILN_TRY(kiln_typer_coerce(ty, x[k], kiln_dtype_real(ty->env->compute), &x[k]));
    }
    return apply(ty, e, rule, x, ty->env->compute, out);
}
