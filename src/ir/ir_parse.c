/* ir_parse.c - the text form -> a verified kernel.
 *
 * A recursive-descent reader of the grammar in docs/IR.md that calls the builder, so text can make
 * nothing the builder could not.  No word is reserved: every position says what it may hold.  Errors
 * name line and column and what was expected. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir_reader.h"

/* -- names and numbers -------------------------------------------------------------------------- */

static kiln_status take_dtype(reader *r, kiln_dtype *out) {
    size_t n = peek_word(r);
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        const char *name = kiln_dtype_name((kiln_dtype)t);
        if (strlen(name) != n || memcmp(name, r->p, n) != 0) continue;
        r->p += n;
        *out = (kiln_dtype)t;
        return KILN_OK;
    }
    return expected(r, "a type");
}

static kiln_status take_axis(reader *r, int *out) {
    size_t n = peek_word(r);
    for (*out = 0; *out < r->ir->naxes; ++*out)
        if (is_word(r->p, n, r->ir->axes[*out].name)) return r->p += n, KILN_OK;
    return expected(r, "the name of an axis");
}

static kiln_status take_buf(reader *r, int *out) {
    size_t n = peek_word(r);
    for (*out = 0; *out < r->ir->nbufs; ++*out)
        if (is_word(r->p, n, r->ir->bufs[*out].name)) return r->p += n, KILN_OK;
    return expected(r, "the name of a buffer");
}

/* A buffer to load from: `name`, or `name.re` and `name.im` of a complex one. */
static kiln_status take_source(reader *r, int *out, kiln_ir_part *part) {
    static const char *const ends[] = {"", ".re", ".im"}; /* ORDER: kiln_ir_part */
    size_t word = peek_word(r);
    for (int b = 0; b < r->ir->nbufs; b++) {
        const char *name = r->ir->bufs[b].name;
        size_t n = strlen(name);
        if (word < n || memcmp(r->p, name, n) != 0) continue;
        for (int k = 0; k < (kiln_dtype_is_complex(r->ir->bufs[b].dtype) ? 3 : 1); k++) {
            if (!is_word(r->p + n, word - n, ends[k])) continue;
            r->p += word;
            *out = b;
            *part = (kiln_ir_part)k;
            return KILN_OK;
        }
    }
    return expected(r, "the name of a buffer");
}

static kiln_status take_par(reader *r, int *out) {
    size_t n = peek_word(r);
    for (*out = 0; *out < r->ir->npars; ++*out)
        if (is_word(r->p, n, r->ir->pars[*out].name)) return r->p += n, KILN_OK;
    return expected(r, "the name of a scalar");
}

static kiln_status take_small(reader *r, uint32_t limit, uint32_t *out, const char *what) {
    skip_space(r);
    if (r->p == r->end || !isdigit((unsigned char)*r->p)) return expected(r, what);
    uint32_t v = 0;
    const char *start = r->p;
    for (; r->p < r->end && isdigit((unsigned char)*r->p); r->p++) {
        v = v * 10 + (uint32_t)(*r->p - '0');
        if (v < limit) continue;
        r->p = start;
        return expected(r, what);
    }
    *out = v;
    return KILN_OK;
}

static kiln_status take_number(reader *r, uint32_t *out) {
    KILN_TRY(need(r, '%'));
    return take_small(r, KILN_IR_MAX_INS, out, "the number of a value, below 65536");
}

static kiln_status take_ref(reader *r, kiln_ref *out) {
    uint32_t n;
    skip_space(r);
    const char *start = r->p;
    KILN_TRY(take_number(r, &n));
    if (n < r->nvalue && r->value[n] != KILN_NOREF) {
        *out = r->value[n];
        return KILN_OK;
    }
    r->p = start;
    return expected(r, "a value that was made before");
}

