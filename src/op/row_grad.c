/* row_grad.c - a row and one of its arguments -> the text of the row that computes the argument's gradient.
 *
 * The family says what the gradient of a branch is: a sum of derivatives (expr_grad.c), each times the gradient of the
 * result.  Where the row has a `grad` clause, the gradient is what that says.  The new row is a map like any other: it is
 * loaded, typed and compiled as one, and has a gradient of its own.  The common dtype comes about as in the row, so the
 * new one takes whatever is promoted.  Sums over broadcast dimensions are not its business. */
#include <stdio.h>
#include <string.h>

#include "expr/expr_grad.h"
#include "op/row.h"

typedef struct kiln_grad {
    const kiln_row *row;
    int arg;
    kiln_arena *arena;
    kiln_budget budget;
    kiln_dtypes takes;                    /* of the new row */
    kiln_dtypes arg_takes[KILN_MAX_ARGS]; /* as those of the row */
    uint32_t reached;                     /* bit b: of these dtypes branch b may be taken */
    const kiln_expr *body[KILN_ROW_MAX_BRANCHES];
    const kiln_expr *stated; /* one for all branches, from the `grad` clause, or NULL */
    kiln_usage used;         /* by the bodies */
    uint32_t grads;          /* bit k: the gradient of result k is used */
    uint32_t results;        /* bit k: result k is */
    uint64_t kept;           /* arguments that the new row has */
    uint64_t promoted;       /* those of them that decide the common dtype of some branch */
} grad;

static const kiln_dtypes floats = KILN_DT(KILN_F16) | KILN_DT(KILN_BF16) | KILN_DT(KILN_F32) |
                                  KILN_DT(KILN_F64);
static const kiln_dtypes complexes = KILN_DT(KILN_C64) | KILN_DT(KILN_C128);

#define GRAD_FAIL KILN_GRAD_FAIL

static bool named(const kiln_nameds *list, const char *name, const kiln_expr **out) {
    const kiln_named *v = kiln_named_of(list, name);
    if (v) *out = v->expr;
    return v != NULL;
}

/* A row may have an argument of that name, as a gradient's own has. */
void kiln_row_grad_name(const kiln_row *row, const char *word, int result, char out[KILN_GRAD_NAME]) {
    char place[16] = "";
    if (row->schema->nrets > 1) snprintf(place, sizeof place, "_%d", result);
    snprintf(out, KILN_GRAD_NAME, "%s%s", word, place);
    for (int again = 2; !row->grads.n && kiln_schema_arg(row->schema, out) >= 0; again++)
        snprintf(out, KILN_GRAD_NAME, "%s%s_%d", word, place, again);
}

/* -- bodies -------------------------------------------------------------------------------------------------------- */

static const kiln_expr *let(const kiln_wrt *w, const char *name) {
    const grad *g = w->user;
    const kiln_expr *means;
    return named(&g->row->lets, name, &means) ? means : NULL;
}

bool kiln_grad_may_be(const kiln_branch *b, int result) {
    int t = b->typing.ret[result];
    return t < 0 || (floats & KILN_DT(t));
}

kiln_status kiln_grad_add(kiln_grad *g, const kiln_wrt *w, int result, const kiln_expr *e,
                          const kiln_expr **sum) {
    char name[KILN_GRAD_NAME];
    const kiln_expr *by, *term;
    KILN_TRY(kiln_expr_derive(w, e, &by));
    if (kiln_expr_is_zero(by)) return KILN_OK;
    kiln_row_grad_name(g->row, "grad", result, name);
    kiln_expr *factor = kiln_arena_alloc(g->arena, sizeof *factor);
    char *copy = kiln_arena_strndup(g->arena, name, strlen(name));
    if (!factor || !copy) return KILN_NOMEM();
    *factor = (kiln_expr){.kind = KILN_X_NAME, .name = copy, .height = 1, .arg = -1};
    KILN_TRY(kiln_expr_build(w, KILN_P_MUL, factor, by, &term));
    g->grads |= 1u << result;
    if (!*sum) return *sum = term, KILN_OK;
    return kiln_expr_build(w, KILN_P_ADD, *sum, term, sum);
}

static kiln_status derive_branch(grad *g, const kiln_branch *b, const kiln_expr **out) {
    const kiln_wrt w = {g->row->schema->args[g->arg].name, let, g, g->row->source, g->arena, &g->budget};
    return kiln_rules_of[b->family]->derive(g, g->row, b, &w, out);
}

/* Which gradients and results a stated gradient names. */
static kiln_status note_word(void *user, const kiln_expr *e) {
    grad *g = user;
    char name[KILN_GRAD_NAME];
    for (int k = 0; k < g->row->schema->nrets; k++) {
        kiln_row_grad_name(g->row, "grad", k, name);
        if (strcmp(e->name, name) == 0) g->grads |= 1u << k;
        kiln_row_grad_name(g->row, "result", k, name);
        if (strcmp(e->name, name) == 0) g->results |= 1u << k;
    }
    return KILN_OK;
}

