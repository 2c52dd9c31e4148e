/* context.c - kiln_open and kiln_close: configuration, registry, targets and scratch folder of a context.
 *
 * API settings beat the environment.  The compiler is looked for, and folders are made, only when a
 * class is first compiled, so opening a context neither spawns nor writes.  Must not know what calls do. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/memo.h"

enum { MAX_KERNELS = 4000 };

void kiln_ctx_log(const kiln_ctx *ctx, int level, const char *topic, const char *fmt, ...) {
    if (!ctx->config.log) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ctx->config.log(ctx->config.log_user, level, topic, text);
}

/* -- settings ----------------------------------------------------------------------------------------------- */

static const char *env(const char *name) {
    const char *v = secure_getenv(name); /* in a setuid program nobody else chooses compilers and folders */
    return v && v[0] ? v : NULL;
}

/* A copy of the first of the two that is set; NULL stays NULL. */
static kiln_status setting(const char *api, const char *variable, char **out) {
    const char *v = api ? api : env(variable);
    if (!v) return KILN_OK;
    *out = kiln_strdup(v);
    return *out ? KILN_OK : KILN_NOMEM();
}

static const char *const modes[] = {[KILN_MODE_TIERED] = "tiered",
                                    [KILN_MODE_SYNC] = "sync",
                                    [KILN_MODE_INTERP] = "interp",
                                    [KILN_MODE_FROZEN] = "frozen"};
enum { NMODES = sizeof modes / sizeof *modes };

const char *kiln_mode_name(kiln_mode mode) { return (unsigned)mode < NMODES ? modes[mode] : NULL; }

static kiln_status parse_mode(kiln_mode mode, kiln_mode *out) {
    const char *text = env("KILN_MODE");
    int k = mode ? (int)mode : KILN_MODE_TIERED;
    if (mode == KILN_MODE_DEFAULT && text)
        for (k = 1; k < NMODES && strcmp(modes[k], text) != 0;) k++;
    *out = (kiln_mode)k;
    if (kiln_mode_name(*out)) return KILN_OK;
    if (mode) return KILN_FAIL(KILN_E_ARG, "unknown mode %d", (int)mode);
    return KILN_FAIL(KILN_E_ARG, "KILN_MODE is '%.40s': expected tiered, sync, interp or frozen", text);
}

/* A number of at least 1 from the API (0: not given), the environment or the default. */
static kiln_status number(size_t api, const char *variable, size_t otherwise, size_t *out) {
    const char *text = env(variable);
    *out = api ? api : otherwise;
    if (api || !text) return KILN_OK;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (*end || errno || v == 0 || v > SIZE_MAX / 2 || text[0] == '-')
        return KILN_FAIL(KILN_E_ARG, "%s is '%.40s': expected a whole number of at least 1", variable, text);
    *out = (size_t)v;
    return KILN_OK;
}

static void drop_mark(kiln_retired *r) { kiln_free(r); }

/* What calls remember may depend on the mode: nothing that was remembered before is used again, since something was retired. */
kiln_status kiln_mode_set(kiln_ctx *ctx, kiln_mode mode) {
    KILN_NEED(ctx);
    KILN_TRY(parse_mode(mode, &mode));
    kiln_retired *mark = kiln_calloc(1, sizeof *mark);
    if (!mark) return KILN_NOMEM();
    ctx->mode = mode;
    if (mode != KILN_MODE_TIERED) kiln_builds_drop_queue(ctx);
    kiln_retire(&ctx->epochs, mark, drop_mark);
    return KILN_OK;
}

static kiln_status parse_isa(kiln_ctx *ctx, const char *name) {
    ctx->isa = kiln_isa_detect();
    if (!name) return KILN_OK;
    KILN_TRY(kiln_isa_parse(name, &ctx->isa));
    if (!kiln_isa_runs(ctx->isa)) return KILN_FAIL(KILN_E_ARG, "this machine does not run %s", name);
    return KILN_OK;
}

