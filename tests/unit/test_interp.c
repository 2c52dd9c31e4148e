/* test_interp.c - the interpreter on hand-written kernels (tests/golden/ir), with known answers.
 *
 * Every kernel runs at each ISA level this machine has.  Folds are compared bit for bit with a plain C
 * walk of the tree that docs/IR.md describes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/interp.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* -- harness --------------------------------------------------------------------------------------- */

typedef struct kernel {
    kiln_arena arena;
    kiln_ir *ir;
    int ndim;
} kernel;

static bool simplify_first; /* the whole suite runs once as written, once simplified */

static void kernel_parse(kernel *k, const char *text, size_t n) {
    kiln_arena_init(&k->arena);
    if (kiln_ir_parse(&k->arena, text, n, &k->ir) != KILN_OK) fail_msg("%s", kiln_last_error());
    if (simplify_first) assert_int_equal(kiln_ir_simplify(k->ir), KILN_OK);
    assert_int_equal(kiln_ir_verify(k->ir), KILN_OK);
    k->ndim = 0;
    for (int a = 0; a < k->ir->naxes; a++) k->ndim += k->ir->axes[a].grid ? 2 : 1;
}

static void kernel_open(kernel *k, const char *name) {
    char path[512], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/tests/golden/ir/%s.kir", KILN_SOURCE_DIR, name);
    if (kiln_file_read(path, &text, &n) != KILN_OK) fail_msg("%s", kiln_last_error());
    kernel_parse(k, text, n);
    kiln_free(text);
}

static void kernel_close(kernel *k) { kiln_arena_free(&k->arena); }

/* Runs every nest at one level; stops at a trap and returns it. */
static int32_t run_at(const kernel *k, kiln_isa isa, const int64_t *n, char **ptr, const int64_t *stride,
                      const uint64_t *par) {
    static const int64_t origin[16];
    kiln_interp *p;
    int32_t trap = 0;
    if (kiln_interp_new(k->ir, isa, &p) != KILN_OK) fail_msg("%s", kiln_last_error());
    for (int nest = 0; nest < k->ir->nnests && !trap; nest++) {
        kiln_launch l = {nest, k->ndim, n, ptr, stride, origin, par, NULL, 0};
        assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
    }
    kiln_interp_free(p);
    return trap;
}

static int32_t run(const kernel *k, const int64_t *n, char **ptr, const int64_t *stride,
                   const uint64_t *par) {
    return run_at(k, kiln_isa_detect(), n, ptr, stride, par);
}

#define PTR(x) ((char *)(void *)(x))
#define EACH_ISA(isa)                                                                 \
    for (kiln_isa isa = (kiln_isa)0; isa < KILN_ISA_COUNT; isa = (kiln_isa)(isa + 1)) \
        if (kiln_isa_runs(isa))

static void *aligned(size_t nbytes) {
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, nbytes + 64), 0);
    return p;
}

/* Numbers whose sums round, the same ones everywhere. */
static float noise(uint32_t i) {
    uint32_t x = i * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(int32_t)x * 0x1p-31f + 0.37f;
}

/* Interleaved, broadcast and strided complex elements; sizes around blocks and vectors. */
static void complex_elements_are_split_and_joined(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 3, 64, 65, 1025};
    kernel k;
    kernel_open(&k, "complex");
    for (int s = 0; s < COUNT(sizes); s++) {
        int64_t n[] = {sizes[s], 2}, total = n[0] * n[1];
        float *x = aligned((size_t)total * 8), *o = aligned((size_t)total * 8 + 8), y[4] = {1, 2, -3, 0.5f};
        double *z = aligned((size_t)total * 32), *w = aligned((size_t)total * 48), number[2] = {0.25, -4};
        uint64_t par[2];
        memcpy(par, number, sizeof par);
        int64_t stride[] = {8, 8 * n[0], 0, 8, 32, 32 * n[0], 8, 8 * n[0], 48, 48 * n[0]};
        char *ptr[] = {PTR(x), PTR(y), PTR(z), PTR(o), PTR(w)};
        for (int64_t i = 0; i < 2 * total; i++) x[i] = noise((uint32_t)i);
        for (int64_t i = 0; i < 4 * total; i++) z[i] = (double)noise((uint32_t)i + 7);
        EACH_ISA(isa) {
            for (int64_t i = 0; i < 2 * total + 2; i++) o[i] = 77;
            for (int64_t i = 0; i < 6 * total; i++) w[i] = 77;
            assert_int_equal(run_at(&k, isa, n, ptr, stride, par), 0);
            for (int64_t i = 0; i < total; i++) {
                float a = x[2 * i], b = x[2 * i + 1], c = y[2 * (i / n[0])], d = y[2 * (i / n[0]) + 1];
                float ac = a * c, bd = b * d, ad = a * d, bc = b * c;
                assert_true(o[2 * i] == ac - bd && o[2 * i + 1] == ad + bc);
                assert_true(w[6 * i] == z[4 * i] + 0.25 && w[6 * i + 1] == z[4 * i + 1] - 4 &&
                            w[6 * i + 2] == 77);
            }
            assert_true(o[2 * total] == 77);
        }
        free(x);
        free(o);
        free(z);
        free(w);
    }
    kernel_close(&k);
}

