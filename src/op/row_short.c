/* row_short.c - a row of one line, `alias NAME = OTHER` or `foreach NAME = OTHER` -> the text of the whole row that it stands for.
 *
 * This file reads the line.  An alias stands for the row of OTHER under another name; the family of such rows writes the row of a
 * foreach line.  The row that comes of a line is like any other: it has a schema, forms, a digest and a text of its own, and no other file
 * knows that it was written short.  Owns nothing: texts come from the caller's arena.  Must not know where rows come from; the
 * caller finds OTHER. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "op/row.h"

static const char alias_word[] = "alias", foreach_word[] = "foreach";

static bool starts_with(const char *text, size_t n, const char *word) {
    size_t nword = strlen(word);
    return n > nword && memcmp(text, word, nword) == 0 && (text[nword] == ' ' || text[nword] == '\t');
}

bool kiln_row_is_short(const char *text, size_t n) {
    return starts_with(text, n, alias_word) || starts_with(text, n, foreach_word);
}

static void skip_blanks(const char **p, const char *end) {
    while (*p < end && (**p == ' ' || **p == '\t' || **p == '\r')) ++*p;
}

static kiln_status no_name(const kiln_source *within, const char *at) {
    bool foreach = starts_with(within->start, (size_t)(within->end - within->start), foreach_word);
    return KILN_FAIL_EXPECTED(within, at,
                              foreach ? "the name of an operator, as in 'foreach _foreach_abs = abs'"
                                      : "the name of an operator, as in 'alias my::g = my::f'");
}

/* The name of an operator, after `prefix` if it has no namespace. */
static kiln_status take_name(kiln_arena *arena, const kiln_source *within, const char *prefix, const char **p,
                             const char **out) {
    const char *from = *p;
    while (*p < within->end && (isalnum((unsigned char)**p) || strchr("_.:", **p))) ++*p;
    size_t n = (size_t)(*p - from);
    if (n == 0) return no_name(within, from);
    size_t nname = strlen(prefix) + n + 1;
    char *name = kiln_arena_alloc(arena, nname);
    if (!name) return KILN_NOMEM();
    snprintf(name, nname, "%s%.*s", memchr(from, ':', n) ? "" : prefix, (int)n, from);
    *out = name;
    return KILN_OK;
}

/* Where the schema ends that starts at s->head. */
static kiln_status find_schema_end(const kiln_source *within, kiln_row_short *s) {
    kiln_arena scratch;
    kiln_schema *schema;
    size_t used = 0;
    kiln_arena_init(&scratch);
    kiln_status st = kiln_schema_parse_prefix(&scratch, within, s->head, &used, &schema);
    kiln_arena_free(&scratch);
    s->head_end = s->head + used;
    return st;
}

static kiln_status take_head(kiln_arena *arena, const kiln_source *within, const char **p,
                             kiln_row_short *out) {
    out->head = *p;
    KILN_TRY(take_name(arena, within, "", p, &out->name));
    out->head_end = *p;
    out->stated = out->foreach && *p < within->end && **p == '(';
    if (out->stated) KILN_TRY(find_schema_end(within, out));
    *p = out->head_end;
    return KILN_OK;
}

static kiln_status expect_end_of_alias(const kiln_source *within, const char *p) {
    while (p < within->end) {
        if (*p == '#') p = memchr(p, '\n', (size_t)(within->end - p));
        if (!p) break;
        if (!isspace((unsigned char)*p))
            return KILN_FAIL_EXPECTED(within, p, "the end of the alias, which has no clauses");
        p++;
    }
    return KILN_OK;
}

static kiln_status take_line_end(const kiln_source *within, const char *p, const char **next_line) {
    const char *nl = p < within->end ? memchr(p, '\n', (size_t)(within->end - p)) : NULL;
    *next_line = nl ? nl + 1 : within->end;
    if (p < within->end && *p != '\n' && *p != '#')
        return KILN_FAIL_EXPECTED(within, p, "the end of the line, and clauses on lines of their own");
    return KILN_OK;
}

kiln_status kiln_row_short_parse(kiln_arena *arena, const kiln_source *within, kiln_row_short *out) {
    *out = (kiln_row_short){
        .foreach = starts_with(within->start, (size_t)(within->end - within->start), foreach_word)};
    const char *p = within->start + strlen(out->foreach ? foreach_word : alias_word);
    skip_blanks(&p, within->end);
    KILN_TRY(take_head(arena, within, &p, out));
    skip_blanks(&p, within->end);
    if (p == within->end || *p != '=')
        return KILN_FAIL_EXPECTED(within, p, "'=' and the name of the other operator");
    p++;
    skip_blanks(&p, within->end);
    out->at = p;
    KILN_TRY(take_name(arena, within, "aten::", &p, &out->other));
    out->at_end = p;
    skip_blanks(&p, within->end);
    return out->foreach ? take_line_end(within, p, &out->clauses) : expect_end_of_alias(within, p);
}

/* FAMILY and NAME stand before the first bracket, since no name has one. */
static kiln_status write_alias(kiln_arena *arena, const kiln_row_short *alias, const char *other,
                               const char **out) {
    size_t family = strcspn(other, " \t"), head = strcspn(other, "(");
    size_t n = family + 1 + strlen(alias->name) + strlen(other + head) + 1;
    char *text = kiln_arena_alloc(arena, n);
    if (!text) return KILN_NOMEM();
    snprintf(text, n, "%.*s %s%s", (int)family, other, alias->name, other + head);
    *out = text;
    return KILN_OK;
}

kiln_status kiln_row_short_text(kiln_arena *arena, const kiln_source *within, const kiln_row_short *s,
                                const kiln_schema_list *list, const kiln_row *other, const char **out) {
    if (!s->foreach) return write_alias(arena, s, other->text, out);
    const kiln_foreach f = {within, s, list, other};
    int k = 0;
    while (!kiln_rules_of[k]->foreach_text) k++; /* one family has it */
    return kiln_rules_of[k]->foreach_text(arena, &f, out);
}
