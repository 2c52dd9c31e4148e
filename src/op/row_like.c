/* row_like.c - a row whose first clause is `like OTHER` -> the text of the whole row, with what it takes over from OTHER.
 *
 * The row states its family and schema.  Attributes and bodies that it does not state are those of OTHER.  Its own clauses come
 * first, then those clauses of OTHER whose words are not among its own.  Lines keep their numbers, for messages: the row's own ones
 * stand as before, and those taken over have the numbers that they have in OTHER.  Owns nothing: texts come from the caller's
 * arena.  Must not know where rows come from; the caller finds OTHER. */
#include <ctype.h>
#include <string.h>

#include "op/row.h"

typedef struct part {
    const char *at, *end;
} part;

/* The parts of a row's text. */
typedef struct cut {
    kiln_lex lx; /* after cut_head: at the first clause, or at the end */
    part all;
    part attrs, bodies;     /* with the ':' and the '=' before them; empty: the row has none */
    const char *schema_end; /* where the schema ends */
    const char *head_end;   /* where the last token before the clauses ends */
} cut;

/* Whether a line begins with `like`.  Most rows have no such line, and are not read twice. */
bool kiln_row_may_be_like(const char *text, size_t n) {
    static const char word[] = "like";
    const char *end = text + n;
    for (const char *p = text; (p = memchr(p, '\n', (size_t)(end - p)));) {
        for (p++; p < end && (*p == ' ' || *p == '\t'); p++) continue;
        if ((size_t)(end - p) > sizeof word && memcmp(p, word, sizeof word - 1) == 0 &&
            isspace((unsigned char)p[sizeof word - 1]))
            return true;
    }
    return false;
}

/* -- cutting a text ------------------------------------------------------------------------------------------- */

static const char *after_family(part all) {
    const char *p = all.at;
    while (p < all.end && !isspace((unsigned char)*p)) p++;
    while (p < all.end && (*p == ' ' || *p == '\t')) p++;
    return p;
}

static bool at_clause(const kiln_lex *lx) {
    return lx->tok == KILN_TOK_END || (lx->first_on_line && kiln_lex_is(lx, "like")) ||
           kiln_row_clause_word(lx);
}

/* Takes tokens up to a clause; of them, `until` ends the part.  The attribute `strides like x` may go on over lines. */
static kiln_status take_part(cut *c, const char *until, part *out) {
    bool strides = false;
    out->at = c->lx.start;
    while (strides || (!at_clause(&c->lx) && !(until && kiln_lex_is(&c->lx, until)))) {
        strides = kiln_lex_is(&c->lx, "strides");
        out->end = c->head_end = c->lx.p;
        KILN_TRY(kiln_lex_next(&c->lx));
        strides = strides && kiln_lex_is(&c->lx, "like");
    }
    return KILN_OK;
}

static kiln_status cut_head(kiln_arena *scratch, const kiln_source *within, cut *c) {
    size_t used;
    kiln_schema *schema;
    *c = (cut){.all = {within->start, within->end}};
    const char *p = after_family(c->all);
    KILN_TRY(kiln_schema_parse_prefix(scratch, within, p, &used, &schema));
    c->schema_end = c->head_end = p + used;
    kiln_lex_init(&c->lx, scratch, within->name, within->start, (size_t)(within->end - within->start),
                  within->lines_before + 1);
    for (; c->lx.p < c->schema_end; c->lx.p++) {
        if (*c->lx.p != '\n') continue;
        c->lx.line++;
        c->lx.line_start = c->lx.p + 1;
    }
    KILN_TRY(kiln_lex_next(&c->lx));
    if (kiln_lex_is(&c->lx, ":")) KILN_TRY(take_part(c, "=", &c->attrs));
    if (kiln_lex_is(&c->lx, "=")) KILN_TRY(take_part(c, NULL, &c->bodies));
    return KILN_OK;
}

/* Takes a clause: from its word, which is the current token, to its last token. */
static kiln_status take_clause(kiln_lex *lx, part *out) {
    out->at = lx->start;
    do {
        out->end = lx->p;
        KILN_TRY(kiln_lex_next(lx));
    } while (!at_clause(lx));
    return KILN_OK;
}

static bool has_word(const kiln_row_like *s, const char *word) {
    for (int k = 0; k < s->nwords; k++)
        if (strcmp(s->words[k], word) == 0) return true;
    return false;
}

/* -- the row's own part ------------------------------------------------------------------------------------------ */

static kiln_status read_own(kiln_arena *arena, kiln_row_like *out, cut *c) {
    kiln_lex *lx = &c->lx;
    const char *name;
    out->like = lx->start;
    out->other = NULL;
    if (!kiln_lex_is(lx, "like")) return KILN_OK;
    KILN_TRY(kiln_lex_next(lx));
    out->at = lx->start;
    KILN_TRY(kiln_row_operator(lx, &name));
    if (!*name) return KILN_OK; /* an argument of this name, or no clause at all: the parser tells */
    if (lx->tok != KILN_TOK_END && !lx->first_on_line)
        return kiln_lex_fail(lx, "the end of the line, and clauses on lines of their own");
    out->head_end = c->head_end;
    out->schema_end = c->schema_end;
    out->attrs = c->attrs.at;
    out->bodies = c->bodies.at;
    for (out->own_end = out->at;
         out->own_end < c->all.end && !isspace((unsigned char)*out->own_end) && *out->own_end != '#';)
        out->own_end++;
    while (lx->tok != KILN_TOK_END) {
        part clause;
        const char *word = kiln_row_clause_word(lx);
        if (!word) return kiln_lex_fail(lx, "a clause word such as over, check, let, state or doc");
        if (kiln_lex_is(lx, "when"))
            return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                                  "a row that is like another one has no 'when' of its own");
        if (!has_word(out, word)) {
            if (out->nwords == KILN_LIKE_MAX_WORDS) return kiln_lex_fail(lx, "at most 64 clause words");
            out->words[out->nwords++] = word;
        }
        KILN_TRY(take_clause(lx, &clause));
        out->own_end = clause.end;
    }
    kiln_sb full;
    kiln_sb_init(&full);
    kiln_sb_printf(&full, "%s%s", strstr(name, "::") ? "" : "aten::", name);
    out->other = full.failed ? NULL : kiln_arena_strndup(arena, full.p, full.len);
    kiln_sb_fini(&full);
    return out->other ? KILN_OK : KILN_NOMEM();
}

