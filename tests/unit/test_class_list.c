/* test_class_list.c - kiln_classes_list: which classes a context has, in words, by what they run and what building them took. */
#include "call_cases.h"

enum { ROOM = 16 };
typedef struct listed {
    int n;
    char op[ROOM][64], words[ROOM][200], tier[ROOM][16];
    kiln_class_info info[ROOM];
} listed;

static kiln_status note(void *user, const kiln_class_info *info) {
    listed *l = user;
    assert_true(l->n < ROOM);
    snprintf(l->op[l->n], sizeof *l->op, "%s", info->op);
    snprintf(l->words[l->n], sizeof *l->words, "%s", info->words);
    snprintf(l->tier[l->n], sizeof *l->tier, "%s", info->tier);
    l->info[l->n++] = *info;
    return KILN_OK;
}

static listed list_of(kiln_ctx *ctx) {
    listed l = {0};
    MUST_OK(kiln_classes_list(ctx, note, &l));
    return l;
}

/* The class of the operator whose words are these; the test fails where there is none. */
static int find(const listed *l, const char *op, const char *words) {
    for (int k = 0; k < l->n; k++)
        if (!strcmp(l->op[k], op) && !strcmp(l->words[k], words)) return k;
    for (int k = 0; k < l->n; k++) print_message("%s: %s (%s)\n", l->op[k], l->words[k], l->tier[k]);
    fail_msg("no class %s of %s", words, op);
    return -1;
}

static void call(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    kiln_tensor_release(call1(ctx, name, args, nargs));
}

static void classes_have_words(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(2, 3), 0, 1, 2, 3, 4, 5), *d = F64(SIZES(3), 1, 2, 3);
    const kiln_value size = kiln_v_int(3);
    assert_int_equal(list_of(ctx).n, 0);
    for (int k = 0; k < 3; k++) call(ctx, "neg", ARGS(TEN(x)));
    call(ctx, "add.Tensor", ARGS(TEN(d), TEN(d)));
    call(ctx, "layer_norm", ARGS(TEN(x), kiln_v_list(&size, 1)));
    listed l = list_of(ctx);
    int neg = find(&l, "aten::neg", "self f32 contig -> f32 contig; in f32");
    int add = find(&l, "aten::add.Tensor", "self f64 contig, other f64 contig -> f64 contig; in f64");
    assert_int_equal(l.info[neg].interp_calls, 3);
    assert_int_equal(l.info[add].interp_calls, 1);
    assert_string_equal(l.tier[neg], "interp");
    for (int k = 0; k < l.n; k++) /* layer_norm is a composition, which has no class: its call has one */
        assert_string_not_equal(l.op[k], "aten::layer_norm");
    assert_true(l.info[neg].build_ns == 0 && l.info[neg].code_bytes == 0 && l.info[neg].failed_builds == 0);
    assert_int_equal((uint64_t)l.n, stats_of(ctx).misses);
    drop_args(ARGS(TEN(x), TEN(d)));
    kiln_close(ctx);
}

static void kernels_have_sizes_and_times(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    kiln_tensor *x = F32(SIZES(3), 0, 1, 2);
    call(ctx, "neg", ARGS(TEN(x)));
    listed l = list_of(ctx);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.tier[0], "compiled");
    assert_int_equal(l.info[0].code_bytes, stats_of(ctx).bytes_cached);
    assert_true(l.info[0].build_ns > 0 && l.info[0].interp_calls == 0);
    kiln_close(ctx);
    ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = "/nonexistent/cc"});
    call(ctx, "neg", ARGS(TEN(x)));
    l = list_of(ctx);
    assert_string_equal(l.tier[0], "interp");
    assert_true(l.info[0].failed_builds == 1 && l.info[0].interp_calls == 1 && l.info[0].code_bytes == 0);
    kiln_close(ctx);
    kiln_tensor_release(x);
}

static kiln_status stop(void *user, const kiln_class_info *info) {
    (void)info;
    ++*(int *)user;
    return KILN_E_LIMIT;
}

static void a_status_ends_the_list(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(3), 0, 1, 2);
    int n = 0;
    call(ctx, "neg", ARGS(TEN(x)));
    call(ctx, "abs", ARGS(TEN(x)));
    assert_int_equal(kiln_classes_list(ctx, stop, &n), KILN_E_LIMIT);
    assert_int_equal(n, 1);
    kiln_tensor_release(x);
    kiln_close(ctx);
}

/* -- rows that go ---------------------------------------------------------------------------------------------- */

static void words_outlive_their_row(void **state) {
    (void)state;
    static const char row[] = "map my::twice(Tensor self) -> Tensor : promote(self) = self + self";
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(3), 0, 1, 2), *out;
    const kiln_op *op;
    MUST_OK(kiln_op_new(ctx, "test", row, sizeof row - 1, &op, NULL));
    MUST_OK(kiln_call(ctx, op, ARGS(TEN(x)), &out, 1));
    kiln_op_free(ctx, op);
    listed l = list_of(ctx);
    assert_int_equal(find(&l, "my::twice", "self f32 contig -> f32 contig; in f32"), 0);
    kiln_tensor_release(x);
    kiln_tensor_release(out);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_have_words),
        cmocka_unit_test(kernels_have_sizes_and_times),
        cmocka_unit_test(a_status_ends_the_list),
        cmocka_unit_test(words_outlive_their_row),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