static void the_highest_unsigned_numbers(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "unsigned");
    uint64_t x[3] = {UINT64_MAX, UINT64_MAX - 1, 1}, u[3];
    uint16_t y[3] = {0, 65535, 1};
    uint32_t z[3] = {0, 5, 0xffffffff};
    uint8_t o[3];
    int64_t n[] = {3, 1}, stride[] = {8, 0, 2, 0, 4, 0, 1, 0, 8, 0};
    char *ptr[] = {PTR(x), PTR(y), PTR(z), PTR(o), PTR(u)};
    EACH_ISA(isa) {
        memset(u, 1, sizeof u);
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        assert_true(o[0] == 1 && o[1] == 0 && o[2] == 0);
        assert_true(u[0] == 65535ull * 0xffffffff && u[1] == 0 && u[2] == 0);
    }
    kernel_close(&k);
}

/* -- maps --------------------------------------------------------------------------------------------- */

static void map_adds_and_broadcasts(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 3, 63, 64, 65, 1023, 1024, 1025, 3000};
    kernel k;
    kernel_open(&k, "add");
    for (int s = 0; s < COUNT(sizes); s++) {
        int64_t n[] = {sizes[s], 3}, total = n[0] * n[1];
        float *x = aligned((size_t)total * 4), *o = aligned((size_t)total * 4), y[3] = {1, -2, 0.5f},
              alpha = 3;
        uint64_t par[1] = {0};
        memcpy(par, &alpha, 4);
        int64_t stride[] = {4, 4 * n[0], 0, 4, 4, 4 * n[0]};
        char *ptr[] = {PTR(x), PTR(y), PTR(o)};
        for (int64_t i = 0; i < total; i++) x[i] = noise((uint32_t)i);
        EACH_ISA(isa) {
            for (int64_t i = 0; i <= total; i++) o[i] = 77;
            assert_int_equal(run_at(&k, isa, n, ptr, stride, par), 0);
            for (int64_t i = 0; i < total; i++) assert_true(o[i] == x[i] + alpha * y[i / n[0]]);
            assert_true(o[total] == 77);
        }
        free(x);
        free(o);
    }
    kernel_close(&k);
}

static void map_follows_any_stride(void **state) {
    (void)state;
    enum { ROWS = 40, COLS = 150 };
    kernel k;
    kernel_open(&k, "copy");
    static float x[ROWS * COLS], o[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) x[i] = noise((uint32_t)i);
    { /* transposed */
        int64_t n[] = {ROWS, COLS}, stride[] = {4 * COLS, 4, 4, 4 * ROWS};
        char *ptr[] = {PTR(x), PTR(o)};
        assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
        for (int i = 0; i < ROWS * COLS; i++) assert_true(o[i] == x[i % ROWS * COLS + i / ROWS]);
    }
    { /* backwards in both */
        int64_t n[] = {COLS, ROWS}, stride[] = {-4, -4 * COLS, 4, 4 * COLS};
        char *ptr[] = {PTR(x + ROWS * COLS - 1), PTR(o)};
        assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
        for (int i = 0; i < ROWS * COLS; i++) assert_true(o[i] == x[ROWS * COLS - 1 - i]);
    }
    { /* one element for all */
        int64_t n[] = {COLS, ROWS}, stride[] = {0, 0, 4, 4 * COLS};
        char *ptr[] = {PTR(x + 5), PTR(o)};
        assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
        for (int i = 0; i < ROWS * COLS; i++) assert_true(o[i] == x[5]);
    }
    kernel_close(&k);
}

