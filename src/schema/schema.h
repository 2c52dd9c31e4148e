/* schema.h - operator schema text <-> struct.
 *
 *   aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
 *
 * kiln_schema_print(kiln_schema_parse(text)) is text, for every schema PyTorch 2.13 ships.
 * All memory comes from the caller's arena.  Knows no dtypes, rows or tensors. */
#ifndef KILN_SCHEMA_H
#define KILN_SCHEMA_H
#include "base/base.h"

enum {
    KILN_SCHEMA_MAX_TEXT = 64 * 1024, /* bytes of one schema */
    KILN_SCHEMA_MAX_NEST = 64,        /* brackets inside brackets */
};

typedef enum kiln_tkind {
    KILN_T_TENSOR,
    KILN_T_INT,
    KILN_T_SYMINT,
    KILN_T_FLOAT,
    KILN_T_BOOL,
    KILN_T_SCALAR,
    KILN_T_STR,
    KILN_T_DTYPE,    /* ScalarType */
    KILN_T_OTHER,    /* any other named type (Layout, Device, Generator, t, __torch__.x.Y, ...): see name */
    KILN_T_OPTIONAL, /* elem? */
    KILN_T_LIST,     /* elem[size], size -1 for [] */
    KILN_T_TUPLE,    /* (items...) */
    KILN_T_APPLY     /* name(items...): Dict(str, t), Future(t), RRef(t) */
} kiln_tkind;

/* An alias annotation: (a), (a!), (a|b -> *), (a! -> b|c) ...; kept as written between its brackets. */
typedef struct kiln_alias {
    const char *text; /* "a!", "a -> *" */
    bool writes;      /* has '!' */
} kiln_alias;

typedef struct kiln_type {
    kiln_tkind kind;
    int size;                       /* LIST: the fixed length, or -1 */
    const char *name;               /* OTHER, APPLY: as written.  Others: NULL */
    const struct kiln_type *elem;   /* OPTIONAL, LIST */
    const struct kiln_type **items; /* TUPLE, APPLY */
    int nitems;
    const kiln_alias *alias; /* or NULL; stands right after this type */
} kiln_type;

typedef enum kiln_defkind {
    KILN_DEF_ABSENT, /* the argument is required */
    KILN_DEF_NONE,
    KILN_DEF_BOOL,
    KILN_DEF_INT,
    KILN_DEF_FLOAT,
    KILN_DEF_STR,  /* s: the unescaped text */
    KILN_DEF_NAME, /* s: an identifier as written: contiguous_format, Mean, ... */
    KILN_DEF_LIST
} kiln_defkind;

typedef struct kiln_default {
    kiln_defkind kind;
    int64_t i; /* BOOL, INT */
    double f;  /* FLOAT */
    const char *s;
    const char *text;                 /* exactly as written, for printing */
    const struct kiln_default *items; /* LIST */
    int nitems;
} kiln_default;

typedef struct kiln_param {
    const kiln_type *type;
    const char *name; /* "" for an unnamed return */
    kiln_default def;
    bool kwarg_only;
} kiln_param;

typedef struct kiln_schema {
    const char *ns;       /* "aten", or "" if the text has no "ns::" */
    const char *name;     /* "add" */
    const char *overload; /* "Tensor", or "" */
    kiln_param *args;
    int nargs;
    kiln_param *rets;
    int nrets;
    bool vararg;     /* (..., "...") */
    bool varret;     /* -> ... */
    bool ret_parens; /* returns were written in brackets */
} kiln_schema;

/* Parses exactly one schema from text[0..n).  Errors say "schema:LINE:COL: ..." and name what was
 * expected.  KILN_E_LIMIT for text over KILN_SCHEMA_MAX_TEXT, nesting over KILN_SCHEMA_MAX_NEST, more
 * than KILN_MAX_ARGS arguments or KILN_MAX_RETS returns; KILN_E_PARSE otherwise; *out untouched on
 * failure. */
kiln_status kiln_schema_parse(kiln_arena *arena, const char *text, size_t n,
                              kiln_schema **out) KILN_MUST_CHECK;

/* The same for a schema at a place of a longer text, which errors count lines and columns of: *used is where it
 * ended, right after the returns.  The name of an unbracketed return must stand on the line of its type.  Two
 * arguments of one name are refused here, as the text after may speak of them; kiln_schema_parse takes them, as
 * one schema of PyTorch (static_runtime::clamp_nan_to_num) has them. */
kiln_status kiln_schema_parse_prefix(kiln_arena *arena, const kiln_source *within, const char *at,
                                     size_t *used, kiln_schema **out) KILN_MUST_CHECK;

void kiln_schema_print(kiln_sb *out, const kiln_schema *s);
void kiln_type_print(kiln_sb *out, const kiln_type *t);
bool kiln_type_eq(const kiln_type *a, const kiln_type *b);   /* aliases ignored; SymInt equals int */
int kiln_schema_arg(const kiln_schema *s, const char *name); /* index, or -1 */

/* The type under `?`, and whether there was one. */
const kiln_type *kiln_type_strip(const kiln_type *t, bool *optional);
bool kiln_param_writes(const kiln_param *p); /* it, or what it is a list of, has an alias with '!' */
#endif