static kiln_status parse_threads(kiln_ctx *ctx, const kiln_config *cfg) {
    size_t n;
    if (cfg->threads < 0)
        return KILN_FAIL(KILN_E_ARG, "kiln_config.threads is %d: expected 0 or more", cfg->threads);
    KILN_TRY(number((size_t)cfg->threads, "KILN_THREADS", (size_t)kiln_cpus(), &n));
    bool counted = cfg->threads == 0 && !env("KILN_THREADS");
    ctx->parallel = (kiln_parallel){n < INT_MAX ? (int)n : INT_MAX, counted, cfg->parallel_for,
                                    cfg->parallel_user};
    return KILN_OK;
}

static kiln_status configure(kiln_ctx *ctx, const kiln_config *given) {
    kiln_config *cfg = &ctx->config;
    if (given) {
        _Static_assert(sizeof *cfg == 24 * sizeof(void *), "every field has a word of its own");
        if (given->size > sizeof *cfg || given->size % sizeof(void *))
            return KILN_FAIL(KILN_E_ARG, "kiln_config.size is %zu: expected sizeof(kiln_config), here %zu",
                             given->size, sizeof *cfg);
        memcpy(cfg, given, given->size ? given->size : offsetof(kiln_config, max_kernels));
    }
    if (!cfg->alloc != !cfg->free)
        return KILN_FAIL(KILN_E_ARG, "kiln_config.%s is NULL, and the other of alloc and free is not",
                         cfg->alloc ? "free" : "alloc");
    ctx->host_memory = (kiln_memory){cfg->alloc, cfg->free, cfg->alloc_user};
    ctx->memory = cfg->alloc ? &ctx->host_memory : NULL;
    kiln_mode mode;
    KILN_TRY(parse_mode(cfg->mode, &mode));
    ctx->mode = mode;
    KILN_TRY(parse_isa(ctx, cfg->isa));
    KILN_TRY(number(cfg->max_kernels, "KILN_MAX_KERNELS", MAX_KERNELS, &ctx->max_kernels));
    KILN_TRY(parse_threads(ctx, cfg));
    KILN_TRY(setting(cfg->cc, "KILN_CC", &ctx->cc));
    KILN_TRY(setting(cfg->cache_dir, "KILN_CACHE_DIR", &ctx->cache_dir));
    KILN_TRY(setting(cfg->record, "KILN_RECORD", &ctx->record_path));
    return setting(cfg->dump_dir, "KILN_DUMP_DIR", &ctx->dump_dir);
}

/* -- registry ------------------------------------------------------------------------------------------------ */

/* The step from the registry that calls see to the next one.  NULL in *next: there is nothing to change. */
typedef struct change {
    const kiln_row_text *text; /* to be loaded; NULL: names are dropped */
    const char *const *names;
    size_t n;
    bool replace;
} change;

static kiln_status next_registry(const kiln_registry *now, const change *c, kiln_registry **next) {
    if (!c->text) return kiln_registry_without(now, c->names, c->n, next);
    return kiln_registry_new(now, c->text, 1, &kiln_torch_schemas, c->replace, next);
}

static kiln_status publish(kiln_ctx *ctx, const change *c) {
    kiln_registry *next, **loaded = kiln_realloc(ctx->loaded, (ctx->nloaded + 1) * sizeof *loaded);
    if (!loaded) return KILN_NOMEM();
    ctx->loaded = loaded;
    KILN_TRY(next_registry(atomic_load(&ctx->registry), c, &next));
    if (!next) return KILN_OK;
    ctx->loaded[ctx->nloaded++] = next;
    atomic_store_explicit(&ctx->registry, next, memory_order_release);
    return KILN_OK;
}

/* Rows are checked while calls and compilers go on; only other changes of the registry wait. */
static kiln_status change_rows(kiln_ctx *ctx, const change *c) {
    pthread_mutex_lock(&ctx->load_lock);
    kiln_status st = publish(ctx, c);
    pthread_mutex_unlock(&ctx->load_lock);
    return st;
}

static kiln_status load_from(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes,
                             bool replace) {
    KILN_NEED(ctx, source);
    KILN_NEED_ITEMS(text, nbytes);
    kiln_row_text t = {source, text ? text : "", nbytes, true};
    return kiln_note_line(change_rows(ctx, &(change){.text = &t, .replace = replace}), source, t.text,
                          nbytes);
}

