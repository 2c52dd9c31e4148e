/* kg.h - private to src/graph: what the .kg printer and parser share. */
#ifndef KILN_KG_H
#define KILN_KG_H
#include "graph/graph.h"

#define KG_HEADER "kg 1" /* the first line: the format and its version */
#endif
