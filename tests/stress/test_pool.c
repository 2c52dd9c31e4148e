/* test_pool.c - loops over several threads: each part runs once, with the caller's rounding and denormal mode,
 * loops inside loops and at once do not wait, forked children have a pool of their own, and a call has the
 * same bits at every number of threads. */
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>

#include "call_cases.h"
#include "run/pool.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* The child of a process with threads starts threads of its own here; ThreadSanitizer asks to be told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

enum { PARTS = 100, ALL = 1 << 20 };

static atomic_int runs[PARTS];

static void count_part(void *user, int64_t part) {
    (void)user;
    atomic_fetch_add(&runs[part], 1);
}

static void each_ran(int times) {
    for (int k = 0; k < PARTS; k++) {
        assert_int_equal(atomic_load(&runs[k]), times);
        atomic_store(&runs[k], 0);
    }
}

static void each_part_runs_once(void **state) {
    (void)state;
    kiln_pool_retain();
    for (int threads = 1; threads < 9; threads++) {
        kiln_parallel how = {.threads = threads};
        for (int k = 0; k < 50; k++) kiln_pool_for(&how, ALL, PARTS, count_part, NULL);
        each_ran(50);
        kiln_pool_for(&how, ALL, 0, count_part, NULL);
        kiln_pool_for(&how, ALL, 1, count_part, NULL);
        assert_int_equal(atomic_exchange(&runs[0], 0), 1);
    }
    kiln_pool_release();
}

static atomic_int inside, most;

static void meet_others(void *user, int64_t part) {
    (void)user;
    (void)part;
    int n = atomic_fetch_add(&inside, 1) + 1, seen = atomic_load(&most);
    while (n > seen && !atomic_compare_exchange_weak(&most, &seen, n)) {}
    usleep(1000);
    atomic_fetch_sub(&inside, 1);
}

/* Never more at once than this thread's limit, or the context's. */
static void a_limit_is_kept(void **state) {
    (void)state;
    static const struct {
        int limit, threads, want;
    } cases[] = {{1, 4, 1}, {2, 4, 2}, {9, 3, 3}, {0, 3, 3}, {-1, 3, 3}};
    kiln_pool_retain();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kiln_parallel how = {.threads = cases[k].threads};
        assert_int_equal(kiln_threads_limit(cases[k].limit), 0);
        atomic_store(&most, 0);
        kiln_pool_for(&how, ALL, PARTS, meet_others, NULL);
        assert_int_equal(kiln_threads_limit(0), cases[k].limit > 0 ? cases[k].limit : 0);
        assert_true(atomic_load(&most) <= cases[k].want);
        if (cases[k].want > 1)
            assert_true(atomic_load(&most) > 1); /* 100 parts of 1 ms: others had the time to come */
    }
    kiln_pool_release();
}

static void *loop_in_thread(void *user) {
    for (int k = 0; k < 50; k++) kiln_pool_for(user, ALL, PARTS, count_part, NULL);
    return NULL;
}

static void nested_part(void *user, int64_t part) {
    (void)part;
    kiln_pool_for(user, ALL, PARTS, count_part, NULL);
}

/* Whoever finds the pool taken works alone. */
static void loops_at_once_and_inside_loops(void **state) {
    (void)state;
    pthread_t threads[4];
    kiln_parallel how = {.threads = 4};
    kiln_pool_retain();
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_create(&threads[k], NULL, loop_in_thread, &how), 0);
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_join(threads[k], NULL), 0);
    each_ran(200);
    kiln_pool_for(&how, ALL, 10, nested_part, &how);
    each_ran(10);
    kiln_pool_release();
}

static atomic_int wrong;

static void look_at_mode(void *user, int64_t part) {
    (void)part;
    if (fegetround() != *(int *)user) atomic_fetch_add(&wrong, 1);
#if defined(__x86_64__)
    if ((_mm_getcsr() & 0x8040) != 0x8040)
        atomic_fetch_add(&wrong, 1); /* flush to zero, denormals are zero */
#endif
}

static void parts_have_the_callers_mode(void **state) {
    (void)state;
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    kiln_parallel how = {.threads = 4};
    fenv_t before;
    kiln_pool_retain();
    fegetenv(&before);
    for (int k = 0; k < 4; k++) {
        fesetround(modes[k]);
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
        kiln_pool_for(&how, ALL, 1000, look_at_mode, &modes[k]);
    }
    fesetenv(&before);
    assert_int_equal(atomic_load(&wrong), 0);
    kiln_pool_release();
}

enum { MEETING = 4 };

/* Waits until all threads are there: each has then been started. */
static void meet(void *arg, int64_t k) {
    atomic_int *here = arg;
    (void)k;
    atomic_fetch_add(here, 1);
    for (int n = 0; n < 5000 && atomic_load(here) < MEETING; n++) usleep(1000);
}

