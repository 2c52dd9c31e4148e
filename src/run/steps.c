/* steps.c - (work, kernel, what a call gives) -> results.
 *
 * Guards run first, then results are made ready (new, or given and resized where need be), then nests write them.
 * Results that overlap what is read are computed in temporaries, and copied by the last steps.  Views are made last,
 * and tensors that calls within the work made are released when the work ends.  Knows buffers, axes and steps.  Knows no
 * family, and operators only by their numbers. */
#include "run/steps.h"

typedef struct running {
    const kiln_work *work;
    const kiln_buffer *buffer;
    const kiln_result *result;
    const kiln_nests *nests;
    const kiln_runner *run;
    const kiln_given *given;
    kiln_tensor **outs;
    bool ready; /* outs holds the results */
    int nmade;
    kiln_axes axes;
    char *ptr[KILN_WORK_BUFFERS];
    kiln_tensor *made[KILN_WORK_MADE]; /* the first nmade are tensors that calls within the work made */
} running;

/* -- results -------------------------------------------------------------------------------------------------- */

static void release_base(void *base) { kiln_tensor_release(base); }

static const int64_t *sizes_of(const running *r, int k) {
    return kiln_work_words(r->work, r->result[k].sizes);
}
static const int64_t *strides_of(const running *r, int k) {
    return kiln_work_words(r->work, r->result[k].strides);
}

/* A view holds a reference to the tensor whose memory it shows, and is read-only if that tensor is. */
static kiln_status new_view(const running *r, int k, kiln_tensor **out) {
    const kiln_result *v = &r->result[k];
    kiln_tensor *base = r->given->args[v->view - 1].u.tensor;
    KILN_TRY(kiln_tensor_wrap((char *)base->data + v->offset, (kiln_dtype)v->dtype, v->rank, sizes_of(r, k),
                              strides_of(r, k), release_base, base, out));
    (void)kiln_tensor_retain(base);
    if (base->flags & KILN_TF_READONLY) kiln_tensor_set_readonly(*out);
    return KILN_OK;
}

/* New results are dense: below 2^36 elements their size in bytes cannot overflow. */
static kiln_status new_result(const running *r, int k, kiln_tensor **out) {
    const kiln_memory *memory = r->run->memory;
    const kiln_result *is = &r->result[k];
    const int64_t *sizes = sizes_of(r, k), *strides = strides_of(r, k);
    kiln_dtype t = (kiln_dtype)is->dtype;
    if (is->view) return new_view(r, k, out);
    if (is->made) return *out = kiln_tensor_retain(r->made[is->made - 1]), KILN_OK;
    if (memory) return kiln_tensor_new_in(memory, t, is->rank, sizes, strides, out);
    if (is->nelem >= (int64_t)1 << 36) return kiln_tensor_new(t, is->rank, sizes, strides, out);
    *out = kiln_tensor_new_trusted(t, is->rank, sizes, strides, is->nelem);
    if (*out) return KILN_OK;
    return KILN_FAIL(KILN_E_NOMEM, "out of memory for a tensor of %lld elements", (long long)is->nelem);
}

/* Tensors for all results, or for none. */
static kiln_status new_results(const running *r) {
    for (int k = 0; k < r->work->nresults; k++) {
        r->outs[k] = NULL;
        kiln_status st = r->work->absent >> k & 1 ? KILN_OK : new_result(r, k, &r->outs[k]);
        if (st == KILN_OK) continue;
        while (k > 0) kiln_tensor_release(r->outs[--k]);
        return st;
    }
    return KILN_OK;
}

/* References to the tensors the caller wants written.  All or nothing: what can fail comes first, and an out= tensor is
 * resized only after that. */
static kiln_status given_results(const running *r) {
    const kiln_result *is = r->result;
    kiln_tensor *const *out = r->given->out;
    for (int k = 0; k < r->work->nresults; k++)
        if (is[k].resized)
            KILN_TRY(kiln_tensor_reserve(out[k], is[k].rank, sizes_of(r, k), strides_of(r, k)));
    for (int k = 0; k < r->work->nresults; k++) {
        if (is[k].resized) KILN_TRY(kiln_tensor_resize(out[k], is[k].rank, sizes_of(r, k), strides_of(r, k)));
        r->outs[k] = kiln_tensor_retain(out[k]);
    }
    return KILN_OK;
}

