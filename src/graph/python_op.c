/* python_op.c - calls of operator.* and getattr -> Python's own spelling, where it means the same.
 *
 * A call that has another number of arguments, or arguments by keyword, is left a call; so is one whose
 * spelling Python would warn about (a literal before a subscript or beside `is`).  In-place operators work
 * on a name of their own: operator.iadd(a, b) gives a new value but leaves the name `a` as it was. */
#include <string.h>

#include "graph/python.h"

enum form {
    BINARY,
    COMPARE = BINARY,
    POWER,
    UNARY,
    INPLACE,
    INPLACE_POWER = INPLACE,
    CONTAINS,
    IDENTITY,
    GETITEM,
    SETITEM
};

typedef struct spelling {
    const char *name;
    enum form form;
    const char *text;
} spelling;

static const spelling table[] = {
#define S(name, form, text) {name, form, text},
#define O(name, form, text, slot, op, overload, number_first) S(name, form, text)
#include "kiln/operator.def"
#undef O
#undef S
};

static const spelling *find(const kiln_gval *target) {
    static const char module[] = "operator:";
    size_t skip = sizeof module - 1, lo = 0, hi = sizeof table / sizeof *table;
    if (target->kind != KILN_G_FUNC || target->n <= skip || memcmp(target->u.s, module, skip) != 0)
        return NULL;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(table[mid].name, target->u.s + skip);
        if (order == 0) return &table[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static bool is_node(const kiln_gval *v) { return v->kind == KILN_G_NODE; }
static bool is_singleton(const kiln_gval *v) {
    return v->kind == KILN_G_NONE || v->kind == KILN_G_BOOL || v->kind == KILN_G_ELLIPSIS;
}

/* -- subscripts --------------------------------------------------------------------------------------- */

static void put_slice(py_printer *p, const kiln_gval *v) {
    const kiln_gval *const *part = v->u.items;
    for (int i = 0; i < 3; i++) {
        bool given = part[i]->kind != KILN_G_NONE;
        if (i == 1 || (i == 2 && given)) kiln_sb_putc(&p->out, ':');
        if (given) kiln_py_value(p, part[i]);
    }
}

static void put_subscript(py_printer *p, const kiln_gval *base, const kiln_gval *index) {
    kiln_py_value(p, base);
    kiln_sb_putc(&p->out, '[');
    bool tuple = index->kind == KILN_G_TUPLE && index->n;
    const kiln_gval *const *items = tuple ? index->u.items : &index;
    uint32_t n = tuple ? index->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        if (i) kiln_sb_putn(&p->out, ", ", 2);
        if (items[i]->kind == KILN_G_SLICE)
            put_slice(p, items[i]);
        else
            kiln_py_value(p, items[i]);
    }
    if (tuple && n == 1) kiln_sb_putc(&p->out, ',');
    kiln_sb_putc(&p->out, ']');
}

/* -- expressions -------------------------------------------------------------------------------------- */

static void put_binary(py_printer *p, const kiln_gval *a, const char *text, const kiln_gval *b, bool tight) {
    (tight ? kiln_py_atom : kiln_py_value)(p, a);
    kiln_py_text(p, text);
    kiln_py_value(p, b);
}

/* getattr(x, "name") -> x.name */
static bool put_attribute(py_printer *p, const kiln_node *node) {
    static const char getattr[] = "builtins:getattr";
    const kiln_gval *t = node->target;
    if (t->kind != KILN_G_FUNC || t->n != sizeof getattr - 1 || memcmp(t->u.s, getattr, t->n) != 0)
        return false;
    if (node->nargs != 2 || node->nkwargs || node->args[1]->kind != KILN_G_STR) return false;
    if (!kiln_py_plain(node->args[1]->u.s, node->args[1]->n)) return false;
    kiln_py_atom(p, node->args[0]);
    kiln_sb_putc(&p->out, '.');
    kiln_sb_putn(&p->out, node->args[1]->u.s, node->args[1]->n);
    return true;
}

bool kiln_py_operator(py_printer *p, const kiln_node *node) {
    const spelling *s = find(node->target);
    const kiln_gval *const *a = node->args;
    if (!s) return put_attribute(p, node);
    if (node->nkwargs || node->nargs != (s->form == UNARY ? 1 : 2)) return false;
    switch (s->form) {
    case BINARY:
    case POWER: put_binary(p, a[0], s->text, a[1], s->form == POWER); return true;
    case CONTAINS: put_binary(p, a[1], s->text, a[0], false); return true;
    case UNARY:
        kiln_py_text(p, s->text);
        kiln_py_atom(p, a[0]);
        return true;
    case IDENTITY:
        if (!is_node(a[0]) && !is_singleton(a[0])) return false;
        if (!is_node(a[1]) && !is_singleton(a[1])) return false;
        put_binary(p, a[0], s->text, a[1], false);
        return true;
    case GETITEM:
        if (!is_node(a[0])) return false;
        put_subscript(p, a[0], a[1]);
        return true;
    default: return false;
    }
}

/* -- statements --------------------------------------------------------------------------------------- */

bool kiln_py_operator_statement(py_printer *p, const kiln_node *node) {
    const spelling *s = find(node->target);
    const kiln_gval *const *a = node->args;
    if (!s || node->nkwargs) return false;
    if (s->form == INPLACE && node->nargs == 2) {
        kiln_py_node(p, node);
        kiln_py_text(p, " = ");
        kiln_py_value(p, a[0]);
        kiln_py_text(p, ";  ");
        kiln_py_node(p, node);
        kiln_py_text(p, s->text);
        kiln_py_value(p, a[1]);
        return true;
    }
    if (s->form != SETITEM || node->nargs != 3 || !is_node(a[0])) return false;
    put_subscript(p, a[0], a[1]);
    kiln_py_text(p, " = ");
    kiln_py_value(p, a[2]);
    kiln_py_text(p, ";  ");
    kiln_py_node(p, node);
    kiln_py_text(p, " = None");
    return true;
}
