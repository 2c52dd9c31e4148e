/* test_store_processes.c - many processes over one cache folder: each kernel is built once, claims end with their holders, folders are pruned
 * and deleted while they are used.
 *
 * Counters of the children are summed in shared memory; no time is asserted. */
#include <signal.h>
#include <sys/mman.h>
#include <utime.h>

#include "store_cases.h"
#include "whole.h"

enum { PROCESSES = SANITIZED ? 8 : 32, CLASSES = SANITIZED ? 6 : 20 };
#define LIMIT_NS INT64_C(240000000000) /* a child that has not ended by then is stuck */

/* What the children counted. */
typedef struct totals {
    atomic_int go, compiles, hits, elsewhere, failures, errors, corrupt, stored, pruned, wrong;
} totals;
static totals *sum;

static int setup(void **state) {
    sum = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return sum == MAP_FAILED ? -1 : call_setup(state);
}

static int teardown(void **state) {
    munmap(sum, sizeof *sum);
    return call_teardown(state);
}

static void begin(void) {
    memset(sum, 0, sizeof *sum);
    drop_cache();
}

static void add_up(kiln_ctx *ctx) {
    kiln_stats s = stats_of(ctx);
    atomic_fetch_add(&sum->compiles, (int)s.compiles);
    atomic_fetch_add(&sum->hits, (int)s.disk_hits);
    atomic_fetch_add(&sum->elsewhere, (int)s.builds_elsewhere);
    atomic_fetch_add(&sum->failures,
                     (int)(s.compile_failures + s.load_failures + s.selftest_failures + s.memory_failures));
    atomic_fetch_add(&sum->errors, (int)s.store_errors);
    atomic_fetch_add(&sum->corrupt, (int)(s.corrupt_entries + s.stale_entries + s.foreign_entries));
    atomic_fetch_add(&sum->stored, (int)s.stored);
    atomic_fetch_add(&sum->pruned, (int)s.pruned);
}

static void assert_all_well(int line) {
    if (sum->failures || sum->errors || sum->corrupt || sum->wrong)
        fail_msg("line %d: failures %d, errors %d, corrupt %d, wrong %d", line, sum->failures, sum->errors,
                 sum->corrupt, sum->wrong);
}

static void wait_for_go(void) {
    while (!atomic_load(&sum->go)) nap(1);
}

static void run_children(int n, void (*body)(void *)) {
    pid_t child[64];
    int ids[64];
    for (int k = 0; k < n; k++) {
        ids[k] = k;
        child[k] = start_child(body, &ids[k]);
    }
    atomic_store(&sum->go, 1);
    for (int k = 0; k < n; k++) end_child(child[k]);
}

/* -- one build per kernel ---------------------------------------------------------------------------------------- */

static void call_all_sync(void *user) {
    int id = *(int *)user;
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, CLASSES);
    wait_for_go();
    for (int k = 0; k < CLASSES; k++) {
        bool right = row_is_right(ctx, (k + 3 * id) % CLASSES, false);
        if (!right || strcmp(kiln_last_tier(), "compiled") != 0) atomic_fetch_add(&sum->wrong, 1);
    }
    add_up(ctx);
    kiln_close(ctx);
}

/* Until each class has its kernel. */
static void call_all_tiered(void *user) {
    int id = *(int *)user;
    int64_t until = kiln_clock_ns() + LIMIT_NS;
    kiln_ctx *ctx = open_disk(KILN_MODE_TIERED, CLASSES);
    wait_for_go();
    for (int compiled = 0; compiled < CLASSES;) {
        compiled = 0;
        for (int k = 0; k < CLASSES; k++) {
            if (!row_is_right(ctx, (k + 3 * id) % CLASSES, true)) atomic_fetch_add(&sum->wrong, 1);
            compiled += strcmp(kiln_last_tier(), "compiled") == 0;
        }
        MUST(kiln_clock_ns() < until);
        nap(2);
    }
    MUST(kiln_wait_idle(ctx) == KILN_OK);
    add_up(ctx);
    kiln_close(ctx);
}

static void check_builds(void (*body)(void *), int line) {
    begin();
    run_children(PROCESSES, body);
    assert_all_well(line);
    assert_int_equal(sum->compiles + sum->hits, PROCESSES * CLASSES);
    if (sum->compiles < CLASSES || sum->compiles * 10 > CLASSES * 12)
        fail_msg("line %d: %d builds of %d classes", line, sum->compiles, CLASSES);
    assert_int_equal(sum->stored, sum->compiles);
    assert_int_equal(count_kernels(), CLASSES);
    assert_int_equal(count_temps(), 0);
}

