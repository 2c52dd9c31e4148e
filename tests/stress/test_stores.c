/* test_stores.c - where classes get their kernels: classes with equal IR share one, a store that keeps objects serves other contexts, and a
 * store that is slow, wrong, broken or full costs speed and nothing else.
 *
 * The store of bytes in this file stands for those of files and servers: it copies entries and gives them back. */
#include <sys/wait.h>
#include <unistd.h>

#include "tier_cases.h"

/* -- a store that keeps bytes ---------------------------------------------------------------------------- */

enum { KEPT_MAX = 32 };

typedef struct kept {
    kiln_digest digest;
    void *entry;
    size_t n;
} kept;

/* Its content outlives the contexts it is added to. */
typedef struct bytes {
    kiln_store store;
    pthread_mutex_t lock;
    kept at[KEPT_MAX];
    int n;
    atomic_int gets, puts, closes;
    atomic_bool held;   /* get waits while this is set */
    bool spoils, fails; /* keeps entries with a wrong byte; get and put are errors */
    const kept *lies;   /* the kernel of this entry stands in every entry that is given */
    atomic_int drops;
} bytes;

static void *copy(const void *p, size_t n) {
    void *q = kiln_alloc(n);
    assert_non_null(q);
    return memcpy(q, p, n);
}

/* The entry k, with the image of another one. */
static void with_other_image(const kept *k, const kept *other, kiln_blob *out) {
    kiln_stored a, b;
    assert_int_equal(kiln_stored_read(k->entry, k->n, NULL, NULL, &a), KILN_STORED_FINE);
    assert_int_equal(kiln_stored_read(other->entry, other->n, NULL, NULL, &b), KILN_STORED_FINE);
    a.image = b.image;
    a.nimage = b.nimage;
    a.tested = 0;
    MUST_OK(kiln_stored_write(&a, NULL, &out->entry, &out->nentry));
}

static kiln_status get_bytes(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    bytes *b = (bytes *)s;
    atomic_fetch_add(&b->gets, 1);
    while (atomic_load(&b->held)) nap(1);
    if (b->fails) return KILN_FAIL(KILN_E_IO, "the disk is on fire");
    pthread_mutex_lock(&b->lock);
    const kept *k = NULL;
    for (int i = 0; i < b->n; i++)
        if (memcmp(&b->at[i].digest, d, sizeof *d) == 0) k = &b->at[i];
    pthread_mutex_unlock(&b->lock);
    *found = k != NULL;
    if (k && b->lies)
        with_other_image(k, b->lies, out);
    else if (k)
        *out = (kiln_blob){.entry = copy(k->entry, k->n), .nentry = k->n};
    return KILN_OK;
}

static kiln_status put_bytes(kiln_store *s, const kiln_digest *d, kiln_blob *from) {
    bytes *b = (bytes *)s;
    atomic_fetch_add(&b->puts, 1);
    if (b->fails) return KILN_FAIL(KILN_E_IO, "no space left");
    assert_non_null(from->entry);
    assert_non_null(from->source);
    pthread_mutex_lock(&b->lock);
    assert_true(b->n < KEPT_MAX);
    kept *k = &b->at[b->n++];
    *k = (kept){.digest = *d, .entry = copy(from->entry, from->nentry), .n = from->nentry};
    if (b->spoils) ((char *)k->entry)[k->n - 1] ^= 1;
    pthread_mutex_unlock(&b->lock);
    return KILN_OK;
}

static void drop_bytes(kiln_store *s, const kiln_digest *d) {
    (void)d;
    atomic_fetch_add(&((bytes *)s)->drops, 1);
}

static void close_bytes(kiln_store *s) { atomic_fetch_add(&((bytes *)s)->closes, 1); }

