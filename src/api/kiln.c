/* kiln.c - the small questions of the public interface: version, operators, counters, what was found.
 *
 * Each answers from what the context already knows. */
#include <string.h>

#include "api/ctx.h"

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

const char *kiln_version(void) {
    return TEXT(KILN_VERSION_MAJOR) "." TEXT(KILN_VERSION_MINOR) "." TEXT(KILN_VERSION_PATCH);
}

/* -- operators ------------------------------------------------------------------------------------------- */

static const kiln_registry *registry(kiln_ctx *ctx) {
    return atomic_load_explicit(&ctx->registry, memory_order_acquire);
}

kiln_status kiln_op_find(kiln_ctx *ctx, const char *name, const kiln_op **out) {
    KILN_NEED(ctx, name, out);
    return kiln_registry_find(registry(ctx), name, out);
}

kiln_status kiln_op_choose(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs,
                           const kiln_op **out) {
    KILN_NEED(ctx, name, out);
    KILN_NEED_ITEMS(args, nargs);
    return kiln_registry_choose(registry(ctx), name, args, nargs, out);
}

size_t kiln_op_overloads(kiln_ctx *ctx, const char *name, const kiln_op **out, size_t n) {
    size_t count = 0;
    if (!ctx || !name || (n && !out)) return 0;
    return kiln_served_overloads(registry(ctx), name, out, n, &count) == KILN_OK ? count : 0;
}

kiln_status kiln_op_choose_among(const kiln_op *const *ops, size_t n, const kiln_value *args, size_t nargs,
                                 size_t *out) {
    KILN_NEED(ops, out);
    KILN_NEED_ITEMS(args, nargs);
    if (!n) return KILN_FAIL(KILN_E_ARG, "there are no operators to choose from");
    for (size_t k = 0; k < n; k++) KILN_NEED(ops[k]);
    return kiln_choose(ops, n, args, nargs, out);
}

size_t kiln_op_count(kiln_ctx *ctx) { return ctx ? kiln_registry_count(registry(ctx)) : 0; }
const kiln_op *kiln_op_at(kiln_ctx *ctx, size_t index) {
    const kiln_op *op;
    bool found = index < kiln_op_count(ctx) && kiln_registry_get(registry(ctx), index, &op) == KILN_OK;
    return found ? op : NULL;
}

int kiln_op_entry_at(kiln_ctx *ctx, size_t index, kiln_op_entry *out) {
    return out && index < kiln_op_count(ctx) && kiln_registry_entry(registry(ctx), index, out) == KILN_OK;
}

int kiln_op_entry_find(kiln_ctx *ctx, const char *name, kiln_op_entry *out) {
    if (!ctx || !name || !out) return 0;
    const kiln_registry *r = registry(ctx);
    size_t k = kiln_registry_search(r, name);
    return k < kiln_registry_count(r) && strcmp(kiln_registry_name(r, k), name) == 0 &&
           kiln_registry_entry(r, k, out) == KILN_OK;
}

const char *kiln_op_name(const kiln_op *op) { return op ? op->name : NULL; }
const char *kiln_op_schema(const kiln_op *op) { return op ? op->schema_text : NULL; }
const char *kiln_op_family(const kiln_op *op) { return op ? kiln_family_name(op->row->family) : NULL; }
const char *kiln_op_row(const kiln_op *op) { return op ? op->row->text : NULL; }

kiln_untraced kiln_op_untraced(const kiln_op *op, const char **word) {
    const char *function = op ? op->row->untraced.function : NULL,
               *clause = op ? op->row->untraced.clause : NULL;
    if (word) *word = function ? function : clause;
    return function ? KILN_UNTRACED_SIZES : clause ? KILN_UNTRACED_CLAUSE : KILN_TRACED;
}

int kiln_op_served(const kiln_op *op) { return op && kiln_row_served(op->row); }
const char *kiln_op_arg_name(const kiln_op *op, size_t i) {
    return op && i < (size_t)op->schema->nargs ? op->schema->args[i].name : NULL;
}

static uint8_t kind_taken(const kiln_type *t) {
    static const uint8_t kinds[] = {
        [KILN_T_TENSOR] = KILN_TENSOR, [KILN_T_INT] = KILN_INT_V,     [KILN_T_SYMINT] = KILN_INT_V,
        [KILN_T_FLOAT] = KILN_FLOAT_V, [KILN_T_BOOL] = KILN_BOOL_V,   [KILN_T_SCALAR] = KILN_NUMBER_V,
        [KILN_T_STR] = KILN_STR_V,     [KILN_T_DTYPE] = KILN_DTYPE_V, [KILN_T_LIST] = KILN_LIST_V};
    if (t->kind == KILN_T_OTHER && kiln_str_eq(t->name, "Generator")) return KILN_GENERATOR_V;
    if (t->kind == KILN_T_OTHER && kiln_str_eq(t->name, "complex")) return KILN_COMPLEX_V;
    return t->kind < sizeof kinds && kinds[t->kind] ? kinds[t->kind] : KILN_OBJECT_V;
}

