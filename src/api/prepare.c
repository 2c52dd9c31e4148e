/* prepare.c - a call that is not made -> the plans of all that it would run, and kernels for them.
 *
 * A call is bound and inferred as it would be made.  The plans are shown as they are found: of the calls that it is made of, of each item
 * of lists, and its own.  kiln_call_prepare compiles their classes, with the class of a fold's parts where several threads would share it.
 * Nothing is computed. */
#include "api/lists.h"
#include "api/within.h"

/* -- what a call would run ---------------------------------------------------------------------------------- */

static kiln_status show_plain(const kiln_op *op, const kiln_value *args, size_t nargs, kiln_plan_fn *show,
                              void *user) {
    kiln_bound call;
    kiln_plan plan;
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    kiln_infer_watch before = kiln_infer_show((kiln_infer_watch){show, user, true});
    kiln_status st = kiln_infer(&call, &plan);
    (void)kiln_infer_show(before);
    return st == KILN_OK ? show(user, &plan) : st;
}

kiln_status kiln_call_show(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                           kiln_plan_fn *show, void *user) {
    if (kiln_op_is_listed(op)) return kiln_lists_show(ctx, op, args, nargs, show, user);
    return show_plain(op, args, nargs, show, user);
}

/* -- kernels for it -------------------------------------------------------------------------------------------- */

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

kiln_status kiln_call_prepare(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs) {
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->epochs, t);
    kiln_status st = kiln_call_show(ctx, op, args, nargs, compile_plan, ctx);
    kiln_thread_leave(t);
    return st;
}