static bytes *new_bytes(uint64_t price_ps) {
    bytes *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->store = (kiln_store){.name = "bytes",
                            .counter = KILN_COUNTER_disk_hits,
                            .get = get_bytes,
                            .put = put_bytes,
                            .drop = drop_bytes,
                            .keeps_bytes = true,
                            .close = close_bytes};
    atomic_init(&b->store.price, price_ps);
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

static void free_bytes(bytes *b) {
    for (int k = 0; k < b->n; k++) kiln_free(b->at[k].entry);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

#define QUICK_PS UINT64_C(1000000)
#define SLOW_PS UINT64_C(1000000000)

/* -- rows and calls ---------------------------------------------------------------------------------------- */

static const char rows[] =
    "map test::one(Tensor a) -> Tensor : promote(a) takes int = a * a + 7\n"
    "map test::same(Tensor other) -> Tensor : promote(other) takes int = other * other + 7\n"
    "map test::near(Tensor a) -> Tensor : promote(a) takes int = a * a + 8\n"
    "map test::div(Tensor a, Tensor b) -> Tensor : promote(a, b) takes int = a // b\n";

static kiln_ctx *open_rows(kiln_config config, bytes *b) {
    kiln_ctx *ctx = open_with(config);
    MUST_OK(kiln_ops_load(ctx, rows, sizeof rows - 1));
    if (b) MUST_OK(kiln_stores_add(&ctx->stores, &b->store));
    return ctx;
}

static kiln_ctx *open_sync(bytes *b) { return open_rows((kiln_config){.mode = KILN_MODE_SYNC}, b); }

/* Calls an operator on 1, 2 and -3; the results must be the squares plus `more`.  Returns the tier. */
static const char *call_row(kiln_ctx *ctx, const char *name, int more, bool hot) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    if (hot) make_hot(ctx, op_of(ctx, name), ARGS(TEN(a)));
    MUST_OK(kiln_call(ctx, op_of(ctx, name), ARGS(TEN(a)), &out, 1));
    HOLDS_I32(out, SIZES(3), 1 + more, 4 + more, 9 + more);
    drop_args(ARGS(TEN(a), TEN(out)));
    return kiln_last_tier();
}

static void assert_compiled(kiln_ctx *ctx, const char *name, int more) {
    assert_string_equal(call_row(ctx, name, more, false), "compiled");
}

/* -- equal IR --------------------------------------------------------------------------------------------- */

static void classes_with_equal_ir_share_a_kernel(void **state) {
    (void)state;
    kiln_ctx *ctx = open_sync(NULL);
    assert_compiled(ctx, "test::one", 7);
    uint64_t nbytes = stats_of(ctx).bytes_cached;
    assert_true(nbytes > 0);
    assert_compiled(ctx, "test::same", 7);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.memory_hits, 1);
    assert_int_equal(s.kernels, 1);
    assert_int_equal(s.bytes_cached, nbytes);
    assert_compiled(ctx, "test::near", 8);
    s = stats_of(ctx);
    assert_int_equal(s.compiles, 2);
    assert_int_equal(s.memory_hits, 1);
    assert_true(s.bytes_cached > nbytes);
    kiln_close(ctx);
}

/* In frozen mode a class may take a kernel that is in memory; nothing is built. */
static void frozen_takes_what_is_there(void **state) {
    (void)state;
    kiln_ctx *ctx = open_sync(NULL);
    assert_compiled(ctx, "test::one", 7);
    MUST_OK(kiln_mode_set(ctx, KILN_MODE_FROZEN));
    assert_compiled(ctx, "test::same", 7);
    assert_string_equal(call_row(ctx, "test::near", 8, false), "interp");
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_int_equal(stats_of(ctx).frozen_misses, 1);
    kiln_close(ctx);
}

static void interp_takes_none(void **state) {
    (void)state;
    kiln_ctx *ctx = open_sync(NULL);
    assert_compiled(ctx, "test::one", 7);
    MUST_OK(kiln_mode_set(ctx, KILN_MODE_INTERP));
    assert_string_equal(call_row(ctx, "test::same", 7, false), "interp");
    assert_int_equal(stats_of(ctx).memory_hits, 0);
    kiln_close(ctx);
}

/* The kernel goes with the last class that runs it, and no sooner. */
static void evicted_classes_leave_the_kernel_to_others(void **state) {
    (void)state;
    kiln_ctx *ctx = open_rows((kiln_config){.mode = KILN_MODE_SYNC, .max_kernels = 2}, NULL);
    assert_compiled(ctx, "test::one", 7);
    uint64_t nbytes = stats_of(ctx).bytes_cached;
    for (int k = 0; k < 60; k++) {
        assert_compiled(ctx, k % 2 ? "test::one" : "test::same", 7); /* one of them stays */
        if (k % 3 == 0) assert_compiled(ctx, "test::near", 8);
        MUST_OK(kiln_wait_idle(ctx)); /* frees what was evicted */
        assert_true(stats_of(ctx).bytes_cached >= nbytes);
        assert_true(stats_of(ctx).bytes_cached <= 4 * nbytes);
    }
    assert_true(stats_of(ctx).evictions > 0);
    kiln_close(ctx);
}

