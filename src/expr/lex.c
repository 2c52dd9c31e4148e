/* lex.c - tokens of rows and expressions.
 *
 * Turns text into names, numbers, strings and punctuation with their line and column.  Comments run
 * from # to the end of the line.  Knows no grammar. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expr/expr.h"

void kiln_lex_init(kiln_lex *lx, kiln_arena *arena, const char *source, const char *text, size_t n,
                   int line) {
    memset(lx, 0, sizeof *lx);
    lx->p = lx->line_start = text;
    lx->end = text + n;
    lx->line = line;
    lx->arena = arena;
    lx->source = source;
}

static void skip_blank(kiln_lex *lx) {
    lx->first_on_line = lx->p == lx->line_start;
    for (; lx->p < lx->end; lx->p++) {
        if (*lx->p == '#') {
            while (lx->p < lx->end && *lx->p != '\n') lx->p++;
            if (lx->p == lx->end) return;
        }
        if (*lx->p == '\n') {
            lx->line++;
            lx->line_start = lx->p + 1;
            lx->first_on_line = true;
        } else if (*lx->p != ' ' && *lx->p != '\t' && *lx->p != '\r') {
            return;
        }
    }
}

/* ASCII only: isalpha would read other letters under other locales. */
static bool name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool name_char(char c) { return name_start(c) || isdigit((unsigned char)c); }

static kiln_status lex_number(kiln_lex *lx) {
    char text[64];
    size_t n = 0;
    const char *p = lx->p;
    bool is_float = false;
    while (p < lx->end && n < sizeof text - 1) {
        bool sign = (*p == '+' || *p == '-') && n && (text[n - 1] == 'e' || text[n - 1] == 'E');
        if (!isdigit((unsigned char)*p) && *p != '.' && *p != 'e' && *p != 'E' && !sign) break;
        if (*p == '.' && p + 1 < lx->end && p[1] == '.') break; /* 0.. is not a number */
        if (!isdigit((unsigned char)*p)) is_float = true;
        text[n++] = *p++;
    }
    text[n] = 0;
    char *stop;
    errno = 0;
    lx->is_float = is_float;
    bool whole = kiln_f64_parse(text, n, &lx->f);
    if (!is_float) lx->i = strtoll(text, &stop, 10);
    if (!whole || errno == ERANGE || (p < lx->end && name_char(*p)))
        return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "malformed number");
    lx->tok = KILN_TOK_NUM;
    lx->p = p;
    return KILN_OK;
}

static kiln_status lex_string(kiln_lex *lx) {
    const char *p = lx->p + 1;
    kiln_sb text;
    kiln_sb_init(&text);
    while (p < lx->end && *p != '"' && *p != '\n') {
        if (*p == '\\' && p + 1 < lx->end && p[1] != '\n') p++;
        kiln_sb_putc(&text, *p++);
    }
    if (p == lx->end || *p != '"') {
        kiln_sb_fini(&text);
        return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                              "string without a closing quote");
    }
    lx->str = kiln_arena_strndup(lx->arena, text.p ? text.p : "", text.len);
    bool failed = text.failed || !lx->str;
    kiln_sb_fini(&text);
    if (failed) return KILN_NOMEM();
    lx->tok = KILN_TOK_STR;
    lx->p = p + 1;
    return KILN_OK;
}

/* Longest first, so that `<<` is not read as `<` `<`. */
static const char *const puncts[] = {"->", "::", "..", "<<", ">>", "<=", ">=", "==", "!=", "**", "//",
                                     "(",  ")",  "[",  "]",  ",",  ":",  "=",  "?",  "+",  "-",  "*",
                                     "/",  "%",  "<",  ">",  "&",  "|",  "^",  "~",  ".",  "!"};

static kiln_status lex_punct(kiln_lex *lx) {
    size_t left = (size_t)(lx->end - lx->p);
    for (size_t k = 0; k < sizeof puncts / sizeof *puncts; k++) {
        size_t n = strlen(puncts[k]);
        if (n > left || memcmp(lx->p, puncts[k], n) != 0) continue;
        lx->tok = KILN_TOK_PUNCT;
        lx->str = puncts[k];
        lx->p += n;
        return KILN_OK;
    }
    return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "unexpected character 0x%02x",
                          (unsigned char)*lx->p);
}

kiln_status kiln_lex_next(kiln_lex *lx) {
    skip_blank(lx);
    lx->start = lx->p;
    lx->tok_line = lx->line;
    lx->tok_col = (int)(lx->p - lx->line_start) + 1;
    lx->str = "";
    kiln_status st = KILN_OK;
    if (lx->p >= lx->end) {
        lx->tok = KILN_TOK_END;
    } else if (name_start(*lx->p)) {
        while (lx->p < lx->end && name_char(*lx->p)) lx->p++;
        lx->tok = KILN_TOK_NAME;
        lx->str = kiln_arena_strndup(lx->arena, lx->start, (size_t)(lx->p - lx->start));
        if (!lx->str) st = KILN_NOMEM();
    } else if (isdigit((unsigned char)*lx->p) ||
               (*lx->p == '.' && lx->p + 1 < lx->end && isdigit((unsigned char)lx->p[1]))) {
        st = lex_number(lx);
    } else if (*lx->p == '"') {
        st = lex_string(lx);
    } else {
        st = lex_punct(lx);
    }
    lx->len = (size_t)(lx->p - lx->start);
    return st;
}

bool kiln_lex_is(const kiln_lex *lx, const char *text) {
    return (lx->tok == KILN_TOK_NAME || lx->tok == KILN_TOK_PUNCT) && strcmp(lx->str, text) == 0;
}

kiln_status kiln_lex_accept(kiln_lex *lx, const char *text, bool *did) {
    *did = kiln_lex_is(lx, text);
    return *did ? kiln_lex_next(lx) : KILN_OK;
}

void kiln_lex_blame(const kiln_lex *lx, const char *expected) {
    int n = lx->len > 30 ? 30 : (int)lx->len;
    if (lx->tok == KILN_TOK_END)
        (void)KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                             "expected %s, found the end of the row", expected);
    else
        (void)KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "expected %s, found '%.*s'",
                             expected, n, lx->start);
}

kiln_status kiln_lex_expect(kiln_lex *lx, const char *text) {
    if (kiln_lex_is(lx, text)) return kiln_lex_next(lx);
    char quoted[32] = "'";
    strncat(quoted, text, sizeof quoted - 3);
    strcat(quoted, "'");
    return kiln_lex_fail(lx, quoted);
}

kiln_status kiln_lex_name(kiln_lex *lx, const char **out) {
    if (lx->tok != KILN_TOK_NAME) return kiln_lex_fail(lx, "a name");
    *out = lx->str;
    return kiln_lex_next(lx);
}
