/* graph.h - private to src/graph: what a graph owns, and what its files ask of each other.
 *
 *   graph.c      nodes: list, names, uses, editing     value.c      values: build, compare, walk
 *   verify.c     the invariants                        dead_code.c  erases what nothing misses
 *   kg_print.c   graph -> .kg                          kg_parse.c   .kg -> graph, values by kg_value.c
 *   bind_args.c  arguments against a signature         overloads.c  PyTorch's schemas by name
 *   fit.c        values against types                  normalize.c  calls against schemas
 *   python*.c    graph -> Python                       picture.c    graph -> dot, SVG
 *
 * All memory is the graph's arena, so passes have no cleanup and nodes are never freed singly.  Values
 * nest at most KILN_GRAPH_MAX_NEST deep, which is checked when they are made: walking one may recurse.
 * Nothing walks nodes by recursion. */
#ifndef KILN_GRAPH_INTERNAL_H
#define KILN_GRAPH_INTERNAL_H
#include "base/base.h"
#include "kiln/kiln_graph.h"

/* A place in the table of names. */
typedef struct kiln_gname {
    const char *text;
    uint32_t n, hash;
    uint32_t next_suffix; /* of nodes whose wanted name is this */
    uint32_t keyword_of;  /* the list of keyword arguments that had it last; 0: none */
    kiln_node *node;      /* that bears it, or NULL */
} kiln_gname;

struct kiln_graph {
    kiln_arena arena;
    kiln_node *first, *last;
    size_t count, nplaceholders;
    uint32_t next_id, epoch, keyword_lists;
    kiln_gname *names; /* open addressing; a NULL text is a free place */
    size_t nnames, names_cap;
    const kiln_gval *none, *bools[2], *ellipsis, *ints[256]; /* shared; ints: -1 .. 254 */
};

/* The name's place, made if it is new; NULL: out of memory.  Valid until the next call. */
kiln_gname *kiln_graph_intern(kiln_graph *g, const char *text, size_t n);

/* Numbers the nodes (`order`) and checks all that kiln_graph_verify does but for names. */
kiln_status kiln_graph_number(kiln_graph *g) KILN_MUST_CHECK;

bool kiln_gkind_is_text(kiln_gkind k);
bool kiln_gkind_is_items(kiln_gkind k);

/* Calls visit for every node inside v, in order, with repeats. */
typedef void (*kiln_visit_fn)(void *user, kiln_node *node);
void kiln_gval_visit(const kiln_gval *v, kiln_visit_fn visit, void *user);

/* -- text shared by the printers (gtext.c) -- */
void kiln_gtext_float(kiln_sb *out, double f); /* always with a point, an exponent, inf or nan */
void kiln_gtext_int(kiln_sb *out, int64_t i);
void kiln_gtext_string(kiln_sb *out, const char *s, size_t n);   /* "..." in ASCII, Python's escapes */
void kiln_gtext_bytes(kiln_sb *out, const char *s, size_t n);    /* b"..." */
bool kiln_gtext_is_utf8(const char *s, size_t n);                /* lone surrogates are fine */
bool kiln_gtext_read_int(const char *s, size_t n, int64_t *out); /* decimal or 0x; false: beyond 64 bits */
bool kiln_gtext_is_identifier(const char *s, size_t n); /* ASCII letters, digits, _; no digit first */
bool kiln_gtext_is_keyword(const char *s, size_t n);    /* False, await, ... and __debug__ */
#endif
