/* schema_reader.h - private to src/schema: a place in the text of a schema, and steps over characters from there. */
#ifndef KILN_SCHEMA_READER_H
#define KILN_SCHEMA_READER_H
#include <string.h>

#include "schema/schema.h"

typedef struct parser {
    const kiln_source *within; /* what messages count lines and columns of */
    const char *start, *at, *end;
    bool cut;      /* end is the length limit and not where the caller's text ends */
    bool distinct; /* two parameters of one name are refused */
    int depth;     /* brackets open around `at` */
    kiln_arena *arena;
} parser;

/* -- errors -------------------------------------------------------------------------------------- */

#define FAIL_AT(st, p, where, ...) KILN_FAIL_AT((p)->within, (where), (st), __VA_ARGS__)

static inline kiln_status too_long(const parser *p) {
    return FAIL_AT(KILN_E_LIMIT, p, p->start + KILN_SCHEMA_MAX_TEXT, "a schema may have at most %d bytes",
                   KILN_SCHEMA_MAX_TEXT);
}

static inline char peek(const parser *p) { return p->at < p->end ? *p->at : '\0'; }

/* Fails at the current character, naming it. */
static inline kiln_status expected(const parser *p, const char *what) {
    if (p->at == p->end && p->cut) return too_long(p);
    return KILN_FAIL_EXPECTED(p->within, p->at, what);
}

/* -- characters ---------------------------------------------------------------------------------- */

static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static inline char peek2(const parser *p) { return p->end - p->at > 1 ? p->at[1] : '\0'; }

static inline void skip_blanks(parser *p) {
    while (peek(p) == ' ' || peek(p) == '\t') p->at++;
}

static inline void skip_space(parser *p) {
    for (; p->at < p->end; p->at++)
        if (*p->at != ' ' && *p->at != '\t' && *p->at != '\n' && *p->at != '\r') return;
}

/* Steps over `token` if it stands here. */
static inline bool eat(parser *p, const char *token) {
    size_t n = strlen(token);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, token, n) != 0) return false;
    p->at += n;
    return true;
}

static inline kiln_status need(parser *p, const char *token, const char *what) {
    skip_space(p);
    return eat(p, token) ? KILN_OK : expected(p, what);
}

static inline kiln_status copy(parser *p, const char *from, const char **out) {
    *out = kiln_arena_strndup(p->arena, from, (size_t)(p->at - from));
    return *out ? KILN_OK : KILN_NOMEM();
}

static inline kiln_status parse_name(parser *p, const char *what, const char **out) {
    const char *from = p->at;
    if (!is_letter(peek(p))) return expected(p, what);
    while (is_letter(peek(p)) || is_digit(peek(p))) p->at++;
    return copy(p, from, out);
}

static inline kiln_status too_deep(const parser *p) {
    return FAIL_AT(KILN_E_LIMIT, p, p->at, "brackets may nest at most %d deep", KILN_SCHEMA_MAX_NEST);
}

static inline kiln_status open_bracket(parser *p) {
    if (p->depth == KILN_SCHEMA_MAX_NEST) return too_deep(p);
    p->depth++;
    p->at++;
    return KILN_OK;
}

/* -- growing lists ------------------------------------------------------------------------------- */

/* Room for one more item after n: doubles when n is 0, 4, 8, 16, ...; the old block stays in the arena. */
static inline void *grow(parser *p, const void *old, int n, size_t item) {
    bool full = n == 0 || (n >= 4 && (n & (n - 1)) == 0);
    if (!full) return (void *)old;
    void *bigger = kiln_arena_alloc(p->arena, (n ? (size_t)n * 2 : 4) * item);
    if (bigger && n) memcpy(bigger, old, (size_t)n * item);
    return bigger;
}

/* Parses the default value that stands here (schema_default.c). */
kiln_status kiln_schema_value(parser *p, kiln_default *d) KILN_MUST_CHECK;
#endif
