/* test_emit.c - kernels of every form, compiled, write the bytes that the interpreter writes.
 *
 * Every sample of tests/golden/ir runs over random extents, strides and origins, at the best ISA level of this machine
 * and every other one at one of the others in turn, in a whole run at each.
 * Sanitizers do not see into kernels: under them the text is made, for every level, and not compiled.  An argument
 * is part of the name of the samples to try. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/cpu/emit.h"
#include "emit_tools.h"
#include "kernel_trial.h"
#include "run/selftest.h"
#include "sanitized.h"
#include "whole.h"

#define EACH_ISA(isa)                                                                 \
    for (kiln_isa isa = (kiln_isa)0; isa < KILN_ISA_COUNT; isa = (kiln_isa)(isa + 1)) \
        if (SANITIZED || kiln_isa_runs(isa))

enum { TRIALS = 40, FEW_TRIALS = 8 };

static const char *only; /* part of the name of the samples to try, or NULL */

/* -- kernels --------------------------------------------------------------------------------------------- */

static void show(const trial *t) {
    for (int d = 0; d < t->ndim; d++) fprintf(stderr, "n[%d] = %lld\n", d, (long long)t->n[d]);
    for (int b = 0; b < t->ir->nbufs; b++)
        for (int d = 0; d < t->ndim; d++)
            fprintf(stderr, "stride of %s along %d: %lld\n", t->ir->bufs[b].name, d,
                    (long long)t->stride[b * t->ndim + d]);
}

static void try_launch(const kiln_ir *ir, uint64_t seed, kiln_isa isa, const kiln_interp *interp,
                       kiln_kernel_fn fn, char *work) {
    trial t;
    size_t at = 0;
    make_trial(&t, ir, seed);
    char *one = aligned_alloc(64, t.total), *two = aligned_alloc(64, t.total);
    assert_true(one && two);
    fill(&t, one);
    memcpy(two, one, t.total);
    int32_t want = run(&t, one, interp, NULL, NULL), got = run(&t, two, NULL, fn, work);
    int buf = want ? -1 : differ(&t, one, two, &at);
    if (want != got || buf >= 0 || !kept_within(&t, two)) show(&t);
    if (want != got)
        fail_msg("%s at %s, seed %d: returned %d, not %d", ir->name, kiln_isa_name(isa), (int)seed, got,
                 want);
    if (buf >= 0)
        fail_msg("%s at %s, seed %d: %s differs at byte %zu", ir->name, kiln_isa_name(isa), (int)seed,
                 ir->bufs[buf].name, at);
    assert_true(kept_within(&t, two));
    free(one);
    free(two);
}

/* Many launches of a kernel, which gets just the work it asks for. */
static void try_launches(const kiln_ir *ir, kiln_isa isa, kiln_kernel_fn fn, uint64_t trials) {
    kiln_interp *interp;
    size_t nwork = 0;
    assert_int_equal(kiln_interp_new(ir, isa, &interp), KILN_OK);
    assert_int_equal(kiln_emit_work(ir, isa, &nwork), KILN_OK);
    assert_true(nwork % 64 == 0);
    if (kiln_selftest(ir, interp, fn, nwork) != KILN_OK)
        fail_msg("%s: %s", kiln_isa_name(isa), kiln_last_error());
    unsigned char *work = aligned_alloc(64, nwork + GAP);
    assert_non_null(work);
    memset(work, 0xff, nwork + GAP);
    for (uint64_t seed = 1; seed <= trials; seed++)
        try_launch(ir, seed, isa, interp, fn, nwork ? (char *)work : NULL);
    for (size_t k = nwork; k < nwork + GAP; k++) assert_int_equal(work[k], 0xff);
    free(work);
    kiln_interp_free(interp);
}

/* The code of a source, which goes with it. */
static kiln_code *build(const kiln_ir *ir, kiln_isa isa, kiln_sb *source) {
    kiln_object object;
    kiln_code *code;
    if (kiln_build(tools, isa, source->p, source->len, &object) != KILN_OK)
        fail_msg("%s: %s\n%s", ir->name, kiln_last_error(), source->p);
    assert_int_equal(kiln_code_load(NULL, &object, KILN_KERNEL_SYMBOL, &code), KILN_OK);
    kiln_object_fini(&object);
    kiln_sb_fini(source);
    return code;
}

