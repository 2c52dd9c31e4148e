/* python.h - private to src/graph: what the files of the Python printer share.
 *
 *   python_names.c  which name everything has        python_value.c  values -> expressions
 *   python_op.c     operators -> infix               python.c        nodes -> statements */
#ifndef KILN_GRAPH_PYTHON_H
#define KILN_GRAPH_PYTHON_H
#include "graph/graph.h"

/* A name that is not simply a node's: reserved, a parameter's, a renamed node's or a global's. */
typedef struct py_name {
    const char *text;
    uint32_t n, hash;
    enum { PY_RESERVED, PY_TAKEN } state; /* reserved: nodes keep off, globals may be called so */
    uint32_t number;                      /* in the table of numbers: the last one that was tried */
    kiln_node *node;                      /* the parameter that is called so, or NULL */
    const char *global;                   /* in the table of globals: what the global is called */
} py_name;

/* A table by text: open addressing, a NULL text is a free place. */
typedef struct py_table {
    py_name *at;
    size_t n, cap;
} py_table;

typedef struct py_printer {
    kiln_graph *g;
    kiln_sb out;
    kiln_arena arena;         /* names and globals; handed to the caller */
    py_table names;           /* name -> who has it */
    py_table globals;         /* kind and text of what a global stands for -> its name */
    py_table numbers;         /* name without a number -> the last number tried after it */
    const char **node_names;  /* by node->order */
    const kiln_node **params; /* placeholders, in order */
    size_t nparams;
    kiln_python_global *list;
    size_t nlist, list_cap;
    const char *self;         /* "" for none */
    const char *const *taken; /* borrowed: names to keep off */
    size_t ntaken;
    const char *torch; /* the name torch has here, once it was asked for */
    kiln_status st;    /* the first failure */
    bool verbose;
} py_printer;

/* Gives parameters their names: their own if Python can have them. */
kiln_status kiln_py_assign_names(py_printer *p);
/* Gives a node its name; done in order, before its statement. */
void kiln_py_name_node(py_printer *p, const kiln_node *node);
void kiln_py_names_fini(py_printer *p);

/* The names that code uses.  "" after a failure, which p->st tells. */
const char *kiln_py_builtin(py_printer *p, const char *name);  /* "getattr" */
const char *kiln_py_torch(py_printer *p);                      /* the module */
const char *kiln_py_global(py_printer *p, const kiln_gval *v); /* FUNC, CONST; FLOAT: inf, nan */

void kiln_py_fail(py_printer *p, kiln_status st); /* keeps the first */

void kiln_py_value(py_printer *p, const kiln_gval *v);
/* v as what stands before a dot, a bracket or an operator that binds tighter than a sign. */
void kiln_py_atom(py_printer *p, const kiln_gval *v);
void kiln_py_text(py_printer *p, const char *text);
/* base followed by the dotted path; parts that are no Python names go through getattr. */
void kiln_py_path(py_printer *p, const char *base, const char *const *path, const size_t *n, size_t parts);
void kiln_py_node(py_printer *p, const kiln_node *node);
bool kiln_py_plain(const char *s, size_t n); /* can stand after a dot or before '=' in a call */

/* Prints the expression of a call of an operator.* or builtins.* function if Python has a spelling for
 * it.  Returns false and prints nothing otherwise. */
bool kiln_py_operator(py_printer *p, const kiln_node *node);
/* The same for those that are statements: in-place operators and item assignment. */
bool kiln_py_operator_statement(py_printer *p, const kiln_node *node);
#endif
