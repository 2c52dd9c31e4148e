/* steps.c - (plan, kernel, scalars) -> results.
 *
 * Guards run first, then results are made ready (new, or given and resized where need be), then nests write them.
 * Results that overlap what is read are computed in temporaries and copied when all is known.  Views are made last,
 * and tensors that calls within the plan made go when it ends.  Knows buffers, axes and steps; knows no family and no
 * operator but by name. */
#include "run/steps.h"

typedef struct running {
    const kiln_plan *plan;
    const kiln_nests *nests;
    const kiln_runner *run;
    const uint64_t *par;
    kiln_tensor **outs;
    bool ready; /* results are there */
    char *ptr[KILN_MAX_BUFFERS];
    kiln_tensor *made[KILN_MAX_MADE]; /* by calls, the first nmade */
    int nmade;
} running;

/* -- results -------------------------------------------------------------------------------------------------- */

static void release_base(void *base) { kiln_tensor_release(base); }

/* A view keeps the tensor that it looks at, and may be written as far as that may. */
static kiln_status new_view(const kiln_plan *plan, int k, kiln_tensor **out) {
    const kiln_result *v = &plan->result[k];
    const kiln_shape *s = &plan->shape[v->shape];
    kiln_tensor *base = plan->call->arg[v->view - 1].u.tensor;
    KILN_TRY(kiln_tensor_wrap((char *)base->data + v->offset, plan->typed.ret_dtype[k], s->rank, s->sizes,
                              s->strides, release_base, base, out));
    (void)kiln_tensor_retain(base);
    if (base->flags & KILN_TF_READONLY) kiln_tensor_set_readonly(*out);
    return KILN_OK;
}

/* Results are dense, so that their size in bytes needs no care below 2^36 elements. */
static kiln_status new_result(const running *r, int k, kiln_tensor **out) {
    const kiln_plan *plan = r->plan;
    const kiln_memory *memory = r->run->memory;
    const kiln_result *is = &plan->result[k];
    const kiln_shape *s = &plan->shape[is->shape];
    kiln_dtype t = plan->typed.ret_dtype[k];
    if (is->view) return new_view(plan, k, out);
    if (is->made) return *out = kiln_tensor_retain(r->made[is->made - 1]), KILN_OK;
    if (memory) return kiln_tensor_new_in(memory, t, s->rank, s->sizes, s->strides, out);
    if (s->nelem >= (int64_t)1 << 36) return kiln_tensor_new(t, s->rank, s->sizes, s->strides, out);
    *out = kiln_tensor_new_trusted(t, s->rank, s->sizes, s->strides, s->nelem);
    if (*out) return KILN_OK;
    return KILN_FAIL(KILN_E_NOMEM, "out of memory for a tensor of %lld elements", (long long)s->nelem);
}

/* Tensors for all results, or for none. */
static kiln_status new_results(const running *r) {
    for (int k = 0; k < r->plan->typed.nrets; k++) {
        bool absent = r->plan->typed.absent >> k & 1;
        r->outs[k] = NULL;
        kiln_status st = absent ? KILN_OK : new_result(r, k, &r->outs[k]);
        if (st == KILN_OK) continue;
        while (k > 0) kiln_tensor_release(r->outs[--k]);
        return st;
    }
    return KILN_OK;
}

/* References to the tensors the caller wants written.  All or nothing: what can fail comes first, and an out= tensor is
 * resized only after that. */
static kiln_status given_results(const kiln_plan *plan, kiln_tensor **outs) {
    for (int k = 0; k < plan->typed.nrets; k++) {
        const kiln_shape *s = &plan->shape[plan->result[k].shape];
        if (plan->result[k].resized)
            KILN_TRY(kiln_tensor_reserve(plan->call->out[k], s->rank, s->sizes, s->strides));
    }
    for (int k = 0; k < plan->typed.nrets; k++) {
        const kiln_shape *s = &plan->shape[plan->result[k].shape];
        if (plan->result[k].resized)
            KILN_TRY(kiln_tensor_resize(plan->call->out[k], s->rank, s->sizes, s->strides));
        outs[k] = kiln_tensor_retain(plan->call->out[k]);
    }
    return KILN_OK;
}

/* A result that a call made, to where the caller wants it. */
static void copy_made(const running *r, int k) {
    const kiln_tensor *from = r->made[r->plan->result[k].made - 1], *to = r->outs[k];
    int64_t n[KILN_MAX_DIMS], a[KILN_MAX_DIMS], b[KILN_MAX_DIMS], size = kiln_elem_bytes[to->dtype];
    int rank = to->rank;
    if (to->nelem == 0 || from->data == to->data) return;
    n[0] = 1, a[0] = b[0] = 0;
    for (int d = 0; d < rank; d++) {
        n[rank - 1 - d] = to->sizes[d];
        a[rank - 1 - d] = to->strides[d] * size;
        b[rank - 1 - d] = from->strides[d] * size;
    }
    kiln_elements_copy(to->data, a, from->data, b, rank ? rank : 1, n, (size_t)size);
}

/* Results are there, and the last thing that can fail has been done.  Those computed aside have buffers of their own. */
KILN_HOT static kiln_status make_ready(running *r) {
    const kiln_plan *p = r->plan;
    if (r->ready) return KILN_OK;
    KILN_TRY(p->call->nout ? given_results(p, r->outs) : new_results(r));
    r->ready = true;
    for (int k = 0; k < p->call->nout; k++)
        if (p->result[k].made) copy_made(r, k);
    for (int b = 0, n = p->aside ? p->nbuffers : p->typed.nrets; b < n; b++) /* else results stand first */
        if (p->buffer[b].kind == KILN_BUFFER_RESULT && r->outs[p->buffer[b].which])
            r->ptr[b] = r->outs[p->buffer[b].which]->data;
    return KILN_OK;
}

