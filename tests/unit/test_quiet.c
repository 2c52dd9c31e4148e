/* test_quiet.c - kiln_quiet: what is refused is refused with the same status, and costs no text and no memory. */
#include <pthread.h>

#include "base/base.h"
#include "call_cases.h"

/* -- refusals ----------------------------------------------------------------------------------------------- */

enum { NREFUSED = 24, MANY = 1 << 20 }; /* so many allocations would succeed, and are counted */
static kiln_tensor *f, *f2, *i, *big;

static kiln_status call(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    kiln_tensor *out[2];
    kiln_status st = kiln_call(ctx, op_of(ctx, name), args, nargs, out, 2);
    if (st == KILN_OK) fail_msg("%s is served", name);
    return st;
}

static kiln_status infer(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    size_t n;
    return kiln_infer_results(ctx, op_of(ctx, name), args, nargs, NULL, 0, &n);
}

static kiln_status choose(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    const kiln_op *ops[64];
    size_t n = kiln_op_overloads(ctx, name, ops, 64), which;
    return kiln_op_choose_among(ops, n, args, nargs, &which);
}

static kiln_status find(kiln_ctx *ctx, const char *name) {
    const kiln_op *op;
    return kiln_op_find(ctx, name, &op);
}

/* The k-th refusal: each place where a call, a name or a choice is refused. */
static kiln_status refuse(kiln_ctx *ctx, int k) {
    kiln_value numbers[] = {INT(1), INT(2)};
    switch (k) {
    case 0: return find(ctx, "aten::mm");          /* PyTorch's, and not served */
    case 1: return find(ctx, "nope");              /* nobody's */
    case 2: return find(ctx, "ad");                /* near others */
    case 3: return find(ctx, "bitwise_and");       /* several overloads */
    case 4: return find(ctx, "gather");            /* a row of a family that is not served */
    case 5: return call(ctx, "neg", NULL, 0);      /* missing */
    case 6: return call(ctx, "neg", ARGS(INT(1))); /* of another type */
    case 7: return call(ctx, "neg", ARGS(TEN(f), TEN(f)));
    case 8: return call(ctx, "neg", ARGS(TEN(f), NAMED("nope", INT(1))));
    case 9: return call(ctx, "add.Tensor", ARGS(TEN(f), NAMED("other", TEN(f)), TEN(f)));
    case 10: return call(ctx, "add.Tensor", ARGS(TEN(f), TEN(f), NAMED("self", TEN(f))));
    case 11: return call(ctx, "add.Tensor", ARGS(TEN(f), TEN(f2))); /* shapes */
    case 12: return call(ctx, "silu", ARGS(TEN(i)));                /* a dtype that is not taken */
    case 13: return call(ctx, "where.self", ARGS(TEN(f), TEN(f), TEN(f)));
    case 14: return call(ctx, "gelu", ARGS(TEN(f), NAMED("approximate", kiln_v_str("nope"))));
    case 15: return call(ctx, "neg.out", ARGS(TEN(f), NAMED("out", TEN(i))));
    case 16: return call(ctx, "add_.Tensor", ARGS(TEN(f), TEN(big)));
    case 17: return call(ctx, "pow.Tensor_Scalar", ARGS(TEN(i), INT(-1))); /* a check of the row */
    case 18: return call(ctx, "add.Scalar", ARGS(TEN(i), kiln_v_list(numbers, 2)));
    case 19: return infer(ctx, "add.Tensor", ARGS(TEN(f), TEN(f2)));
    case 20: return infer(ctx, "silu", ARGS(TEN(i)));
    case 21: return choose(ctx, "add", ARGS(kiln_v_str("x"), TEN(f)));
    case 22: return choose(ctx, "clamp", ARGS(TEN(f), kiln_v_str("x")));
    case 23: return kiln_call(NULL, NULL, NULL, 0, NULL, 0);
    default: return KILN_OK;
    }
}

static void make_tensors(void) {
    f = F32(SIZES(3), 1, 2, 3);
    f2 = F32(SIZES(2), 1, 2);
    i = I32(SIZES(3), 1, 2, 3);
    big = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6);
}

static void drop_tensors(void) {
    kiln_tensor *all[] = {f, f2, i, big};
    for (size_t k = 0; k < 4; k++) kiln_tensor_release(all[k]);
}

static void statuses_are_the_same_and_nothing_is_allocated(void **state) {
    (void)state;
    make_tensors();
    BOTH(ctx) {
        for (int k = 0; k < NREFUSED; k++) {
            kiln_status loud = refuse(ctx, k); /* whatever is made once is made now */
            if (loud == KILN_OK || strstr(kiln_last_error(), "kiln_quiet"))
                fail_msg("refusal %d: %d", k, loud);
            assert_int_equal(kiln_quiet(1), 0);
            (void)kiln_alloc_fail_after(MANY);
            kiln_status st = refuse(ctx, k);
            long made = kiln_alloc_fail_after(0);
            assert_int_equal(kiln_quiet(0), 1);
            if (st != loud || made != 0)
                fail_msg("refusal %d: %s, but %s; %ld allocations", k, kiln_status_name(st),
                         kiln_status_name(loud), made);
            assert_string_equal(kiln_last_error(), "no text: kiln_quiet is on");
        }
    }
    drop_tensors();
}

/* -- threads, builds ---------------------------------------------------------------------------------------- */

/* The first failure of a thread is the one that takes memory for texts. */
static void *quiet_thread(void *ctx) {
    long *made = malloc(sizeof *made);
    if (!made || kiln_quiet(1) != 0) return made;
    (void)kiln_alloc_fail_after(MANY);
    (void)find(ctx, "aten::mm");
    *made = kiln_alloc_fail_after(0);
    return made;
}

static void each_thread_has_its_own(void **state) {
    (void)state;
    pthread_t thread;
    void *made = NULL;
    assert_int_equal(pthread_create(&thread, NULL, quiet_thread, contexts[0]), 0);
    assert_int_equal(pthread_join(thread, &made), 0);
    assert_non_null(made);
    assert_int_equal(*(long *)made, 0);
    free(made);
    assert_int_equal(find(contexts[0], "aten::mm"), KILN_E_UNSUP);
    assert_error_names("aten::mm is a PyTorch operator that Kiln does not serve");
}

/* Why a compiler failed is for whoever asks later. */
static void failed_builds_are_explained_all_the_same(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = "/nonexistent/cc"});
    char *text = NULL;
    (void)kiln_quiet(1);
    check_add(ctx);
    MUST_OK(kiln_doctor(ctx, &text));
    (void)kiln_quiet(0);
    if (strstr(text, "kiln_quiet") || !strstr(text, "/nonexistent/cc")) fail_msg("%s", text);
    kiln_text_free(text);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_are_the_same_and_nothing_is_allocated),
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(failed_builds_are_explained_all_the_same),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
