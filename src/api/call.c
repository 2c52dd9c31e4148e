/* call.c - kiln_call: bind, infer, key, look up, run.
 *
 * Every check comes before anything is allocated, every allocation before anything is written, and
 * nests that may refuse the call (a zero divisor) run before the outputs are touched.  Knows the order
 * of things; the stages know the rest. */
#include <string.h>

#include "api/ctx.h"

static _Thread_local const char *last_tier = "";

const char *kiln_last_tier(void) { return last_tier; }

/* -- the class ---------------------------------------------------------------------------------------------- */

static kiln_status find_class(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key, kiln_class **out) {
    kiln_class *c = kiln_cache_get(ctx->cache, key->bytes, key->n);
    if (c) {
        KILN_COUNT(ctx, table_hits);
        *out = c;
        return KILN_OK;
    }
    KILN_COUNT(ctx, misses);
    void *winner;
    KILN_TRY(kiln_class_new(ctx, plan, key, &c));
    KILN_TRY(kiln_cache_put(ctx->cache, key->bytes, key->n, c, &winner));
    *out = winner;
    return KILN_OK;
}

kiln_status kiln_class_of(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) {
    kiln_key key;
    kiln_plan_key(plan, ctx->isa, &key);
    return find_class(ctx, plan, &key, out);
}

/* -- outputs ------------------------------------------------------------------------------------------------ */

/* References to the results: new tensors, or the ones the caller wants written.  All or nothing: what can
 * fail comes first, and an out= tensor is resized only after that. */
static kiln_status make_outputs(const kiln_plan *plan, kiln_tensor **outs) {
    kiln_status st = KILN_OK;
    memset(outs, 0, (size_t)plan->nrets * sizeof *outs);
    for (int k = 0; k < plan->nrets && st == KILN_OK; k++) {
        kiln_tensor *given = k < plan->call->nout ? plan->call->out[k] : NULL;
        if (!given) st = kiln_tensor_new(plan->ret_dtype[k], plan->rank, plan->sizes, plan->ret_strides, &outs[k]);
        else if (plan->resize_out[k]) st = kiln_tensor_reserve(given, plan->rank, plan->sizes, plan->ret_strides);
    }
    for (int k = 0; k < plan->nrets && st == KILN_OK; k++) {
        if (plan->resize_out[k]) st = kiln_tensor_resize(plan->call->out[k], plan->rank, plan->sizes, plan->ret_strides);
        if (!outs[k]) outs[k] = kiln_tensor_retain(plan->call->out[k]);
    }
    for (int k = 0; k < plan->nrets && st != KILN_OK; k++) kiln_tensor_release(outs[k]);
    return st;
}

static void drop_outputs(const kiln_plan *plan, kiln_tensor **outs) {
    for (int k = 0; k < plan->nrets; k++) kiln_tensor_release(outs[k]);
}

/* -- running ------------------------------------------------------------------------------------------------ */

static kiln_status run_nests(const kiln_plan *plan, const kiln_class *c, const kiln_runner *run, int from, int to,
                             char *const *ptr, const uint64_t *par) {
    for (int nest = from; nest < to && plan->nelem; nest++) {
        int32_t trap;
        KILN_TRY(kiln_drive(plan, run, nest, ptr, par, &trap));
        if (trap == 0) continue;
        int which = trap - KILN_TRAP_BASE;
        if (which < 0 || which >= c->low.ir->ntraps) return KILN_BUG("kernel returned %d", (int)trap);
        return KILN_FAIL(c->low.ir->traps[which].status, "%s: %s", plan->call->op->name, c->low.ir->traps[which].text);
    }
    return KILN_OK;
}