/* Sanitizers take locks of their own where a thread starts, which a child forked meanwhile never gets. */
static void a_child_has_its_own_threads(void **state) {
    (void)state;
    atomic_int here = 0;
    kiln_parallel how = {.threads = MEETING};
    kiln_pool_retain();
    kiln_pool_for(&how, ALL, MEETING, meet, &here);
    for (int k = 0; k < 5; k++) {
        kiln_pool_for(&how, ALL, PARTS, count_part, NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(60);
            for (int n = 0; n < PARTS; n++) atomic_store(&runs[n], 0);
            for (int n = 0; n < 20; n++) kiln_pool_for(&how, ALL, PARTS, count_part, NULL);
            for (int n = 0; n < PARTS; n++)
                if (atomic_load(&runs[n]) != 20) _exit(1);
            kiln_pool_release();
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    each_ran(5);
    kiln_pool_release();
}

/* -- calls ---------------------------------------------------------------------------------------------- */

static atomic_int hosted;

/* A host's pool: backwards, in the calling thread. */
static void host_for(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    atomic_fetch_add((atomic_int *)user, 1);
    while (n-- > 0) body(arg, n);
}

static kiln_tensor *wave(int rank, const int64_t *sizes, const int64_t *strides) {
    kiln_tensor *t = new_tensor(KILN_F32, rank, sizes, strides);
    float *p = kiln_tensor_data(t);
    for (int64_t k = 0; k < kiln_tensor_nelem(t); k++) p[k] = (float)(k % 1999) * 0.37f - 300;
    return t;
}

/* x op y at several thread counts, tiers and with a host's pool: the same bytes. */
static void check_same_bits(const char *name, kiln_tensor *x, kiln_tensor *y) {
    kiln_tensor *want = NULL;
    for (int k = 0; k < 8; k++) {
        kiln_config c = {.mode = k % 2 ? KILN_MODE_SYNC : KILN_MODE_INTERP, .threads = k / 2 % 3 * 3 + 1};
        if (k >= 6) c.parallel_for = host_for, c.parallel_user = &hosted, c.threads = 5;
        kiln_ctx *ctx = open_with(c);
        kiln_tensor *got = call1(ctx, name, ARGS(TEN(x), TEN(y)));
        if (want)
            assert_memory_equal(kiln_tensor_data(got), kiln_tensor_data(want),
                                (size_t)kiln_tensor_nelem(got) * sizeof(float));
        if (want)
            kiln_tensor_release(got);
        else
            want = got;
        kiln_close(ctx);
    }
    kiln_tensor_release(want);
}

static void calls_have_the_same_bits(void **state) {
    (void)state;
    kiln_tensor *flat = wave(SIZES(1000003), NULL), *one = wave(SIZES(1), NULL);
    kiln_tensor *table = wave(SIZES(1001, 777), NULL), *column = wave(SIZES(1001, 1), NULL);
    kiln_tensor *turned = wave(SIZES(1001, 777), STRIDES(1, 1001)), *cube = wave(SIZES(3, 5, 60001), NULL);
    check_same_bits("atan2", flat, flat);
    check_same_bits("add.Tensor", flat, one);
    check_same_bits("div.Tensor", table, column);
    check_same_bits("mul.Tensor", table, turned);
    check_same_bits("atan2", cube, one);
    assert_true(atomic_load(&hosted) >= 10);
    drop_args(ARGS(TEN(flat), TEN(one), TEN(table), TEN(column), TEN(turned), TEN(cube)));
}

/* Small work is not split; a trap in any part refuses the call and writes nothing. */
static void small_calls_and_traps(void **state) {
    (void)state;
    atomic_store(&hosted, 0);
    kiln_ctx *ctx = open_with((kiln_config){
        .mode = KILN_MODE_INTERP, .threads = 4, .parallel_for = host_for, .parallel_user = &hosted});
    check_add(ctx);
    assert_int_equal(atomic_load(&hosted), 0);
    kiln_tensor *x = new_tensor(KILN_I32, SIZES(1 << 20), NULL),
                *y = new_tensor(KILN_I32, SIZES(1 << 20), NULL);
    int32_t *p = kiln_tensor_data(x), *q = kiln_tensor_data(y);
    for (int k = 0; k < 1 << 20; k++) p[k] = k, q[k] = k + 1;
    kiln_tensor_release(call1(ctx, "remainder.Tensor", ARGS(TEN(x), TEN(y))));
    assert_true(atomic_load(&hosted) > 0);
    for (int k = 0; k < 1 << 20; k += 99991) {
        kiln_tensor *out = NULL;
        q[k] = 0;
        assert_int_equal(kiln_call(ctx, op_of(ctx, "remainder_.Tensor"), ARGS(TEN(x), TEN(y)), &out, 1),
                         KILN_E_DIVZERO);
        q[k] = k + 1;
        assert_null(out);
        for (int n = 0; n < 1 << 20; n++)
            if (p[n] != n) fail_msg("element %d was written", n);
    }
    drop_args(ARGS(TEN(x), TEN(y)));
    kiln_close(ctx);
}

/* A host's pool may run other calls of the operator in the thread that waits for its parts. */
typedef struct busy_host {
    kiln_ctx *ctx;
    kiln_tensor *x;
    int depth, calls;
} busy_host;

static void busy_for(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    busy_host *h = user;
    for (int64_t k = 0; k < n; k++) {
        if (h->depth++ == 0) {
            kiln_tensor_release(call1(h->ctx, "mul.Tensor", ARGS(TEN(h->x), TEN(h->x))));
            kiln_tensor_release(call1(h->ctx, "remainder.Tensor", ARGS(TEN(h->x), TEN(h->x))));
            h->calls++;
        }
        h->depth--;
        body(arg, k);
    }
}

static void a_host_calls_while_it_waits(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    busy_host h = {.x = new_tensor(KILN_I32, SIZES(40000), NULL)};
    h.ctx = open_with(
        (kiln_config){.mode = KILN_MODE_SYNC, .threads = 4, .parallel_for = busy_for, .parallel_user = &h});
    for (int k = 0; k < 40000; k++) ((int32_t *)kiln_tensor_data(h.x))[k] = 7;
    kiln_tensor *x = new_tensor(KILN_I32, SIZES(N), NULL), *y = new_tensor(KILN_I32, SIZES(N), NULL);
    for (int k = 0; k < N; k++) {
        ((int32_t *)kiln_tensor_data(x))[k] = k;
        ((int32_t *)kiln_tensor_data(y))[k] = 3;
    }
    for (int round = 0; round < 4; round++) {
        kiln_tensor *product = call1(h.ctx, "mul.Tensor", ARGS(TEN(x), TEN(y)));
        kiln_tensor *rest = call1(h.ctx, "remainder.Tensor", ARGS(TEN(x), TEN(y)));
        const int32_t *p = kiln_tensor_data(product), *r = kiln_tensor_data(rest);
        for (int k = 0; k < N; k++)
            if (p[k] != 3 * k || r[k] != k % 3)
                fail_msg("round %d, element %d: %d, %d", round, k, p[k], r[k]);
        drop_args(ARGS(TEN(product), TEN(rest)));
    }
    assert_true(h.calls > 8);
    assert_true(stats_of(h.ctx).slot_hits > 0);
    drop_args(ARGS(TEN(h.x), TEN(x), TEN(y)));
    kiln_close(h.ctx);
}

/* The same, with the operator itself, which has two results. */
static void frexp_for(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    busy_host *h = user;
    for (int64_t k = 0; k < n; k++) body(arg, k);
    if (h->depth++ == 0) {
        kiln_tensor *outs[2];
        MUST_OK(kiln_call(h->ctx, op_of(h->ctx, "frexp.Tensor"), ARGS(TEN(h->x)), outs, 2));
        drop_args(ARGS(TEN(outs[0]), TEN(outs[1])));
        h->calls++;
    }
    h->depth--;
}

static void check_frexp(busy_host *h, kiln_tensor *x) {
    kiln_tensor *outs[2] = {NULL, NULL};
    MUST_OK(kiln_call(h->ctx, op_of(h->ctx, "frexp.Tensor"), ARGS(TEN(x)), outs, 2));
    assert_non_null(outs[1]);
    int64_t last = kiln_tensor_nelem(x) - 1;
    assert_true(((float *)kiln_tensor_data(outs[0]))[last] == 0.75F);
    assert_int_equal(((int32_t *)kiln_tensor_data(outs[1]))[last], 2);
    drop_args(ARGS(TEN(outs[0]), TEN(outs[1])));
}

static void a_host_takes_the_memo_of_two_results(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    busy_host h = {.x = F32(SIZES(2), 1, 2), .depth = 1};
    h.ctx = open_with(
        (kiln_config){.mode = KILN_MODE_SYNC, .threads = 4, .parallel_for = frexp_for, .parallel_user = &h});
    kiln_tensor *x = new_tensor(KILN_F32, SIZES(N), NULL);
    for (int k = 0; k < N; k++) ((float *)kiln_tensor_data(x))[k] = 3;
    check_frexp(&h, x);
    while (stats_of(h.ctx).slot_hits == 0) check_frexp(&h, x);
    h.depth = 0;
    uint64_t before = stats_of(h.ctx).slot_hits;
    check_frexp(&h, x);
    assert_int_equal(h.calls, 1);
    assert_int_equal(stats_of(h.ctx).slot_hits, before + 2); /* both calls by one memo */
    drop_args(ARGS(TEN(h.x), TEN(x)));
    kiln_close(h.ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_runs_once),
        cmocka_unit_test(a_limit_is_kept),
        cmocka_unit_test(loops_at_once_and_inside_loops),
        cmocka_unit_test(parts_have_the_callers_mode),
        cmocka_unit_test(a_child_has_its_own_threads),
        cmocka_unit_test(calls_have_the_same_bits),
        cmocka_unit_test(small_calls_and_traps),
        cmocka_unit_test(a_host_calls_while_it_waits),
        cmocka_unit_test(a_host_takes_the_memo_of_two_results),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
