/* test_folds.c - folds of every tree, over several axes and by block, and scans by block, on the samples of
 * tests/golden/ir, for extents around the borders of lanes, blocks and vectors.
 *
 * What the interpreter writes, from the text and simplified, at each ISA level this machine has, must be the bytes that
 * the naive walk of fuzz/ir_walk.h writes.  Beside it stand sums in plain C, so that the walk is not believed alone. */
#include "unit/fold_samples.h"

#include <math.h>

#include "fuzz/ir_walk.h"

#define EACH_ISA(isa)                                                                 \
    for (kiln_isa isa = (kiln_isa)0; isa < KILN_ISA_COUNT; isa = (kiln_isa)(isa + 1)) \
        if (kiln_isa_runs(isa))

static void interpret(sample *s, kiln_isa isa) {
    kiln_interp *p;
    int32_t trap = 0;
    if (kiln_interp_new(s->ir, isa, &p) != KILN_OK) fail_msg("%s", kiln_last_error());
    for (int nest = 0; nest < s->ir->nnests; nest++) {
        kiln_launch l = launch_of(s, nest);
        assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
        assert_int_equal(trap, 0);
    }
    kiln_interp_free(p);
}

static void walk_all(sample *s) {
    size_t nbytes = sizeof(cell) * (size_t)s->ir->nins;
    cell *cells = aligned_alloc(64, nbytes);
    assert_non_null(cells);
    memset(cells, 0, nbytes);
    for (int nest = 0; nest < s->ir->nnests; nest++) {
        kiln_launch l = launch_of(s, nest);
        assert_int_equal(walk_nest(s->ir, kiln_isa_detect(), &l, cells), 0);
    }
    free(cells);
}

static void expect_outputs(const sample *s, char *const *want, const char *name, const char *how) {
    for (int b = 0; b < s->ir->nbufs; b++)
        if (is_written(s, b) && memcmp(s->ptr[b], want[b], s->nbytes[b]) != 0)
            fail_msg("%s, %s, extents %lld %lld %lld: buffer %s differs", name, how, (long long)s->n[0],
                     (long long)s->n[1], (long long)s->n[2], s->ir->bufs[b].name);
}

/* Arithmetic that rounds as IEEE says is the same at every level, so the walk is done once. */
static void check_sample(const char *name, const char *type, const int64_t *n, bool reversed) {
    sample s;
    char *want[MAX_BUFS] = {0};
    sample_open(&s, name, type, n, reversed);
    spoil_outputs(&s);
    walk_all(&s);
    for (int b = 0; b < s.ir->nbufs; b++) {
        want[b] = malloc(s.nbytes[b] + 1);
        assert_non_null(want[b]);
        memcpy(want[b], s.ptr[b], s.nbytes[b]);
    }
    for (int simplified = 0; simplified < 2; simplified++) {
        if (simplified) assert_int_equal(kiln_ir_simplify(s.ir), KILN_OK);
        EACH_ISA(isa) {
            spoil_outputs(&s);
            interpret(&s, isa);
            expect_outputs(&s, want, name, simplified ? "simplified" : "as written");
        }
    }
    for (int b = 0; b < s.ir->nbufs; b++) free(want[b]);
    sample_close(&s);
}

/* -- against the walk -------------------------------------------------------------------------------------- */

static const int64_t borders[] = {0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 3 * 4096 + 5};

static void one_axis(const char *name, const char *const *types, int ntypes, int64_t outer) {
    for (int i = 0; i < COUNT(borders); i++)
        check_sample(name, types[i % ntypes], (int64_t[]){outer, borders[i], 0}, i & 1);
    for (int k = 0; k < ntypes; k++) /* each type at least once beyond a block, in both layouts */
        for (int reversed = 0; reversed < 2; reversed++)
            check_sample(name, types[k], (int64_t[]){outer, 4096 + 300 + k, 0}, reversed);
}

static const char *const every_type[] = {"f32", "f64", "i32", "u32", "i64"};

static void sums_along(void **state) {
    (void)state;
    one_axis("sum_vec", every_type, 5, 2);
    one_axis("sum_plain", every_type, 5, 1);
}

static void sums_across(void **state) {
    (void)state;
    one_axis("sum_across", every_type, 5, 3);
    for (int i = 0; i < 9; i++) check_sample("sum_across", "f32", (int64_t[]){1030, borders[i]}, i & 1);
}

