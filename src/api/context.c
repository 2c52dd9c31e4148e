/* context.c - kiln_open and kiln_close: configuration, registry, toolchain and scratch folder of a context.
 *
 * API settings beat the environment.  The compiler is looked for, and folders are made, only when a
 * class is first compiled, so opening a context neither spawns nor writes.  Must not know what calls do. */
#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/ctx.h"
#include "base/text_entry.h"

void kiln_ctx_log(const kiln_ctx *ctx, int level, const char *topic, const char *fmt, ...) {
    if (!ctx->log) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ctx->log(ctx->log_user, level, topic, text);
}

/* -- settings ----------------------------------------------------------------------------------------------- */

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

/* A copy of the first of the two that is set; NULL stays NULL. */
static kiln_status setting(const char *api, const char *variable, char **out) {
    const char *v = api ? api : env(variable);
    if (!v) return KILN_OK;
    *out = kiln_strdup(v);
    return *out ? KILN_OK : KILN_NOMEM();
}

static kiln_status parse_mode(kiln_ctx *ctx, kiln_mode mode) {
    const char *text = env("KILN_MODE");
    ctx->mode = mode ? mode : KILN_MODE_SYNC;
    if (mode == KILN_MODE_DEFAULT && text) {
        if (strcmp(text, "sync") == 0) ctx->mode = KILN_MODE_SYNC;
        else if (strcmp(text, "interp") == 0) ctx->mode = KILN_MODE_INTERP;
        else return KILN_FAIL(KILN_E_ARG, "KILN_MODE is '%.40s': expected sync or interp", text);
    }
    if (ctx->mode != KILN_MODE_SYNC && ctx->mode != KILN_MODE_INTERP)
        return KILN_FAIL(KILN_E_ARG, "unknown mode %d", (int)mode);
    return KILN_OK;
}

static kiln_status parse_isa(kiln_ctx *ctx, const char *name) {
    ctx->isa = kiln_isa_detect();
    if (!name) return KILN_OK;
    KILN_TRY(kiln_isa_parse(name, &ctx->isa));
    if (!kiln_isa_runs(ctx->isa)) return KILN_FAIL(KILN_E_ARG, "this machine does not run %s", name);
    return KILN_OK;
}

static kiln_status configure(kiln_ctx *ctx, const kiln_config *given) {
    kiln_config cfg = {.size = sizeof cfg};
    if (given) {
        static const size_t ends[] = {0, /* as zero-filled */
                                      offsetof(kiln_config, mode), offsetof(kiln_config, cc),
                                      offsetof(kiln_config, cache_dir), offsetof(kiln_config, isa),
                                      offsetof(kiln_config, dump_dir), offsetof(kiln_config, log),
                                      offsetof(kiln_config, log_user), sizeof(kiln_config)};
        size_t k = 0, n = sizeof ends / sizeof *ends;
        while (k < n && ends[k] != given->size) k++;
        if (k == n)
            return KILN_FAIL(KILN_E_ARG, "kiln_config.size is %zu: expected sizeof(kiln_config), here %zu",
                             given->size, sizeof cfg);
        memcpy(&cfg, given, given->size ? given->size : sizeof cfg);
    }
    ctx->log = cfg.log;
    ctx->log_user = cfg.log_user;
    KILN_TRY(parse_mode(ctx, cfg.mode));
    KILN_TRY(parse_isa(ctx, cfg.isa));
    KILN_TRY(setting(cfg.cc, "KILN_CC", &ctx->cc));
    KILN_TRY(setting(cfg.cache_dir, "KILN_CACHE_DIR", &ctx->cache_dir));
    return setting(cfg.dump_dir, "KILN_DUMP_DIR", &ctx->dump_dir);
}

/* -- registry ------------------------------------------------------------------------------------------------ */

static kiln_status first_registry(kiln_ctx *ctx) {
    kiln_row_text *texts = kiln_calloc(kiln_text_ops_count, sizeof *texts);
    if (!texts) return KILN_NOMEM();
    char names[32][64];
    size_t n = kiln_text_ops_count < 32 ? kiln_text_ops_count : 32;
    for (size_t k = 0; k < n; k++) {
        snprintf(names[k], sizeof names[k], "%s.ops", kiln_text_ops[k].name);
        texts[k] = (kiln_row_text){names[k], kiln_text_ops[k].text, kiln_text_ops[k].len};
    }
    kiln_registry *r;
    kiln_status st = kiln_registry_new(NULL, texts, (int)n, kiln_text_schemas, kiln_text_schemas_len, &r);
    if (st == KILN_OK) atomic_store(&ctx->registry, r);
    kiln_free(texts);
    return st;
}

