/* text.c - string builder, exact floating-point text, near-miss distance, hashes.
 *
 * Turns formatted pieces into one heap string; a failed allocation is remembered and reported once,
 * by kiln_sb_take.  Knows nothing of what the text means. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/base.h"

void kiln_sb_init(kiln_sb *s) { memset(s, 0, sizeof *s); }

void kiln_sb_init_message(kiln_sb *s) {
    kiln_sb_init(s);
    s->failed = kiln_is_quiet();
}

void kiln_sb_fini(kiln_sb *s) {
    kiln_free(s->p);
    kiln_sb_init(s);
}

/* Makes room for n more bytes and a NUL. */
static bool reserve(kiln_sb *s, size_t n) {
    if (s->failed) return false;
    if (s->p && s->cap - s->len > n) return true;
    size_t cap = s->cap ? s->cap * 2 : 128;
    while (cap - s->len <= n) cap *= 2;
    char *p = kiln_realloc(s->p, cap);
    if (!p) {
        s->failed = true;
        return false;
    }
    s->p = p;
    s->cap = cap;
    return true;
}

void kiln_sb_putn(kiln_sb *s, const char *text, size_t n) {
    if (!reserve(s, n)) return;
    if (n) memcpy(s->p + s->len, text, n);
    s->len += n;
    s->p[s->len] = 0;
}

void kiln_sb_putc(kiln_sb *s, char c) { kiln_sb_putn(s, &c, 1); }

void kiln_sb_puts(kiln_sb *s, const char *text) { kiln_sb_putn(s, text, strlen(text)); }

/* Prints into the room that is left, and once more if the text is longer. */
void kiln_sb_vprintf(kiln_sb *s, const char *fmt, va_list ap) {
    if (!reserve(s, 0)) return;
    va_list again;
    va_copy(again, ap);
    size_t room = s->cap - s->len;
    int n = vsnprintf(s->p + s->len, room, fmt, ap);
    if (n < 0) s->failed = true;
    if (n >= 0 && (size_t)n >= room) {
        s->p[s->len] = 0;
        if (reserve(s, (size_t)n)) vsnprintf(s->p + s->len, (size_t)n + 1, fmt, again);
    }
    if (!s->failed) s->len += (size_t)n;
    va_end(again);
}

void kiln_sb_decimal(kiln_sb *s, uint64_t v) {
    char digits[20], *at = digits + sizeof digits;
    do *--at = (char)('0' + v % 10);
    while (v /= 10);
    kiln_sb_putn(s, at, (size_t)(digits + sizeof digits - at));
}

void kiln_sb_printf(kiln_sb *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    kiln_sb_vprintf(s, fmt, ap);
    va_end(ap);
}

/* Writes a number made by printf, with '.' whatever the locale. */
static void put_number(kiln_sb *s, const char *text) {
    const char *point = localeconv()->decimal_point, *at = strstr(text, point);
    if (!at) at = text + strlen(text);
    kiln_sb_putn(s, text, (size_t)(at - text));
    if (!*at) return;
    kiln_sb_putc(s, '.');
    kiln_sb_puts(s, at + strlen(point));
}