/* What a kernel reports as a trap is said by the class: equal IR with other texts. */
static void traps_keep_their_own_texts(void **state) {
    (void)state;
    static const char checks[] =
        "map test::up(Tensor a) -> Tensor : promote(a) takes int = a + 1\n    check each a > 0 : \"up wants positive numbers\"\n"
        "map test::more(Tensor b) -> Tensor : promote(b) takes int = b + 1\n    check each b > 0 : \"more is asked\"\n";
    kiln_ctx *ctx = open_sync(NULL);
    MUST_OK(kiln_ops_load(ctx, checks, sizeof checks - 1));
    kiln_tensor *a = I32(SIZES(2), 5, -1), *out = NULL;
    static const char *const names[] = {"test::up", "test::more"}, *const texts[] = {"up wants",
                                                                                     "more is asked"};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(kiln_call(ctx, op_of(ctx, names[k % 2]), ARGS(TEN(a)), &out, 1), KILN_E_ARG);
        assert_error_names(texts[k % 2]);
    }
    assert_int_equal(stats_of(ctx).compiles, 1);
    kiln_tensor_release(a);
    kiln_close(ctx);
}

/* A check that never fails is gone from the code, and its number with it: the check behind it keeps its own status. */
static void checks_that_are_gone_are_not_counted(void **state) {
    (void)state;
    static const char divisions[] =
        "map test::sure(Tensor a, Tensor b) -> Tensor : promote(a, b) takes int = a // b\n    check each 1 < 2 : \"never\"\n";
    static const char *const names[] = {"test::sure", "test::div"};
    kiln_ctx *ctx = open_sync(NULL);
    MUST_OK(kiln_ops_load(ctx, divisions, sizeof divisions - 1));
    kiln_tensor *x = I32(SIZES(2), 7, 8), *y = I32(SIZES(2), 2, 0), *out = NULL;
    for (int k = 0; k < 6; k++) {
        assert_int_equal(kiln_call(ctx, op_of(ctx, names[k % 2]), ARGS(TEN(x), TEN(y)), &out, 1),
                         KILN_E_DIVZERO);
        assert_error_names("ZeroDivisionError");
    }
    assert_int_equal(stats_of(ctx).compiles, 1); /* both come to one division */
    drop_args(ARGS(TEN(x), TEN(y)));
    kiln_close(ctx);
}

static void call_both(worker *w) {
    const char *name = w->id % 2 ? "test::one" : "test::same";
    for (int k = 0; k < 50; k++) {
        kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
        if (kiln_call(w->ctx, op_of(w->ctx, name), ARGS(TEN(a)), &out, 1) != KILN_OK ||
            ((const int32_t *)kiln_tensor_data(out))[2] != 16)
            atomic_fetch_add(w->wrong, 1);
        kiln_tensor_release(out);
        kiln_tensor_release(a);
    }
}

/* Classes that are built at the same time come to share one kernel, too. */
static void threads_share_a_kernel(void **state) {
    (void)state;
    kiln_ctx *ctx = open_sync(NULL);
    run_all(8, ctx, call_both);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.kernels, 1);
    assert_int_equal(s.compiles + s.memory_hits, 2);
    assert_compiled(ctx, "test::one", 7);
    uint64_t nbytes = s.bytes_cached;
    kiln_ctx *alone = open_sync(NULL);
    assert_compiled(alone, "test::one", 7);
    assert_int_equal(nbytes, stats_of(alone).bytes_cached);
    kiln_close(alone);
    kiln_close(ctx);
}

/* -- bytes ------------------------------------------------------------------------------------------------- */

