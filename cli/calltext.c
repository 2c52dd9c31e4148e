/* calltext.c - the text of a call -> argument values that own their tensors, lists and strings.
 *
 * One pass over a NUL-terminated copy.  Values are collected on a stack and copied out when their list is
 * complete; recursion is by list nesting only and bounded.  Must not know operators or their schemas. */
#include "calltext.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "tensorfill.h"

/* One owned thing: memory after the header, or a tensor. */
struct calltext_block {
    struct calltext_block *next;
    kiln_tensor *tensor;
    _Alignas(16) char memory[];
};

typedef struct parser {
    const char *start, *at, *end; /* *end is NUL */
    calltext_limits limits;
    struct calltext_block *blocks;
    kiln_value *stack; /* values of the lists being read */
    size_t top, cap;
    int depth, ntensors;
    uint64_t bytes_left;
    char *err;
} parser;

/* -- errors and memory ------------------------------------------------------------------------ */

/* The call behind the message, with a mark below the place, if the call is one short line. */
static void show_place(const parser *p, size_t at) {
    enum { MOST = 160 };
    size_t said = strlen(p->err), n = (size_t)(p->end - p->start);
    if (n == 0 || n > MOST || at > n) return;
    for (size_t k = 0; k < n; k++)
        if ((unsigned char)p->start[k] < ' ' || p->start[k] == 127) return;
    snprintf(p->err + said, CALLTEXT_ERROR_MAX - said, "\n  %.*s\n  %*s^", (int)n, p->start, (int)at, "");
}

static bool fail_at(parser *p, const char *where, const char *fmt, ...) {
    size_t at = (size_t)(where - p->start);
    int n = snprintf(p->err, CALLTEXT_ERROR_MAX, "call:%zu: ", at + 1);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->err + n, CALLTEXT_ERROR_MAX - (size_t)n, fmt, ap);
    va_end(ap);
    show_place(p, at);
    return false;
}

static bool expected(parser *p, const char *what) {
    unsigned char c = (unsigned char)*p->at;
    if (p->at == p->end) return fail_at(p, p->at, "expected %s, found the end of the call", what);
    if (c < 32 || c > 126) return fail_at(p, p->at, "expected %s, found byte 0x%02x", what, c);
    return fail_at(p, p->at, "expected %s, found '%c'", what, c);
}

static bool no_memory(parser *p) { return fail_at(p, p->at, "out of memory"); }

static void *own(parser *p, size_t nbytes) {
    struct calltext_block *b = malloc(sizeof *b + nbytes);
    if (!b) return NULL;
    b->next = p->blocks;
    b->tensor = NULL;
    p->blocks = b;
    return b->memory;
}

static bool push(parser *p, kiln_value v) {
    if (p->top == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 16;
        kiln_value *grown = realloc(p->stack, cap * sizeof *grown);
        if (!grown) return no_memory(p);
        p->stack = grown;
        p->cap = cap;
    }
    p->stack[p->top++] = v;
    return true;
}

/* Moves the values above base into a block of their own. */
static const kiln_value *take_values(parser *p, size_t base) {
    size_t nbytes = (p->top - base) * sizeof(kiln_value);
    kiln_value *copy = own(p, nbytes);
    if (!copy) return NULL;
    if (nbytes) memcpy(copy, p->stack + base, nbytes);
    p->top = base;
    return copy;
}

/* -- tokens ------------------------------------------------------------------------------------ */

static void skip_space(parser *p) { p->at += strspn(p->at, " \t\r\n"); }

static bool eat(parser *p, char c) {
    skip_space(p);
    if (*p->at != c || p->at == p->end) return false;
    p->at++;
    return true;
}