static void emit(const kiln_ir *ir, kiln_isa isa, kiln_sb *source) {
    kiln_sb_init(source);
    if (kiln_emit_c(ir, isa, source) != KILN_OK) fail_msg("%s: %s", ir->name, kiln_last_error());
}

static void try_kernel(const kiln_ir *ir, kiln_isa isa, uint64_t trials) {
    kiln_sb source;
    emit(ir, isa, &source);
    if (SANITIZED) {
        kiln_sb_fini(&source);
        return;
    }
    kiln_code *code = build(ir, isa, &source);
    try_launches(ir, isa, kiln_code_entry(code), trials);
    kiln_code_free(code);
}

static kiln_ir *read_sample(kiln_arena *arena, const char *name) {
    char path[512], *text;
    size_t n;
    kiln_ir *ir;
    kiln_arena_init(arena);
    snprintf(path, sizeof path, "%s/tests/golden/ir/%s", KILN_SOURCE_DIR, name);
    assert_int_equal(kiln_file_read(path, &text, &n), KILN_OK);
    if (kiln_ir_parse(arena, text, n, &ir) != KILN_OK) fail_msg("%s: %s", name, kiln_last_error());
    kiln_free(text);
    return ir;
}

/* The best level, and of those below it one that depends on the name, or none. */
static bool takes_level(const char *name, kiln_isa isa) {
    unsigned turn = 0;
    for (; *name; name++) turn += (unsigned char)*name;
    return isa >= kiln_isa_detect() || turn % (2 * kiln_isa_detect()) == isa;
}

/* Past the comment that names the kernel. */
static const char *after_title(const kiln_sb *source) {
    const char *end = strstr(source->p, "*/\n");
    assert_non_null(end);
    return end;
}

/* Names leave no mark in the code: classes whose nameless text is equal share one kernel. */
static void names_do_not_matter(const kiln_ir *ir) {
    kiln_arena arena;
    kiln_ir *nameless;
    kiln_sb text, named, bare;
    kiln_arena_init(&arena);
    kiln_sb_init(&text);
    kiln_ir_print_nameless(&text, ir);
    assert_int_equal(kiln_ir_parse(&arena, text.p, text.len, &nameless), KILN_OK);
    emit(ir, kiln_isa_detect(), &named);
    emit(nameless, kiln_isa_detect(), &bare);
    assert_string_equal(after_title(&named), after_title(&bare));
    kiln_sb_fini(&text);
    kiln_sb_fini(&named);
    kiln_sb_fini(&bare);
    kiln_arena_free(&arena);
}

static void try_sample(const char *name) {
    kiln_arena arena;
    const kiln_ir *ir = read_sample(&arena, name);
    names_do_not_matter(ir);
    EACH_ISA(isa)
    if (SANITIZED || whole_run() || takes_level(name, isa)) try_kernel(ir, isa, TRIALS);
    kiln_arena_free(&arena);
}

static void every_sample_agrees(void **state) {
    (void)state;
    char folder[512];
    int count = 0;
    snprintf(folder, sizeof folder, "%s/tests/golden/ir", KILN_SOURCE_DIR);
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        const char *end = strrchr(e->d_name, '.');
        if (!end || strcmp(end, ".kir") != 0) continue;
        if (only && !strstr(e->d_name, only)) continue;
        try_sample(e->d_name);
        count++;
    }
    closedir(d);
    assert_true(only || count > 20);
}

/* -- every type ------------------------------------------------------------------------------------------ */

/* The greatest and the last element of each row, and a copy; of halves, which compute nothing, the copy alone. */
static void fold_of_type(kiln_sb *sb, kiln_dtype t, int *v) {
    const char *name = kiln_dtype_name(t);
    int at = *v;
    *v += 12;
    kiln_sb_printf(sb, "for r vec {\n%%%d = load x.%s\nstore y.%s, %%%d\n}\n", at, name, name, at);
    if (t == KILN_F16 || t == KILN_BF16) return;
    kiln_sb_printf(sb, "%%%d = const %s %s\n", at + 1, name, t == KILN_BOOL ? "false" : "0");
    kiln_sb_printf(sb, "%%%d = fold r (%%%d, %%%d) vec {\n", at + 2, at + 1, at + 1);
    kiln_sb_printf(sb, "%%%d = state 0\n%%%d = load x.%s\n", at + 3, at + 4, name);
    kiln_sb_printf(sb, "%%%d = max %%%d, %%%d\n", at + 5, at + 3, at + 4);
    kiln_sb_printf(sb, "yield %%%d, %%%d\n} merge {\n", at + 5, at + 4);
    kiln_sb_printf(sb, "%%%d = left 0\n%%%d = right 0\n%%%d = right 1\n", at + 6, at + 7, at + 8);
    kiln_sb_printf(sb, "%%%d = max %%%d, %%%d\nyield %%%d, %%%d\n}\n", at + 9, at + 6, at + 7, at + 9,
                   at + 8);
    kiln_sb_printf(sb, "%%%d = result %%%d 0\nstore top.%s, %%%d\n", at + 10, at + 2, name, at + 10);
    kiln_sb_printf(sb, "%%%d = result %%%d 1\nstore last.%s, %%%d\n", at + 11, at + 2, name, at + 11);
}