kiln_status kiln_ops_load(kiln_ctx *ctx, const char *text, size_t nbytes) {
    return load_from(ctx, "rows", text, nbytes, false);
}

kiln_status kiln_ops_load_from(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes) {
    return load_from(ctx, source, text, nbytes, false);
}

kiln_status kiln_ops_replace(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes) {
    return load_from(ctx, source, text, nbytes, true);
}

static kiln_status pass_over(void *user, const kiln_op *op) { return (void)user, (void)op, KILN_OK; }

kiln_status kiln_ops_draft(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes,
                           kiln_op_fn visit, void *user) {
    KILN_NEED(ctx, source);
    KILN_NEED_ITEMS(text, nbytes);
    kiln_row_text t = {source, text ? text : "", nbytes, true};
    return kiln_registry_draft(atomic_load(&ctx->registry), &t, &kiln_torch_schemas,
                               visit ? visit : pass_over, user);
}

kiln_status kiln_ops_drop(kiln_ctx *ctx, const char *const *names, size_t n) {
    KILN_NEED(ctx);
    KILN_NEED_ITEMS(names, n);
    for (size_t k = 0; k < n; k++) KILN_NEED_IN(__func__, names[k]);
    return n ? change_rows(ctx, &(change){.names = names, .n = n}) : KILN_OK;
}

/* -- the folder for scratch files --------------------------------------------------------------------------- */

kiln_status kiln_ctx_cache_dir(const kiln_ctx *ctx, char **out) {
    kiln_sb path;
    kiln_sb_init(&path);
    const char *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    if (ctx->cache_dir)
        kiln_sb_puts(&path, ctx->cache_dir);
    else if (xdg)
        kiln_sb_printf(&path, "%s/kiln", xdg);
    else if (home)
        kiln_sb_printf(&path, "%s/.cache/kiln", home);
    return kiln_sb_take(&path, out);
}

static kiln_status make_scratch(kiln_ctx *ctx) {
    bool made;
    KILN_TRY(kiln_ctx_cache_dir(ctx, &ctx->scratch));
    if (ctx->scratch && ctx->scratch[0] && kiln_mkdirs(ctx->scratch) == KILN_OK &&
        access(ctx->scratch, W_OK) == 0)
        return KILN_OK;
    kiln_free(ctx->scratch);
    ctx->scratch = NULL;
    KILN_TRY(kiln_tmpdir_new(&ctx->scratch, &made));
    if (made) ctx->scratch_owner = (int)getpid(); /* else messages carry what logs would */
    return KILN_OK;
}

/* The folder for scratch files, for targets. */
static kiln_status scratch_of(void *user, const char **dir) {
    kiln_ctx *ctx = user;
    pthread_mutex_lock(&ctx->lock);
    kiln_status st = ctx->scratch ? KILN_OK : make_scratch(ctx);
    *dir = ctx->scratch;
    pthread_mutex_unlock(&ctx->lock);
    return st;
}

/* -- forking ------------------------------------------------------------------------------------------------- */

/* Every lock is taken over a fork, outer ones first, so that the child finds whole structures and free locks. */
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static kiln_ctx *contexts;

static void before_fork(void) {
    pthread_mutex_lock(&contexts_lock);
    for (kiln_ctx *c = contexts; c; c = c->next) {
        pthread_mutex_lock(&c->load_lock);
        kiln_targets_lock(&c->targets, true);
        pthread_mutex_lock(&c->lock);
        pthread_mutex_lock(&c->builds.lock);
        kiln_cache_lock(c->cache, true);
        kiln_stores_lock(&c->stores, true);
    }
    kiln_shipped_lock(true);
    kiln_threads_before_fork();
}

static void after_fork(bool in_child) {
    kiln_threads_after_fork(in_child);
    kiln_shipped_lock(false);
    for (kiln_ctx *c = contexts; c; c = c->next) {
        if (in_child) kiln_stores_forked(&c->stores);
        kiln_stores_lock(&c->stores, false);
        kiln_cache_lock(c->cache, false);
        if (in_child) kiln_builds_after_fork(c);
        pthread_mutex_unlock(&c->builds.lock);
        pthread_mutex_unlock(&c->lock);
        kiln_targets_lock(&c->targets, false);
        pthread_mutex_unlock(&c->load_lock);
    }
    pthread_mutex_unlock(&contexts_lock);
}

