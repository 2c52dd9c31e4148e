/* call.c - a call that no slot answers: bound, inferred, its class found, run; and kernels that a caller holds.
 *
 * kiln_call begins in memo.c and comes here for everything else.  Every check comes before anything is allocated,
 * every allocation before anything is written, and nests that may refuse the call (a zero divisor) run before the
 * outputs are touched.  Knows the order of things; the stages know the rest. */
#include <string.h>

#include "api/lists.h"
#include "api/memo.h"

KILN_TLS_FAST const char *kiln_tier_here = "";
const char kiln_tier_compiled[] = "compiled";

const char *kiln_last_tier(void) { return kiln_tier_here; }

/* -- running ------------------------------------------------------------------------------------------------ */

/* What a routine needs for a row. */
static size_t row_work(const kiln_plan *plan, const kiln_class *c) {
    return c->nests.row_work * (size_t)plan->n[plan->axes.ndim - 1];
}

/* *run: what ran. */
KILN_HOT static kiln_status run_class(const kiln_plan *plan, kiln_class *c, kiln_tensor **outs,
                                      kiln_runner *run) {
    uint64_t par[KILN_MAX_SCALARS];
    *run = (kiln_runner){.fn = atomic_load_explicit(&c->fn, memory_order_acquire),
                         .parallel = &c->ctx->parallel,
                         .isa = c->ctx->isa,
                         .cost = &c->cost,
                         .guards = c->nests.nguards,
                         .memory = c->ctx->memory,
                         .ctx = c->ctx,
                         .call = kiln_call};
    if (run->fn)
        run->work = c->nests.work + (c->nests.row_work ? row_work(plan, c) : 0); /* written before fn was */
    else if (c->kind == KILN_CLASS_KERNEL)
        run->interp = c->program->interp;
    if (plan->axes.columns && run->interp) KILN_TRY(kiln_program_along(c->ctx, c->program, &run->interp));
    for (int k = 0; k < c->nscalars; k++) KILN_TRY(kiln_plan_scalar(plan, &c->scalars[k], &par[k]));
    return kiln_steps_run(plan, &c->nests, run, par, outs);
}

/* How often an interpreter goes through its instructions: the driver takes rows of element-wise calls together, and those that are
 * folded or scanned one by one. */
static int64_t rows_walked(const kiln_axes *x) {
    int64_t row = x->n[x->vector];
    return x->ndim == x->ngrid || row == 0 ? 1 : x->nelem / row;
}

KILN_HOT static void count_run(kiln_thread *t, kiln_class *c, const kiln_plan *plan, bool compiled) {
    KILN_COUNT_IN(t, calls);
    if (c->kind > KILN_CLASS_ROUTINE) return;
    kiln_tier_here = compiled ? kiln_tier_compiled : "interp";
    if (compiled) return;
    KILN_COUNT_IN(t, interp_calls);
    if (c->ctx->mode == KILN_MODE_SYNC) KILN_COUNT_IN(t, fallbacks);
    kiln_class_heat(c, plan->axes.nelem, rows_walked(&plan->axes));
}

/* Apart, so that it costs a call that is right nothing. */
static __attribute__((noinline)) kiln_status not_given(const kiln_op *op, const kiln_value *args,
                                                       size_t nargs, kiln_tensor **outs, size_t nouts) {
    KILN_NEED_IN("kiln_call", op);
    size_t n = kiln_op_nrets(op);
    if (!args && nargs)
        return KILN_FAIL(KILN_E_ARG, "%s: args is NULL, and there should be %zu", op->name, nargs);
    if (!outs) return KILN_FAIL(KILN_E_ARG, "%s: outs is NULL, expected room for %zu results", op->name, n);
    return KILN_FAIL(KILN_E_ARG, "%s: room for %zu results, expected %zu", op->name, nouts, n);
}

/* Whether what must be given is, and there is room for the results. */
static inline kiln_status check_given(const kiln_op *op, const kiln_value *args, size_t nargs,
                                      kiln_tensor **outs, size_t nouts) {
    bool given = op && (args || !nargs) && nouts >= (size_t)op->schema->nrets && (outs || !op->schema->nrets);
    return given ? KILN_OK : not_given(op, args, nargs, outs, nouts);
}

/* A call on its way. */
typedef struct under_way {
    kiln_bound call;
    kiln_plan plan;
    uint64_t generation; /* kiln_generation before anything was looked at */
    kiln_recipe *r;      /* or NULL */
    uint32_t serial;     /* of r: a call made meanwhile by a hook may have put another in its place */
    kiln_class *c;       /* NULL: to be found */
} under_way;

