/* gtext.c - literals and names as both of a graph's printers write them.
 *
 * Numbers and strings come out as ASCII that Python and the .kg parser read back to the same value.  Must
 * not know what the text is part of. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

/* -- numbers ------------------------------------------------------------------------------------------ */

void kiln_gtext_int(kiln_sb *out, int64_t i) {
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (i < 0) *--at = '-';
    kiln_sb_putn(out, at, (size_t)(digits + sizeof digits - at));
}

/* A number of few decimals: n / 10^k with n < 2^53 is rounded once, so if it gives f back, its digits do
 * too. */
static bool put_decimal(kiln_sb *out, double f) {
    static const double tens[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    double a = fabs(f);
    if (a >= 1e15 || (a < 1e-3 && a != 0)) return false;
    for (int k = 0; k < (int)(sizeof tens / sizeof *tens); k++) {
        double scaled = nearbyint(a * tens[k]);
        if (scaled >= 9007199254740992.0) return false;
        if (scaled / tens[k] != a) continue;
        char digits[40], *end = digits + sizeof digits, *at = end;
        uint64_t left = (uint64_t)scaled;
        for (int i = 0; i < k; i++, left /= 10) *--at = (char)('0' + left % 10);
        if (k == 0) *--at = '0';
        *--at = '.';
        do *--at = (char)('0' + left % 10);
        while (left /= 10);
        if (signbit(f)) *--at = '-';
        kiln_sb_putn(out, at, (size_t)(end - at));
        return true;
    }
    return false;
}

void kiln_gtext_float(kiln_sb *out, double f) {
    if (isnan(f) || isinf(f)) {
        if (signbit(f)) kiln_sb_putc(out, '-');
        kiln_sb_putn(out, isnan(f) ? "nan" : "inf", 3);
        return;
    }
    if (put_decimal(out, f)) return;
    size_t from = out->len;
    kiln_sb_f64(out, f);
    if (!out->failed && !strpbrk(out->p + from, ".e")) kiln_sb_putn(out, ".0", 2);
}

bool kiln_gtext_read_int(const char *s, size_t n, int64_t *out) {
    bool negative = n && *s == '-';
    if (negative) s++, n--;
    bool hex = n > 2 && s[1] == 'x';
    if (hex) s += 2, n -= 2;
    uint64_t base = hex ? 16 : 10, v = 0, limit = (uint64_t)INT64_MAX + negative;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)(s[i] <= '9' ? s[i] - '0' : (s[i] | 32) - 'a' + 10);
        if (v > (limit - digit) / base) return false;
        v = v * base + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

/* -- strings ------------------------------------------------------------------------------------------ */

/* The code point at s, and its length; a byte that starts none is given as itself with length 0. */
static uint32_t code_point(const unsigned char *s, size_t n, size_t *len) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t want = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    uint32_t c = want == 1 ? *s : *s & (0x7fu >> want);
    *len = 0;
    if (want == 0 || want > n) return *s;
    for (size_t i = 1; i < want; i++) {
        if (s[i] >> 6 != 2) return *s;
        c = c << 6 | (s[i] & 63);
    }
    if (c < least[want] || c > 0x10ffff) return *s;
    *len = want;
    return c;
}

bool kiln_gtext_is_utf8(const char *s, size_t n) {
    const unsigned char *at = (const unsigned char *)s, *end = at + n;
    while (at < end) {
        size_t len = 1;
        if (*at >= 0x80) code_point(at, (size_t)(end - at), &len);
        if (len == 0) return false;
        at += len;
    }
    return true;
}

static bool put_escape(kiln_sb *out, unsigned char c) {
    static const char special[] = "\n\t\r\\\"", letters[] = "ntr\\\"";
    const char *at = c ? strchr(special, c) : NULL;
    if (!at) return false;
    char text[2] = {'\\', letters[at - special]};
    kiln_sb_putn(out, text, 2);
    return true;
}

void kiln_gtext_string(kiln_sb *out, const char *s, size_t n) {
    const unsigned char *at = (const unsigned char *)s, *end = at + n;
    kiln_sb_putc(out, '"');
    while (at < end) {
        const unsigned char *run = at;
        while (at < end && *at >= ' ' && *at < 127 && *at != '"' && *at != '\\') at++;
        kiln_sb_putn(out, (const char *)run, (size_t)(at - run));
        if (at == end) break;
        size_t len;
        uint32_t c = code_point(at, (size_t)(end - at), &len);
        if (c >= 256 || !put_escape(out, (unsigned char)c))
            kiln_sb_printf(out, c < 256 ? "\\x%02x" : c < 65536 ? "\\u%04x" : "\\U%08x", c);
        at += len ? len : 1;
    }
    kiln_sb_putc(out, '"');
}

void kiln_gtext_bytes(kiln_sb *out, const char *s, size_t n) {
    kiln_sb_putn(out, "b\"", 2);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (put_escape(out, c)) continue;
        if (c >= ' ' && c < 127)
            kiln_sb_putc(out, (char)c);
        else
            kiln_sb_printf(out, "\\x%02x", c);
    }
    kiln_sb_putc(out, '"');
}

/* -- names -------------------------------------------------------------------------------------------- */

bool kiln_gtext_is_identifier(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || s[i] == '_';
        if (!letter && (i == 0 || s[i] < '0' || s[i] > '9')) return false;
    }
    return n > 0;
}

/* Sorted.  __debug__ is no keyword, but cannot be assigned or passed by name either. */
static const char *const keywords[] = {
    "False", "None",  "True",     "__debug__", "and",    "as",   "assert", "async",  "await",
    "break", "class", "continue", "def",       "del",    "elif", "else",   "except", "finally",
    "for",   "from",  "global",   "if",        "import", "in",   "is",     "lambda", "nonlocal",
    "not",   "or",    "pass",     "raise",     "return", "try",  "while",  "with",   "yield"};

bool kiln_gtext_is_keyword(const char *s, size_t n) {
    if (n < 2 || n > 9) return false;
    size_t lo = 0, hi = sizeof keywords / sizeof *keywords;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strncmp(keywords[mid], s, n);
        if (order == 0 && !keywords[mid][n]) return true;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}
