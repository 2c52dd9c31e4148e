/* compose.c - rows made of calls: a bound call -> a plan whose steps call other operators.
 *
 * The way is chosen, its calls get their values, and each is inferred before any is made, by tensors without elements in
 * place of what earlier ones will make: a call that fails, fails before anything is written.  A given result is copied
 * to when all calls have been made.  Rows that call for each item of lists have no plan (src/api/lists.c).  Knows
 * operators by what their rows say, none by name. */
#include <string.h>

#include "family/compose_rules.h"
#include "family/family.h"
#include "family/listed.h"
#include "infer/infer_parts.h"

/* A tensor that a call will make: its shape is known, its elements are not. */
typedef struct expected {
    bool absent; /* the call does not give this one */
    kiln_tensor t;
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
} expected;

typedef struct composing {
    kiln_plan *p;
    const kiln_way *way;
    kiln_call_env env;
    int first[KILN_MAX_CALLS]; /* made tensor that a call's first result is */
    int nmade;
    expected made[KILN_WORK_MADE];
} composing;

/* -- values ------------------------------------------------------------------------------------------------- */

/* Which argument of op's schema has this name; 0: it has no name, else 1 + the argument. */
static uint8_t number_of(const kiln_op *op, const char *name) {
    return (uint8_t)(name[0] ? 1 + kiln_schema_arg(op->schema, name) : 0);
}

/* A value that follows from the call's, as the work keeps it: a text by its characters. */
static void keep_value(kiln_work *w, const kiln_value *v, kiln_call_arg *a) {
    a->kind = (uint8_t)v->kind;
    if (v->kind == KILN_COMPLEX_V) {
        a->u.c.re = v->u.c.re;
        a->u.c.im = v->u.c.im;
    } else if (v->kind == KILN_STR_V) {
        size_t n = strlen(v->u.s) + 1;
        memcpy(kiln_work_take(w, kiln_work_words_of((unsigned)n, 1), &a->text), v->u.s, n);
    } else {
        a->u.i = v->u.i;
    }
}

/* Argument i of call k: *v now, and *a for whoever makes the call. */
static kiln_status set_arg(composing *c, int k, int i, kiln_value *v, kiln_call_arg *a) {
    const kiln_named *from = &c->way->calls[k].args.at[i];
    const kiln_expr *e = from->expr;
    int call, result;
    *a = (kiln_call_arg){.from = -1, .kind = KILN_NONE, .name = number_of(c->p->op[k], from->name)};
    bool named = e->kind == KILN_X_NAME && !e->means; /* an argument, or a result of an earlier call */
    if (named && e->arg < 0 && kiln_way_result(c->way, k, e->name, &call, &result)) {
        int made = c->first[call] + result;
        bool absent = c->made[made].absent;
        *v = absent ? kiln_v_none() : kiln_v_tensor(&c->made[made].t);
        a->made = (uint8_t)(absent ? 0 : 1 + made);
    } else {
        int arg = named ? e->arg : -1;
        a->from = (int8_t)arg;
        if (arg >= 0)
            *v = c->p->call->arg[arg];
        else
            KILN_TRY(kiln_call_value(&c->env, e, v));
        if (arg < 0) keep_value(&c->p->work, v, a);
    }
    v->name = a->name ? c->p->op[k]->schema->args[a->name - 1].name : NULL;
    return KILN_OK;
}

/* -- what calls will make ------------------------------------------------------------------------------------- */

/* Result k of an inferred call.  Its address is nobody's: nothing is read there, and no two are the same. */
static void expect(composing *c, const kiln_plan *p, int k) {
    expected *e = &c->made[c->nmade];
    const kiln_shape *s = &p->shape[p->result[k].shape];
    const kiln_tensor *given = k < p->call->nout && !p->result[k].resized ? p->call->out[k] : NULL;
    const int64_t *sizes = given ? given->sizes : s->sizes, *strides = given ? given->strides : s->strides;
    int rank = given ? given->rank : s->rank;
    e->absent = p->typed.absent >> k & 1;
    memset(&e->t, 0, sizeof e->t);
    for (int d = 0; d < rank; d++) {
        e->sizes[d] = sizes[d];
        e->strides[d] = strides[d];
    }
    e->t.dtype = (uint8_t)(given ? given->dtype : p->buffer[k].dtype);
    e->t.device = KILN_DEVICE_CPU;
    e->t.rank = (uint8_t)rank;
    e->t.nelem = given ? given->nelem : s->nelem;
    e->t.flags = kiln_layout_flags(rank, e->sizes, e->strides, e->t.nelem);
    e->t.sizes = e->sizes;
    e->t.strides = e->strides;
    e->t.data = given ? given->data : (char *)((uintptr_t)(c->nmade + 1) << 56);
    c->nmade++;
}

