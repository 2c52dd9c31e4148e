/* test_remembered.c - interpreted calls that a memo answers: what they count, when a kernel takes their place, and that no
 * call runs an interpreter's program that was freed.
 *
 * A memo of an interpreted call names the program of its class.  The program goes when the kernel of the class is published, and
 * with the class when it is evicted.  Every test looks at the counters, so that a call which was not remembered fails it. */
#include <malloc.h>

#include "tier_cases.h"

enum { THREADS = 8, CLASSES = 12, KEPT = 8, ROUNDS = SANITIZED ? 2000 : 20000 };

/* -- calls of every sort of memo ------------------------------------------------------------------------- */

typedef struct sample {
    const char *name;
    int64_t rows, cols;
    enum { PLAIN, LISTED, NAMED_DIM, SOFTMAX, DIM } dim; /* how dimension 1 is given */
    bool into;                                           /* a given tensor.  Each sample is another class */
} sample;

static const sample samples[] = {{"neg", 3, 5, PLAIN, false},         /* any shape */
                                 {"abs.out", 3, 5, PLAIN, true},      /* any shape, into a given tensor */
                                 {"amax", 3, 5, LISTED, false},       /* one layout */
                                 {"amax", 100, 5, LISTED, false},     /* rows that are turned */
                                 {"amin.out", 3, 5, LISTED, true},    /* one layout, into a given tensor */
                                 {"aminmax", 6, 4, NAMED_DIM, false}, /* two results */
                                 {"_softmax", 3, 5, SOFTMAX, false},  /* a result for each element */
                                 {"logcumsumexp", 3, 5, DIM, false}}; /* a scan */
enum { SAMPLES = sizeof samples / sizeof *samples };

typedef struct request {
    const kiln_op *op;
    kiln_tensor *x, *out, *want[2]; /* want: the results of the first call */
    kiln_value args[4], item;
    size_t n;
} request;

static void make_request(kiln_ctx *ctx, const sample *s, request *r) {
    *r = (request){.op = op_of(ctx, s->name), .item = kiln_v_int(1), .n = 1};
    r->x = new_tensor(KILN_F32, SIZES(s->rows, s->cols), NULL);
    for (int64_t k = 0; k < s->rows * s->cols; k++)
        ((float *)kiln_tensor_data(r->x))[k] = (float)(k * 7 % 11) - 4;
    r->args[0] = kiln_v_tensor(r->x);
    if (s->dim == LISTED) r->args[r->n++] = kiln_v_list(&r->item, 1);
    if (s->dim == NAMED_DIM) r->args[r->n++] = kiln_v_named("dim", r->item);
    if (s->dim == DIM || s->dim == SOFTMAX) r->args[r->n++] = r->item;
    if (s->dim == SOFTMAX) r->args[r->n++] = kiln_v_bool(0);
    if (!s->into) return;
    r->out = s->dim ? new_tensor(KILN_F32, SIZES(s->rows), NULL)
                    : new_tensor(KILN_F32, SIZES(s->rows, s->cols), NULL);
    r->args[r->n++] = kiln_v_named("out", kiln_v_tensor(r->out));
}

static void drop_request(request *r) {
    kiln_tensor_release(r->x);
    kiln_tensor_release(r->out);
    for (int k = 0; k < 2; k++) kiln_tensor_release(r->want[k]);
}

static kiln_tensor *copy_of(const kiln_tensor *t, size_t nbytes) {
    int64_t n = kiln_tensor_nelem(t);
    kiln_tensor *copy = new_tensor(kiln_tensor_dtype(t), 1, &n, NULL);
    memcpy(kiln_tensor_data(copy), kiln_tensor_data(t), nbytes);
    return copy;
}

/* The call must give what it gave first.  Returns the tier. */
static const char *call_again(kiln_ctx *ctx, request *r) {
    kiln_tensor *got[2] = {NULL, NULL};
    if (r->out) memset(kiln_tensor_data(r->out), 0, (size_t)kiln_tensor_nelem(r->out) * sizeof(float));
    MUST_OK(kiln_call(ctx, r->op, r->args, r->n, got, 2));
    for (size_t k = 0; k < kiln_op_nrets(r->op); k++) {
        size_t nbytes = (size_t)kiln_tensor_nelem(got[k]) * sizeof(float);
        if (!r->want[k]) r->want[k] = copy_of(got[k], nbytes);
        assert_memory_equal(kiln_tensor_data(got[k]), kiln_tensor_data(r->want[k]), nbytes);
        kiln_tensor_release(got[k]);
    }
    return kiln_last_tier();
}

