/* kiln.h - Kiln's whole C interface.
 *
 * Kiln turns a tensor operator call into machine code once per class of calls.
 *
 *   kiln_ctx *ctx;                       kiln_open(NULL, &ctx);
 *   const kiln_op *add;                  kiln_op_find(ctx, "aten::add.Tensor", &add);
 *   kiln_tensor *out;                    kiln_call(ctx, add, args, 3, &out, 1);
 *
 * Rules that hold everywhere:
 *   - A function that can fail returns a kiln_status; KILN_OK is 0.  kiln_last_error() then explains,
 *     naming the operator and the argument.  It is thread-local and valid until the thread's next Kiln call.
 *   - `T **out` parameters are written on success only and are then the caller's to release.
 *   - Inputs are borrowed for the duration of the call.
 *   - A pointer may be NULL only where it is said here, and arrays of no items may be.  Where it may not, a function
 *     that returns a kiln_status answers KILN_E_ARG, and others do nothing or answer 0 or NULL (KILN_DTYPE_COUNT, if
 *     they answer a dtype).  A NULL inside a kiln_value is KILN_E_TYPE.
 *   - Any function may be called from any thread, except that one kiln_tensor's header must not be
 *     changed while another thread uses it.
 *   - A call needs up to 128 KiB of stack.
 *   - The library never exits, aborts, prints, or installs signal handlers.
 * Graphs of calls have a header of their own, kiln_graph.h. */
#ifndef KILN_H
#define KILN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#define KILN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KILN_API
#define KILN_MUST_CHECK
#endif

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0

/* "0.1.0".  Static storage. */
KILN_API const char *kiln_version(void);

/* -- statuses and errors ------------------------------------------------------------------- */

typedef enum kiln_status {
#define S(name, value, text) KILN_##name = value,
#include "kiln/status.def"
#undef S
} kiln_status;

KILN_API const char *kiln_status_name(kiln_status st); /* "KILN_E_PARSE"; static storage */
KILN_API const char *kiln_status_text(kiln_status st); /* one line of meaning; static storage */
KILN_API const char *kiln_last_error(void);            /* this thread's last failure, or "" */

/* For hosts that ask often whether Kiln serves a call: on (not 0), failures of this thread's calls keep their status
 * only.  No text is made and no memory taken for one, and kiln_last_error() says just that.  Off at first in
 * every thread; returns what it was. */
KILN_API int kiln_quiet(int on);

/* -- element types and limits --------------------------------------------------------------- */

typedef enum kiln_dtype {
#define D(NAME, value, name, bytes, kind, torch) KILN_##NAME = value,
#include "kiln/dtype.def"
#undef D
    KILN_DTYPE_COUNT
} kiln_dtype;

KILN_API const char *kiln_dtype_name(kiln_dtype t); /* "f32" */
KILN_API size_t kiln_dtype_size(kiln_dtype t);      /* bytes per element */
KILN_API kiln_status kiln_dtype_parse(const char *name,
                                      kiln_dtype *out) KILN_MUST_CHECK; /* "f32" or "float32" */
KILN_API int kiln_dtype_is_limited(kiln_dtype t); /* 1: u16, u32, u64, which promote with floats only */
/* torch.promote_types; KILN_DTYPE_COUNT where PyTorch refuses (a limited type with anything but floats). */
KILN_API kiln_dtype kiln_dtype_promote(kiln_dtype a, kiln_dtype b);

#define KILN_MAX_RANK 64 /* dimensions of a tensor */
#define KILN_MAX_ARGS 64 /* arguments of an operator */
#define KILN_MAX_RETS 16 /* results of an operator */

/* -- tensors ------------------------------------------------------------------------------------ */

/* A reference-counted view of memory: dtype, sizes, strides (in elements), data.  Tensors may
 * outlive the context that made them. */
typedef struct kiln_tensor kiln_tensor;

/* A new tensor that owns its (uninitialised, 64-byte aligned) memory.  strides may be NULL for
 * row-major; given strides must not be negative.  Limits: rank <= KILN_MAX_RANK, byte size < 2^62. */
KILN_API kiln_status kiln_tensor_new(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                                     kiln_tensor **out) KILN_MUST_CHECK;

/* A tensor over memory of the caller's.  data addresses element [0,...,0]; strides may be NULL for
 * row-major and may be zero or negative.  When the last reference goes, deleter(owner) runs if not NULL. */
KILN_API kiln_status kiln_tensor_wrap(void *data, kiln_dtype dtype, int rank, const int64_t *sizes,
                                      const int64_t *strides, void (*deleter)(void *owner), void *owner,
                                      kiln_tensor **out) KILN_MUST_CHECK;

/* The same without allocating, for one call or a few: *out is made in `header`, storage of the caller's, and
 * reads sizes and strides where they are (strides may be NULL).  header, sizes and strides must stay as they are
 * until every reference is released, including those that in-place and out= calls return; releasing frees nothing.
 * how: KILN_BORROW_ flags, or 0.  Such a tensor cannot be resized or exported.  This is the way
 * to call with arrays of another library: borrow each on the stack, kiln_call, done. */
