/* prepare.c - a call that is not made -> kernels for all that it would run.
 *
 * A call is bound and inferred as it would be made; classes are compiled as they are found: of the calls that it is made of, of each item
 * of lists, its own, and the class of a fold's parts where several threads would share it.  Nothing is computed. */
#include "api/lists.h"
#include "api/within.h"

static kiln_status compile_plan(void *user, kiln_plan *plan) {
    kiln_ctx *ctx = user;
    kiln_class *c;
    if (plan->kind == KILN_CLASS_COMPOSITION)
        return KILN_OK; /* a composition has no class; its calls have been compiled */
    KILN_TRY(kiln_class_of(ctx, plan, &c));
    KILN_TRY(kiln_class_compile(c));
    if (!c->nests.partial.unit) return KILN_OK;
    KILN_TRY(kiln_class_take_parts(ctx, plan, &c));
    kiln_status st = plan->work.parts ? kiln_class_compile(c) : KILN_OK;
    plan->work.parts = false;
    return st;
}

static kiln_status prepare_plain(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs) {
    kiln_bound call;
    kiln_plan plan;
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    kiln_infer_watch before = kiln_infer_show((kiln_infer_watch){compile_plan, ctx, true});
    kiln_status st = kiln_infer(&call, &plan);
    (void)kiln_infer_show(before);
    return st == KILN_OK ? compile_plan(ctx, &plan) : st;
}

kiln_status kiln_call_prepare(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs) {
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->epochs, t);
    bool lists = kiln_op_is_listed(op);
    kiln_status st = (lists ? kiln_lists_prepare : prepare_plain)(ctx, op, args, nargs);
    kiln_thread_leave(t);
    return st;
}
