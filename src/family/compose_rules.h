/* compose_rules.h - what the files share that say what a row of calls may say, and what plans ask of the calls. */
#ifndef KILN_COMPOSE_RULES_H
#define KILN_COMPOSE_RULES_H
#include "op/row.h"

/* Whether a value of type `have` may be given to a call for an argument of type `want`. */
bool kiln_compose_fits(const kiln_type *have, const kiln_type *want);
/* The way to which clauses belong that stand here. */
kiln_status kiln_compose_this_way(kiln_lex *lx, kiln_row *row, kiln_way **out) KILN_MUST_CHECK;

/* update_rules.c: rows that update the items of lists. */
extern const kiln_clause kiln_clause_for, kiln_clause_update;
/* Makes the maps of items, when the row has been resolved. */
kiln_status kiln_update_make(kiln_arena *arena, kiln_row *row) KILN_MUST_CHECK;

/* foreach_rules.c: the function `foreach_text` of the family. */
kiln_status kiln_foreach_text(kiln_arena *arena, const kiln_foreach *f, const char **out) KILN_MUST_CHECK;
#endif