static void processes_share_builds_in_sync_mode(void **state) {
    (void)state;
    check_builds(call_all_sync, __LINE__);
}

static void processes_share_builds_in_tiered_mode(void **state) {
    (void)state;
    check_builds(call_all_tiered, __LINE__);
}

static void *call_in_thread(void *user) { return row_is_right(user, 0, false) ? NULL : user; }

/* Two contexts of one process exclude each other as two processes do. */
static void contexts_of_one_process_share_builds(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        pthread_t thread[2];
        kiln_ctx *ctx[2];
        drop_cache();
        for (int k = 0; k < 2; k++) ctx[k] = open_disk(KILN_MODE_SYNC, 1);
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_create(&thread[k], NULL, call_in_thread, ctx[k]), 0);
        for (int k = 0; k < 2; k++) {
            void *wrong = NULL;
            pthread_join(thread[k], &wrong);
            assert_null(wrong);
        }
        kiln_stats a = stats_of(ctx[0]), b = stats_of(ctx[1]);
        assert_int_equal(a.compiles + b.compiles, 1);
        assert_int_equal(a.disk_hits + b.disk_hits, 1);
        for (int k = 0; k < 2; k++) kiln_close(ctx[k]);
    }
}

/* -- claims -------------------------------------------------------------------------------------------------------- */

static void build_slowly(void *user) {
    kiln_ctx *ctx = open_disk_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = user}, 1);
    (void)row_is_right(ctx, 0, false);
    _exit(1); /* it is killed before */
}

static void wait_for_runs(long n) {
    for (int k = 0; count_runs() < n && k < 60000; k++) nap(1);
    assert_true(count_runs() >= n);
}

/* Ends what `compiler` started. */
static void kill_compilers(void) {
    long pid;
    FILE *f = fopen(in_scratch("runs"), "r");
    assert_non_null(f);
    while (fscanf(f, "%ld", &pid) == 1) (void)kill((pid_t)pid, SIGKILL);
    fclose(f);
}

static void *call_and_count(void *user) { return call_in_thread(user); }

/* The kernel of a builder that died is built by one that waits. */
static void a_claim_ends_with_its_holder(void **state) {
    (void)state;
    pthread_t thread;
    void *wrong = NULL;
    char cc[PATH_ROOM];
    begin();
    snprintf(cc, sizeof cc, "%s", compiler("exec sleep 1000"));
    pid_t builder = start_child(build_slowly, cc);
    wait_for_runs(1);
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1);
    assert_int_equal(pthread_create(&thread, NULL, call_and_count, ctx), 0);
    for (int k = 0; !stats_of(ctx).builds_elsewhere && k < 60000; k++) nap(1);
    assert_int_equal(stats_of(ctx).builds_elsewhere, 1);
    assert_int_equal(stats_of(ctx).compiles, 0);
    assert_int_equal(kill(builder, SIGKILL), 0);
    assert_int_equal(waitpid(builder, NULL, 0), builder);
    pthread_join(thread, &wrong);
    kill_compilers();
    assert_null(wrong);
    assert_int_equal(stats_of(ctx).compiles, 1);
    call_rk(ctx, 0, "compiled");
    kiln_close(ctx);
}

/* In tiered mode nobody waits: calls are interpreted meanwhile. */
static void tiered_calls_do_not_wait_for_other_builders(void **state) {
    (void)state;
    char cc[PATH_ROOM];
    begin();
    snprintf(cc, sizeof cc, "%s", compiler("exec sleep 1000"));
    pid_t builder = start_child(build_slowly, cc);
    wait_for_runs(1);
    kiln_ctx *ctx = open_disk(KILN_MODE_TIERED, 1);
    for (int k = 0; k < 20; k++) {
        assert_true(row_is_right(ctx, 0, true));
        assert_string_equal(kiln_last_tier(), "interp");
        MUST_OK(kiln_wait_idle(ctx)); /* ends although the kernel is not there */
    }
    assert_true(stats_of(ctx).builds_elsewhere > 0);
    assert_int_equal(stats_of(ctx).compiles, 0);
    assert_int_equal(kill(builder, SIGKILL), 0);
    assert_int_equal(waitpid(builder, NULL, 0), builder);
    kill_compilers();
    for (int k = 0; k < 60 && strcmp(kiln_last_tier(), "compiled") != 0; k++) {
        assert_true(row_is_right(ctx, 0, true));
        MUST_OK(kiln_wait_idle(ctx));
    }
    assert_string_equal(kiln_last_tier(), "compiled");
    kiln_close(ctx);
}

