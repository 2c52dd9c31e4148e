/* test_nulls.c - NULL for each pointer of each public function: what kiln.h does not allow is refused by name or does nothing.
 *
 * What was tried is noted as text, so that a function that is exported and not tried here is found. */
#include "call_cases.h"
#include "kiln/kiln_graph.h"

/* -- what was tried --------------------------------------------------------------------------------------- */

static char tried[32 << 10];

static void no_part(void *arg, int64_t k) { (void)arg, (void)k; }
static kiln_status no_entry(void *user, const kiln_kept_info *info) {
    return (void)user, (void)info, KILN_OK;
}
static kiln_status no_class(void *user, const kiln_class_info *info) {
    return (void)user, (void)info, KILN_OK;
}

static void note(const char *call) {
    size_t n = strlen(tried);
    assert_true(n + strlen(call) + 2 < sizeof tried);
    snprintf(tried + n, sizeof tried - n, "%s\n", call);
}

static void expect_refusal(kiln_status st, const char *call, const char *says) {
    note(call);
    if (st != KILN_E_ARG) fail_msg("%s: %s", call, kiln_status_name(st));
    if (!strstr(kiln_last_error(), says)) fail_msg("%s: %s", call, kiln_last_error());
}
#define REFUSES(call, says) expect_refusal((call), #call, says)
#define HOLDS(condition) (note(#condition), assert_true(condition))
#define ALLOWS(call) (note(#call), MUST_OK(call))
#define DOES(call) (note(#call), (call))

/* -- kiln.h ----------------------------------------------------------------------------------------------- */

static void tensors(void **state) {
    (void)state;
    float memory[3] = {1, 2, 3};
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *t = NULL;
    kiln_tensor_header header;
    kiln_dtype dtype;
    void *managed = NULL;
    int64_t sizes[] = {3}, strides[] = {1};
    REFUSES(kiln_dtype_parse(NULL, &dtype), "kiln_dtype_parse: name is NULL");
    REFUSES(kiln_dtype_parse("f32", NULL), "out is NULL");
    REFUSES(kiln_tensor_new(KILN_F32, 1, NULL, NULL, &t), "sizes are missing");
    REFUSES(kiln_tensor_new(KILN_F32, 1, sizes, NULL, NULL), "out is NULL");
    REFUSES(kiln_tensor_wrap(NULL, KILN_F32, 1, sizes, NULL, NULL, NULL, &t), "data is null");
    REFUSES(kiln_tensor_wrap(memory, KILN_F32, 1, NULL, NULL, NULL, NULL, &t), "sizes are missing");
    REFUSES(kiln_tensor_wrap(memory, KILN_F32, 1, sizes, NULL, NULL, NULL, NULL), "out is NULL");
    REFUSES(kiln_tensor_borrow(NULL, memory, KILN_F32, 1, sizes, strides, 0, &t), "header is NULL");
    REFUSES(kiln_tensor_borrow(&header, NULL, KILN_F32, 1, sizes, strides, 0, &t), "data is null");
    REFUSES(kiln_tensor_borrow(&header, memory, KILN_F32, 1, NULL, strides, 0, &t), "sizes are missing");
    REFUSES(kiln_tensor_borrow(&header, memory, KILN_F32, 1, sizes, strides, 0, NULL), "out is NULL");
    REFUSES(kiln_tensor_borrow(&header, memory, KILN_F32, 1, sizes, NULL, 0, NULL), "out is NULL");
    REFUSES(kiln_tensor_from_dlpack(NULL, &t), "managed is NULL");
    REFUSES(kiln_tensor_from_dlpack(memory, NULL), "out is NULL");
    REFUSES(kiln_tensor_to_dlpack(NULL, &managed), "t is NULL");
    REFUSES(kiln_tensor_to_dlpack(a, NULL), "out_managed is NULL");
    assert_true(!t && !managed);
    HOLDS(kiln_tensor_retain(NULL) == NULL);
    HOLDS(kiln_tensor_dtype(NULL) == KILN_DTYPE_COUNT && kiln_tensor_rank(NULL) == 0);
    HOLDS(!kiln_tensor_sizes(NULL) && !kiln_tensor_strides(NULL) && !kiln_tensor_data(NULL));
    HOLDS(kiln_tensor_nelem(NULL) == 0);
    DOES(kiln_tensor_release(NULL));
    kiln_tensor_release(a);
}