enum {
    KILN_BORROW_READONLY = 1, /* elements may not be written */
    KILN_BORROW_NUMBER = 2    /* one without dimensions stands for a number, as kiln_tensor_number's do */
};
typedef struct kiln_tensor_header {
    uint64_t reserved[12 + KILN_MAX_RANK];
} kiln_tensor_header;
KILN_API kiln_status kiln_tensor_borrow(kiln_tensor_header *header, void *data, kiln_dtype dtype, int rank,
                                        const int64_t *sizes, const int64_t *strides, int how,
                                        kiln_tensor **out) KILN_MUST_CHECK;

KILN_API kiln_tensor *kiln_tensor_retain(kiln_tensor *t); /* returns t */
KILN_API void kiln_tensor_release(kiln_tensor *t);        /* NULL is fine */
KILN_API kiln_dtype kiln_tensor_dtype(const kiln_tensor *t);
KILN_API int kiln_tensor_rank(const kiln_tensor *t);
KILN_API const int64_t *kiln_tensor_sizes(const kiln_tensor *t);
KILN_API const int64_t *kiln_tensor_strides(const kiln_tensor *t); /* in elements */
KILN_API int64_t kiln_tensor_nelem(const kiln_tensor *t);
KILN_API void *kiln_tensor_data(const kiln_tensor *t);

/* DLPack (version 1.x structs, declared by dlpack.h).  Import takes ownership of `managed`
 * (a DLManagedTensorVersioned *) on success; export returns one that holds a reference. */
KILN_API kiln_status kiln_tensor_from_dlpack(void *managed, kiln_tensor **out) KILN_MUST_CHECK;
KILN_API kiln_status kiln_tensor_to_dlpack(kiln_tensor *t, void **out_managed) KILN_MUST_CHECK;

/* -- argument values ------------------------------------------------------------------------------ */

typedef enum kiln_kind {
    KILN_NONE,       /* an absent optional */
    KILN_TENSOR,     /* u.tensor, borrowed */
    KILN_BOOL_V,     /* u.i: 0 or 1 */
    KILN_INT_V,      /* u.i */
    KILN_FLOAT_V,    /* u.f */
    KILN_COMPLEX_V,  /* u.c */
    KILN_STR_V,      /* u.s, NUL-terminated, borrowed */
    KILN_DTYPE_V,    /* u.i holds a kiln_dtype */
    KILN_LIST_V,     /* u.list, n items, borrowed */
    KILN_UINT_V,     /* u.i holds the bits of a number from 2^63 up, to 2^64 - 1; make it with kiln_v_uint */
    KILN_GENERATOR_V /* u.generator: a source of random numbers, the host's, borrowed; no operator draws yet */
} kiln_kind;

/* Kinds that choose an overload (kiln_op_choose_among) where a binding has yet to make values of its arguments; no
 * call takes them. */
enum {
    KILN_NUMBER_V = 16, /* a number that is a tensor without dimensions as well, as NumPy's scalars are */
    KILN_OBJECT_V       /* neither tensor, number, list nor text; u.s: what messages call it */
};

/* One argument.  name: NULL for positional, else the schema's argument name. */
typedef struct kiln_value {
    uint32_t kind; /* kiln_kind */
    uint32_t n;    /* items of a list, else 0 */
    union {
        kiln_tensor *tensor;
        int64_t i;
        double f;
        struct {
            double re, im;
        } c;
        const char *s;
        const struct kiln_value *list;
        void *generator;
    } u;
    const char *name;
} kiln_value;

static inline kiln_value kiln_v_none(void) {
    kiln_value v = {KILN_NONE, 0, {0}, 0};
    return v;
}
static inline kiln_value kiln_v_tensor(kiln_tensor *t) {
    kiln_value v = {KILN_TENSOR, 0, {0}, 0};
    v.u.tensor = t;
    return v;
}
static inline kiln_value kiln_v_bool(int b) {
    kiln_value v = {KILN_BOOL_V, 0, {0}, 0};
    v.u.i = b != 0;
    return v;
}
static inline kiln_value kiln_v_int(int64_t i) {
    kiln_value v = {KILN_INT_V, 0, {0}, 0};
    v.u.i = i;
    return v;
}
static inline kiln_value kiln_v_uint(uint64_t u) { /* an int below 2^63 */
    kiln_value v = {KILN_INT_V, 0, {0}, 0};
    if (u >> 63) v.kind = KILN_UINT_V;
    v.u.i = (int64_t)u;
    return v;
}
static inline kiln_value kiln_v_float(double f) {
    kiln_value v = {KILN_FLOAT_V, 0, {0}, 0};
    v.u.f = f;
    return v;
}
static inline kiln_value kiln_v_complex(double re, double im) {
    kiln_value v = {KILN_COMPLEX_V, 0, {0}, 0};
    v.u.c.re = re;
    v.u.c.im = im;
    return v;
}
static inline kiln_value kiln_v_str(const char *s) {
    kiln_value v = {KILN_STR_V, 0, {0}, 0};
    v.u.s = s;
    return v;
}
static inline kiln_value kiln_v_dtype(kiln_dtype t) {
    kiln_value v = {KILN_DTYPE_V, 0, {0}, 0};
    v.u.i = t;
    return v;
}
static inline kiln_value kiln_v_list(const kiln_value *items, uint32_t n) {
    kiln_value v = {KILN_LIST_V, 0, {0}, 0};
    v.u.list = items;
    v.n = n;
    return v;
}
static inline kiln_value kiln_v_generator(void *generator) {
    kiln_value v = {KILN_GENERATOR_V, 0, {0}, 0};
    v.u.generator = generator;
    return v;
}
static inline kiln_value kiln_v_named(const char *name, kiln_value v) {
    v.name = name;
    return v;
}

