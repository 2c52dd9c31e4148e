/* call.c - a call that no slot answers: bound, inferred, its class found, run; and kernels that a caller holds.
 *
 * kiln_call begins in memo.c and comes here for everything else.  Every check comes before anything is allocated,
 * every allocation before anything is written, and nests that may refuse the call (a zero divisor) run before the
 * outputs are touched.  Knows the order of things; the stages know the rest. */
#include <string.h>

#include "api/lists.h"
#include "api/memo.h"
#include "api/within.h"

KILN_TLS_FAST const char *kiln_tier_here = "";
const char kiln_tier_compiled[] = "compiled", kiln_tier_interp[] = "interp";

const char *kiln_last_tier(void) { return kiln_tier_here; }

/* -- running ------------------------------------------------------------------------------------------------ */

/* What a routine needs for a row. */
static size_t row_work(const kiln_work *w, const kiln_class *c) {
    return c->nests.row_work * (size_t)kiln_work_words(w, w->n)[w->axes.ndim - 1];
}

static bool turns(const kiln_work *w) {
    kiln_axes x;
    kiln_work_axes(w, &x);
    return kiln_turned_by_interp(&x);
}

static inline __attribute__((always_inline)) kiln_status find_runner(kiln_class *c, const kiln_work *w,
                                                                     kiln_runner *run) {
    *run = (kiln_runner){.fn = atomic_load_explicit(&c->fn, memory_order_acquire),
                         .parallel = &c->ctx->parallel,
                         .isa = c->ctx->isa,
                         .cost = &c->cost,
                         .guards = c->nests.nguards,
                         .memory = c->ctx->memory};
    if (run->fn)
        run->work = c->nests.work + (c->nests.row_work ? row_work(w, c) : 0); /* written before c->fn */
    else if (c->kind == KILN_CLASS_KERNEL)
        run->interp = c->program->interp;
    if (w->axes.columns && run->interp) KILN_TRY(kiln_program_along(c->ctx, c->program, &run->interp));
    if (run->interp && c->program->can_turn && turns(w))
        KILN_TRY(kiln_program_across(c->ctx, c->program, &run->across));
    return KILN_OK;
}

kiln_status kiln_class_runner(kiln_class *c, const kiln_work *w, kiln_runner *run) {
    return find_runner(c, w, run);
}

static inline kiln_given given_of(const kiln_plan *p, const uint64_t *par) {
    const kiln_bound *call = p->call;
    return (kiln_given){call->op->name, call->arg, call->nout ? call->out : NULL, par};
}

/* Runs the call.  Afterwards run->fn is the kernel that ran, or run->interp is the program that the interpreter ran.  Both are
 * NULL if nothing is computed.  in: the calls that it makes. */
KILN_HOT static kiln_status run_class(const kiln_plan *plan, kiln_class *c, kiln_within *in,
                                      kiln_tensor **outs, kiln_runner *run) {
    uint64_t par[KILN_MAX_SCALARS];
    KILN_TRY(find_runner(c, &plan->work, run));
    for (int k = 0; k < c->nscalars; k++) KILN_TRY(kiln_plan_scalar(plan, &c->scalars[k], &par[k]));
    const kiln_given given = given_of(plan, par);
    if (!plan->work.ncalls) return kiln_steps_run(&plan->work, &c->nests, run, &given, outs);
    in->op = plan->op;
    return kiln_within_run(in, &plan->work, c, run, &given, outs);
}

int64_t kiln_rows_walked(const kiln_axes *x) {
    int64_t row = x->n[x->vector];
    return x->ndim == x->ngrid || row == 0 ? 1 : x->nelem / row;
}

KILN_HOT void kiln_class_count(kiln_thread *t, kiln_class *c, const kiln_work *w, bool compiled) {
    KILN_COUNT_IN(t, calls);
    if (c->kind > KILN_CLASS_ROUTINE) return;
    kiln_tier_here = compiled ? kiln_tier_compiled : kiln_tier_interp;
    if (compiled) return;
    kiln_count_interpreted(c->ctx, t);
    kiln_axes x;
    kiln_work_axes(w, &x);
    (void)kiln_class_heat(c, x.nelem, kiln_rows_walked(&x));
}

/* A function of its own, so that a correct call does not pay for it. */
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
    kiln_class *c;       /* NULL: not found yet, or the call is a composition, which has no class */
    kiln_within in;      /* the calls that it makes */
} under_way;

