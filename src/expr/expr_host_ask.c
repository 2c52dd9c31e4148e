/* expr_host_ask.c - evaluates a function of arguments on the host: size(x, 0), present(x), is_float(x), same_dtype(..) and others.
 *
 * A function of an argument that is not known gives "unknown".  Knows no tensors: sizes, items and layouts come through
 * the environment. */
#include "expr/host.h"

static kiln_status eval_size(host *h, const kiln_expr *e, kiln_hval t, kiln_hval *out) {
    kiln_hval d = {0};
    int64_t extent;
    KILN_TRY(kiln_host_eval(h, e->args[1], &d));
    bool any_unknown = t.kind == KILN_H_UNKNOWN || d.kind == KILN_H_UNKNOWN;
    if ((t.kind != KILN_H_UNKNOWN && t.kind != KILN_H_TENSOR) ||
        (d.kind != KILN_H_UNKNOWN && d.kind != KILN_H_INT))
        return HOST_FAIL(h, e, "size takes a tensor and a dimension");
    *out = unknown();
    if (any_unknown || !h->env->size) return KILN_OK;
    if (!h->env->size(h->env, (int)t.i, d.i, &extent))
        return kiln_expr_fail(h->env->source, e, KILN_E_INDEX, "dimension %lld is out of range",
                              (long long)d.i);
    *out = from_int(extent);
    return KILN_OK;
}

/* span(t, d): the product of a tensor's sizes from dimension d on. */
static kiln_status eval_span(host *h, const kiln_expr *e, kiln_hval t, kiln_hval *out) {
    kiln_hval d = {0};
    int64_t extent, all = 1;
    KILN_TRY(kiln_host_eval(h, e->args[1], &d));
    if ((t.kind != KILN_H_UNKNOWN && t.kind != KILN_H_TENSOR) ||
        (d.kind != KILN_H_UNKNOWN && (d.kind != KILN_H_INT || d.i < 0)))
        return HOST_FAIL(h, e, "span takes a tensor and a dimension");
    *out = unknown();
    if (t.kind == KILN_H_UNKNOWN || d.kind == KILN_H_UNKNOWN || !h->env->size) return KILN_OK;
    for (int64_t k = d.i; h->env->size(h->env, (int)t.i, k, &extent); k++)
        all *= extent; /* no more than its elements, or 0 */
    *out = from_int(all);
    return KILN_OK;
}

/* ends(t, sizes): whether the last sizes of a tensor are those of a list. */
static kiln_status eval_ends(host *h, const kiln_expr *e, kiln_hval t, kiln_hval *out) {
    const kiln_expr *list = e->args[1];
    kiln_hval sizes = {0}, one;
    int64_t extent;
    KILN_TRY(kiln_host_eval(h, list, &sizes));
    bool any_unknown = t.kind == KILN_H_UNKNOWN || sizes.kind == KILN_H_UNKNOWN;
    if ((t.kind != KILN_H_UNKNOWN && t.kind != KILN_H_TENSOR) ||
        (sizes.kind != KILN_H_UNKNOWN && (sizes.kind != KILN_H_LIST || list->arg < 0)))
        return HOST_FAIL(h, e, "ends takes a tensor and a list of sizes");
    *out = unknown();
    if (any_unknown || !h->env->size || !h->env->item) return KILN_OK;
    bool same = true;
    for (int64_t k = 1; k <= sizes.i && same; k++)
        same = h->env->size(h->env, (int)t.i, -k, &extent) && h->env->item(h->env, list->arg, -k, &one) &&
               one.kind == KILN_H_INT && one.i == extent;
    *out = from_bool(same);
    return KILN_OK;
}

/* fits(x): whether the number converts to the common dtype without overflow.  None does, and a complex
 * number, of which only the kind is known here. */
static kiln_status eval_fits(host *h, const kiln_expr *e, kiln_hval v, kiln_hval *out) {
    if (v.kind == KILN_H_NONE || v.kind == KILN_H_COMPLEX || v.kind == KILN_H_UNKNOWN) {
        *out = v.kind == KILN_H_UNKNOWN ? unknown() : from_bool(true);
        return KILN_OK;
    }
    if (!is_number(v)) return HOST_FAIL(h, e, "fits takes a number");
    *out = unknown();
    if (h->env->common == KILN_DTYPE_COUNT) return KILN_OK;
    bool is_float = v.kind == KILN_H_FLOAT, is_uint = is_float && v.dtype == KILN_U64;
    *out = from_bool(is_uint ? kiln_dtype_fits_uint(h->env->common, (uint64_t)v.i)
                             : kiln_dtype_fits(h->env->common, is_float, v.kind == KILN_H_BOOL, v.i, v.f));
    return KILN_OK;
}

