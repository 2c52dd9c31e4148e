/* base.h - what every layer stands on: errors, memory, text, dtypes.
 *
 * Knows no tensors, operators or IR.  Contracts:
 *   errors   set the message where the fault is found (KILN_FAIL), add context at module borders
 *            (kiln_note), never overwrite, never touch it on success.
 *   memory   all heap goes through kiln_alloc, so a test can make the n-th allocation fail.
 *   arenas   own everything made during one compile or one registry build; freed whole. */
#ifndef KILN_BASE_H
#define KILN_BASE_H
#include <fenv.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kiln/kiln.h"

/* Of functions that most calls go through: compilers and linkers lay them side by side.  Scattered, they and the caller's
 * own code drive each other out of the processor's instruction cache.  And of those that no right call needs. */
#define KILN_HOT __attribute__((hot))
#define KILN_COLD __attribute__((cold))

/* -- errors ----------------------------------------------------------------------------------- */

#define KILN_FAIL(st, ...) (kiln_set_error(__FILE__, __LINE__, (st), __VA_ARGS__), (st))
#define KILN_TRY(expr)                          \
    do {                                        \
        kiln_status try_st_ = (expr);           \
        if (try_st_ != KILN_OK) return try_st_; \
    } while (0)
#define KILN_NOMEM() KILN_FAIL(KILN_E_NOMEM, "out of memory")

