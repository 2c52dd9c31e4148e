/* one_entry.h - what tests of bad entries share: the entry of one kernel, which they spoil, and contexts that ask for it.
 *
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_ONE_ENTRY_H
#define KILN_TEST_ONE_ENTRY_H
#include "store_cases.h"

enum { STRANGER = 12345 }; /* a user that is neither this one nor root */

static inline bool is_root(void) { return geteuid() == 0; }

/* r0's entry, as it was built. */
static kiln_digest digest;
static char path[PATH_ROOM];
static file_bytes good;

static inline int make_one_entry(void **state) {
    if (call_setup(state) != 0) return -1;
    fill_cache(1);
    digest = digest_of_row(0);
    entry_path(&digest, path);
    good = read_whole(path);
    return 0;
}

static inline int drop_one_entry(void **state) {
    free(good.p);
    return call_teardown(state);
}

static inline void put_back(void) {
    make_cache();
    write_whole(path, good.p, good.n);
}

/* What the store counted. */
typedef struct want {
    uint64_t hits, corrupt, stale, foreign, unsigned_, load, selftest, errors;
} want;

static inline void check_counts(kiln_ctx *ctx, const want *w, int line) {
    kiln_stats s = stats_of(ctx);
    const want now = {s.disk_hits,        s.corrupt_entries, s.stale_entries,     s.foreign_entries,
                      s.unsigned_entries, s.load_failures,   s.selftest_failures, s.store_errors};
    if (memcmp(&now, w, sizeof now) != 0)
        fail_msg("line %d: hits %d corrupt %d stale %d foreign %d unsigned %d load %d selftest %d errors %d",
                 line, (int)now.hits, (int)now.corrupt, (int)now.stale, (int)now.foreign, (int)now.unsigned_,
                 (int)now.load, (int)now.selftest, (int)now.errors);
}

/* A context that builds nothing calls r0; then the file must be there or gone. */
static inline void ask_frozen(want w, bool stays, int line) {
    struct stat info;
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, 1);
    call_rk(ctx, 0, w.hits ? "compiled" : "interp");
    check_counts(ctx, &w, line);
    kiln_close(ctx);
    if ((lstat(path, &info) == 0) != stays)
        fail_msg("line %d: the entry is %s", line, stays ? "gone" : "there");
}
#define ASK_FROZEN(stays, ...) ask_frozen((want){__VA_ARGS__}, (stays), __LINE__)

/* A context that may build calls r0: it is rebuilt, and the next context finds it. */
static inline void rebuild(want w, int line) {
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1);
    call_rk(ctx, 0, "compiled");
    check_counts(ctx, &w, line);
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_int_equal(stats_of(ctx).stored, 1);
    kiln_close(ctx);
    ask_frozen((want){.hits = 1}, true, line);
}
#define REBUILD(...) rebuild((want){__VA_ARGS__}, __LINE__)

static inline size_t entry_size(void) { return kiln_stored_nbytes(good.p, good.n); }
#endif