/* Whether the row writes to argument i of the operator, whatever its schema says. */
static bool writes_arg(const kiln_op *op, int i) {
    int arg = kiln_op_arg(op, i);
    return arg >= 0 && (op->row->written >> arg & 1);
}

int kiln_op_arg_at(const kiln_op *op, size_t i, kiln_op_arg_info *out) {
    if (!op || !out || i >= (size_t)op->schema->nargs) return 0;
    const kiln_param *p = &op->schema->args[i];
    const kiln_type *t = kiln_type_strip(p->type, NULL);
    bool list = t->kind == KILN_T_LIST;
    *out = (kiln_op_arg_info){.name = p->name,
                              .kind = kind_taken(t),
                              .item = list ? kind_taken(kiln_type_strip(t->elem, NULL)) : KILN_NONE,
                              .written = kiln_param_writes(p) || writes_arg(op, (int)i),
                              .defaulted = p->def.kind != KILN_DEF_ABSENT,
                              .by_name = p->kwarg_only};
    return 1;
}

kiln_kind kiln_op_ret_kind(const kiln_op *op, size_t k) {
    if (k >= kiln_op_nrets(op)) return KILN_NONE;
    kiln_tkind kind = op->schema->rets[k].type->kind;
    return kind == KILN_T_BOOL ? KILN_BOOL_V : kind == KILN_T_LIST ? KILN_LIST_V : KILN_TENSOR;
}
size_t kiln_op_nrets(const kiln_op *op) { return op ? (size_t)op->schema->nrets : 0; }

const char *kiln_op_form(const kiln_op *op) {
    static const char *const names[] = {
        [KILN_FORM_FUNCTIONAL] = "functional", [KILN_FORM_INPLACE] = "inplace", [KILN_FORM_OUT] = "out"};
    return op ? names[op->form] : NULL;
}

const kiln_op *kiln_op_for_torch(const kiln_op *op) { return op ? kiln_op_torch(op) : NULL; }

kiln_status kiln_ops_check(kiln_ctx *ctx, kiln_check_fn report, void *user) {
    KILN_NEED(ctx);
    const kiln_registry *r = registry(ctx);
    kiln_status worst = KILN_OK;
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(r, k, &op));
        if (op->form != KILN_FORM_FUNCTIONAL) continue;
        int ntyped = 0;
        kiln_status st = kiln_row_check(r, op->row, &(kiln_budget){INT64_MAX, 0}, &ntyped);
        if (st != KILN_OK) worst = st;
        if (report) report(user, op, ntyped, st == KILN_OK ? NULL : kiln_last_error());
    }
    return worst;
}

/* -- looking in -------------------------------------------------------------------------------------------- */

void kiln_stats_get(kiln_ctx *ctx, kiln_stats *out, size_t size) {
    kiln_stats now;
    if (!out) return;
#define C(name, meaning) now.name = ctx ? kiln_count_sum(&ctx->epochs, KILN_COUNTER_##name) : 0;
#include "kiln/counter.def"
#undef C
    now.calls += now.slot_hits; /* the shortest way counts once */
    now.builds_waiting = ctx ? kiln_builds_waiting(ctx) : 0;
    memcpy(out, &now, size < sizeof now ? size : sizeof now);
}

int kiln_has_compiler(kiln_ctx *ctx) {
    return ctx && kiln_ctx_host_target(ctx)->can_build(kiln_ctx_host_target(ctx));
}

/* How many builds failed, of what, and what the last one said. */
static void doctor_failures(kiln_ctx *ctx, kiln_sb *out) {
    static const struct {
        kiln_counter counter;
        const char *what;
    } causes[] = {{KILN_COUNTER_no_compiler, "without a compiler"},
                  {KILN_COUNTER_compiler_errors, "by the compiler"},
                  {KILN_COUNTER_compiler_timeouts, "by the compiler's time"},
                  {KILN_COUNTER_load_failures, "in loading"},
                  {KILN_COUNTER_selftest_failures, "by the self-test"},
                  {KILN_COUNTER_memory_failures, "for want of memory"}};
    uint64_t all = kiln_count_sum(&ctx->epochs, KILN_COUNTER_compile_failures);
    if (!all) return;
    kiln_sb_printf(out, "!failed compiles: %llu", (unsigned long long)all);
    const char *mark = ": ";
    for (size_t k = 0; k < sizeof causes / sizeof *causes; k++) {
        uint64_t n = kiln_count_sum(&ctx->epochs, causes[k].counter);
        if (n) kiln_sb_printf(out, "%s%llu %s", mark, (unsigned long long)n, causes[k].what);
        if (n) mark = ", ";
    }
    pthread_mutex_lock(&ctx->builds.lock);
    if (ctx->builds.last_failure[0]) kiln_sb_printf(out, "; the last: %s", ctx->builds.last_failure);
    pthread_mutex_unlock(&ctx->builds.lock);
    kiln_sb_putc(out, '\n');
}

