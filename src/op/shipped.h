/* shipped.h - private to src/op: the rows that are part of the library, found by name without parsing any.
 *
 * tools/index_ops.c checks every row when Kiln is built and writes the tables below.  At run time a row is parsed
 * when one of its operators is asked for, once per process; all contexts share it, and it stays. */
#ifndef KILN_SHIPPED_H
#define KILN_SHIPPED_H
#include <stdatomic.h>

#include "op/op.h"

/* Text of a row or rule within kiln_text_ops[file]. */
typedef struct kiln_shipped_text {
    uint32_t start, n;
    uint16_t file, line;
} kiln_shipped_text;

typedef struct kiln_shipped_op {
    uint32_t name;   /* offset of "aten::add.Tensor" in names */
    uint32_t schema; /* offset of its line in PyTorch's list; 0: the list does not have it, or has it first */
    uint16_t row;
    uint8_t form;   /* kiln_form */
    uint8_t family; /* of the row: kiln_family */
} kiln_shipped_op;

/* A rule for complex numbers. */
typedef struct kiln_shipped_rule {
    uint32_t name; /* offset in names */
    kiln_shipped_text text;
} kiln_shipped_rule;

/* Offsets and no pointers, so that a library of many rows is loaded as fast as one of few. */
typedef struct kiln_shipped_index {
    const char *names;
    const kiln_shipped_op *ops; /* sorted by name */
    size_t nops;
    const kiln_shipped_text *rows;
    const kiln_shipped_rule *rules; /* sorted by name */
    size_t nrules;
    kiln_digest rules_digest;
    /* What has been parsed so far; NULL where nothing has. */
    _Atomic(const kiln_op *) *op;
    _Atomic(const kiln_row *) *row;
    _Atomic(const kiln_crule *) *rule;
} kiln_shipped_index;

extern const kiln_shipped_index kiln_shipped; /* written by tools/index_ops.c */

const char *kiln_shipped_name(size_t k); /* of the k-th operator */
/* The k-th operator, parsed if it was not yet.  Any thread.  KILN_E_NOMEM. */
kiln_status kiln_shipped_get(size_t k, const kiln_op **out) KILN_MUST_CHECK;
/* Describes the k-th operator, and parses its row only where the index does not say enough.  Any thread.  KILN_E_NOMEM. */
kiln_status kiln_shipped_entry(size_t k, kiln_op_entry *out) KILN_MUST_CHECK;
/* Where `name` stands among the sorted names, or would; *found says which. */
size_t kiln_shipped_search(const char *name, bool *found);
/* For kiln_crules: the rule of that name; NULL if there is none. */
kiln_status kiln_shipped_find_rule(const char *name, const kiln_crule **out) KILN_MUST_CHECK;
#endif
