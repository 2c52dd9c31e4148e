/* test_overlap.c - results that share memory with what the call reads: refused as PyTorch would, else as if all of it
 * had been read first.
 *
 * Random views of one memory, whose bytes are looked at one by one, and calls on them in every tier; large ones by threads
 * that take their parts from the last to the first. */
#include <math.h>

#include "call_cases.h"
#include "infer/infer.h"

enum { BYTES = 1 << 12, MIDDLE = BYTES / 2, RANK = 3, VIEWS = 4, SMALL = 4 };

static uint32_t seed = 1;

static int64_t draw(int64_t from, int64_t to) {
    seed = seed * 1664525u + 1013904223u;
    return from + (int64_t)((seed >> 8) % (uint32_t)(to - from + 1));
}

static kiln_tensor *wrap(void *data, kiln_dtype dtype, int rank, const int64_t *sizes,
                         const int64_t *strides) {
    kiln_tensor *t = NULL;
    MUST_OK(kiln_tensor_wrap(data, dtype, rank, sizes, strides, NULL, NULL, &t));
    return t;
}

/* -- looking at elements ---------------------------------------------------------------------------------- */

/* Address of element e of the call's shape, in row-major order, in t. */
static char *place(const kiln_tensor *t, int rank, const int64_t *sizes, int64_t e) {
    char *at = t->data;
    for (int d = rank - 1; d >= 0; e /= sizes[d--]) {
        int k = d - (rank - t->rank);
        if (k >= 0 && t->sizes[k] > 1)
            at += e % sizes[d] * t->strides[k] * (int64_t)kiln_elem_bytes[t->dtype];
    }
    return at;
}

/* Which element of `out` each byte of the memory is of: its number and one.  False where it is of two. */
static bool find_owners(const char *memory, const kiln_tensor *out, uint16_t *owner) {
    bool once = true;
    memset(owner, 0, BYTES * sizeof *owner);
    for (int64_t e = 0; e < out->nelem; e++) {
        int64_t at = place(out, out->rank, out->sizes, e) - memory;
        for (int64_t k = at; k < at + kiln_elem_bytes[out->dtype]; k++) {
            once = once && owner[k] == 0;
            owner[k] = (uint16_t)(e + 1);
        }
    }
    return once;
}

/* Whether an element of `in` is read where another element of `out` is written. */
static bool is_crossed(const char *memory, const kiln_tensor *out, const uint16_t *owner,
                       const kiln_tensor *in) {
    for (int64_t e = 0; e < out->nelem; e++) {
        int64_t at = place(in, out->rank, out->sizes, e) - memory;
        for (int64_t k = at; k < at + kiln_elem_bytes[in->dtype]; k++)
            if (owner[k] != 0 && owner[k] != e + 1) return true;
    }
    return false;
}

/* PyTorch's rule: both dense, some memory in common, and not all of it in the same order. */
static bool is_partial(const kiln_tensor *out, const kiln_tensor *in) {
    const char *a = out->data, *a1 = a + out->nelem * kiln_elem_bytes[out->dtype];
    const char *b = in->data, *b1 = b + in->nelem * kiln_elem_bytes[in->dtype];
    bool dense = out->flags & in->flags & KILN_TF_DENSE, same = out->rank == in->rank;
    for (int d = 0; same && d < out->rank; d++) same = out->strides[d] == in->strides[d];
    return out != in && out->nelem && in->nelem && dense && a < b1 && b < a1 && !(a == b && a1 == b1 && same);
}

/* -- calls on random views ---------------------------------------------------------------------------------- */

static _Alignas(16) char first[BYTES], memory[BYTES], expected[BYTES];

/* The operators, each with as many inputs and f32 throughout; an in-place one writes its first. */
static const struct subject {
    const char *functional, *written;
    int nin;
    bool inplace;
} subjects[] = {
    {"neg", "neg.out", 1, false},           {"add.Tensor", "add.out", 2, false},
    {"add.Tensor", "add_.Tensor", 2, true}, {"addcmul", "addcmul.out", 3, false},
    {"addcmul", "addcmul_", 3, true},
};

/* A view whose every dimension is that of the shape, or of one.  near: strides as slices of one array have them. */
static kiln_tensor *draw_view(const int64_t *sizes, bool may_stretch, bool near) {
    static const int64_t array[RANK] = {32, 8, 1};
    int64_t n[RANK], strides[RANK];
    int turn = (int)draw(0, 2);
    for (int d = 0; d < RANK; d++) {
        n[d] = may_stretch && draw(0, 5) == 0 ? 1 : sizes[d];
        strides[d] = near ? array[(d + turn) % RANK] * (draw(0, 3) ? 1 : -1) : draw(-9, 9);
        if (draw(0, may_stretch ? 9 : 90) == 0) strides[d] = 0;
    }
    return wrap(memory + MIDDLE + 4 * draw(near ? -9 : -40, near ? 9 : 40), KILN_F32, RANK, n, strides);
}

