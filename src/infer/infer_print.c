/* infer_print.c - bound calls and plans as text, for people: the `bind` and `plan` stages of explain.
 *
 * Tensors are written as the command line takes them, so that a printed call can be tried again. */
#include <math.h>
#include <string.h>

#include "infer/infer_parts.h"

static void print_list(kiln_sb *out, char open, int n, const int64_t *v, char close) {
    kiln_sb_putc(out, open);
    for (int i = 0; i < n; i++) kiln_sb_printf(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    kiln_sb_putc(out, close);
}

static void print_tensor(kiln_sb *out, const kiln_tensor *t) {
    kiln_sb_puts(out, kiln_dtype_name((kiln_dtype)t->dtype));
    kiln_sizes_print(out, t->rank, t->sizes);
    if (t->flags & KILN_TF_CONTIGUOUS) return;
    kiln_sb_puts(out, ":strides=");
    print_list(out, '(', t->rank, t->strides, ')');
}

/* With a point or an exponent, since an int is another number to promotion. */
static void print_float(kiln_sb *out, double f) {
    size_t from = out->len;
    kiln_sb_f64(out, f);
    if (!out->failed && isfinite(f) && !strpbrk(out->p + from, ".e")) kiln_sb_puts(out, ".0");
}

void kiln_value_print(kiln_sb *out, const kiln_value *v) {
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: kiln_sb_puts(out, "None"); return;
    case KILN_TENSOR: print_tensor(out, v->u.tensor); return;
    case KILN_BOOL_V: kiln_sb_puts(out, v->u.i ? "true" : "false"); return;
    case KILN_INT_V: kiln_sb_printf(out, "%lld", (long long)v->u.i); return;
    case KILN_UINT_V: kiln_sb_printf(out, "%llu", (unsigned long long)v->u.i); return;
    case KILN_FLOAT_V: print_float(out, v->u.f); return;
    case KILN_COMPLEX_V:
        kiln_sb_f64(out, v->u.c.re);
        if (!signbit(v->u.c.im)) kiln_sb_putc(out, '+'); /* else the number begins with its sign */
        kiln_sb_f64(out, v->u.c.im);
        kiln_sb_putc(out, 'j');
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

/* What an operator over lists does with one item, as a call of that operator with lists of one item.  Values of tensors that the item gets as
 * numbers become tensors again. */
static void print_item(kiln_sb *out, const kiln_type *type, const kiln_value *v) {
    bool optional, number = kiln_is_number(v);
    const kiln_type *t = kiln_type_strip(type, &optional);
    bool list = t->kind == KILN_T_LIST && v->kind != KILN_LIST_V;
    if (list && v->kind == KILN_NONE) {
        kiln_sb_puts(out, "[]");
        return;
    }
    const kiln_type *each = list ? kiln_type_strip(t->elem, &optional) : t;
    if (list) kiln_sb_putc(out, '[');
    if (each->kind == KILN_T_TENSOR && number) kiln_sb_puts(out, "f32[]:fill=");
    kiln_value_print(out, v);
    if (list) kiln_sb_putc(out, ']');
}

static void print_named(kiln_sb *out, const kiln_param *p, const kiln_value *v) {
    if (out->p[out->len - 1] != '(') kiln_sb_puts(out, ", ");
    kiln_sb_printf(out, "%s=", p->name);
    print_item(out, p->type, v);
}

void kiln_call_print(kiln_sb *out, const kiln_bound *call, const kiln_schema *schema) {
    const kiln_op *op = call->op;
    kiln_sb_printf(out, "%s(", op->name);
    for (int a = 0; a < op->row->schema->nargs && a < schema->nargs && !out->failed; a++)
        if (call->given[a] >= 0) print_named(out, &schema->args[a], &call->arg[a]);
    for (int k = 0; k < call->nout && op->form == KILN_FORM_OUT && !out->failed; k++) {
        kiln_value v = kiln_v_tensor(call->out[k]);
        int a = kiln_op_out_arg(op, k);
        if (a < schema->nargs) print_named(out, &schema->args[a], &v);
    }
    kiln_sb_putc(out, ')');
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

/* What numbers in the plan's work stand for. */
static void find_names(const kiln_plan *p, kiln_work_names *names) {
    const kiln_schema *schema = p->call->op->row->schema;
    *names = (kiln_work_names){.arg = {NULL}};
    for (int a = 0; a < schema->nargs; a++) names->arg[a] = schema->args[a].name;
    for (int k = 0; k < p->work.ncalls; k++) names->op[k] = p->op[k]->name;
}

void kiln_buffer_print(kiln_sb *out, const kiln_plan *p, int b) {
    kiln_work_names names;
    find_names(p, &names);
    kiln_work_buffer_print(out, &p->work, &names, b);
}

void kiln_plan_print(kiln_sb *out, const kiln_plan *p) {
    kiln_sb_printf(out, "operator: %s\nbranch: %d\nkind: %s\ncommon: %s\nshape: ", p->call->op->name,
                   p->typed.branch, (const char *[])KILN_CLASS_KIND_NAMES[p->kind],
                   kiln_dtype_name(p->typed.common));
    kiln_sizes_print(out, p->shape->rank, p->shape->sizes);
    kiln_sb_putc(out, '\n');
    for (int k = 0; k < p->typed.nrets; k++) print_result(out, p, k);
    kiln_work_names names;
    find_names(p, &names);
    kiln_work_print(out, &p->work, &names);
}