/* -- steps ---------------------------------------------------------------------------------------------------- */

KILN_HOT static kiln_status run_nests(const running *r, const kiln_axes *x, int from, int to) {
    for (int nest = from; nest < to && x->npoints; nest++) {
        int32_t trap;
        KILN_TRY(kiln_drive(x, r->run, nest, r->ptr, r->par, &trap));
        if (trap == 0) continue;
        int which = trap - KILN_TRAP_BASE;
        if (which < 0 || which >= r->nests->ntraps) return KILN_BUG("kernel returned %d", (int)trap);
        const kiln_ir_trap *t = &r->nests->traps[which];
        return KILN_FAIL(t->status, "%s: %s", r->plan->call->op->name, t->text);
    }
    return KILN_OK;
}

static kiln_status launch(running *r, const kiln_step *s) {
    const kiln_axes *x = s->u.launch.axes;
    int first = s->u.launch.first, end = s->u.launch.end ? s->u.launch.end : r->nests->n;
    int guards = r->nests->nguards < end ? r->nests->nguards : end;
    if (first < guards) KILN_TRY(run_nests(r, x, first, guards));
    if (!r->plan->aside) KILN_TRY(make_ready(r));
    if (r->plan->parts) return kiln_parts_run(x, r->run, &r->nests->partial, r->ptr, r->par);
    if (r->nests->blocks.length) return kiln_blocks_run(x, r->run, &r->nests->blocks, r->ptr, r->par);
    return run_nests(r, x, first < guards ? guards : first, end);
}

static kiln_status copy(running *r, const kiln_step *s) {
    int from = s->u.copy.from, to = s->u.copy.to;
    if (r->plan->buffer[to].kind == KILN_BUFFER_RESULT) KILN_TRY(make_ready(r));
    kiln_elements_copy(r->ptr[to], s->u.copy.to_stride, r->ptr[from], s->u.copy.from_stride, s->u.copy.ndim,
                       s->u.copy.n, r->plan->bytes[to]);
    return KILN_OK;
}

/* Another operator, on arguments of the plan's call and on what earlier calls made. */
static kiln_status call(running *r, const kiln_step *s) {
    kiln_value args[KILN_MAX_ARGS];
    for (int k = 0; k < s->u.call.nargs; k++) {
        int made = s->u.call.made[k];
        args[k] = made ? kiln_v_tensor(r->made[made - 1]) : s->u.call.args[k];
        args[k].name = s->u.call.args[k].name;
    }
    int n = s->u.call.op->schema->nrets;
    if (s->u.call.first != r->nmade || r->nmade + n > KILN_MAX_MADE)
        return KILN_BUG("a plan's calls make tensors in another order than it says");
    KILN_TRY(kiln_note(
        r->run->call(r->run->ctx, s->u.call.op, args, s->u.call.nargs, r->made + r->nmade, (size_t)n), "%s",
        r->plan->call->op->name));
    r->nmade += n;
    return KILN_OK;
}

static kiln_status take(running *r, const kiln_step *s) {
    switch ((kiln_step_kind)s->kind) {
    case KILN_STEP_LAUNCH: return launch(r, s);
    case KILN_STEP_COPY: return copy(r, s);
    case KILN_STEP_CALL: return call(r, s);
    }
    return KILN_BUG("a plan has a step of kind %d", s->kind);
}

/* One block for all temporaries; *room is NULL if there are none. */
static kiln_status new_room(running *r, kiln_tensor **room) {
    const kiln_plan *p = r->plan;
    int64_t nbytes = 0;
    *room = NULL;
    for (int b = 0; b < p->nbuffers; b++)
        if (p->buffer[b].kind == KILN_BUFFER_TMP) nbytes += kiln_block_align(p->buffer[b].nbytes);
    if (nbytes == 0) return KILN_OK;
    *room = kiln_tensor_new_trusted(KILN_U8, 1, &nbytes, NULL, nbytes);
    if (!*room) return KILN_NOMEM();
    char *at = (*room)->data;
    for (int b = 0; b < p->nbuffers; b++) {
        if (p->buffer[b].kind != KILN_BUFFER_TMP) continue;
        r->ptr[b] = at;
        at += kiln_block_align(p->buffer[b].nbytes);
    }
    return KILN_OK;
}

KILN_HOT kiln_status kiln_steps_run(const kiln_plan *plan, const kiln_nests *nests, const kiln_runner *run,
                                    const uint64_t *par, kiln_tensor **outs) {
    running r;
    kiln_tensor *room = NULL;
    r.plan = plan;
    r.nests = nests;
    r.run = run;
    r.par = par;
    r.outs = outs;
    r.ready = false;
    r.nmade = 0;
    for (int b = 0; b < plan->nbuffers; b++)
        r.ptr[b] = plan->buffer[b].tensor ? plan->buffer[b].tensor->data : NULL;
    kiln_status st = plan->nsteps > 1 ? new_room(&r, &room) : KILN_OK;
    for (int k = 0; k < plan->nsteps && st == KILN_OK; k++) st = take(&r, &plan->step[k]);
    if (st == KILN_OK && !r.ready) st = make_ready(&r);
    while (r.nmade > 0) kiln_tensor_release(r.made[--r.nmade]);
    for (int k = 0; st != KILN_OK && r.ready && k < plan->typed.nrets; k++) kiln_tensor_release(outs[k]);
    if (room) kiln_tensor_release(room);
    return st;
}