static void variances_by_block(void **state) {
    (void)state;
    one_axis("variance", (const char *const[]){"f32", "i32"}, 2, 2);
    one_axis("variance_across", (const char *const[]){"f32", "i32"}, 2, 3);
    check_sample("variance_across", "f32", (int64_t[]){300, 70}, true);
}

static void scans_by_block(void **state) {
    (void)state;
    one_axis("cumsum_blocks", every_type, 5, 2);
}

static void folds_over_two_axes(void **state) {
    (void)state;
    static const int64_t slow[] = {0, 1, 2, 3, 5, 8, 13}, fast[] = {0, 1, 7, 64, 65, 4096, 4097};
    for (int i = 0; i < COUNT(slow); i++)
        for (int j = 0; j < COUNT(fast); j++)
            check_sample("sum_two_axes", every_type[(i + j) % 3], (int64_t[]){1 + (i & 1), slow[i], fast[j]},
                         j & 1);
}

static void windows_that_hang_over(void **state) {
    (void)state;
    static const int64_t width[] = {0, 1, 7, 64, 65, 1030};
    for (int i = 0; i < COUNT(width); i++)
        check_sample("gather_window", i & 1 ? "i32" : "f32", (int64_t[]){5, width[i], 30}, i & 2);
}

/* -- against plain C ---------------------------------------------------------------------------------------- */

typedef struct pile {
    float s[64];
    int top;
    int64_t items;
} pile;

static void pile_push(pile *p, float s) {
    for (int64_t k = p->items++; k & 1; k >>= 1) s = p->s[--p->top] + s;
    p->s[p->top++] = s;
}

static float pile_sum(pile *p) {
    float s = p->s[--p->top];
    while (p->top) s = p->s[--p->top] + s;
    return s;
}

static float tree_sum(const float *x, int64_t stride, int64_t n, int64_t lanes, int64_t block) {
    pile p = {.top = 0};
    float lane[64];
    for (int64_t b = 0; b < n; b += block) {
        int64_t m = n - b < block ? n - b : block, used = m < lanes ? m : lanes;
        for (int64_t l = 0; l < used; l++) {
            lane[l] = 0;
            for (int64_t i = l; i < m; i += lanes) lane[l] += x[(b + i) * stride];
        }
        for (int64_t w = lanes / 2; w; w /= 2)
            for (int64_t l = 0; l < w && l + w < used; l++) lane[l] += lane[l + w];
        pile_push(&p, lane[0]);
    }
    return n ? pile_sum(&p) : 0;
}

/* Any lanes and any block, as the vector loop, inside it, and without one. */
static void every_tree(void **state) {
    (void)state;
    static const char text[] =
        "kernel \"t\" { axis o axis r buf x in f32 (o, r) buf y out f32 (o) for o%s { %%0 = const f32 0 "
        "%%1 = fold r (%%0) lanes %d block %d%s { %%2 = state 0 %%3 = load x %%4 = add %%2, %%3 yield %%4 } "
        "merge { %%5 = left 0 %%6 = right 0 %%7 = add %%5, %%6 yield %%7 } %%8 = result %%1 0 store y, %%8 } }";
    static const int64_t sizes[] = {1, 5, 31, 64, 100, 1000, 2051};
    enum { OUTER = 3 };
    float *x = aligned_alloc(64, 64 * 400), y[OUTER];
    assert_non_null(x);
    for (size_t i = 0; i < 6400; i++) x[i] = noise(i);
    for (int lanes = 1; lanes <= 64; lanes *= 2)
        for (int block = lanes, far = 0; far < 7; block *= 4, far++)
            for (int how = 0; how < 3 && block <= 65536; how++) {
                char full[1024];
                sample s = {.ptr = {(char *)x, (char *)y}};
                kiln_arena_init(&s.arena);
                snprintf(full, sizeof full, text, how == 1 ? " vec" : "", lanes, block,
                         how == 2 ? " vec" : "");
                assert_int_equal(kiln_ir_parse(&s.arena, full, strlen(full), &s.ir), KILN_OK);
                for (int i = 0; i < COUNT(sizes); i++) {
                    s.n[0] = OUTER;
                    s.n[1] = sizes[i];
                    memcpy(s.stride, (int64_t[]){4 * sizes[i], 4, 4, 0}, 4 * sizeof(int64_t));
                    interpret(&s, kiln_isa_detect());
                    for (int o = 0; o < OUTER; o++)
                        assert_true(y[o] == tree_sum(x + o * sizes[i], 1, sizes[i], lanes, block));
                }
                kiln_arena_free(&s.arena);
            }
    free(x);
}