typedef struct trial {
    const struct subject *s;
    kiln_tensor *in[3], *out;
    kiln_value args[4];
    size_t nargs;
    bool near;
} trial;

static trial draw_trial(void) {
    trial t = {.s = &subjects[draw(0, 4)], .near = draw(0, 1)};
    int64_t sizes[RANK];
    for (int d = 0; d < RANK; d++) sizes[d] = draw(1, SMALL);
    t.out = draw_view(sizes, false, t.near);
    for (int i = 0; i < t.s->nin; i++)
        t.in[i] = (t.s->inplace && i == 0) || draw(0, 5) == 0 ? kiln_tensor_retain(t.out)
                                                              : draw_view(sizes, i > 0, t.near);
    for (int i = 0; i < t.s->nin; i++) t.args[t.nargs++] = TEN(t.in[i]);
    if (!t.s->inplace) t.args[t.nargs++] = NAMED("out", TEN(t.out));
    return t;
}

static void drop_trial(trial *t) {
    for (int i = 0; i < t->s->nin; i++) kiln_tensor_release(t->in[i]);
    kiln_tensor_release(t->out);
}

/* What the memory is to hold in the end: the operator's result on copies, written after it is complete. */
static void expect_result(const trial *t) {
    kiln_tensor *copies[3], *result;
    kiln_value args[3];
    for (int i = 0; i < t->s->nin; i++) {
        copies[i] = new_tensor(KILN_F32, RANK, t->out->sizes, NULL);
        for (int64_t e = 0; e < t->out->nelem; e++)
            memcpy(copies[i]->data + 4 * e, place(t->in[i], RANK, t->out->sizes, e), 4);
        args[i] = TEN(copies[i]);
    }
    result = call1(contexts[0], t->s->functional, args, (size_t)t->s->nin);
    memcpy(expected, memory, BYTES);
    for (int64_t e = 0; e < t->out->nelem; e++)
        memcpy(expected + (place(t->out, RANK, t->out->sizes, e) - memory), result->data + 4 * e, 4);
    drop_args(args, (size_t)t->s->nin);
    kiln_tensor_release(result);
}

static void check_call(const trial *t, kiln_ctx *ctx, bool refused, bool once) {
    kiln_tensor *out = (kiln_tensor *)scratch;
    memcpy(memory, first, BYTES);
    if (!refused && once) expect_result(t);
    kiln_status st = kiln_call(ctx, op_of(ctx, t->s->written), t->args, t->nargs, &out, 1);
    if (refused) {
        assert_int_equal(st, KILN_E_ARG);
        assert_error_names("unsupported operation");
        assert_memory_equal(memory, first, BYTES);
        return;
    }
    MUST_OK(st);
    if (!once) memcpy(expected, memory, BYTES); /* the interpreter's, for the tiers that follow */
    if (memcmp(memory, expected, BYTES) != 0) fail_msg("%s: not as if read before written", t->s->written);
    kiln_tensor_release(out);
}

/* The decision: never to write in place where an element is read after another was written. */
static bool decide(const trial *t, bool *copied) {
    kiln_bound bound;
    kiln_plan plan;
    MUST_OK(kiln_bind(op_of(contexts[0], t->s->written), t->args, t->nargs, &bound));
    kiln_status st = kiln_infer(&bound, &plan);
    *copied = st == KILN_OK && plan.aside;
    return st == KILN_OK;
}

static void random_views(void **state) {
    (void)state;
    static uint16_t owner[BYTES];
    int refusals = 0, crossings = 0, apart[2] = {0}, vain[2] = {0};
    for (int k = 0; k < BYTES / 4; k++) ((float *)(void *)first)[k] = (float)(k % 61 - 30);
    for (int round = 0; round < 4000; round++) {
        trial t = draw_trial();
        bool once = find_owners(memory, t.out, owner), crossed = !once, copied;
        bool refused = t.out->flags & KILN_TF_OVERLAPS;
        for (int i = 0; i < t.s->nin; i++) {
            crossed = crossed || is_crossed(memory, t.out, owner, t.in[i]);
            refused = refused || is_partial(t.out, t.in[i]);
        }
        if (decide(&t, &copied) == refused) fail_msg("%s %s", t.s->written, kiln_last_error());
        if (!refused && crossed) assert_true(copied);
        refusals += refused, crossings += !refused && crossed;
        apart[t.near] += !refused && !crossed, vain[t.near] += !refused && !crossed && copied;
        BOTH(ctx) check_call(&t, ctx, refused, once);
        drop_trial(&t);
    }
    printf(
        "%d refused, %d read what is written elsewhere; computed aside in vain are %d of %d others, of slices of one "
        "array %d of %d\n",
        refusals, crossings, vain[0], apart[0], vain[1], apart[1]);
    assert_true(refusals > 100 && crossings > 1000 && vain[0] < apart[0] / 3 && vain[1] < apart[1] / 20);
}

