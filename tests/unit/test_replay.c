/* test_replay.c - calls laid out as the one before: do they give what the interpreter gives?
 *
 * A random layout (permuted, with gaps, broadcast, of up to six dimensions) is called several times with other
 * addresses, elements and numbers, and now and then with one tensor laid out a little otherwise.  A context that replays,
 * compiled or interpreted calls, must agree with one that interprets and remembers nothing.  A replay that was kept wrongly is planted, and
 * must be found out: so replays are what is compared.  Results that are given lie anywhere in a small memory, on inputs
 * too: then both tiers must refuse the call, or leave the same bytes in all of that memory. */
#include "api/memo.h"
#include "tier_compare.h"

enum { LAYOUTS = 1500, ROUNDS = 4, RANK_MAX = 6, NELEM_MAX = 48, ROOM = 64 * NELEM_MAX, TENSORS = 3 };

static const struct {
    const char *name;
    int tensors, numbers;
    bool condition; /* the first tensor is of bool */
} ops[] = {{"neg", 1, 0, false},        {"add.Tensor", 2, 0, false}, {"add.Scalar", 1, 2, false},
           {"clamp", 1, 2, false},      {"where.self", 3, 0, true},  {"addcmul", 3, 0, false},
           {"lerp.Tensor", 3, 0, false}};
enum { OPS = sizeof ops / sizeof *ops };

enum { FIRST_INPUT = 2 }; /* its stride along the first dimension of a walk */

typedef struct placed {
    int rank;
    int64_t sizes[RANK_MAX], strides[RANK_MAX], reach; /* reach: elements from the first to past the last */
} placed;

/* Calls lie in the first ROOM elements.  Replays that were spoilt read beyond. */
static float floats[2 * ROOM];
static char bools[2 * ROOM];

static bool one_in(uint64_t *seed, uint64_t n) { return draw(seed) % n == 0; }

static int any_shape(uint64_t *seed, int64_t *shape) {
    int rank = (int)(draw(seed) % (RANK_MAX + 1));
    int64_t nelem = 1;
    for (int d = 0; d < rank; d++) {
        shape[d] = 1 + (int64_t)(draw(seed) % 4);
        if (nelem * shape[d] > NELEM_MAX) shape[d] = 1;
        nelem *= shape[d];
    }
    return rank;
}

/* whole: in that shape, and each element at a place of its own; else a tensor that broadcasts to it. */
static placed any_layout(uint64_t *seed, int rank, const int64_t *shape, bool whole) {
    int from = !whole && one_in(seed, 4) ? (int)(draw(seed) % (uint64_t)(rank + 1)) : 0, order[RANK_MAX];
    placed p = {.rank = rank - from, .reach = 1};
    int64_t next = one_in(seed, 5) ? 2 : 1;
    bool permuted = one_in(seed, 2);
    for (int d = 0; d < p.rank; d++) {
        p.sizes[d] = !whole && one_in(seed, 5) ? 1 : shape[from + d];
        order[d] = d;
        int other = (int)(draw(seed) % (uint64_t)(d + 1));
        if (!permuted) continue;
        order[d] = order[other];
        order[other] = d;
    }
    for (int k = p.rank - 1; k >= 0; k--) {
        int d = order[k];
        p.strides[d] = !whole && one_in(seed, 12) ? 0 : next;
        next *= p.sizes[d];
        p.reach += (p.sizes[d] - 1) * p.strides[d];
    }
    return p;
}

static kiln_value tensor_at(uint64_t *seed, const placed *p, kiln_dtype dtype) {
    int64_t at = (int64_t)(draw(seed) % (uint64_t)(ROOM - p->reach));
    void *data = dtype == KILN_BOOL ? (void *)(bools + at) : (void *)(floats + at);
    kiln_tensor *t;
    MUST_OK(kiln_tensor_wrap(data, dtype, p->rank, p->sizes, p->strides, NULL, NULL, &t));
    return kiln_v_tensor(t);
}

/* The call with these layouts, at other places and with other numbers each time. */
static size_t make_call(uint64_t *seed, int op, const placed *at, kiln_value *args) {
    size_t n = 0;
    for (int k = 0; k < ops[op].tensors; k++)
        args[n++] = tensor_at(seed, &at[k], k == 0 && ops[op].condition ? KILN_BOOL : KILN_F32);
    for (int k = 0; k < ops[op].numbers; k++) args[n++] = kiln_v_float((double)(draw(seed) % 64) / 8 - 4);
    if (kiln_str_eq(ops[op].name, "add.Scalar")) args[2] = kiln_v_named("alpha", args[2]);
    return n;
}