static kiln_status define(reader *r, uint32_t n, kiln_ref ref) {
    if (n >= r->nvalue) {
        uint32_t cap = r->nvalue ? r->nvalue * 2 : 64;
        while (cap <= n) cap *= 2;
        kiln_ref *p = kiln_realloc(r->value, sizeof *p * cap);
        if (!p) return KILN_NOMEM();
        for (uint32_t k = r->nvalue; k < cap; k++) p[k] = KILN_NOREF;
        r->value = p;
        r->nvalue = cap;
    }
    if (r->value[n] != KILN_NOREF) return expected(r, "each value to be made once");
    r->value[n] = ref;
    return KILN_OK;
}

/* Copies the literal that comes next: sign, digits, point, exponent, or a word (true, nan, inf). */
static kiln_status take_literal(reader *r, char text[WORD_MAX]) {
    skip_space(r);
    size_t n = 0;
    while (r->p + n < r->end && n < WORD_MAX - 1 && (word_char(r->p[n]) || r->p[n] == '-' || r->p[n] == '+'))
        n++;
    if (n == 0 || n == WORD_MAX - 1) return expected(r, "a number");
    memcpy(text, r->p, n);
    text[n] = 0;
    r->p += n;
    return KILN_OK;
}

static bool int_fits(kiln_dtype t, long long v) {
    switch (t) {
    case KILN_U8: return v >= 0 && v <= UINT8_MAX;
    case KILN_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case KILN_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case KILN_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case KILN_U16: return v >= 0 && v <= UINT16_MAX;
    case KILN_U32: return v >= 0 && v <= UINT32_MAX;
    default: return true;
    }
}

static kiln_status take_const(reader *r, kiln_ref *out) {
    kiln_dtype t;
    char text[WORD_MAX], *rest;
    KILN_TRY(take_dtype(r, &t));
    KILN_TRY(take_literal(r, text));
    bool yes = strcmp(text, "true") == 0;
    if (t == KILN_BOOL) {
        if (!yes && strcmp(text, "false") != 0) return expected(r, "true or false before this");
        *out = kiln_ir_const_i(r->ir, t, yes);
        return KILN_OK;
    }
    errno = 0;
    if (kiln_dtype_is_complex(t)) return expected(r, "a constant of a compute type before this");
    if (kiln_dtype_is_float(t)) {
        double v;
        if (!kiln_f64_parse(text, strlen(text), &v)) return expected(r, "a number before this");
        *out = kiln_ir_const_f(r->ir, t, v);
        return KILN_OK;
    }
    bool u64 = t == KILN_U64;
    if (u64 && text[0] == '-') return expected(r, "an integer that fits its type before this");
    long long v = u64 ? (long long)strtoull(text, &rest, 10) : strtoll(text, &rest, 10);
    if (*rest || errno || !int_fits(t, v)) return expected(r, "an integer that fits its type before this");
    *out = kiln_ir_const_i(r->ir, t, v);
    return KILN_OK;
}

/* -- instructions -------------------------------------------------------------------------------- */

static kiln_status take_refs(reader *r, kiln_ref refs[KILN_IR_MAX_STATES], int *n) {
    *n = 0;
    do {
        if (*n == KILN_IR_MAX_STATES) return expected(r, "at most 8 states");
        KILN_TRY(take_ref(r, &refs[(*n)++]));
    } while (eat(r, ','));
    return KILN_OK;
}

static kiln_status take_coords(reader *r, kiln_ir_coord coord[KILN_IR_MAX_AXES], int *n) {
    *n = 0;
    if (!eat(r, '[')) return KILN_OK;
    do {
        int axis;
        if (*n == KILN_IR_MAX_AXES) return expected(r, "at most 8 coordinates");
        KILN_TRY(take_axis(r, &axis));
        KILN_TRY(need(r, '='));
        KILN_TRY(take_ref(r, &coord[*n].at));
        coord[(*n)++].axis = (uint8_t)axis;
    } while (eat(r, ','));
    return need(r, ']');
}

static kiln_status take_load(reader *r, kiln_ref *out) {
    kiln_ir_coord coord[KILN_IR_MAX_AXES];
    kiln_ir_place at = {.coord = coord};
    kiln_ref guard = KILN_NOREF, other = KILN_NOREF;
    kiln_ir_part part = KILN_PART_WHOLE;
    KILN_TRY(take_source(r, &at.buf, &part));
    KILN_TRY(take_coords(r, coord, &at.ncoord));
    if (eat_word(r, "if")) {
        KILN_TRY(take_ref(r, &guard));
        if (!eat_word(r, "else")) return expected(r, "else");
        KILN_TRY(take_ref(r, &other));
    }
    *out = kiln_ir_load_part(r->ir, at, part, guard, other);
    return KILN_OK;
}

