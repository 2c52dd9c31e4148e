/* overloads.c - PyTorch's schemas by operator name, and which of them a node calls.
 *
 * The list that ships with the library is in order of names; a schema is parsed when it is first asked for.  Owns
 * its arena, and knows what a target's spelling says about the operator, but nothing about arguments. */
#include <stdio.h>
#include <string.h>

#include "graph/overloads.h"
#include "graph/torch_python.h"
#include "schema/schema_list.h"

struct kiln_schemas {
    kiln_arena arena;
    kiln_overload
        *of; /* one for each line of the list; those not asked for are zero, and their pages untouched */
};

/* -- schemas ------------------------------------------------------------------------------------------ */

kiln_status kiln_schemas_new(kiln_schemas **out) {
    KILN_NEED(out);
    kiln_schemas *s = kiln_calloc(1, sizeof *s);
    kiln_overload *of = kiln_calloc(kiln_torch_schemas.nlines, sizeof *of);
    if (!s || !of) {
        kiln_free(of);
        kiln_free(s);
        return KILN_NOMEM();
    }
    s->of = of;
    kiln_arena_init(&s->arena);
    *out = s;
    return KILN_OK;
}

void kiln_schemas_free(kiln_schemas *s) {
    if (!s) return;
    kiln_arena_free(&s->arena);
    kiln_free(s->of);
    kiln_free(s);
}

kiln_overload *kiln_schemas_find(const kiln_schemas *s, const char *name, size_t n) {
    size_t first, count = kiln_schema_list_overloads(&kiln_torch_schemas, name, n, &first);
    kiln_overload *of = s->of + first;
    for (size_t k = 0; k < count && !of[k].line; k++) {
        kiln_schema_line line = kiln_schema_list_at(&kiln_torch_schemas, first + k);
        of[k] = (kiln_overload){.line = line.text, .n = line.n, .next = k + 1 < count ? &of[k + 1] : NULL};
    }
    return count ? of : NULL;
}

kiln_status kiln_overload_schema(kiln_schemas *s, kiln_overload *o, const kiln_schema **out) {
    if (!o->schema) {
        kiln_schema *parsed;
        size_t n = 0;
        while (n < o->n && o->line[n] != '(') n++;
        KILN_TRY(kiln_schema_parse(&s->arena, o->line, o->n, &parsed));
        o->name = kiln_arena_strndup(&s->arena, o->line, n);
        if (!o->name) return KILN_NOMEM();
        o->schema = parsed;
    }
    *out = o->schema;
    return KILN_OK;
}

/* -- what a node calls -------------------------------------------------------------------------------- */

/* The name after `prefix`, or NULL. */
static const char *after(const kiln_gval *t, const char *prefix) {
    size_t n = strlen(prefix);
    return t->n > n && memcmp(t->u.s, prefix, n) == 0 ? t->u.s + n : NULL;
}

/* How the operator is called that a target names, without a name space; NULL: the target names none. */
static const char *bare_name(const kiln_node *node, kiln_call_form *form) {
    const kiln_gval *t = node->target;
    *form = KILN_FORM_METHOD;
    if (node->op == KILN_CALL_METHOD) return kiln_torch_is_method(t->u.s, t->n) ? NULL : t->u.s;
    if (t->kind != KILN_G_FUNC) return NULL;
    const char *name = after(t, "torch:Tensor."), *end = t->u.s + t->n;
    if (!name) name = after(t, "torch._C:TensorBase.");
    if (name) return kiln_torch_is_method(name, (size_t)(end - name)) ? NULL : name;
    const char *colon = memchr(t->u.s, ':', t->n);
    *form = KILN_FORM_TORCH;
    if (!colon || !kiln_torch_wraps(t->u.s, (size_t)(colon - t->u.s))) return NULL;
    return kiln_torch_is_function(colon + 1, (size_t)(end - colon - 1)) ? NULL : colon + 1;
}

kiln_call_form kiln_callee_name(const kiln_node *node, char full[KILN_CALLEE_MAX]) {
    kiln_call_form form = KILN_FORM_OVERLOAD;
    const kiln_gval *t = node->target;
    bool calls = node->op == KILN_CALL_FUNCTION || node->op == KILN_CALL_METHOD;
    bool whole = node->op == KILN_CALL_FUNCTION && t->kind == KILN_G_OP;
    const char *name = whole ? t->u.s : calls ? bare_name(node, &form) : NULL;
    size_t n = name ? (size_t)(t->u.s + t->n - name) : 0;
    if (!name || n + sizeof "aten::" > KILN_CALLEE_MAX) return KILN_FORM_NONE;
    snprintf(full, KILN_CALLEE_MAX, "%s%.*s", whole ? "" : "aten::", (int)n, name);
    return form;
}

/* "aten::add.Tensor" names one overload, "aten::relu.default" the one without a name, "aten::add" all. */
kiln_status kiln_callee_of(kiln_schemas *s, const kiln_node *node, kiln_callee *out) {
    char full[KILN_CALLEE_MAX];
    *out = (kiln_callee){kiln_callee_name(node, full), NULL, NULL};
    if (out->form == KILN_FORM_NONE) return KILN_OK;
    const char *dot = out->form == KILN_FORM_OVERLOAD ? strchr(full, '.') : NULL;
    size_t n = strlen(full), bare = dot ? (size_t)(dot - full) : n;
    out->first = kiln_schemas_find(s, full, bare);
    size_t whole = dot && strcmp(dot, ".default") == 0 ? bare : n;
    for (kiln_overload *o = dot ? out->first : NULL; o && !out->only; o = o->next)
        if (o->n > whole && o->line[whole] == '(' && memcmp(o->line, full, whole) == 0) out->only = o;
    if (!out->first || (dot && !out->only)) out->form = KILN_FORM_NONE;
    return KILN_OK;
}
