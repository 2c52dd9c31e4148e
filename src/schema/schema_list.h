/* schema_list.h - a list of schemas, one a line -> the lines of an operator, by its name.
 *
 * Lines are ordered by the operator's name without its overload ("aten::add"); overloads of one operator stand
 * together, in the order of the list.  The order of PyTorch's list is worked out when Kiln is built, so that
 * using it costs nothing at start.  Knows where a name ends, and no more of a schema. */
#ifndef KILN_SCHEMA_LIST_H
#define KILN_SCHEMA_LIST_H
#include "base/base.h"

typedef struct kiln_schema_list {
    const char *text;
    size_t n;
    const uint32_t *starts; /* where each line begins, in the order above */
    size_t nlines;
} kiln_schema_list;

/* One line: a schema without its line end. */
typedef struct kiln_schema_line {
    const char *text; /* not terminated */
    size_t n;
    size_t base; /* bytes of "aten::add" */
    size_t name; /* bytes of "aten::add.Tensor" */
} kiln_schema_line;

extern const kiln_schema_list kiln_torch_schemas; /* PyTorch's own */

/* Orders the lines of text, which must outlive the list; starts come from the arena. */
kiln_status kiln_schema_list_make(kiln_arena *arena, const char *text, size_t n,
                                  kiln_schema_list *out) KILN_MUST_CHECK;
kiln_schema_line kiln_schema_list_at(const kiln_schema_list *list, size_t k);
/* The lines of the operator "aten::add": how many, from the *first on. */
size_t kiln_schema_list_overloads(const kiln_schema_list *list, const char *base, size_t n, size_t *first);
/* The line of "aten::add.Tensor"; false if there is none. */
bool kiln_schema_list_find(const kiln_schema_list *list, const char *name, size_t n, kiln_schema_line *out);
#endif