static kiln_status take_store(reader *r) {
    kiln_ir_coord coord[KILN_IR_MAX_AXES];
    kiln_ir_place at = {.coord = coord};
    kiln_ref value, im = KILN_NOREF, guard = KILN_NOREF;
    KILN_TRY(take_buf(r, &at.buf));
    KILN_TRY(need(r, ','));
    KILN_TRY(take_ref(r, &value));
    if (eat(r, ',')) KILN_TRY(take_ref(r, &im));
    KILN_TRY(take_coords(r, coord, &at.ncoord));
    if (eat_word(r, "if")) KILN_TRY(take_ref(r, &guard));
    kiln_ir_store_parts(r->ir, at, value, im, guard);
    return KILN_OK;
}

static const struct {
    const char *name;
    kiln_status st;
} statuses[] = {
#define S(name, value, text) {#name, KILN_##name},
#include "kiln/status.def"
#undef S
};

static kiln_status take_trap(reader *r) {
    kiln_ref cond;
    const char *text;
    KILN_TRY(take_ref(r, &cond));
    KILN_TRY(need(r, ','));
    for (size_t k = 1; k < sizeof statuses / sizeof *statuses; k++) { /* 0 is success */
        if (!eat_word(r, statuses[k].name)) continue;
        KILN_TRY(take_string(r, &text));
        kiln_ir_trap_if(r->ir, cond, statuses[k].st, text);
        return KILN_OK;
    }
    return expected(r, "a status, such as E_INDEX");
}

static kiln_status take_prim(reader *r, kiln_ref *out) {
    kiln_prim p;
    kiln_ref args[3];
    size_t n = peek_word(r);
    if (!kiln_prim_find(r->p, n, &p)) return expected(r, "an instruction that makes a value");
    r->p += n;
    for (int k = 0; k < kiln_prim_arity(p); k++) {
        if (k) KILN_TRY(need(r, ','));
        KILN_TRY(take_ref(r, &args[k]));
    }
    *out = kiln_ir_prim(r->ir, p, args, kiln_prim_arity(p));
    return KILN_OK;
}

/* A count after the word that names it; the verifier says which are allowed, but 0 has another meaning. */
static kiln_status take_count(reader *r, const char *word, uint32_t limit, uint32_t *out) {
    char what[64];
    if (!eat_word(r, word)) return expected(r, word);
    snprintf(what, sizeof what, "a number from 1 to %u", limit);
    skip_space(r);
    const char *start = r->p;
    KILN_TRY(take_small(r, limit + 1, out, what));
    if (*out) return KILN_OK;
    r->p = start;
    return expected(r, what);
}

/* How elements meet: `by block N`, of a fold also `lanes N block N`, or nothing: what *tree is. */
static kiln_status take_tree(reader *r, bool scan, kiln_ir_tree *tree) {
    size_t n = peek_word(r);
    if (!scan && is_word(r->p, n, "lanes")) {
        KILN_TRY(take_count(r, "lanes", KILN_IR_MAX_LANES, &tree->lanes));
        return take_count(r, "block", KILN_IR_MAX_BLOCK, &tree->block);
    }
    if (!eat_word(r, "by")) return KILN_OK;
    tree->lanes = 0;
    return take_count(r, "block", KILN_IR_MAX_BLOCK, &tree->block);
}

