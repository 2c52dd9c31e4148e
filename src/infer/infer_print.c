/* infer_print.c - bound calls and plans as text, for people: the `bind` and `plan` stages of explain.
 *
 * Tensors are written as the command line takes them, so that a printed call can be tried again. */
#include "infer/infer_parts.h"

static void print_list(kiln_sb *out, char open, int n, const int64_t *v, char close) {
    kiln_sb_putc(out, open);
    for (int i = 0; i < n; i++) kiln_sb_printf(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    kiln_sb_putc(out, close);
}

void kiln_sizes_print(kiln_sb *out, int rank, const int64_t *sizes) {
    print_list(out, '[', rank, sizes, ']');
}

static void print_tensor(kiln_sb *out, const kiln_tensor *t) {
    kiln_sb_puts(out, kiln_dtype_name((kiln_dtype)t->dtype));
    kiln_sizes_print(out, t->rank, t->sizes);
    if (t->flags & KILN_TF_CONTIGUOUS) return;
    kiln_sb_puts(out, ":strides=");
    print_list(out, '(', t->rank, t->strides, ')');
}

void kiln_value_print(kiln_sb *out, const kiln_value *v) {
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: kiln_sb_puts(out, "None"); return;
    case KILN_TENSOR: print_tensor(out, v->u.tensor); return;
    case KILN_BOOL_V: kiln_sb_puts(out, v->u.i ? "true" : "false"); return;
    case KILN_INT_V: kiln_sb_printf(out, "%lld", (long long)v->u.i); return;
    case KILN_UINT_V: kiln_sb_printf(out, "%llu", (unsigned long long)v->u.i); return;
    case KILN_FLOAT_V: kiln_sb_f64(out, v->u.f); return;
    case KILN_COMPLEX_V:
        kiln_sb_putc(out, '(');
        kiln_sb_f64(out, v->u.c.re);
        kiln_sb_puts(out, ", ");
        kiln_sb_f64(out, v->u.c.im);
        kiln_sb_puts(out, "j)");
        return;
    case KILN_GENERATOR_V: kiln_sb_puts(out, "generator"); return;
    case KILN_STR_V: kiln_sb_printf(out, "\"%s\"", v->u.s); return;
    case KILN_DTYPE_V: kiln_sb_puts(out, kiln_dtype_name((kiln_dtype)v->u.i)); return;
    case KILN_LIST_V:
        kiln_sb_putc(out, '[');
        for (uint32_t k = 0; k < v->n; k++) {
            if (k) kiln_sb_puts(out, ", ");
            kiln_value_print(out, &v->u.list[k]);
        }
        kiln_sb_putc(out, ']');
        return;
    }
}

void kiln_bound_print(kiln_sb *out, const kiln_bound *call) {
    static const char *const forms[] = {"functional", "in-place", "out"};
    const kiln_op *op = call->op;
    const kiln_schema *row = op->row->schema;
    kiln_sb_printf(out, "operator: %s\nform: %s\n", op->name, forms[op->form]);
    for (int a = 0; a < row->nargs; a++) {
        kiln_sb_printf(out, "%s: ", row->args[a].name);
        kiln_value_print(out, &call->arg[a]);
        kiln_sb_putc(out, '\n');
    }
    for (int k = 0; k < call->nout; k++) {
        kiln_sb_printf(out, "result %d goes to %s: ", k, op->schema->args[kiln_op_out_arg(op, k)].name);
        print_tensor(out, call->out[k]);
        kiln_sb_putc(out, '\n');
    }
}

static void print_result(kiln_sb *out, const kiln_plan *p, int k) {
    const kiln_shape *shape = &p->shape[p->result[k].shape];
    kiln_sb_printf(out, "result %d: ", k);
    if (p->typed.absent >> k & 1) {
        kiln_sb_puts(out, "none\n");
        return;
    }
    if (k < p->call->nout && !p->result[k].resized) {
        kiln_sb_puts(out, "into ");
        print_tensor(out, p->call->out[k]);
        kiln_sb_printf(out, ", computed as %s\n", kiln_dtype_name(p->typed.ret_dtype[k]));
        return;
    }
    kiln_sb_puts(out, kiln_dtype_name(p->result[k].made ? p->typed.ret_dtype[k] : p->buffer[k].dtype));
    kiln_sizes_print(out, shape->rank, shape->sizes);
    kiln_sb_puts(out, " strides ");
    print_list(out, '(', shape->rank, shape->strides, ')');
    if (p->result[k].view)
        kiln_sb_printf(out, ", view of %s at byte %lld\n", kiln_arg_name(p->call, p->result[k].view - 1),
                       (long long)p->result[k].offset);
    else
        kiln_sb_puts(out, k < p->call->nout ? ", resized\n" : ", new\n");
}