static void map_casts(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "cast");
    double x[70];
    for (int i = 0; i < 70; i++) x[i] = i * 1.75 - 60;
    x[0] = 0;
    x[1] = -0.0;
    x[2] = 0.25;
    uint8_t b[70], u8[70];
    int8_t i8[70];
    int16_t i16[70];
    int32_t i32[70];
    int64_t i64[70];
    uint16_t f16[70], bf16[70];
    float f32[70];
    char *ptr[] = {PTR(x),   PTR(b),   PTR(u8),  PTR(i8),   PTR(i16),
                   PTR(i32), PTR(i64), PTR(f16), PTR(bf16), PTR(f32)};
    int64_t n[] = {70, 1}, stride[] = {8, 0, 1, 0, 1, 0, 1, 0, 2, 0, 4, 0, 8, 0, 2, 0, 2, 0, 4, 0};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        for (int i = 0; i < 70; i++) {
            assert_int_equal(b[i], x[i] != 0);
            assert_int_equal(u8[i], (uint8_t)(int32_t)x[i]);
            assert_int_equal(i8[i], (int8_t)x[i]);
            assert_int_equal(i16[i], (int16_t)x[i]);
            assert_int_equal(i32[i], (int32_t)x[i]);
            assert_int_equal(i64[i], (int64_t)x[i]);
            assert_int_equal(f16[i], kiln_f32_to_half((float)x[i]));
            assert_int_equal(bf16[i], kiln_f32_to_bf16((float)x[i]));
            assert_true(f32[i] == (float)x[i]);
        }
    }
    kernel_close(&k);
}

static void map_halves_compute_in_f32(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "half");
    uint16_t x[200], y[200], o[200];
    for (int i = 0; i < 200; i++) {
        x[i] = kiln_f32_to_half(noise((uint32_t)i) * 100);
        y[i] = kiln_f32_to_bf16(noise((uint32_t)i + 999));
    }
    char *ptr[] = {PTR(x), PTR(y), PTR(o)};
    int64_t n[] = {100, 2}, stride[] = {2, 200, 2, 200, 2, 200};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        for (int i = 0; i < 200; i++)
            assert_int_equal(o[i], kiln_f32_to_bf16(kiln_half_to_f32(x[i]) * kiln_bf16_to_f32(y[i])));
    }
    kernel_close(&k);
}

static void map_reads_any_nonzero_byte_as_true(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "where");
    static const uint8_t bytes[] = {0, 1, 2, 255, 128};
    uint8_t *c = aligned(640), *x = aligned(640), o[640], b[640];
    for (int i = 0; i < 640; i++) {
        c[i] = bytes[i % 5];
        x[i] = bytes[i / 5 % 5];
    }
    char *ptr[] = {PTR(c), PTR(x), PTR(o), PTR(b)};
    int64_t n[] = {640, 1}, stride[] = {1, 0, 1, 0, 1, 0, 1, 0};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        for (int i = 0; i < 640; i++) {
            assert_int_equal(o[i], c[i] ? x[i] != 0 : x[i] == 0);
            assert_int_equal(b[i], c[i] && o[i]);
        }
    }
    free(c);
    free(x);
    kernel_close(&k);
}

/* u = x + y and v = x - y with either output on either input, aligned (used in place) and not. */
static void map_works_in_place(void **state) {
    (void)state;
    enum { N = 2048 + 7 };
    kernel k;
    kernel_open(&k, "in_place");
    for (int which = 0; which < 8; which++) {
        int shift = which & 1, u_on_y = which >> 1 & 1, both = which >> 2;
        float *x = (float *)aligned(4 * N + 8) + shift, *y = (float *)aligned(4 * N + 8) + shift;
        float *free_u = aligned(4 * N + 8), *free_v = aligned(4 * N + 8);
        float *u = u_on_y ? y : x, *v = both ? (u_on_y ? x : y) : free_v;
        for (int i = 0; i < N; i++) {
            x[i] = noise((uint32_t)i);
            y[i] = noise((uint32_t)i + N);
        }
        char *ptr[] = {PTR(x), PTR(y), PTR(u), PTR(v)};
        int64_t n[] = {N, 1}, stride[] = {4, 0, 4, 0, 4, 0, 4, 0};
        assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
        for (int i = 0; i < N; i++) {
            float a = noise((uint32_t)i), b = noise((uint32_t)i + N);
            assert_true(u[i] == a + b);
            assert_true(v[i] == a - b);
        }
        free(x - shift);
        free(y - shift);
        free(free_u);
        free(free_v);
    }
    kernel_close(&k);
}

