/* infer_memo.c - what a row's conditions and promotion gave for the last calls like this one.
 *
 * Branch and dtypes follow from the row, the form, the kinds and dtypes of the arguments, whether a tensor has
 * dimensions or, where that is asked, one element, and the values that conditions ask (row->asked).  Each thread
 * remembers a few such answers, by the digest of the row, so that nothing here can outlive what it speaks of.
 * Only calls that passed are remembered. */
#include <string.h>

#include "infer/infer_parts.h"
#include "tensor/blocks.h"

enum { MEMOS = 32, MEMO_ARGS = 8, MEMO_RETS = 4, MEMO_WORDS = 1 + 2 * MEMO_ARGS + MEMO_RETS };

typedef struct memo {
    kiln_digest row;
    uint64_t word[MEMO_WORDS];
    int branch;
    kiln_dtype promoted, common;
    uint64_t exact;
    bool number;
    kiln_dtype ret_dtype[MEMO_RETS];
} memo;

/* This thread's memos; NULL without memory. */
static memo *memos_here(void) {
    void *here = kiln_blocks_here ? kiln_blocks_here->beside : NULL;
    return here ? here : kiln_blocks_beside(MEMOS * sizeof(memo));
}

/* What of the call decides, as words.  False: too much, or values that cannot be told by a word. */
static bool describe(const kiln_bound *call, uint64_t *word, int *n) {
    const kiln_row *row = call->op->row;
    int nargs = row->schema->nargs;
    if (nargs > MEMO_ARGS || row->schema->nrets > MEMO_RETS) return false;
    *word++ = (uint64_t)call->op->form | (uint64_t)nargs << 8 | (uint64_t)call->nout << 16;
    for (int a = 0; a < nargs; a++) {
        const kiln_value *v = &call->slot[a];
        uint64_t what = v->kind, value = 0;
        bool asked = row->asked >> a & 1;
        if (v->kind == KILN_TENSOR) {
            uint64_t flags = row->asked_single >> a & 1 ? KILN_TF_SCALAR | KILN_TF_SINGLE : KILN_TF_SCALAR;
            what |= (v->u.tensor->sig & (KILN_SIG_TYPE | KILN_SIG_FLAGS(flags))) << 8;
            if (asked) return false;
        } else if (v->kind == KILN_STR_V || v->kind == KILN_LIST_V || (asked && v->kind == KILN_COMPLEX_V)) {
            return false;
        } else if ((asked && v->kind != KILN_NONE) || v->kind == KILN_DTYPE_V) {
            value = (uint64_t)v->u.i;
        }
        *word++ = what;
        *word++ = value;
    }
    for (int k = 0; k < call->nout; k++) *word++ = call->out[k]->dtype;
    *n = 1 + 2 * nargs + call->nout;
    return true;
}

static memo *place_of(const kiln_row *row, const uint64_t *word, int n) {
    uint64_t h = row->digest.lo;
    for (int k = 0; k < n; k++) h = (h ^ word[k]) * UINT64_C(0x9e3779b97f4a7c15);
    memo *memos = memos_here();
    return memos ? &memos[h >> 59] : NULL;
}

bool kiln_memo_find(kiln_plan *p, bool *number) {
    const kiln_row *row = p->call->op->row;
    uint64_t word[MEMO_WORDS];
    int n;
    if (!describe(p->call, word, &n)) return false;
    const memo *m = place_of(row, word, n);
    if (!m || m->row.lo != row->digest.lo || m->row.hi != row->digest.hi) return false;
    for (int k = 0; k < n; k++)
        if (m->word[k] != word[k]) return false;
    p->branch = m->branch;
    p->promoted = m->promoted;
    p->common = m->common;
    p->exact = m->exact;
    p->nrets = row->schema->nrets;
    for (int k = 0; k < p->nrets; k++) p->ret_dtype[k] = m->ret_dtype[k];
    *number = m->number;
    return true;
}

void kiln_memo_keep(const kiln_plan *p, bool number) {
    const kiln_row *row = p->call->op->row;
    uint64_t word[MEMO_WORDS];
    int n;
    if (!describe(p->call, word, &n)) return;
    memo *m = place_of(row, word, n);
    if (!m) return;
    *m = (memo){row->digest, {0}, p->branch, p->promoted, p->common, p->exact, number, {0}};
    memcpy(m->word, word, (size_t)n * sizeof *word);
    memcpy(m->ret_dtype, p->ret_dtype, (size_t)p->nrets * sizeof *m->ret_dtype);
}