/* The class of the request, which must not be evicted meanwhile. */
static kiln_class *class_of(kiln_ctx *ctx, const request *r) {
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    MUST_OK(kiln_bind(r->op, r->args, r->n, &call));
    MUST_OK(kiln_infer(&call, &plan));
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    kiln_thread_enter(&ctx->epochs, t);
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    kiln_thread_leave(t);
    return c;
}

/* -- what remembered calls count ------------------------------------------------------------------------- */

/* The same calls in a context that remembers nothing must give a class as much heat. */
static void check_counts(kiln_mode mode, const char *cc, const sample *s) {
    enum { CALLS = 20, UNREMEMBERED = 2 };
    kiln_ctx *ctx[2];
    request r[2];
    for (int k = 0; k < 2; k++) {
        ctx[k] = open_with((kiln_config){.mode = mode, .cc = cc});
        ctx[k]->forgets = k == 1;
        make_request(ctx[k], s, &r[k]);
        for (int n = 0; n < CALLS; n++) assert_string_equal(call_again(ctx[k], &r[k]), "interp");
        kiln_stats is = stats_of(ctx[k]);
        assert_int_equal(is.calls, CALLS);
        assert_int_equal(is.interp_calls, CALLS);
        assert_int_equal(is.fallbacks, mode == KILN_MODE_SYNC ? CALLS : 0);
        assert_int_equal(is.frozen_misses, mode == KILN_MODE_FROZEN);
        if (k == 1 ? is.slot_hits != 0 : is.slot_hits < CALLS - UNREMEMBERED)
            fail_msg("%s: %d slot hits", s->name, (int)is.slot_hits);
    }
    assert_int_equal(atomic_load(&class_of(ctx[0], &r[0])->heat),
                     atomic_load(&class_of(ctx[1], &r[1])->heat));
    for (int k = 0; k < 2; k++) {
        drop_request(&r[k]);
        kiln_close(ctx[k]);
    }
}

static void each_mode_counts_remembered_calls(void **state) {
    (void)state;
    static const kiln_mode modes[] = {KILN_MODE_TIERED, KILN_MODE_SYNC, KILN_MODE_INTERP, KILN_MODE_FROZEN};
    for (int m = 0; m < 4; m++)
        for (int k = 0; k < SAMPLES; k++)
            check_counts(modes[m], modes[m] == KILN_MODE_SYNC ? "false" : NULL, &samples[k]);
}

/* -- a kernel takes over --------------------------------------------------------------------------------- */

static void a_published_kernel_takes_over(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(NULL);
    for (int k = 0; k < SAMPLES; k++) {
        request r;
        make_request(ctx, &samples[k], &r);
        for (int n = 0; n < 4; n++) assert_string_equal(call_again(ctx, &r), "interp");
        atomic_store(&class_of(ctx, &r)->hot_at, 0);
        assert_string_equal(call_again(ctx, &r), "interp"); /* by the memo, which has the class built */
        kiln_wait_idle(ctx);                                /* frees the program, too */
        kiln_stats before = stats_of(ctx);
        for (int n = 0; n < 4; n++) assert_string_equal(call_again(ctx, &r), "compiled");
        kiln_stats after = stats_of(ctx);
        assert_int_equal(before.compiles, (uint64_t)k + 1);
        assert_int_equal(after.interp_calls, before.interp_calls);
        if (after.slot_hits - before.slot_hits < 2)
            fail_msg("%s: the kernel is not remembered", samples[k].name);
        drop_request(&r);
    }
    kiln_close(ctx);
    assert_no_children();
}

/* In mode sync the caller builds what is due: a memo must not keep the class from being built again. */
static void a_memo_ends_when_its_caller_is_to_build(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with(
        (kiln_config){.mode = KILN_MODE_SYNC, .cc = compiler("if [ -e ${0%/*}/armed ]; then exit 1; fi")});
    check_add(ctx); /* the compiler passes its trial */
    fclose(fopen(in_scratch("armed"), "w"));
    request r;
    make_request(ctx, &samples[0], &r);
    for (int n = 0; n < 5; n++) assert_string_equal(call_again(ctx, &r), "interp");
    assert_int_equal(stats_of(ctx).compile_failures, 1);
    unlink(in_scratch("armed"));
    kiln_class *c = class_of(ctx, &r);
    atomic_store(&c->hot_at, atomic_load(&c->heat) + 1); /* one more call is worth it */
    assert_string_equal(call_again(ctx, &r), "interp");
    assert_string_equal(call_again(ctx, &r), "compiled");
    drop_request(&r);
    kiln_close(ctx);
    assert_no_children();
}