/* Call k, inferred.  Apart, since a plan is large. */
static __attribute__((noinline)) kiln_status infer_call(composing *c, int k, const kiln_value *args,
                                                        const kiln_call_arg *kept) {
    kiln_bound call;
    kiln_plan plan;
    int nargs = c->way->calls[k].args.n;
    for (int i = 0; i < nargs && c->p->op[k]->row->items; i++)
        if (kept[i].made)
            return KILN_FAIL(KILN_E_UNSUP, "%s: %s would read a number that is not there yet",
                             c->p->call->op->name, c->p->op[k]->name);
    KILN_TRY(kiln_bind(c->p->op[k], args, (size_t)nargs, &call));
    KILN_TRY(kiln_infer_inner(&call, &plan));
    c->first[k] = c->nmade;
    for (int i = 0; i < plan.typed.nrets; i++) expect(c, &plan, i);
    return KILN_OK;
}

static kiln_status add_call(composing *c, int k) {
    kiln_plan *p = c->p;
    const kiln_called *of = &c->way->calls[k];
    kiln_value args[KILN_MAX_ARGS];
    kiln_step *s = kiln_plan_step(p, KILN_STEP_CALL);
    unsigned words = kiln_work_words_of((unsigned)of->args.n, sizeof(kiln_call_arg));
    KILN_TRY(kiln_called_op(p->call->op->row, of, KILN_FORM_FUNCTIONAL, &p->op[k]));
    p->op[k] = kiln_op_within(p->op[k], p->call->op);
    p->work.ncalls++;
    kiln_call_arg *kept = kiln_work_take(&p->work, words, &s->u.call.args);
    for (int i = 0; i < of->args.n; i++) KILN_TRY(set_arg(c, k, i, &args[i], &kept[i]));
    s->u.call.op = (uint8_t)k;
    s->u.call.nargs = (uint8_t)of->args.n;
    s->u.call.nrets = (uint8_t)p->op[k]->schema->nrets;
    s->u.call.first = (uint8_t)c->nmade;
    return kiln_note(infer_call(c, k, args, kept), "%s", p->call->op->name);
}

/* -- results -------------------------------------------------------------------------------------------------- */

/* A given result has the dtype of what is copied to it. */
static kiln_status check_given(const kiln_plan *p, int k) {
    const kiln_op *op = p->call->op;
    kiln_dtype have = (kiln_dtype)p->call->out[k]->dtype, want = p->typed.ret_dtype[k];
    if (p->call->out[k]->flags & KILN_TF_READONLY)
        return KILN_FAIL(KILN_E_ARG, "%s: argument '%s' may not be written", op->name,
                         op->schema->args[kiln_op_out_arg(op, k)].name);
    if (p->call->out[k]->flags & KILN_TF_OVERLAPS)
        return KILN_FAIL(KILN_E_ARG,
                         "%s: argument '%s': unsupported operation: more than one element of the written-to "
                         "tensor refers to a single memory location",
                         op->name, op->schema->args[kiln_op_out_arg(op, k)].name);
    if (have == want) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': found dtype %s but expected %s", op->name,
                     op->schema->args[kiln_op_out_arg(op, k)].name, kiln_dtype_name(have),
                     kiln_dtype_name(want));
}

/* Result k is the tensor `made` of those that calls make, or absent as that is. */
static kiln_status set_result(composing *c, int k, int made) {
    kiln_plan *p = c->p;
    const expected *e = &c->made[made];
    kiln_shape *s = &p->shape[k];
    kiln_plan_shape(p, s, e->t.rank);
    s->nelem = e->t.nelem;
    memcpy(s->sizes, e->sizes, e->t.rank * sizeof *s->sizes);
    memcpy(s->strides, e->strides, e->t.rank * sizeof *s->strides);
    p->result[k] = (kiln_result){.shape = (uint8_t)k, .made = (uint8_t)(1 + made)};
    p->typed.ret_dtype[k] = (kiln_dtype)e->t.dtype;
    p->typed.absent |= (uint32_t)e->absent << k;
    if (k >= p->call->nout) return KILN_OK;
    if (e->absent)
        return KILN_FAIL(KILN_E_ARG, "%s: there is no result %d to be written", p->call->op->name, k);
    return check_given(p, k);
}