/* All branches' gradients; *zero: they are all zero. */
static kiln_status derive_bodies(grad *g, bool *zero) {
    *zero = true;
    if (named(&g->row->grads, g->row->schema->args[g->arg].name, &g->stated)) {
        *zero = kiln_expr_is_zero(g->stated);
        if (*zero) return KILN_OK;
        KILN_TRY(kiln_expr_names(g->stated, note_word, g));
        if (!g->grads) return GRAD_FAIL(g->row, "the 'grad' clause does not use the gradient of the result");
        return kiln_row_use(&g->used, g->stated);
    }
    for (int b = 0; b < g->row->nbranches; b++) {
        if (!(g->reached >> b & 1)) continue;
        KILN_TRY(derive_branch(g, &g->row->branches[b], &g->body[b]));
        if (!g->body[b]) continue;
        *zero = false;
        KILN_TRY(kiln_row_use(&g->used, g->body[b]));
    }
    return KILN_OK;
}

/* -- the new row ---------------------------------------------------------------------------------------------------- */

/* Arguments that decide nothing are left out; where none is left, the gradients alone are promoted. */
static kiln_status keep_arguments(grad *g) {
    const kiln_row *row = g->row;
    bool conditional = false;
    for (int b = 0; b < row->nbranches; b++) {
        const kiln_typing *t = &row->branches[b].typing;
        const kiln_expr *when = g->stated ? NULL : row->branches[b].when;
        if (!(g->reached >> b & 1)) continue;
        conditional = conditional || when;
        g->promoted |= t->args;
        if (t->dtype_arg >= 0) g->kept |= 1ull << t->dtype_arg;
        KILN_TRY(kiln_row_use(&g->used, when));
    }
    g->used.set |= g->kept; /* the dtype arguments */
    g->promoted |= row->typing.args;
    if (!(g->used.set & ~g->kept) && !conditional) return g->promoted = g->kept = 0, KILN_OK;
    g->kept = g->promoted | g->used.set;
    return KILN_OK;
}

static void print_dtypes(kiln_sb *out, kiln_dtypes set) {
    for (int t = 0; t < KILN_DTYPE_COUNT; t++)
        if (set & KILN_DT(t)) kiln_sb_printf(out, " %s", kiln_dtype_name((kiln_dtype)t));
}

/* Calls print for the name of each gradient and result that is used. */
static void each_word(const grad *g, kiln_sb *out, void (*print)(kiln_sb *out, const char *name)) {
    char name[KILN_GRAD_NAME];
    for (int w = 0; w < 2; w++)
        for (int k = 0; k < g->row->schema->nrets; k++) {
            if (!((w ? g->results : g->grads) >> k & 1)) continue;
            kiln_row_grad_name(g->row, w ? "result" : "grad", k, name);
            print(out, name);
        }
}

static void print_parameter(kiln_sb *out, const char *name) {
    kiln_sb_printf(out, "%sTensor %s", out->len && out->p[out->len - 1] == '(' ? "" : ", ", name);
}

static void print_takes(kiln_sb *out, const char *name) {
    kiln_sb_printf(out, " takes %s:", name);
    print_dtypes(out, floats);
}

static void print_schema(const grad *g, kiln_sb *out) {
    const kiln_schema *s = g->row->schema;
    kiln_sb_printf(out, "map %s::%s_grad_%s%s%s(", s->ns, s->name, s->args[g->arg].name,
                   s->overload[0] ? "." : "", s->overload);
    each_word(g, out, print_parameter);
    for (int a = 0; a < s->nargs; a++) {
        if (!(g->kept >> a & 1)) continue;
        kiln_sb_puts(out, ", ");
        kiln_type_print(out, s->args[a].type);
        kiln_sb_printf(out, " %s", s->args[a].name);
    }
    kiln_sb_puts(out, ") -> Tensor :");
}

static void print_typing(const grad *g, const kiln_typing *t, kiln_sb *out) {
    static const char *const words[] = {[KILN_PROMO_FLOAT] = " to_float", [KILN_PROMO_DOUBLE] = " to_double"};
    const kiln_schema *s = g->row->schema;
    const char *before = " promote(";
    if (!g->promoted) return;
    for (int a = 0; a < s->nargs; a++) {
        if (!(t->args >> a & 1)) continue;
        kiln_sb_printf(out, "%s%s%s", before, t->numbers >> a & 1 ? "number " : "", s->args[a].name);
        before = ", ";
    }
    kiln_sb_putc(out, ')');
    if (t->promo == KILN_PROMO_FLOAT || t->promo == KILN_PROMO_DOUBLE) kiln_sb_puts(out, words[t->promo]);
    if (t->dtype_arg >= 0) kiln_sb_printf(out, " to(%s)", s->args[t->dtype_arg].name);
    if ((g->kept >> g->arg & 1) && !kiln_row_optional(g->row, g->arg))
        kiln_sb_printf(out, " -> %s", s->args[g->arg].name);
}

