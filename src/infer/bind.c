/* bind.c - argument values -> the arguments of a row's schema, checked and with defaults filled in.
 *
 * Numbers are brought to the declared type here, so that nothing later asks whether a float argument was
 * given as an int.  Allocates nothing; lists are borrowed, or kept in the kiln_bound where they change. */
#include <string.h>

#include "infer/infer_parts.h"

const char *kiln_value_kind_name(const kiln_value *v) {
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: return "None";
    case KILN_TENSOR: return "Tensor";
    case KILN_BOOL_V: return "bool";
    case KILN_INT_V: return "int";
    case KILN_FLOAT_V: return "float";
    case KILN_COMPLEX_V: return "complex";
    case KILN_STR_V: return "str";
    case KILN_DTYPE_V: return "ScalarType";
    case KILN_LIST_V: return "list";
    case KILN_UINT_V: return "an int from 2^63 up";
    case KILN_GENERATOR_V: return "Generator";
    }
    if (v->kind == KILN_OBJECT_V && v->u.s) return v->u.s;
    return v->kind == KILN_NUMBER_V ? "a number" : "a value of unknown kind";
}

/* -- types --------------------------------------------------------------------------------------------- */

/* A number as a complex one. */
static bool to_complex(const kiln_value *v, kiln_value *out) {
    if (v->kind == KILN_UINT_V) *out = kiln_v_complex((double)(uint64_t)v->u.i, 0);
    if (v->kind == KILN_BOOL_V || v->kind == KILN_INT_V) *out = kiln_v_complex((double)v->u.i, 0);
    if (v->kind == KILN_FLOAT_V) *out = kiln_v_complex(v->u.f, 0);
    return out->kind == KILN_COMPLEX_V;
}

/* The kind of values of a type that schemas know by name alone; NONE: there are none.  Some are told by their own name:
 * torch.channels_last is "channels_last". */
static kiln_kind named_kind(const char *type) {
    if (kiln_str_eq(type, "complex")) return KILN_COMPLEX_V;
    if (kiln_str_eq(type, "Generator")) return KILN_GENERATOR_V;
    bool told = kiln_str_eq(type, "MemoryFormat") || kiln_str_eq(type, "Layout") ||
                kiln_str_eq(type, "Device");
    return told ? KILN_STR_V : KILN_NONE;
}

static __attribute__((noinline)) bool convert_named(const char *type, const kiln_value *v, kiln_value *out) {
    kiln_kind kind = named_kind(type);
    if (kind == KILN_COMPLEX_V) return to_complex(v, out);
    return kind && v->kind == kind && (kind == KILN_STR_V ? v->u.s != NULL : v->u.generator != NULL);
}

/* A value of a type that has a kind of its own.  False if v is not one. */
static bool convert_known(kiln_tkind want, const kiln_value *v, kiln_value *out) {
    bool whole = v->kind == KILN_BOOL_V || v->kind == KILN_INT_V;
    switch (want) {
    case KILN_T_TENSOR: return v->kind == KILN_TENSOR && v->u.tensor;
    case KILN_T_INT:
    case KILN_T_SYMINT: out->kind = KILN_INT_V; return whole;
    case KILN_T_FLOAT:
        if (whole) *out = kiln_v_float((double)v->u.i);
        if (v->kind == KILN_UINT_V) *out = kiln_v_float((double)(uint64_t)v->u.i);
        return out->kind == KILN_FLOAT_V;
    case KILN_T_BOOL: return v->kind == KILN_BOOL_V;
    case KILN_T_SCALAR: return kiln_is_number(v);
    case KILN_T_STR: return v->kind == KILN_STR_V && v->u.s;
    case KILN_T_DTYPE: return v->kind == KILN_DTYPE_V && (uint64_t)v->u.i < KILN_DTYPE_COUNT;
    case KILN_T_OTHER:
    case KILN_T_OPTIONAL:
    case KILN_T_LIST:
    case KILN_T_TUPLE:
    case KILN_T_APPLY: break;
    }
    return false;
}

/* The same of any plain type. */
static inline bool convert(const kiln_type *want, const kiln_value *v, kiln_value *out) {
    *out = *v;
    out->name = NULL;
    return want->kind == KILN_T_OTHER ? convert_named(want->name, v, out) : convert_known(want->kind, v, out);
}

/* One item of a list: its type may be optional. */
static bool convert_item(const kiln_type *t, const kiln_value *v, kiln_value *out) {
    bool optional;
    const kiln_type *plain = kiln_type_strip(t, &optional);
    if (!optional || v->kind != KILN_NONE) return convert(plain, v, out);
    *out = kiln_v_none();
    return true;
}

