/* recipe.c - a call whose kinds and dtypes were seen before -> the call bound, its types and its class; and its memos.
 *
 * A recipe is made from what bind and infer gave, and holds wherever these would give the same again: it compares
 * all that they looked at but sizes and strides, which are inferred for each call.  tests/unit/test_recipe.c calls
 * with and without them. */
#include <stddef.h>
#include <string.h>

#include "api/memo.h"

/* -- a thread's own --------------------------------------------------------------------------------------------- */

static kiln_memo empty = {.op = (const kiln_op *)&empty}; /* never written */
kiln_slots kiln_slots_none = {.at = {[0 ... KILN_SLOT_COUNT - 1] = &empty}};

kiln_slots *kiln_slots_of(kiln_thread *t) {
    if (t->user == &kiln_slots_none) {
        kiln_slots *slots = kiln_calloc_apart(sizeof *slots);
        if (!slots) return NULL;
        *slots = kiln_slots_none;
        t->user = slots;
    }
    return t->user;
}

void kiln_slot_set(kiln_slots *slots, kiln_memo *m) {
    kiln_op_number(m->op);
    kiln_memo **at = kiln_slot_of(slots, m->op);
    bool stays = (*at)->op == m->op && (*at)->generation == m->generation && (*at)->flat && !m->flat;
    if (stays && ++(*at)->missed % KILN_SLOT_PATIENCE) return;
    *at = m;
}

static kiln_recipe no_recipe; /* in places that were not needed yet; never written */

static void free_recipe(kiln_recipe *r) {
    if (r == &no_recipe) return;
    for (int way = 0; way < KILN_RECIPE_WAYS; way++) kiln_free(r->way[way]);
    kiln_free(r);
}

void kiln_slots_free(void *user) {
    kiln_slots *slots = user;
    if (slots == &kiln_slots_none) return;
    for (int k = 0; slots->recipes && k < KILN_RECIPE_COUNT; k++) free_recipe(slots->recipes[k]);
    kiln_free(slots->recipes);
    kiln_free(slots);
}

/* -- finding ---------------------------------------------------------------------------------------------------- */

/* Bits of a tensor's signature that types depend on. */
#define SIG_TYPED (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_SCALAR | KILN_TF_NUMBER))

