/* infer_shape.c - shapes of the arguments -> the broadcast shape, and what that means for given outputs.
 *
 * Sizes are matched from the last dimension; one-sized dimensions stretch, to zero as well.  An output
 * that is also an input keeps its shape; any other is resized where Kiln owns its memory. */
#include <string.h>

#include "infer/infer_parts.h"

static kiln_status broadcast(kiln_plan *p, const kiln_tensor *t, int slot) {
    int rank = p->rank > t->rank ? p->rank : t->rank;
    for (int back = 1; back <= rank;
         back++) { /* from the last dimension on: writing grows p->sizes at its end */
        int64_t a = back <= p->rank ? p->sizes[KILN_MAX_RANK - back] : 1;
        int64_t b = back <= t->rank ? t->sizes[t->rank - back] : 1;
        if (a != b && a != 1 && b != 1)
            return KILN_FAIL(
                KILN_E_ARG,
                "%s: argument '%s': The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                "non-singleton dimension %d",
                p->call->op->name, kiln_slot_name(p->call, slot), (long long)a, (long long)b, rank - back);
        p->sizes[KILN_MAX_RANK - back] = a == 1 ? b : a;
    }
    p->rank = rank;
    return KILN_OK;
}

static bool has_shape(const kiln_tensor *t, int rank, const int64_t *sizes) {
    return t->rank == rank && (rank == 0 || memcmp(t->sizes, sizes, (size_t)rank * sizeof *sizes) == 0);
}

static kiln_status wrong_shape(const kiln_plan *p, int k, const char *why) {
    const kiln_op *op = p->call->op;
    const kiln_tensor *out = p->call->out[k];
    kiln_sb s;
    kiln_sb_init(&s);
    kiln_sb_puts(&s, "output with shape ");
    kiln_sizes_print(&s, out->rank, out->sizes);
    kiln_sb_puts(&s, " doesn't match the broadcast shape ");
    kiln_sizes_print(&s, p->rank, p->sizes);
    kiln_status st = KILN_FAIL(KILN_E_ARG, "%s: argument '%s': %s%s", op->name,
                               op->schema->args[op->out_arg[k]].name, s.p ? s.p : "wrong shape", why);
    kiln_sb_fini(&s);
    return st;
}

static kiln_status check_outputs(kiln_plan *p, const kiln_iter *it) {
    for (int k = 0; k < p->nrets; k++) {
        p->resize_out[k] = false;
        if (k >= p->call->nout || has_shape(p->call->out[k], p->rank, p->sizes)) continue;
        const kiln_tensor *out = p->call->out[k];
        for (int i = 0; i < it->nin; i++)
            if (kiln_tensor_same(out, it->in[i])) return wrong_shape(p, k, "");
        if (p->call->op->form == KILN_FORM_INPLACE) return wrong_shape(p, k, "");
        if (!(out->flags & KILN_TF_OWNED))
            return wrong_shape(p, k, " and cannot be resized: its memory is not Kiln's own");
        p->resize_out[k] = true;
    }
    return KILN_OK;
}

/* channels_last is for tensors of rank 4, channels_last_3d for those of rank 5. */
static kiln_status check_rank(const kiln_plan *p) {
    kiln_strides s = kiln_plan_branch(p)->typing.strides;
    if (s != KILN_STRIDES_CHANNELS_LAST && s != KILN_STRIDES_CHANNELS_LAST_3D) return KILN_OK;
    int rank = s == KILN_STRIDES_CHANNELS_LAST ? 4 : 5;
    if (p->rank == rank) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: required rank %d tensor to use %s format, but its rank is %d",
                     p->call->op->name, rank, rank == 4 ? "channels_last" : "channels_last_3d", p->rank);
}

kiln_status kiln_shape_infer(kiln_plan *p, const kiln_iter *it) {
    p->rank = 0;
    if (it->nin > 0) {
        const kiln_tensor *t = it->in[0];
        int i = 1;
        while (i < it->nin && has_shape(it->in[i], t->rank, t->sizes)) i++;
        if (i == it->nin) { /* nothing to broadcast */
            p->rank = t->rank;
            p->nelem = t->nelem;
            if (t->rank > 0) memcpy(p->sizes, t->sizes, t->rank * sizeof *t->sizes);
            KILN_TRY(check_rank(p));
            return check_outputs(p, it);
        }
        for (i = 0; i < it->nin; i++) KILN_TRY(broadcast(p, it->in[i], it->arg[i]));
        memmove(p->sizes, p->sizes + KILN_MAX_RANK - p->rank, (size_t)p->rank * sizeof *p->sizes);
    }
    KILN_TRY(kiln_note(kiln_sizes_check(KILN_F64, p->rank, p->sizes, &p->nelem), "%s: the broadcast shape",
                       p->call->op->name));
    KILN_TRY(check_rank(p));
    return check_outputs(p, it);
}