static kiln_status room_for(kiln_bound *b, size_t n, kiln_value **out) {
    if (n > (size_t)(KILN_MAX_ARGS - b->nitems))
        return KILN_FAIL(KILN_E_LIMIT, "%s: more than %d list items to convert", b->op->name, KILN_MAX_ARGS);
    *out = b->items + b->nitems;
    b->nitems += (int)n;
    return KILN_OK;
}

/* What was given, for messages. */
static const char *given_kind(const kiln_value *v) {
    if (v->kind == KILN_TENSOR && !v->u.tensor) return "a tensor that is NULL";
    if (v->kind == KILN_STR_V && !v->u.s) return "a text that is NULL";
    if (v->kind == KILN_GENERATOR_V && !v->u.generator) return "a generator that is NULL";
    if (v->kind == KILN_LIST_V && v->n && !v->u.list) return "a list that is NULL";
    return kiln_value_kind_name(v);
}

/* Whether any value has the type; none is a dictionary, or a list of lists. */
static bool is_served(const kiln_type *t) {
    t = kiln_type_strip(t, NULL);
    if (t->kind == KILN_T_LIST) t = kiln_type_strip(t->elem, NULL);
    return t->kind < KILN_T_OTHER || (t->kind == KILN_T_OTHER && named_kind(t->name));
}

static kiln_status wrong_type(const kiln_bound *b, const kiln_param *p, const kiln_value *v, int item) {
    kiln_misfit why = {is_served(p->type) ? KILN_MISFIT_TYPE : KILN_MISFIT_UNSERVED, p, v, item};
    return kiln_misfit_fail(b->op, &why);
}

/* A list of tensors and nothing else: what optimizers give by the thousand. */
static bool is_tensors(const kiln_type *elem, const kiln_value *v) {
    uint32_t k = 0;
    if (elem->kind != KILN_T_TENSOR) return false;
    while (k < v->n && v->u.list[k].kind == KILN_TENSOR && v->u.list[k].u.tensor) k++;
    return k == v->n;
}

/* A list argument: borrowed if its items already have their type, else converted into b->items. */
static kiln_status take_list(kiln_bound *b, const kiln_param *p, const kiln_type *list, const kiln_value *v,
                             kiln_value *out) {
    kiln_value one, *items = NULL;
    if (v->kind != KILN_LIST_V) { /* one number for int[N] means N of it */
        bool widens = list->size > 0 &&
                      (list->elem->kind == KILN_T_INT || list->elem->kind == KILN_T_SYMINT ||
                       list->elem->kind == KILN_T_FLOAT);
        if (!widens || !convert_item(list->elem, v, &one)) return wrong_type(b, p, v, -1);
        KILN_TRY(room_for(b, (size_t)list->size, &items));
        for (int k = 0; k < list->size; k++) items[k] = one;
        *out = kiln_v_list(items, (uint32_t)list->size);
        return KILN_OK;
    }
    if (v->n && !v->u.list) return wrong_type(b, p, v, -1);
    bool same = true;
    *out = kiln_v_list(v->u.list, v->n);
    if (is_tensors(list->elem, v)) return KILN_OK;
    for (uint32_t k = 0; k < v->n; k++) {
        if (!convert_item(list->elem, &v->u.list[k], &one)) return wrong_type(b, p, &v->u.list[k], (int)k);
        same = same && one.kind == v->u.list[k].kind;
    }
    if (same) return KILN_OK;
    KILN_TRY(room_for(b, v->n, &items));
    for (uint32_t k = 0; k < v->n; k++) (void)convert_item(list->elem, &v->u.list[k], &items[k]);
    out->u.list = items;
    return KILN_OK;
}

static kiln_status take(kiln_bound *b, const kiln_param *p, const kiln_value *v, kiln_value *out) {
    bool optional;
    const kiln_type *t = kiln_type_strip(p->type, &optional);
    if (v->kind == KILN_NONE && optional) {
        *out = kiln_v_none();
        return KILN_OK;
    }
    if (t->kind == KILN_T_LIST) return take_list(b, p, t, v, out);
    return convert(t, v, out) ? KILN_OK : wrong_type(b, p, v, -1);
}

/* -- defaults ------------------------------------------------------------------------------------------ */

static kiln_status take_default(kiln_bound *b, const kiln_param *p, kiln_value *out) {
    bool optional;
    const kiln_type *t = kiln_type_strip(p->type, &optional);
    const kiln_default *d = &p->def;
    if (t->kind != KILN_T_LIST || d->kind == KILN_DEF_NONE) {
        (void)kiln_default_value(p->type, d, out); /* it has the type: loading the row saw to that */
        return KILN_OK;
    }
    int n = kiln_default_items(t, d);
    kiln_value *items = NULL;
    KILN_TRY(room_for(b, (size_t)n, &items));
    for (int k = 0; k < n; k++)
        (void)kiln_default_value(t->elem, d->kind == KILN_DEF_LIST ? &d->items[k] : d, &items[k]);
    *out = kiln_v_list(items, (uint32_t)n);
    return KILN_OK;
}