/* -- contexts --------------------------------------------------------------------------------------- */

typedef struct kiln_ctx kiln_ctx;
typedef struct kiln_op kiln_op;

typedef enum kiln_mode {
    KILN_MODE_DEFAULT = 0, /* KILN_MODE from the environment, else tiered */
    KILN_MODE_SYNC = 1,    /* compile on the first call of a class, before it returns */
    KILN_MODE_INTERP = 2,  /* never compile, unless kiln_prepare asks for it */
    KILN_MODE_TIERED = 3,  /* interpret at first; compile in the background what is called often enough */
    KILN_MODE_FROZEN = 4 /* never compile, not even for kiln_prepare; interpret and report what is missing */
} kiln_mode;

/* level: 0 error, 1 warning, 2 info, 3 debug.  text is valid during the call only.  May be called from any thread. */
typedef void (*kiln_log_fn)(void *user, int level, const char *topic, const char *text);

/* Runs body(arg, 0) to body(arg, n - 1), each once, in any order and on any threads, and returns when all have
 * returned. */
typedef void (*kiln_parallel_fn)(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg);

/* Whether a thread that waits for a compiler is to wait no longer, as when its user pressed Ctrl-C.  Asked on that thread,
 * before it begins and about 50 times a second.  Not 0: the compilers it started are killed and its call of Kiln fails with
 * KILN_E_INTERRUPTED, as if it had not been made; the next one compiles.  Waits that no caller is in are not asked about.
 * Must not call Kiln. */
typedef int (*kiln_interrupted_fn)(void *user);

/* Memory for the elements of a new result: nbytes (never 0) aligned to 64 bytes, or NULL if there is none, which is
 * KILN_E_NOMEM to the caller.  The other takes it back, with the same nbytes, when the result's last reference goes;
 * that may be after kiln_close.  Both may be called from any thread, and must not call Kiln. */
typedef void *(*kiln_alloc_fn)(void *user, size_t nbytes);
typedef void (*kiln_free_fn)(void *user, void *memory, size_t nbytes);

/* Zero-filled means all defaults.  Fields set here beat the environment. */
typedef struct kiln_config {
    size_t size; /* sizeof(kiln_config), so that fields can be added; 0: the fields up to log_user */
    kiln_mode mode;
    const char *cc; /* compiler command; NULL: KILN_CC, else gcc, cc, clang in PATH */
    const char *
        cache_dir; /* kernels, scratch and logs; NULL: KILN_CACHE_DIR, XDG_CACHE_HOME/kiln, HOME/.cache/kiln; else no kernel is kept, and the temporary folder holds the rest */
    const char *isa;      /* "x86-64-v2", ...; NULL: the best this CPU has */
    const char *dump_dir; /* where generated sources are kept; NULL: KILN_DUMP_DIR, else nowhere */
    kiln_log_fn log;
    void *log_user;
    size_t max_kernels; /* classes kept in memory; 0: KILN_MAX_KERNELS, else 4,000 */
    int threads; /* that one call may use; 0: KILN_THREADS, else the CPUs of this process; no more than PyTorch's own setting */
    kiln_parallel_fn
        parallel_for; /* the host's own pool; NULL: PyTorch's once it is loaded in this process, else Kiln's */
    void *parallel_user;
    kiln_interrupted_fn interrupted; /* NULL: never; a compiler has 30 s */
    void *interrupted_user;
    kiln_alloc_fn alloc; /* for new results, and where one is resized as out=; NULL: Kiln's own blocks */
    kiln_free_fn free;   /* given if alloc is, and only then */
    void *alloc_user;
    const char *cache; /* "disk", "memory" or "off"; NULL: KILN_CACHE, else disk (docs/CACHE.md) */
    size_t cache_size; /* bytes of kernels on disk; 0: KILN_CACHE_SIZE, else 1 GiB */
    int cache_shared; /* 1: the cache folder may be writable by others, and every kernel in it must be signed; 0: KILN_CACHE_SHARED */
    const char *key_file; /* the key that signs kernels; NULL: KILN_KEY_FILE, else none */
    const char *packs;    /* packs of kernels, paths with ':' between them; NULL: KILN_PACK, else none */
    const char
        *redis_url; /* a server that keeps kernels for many machines; NULL: KILN_REDIS_URL, else none */
    const char *
        record; /* a file for a line about each new class, as kiln_warm takes them; NULL: KILN_RECORD, else none */
} kiln_config;

/* So many threads at most for this thread's calls from now on, whatever their contexts allow; 0: as these allow, as at
 * first.  Returns what it was.  Results do not depend on it. */
KILN_API int kiln_threads_limit(int n);