/* y[i] = x[i] where m. */
static void places_of_type(kiln_sb *sb, kiln_dtype t, int *v) {
    const char *name = kiln_dtype_name(t);
    kiln_sb_printf(sb, "for r vec {\n%%%d = load m\n%%%d = load i\n%%%d = load x.%s\n", *v, *v + 1, *v + 2,
                   name);
    kiln_sb_printf(sb, "%%%d = load x.%s [r = %%%d] if %%%d else %%%d\n", *v + 3, name, *v + 1, *v, *v + 2);
    kiln_sb_printf(sb, "store y.%s, %%%d [r = %%%d] if %%%d\n}\n", name, *v + 3, *v + 1, *v);
    *v += 4;
}

/* A kernel of all types of `size` bytes, or of all types at computed places. */
static void try_types(kiln_isa isa, size_t size, bool places) {
    kiln_sb sb;
    kiln_arena arena;
    kiln_ir *ir;
    int v = 0;
    kiln_sb_init(&sb);
    kiln_sb_puts(&sb, "kernel \"types\" { axis o axis r\n");
    if (places) kiln_sb_puts(&sb, "buf m in bool (o, r) contig\nbuf i in i64 (o, r) contig\n");
    for (int pass = 0; pass < 2; pass++) {
        for (kiln_dtype t = 0; t < KILN_DTYPE_COUNT; t++) {
            const char *n = kiln_dtype_name(t);
            if (kiln_dtype_is_complex(t) || (!places && kiln_dtype_size(t) != size)) continue;
            if (pass == 1)
                (places ? places_of_type : fold_of_type)(&sb, t, &v);
            else
                kiln_sb_printf(&sb, "buf x.%s in %s (o, r) contig buf y.%s out %s (o, r) contig\n", n, n, n,
                               n);
            if (pass == 0 && !places)
                kiln_sb_printf(&sb, "buf top.%s out %s (o) any buf last.%s out %s (o) any\n", n, n, n, n);
        }
        kiln_sb_puts(&sb, pass ? "} }" : "for o {\n");
    }
    kiln_arena_init(&arena);
    if (kiln_ir_parse(&arena, sb.p, sb.len, &ir) != KILN_OK) fail_msg("%s\n%s", kiln_last_error(), sb.p);
    try_kernel(ir, isa, FEW_TRIALS);
    kiln_arena_free(&arena);
    kiln_sb_fini(&sb);
}

/* All at the best level; at each other one, unless the run is whole, types of one size. */
static void every_type_agrees(void **state) {
    (void)state;
    EACH_ISA(isa) {
        bool all = whole_run() || isa == kiln_isa_detect();
        for (int k = 0; k < 4; k++)
            if (all || (int)isa % 4 == k) try_types(isa, (size_t)1 << k, false);
        if (all) try_types(isa, 0, true);
    }
}

/* -- much work ------------------------------------------------------------------------------------------- */