/* Bound and inferred; by the recipe r if there is one, and then its class may be known as well. */
KILN_HOT static inline kiln_status infer_call(const kiln_op *op, const kiln_value *args, size_t nargs,
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

/* infer_call for a call that makes other calls, which are kept in w->in. */
static __attribute__((noinline)) kiln_status infer_with_calls(const kiln_op *op, const kiln_value *args,
                                                              size_t nargs, under_way *w) {
    kiln_infer_watch before = kiln_within_watch(&w->in, &w->plan);
    kiln_status st = infer_call(op, args, nargs, w);
    (void)kiln_infer_show(before);
    (void)kiln_inner_end(w->in.t, &w->in.counted); /* takes back the counts of lookups for inner calls */
    return st;
}

KILN_HOT static kiln_status understand(const kiln_op *op, const kiln_value *args, size_t nargs,
                                       under_way *w) {
    return kiln_makes_calls(op) ? infer_with_calls(op, args, nargs, w) : infer_call(op, args, nargs, w);
}

/* Copies the n results to outs.  Most calls have one result. */
static inline void hand_over(kiln_tensor *const *made, int n, kiln_tensor **outs) {
    if (n == 1)
        outs[0] = made[0];
    else
        memcpy(outs, made, (size_t)n * sizeof *made);
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

kiln_status kiln_class_take_parts(kiln_ctx *ctx, kiln_plan *p, kiln_class **c) {
    const kiln_runner run = {.parallel = &ctx->parallel, .cost = &(*c)->cost};
    kiln_axes x;
    kiln_work_axes(&p->work, &x);
    if (!kiln_parts_wanted(&x, &run, &(*c)->nests.partial)) return KILN_OK;
    p->work.parts = true;
    return kiln_class_of(ctx, p, c);
}

/* The call by a memo of its recipe, which the operator's slot then points at.  The one it points at was tried.  Both may be another
 * call's once the memo has called another operator.  *st: as of kiln_memo_run. */
static bool run_again(kiln_thread *t, const kiln_recipe *r, uint64_t generation, const kiln_value *args,
                      kiln_tensor **outs, kiln_status *st) {
    const kiln_memo *tried = *kiln_slot_of(t->user, r->op);
    const kiln_op *op = r->op;
    uint32_t serial = r->serial;
    for (int k = 0; k < KILN_RECIPE_WAYS && r->serial == serial; k++) {
        kiln_memo *m = r->way[k];
        if (!m || m == tried || m->op != op || m->serial != serial || m->generation != generation) continue;
        kiln_memo_ran ran = kiln_memo_run(m, args, outs, st);
        if (ran == KILN_MEMO_NOT) continue;
        if (*st != KILN_OK) return true;
        KILN_COUNT_IN(t, calls);
        KILN_COUNT_IN(t, table_hits);
        if (m->op != op || m->serial != serial) return true;
        if (ran == KILN_MEMO_RAN) {
            kiln_entry_touch(&m->c->entry);
            kiln_tier_here = kiln_tier_compiled;
        }
        kiln_slot_set(t->user, m);
        if (m->interp) kiln_memo_interpreted(t, m);
        return true;
    }
    return false;
}

/* Makes a memo of a call that a kernel, the interpreter or other calls have answered, if its recipe has room. */
static void keep(kiln_thread *t, const kiln_value *args, size_t nargs, under_way *w, const kiln_runner *run,
                 kiln_tensor *const *made) {
    if (!w->r || w->r->serial != w->serial || w->r->generation != w->generation) return;
    bool runs = run->fn || run->interp; /* else other calls answered */
    bool works = run->fn && run->work;  /* a flat memo has no work for a kernel */
    bool flat = runs && !works && !w->call.op->row->sized && kiln_memo_is_flat(&w->plan, args, nargs);
    kiln_memo *m = kiln_recipe_way(w->r, flat);
    if (!m) return;
    const kiln_answered call = {w->in.ctx, args, &w->plan, w->c, run, made};
    if (kiln_memo_make(m, flat, w->r, &call)) kiln_slot_set(t->user, m);
}

/* A call for each item of lists; one that makes a list has no place for it here. */
static __attribute__((noinline)) kiln_status call_lists(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, size_t nargs) {
    if (op->schema->nrets)
        return KILN_FAIL(KILN_E_UNSUP, "%s gives a list: call it by kiln_call_values", op->name);
    return kiln_lists_call(ctx, op, args, nargs, NULL);
}

/* A composition: its work is calls, and it has no class. */
static __attribute__((noinline)) kiln_status call_composition(kiln_ctx *ctx, kiln_thread *t,
                                                              const kiln_value *args, size_t nargs,
                                                              under_way *w, kiln_tensor **outs) {
    kiln_runner run = {.memory = ctx->memory};
    kiln_tensor *made[KILN_MAX_RETS];
    if (!ctx->forgets) remember(t, args, nargs, w);
    const kiln_given given = given_of(&w->plan, NULL);
    w->in.op = w->plan.op;
    if (!kiln_makes_calls(w->call.op))
        w->in.n = 0; /* nobody watched: its family makes a composition of some calls alone */
    KILN_TRY(kiln_within_run(&w->in, &w->plan.work, NULL, &run, &given, made));
    hand_over(made, w->plan.typed.nrets, outs);
    KILN_COUNT_IN(t, calls);
    keep(t, args, nargs, w, &run, made);
    return KILN_OK;
}

KILN_HOT kiln_status kiln_call_general(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                       kiln_tensor **outs, size_t nouts) {
    under_way w;
    kiln_runner run;
    kiln_thread *t = kiln_thread_of(&ctx->epochs); /* which has entered */
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
    w.in.ctx = ctx;
    w.in.t = t;
    KILN_TRY(understand(op, args, nargs, &w));
    if (w.plan.kind == KILN_CLASS_COMPOSITION) return call_composition(ctx, t, args, nargs, &w, outs);
    KILN_TRY(find_class(ctx, t, args, nargs, &w));
    if (w.c->nests.partial.unit) KILN_TRY(kiln_class_take_parts(ctx, &w.plan, &w.c));
    if (ctx->mode == KILN_MODE_SYNC) KILN_TRY(kiln_class_compile_if_due(w.c));
    kiln_tensor *made[KILN_MAX_RETS];
    KILN_TRY(run_class(&w.plan, w.c, &w.in, made, &run));
    hand_over(made, w.plan.typed.nrets, outs);
    kiln_class_count(t, w.c, &w.plan.work, run.fn != NULL);
    if (run.fn || run.interp) keep(t, args, nargs, &w, &run, made);
    return KILN_OK;
}

/* -- kernels held by the caller ------------------------------------------------------------------------- */

struct kiln_kernel {
    kiln_ctx *ctx;
    kiln_class *c; /* pinned; NULL: the call is a composition, which has no class */
    const kiln_op *op;
    kiln_key key; /* of the call that the kernel was prepared for */
};

/* Finds, compiles and pins the class of the call.  Tries again if another thread evicts the class before it is pinned. */
static kiln_status pin_class(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) {
    if (plan->kind == KILN_CLASS_COMPOSITION) return KILN_OK;
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
    KILN_NEED(ctx, op);
    KILN_NEED_ITEMS(args, nargs);
    if (!out) return kiln_call_prepare(ctx, op, args, nargs);
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    KILN_TRY(kiln_infer(&call, &plan));
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    kiln_kernel *k = t ? kiln_alloc(sizeof *k) : NULL;
    if (!k) return KILN_NOMEM();
    *k = (kiln_kernel){.ctx = ctx, .op = op};
    kiln_plan_key(&plan, kiln_ctx_target(ctx, &plan)->level, &k->key);
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
    kiln_plan_key(&w->plan, kiln_ctx_target(k->ctx, &w->plan)->level, &key);
    if (key.n != k->key.n || memcmp(key.bytes, k->key.bytes, key.n) != 0) return false;
    w->c = k->c;
    if (!k->ctx->forgets && k->c) remember(t, args, nargs, w);
    return true;
}

/* Runs a call of thread t. */
static kiln_status run_held(const kiln_kernel *k, kiln_thread *t, const kiln_value *args, size_t nargs,
                            kiln_tensor **outs) {
    under_way w;
    kiln_runner run;
    kiln_tensor *made[KILN_MAX_RETS];
    w.generation = kiln_generation(&k->ctx->epochs);
    w.r = kiln_recipe_find(t, k->op, args, nargs);
    if (w.r) w.serial = w.r->serial;
    w.in.ctx = k->ctx;
    w.in.t = t;
    KILN_TRY(understand(k->op, args, nargs, &w));
    if (!is_of_class(k, t, args, nargs, &w))
        return KILN_FAIL(KILN_E_ARG,
                         "%s: these arguments are of another class than the kernel was prepared for",
                         k->op->name);
    if (!k->c) return call_composition(k->ctx, t, args, nargs, &w, outs);
    KILN_TRY(run_class(&w.plan, k->c, &w.in, made, &run));
    hand_over(made, w.plan.typed.nrets, outs);
    kiln_class_count(t, k->c, &w.plan.work, true); /* a prepared class has its kernel */
    return KILN_OK;
}

kiln_status kiln_kernel_run(kiln_kernel *k, const kiln_value *args, size_t nargs, kiln_tensor **outs,
                            size_t nouts) {
    KILN_NEED(k);
    KILN_TRY(check_given(k->op, args, nargs, outs, nouts));
    kiln_thread *t = kiln_thread_of(&k->ctx->epochs);
    if (!t) return KILN_NOMEM();
    bool enters = kiln_makes_calls(k->op); /* the classes of these calls are not pinned */
    if (enters) kiln_thread_enter(&k->ctx->epochs, t);
    kiln_status st = run_held(k, t, args, nargs, outs);
    if (enters) kiln_thread_leave(t);
    return st;
}

kiln_entry_fn kiln_kernel_entry(const kiln_kernel *k) {
    return k && k->c ? atomic_load_explicit(&k->c->fn, memory_order_acquire) : NULL;
}

void kiln_kernel_release(kiln_kernel *k) {
    if (!k) return;
    if (k->c) kiln_cache_unpin(k->ctx->cache, &k->c->entry);
    kiln_free(k);
}