/* Whose threads run large calls of this thread now: "Kiln's"; "the host's", where kiln_config has a parallel_for; "PyTorch's", once
 * PyTorch is loaded in this process; or "the caller's, ..." in a process that was forked from one with PyTorch, whose threads do not
 * exist there.  *n, which may be NULL: how many one call may use.  "" where ctx is NULL. */
KILN_API const char *kiln_threads_owner(kiln_ctx *ctx, int *n);

/* config may be NULL for all defaults. */
KILN_API kiln_status kiln_open(const kiln_config *config, kiln_ctx **out) KILN_MUST_CHECK;
/* No call may be running; NULL is fine.  Compiles under way are stopped and their compilers killed. */
KILN_API void kiln_close(kiln_ctx *ctx);

/* Changes the mode.  Classes and their kernels stay: a kernel that exists is used in every mode.  Builds that wait in the background
 * are dropped unless the mode is tiered.  Calls that run meanwhile have the one mode or the other. */
KILN_API kiln_status kiln_mode_set(kiln_ctx *ctx, kiln_mode mode) KILN_MUST_CHECK;

/* Runs body(arg, 0) to body(arg, n - 1), each once, by the threads of ctx's calls, so that a host's own loops need no second
 * pool.  work_ns: what all take one thread; how many threads are worth it is decided as for calls.  Parts have the caller's
 * rounding and denormal mode.  A loop that starts inside another one, or while other loops are using the threads,
 * runs on its caller alone. */
KILN_API kiln_status kiln_parallel_for(kiln_ctx *ctx, int64_t work_ns, int64_t n,
                                       void (*body)(void *arg, int64_t k), void *arg) KILN_MUST_CHECK;

/* A tensor without dimensions that stands for a number, exact, and takes part in promotion as the number would: given
 * for a Tensor argument it does what PyTorch does with a Python number there. */
KILN_API kiln_status kiln_tensor_number(const kiln_value *v, kiln_tensor **out) KILN_MUST_CHECK;

/* One element as a number: a bool, int, float or complex value.  The other way a number is converted as PyTorch converts elements: integers wrap, floats that are too large
 * become infinite.  0: v is no number, and nothing is written.  `at` need not be aligned. */
KILN_API kiln_value kiln_element_get(kiln_dtype dtype, const void *at);
KILN_API int kiln_element_set(kiln_dtype dtype, const kiln_value *v, void *at);

/* -- packs --------------------------------------------------------------------------------------------

 * Many kernels in one file (docs/CACHE.md). */
typedef struct kiln_pack_how {
    const char *const *ops; /* only kernels that were built for these operators; NULL: all */
    size_t nops;
    int without_ir; /* 1: smaller, but `kiln cache why` cannot compare its entries */
} kiln_pack_how;
typedef struct kiln_pack_report {
    uint64_t kernels, nbytes, left_out; /* left out: damaged, unsigned, or of another version of Kiln */
} kiln_pack_report;
/* Writes the kernels of the cache folder to a pack, which takes its place when it is whole.  how may be NULL. */
KILN_API kiln_status kiln_pack_export(kiln_ctx *ctx, const char *path, const kiln_pack_how *how,
                                      kiln_pack_report *out) KILN_MUST_CHECK;
typedef kiln_status (*kiln_name_fn)(void *user, const char *name);
/* Calls visit with the name of each operator, in all its forms, for whose row a pack of ctx has a kernel that this machine runs.  Ends with the
 * first status that is not KILN_OK.  Takes some tens of milliseconds. */
KILN_API kiln_status kiln_packed_ops(kiln_ctx *ctx, kiln_name_fn visit, void *user) KILN_MUST_CHECK;
/* Copies a pack's kernels into the cache folder. */
KILN_API kiln_status kiln_pack_import(kiln_ctx *ctx, const char *path, kiln_pack_report *out) KILN_MUST_CHECK;

/* -- kernels ahead of time ---------------------------------------------------------------------------

 * Builds the kernels of calls that are not made, on all cores, and puts them where kernels are kept (docs/CACHE.md). */
typedef struct kiln_warm kiln_warm;
typedef struct kiln_warm_report {
    uint64_t done, present, built,
        failed;     /* kernels: looked at; kept already; built and kept now; not built */
    int64_t cpu_ns; /* processor time of the compilers */
} kiln_warm_report;
/* Called after each run of a compiler, on any thread, one at a time.  Not 0: nothing more is begun. */
typedef int (*kiln_warm_fn)(void *user, const kiln_warm_report *so_far);

/* levels: names with commas between them, as x86-64-v3,x86-64-v4, which this machine need not run; NULL: the level of ctx. */
KILN_API kiln_status kiln_warm_begin(kiln_ctx *ctx, const char *levels, kiln_warm **out) KILN_MUST_CHECK;
/* Notes what a call would run; nothing is computed or built.  One thread at a time. */
KILN_API kiln_status kiln_warm_add(kiln_warm *w, const kiln_op *op, const kiln_value *args,
                                   size_t nargs) KILN_MUST_CHECK;