/* rank(t): how many dimensions a tensor argument has; numel(t): how many elements; single(t): whether it has one. */
static kiln_status eval_shape(host *h, const kiln_expr *e, kiln_hval t, kiln_hval *out) {
    int64_t extent, rank = 0, nelem = 1; /* of a tensor that exists: there is no overflow */
    if (t.kind != KILN_H_UNKNOWN && t.kind != KILN_H_TENSOR)
        return HOST_FAIL(h, e, "%s takes a tensor", e->name);
    *out = unknown();
    if (t.kind == KILN_H_UNKNOWN || !h->env->size) return KILN_OK;
    for (; h->env->size(h->env, (int)t.i, rank, &extent); rank++) nelem *= extent;
    *out = e->word == KILN_WORD_single ? from_bool(nelem == 1)
                                       : from_int(e->word == KILN_WORD_numel ? nelem : rank);
    return KILN_OK;
}

/* contiguous(t), channels_last(t): how the elements of a tensor lie.  contiguous(given): of all that results are written to. */
static kiln_status eval_contiguous(host *h, const kiln_expr *e, kiln_hval t, kiln_hval *out) {
    if (e->args[0]->word == KILN_WORD_given) t = (kiln_hval){.kind = KILN_H_TENSOR, .i = -1};
    if (t.kind != KILN_H_UNKNOWN && t.kind != KILN_H_TENSOR)
        return HOST_FAIL(h, e, "%s takes a tensor", e->name);
    *out = unknown();
    if (t.kind == KILN_H_UNKNOWN || !h->env->contiguous) return KILN_OK;
    *out = from_bool(h->env->contiguous(h->env, (int)t.i, e->word == KILN_WORD_channels_last));
    return KILN_OK;
}

/* alike(a, b): whether two tensors have the same sizes. */
static kiln_status eval_alike(host *h, const kiln_expr *e, kiln_hval a, kiln_hval *out) {
    kiln_hval b = {0};
    int64_t of_a, of_b, dim = 0;
    KILN_TRY(kiln_host_eval(h, e->args[1], &b));
    if ((a.kind != KILN_H_UNKNOWN && a.kind != KILN_H_TENSOR) ||
        (b.kind != KILN_H_UNKNOWN && b.kind != KILN_H_TENSOR))
        return HOST_FAIL(h, e, "alike takes two tensors");
    *out = unknown();
    if (a.kind == KILN_H_UNKNOWN || b.kind == KILN_H_UNKNOWN || !h->env->size) return KILN_OK;
    bool in_a = true, in_b = true, same = true;
    for (; same && in_a && in_b; dim++) {
        in_a = h->env->size(h->env, (int)a.i, dim, &of_a);
        in_b = h->env->size(h->env, (int)b.i, dim, &of_b);
        same = in_a == in_b && (!in_a || of_a == of_b);
    }
    *out = from_bool(same);
    return KILN_OK;
}

/* covers(a, .., b): whether b adds nothing to the sizes that the tensors before it are broadcast to. */
static kiln_status eval_covers(host *h, const kiln_expr *e, kiln_hval *out) {
    enum { MOST = 3 };
    kiln_hval t[MOST] = {{0}};
    bool any_unknown = !h->env->size, covered = true;
    int last = e->nargs - 1;
    if (last < 1 || last >= MOST) return HOST_FAIL(h, e, "covers takes two or three tensors");
    for (int k = 0; k <= last; k++) {
        KILN_TRY(kiln_host_eval(h, e->args[k], &t[k]));
        any_unknown = any_unknown || t[k].kind == KILN_H_UNKNOWN;
        if (t[k].kind != KILN_H_UNKNOWN && t[k].kind != KILN_H_TENSOR)
            return HOST_FAIL(h, e, "covers takes two or three tensors");
    }
    *out = unknown();
    if (any_unknown) return KILN_OK;
    int64_t of_b, of_a;
    for (int64_t dim = -1; covered && h->env->size(h->env, (int)t[last].i, dim, &of_b); dim--) {
        bool there = false, same = false;
        for (int k = 0; k < last; k++) {
            if (!h->env->size(h->env, (int)t[k].i, dim, &of_a)) continue;
            there = true;
            same = same || of_a == of_b;
        }
        covered = there && (same || of_b == 1);
    }
    *out = from_bool(covered);
    return KILN_OK;
}

/* same_dtype(f32, a, b, ..): whether, for each k, the items k of the lists and the dtypes given are all the same
 * dtype.  A list without an item k is skipped. */
