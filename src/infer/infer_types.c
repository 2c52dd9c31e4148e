/* infer_types.c - dtypes of the arguments -> the common dtype and the results' dtypes.
 *
 * PyTorch's result_type: tensors with dimensions decide; then tensors of rank 0, then numbers, each only
 * if it is of a higher kind (bool < int < float < complex).  Must not know shapes beyond "has dimensions". */
#include "infer/infer_parts.h"

#define NONE KILN_DTYPE_COUNT

/* The dtypes met so far, and the pair PyTorch would not promote, if there was one. */
typedef struct meeting {
    const kiln_bound *call;
    kiln_status status;
} meeting;

static kiln_dtype promote(meeting *m, kiln_dtype a, kiln_dtype b) {
    if (a == NONE || b == NONE) return a == NONE ? b : a;
    kiln_dtype t = kiln_dtype_promote(a, b);
    if (t != NONE) return t;
    if (m->status == KILN_OK)
        m->status = KILN_FAIL(KILN_E_ARG,
                              "%s: Promotion for uint16, uint32, uint64 types is not supported, attempted to "
                              "promote %s and %s",
                              m->call->op->name, kiln_dtype_torch_name(a), kiln_dtype_torch_name(b));
    return a;
}

/* The complex type whose parts are of float type t; PyTorch has one for f16, Kiln has not. */
static kiln_dtype with_parts(meeting *m, kiln_dtype t) {
    kiln_dtype c = kiln_dtype_complex(t);
    if (c != NONE) return c;
    if (m->status == KILN_OK)
        m->status = KILN_FAIL(KILN_E_UNSUP, "%s: complex numbers with parts of %s are not served",
                              m->call->op->name, kiln_dtype_name(t));
    return t;
}

/* What `higher` becomes beside something that weighs less. */
static kiln_dtype combine(meeting *m, kiln_dtype higher, kiln_dtype lower) {
    if (higher == NONE) return lower;
    if (lower == NONE || kiln_dtype_is_complex(higher)) return higher;
    if (kiln_dtype_is_float(higher)) return kiln_dtype_is_complex(lower) ? with_parts(m, higher) : higher;
    if (kiln_dtype_is_complex(lower)) return lower;
    return higher == KILN_BOOL || kiln_dtype_is_float(lower) ? promote(m, higher, lower) : higher;
}

static kiln_dtype number_dtype(const kiln_value *v) {
    if (v->kind == KILN_INT_V) return KILN_I64;
    if (v->kind == KILN_BOOL_V) return KILN_BOOL;
    if (v->kind == KILN_COMPLEX_V) return KILN_C64;
    return v->kind == KILN_FLOAT_V ? KILN_F32 : KILN_U64; /* PyTorch's default float type, not f64 */
}

/* Of a tensor that stands for a number. */
static kiln_dtype wrapped_dtype(const kiln_tensor *t) {
    kiln_dtype of = (kiln_dtype)t->dtype;
    if (of == KILN_BOOL || of == KILN_U64) return of;
    return kiln_dtype_is_complex(of) ? KILN_C64 : kiln_dtype_is_float(of) ? KILN_F32 : KILN_I64;
}

static kiln_status result_type(const kiln_bound *call, uint64_t args, kiln_dtype *out) {
    kiln_dtype dim = NONE, zero = NONE, number = NONE;
    meeting m = {call, KILN_OK};
    for (int a = 0; args; a++, args >>= 1) {
        const kiln_value *v = &call->arg[a];
        if (!(args & 1) || v->kind == KILN_NONE) continue;
        if (v->kind == KILN_TENSOR && v->u.tensor->flags & KILN_TF_NUMBER) {
            number = promote(&m, number, wrapped_dtype(v->u.tensor));
        } else if (v->kind == KILN_TENSOR) {
            kiln_dtype *of = v->u.tensor->rank > 0 ? &dim : &zero;
            *of = promote(&m, *of, (kiln_dtype)v->u.tensor->dtype);
        } else {
            number = promote(&m, number, number_dtype(v));
        }
    }
    *out = combine(&m, dim, combine(&m, zero, number));
    return m.status;
}

static kiln_dtype first_tensor_dtype(const kiln_bound *call) {
    for (int a = 0; a < call->op->row->schema->nargs; a++)
        if (call->arg[a].kind == KILN_TENSOR) return (kiln_dtype)call->arg[a].u.tensor->dtype;
    return KILN_F32;
}