/* A claim that is held for longer than any compiler may take, as by a process that was stopped, holds up nobody. */
static void a_stuck_builder_is_not_waited_for(void **state) {
    (void)state;
    kiln_digest d = digest_of_row(0);
    for (int mode = KILN_MODE_TIERED; mode <= KILN_MODE_SYNC; mode++) {
        begin();
        kiln_ctx *holder = open_disk(KILN_MODE_SYNC, 0), *ctx = open_disk((kiln_mode)mode, 1);
        assert_int_equal(kiln_stores_claim(&holder->stores, &d), KILN_CLAIM_OURS);
        class_of_row(ctx, 0)->elsewhere_since = kiln_clock_ns() - INT64_C(61000000000);
        for (int k = 0; k < 60; k++) {
            assert_true(row_is_right(ctx, 0, mode == KILN_MODE_TIERED));
            MUST_OK(kiln_wait_idle(ctx));
        }
        call_rk(ctx, 0, "compiled");
        assert_int_equal(stats_of(ctx).compiles, 1);
        assert_int_equal(stats_of(ctx).stored, 1);
        assert_int_equal(stats_of(ctx).builds_elsewhere, 0);
        kiln_close(ctx);
        kiln_ctx *other = open_disk(KILN_MODE_SYNC, 0); /* the claim is still its holder's */
        assert_int_equal(kiln_stores_claim(&other->stores, &d), KILN_CLAIM_BUSY);
        kiln_close(other);
        kiln_close(holder);
    }
}

static const kiln_digest some = {0x1234, 0x5678};

static void close_at_once(void *user) { kiln_close(user); }

static void live_on(void *user) {
    (void)user;
    atomic_store(&sum->go, 1); /* from here on the child holds nothing of its parent's */
    while (atomic_load(&sum->go)) nap(1);
}

/* Neither the end of a forked child nor its life changes what its parent has claimed. */
static void a_fork_leaves_claims_to_the_parent(void **state) {
    (void)state;
    begin();
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 0), *other = open_disk(KILN_MODE_SYNC, 0);
    assert_int_equal(kiln_stores_claim(&ctx->stores, &some), KILN_CLAIM_OURS);
    assert_int_equal(kiln_stores_claim(&other->stores, &some), KILN_CLAIM_BUSY);
    in_child_of(close_at_once, ctx);
    assert_int_equal(kiln_stores_claim(&other->stores, &some), KILN_CLAIM_BUSY);
    pid_t child = start_child(live_on, NULL);
    wait_for_go();
    assert_int_equal(kiln_stores_claim(&other->stores, &some), KILN_CLAIM_BUSY);
    kiln_stores_unclaim(&ctx->stores, &some);
    assert_int_equal(kiln_stores_claim(&other->stores, &some), KILN_CLAIM_OURS);
    kiln_stores_unclaim(&other->stores, &some);
    assert_int_equal(kiln_stores_claim(&ctx->stores, &some), KILN_CLAIM_OURS);
    atomic_store(&sum->go, 0);
    end_child(child);
    child = start_child(live_on, NULL);
    wait_for_go();
    kiln_close(ctx); /* the claim goes with the context, although the child lives */
    assert_int_equal(kiln_stores_claim(&other->stores, &some), KILN_CLAIM_OURS);
    atomic_store(&sum->go, 0);
    end_child(child);
    kiln_close(other);
}

/* A child that is forked while its parent builds waits for the parent's kernel. */
static void call_in_child(void *user) {
    kiln_ctx *ctx = user;
    MUST(kiln_stores_claim(&ctx->stores, &some) == KILN_CLAIM_BUSY);
}

static void a_child_sees_its_parents_claims(void **state) {
    (void)state;
    begin();
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 0);
    assert_int_equal(kiln_stores_claim(&ctx->stores, &some), KILN_CLAIM_OURS);
    in_child_of(call_in_child, ctx);
    kiln_close(ctx);
}

