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

/* Bytes of the name that begins at p. */
static int name_bytes(const char *p, const char *end) {
    int n = 0;
    while (p + n < end && name_char(p[n])) n++;
    return n;
}

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
    if (!whole || errno == ERANGE || (strcmp(text, "0") == 0 && name_bytes(p, lx->end))) /* 0x10 */
        return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "malformed number");
    int name = name_bytes(p, lx->end);
    if (name)
        return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                              "no operator between %s and '%.*s'; write %s*%.*s", text, name, p, text, name,
                              p);
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

/* Bytes of the character at p, which is UTF-8; 1 for a byte that begins none. */
static size_t character_bytes(const char *p, size_t left) {
    unsigned char c = (unsigned char)*p;
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1, k = 1;
    while (k < n && k < left && ((unsigned char)p[k] & 0xc0) == 0x80) k++;
    return k == n && c < 0xf5 ? n : 1;
}

static kiln_status odd_character(const kiln_lex *lx, size_t left) {
    size_t n = character_bytes(lx->p, left);
    const char *advice = kiln_expr_advice(lx->p, n);
    unsigned char c = (unsigned char)*lx->p;
    if (n == 1 && (c < ' ' || c > '~'))
        return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                              "unexpected character 0x%02x", c);
    return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                          "unexpected character '%.*s'%s%s", (int)n, lx->p, advice ? "; " : "",
                          advice ? advice : "");
}

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
    return odd_character(lx, left);
}

kiln_status kiln_lex_next(kiln_lex *lx) {
    int line = lx->line, col = (int)(lx->p - lx->line_start) + 1; /* behind the token before */
    skip_blank(lx);
    lx->start = lx->p;
    bool ends = lx->p >= lx->end; /* blank lines and comments behind the row are no place to look at */
    lx->tok_line = ends ? line : lx->line;
    lx->tok_col = ends ? col : (int)(lx->p - lx->line_start) + 1;
    lx->str = "";
    kiln_status st = KILN_OK;
    if (ends) {
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

/* Finds a function name right before the current token, as sin in `sin x`.  Sets *name to it and returns its length.
 * Returns 0 if there is no such function, or if the token is neither a name nor a number. */
static size_t function_before(const kiln_lex *lx, const char **name) {
    const char *end = lx->start, *from;
    if (lx->tok != KILN_TOK_NAME && lx->tok != KILN_TOK_NUM) return 0;
    while (end > lx->line_start && end[-1] == ' ') end--;
    for (from = end; from > lx->line_start && name_char(from[-1]);) from--;
    kiln_prim p;
    size_t n = (size_t)(end - from);
    *name = from;
    return n && kiln_prim_find(from, n, &p) ? n : 0;
}

void kiln_lex_blame(const kiln_lex *lx, const char *expected) {
    int n = lx->len > 30 ? 30 : (int)lx->len;
    const char *advice = kiln_expr_advice(lx->start, lx->len), *function = NULL;
    int nfunction = (int)function_before(lx, &function);
    if (lx->tok == KILN_TOK_END)
        (void)KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                             "expected %s, found the end of the row", expected);
    else if (nfunction)
        (void)KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                             "expected %s, found '%.*s'; write %.*s(%.*s)", expected, n, lx->start, nfunction,
                             function, n, lx->start);
    else
        (void)KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                             "expected %s, found '%.*s'%s%s", expected, n, lx->start, advice ? "; " : "",
                             advice ? advice : "");
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