/* A second context compiles nothing: kernels of one object and of a batch, with traps and without. */
static void other_contexts_are_served(void **state) {
    (void)state;
    bytes *b = new_bytes(QUICK_PS);
    for (int round = 0; round < 2; round++) {
        kiln_ctx *ctx = open_sync(b);
        assert_compiled(ctx, "test::one", 7);
        assert_compiled(ctx, "test::same", 7);
        assert_compiled(ctx, "test::near", 8);
        kiln_tensor *x = I32(SIZES(3), 7, 8, 9), *y = I32(SIZES(3), 2, 0, 3), *out = NULL;
        assert_int_equal(kiln_call(ctx, op_of(ctx, "test::div"), ARGS(TEN(x), TEN(y)), &out, 1),
                         KILN_E_DIVZERO);
        assert_error_names("test::div: ZeroDivisionError");
        drop_args(ARGS(TEN(x), TEN(y)));
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.compiles, round ? 0 : 3);
        assert_int_equal(s.disk_hits, round ? 3 : 0);
        assert_int_equal(s.memory_hits, 1);
        assert_int_equal(s.kernels, 3);
        kiln_close(ctx);
    }
    assert_int_equal(atomic_load(&b->puts), 3);
    assert_int_equal(atomic_load(&b->closes), 2);
    free_bytes(b);
}

/* Two classes are built together while a third one holds up the compiler: each kernel of their object has an entry of its own. */
static void kernels_of_a_batch_are_kept_one_by_one(void **state) {
    (void)state;
    char wait[600];
    bytes *b = new_bytes(QUICK_PS);
    fclose(fopen(in_scratch("held"), "w"));
    snprintf(wait, sizeof wait, "while [ -e %s/held ]; do sleep 0.01; done", scratch);
    kiln_ctx *ctx = open_rows((kiln_config){.mode = KILN_MODE_TIERED, .cc = compiler(wait)}, b);
    (void)mul(ctx, true);
    for (int k = 0; k < 30000 && atomic_load(&ctx->builds.nrunning) == 0; k++) nap(1);
    (void)call_row(ctx, "test::one", 7, true);
    (void)call_row(ctx, "test::near", 8, true);
    unlink(in_scratch("held"));
    MUST_OK(kiln_wait_idle(ctx));
    kiln_close(ctx);
    assert_int_equal(b->n, 3);
    ctx = open_sync(b);
    assert_compiled(ctx, "test::one", 7);
    assert_compiled(ctx, "test::near", 8);
    assert_string_equal(mul(ctx, false), "compiled");
    assert_int_equal(stats_of(ctx).compiles, 0);
    kiln_close(ctx);
    free_bytes(b);
}

/* Entries that are damaged, and kernels that compute something else, are built anew and dropped. */
static void bad_objects_cost_a_build(void **state) {
    (void)state;
    for (int lies = 0; lies < 2; lies++) {
        bytes *b = new_bytes(QUICK_PS);
        b->spoils = !lies;
        kiln_ctx *ctx = open_sync(b);
        assert_compiled(ctx, "test::near", 8);
        assert_compiled(ctx, "test::one", 7);
        kiln_close(ctx);
        if (lies) b->lies = &b->at[0];
        ctx = open_sync(b);
        assert_compiled(ctx, "test::one", 7);
        assert_int_equal(stats_of(ctx).compiles, 1);
        assert_int_equal(stats_of(ctx).disk_hits, 0);
        assert_int_equal(stats_of(ctx).compile_failures, 0);
        assert_true(atomic_load(&b->drops) > 0);
        assert_true((lies ? stats_of(ctx).selftest_failures : stats_of(ctx).corrupt_entries) > 0);
        kiln_close(ctx);
        free_bytes(b);
    }
}

typedef struct heard {
    int stores;
    char last[200];
} heard;

static void listen(void *user, int level, const char *topic, const char *text) {
    heard *h = user;
    (void)level;
    if (strcmp(topic, "store") != 0) return;
    h->stores++;
    snprintf(h->last, sizeof h->last, "%s", text);
}

static void errors_of_a_store_are_said_and_cost_nothing(void **state) {
    (void)state;
    bytes *b = new_bytes(QUICK_PS);
    heard h = {0};
    b->fails = true;
    kiln_ctx *ctx = open_rows((kiln_config){.mode = KILN_MODE_SYNC, .log = listen, .log_user = &h}, b);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(h.stores,
                     3); /* asked when the class was made and before the build, then given the kernel */
    assert_non_null(strstr(h.last, "bytes: no space left"));
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_int_equal(stats_of(ctx).compile_failures, 0);
    kiln_close(ctx);
    free_bytes(b);
}

/* -- slow stores ------------------------------------------------------------------------------------------- */