/* Whether the kernel looks at how far it is from one element of the first input to the next. */
static bool steps_count(const kiln_walk *w) {
    int64_t step = w->stride[FIRST_INPUT];
    return w->n[0] > 1 && step != 0 && step != (int64_t)sizeof(float) && step != 1;
}

/* The memo of r that holds for a call laid out so, unless it is flat; NULL: none. */
static kiln_memo *kept_for(const kiln_recipe *r, const kiln_value *args) {
    for (int way = 0; way < KILN_RECIPE_WAYS; way++) {
        kiln_memo *m = r->way[way];
        if (m && m->op == r->op && m->generation == kiln_generation(&contexts[1]->epochs) && !m->flat &&
            kiln_memo_laid_out_alike(m, args))
            return m;
    }
    return NULL;
}

static void drop_nothing(kiln_retired *r) { free(r); }

/* Ends all memos, as publishing a kernel does, so that each layout finds a place. */
static void end_memos(kiln_ctx *ctx) {
    kiln_retired *r = malloc(sizeof *r);
    assert_non_null(r);
    kiln_retire(&ctx->epochs, r, drop_nothing);
}

/* How many calls of all layouts disagree; *kept: layouts that were replayed. */
static long search(uint64_t seed, bool planted, long *kept) {
    long wrong = 0;
    char why[WHY_MAX];
    for (int k = 0; k < ROOM; k++) {
        draw_element(KILN_F32, &seed, true, (char *)&floats[k]);
        bools[k] = (char)(draw(&seed) & 1);
    }
    for (int layout = 0; layout < LAYOUTS; layout++) {
        int64_t shape[RANK_MAX];
        int op = (int)(draw(&seed) % OPS), rank = any_shape(&seed, shape);
        placed at[TENSORS];
        for (int k = 0; k < TENSORS; k++) at[k] = any_layout(&seed, rank, shape, false);
        end_memos(contexts[1]);
        for (int round = 0; round < ROUNDS; round++) {
            kiln_value args[8];
            kiln_status st;
            if (round == ROUNDS - 1) at[draw(&seed) % TENSORS] = any_layout(&seed, rank, shape, false);
            size_t n = make_call(&seed, op, at, args);
            if (!tiers_agree(contexts[0], contexts[1], NULL, ops[op].name, args, n, &st, why) &&
                wrong++ == 0 && !planted)
                print_message("%s: %s\n", ops[op].name, why);
            assert_int_equal(st, KILN_OK);
            kiln_recipe *r = kiln_recipe_find(kiln_thread_of(&contexts[1]->epochs),
                                              op_of(contexts[1], ops[op].name), args, n);
            kiln_memo *m = r ? kept_for(r, args) : NULL;
            *kept += round == 1 && m && (!planted || steps_count(&m->walk));
            if (m && planted) m->walk.stride[FIRST_INPUT] += (int64_t)sizeof(float);
            drop_args(args, n);
        }
    }
    return wrong;
}

static void replays_give_what_the_interpreter_gives(void **state) {
    (void)state;
    long kept = 0, wrong = search(7, false, &kept);
    print_message("%ld of %d layouts replayed\n", kept, LAYOUTS);
    assert_int_equal(wrong, 0);
    assert_true(kept > LAYOUTS / 8); /* recipes share places by the addresses of operators */
}

static void a_replay_kept_wrongly_is_found_out(void **state) {
    (void)state;
    long kept = 0;
    long wrong = search(8, true, &kept);
    print_message("%ld of %ld replays that were spoilt gave something else\n", wrong, kept);
    assert_true(kept > LAYOUTS / 100 && wrong > kept / 2);
}

/* -- results that are given -------------------------------------------------------------------------------------- */

enum { OUT_LAYOUTS = 600, OUT_ROUNDS = 8, OUT_ROOM = 6 * NELEM_MAX };

static const struct {
    const char *name;
    int tensors; /* that are read */
    bool along;  /* the dimension 0 is given too */
    bool in_place;
} out_ops[] = {{"neg.out", 1, false, false},     {"sub.out", 2, false, false},
               {"addcmul.out", 3, false, false}, {"sub_.Tensor", 2, false, true},
               {"cumsum.out", 1, true, false},   {"cumsum_", 1, true, true},
               {"_softmax.out", 1, true, false}, {"neg_", 1, false, true}};
enum { OUT_OPS = sizeof out_ops / sizeof *out_ops };

static kiln_value place_at(const placed *p, int64_t at) {
    kiln_tensor *t;
    MUST_OK(kiln_tensor_wrap(floats + at, KILN_F32, p->rank, p->sizes, p->strides, NULL, NULL, &t));
    return kiln_v_tensor(t);
}