static bool is_word_start(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The word at `at` (possibly empty) without moving. */
static size_t word_length(const parser *p) {
    size_t n = 0;
    if (!is_word_start(*p->at)) return 0;
    while (is_word(p->at[n])) n++;
    return n;
}

static bool word_is(const char *word, size_t n, const char *text) {
    return strlen(text) == n && memcmp(word, text, n) == 0;
}

static bool eat_word(parser *p, const char *text) {
    size_t n = word_length(p);
    if (!word_is(p->at, n, text)) return false;
    p->at += n;
    return true;
}

static const char *own_text(parser *p, const char *text, size_t n) {
    char *copy = own(p, n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

/* -- numbers ----------------------------------------------------------------------------------- */

static bool finite_number(parser *p, const char *from, kiln_value *out) {
    const char *s = p->at;
    bool whole = true;
    size_t digits = strspn(s, "0123456789");
    s += digits;
    if (*s == '.') {
        size_t more = strspn(s + 1, "0123456789");
        s += 1 + more;
        digits += more;
        whole = false;
    }
    if (digits == 0) return expected(p, "a number");
    if (*s == 'e' || *s == 'E') {
        const char *e = s + 1 + (s[1] == '+' || s[1] == '-');
        size_t n = strspn(e, "0123456789");
        if (n == 0) return p->at = e, expected(p, "digits of an exponent");
        s = e + n;
        whole = false;
    }
    p->at = s;
    errno = 0;
    /* An imaginary part is a real number however it is written. */
    if (whole && *s != 'j') {
        *out = *from == '-' ? kiln_v_int(strtoll(from, NULL, 10)) : kiln_v_uint(strtoull(from, NULL, 10));
        return errno ? fail_at(p, from, "the integer does not fit 64 bits") : true;
    }
    *out = kiln_v_float(strtod(from, NULL));
    if (isinf(out->u.f)) return fail_at(p, from, "the number is too large (infinity is written inf)");
    return true;
}

/* An int or a float, with its sign. */
static bool real_number(parser *p, kiln_value *out) {
    const char *from = p->at;
    bool negative = *p->at == '-';
    if (*p->at == '-' || *p->at == '+') p->at++;
    if (eat_word(p, "inf"))
        *out = kiln_v_float(negative ? -(double)INFINITY : (double)INFINITY);
    else if (eat_word(p, "nan"))
        *out = kiln_v_float((double)NAN);
    else
        return finite_number(p, from, out);
    return true;
}

static double as_double(const kiln_value *v) {
    return v->kind == KILN_INT_V    ? (double)v->u.i
           : v->kind == KILN_UINT_V ? (double)(uint64_t)v->u.i
                                    : v->u.f;
}

static bool number(parser *p, kiln_value *out) {
    kiln_value imaginary;
    if (!real_number(p, out)) return false;
    if (*p->at == 'j') {
        p->at++;
        *out = (kiln_value){.kind = KILN_COMPLEX_V, .u.c = {0, as_double(out)}};
    } else if (*p->at == '+' || *p->at == '-') {
        if (!real_number(p, &imaginary)) return false;
        if (*p->at != 'j') return expected(p, "'j' after an imaginary part");
        p->at++;
        *out = (kiln_value){.kind = KILN_COMPLEX_V, .u.c = {as_double(out), as_double(&imaginary)}};
    }
    return true;
}

/* -- strings ----------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The character after a backslash; moves past it. */
static bool escape(parser *p, char *out) {
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    const char *known = *p->at ? strchr(from, *p->at) : NULL;
    if (known) {
        *out = to[known - from];
        p->at++;
        return true;
    }
    int high = *p->at == 'x' ? hex_digit(p->at[1]) : -1;
    int low = high >= 0 ? hex_digit(p->at[2]) : -1;
    if (low < 0) return expected(p, "one of n t r \\ \" ' or xHH after '\\'");
    if (high == 0 && low == 0) return fail_at(p, p->at, "a string cannot hold a NUL byte");
    *out = (char)(high << 4 | low);
    p->at += 3;
    return true;
}

static bool string(parser *p, const char **out) {
    const char *open = p->at++, *close = p->at;
    size_t n = 0;
    while (*close && *close != *open) close += *close == '\\' && close[1] ? 2 : 1;
    if (close == p->end) return fail_at(p, open, "the string is not closed");
    char *text = own(p, (size_t)(close - p->at) + 1);
    if (!text) return no_memory(p);
    while (p->at < close) {
        if (*p->at != '\\') {
            text[n++] = *p->at++;
            continue;
        }
        p->at++;
        if (!escape(p, &text[n++])) return false;
    }
    p->at = close + 1;
    text[n] = 0;
    *out = text;
    return true;
}

/* -- tensors ----------------------------------------------------------------------------------- */

static bool extent_list(parser *p, char close, const char *what, int64_t *out, int *count) {
    *count = 0;
    if (eat(p, close)) return true;
    do {
        kiln_value v;
        skip_space(p);
        const char *from = p->at;
        if (*count == KILN_MAX_RANK)
            return fail_at(p, from, "a tensor has at most %d dimensions", KILN_MAX_RANK);
        if (!isdigit((unsigned char)*from) && *from != '-') return expected(p, what);
        if (!real_number(p, &v)) return false;
        if (v.kind == KILN_UINT_V) return fail_at(p, from, "%s must be below 2^63", what);
        if (v.kind != KILN_INT_V)
            return fail_at(p, from, "expected %s, found a number that is not whole", what);
        if (v.u.i < 0) return fail_at(p, from, "%s must not be negative", what);
        out[(*count)++] = v.u.i;
    } while (eat(p, ','));
    if (!eat(p, close)) return expected(p, close == ']' ? "',' or ']'" : "',' or ')'");
    return true;
}

static bool strides_suffix(parser *p, tensor_spec *spec) {
    const char *from = p->at;
    int count;
    if (spec->has_strides) return fail_at(p, from, "strides are given twice");
    if (!eat(p, '(')) return expected(p, "'(' of the strides");
    if (!extent_list(p, ')', "a stride", spec->strides, &count)) return false;
    if (count != spec->rank)
        return fail_at(p, from, "expected %d strides, one per size, found %d", spec->rank, count);
    spec->has_strides = true;
    return true;
}

static bool fill_suffix(parser *p, tensor_spec *spec) {
    skip_space(p);
    const char *from = p->at;
    if (spec->fill != FILL_NOTHING) return fail_at(p, from, "the fill is given twice");
    if (eat_word(p, "randn")) return spec->fill = FILL_RANDN, true;
    if (eat_word(p, "arange")) return spec->fill = FILL_ARANGE, true;
    spec->fill = FILL_VALUE;
    if (eat_word(p, "true") || eat_word(p, "True")) return spec->value = kiln_v_bool(1), true;
    if (eat_word(p, "false") || eat_word(p, "False")) return spec->value = kiln_v_bool(0), true;
    if (is_word_start(*from) && *from != 'i' && *from != 'n') return expected(p, "randn, arange or a number");
    return number(p, &spec->value);
}

static bool add_tensor(parser *p, kiln_tensor *t, kiln_value *out) {
    if (!own(p, 0)) {
        kiln_tensor_release(t);
        return no_memory(p);
    }
    p->blocks->tensor = t;
    p->ntensors++;
    *out = kiln_v_tensor(t);
    return true;
}

/* At '@': a file, whose array must be as in spec if that is not NULL. */
static bool file_tensor(parser *p, const tensor_spec *spec, kiln_value *out) {
    const char *from = p->at++, *path;
    char why[TENSOR_ERROR_MAX];
    kiln_tensor *t;
    if (*p->at == '"' || *p->at == '\'') {
        if (!string(p, &path)) return false;
    } else {
        size_t n = strcspn(p->at, " \t\r\n,()[]");
        if (n == 0) return expected(p, "a file name after '@'");
        if (!(path = own_text(p, p->at, n))) return no_memory(p);
        p->at += n;
    }
    if (p->limits.no_files) return fail_at(p, from, "files cannot be read here");
    if (!npy_load(path, p->bytes_left, &t, why)) return fail_at(p, from, "cannot load %.80s: %s", path, why);
    p->bytes_left -= (uint64_t)kiln_tensor_nelem(t) * kiln_dtype_size(kiln_tensor_dtype(t));
    if (!add_tensor(p, t, out)) return false;
    if (!spec) return true;
    if (spec->has_strides || spec->fill != FILL_NOTHING)
        return fail_at(p, from, "a tensor from a file takes no strides and no fill");
    if (kiln_tensor_dtype(t) != spec->dtype || kiln_tensor_rank(t) != spec->rank ||
        (spec->rank &&
         memcmp(kiln_tensor_sizes(t), spec->sizes, (size_t)spec->rank * sizeof *spec->sizes) != 0))
        return fail_at(p, from, "%.80s holds an array of another dtype or shape", path);
    return true;
}

/* At the '[' of dtype[sizes]. */
static bool made_tensor(parser *p, const char *from, kiln_dtype dtype, kiln_value *out) {
    tensor_spec spec = {.dtype = dtype, .fill = FILL_NOTHING};
    const char *fill_at = from;
    char why[TENSOR_ERROR_MAX];
    kiln_tensor *t;
    uint64_t nbytes;
    p->at++;
    if (!extent_list(p, ']', "a size", spec.sizes, &spec.rank)) return false;
    while (*p->at == ':') {
        p->at++;
        bool is_fill = eat_word(p, "fill");
        if (!is_fill && !eat_word(p, "strides")) return expected(p, "'strides=' or 'fill=' after ':'");
        if (!eat(p, '=')) return expected(p, "'='");
        if (is_fill) fill_at = p->at;
        if (!(is_fill ? fill_suffix(p, &spec) : strides_suffix(p, &spec))) return false;
    }
    if (*p->at == '@') return file_tensor(p, &spec, out);
    if (spec.fill == FILL_NOTHING) spec.fill = FILL_RANDN;
    spec.seed = (uint64_t)p->ntensors + 1;
    if (!tensor_spec_bytes(&spec, p->bytes_left, &nbytes, why)) return fail_at(p, from, "%s", why);
    if (!tensor_spec_check_fill(&spec, why)) return fail_at(p, fill_at, "%s", why);
    if (p->limits.no_data) spec.fill = FILL_NOTHING;
    if (!tensor_spec_make(&spec, p->bytes_left, &t, why)) return fail_at(p, from, "%s", why);
    uint64_t filled = (uint64_t)kiln_tensor_nelem(t) * kiln_dtype_size(dtype); /* more, with strides of 0 */
    p->bytes_left -= filled > nbytes ? filled : nbytes;
    return add_tensor(p, t, out);
}

/* -- values ------------------------------------------------------------------------------------ */

static bool value(parser *p, kiln_value *out);

static bool list(parser *p, kiln_value *out) {
    size_t base = p->top;
    if (p->depth == CALLTEXT_DEPTH)
        return fail_at(p, p->at, "lists are nested deeper than %d", CALLTEXT_DEPTH);
    p->depth++;
    p->at++;
    if (!eat(p, ']')) {
        do {
            kiln_value item;
            if (!value(p, &item) || !push(p, item)) return false;
        } while (eat(p, ','));
        if (!eat(p, ']')) return expected(p, "',' or ']'");
    }
    uint32_t n = (uint32_t)(p->top - base);
    const kiln_value *items = take_values(p, base);
    if (!items) return no_memory(p);
    *out = kiln_v_list(items, n);
    p->depth--;
    return true;
}

/* A word: a constant, a dtype, or a tensor that starts with its dtype. */
static bool word_value(parser *p, kiln_value *out) {
    const char *word = p->at;
    size_t n = word_length(p);
    char name[16];
    kiln_dtype dtype;
    if (word_is(word, n, "inf") || word_is(word, n, "nan")) return number(p, out);
    p->at += n;
    if (word_is(word, n, "None")) return *out = kiln_v_none(), true;
    if (word_is(word, n, "true") || word_is(word, n, "True")) return *out = kiln_v_bool(1), true;
    if (word_is(word, n, "false") || word_is(word, n, "False")) return *out = kiln_v_bool(0), true;
    if (word_is(word, n, "generator"))
        return *out = kiln_v_generator(own(p, 0)), out->u.generator || no_memory(p);
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : 0, word);
    if (kiln_dtype_parse(name, &dtype) != KILN_OK)
        return fail_at(p, word, "expected a value, found the word '%.*s'", n < 40 ? (int)n : 40, word);
    if (*p->at == '[') return made_tensor(p, word, dtype, out);
    if (*p->at == '(')
        return fail_at(p, p->at, "sizes of a tensor stand in square brackets, as %s[3] or %s[2,3]", name,
                       name);
    *out = kiln_v_dtype(dtype);
    return true;
}

static bool value(parser *p, kiln_value *out) {
    skip_space(p);
    char c = *p->at;
    if (c == '[') return list(p, out);
    if (c == '@') return file_tensor(p, NULL, out);
    if (is_word_start(c)) return word_value(p, out);
    if (isdigit((unsigned char)c) || c == '-' || c == '+' || c == '.') return number(p, out);
    if (c != '"' && c != '\'') return expected(p, "a value");
    *out = kiln_v_str(NULL);
    return string(p, &out->u.s);
}

/* -- the call ---------------------------------------------------------------------------------- */

/* [NAME =] value; *named turns true with the first name. */
static bool argument(parser *p, bool *named, kiln_value *out) {
    skip_space(p);
    const char *from = p->at, *name = NULL;
    size_t n = word_length(p);
    p->at += n;
    if (n > 0 && eat(p, '=')) {
        if (!(name = own_text(p, from, n))) return no_memory(p);
    } else {
        p->at = from;
    }
    if (!name && *named) return fail_at(p, from, "expected a named argument: positional ones come first");
    *named = name != NULL;
    if (!value(p, out)) return false;
    out->name = name;
    return true;
}

static bool arguments(parser *p) {
    bool named = false;
    if (eat(p, ')')) return true;
    do {
        kiln_value v;
        if (p->top == KILN_MAX_ARGS)
            return fail_at(p, p->at, "a call has at most %d arguments", KILN_MAX_ARGS);
        if (!argument(p, &named, &v) || !push(p, v)) return false;
    } while (eat(p, ','));
    return eat(p, ')') ? true : expected(p, "',' or ')'");
}

static bool call(parser *p, calltext *out) {
    skip_space(p);
    const char *from = p->at;
    if (!is_word_start(*p->at)) return expected(p, "an operator name");
    while (is_word(*p->at) || *p->at == '.' || *p->at == ':') p->at++;
    out->op = own_text(p, from, (size_t)(p->at - from));
    if (!out->op) return no_memory(p);
    if (!eat(p, '(')) return expected(p, "'(' after the operator name");
    if (!arguments(p)) return false;
    skip_space(p);
    if (p->at != p->end) return expected(p, "the end of the call");
    out->nargs = p->top;
    out->args = take_values(p, 0);
    return out->args ? true : no_memory(p);
}

/* A call is filled in and has results beside: half of the machine's memory at most. */
static uint64_t default_bytes(void) {
    uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    return half < CALLTEXT_BYTES ? half : CALLTEXT_BYTES;
}

bool calltext_parse(const char *text, size_t n, const calltext_limits *limits, calltext *out, char *err) {
    parser p = {.start = text, .at = text, .end = text, .err = err};
    p.limits = limits ? *limits : (calltext_limits){.max_bytes = default_bytes()};
    p.bytes_left = p.limits.max_bytes;
    if (n > CALLTEXT_MAX) return fail_at(&p, text, "the call is longer than %d bytes", CALLTEXT_MAX);
    const char *nul = n ? memchr(text, 0, n) : NULL;
    if (nul) return fail_at(&p, nul, "the call holds a NUL byte");
    char *copy = malloc(n + 1);
    if (!copy) return fail_at(&p, text, "out of memory");
    if (n) memcpy(copy, text, n);
    copy[n] = 0;
    p.start = p.at = copy;
    p.end = copy + n;
    calltext made = {0};
    bool ok = call(&p, &made);
    made.blocks = p.blocks;
    if (ok)
        *out = made;
    else
        calltext_free(&made);
    free(p.stack);
    free(copy);
    return ok;
}

void calltext_free(calltext *call) {
    while (call->blocks) {
        struct calltext_block *b = call->blocks;
        call->blocks = b->next;
        kiln_tensor_release(b->tensor);
        free(b);
    }
    memset(call, 0, sizeof *call);
}