static kiln_status take_fold(reader *r, bool scan, kiln_ref *out) {
    int axes[KILN_IR_MAX_AXES], naxes = 0, n;
    kiln_ref init[KILN_IR_MAX_STATES];
    kiln_ir_tree tree = scan ? (kiln_ir_tree){0, 0} : KILN_TREE_ALONG;
    do {
        if (naxes == KILN_IR_MAX_AXES) return expected(r, "at most 8 axes");
        KILN_TRY(take_axis(r, &axes[naxes++]));
    } while (!scan && eat(r, ','));
    KILN_TRY(need(r, '('));
    KILN_TRY(take_refs(r, init, &n));
    KILN_TRY(need(r, ')'));
    KILN_TRY(take_tree(r, scan, &tree));
    bool vec = !scan && tree.lanes && eat_word(r, "vec");
    KILN_TRY(need(r, '{'));
    *out = scan ? kiln_ir_scan(r->ir, axes[0], tree.block, init, n)
                : kiln_ir_fold(r->ir, (kiln_ir_run){axes, naxes, vec, tree}, init, n);
    return KILN_OK;
}

static kiln_status take_state(reader *r, kiln_ref (*make)(kiln_ir *, int), kiln_ref *out) {
    uint32_t k;
    KILN_TRY(take_small(r, KILN_IR_MAX_STATES, &k, "the number of a state, below 8"));
    *out = make(r->ir, (int)k);
    return KILN_OK;
}

static kiln_status take_axis_value(reader *r, kiln_ref (*make)(kiln_ir *, int), kiln_ref *out) {
    int axis;
    KILN_TRY(take_axis(r, &axis));
    *out = make(r->ir, axis);
    return KILN_OK;
}

static kiln_status take_cast(reader *r, kiln_ref *out) {
    kiln_dtype t;
    kiln_ref v;
    KILN_TRY(take_dtype(r, &t));
    KILN_TRY(take_ref(r, &v));
    int before = r->ir->nins;
    *out = kiln_ir_cast(r->ir, t, v);
    if (!r->ir->failed && r->ir->nins != before + 1)
        return expected(r, "a cast to another type, f16 and bf16 from and to f32 only, before this");
    return KILN_OK;
}

static kiln_status take_result(reader *r, kiln_ref *out) {
    kiln_ref fold;
    uint32_t k;
    KILN_TRY(take_ref(r, &fold));
    KILN_TRY(take_small(r, KILN_IR_MAX_STATES, &k, "the number of a state, below 8"));
    *out = kiln_ir_result(r->ir, fold, (int)k);
    return KILN_OK;
}

static kiln_status take_rhs(reader *r, kiln_ref *out) {
    int par = 0;
    if (eat_word(r, "const")) return take_const(r, out);
    if (eat_word(r, "load")) return take_load(r, out);
    if (eat_word(r, "cast")) return take_cast(r, out);
    if (eat_word(r, "index")) return take_axis_value(r, kiln_ir_index, out);
    if (eat_word(r, "extent")) return take_axis_value(r, kiln_ir_extent, out);
    if (eat_word(r, "fold")) return take_fold(r, false, out);
    if (eat_word(r, "scan")) return take_fold(r, true, out);
    if (eat_word(r, "state")) return take_state(r, kiln_ir_state, out);
    if (eat_word(r, "left")) return take_state(r, kiln_ir_left, out);
    if (eat_word(r, "right")) return take_state(r, kiln_ir_right, out);
    if (eat_word(r, "result")) return take_result(r, out);
    if (!eat_word(r, "par")) return take_prim(r, out);
    KILN_TRY(take_par(r, &par));
    *out = kiln_ir_par_read(r->ir, par);
    return KILN_OK;
}

static kiln_status take_for(reader *r) {
    int axis;
    KILN_TRY(take_axis(r, &axis));
    bool vec = eat_word(r, "vec");
    KILN_TRY(need(r, '{'));
    kiln_ir_for(r->ir, axis, vec);
    return KILN_OK;
}

static kiln_status take_close(reader *r) {
    if (eat_word(r, "merge")) {
        kiln_ir_merge(r->ir);
        return need(r, '{');
    }
    kiln_ir_end(r->ir);
    return KILN_OK;
}