static kiln_status run_class(const kiln_plan *plan, const kiln_class *c, kiln_tensor **outs) {
    char *ptr[KILN_MAX_OPERANDS];
    uint64_t par[KILN_MAX_SCALARS];
    kiln_runner run = {atomic_load_explicit(&c->fn, memory_order_acquire), c->interp};
    for (int k = 0; k < c->low.nscalars; k++) {
        const kiln_scalar_source *s = &c->low.scalars[k];
        KILN_TRY(kiln_plan_scalar(plan, s->slot, s->index, s->part, s->via, s->dtype, &par[k]));
    }
    for (int k = 0; k < plan->noperands; k++) ptr[k] = plan->operand[k].tensor ? plan->operand[k].tensor->data : NULL;
    KILN_TRY(run_nests(plan, c, &run, 0, c->nguards, ptr, par));
    KILN_TRY(make_outputs(plan, outs));
    for (int k = 0; k < plan->nrets; k++) ptr[k] = outs[k]->data;
    kiln_status st = run_nests(plan, c, &run, c->nguards, c->low.ir->nnests, ptr, par);
    if (st != KILN_OK) drop_outputs(plan, outs);
    else last_tier = run.fn ? "compiled" : "interp";
    return st;
}

static void count_run(kiln_ctx *ctx, const kiln_class *c) {
    KILN_COUNT(ctx, calls);
    if (atomic_load_explicit(&c->fn, memory_order_relaxed)) return;
    KILN_COUNT(ctx, interp_calls);
    if (ctx->mode == KILN_MODE_SYNC) KILN_COUNT(ctx, fallbacks);
}

static kiln_status check_outs(const kiln_op *op, kiln_tensor **outs, size_t nouts) {
    size_t n = kiln_op_nrets(op);
    if (nouts < n || (n && !outs))
        return KILN_FAIL(KILN_E_ARG, "%s: room for %zu results, expected %zu", op->name, nouts, n);
    return KILN_OK;
}

/* A failed build costs speed only: the interpreter answers, and the counters say why. */
static kiln_status call_bound(kiln_ctx *ctx, const kiln_bound *call, kiln_tensor **outs) {
    kiln_plan plan;
    kiln_class *c;
    KILN_TRY(kiln_infer(call, &plan));
    KILN_TRY(kiln_class_of(ctx, &plan, &c));
    if (ctx->mode == KILN_MODE_SYNC && !atomic_load_explicit(&c->fn, memory_order_acquire))
        if (kiln_class_compile(c) != KILN_OK) kiln_clear_error();
    kiln_tensor *made[KILN_MAX_RETS];
    KILN_TRY(run_class(&plan, c, made));
    memcpy(outs, made, (size_t)plan.nrets * sizeof *made);
    count_run(ctx, c);
    return KILN_OK;
}

kiln_status kiln_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs, kiln_tensor **outs,
                      size_t nouts) {
    kiln_bound call;
    KILN_TRY(check_outs(op, outs, nouts));
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    return call_bound(ctx, &call, outs);
}

/* -- kernels held by the caller ------------------------------------------------------------------------- */

struct kiln_kernel {
    kiln_class *c; /* lives as long as the context */
    const kiln_op *op;
};

kiln_status kiln_prepare(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs, kiln_kernel **out) {
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c;
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    KILN_TRY(kiln_infer(&call, &plan));
    KILN_TRY(kiln_class_of(ctx, &plan, &c));
    if (!atomic_load_explicit(&c->fn, memory_order_acquire)) KILN_TRY(kiln_class_compile(c));
    kiln_kernel *k = kiln_alloc(sizeof *k);
    if (!k) return KILN_NOMEM();
    *k = (kiln_kernel){c, op};
    *out = k;
    return KILN_OK;
}

kiln_status kiln_kernel_run(kiln_kernel *k, const kiln_value *args, size_t nargs, kiln_tensor **outs, size_t nouts) {
    kiln_bound call;
    kiln_plan plan;
    kiln_key key;
    kiln_tensor *made[KILN_MAX_RETS];
    KILN_TRY(check_outs(k->op, outs, nouts));
    KILN_TRY(kiln_bind(k->op, args, nargs, &call));
    KILN_TRY(kiln_infer(&call, &plan));
    kiln_plan_key(&plan, k->c->ctx->isa, &key);
    if (key.n != k->c->key.n || memcmp(key.bytes, k->c->key.bytes, key.n) != 0)
        return KILN_FAIL(KILN_E_ARG, "%s: these arguments are of another class than the kernel was prepared for", k->op->name);
    KILN_TRY(run_class(&plan, k->c, made));
    memcpy(outs, made, (size_t)plan.nrets * sizeof *made);
    count_run(k->c->ctx, k->c);
    return KILN_OK;
}

void kiln_kernel_release(kiln_kernel *k) { kiln_free(k); }
