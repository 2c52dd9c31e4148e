/* asked.c - a value that was bound and inferred -> what must be the same of the next one.
 *
 * See asked.h for what that is.  Errs on the side of refusing: a call that is not remembered costs time only. */
#include "api/asked.h"

#include "tensor/tensor.h"

static bool keep_text(kiln_asked_text *to, const char *text) {
    size_t n = strlen(text) + 1;
    if (to->given || n > sizeof to->letters) return false;
    to->given = true;
    memcpy(to->letters, text, n);
    return true;
}

bool kiln_asked_of(const kiln_plan *plan, const kiln_value *v, int a, uint64_t sig, kiln_asked_text *text,
                   uint64_t *mask, uint64_t *want) {
    const kiln_row *row = plan->call->op->row;
    bool asked = a >= 0 && row->asked >> a & 1;
    *mask = *want = 0;
    if (a < 0 ? v->kind != KILN_TENSOR : v->kind != plan->call->arg[a].kind) return false; /* was converted */
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: return true;
    case KILN_TENSOR:
        *mask = sig;
        if (a >= 0 && row->asked_single >> a & 1) *mask |= KILN_SIG_FLAGS(KILN_TF_SINGLE);
        *want = v->u.tensor->sig & *mask;
        return !asked; /* its sizes matter */
    case KILN_STR_V: return keep_text(text, v->u.s);
    case KILN_DTYPE_V:
    case KILN_BOOL_V:
    case KILN_INT_V:
    case KILN_FLOAT_V:
        if (asked || v->kind == KILN_DTYPE_V) *mask = UINT64_MAX;
        *want = (uint64_t)v->u.i & *mask;
        return true;
    case KILN_COMPLEX_V: return !asked;
    case KILN_LIST_V: break;
    }
    return false;
}
