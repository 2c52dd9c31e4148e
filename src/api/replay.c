/* replay.c - a call laid out as one of the last of its recipe -> its result, by the loops of that one.
 *
 * Programs repeat shapes.  Where a kernel made one new result, a call with tensors of the same sizes and strides
 * runs it over the same loops at other addresses with other scalars: shape and layout need not be found
 * again.  What the general path would have made of it is what was kept; tests/unit/test_replay.c compares.
 * Everything else, and everything that fails, is left to the general path. */
#include "api/recipe.h"
#include "tensor/blocks.h"

static bool laid_out_alike(const kiln_recipe *r, const int64_t *seen, const kiln_value *args) {
    for (int i = 0; i < r->nargs; i++) {
        if (r->arg[i].kind != KILN_TENSOR) continue;
        const kiln_tensor *t = args[i].u.tensor;
        long rank = t->rank;
        if (*seen++ != rank) return false;
        for (const int64_t *s = t->sizes, *end = s + rank; s != end; s++)
            if (*s != *seen++) return false;
        for (const int64_t *s = t->strides, *end = s + rank; s != end; s++)
            if (*s != *seen++) return false;
    }
    return true;
}

static bool set_scalars(kiln_replay *p, const kiln_value *args) {
    for (int k = 0; k < p->nscalars; k++) {
        const kiln_replay_scalar *s = &p->scalar[k];
        if (!kiln_number_convert(&args[s->arg], s->part, (kiln_dtype)s->via, (kiln_dtype)s->dtype, s->checked,
                                 &p->par[s->par]))
            return false;
    }
    return true;
}

static kiln_tensor *new_result(const kiln_replay *p) {
    kiln_home home;
    kiln_tensor *t = kiln_block_take(kiln_tensor_head(p->rank) + p->nbytes, &home);
    if (!t) return NULL;
    kiln_tensor_init(t, home, p->sig, p->rank, p->nbytes);
    t->nelem = p->nelem;
    for (long d = p->rank; d-- > 0;) {
        t->sizes[d] = p->sizes[d];
        t->strides[d] = p->strides[d];
    }
    return t;
}

kiln_replay *kiln_replay_find(kiln_recipe *r, uint64_t generation, const kiln_value *args) {
    if (r->generation != generation) return NULL;
    for (kiln_replay *p = r->kept; p < r->kept + KILN_REPLAY_WAYS; p++)
        if (p->fn && laid_out_alike(r, p->inputs, args)) return p;
    return NULL;
}

kiln_tensor *kiln_replay_run(kiln_replay *p, const kiln_value *args) {
    char *ptr[KILN_WALK_BUFFERS];
    kiln_tensor *out = new_result(p);
    if (!out) return NULL;
    p->used = true;
    ptr[0] = out->data;
    for (int o = 1; o < p->walk.nbuffers; o++) ptr[o] = args[p->from[o]].u.tensor->data;
    if (set_scalars(p, args) && kiln_walk_run(&p->walk, p->fn, ptr, p->par) == 0) return out;
    kiln_tensor_release(out);
    return NULL;
}

/* -- keeping ------------------------------------------------------------------------------------------------ */

static bool keep_inputs(const kiln_recipe *r, kiln_replay *p, const kiln_value *args) {
    int64_t *to = p->inputs, *end = to + KILN_REPLAY_WORDS;
    for (int i = 0; i < r->nargs; i++) {
        if (r->arg[i].kind != KILN_TENSOR) continue;
        const kiln_tensor *t = args[i].u.tensor;
        if (end - to < 1 + 2 * t->rank) return false;
        *to++ = t->rank;
        for (int d = 0; d < t->rank; d++) *to++ = t->sizes[d];
        for (int d = 0; d < t->rank; d++) *to++ = t->strides[d];
        p->fits_slot = p->fits_slot && (t->flags & KILN_TF_CANONICAL);
    }
    return true;
}

static bool keep_scalars(kiln_replay *p, const kiln_plan *plan, const kiln_class *c) {
    p->nscalars = 0;
    for (int k = 0; k < c->nscalars; k++) {
        const kiln_scalar_source *s = &c->scalars[k];
        if (s->arg >= KILN_HOST_ID || s->index >= 0) return false;
        bool checked = kiln_plan_scalar_checked(plan, s->arg);
        int arg = plan->call->given[s->arg];
        if (arg >= 0)
            p->scalar[p->nscalars++] = (kiln_replay_scalar){.arg = (uint8_t)arg,
                                                            .par = (uint8_t)k,
                                                            .part = (uint8_t)s->part,
                                                            .via = (uint8_t)s->via,
                                                            .dtype = (uint8_t)s->dtype,
                                                            .checked = checked};
        else if (!kiln_number_convert(&plan->call->arg[s->arg], (int)s->part, s->via, s->dtype, checked,
                                      &p->par[k]))
            return false;
    }
    return true;
}

static void keep_result(kiln_replay *p, const kiln_tensor *made) {
    p->rank = made->rank;
    p->sig = made->sig;
    p->nelem = made->nelem;
    p->nbytes = made->data_cap;
    for (int d = 0; d < made->rank; d++) {
        p->sizes[d] = made->sizes[d];
        p->strides[d] = made->strides[d];
    }
}

static bool keep_buffers(kiln_replay *p, const kiln_plan *plan) {
    for (int b = 1; b < plan->axes.nbuffers; b++) {
        int from = plan->call->given[plan->buffer[b].which];
        if (from < 0) return false;
        p->from[b] = (uint8_t)from;
    }
    return true;
}

/* Where the next call is kept: in place of the oldest, unless layouts seem to come once each. */
static kiln_replay *way_for(kiln_recipe *r) {
    kiln_replay *p = &r->kept[r->oldest];
    if (p->fn && !p->used && ++r->passed < KILN_REPLAY_PATIENCE) return NULL;
    r->passed = 0;
    r->oldest = (uint8_t)((r->oldest + 1) % KILN_REPLAY_WAYS);
    return p;
}

void kiln_replay_keep(kiln_recipe *r, const kiln_value *args, const kiln_plan *plan, kiln_class *c,
                      const kiln_runner *run, const kiln_tensor *made) {
    if (plan->call->nout > 0 || plan->typed.nrets != 1 || c->nests.n != 1 || c->nests.nguards > 0) return;
    if (plan->shape->rank > KILN_REPLAY_RANK || c->nscalars > KILN_REPLAY_SCALARS) return;
    kiln_replay *p = kiln_replay_find(r, r->generation, args) ? NULL : way_for(r);
    if (!p) return;
    p->fn = NULL; /* until all of it is right */
    p->c = c;
    p->used = false;
    p->fits_slot = plan->axes.ndim == 1 && !plan->axes.strided;
    if (!kiln_walk_make(&plan->axes, run, &p->walk) || !keep_buffers(p, plan) || !keep_inputs(r, p, args) ||
        !keep_scalars(p, plan, c))
        return;
    keep_result(p, made);
    p->fn = run->fn;
}
