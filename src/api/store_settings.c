/* store_settings.c - kiln_config and the environment -> what the stores of a context may use.
 *
 * A setting of the program beats the environment, which counts for nothing in a setuid program: whoever starts one must not choose the
 * files that its code comes from.  Owns the texts.  Must not know what a store does with them. */
#include <stdlib.h>
#include <string.h>

#include "api/ctx.h"

#define DEFAULT_SIZE (UINT64_C(1) << 30)

static const char *env(const char *name) {
    const char *v = secure_getenv(name);
    return v && v[0] ? v : NULL;
}

static kiln_status keep_text(kiln_ctx *ctx, int which, const char *api, const char *variable) {
    const char *v = api ? api : env(variable);
    if (!v || !v[0]) return KILN_OK;
    ctx->store_text[which] = kiln_strdup(v);
    return ctx->store_text[which] ? KILN_OK : KILN_NOMEM();
}

static kiln_status parse_cache(const kiln_config *cfg, kiln_store_host *h) {
    const char *text = cfg->cache ? cfg->cache : env("KILN_CACHE");
    if (!text || strcmp(text, "disk") == 0) return KILN_OK;
    h->in_memory = strcmp(text, "memory") == 0;
    h->alone = strcmp(text, "off") == 0;
    if (!h->in_memory && !h->alone)
        return KILN_FAIL(KILN_E_ARG, "%s is '%.40s': expected off, memory or disk",
                         cfg->cache ? "kiln_config.cache" : "KILN_CACHE", text);
    h->in_memory = true;
    return KILN_OK;
}

/* A number of bytes, or of KiB, MiB or GiB: 4096, 500K, 64M, 2G. */
static kiln_status parse_size(const kiln_config *cfg, uint64_t *out) {
    static const char units[] = "KMG";
    const char *text = env("KILN_CACHE_SIZE"), *unit;
    char *end;
    *out = cfg->cache_size ? cfg->cache_size : DEFAULT_SIZE;
    if (cfg->cache_size || !text) return KILN_OK;
    unsigned long long n = strtoull(text, &end, 10);
    int shift = 0;
    if (*end && (unit = strchr(units, *end)) && !end[1]) {
        shift = 10 * (int)(unit - units + 1);
        end++;
    }
    if (*end || text[0] < '0' || text[0] > '9' || n == 0 || n > UINT64_MAX >> 1 >> shift)
        return KILN_FAIL(KILN_E_ARG, "KILN_CACHE_SIZE is '%.40s': expected a number of bytes, as 500M or 2G",
                         text);
    *out = (uint64_t)n << shift;
    return KILN_OK;
}

static kiln_status parse_shared(const kiln_config *cfg, bool *out) {
    const char *text = env("KILN_CACHE_SHARED");
    *out = cfg->cache_shared != 0 || (text && strcmp(text, "1") == 0);
    if (cfg->cache_shared || !text || strcmp(text, "1") == 0 || strcmp(text, "0") == 0) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "KILN_CACHE_SHARED is '%.40s': expected 0 or 1", text);
}

static void log_store(void *user, int level, const char *topic, const char *text) {
    kiln_ctx_log(user, level, topic, "%s", text);
}

kiln_status kiln_store_settings(kiln_ctx *ctx) {
    kiln_store_host *h = &ctx->store_host;
    const kiln_config *cfg = &ctx->config;
    *h = (kiln_store_host){.epochs = &ctx->epochs, .stop = &ctx->closing, .log = log_store, .user = ctx};
    KILN_TRY(parse_cache(cfg, h));
    KILN_TRY(parse_size(cfg, &h->nbytes_most));
    KILN_TRY(parse_shared(cfg, &h->is_shared));
    KILN_TRY(kiln_ctx_cache_dir(ctx, &ctx->store_text[KILN_TEXT_DIR]));
    KILN_TRY(keep_text(ctx, KILN_TEXT_KEY, cfg->key_file, "KILN_KEY_FILE"));
    KILN_TRY(keep_text(ctx, KILN_TEXT_PACKS, cfg->packs, "KILN_PACK"));
    KILN_TRY(keep_text(ctx, KILN_TEXT_REMOTE, cfg->redis_url, "KILN_REDIS_URL"));
    h->dir = ctx->store_text[KILN_TEXT_DIR];
    h->key_path = ctx->store_text[KILN_TEXT_KEY];
    h->packs = ctx->store_text[KILN_TEXT_PACKS];
    h->remote_url = ctx->store_text[KILN_TEXT_REMOTE];
    return KILN_OK;
}
