/* repeat.h - inputs that say a piece of text many times, so that short inputs find costs that grow faster than
 * the text:
 *
 *   repeat 1000
 *   kg 1
 *   <<n$ = get_attr w
 *   >>
 *
 * is the text after the first line, in which what stands between << and >> comes 1000 times with $ counting
 * from 0, $$ with at least four digits.  Any other input is itself. */
#ifndef KILN_FUZZ_REPEAT_H
#define KILN_FUZZ_REPEAT_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one repeated piece, about.  What grows too fast shows in the long texts of the seeds, which are run
 * first; thousands of others could not be as long. */
static size_t repeat_most(void) {
    enum { SEEDS = 1000, LONG = 1 << 15, SHORT = 1 << 12 };
    static unsigned runs;
    return runs++ < SEEDS ? LONG : SHORT;
}

typedef struct repeated {
    char *text;
    size_t n, cap, most;
} repeated;

static void repeat_put(repeated *r, const char *s, size_t n) {
    if (r->n + n > r->cap) {
        r->cap = 2 * (r->n + n);
        r->text = realloc(r->text, r->cap);
        if (!r->text) abort();
    }
    if (n) memcpy(r->text + r->n, s, n);
    r->n += n;
}

static void repeat_piece(repeated *r, const char *s, size_t n, unsigned long times) {
    size_t before = r->n;
    for (unsigned long k = 0; n && k < times && r->n - before < r->most && r->n < 2 * r->most; k++) {
        char number[24], padded[24];
        size_t digits = (size_t)snprintf(number, sizeof number, "%lu", k);
        size_t more = (size_t)snprintf(padded, sizeof padded, "%04lu", k);
        for (size_t i = 0; i < n; i++) {
            bool twice = s[i] == '$' && i + 1 < n && s[i + 1] == '$';
            if (s[i] != '$')
                repeat_put(r, s + i, 1);
            else
                repeat_put(r, twice ? padded : number, twice ? more : digits);
            i += twice;
        }
    }
}

/* The text that the input stands for, empty if it is too long; the caller frees it. */
static repeated repeat_expand(const uint8_t *data, size_t size) {
    static const char word[] = "repeat ";
    const char *at = (const char *)data, *end = at + size;
    repeated r = {.most = repeat_most()};
    unsigned long times = 0;
    repeat_put(&r, "", 1), r.n = 0; /* never NULL */
    if (size < sizeof word || memcmp(at, word, sizeof word - 1) != 0)
        return repeat_put(&r, at, size <= r.most ? size : 0), r;
    for (at += sizeof word - 1; at < end && *at >= '0' && *at <= '9' && times < 1000000; at++)
        times = times * 10 + (unsigned long)(*at - '0');
    if (at < end) at++;
    while (at < end) {
        const char *open = memmem(at, (size_t)(end - at), "<<", 2);
        const char *close = open ? memmem(open, (size_t)(end - open), ">>", 2) : NULL;
        if (!close) break;
        repeat_put(&r, at, (size_t)(open - at));
        repeat_piece(&r, open + 2, (size_t)(close - open - 2), times);
        at = close + 2;
    }
    return repeat_put(&r, at, (size_t)(end - at)), r;
}
#endif