/* Folds of eight states one after the other in a vector loop. */
static kiln_ir *many_folds(kiln_arena *arena, int folds) {
    enum { STATES = KILN_IR_MAX_STATES };
    kiln_arena_init(arena);
    kiln_ir *ir = kiln_ir_new(arena, "many folds");
    int o = kiln_ir_axis_add(ir, "o", false), r = kiln_ir_axis_add(ir, "r", false);
    int x = kiln_ir_buf_add(ir, "x", KILN_BUF_IN, KILN_F64, 1u << o | 1u << r, KILN_STRIDE_ANY);
    int y = kiln_ir_buf_add(ir, "y", KILN_BUF_OUT, KILN_F64, 1u << o, KILN_STRIDE_ANY);
    kiln_ir_for(ir, o, true);
    kiln_ref zero = kiln_ir_const_f(ir, KILN_F64, 0), total = zero;
    for (int f = 0; f < folds; f++) {
        kiln_ref init[STATES], next[STATES], both[2];
        for (int k = 0; k < STATES; k++) init[k] = zero;
        kiln_ref fold = kiln_ir_fold(ir, (kiln_ir_run){&r, 1, false, KILN_TREE_ACROSS}, init, STATES);
        kiln_ref v = kiln_ir_load(ir, x);
        for (int k = 0; k < STATES; k++)
            next[k] = kiln_ir_prim(ir, KILN_P_SUB, (kiln_ref[]){v, kiln_ir_state(ir, (k + f) % STATES)}, 2);
        kiln_ir_yield(ir, next, STATES);
        kiln_ir_merge(ir);
        for (int k = 0; k < STATES; k++)
            next[k] = kiln_ir_prim(ir, KILN_P_SUB, (kiln_ref[]){kiln_ir_left(ir, k), kiln_ir_right(ir, k)},
                                   2);
        kiln_ir_yield(ir, next, STATES);
        kiln_ir_end(ir);
        both[0] = total;
        both[1] = kiln_ir_result(ir, fold, f % STATES);
        total = kiln_ir_prim(ir, KILN_P_ADD, both, 2);
    }
    kiln_ir_store(ir, y, total);
    kiln_ir_end(ir);
    if (kiln_ir_verify(ir) != KILN_OK) fail_msg("%s", kiln_last_error());
    return ir;
}

/* Strips would have to keep too much: columns are taken one vector at a time, and nothing is kept. */
static void what_would_keep_too_much_keeps_nothing(void **state) {
    (void)state;
    for (int folds = 1; folds <= 9; folds += 8) {
        kiln_arena arena;
        kiln_ir *ir = many_folds(&arena, folds);
        size_t nwork = 1;
        assert_int_equal(kiln_emit_work(ir, kiln_isa_detect(), &nwork), KILN_OK);
        assert_true((nwork > 0) == (folds == 1));
        try_kernel(ir, kiln_isa_detect(), FEW_TRIALS);
        kiln_arena_free(&arena);
    }
}

/* -- overlap --------------------------------------------------------------------------------------------- */

/* u = x + y and v = x - y, where u or v lies on x or y: both are read before either is written. */
static void results_may_lie_on_inputs(void **state) {
    (void)state;
    enum { N = 101 };
    kiln_arena arena;
    const kiln_ir *ir = read_sample(&arena, "in_place.kir");
    kiln_sb source;
    emit(ir, kiln_isa_detect(), &source);
    kiln_code *code = SANITIZED ? NULL : build(ir, kiln_isa_detect(), &source);
    for (int on = 0; code && on < 4; on++) {
        float x[N], y[N], other[N], *u = on < 2 ? (on ? y : x) : other, *v = on < 2 ? other : on == 2 ? x : y;
        for (int k = 0; k < N; k++) x[k] = (float)k, y[k] = (float)(k * k);
        char *ptr[] = {(char *)x, (char *)y, (char *)u, (char *)v};
        int64_t n[] = {N, 1}, stride[] = {4, 0, 4, 0, 4, 0, 4, 0}, origin[2] = {0};
        kiln_launch l = {.ndim = 2, .n = n, .ptr = ptr, .stride = stride, .origin = origin};
        assert_int_equal(kiln_code_entry(code)(&l), 0);
        for (int k = 0; k < N; k++) assert_true(u[k] == (float)(k + k * k) && v[k] == (float)(k - k * k));
    }
    if (code)
        kiln_code_free(code);
    else
        kiln_sb_fini(&source);
    kiln_arena_free(&arena);
}

/* -- faults ---------------------------------------------------------------------------------------------- */

static void a_failed_allocation_is_reported(void **state) {
    (void)state;
    kiln_arena arena;
    const kiln_ir *ir = read_sample(&arena, "variance_across.kir");
    kiln_status st = KILN_E_NOMEM;
    for (int n = 1; st != KILN_OK; n++) {
        kiln_sb source;
        size_t nwork;
        kiln_sb_init(&source);
        kiln_alloc_fail_after(n);
        st = kiln_emit_c(ir, KILN_ISA_V3, &source);
        if (st == KILN_OK) st = kiln_emit_work(ir, KILN_ISA_V3, &nwork);
        kiln_alloc_fail_after(0);
        assert_true(st == KILN_OK || st == KILN_E_NOMEM);
        kiln_sb_fini(&source);
    }
    kiln_arena_free(&arena);
}

