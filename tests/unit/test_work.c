/* test_work.c - what is promised of works: how large they are, and that a copy of one is as good as the original.
 *
 * A copy is one memcpy of kiln_work_size bytes.  It is run after the plan that it came from has been overwritten, so a pointer
 * into the plan, or anything left behind there, would show. */
#include "api/ctx.h"
#include "call_cases.h"

/* Binds and infers the call, and returns a copy of its work; p is overwritten. */
static kiln_work *copy_of(const kiln_bound *call, kiln_plan *p) {
    MUST_OK(kiln_infer(call, p));
    size_t n = kiln_work_size(&p->work);
    kiln_work *w = malloc(n);
    memcpy(w, &p->work, n);
    memset(p, 0xa5, sizeof *p);
    return w;
}

/* -- sizes ---------------------------------------------------------------------------------------------------- */

/* A tensor of f32 in which the first and the last dimension have two places, the others one. */
static kiln_value of_rank(int rank) {
    int64_t sizes[KILN_MAX_RANK];
    kiln_tensor *t;
    for (int d = 0; d < rank; d++) sizes[d] = d == 0 || d == rank - 1 ? 2 : 1;
    MUST_OK(kiln_tensor_new(KILN_F32, rank, sizes, NULL, &t));
    return kiln_v_tensor(t);
}

/* Bytes of the work of op called with n tensors of this rank. */
static size_t size_of(const kiln_op *op, int n, int rank) {
    static kiln_bound call;
    static kiln_plan plan;
    kiln_value args[KILN_MAX_ARGS];
    for (int k = 0; k < n; k++) args[k] = of_rank(rank);
    MUST_OK(kiln_bind(op, args, (size_t)n, &call));
    MUST_OK(kiln_infer(&call, &plan));
    size_t size = kiln_work_size(&plan.work);
    for (int k = 0; k < n; k++) kiln_tensor_release(args[k].u.tensor);
    return size;
}

static void works_are_small(void **state) {
    (void)state;
    const kiln_op *add;
    static char wide[] =
        "map my::wide(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h, "
        "Tensor i, Tensor j, Tensor k, Tensor l, Tensor m, Tensor n, Tensor o, Tensor p, "
        "Tensor q, Tensor r, Tensor s, Tensor t, Tensor u, Tensor v) -> Tensor : takes float = "
        "a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q+r+s+t+u+v\n";
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    MUST_OK(kiln_ops_load(ctx, wide, strlen(wide)));
    MUST_OK(kiln_op_find(ctx, "add.Tensor", &add));
    assert_in_range(size_of(add, 2, 4), 1, 1024);
    assert_in_range(size_of(add, 2, 64), 1, 24 * 1024);
    assert_in_range(size_of(op_of(ctx, "my::wide"), 22, 4), 1, 8 * 1024);
    assert_in_range(size_of(op_of(ctx, "my::wide"), 22, 64), 1, 24 * 1024);
    kiln_close(ctx);
}

/* -- copies --------------------------------------------------------------------------------------------------- */

/* add.out where the result lies on one of the arguments, moved by an element: a temporary, a launch and a copy. */
static void a_copy_runs_as_the_original(void **state) {
    (void)state;
    static kiln_bound call;
    static kiln_plan plan;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_key key;
    kiln_class *c;
    float memory[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int64_t sizes[] = {2, 3}, steps[] = {4, 1}, turned[] = {1, 2};
    kiln_tensor *x, *out, *got, *row = F32(SIZES(3), 10, 20, 30);
    MUST_OK(kiln_tensor_wrap(memory, KILN_F32, 2, sizes, steps, NULL, NULL, &x));
    MUST_OK(kiln_tensor_wrap(memory + 1, KILN_F32, 2, sizes, turned, NULL, NULL, &out));
    const kiln_value args[] = {TEN(x), TEN(row), NAMED("alpha", INT(1)), NAMED("out", TEN(out))};
    MUST_OK(kiln_bind(op_of(ctx, "add.out"), args, 4, &call));
    MUST_OK(kiln_infer(&call, &plan));
    kiln_plan_key(&plan, ctx->isa, &key);
    MUST_OK(kiln_class_new(ctx, &plan, &key, &c));
    uint64_t par[KILN_MAX_SCALARS];
    for (int k = 0; k < c->nscalars; k++) MUST_OK(kiln_plan_scalar(&plan, &c->scalars[k], &par[k]));
    kiln_work *w = copy_of(&call, &plan);
    assert_true(w->aside && w->nsteps == 2);
    const kiln_runner run = {.interp = c->program->interp};
    const kiln_given given = {"add.out", call.arg, call.out, par};
    MUST_OK(kiln_steps_run(w, &c->nests, &run, &given, &got));
    const float want[] = {1, 11, 15, 22, 26, 33, 37, 8};
    assert_memory_equal(memory, want, sizeof want);
    free(w);
    kiln_tensor_release(got);
    kiln_class_free(c);
    drop_args(ARGS(TEN(x), TEN(out), TEN(row)));
    kiln_close(ctx);
}

static void a_copy_says_what_the_original_says(void **state) {
    (void)state;
    static kiln_bound call;
    static kiln_plan plan;
    static const kiln_work_names none;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6);
    kiln_sb text;
    MUST_OK(kiln_bind(op_of(ctx, "sum.dim_IntList"), ARGS(TEN(x), INT(1)), &call));
    kiln_work *w = copy_of(&call, &plan);
    kiln_sb_init(&text);
    kiln_work_print(&text, w, &none);
    assert_string_equal(text.p, "axes: grid 2, reduced 3, parts 1\nbuffers:\n"
                                "  result 0: f32 any, byte strides [4, 0, 0]\n"
                                "  argument 0: f32 contig, byte strides [12, 4, 0]\nsteps:\n  launch\n");
    kiln_sb_fini(&text);
    free(w);
    kiln_tensor_release(x);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_are_small),
        cmocka_unit_test(a_copy_runs_as_the_original),
        cmocka_unit_test(a_copy_says_what_the_original_says),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