static void two_axes_are_runs(void **state) {
    (void)state;
    for (int64_t a = 1; a < 12; a++) {
        sample s;
        sample_open(&s, "sum_two_axes", NULL, (int64_t[]){1, a, 4200}, false);
        float *x = (float *)(void *)s.ptr[0], *y = (float *)(void *)s.ptr[1];
        interpret(&s, kiln_isa_detect());
        pile p = {.top = 0};
        for (int64_t k = 0; k < a; k++) {
            for (int64_t i = 0; i < 4200; i++) x[k * 4200 + i] *= (float)k;
            pile_push(&p, tree_sum(x + k * 4200, 1, 4200, 64, 4096));
        }
        assert_true(y[0] == pile_sum(&p));
        sample_close(&s);
    }
}

static void variances_are_right(void **state) {
    (void)state;
    static const char *const names[] = {"variance", "variance_across"};
    for (int k = 0; k < 2; k++) {
        sample s;
        sample_open(&s, names[k], NULL, (int64_t[]){2, 20000}, false);
        float *x = (float *)(void *)s.ptr[0];
        double *mean = (double *)(void *)s.ptr[1], *m2 = (double *)(void *)s.ptr[2];
        for (int i = 0; i < 40000; i++) x[i] += 1000;
        interpret(&s, kiln_isa_detect());
        for (int o = 0; o < 2; o++) {
            long double sum = 0, squares = 0;
            for (int i = 0; i < 20000; i++) sum += (long double)x[o * 20000 + i];
            for (int i = 0; i < 20000; i++) squares += powl((long double)x[o * 20000 + i] - sum / 20000, 2);
            assert_true(fabsl(mean[o] - sum / 20000) < 1e-11L);
            assert_true(fabsl(m2[o] - squares) < 1e-12L * squares);
        }
        sample_close(&s);
    }
}

static void running_sums_start_from_merged_totals(void **state) {
    (void)state;
    enum { N = 256 * 5 + 31 };
    sample s;
    sample_open(&s, "cumsum_blocks", NULL, (int64_t[]){1, N}, false);
    const float *x = (float *)(void *)s.ptr[0], *y = (float *)(void *)s.ptr[1],
                *t = (float *)(void *)s.ptr[2];
    interpret(&s, kiln_isa_detect());
    float start = 0;
    for (int b = 0; b < N; b += 256) {
        float chain = start, total = 0;
        for (int i = b; i < N && i < b + 256; i++) {
            assert_true(y[i] == (chain += x[i]));
            total += x[i];
        }
        start += total;
    }
    assert_true(*t == start);
    sample_close(&s);
}

/* -- where and when things happen ---------------------------------------------------------------------------- */

static kiln_interp *interp_of(kiln_arena *a, const char *text) {
    kiln_ir *ir;
    kiln_interp *p;
    if (kiln_ir_parse(a, text, strlen(text), &ir) != KILN_OK) fail_msg("%s", kiln_last_error());
    if (kiln_interp_new(ir, kiln_isa_detect(), &p) != KILN_OK) fail_msg("%s", kiln_last_error());
    return p;
}

/* In a block, outside loops over it, and in the merge of a fold over it: the block's first element. */
static void blocks_have_a_first_element(void **state) {
    (void)state;
    static const char text[] =
        "kernel \"f\" { axis o axis r buf x in i64 (r) buf y out i64 (o) for o { %0 = const i64 0 "
        "%1 = fold r (%0) by block 4 { %2 = index r %3 = load x "
        "  %4 = fold r (%0) lanes 2 block 2 { %5 = state 0 %6 = index r %7 = add %5, %6 yield %7 } "
        "    merge { %8 = left 0 %9 = right 0 %10 = add %8, %9 %11 = index r %12 = add %10, %11 yield %12 } "
        "  for r { %13 = index r } %14 = index r %15 = load x %16 = extent r %17 = result %4 0 %18 = add %17, %16 "
        "  %19 = add %18, %2 %20 = add %19, %14 %21 = add %20, %3 %22 = add %21, %15 yield %22 } "
        "merge { %23 = left 0 %24 = right 0 %25 = add %23, %24 yield %25 } %26 = result %1 0 store y, %26 } }";
    int64_t x[11], y, n[] = {1, 11}, stride[] = {0, 8, 0, 0}, origin[] = {0, 100}, want = 0;
    char *ptr[] = {(char *)x, (char *)&y};
    kiln_arena a;
    int32_t trap;
    for (int i = 0; i < 11; i++) x[i] = 1000 * i;
    for (int64_t b = 0; b < 11; b += 4) {
        int64_t m = 11 - b < 4 ? 11 - b : 4, merges = m - 1;
        for (int64_t i = b; i < b + m; i++) want += 100 + i;
        want += merges * (100 + b) + m + 2 * (100 + b) + 2 * x[b];
    }
    kiln_arena_init(&a);
    kiln_interp *p = interp_of(&a, text);
    kiln_launch l = {0, 2, n, ptr, stride, origin, NULL, NULL, 0};
    assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
    assert_int_equal(y, want);
    kiln_interp_free(p);
    kiln_arena_free(&a);
}