/* Parts of one array that programs combine are found to be apart: nothing is copied.  Sizes, strides, places. */
static void neighbours_are_not_copied(void **state) {
    (void)state;
    static const struct {
        int64_t sizes[RANK], out[RANK], in[RANK], at;
        bool copied;
    } pairs[] = {
        {{1, 1, 50}, {0, 0, 2}, {0, 0, 2}, 1, false},      /* x[::2], x[1::2] */
        {{1, 1, 20}, {0, 0, 20}, {0, 0, 20}, 1, false},    /* two columns */
        {{1, 1, 20}, {0, 0, 20}, {0, 0, -20}, 381, false}, /* the second from its end */
        {{1, 20, 10}, {0, 20, 1}, {0, 20, 1}, 10, false},  /* halves of rows */
        {{1, 20, 10}, {0, 20, 1}, {0, 20, 1}, 9, true},    /* and parts that meet */
        {{3, 4, 5}, {40, 5, 1}, {40, 5, 1}, 20, false},    /* planes in turn */
        {{3, 4, 5}, {40, 5, 1}, {40, 5, 1}, 0, false},     /* all of it, element by element */
        {{1, 10, 10}, {0, 20, 1}, {0, 1, 20}, 10, false},  /* a corner, transposed, beside the other */
        {{1, 10, 10}, {0, 20, 1}, {0, 1, 20}, 0, true},    /* one corner */
    };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        trial t = {.s = &subjects[2], .nargs = 2};
        bool copied;
        t.out = wrap(memory, KILN_F32, RANK, pairs[k].sizes, pairs[k].out);
        t.in[0] = kiln_tensor_retain(t.out);
        t.in[1] = wrap(memory + 4 * pairs[k].at, KILN_F32, RANK, pairs[k].sizes, pairs[k].in);
        t.args[0] = TEN(t.in[0]), t.args[1] = TEN(t.in[1]);
        assert_true(decide(&t, &copied));
        if (copied != pairs[k].copied) fail_msg("pair %zu", k);
        drop_trial(&t);
    }
}

/* -- large calls ------------------------------------------------------------------------------------------------- */

/* Parts from the last to the first: whoever depends on their order is found out. */
static void backwards(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    *(int64_t *)user += n;
    while (n > 0) body(arg, --n);
}

enum { SIDE = 600, WIDE = SIDE + 40, LARGE = SIDE * WIDE };

typedef struct large {
    const char *what;
    int rank;
    int64_t sizes[2], out[2], in[2]; /* strides */
    int64_t out_at, in_at;           /* elements */
} large;

static const large larges[] = {
    {"turned round", 1, {LARGE}, {1}, {-1}, 0, LARGE - 1},
    {"turned round both", 2, {SIDE, SIDE}, {WIDE, 1}, {-WIDE, -1}, 0, (SIDE - 1) * WIDE + SIDE - 1},
    {"rows turned round", 2, {SIDE, SIDE}, {WIDE, 1}, {WIDE, -1}, 0, SIDE - 1},
    {"transposed", 2, {SIDE, SIDE}, {WIDE, 1}, {1, WIDE}, 0, 0},
    {"transposed the other way", 2, {SIDE, SIDE}, {1, WIDE}, {WIDE, 1}, 0, 0},
    {"moved down", 2, {SIDE - 1, SIDE}, {WIDE, 1}, {WIDE, 1}, WIDE, 0},
    {"moved up", 2, {SIDE - 1, SIDE}, {WIDE, 1}, {WIDE, 1}, 0, WIDE},
    {"moved by one", 2, {SIDE, SIDE}, {WIDE, 1}, {WIDE, 1}, 1, 0},
    {"a column for all", 2, {SIDE, SIDE}, {WIDE, 1}, {WIDE, 0}, 0, 0},
    {"the last row for all", 2, {SIDE, SIDE}, {WIDE, 1}, {0, 1}, 0, (SIDE - 1) * WIDE},
    {"every other one, moved", 1, {LARGE / 2 - 1}, {2}, {2}, 2, 0},
    {"every other one and its neighbour", 1, {LARGE / 2}, {2}, {2}, 0, 1},
    {"the same", 2, {SIDE, SIDE}, {WIDE, 1}, {WIDE, 1}, 0, 0},
};

