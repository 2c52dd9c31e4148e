/* asked.c - the values of a call that was inferred -> what is asked of those of a later call.
 *
 * Keeps for each value the word that bind, conditions and promotion looked at, the bits of it that count, the items of
 * lists and one text.  asked.h compares.  Must not know what is remembered, nor for how long. */
#include "api/asked.h"

static bool keep_text(kiln_asked *asked, const char *text) {
    size_t n = strlen(text) + 1;
    if (asked->has_text || n > sizeof asked->text) return false;
    asked->has_text = true;
    memcpy(asked->text, text, n);
    return true;
}

/* A list of integers, or of truth values, that was bound as it is. */
static bool keep_list(kiln_asked *asked, const kiln_value *v, const kiln_value *bound, kiln_memo_arg *to) {
    if (bound->kind != KILN_LIST_V || bound->u.list != v->u.list) return false;
    if (asked->nitems + (int)v->n > KILN_MEMO_ITEMS) return false;
    asked->has_list = true;
    to->list.n = v->n;
    to->list.first = (uint64_t)asked->nitems;
    to->elem = v->n && v->u.list[0].kind == KILN_BOOL_V ? KILN_BOOL_V : KILN_INT_V;
    for (uint32_t k = 0; k < v->n; k++) {
        if (v->u.list[k].kind != to->elem) return false;
        asked->items[asked->nitems++] = v->u.list[k].u.i;
    }
    return true;
}

static void keep_bits(kiln_memo_arg *to, uint64_t mask, uint64_t word) {
    to->bits = (kiln_bits){mask, word & mask};
}

bool kiln_ask(kiln_asking *to, const kiln_value *v, unsigned i, int a, uint64_t sig) {
    const kiln_bound *call = to->plan->call;
    bool payload = a >= 0 && to->values >> a & 1;
    kiln_memo_arg *arg = &to->asked->arg[i];
    arg->data = &to->asked->unused;
    arg->kind = v->kind;
    keep_bits(arg, 0, 0);
    if (a < 0 ? v->kind != KILN_TENSOR : v->kind != call->arg[a].kind) return false; /* was converted */
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: return true;
    case KILN_GENERATOR_V: return false;
    case KILN_TENSOR:
        if (a >= 0 && call->op->row->asked_single >> a & 1) sig |= KILN_SIG_FLAGS(KILN_TF_SINGLE);
        keep_bits(arg, sig, v->u.tensor->sig);
        to->sized |= payload;
        return true;
    case KILN_STR_V: return keep_text(to->asked, v->u.s);
    case KILN_DTYPE_V:
    case KILN_BOOL_V:
    case KILN_INT_V:
    case KILN_UINT_V:
    case KILN_FLOAT_V:
        keep_bits(arg, payload || v->kind == KILN_DTYPE_V ? UINT64_MAX : 0, (uint64_t)v->u.i);
        return true;
    case KILN_COMPLEX_V: return !payload;
    case KILN_LIST_V: return keep_list(to->asked, v, &call->arg[a], arg);
    }
    return false;
}

KILN_HOT bool kiln_asked_match(const kiln_asked *asked, size_t n, const kiln_value *args) {
    return kiln_values_match(asked, asked->arg, asked->arg + n, NULL, args, KILN_LOOK_ALL);
}