static kiln_status take_ins(reader *r) {
    skip_space(r);
    if (r->p < r->end && *r->p == '%') {
        uint32_t n;
        kiln_ref ref = KILN_NOREF;
        KILN_TRY(take_number(r, &n));
        KILN_TRY(need(r, '='));
        KILN_TRY(take_rhs(r, &ref));
        return r->ir->failed ? KILN_OK : define(r, n, ref);
    }
    if (eat(r, '}')) return take_close(r);
    if (eat_word(r, "for")) return take_for(r);
    if (eat_word(r, "store")) return take_store(r);
    if (eat_word(r, "trap")) return take_trap(r);
    if (!eat_word(r, "yield")) return expected(r, "an instruction or '}'");
    kiln_ref refs[KILN_IR_MAX_STATES];
    int n;
    KILN_TRY(take_refs(r, refs, &n));
    kiln_ir_yield(r->ir, refs, n);
    return KILN_OK;
}

/* -- declarations ----------------------------------------------------------------------------- */

static int eat_one_of(reader *r, const char *const *words, int n) {
    for (int k = 0; k < n; k++)
        if (eat_word(r, words[k])) return k;
    return -1;
}

static kiln_status take_buf_decl(reader *r) {
    static const char *const roles[] = {"in", "out", "inout", "tmp"}; /* ORDER: kiln_ir_role */
    static const char *const strides[] = KILN_STRIDE_NAMES;
    char name[WORD_MAX];
    kiln_dtype t;
    uint32_t axes = 0;
    KILN_TRY(take_word(r, name, "a name"));
    int role = eat_one_of(r, roles, 4);
    if (role < 0) return expected(r, "in, out, inout or tmp");
    KILN_TRY(take_dtype(r, &t));
    KILN_TRY(need(r, '('));
    while (!eat(r, ')')) {
        int axis;
        if (axes) KILN_TRY(need(r, ','));
        KILN_TRY(take_axis(r, &axis));
        axes |= 1u << axis;
    }
    int stride = eat_one_of(r, strides, KILN_STRIDE_COUNT);
    kiln_ir_buf_add(r->ir, name, (kiln_ir_role)role, t, axes,
                    stride < 0 ? KILN_STRIDE_ANY : (kiln_stride)stride);
    return KILN_OK;
}

/* Takes one declaration; *any says whether there was one. */
static kiln_status take_decl(reader *r, bool *any) {
    char name[WORD_MAX];
    kiln_dtype t;
    *any = true;
    if (eat_word(r, "axis")) {
        KILN_TRY(take_word(r, name, "a name"));
        bool grid = eat_word(r, "grid");
        if (grid && eat_word(r, "indexed"))
            kiln_ir_indexed_axis_add(r->ir, name);
        else
            kiln_ir_axis_add(r->ir, name, grid);
        return KILN_OK;
    }
    if (eat_word(r, "buf")) return take_buf_decl(r);
    *any = eat_word(r, "par");
    if (!*any) return KILN_OK;
    KILN_TRY(take_word(r, name, "a name"));
    KILN_TRY(take_dtype(r, &t));
    kiln_ir_par_add(r->ir, name, t);
    return KILN_OK;
}

static kiln_status take_kernel(reader *r) {
    const char *name;
    bool any = true;
    if (!eat_word(r, "kernel")) return expected(r, "kernel");
    KILN_TRY(take_string(r, &name));
    r->ir->name = name;
    KILN_TRY(need(r, '{'));
    while (any && !r->ir->failed) KILN_TRY(take_decl(r, &any));
    while (!r->ir->failed && (r->ir->nopen || !eat(r, '}'))) KILN_TRY(take_ins(r));
    if (r->ir->failed) {
        kiln_status st = kiln_ir_verify(r->ir);
        return st == KILN_E_NOMEM ? st : refused(r, r->ir->why);
    }
    skip_space(r);
    return r->p == r->end ? KILN_OK : expected(r, "the end of the text");
}

kiln_status kiln_ir_parse(kiln_arena *arena, const char *text, size_t n, kiln_ir **out) {
    reader r = {.p = text, .begin = text, .end = text + n};
    r.ir = kiln_ir_new(arena, "");
    if (!r.ir) return KILN_NOMEM();
    kiln_status st = take_kernel(&r);
    kiln_free(r.value);
    KILN_TRY(st);
    KILN_TRY(kiln_ir_verify(r.ir));
    *out = r.ir;
    return KILN_OK;
}