/* Many threads that need the folder for the first time at once open one folder, and no claim is lost meanwhile. */
typedef struct race {
    pthread_barrier_t start;
    kiln_ctx *ctx;
    atomic_int next;
} race;

static void *claim_in_thread(void *user) {
    race *r = user;
    kiln_digest d = {(uint64_t)atomic_fetch_add(&r->next, 1) + 1, 7};
    pthread_barrier_wait(&r->start);
    return kiln_stores_claim(&r->ctx->stores, &d) == KILN_CLAIM_OURS ? NULL : user;
}

static void claims_survive_a_race_to_open_the_folder(void **state) {
    (void)state;
    enum { THREADS = 4 };
    begin();
    kiln_ctx *other = open_disk(KILN_MODE_SYNC, 0);
    for (int round = 0; round < (SANITIZED ? 50 : 400); round++) {
        pthread_t thread[THREADS];
        race r = {.ctx = open_disk(KILN_MODE_SYNC, 0)};
        pthread_barrier_init(&r.start, NULL, THREADS);
        for (int k = 0; k < THREADS; k++)
            assert_int_equal(pthread_create(&thread[k], NULL, claim_in_thread, &r), 0);
        for (int k = 0; k < THREADS; k++) {
            void *wrong = NULL;
            pthread_join(thread[k], &wrong);
            assert_null(wrong);
        }
        for (uint64_t k = 1; k <= THREADS; k++)
            if (kiln_stores_claim(&other->stores, &(kiln_digest){k, 7}) != KILN_CLAIM_BUSY)
                fail_msg("round %d: a claim is lost", round);
        pthread_barrier_destroy(&r.start);
        kiln_close(r.ctx);
    }
    kiln_close(other);
}

/* -- threads, forks and interrupts ------------------------------------------------------------------------------------ */

static void call_in_turn(worker *w) {
    for (int k = 0; k < 60; k++)
        if (!row_is_right(w->ctx, (k + w->id) % CLASSES, false)) atomic_fetch_add(w->wrong, 1);
}

/* Threads of one context get what an earlier one has built, and build the rest. */
static void threads_share_the_folder(void **state) {
    (void)state;
    for (int mode = KILN_MODE_TIERED; mode <= KILN_MODE_SYNC; mode++) {
        fill_cache(CLASSES / 2);
        kiln_ctx *ctx = open_disk((kiln_mode)mode, CLASSES);
        run_all(6, ctx, call_in_turn);
        MUST_OK(kiln_wait_idle(ctx));
        kiln_stats s = stats_of(ctx);
        if (mode == KILN_MODE_SYNC) assert_int_equal(s.disk_hits, CLASSES / 2);
        if (mode == KILN_MODE_SYNC) assert_int_equal(s.compiles, CLASSES - CLASSES / 2);
        assert_int_equal(s.store_errors + s.corrupt_entries + s.compile_failures, 0);
        kiln_close(ctx);
    }
}

static void *build_until_told(void *user) {
    kiln_ctx *ctx = user;
    for (int k = 0; atomic_load(&sum->go); k = (k + 1) % CLASSES) {
        if (k == 0) drop_cache();
        kiln_ctx *own = open_disk(KILN_MODE_SYNC, CLASSES);
        if (!row_is_right(own, k, false) || !row_is_right(ctx, k, false)) atomic_fetch_add(&sum->wrong, 1);
        kiln_close(own);
    }
    return NULL;
}

static void call_in_fork(void *user) {
    kiln_ctx *ctx = user;
    for (int k = 0; k < 3; k++) MUST(row_is_right(ctx, k, false));
    MUST(stats_of(ctx).corrupt_entries == 0);
}

/* A fork may come while other threads read, write and claim: the child goes on with its parent's context. */
static void forks_may_come_at_any_time(void **state) {
    (void)state;
    pthread_t thread;
    begin();
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, CLASSES);
    atomic_store(&sum->go, 1);
    assert_int_equal(pthread_create(&thread, NULL, build_until_told, ctx), 0);
    for (int k = 0; k < (SANITIZED ? 6 : 25); k++) in_child_of(call_in_fork, ctx);
    atomic_store(&sum->go, 0);
    pthread_join(thread, NULL);
    assert_int_equal(sum->wrong, 0);
    kiln_close(ctx);
}

static int interrupt_at_go(void *user) {
    (void)user;
    return atomic_load(&sum->go) != 0;
}