static void print_dtypes(kiln_sb *out, kiln_dtypes set) {
    const char *sep = "";
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        if (!(set & KILN_DT(t))) continue;
        kiln_sb_printf(out, "%s%s", sep, kiln_dtype_name((kiln_dtype)t));
        sep = ", ";
    }
}

/* Apart, so that it costs a call that is right nothing.  The first words are PyTorch's. */
static __attribute__((noinline)) kiln_status not_taken(const kiln_bound *call, kiln_dtype promoted) {
    const kiln_row *row = call->op->row;
    kiln_sb s;
    kiln_sb_init_message(&s);
    kiln_sb_printf(&s, "%s: \"%s\" not implemented for '%s'; it takes ", call->op->name, row->schema->name,
                   kiln_dtype_name(promoted));
    print_dtypes(&s, row->takes);
    return KILN_FAIL_TEXT(KILN_E_UNSUP, &s);
}

kiln_status kiln_takes_check(const kiln_bound *call, kiln_dtype promoted) {
    const kiln_row *row = call->op->row;
    if (!row->takes || (row->takes & KILN_DT(promoted))) return KILN_OK;
    return not_taken(call, promoted);
}

/* f64, or c128 beside a complex tensor or number: a conversion of each, so no dtypes refuse each other. */
static kiln_dtype double_type(const kiln_bound *call, uint64_t args) {
    for (int a = 0; args; a++, args >>= 1) {
        const kiln_value *v = &call->arg[a];
        bool is_complex = v->kind == KILN_TENSOR ? kiln_dtype_is_complex((kiln_dtype)v->u.tensor->dtype)
                                                 : v->kind == KILN_COMPLEX_V;
        if ((args & 1) && is_complex) return KILN_C128;
    }
    return KILN_F64;
}

/* What a dtype argument or a given result makes of t.  Apart, so that it costs operators without them nothing. */
static __attribute__((noinline)) kiln_dtype wanted_dtype(const kiln_bound *call, const kiln_typing *ty,
                                                         kiln_dtype t) {
    if (ty->dtype_arg >= 0 && call->arg[ty->dtype_arg].kind == KILN_DTYPE_V)
        return (kiln_dtype)call->arg[ty->dtype_arg].u.i;
    if (ty->out == KILN_OUT_DECIDES && call->nout) return (kiln_dtype)call->out[0]->dtype;
    return ty->promo == KILN_PROMO_SUM && kiln_dtype_kind(t) < KILN_KIND_FLOAT ? KILN_I64 : t;
}

kiln_status kiln_typing_common(const kiln_bound *call, const kiln_typing *ty, kiln_dtype *promoted,
                               kiln_dtype *common) {
    kiln_dtype t = NONE;
    if (ty->promo == KILN_PROMO_DOUBLE)
        t = double_type(call, ty->args);
    else
        KILN_TRY(result_type(call, ty->args, &t));
    if (t == NONE) t = first_tensor_dtype(call);
    *promoted = *common = t;
    switch (ty->promo) {
    case KILN_PROMO_PROMOTE:
    case KILN_PROMO_DOUBLE: break;
    case KILN_PROMO_FLOAT:
        if (kiln_dtype_kind(t) < KILN_KIND_FLOAT) *common = KILN_F32;
        break;
    case KILN_PROMO_TO:
    case KILN_PROMO_SUM: *common = wanted_dtype(call, ty, t); break;
    }
    return KILN_OK;
}

/* As PyTorch's kernels for halves: where the row says compute(x), a 0-d tensor of another dtype is read as
 * the number it is.  Tensors with dimensions are converted to the common dtype in any case. */
static uint64_t exact_args(const kiln_plan *p) {
    uint64_t set = p->branch->exact;
    if (kiln_dtype_compute(p->typed.common) == p->typed.common) return 0;
    for (int a = 0; a < p->call->op->row->schema->nargs; a++) {
        const kiln_value *v = &p->call->arg[a];
        bool number = v->kind == KILN_TENSOR && v->u.tensor->rank == 0 &&
                      v->u.tensor->dtype != p->typed.common;
        if (!number) set &= ~(1ull << a);
    }
    return set;
}

kiln_status kiln_types_infer(kiln_plan *p) {
    const kiln_bound *call = p->call;
    const kiln_typing *ty = &p->branch->typing;
    p->typed.exact = exact_args(p);
    p->typed.nrets = call->op->row->schema->nrets;
    for (int k = 0; k < p->typed.nrets; k++) {
        int r = ty->ret[k];
        if (r >= 0)
            p->typed.ret_dtype[k] = (uint8_t)r;
        else if (r == KILN_RET_COMMON)
            p->typed.ret_dtype[k] = p->typed.common;
        else if (r == KILN_RET_REAL)
            p->typed.ret_dtype[k] = kiln_dtype_real(p->typed.common);
        else if (call->arg[-2 - r].kind == KILN_TENSOR)
            p->typed.ret_dtype[k] = (kiln_dtype)call->arg[-2 - r].u.tensor->dtype;
        else
            return KILN_BUG("%s: result %d follows an argument that is not a tensor", call->op->name, k);
    }
    return KILN_OK;
}

