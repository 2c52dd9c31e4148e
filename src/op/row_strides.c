/* row_strides.c - the attribute `strides` of a row: how the strides of its new results come about.
 *
 *   rows | like ARG | format ARG | channels_last | channels_last_3d | without numbers | ( CHAIN )
 * A chain names the iterators that PyTorch runs one after the other, `((self, mask), number)`: brackets hold what one
 * of them walks.  It is kept as links in the order in which they are worked out.  What they come to for actual
 * tensors is infer's business. */
#include "op/row.h"

/* A tensor argument that every call gives. */
static kiln_status parse_tensor(kiln_lex *lx, const kiln_row *row, int *out) {
    *out = lx->tok == KILN_TOK_NAME ? kiln_schema_arg(row->schema, lx->str) : -1;
    if (*out < 0 || !kiln_row_is_tensor(row, *out) || kiln_row_optional(row, *out))
        return kiln_lex_fail(lx, "the name of a tensor that is always given");
    return kiln_lex_next(lx);
}

/* -- chains -------------------------------------------------------------------------------------------- */

typedef struct chain {
    kiln_typing *to;
    int inside[KILN_MAX_LINKS]; /* layouts in each open bracket so far */
    int open;                   /* brackets */
    int waiting;                /* layouts that no iterator has taken yet */
} chain;

static kiln_status add_link(kiln_lex *lx, chain *c, kiln_link_kind kind, int n, kiln_dtype dtype) {
    c->waiting += kind == KILN_LINK_MEET ? 1 - n : 1;
    if (c->to->nchain == KILN_MAX_LINKS || c->waiting > KILN_MAX_LINKED)
        return kiln_lex_fail(lx, "at most 16 names and brackets, 4 layouts at a time");
    c->to->chain[c->to->nchain++] = (kiln_link){(uint8_t)kind, (uint8_t)n, (uint8_t)dtype};
    return KILN_OK;
}

/* [part | rows | DTYPE] ARG, or number */
static kiln_status parse_layout(kiln_lex *lx, const kiln_row *row, chain *c) {
    kiln_link_kind kind = KILN_LINK_OWN;
    kiln_dtype dtype = 0;
    int arg = 0;
    c->inside[c->open - 1]++;
    if (kiln_lex_is(lx, "number")) {
        KILN_TRY(kiln_lex_next(lx));
        return add_link(lx, c, KILN_LINK_NUMBER, 0, 0);
    }
    while (dtype < KILN_DTYPE_COUNT && !kiln_lex_is(lx, kiln_dtype_name(dtype))) dtype++;
    if (dtype < KILN_DTYPE_COUNT)
        kind = KILN_LINK_TO;
    else if (kiln_lex_is(lx, "part") || kiln_lex_is(lx, "rows"))
        kind = kiln_lex_is(lx, "part") ? KILN_LINK_PART : KILN_LINK_ROWS;
    if (kind != KILN_LINK_OWN) KILN_TRY(kiln_lex_next(lx));
    KILN_TRY(parse_tensor(lx, row, &arg));
    return add_link(lx, c, kind, arg, dtype);
}

/* What follows the first `(`. */
static kiln_status parse_chain(kiln_lex *lx, const kiln_row *row, chain *c) {
    bool opens, closes;
    for (c->open = 1; c->open;) {
        KILN_TRY(kiln_lex_accept(lx, "(", &opens));
        if (opens && c->open == KILN_MAX_LINKS) return kiln_lex_fail(lx, "at most 16 brackets");
        if (opens) {
            c->inside[c->open - 1]++;
            c->inside[c->open++] = 0;
            continue;
        }
        KILN_TRY(parse_layout(lx, row, c));
        KILN_TRY(kiln_lex_accept(lx, ")", &closes));
        while (closes) {
            KILN_TRY(add_link(lx, c, KILN_LINK_MEET, c->inside[--c->open], 0));
            closes = false;
            if (c->open) KILN_TRY(kiln_lex_accept(lx, ")", &closes));
        }
        if (c->open) KILN_TRY(kiln_lex_expect(lx, ","));
    }
    return KILN_OK;
}

kiln_status kiln_row_strides(kiln_lex *lx, kiln_row *row, kiln_typing *t) {
    static const char *const words[] = {[KILN_STRIDES_WITHOUT] = "without",
                                        [KILN_STRIDES_ROWS] = "rows",
                                        [KILN_STRIDES_LIKE] = "like",
                                        [KILN_STRIDES_CHANNELS_LAST] = "channels_last",
                                        [KILN_STRIDES_CHANNELS_LAST_3D] = "channels_last_3d",
                                        [KILN_STRIDES_FORMAT] = "format"};
    int s = KILN_STRIDES_WITHOUT, last = KILN_STRIDES_FORMAT;
    bool did;
    t->nchain = 0;
    KILN_TRY(kiln_lex_accept(lx, "(", &did));
    if (did) {
        t->strides = KILN_STRIDES_CHAIN;
        return parse_chain(lx, row, &(chain){.to = t});
    }
    while (s <= last && !(words[s] && kiln_lex_is(lx, words[s]))) s++;
    if (s > last)
        return kiln_lex_fail(lx, "rows, like, format, without, channels_last, channels_last_3d or '('");
    t->strides = (kiln_strides)s;
    KILN_TRY(kiln_lex_next(lx));
    if (s == KILN_STRIDES_WITHOUT) return kiln_lex_expect(lx, "numbers");
    return s == KILN_STRIDES_LIKE || s == KILN_STRIDES_FORMAT ? parse_tensor(lx, row, &t->like) : KILN_OK;
}

int kiln_typing_sizes_of(const kiln_typing *t) {
    if (t->strides == KILN_STRIDES_FORMAT) return t->like;
    bool rows = t->strides == KILN_STRIDES_CHAIN && t->nchain == 2 && t->chain[0].kind == KILN_LINK_ROWS;
    return rows ? t->chain[0].n : -1;
}