static void *interrupt_later(void *user) {
    kiln_ctx *ctx = user;
    for (int k = 0; !stats_of(ctx).builds_elsewhere && k < 60000; k++) nap(1);
    atomic_store(&sum->go, 1);
    return NULL;
}

/* Who waits for another process may be interrupted. */
static void a_wait_for_another_builder_may_be_interrupted(void **state) {
    (void)state;
    pthread_t thread;
    begin();
    kiln_ctx *ctx = open_disk_with((kiln_config){.mode = KILN_MODE_SYNC, .interrupted = interrupt_at_go}, 1);
    kiln_ctx *holder = open_disk(KILN_MODE_SYNC, 0);
    kiln_digest d = digest_of_row(0);
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    assert_int_equal(kiln_stores_claim(&holder->stores, &d), KILN_CLAIM_OURS);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_later, ctx), 0);
    assert_int_equal(kiln_call(ctx, op_of(ctx, "test::r0"), ARGS(TEN(a)), &out, 1), KILN_E_INTERRUPTED);
    pthread_join(thread, NULL);
    atomic_store(&sum->go, 0);
    kiln_stores_unclaim(&holder->stores, &d);
    call_rk(ctx, 0, "compiled");
    kiln_tensor_release(a);
    kiln_close(holder);
    kiln_close(ctx);
}

/* -- pruning -------------------------------------------------------------------------------------------------------- */

static kiln_store *disk_of(kiln_ctx *ctx) {
    for (int k = 0; k < ctx->stores.n; k++)
        if (strcmp(ctx->stores.at[k]->name, "disk") == 0) return ctx->stores.at[k];
    fail();
    return NULL;
}

static kiln_status put_made(kiln_ctx *ctx, uint64_t k, size_t n) {
    kiln_digest d = {k, 99};
    file_bytes b = made_entry(&d, n);
    kiln_blob blob = {.entry = b.p, .nentry = b.n};
    kiln_status st = disk_of(ctx)->put(disk_of(ctx), &d, &blob);
    kiln_blob_fini(&blob);
    return st;
}

/* 1: found and whole; 0: not there; -1: anything else. */
static int get_made(kiln_ctx *ctx, uint64_t k) {
    kiln_digest d = {k, 99};
    kiln_blob b = {0};
    bool found;
    if (kiln_stores_get(&ctx->stores, disk_of(ctx), &d, &b, &found) != KILN_OK) return -1;
    int there = found ? ((const char *)b.says.image)[b.says.nimage - 1] == (char)(k & 0x7f) ? 1 : -1 : 0;
    kiln_blob_fini(&b);
    return there;
}