static kiln_status replace_registry(kiln_ctx *ctx, const kiln_row_text *text) {
    kiln_registry *now = atomic_load(&ctx->registry), *next;
    kiln_registry **old = kiln_realloc(ctx->old, (ctx->nold + 1) * sizeof *old);
    if (!old) return KILN_NOMEM();
    ctx->old = old;
    KILN_TRY(kiln_registry_new(now, text, 1, kiln_text_schemas, kiln_text_schemas_len, &next));
    ctx->old[ctx->nold++] = now;
    atomic_store_explicit(&ctx->registry, next, memory_order_release);
    return KILN_OK;
}

kiln_status kiln_ops_load(kiln_ctx *ctx, const char *text, size_t nbytes) {
    kiln_row_text t = {"rows", text, nbytes};
    pthread_mutex_lock(&ctx->lock);
    kiln_status st = replace_registry(ctx, &t);
    pthread_mutex_unlock(&ctx->lock);
    return st;
}

/* -- the compiler and its folder --------------------------------------------------------------------------- */

kiln_status kiln_ctx_cache_dir(const kiln_ctx *ctx, char **out) {
    kiln_sb path;
    kiln_sb_init(&path);
    const char *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    if (ctx->cache_dir) kiln_sb_puts(&path, ctx->cache_dir);
    else if (xdg) kiln_sb_printf(&path, "%s/kiln", xdg);
    else if (home) kiln_sb_printf(&path, "%s/.cache/kiln", home);
    return kiln_sb_take(&path, out);
}

static kiln_status temporary_dir(kiln_ctx *ctx) {
    kiln_sb path;
    kiln_sb_init(&path);
    const char *tmp = env("TMPDIR");
    kiln_sb_printf(&path, "%s/kiln-XXXXXX", tmp ? tmp : "/tmp");
    kiln_free(ctx->scratch);
    ctx->scratch = NULL;
    KILN_TRY(kiln_sb_take(&path, &ctx->scratch));
    if (mkdtemp(ctx->scratch)) ctx->scratch_owner = (int)getpid(); /* else messages carry what logs would */
    return KILN_OK;
}

/* With the logs in it.  A forked child leaves its parent's folder alone. */
static void remove_temporary_dir(const kiln_ctx *ctx) {
    if (ctx->scratch_owner != (int)getpid()) return;
    DIR *d = opendir(ctx->scratch);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    (void)rmdir(ctx->scratch);
}

static kiln_status open_toolchain(kiln_ctx *ctx) {
    if (!ctx->scratch) {
        KILN_TRY(kiln_ctx_cache_dir(ctx, &ctx->scratch));
        bool usable = ctx->scratch[0] && kiln_mkdirs(ctx->scratch) == KILN_OK && access(ctx->scratch, W_OK) == 0;
        if (!usable) KILN_TRY(temporary_dir(ctx));
    }
    return kiln_toolchain_open(ctx->cc, ctx->scratch, &ctx->toolchain);
}

kiln_status kiln_ctx_toolchain(kiln_ctx *ctx, kiln_toolchain **out) {
    kiln_status st = KILN_OK;
    pthread_mutex_lock(&ctx->lock);
    if (!ctx->toolchain) st = open_toolchain(ctx);
    *out = ctx->toolchain;
    pthread_mutex_unlock(&ctx->lock);
    return st;
}

/* -- open and close ------------------------------------------------------------------------------------------ */

kiln_status kiln_open(const kiln_config *config, kiln_ctx **out) {
    kiln_ctx *ctx = kiln_calloc(1, sizeof *ctx);
    if (!ctx) return KILN_NOMEM();
    pthread_mutex_init(&ctx->lock, NULL);
    kiln_status st = configure(ctx, config);
    if (st == KILN_OK) st = first_registry(ctx);
    if (st == KILN_OK) st = kiln_cache_new(kiln_class_free, &ctx->cache);
    if (st == KILN_OK) *out = ctx;
    else kiln_close(ctx);
    return kiln_note(st, "kiln_open");
}

void kiln_close(kiln_ctx *ctx) {
    if (!ctx) return;
    kiln_cache_free(ctx->cache);
    kiln_toolchain_close(ctx->toolchain);
    remove_temporary_dir(ctx);
    for (size_t k = ctx->nold; k-- > 0;) kiln_registry_free(ctx->old[k]);
    kiln_registry_free(atomic_load(&ctx->registry));
    kiln_free(ctx->old);
    kiln_free(ctx->scratch);
    kiln_free(ctx->cc);
    kiln_free(ctx->cache_dir);
    kiln_free(ctx->dump_dir);
    pthread_mutex_destroy(&ctx->lock);
    kiln_free(ctx);
}