static void check_large(const large *l, kiln_ctx *ctx) {
    static double all[LARGE], want[LARGE];
    for (int64_t k = 0; k < LARGE; k++) all[k] = want[k] = (double)(k % 1009);
    kiln_tensor *out = wrap(all + l->out_at, KILN_F64, l->rank, l->sizes, l->out);
    kiln_tensor *in = wrap(all + l->in_at, KILN_F64, l->rank, l->sizes, l->in);
    for (int64_t e = 0; e < out->nelem; e++) {
        double a, b;
        char *at = place(out, l->rank, l->sizes, e);
        memcpy(&a, at, sizeof a);
        memcpy(&b, place(in, l->rank, l->sizes, e), sizeof b);
        want[(at - (char *)all) / 8] = a + 3 * b;
    }
    kiln_tensor *got = call1(ctx, "add_.Tensor", ARGS(TEN(out), TEN(in), NAMED("alpha", INT(3))));
    if (memcmp(all, want, sizeof all) != 0) fail_msg("%s", l->what);
    drop_args(ARGS(TEN(out), TEN(in), TEN(got)));
}

static void large_calls_by_threads(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        int64_t parts = 0;
        kiln_ctx *ctx = open_with((kiln_config){.mode = mode ? KILN_MODE_SYNC : KILN_MODE_INTERP,
                                                .threads = 8,
                                                .parallel_for = backwards,
                                                .parallel_user = &parts});
        for (size_t k = 0; k < sizeof larges / sizeof *larges; k++) {
            parts = 0;
            check_large(&larges[k], contexts[mode]);
            check_large(&larges[k], ctx);
            assert_true(parts > 1);
        }
        kiln_close(ctx);
    }
}

/* -- dtypes, results, kernels --------------------------------------------------------------------------------- */

enum { N = 100 };
static _Alignas(16) float f[2 * N];

static void count_up(void) {
    for (int k = 0; k < 2 * N; k++) f[k] = (float)(k + 1);
}

/* Elements of other sizes in one memory; out= converts. */
static void other_dtypes(void **state) {
    (void)state;
    BOTH(ctx) {
        kiln_tensor *even = wrap(f + 2 * N - 2, KILN_F32, SIZES(N), STRIDES(-2)),
                    *odd = wrap(f + 2 * N - 1, KILN_F32, SIZES(N), STRIDES(-2)),
                    *wide = wrap(f, KILN_F64, SIZES(N), NULL), *low = wrap(f, KILN_F32, SIZES(N), NULL),
                    *z = wrap(f, KILN_C64, SIZES(N), NULL), *got = NULL;
        count_up();
        kiln_tensor_release(call1(ctx, "add.out", ARGS(TEN(even), TEN(odd), NAMED("out", TEN(wide)))));
        for (int k = 0; k < N; k++) {
            double sum;
            memcpy(&sum, f + 2 * k, sizeof sum);
            assert_true(sum == 4 * (N - k) - 1);
        }
        assert_int_equal(
            kiln_call(ctx, op_of(ctx, "add.out"), ARGS(TEN(low), TEN(low), NAMED("out", TEN(wide))), &got, 1),
            KILN_E_ARG); /* dense, and a part of it */
        count_up();
        kiln_tensor_release(
            call1(ctx, "abs.out", ARGS(TEN(z), NAMED("out", TEN(odd))))); /* imaginary parts */
        for (int k = 0; k < N; k++) {
            double re = 2 * k + 1, im = re + 1;
            assert_true(fabs(f[2 * (N - 1 - k) + 1] - sqrt(re * re + im * im)) < 1e-4);
            assert_true(f[2 * k] == 2 * k + 1);
        }
        drop_args(ARGS(TEN(even), TEN(odd), TEN(wide), TEN(low), TEN(z)));
    }
}

