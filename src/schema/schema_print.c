/* schema_print.c - kiln_schema -> schema text, and questions about schemas and types.
 *
 * Prints the one spelling PyTorch uses: a space after each comma and around "->", none elsewhere;
 * aliases and defaults as they were written.  Types nest at most as deep as the parser allows, so
 * recursion here is bounded. */
#include <string.h>

#include "schema/schema.h"

static const char *kind_name(kiln_tkind kind) {
    switch (kind) {
    case KILN_T_TENSOR: return "Tensor";
    case KILN_T_INT: return "int";
    case KILN_T_SYMINT: return "SymInt";
    case KILN_T_FLOAT: return "float";
    case KILN_T_BOOL: return "bool";
    case KILN_T_SCALAR: return "Scalar";
    case KILN_T_STR: return "str";
    case KILN_T_DTYPE: return "ScalarType";
    case KILN_T_OTHER:
    case KILN_T_OPTIONAL:
    case KILN_T_LIST:
    case KILN_T_TUPLE:
    case KILN_T_APPLY: break;
    }
    return "";
}

static void print_items(kiln_sb *out, const kiln_type *t) {
    kiln_sb_putc(out, '(');
    for (int i = 0; i < t->nitems; i++) {
        if (i) kiln_sb_puts(out, ", ");
        kiln_type_print(out, t->items[i]);
    }
    kiln_sb_putc(out, ')');
}

void kiln_type_print(kiln_sb *out, const kiln_type *t) {
    if (t->elem) kiln_type_print(out, t->elem);
    if (t->kind == KILN_T_OPTIONAL)
        kiln_sb_putc(out, '?');
    else if (t->kind == KILN_T_LIST && t->size < 0)
        kiln_sb_puts(out, "[]");
    else if (t->kind == KILN_T_LIST)
        kiln_sb_printf(out, "[%d]", t->size);
    else
        kiln_sb_puts(out, t->name ? t->name : kind_name(t->kind));
    if (t->kind == KILN_T_TUPLE || t->kind == KILN_T_APPLY) print_items(out, t);
    if (!t->alias) return;
    kiln_sb_putc(out, '(');
    kiln_sb_puts(out, t->alias->text);
    kiln_sb_putc(out, ')');
}

static void print_param(kiln_sb *out, const kiln_param *param) {
    kiln_type_print(out, param->type);
    if (*param->name) {
        kiln_sb_putc(out, ' ');
        kiln_sb_puts(out, param->name);
    }
    if (param->def.kind == KILN_DEF_ABSENT) return;
    kiln_sb_putc(out, '=');
    kiln_sb_puts(out, param->def.text);
}

/* "a, *, b, ..." */
static void print_params(kiln_sb *out, const kiln_param *params, int n, bool dots) {
    bool star = false;
    for (int i = 0; i < n; i++) {
        if (i) kiln_sb_puts(out, ", ");
        if (params[i].kwarg_only && !star) kiln_sb_puts(out, "*, ");
        star = params[i].kwarg_only;
        print_param(out, &params[i]);
    }
    if (dots) kiln_sb_puts(out, n ? ", ..." : "...");
}

void kiln_schema_print(kiln_sb *out, const kiln_schema *s) {
    if (*s->ns) {
        kiln_sb_puts(out, s->ns);
        kiln_sb_puts(out, "::");
    }
    kiln_sb_puts(out, s->name);
    if (*s->overload) {
        kiln_sb_putc(out, '.');
        kiln_sb_puts(out, s->overload);
    }
    kiln_sb_putc(out, '(');
    print_params(out, s->args, s->nargs, s->vararg);
    kiln_sb_puts(out, s->ret_parens ? ") -> (" : ") -> ");
    print_params(out, s->rets, s->nrets, s->varret);
    if (s->ret_parens) kiln_sb_putc(out, ')');
}

/* -- questions ----------------------------------------------------------------------------------- */

bool kiln_type_eq(const kiln_type *a, const kiln_type *b) {
    kiln_tkind ka = a->kind == KILN_T_SYMINT ? KILN_T_INT : a->kind;
    kiln_tkind kb = b->kind == KILN_T_SYMINT ? KILN_T_INT : b->kind;
    if (ka != kb || a->nitems != b->nitems || !kiln_str_eq(a->name, b->name)) return false;
    if (ka == KILN_T_LIST && a->size != b->size) return false;
    for (int i = 0; i < a->nitems; i++)
        if (!kiln_type_eq(a->items[i], b->items[i])) return false;
    return !a->elem || kiln_type_eq(a->elem, b->elem);
}

int kiln_schema_arg(const kiln_schema *s, const char *name) {
    for (int i = 0; i < s->nargs; i++)
        if (s->args[i].name == name) return i; /* as callers name them that asked the schema */
    for (int i = 0; i < s->nargs; i++)
        if (strcmp(s->args[i].name, name) == 0) return i;
    return -1;
}

const kiln_type *kiln_type_strip(const kiln_type *t, bool *optional) {
    bool was = t->kind == KILN_T_OPTIONAL;
    if (optional) *optional = was;
    return was ? t->elem : t;
}

bool kiln_param_writes(const kiln_param *p) {
    const kiln_type *t = kiln_type_strip(p->type, NULL);
    return (t->alias && t->alias->writes) ||
           (t->kind == KILN_T_LIST && t->elem->alias && t->elem->alias->writes);
}
