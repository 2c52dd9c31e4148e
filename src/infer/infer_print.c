/* infer_print.c - bound calls and plans as text, for people: the `bind` and `infer` stages of explain.
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
    case KILN_FLOAT_V: kiln_sb_f64(out, v->u.f); return;
    case KILN_COMPLEX_V:
        kiln_sb_putc(out, '(');
        kiln_sb_f64(out, v->u.c.re);
        kiln_sb_puts(out, ", ");
        kiln_sb_f64(out, v->u.c.im);
        kiln_sb_puts(out, "j)");
        return;
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
    kiln_sb_printf(out, "result %d: ", k);
    if (k < p->call->nout && !p->resize_out[k]) {
        kiln_sb_puts(out, "into ");
        print_tensor(out, p->call->out[k]);
        kiln_sb_printf(out, ", computed as %s\n", kiln_dtype_name(p->ret_dtype[k]));
        return;
    }
    kiln_sb_puts(out, kiln_dtype_name(p->operand[k].dtype));
    kiln_sizes_print(out, p->rank, p->sizes);
    kiln_sb_puts(out, " strides ");
    print_list(out, '(', p->rank, p->ret_strides, ')');
    kiln_sb_puts(out, k < p->call->nout ? ", resized\n" : ", new\n");
}

void kiln_plan_print(kiln_sb *out, const kiln_plan *p) {
    static const char *const strides[] = KILN_STRIDE_NAMES;
    kiln_sb_printf(out, "operator: %s\nbranch: %d\ncommon: %s\nshape: ", p->call->op->name, p->branch,
                   kiln_dtype_name(p->common));
    kiln_sizes_print(out, p->rank, p->sizes);
    kiln_sb_putc(out, '\n');
    for (int k = 0; k < p->nrets; k++) print_result(out, p, k);
    kiln_sb_puts(out, "loops, innermost first: ");
    kiln_sizes_print(out, p->ndim, p->n);
    kiln_sb_putc(out, '\n');
    for (int o = 0; o < p->noperands; o++) {
        const kiln_operand *op = &p->operand[o];
        if (op->arg < 0)
            kiln_sb_printf(out, "  result %d: ", -1 - op->arg);
        else
            kiln_sb_printf(out, "  %s: ", kiln_arg_name(p->call, op->arg));
        kiln_sb_printf(out, "%s %s, byte strides ", kiln_dtype_name(op->dtype), strides[op->stride]);
        kiln_sizes_print(out, p->ndim, p->stride[o]);
        kiln_sb_putc(out, '\n');
    }
}