/* Bound and inferred; by the recipe r if there is one, and then its class may be known as well. */
KILN_HOT static kiln_status understand(const kiln_op *op, const kiln_value *args, size_t nargs,
                                       under_way *w) {
    w->c = NULL;
    if (!w->r || w->r->sized) {
        KILN_TRY(kiln_bind(op, args, nargs, &w->call));
        return kiln_infer(&w->call, &w->plan);
    }
    kiln_recipe_bind(w->r, args, &w->call);
    KILN_TRY(kiln_infer_again(&w->call, &w->r->typed, &w->plan));
    w->c = kiln_recipe_class(w->r, w->generation, &w->plan);
    return KILN_OK;
}

/* Remembers the class of a call, which was not known before. */
static void remember(kiln_thread *t, const kiln_value *args, size_t nargs, under_way *w) {
    if (!w->r || w->r->serial != w->serial) w->r = kiln_recipe_make(t, args, nargs, &w->plan);
    if (!w->r) return;
    w->serial = w->r->serial;
    kiln_recipe_learn(w->r, &w->plan, w->generation, w->c);
}

/* The class, remembered or from the table. */
static kiln_status find_class(kiln_ctx *ctx, kiln_thread *t, const kiln_value *args, size_t nargs,
                              under_way *w) {
    if (w->c) {
        KILN_COUNT_IN(t, table_hits);
        kiln_entry_touch(&w->c->entry);
        return KILN_OK;
    }
    KILN_TRY(kiln_class_of(ctx, &w->plan, &w->c));
    if (!ctx->forgets) remember(t, args, nargs, w);
    return KILN_OK;
}

/* One fold that is worth several threads is another class: its kernel leaves states of parts to be merged. */
static kiln_status take_parts(kiln_ctx *ctx, under_way *w) {
    const kiln_runner run = {.parallel = &ctx->parallel, .cost = &w->c->cost};
    if (!kiln_parts_wanted(&w->plan.axes, &run, &w->c->nests.partial)) return KILN_OK;
    w->plan.parts = true;
    return kiln_class_of(ctx, &w->plan, &w->c);
}

/* The call by a memo of its recipe, which the operator's slot then points at.  The one it points at was tried.  *st: as of
 * kiln_memo_run. */
static bool run_again(kiln_thread *t, const kiln_recipe *r, uint64_t generation, const kiln_value *args,
                      kiln_tensor **outs, kiln_status *st) {
    const kiln_memo *tried = *kiln_slot_of(t->user, r->op);
    uint32_t serial = r->serial;
    for (int k = 0; k < KILN_RECIPE_WAYS && r->serial == serial; k++) {
        kiln_memo *m = r->way[k];
        if (!m || m == tried || m->op != r->op || m->serial != r->serial || m->generation != generation)
            continue;
        bool composed = m->ncalls > 0; /* its calls have said what answered */
        if (!kiln_memo_run(m, args, outs, true, st)) continue;
        if (*st != KILN_OK) return true;
        KILN_COUNT_IN(t, calls);
        KILN_COUNT_IN(t, table_hits);
        kiln_entry_touch(&m->c->entry);
        if (!composed) kiln_tier_here = kiln_tier_compiled;
        kiln_slot_set(t->user, m);
        return true;
    }
    return false;
}

/* Makes a memo of a call that a kernel or others have answered, if its recipe has room. */
static void keep(kiln_thread *t, const kiln_value *args, size_t nargs, under_way *w, const kiln_runner *run,
                 kiln_tensor *const *made) {
    if (!w->r || w->r->serial != w->serial || w->r->generation != w->generation) return;
    bool flat = run->fn && !w->call.op->row->sized && kiln_memo_is_flat(&w->plan, args, nargs);
    kiln_memo *m = kiln_recipe_way(w->r, flat);
    if (m && kiln_memo_make(m, flat, w->r, args, &w->plan, w->c, run, made)) kiln_slot_set(t->user, m);
}

/* A call for each item of lists; one that makes a list has no place for it here. */
static __attribute__((noinline)) kiln_status call_lists(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, size_t nargs) {
    if (op->schema->nrets)
        return KILN_FAIL(KILN_E_UNSUP, "%s gives a list: call it by kiln_call_values", op->name);
    return kiln_lists_call(ctx, op, args, nargs, NULL);
}

