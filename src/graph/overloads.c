/* overloads.c - PyTorch's schemas by operator name, and which of them a node calls.
 *
 * The list that ships with the library is in order of names; a schema is parsed when it is first asked for.  Owns
 * its arena, and knows what a target's spelling says about the operator, but nothing about arguments. */
#include <string.h>

#include "graph/overloads.h"
#include "graph/torch_python.h"
#include "schema/schema_list.h"

struct kiln_schemas {
    kiln_arena arena;
    kiln_overload
        *of; /* one for each line of the list; those not asked for are zero, and their pages untouched */
};

bool kiln_param_writes(const kiln_param *p) {
    const kiln_type *t = kiln_type_strip(p->type, NULL);
    return (t->alias && t->alias->writes) ||
           (t->kind == KILN_T_LIST && t->elem->alias && t->elem->alias->writes);
}

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

static kiln_overload *aten(const kiln_schemas *s, const char *name, size_t n) {
    enum { LONGEST = 200 };
    char full[LONGEST + 6] = "aten::";
    if (n > LONGEST) return NULL;
    memcpy(full + 6, name, n);
    return kiln_schemas_find(s, full, n + 6);
}

static void method(const kiln_schemas *s, const char *name, size_t n, kiln_callee *out) {
    out->first = kiln_torch_is_method(name, n) ? NULL : aten(s, name, n);
    out->form = out->first ? KILN_FORM_METHOD : KILN_FORM_NONE;
}

static void function(const kiln_schemas *s, const kiln_gval *t, kiln_callee *out) {
    static const char tensor[] = "torch:Tensor.", base[] = "torch._C:TensorBase.";
    const char *colon = memchr(t->u.s, ':', t->n);
    size_t module = (size_t)(colon - t->u.s), n = t->n - module - 1;
    if (t->n > sizeof tensor - 1 && memcmp(t->u.s, tensor, sizeof tensor - 1) == 0) {
        method(s, t->u.s + sizeof tensor - 1, t->n - (sizeof tensor - 1), out);
    } else if (t->n > sizeof base - 1 && memcmp(t->u.s, base, sizeof base - 1) == 0) {
        method(s, t->u.s + sizeof base - 1, t->n - (sizeof base - 1), out);
    } else if (kiln_torch_wraps(t->u.s, module) && !kiln_torch_is_function(colon + 1, n)) {
        out->first = aten(s, colon + 1, n);
        out->form = out->first ? KILN_FORM_TORCH : KILN_FORM_NONE;
    }
}

/* "aten::add.Tensor" names one overload, "aten::relu.default" the one without a name, "aten::add" all. */
static kiln_status named_overload(const kiln_schemas *s, const kiln_gval *t, kiln_callee *out) {
    const char *dot = memchr(t->u.s, '.', t->n);
    size_t n = dot ? (size_t)(dot - t->u.s) : t->n;
    out->first = kiln_schemas_find(s, t->u.s, n);
    if (!out->first) return KILN_OK;
    out->form = KILN_FORM_OVERLOAD;
    if (!dot) return KILN_OK;
    size_t whole = strcmp(dot, ".default") == 0 ? n : t->n;
    for (kiln_overload *o = out->first; o && !out->only; o = o->next)
        if (o->n > whole && o->line[whole] == '(' && memcmp(o->line, t->u.s, whole) == 0) out->only = o;
    if (!out->only) out->form = KILN_FORM_NONE;
    return KILN_OK;
}

kiln_status kiln_callee_of(kiln_schemas *s, const kiln_node *node, kiln_callee *out) {
    *out = (kiln_callee){KILN_FORM_NONE, NULL, NULL};
    const kiln_gval *t = node->target;
    if (node->op == KILN_CALL_METHOD) method(s, t->u.s, t->n, out);
    if (node->op != KILN_CALL_FUNCTION) return KILN_OK;
    if (t->kind == KILN_G_FUNC) function(s, t, out);
    return t->kind == KILN_G_OP ? named_overload(s, t, out) : KILN_OK;
}
