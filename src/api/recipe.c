/* recipe.c - a call whose kinds and dtypes were seen before -> the call bound, its types and its class.
 *
 * A recipe is made from what bind and infer gave, and holds wherever these would give the same again: it compares
 * all that they looked at but sizes and strides, which are inferred for each call.  tests/unit/test_recipe.c calls
 * with and without them. */
#include "api/recipe.h"

#include <string.h>

#include "api/slot.h"

/* Bits of a tensor's signature that types depend on. */
#define SIG_TYPED (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_SCALAR | KILN_TF_NUMBER))

/* Which place the recipe of such a call has. */
static size_t place_of(const kiln_op *op, const kiln_value *args, size_t nargs) {
    uint64_t h = (uint64_t)(uintptr_t)op + nargs;
    for (size_t i = 0; i < nargs; i++) {
        uint64_t word = args[i].kind;
        if (word == KILN_TENSOR && args[i].u.tensor) word = args[i].u.tensor->sig & SIG_TYPED;
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    _Static_assert(KILN_RECIPE_COUNT == 64, "six bits of the product");
    return h >> 58;
}

kiln_recipe *kiln_recipe_find(const kiln_thread *t, const kiln_op *op, const kiln_value *args, size_t nargs) {
    const kiln_slots *mine = t->user;
    if (nargs == 0 || nargs > KILN_RECIPE_ARGS || !mine->recipes) return NULL;
    kiln_recipe *r = &mine->recipes[place_of(op, args, nargs)];
    if (r->op != op || r->nargs != nargs) return NULL;
    const kiln_recipe_arg *a = r->arg;
    for (const kiln_value *v = args, *end = args + nargs; v != end; v++, a++) {
        uint64_t word = (uint64_t)v->u.i;
        if (v->kind != a->kind || (v->name != a->name && !kiln_same_text(v->name, a->name))) return NULL;
        if (v->kind == KILN_TENSOR) {
            if (!word) return NULL;
            word = v->u.tensor->sig;
        }
        if ((word & a->mask) != a->want) return NULL;
        if (v->kind == KILN_STR_V && !kiln_same_text(v->u.s, r->text.letters)) return NULL;
    }
    return r;
}

void kiln_recipe_bind(const kiln_recipe *r, const kiln_value *args, kiln_bound *out) {
    out->op = r->op;
    out->nitems = 0;
    out->nout = r->op->nout;
    for (int i = 0; i < r->nargs; i++) {
        int a = r->arg[i].to, k = r->arg[i].out;
        if (a >= 0) {
            out->arg[a] = args[i];
            out->arg[a].name = NULL;
            out->given[a] = (int8_t)i;
        }
        if (k >= 0) {
            out->out[k] = args[i].u.tensor;
            out->given_out[k] = (int8_t)i;
        }
    }
    for (int k = 0; k < r->ndefaults; k++) {
        out->arg[r->default_arg[k]] = r->defaults[k];
        out->given[r->default_arg[k]] = -1;
    }
}

/* -- making ------------------------------------------------------------------------------------------------- */

/* Where values go, and what arguments are where none is given. */
static bool place_args(kiln_recipe *r, const kiln_value *args, const kiln_plan *plan) {
    const kiln_bound *call = plan->call;
    for (int i = 0; i < r->nargs; i++) r->arg[i].to = r->arg[i].out = -1;
    for (int a = 0; a < call->op->row->schema->nargs; a++) {
        if (call->given[a] >= 0) {
            r->arg[call->given[a]].to = (int8_t)a;
            continue;
        }
        if (r->ndefaults == KILN_RECIPE_DEFAULTS || call->arg[a].kind == KILN_LIST_V) return false;
        r->default_arg[r->ndefaults] = (int8_t)a;
        r->defaults[r->ndefaults++] = call->arg[a];
    }
    for (int k = 0; k < call->nout; k++) {
        if (call->given_out[k] < 0) return false;
        r->arg[call->given_out[k]].out = (int8_t)k;
    }
    for (int i = 0; i < r->nargs; i++) {
        kiln_recipe_arg *to = &r->arg[i];
        if (to->to < 0 && to->out < 0) return false;
        to->kind = (uint8_t)args[i].kind;
        if (!kiln_asked_of(plan, &args[i], to->to, SIG_TYPED, &r->text, &to->mask, &to->want)) return false;
    }
    return true;
}

/* Names given are the caller's; a recipe keeps the schema's. */
static void place_names(kiln_recipe *r, const kiln_value *args) {
    const kiln_schema *s = r->op->schema;
    for (int i = 0; i < r->nargs; i++)
        r->arg[i].name = args[i].name ? s->args[kiln_schema_arg(s, args[i].name)].name : NULL;
}

kiln_recipe *kiln_recipe_make(kiln_thread *t, const kiln_value *args, size_t nargs, const kiln_plan *plan) {
    kiln_slots *mine = nargs && nargs <= KILN_RECIPE_ARGS ? kiln_slots_of(t) : NULL;
    if (mine && !mine->recipes) mine->recipes = kiln_calloc_apart(KILN_RECIPE_COUNT * sizeof *mine->recipes);
    if (!mine || !mine->recipes) return NULL;
    kiln_recipe *r = &mine->recipes[place_of(plan->call->op, args, nargs)];
    uint32_t serial = r->serial + 1;
    memset(r, 0, sizeof *r);
    r->serial = serial;
    r->nargs = (uint8_t)nargs;
    if (!place_args(r, args, plan)) return NULL; /* without an operator it holds nothing */
    r->op = plan->call->op;
    place_names(r, args);
    r->typed = plan->typed;
    return r;
}

/* -- classes ------------------------------------------------------------------------------------------------ */

void kiln_recipe_learn(kiln_recipe *r, const kiln_plan *plan, uint64_t generation, kiln_class *c) {
    int k;
    if (r->generation != generation) {
        memset(r->found, 0, sizeof r->found);
        r->nfound = 0;
        for (k = 0; k < KILN_REPLAY_WAYS; k++) r->kept[k].fn = NULL;
    }
    r->generation = generation;
    k = r->nfound++ % KILN_RECIPE_CLASSES; /* the oldest goes */
    r->found[k].stride_bits = plan->stride_bits;
    r->found[k].c = c;
}

kiln_class *kiln_recipe_class(const kiln_recipe *r, uint64_t generation, const kiln_plan *plan) {
    if (r->generation != generation) return NULL;
    for (int k = 0; k < KILN_RECIPE_CLASSES && r->found[k].c; k++)
        if (r->found[k].stride_bits == plan->stride_bits) return r->found[k].c;
    return NULL;
}
