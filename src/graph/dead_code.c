/* dead_code.c - erases nodes whose value nothing uses and whose run nothing would miss.
 *
 * What is unknown stays: only reads of attributes, operators of Python that do not write, and operators
 * whose schema neither writes nor draws random numbers are erased.  One pass from the end, so chains go in
 * one go. */
#include <string.h>

#include "graph/overloads.h"
#include "graph/torch_python.h"

static bool is_pure(const kiln_schema *s) {
    for (int k = 0; k < s->nargs; k++)
        if (kiln_param_writes(&s->args[k])) return false;
    return s->nrets > 0 && !s->vararg && !s->varret;
}

/* Of a call that may mean several overloads, those that write through `out` count only if it has such an
 * argument. */
static kiln_status callee_pure(kiln_schemas *s, const kiln_node *node, const kiln_callee *c, bool *out) {
    *out = true;
    for (uint32_t k = 0; k < node->nkwargs; k++)
        if (!c->only && strcmp(node->kwargs[k].name, "out") == 0) *out = false;
    for (kiln_overload *o = c->only ? c->only : c->first; o && *out; o = c->only ? NULL : o->next) {
        const kiln_schema *schema;
        KILN_TRY(kiln_overload_schema(s, o, &schema));
        bool out_form = !c->only && schema->nargs && schema->args[schema->nargs - 1].kwarg_only &&
                        kiln_param_writes(&schema->args[schema->nargs - 1]);
        if (!out_form && !is_pure(schema)) *out = false;
        if (kiln_torch_is_random(o->line, o->n)) *out = false;
    }
    return KILN_OK;
}

static bool is_pure_python(const kiln_gval *t) {
    static const char operator[] = "operator:", getattr[] = "builtins:getattr";
    static const char *const writers[] = {"setitem", "delitem", "call", "methodcaller"};
    size_t skip = sizeof operator- 1;
    if (t->n == sizeof getattr - 1 && memcmp(t->u.s, getattr, t->n) == 0) return true;
    if (t->kind != KILN_G_FUNC || t->n <= skip || memcmp(t->u.s, operator, skip) != 0) return false;
    const char *name = t->u.s + skip;
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
        if (strcmp(name, writers[i]) == 0) return false;
    bool in_place = name[0] == 'i' && strncmp(name, "is_", 3) != 0 && strncmp(name, "inv", 3) != 0 &&
                    strcmp(name, "index") != 0 && strcmp(name, "indexOf") != 0;
    return !in_place;
}

static kiln_status removable(kiln_schemas *s, const kiln_node *node, bool *out) {
    *out = node->op == KILN_GET_ATTR;
    if (node->op != KILN_CALL_FUNCTION && node->op != KILN_CALL_METHOD) return KILN_OK;
    if (node->op == KILN_CALL_FUNCTION && is_pure_python(node->target)) {
        *out = true;
        return KILN_OK;
    }
    kiln_callee callee;
    KILN_TRY(kiln_callee_of(s, node, &callee));
    return callee.form == KILN_FORM_NONE ? KILN_OK : callee_pure(s, node, &callee, out);
}

kiln_status kiln_graph_dead_code(kiln_schemas *s, kiln_graph *g, kiln_keep_fn keep, void *user,
                                 size_t *nerased) {
    KILN_NEED(s, g);
    size_t erased = 0;
    for (kiln_node *node = g->last, *prev; node; node = prev) {
        bool dead;
        prev = node->prev;
        if (node->nusers) continue;
        KILN_TRY(removable(s, node, &dead));
        if (!dead || (keep && keep(user, node))) continue;
        KILN_TRY(kiln_graph_erase(node));
        erased++;
    }
    if (nerased) *nerased = erased;
    return KILN_OK;
}