/* -- items --------------------------------------------------------------------------------------------- */

static kiln_status read_item_tensors(kiln_bound *b) {
    const kiln_row *row = b->op->row;
    for (int a = 0; a < row->schema->nargs; a++) {
        if (!(row->items >> a & 1) || b->arg[a].kind != KILN_TENSOR) continue; /* None, or a list */
        const kiln_tensor *t = b->arg[a].u.tensor;
        if (row->listed ? t->nelem != 1 : t->rank != 0)
            return KILN_FAIL(KILN_E_ARG, "%s: argument '%s' must be a tensor without dimensions, but has %d",
                             b->op->name, row->schema->args[a].name, t->rank);
        b->item_dtype[a] = t->dtype;
        b->arg[a] = kiln_element_get((kiln_dtype)t->dtype, t->data);
    }
    return KILN_OK;
}

/* -- what goes where ----------------------------------------------------------------------------------- */

bool kiln_place(const kiln_schema *s, const kiln_value *args, size_t nargs, const kiln_value **given,
                kiln_misfit *why) {
    size_t i = 0;
    for (int a = 0; a < s->nargs; a++) given[a] = NULL;
    for (; i < nargs && !args[i].name; i++) {
        if (i >= (size_t)s->nargs || s->args[i].kwarg_only)
            return *why = (kiln_misfit){KILN_MISFIT_MANY, NULL, &args[i], (int)nargs}, false;
        given[i] = &args[i];
    }
    for (; i < nargs; i++) {
        int a = args[i].name ? kiln_schema_arg(s, args[i].name) : -1;
        if (!args[i].name) return *why = (kiln_misfit){KILN_MISFIT_ORDER, NULL, &args[i], 0}, false;
        if (a < 0) return *why = (kiln_misfit){KILN_MISFIT_NAME, NULL, &args[i], 0}, false;
        if (given[a]) return *why = (kiln_misfit){KILN_MISFIT_TWICE, &s->args[a], &args[i], 0}, false;
        given[a] = &args[i];
    }
    for (int a = 0; a < s->nargs; a++)
        if (!given[a] && s->args[a].def.kind == KILN_DEF_ABSENT)
            return *why = (kiln_misfit){KILN_MISFIT_MISSING, &s->args[a], NULL, 0}, false;
    return true;
}

static void say_type(kiln_sb *out, const kiln_misfit *m, const char *name, const char *want) {
    const kiln_value *v = m->value;
    kiln_sb_printf(out, "argument '%s' must be %s, ", name, want);
    if (v->kind == KILN_DTYPE_V && (uint64_t)v->u.i >= KILN_DTYPE_COUNT)
        kiln_sb_printf(out, "but no dtype has the number %lld", (long long)v->u.i);
    else if (m->n >= 0)
        kiln_sb_printf(out, "but item %d is %s", m->n, given_kind(v));
    else
        kiln_sb_printf(out, "not %s", m->why == KILN_MISFIT_KIND ? kiln_value_kind_name(v) : given_kind(v));
}

static void say_many(kiln_sb *out, const kiln_schema *s, const kiln_misfit *m) {
    int positional = 0;
    while (positional < s->nargs && !s->args[positional].kwarg_only) positional++;
    kiln_sb_printf(out, "takes %d positional argument%s", positional, positional == 1 ? "" : "s");
    if (positional < s->nargs && m->n <= s->nargs)
        kiln_sb_printf(out, "; '%s' must be given by name", s->args[positional].name);
    else
        kiln_sb_printf(out, ", but %d were given", m->n);
}

/* What NumPy calls an argument, and what PyTorch does. */
static const char *const numpy_names[][2] = {
    {"axis", "dim"}, {"keepdims", "keepdim"}, {"ddof", "correction"}, {"x", "self"},    {"a", "self"},
    {"x1", "self"},  {"x2", "other"},         {"a_min", "min"},       {"a_max", "max"},
};

/* The argument that is meant by a name which the schema does not have; NULL: none is like it. */
static const char *meant(const kiln_schema *s, const char *name) {
    enum { FAR = 3 };
    for (size_t k = 0; k < sizeof numpy_names / sizeof *numpy_names; k++)
        if (strcmp(numpy_names[k][0], name) == 0 && kiln_schema_arg(s, numpy_names[k][1]) >= 0)
            return numpy_names[k][1];
    for (int a = 0; a < s->nargs; a++)
        if (strlen(name) > FAR && kiln_edit_distance(name, s->args[a].name, FAR) < FAR)
            return s->args[a].name;
    return NULL;
}