static kiln_status set_results(composing *c) {
    kiln_plan *p = c->p;
    int last = c->way->ncalls - 1, call = last, result = 0;
    for (int k = 0; k < p->typed.nrets; k++) {
        if (k >= KILN_MAX_SHAPES)
            return KILN_FAIL(KILN_E_LIMIT, "%s: more than %d results", p->call->op->name, KILN_MAX_SHAPES);
        if (c->way->finish.n)
            (void)kiln_way_result(c->way, last + 1, c->way->finish.at[k].name, &call, &result);
        else
            result = k;
        KILN_TRY(set_result(c, k, c->first[call] + result));
    }
    return p->call->nout ? kiln_results_check(p) : KILN_OK;
}

/* -- the plan --------------------------------------------------------------------------------------------------- */

/* What conditions call `common`: the dtype of the first tensor. */
static kiln_dtype first_dtype(const kiln_bound *call) {
    for (int a = 0; a < call->op->row->schema->nargs; a++)
        if (call->arg[a].kind == KILN_TENSOR) return (kiln_dtype)call->arg[a].u.tensor->dtype;
    return KILN_F32;
}

static void clear(kiln_plan *p) {
    memset(&p->typed, 0, sizeof p->typed);
    p->typed.nrets = (uint8_t)p->call->op->row->declared->nrets;
    kiln_plan_begin(p, p->typed.nrets);
    memset(&p->axes, 0, sizeof p->axes);
    p->kind = KILN_CLASS_COMPOSITION;
    p->form = 0;
    p->stride_bits = 0;
    p->uniform = true;
}

/* The way of the row that a call takes. */
static kiln_status choose_way(const kiln_call_env *ce, const kiln_way **out) {
    const kiln_compose *c = kiln_compose_of(ce->call->op->row);
    for (const kiln_way *w = c->ways; w != c->ways + c->nways; w++) {
        bool taken = true;
        if (w->when)
            KILN_TRY(kiln_note(kiln_expr_holds(&ce->env, w->when, &taken), "%s", ce->call->op->name));
        if (!taken) continue;
        *out = w;
        return KILN_OK;
    }
    return KILN_FAIL(KILN_E_ARG, "%s: the arguments fit no case of this operator", ce->call->op->name);
}

kiln_status kiln_listed_find(const kiln_call_env *env, kiln_listed *out) {
    const kiln_op *op = env->call->op;
    const kiln_way *way;
    *out = (kiln_listed){.item = NULL};
    KILN_TRY(choose_way(env, &way));
    const kiln_called *c = way->calls;
    if (!c) return KILN_OK;
    KILN_TRY(kiln_called_op(op->row, c, op->form, &out->item));
    out->item = kiln_op_within(out->item, op);
    out->each = c->each;
    out->args = &c->args;
    if (way->map) out->unused = c->each & way->map->ignored;
    return KILN_OK;
}

static kiln_status calls(kiln_plan *p) {
    composing c;
    const kiln_row *row = p->call->op->row;
    if (row->listed)
        return KILN_FAIL(KILN_E_UNSUP,
                         "%s: calls for each item of lists have no plan of their own; "
                         "explain the stage 'bind', or the call of one item",
                         p->call->op->name);
    clear(p);
    c.p = p;
    c.nmade = 0;
    p->typed.common = p->typed.promoted = first_dtype(p->call);
    kiln_call_env_init(&c.env, p->call, p->typed.common);
    KILN_TRY(kiln_checks_hold(p->call, p->typed.common));
    KILN_TRY(choose_way(&c.env, &c.way));
    p->typed.branch = (uint8_t)(c.way - kiln_compose_of(row)->ways);
    p->step = kiln_work_take(&p->work, kiln_work_words_of((unsigned)c.way->ncalls, sizeof(kiln_step)),
                             &p->work.step);
    for (int k = 0; k < c.way->ncalls; k++) KILN_TRY(add_call(&c, k));
    KILN_TRY(set_results(&c));
    kiln_plan_end(p);
    return KILN_OK;
}

const kiln_family_fns kiln_family_compose = {.shape = calls};
