/* test_fold_parts.c - launches over parts of a fold's axis, whose states are stored and then merged by a fold by
 * block 1, come to the bits of the whole: for several trees, lengths of parts, and for parts of 2^k runs. */
#include "unit/fold_samples.h"

/* Runs nest 1 of sum_parts once for each part of `length` elements of r, and nest 2 over their states. */
static void run_parts(sample *s, int64_t length) {
    kiln_interp *p;
    int32_t trap;
    int64_t whole = s->n[1], parts = (whole + length - 1) / length;
    int axes = s->ir->naxes;
    assert_int_equal(kiln_interp_new(s->ir, kiln_isa_detect(), &p), KILN_OK);
    for (int64_t k = 0; k < parts; k++) {
        int64_t n[] = {s->n[0], whole - k * length < length ? whole - k * length : length, 1};
        int64_t origin[] = {0, k * length, k};
        char *ptr[MAX_BUFS];
        for (int b = 0; b < s->ir->nbufs; b++)
            ptr[b] = s->ptr[b] + k * length * s->stride[b * axes + 1] + k * s->stride[b * axes + 2];
        kiln_launch l = {1, axes, n, ptr, s->stride, origin, s->par, NULL, 0};
        assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
    }
    s->n[2] = parts;
    for (int nest = 0; nest < 3; nest += 2) { /* the whole at once, and the parts together */
        kiln_launch l = launch_of(s, nest);
        assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
    }
    kiln_interp_free(p);
}

static void parts_come_to_the_whole(void **state) {
    (void)state;
    static const int64_t sizes[] = {1,        4095,          4096,           4097, 3 * 4096 + 5,
                                    8 * 4096, 11 * 4096 + 1, 64 * 4096 + 777};
    enum { MAX_PARTS = 65 };
    for (int i = 0; i < COUNT(sizes); i++)
        for (int k = 0; k < 6; k++) {
            sample s;
            int64_t length = (int64_t)4096 << k;
            sample_open(&s, "sum_parts", NULL, (int64_t[]){2, sizes[i], MAX_PARTS}, i & 1);
            float *x = (float *)(void *)s.ptr[0];
            if (sizes[i] > 9000)
                x[8000 * s.stride[1] / 4] = x[4000 * s.stride[1] / 4] = 5; /* a tie across blocks */
            spoil_outputs(&s);
            run_parts(&s, length);
            assert_memory_equal(s.ptr[6], s.ptr[1], s.nbytes[1]);
            assert_memory_equal(s.ptr[7], s.ptr[2], s.nbytes[2]);
            if (sizes[i] > 9000) assert_int_equal(*(int64_t *)(void *)s.ptr[2], 4000);
            sample_close(&s);
        }
}

/* Writes text, with the digit in place of each '$': the same fold in two nests has values of its own. */
static size_t number_values(char *out, size_t n, const char *text, char digit) {
    size_t len = strlen(text);
    assert_true(len < n);
    for (size_t i = 0; i <= len; i++) out[i] = text[i] == '$' ? digit : text[i];
    return len;
}