/* What a block of a scan comes to by itself is not what the scan comes to there: it neither stores nor traps. */
static void totals_are_silent(void **state) {
    (void)state;
    static const char store[] =
        "kernel \"s\" { axis o axis r buf x in i64 (r) buf y out i64 (r) for o { %0 = const i64 0 %1 = const i64 5 "
        "%2 = scan r (%0) by block 4 { %3 = state 0 %4 = load x %5 = add %3, %4 %6 = gt %5, %1 store y, %5 if %6 "
        "yield %5 } merge { %7 = left 0 %8 = right 0 %9 = add %7, %8 yield %9 } } }";
    static const char trap_text[] =
        "kernel \"t\" { axis o axis r buf x in i64 (r) for o { %0 = const i64 0 %1 = const i64 5 "
        "%2 = scan r (%0) by block 4 { %3 = state 0 %4 = load x %5 = add %3, %4 %6 = gt %5, %1 trap %6, E_VALUE \"\" "
        "yield %5 } merge { %7 = left 0 %8 = right 0 %9 = add %7, %8 yield %9 } } }";
    int64_t x[10] = {-50, 1, 1, 1, 3, 3, 3, 3, 3, 3}, y[10], n[] = {1, 10}, stride[] = {0, 8, 0, 8},
            origin[2] = {0};
    char *ptr[] = {(char *)x, (char *)y};
    kiln_arena a;
    kiln_arena_init(&a);
    kiln_launch l = {0, 2, n, ptr, stride, origin, NULL, NULL, 0};
    for (int kind = 0; kind < 2; kind++) {
        kiln_interp *p = interp_of(&a, kind ? trap_text : store);
        for (int high = 0; high < 2; high++) {
            int32_t trap;
            x[9] = high ? 100 : 3; /* -32 + 100 is more than 5 */
            for (int i = 0; i < 10; i++) y[i] = 77;
            assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
            assert_int_equal(trap, kind && high ? KILN_TRAP_BASE : 0);
            for (int i = 0; i < 9; i++) assert_int_equal(y[i], 77);
            assert_int_equal(y[9], !kind && high ? -32 + 100 : 77);
        }
        kiln_interp_free(p);
    }
    kiln_arena_free(&a);
}

static void scans_by_block_work_in_place(void **state) {
    (void)state;
    enum { N = 256 * 3 + 9 };
    sample s;
    static float apart[N];
    sample_open(&s, "cumsum_blocks", NULL, (int64_t[]){1, N}, false);
    interpret(&s, kiln_isa_detect());
    memcpy(apart, s.ptr[1], sizeof apart);
    memcpy(s.ptr[1], s.ptr[0], sizeof apart);
    char *x = s.ptr[0];
    s.ptr[0] = s.ptr[1];
    interpret(&s, kiln_isa_detect());
    assert_memory_equal(s.ptr[1], apart, sizeof apart);
    s.ptr[0] = x;
    sample_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_along),
        cmocka_unit_test(sums_across),
        cmocka_unit_test(variances_by_block),
        cmocka_unit_test(scans_by_block),
        cmocka_unit_test(folds_over_two_axes),
        cmocka_unit_test(windows_that_hang_over),
        cmocka_unit_test(every_tree),
        cmocka_unit_test(two_axes_are_runs),
        cmocka_unit_test(variances_are_right),
        cmocka_unit_test(running_sums_start_from_merged_totals),
        cmocka_unit_test(blocks_have_a_first_element),
        cmocka_unit_test(totals_are_silent),
        cmocka_unit_test(scans_by_block_work_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
