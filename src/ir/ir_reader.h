/* ir_reader.h - private to ir_parse.c: a place in the text of a kernel, and the steps over characters, words and strings. */
#ifndef KILN_IR_READER_H
#define KILN_IR_READER_H
#include <ctype.h>
#include <string.h>

#include "ir/ir.h"

typedef struct reader {
    const char *p, *begin, *end;
    kiln_ir *ir;
    kiln_ref *value; /* what %n stands for, or KILN_NOREF */
    uint32_t nvalue;
} reader;

/* -- characters ---------------------------------------------------------------------------------- */

static inline void skip_space(reader *r) {
    while (r->p < r->end) {
        if (*r->p == '#')
            while (r->p < r->end && *r->p != '\n') r->p++;
        else if (isspace((unsigned char)*r->p))
            r->p++;
        else
            return;
    }
}

#define SOURCE(r) (&(kiln_source){"ir", (r)->begin, (r)->end, 0})

static inline kiln_status expected(const reader *r, const char *what) {
    return KILN_FAIL_AT(SOURCE(r), r->p, KILN_E_PARSE, "expected %s", what);
}

static inline kiln_status refused(const reader *r, const char *why) {
    return KILN_FAIL_AT(SOURCE(r), r->p, KILN_E_PARSE, "before this: %s", why);
}

static inline bool eat(reader *r, char ch) {
    skip_space(r);
    if (r->p == r->end || *r->p != ch) return false;
    r->p++;
    return true;
}

static inline kiln_status need(reader *r, char ch) {
    if (eat(r, ch)) return KILN_OK;
    return expected(r, (char[]){'\'', ch, '\'', 0});
}

static inline bool word_char(char ch) { return isalnum((unsigned char)ch) || ch == '_' || ch == '.'; }

/* The word that comes next, without taking it; length 0 if there is none. */
static inline size_t peek_word(reader *r) {
    skip_space(r);
    const char *q = r->p;
    if (q < r->end && (isalpha((unsigned char)*q) || *q == '_'))
        while (q < r->end && word_char(*q)) q++;
    return (size_t)(q - r->p);
}

/* Whether the n bytes at `at`, which hold no NUL, are this word. */
static inline bool is_word(const char *at, size_t n, const char *word) {
    return strncmp(word, at, n) == 0 && word[n] == 0;
}

static inline bool eat_word(reader *r, const char *word) {
    size_t n = peek_word(r);
    if (!is_word(r->p, n, word)) return false;
    r->p += n;
    return true;
}

enum { WORD_MAX = 256 };

static inline kiln_status take_word(reader *r, char word[WORD_MAX], const char *what) {
    size_t n = peek_word(r);
    if (n == 0 || n >= WORD_MAX) return expected(r, what);
    memcpy(word, r->p, n);
    word[n] = 0;
    r->p += n;
    return KILN_OK;
}

static inline int hex_digit(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static inline kiln_status take_string(reader *r, const char **out) {
    KILN_TRY(need(r, '"'));
    const char *close = r->p;
    while (close < r->end && *close != '"') close += *close == '\\' && close + 1 < r->end ? 2 : 1;
    if (close >= r->end) return expected(r, "'\"' at the end of a string");
    char *text = kiln_arena_alloc(r->ir->arena, (size_t)(close - r->p) + 1), *w = text;
    if (!text) return KILN_NOMEM();
    while (r->p < close) {
        char ch = *r->p++;
        if (ch == '\\') {
            ch = *r->p++;
            if (ch == 'x' && close - r->p >= 2 && hex_digit(r->p[0]) >= 0 && hex_digit(r->p[1]) >= 0) {
                ch = (char)(hex_digit(r->p[0]) * 16 + hex_digit(r->p[1]));
                r->p += 2;
            } else if (ch != '"' && ch != '\\') {
                return expected(r, "\\\", \\\\ or \\xHH");
            }
        }
        if (ch == 0) return expected(r, "a string without NUL");
        *w++ = ch;
    }
    r->p = close + 1;
    *out = text;
    return KILN_OK;
}
#endif