/* Kernels that were noted, for all levels, since the last run. */
KILN_API size_t kiln_warm_waiting(const kiln_warm *w);
/* Builds what was noted by `jobs` threads; 0: as many as there are cores.  progress may be NULL. */
KILN_API kiln_status kiln_warm_run(kiln_warm *w, int jobs, kiln_warm_fn progress, void *user,
                                   kiln_warm_report *out) KILN_MUST_CHECK;
KILN_API void kiln_warm_end(kiln_warm *w); /* NULL is fine */

/* -- operators ----------------------------------------------------------------------------------- */

/* name: "aten::add.Tensor", "add.Tensor" (aten:: is assumed), "relu.default" (the default overload, as PyTorch
 * prints it) or "relu" (the default overload, else the only one).  *out belongs to ctx and stays valid until
 * kiln_close.  KILN_E_UNSUP: PyTorch has it, and Kiln does not serve it.  KILN_E_NOTFOUND names near misses, or the
 * overloads if there are several. */
KILN_API kiln_status kiln_op_find(kiln_ctx *ctx, const char *name, const kiln_op **out) KILN_MUST_CHECK;

/* The same for a call at hand: "add" means add.Scalar beside a number and add.Tensor beside a tensor, the
 * overload that fits the kinds of the arguments best, the default one before others.  A number fits a Tensor
 * argument and a tensor without dimensions a Scalar one, but less well than what these are made for.
 * "aten::clamp", the full name of a default overload, means that one.  KILN_E_TYPE if none fits: the message says
 * of each why. */
KILN_API kiln_status kiln_op_choose(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs,
                                    const kiln_op **out) KILN_MUST_CHECK;
/* The same in two steps, for bindings.  First the served overloads of a name without an overload part, the
 * default one first: *out holds min(n, result) of them. */
KILN_API size_t kiln_op_overloads(kiln_ctx *ctx, const char *name, const kiln_op **out, size_t n);
/* Then the place in ops of the one that the arguments mean.  Of their values only kinds are read: a text or list
 * may be empty, and a tensor NULL, of which n tells whether it has dimensions. */
KILN_API kiln_status kiln_op_choose_among(const kiln_op *const *ops, size_t n, const kiln_value *args,
                                          size_t nargs, size_t *out) KILN_MUST_CHECK;
KILN_API size_t kiln_op_count(kiln_ctx *ctx);
KILN_API const kiln_op *kiln_op_at(kiln_ctx *ctx, size_t index); /* sorted by name; NULL past the end */
/* An operator as Kiln knows it before its row is parsed.  Kiln parses a row when kiln_op_find, kiln_op_at or a call asks for one of
 * its operators; entries of a thousand operators are read without parsing any. */
typedef struct kiln_op_entry {
    const char *name;   /* kiln_op_name */
    const char *schema; /* kiln_op_schema, but it ends after nschema bytes and not with a NUL */
    size_t nschema;
    int served;        /* kiln_op_served */
    const kiln_op *op; /* NULL: the row has not been parsed yet, and kiln_op_find(ctx, name) parses it */
} kiln_op_entry;
/* 1, and the entry of the operator that kiln_op_at gives for `index`; 0 past the end. */
KILN_API int kiln_op_entry_at(kiln_ctx *ctx, size_t index, kiln_op_entry *out);
/* 1, and the entry of the operator of this full name; 0 if there is none. */
KILN_API int kiln_op_entry_find(kiln_ctx *ctx, const char *name, kiln_op_entry *out);
KILN_API const char *kiln_op_name(const kiln_op *op);   /* "aten::add.Tensor" */
KILN_API const char *kiln_op_schema(const kiln_op *op); /* "aten::add.Tensor(Tensor self, ...) -> Tensor" */
KILN_API const char *kiln_op_family(const kiln_op *op); /* "map", "fold", ... */
KILN_API const char *kiln_op_row(const kiln_op *op);    /* the text of the row it comes from */
KILN_API const char *kiln_op_form(const kiln_op *op);   /* "functional", "inplace" or "out" */
KILN_API int kiln_op_served(const kiln_op *op);         /* 1 if its family can be run by this build */
/* The operator `op` in the form that answers calls of PyTorch's dispatcher.  This form also refuses each call that only PyTorch's own kernel
 * answers as PyTorch does, for example because that kernel warns: the checks of its row that say `check torch`. */
KILN_API const kiln_op *kiln_op_for_torch(const kiln_op *op);
KILN_API size_t kiln_op_nrets(const kiln_op *op); /* results that kiln_call writes */
/* What kiln_call_values makes of result k: a tensor, a list of tensors, which kiln_call has no place for and refuses with
 * KILN_E_UNSUP, or a bool, for which kiln_call gives a tensor without dimensions.
 * KILN_NONE: there is no such result. */
KILN_API kiln_kind kiln_op_ret_kind(const kiln_op *op, size_t k);

/* Why a program that calls the operator cannot be traced for tensors of any sizes, as torch.compile does. */
typedef enum kiln_untraced {
    KILN_TRACED = 0,         /* nothing in the row prevents tracing */
    KILN_UNTRACED_SIZES = 1, /* the row asks for sizes by size, span, numel, single, alike or covers */
    KILN_UNTRACED_CLAUSE = 2 /* the row has a clause view, writes, gives or rest */
} kiln_untraced;
/* *word: the first such function in the row's text, else the first such clause, as static text; NULL for KILN_TRACED.
 * word may be NULL.  Rows of other operators that the row calls are not looked at. */