static bool put_special(kiln_sb *s, double v) {
    if (isfinite(v)) return false;
    kiln_sb_puts(s, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    return true;
}

void kiln_env_default(fenv_t *own) {
    fegetenv(own);
    fesetenv(FE_DFL_ENV);
}

void kiln_sb_f64(kiln_sb *s, double v) {
    char text[40];
    fenv_t own;
    if (s->failed || put_special(s, v)) return;
    kiln_env_default(&own);
    /* 15 digits give every shorter text back, its zeros cut off; but numbers below DBL_MIN have fewer digits. */
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    fesetenv(&own);
    put_number(s, text);
}

void kiln_sb_f32(kiln_sb *s, float v) {
    char text[40];
    fenv_t own;
    if (s->failed || put_special(s, (double)v)) return;
    kiln_env_default(&own);
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    fesetenv(&own);
    put_number(s, text);
}

static const char ALPHABET[] = "0123456789+-.eEinfa"; /* of decimal numbers, inf and nan */

bool kiln_f64_parse(const char *text, size_t n, double *out) {
    enum { LONGEST = 512 }; /* longer ones are refused, so that no heap is needed */
    char local[LONGEST + 32], *end;
    if (n == 0 || n > LONGEST) return false;
    for (size_t i = 0; i < n; i++) /* strtod would also take blanks, hexadecimals and a local point */
        if (!memchr(ALPHABET, text[i], sizeof ALPHABET - 1)) return false;
    const char *dot = memchr(text, '.', n), *point = dot ? localeconv()->decimal_point : "";
    size_t before = dot ? (size_t)(dot - text) : n;
    int after = dot ? (int)(n - before - 1) : 0;
    int len = snprintf(local, sizeof local, "%.*s%s%.*s", (int)before, text, point, after,
                       dot ? dot + 1 : "");
    fenv_t own;
    kiln_env_default(&own);
    double v = strtod(local, &end);
    fesetenv(&own);
    if (end != local + len) return false;
    *out = v;
    return true;
}

kiln_status kiln_sb_take(kiln_sb *s, char **out) {
    if (!s->p) kiln_sb_putn(s, "", 0);
    if (s->failed) {
        kiln_sb_fini(s);
        return KILN_NOMEM();
    }
    *out = s->p;
    kiln_sb_init(s);
    return KILN_OK;
}

kiln_status kiln_sb_end(kiln_sb *s, kiln_status st, char **out) {
    if (st == KILN_OK) st = kiln_sb_take(s, out);
    kiln_sb_fini(s);
    return st;
}

bool kiln_str_eq(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

int kiln_edit_distance(const char *a, const char *b, int limit) {
    enum { MAX = 96 };
    while (*a && *a == *b) a++, b++;
    size_t na = strlen(a), nb = strlen(b);
    while (na && nb && a[na - 1] == b[nb - 1]) na--, nb--;
    if (na >= MAX || nb >= MAX) return limit + 1;
    int row[MAX];
    for (size_t j = 0; j <= nb; j++) row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int up = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = up;
        }
    }
    return row[nb] <= limit ? row[nb] : limit + 1;
}

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

int kiln_misspelling(const char *name, const char *meant) {
    size_t at = 0, n = strlen(name), m = strlen(meant), most = n > m ? n : m;
    int limit = most < 3 ? 0 : most <= 4 ? 1 : 2;
    while (name[at] && small(name[at]) == small(meant[at])) at++;
    if (n == m && at == n) return 0;
    if (n == m && at + 1 < n && name[at] == meant[at + 1] && name[at + 1] == meant[at] &&
        strcmp(name + at + 2, meant + at + 2) == 0)
        return limit ? 1 : -1;
    int d = kiln_edit_distance(name, meant, limit);
    return d <= limit ? d : -1;
}

kiln_digest kiln_hash128(const void *p, size_t n) {
    XXH128_hash_t h = XXH3_128bits(p, n);
    return (kiln_digest){h.low64, h.high64};
}

uint64_t kiln_hash64(const void *p, size_t n) { return XXH3_64bits(p, n); }

/* The same for all threads: the first to set it wins. */
static uint64_t process_key(void) {
    static _Atomic uint64_t key;
    uint64_t known = atomic_load_explicit(&key, memory_order_relaxed), fresh = 0;
    if (known) return known;
    if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != sizeof fresh) fresh = (uintptr_t)&fresh;
    fresh |= 1; /* 0 says that there is none yet */
    return atomic_compare_exchange_strong(&key, &known, fresh) ? fresh : known;
}

uint64_t kiln_hash64_keyed(const void *p, size_t n) { return XXH3_64bits_withSeed(p, n, process_key()); }