/* For pointers that the caller of a public function must give; for an array of n items. */
#define KILN_NEED(...) KILN_NEED_IN(__func__, __VA_ARGS__)
#define KILN_NEED_IN(function, ...)                                                             \
    do {                                                                                        \
        const void *const need_[] = {__VA_ARGS__};                                              \
        for (size_t k_ = 0; k_ < sizeof need_ / sizeof *need_; k_++)                            \
            if (!need_[k_]) return kiln_set_null_error(function, #__VA_ARGS__, k_), KILN_E_ARG; \
    } while (0)
#define KILN_NEED_ITEMS(items, n) \
    if (!(items) && (n))          \
    return KILN_FAIL(KILN_E_ARG, "%s: " #items " is NULL, and there should be %zu", __func__, (size_t)(n))

/* Broken invariant: aborts in debug builds' tests only through the returned status. */
#define KILN_BUG(...) KILN_FAIL(KILN_E_BUG, __VA_ARGS__)

void kiln_set_error(const char *file, int line, kiln_status st, const char *fmt, ...) KILN_COLD
    __attribute__((format(printf, 4, 5)));

/* "function: NAME is NULL", for the k-th of names that have ", " between them. */
void kiln_set_null_error(const char *function, const char *names, size_t k) KILN_COLD;

/* Puts "context: " before the current message if st is a failure; returns st. */
kiln_status kiln_note(kiln_status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Like kiln_note, but appends the text directly to the current message, without ": ". */
kiln_status kiln_note_after(kiln_status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void kiln_clear_error(void);
bool kiln_is_quiet(void); /* whether kiln_quiet is on in this thread: nobody reads what a message would say */

/* A text that is read, for messages that say where: "name:LINE:COL: problem". */
typedef struct kiln_source {
    const char *name, *start, *end;
    int lines_before; /* of which start is not the first */
} kiln_source;

#define KILN_WHERE "%s:%d:%d" /* how a place of a text is written: name, line, column */
#define KILN_FAIL_AT(text, where, st, ...) (kiln_set_error_at((text), (where), (st), __VA_ARGS__), (st))
/* The same where line and column are known. */
#define KILN_FAIL_LINE(st, name, line, col, ...) \
    (kiln_set_error_line((name), (line), (col), (st), __VA_ARGS__), (st))
/* "expected WHAT, found" the character at `where`. */
#define KILN_FAIL_EXPECTED(text, where, what) (kiln_set_expected((text), (where), (what)), KILN_E_PARSE)

void kiln_set_error_at(const kiln_source *text, const char *where, kiln_status st, const char *fmt,
                       ...) KILN_COLD __attribute__((format(printf, 4, 5)));
void kiln_set_error_line(const char *name, int line, int col, kiln_status st, const char *fmt, ...) KILN_COLD
    __attribute__((format(printf, 5, 6)));
/* Puts the line of the text that the current message tells of, with a mark below the column, after the message. */
kiln_status kiln_note_line(kiln_status st, const char *name, const char *text, size_t nbytes);
void kiln_set_expected(const kiln_source *text, const char *where, const char *what) KILN_COLD;

/* -- memory ----------------------------------------------------------------------------------- */

void *kiln_alloc(size_t nbytes); /* uninitialised; NULL on failure; nbytes 0 gives a unique pointer */
void *kiln_calloc(size_t count, size_t nbytes);
void *kiln_realloc(void *p, size_t nbytes); /* p stays valid on failure */
void *kiln_alloc_aligned(size_t align, size_t nbytes);
/* Zero-filled, for what one thread writes often: no cache line of it, nor the one fetched with it, is another's. */
void *kiln_calloc_apart(size_t nbytes);
void kiln_free(void *p);
char *kiln_strdup(const char *s);

/* Tests only: the n-th allocation from now (1 = the next) and every later one fails; 0 turns it off.
 * Returns how many allocations were made since the last call. */
long kiln_alloc_fail_after(long n);
/* Tests only: the most bytes that were taken at once, by all threads, since the last reset. */
void kiln_alloc_peak_reset(void);
size_t kiln_alloc_peak(void);

typedef struct kiln_arena {
    struct kiln_arena_chunk *head; /* newest chunk; each links to the one before */
    size_t nbytes;                 /* total of all chunks */
} kiln_arena;

void kiln_arena_init(kiln_arena *a);                  /* allocates nothing */
void kiln_arena_free(kiln_arena *a);                  /* frees all; the arena is as after init */
void *kiln_arena_alloc(kiln_arena *a, size_t nbytes); /* 16-byte aligned, zero-filled; NULL on failure */
/* An array of n items of nbytes with room for one more: `items` itself, or a copy where n is a power of two, at which
 * an array that was grown so is full. */
void *kiln_arena_grow(kiln_arena *a, void *items, size_t n, size_t nbytes);
char *kiln_arena_strndup(kiln_arena *a, const char *s, size_t n); /* NUL-terminated copy */

/* -- floating point ------------------------------------------------------------------------------ */

/* Sets the default environment, so that what is made once and used by all (rows, constants, source text) does not
 * depend on the rounding mode of whoever came first.  fesetenv(own) goes back. */
void kiln_env_default(fenv_t *own);

/* -- text ---------------------------------------------------------------------------------------- */

/* A growing string.  A failed allocation sets `failed` and later writes do nothing, so callers check once. */
typedef struct kiln_sb {
    char *p; /* NUL-terminated once anything was written */
    size_t len, cap;
    bool failed;
} kiln_sb;

void kiln_sb_init(kiln_sb *s);
void kiln_sb_init_message(
    kiln_sb *s); /* for a part of an error's text: takes nothing where the thread is quiet */
void kiln_sb_fini(kiln_sb *s);
void kiln_sb_putc(kiln_sb *s, char c);
void kiln_sb_puts(kiln_sb *s, const char *text);
void kiln_sb_putn(kiln_sb *s, const char *text, size_t n);
void kiln_sb_decimal(kiln_sb *s, uint64_t v); /* as %llu, in a tenth of the time */
void kiln_sb_printf(kiln_sb *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void kiln_sb_vprintf(kiln_sb *s, const char *fmt, va_list ap);
void kiln_sb_f64(kiln_sb *s, double v); /* shortest text that reads back to the same bits; inf, -inf, nan */
void kiln_sb_f32(kiln_sb *s, float v);  /* the same for a float */
/* Reads all of text[0..n) as one number, to nearest.  Like kiln_sb_f64 it uses '.', whatever the process's locale. */
bool kiln_f64_parse(const char *text, size_t n, double *out);

/* Ends building: hands the text over (free with kiln_free) or fails with KILN_E_NOMEM. */
kiln_status kiln_sb_take(kiln_sb *s, char **out);
/* The same after `st`, which is returned if it is a failure. */
kiln_status kiln_sb_end(kiln_sb *s, kiln_status st, char **out);
/* Fails with a text begun by kiln_sb_init_message, and frees it. */
#define KILN_FAIL_TEXT(st, s)                                                                             \
    (kiln_set_error(__FILE__, __LINE__, (st), "%s", (s)->p ? (s)->p : "no memory to say what was wrong"), \
     kiln_sb_fini(s), (st))

bool kiln_str_eq(const char *a, const char *b); /* NULL equals only NULL */
/* Levenshtein distance, or limit + 1 if it is more than limit.  Texts that still have 96 bytes or more
 * without their common start and end count as that far apart. */
int kiln_edit_distance(const char *a, const char *b, int limit);
/* How badly `name` misspells `meant`.  0: only capitals differ.  1: two neighbouring letters have changed places.  Else: the
 * edit distance.  -1: too different to suggest.  The limit depends on the longer name: no edit for 1 or 2 letters, one edit
 * for 3 or 4, two for more. */
int kiln_misspelling(const char *name, const char *meant);

/* -- time ----------------------------------------------------------------------------------------- */

int64_t kiln_clock_ns(void); /* monotonic */

/* -- hashing -------------------------------------------------------------------------------------- */

typedef struct kiln_digest {
    uint64_t lo, hi;
} kiln_digest;

kiln_digest kiln_hash128(const void *p, size_t n);
uint64_t kiln_hash64(const void *p, size_t n);
/* Differs from process to process: for tables of what a text names, so that no text can be written whose names
 * all meet in one place. */
uint64_t kiln_hash64_keyed(const void *p, size_t n);

/* -- dtypes ----------------------------------------------------------------------------------- */

/* Whether there is a dtype of that name, and which.  Unlike kiln_dtype_parse this leaves the last error alone. */
bool kiln_dtype_named(const char *name, kiln_dtype *out);

typedef enum kiln_dkind {
    KILN_KIND_BOOL,
    KILN_KIND_INT,
    KILN_KIND_FLOAT,
    KILN_KIND_COMPLEX
} kiln_dkind; /* ORDER DTYPE */

extern const uint8_t kiln_elem_bytes[KILN_DTYPE_COUNT]; /* kiln_dtype_size, for dtypes known to be one */
kiln_dkind kiln_dtype_kind(kiln_dtype t);
const char *kiln_dtype_torch_name(kiln_dtype t); /* "float32" */
bool kiln_dtype_is_int(kiln_dtype t);            /* not bool */
bool kiln_dtype_is_float(kiln_dtype t);
bool kiln_dtype_is_complex(kiln_dtype t);
bool kiln_dtype_is_signed(kiln_dtype t);
kiln_dtype kiln_dtype_real(kiln_dtype t); /* of the parts of a complex type; the rest unchanged */
/* torch's toComplexType: f32 and bf16 -> c64, f64 -> c128; KILN_DTYPE_COUNT for f16 and what is no float. */
kiln_dtype kiln_dtype_complex(kiln_dtype t);
kiln_dtype kiln_dtype_compute(kiln_dtype t); /* f16, bf16 -> f32; the rest unchanged */
double kiln_dtype_largest(kiln_dtype t);     /* the largest finite number of a floating type */
/* Whether PyTorch converts a number to t without complaint: infinities and NaN fit floating types only, and
 * an unsigned type takes negative integers whose size fits it.  A float is f, any other number i. */
bool kiln_dtype_fits(kiln_dtype t, bool is_float, bool is_bool, int64_t i, double f);
bool kiln_dtype_fits_uint(kiln_dtype t, uint64_t u); /* the same of an integer from 2^63 up */
static inline bool kiln_is_number(const kiln_value *v) {
    return (v->kind >= KILN_BOOL_V && v->kind <= KILN_COMPLEX_V) || v->kind == KILN_UINT_V;
}

/* A set of dtypes, one bit each. */
typedef uint32_t kiln_dtypes;
#define KILN_DT(t) (1u << (t))
#define KILN_DT_ALL ((1u << KILN_DTYPE_COUNT) - 1)

/* f16 and bf16 <-> f32, round to nearest even, exactly as the vector code does. */
float kiln_half_to_f32(uint16_t h);
uint16_t kiln_f32_to_half(float f);
float kiln_bf16_to_f32(uint16_t h);
uint16_t kiln_f32_to_bf16(float f);
/* As the vector code converts: a u64 from 2^63 up is the i64 of its bits, and what does not fit the least i64. */
int64_t kiln_real_to_int(double f, kiln_dtype t);

/* -- files ------------------------------------------------------------------------------------ */

/* Reads a whole file into heap text with a NUL after it. */
kiln_status kiln_file_read(const char *path, char **out, size_t *out_len);
/* Writes path through a temporary file in the same folder and a rename: readers see all or nothing. */
kiln_status kiln_file_write_atomic(const char *path, const void *data, size_t n);
/* Whether a file of n bytes may be written: past RLIMIT_FSIZE the write would raise SIGXFSZ in the host. */
bool kiln_fsize_allows(size_t n);
kiln_status kiln_mkdirs(const char *path); /* mode 0700; existing is fine */
/* A new folder under TMPDIR or /tmp; *out: heap text, whether it could be made or not. */
kiln_status kiln_tmpdir_new(char **out, bool *made);
void kiln_dir_remove(const char *path); /* with the files in it, but for hidden ones */

#endif