KILN_API kiln_untraced kiln_op_untraced(const kiln_op *op, const char **word);

/* What the i-th argument of its schema takes; 0 past the end. */
typedef struct kiln_op_arg_info {
    const char *name; /* kiln_op_arg_name */
    uint8_t kind; /* KILN_TENSOR, KILN_INT_V, ..., KILN_NUMBER_V for Scalar, KILN_OBJECT_V for other types */
    uint8_t written;   /* Tensor(a!), or one that the operator writes to though its schema does not say so */
    uint8_t defaulted; /* may be left out */
    uint8_t by_name;   /* cannot be given by position */
    uint8_t item;      /* what the items of a list take, by kind; KILN_NONE if it is none */
} kiln_op_arg_info;
KILN_API int kiln_op_arg_at(const kiln_op *op, size_t i, kiln_op_arg_info *out);

/* Name of the i-th argument of its schema; NULL past the end.  A kiln_value named by this very pointer is
 * recognised without reading the text. */
KILN_API const char *kiln_op_arg_name(const kiln_op *op, size_t i);

/* Adds rows.  All or nothing: on any error no row is added and the message points at line and column.  A row that
 * is there already to the letter is passed over; a name that is taken by another is refused.  KILN_E_UNSUP: a row
 * of a family that is not served. */
KILN_API kiln_status kiln_ops_load(kiln_ctx *ctx, const char *text, size_t nbytes) KILN_MUST_CHECK;
/* The same; messages call the text by `source`, such as a file's path, and not "rows". */
KILN_API kiln_status kiln_ops_load_from(kiln_ctx *ctx, const char *source, const char *text,
                                        size_t nbytes) KILN_MUST_CHECK;
/* The same, except that rows loaded before give way to new ones of their name; Kiln's own rows never do.  An
 * operator found before means what it meant until it is found again. */
KILN_API kiln_status kiln_ops_replace(kiln_ctx *ctx, const char *source, const char *text,
                                      size_t nbytes) KILN_MUST_CHECK;
/* Checks rows as kiln_ops_replace does, and leaves the context as it is.  visit is called for the operator of each row,
 * in the order of the text; the operator lives until visit returns.  A status of visit's that is not KILN_OK ends the
 * function, which returns it.  visit may be NULL. */
typedef kiln_status (*kiln_op_fn)(void *user, const kiln_op *op);
KILN_API kiln_status kiln_ops_draft(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes,
                                    kiln_op_fn visit, void *user) KILN_MUST_CHECK;
/* Takes the n rows of these full names out of the context.  A name that no loaded row has is passed over; Kiln's own
 * rows stay.  An operator found before, and a row that calls one, go on as they were. */
KILN_API kiln_status kiln_ops_drop(kiln_ctx *ctx, const char *const *names, size_t n) KILN_MUST_CHECK;

/* Makes the operator of a text of one row that stays out of the context's list of operators: no name finds it, and any
 * name may be given to it that is not in the list.  Many such operators may exist at a time, each costs its own row, and
 * each is given back by kiln_op_free, at the latest by kiln_close.  out_form, which may be NULL, receives the form of the operator
 * that writes its results to tensors named `out`, or `out0`, `out1` and so on for several results; *op owns it.
 * Kernels belong to classes of calls and stay in memory as any others do: the same row, made again, finds them. */
KILN_API kiln_status kiln_op_new(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes,
                                 const kiln_op **op, const kiln_op **out_form) KILN_MUST_CHECK;
/* Gives back an operator of kiln_op_new, together with its out form.  No call of it may begin after that; calls that are running
 * end as they would have.  Kernels of kiln_prepare that are pinned for it must have been released.  NULL, and an operator of the
 * context's list, are passed over. */
KILN_API void kiln_op_free(kiln_ctx *ctx, const kiln_op *op);

/* The row that computes the gradient of the op's i-th argument: a map of the gradients of results (`grad`, or
 * `grad_0` and so on of several), of results where a `grad` clause names them, and of the arguments it needs, all
 * under these names.  Not summed over broadcast dimensions.  *out is for kiln_ops_load, or "" if the argument is no
 * tensor of floats or its gradient is zero; kiln_text_free ends it.  KILN_E_UNSUP says what has no derivative. */
KILN_API kiln_status kiln_op_grad(const kiln_op *op, size_t i, char **out) KILN_MUST_CHECK;

/* Types every row for every dtype it takes.  Calls report once per row: ntyped dtype combinations, and
 * the error text or NULL; report may be NULL.  Returns KILN_OK only if every row is right. */
typedef void (*kiln_check_fn)(void *user, const kiln_op *op, int ntyped, const char *error);
KILN_API kiln_status kiln_ops_check(kiln_ctx *ctx, kiln_check_fn report, void *user) KILN_MUST_CHECK;

/* -- calls --------------------------------------------------------------------------------------- */