KILN_HOT kiln_status kiln_call_general(kiln_ctx *ctx, kiln_thread *t, const kiln_op *op,
                                       const kiln_value *args, size_t nargs, kiln_tensor **outs,
                                       size_t nouts) {
    under_way w;
    kiln_runner run;
    KILN_TRY(check_given(op, args, nargs, outs, nouts));
    if (kiln_op_is_listed(op)) return call_lists(ctx, op, args, nargs);
    w.generation = kiln_generation(&ctx->epochs);
    w.r = kiln_recipe_find(t, op, args, nargs);
    if (w.r) {
        kiln_status st = KILN_OK;
        w.serial = w.r->serial;
        if (run_again(t, w.r, w.generation, args, outs, &st)) return st;
        if (w.r->serial != w.serial) w.r = NULL; /* a call of another operator has taken its place */
    }
    KILN_TRY(understand(op, args, nargs, &w));
    KILN_TRY(find_class(ctx, t, args, nargs, &w));
    if (w.c->nests.partial.unit) KILN_TRY(take_parts(ctx, &w));
    if (ctx->mode == KILN_MODE_SYNC) KILN_TRY(kiln_class_compile_if_due(w.c));
    kiln_tensor *made[KILN_MAX_RETS];
    KILN_TRY(run_class(&w.plan, w.c, made, &run));
    for (int k = 0; k < w.plan.typed.nrets; k++) outs[k] = made[k];
    count_run(t, w.c, &w.plan, run.fn != NULL);
    if (run.fn || w.plan.kind == KILN_CLASS_COMPOSITION) keep(t, args, nargs, &w, &run, made);
    return KILN_OK;
}

/* -- kernels held by the caller ------------------------------------------------------------------------- */

struct kiln_kernel {
    kiln_class *c; /* pinned */
    const kiln_op *op;
};

/* The class of the call, compiled and pinned.  Between the lookup and the pin it may be evicted: then again. */
static kiln_status pin_class(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) {
    do {
        KILN_TRY(kiln_class_of(ctx, plan, out));
    } while (!kiln_cache_pin(ctx->cache, &(*out)->entry));
    kiln_status st = kiln_class_compile(*out);
    if (st != KILN_OK) kiln_cache_unpin(ctx->cache, &(*out)->entry);
    return st;
}

kiln_status kiln_prepare(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                         kiln_kernel **out) {
    kiln_bound call;
    kiln_plan plan;
    KILN_NEED(ctx, op, out);
    KILN_NEED_ITEMS(args, nargs);
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    KILN_TRY(kiln_infer(&call, &plan));
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    kiln_kernel *k = t ? kiln_alloc(sizeof *k) : NULL;
    if (!k) return KILN_NOMEM();
    *k = (kiln_kernel){NULL, op};
    kiln_thread_enter(&ctx->epochs, t);
    kiln_status st = pin_class(ctx, &plan, &k->c);
    kiln_thread_leave(t);
    if (st == KILN_OK)
        *out = k;
    else
        kiln_free(k);
    return st;
}

/* Whether a call is of k's class, which is then remembered. */
static bool is_of_class(const kiln_kernel *k, kiln_thread *t, const kiln_value *args, size_t nargs,
                        under_way *w) {
    kiln_key key;
    if (w->c) return w->c == k->c; /* the table holds a pinned class, and no other of its key */
    kiln_plan_key(&w->plan, k->c->ctx->isa, &key);
    if (key.n != k->c->entry.n || memcmp(key.bytes, k->c->entry.key, key.n) != 0) return false;
    w->c = k->c;
    if (!k->c->ctx->forgets) remember(t, args, nargs, w);
    return true;
}

kiln_status kiln_kernel_run(kiln_kernel *k, const kiln_value *args, size_t nargs, kiln_tensor **outs,
                            size_t nouts) {
    under_way w;
    kiln_runner run;
    kiln_tensor *made[KILN_MAX_RETS];
    KILN_NEED(k);
    KILN_TRY(check_given(k->op, args, nargs, outs, nouts));
    w.generation = kiln_generation(&k->c->ctx->epochs);
    kiln_thread *t = kiln_thread_of(&k->c->ctx->epochs);
    if (!t) return KILN_NOMEM();
    w.r = kiln_recipe_find(t, k->op, args, nargs);
    if (w.r) w.serial = w.r->serial;
    KILN_TRY(understand(k->op, args, nargs, &w));
    if (!is_of_class(k, t, args, nargs, &w))
        return KILN_FAIL(KILN_E_ARG,
                         "%s: these arguments are of another class than the kernel was prepared for",
                         k->op->name);
    KILN_TRY(run_class(&w.plan, k->c, made, &run));
    memcpy(outs, made, (size_t)w.plan.typed.nrets * sizeof *made);
    count_run(t, k->c, &w.plan, true); /* a prepared class has its kernel */
    return KILN_OK;
}

kiln_entry_fn kiln_kernel_entry(const kiln_kernel *k) {
    return k ? atomic_load_explicit(&k->c->fn, memory_order_acquire) : NULL;
}

void kiln_kernel_release(kiln_kernel *k) {
    if (!k) return;
    kiln_cache_unpin(k->c->ctx->cache, &k->c->entry);
    kiln_free(k);
}
