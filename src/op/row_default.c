/* row_default.c - the default of an argument, as its schema has it -> the value that a call without it means.
 *
 * Whether a default is of its argument's type is asked when a row is loaded, so that binding need not.  Knows the
 * identifiers that PyTorch's schemas use as defaults, and no operators. */
#include "op/op.h"

/* PyTorch prints long as its number. */
static bool dtype_value(const kiln_default *d, kiln_value *out) {
    static const struct {
        const char *name;
        kiln_dtype dtype;
    } dtypes[] = {{"long", KILN_I64},
                  {"int", KILN_I32},
                  {"float", KILN_F32},
                  {"double", KILN_F64},
                  {"bool", KILN_BOOL}};
    const char *name = d->kind == KILN_DEF_INT && d->i == 4 ? "long" : d->kind == KILN_DEF_NAME ? d->s : "";
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        if (!kiln_str_eq(dtypes[k].name, name)) continue;
        *out = kiln_v_dtype(dtypes[k].dtype);
        return true;
    }
    return false;
}

/* A value that is told by its name.  PyTorch prints contiguous_format as its number. */
static bool name_value(const kiln_type *t, const kiln_default *d, kiln_value *out) {
    if (d->kind == KILN_DEF_INT && d->i == 0 && kiln_str_eq(t->name, "MemoryFormat")) {
        *out = kiln_v_str("contiguous_format");
        return true;
    }
    return d->kind == KILN_DEF_STR || d->kind == KILN_DEF_NAME;
}

static kiln_value number(const kiln_default *d) {
    return d->kind == KILN_DEF_BOOL  ? kiln_v_bool(d->i != 0)
           : d->kind == KILN_DEF_INT ? kiln_v_int(d->i)
                                     : kiln_v_float(d->f);
}

bool kiln_default_value(const kiln_type *t, const kiln_default *d, kiln_value *out) {
    bool whole = d->kind == KILN_DEF_INT || d->kind == KILN_DEF_BOOL, optional;
    t = kiln_type_strip(t, &optional);
    *out = kiln_v_none();
    if (d->kind == KILN_DEF_NONE) return optional;
    if (whole || d->kind == KILN_DEF_FLOAT) *out = number(d);
    if (d->kind == KILN_DEF_STR || d->kind == KILN_DEF_NAME) *out = kiln_v_str(d->s);
    switch (t->kind) {
    case KILN_T_INT:
    case KILN_T_SYMINT:
        if (d->kind != KILN_DEF_NAME || !kiln_str_eq(d->s, "Mean")) return d->kind == KILN_DEF_INT;
        *out = kiln_v_int(1); /* Reduction::Mean */
        return true;
    case KILN_T_FLOAT:
        if (d->kind == KILN_DEF_INT) *out = kiln_v_float((double)d->i);
        return d->kind == KILN_DEF_INT || d->kind == KILN_DEF_FLOAT;
    case KILN_T_BOOL: return d->kind == KILN_DEF_BOOL;
    case KILN_T_SCALAR: return whole || d->kind == KILN_DEF_FLOAT;
    case KILN_T_STR: return d->kind == KILN_DEF_STR;
    case KILN_T_DTYPE: return dtype_value(d, out);
    case KILN_T_OTHER: return name_value(t, d, out);
    case KILN_T_TENSOR:
    case KILN_T_OPTIONAL:
    case KILN_T_LIST:
    case KILN_T_TUPLE:
    case KILN_T_APPLY: break;
    }
    return false;
}

int kiln_default_items(const kiln_type *list, const kiln_default *d) {
    return d->kind == KILN_DEF_NONE   ? 0
           : d->kind == KILN_DEF_LIST ? d->nitems
           : list->size > 0           ? list->size
                                      : 1;
}
