/* forms.c - the in-place and out forms of a row: found by signature among PyTorch's schemas.
 *
 * add gives add_ and add.out, __xor__ gives __ixor__.  A form is told by its arguments, not by its overload
 * name, since many of PyTorch's do not follow a rule.  Owns nothing; must not know where rows come from. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "op/forms.h"

void kiln_op_number(const kiln_op *op) {
    static _Atomic uint32_t asked;
    _Atomic uint8_t *number = &((kiln_op *)op)->number;
    uint8_t none = 0;
    if (atomic_load_explicit(number, memory_order_relaxed)) return;
    uint8_t next = (uint8_t)(1 + atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed) % UINT8_MAX);
    atomic_compare_exchange_strong(number, &none, next); /* else another thread was first */
}

kiln_status kiln_op_make(kiln_arena *arena, const kiln_schema *schema, const kiln_row *row, kiln_form form,
                         const kiln_op **out) {
    bool checked = false;
    for (int k = 0; k < row->nchecks; k++) checked = checked || row->checks[k].torch;
    kiln_op *op = kiln_arena_alloc(arena, (checked ? 2 : 1) * sizeof *op);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_schema_print(&text, schema);
    char *copy = kiln_arena_strndup(arena, text.p ? text.p : "", text.len);
    char *name = kiln_arena_strndup(arena, text.p ? text.p : "", text.p ? strcspn(text.p, "(") : 0);
    bool failed = text.failed || !op || !name || !copy;
    kiln_sb_fini(&text);
    if (failed) return KILN_NOMEM();
    int nout = form == KILN_FORM_FUNCTIONAL || row->listed ? 0 : row->declared->nrets;
    *op = (kiln_op){name, copy, schema, row, form, nout, NULL, false, 0, 0};
    if (checked) {
        op[1] = *op;
        op[1].for_torch = true;
        op->torch = &op[1];
    }
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

static bool gives_tensors(const kiln_schema *s) {
    for (int k = 0; k < s->nrets; k++)
        if (s->rets[k].type->kind != KILN_T_TENSOR || s->rets[k].type->alias) return false;
    return s->nrets > 0;
}

/* A tensor that is written to and returned. */
static kiln_status out_param(kiln_arena *arena, int k, int n, kiln_param *arg, kiln_param *ret) {
    kiln_type *type = kiln_arena_alloc(arena, sizeof *type);
    kiln_alias *alias = kiln_arena_alloc(arena, sizeof *alias);
    char text[3] = {(char)('a' + k), '!', 0}, name[16] = "out", *own = kiln_arena_strndup(arena, text, 2);
    if (n > 1) snprintf(name, sizeof name, "out%d", k);
    char *called = kiln_arena_strndup(arena, name, strlen(name));
    if (!type || !alias || !own || !called) return KILN_NOMEM();
    *alias = (kiln_alias){own, true};
    *type = (kiln_type){.kind = KILN_T_TENSOR, .size = -1, .alias = alias};
    *arg = (kiln_param){.type = type, .name = called, .kwarg_only = true};
    *ret = (kiln_param){.type = type, .name = ""};
    return KILN_OK;
}

kiln_status kiln_form_out(kiln_arena *arena, const kiln_row *row, const kiln_op **out) {
    const kiln_schema *s = row->declared;
    if (!gives_tensors(s) || s->nargs + s->nrets > KILN_MAX_ARGS)
        return KILN_FAIL(KILN_E_UNSUP, "%s: its results cannot be written to arguments", row->name);
    kiln_schema *form = kiln_arena_alloc(arena, sizeof *form);
    if (!form) return KILN_NOMEM();
    *form = *s;
    form->overload = "out";
    form->nargs = s->nargs + s->nrets;
    form->args = kiln_arena_alloc(arena, (size_t)form->nargs * sizeof *form->args);
    form->rets = kiln_arena_alloc(arena, (size_t)form->nrets * sizeof *form->rets);
    if (!form->args || !form->rets) return KILN_NOMEM();
    for (int a = 0; a < s->nargs; a++) form->args[a] = s->args[a];
    for (int k = 0; k < s->nrets; k++)
        KILN_TRY(out_param(arena, k, s->nrets, &form->args[s->nargs + k], &form->rets[k]));
    return kiln_op_make(arena, form, row, KILN_FORM_OUT, out);
}