/* Two results may alternate in memory; in one place one of them would be lost. */
static void two_results(void **state) {
    (void)state;
    kiln_tensor *x = F32(SIZES(4), 1, 2, 3, 5);
    BOTH(ctx) {
        int32_t words[8] = {0}, zeros[8] = {0};
        const kiln_op *op = op_of(ctx, "frexp.Tensor_out");
        kiln_tensor *m = wrap(words, KILN_F32, SIZES(4), STRIDES(2)), *outs[2],
                    *same = wrap(words + 6, KILN_I32, SIZES(4), STRIDES(-2)),
                    *next = wrap(words + 7, KILN_I32, SIZES(4), STRIDES(-2));
        assert_int_equal(kiln_call(ctx, op,
                                   ARGS(TEN(x), NAMED("mantissa", TEN(m)), NAMED("exponent", TEN(same))),
                                   outs, 2),
                         KILN_E_ARG);
        assert_error_names("two outputs share memory");
        assert_memory_equal(words, zeros, sizeof words);
        MUST_OK(kiln_call(ctx, op, ARGS(TEN(x), NAMED("mantissa", TEN(m)), NAMED("exponent", TEN(next))),
                          outs, 2));
        assert_memory_equal(words, ((int32_t[]){0x3f000000, 3, 0x3f000000, 2, 0x3f400000, 2, 0x3f200000, 1}),
                            sizeof words);
        drop_args(ARGS(TEN(outs[0]), TEN(outs[1]), TEN(m), TEN(same), TEN(next)));
    }
    kiln_tensor_release(x);
}

/* A result that gets another shape lies anywhere in its own memory, where an argument may be. */
static void resized_results(void **state) {
    (void)state;
    BOTH(ctx) {
        count_up();
        kiln_tensor *own = tensor_of(f, KILN_F32, SIZES(2 * N));
        kiln_tensor *back = wrap(own->data + 4 * (2 * N - 1), KILN_F32, SIZES(N), STRIDES(-2));
        kiln_tensor_release(call1(ctx, "neg.out", ARGS(TEN(back), NAMED("out", TEN(own)))));
        assert_int_equal(own->nelem, N);
        for (int k = 0; k < N; k++) assert_true(((float *)(void *)own->data)[k] == -2 * (N - k));
        drop_args(ARGS(TEN(back), TEN(own)));
    }
}

/* Overlap is no part of a class: a prepared kernel serves such calls too. */
static void prepared_kernels(void **state) {
    (void)state;
    kiln_kernel *k;
    kiln_ctx *ctx = contexts[1];
    kiln_tensor *a = wrap(f, KILN_F32, SIZES(2 * N), NULL), *got,
                *back = wrap(f + 2 * N - 1, KILN_F32, SIZES(2 * N), STRIDES(-1)),
                *other = new_tensor(KILN_F32, SIZES(2 * N), NULL);
    count_up();
    MUST_OK(kiln_prepare(ctx, op_of(ctx, "add.out"), ARGS(TEN(a), TEN(back), NAMED("out", TEN(other))), &k));
    MUST_OK(kiln_kernel_run(k, ARGS(TEN(a), TEN(back), NAMED("out", TEN(a))), &got, 1));
    for (int i = 0; i < 2 * N; i++) assert_true(f[i] == 2 * N + 1);
    kiln_kernel_release(k);
    drop_args(ARGS(TEN(a), TEN(back), TEN(got), TEN(other)));
}

/* Without memory to compute in, nothing is written. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    kiln_tensor *a = wrap(f, KILN_F32, SIZES(2 * N), NULL), *got = NULL,
                *back = wrap(f + 2 * N - 1, KILN_F32, SIZES(2 * N), STRIDES(-1));
    BOTH(ctx) {
        kiln_status st = KILN_E_NOMEM;
        int failures = 0;
        for (long nth = 1; st != KILN_OK; nth++) {
            count_up();
            kiln_trim(); /* no memory is at hand */
            kiln_alloc_fail_after(nth);
            st = kiln_call(ctx, op_of(ctx, "add_.Tensor"), ARGS(TEN(a), TEN(back)), &got, 1);
            kiln_alloc_fail_after(0);
            if (st == KILN_OK) break;
            assert_int_equal(st, KILN_E_NOMEM);
            for (int k = 0; k < 2 * N; k++) assert_true(f[k] == (float)(k + 1));
            failures++;
        }
        assert_true(failures > 0);
        for (int k = 0; k < 2 * N; k++) assert_true(f[k] == 2 * N + 1);
        kiln_tensor_release(got);
    }
    drop_args(ARGS(TEN(a), TEN(back)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_views),
        cmocka_unit_test(neighbours_are_not_copied),
        cmocka_unit_test(large_calls_by_threads),
        cmocka_unit_test(other_dtypes),
        cmocka_unit_test(two_results),
        cmocka_unit_test(resized_results),
        cmocka_unit_test(prepared_kernels),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
