/* explain.c - kiln_explain: a call -> the text of one stage; kiln_op_grad: an operator -> the row of a gradient.
 *
 * Runs the same stages as a call up to the one asked for and prints what it made.  Compiles nothing
 * that is kept and writes no tensor. */
#include <stdio.h>
#include <string.h>

#include "api/ctx.h"

typedef struct explainer {
    kiln_ctx *ctx;
    const kiln_op *op;
    kiln_bound call;
    kiln_plan plan;
    kiln_key key;
    kiln_sb *out;
    kiln_class *c; /* its own, not the cache's, whose IR goes when it is compiled */
} explainer;

/* The source as it would be compiled.  Where no compiler can be looked for, the source is that of the best level. */
static kiln_status emit_source(const explainer *ex, kiln_unit *u) {
    kiln_target *t = ex->c->target;
    u->n = 1;
    u->ir[0] = ex->c->program->ir;
    kiln_sb_init(&u->source);
    kiln_status st = t->find_level(t, &u->level);
    if (st == KILN_E_INTERRUPTED || st == KILN_E_NOMEM) return st;
    if (st != KILN_OK) kiln_clear_error();
    return t->emit(t, u);
}

static kiln_status show_source(const explainer *ex, bool as_assembly) {
    kiln_target *t = ex->c->target;
    kiln_unit u = {.n = 1};
    char *text = NULL;
    kiln_status st = emit_source(ex, &u);
    if (st == KILN_OK && as_assembly) st = t->assembly(t, &u, &text);
    if (st == KILN_OK && as_assembly) kiln_sb_puts(ex->out, text);
    if (st == KILN_OK && !as_assembly) kiln_sb_putn(ex->out, u.source.p, u.source.len);
    kiln_free(text);
    kiln_unit_fini(&u);
    return st;
}

static void show_key(const explainer *ex) {
    const kiln_target *t = kiln_ctx_target(ex->ctx, &ex->plan);
    char target[100];
    snprintf(target, sizeof target, "%s %s", t->name, t->level_name(t->level));
    kiln_key_print(ex->out, &ex->plan, &ex->key, target);
}

enum { NOTHING, CALL, PLAN, CLASS }; /* what there must be, with all before it */
typedef enum stage { SHOW_SCHEMA, SHOW_BIND, SHOW_PLAN, SHOW_KEY, SHOW_IR, SHOW_SOURCE, SHOW_ASM } stage;
static const struct {
    const char *name;
    stage stage;
    int needs;
} stages[] = {
    {"schema", SHOW_SCHEMA, NOTHING}, {"bind", SHOW_BIND, CALL}, {"plan", SHOW_PLAN, PLAN},
    {"key", SHOW_KEY, PLAN},          {"ir", SHOW_IR, CLASS},    {"source", SHOW_SOURCE, CLASS},
    {"asm", SHOW_ASM, CLASS},
};

static kiln_status show(explainer *ex, stage which) {
    const kiln_op *op = ex->op;
    switch (which) {
    case SHOW_SCHEMA:
        kiln_sb_printf(ex->out, "%s\nform: %s\nfamily: %s\nrow:\n%s", op->schema_text, kiln_op_form(op),
                       kiln_op_family(op), op->row->text);
        break;
    case SHOW_BIND: kiln_bound_print(ex->out, &ex->call); break;
    case SHOW_PLAN: kiln_plan_print(ex->out, &ex->plan); break;
    case SHOW_KEY: show_key(ex); break;
    case SHOW_IR: kiln_ir_print(ex->out, ex->c->program->ir); break;
    case SHOW_SOURCE: return show_source(ex, false);
    case SHOW_ASM: return show_source(ex, true);
    }
    return KILN_OK;
}

static kiln_status prepare(explainer *ex, const kiln_value *args, size_t nargs, int needs) {
    if (needs >= CALL) KILN_TRY(kiln_bind(ex->op, args, nargs, &ex->call));
    if (needs < PLAN) return KILN_OK;
    KILN_TRY(kiln_infer(&ex->call, &ex->plan));
    kiln_plan_key(&ex->plan, kiln_ctx_target(ex->ctx, &ex->plan)->level, &ex->key);
    if (needs < CLASS) return KILN_OK;
    if (ex->plan.kind == KILN_CLASS_KERNEL) return kiln_class_new(ex->ctx, &ex->plan, &ex->key, &ex->c);
    return KILN_FAIL(KILN_E_UNSUP, "%s: a %s has neither IR nor source", ex->op->name,
                     (const char *[])KILN_CLASS_KIND_NAMES[ex->plan.kind]);
}

kiln_status kiln_explain(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                         const char *stage, char **out) {
    KILN_NEED(ctx, op, stage, out);
    KILN_NEED_ITEMS(args, nargs);
    size_t k = 0, n = sizeof stages / sizeof *stages;
    while (k < n && strcmp(stages[k].name, stage) != 0) k++;
    if (k == n)
        return KILN_FAIL(KILN_E_VALUE,
                         "unknown stage '%.40s': expected schema, bind, plan, key, ir, source or asm", stage);
    kiln_sb text;
    kiln_sb_init(&text);
    explainer *ex = kiln_calloc(1, sizeof *ex); /* a plan is large for a stack that may be small */
    kiln_status st = ex ? KILN_OK : KILN_NOMEM();
    if (ex) *ex = (explainer){.ctx = ctx, .op = op, .out = &text};
    if (st == KILN_OK) st = prepare(ex, args, nargs, stages[k].needs);
    if (st == KILN_OK) st = show(ex, stages[k].stage);
    if (ex && ex->c) kiln_class_free(ex->c);
    kiln_free(ex);
    return kiln_sb_end(&text, st, out);
}

kiln_status kiln_op_grad(const kiln_op *op, size_t i, char **out) {
    KILN_NEED(op, out);
    if (op->form != KILN_FORM_FUNCTIONAL)
        return KILN_FAIL(KILN_E_UNSUP, "%s writes to an argument: only functional operators have gradients",
                         op->name);
    if (i >= (size_t)op->schema->nargs)
        return KILN_FAIL(KILN_E_INDEX, "%s has %d arguments, and none of number %zu", op->name,
                         op->schema->nargs, i);
    kiln_sb text;
    kiln_sb_init(&text);
    return kiln_sb_end(&text, kiln_row_grad(op->row, (int)i, &text), out);
}

void kiln_text_free(char *text) { kiln_free(text); }
