/* fit.h - private to src/graph: values against types of schemas. */
#ifndef KILN_GRAPH_FIT_H
#define KILN_GRAPH_FIT_H
#include "graph/graph.h"
#include "schema/schema.h"

/* The cost of passing v for a parameter of that type; -1: it cannot be. */
int kiln_fit(const kiln_gval *v, const kiln_type *type);
#endif
