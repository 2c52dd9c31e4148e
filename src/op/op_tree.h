/* op_tree.h - operators by name, in a balanced tree that never changes: a new tree shares nearly all nodes with the old one.
 *
 * Adding one operator therefore costs a few new nodes, and readers of the old tree need no lock.  Every node counts the operators
 * of its subtree, so that an operator is also found by its position in the order of names.  A node lives in the arena that it was
 * made in; a tree is valid as long as all these arenas.  This code must not know about rows. */
#ifndef KILN_OP_TREE_H
#define KILN_OP_TREE_H
#include "op/op.h"

typedef struct kiln_op_tree {
    const kiln_op *op;
    size_t n;       /* operators of this node and below */
    size_t shipped; /* operators of Kiln's own rows whose names come before this one's */
    const struct kiln_op_tree *left, *right; /* NULL: none */
} kiln_op_tree;

static inline size_t kiln_op_tree_count(const kiln_op_tree *t) { return t ? t->n : 0; }

/* The operator of this name, or NULL.  *before, which may be NULL: how many names of the tree come before it. */
const kiln_op *kiln_op_tree_find(const kiln_op_tree *t, const char *name, size_t *before);
/* The operator at place k in the order of all names, the tree's and Kiln's own.  NULL: one of Kiln's own is at place k.
 * *before: how many of the tree's operators come before place k. */
const kiln_op *kiln_op_tree_at(const kiln_op_tree *t, size_t k, size_t *before);
/* The k-th operator of the tree alone; k < count. */
const kiln_op *kiln_op_tree_nth(const kiln_op_tree *t, size_t k);

/* Replaces *t by a tree that has op, too.  *t must not have op's name yet. */
kiln_status kiln_op_tree_put(kiln_arena *arena, const kiln_op_tree **t, const kiln_op *op,
                             size_t shipped) KILN_MUST_CHECK;
/* *t without the operator of this name; the same tree if it has none. */
kiln_status kiln_op_tree_drop(kiln_arena *arena, const kiln_op_tree **t, const char *name) KILN_MUST_CHECK;
#endif