static void doctor_folder(kiln_ctx *ctx, kiln_sb *out) {
    char *dir;
    if (kiln_ctx_cache_dir(ctx, &dir) != KILN_OK) return;
    const char *instead = ctx->scratch_owner ? ctx->scratch : "none";
    if (kiln_str_eq(dir, ctx->scratch))
        kiln_sb_printf(out, "cache folder: %s\n", dir);
    else if (!dir[0])
        kiln_sb_printf(out, "!cache folder: none: set KILN_CACHE_DIR, XDG_CACHE_HOME or HOME; using %s\n",
                       instead);
    else
        kiln_sb_printf(out, "!cache folder: %s cannot be written; using %s\n", dir, instead);
    kiln_free(dir);
}

/* Kernels on disk, and the key that signs them. */
static void doctor_kept(kiln_ctx *ctx, kiln_sb *out) {
    const kiln_store_host *h = &ctx->store_host;
    const kiln_key_file *key;
    kiln_stores_doctor(&ctx->stores, out);
    if (h->in_memory)
        kiln_sb_printf(out, "kernels kept: none on disk, since KILN_CACHE is '%s'\n",
                       h->alone ? "off" : "memory");
    if (!h->key_path) return;
    if (kiln_stores_key(&ctx->stores, &key) == KILN_OK)
        kiln_sb_printf(out, "signing: by %s\n", h->key_path);
    else
        kiln_sb_printf(out, "!signing: %s\n", kiln_last_error());
    kiln_clear_error();
}

/* Overloads with their in-place and out forms, and the rows they come from: all, and those that can be called. */
static void doctor_operators(kiln_ctx *ctx, kiln_sb *out) {
    const kiln_registry *r = registry(ctx);
    size_t rows = 0, served = 0, served_rows = 0;
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        const kiln_op *op;
        if (kiln_registry_get(r, k, &op) != KILN_OK) {
            out->failed = true;
            return;
        }
        bool is_row = op->form == KILN_FORM_FUNCTIONAL, runs = kiln_op_served(op);
        rows += is_row;
        served += runs;
        served_rows += is_row && runs;
    }
    kiln_sb_printf(out, "operators: %zu overloads of %zu rows run; %zu of %zu are known\n", served,
                   served_rows, kiln_registry_count(r), rows);
}

kiln_status kiln_parallel_for(kiln_ctx *ctx, int64_t work_ns, int64_t n, void (*body)(void *arg, int64_t k),
                              void *arg) {
    KILN_NEED(ctx, body);
    if (n < 0 || work_ns < 0)
        return KILN_FAIL(KILN_E_ARG, "kiln_parallel_for: n and work_ns must not be negative");
    kiln_pool_for(&ctx->parallel, kiln_pool_threads(&ctx->parallel, work_ns), n, body, arg);
    return KILN_OK;
}

const char *kiln_threads_owner(kiln_ctx *ctx, int *n) {
    static const char *const names[] = {
        [KILN_POOL_OWN] = "Kiln's",
        [KILN_POOL_HOST] = "the host's",
        [KILN_POOL_TORCH] = "PyTorch's",
        [KILN_POOL_CALLER] = "the caller's, after a fork of a process with PyTorch"};
    int most = 1;
    const char *name = ctx ? names[kiln_pool_whose(&ctx->parallel, &most)] : "";
    if (n) *n = most;
    return name;
}

kiln_status kiln_doctor(kiln_ctx *ctx, char **out) {
    KILN_NEED(ctx, out);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_target *target = kiln_ctx_host_target(ctx);
    kiln_sb_printf(&text, "version: %s (kernel ABI %d, build %s)\n", kiln_version(), KILN_ABI_VERSION,
                   target->stamp);
    kiln_sb_printf(&text, "isa: %s\n", target->level_name(target->level));
    kiln_sb_printf(&text, "mode: %s\n", kiln_mode_name(ctx->mode));
    int threads;
    const char *owner = kiln_threads_owner(ctx, &threads);
    kiln_sb_printf(&text, "threads: %d\npool: %s\n", threads, owner);
    kiln_sb_printf(&text, "memory: %s\n", ctx->memory ? "the host's" : "Kiln's");
    kiln_sb_printf(&text, "max_kernels: %zu\n", ctx->max_kernels);
    kiln_status st = target->doctor(target, &text);
    doctor_failures(ctx, &text);
    doctor_folder(ctx, &text);
    doctor_kept(ctx, &text);
    kiln_sb_printf(&text, "dump folder: %s\n", ctx->dump_dir ? ctx->dump_dir : "none");
    kiln_sb_printf(&text, "log: %s\n", ctx->config.log ? "the host's" : "none");
    doctor_operators(ctx, &text);
    return kiln_sb_end(&text, st, out);
}
