/* forms.c - the in-place and out forms of a row: found by signature among PyTorch's schemas.
 *
 * add gives add_ and add.out, __xor__ gives __ixor__.  A form is told by its arguments, not by its overload
 * name, since many of PyTorch's do not follow a rule.  Owns nothing; must not know where rows come from. */
#include <string.h>

#include "op/forms.h"

kiln_status kiln_op_make(kiln_arena *arena, const kiln_schema *schema, const kiln_row *row, kiln_form form,
                         const kiln_op **out) {
    kiln_op *op = kiln_arena_alloc(arena, sizeof *op);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_schema_print(&text, schema);
    char *copy = kiln_arena_strndup(arena, text.p ? text.p : "", text.len);
    char *name = kiln_arena_strndup(arena, text.p ? text.p : "", text.p ? strcspn(text.p, "(") : 0);
    bool failed = text.failed || !op || !name || !copy;
    kiln_sb_fini(&text);
    if (failed) return KILN_NOMEM();
    int nout = form == KILN_FORM_FUNCTIONAL || row->compose.lists ? 0 : row->declared->nrets;
    *op = (kiln_op){name, copy, schema, row, form, nout};
    *out = op;
    return KILN_OK;
}

static bool same_arg(const kiln_param *a, const kiln_param *b) {
    return strcmp(a->name, b->name) == 0 && a->kwarg_only == b->kwarg_only && kiln_type_eq(a->type, b->type);
}

static bool writes(const kiln_param *p) { return kiln_param_writes(p); }

/* How many results a form of a row has: lists are written, and not returned. */
static int written_rets(const kiln_schema *row) {
    return row->nrets == 1 && row->rets[0].type->kind == KILN_T_LIST ? 0 : row->nrets;
}

/* The same arguments as the row, the first one written to, and returned. */
static bool is_inplace(const kiln_schema *s, const kiln_schema *row) {
    if (s->nargs != row->nargs || row->nrets != 1 || s->nrets != written_rets(row) || !writes(&s->args[0]))
        return false;
    for (int a = 0; a < s->nargs; a++)
        if (!same_arg(&s->args[a], &row->args[a]) || (a && writes(&s->args[a]))) return false;
    return true;
}

/* The same arguments as the row, then one written keyword argument per result. */
static bool is_out(const kiln_schema *s, const kiln_schema *row) {
    if (row->nrets == 0 || s->nargs != row->nargs + row->nrets || s->nrets != written_rets(row)) return false;
    for (int a = 0; a < s->nargs; a++) {
        if (a >= row->nargs ? !s->args[a].kwarg_only || !writes(&s->args[a])
                            : !same_arg(&s->args[a], &row->args[a]))
            return false;
    }
    return true;
}

/* The name that a row's forms of one kind have: "aten::add" for out, "aten::add_" or "aten::__ixor__" in place. */
static void form_name(const char *name, kiln_form form, kiln_sb *out) {
    size_t n = strlen(name);
    bool is_operator = n >= 5 && memcmp(name, "__", 2) == 0 && strcmp(name + n - 2, "__") == 0;
    if (form == KILN_FORM_OUT)
        kiln_sb_printf(out, "aten::%s", name);
    else if (is_operator)
        kiln_sb_printf(out, "aten::__i%s", name + 2);
    else
        kiln_sb_printf(out, "aten::%s_", name);
}

/* One schema of the list, if it is a form of the row. */
static kiln_status try_line(kiln_arena *arena, kiln_schema_line line, const kiln_row *row, kiln_form form,
                            const kiln_op **out) {
    kiln_schema *s;
    *out = NULL;
    KILN_TRY(kiln_schema_parse(arena, line.text, line.n, &s));
    bool is = form == KILN_FORM_OUT ? is_out(s, row->declared) : is_inplace(s, row->declared);
    return is ? kiln_op_make(arena, s, row, form, out) : KILN_OK;
}

static kiln_status forms_named(kiln_arena *arena, const kiln_schema_list *list, const kiln_row *row,
                               kiln_form form, kiln_status (*add)(void *user, const kiln_op *op),
                               void *user) {
    size_t first, count;
    kiln_sb name;
    kiln_sb_init(&name);
    form_name(row->schema->name, form, &name);
    count = name.failed ? 0 : kiln_schema_list_overloads(list, name.p, name.len, &first);
    kiln_status st = name.failed ? KILN_NOMEM() : KILN_OK;
    kiln_sb_fini(&name);
    for (size_t k = 0; k < count && st == KILN_OK; k++) {
        const kiln_op *op;
        st = try_line(arena, kiln_schema_list_at(list, first + k), row, form, &op);
        if (st == KILN_OK && op) st = add(user, op);
    }
    return st;
}

kiln_status kiln_forms_of(kiln_arena *arena, const kiln_schema_list *list, const kiln_row *row,
                          kiln_status (*add)(void *user, const kiln_op *op), void *user) {
    if (strcmp(row->schema->ns, "aten") != 0) return KILN_OK;
    KILN_TRY(forms_named(arena, list, row, KILN_FORM_INPLACE, add, user));
    return forms_named(arena, list, row, KILN_FORM_OUT, add, user);
}
