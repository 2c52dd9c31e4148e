/* op_tree.c - a sorted set of operators as a weight-balanced tree whose nodes are never changed.
 *
 * Putting in or taking out an operator copies the nodes from the root down to its place, about as many as the logarithm of
 * their number, and turns some of them so that neither side of a node has more than three times the weight of the other.
 * Owns nothing: nodes belong to the caller's arena. */
#include <string.h>

#include "op/op_tree.h"

typedef kiln_op_tree tree;

enum { HEAVIER = 3, TWICE = 2 }; /* these two keep every tree balanced after one turn on each level */

static size_t weight(const tree *t) { return kiln_op_tree_count(t) + 1; }

/* -- looking ------------------------------------------------------------------------------------------------ */

const kiln_op *kiln_op_tree_find(const tree *t, const char *name, size_t *before) {
    size_t less = 0;
    const kiln_op *found = NULL;
    while (t && !found) {
        int order = strcmp(name, t->op->name);
        if (order == 0) found = t->op;
        if (order >= 0) less += kiln_op_tree_count(t->left) + (order > 0);
        t = order < 0 ? t->left : t->right;
    }
    if (before) *before = less;
    return found;
}

const kiln_op *kiln_op_tree_at(const tree *t, size_t k, size_t *before) {
    *before = 0;
    while (t) {
        size_t less = *before + kiln_op_tree_count(t->left);
        if (less + t->shipped == k) return *before = less, t->op;
        if (less + t->shipped < k) *before = less + 1;
        t = less + t->shipped < k ? t->right : t->left;
    }
    return NULL;
}

const kiln_op *kiln_op_tree_nth(const tree *t, size_t k) {
    for (;;) {
        size_t less = kiln_op_tree_count(t->left);
        if (k == less) return t->op;
        t = k < less ? t->left : t->right;
        if (k > less) k -= less + 1;
    }
}

/* -- changing ------------------------------------------------------------------------------------------------ */

/* `of` again, above these two trees. */
static kiln_status node(kiln_arena *arena, const tree *of, const tree *left, const tree *right,
                        const tree **out) {
    tree *t = kiln_arena_alloc(arena, sizeof *t);
    if (!t) return KILN_NOMEM();
    *t = *of;
    t->left = left;
    t->right = right;
    t->n = weight(left) + weight(right) - 1;
    *out = t;
    return KILN_OK;
}

/* The right side is too heavy: its root, or the root of its left side, comes to the top. */
static kiln_status turn_left(kiln_arena *a, const tree *of, const tree *left, const tree *right,
                             const tree **out) {
    const tree *below, *inner = right->left;
    if (weight(inner) < TWICE * weight(right->right)) {
        KILN_TRY(node(a, of, left, inner, &below));
        return node(a, right, below, right->right, out);
    }
    const tree *beside;
    KILN_TRY(node(a, of, left, inner->left, &below));
    KILN_TRY(node(a, right, inner->right, right->right, &beside));
    return node(a, inner, below, beside, out);
}

static kiln_status turn_right(kiln_arena *a, const tree *of, const tree *left, const tree *right,
                              const tree **out) {
    const tree *below, *inner = left->right;
    if (weight(inner) < TWICE * weight(left->left)) {
        KILN_TRY(node(a, of, inner, right, &below));
        return node(a, left, left->left, below, out);
    }
    const tree *beside;
    KILN_TRY(node(a, of, inner->right, right, &below));
    KILN_TRY(node(a, left, left->left, inner->left, &beside));
    return node(a, inner, beside, below, out);
}

static kiln_status balanced(kiln_arena *a, const tree *of, const tree *left, const tree *right,
                            const tree **out) {
    if (weight(left) + weight(right) > 3 && weight(right) > HEAVIER * weight(left))
        return turn_left(a, of, left, right, out);
    if (weight(left) + weight(right) > 3 && weight(left) > HEAVIER * weight(right))
        return turn_right(a, of, left, right, out);
    return node(a, of, left, right, out);
}

static kiln_status put(kiln_arena *a, const tree *t, const tree *leaf, const tree **out) {
    const tree *side;
    if (!t) return node(a, leaf, NULL, NULL, out);
    bool left = strcmp(leaf->op->name, t->op->name) < 0;
    KILN_TRY(put(a, left ? t->left : t->right, leaf, &side));
    return balanced(a, t, left ? side : t->left, left ? t->right : side, out);
}

kiln_status kiln_op_tree_put(kiln_arena *arena, const tree **t, const kiln_op *op, size_t shipped) {
    return put(arena, *t, &(tree){.op = op, .shipped = shipped}, t);
}

/* *first: the node that comes first in t; *rest: t without it. */
static kiln_status split_first(kiln_arena *a, const tree *t, const tree **first, const tree **rest) {
    if (!t->left) return *first = t, *rest = t->right, KILN_OK;
    const tree *left;
    KILN_TRY(split_first(a, t->left, first, &left));
    return balanced(a, t, left, t->right, rest);
}

static kiln_status drop(kiln_arena *a, const tree *t, const char *name, const tree **out) {
    const tree *side, *first;
    int order = strcmp(name, t->op->name);
    if (order == 0 && !t->left) return *out = t->right, KILN_OK;
    if (order == 0 && !t->right) return *out = t->left, KILN_OK;
    if (order == 0) {
        KILN_TRY(split_first(a, t->right, &first, &side));
        return balanced(a, first, t->left, side, out);
    }
    KILN_TRY(drop(a, order < 0 ? t->left : t->right, name, &side));
    return balanced(a, t, order < 0 ? side : t->left, order < 0 ? t->right : side, out);
}

kiln_status kiln_op_tree_drop(kiln_arena *arena, const tree **t, const char *name) {
    return kiln_op_tree_find(*t, name, NULL) ? drop(arena, *t, name, t) : KILN_OK;
}