static int64_t any_place(uint64_t *seed, const placed *p) {
    return (int64_t)(draw(seed) % (uint64_t)(OUT_ROOM - p->reach));
}

/* The call with these layouts.  The first tensor has the shape of the result, which lies anywhere, or where that one
 * does, or near it. */
static size_t make_out_call(uint64_t *seed, int op, const placed *at, const placed *out, kiln_value *args) {
    size_t n = 0;
    int64_t first = any_place(seed, &at[0]), to = any_place(seed, out);
    if (one_in(seed, 3) && first + out->reach <= OUT_ROOM) to = first;
    args[n++] = place_at(&at[0], first);
    for (int k = 1; k < out_ops[op].tensors; k++) args[n++] = place_at(&at[k], any_place(seed, &at[k]));
    if (out_ops[op].along) args[n++] = kiln_v_int(0);
    if (kiln_str_eq(out_ops[op].name, "_softmax.out")) args[n++] = kiln_v_bool(false);
    if (!out_ops[op].in_place) args[n++] = kiln_v_named("out", place_at(out, to));
    return n;
}

/* The call in a context, with the memory as it was before; what it left there is in floats. */
static kiln_status call_on(int ctx, const float *before, int op, const kiln_value *args, size_t n) {
    kiln_tensor *got = NULL;
    memcpy(floats, before, OUT_ROOM * sizeof *floats);
    kiln_status st = kiln_call(contexts[ctx], op_of(contexts[ctx], out_ops[op].name), args, n, &got, 1);
    kiln_tensor_release(got);
    return st;
}

static void given_results_as_the_interpreter_leaves_them(void **state) {
    (void)state;
    uint64_t seed = 9, hits = stats_of(contexts[1]).slot_hits;
    float before[OUT_ROOM], left[OUT_ROOM];
    long refused = 0;
    for (int k = 0; k < OUT_ROOM; k++) before[k] = (float)((int)(draw(&seed) % 64) - 32) / 8;
    for (int layout = 0; layout < OUT_LAYOUTS; layout++) {
        int64_t shape[RANK_MAX];
        int op = (int)(draw(&seed) % OUT_OPS), rank = any_shape(&seed, shape);
        placed at[TENSORS], out = any_layout(&seed, rank, shape, true);
        for (int k = 0; k < TENSORS; k++) at[k] = any_layout(&seed, rank, shape, k == 0);
        if (one_in(&seed, 2)) out = at[0];
        for (int round = 0; round < OUT_ROUNDS; round++) {
            kiln_value args[8];
            size_t n = make_out_call(&seed, op, at, &out, args);
            kiln_status st = call_on(0, before, op, args, n);
            memcpy(left, floats, sizeof left);
            assert_int_equal(call_on(1, before, op, args, n), st);
            refused += st != KILN_OK;
            if (memcmp(left, floats, sizeof left) != 0)
                fail_msg("%s, layout %d, round %d", out_ops[op].name, layout, round);
            drop_args(args, n);
        }
    }
    hits = stats_of(contexts[1]).slot_hits - hits;
    print_message("%ld of %d calls refused, %lu hits\n", refused, OUT_LAYOUTS * OUT_ROUNDS,
                  (unsigned long)hits);
    assert_true(refused > OUT_LAYOUTS / 4 && hits > OUT_LAYOUTS);
}

/* Distances of one row to others are no elements, but the dimension that is folded has some: nothing may be written. */
static void a_triangle_of_one_row_writes_nothing(void **state) {
    (void)state;
    static const kiln_mode modes[] = {KILN_MODE_INTERP, KILN_MODE_SYNC};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        kiln_ctx *ctx = open_mode(modes[m]);
        kiln_tensor *one = F32(SIZES(1, 3), 1, 2, 3), *two = F32(SIZES(2, 3), 1, 2, 3, 4, 6, 3), *out;
        for (int k = 0; k < 12; k++) {
            MUST_OK(kiln_call(ctx, op_of(ctx, "pdist"), ARGS(TEN(k % 2 ? two : one)), &out, 1));
            assert_int_equal(kiln_tensor_nelem(out), k % 2);
            if (k % 2) assert_true(((const float *)kiln_tensor_data(out))[0] == 5);
            kiln_tensor_release(out);
        }
        kiln_tensor_release(one);
        kiln_tensor_release(two);
        kiln_close(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_give_what_the_interpreter_gives),
        cmocka_unit_test(a_replay_kept_wrongly_is_found_out),
        cmocka_unit_test(given_results_as_the_interpreter_leaves_them),
        cmocka_unit_test(a_triangle_of_one_row_writes_nothing),
    };
    return RUN_COMPILED_AND_INTERPRETED(tests);
}