/* A chain too long for small scratch: many values alive at once, so blocks shrink and the heap is used. */
static void map_with_many_live_values(void **state) {
    (void)state;
    enum { VALUES = 90, N = 1500 };
    kernel k;
    kiln_arena_init(&k.arena);
    kiln_ir *ir = k.ir = kiln_ir_new(&k.arena, "many");
    int p = kiln_ir_axis_add(ir, "p", true);
    int x = kiln_ir_buf_add(ir, "x", KILN_BUF_IN, KILN_F64, 1u << p, KILN_STRIDE_CONTIG);
    int o = kiln_ir_buf_add(ir, "o", KILN_BUF_OUT, KILN_F64, 1u << p, KILN_STRIDE_CONTIG);
    kiln_ref v[VALUES];
    kiln_ir_for(ir, p, true);
    v[0] = kiln_ir_load(ir, x);
    for (int i = 1; i < VALUES; i++) {
        kiln_ref args[] = {v[i - 1], kiln_ir_const_f(ir, KILN_F64, i)};
        v[i] = kiln_ir_prim(ir, i & 1 ? KILN_P_ADD : KILN_P_MUL, args, 2);
    }
    kiln_ref sum = v[0];
    for (int i = 1; i < VALUES; i++) sum = kiln_ir_prim(ir, KILN_P_SUB, (kiln_ref[]){sum, v[i]}, 2);
    kiln_ir_store(ir, o, sum);
    kiln_ir_end(ir);
    assert_int_equal(kiln_ir_verify(ir), KILN_OK);
    k.ndim = 2;
    double *in = aligned(8 * N), *out = aligned(8 * N);
    for (int i = 0; i < N; i++) in[i] = (double)noise((uint32_t)i) * 0x1p-60;
    char *ptr[] = {PTR(in), PTR(out)};
    int64_t n[] = {N, 1}, stride[] = {8, 0, 8, 0};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    for (int i = 0; i < N; i++) {
        double w = in[i], want = in[i];
        for (int j = 1; j < VALUES; j++) {
            w = j & 1 ? w + j : w * j;
            want -= w;
        }
        assert_memory_equal(&out[i], &want, 8);
    }
    free(in);
    free(out);
    kernel_close(&k);
}

/* -- folds -------------------------------------------------------------------------------------------- */

/* The tree over one block's lanes, level by level as docs/IR.md says it. */
static float block_sum(const float *x, int64_t stride, int64_t n) {
    float lane[64];
    int64_t m = n < 64 ? n : 64;
    for (int64_t l = 0; l < m; l++) {
        lane[l] = 0;
        for (int64_t i = l; i < n; i += 64) lane[l] += x[i * stride];
    }
    for (int w = 32; w; w /= 2)
        for (int l = 0; l < w; l++)
            if (l + w < m && l + w < 2 * w) lane[l] = lane[l] + lane[l + w];
    return lane[0];
}

static float tree_sum(const float *x, int64_t stride, int64_t n) {
    float pending[64];
    int top = 0;
    int64_t block = 0;
    if (n == 0) return 0;
    for (int64_t i = 0; i < n; i += 4096, block++) {
        float s = block_sum(x + i * stride, stride, n - i < 4096 ? n - i : 4096);
        for (int64_t b = block; b & 1; b >>= 1) s = pending[--top] + s;
        pending[top++] = s;
    }
    float s = pending[--top];
    while (top) s = pending[--top] + s;
    return s;
}

