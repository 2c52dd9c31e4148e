/* infer_shape.c - shapes of the arguments -> the broadcast shape; and shapes of results -> which given ones are resized.
 *
 * Sizes are matched from the last dimension; one-sized dimensions stretch, to zero as well.  An output
 * that is also an input keeps its shape; any other is resized where Kiln owns its memory. */
#include "infer/infer_parts.h"

#define USUAL_NELEM ((int64_t)1 << 36) /* far below what memory can hold */

/* Matches tensor i to the sizes so far, from the last dimension on.  `seen`: the highest rank among it and those
 * before, which is how dimensions are counted where they do not fit.  Too many elements to be counted are INT64_MAX. */
static kiln_status broadcast(kiln_plan *p, int i, int seen) {
    const kiln_tensor *t = p->in[i];
    kiln_shape *s = p->shape;
    int64_t *sizes = s->sizes + (s->rank - t->rank); /* of the dimensions that t has */
    for (int d = t->rank - 1; d >= 0; d--) {
        int64_t a = sizes[d], b = t->sizes[d];
        if (a == b || b == 1) continue;
        if (a != 1)
            return KILN_FAIL(
                KILN_E_ARG,
                "%s: argument '%s': The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                "non-singleton dimension %d",
                p->call->op->name, kiln_arg_name(p->call, p->typed.in_arg[i]), (long long)a, (long long)b,
                seen - (t->rank - d));
        sizes[d] = b;
        if (__builtin_mul_overflow(s->nelem, b, &s->nelem)) s->nelem = INT64_MAX;
    }
    return KILN_OK;
}

static kiln_status wrong_shape(const kiln_plan *p, int k, const char *why) {
    const kiln_op *op = p->call->op;
    const kiln_tensor *out = p->call->out[k];
    const kiln_shape *want = &p->shape[p->result[k].shape];
    kiln_sb s;
    kiln_sb_init_message(&s);
    kiln_sb_printf(&s, "%s: argument '%s': output with shape ", op->name,
                   op->schema->args[kiln_op_out_arg(op, k)].name);
    kiln_sizes_print(&s, out->rank, out->sizes);
    kiln_sb_puts(&s, p->result[k].shape ? " doesn't match the result's shape "
                                        : " doesn't match the broadcast shape ");
    kiln_sizes_print(&s, want->rank, want->sizes);
    kiln_sb_puts(&s, why);
    return KILN_FAIL_TEXT(KILN_E_ARG, &s);
}

kiln_status kiln_results_check(kiln_plan *p) {
    for (int k = 0; k < p->call->nout; k++) {
        const kiln_shape *want = &p->shape[p->result[k].shape];
        if (kiln_has_shape(p->call->out[k], want->rank, want->sizes)) continue;
        const kiln_tensor *out = p->call->out[k];
        for (int i = 0; i < p->typed.nin; i++)
            if (kiln_tensors_aligned(out, p->in[i])) return wrong_shape(p, k, "");
        if (p->call->op->form == KILN_FORM_INPLACE) return wrong_shape(p, k, "");
        if (!(out->flags & KILN_TF_OWNED))
            return wrong_shape(p, k, " and cannot be resized: its memory is not Kiln's own");
        p->result[k].resized = true;
        if (out->data_cap) p->aside = true; /* the result may lie in memory where an argument is */
    }
    return KILN_OK;
}

static kiln_status broadcast_all(kiln_plan *p) {
    kiln_shape *s = p->shape;
    int rank = 0, seen = 0;
    for (int i = 0; i < p->typed.nshaped; i++)
        if (p->in[i]->rank > rank) rank = p->in[i]->rank;
    kiln_plan_shape(p, s, rank);
    s->nelem = 1;
    for (int d = 0; d < rank; d++) s->sizes[d] = 1;
    for (int i = 0; i < p->typed.nshaped; i++) {
        if (p->in[i]->rank > seen) seen = p->in[i]->rank;
        KILN_TRY(broadcast(p, i, seen));
    }
    if (s->nelem > 0 && s->nelem < USUAL_NELEM) return KILN_OK;
    for (int i = 0; i < p->typed.nshaped; i++) { /* a shape that some tensor has is known to be right */
        s->nelem = p->in[i]->nelem;
        if (kiln_has_shape(p->in[i], rank, s->sizes)) return KILN_OK;
    }
    kiln_status st = kiln_sizes_check(KILN_F64, rank, s->sizes, &s->nelem);
    return st == KILN_OK ? st : kiln_note(st, "%s: the broadcast shape", p->call->op->name);
}

/* Takes the shape of the first tensor if all have it, which is usual and needs no arithmetic. */
static bool take_shape(kiln_plan *p) {
    const kiln_tensor *t = p->in[0];
    for (int i = 1; i < p->typed.nshaped; i++)
        if (!kiln_has_shape(p->in[i], t->rank, t->sizes)) return false;
    kiln_plan_shape(p, p->shape, t->rank);
    p->shape->nelem = t->nelem;
    int64_t *sizes = p->shape->sizes;
    for (int d = 0; d < t->rank; d++) sizes[d] = t->sizes[d];
    return true;
}

KILN_HOT kiln_status kiln_broadcast(kiln_plan *p) {
    bool taken = p->typed.nshaped > 0 && take_shape(p);
    p->uniform = taken || p->typed.nshaped == 0;
    return taken ? KILN_OK : broadcast_all(p);
}
