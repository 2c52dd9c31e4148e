/* test_replay.c - calls laid out as the one before: do they give what the interpreter gives?
 *
 * A random layout (permuted, with gaps, broadcast, of up to six dimensions) is called several times with other
 * addresses, elements and numbers, and now and then with one tensor laid out a little otherwise.  The compiled tier,
 * which replays, must agree with the interpreter, which does not.  A replay that was kept wrongly is planted, and
 * must be found out: so replays are what is compared. */
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

static float floats[ROOM];
static char bools[ROOM];

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

static placed any_layout(uint64_t *seed, int rank, const int64_t *shape) {
    int from = one_in(seed, 4) ? (int)(draw(seed) % (uint64_t)(rank + 1)) : 0, order[RANK_MAX];
    placed p = {.rank = rank - from, .reach = 1};
    int64_t next = one_in(seed, 5) ? 2 : 1;
    bool permuted = one_in(seed, 2);
    for (int d = 0; d < p.rank; d++) {
        p.sizes[d] = one_in(seed, 5) ? 1 : shape[from + d];
        order[d] = d;
        int other = (int)(draw(seed) % (uint64_t)(d + 1));
        if (!permuted) continue;
        order[d] = order[other];
        order[other] = d;
    }
    for (int k = p.rank - 1; k >= 0; k--) {
        int d = order[k];
        p.strides[d] = one_in(seed, 12) ? 0 : next;
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
        for (int k = 0; k < TENSORS; k++) at[k] = any_layout(&seed, rank, shape);
        for (int round = 0; round < ROUNDS; round++) {
            kiln_value args[8];
            kiln_status st;
            if (round == ROUNDS - 1) at[draw(&seed) % TENSORS] = any_layout(&seed, rank, shape);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_give_what_the_interpreter_gives),
        cmocka_unit_test(a_replay_kept_wrongly_is_found_out),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