static uint64_t folder_size(void) {
    kiln_prune_report report;
    int fd = open(kernels_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST_OK(kiln_folder_prune(fd, UINT64_MAX, UINT64_MAX, &report));
    close(fd);
    return report.left_bytes;
}

enum { MADE = 4000, LIMIT = 100000 };

static kiln_ctx *open_small(void) {
    return open_disk_with((kiln_config){.mode = KILN_MODE_INTERP, .cache_size = LIMIT}, 0);
}

/* What was used last stays. */
static void entries_that_were_not_used_for_longest_go_first(void **state) {
    (void)state;
    char path[PATH_ROOM];
    const time_t now = time(NULL);
    begin();
    kiln_ctx *ctx = open_small();
    for (uint64_t k = 0; k < 20; k++) {
        const struct utimbuf age = {now - 1000000 + 1000 * (time_t)k, now - 1000000 + 1000 * (time_t)k};
        MUST_OK(put_made(ctx, k, MADE));
        entry_path(&(kiln_digest){k, 99}, path);
        assert_int_equal(utime(path, &age), 0);
    }
    assert_int_equal(get_made(ctx, 0), 1); /* used: it is the youngest now */
    assert_int_equal(stats_of(ctx).pruned, 0);
    for (uint64_t k = 20; stats_of(ctx).pruned == 0; k++) MUST_OK(put_made(ctx, k, MADE));
    uint64_t gone = stats_of(ctx).pruned;
    assert_in_range(gone, 1, 8);
    assert_true(folder_size() <= LIMIT * 9 / 10);
    assert_int_equal(get_made(ctx, 0), 1);
    for (uint64_t k = 1; k <= gone; k++) assert_int_equal(get_made(ctx, k), 0);
    assert_int_equal(get_made(ctx, gone + 1), 1);
    MUST_OK(put_made(ctx, 77, 2 * LIMIT)); /* larger than the whole folder may be */
    assert_true(folder_size() <= LIMIT);
    assert_int_equal(stats_of(ctx).store_errors, 0);
    kiln_close(ctx);
}

static void put_many(void *user) {
    int id = *(int *)user;
    kiln_ctx *ctx = open_small();
    wait_for_go();
    for (uint64_t k = 0; k < (SANITIZED ? 50 : 200); k++) {
        if (put_made(ctx, (uint64_t)id << 16 | k, MADE) != KILN_OK) atomic_fetch_add(&sum->wrong, 1);
        if (get_made(ctx, (uint64_t)(id ^ 1) << 16 | k) < 0) atomic_fetch_add(&sum->wrong, 1);
    }
    add_up(ctx);
    kiln_close(ctx);
}

/* What several processes remove at once is counted once. */
static void processes_may_prune_at_once(void **state) {
    (void)state;
    enum { N = 6 };
    begin();
    run_children(N, put_many);
    assert_all_well(__LINE__);
    assert_true(sum->pruned > 0);
    assert_int_equal(count_kernels(), sum->stored - sum->pruned);
    assert_int_equal(count_temps(), 0);
    assert_true(folder_size() <= N * LIMIT); /* each knows what it wrote itself since it counted */
    kiln_ctx *ctx = open_small();
    MUST_OK(put_made(ctx, 1, MADE));
    assert_true(folder_size() <= LIMIT);
    kiln_close(ctx);
}

/* -- a folder that is deleted ------------------------------------------------------------------------------------------ */

static void use_until_the_end(void *user) {
    int id = *(int *)user;
    kiln_ctx *ctx = open_disk(KILN_MODE_INTERP, 0);
    wait_for_go();
    for (uint64_t k = 0; atomic_load(&sum->go) == 1; k++) {
        uint64_t name = (k * 7 + (uint64_t)id) % 20;
        if (get_made(ctx, name) < 0) atomic_fetch_add(&sum->wrong, 1);
        if (put_made(ctx, name, MADE) != KILN_OK) atomic_fetch_add(&sum->elsewhere, 1);
        kiln_clear_error();
    }
    add_up(ctx);
    kiln_close(ctx);
}

static void the_folder_may_be_deleted_at_any_time(void **state) {
    (void)state;
    enum { N = 8 };
    pid_t child[N];
    int ids[N];
    begin();
    for (int k = 0; k < N; k++) {
        ids[k] = k;
        child[k] = start_child(use_until_the_end, &ids[k]);
    }
    atomic_store(&sum->go, 1);
    for (int round = 0; round < (SANITIZED ? 20 : 60); round++) {
        nap(5);
        remove_tree(round % 2 ? cache_path() : kernels_path());
    }
    atomic_store(&sum->go, 2);
    for (int k = 0; k < N; k++) end_child(child[k]);
    if (sum->corrupt || sum->wrong || sum->failures)
        fail_msg("corrupt %d, wrong %d", sum->corrupt, sum->wrong);
    assert_true(sum->errors <= 3 * N); /* A write is made twice; the folder may be deleted both times. */
    assert_true(sum->stored > 0);
    kiln_ctx *ctx = open_disk(KILN_MODE_INTERP, 0);
    MUST_OK(put_made(ctx, 3, MADE));
    assert_int_equal(get_made(ctx, 3), 1);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share_builds_in_sync_mode),
        cmocka_unit_test(processes_share_builds_in_tiered_mode),
        cmocka_unit_test(contexts_of_one_process_share_builds),
        cmocka_unit_test(a_claim_ends_with_its_holder),
        cmocka_unit_test(tiered_calls_do_not_wait_for_other_builders),
        cmocka_unit_test(a_stuck_builder_is_not_waited_for),
        cmocka_unit_test(a_fork_leaves_claims_to_the_parent),
        cmocka_unit_test(a_child_sees_its_parents_claims),
        cmocka_unit_test(claims_survive_a_race_to_open_the_folder),
        cmocka_unit_test(threads_share_the_folder),
        cmocka_unit_test(forks_may_come_at_any_time),
        cmocka_unit_test(a_wait_for_another_builder_may_be_interrupted),
        cmocka_unit_test(entries_that_were_not_used_for_longest_go_first),
        cmocka_unit_test(processes_may_prune_at_once),
        cmocka_unit_test(the_folder_may_be_deleted_at_any_time),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