/* PyTorch's can_cast: a result may not fall to a lower kind. */
static bool can_cast(kiln_dtype from, kiln_dtype to) { return kiln_dtype_kind(from) <= kiln_dtype_kind(to); }

/* Whether result k holds real numbers made of complex ones, such as sizes. */
static bool real_of_complex(const kiln_plan *p, int k) {
    return p->branch->typing.ret[k] == KILN_RET_REAL && kiln_dtype_is_complex(p->typed.common);
}

/* Whether result k may be stored in another dtype than its own.  PyTorch converts results of a promotion
 * and truth values; an operator of one tensor that keeps its dtype, and results of a fixed dtype, do not. */
static bool converts(const kiln_plan *p, int k) {
    const kiln_typing *ty = &p->branch->typing;
    kiln_out_rule rule = kiln_plan_out_rule(p);
    if (rule != KILN_OUT_USUAL) return rule == KILN_OUT_CONVERTS;
    if (real_of_complex(p, k))
        return ty->promo != KILN_PROMO_PROMOTE || !kiln_dtype_is_complex((kiln_dtype)p->call->out[k]->dtype);
    if (ty->ret[k] != KILN_RET_COMMON && ty->ret[k] != KILN_RET_REAL)
        return p->typed.ret_dtype[k] == KILN_BOOL;
    if (ty->promo != KILN_PROMO_PROMOTE) return true;
    int operands = 0;
    for (int a = 0; a < p->call->op->row->schema->nargs; a++)
        operands += (ty->args >> a & 1) &&
                    (p->call->arg[a].kind == KILN_TENSOR || (kiln_args_wrapped(p) >> a & 1));
    return operands > 1;
}

static kiln_status check_output(const kiln_plan *p, int k) {
    const kiln_op *op = p->call->op;
    const char *name = op->schema->args[kiln_op_out_arg(op, k)].name,
               *from = kiln_dtype_name(p->typed.ret_dtype[k]);
    kiln_dtype to = (kiln_dtype)p->call->out[k]->dtype;
    if (to == p->typed.ret_dtype[k]) return KILN_OK;
    if (real_of_complex(p, k) && op->form == KILN_FORM_INPLACE)
        return KILN_FAIL(KILN_E_ARG, "%s: In-place %s is not supported for complex tensors.", op->name,
                         op->row->schema->name);
    bool usual = kiln_plan_out_rule(p) == KILN_OUT_USUAL;
    if (real_of_complex(p, k) && usual && to == p->typed.common)
        return KILN_OK; /* as PyTorch: without an imaginary part */
    if (!converts(p, k))
        return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': found dtype %s but expected %s", op->name, name,
                         kiln_dtype_name(to), from);
    if (can_cast(p->typed.ret_dtype[k], to)) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG,
                     "%s: argument '%s': result type %s can't be cast to the desired output type %s",
                     op->name, name, from, kiln_dtype_name(to));
}

static kiln_status wrong_dtype(const kiln_plan *p, int arg, kiln_dtypes want) {
    kiln_sb s;
    kiln_sb_init_message(&s);
    kiln_sb_printf(&s, "%s: expected argument '%s' to have dtype ", p->call->op->name,
                   kiln_arg_name(p->call, arg));
    print_dtypes(&s, want);
    kiln_sb_printf(&s, ", but got %s", kiln_dtype_name(p->dtypes[arg]));
    return KILN_FAIL_TEXT(KILN_E_ARG, &s);
}

kiln_status kiln_types_check(const kiln_plan *p) {
    const kiln_bound *call = p->call;
    const kiln_row *row = call->op->row;
    uint64_t own = row->own_takes & ~p->branch->typing.args;
    for (int a = 0; own; a++, own >>= 1) {
        kiln_dtypes want = own & 1 && call->arg[a].kind == KILN_TENSOR ? row->arg_takes[a] : 0;
        if (want && !(want & KILN_DT(p->dtypes[a]))) return wrong_dtype(p, a, want);
    }
    for (int k = 0; k < call->nout; k++) KILN_TRY(check_output(p, k));
    return kiln_takes_check(call, p->typed.promoted);
}