static void sums_take_the_tree(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 33, 63, 64, 65, 127, 4095, 4096, 4097, 8192, 12288 + 70, 20000};
    static const char *const kinds[] = {"sum_vec", "sum_outer", "sum_plain"};
    enum { OUTER = 5 };
    float *x = aligned(4 * OUTER * 20001);
    for (int i = 0; i < OUTER * 20001; i++) x[i] = noise((uint32_t)i);
    for (int kind = 0; kind < COUNT(kinds); kind++) {
        kernel k;
        kernel_open(&k, kinds[kind]);
        for (int s = 0; s < COUNT(sizes) * 2; s++) {
            int64_t n[] = {OUTER, sizes[s / 2]};
            int64_t so = s & 1 ? 1 : n[1], sr = s & 1 ? OUTER : 1; /* in elements: both orders of memory */
            float y[OUTER];
            int64_t stride[] = {4 * so, 4 * sr, 4, 0};
            char *ptr[] = {PTR(x), PTR(y)};
            EACH_ISA(isa) {
                assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
                for (int o = 0; o < OUTER; o++) {
                    float want = tree_sum(x + o * so, sr, n[1]);
                    assert_memory_equal(&y[o], &want, 4);
                }
            }
        }
        kernel_close(&k);
    }
    free(x);
}

static void sum_over_a_long_outer_vector(void **state) {
    (void)state;
    enum { OUTER = 1100, N = 130 };
    kernel k;
    kernel_open(&k, "sum_outer");
    float *x = aligned(4 * OUTER * N), *y = aligned(4 * OUTER);
    for (int i = 0; i < OUTER * N; i++) x[i] = noise((uint32_t)i);
    int64_t n[] = {OUTER, N}, stride[] = {4, 4 * OUTER, 4, 0};
    char *ptr[] = {PTR(x), PTR(y)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    for (int o = 0; o < OUTER; o++) assert_true(y[o] == tree_sum(x + o, OUTER, N));
    free(x);
    free(y);
    kernel_close(&k);
}

static void argmax_keeps_the_first(void **state) {
    (void)state;
    enum { N = 9000 };
    kernel k;
    kernel_open(&k, "argmax");
    float *x = aligned(8 * N), v[2];
    int64_t i[2], n[] = {2, N}, stride[] = {4 * N, 4, 4, 0, 8, 0};
    for (int j = 0; j < 2 * N; j++) x[j] = noise((uint32_t)j);
    x[4500] = x[4501] = x[8999] = 50; /* ties within a block and across blocks */
    x[N] = x[2 * N - 1] = 60;
    char *ptr[] = {PTR(x), PTR(v), PTR(i)};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        assert_true(v[0] == 50 && v[1] == 60);
        assert_int_equal(i[0], 4500);
        assert_int_equal(i[1], 0);
    }
    n[1] = 0;
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    assert_true(v[0] == -INFINITY && i[0] == 0);
    free(x);
    kernel_close(&k);
}

static void welford_agrees_with_itself_and_the_truth(void **state) {
    (void)state;
    enum { N = 10000, OUTER = 3 };
    double *x = aligned(8 * N * OUTER), mean[2][OUTER], m2[2][OUTER];
    for (int i = 0; i < N * OUTER; i++) x[i] = 1000 + (double)noise((uint32_t)i);
    int64_t n[] = {OUTER, N}, stride[] = {8 * N, 8, 8, 0, 8, 0};
    static const char *const kinds[] = {"welford_vec", "welford_outer"};
    for (int kind = 0; kind < 2; kind++) {
        kernel k;
        kernel_open(&k, kinds[kind]);
        char *ptr[] = {PTR(x), PTR(mean[kind]), PTR(m2[kind])};
        assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
        kernel_close(&k);
    }
    assert_memory_equal(mean[0], mean[1], sizeof mean[0]);
    assert_memory_equal(m2[0], m2[1], sizeof m2[0]);
    for (int o = 0; o < OUTER; o++) {
        long double sum = 0, squares = 0;
        for (int i = 0; i < N; i++) sum += x[o * N + i];
        for (int i = 0; i < N; i++) squares += (x[o * N + i] - sum / N) * (x[o * N + i] - sum / N);
        assert_true(fabsl(mean[0][o] - sum / N) < 1e-11L);
        assert_true(fabsl(m2[0][o] - squares) < 1e-9L * squares);
    }
    free(x);
}

