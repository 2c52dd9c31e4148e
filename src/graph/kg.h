/* kg.h - private to src/graph: what kg_print.c, kg_parse.c and kg_value.c share. */
#ifndef KILN_KG_H
#define KILN_KG_H
#include <string.h>

#include "graph/graph.h"

#define KG_HEADER "kg 1" /* the first line: the format and its version */

typedef struct kg_parser {
    const char *start, *at, *end;
    kiln_graph *g;
    int depth;               /* values open around `at` */
    const kiln_gval **stack; /* items of the values that are open, innermost last */
    size_t nstack, stack_cap;
    kiln_sb text; /* of the string read last */
} kg_parser;

#define KG_SOURCE(p) (&(kiln_source){"graph", (p)->start, (p)->end, 0})
#define KG_FAIL(st, p, where, ...) KILN_FAIL_AT(KG_SOURCE(p), (where), (st), __VA_ARGS__)

/* Fails at the current character, naming it. */
static inline kiln_status kiln_kg_expected(const kg_parser *p, const char *what) {
    return KILN_FAIL_EXPECTED(KG_SOURCE(p), p->at, what);
}
/* Says where a value or node that could not be made stands. */
kiln_status kiln_kg_placed(const kg_parser *p, const char *where, kiln_status st);

kiln_status kiln_kg_push(kg_parser *p, const kiln_gval *v) KILN_MUST_CHECK; /* on the stack */
kiln_status kiln_kg_value(kg_parser *p, const kiln_gval **out) KILN_MUST_CHECK;
/* A string in quotes, which stand here; its text is in p->text then. */
kiln_status kiln_kg_string(kg_parser *p, bool bytes) KILN_MUST_CHECK;
/* An identifier or a string; *s is valid until the next string is read. */
kiln_status kiln_kg_name(kg_parser *p, const char *what, const char **s, size_t *n) KILN_MUST_CHECK;
/* Letters, digits, "_", and those of `joiners` that stand before more of them. */
void kiln_kg_skip_word(kg_parser *p, const char *joiners);

static inline bool kg_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool kg_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static inline bool kg_is_word_char(char c) { return kg_is_letter(c) || kg_is_digit(c); }
static inline char kg_peek(const kg_parser *p) { return p->at < p->end ? *p->at : '\0'; }
static inline char kg_peek2(const kg_parser *p) { return p->end - p->at > 1 ? p->at[1] : '\0'; }

static inline void kg_skip_blanks(kg_parser *p) {
    while (kg_peek(p) == ' ' || kg_peek(p) == '\t' || kg_peek(p) == '\r') p->at++;
}

/* Steps over c if it is next, blanks aside. */
static inline bool kg_eat(kg_parser *p, char c) {
    kg_skip_blanks(p);
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}
#endif