static bool child_calls(kiln_ctx *ctx, request *r) {
    uint64_t before = stats_of(ctx).slot_hits;
    for (int n = 0; n < 10; n++)
        if (strcmp(call_again(ctx, r), "interp") != 0) return false;
    atomic_store(&class_of(ctx, r)->hot_at, 0);
    (void)call_again(ctx, r);
    kiln_wait_idle(ctx);
    return stats_of(ctx).slot_hits > before && strcmp(call_again(ctx, r), "compiled") == 0;
}

static void a_child_calls_by_its_parents_memo(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(NULL);
    request r;
    int status;
    make_request(ctx, &samples[0], &r);
    for (int n = 0; n < 4; n++) (void)call_again(ctx, &r);
    pid_t child = fork();
    if (child == 0) _exit(child_calls(ctx, &r) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(call_again(ctx, &r), "interp");
    drop_request(&r);
    kiln_close(ctx);
}

/* -- threads --------------------------------------------------------------------------------------------- */

static kiln_tensor *ones;

/* Rows of which each is another class: 2 + k for an element of 1.  More than may stay. */
static void load_rows(kiln_ctx *ctx) {
    char rows[2 * CLASSES * 100];
    size_t n = 0;
    for (int k = 0; k < 2 * CLASSES; k++)
        n += (size_t)snprintf(rows + n, sizeof rows - n,
                              "map test::r%d(Tensor a) -> Tensor : promote(a) takes float = a * a + a + %d\n",
                              k, k);
    MUST_OK(kiln_ops_load(ctx, rows, n));
}

/* Whether a call of class `which` is right. */
static bool call_class(kiln_ctx *ctx, int which) {
    char name[20];
    const kiln_op *op = NULL;
    kiln_tensor *out = NULL;
    snprintf(name, sizeof name, "test::r%d", which);
    if (kiln_op_find(ctx, name, &op) != KILN_OK) return false;
    if (kiln_call(ctx, op, ARGS(TEN(ones)), &out, 1) != KILN_OK) return false;
    const float *got = kiln_tensor_data(out);
    bool right = true;
    for (int64_t k = 0; k < kiln_tensor_nelem(out); k++) right = right && got[k] == (float)(2 + which);
    kiln_tensor_release(out);
    return right;
}

static bool more_classes; /* every other class is a new one */

/* Calls one class many times, so that its memo answers, while other threads evict classes and the background publishes. */
static void call_what_goes(worker *w) {
    for (int k = 0; k < ROUNDS; k++) {
        int which = (k / 100 + w->id) % CLASSES + (more_classes && k / 100 % 2 ? CLASSES : 0);
        if (k % 100 == 60 && w->id % 2 == 0) {
            char name[20];
            const kiln_op *op = NULL;
            snprintf(name, sizeof name, "test::r%d", which);
            if (kiln_op_find(w->ctx, name, &op) == KILN_OK) make_hot(w->ctx, op, ARGS(TEN(ones)));
        }
        if (!call_class(w->ctx, which)) atomic_fetch_add(w->wrong, 1);
        if (w->id == 0 && k % 500 == 499) kiln_wait_idle(w->ctx); /* drops what was retired */
    }
}

static void memos_are_used_while_programs_go(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_TIERED, .max_kernels = KEPT});
    load_rows(ctx);
    int64_t n = 70;
    ones = new_tensor(KILN_F32, 1, &n, NULL);
    for (int64_t k = 0; k < n; k++) ((float *)kiln_tensor_data(ones))[k] = 1;
    /* A class that waits for its build is not evicted.  So the second half begins when all builds have ended. */
    run_all(THREADS, ctx, call_what_goes);
    MUST_OK(kiln_wait_idle(ctx));
    more_classes = true;
    run_all(THREADS, ctx, call_what_goes);
    kiln_stats is = stats_of(ctx);
    assert_int_equal(is.calls, 2 * THREADS * ROUNDS);
    assert_true(is.compiles > 2 && is.evictions > 2 && is.interp_calls > 100);
    assert_true(is.slot_hits > is.calls / 4);
    kiln_tensor_release(ones);
    kiln_close(ctx);
    assert_no_children();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mode_counts_remembered_calls),
        cmocka_unit_test(a_published_kernel_takes_over),
        cmocka_unit_test(a_memo_ends_when_its_caller_is_to_build),
        cmocka_unit_test(a_child_calls_by_its_parents_memo),
        cmocka_unit_test(memos_are_used_while_programs_go),
    };
    mallopt(M_PERTURB, 165); /* freed memory is overwritten */
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