static void print_attributes(const grad *g, kiln_sb *out) {
    const kiln_row *row = g->row;
    kiln_sb_puts(out, " takes");
    print_dtypes(out, g->promoted ? g->takes : floats);
    print_typing(g, &row->typing, out);
    if (g->promoted) each_word(g, out, print_takes);
    for (int a = 0; a < row->schema->nargs; a++) {
        if (!(g->kept >> a & 1) || !g->arg_takes[a]) continue;
        kiln_sb_printf(out, " takes %s:", row->schema->args[a].name);
        print_dtypes(out, g->arg_takes[a]);
    }
}

static void print_body(const kiln_expr *body, kiln_sb *out) {
    kiln_sb_puts(out, " = ");
    if (body)
        kiln_expr_print_infix(out, body);
    else
        kiln_sb_putc(out, '0');
}

static void print_bodies(const grad *g, kiln_sb *out) {
    if (g->stated) return print_body(g->stated, out);
    for (int b = 0; b < g->row->nbranches; b++) {
        const kiln_branch *branch = &g->row->branches[b];
        if (!(g->reached >> b & 1)) continue;
        if (branch->when) {
            kiln_sb_puts(out, "\n    when ");
            kiln_expr_print_infix(out, branch->when);
            print_typing(g, &branch->typing, out);
        }
        print_body(g->body[b], out);
    }
}

static void print_nameds(const kiln_nameds *list, uint32_t used, const char *clause, kiln_sb *out) {
    for (int k = 0; k < list->n; k++) {
        const kiln_named *v = &list->at[k];
        if (!(used >> k & 1)) continue;
        kiln_sb_printf(out, "\n    %s %s", clause, v->name);
        if (v->dtype != KILN_DTYPE_COUNT) kiln_sb_printf(out, ": %s", kiln_dtype_name(v->dtype));
        kiln_sb_puts(out, " = ");
        kiln_expr_print_infix(out, v->expr);
    }
}

static void print_args(const grad *g, uint64_t set, const char *clause, kiln_sb *out) {
    for (int a = 0; a < g->row->schema->nargs; a++)
        if (set >> a & 1) kiln_sb_printf(out, "\n    %s %s", clause, g->row->schema->args[a].name);
}

static void print_row(const grad *g, kiln_sb *out) {
    print_schema(g, out);
    print_attributes(g, out);
    print_bodies(g, out);
    print_nameds(&g->row->lets, g->used.lets, "let", out);
    print_nameds(&g->row->hosts, g->used.hosts, "host", out);
    print_args(g, g->kept & g->row->statics, "static", out);
    print_args(g, g->kept & ~g->used.set & ~g->row->statics, "ignore", out);
    kiln_sb_putc(out, '\n');
}

/* Numbers are real, and the argument is floating: with it the common dtype, if it is promoted. */
static void set_dtypes(grad *g) {
    const kiln_row *row = g->row;
    g->takes = row->takes & (row->typing.args >> g->arg & 1 ? floats : ~complexes);
    for (int a = 0; a < row->schema->nargs; a++)
        g->arg_takes[a] = row->arg_takes[a] & (a == g->arg ? floats : ~complexes);
}

static kiln_status make(grad *g, kiln_sb *out) {
    const kiln_row *row = g->row;
    bool zero;
    set_dtypes(g);
    if (!(row->arg_takes[g->arg] ? g->arg_takes[g->arg] : g->takes & floats)) return KILN_OK;
    if (row->items) return GRAD_FAIL(row, "a row with an 'item' has none");
    if (!kiln_rules(row)->derive)
        return GRAD_FAIL(row, "a row of the family %s has none", kiln_family_name(row->family));
    if (!kiln_named_of(&row->grads, row->schema->args[g->arg].name) && kiln_rules(row)->derivable)
        KILN_TRY(kiln_rules(row)->derivable(row));
    KILN_TRY(kiln_row_reach(row, g->takes, g->arg_takes, &g->budget, &g->reached));
    KILN_TRY(derive_bodies(g, &zero));
    if (zero) return KILN_OK;
    KILN_TRY(keep_arguments(g));
    print_row(g, out);
    return out->failed ? KILN_NOMEM() : KILN_OK;
}

kiln_status kiln_row_grad(const kiln_row *row, int arg, kiln_sb *out) {
    kiln_arena arena;
    if (!kiln_row_is_tensor(row, arg)) return KILN_OK;
    kiln_arena_init(&arena);
    grad g = {
        .row = row, .arg = arg, .arena = &arena, .budget = {KILN_EXPR_MAX_NODES, 0}, .used = {.row = row}};
    kiln_status st = kiln_note(make(&g, out), "the gradient of '%s' of %s", row->schema->args[arg].name,
                               row->name);
    kiln_arena_free(&arena);
    return st;
}