/* Folds whose parts are taken: elements of `axis` in a part, times 2^k. */
static const struct divided {
    const char *axes, *fold;
    int axis, length;
    int64_t n[3];
} divided[] = {
    {"(o, r)",
     ("%$1 = fold r (%$0) lanes 8 block 8 { %$2 = state 0 %$3 = load x %$4 = add %$2, %$3 yield %$4 } "
      "merge { %$5 = left 0 %$6 = right 0 %$7 = add %$5, %$6 yield %$7 } %$8 = result %$1 0"),
     2,
     8,
     {3, 1, 1003}},
    {"(o, r)",
     ("%$1 = fold r (%$0) by block 64 { %$2 = extent r %$3 = cast f32 %$2 %$4 = fold r (%$3) lanes 4 block 16 { "
      "%$5 = load x %$6 = state 0 %$7 = index r %$9 = cast f32 %$7 %$10 = mul %$5, %$9 %$11 = add %$6, %$10 yield %$11 } "
      "merge { %$12 = left 0 %$13 = right 0 %$14 = add %$12, %$13 yield %$14 } %$15 = result %$4 0 yield %$15 } "
      "merge { %$16 = left 0 %$17 = right 0 %$18 = add %$16, %$17 yield %$18 } %$8 = result %$1 0"),
     2,
     64,
     {3, 1, 1500}},
    {"(o, a, r)",
     ("%$1 = fold a, r (%$0) lanes 64 block 4096 vec { %$2 = state 0 %$3 = load x %$4 = add %$2, %$3 yield %$4 } "
      "merge { %$5 = left 0 %$6 = right 0 %$7 = add %$5, %$6 yield %$7 } %$8 = result %$1 0"),
     1,
     1,
     {3, 21, 70}},
};

static void parse_divided(kiln_arena *a, const struct divided *d, kiln_ir **out) {
    char text[4096], once[1024], again[1024];
    number_values(once, sizeof once, d->fold, '1');
    number_values(again, sizeof again, d->fold, '2');
    snprintf(
        text, sizeof text,
        "kernel \"d\" { axis o axis a axis r axis q buf x in f32 %s buf w out f32 (o) buf t tmp f32 (o, q) "
        "buf y out f32 (o) for o { %%10 = const f32 0 %s store w, %%18 } "
        "for q { for o { %%20 = const f32 0 %s store t, %%28 } } "
        "for o { %%30 = const f32 0 %%31 = fold q (%%30) by block 1 { %%32 = load t yield %%32 } "
        "merge { %%33 = left 0 %%34 = right 0 %%35 = add %%33, %%34 yield %%35 } %%36 = result %%31 0 "
        "store y, %%36 } }",
        d->axes, once, again);
    if (kiln_ir_parse(a, text, strlen(text), out) != KILN_OK) fail_msg("%s", kiln_last_error());
}

/* Parts of 2^k blocks, of blocks that are made whole, and of 2^k runs. */
static void parts_of_other_folds(void **state) {
    (void)state;
    static float x[3 * 1500], w[3], t[3 * 256], y[3];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = noise(i);
    for (int c = 0; c < COUNT(divided); c++) {
        const struct divided *d = &divided[c];
        kiln_arena a;
        kiln_ir *ir;
        kiln_interp *p;
        int32_t trap;
        kiln_arena_init(&a);
        parse_divided(&a, d, &ir);
        assert_int_equal(kiln_interp_new(ir, kiln_isa_detect(), &p), KILN_OK);
        int64_t stride[16] = {
            [0] = 4 * d->n[1] * d->n[2], [1] = 4 * d->n[2], [2] = 4, [4] = 4, [8] = 4, [11] = 12, [12] = 4};
        for (int64_t length = d->length; length < 2 * d->n[d->axis]; length *= 2) {
            int64_t n[] = {d->n[0], d->n[1], d->n[2], 0}, origin[4] = {0};
            char *ptr[] = {(char *)x, (char *)w, (char *)t, (char *)y};
            kiln_launch l = {0, 4, n, ptr, stride, origin, NULL, NULL, 0};
            assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
            int64_t parts = 0, whole = d->n[d->axis];
            for (int64_t b = 0; b < whole; b += length, parts++) {
                ptr[0] = (char *)x + b * stride[d->axis];
                ptr[2] = (char *)(t + 3 * parts);
                n[d->axis] = whole - b < length ? whole - b : length;
                n[3] = 1;
                origin[d->axis] = b;
                l.nest = 1;
                assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
            }
            n[3] = parts;
            ptr[2] = (char *)t;
            l.nest = 2;
            assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
            assert_memory_equal(w, y, sizeof w);
        }
        kiln_interp_free(p);
        kiln_arena_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_to_the_whole),
        cmocka_unit_test(parts_of_other_folds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