static void after_fork_parent(void) { after_fork(false); }
static void after_fork_child(void) { after_fork(true); }

static int atfork_rc = -1;
static void watch_forks(void) {
    atfork_rc = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* Before anything else here watches forks: handlers before a fork run in reverse order, so that the locks of
 * the pool and of what else comes later are taken first, as where they are held the ones here may be wanted. */
static bool forks_are_watched(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return atfork_rc == 0;
}

static void enlist(kiln_ctx *ctx) {
    pthread_mutex_lock(&contexts_lock);
    ctx->next = contexts;
    contexts = ctx;
    pthread_mutex_unlock(&contexts_lock);
}

static void delist(kiln_ctx *ctx) {
    pthread_mutex_lock(&contexts_lock);
    kiln_ctx **link = &contexts;
    while (*link && *link != ctx) link = &(*link)->next;
    if (*link) *link = ctx->next;
    pthread_mutex_unlock(&contexts_lock);
}

/* -- open and close ------------------------------------------------------------------------------------------ */

static void drop_class(kiln_entry *e) { kiln_class_free((kiln_class *)e); /* its first member */ }
static kiln_status open_parts(kiln_ctx *ctx, const kiln_config *config) {
    KILN_TRY(configure(ctx, config));
    KILN_TRY(kiln_epochs_init(&ctx->epochs, &kiln_slots_none, kiln_slots_free));
    KILN_TRY(kiln_cache_new(&ctx->epochs, ctx->max_kernels, drop_class, &ctx->cache));
    KILN_TRY(kiln_store_settings(ctx));
    KILN_TRY(kiln_stores_open(&ctx->stores, &ctx->store_host));
    ctx->host = (kiln_target_host){ctx->isa, ctx->cc, scratch_of, kiln_ctx_interrupted, ctx};
    KILN_TRY(kiln_targets_open(&ctx->targets, &ctx->host));
    enlist(ctx);
    return KILN_OK;
}

kiln_status kiln_open(const kiln_config *config, kiln_ctx **out) {
    KILN_NEED(out);
    kiln_ctx *ctx = forks_are_watched() ? kiln_calloc(1, sizeof *ctx) : NULL;
    if (!ctx) return KILN_NOMEM();
    atomic_init(&ctx->registry, kiln_registry_shipped());
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->load_lock, NULL);
    kiln_builds_init(&ctx->builds);
    kiln_pool_retain();
    kiln_status st = open_parts(ctx, config);
    if (st == KILN_OK)
        *out = ctx;
    else
        kiln_close(ctx);
    return kiln_note(st, "kiln_open");
}

void kiln_close(kiln_ctx *ctx) {
    if (!ctx) return;
    kiln_builds_stop(ctx);
    delist(ctx);
    kiln_cache_free(ctx->cache);
    kiln_epochs_fini(&ctx->epochs);
    kiln_stores_close(&ctx->stores); /* no class is left */
    kiln_lone_ops_free(ctx);
    kiln_builds_fini(&ctx->builds);
    kiln_targets_close(&ctx->targets);
    if (ctx->scratch_owner == (int)getpid()) /* a forked child leaves its parent's folder alone */
        kiln_dir_remove(ctx->scratch);
    for (size_t k = ctx->nloaded; k-- > 0;) kiln_registry_free(ctx->loaded[k]);
    kiln_free(ctx->loaded);
    kiln_free(ctx->scratch);
    kiln_free(ctx->cc);
    kiln_free(ctx->cache_dir);
    kiln_free(ctx->dump_dir);
    kiln_free(ctx->record_path);
    for (int k = 0; k < KILN_STORE_TEXTS; k++) kiln_free(ctx->store_text[k]);
    pthread_mutex_destroy(&ctx->load_lock);
    pthread_mutex_destroy(&ctx->lock);
    kiln_pool_release();
    kiln_free(ctx);
}