static kiln_status no_name(void *user, const char *name) { return (void)user, (void)name, KILN_OK; }

static void kept_kernels(void **state) {
    (void)state;
    kiln_pack_report packed;
    const kiln_op *op = NULL;
    char *text = NULL;
    BOTH(ctx) {
        MUST_OK(kiln_op_find(ctx, "neg", &op));
        REFUSES(kiln_cache_folder(NULL, &text), "ctx is NULL");
        REFUSES(kiln_cache_folder(ctx, NULL), "out is NULL");
        REFUSES(kiln_cache_list(NULL, NULL, 0, no_entry, NULL), "ctx is NULL");
        REFUSES(kiln_cache_list(ctx, NULL, 0, NULL, NULL), "visit is NULL");
        REFUSES(kiln_cache_prune(NULL, 0, NULL), "ctx is NULL");
        REFUSES(kiln_cache_clear(NULL, NULL), "ctx is NULL");
        REFUSES(kiln_cache_why(NULL, op, NULL, 0, &text), "ctx is NULL");
        REFUSES(kiln_cache_why(ctx, NULL, NULL, 0, &text), "op is NULL");
        REFUSES(kiln_cache_why(ctx, op, NULL, 0, NULL), "out is NULL");
        REFUSES(kiln_cache_why(ctx, op, NULL, 1, &text), "args is NULL");
        REFUSES(kiln_pack_export(NULL, "p", NULL, &packed), "ctx is NULL");
        REFUSES(kiln_pack_export(ctx, NULL, NULL, &packed), "path is NULL");
        REFUSES(kiln_pack_export(ctx, "p", NULL, NULL), "out is NULL");
        REFUSES(kiln_pack_import(NULL, "p", &packed), "ctx is NULL");
        REFUSES(kiln_pack_import(ctx, NULL, &packed), "path is NULL");
        REFUSES(kiln_pack_import(ctx, "p", NULL), "out is NULL");
        REFUSES(kiln_packed_ops(NULL, no_name, NULL), "ctx is NULL");
        REFUSES(kiln_packed_ops(ctx, NULL, NULL), "visit is NULL");
    }
    kiln_warm *w = NULL;
    kiln_warm_report warmed;
    kiln_ctx *kept;
    char dir[] = "/tmp/kiln-test-nulls-XXXXXX", kernels[sizeof dir + 10];
    assert_non_null(mkdtemp(dir));
    snprintf(kernels, sizeof kernels, "%s/kernels", dir);
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_FROZEN, .cache = "disk", .cache_dir = dir};
    MUST_OK(kiln_open(&config, &kept));
    REFUSES(kiln_warm_begin(NULL, NULL, &w), "ctx is NULL");
    REFUSES(kiln_warm_begin(kept, NULL, NULL), "out is NULL");
    MUST_OK(kiln_warm_begin(kept, NULL, &w));
    REFUSES(kiln_warm_add(NULL, op, NULL, 0), "w is NULL");
    REFUSES(kiln_warm_add(w, NULL, NULL, 0), "op is NULL");
    REFUSES(kiln_warm_add(w, op, NULL, 1), "args is NULL");
    REFUSES(kiln_warm_run(NULL, 1, NULL, NULL, &warmed), "w is NULL");
    REFUSES(kiln_warm_run(w, 1, NULL, NULL, NULL), "out is NULL");
    HOLDS(kiln_warm_waiting(NULL) == 0);
    DOES(kiln_warm_end(NULL));
    kiln_warm_end(w);
    kiln_close(kept);
    assert_int_equal(rmdir(kernels), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void contexts_and_operators(void **state) {
    (void)state;
    const kiln_op *op = NULL;
    kiln_op_arg_info info;
    kiln_op_entry entry;
    size_t which;
    char *text = NULL;
    REFUSES(kiln_open(NULL, NULL), "kiln_open: out is NULL");
    DOES(kiln_close(NULL));
    DOES(kiln_op_free(NULL, NULL));
    BOTH(ctx) {
        REFUSES(kiln_op_find(NULL, "neg", &op), "ctx is NULL");
        REFUSES(kiln_op_find(ctx, NULL, &op), "name is NULL");
        REFUSES(kiln_op_find(ctx, "neg", NULL), "out is NULL");
        REFUSES(kiln_op_choose(NULL, "neg", NULL, 0, &op), "ctx is NULL");
        REFUSES(kiln_op_choose(ctx, "neg", NULL, 1, &op), "args is NULL, and there should be 1");
        REFUSES(kiln_op_choose(ctx, NULL, NULL, 0, &op), "name is NULL");
        REFUSES(kiln_op_choose(ctx, "neg", NULL, 0, NULL), "out is NULL");
        HOLDS(!kiln_op_overloads(NULL, "neg", &op, 1) && !kiln_op_overloads(ctx, NULL, &op, 1));
        HOLDS(!kiln_op_overloads(ctx, "neg", NULL, 1) && kiln_op_overloads(ctx, "neg", NULL, 0) == 2);
        HOLDS(!kiln_op_arg_at(op_of(ctx, "neg"), 0, NULL));
        REFUSES(kiln_op_choose_among(NULL, 1, NULL, 0, &which), "ops is NULL");
        REFUSES(kiln_op_choose_among(&op, 1, NULL, 0, NULL), "out is NULL");
        REFUSES(kiln_op_choose_among(&op, 1, NULL, 1, &which), "args is NULL, and there should be 1");
        REFUSES(kiln_op_choose_among(&op, 1, NULL, 0, &which), "ops[k] is NULL");
        REFUSES(kiln_ops_load(NULL, "", 0), "ctx is NULL");
        REFUSES(kiln_ops_load(ctx, NULL, 1), "text is NULL");
        REFUSES(kiln_ops_load_from(ctx, NULL, "", 0), "source is NULL");
        REFUSES(kiln_ops_replace(ctx, NULL, "", 0), "source is NULL");
        ALLOWS(kiln_ops_load(ctx, NULL, 0));
        REFUSES(kiln_ops_draft(NULL, "", "", 0, NULL, NULL), "ctx is NULL");
        REFUSES(kiln_ops_draft(ctx, NULL, "", 0, NULL, NULL), "source is NULL");
        REFUSES(kiln_ops_draft(ctx, "", NULL, 1, NULL, NULL), "text is NULL");
        ALLOWS(kiln_ops_draft(ctx, "", NULL, 0, NULL, NULL));
        REFUSES(kiln_ops_drop(NULL, NULL, 0), "ctx is NULL");
        REFUSES(kiln_ops_drop(ctx, NULL, 1), "names is NULL");
        REFUSES(kiln_ops_drop(ctx, (const char *[]){NULL}, 1), "names[k] is NULL");
        ALLOWS(kiln_ops_drop(ctx, NULL, 0));
        REFUSES(kiln_op_new(NULL, "cell", "", 0, &op, NULL), "ctx is NULL");
        REFUSES(kiln_op_new(ctx, NULL, "", 0, &op, NULL), "source is NULL");
        REFUSES(kiln_op_new(ctx, "cell", NULL, 1, &op, NULL), "text is NULL");
        REFUSES(kiln_op_new(ctx, "cell", "", 0, NULL, NULL), "op is NULL");
        DOES(kiln_op_free(ctx, NULL));
        REFUSES(kiln_ops_check(NULL, NULL, NULL), "ctx is NULL");
        ALLOWS(kiln_ops_check(ctx, NULL, NULL));
        REFUSES(kiln_doctor(NULL, &text), "ctx is NULL");
        REFUSES(kiln_doctor(ctx, NULL), "out is NULL");
        REFUSES(kiln_classes_list(NULL, no_class, NULL), "ctx is NULL");
        REFUSES(kiln_classes_list(ctx, NULL, NULL), "visit is NULL");
        REFUSES(kiln_wait_idle(NULL), "ctx is NULL");
        REFUSES(kiln_mode_set(NULL, KILN_MODE_SYNC), "ctx is NULL");
        REFUSES(kiln_parallel_for(NULL, 1, 1, no_part, NULL), "ctx is NULL");
        REFUSES(kiln_parallel_for(ctx, 1, 1, NULL, NULL), "body is NULL");
        REFUSES(kiln_parallel_for(ctx, 1, -1, no_part, NULL), "must not be negative");
        ALLOWS(kiln_parallel_for(ctx, 1, 0, no_part, NULL));
        DOES(kiln_stats_get(ctx, NULL, 0));
        DOES(kiln_stats_get(ctx, NULL, sizeof(kiln_stats)));
    }
    kiln_stats stats = {.calls = 1};
    DOES(kiln_stats_get(NULL, &stats, sizeof stats));
    assert_int_equal(stats.calls, 0);
    assert_true(!op && !text);
    HOLDS(kiln_op_count(NULL) == 0 && !kiln_op_at(NULL, 0) && !kiln_op_name(NULL) && !kiln_op_schema(NULL));
    HOLDS(!kiln_op_entry_at(NULL, 0, &entry) && !kiln_op_entry_find(NULL, "aten::neg", &entry));
    HOLDS(!kiln_has_compiler(NULL));
    HOLDS(!strcmp(kiln_threads_owner(NULL, NULL), ""));
    HOLDS(!kiln_op_family(NULL) && !kiln_op_row(NULL) && !kiln_op_form(NULL) && !kiln_op_for_torch(NULL) &&
          !kiln_op_served(NULL));
    HOLDS(!kiln_op_untraced(NULL, NULL) && !kiln_op_untraced(NULL, &(const char *){""}));
    HOLDS(!kiln_op_nrets(NULL) && kiln_op_ret_kind(NULL, 0) == KILN_NONE);
    HOLDS(!kiln_op_arg_name(NULL, 0) && !kiln_op_arg_at(NULL, 0, &info));
    DOES(kiln_text_free(NULL));
    HOLDS(kiln_element_get(KILN_F32, NULL).kind == KILN_NONE && !kiln_element_set(KILN_F32, NULL, &info));
    HOLDS(!kiln_element_set(KILN_F32, &(kiln_value){.kind = KILN_INT_V}, NULL));
    kiln_tensor *number = NULL;
    REFUSES(kiln_tensor_number(NULL, &number), "v is NULL");
    REFUSES(kiln_tensor_number(&(kiln_value){.kind = KILN_INT_V}, NULL), "out is NULL");
    assert_null(number);
}

/* With a slot for the operator and without; without arguments, too, as a slot that holds nothing has none. */
static void check_call(kiln_ctx *ctx, const kiln_op *op, kiln_tensor *a) {
    kiln_tensor *out = NULL;
    REFUSES(kiln_call(NULL, op, ARGS(TEN(a)), &out, 1), "kiln_call: ctx is NULL");
    REFUSES(kiln_call(ctx, NULL, ARGS(TEN(a)), &out, 1), "kiln_call: op is NULL");
    REFUSES(kiln_call(ctx, NULL, NULL, 0, &out, 1), "kiln_call: op is NULL");
    REFUSES(kiln_call(ctx, NULL, NULL, 0, NULL, 0), "kiln_call: op is NULL");
    REFUSES(kiln_call(ctx, op, NULL, 1, &out, 1), "args is NULL, and there should be 1");
    REFUSES(kiln_call(ctx, op, ARGS(TEN(a)), NULL, 1), "outs is NULL, expected room for 1");
    assert_null(out);
    kiln_value v = kiln_v_none();
    REFUSES(kiln_call_values(NULL, op, ARGS(TEN(a)), &v, 1), "kiln_call_values: ctx is NULL");
    REFUSES(kiln_call_values(ctx, NULL, ARGS(TEN(a)), &v, 1), "kiln_call_values: op is NULL");
    REFUSES(kiln_call_values(ctx, op, NULL, 1, &v, 1), "args is NULL, and there should be 1");
    REFUSES(kiln_call_values(ctx, op, ARGS(TEN(a)), NULL, 1), "outs is NULL, expected room for 1");
    assert_int_equal(v.kind, KILN_NONE);
}

/* An operator whose slot holds more than one launch per call. */
static void check_without_arguments(void) {
    kiln_tensor *i = I32(SIZES(3), 1, 2, 3), *out = NULL;
    BOTH(ctx) {
        for (int n = 0; n < 3; n++) kiln_tensor_release(call1(ctx, "floor_divide", ARGS(TEN(i), TEN(i))));
        assert_int_equal(kiln_call(ctx, op_of(ctx, "floor_divide"), NULL, 0, &out, 1), KILN_E_TYPE);
    }
    assert_null(out);
    kiln_tensor_release(i);
}

static void calls(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *out = NULL;
    kiln_kernel *k = NULL;
    kiln_result_info info;
    size_t count;
    char *text = NULL;
    BOTH(ctx) {
        const kiln_op *op = op_of(ctx, "neg");
        check_call(ctx, op, a); /* nothing is remembered yet */
        for (int n = 0; n < 3; n++) kiln_tensor_release(call1(ctx, "neg", ARGS(TEN(a))));
        check_call(ctx, op, a);
        REFUSES(kiln_infer_results(NULL, op, ARGS(TEN(a)), &info, 1, &count), "ctx is NULL");
        REFUSES(kiln_infer_results(ctx, NULL, ARGS(TEN(a)), &info, 1, &count), "op is NULL");
        REFUSES(kiln_infer_results(ctx, op, NULL, 1, &info, 1, &count), "args is NULL");
        REFUSES(kiln_infer_results(ctx, op, ARGS(TEN(a)), NULL, 1, &count), "out is NULL");
        REFUSES(kiln_infer_results(ctx, op, ARGS(TEN(a)), &info, 1, NULL), "count is NULL");
        ALLOWS(kiln_infer_results(ctx, op, ARGS(TEN(a)), NULL, 0, &count));
        REFUSES(kiln_prepare(NULL, op, ARGS(TEN(a)), &k), "ctx is NULL");
        REFUSES(kiln_prepare(ctx, NULL, ARGS(TEN(a)), &k), "op is NULL");
        REFUSES(kiln_prepare(ctx, op, NULL, 1, &k), "args is NULL");
        MUST_OK(kiln_prepare(ctx, op, ARGS(TEN(a)), NULL)); /* no handle is asked for */
        REFUSES(kiln_kernel_run(NULL, ARGS(TEN(a)), &out, 1), "k is NULL");
        REFUSES(kiln_explain(NULL, op, ARGS(TEN(a)), "ir", &text), "ctx is NULL");
        REFUSES(kiln_explain(ctx, NULL, ARGS(TEN(a)), "ir", &text), "op is NULL");
        REFUSES(kiln_explain(ctx, op, NULL, 1, "ir", &text), "args is NULL");
        REFUSES(kiln_explain(ctx, op, ARGS(TEN(a)), NULL, &text), "stage is NULL");
        REFUSES(kiln_explain(ctx, op, ARGS(TEN(a)), "ir", NULL), "out is NULL");
        REFUSES(kiln_op_grad(NULL, 0, &text), "op is NULL");
        REFUSES(kiln_op_grad(op, 0, NULL), "out is NULL");
    }
    check_without_arguments();
    MUST_OK(kiln_prepare(contexts[1], op_of(contexts[1], "neg"), ARGS(TEN(a)), &k));
    REFUSES(kiln_kernel_run(k, NULL, 1, &out, 1), "args is NULL");
    REFUSES(kiln_kernel_run(k, ARGS(TEN(a)), NULL, 1), "outs is NULL");
    kiln_kernel_release(k);
    HOLDS(kiln_kernel_entry(NULL) == NULL);
    DOES(kiln_values_release(NULL, 1));
    DOES(kiln_kernel_release(NULL));
    assert_true(!out && !text);
    kiln_tensor_release(a);
}

/* -- kiln_graph.h ------------------------------------------------------------------------------------------- */

static void values(void **state) {
    (void)state;
    kiln_graph *g = NULL;
    const kiln_gval *v = NULL, *item[] = {NULL};
    char *text = NULL;
    REFUSES(kiln_graph_new(NULL), "out is NULL");
    MUST_OK(kiln_graph_new(&g));
    const kiln_gval *none = kiln_graph_none(g);
    REFUSES(kiln_graph_value(NULL, none, &v), "g is NULL");
    REFUSES(kiln_graph_value(g, NULL, &v), "v is NULL");
    REFUSES(kiln_graph_value(g, none, NULL), "out is NULL");
    REFUSES(kiln_graph_value(g, &(kiln_gval){.kind = KILN_G_NODE}, &v), "node of a value is NULL");
    REFUSES(kiln_graph_value(g, &(kiln_gval){.kind = KILN_G_STR, .n = 1}, &v), "text of 1 bytes is NULL");
    REFUSES(kiln_graph_value(g, &(kiln_gval){.kind = KILN_G_LIST, .n = 1}, &v), "item 0 of a value is NULL");
    REFUSES(kiln_graph_int(NULL, 1, &v), "g is NULL");
    REFUSES(kiln_graph_int(g, 1, NULL), "out is NULL");
    REFUSES(kiln_graph_float(NULL, 1, &v), "g is NULL");
    REFUSES(kiln_graph_float(g, 1, NULL), "out is NULL");
    REFUSES(kiln_graph_str(NULL, KILN_G_STR, "a", 1, &v), "g is NULL");
    REFUSES(kiln_graph_str(g, KILN_G_STR, NULL, 1, &v), "text of 1 bytes is NULL");
    REFUSES(kiln_graph_str(g, KILN_G_STR, "a", 1, NULL), "out is NULL");
    REFUSES(kiln_graph_items(NULL, KILN_G_LIST, NULL, 0, &v), "g is NULL");
    REFUSES(kiln_graph_items(g, KILN_G_LIST, NULL, 1, &v), "item 0 of a value is NULL");
    REFUSES(kiln_graph_items(g, KILN_G_LIST, item, 1, &v), "item 0 of a value is NULL");
    REFUSES(kiln_graph_items(g, KILN_G_LIST, NULL, 0, NULL), "out is NULL");
    REFUSES(kiln_gval_text(NULL, &text), "v is NULL");
    REFUSES(kiln_gval_text(none, NULL), "out is NULL");
    assert_true(!v && !text);
    ALLOWS(kiln_graph_str(g, KILN_G_STR, NULL, 0, &v));
    ALLOWS(kiln_graph_items(g, KILN_G_LIST, NULL, 0, &v));
    HOLDS(!kiln_graph_none(NULL) && !kiln_graph_ref(NULL));
    HOLDS(!kiln_gval_equal(NULL, none) && !kiln_gval_equal(none, NULL) && kiln_gval_equal(NULL, NULL));
    kiln_graph_free(g);
}

static void nodes(void **state) {
    (void)state;
    kiln_graph *g = NULL;
    kiln_node *x = NULL, *y = NULL;
    const kiln_gval *target = NULL, *item[] = {NULL};
    MUST_OK(kiln_graph_new(&g));
    MUST_OK(kiln_graph_placeholder(g, "x", 1, NULL, &x));
    MUST_OK(kiln_graph_str(g, KILN_G_OP, "aten::neg", 9, &target));
    kiln_node_spec spec = {.op = KILN_CALL_FUNCTION, .target = target}, bad = spec;
    REFUSES(kiln_graph_add(NULL, NULL, &spec, &y), "g is NULL");
    REFUSES(kiln_graph_add(g, NULL, NULL, &y), "spec is NULL");
    REFUSES(kiln_graph_add(g, NULL, &spec, NULL), "out is NULL");
    bad.target = NULL;
    REFUSES(kiln_graph_add(g, NULL, &bad, &y), "spec->target is NULL");
    bad = spec, bad.nargs = 1;
    REFUSES(kiln_graph_add(g, NULL, &bad, &y), "spec->args is NULL, and there should be 1");
    bad.args = item;
    REFUSES(kiln_graph_add(g, NULL, &bad, &y), "argument 0 is NULL");
    bad = spec, bad.nkwargs = 1;
    REFUSES(kiln_graph_add(g, NULL, &bad, &y), "spec->kwargs is NULL, and there should be 1");
    bad.kwargs = &(kiln_kwarg){0};
    REFUSES(kiln_graph_add(g, NULL, &bad, &y), "keyword argument 0 is NULL");
    REFUSES(kiln_graph_placeholder(NULL, "y", 1, NULL, &y), "g is NULL");
    REFUSES(kiln_graph_placeholder(g, NULL, 1, NULL, &y), "name is NULL");
    REFUSES(kiln_graph_placeholder(g, "y", 1, NULL, NULL), "out is NULL");
    REFUSES(kiln_node_set_args(NULL, NULL, 0, NULL, 0), "node is NULL");
    REFUSES(kiln_node_set_args(x, NULL, 1, NULL, 0), "args is NULL, and there should be 1");
    REFUSES(kiln_node_set_args(x, NULL, 0, NULL, 1), "kwargs is NULL, and there should be 1");
    REFUSES(kiln_node_set_target(NULL, target), "node is NULL");
    REFUSES(kiln_node_set_target(x, NULL), "target is NULL");
    REFUSES(kiln_node_set_meta(NULL, "val", "", 0), "node is NULL");
    REFUSES(kiln_node_set_meta(x, NULL, "", 0), "key is NULL");
    REFUSES(kiln_node_set_meta(x, "val", NULL, 1), "text is NULL");
    ALLOWS(kiln_node_set_meta(x, "val", NULL, 0));
    REFUSES(kiln_graph_replace_uses(NULL, target, NULL), "old is NULL");
    REFUSES(kiln_graph_replace_uses(x, NULL, NULL), "now is NULL");
    REFUSES(kiln_graph_erase(NULL), "node is NULL");
    assert_null(y);
    HOLDS(!kiln_node_get_meta(NULL, "val") && !kiln_node_get_meta(x, NULL));
    HOLDS(!kiln_graph_first(NULL) && !kiln_graph_last(NULL) && !kiln_graph_count(NULL));
    HOLDS(!kiln_graph_find(NULL, "x", 1) && !kiln_graph_find(g, NULL, 0));
    DOES(kiln_node_move(NULL, x));
    DOES(kiln_graph_free(NULL));
    kiln_graph_free(g);
}

static void whole_graphs(void **state) {
    (void)state;
    static const char source[] = "kg 1\n";
    kiln_ctx *ctx = contexts[0];
    kiln_graph *g = NULL, *other = NULL;
    kiln_node *x = NULL;
    kiln_schemas *s = NULL;
    kiln_bound_args bound;
    kiln_python python;
    char *text = NULL;
    kiln_tensor **outs = NULL;
    size_t n = 0;
    MUST_OK(kiln_graph_new(&g));
    MUST_OK(kiln_graph_placeholder(g, "x", 1, NULL, &x));
    REFUSES(kiln_schemas_new(NULL), "out is NULL");
    MUST_OK(kiln_schemas_new(&s));
    REFUSES(kiln_graph_verify(NULL), "g is NULL");
    REFUSES(kiln_graph_text(NULL, &text), "g is NULL");
    REFUSES(kiln_graph_text(g, NULL), "out is NULL");
    REFUSES(kiln_graph_dot(NULL, &text), "g is NULL");
    REFUSES(kiln_graph_dot(g, NULL), "out is NULL");
    REFUSES(kiln_graph_svg(NULL, &text), "g is NULL");
    REFUSES(kiln_graph_svg(g, NULL), "out is NULL");
    REFUSES(kiln_graph_parse(NULL, 1, &other), "text is NULL");
    REFUSES(kiln_graph_parse(source, sizeof source - 1, NULL), "out is NULL");
    assert_int_equal(kiln_graph_parse(NULL, 0, &other), KILN_E_PARSE);
    REFUSES(kiln_graph_bind(NULL, NULL, 0, NULL, 0, NULL, 0, 0, &bound), "g is NULL");
    REFUSES(kiln_graph_bind(g, NULL, 1, NULL, 0, NULL, 0, 0, &bound), "sig is NULL");
    REFUSES(kiln_graph_bind(g, NULL, 0, NULL, 1, NULL, 0, 0, &bound), "args is NULL");
    REFUSES(kiln_graph_bind(g, NULL, 0, NULL, 0, NULL, 1, 0, &bound), "kwargs is NULL");
    REFUSES(kiln_graph_bind(g, NULL, 0, NULL, 0, NULL, 0, 0, NULL), "out is NULL");
    ALLOWS(kiln_graph_bind(g, NULL, 0, NULL, 0, NULL, 0, 0, &bound));
    REFUSES(kiln_node_normalized(NULL, x, 0, &bound), "s is NULL");
    REFUSES(kiln_node_normalized(s, NULL, 0, &bound), "node is NULL");
    REFUSES(kiln_node_normalized(s, x, 0, NULL), "out is NULL");
    REFUSES(kiln_graph_normalize(NULL, g, 0, NULL), "s is NULL");
    REFUSES(kiln_graph_normalize(s, NULL, 0, NULL), "g is NULL");
    ALLOWS(kiln_graph_normalize(s, g, 0, NULL));
    REFUSES(kiln_graph_dead_code(NULL, g, NULL, NULL, NULL), "s is NULL");
    REFUSES(kiln_graph_dead_code(s, NULL, NULL, NULL, NULL), "g is NULL");
    ALLOWS(kiln_graph_dead_code(s, g, NULL, NULL, NULL));
    REFUSES(kiln_graph_python(NULL, NULL, &python), "g is NULL");
    REFUSES(kiln_graph_python(g, NULL, NULL), "out is NULL");
    REFUSES(kiln_graph_run(NULL, g, NULL, 0, NULL, NULL, &outs, &n), "ctx is NULL");
    REFUSES(kiln_graph_run(ctx, NULL, NULL, 0, NULL, NULL, &outs, &n), "g is NULL");
    REFUSES(kiln_graph_run(ctx, g, NULL, 1, NULL, NULL, &outs, &n), "inputs is NULL");
    REFUSES(kiln_graph_run(ctx, g, NULL, 0, NULL, NULL, NULL, &n), "outs is NULL");
    REFUSES(kiln_graph_run(ctx, g, NULL, 0, NULL, NULL, &outs, NULL), "nouts is NULL");
    assert_true(!text && !other && !outs);
    DOES(kiln_python_free(NULL));
    DOES(kiln_schemas_free(NULL));
    kiln_schemas_free(s);
    kiln_graph_free(g);
}

/* -- none is left out ---------------------------------------------------------------------------------------- */

static void every_function_was_tried(void **state) {
    (void)state;
    static const char *const without_pointers =
        "kiln_version( kiln_status_name( kiln_status_text( kiln_last_error( kiln_dtype_name( kiln_dtype_size( "
        "kiln_dtype_is_limited( kiln_dtype_promote( kiln_last_tier( kiln_trim( kiln_quiet( kiln_threads_limit( kiln_node_op_name(";
    char name[200];
    int n = 0;
    FILE *f = fopen(KILN_SOURCE_DIR "/tests/abi/exports.txt", "r");
    assert_non_null(f);
    for (; fscanf(f, "%198s", name) == 1; n++) {
        strcat(name, "(");
        if (!strstr(tried, name) && !strstr(without_pointers, name)) fail_msg("%s) was not tried", name);
    }
    fclose(f);
    assert_true(n > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors),      cmocka_unit_test(contexts_and_operators),
        cmocka_unit_test(kept_kernels), cmocka_unit_test(calls),
        cmocka_unit_test(values),       cmocka_unit_test(nodes),
        cmocka_unit_test(whole_graphs), cmocka_unit_test(every_function_was_tried),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