/* Copies result k, which a call within the work made, to the tensor that the caller gave. */
static void copy_made(const running *r, int k) {
    const kiln_tensor *from = r->made[r->result[k].made - 1], *to = r->given->out[k];
    int64_t n[KILN_MAX_DIMS], to_stride[KILN_MAX_DIMS], from_stride[KILN_MAX_DIMS];
    size_t bytes = kiln_elem_bytes[to->dtype];
    if (to->nelem == 0 || from->data == to->data) return;
    int ndim = kiln_innermost_first(to->rank, to->sizes, to->strides, bytes, n, to_stride);
    (void)kiln_innermost_first(to->rank, to->sizes, from->strides, bytes, n, from_stride);
    kiln_elements_copy((kiln_places){to->data, to_stride}, (kiln_places){from->data, from_stride}, ndim, n,
                       bytes);
}

/* Makes the results, and sets the addresses of their buffers.  Results that are computed aside have further buffers. */
KILN_HOT static kiln_status make_ready(running *r) {
    const kiln_work *w = r->work;
    if (r->ready) return KILN_OK;
    KILN_TRY(r->given->out ? given_results(r) : new_results(r));
    r->ready = true;
    for (int k = 0; r->given->out && k < w->nresults; k++)
        if (r->result[k].made) copy_made(r, k);
    /* The buffers of results come first, unless the work is `aside`. */
    int first = w->nresults < w->nbuffers ? w->nresults : w->nbuffers;
    for (int b = 0, n = w->aside ? w->nbuffers : first; b < n; b++)
        if (r->buffer[b].kind == KILN_BUFFER_RESULT && r->outs[r->buffer[b].which])
            r->ptr[b] = r->outs[r->buffer[b].which]->data;
    return KILN_OK;
}

/* -- steps ---------------------------------------------------------------------------------------------------- */

KILN_HOT static kiln_status run_nests(const running *r, int from, int to) {
    for (int nest = from; nest < to && r->axes.npoints; nest++) {
        int32_t trap;
        KILN_TRY(kiln_drive(&r->axes, r->run, nest, r->ptr, r->given->par, &trap));
        if (trap == 0) continue;
        int which = trap - KILN_TRAP_BASE;
        if (which < 0 || which >= r->nests->ntraps) return KILN_BUG("kernel returned %d", (int)trap);
        const kiln_ir_trap *t = &r->nests->traps[which];
        return KILN_FAIL(t->status, "%s: %s", r->given->name, t->text);
    }
    return KILN_OK;
}

static kiln_status launch(running *r, const kiln_step *s) {
    const kiln_nests *nests = r->nests;
    const uint64_t *par = r->given->par;
    int first = s->u.launch.first, end = s->u.launch.end ? s->u.launch.end : nests->n;
    int guards = nests->nguards < end ? nests->nguards : end;
    if (first < guards) KILN_TRY(run_nests(r, first, guards));
    if (!r->work->aside) KILN_TRY(make_ready(r));
    if (r->work->parts) return kiln_parts_run(&r->axes, r->run, &nests->partial, r->ptr, par);
    if (nests->blocks.length) return kiln_blocks_run(&r->axes, r->run, &nests->blocks, r->ptr, par);
    return run_nests(r, first < guards ? guards : first, end);
}

static kiln_status copy(running *r, const kiln_step *s) {
    const kiln_work *w = r->work;
    int from = s->u.copy.from, to = s->u.copy.to;
    if (r->buffer[to].kind == KILN_BUFFER_RESULT) KILN_TRY(make_ready(r));
    kiln_places target = {r->ptr[to], kiln_work_strides(w, to)};
    kiln_places source = {r->ptr[from], kiln_work_strides(w, from)};
    if (s->u.copy.dense == KILN_DENSE_FROM) source.stride = NULL;
    if (s->u.copy.dense == KILN_DENSE_TO) target.stride = NULL;
    kiln_elements_copy(target, source, s->u.copy.ndim, kiln_work_words(w, s->u.copy.n), w->bytes[to]);
    return KILN_OK;
}