static kiln_status eval_same_dtype(host *h, const kiln_expr *e, kiln_hval *out) {
    kiln_hval v = {0}, one;
    bool any_unknown = !h->env->item, more = true, same = true;
    if (e->nargs < 2) return HOST_FAIL(h, e, "same_dtype takes two arguments or more");
    for (int64_t k = 0; more && same && !any_unknown; k++) {
        kiln_dtype first = KILN_DTYPE_COUNT;
        more = false;
        for (int i = 0; i < e->nargs && !any_unknown; i++) {
            KILN_TRY(kiln_host_eval(h, e->args[i], &v));
            any_unknown = v.kind == KILN_H_UNKNOWN;
            bool listed = v.kind == KILN_H_LIST && e->args[i]->arg >= 0;
            if (!any_unknown && !listed && v.kind != KILN_H_DTYPE)
                return HOST_FAIL(h, e, "same_dtype takes lists and dtypes");
            if (any_unknown || (listed && !h->env->item(h->env, e->args[i]->arg, k, &one))) continue;
            kiln_dtype dtype = listed ? one.dtype : v.dtype;
            same = same && (first == KILN_DTYPE_COUNT || first == dtype);
            first = dtype;
            more = more || (listed && k + 1 < v.i);
        }
    }
    *out = any_unknown ? unknown() : from_bool(same);
    return KILN_OK;
}

/* is_bool and other functions that ask whether v's dtype is in the set e->asks. */
static kiln_status ask_dtype(host *h, const kiln_expr *e, kiln_hval v, kiln_hval *out) {
    if (v.kind == KILN_H_LIST || v.kind == KILN_H_STR)
        return HOST_FAIL(h, e, "'%s' takes a tensor, a number or common", e->name);
    *out = unknown();
    if (v.kind == KILN_H_NONE)
        *out = from_bool(false);
    else if (v.dtype < KILN_DTYPE_COUNT)
        *out = from_bool(e->asks >> v.dtype & 1);
    return KILN_OK;
}

static kiln_status eval_len(host *h, const kiln_expr *e, kiln_hval v, kiln_hval *out) {
    bool is_unknown = v.kind == KILN_H_UNKNOWN;
    if (!is_unknown && v.kind != KILN_H_LIST) return HOST_FAIL(h, e, "len takes a list");
    *out = is_unknown ? unknown() : from_int(v.i);
    return KILN_OK;
}

/* None has no dtype and equals no dtype. */
static kiln_hval dtype_of(kiln_hval v) {
    if (v.kind == KILN_H_NONE) return v;
    if (v.dtype >= KILN_DTYPE_COUNT) return unknown();
    return (kiln_hval){.kind = KILN_H_DTYPE, .i = v.dtype, .dtype = v.dtype};
}

kiln_status kiln_host_call(host *h, const kiln_expr *e, kiln_hval *out) {
    kiln_hval v = {0};
    bool two = e->word == KILN_WORD_size || e->word == KILN_WORD_span || e->word == KILN_WORD_ends ||
               e->word == KILN_WORD_alike;
    int takes = two ? 2 : 1;
    if (e->word == KILN_WORD_covers) return eval_covers(h, e, out);
    if (e->word == KILN_WORD_same_dtype) return eval_same_dtype(h, e, out);
    if (e->word != KILN_WORD_NONE && e->nargs != takes)
        return HOST_FAIL(h, e, "'%s' takes %d argument(s), found %d", e->name, takes, e->nargs);
    if (e->word != KILN_WORD_NONE) KILN_TRY(kiln_host_eval(h, e->args[0], &v));
    bool maybe = v.kind == KILN_H_UNKNOWN && v.present_unknown;
    switch (e->word) {
    case KILN_WORD_present: *out = maybe ? unknown() : from_bool(v.kind != KILN_H_NONE); return KILN_OK;
    case KILN_WORD_absent: *out = maybe ? unknown() : from_bool(v.kind == KILN_H_NONE); return KILN_OK;
    case KILN_WORD_len: return eval_len(h, e, v, out);
    case KILN_WORD_size: return eval_size(h, e, v, out);
    case KILN_WORD_span: return eval_span(h, e, v, out);
    case KILN_WORD_ends: return eval_ends(h, e, v, out);
    case KILN_WORD_rank:
    case KILN_WORD_numel:
    case KILN_WORD_single: return eval_shape(h, e, v, out);
    case KILN_WORD_alike: return eval_alike(h, e, v, out);
    case KILN_WORD_contiguous:
    case KILN_WORD_channels_last: return eval_contiguous(h, e, v, out);
    case KILN_WORD_fits: return eval_fits(h, e, v, out);
    case KILN_WORD_dtype: *out = dtype_of(v); return KILN_OK;
    default: break;
    }
    return e->asks ? ask_dtype(h, e, v, out) : UNKNOWN(h, e, "unknown function '%s'", e->name);
}