kiln_status kiln_row_like_parse(kiln_arena *arena, const kiln_source *within, kiln_row_like *out) {
    kiln_arena scratch;
    cut c;
    *out = (kiln_row_like){.other = NULL};
    kiln_arena_init(&scratch);
    kiln_status st = cut_head(&scratch, within, &c);
    if (st == KILN_OK) st = read_own(arena, out, &c);
    kiln_arena_free(&scratch);
    return st;
}

/* -- the whole text ------------------------------------------------------------------------------------------------- */

static void put(kiln_sb *out, const char *from, const char *to) {
    kiln_sb_putn(out, from, (size_t)(to - from));
}

/* Attributes or bodies of OTHER, in one line. */
static void put_folded(kiln_sb *out, part p) {
    if (!p.at) return;
    kiln_sb_putc(out, ' ');
    kiln_row_fold(out, p.at, (size_t)(p.end - p.at));
}

/* The text without its clauses that the row has of its own; their line ends stay. */
static kiln_status put_clauses(const kiln_source *within, const kiln_row_like *s, const kiln_row *other,
                               cut *c, kiln_sb *out) {
    kiln_lex *lx = &c->lx;
    const char *done = lx->line_start;
    bool ways = false;
    while (lx->tok != KILN_TOK_END) {
        part clause;
        const char *word = kiln_row_clause_word(lx);
        ways = ways || kiln_lex_is(lx, "when");
        KILN_TRY(take_clause(lx, &clause));
        bool replaced = word && has_word(s, word);
        if (replaced && ways)
            return KILN_FAIL_AT(within, s->at, KILN_E_PARSE,
                                "the clause '%.*s' of %s stands after a 'when', and cannot be replaced",
                                (int)strcspn(clause.at, " \t\n"), clause.at, other->name);
        put(out, done, replaced ? clause.at : clause.end);
        for (const char *p = clause.at; replaced && p < clause.end; p++)
            if (*p == '\n') kiln_sb_putc(out, '\n');
        done = clause.end;
    }
    kiln_sb_putc(out, '\n');
    return KILN_OK;
}

static kiln_status write_row(const kiln_source *within, const kiln_row_like *s, const kiln_row *other, cut *c,
                             kiln_written *w, kiln_sb *out) {
    put(out, within->start, s->schema_end);
    if (!s->attrs) put_folded(out, c->attrs);
    put(out, s->schema_end, s->head_end);
    if (!s->bodies) put_folded(out, c->bodies);
    put(out, s->head_end, s->like);
    kiln_sb_puts(out, "# ");
    put(out, s->like, s->own_end);
    kiln_sb_putc(out, '\n');
    if (c->lx.tok == KILN_TOK_END) return KILN_OK;
    w->taken = out->len;
    w->taken_line = c->lx.tok_line;
    return put_clauses(within, s, other, c, out);
}

static kiln_status make_text(kiln_arena *scratch, const kiln_source *within, const kiln_row_like *s,
                             const kiln_row *other, kiln_written *w) {
    kiln_source text = {other->source, other->text, other->text + strlen(other->text), other->line - 1};
    const char *family = kiln_family_name(other->family);
    size_t nfamily = strlen(family);
    cut c;
    if (other->made)
        return KILN_FAIL_AT(within, s->at, KILN_E_PARSE,
                            "%s is a short row itself; name the row that it is made of", other->name);
    if ((size_t)(s->schema_end - within->start) < nfamily || memcmp(within->start, family, nfamily) != 0 ||
        !isspace((unsigned char)within->start[nfamily]))
        return KILN_FAIL_AT(within, s->at, KILN_E_PARSE, "%s is of another family: '%s'", other->name,
                            family);
    KILN_TRY(cut_head(scratch, &text, &c));
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_status st = write_row(within, s, other, &c, w, &sb);
    if (st == KILN_OK && sb.failed) st = KILN_NOMEM();
    if (st == KILN_OK) {
        w->text = sb.p;
        w->n = sb.len;
    } else {
        kiln_sb_fini(&sb);
    }
    return st;
}

kiln_status kiln_row_like_text(kiln_arena *arena, const kiln_source *within, const kiln_row_like *s,
                               const kiln_row *other, kiln_written *w) {
    kiln_arena scratch;
    kiln_arena_init(&scratch);
    kiln_written made = *w;
    kiln_status st = make_text(&scratch, within, s, other, &made);
    kiln_arena_free(&scratch);
    if (st != KILN_OK) return st;
    const char *text = kiln_arena_strndup(arena, made.text, made.n);
    kiln_free((char *)made.text);
    if (!text) return KILN_NOMEM();
    *w = made;
    w->text = text;
    return KILN_OK;
}
