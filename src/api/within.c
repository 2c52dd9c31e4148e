/* within.c - the calls that a call makes: inferred once, with the call, and then run as they were inferred.
 *
 * Inference of a composition infers each of its calls, since shapes follow from those before and a call that fails must fail before
 * anything is written.  Here the class, the work and the scalars of each are kept, so that running a call needs no
 * inference.  A call that is not kept is made by kiln_call.  Must not know which operators call which. */
#include <string.h>

#include "api/within.h"

enum { OUTER_WORDS = 1024 }; /* words of the outer plan that the work of the outer call may still need */

/* -- keeping ------------------------------------------------------------------------------------------------- */

/* Takes n words from the end of the outer plan; NULL: fewer than n words are left. */
static int64_t *take(kiln_within *in, unsigned n) {
    if (in->outer->work.nwords + OUTER_WORDS + n > in->top) return NULL;
    in->top -= n;
    return in->outer->words + in->top;
}

/* An argument of a call becomes the number of the value that was given for it; a default becomes its own value.  False: it is of a
 * kind that has no place in a work. */
static bool number_by_value(kiln_call_arg *a, const kiln_bound *call) {
    if (a->from < 0) return true;
    const kiln_value *v = &call->arg[a->from];
    a->from = call->given[a->from];
    if (a->from >= 0) return true;
    a->kind = (uint8_t)v->kind;
    a->u.i = v->u.i;
    return v->kind == KILN_NONE || v->kind == KILN_BOOL_V || v->kind == KILN_INT_V ||
           v->kind == KILN_FLOAT_V || v->kind == KILN_DTYPE_V;
}

bool kiln_work_keep(kiln_work *to, const kiln_work *w, const kiln_bound *call) {
    int64_t *words = memcpy(to, w, kiln_work_size(w));
    kiln_buffer *buffer = (kiln_buffer *)(void *)(words + w->buffer);
    for (int b = 0; b < w->nbuffers; b++) {
        if (buffer[b].kind != KILN_BUFFER_ARG) continue;
        int value = call->given[buffer[b].which];
        if (value < 0) return false;
        buffer[b].which = (uint8_t)value;
    }
    for (int k = 0; k < w->nsteps; k++) {
        const kiln_step *s = &kiln_work_steps(to)[k];
        if (s->kind != KILN_STEP_CALL) continue;
        kiln_call_arg *args = (kiln_call_arg *)(void *)(words + s->u.call.args);
        for (int i = 0; i < s->u.call.nargs; i++)
            if (!number_by_value(&args[i], call)) return false;
    }
    return true;
}

/* Keeps an inner call that has just been inferred.  A call that makes calls itself, whose results are given, or whose arguments are
 * lists is not kept: kiln_call makes it. */
static kiln_status keep(void *user, kiln_plan *p) {
    kiln_within *in = user;
    kiln_within_call *to = &in->at[in->n++];
    to->work = NULL;
    if (p->kind > KILN_CLASS_ROUTINE || p->work.ncalls || p->call->nout || p->call->op->row->items)
        return KILN_OK;
    KILN_TRY(kiln_class_of(in->ctx, p, &to->c));
    if (to->c->nests.partial.unit) KILN_TRY(kiln_class_take_parts(in->ctx, p, &to->c));
    uint64_t *par = (uint64_t *)take(in, to->c->nscalars);
    kiln_work *work = par ? (kiln_work *)(void *)take(in, p->work.nwords) : NULL;
    if (!work) return KILN_OK;
    for (int k = 0; k < to->c->nscalars; k++) KILN_TRY(kiln_plan_scalar(p, &to->c->scalars[k], &par[k]));
    to->par = par;
    if (kiln_work_keep(work, &p->work, p->call)) to->work = work;
    return KILN_OK;
}

kiln_infer_watch kiln_within_watch(kiln_within *in, kiln_plan *outer) {
    kiln_inner_begin(in->t, &in->counted);
    in->outer = outer;
    in->top = KILN_PLAN_WORDS;
    in->n = 0;
    return kiln_infer_show((kiln_infer_watch){keep, in, false});
}

/* -- running ------------------------------------------------------------------------------------------------- */

static kiln_status run_kept(const kiln_within *in, const kiln_within_call *kept, const kiln_op *op,
                            const kiln_value *args, kiln_tensor **outs) {
    kiln_runner run;
    const kiln_given given = {op->name, args, NULL, kept->par};
    if (in->ctx->mode == KILN_MODE_SYNC) KILN_TRY(kiln_class_compile_if_due(kept->c));
    KILN_TRY(kiln_class_runner(kept->c, kept->work, &run));
    KILN_TRY(kiln_steps_run(kept->work, &kept->c->nests, &run, &given, outs));
    kiln_class_count(in->t, kept->c, kept->work, run.fn != NULL);
    return KILN_OK;
}

/* Makes the call of a step. */
static kiln_status call(void *caller, const kiln_work *w, const kiln_step *s, kiln_value *args,
                        kiln_tensor **outs) {
    const kiln_within *in = caller;
    int k = s->u.call.op;
    const kiln_op *op = in->op[k];
    const kiln_call_arg *as = kiln_work_call_args(w, s);
    if (k < in->n && in->at[k].work) return run_kept(in, &in->at[k], op, args, outs);
    for (int i = 0; i < s->u.call.nargs; i++)
        args[i].name = as[i].name ? op->schema->args[as[i].name - 1].name : NULL;
    return kiln_call(in->ctx, op, args, s->u.call.nargs, outs, s->u.call.nrets);
}

kiln_status kiln_within_run(kiln_within *in, const kiln_work *w, kiln_class *c, kiln_runner *run,
                            const kiln_given *given, kiln_tensor **outs) {
    static const kiln_nests none;
    kiln_inner counted;
    run->call = call;
    run->caller = in;
    kiln_inner_begin(in->t, &counted);
    kiln_status st = kiln_steps_run(w, c ? &c->nests : &none, run, given, outs);
    bool interpreted = kiln_inner_end(in->t, &counted);
    if (st == KILN_OK && interpreted &&
        !run->interp) /* if run->interp is set, the outer call counts itself as interpreted */
        kiln_count_interpreted(in->ctx, in->t);
    return st;
}