static void folds_nest(void **state) {
    (void)state;
    enum { O = 2, R = 150, K = 70 };
    kernel k;
    kernel_open(&k, "nested_fold");
    static int32_t x[O * R * K];
    int32_t y[O];
    for (int i = 0; i < O * R * K; i++) x[i] = i * 7919 % 1000 - 500;
    int64_t n[] = {O, R, K}, stride[] = {4 * R * K, 4 * K, 4, 4, 0, 0};
    char *ptr[] = {PTR(x), PTR(y)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    for (int o = 0; o < O; o++) {
        int32_t want = INT32_MIN;
        for (int r = 0; r < R; r++) {
            int32_t sum = 0;
            for (int j = 0; j < K; j++) sum += x[(o * R + r) * K + j];
            want = sum > want ? sum : want;
        }
        assert_int_equal(y[o], want);
    }
    kernel_close(&k);
}

static void matmul_by_columns(void **state) {
    (void)state;
    enum { I = 3, J = 1500, K = 80 };
    kernel k;
    kernel_open(&k, "matmul");
    float *a = aligned(4 * I * K), *b = aligned(4 * K * J), *c = aligned(4 * I * J);
    for (int i = 0; i < I * K; i++) a[i] = (float)(i % 13 - 6);
    for (int i = 0; i < K * J; i++) b[i] = (float)(i % 17 - 8);
    int64_t n[] = {I, J, K}, stride[] = {4 * K, 0, 4, 0, 4, 4 * J, 4 * J, 4, 0};
    char *ptr[] = {PTR(a), PTR(b), PTR(c)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    for (int i = 0; i < I; i++)
        for (int j = 0; j < J; j++) {
            float want = 0; /* small integers: exact in any order */
            for (int l = 0; l < K; l++) want += a[i * K + l] * b[l * J + j];
            assert_true(c[i * J + j] == want);
        }
    free(a);
    free(b);
    free(c);
    kernel_close(&k);
}

/* -- scans -------------------------------------------------------------------------------------------- */

static void cumsum_runs_in_order(void **state) {
    (void)state;
    enum { O = 1030, R = 37 };
    kernel k;
    kernel_open(&k, "cumsum");
    static int64_t x[O * R], y[O * R], t[O];
    for (int i = 0; i < O * R; i++) x[i] = (i * 31 % 101 - 50) * (int64_t)1000000007;
    int64_t n[] = {O, R}, stride[] = {8, 8 * O, 8, 8 * O, 8, 0};
    char *ptr[] = {PTR(x), PTR(y), PTR(t)};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        for (int o = 0; o < O; o++) {
            int64_t sum = 0;
            for (int r = 0; r < R; r++) {
                sum += x[r * O + o];
                assert_true(y[r * O + o] == sum);
            }
            assert_true(t[o] == sum);
        }
    }
    kernel_close(&k);
}

static void states_may_change_places(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "fibonacci");
    int64_t y[50], n[] = {1, 50}, stride[] = {0, 8}, a = 0, b = 1;
    char *ptr[] = {PTR(y)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    for (int i = 0; i < 50; i++) {
        assert_true(y[i] == a);
        int64_t next = a + b;
        a = b;
        b = next;
    }
    kernel_close(&k);
}

/* -- computed coordinates ----------------------------------------------------------------------------- */

static void gather_checks_first(void **state) {
    (void)state;
    enum { N = 1300, G = 9 };
    kernel k;
    kernel_open(&k, "gather");
    float x[G], y[N];
    static int64_t i[N];
    for (int j = 0; j < G; j++) x[j] = (float)j + 0.5f;
    for (int j = 0; j < N; j++) i[j] = j * 5 % (2 * G) - G;
    int64_t n[] = {N, G}, stride[] = {0, 4, 8, 0, 4, 0};
    char *ptr[] = {PTR(x), PTR(i), PTR(y)};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, NULL), 0);
        for (int j = 0; j < N; j++) assert_true(y[j] == x[i[j] < 0 ? i[j] + G : i[j]]);
    }
    for (int bad = 0; bad < 2; bad++) {
        int64_t keep = i[N - 1];
        i[N - 1] = bad ? G : -G - 1;
        for (int j = 0; j < N; j++) y[j] = -1;
        assert_int_equal(run(&k, n, ptr, stride, NULL), KILN_TRAP_BASE);
        for (int j = 0; j < N; j++) assert_true(y[j] == -1); /* nothing was written */
        i[N - 1] = keep;
    }
    assert_int_equal(k.ir->traps[0].status, KILN_E_INDEX);
    assert_string_equal(k.ir->traps[0].text, "index out of range");
    kernel_close(&k);
}