/* Calls op.  Positional arguments first, named ones after, defaults filled in.  outs receives
 * kiln_op_nrets(op) references, each to be released (for in-place and out forms: the written tensor); NULL for a
 * result that the operator does not give to these arguments, as a gradient that output_mask leaves out.
 * On failure nothing is written, to outs or to any tensor.  A written tensor may overlap others: what PyTorch
 * refuses is KILN_E_ARG, any other overlap gives the result as if all had been read before anything is written. */
KILN_API kiln_status kiln_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                               kiln_tensor **outs, size_t nouts) KILN_MUST_CHECK;

/* The same with values for results, which may be of any kind: tensors, lists of tensors, numbers, bools, nothing.
 * Each is the caller's, with all that it holds, until kiln_values_release.  (kiln_op_ret_kind says which.) */
KILN_API kiln_status kiln_call_values(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                      kiln_value *outs, size_t nouts) KILN_MUST_CHECK;
/* Ends n values that kiln_call_values gave, and makes each of them KILN_NONE: references to tensors are released,
 * in lists too, and the arrays of lists freed.  Not for lists of the caller's own. */
KILN_API void kiln_values_release(kiln_value *values, size_t n);

/* A result before it is computed. */
typedef struct kiln_result_info {
    uint32_t result; /* of the schema's; the items of a list are one entry each */
    int32_t arg;     /* the schema's argument that is written and returned; -1: a new tensor */
    int32_t resized; /* 1: that argument is given another shape, which is the one here */
    kiln_dtype dtype;
    int rank; /* -1: there will be none, and kiln_call gives NULL */
    int64_t sizes[KILN_MAX_RANK];
    int64_t strides[KILN_MAX_RANK]; /* in elements */
} kiln_result_info;

/* What kiln_call would give, without computing it: nothing is written, compiled or remembered, and no result
 * allocated.  *count: how many results there are; out holds min(nouts, *count) of them.  Fails where kiln_call does,
 * but for what only running shows: memory, integer division by zero, a number that its type has no room for. */
KILN_API kiln_status kiln_infer_results(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args,
                                        size_t nargs, kiln_result_info *out, size_t nouts,
                                        size_t *count) KILN_MUST_CHECK;

/* Compiles the class of this call now, whatever the mode (but frozen); the handle pins the kernel.
 * kiln_kernel_run then calls it for arguments of the same class (KILN_E_ARG for another class).  Release it
 * before its context is closed.
 * out may be NULL.  Then everything that the call would run is compiled, also the calls that it is made of and the items of lists, and
 * nothing is pinned. */
typedef struct kiln_kernel kiln_kernel;
KILN_API kiln_status kiln_prepare(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                  kiln_kernel **out) KILN_MUST_CHECK;
KILN_API kiln_status kiln_kernel_run(kiln_kernel *k, const kiln_value *args, size_t nargs, kiln_tensor **outs,
                                     size_t nouts) KILN_MUST_CHECK;
KILN_API void kiln_kernel_release(kiln_kernel *k); /* NULL is fine */

/* The kernel's code, as kiln_abi.h says it is called; valid until kiln_kernel_release.  For hosts that fill
 * launches themselves, and for measuring what a call adds.  What it expects of each buffer is in the IR that kiln_explain
 * prints: of one that is `contig` it reads every element of a row, of a column beside short rows, too. */
struct kiln_launch;
typedef int32_t (*kiln_entry_fn)(const struct kiln_launch *);
KILN_API kiln_entry_fn kiln_kernel_entry(const kiln_kernel *k);

/* "compiled" or "interp": what ran this thread's last successful kiln_call; "" before the first. */
KILN_API const char *kiln_last_tier(void);

/* Text of one stage of a call: "schema", "bind", "plan", "key", "ir", "source" or "asm".
 * *out is heap text, freed with kiln_text_free. */
KILN_API kiln_status kiln_explain(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                  const char *stage, char **out) KILN_MUST_CHECK;
KILN_API void kiln_text_free(char *text); /* NULL is fine */

/* -- looking in ------------------------------------------------------------------------------------ */

typedef struct kiln_stats {
#define C(name, meaning) uint64_t name;
#include "kiln/counter.def"
#undef C
} kiln_stats;

/* Writes at most `size` bytes (pass sizeof(kiln_stats)); zeros where ctx is NULL. */
KILN_API void kiln_stats_get(kiln_ctx *ctx, kiln_stats *out, size_t size);

/* A class of calls: those that differ in nothing that generated code depends on, and so share a kernel.  Fields may be added. */
typedef struct kiln_class_info {
    const char *op; /* "aten::add.Tensor"; calls in place and with out= are of the same classes */
    const char *
        words; /* "self f32 contig, other f32 contig -> f32 contig; in f32": dtypes and strides along the innermost
                            * loop, values and optional arguments that are part of the code; one line */
    const char
        *tier; /* "compiled" or "interp", as kiln_last_tier; or what needs no kernel: "routine", "view" */
    uint64_t
        interp_calls; /* calls, and items of lists, that the interpreter has run.  Calls that a kernel answers are not counted
                            * by class, since that would slow each of them. */
    uint64_t
        build_ns; /* what building took so far, failed builds included; of classes that were built together, its share */
    uint64_t code_bytes; /* of the kernel */
    uint64_t failed_builds;
} kiln_class_info;

