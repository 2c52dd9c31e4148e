/* row_twins.c - branches of a row that generate the same code.
 *
 * Two branches may differ in nothing but what given outputs may be or how new ones are laid out: lerp's do, by whether
 * the weight has dimensions, and clone's, by its memory format.  Calls of either are of one class, so the key names
 * the first of such twins. */
#include <string.h>

#include "op/row.h"

static bool same_expr(const kiln_expr *a, const kiln_expr *b) {
    if (!a || !b) return a == b;
    if (a->kind != b->kind || a->nargs != b->nargs || a->ncoord != b->ncoord ||
        !kiln_str_eq(a->name, b->name))
        return false;
    if (a->prim != b->prim || a->is_float != b->is_float || a->i != b->i || a->skip != b->skip) return false;
    if (memcmp(&a->f, &b->f, sizeof a->f) != 0 || !same_expr(a->other, b->other)) return false;
    for (int k = 0; k < a->nargs; k++)
        if (!same_expr(a->args[k], b->args[k])) return false;
    for (int k = 0; k < a->ncoord; k++)
        if (a->coord[k].rest != b->coord[k].rest || !same_expr(a->coord[k].dim, b->coord[k].dim) ||
            !same_expr(a->coord[k].at, b->coord[k].at))
            return false;
    return true;
}

bool kiln_row_same_list(const kiln_nameds *a, const kiln_nameds *b) {
    if (a->n != b->n) return false;
    for (int k = 0; k < a->n; k++) {
        const kiln_named *s = &a->at[k], *t = &b->at[k];
        if (strcmp(s->name, t->name) != 0 || s->dtype != t->dtype || s->real != t->real ||
            s->wide != t->wide || s->each != t->each || s->empty != t->empty || !same_expr(s->expr, t->expr))
            return false;
    }
    return true;
}

/* All that lowering and the order of operands look at: everything but typing.out and typing.strides. */
static bool same_code(const kiln_row *row, const kiln_branch *a, const kiln_branch *b) {
    const kiln_folding_rules *folding = kiln_rules(row)->folding;
    const kiln_typing *s = &a->typing, *t = &b->typing;
    if (a->family != b->family || a->nbody != b->nbody || a->uses != b->uses || a->knows != b->knows ||
        a->exact != b->exact)
        return false;
    if (s->promo != t->promo || s->args != t->args || s->numbers != t->numbers || s->norder != t->norder ||
        s->dtype_arg != t->dtype_arg || memcmp(s->ret, t->ret, sizeof s->ret) != 0 ||
        memcmp(s->order, t->order, (size_t)s->norder) != 0)
        return false;
    for (int k = 0; k < a->nbody; k++)
        if (!same_expr(a->body[k], b->body[k])) return false;
    return !folding || folding->same(a->reduce, b->reduce);
}

void kiln_row_find_twins(kiln_row *row) {
    for (int b = 0; b < row->nbranches; b++) {
        int first = 0;
        while (first < b && !same_code(row, &row->branches[first], &row->branches[b])) first++;
        row->branches[b].code = first;
    }
}