static void scatter_lets_later_points_win(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "scatter");
    float x[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, 30, 40};
    int64_t i[] = {0, 2, 0, 2, 99, 3}, n[] = {6, 4}, stride[] = {4, 0, 8, 0, 1, 0, 0, 4};
    uint8_t m[] = {1, 1, 1, 1, 0, 1}; /* the index out of range is not touched */
    char *ptr[] = {PTR(x), PTR(i), PTR(m), PTR(y)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    assert_true(y[0] == 3 && y[1] == 20 && y[2] == 4 && y[3] == 6);
    kernel_close(&k);
}

static void plain_loops_run_point_by_point(void **state) {
    (void)state;
    kernel k;
    kernel_open(&k, "accumulate");
    float x[] = {1, 2, 4, 8, 16}, y[] = {0, 100, 0};
    int64_t i[] = {1, 0, 1, 1, 2}, n[] = {5, 3}, stride[] = {4, 0, 8, 0, 0, 4};
    char *ptr[] = {PTR(x), PTR(i), PTR(y)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    assert_true(y[0] == 2 && y[1] == 113 && y[2] == 16);
    kernel_close(&k);
}

static void windows_may_hang_over_the_edge(void **state) {
    (void)state;
    enum { X = 30, K = 3, S = 2, PAD = 2, O = (X + 2 * PAD - K) / S + 1 };
    kernel k;
    kernel_open(&k, "max_pool");
    float *x = malloc(sizeof(float) * X), y[O]; /* on the heap, so that a read outside is noticed */
    assert_non_null(x);
    for (int j = 0; j < X; j++) x[j] = noise((uint32_t)j) - 2;
    uint64_t par[] = {S, PAD};
    int64_t n[] = {O, K, X}, stride[] = {0, 0, 4, 4, 0, 0};
    char *ptr[] = {PTR(x), PTR(y)};
    EACH_ISA(isa) {
        assert_int_equal(run_at(&k, isa, n, ptr, stride, par), 0);
        for (int o = 0; o < O; o++) {
            float want = -INFINITY;
            for (int j = o * S - PAD; j < o * S - PAD + K; j++)
                if (j >= 0 && j < X) want = fmaxf(want, x[j]);
            assert_true(y[o] == want);
        }
    }
    free(x);
    kernel_close(&k);
}

/* A box in the middle: positions count from the box, `index` from the origin. */
static void index_counts_from_the_origin(void **state) {
    (void)state;
    static const char text[] = "kernel \"iota\" { axis i axis j buf o out i64 (i, j)\n"
                               "  for i { %0 = index i %1 = const i64 1000 %2 = mul %0, %1\n"
                               "    for j vec { %3 = index j %4 = add %2, %3 store o, %4 } } }";
    kernel k;
    kernel_parse(&k, text, strlen(text));
    int64_t o[2][5], n[] = {2, 5}, stride[] = {40, 8}, origin[] = {7, 90};
    char *ptr[] = {PTR(o)};
    kiln_launch l = {0, 2, n, ptr, stride, origin, NULL, NULL, 0};
    kiln_interp *p;
    int32_t trap;
    assert_int_equal(kiln_interp_new(k.ir, kiln_isa_detect(), &p), KILN_OK);
    assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 5; j++) assert_int_equal(o[i][j], (i + 7) * 1000 + j + 90);
    l.ndim = 3;
    assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_E_BUG);
    l.ndim = 2;
    l.nest = 1;
    assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_E_BUG);
    kiln_interp_free(p);
    kernel_close(&k);
}

/* -- several nests ------------------------------------------------------------------------------------- */

