/* verify.c - what holds in every graph: order, arity, unique names, one output at the end, uses in step.
 *
 * Linear in nodes and arguments.  Tells the first breach with the names of the nodes.  That the names of
 * keyword arguments are unique is seen to when they are set.  Must not know schemas. */
#include "graph/graph.h"

typedef struct checking {
    kiln_node *user;
    const kiln_node *bad; /* used too early or not of the graph */
    uint32_t distinct;
} checking;

static void check_use(void *state, kiln_node *used) {
    checking *c = state;
    if (!c->bad && (used->graph != c->user->graph || used->erased || used->epoch != c->user->graph->epoch))
        c->bad = used;
    if (used->mark == c->user) return;
    used->mark = c->user;
    c->distinct++;
}

static kiln_status breach(const kiln_node *user, const kiln_node *used) {
    const char *why = used->graph != user->graph ? "is of another graph"
                      : used->erased             ? "is erased"
                                                 : "comes later";
    return KILN_FAIL(KILN_E_VERIFY, "node %.80s uses %.80s, which %s", user->name, used->name, why);
}

static kiln_status check_uses(kiln_node *node) {
    checking c = {.user = node};
    uint32_t noted = 0;
    for (uint32_t i = 0; i < node->nargs; i++) kiln_gval_visit(node->args[i], check_use, &c);
    for (uint32_t i = 0; i < node->nkwargs; i++) kiln_gval_visit(node->kwargs[i].value, check_use, &c);
    if (c.bad) return breach(node, c.bad);
    for (const kiln_use *u = node->uses; u; u = u->of_user, noted++) u->used->mark = NULL;
    if (noted != c.distinct)
        return KILN_FAIL(KILN_E_VERIFY, "node %.80s uses %u nodes, but %u are noted", node->name, c.distinct,
                         noted);
    return KILN_OK;
}

static kiln_status check_node(kiln_node *node) {
    bool call = node->op == KILN_CALL_FUNCTION;
    if (node->target->has_node || (node->type && node->type->has_node))
        return KILN_FAIL(KILN_E_VERIFY, "the target or type of node %.80s holds a node", node->name);
    if (node->op == KILN_OUTPUT && node->next)
        return KILN_FAIL(KILN_E_VERIFY, "node %.80s is an output, but %.80s follows it", node->name,
                         node->next->name);
    if (!call && node->target->kind != KILN_G_STR)
        return KILN_FAIL(KILN_E_VERIFY, "the target of node %.80s is no name", node->name);
    if (node->op == KILN_PLACEHOLDER && node->nargs && node->args[0]->has_node)
        return KILN_FAIL(KILN_E_VERIFY, "the default of placeholder %.80s holds a node", node->name);
    return check_uses(node);
}

static kiln_status number_nodes(kiln_graph *g) {
    uint32_t order = 0;
    g->epoch++;
    for (kiln_node *node = g->first; node; node = node->next) {
        if (order >= g->count || (node->next && node->next->prev != node))
            return KILN_FAIL(KILN_E_VERIFY, "the list of nodes is broken at %.80s", node->name);
        KILN_TRY(check_node(node)); /* what it uses has been numbered in this epoch */
        node->order = order++;
        node->epoch = g->epoch;
    }
    if (order != g->count) return KILN_FAIL(KILN_E_VERIFY, "%zu nodes, but %u are listed", g->count, order);
    return KILN_OK;
}

kiln_status kiln_graph_number(kiln_graph *g) {
    kiln_status st = number_nodes(g);
    for (kiln_node *node = g->first; node && st != KILN_OK; node = node->next) node->mark = NULL;
    return st;
}

/* Names are unique by making; that they are is looked up apart, as it costs as much as all the rest. */
kiln_status kiln_graph_verify(kiln_graph *g) {
    KILN_NEED(g);
    KILN_TRY(kiln_graph_number(g));
    for (const kiln_node *node = g->first; node; node = node->next)
        if (kiln_graph_find(g, node->name, node->name_len) != node)
            return KILN_FAIL(KILN_E_VERIFY, "two nodes are named %.80s", node->name);
    return KILN_OK;
}
