/* call_cases.h - contexts, tensors, counters and misbehaving compilers for tests that call operators.
 *
 * A program of such tests has a scratch folder of its own, and its environment says nothing to Kiln.
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_CALL_CASES_H
#define KILN_TEST_CALL_CASES_H
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kiln/kiln.h"
#include "sanitized.h"

/* -- scratch folder and environment ------------------------------------------------------------------- */

static char scratch[] = "/tmp/kiln-test-call-XXXXXX";

static inline int call_setup(void **state) {
    (void)state;
    static const char *const variables[] = {"KILN_MODE",      "KILN_CC",       "KILN_CACHE_DIR",
                                            "XDG_CACHE_HOME", "KILN_DUMP_DIR", "TMPDIR",
                                            "KILN_PACK",      "KILN_KEY_FILE", "KILN_REDIS_URL"};
    for (size_t k = 0; k < sizeof variables / sizeof *variables; k++) unsetenv(variables[k]);
    setenv("KILN_CACHE", "memory", 1); /* tests count compiles; those of the cache folder ask for it */
    memset(scratch + strlen(scratch) - 6, 'X', 6); /* a program may run several groups of tests */
    return mkdtemp(scratch) && setenv("HOME", scratch, 1) == 0 ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline int call_teardown(void **state) {
    (void)state;
    return nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* scratch/name; the text is static. */
static inline const char *in_scratch(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static inline int count_entries(const char *path, const char *suffix) {
    int n = 0;
    DIR *d = opendir(path);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t a = strlen(e->d_name), b = strlen(suffix);
        if (e->d_name[0] != '.' && a >= b && strcmp(e->d_name + a - b, suffix) == 0) n++;
    }
    closedir(d);
    return n;
}

static inline int count_fds(void) { return count_entries("/proc/self/fd", ""); }

static inline void assert_no_children(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    assert_int_equal(errno, ECHILD);
}

/* A shell script of that text and name in the scratch folder; the path is static. */
static inline const char *script(const char *name, const char *text) {
    const char *path = in_scratch(name);
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

/* Lines of the file `runs`: scripts write one each time they run. */
static inline long count_runs(void) {
    long n = 0;
    FILE *f = fopen(in_scratch("runs"), "r");
    for (int c; f && (c = fgetc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    return n;
}

/* Start of a compiler that may only be used as a driver: asked for its parts, it fails. */
#define DRIVER_ONLY "case \" $* \" in *' -### '*|*-print-prog-name*) exit 1;; esac\n"

/* -- contexts ----------------------------------------------------------------------------------------- */

static inline void must_be_ok(kiln_status st, const char *what, int line) {
    if (st != KILN_OK) fail_msg("line %d: %s: %s: %s", line, what, kiln_status_name(st), kiln_last_error());
}
#define MUST_OK(expr) must_be_ok((expr), #expr, __LINE__)

static inline kiln_ctx *open_with(kiln_config config) {
    kiln_ctx *ctx = NULL;
    config.size = sizeof config;
    MUST_OK(kiln_open(&config, &ctx));
    return ctx;
}

static inline kiln_ctx *open_mode(kiln_mode mode) { return open_with((kiln_config){.mode = mode}); }

static inline const kiln_op *op_of(kiln_ctx *ctx, const char *name) {
    const kiln_op *op = NULL;
    kiln_status st = kiln_op_find(ctx, name, &op);
    if (st != KILN_OK) fail_msg("%s: %s", name, kiln_last_error());
    return op;
}

static inline kiln_stats stats_of(kiln_ctx *ctx) {
    kiln_stats s;
    kiln_stats_get(ctx, &s, sizeof s);
    return s;
}

static inline uint64_t hits_of(const kiln_stats *s) { return s->table_hits + s->slot_hits; }

/* -- tensors ------------------------------------------------------------------------------------------ */

#define SIZES(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define STRIDES(...) \
    (const int64_t[]) { __VA_ARGS__ }

static inline kiln_tensor *new_tensor(kiln_dtype dtype, int rank, const int64_t *sizes,
                                      const int64_t *strides) {
    kiln_tensor *t = NULL;
    MUST_OK(kiln_tensor_new(dtype, rank, sizes, strides, &t));
    return t;
}

/* A row-major tensor that holds a copy of `values`. */
static inline kiln_tensor *tensor_of(const void *values, kiln_dtype dtype, int rank, const int64_t *sizes) {
    kiln_tensor *t = new_tensor(dtype, rank, sizes, NULL);
    memcpy(kiln_tensor_data(t), values, (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(dtype));
    return t;
}
#define F32(shape, ...) tensor_of((const float[]){__VA_ARGS__}, KILN_F32, shape)
#define F64(shape, ...) tensor_of((const double[]){__VA_ARGS__}, KILN_F64, shape)
#define I32(shape, ...) tensor_of((const int32_t[]){__VA_ARGS__}, KILN_I32, shape)
#define I64(shape, ...) tensor_of((const int64_t[]){__VA_ARGS__}, KILN_I64, shape)
#define BOOL(shape, ...) tensor_of((const uint8_t[]){__VA_ARGS__}, KILN_BOOL, shape)

static inline void assert_shape(const kiln_tensor *t, kiln_dtype dtype, int rank, const int64_t *sizes) {
    assert_string_equal(kiln_dtype_name(kiln_tensor_dtype(t)), kiln_dtype_name(dtype));
    assert_int_equal(kiln_tensor_rank(t), rank);
    if (rank) assert_memory_equal(kiln_tensor_sizes(t), sizes, (size_t)rank * sizeof *sizes);
}

/* t is row-major and has exactly these bits. */
static inline void assert_holds(const kiln_tensor *t, const void *values, kiln_dtype dtype, int rank,
                                const int64_t *sizes) {
    int64_t next = 1;
    assert_shape(t, dtype, rank, sizes);
    for (int d = rank - 1; d >= 0; d--) {
        if (sizes[d] > 1) assert_int_equal(kiln_tensor_strides(t)[d], next);
        next *= sizes[d] > 1 ? sizes[d] : 1;
    }
    assert_memory_equal(kiln_tensor_data(t), values, (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(dtype));
}
#define HOLDS_F32(t, shape, ...) assert_holds((t), (const float[]){__VA_ARGS__}, KILN_F32, shape)
#define HOLDS_I32(t, shape, ...) assert_holds((t), (const int32_t[]){__VA_ARGS__}, KILN_I32, shape)
#define HOLDS_I64(t, shape, ...) assert_holds((t), (const int64_t[]){__VA_ARGS__}, KILN_I64, shape)
#define HOLDS_BOOL(t, shape, ...) assert_holds((t), (const uint8_t[]){__VA_ARGS__}, KILN_BOOL, shape)

/* -- calls -------------------------------------------------------------------------------------------- */

#define TEN(t) kiln_v_tensor(t)
#define INT(x) kiln_v_int(x)
#define FLT(x) kiln_v_float(x)
#define NAMED(name, v) kiln_v_named(name, v)
#define ARGS(...) (const kiln_value[]){__VA_ARGS__}, sizeof((kiln_value[]){__VA_ARGS__}) / sizeof(kiln_value)

/* A call that must succeed and has one result. */
static inline kiln_tensor *call1(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    kiln_tensor *out = NULL;
    kiln_status st = kiln_call(ctx, op_of(ctx, name), args, nargs, &out, 1);
    if (st != KILN_OK) fail_msg("%s: %s", name, kiln_last_error());
    return out;
}

static inline void drop_args(const kiln_value *args, size_t nargs) {
    for (size_t k = 0; k < nargs; k++)
        if (args[k].kind == KILN_TENSOR) kiln_tensor_release(args[k].u.tensor);
}

/* add.Tensor of two f32 vectors; right or the test fails.  The smallest whole call. */
static inline void check_add(kiln_ctx *ctx) {
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(3), 10, 20, 30);
    kiln_tensor *sum = call1(ctx, "add.Tensor", ARGS(TEN(a), TEN(b), NAMED("alpha", INT(2))));
    HOLDS_F32(sum, SIZES(3), 21, 42, 63);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
    kiln_tensor_release(sum);
}

/* -- both modes, for a whole program ------------------------------------------------------------------ */

static kiln_ctx *contexts[2]; /* interpreted, compiled */

static inline const char *tier_of(const kiln_ctx *ctx) { return ctx == contexts[0] ? "interp" : "compiled"; }

static inline int open_contexts(void **state) {
    if (call_setup(state) != 0) return -1;
    contexts[0] = open_mode(KILN_MODE_INTERP);
    contexts[1] = open_mode(KILN_MODE_SYNC);
    return 0;
}

static inline int close_contexts(void **state) {
    kiln_close(contexts[0]);
    kiln_close(contexts[1]);
    return call_teardown(state);
}

/* Once for each context. */
#define BOTH(ctx)                           \
    for (int tier_ = 0; tier_ < 2; tier_++) \
        for (kiln_ctx *ctx = contexts[tier_]; ctx; ctx = NULL)

static inline void assert_error_names(const char *part) {
    if (!strstr(kiln_last_error(), part)) fail_msg("'%s' lacks '%s'", kiln_last_error(), part);
}
#endif