void kiln_buffer_print(kiln_sb *out, const kiln_plan *p, int b) {
    const kiln_buffer *buf = &p->buffer[b];
    if (buf->kind == KILN_BUFFER_TMP) kiln_sb_puts(out, "temporary for ");
    if (b < p->typed.nrets || buf->kind == KILN_BUFFER_RESULT)
        kiln_sb_printf(out, "result %d", buf->which);
    else
        kiln_sb_puts(out, kiln_arg_name(p->call, buf->which));
}

static void print_axes(kiln_sb *out, const kiln_plan *p) {
    static const char *const roles[] = KILN_ROLE_NAMES, *const strides[] = KILN_STRIDE_NAMES;
    const kiln_axes *x = &p->axes;
    kiln_sb_puts(out, "axes:");
    for (int d = 0; d < x->ndim; d++)
        kiln_sb_printf(out, "%s %s %lld", d ? "," : "", roles[d < x->ngrid ? KILN_ROLE_GRID : p->role[d]],
                       (long long)x->n[d]);
    kiln_sb_puts(out, x->triangle ? ", a triangle\nbuffers:\n" : "\nbuffers:\n");
    for (int b = 0; b < p->nbuffers; b++) {
        kiln_sb_puts(out, "  ");
        kiln_buffer_print(out, p, b);
        kiln_sb_printf(out, ": %s", kiln_dtype_name(p->buffer[b].dtype));
        if (b < x->nbuffers) {
            const char *turned = x->turned >> b & 1 ? " when turned" : "";
            kiln_sb_printf(out, " %s%s, byte strides ", strides[p->buffer[b].stride], turned);
            kiln_sizes_print(out, x->ndim, x->stride + (size_t)b * (size_t)x->pitch);
        }
        if (p->buffer[b].kind == KILN_BUFFER_TMP)
            kiln_sb_printf(out, ", %lld bytes", (long long)p->buffer[b].nbytes);
        kiln_sb_putc(out, '\n');
    }
}

static void print_step(kiln_sb *out, const kiln_plan *p, const kiln_step *s) {
    if (s->kind == KILN_STEP_LAUNCH) {
        kiln_sb_puts(out, "  launch");
        if (s->u.launch.end) kiln_sb_printf(out, " nests %d to %d", s->u.launch.first, s->u.launch.end - 1);
    } else if (s->kind == KILN_STEP_CALL) {
        kiln_sb_printf(out, "  call %s", s->u.call.op->name);
    } else {
        kiln_sb_puts(out, "  copy ");
        kiln_buffer_print(out, p, s->u.copy.from);
        kiln_sb_puts(out, " to ");
        kiln_buffer_print(out, p, s->u.copy.to);
        kiln_sb_puts(out, ", ");
        kiln_sizes_print(out, s->u.copy.ndim, s->u.copy.n);
    }
    kiln_sb_putc(out, '\n');
}

void kiln_plan_print(kiln_sb *out, const kiln_plan *p) {
    kiln_sb_printf(out, "operator: %s\nbranch: %d\nkind: %s\ncommon: %s\nshape: ", p->call->op->name,
                   p->typed.branch, (const char *[])KILN_CLASS_KIND_NAMES[p->kind],
                   kiln_dtype_name(p->typed.common));
    kiln_sizes_print(out, p->shape->rank, p->shape->sizes);
    kiln_sb_putc(out, '\n');
    for (int k = 0; k < p->typed.nrets; k++) print_result(out, p, k);
    if (p->kind <= KILN_CLASS_ROUTINE) print_axes(out, p);
    kiln_sb_puts(out, "steps:\n");
    for (int k = 0; k < p->nsteps; k++) print_step(out, p, &p->step[k]);
}