static void wait_for_gets(bytes *b, int n) {
    for (int k = 0; k < 5000 && atomic_load(&b->gets) < n; k++) nap(1);
    assert_int_equal(atomic_load(&b->gets) >= n, 1);
}

/* No call waits for a slow store, nor does a build of a class that the store was asked about before. */
static void a_slow_store_holds_up_no_build(void **state) {
    (void)state;
    bytes *b = new_bytes(SLOW_PS);
    kiln_ctx *ctx = open_rows((kiln_config){.mode = KILN_MODE_TIERED}, b);
    assert_string_equal(call_row(ctx, "test::near", 8, true), "interp");
    MUST_OK(kiln_wait_idle(ctx)); /* asked, and nothing was found */
    assert_int_equal(stats_of(ctx).compiles, 0);
    int asked = atomic_load(&b->gets);
    assert_true(asked > 0);
    atomic_store(&b->held, true);
    assert_string_equal(call_row(ctx, "test::one", 7, true), "interp");
    assert_string_equal(call_row(ctx, "test::near", 8, true),
                        "interp"); /* one builder may wake up for both */
    wait_for_gets(b, asked + 1);
    for (int k = 0; k < 30000 && stats_of(ctx).compiles == 0; k++) nap(1);
    assert_compiled(ctx, "test::near", 8); /* while the store still holds the other class up */
    assert_true(atomic_load(&b->held));
    assert_string_equal(call_row(ctx, "test::one", 7, false), "interp");
    atomic_store(&b->held, false);
    MUST_OK(kiln_wait_idle(ctx));
    assert_int_equal(stats_of(ctx).compiles, 1);
    kiln_close(ctx);
    free_bytes(b);
}

/* A class asks the slow store at its price, far before a build would pay. */
static void a_slow_store_is_asked_at_its_price(void **state) {
    (void)state;
    bytes *b = new_bytes(SLOW_PS);
    kiln_ctx *ctx = open_sync(b);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(b->n, 1);
    kiln_close(ctx);
    ctx = open_rows((kiln_config){.mode = KILN_MODE_TIERED}, b);
    int calls = 0;
    while (stats_of(ctx).disk_hits == 0 && calls < 60) { /* a build is asked for after some 80 calls */
        (void)call_row(ctx, "test::one", 7, false);
        MUST_OK(kiln_wait_idle(ctx));
        calls++;
    }
    assert_true(calls < 60);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).compiles, 0);
    kiln_close(ctx);
    free_bytes(b);
}

/* A child of a fork in whose parent a store is being asked builds what it needs. */
static void a_forked_child_asks_anew(void **state) {
    (void)state;
    bytes *b = new_bytes(SLOW_PS);
    kiln_ctx *ctx = open_rows((kiln_config){.mode = KILN_MODE_TIERED}, b);
    atomic_store(&b->held, true);
    (void)call_row(ctx, "test::one", 7, true);
    wait_for_gets(b, 1);
    pid_t child = fork();
    if (child == 0) {
        atomic_store(&b->held, false);
        MUST_OK(kiln_mode_set(ctx, KILN_MODE_SYNC));
        for (int k = 0; k < 2; k++) (void)call_row(ctx, "test::one", 7, true);
        _exit(strcmp(call_row(ctx, "test::one", 7, false), "compiled") == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&b->held, false);
    kiln_close(ctx);
    free_bytes(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_with_equal_ir_share_a_kernel),
        cmocka_unit_test(frozen_takes_what_is_there),
        cmocka_unit_test(interp_takes_none),
        cmocka_unit_test(evicted_classes_leave_the_kernel_to_others),
        cmocka_unit_test(traps_keep_their_own_texts),
        cmocka_unit_test(checks_that_are_gone_are_not_counted),
        cmocka_unit_test(threads_share_a_kernel),
        cmocka_unit_test(other_contexts_are_served),
        cmocka_unit_test(kernels_of_a_batch_are_kept_one_by_one),
        cmocka_unit_test(bad_objects_cost_a_build),
        cmocka_unit_test(errors_of_a_store_are_said_and_cost_nothing),
        cmocka_unit_test(a_slow_store_holds_up_no_build),
        cmocka_unit_test(a_slow_store_is_asked_at_its_price),
        cmocka_unit_test(a_forked_child_asks_anew),
    };
    return cmocka_run_group_tests_name("stores", tests, call_setup, call_teardown);
}