/* The value of an argument of a call within the work: a tensor made before, a value of the outer call, or a value in the work. */
static kiln_value value_of(const running *r, const kiln_call_arg *a) {
    kiln_value v = {.kind = a->kind};
    if (a->made) return kiln_v_tensor(r->made[a->made - 1]);
    if (a->from >= 0) return r->given->args[a->from];
    if (a->kind == KILN_STR_V)
        v.u.s = (const char *)kiln_work_words(r->work, a->text);
    else if (a->kind == KILN_COMPLEX_V)
        v.u.c.re = a->u.c.re, v.u.c.im = a->u.c.im;
    else
        v.u.i = a->u.i;
    return v;
}

/* Calls another operator with values of the outer call and tensors that earlier calls within the work made. */
static kiln_status call(running *r, const kiln_step *s) {
    kiln_value args[KILN_MAX_ARGS];
    const kiln_call_arg *from = kiln_work_call_args(r->work, s);
    for (int k = 0; k < s->u.call.nargs; k++) args[k] = value_of(r, &from[k]);
    if (s->u.call.first != r->nmade || r->nmade + s->u.call.nrets > KILN_WORK_MADE)
        return KILN_BUG("a work's calls make tensors in another order than it says");
    KILN_TRY(
        kiln_note(r->run->call(r->run->caller, r->work, s, args, r->made + r->nmade), "%s", r->given->name));
    r->nmade += s->u.call.nrets;
    return KILN_OK;
}

static kiln_status take(running *r, const kiln_step *s) {
    switch ((kiln_step_kind)s->kind) {
    case KILN_STEP_LAUNCH: return launch(r, s);
    case KILN_STEP_COPY: return copy(r, s);
    case KILN_STEP_CALL: return call(r, s);
    }
    return KILN_BUG("a work has a step of kind %d", s->kind);
}

/* One block for all temporaries; *room is NULL if there are none. */
static kiln_status new_room(running *r, kiln_tensor **room) {
    const kiln_work *w = r->work;
    int64_t nbytes = 0;
    *room = NULL;
    for (int b = 0; b < w->nbuffers; b++)
        if (r->buffer[b].kind == KILN_BUFFER_TMP) nbytes += kiln_block_align(r->buffer[b].nbytes);
    if (nbytes == 0) return KILN_OK;
    *room = kiln_tensor_new_trusted(KILN_U8, 1, &nbytes, NULL, nbytes);
    if (!*room) return KILN_NOMEM();
    char *at = (*room)->data;
    for (int b = 0; b < w->nbuffers; b++) {
        if (r->buffer[b].kind != KILN_BUFFER_TMP) continue;
        r->ptr[b] = at;
        at += kiln_block_align(r->buffer[b].nbytes);
    }
    return KILN_OK;
}

KILN_HOT kiln_status kiln_steps_run(const kiln_work *w, const kiln_nests *nests, const kiln_runner *run,
                                    const kiln_given *given, kiln_tensor **outs) {
    running r;
    kiln_tensor *room = NULL;
    r.work = w;
    r.buffer = kiln_work_buffers(w);
    r.result = kiln_work_results(w);
    r.nests = nests;
    r.run = run;
    r.given = given;
    r.outs = outs;
    r.ready = false;
    r.nmade = 0;
    kiln_work_axes(w, &r.axes);
    for (int b = 0; b < w->nbuffers; b++)
        r.ptr[b] = r.buffer[b].kind == KILN_BUFFER_ARG ? given->args[r.buffer[b].which].u.tensor->data : NULL;
    const kiln_step *step = kiln_work_steps(w);
    kiln_status st = w->nsteps > 1 ? new_room(&r, &room) : KILN_OK;
    for (int k = 0; k < w->nsteps && st == KILN_OK; k++) st = take(&r, &step[k]);
    if (st == KILN_OK && !r.ready) st = make_ready(&r);
    while (r.nmade > 0) kiln_tensor_release(r.made[--r.nmade]);
    for (int k = 0; st != KILN_OK && r.ready && k < w->nresults; k++) kiln_tensor_release(outs[k]);
    if (room) kiln_tensor_release(room);
    return st;
}