static void say_name(kiln_sb *out, const kiln_schema *s, const char *name) {
    const char *other = meant(s, name);
    kiln_sb_printf(out, "has no argument '%.200s'", name);
    if (other) kiln_sb_printf(out, "; did you mean '%s'?", other);
}

/* A type as a caller sees it: whether a number may be symbolic or an argument is written to is nothing a caller can mend. */
static void say_wanted(kiln_sb *out, const kiln_type *declared) {
    static const kiln_type whole = {.kind = KILN_T_INT};
    bool optional;
    const kiln_type *t = kiln_type_strip(declared, &optional);
    bool list = t->kind == KILN_T_LIST && t->size < 0;
    kiln_type plain = list ? *t->elem : *t;
    if (plain.kind == KILN_T_SYMINT) plain = whole;
    if (plain.kind == KILN_T_LIST && plain.elem->kind == KILN_T_SYMINT) plain.elem = &whole;
    plain.alias = NULL;
    if (list) kiln_sb_puts(out, "a list of ");
    kiln_type_print(out, &plain);
    if (optional) kiln_sb_puts(out, list ? ", or None" : "?");
}

void kiln_misfit_print(kiln_sb *out, const kiln_schema *s, const kiln_misfit *m) {
    kiln_sb want;
    kiln_sb_init_message(&want);
    if (m->param) say_wanted(&want, m->param->type);
    const char *text = want.p ? want.p : "of another type", *name = m->param ? m->param->name : "";
    switch (m->why) {
    case KILN_MISFIT_MANY: say_many(out, s, m); break;
    case KILN_MISFIT_ORDER: kiln_sb_printf(out, "a positional argument follows a named one"); break;
    case KILN_MISFIT_NAME: say_name(out, s, m->value->name); break;
    case KILN_MISFIT_TWICE: kiln_sb_printf(out, "argument '%s' was given twice", name); break;
    case KILN_MISFIT_MISSING: kiln_sb_printf(out, "argument '%s' (%s) is missing", name, text); break;
    case KILN_MISFIT_UNSERVED:
        kiln_sb_printf(out, "argument '%s': values of type %s are not served", name, text);
        break;
    case KILN_MISFIT_KIND:
    case KILN_MISFIT_TYPE: say_type(out, m, name, text); break;
    }
    kiln_sb_fini(&want);
}

kiln_status kiln_misfit_fail(const kiln_op *op, const kiln_misfit *m) {
    kiln_sb text;
    kiln_sb_init_message(&text);
    kiln_sb_printf(&text, "%s: ", op->name);
    kiln_misfit_print(&text, op->schema, m);
    return KILN_FAIL_TEXT(m->why == KILN_MISFIT_UNSERVED ? KILN_E_UNSUP : KILN_E_TYPE, &text);
}

/* -- binding ------------------------------------------------------------------------------------------- */

kiln_status kiln_bind(const kiln_op *op, const kiln_value *args, size_t nargs, kiln_bound *out) {
    const kiln_schema *s = op->schema, *row = op->row->schema;
    const kiln_value *given[KILN_MAX_ARGS];
    kiln_misfit why;
    uint64_t filled = 0;
    out->op = op;
    out->nitems = 0;
    out->nout = op->nout;
    if (!kiln_place(s, args, nargs, given, &why)) return kiln_misfit_fail(op, &why);
    for (int a = 0; a < s->nargs; a++) {
        kiln_value v;
        int arg = kiln_op_arg(op, a);
        if (given[a])
            KILN_TRY(take(out, &s->args[a], given[a], &v));
        else
            KILN_TRY(take_default(out, &s->args[a], &v));
        int8_t from = given[a] ? (int8_t)(given[a] - args) : -1;
        for (int k = 0; k < op->nout; k++) {
            if (kiln_op_out_arg(op, k) != a) continue;
            out->out[k] = v.u.tensor;
            out->given_out[k] = from;
        }
        if (arg < 0 && op->row->listed) out->arg[a] = v; /* where results go */
        if (arg < 0) continue;
        out->arg[arg] = v;
        out->given[arg] = from;
        filled |= (uint64_t)1 << arg;
    }
    for (int arg = 0; arg < row->nargs; arg++)
        if (!(filled >> arg & 1)) {
            KILN_TRY(take_default(out, &row->args[arg], &out->arg[arg]));
            out->given[arg] = -1;
        }
    return op->row->items ? read_item_tensors(out) : KILN_OK;
}