static void softmax_in_three_nests(void **state) {
    (void)state;
    enum { O = 4, R = 5000 };
    kernel k;
    kernel_open(&k, "softmax");
    float *x = aligned(4 * O * R), *y = aligned(4 * O * R), top[O], sum[O];
    for (int i = 0; i < O * R; i++) x[i] = noise((uint32_t)i) * 10;
    int64_t n[] = {O, R}, stride[] = {4 * R, 4, 4, 0, 4, 0, 4 * R, 4};
    char *ptr[] = {PTR(x), PTR(top), PTR(sum), PTR(y)};
    assert_int_equal(run(&k, n, ptr, stride, NULL), 0);
    for (int o = 0; o < O; o++) {
        double s = 0, total = 0;
        for (int r = 0; r < R; r++) s += exp((double)x[o * R + r]);
        for (int r = 0; r < R; r++) {
            double want = exp((double)x[o * R + r]) / s;
            assert_true(fabs((double)y[o * R + r] - want) < 1e-5 * want);
            total += (double)y[o * R + r];
        }
        assert_true(fabs(total - 1) < 1e-5);
    }
    free(x);
    free(y);
    kernel_close(&k);
}

static void a_loop_after_a_fold_works_in_place(void **state) {
    (void)state;
    enum { O = 3, R = 1200 };
    kernel k;
    kernel_open(&k, "normalize");
    float *x = aligned(4 * O * R), *y = aligned(4 * O * R);
    for (int i = 0; i < O * R; i++) x[i] = noise((uint32_t)i);
    int64_t n[] = {O, R}, stride[] = {4 * R, 4, 4 * R, 4};
    char *apart[] = {PTR(x), PTR(y)}, *same[] = {PTR(x), PTR(x)};
    assert_int_equal(run(&k, n, apart, stride, NULL), 0);
    for (int o = 0; o < O; o++) {
        double squares = 0;
        for (int r = 0; r < R; r++) squares += (double)y[o * R + r] * (double)y[o * R + r];
        assert_true(fabs(squares - 1) < 1e-5);
    }
    assert_int_equal(run(&k, n, same, stride, NULL), 0);
    assert_memory_equal(x, y, 4 * O * R);
    free(x);
    free(y);
    kernel_close(&k);
}

/* -- faults ------------------------------------------------------------------------------------------- */

static void survives_failed_allocations(const char *name) {
    kernel k;
    kernel_open(&k, name);
    for (long nth = 1;; nth++) {
        kiln_interp *p = NULL;
        kiln_alloc_fail_after(nth);
        kiln_status st = kiln_interp_new(k.ir, kiln_isa_detect(), &p);
        kiln_alloc_fail_after(0);
        if (st == KILN_OK) {
            assert_true(nth > 2);
            kiln_interp_free(p);
            break;
        }
        assert_int_equal(st, KILN_E_NOMEM);
        assert_null(p);
    }
    kernel_close(&k);
}

static void survives_any_failed_allocation(void **state) {
    (void)state;
    survives_failed_allocations("softmax");
    survives_failed_allocations("variance_across");
    survives_failed_allocations("cumsum_blocks");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complex_elements_are_split_and_joined),
        cmocka_unit_test(the_highest_unsigned_numbers),
        cmocka_unit_test(map_adds_and_broadcasts),
        cmocka_unit_test(map_follows_any_stride),
        cmocka_unit_test(map_casts),
        cmocka_unit_test(map_halves_compute_in_f32),
        cmocka_unit_test(map_reads_any_nonzero_byte_as_true),
        cmocka_unit_test(map_works_in_place),
        cmocka_unit_test(map_with_many_live_values),
        cmocka_unit_test(sums_take_the_tree),
        cmocka_unit_test(sum_over_a_long_outer_vector),
        cmocka_unit_test(argmax_keeps_the_first),
        cmocka_unit_test(welford_agrees_with_itself_and_the_truth),
        cmocka_unit_test(folds_nest),
        cmocka_unit_test(matmul_by_columns),
        cmocka_unit_test(cumsum_runs_in_order),
        cmocka_unit_test(states_may_change_places),
        cmocka_unit_test(gather_checks_first),
        cmocka_unit_test(scatter_lets_later_points_win),
        cmocka_unit_test(plain_loops_run_point_by_point),
        cmocka_unit_test(windows_may_hang_over_the_edge),
        cmocka_unit_test(index_counts_from_the_origin),
        cmocka_unit_test(softmax_in_three_nests),
        cmocka_unit_test(a_loop_after_a_fold_works_in_place),
        cmocka_unit_test(survives_any_failed_allocation),
    };
    int failed = cmocka_run_group_tests_name("as written", tests, NULL, NULL);
    simplify_first = true;
    return failed + cmocka_run_group_tests_name("simplified", tests, NULL, NULL);
}