/* The first of the KILN_RECIPE_NEAR places that may hold the recipe of this call. */
static size_t place_of(const kiln_op *op, const kiln_value *args, size_t nargs) {
    uint64_t h = (uint64_t)(uintptr_t)op + nargs;
    for (size_t i = 0; i < nargs; i++) {
        uint64_t word = args[i].kind;
        if (word == KILN_TENSOR && args[i].u.tensor) word = args[i].u.tensor->sig & SIG_TYPED;
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    _Static_assert(KILN_RECIPE_COUNT == 32 * KILN_RECIPE_NEAR, "five bits of the product");
    return (h >> 59) * KILN_RECIPE_NEAR;
}

static bool is_for(const kiln_recipe *r, const kiln_op *op, const kiln_value *args, size_t nargs) {
    return r->op == op && r->op_serial == op->serial && r->nargs == nargs &&
           kiln_asked_match(&r->asked, nargs, args);
}

KILN_HOT kiln_recipe *kiln_recipe_find(const kiln_thread *t, const kiln_op *op, const kiln_value *args,
                                       size_t nargs) {
    const kiln_slots *mine = t->user;
    if (nargs == 0 || nargs > KILN_MEMO_ARGS || !mine->recipes) return NULL;
    kiln_recipe *const *r = &mine->recipes[place_of(op, args, nargs)];
    for (kiln_recipe *const *end = r + KILN_RECIPE_NEAR; r != end; r++)
        if (is_for(*r, op, args, nargs)) return *r;
    return NULL;
}

KILN_HOT void kiln_recipe_bind(const kiln_recipe *r, const kiln_value *args, kiln_bound *out) {
    out->op = r->op;
    out->nitems = 0;
    out->nout = r->op->nout;
    for (int i = 0; i < r->nargs; i++) {
        int a = r->place[i].to, k = r->place[i].out;
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
static bool place_args(kiln_recipe *r, const kiln_plan *plan) {
    const kiln_bound *call = plan->call;
    for (int i = 0; i < r->nargs; i++) r->place[i].to = r->place[i].out = -1;
    for (int a = 0; a < call->op->row->schema->nargs; a++) {
        if (call->given[a] >= 0) {
            r->place[call->given[a]].to = (int8_t)a;
            continue;
        }
        if (r->ndefaults == KILN_RECIPE_DEFAULTS || call->arg[a].kind == KILN_LIST_V) return false;
        r->default_arg[r->ndefaults] = (int8_t)a;
        r->defaults[r->ndefaults++] = call->arg[a];
    }
    for (int k = 0; k < call->nout; k++) {
        if (call->given_out[k] < 0) return false;
        r->place[call->given_out[k]].out = (int8_t)k;
    }
    return true;
}

/* What is asked of values.  Names given are the caller's; a recipe keeps the schema's.  A list
 * that no condition asks may be any. */
static bool ask_args(kiln_recipe *r, const kiln_value *args, const kiln_plan *plan) {
    const kiln_schema *s = plan->call->op->schema;
    uint64_t asked = plan->call->op->row->asked;
    kiln_asking asking = {&r->asked, plan, asked, false};
    for (unsigned i = 0; i < r->nargs; i++) {
        kiln_memo_arg *to = &r->asked.arg[i];
        int a = r->place[i].to;
        if (a < 0 && r->place[i].out < 0) return false;
        if (!kiln_ask(&asking, &args[i], i, a, SIG_TYPED)) return false;
        to->name = args[i].name ? s->args[kiln_schema_arg(s, args[i].name)].name : NULL;
        if (to->kind == KILN_LIST_V && !(asked >> a & 1)) to->list.n = KILN_ANY_LIST;
    }
    r->sized = asking.sized;
    return true;
}

/* The place for a new recipe: an empty one, else the one whose recipe was replaced least often.  So a composition
 * and up to KILN_RECIPE_NEAR - 1 calls that it makes never displace each other, wherever operators lie in memory. */
static kiln_recipe **place_to_fill(kiln_recipe **r) {
    kiln_recipe **best = r;
    for (kiln_recipe **end = r + KILN_RECIPE_NEAR; r != end && (*best)->op; r++)
        if (!(*r)->op || (*r)->serial < (*best)->serial) best = r;
    return best;
}

/* The thread's places, made on first use; NULL without memory. */
static kiln_recipe **places_of(kiln_thread *t) {
    kiln_slots *mine = kiln_slots_of(t);
    if (!mine || mine->recipes) return mine ? mine->recipes : NULL;
    mine->recipes = kiln_calloc_apart(KILN_RECIPE_COUNT * sizeof *mine->recipes);
    for (int k = 0; mine->recipes && k < KILN_RECIPE_COUNT; k++) mine->recipes[k] = &no_recipe;
    return mine->recipes;
}

kiln_recipe *kiln_recipe_make(kiln_thread *t, const kiln_value *args, size_t nargs, const kiln_plan *plan) {
    kiln_recipe **places = nargs && nargs <= KILN_MEMO_ARGS ? places_of(t) : NULL;
    if (!places) return NULL;
    kiln_recipe **place = place_to_fill(&places[place_of(plan->call->op, args, nargs)]);
    kiln_recipe *r = *place == &no_recipe ? kiln_calloc_apart(sizeof *r) : *place;
    if (!r) return NULL;
    *place = r;
    kiln_recipe was = {.serial = r->serial + 1};
    memcpy(was.way, r->way,
           sizeof was.way); /* memos of the last one may answer until others take their places */
    *r = was;
    r->nargs = (uint8_t)nargs;
    if (!place_args(r, plan) || !ask_args(r, args, plan))
        return NULL; /* without an operator it holds nothing */
    r->op = plan->call->op;
    r->op_serial = r->op->serial;
    r->typed = plan->typed;
    r->sized |= plan->kind == KILN_CLASS_COMPOSITION; /* which has no types of its own */
    r->sized |= plan->call->op->row->asks_given && plan->call->nout;
    return r;
}

/* -- classes ------------------------------------------------------------------------------------------------ */

void kiln_recipe_learn(kiln_recipe *r, const kiln_plan *plan, uint64_t generation, kiln_class *c) {
    if (r->generation != generation) {
        memset(r->found, 0, sizeof r->found);
        r->nfound = 0;
    }
    r->generation = generation;
    int k = r->nfound++ % KILN_RECIPE_CLASSES; /* the oldest goes */
    r->found[k].stride_bits = plan->stride_bits;
    r->found[k].c = c;
}

KILN_HOT kiln_class *kiln_recipe_class(const kiln_recipe *r, uint64_t generation, const kiln_plan *plan) {
    if (r->generation != generation) return NULL;
    for (int k = 0; k < KILN_RECIPE_CLASSES && r->found[k].c; k++)
        if (r->found[k].stride_bits == plan->stride_bits) return r->found[k].c;
    return NULL;
}

/* -- memos --------------------------------------------------------------------------------------------------- */

kiln_memo *kiln_recipe_way(kiln_recipe *r, bool flat) {
    kiln_memo **m = flat ? &r->way[0] : &r->way[1 + r->oldest];
    bool holds = *m && (*m)->op == r->op && (*m)->serial == r->serial && (*m)->generation == r->generation;
    if (!flat) { /* one that was used meanwhile stays */
        if (holds && (*m)->used) r->passed = 0;
        if (holds) (*m)->used = false;
        if (holds && ++r->passed < KILN_RECIPE_PATIENCE) return NULL;
        r->passed = 0;
        r->oldest = (uint8_t)((r->oldest + 1) % (KILN_RECIPE_WAYS - 1));
    }
    if (!*m) *m = kiln_calloc_apart(flat ? offsetof(kiln_memo, walk) : sizeof **m);
    return *m;
}