/* A kernel with each place of `right` turned into `wrong`: whether the self-test refuses it. */
static bool refused(const char *sample, const char *right, const char *wrong) {
    kiln_arena arena;
    kiln_ir *ir = read_sample(&arena, sample);
    kiln_isa isa = kiln_isa_detect();
    kiln_interp *interp;
    kiln_sb source, lie;
    size_t nwork;
    emit(ir, isa, &source);
    kiln_sb_init(&lie);
    const char *from = source.p;
    for (const char *at; (at = strstr(from, right)) != NULL; from = at + strlen(right)) {
        kiln_sb_putn(&lie, from, (size_t)(at - from));
        kiln_sb_puts(&lie, wrong);
    }
    if (from == source.p) fail_msg("%s: no '%s' in\n%s", sample, right, source.p);
    kiln_sb_puts(&lie, from);
    kiln_sb_fini(&source);
    kiln_code *code = build(ir, isa, &lie);
    assert_int_equal(kiln_interp_new(ir, isa, &interp), KILN_OK);
    assert_int_equal(kiln_emit_work(ir, isa, &nwork), KILN_OK);
    kiln_status st = kiln_selftest(ir, interp, kiln_code_entry(code), nwork);
    kiln_interp_free(interp);
    kiln_code_free(code);
    kiln_arena_free(&arena);
    return st == KILN_E_BUG;
}

/* Faults that an emitter for folds, scans and loops could well have. */
static void the_self_test_sees_wrong_kernels(void **state) {
    (void)state;
    static const struct {
        const char *sample, *right, *wrong;
    } faults[] = {
        {"sum_vec.kir", "lo2 += 4096", "lo2 += 8192"},              /* a block is left out */
        {"sum_vec.kir", "(x2.s0, 1)", "(x2.s0, 0)"},                /* a lane is met twice */
        {"sum_vec.kir", "q & 1 && stack2_top", "0"},                /* blocks are not merged */
        {"welford_vec.kir", "blend_f64(k, ", "blend_f64(KILN_W, "}, /* lanes without elements take steps */
        {"argmax.kir", " + iota_i64()", ""},                        /* one index for all lanes */
        {"upsample.kir", "L->origin[3]", "0"},                      /* each part begins at place 0 */
        {"sum_across.kir", "blocks2_take < blocks2_top", "0"},      /* the counter merges nothing */
        {"sum_across.kir", "c0_0 += 1024", "c0_0 += 2048"},         /* a strip is left out */
        {"sum_across.kir", "hi2 - lo2 == 8", "1"},                  /* a partial block is taken as whole */
        {"variance_across.kir", "= (unsigned long)",
         "= ~(unsigned long)1 & "},                             /* columns share what is kept */
        {"sum_two_axes.kir", "runs2_count == total2 - 1", "0"}, /* runs are not merged at the end */
        {"sum_two_axes_across.kir", "runs2_take < runs2_top", "0"},
        {"cumsum_blocks.kir", "pass2 ? b2 : f2", "f2"},                               /* blocks start anew */
        {"cumsum_rows.kir", "c4 += KILN_COLS", "c4 += 2 * KILN_COLS"},                /* a tile is left out */
        {"cumsum_rows.kir", "to[2 * i + 1] = KILN_HIGH", "to[2 * i + 1] = KILN_LOW"}, /* turned wrongly */
        {"cumsum_rows.kir", "tile_out_u64(y5",
         "if (k == KILN_W) tile_out_u64(y5"},              /* few rows are not stored */
        {"gather.kir", "= select_i64(", "= select_i64(~"}, /* the other of two values */
        {"scatter.kir", "t3 & ", ""},                      /* no guard */
    };
    if (SANITIZED) skip();
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
        if (!refused(faults[k].sample, faults[k].right, faults[k].wrong))
            fail_msg("%s with '%s' passed", faults[k].sample, faults[k].wrong);
}

int main(int argc, char **argv) {
    if (argc > 1) only = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_agrees),
                                       cmocka_unit_test(every_type_agrees),
                                       cmocka_unit_test(what_would_keep_too_much_keeps_nothing),
                                       cmocka_unit_test(results_may_lie_on_inputs),
                                       cmocka_unit_test(a_failed_allocation_is_reported),
                                       cmocka_unit_test(the_self_test_sees_wrong_kernels)};
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