/* Calls visit for each class that the context has in memory, in no order; *info is valid until visit returns.  Classes that come or go
 * meanwhile may be left out.  A status of visit's that is not KILN_OK ends the function, which returns it. */
typedef kiln_status (*kiln_class_fn)(void *user, const kiln_class_info *info);
KILN_API kiln_status kiln_classes_list(kiln_ctx *ctx, kiln_class_fn visit, void *user) KILN_MUST_CHECK;

/* 1 if Kiln can probably build kernels.  Starts no process.  If the compiler was tried: 1 if it works.  If not: 1 if the configured
 * command is a program, or, where no command is configured, if gcc, cc or clang is in PATH.  0: every call is interpreted. */
KILN_API int kiln_has_compiler(kiln_ctx *ctx);

KILN_API kiln_status kiln_wait_idle(kiln_ctx *ctx); /* KILN_OK: no compile is running or queued */
/* Gives memory that this thread and ended ones keep for reuse back to the system. */
KILN_API void kiln_trim(void);

/* What was found on this machine and every setting in force, one "key: value" line each (version, isa, mode,
 * threads, pool, memory, max_kernels, compiler, cache folder, kernels kept, signing, dump folder, log, operators).  Lines that start with '!'
 * say what is missing or broken.  Freed with kiln_text_free. */
KILN_API kiln_status kiln_doctor(kiln_ctx *ctx, char **out) KILN_MUST_CHECK;

/* -- kernels that are kept ---------------------------------------------------------------------------- */

/* docs/CACHE.md says how kernels are kept.  These functions look at the folder of kernels on disk.  KILN_E_UNSUP: the context keeps no
 * kernel on disk.  KILN_E_ARG: the folder may not be used, because other users may write it; the message says what to do.  A folder that
 * does not exist yet is empty. */

/* The path of that folder: "kernels" within the cache folder.  *out is heap text, freed with kiln_text_free. */
KILN_API kiln_status kiln_cache_folder(kiln_ctx *ctx, char **out) KILN_MUST_CHECK;

/* An entry: a kernel on disk, and what it says of itself.  Texts are "" where nothing is known.  They come from the file, so they may
 * hold any bytes.  Fields may be added. */
typedef struct kiln_kept_info {
    const char *id;    /* 32 hexadecimal digits, a digest of what the kernel computes */
    const char *cause; /* why a call would refuse the entry: "corrupt", "stale" (another format), "unsigned",
                        * "foreign" (others may write the file) or "unreadable"; NULL: no check refuses it */
    const char *fault; /* the same in a sentence; NULL as `cause` */
    const char *op;    /* "aten::add.Tensor" */
    const char *words; /* the class of calls, as in kiln_class_info */
    const char *target, *stamp, *isa; /* "cpu", the version of its emitter, "x86-64-v3" */
    const char *compiler;             /* in words */
    const char *ir;                   /* what the kernel computes, without names */
    const char *source;               /* what was compiled; NULL: the entry has none */
    size_t nsource;
    uint64_t nbytes;   /* of the file */
    uint64_t built_at; /* seconds since 1970, as is used_at; 0: not known */
    uint64_t used_at;  /* to the day */
    uint64_t build_ns; /* processor time of the compiler; 0: not known */
    int tested;        /* 1: the kernel agreed with the interpreter, on a machine that runs its level */
    int is_signed;     /* 1: by some key */
    int is_current;    /* 1: target, stamp and level are of this library and this machine */
} kiln_kept_info;

/* What kiln_cache_list does beside reading entries and checking them. */
enum {
    KILN_CACHE_LOAD = 1 /* also loads each kernel that is current, as a call would, but does not run it */
};

/* Calls visit for each entry whose id begins with `start` (NULL: each entry), in no order; *info is valid until visit returns.  Removes
 * nothing, and counts as no use of an entry.  A status of visit's that is not KILN_OK ends the function, which returns it. */
typedef kiln_status (*kiln_kept_fn)(void *user, const kiln_kept_info *info);
KILN_API kiln_status kiln_cache_list(kiln_ctx *ctx, const char *start, int how, kiln_kept_fn visit,
                                     void *user) KILN_MUST_CHECK;

typedef struct kiln_cache_report {
    uint64_t nremoved, removed_bytes, nleft, left_bytes; /* entries, and bytes of their files */
} kiln_cache_report;
/* Removes entries that were not used for longest until all others have at most nbytes; 0: the limit that is configured.  Logs, and what
 * else is in the cache folder, stay.  report may be NULL, here and below. */
KILN_API kiln_status kiln_cache_prune(kiln_ctx *ctx, uint64_t nbytes,
                                      kiln_cache_report *report) KILN_MUST_CHECK;
/* Removes every entry, damaged ones, too.  Kernels in memory stay, in this process and others. */
KILN_API kiln_status kiln_cache_clear(kiln_ctx *ctx, kiln_cache_report *report) KILN_MUST_CHECK;

/* Says, in lines "key: value", which kernel of a store a call would use and where it lies.  If there is none, says what differs from the
 * nearest entry of the same operator: target, stamp, level, or a line of the IR.  *out is heap text, freed with kiln_text_free. */
KILN_API kiln_status kiln_cache_why(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                    char **out) KILN_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
