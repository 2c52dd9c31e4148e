/* stored_list.c - the folder of kernels on disk -> what a program may know of each entry; removing entries.
 *
 * An entry is read and checked as a call would read and check it, but nothing is removed because of what a check says.  Texts of an entry
 * that is refused for want of a signature are shown all the same: they are for people, and no byte of the entry becomes code here.  Must not
 * know how an entry is written. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/ctx.h"
#include "store/folder.h"

/* -- the folder ------------------------------------------------------------------------------------------ */

static kiln_status check_is_kept(const kiln_ctx *ctx) {
    const kiln_store_host *h = &ctx->store_host;
    if (h->in_memory)
        return KILN_FAIL(KILN_E_UNSUP, "no kernel is kept on disk, since the setting KILN_CACHE is '%s'",
                         h->alone ? "off" : "memory");
    if (!h->dir[0])
        return KILN_FAIL(KILN_E_UNSUP,
                         "no kernel is kept on disk: set KILN_CACHE_DIR, XDG_CACHE_HOME or HOME");
    return KILN_OK;
}

/* *fd is -1 where the folder does not exist. */
static kiln_status open_folder(const kiln_ctx *ctx, int *fd) {
    *fd = -1;
    KILN_TRY(check_is_kept(ctx));
    kiln_status st = kiln_folder_open(ctx->store_host.dir, false, ctx->store_host.is_shared, fd);
    if (st != KILN_E_NOTFOUND) return st;
    kiln_clear_error();
    *fd = -1;
    return KILN_OK;
}

kiln_status kiln_cache_folder(kiln_ctx *ctx, char **out) {
    KILN_NEED(ctx, out);
    KILN_TRY(check_is_kept(ctx));
    kiln_sb path;
    kiln_sb_init(&path);
    kiln_sb_printf(&path, "%s/" KILN_FOLDER_NAME, ctx->store_host.dir);
    return kiln_sb_end(&path, KILN_OK, out);
}

/* -- one entry ------------------------------------------------------------------------------------------- */

typedef struct lister {
    kiln_ctx *ctx;
    const kiln_key_file *key; /* that must have signed each entry; NULL: none */
    const char *start;
    int fd, how;
    kiln_kept_fn visit;
    void *user;
} lister;

/* ORDER: as kiln_stored_fault. */
static const char *const causes[] = {NULL, "corrupt", "stale", "unsigned", "foreign"};

static const char *cause_of(kiln_found found) {
    return found == KILN_FOUND_CORRUPT ? "corrupt" : found == KILN_FOUND_FOREIGN ? "foreign" : "unreadable";
}

static const kiln_target *target_of(const kiln_ctx *ctx, const kiln_stored *says) {
    for (int k = 0; k < KILN_DEVICE_COUNT; k++) {
        const kiln_target *t = ctx->targets.of[k];
        if (t && strcmp(t->name, says->target) == 0 && strcmp(t->stamp, says->stamp) == 0 &&
            says->level <= t->level && t->runs((int)says->level))
            return t;
    }
    return NULL;
}

static kiln_stored_fault check_image(const kiln_target *t, const kiln_stored *says) {
    kiln_object image = {.bytes = (void *)(uintptr_t)says->image, .n = says->nimage}; /* only read */
    kiln_code *code;
    if (t->load_image((kiln_target *)t, &image, &code) != KILN_OK) return KILN_STORED_CORRUPT;
    kiln_code_free(code);
    return KILN_STORED_FINE;
}

static kiln_stored_fault check_source(const kiln_file_bytes *b, kiln_kept_info *info) {
    info->source = b->source ? kiln_stored_source_in(b->source, b->nsource, &info->nsource) : NULL;
    if (!b->source || info->source) return KILN_STORED_FINE;
    (void)KILN_FAIL(KILN_E_IO, "the source behind it is damaged, and no call reads that");
    return KILN_STORED_CORRUPT;
}

/* Whether every entry must be signed, and there is no key to check that with. */
static kiln_stored_fault check_key(const lister *l) {
    if (!l->ctx->store_host.is_shared || l->key) return KILN_STORED_FINE;
    (void)KILN_FAIL(KILN_E_ARG, "the folder is shared, and KILN_KEY_FILE names no key to check it with");
    return KILN_STORED_UNSIGNED;
}

static void tell(kiln_kept_info *info, const kiln_stored *says) {
    info->op = says->op;
    info->words = says->words;
    info->target = says->target;
    info->stamp = says->stamp;
    info->isa = says->isa;
    info->compiler = says->compiler;
    info->ir = says->ir;
    info->built_at = says->built_at;
    info->build_ns = says->build_ns;
    info->tested = says->tested != 0;
    info->is_signed = says->is_signed;
}

static kiln_stored_fault read_entry(const lister *l, const kiln_digest *d, const kiln_file_bytes *b,
                                    kiln_kept_info *info) {
    kiln_stored says;
    kiln_stored_fault fault = kiln_stored_read(b->entry, b->nentry, d, l->key, &says);
    if (fault == KILN_STORED_UNSIGNED &&
        kiln_stored_read(b->entry, b->nentry, d, NULL, &says) == KILN_STORED_FINE)
        tell(info, &says);
    if (fault != KILN_STORED_FINE) return fault;
    const kiln_target *t = target_of(l->ctx, &says);
    info->is_current = t != NULL;
    tell(info, &says);
    fault = check_key(l);
    if (fault == KILN_STORED_FINE) fault = check_source(b, info);
    if (fault == KILN_STORED_FINE && t && l->how & KILN_CACHE_LOAD) fault = check_image(t, &says);
    return fault;
}

/* Entries that another process removes meanwhile are left out. */
static kiln_status visit_entry(void *user, const kiln_digest *d, const struct stat *file) {
    const lister *l = user;
    char id[KILN_DIGEST_TEXT], why[600];
    kiln_digest_print(d, id);
    if (l->start && strncmp(id, l->start, strlen(l->start)) != 0) return KILN_OK;
    kiln_kept_info info = {.id = id,
                           .op = "",
                           .words = "",
                           .target = "",
                           .stamp = "",
                           .isa = "",
                           .compiler = "",
                           .ir = "",
                           .nbytes = (uint64_t)file->st_size,
                           .used_at = (uint64_t)file->st_mtime};
    kiln_file_bytes bytes;
    kiln_found found = kiln_folder_read(l->fd, d, l->ctx->store_host.is_shared, true, &bytes);
    if (found == KILN_FOUND_NOT) return KILN_OK;
    info.cause = found == KILN_FOUND ? causes[read_entry(l, d, &bytes, &info)] : cause_of(found);
    if (info.cause) {
        snprintf(why, sizeof why, "%s", kiln_last_error());
        info.fault = why;
        kiln_clear_error();
    }
    kiln_status st = l->visit(l->user, &info);
    kiln_free(bytes.entry);
    kiln_free(bytes.source);
    return st;
}

kiln_status kiln_cache_list(kiln_ctx *ctx, const char *start, int how, kiln_kept_fn visit, void *user) {
    KILN_NEED(ctx, visit);
    lister l = {.ctx = ctx, .start = start, .how = how, .visit = visit, .user = user};
    KILN_TRY(open_folder(ctx, &l.fd));
    if (l.fd < 0) return KILN_OK;
    int quiet = kiln_quiet(0); /* what is wrong with an entry is told to `visit` */
    kiln_status st = ctx->store_host.is_shared ? kiln_stores_key(&ctx->stores, &l.key) : KILN_OK;
    if (st == KILN_OK) st = kiln_folder_walk(l.fd, visit_entry, &l);
    (void)kiln_quiet(quiet);
    close(l.fd);
    return st;
}

/* -- removing -------------------------------------------------------------------------------------------- */

static void report_to(kiln_cache_report *to, const kiln_prune_report *from) {
    if (!to) return;
    *to = (kiln_cache_report){from->nremoved, from->removed_bytes, from->nleft, from->left_bytes};
}

kiln_status kiln_cache_prune(kiln_ctx *ctx, uint64_t nbytes, kiln_cache_report *report) {
    KILN_NEED(ctx);
    kiln_prune_report done = {0};
    uint64_t most = nbytes ? nbytes : ctx->store_host.nbytes_most;
    int fd;
    KILN_TRY(open_folder(ctx, &fd));
    kiln_status st = fd < 0 ? KILN_OK : kiln_folder_prune(fd, most, most, &done);
    if (fd >= 0) close(fd);
    if (st == KILN_OK) report_to(report, &done);
    return st;
}

typedef struct remover {
    int fd;
    uint64_t n, nbytes;
} remover;

static kiln_status remove_entry(void *user, const kiln_digest *d, const struct stat *file) {
    remover *r = user;
    if (!kiln_folder_remove(r->fd, d)) return KILN_OK;
    r->n++;
    r->nbytes += (uint64_t)file->st_size;
    return KILN_OK;
}

kiln_status kiln_cache_clear(kiln_ctx *ctx, kiln_cache_report *report) {
    KILN_NEED(ctx);
    kiln_prune_report left = {0};
    remover r = {0};
    KILN_TRY(open_folder(ctx, &r.fd));
    kiln_status st = r.fd < 0 ? KILN_OK : kiln_folder_walk(r.fd, remove_entry, &r);
    if (st == KILN_OK && r.fd >= 0) st = kiln_folder_prune(r.fd, UINT64_MAX, UINT64_MAX, &left); /* counts */
    if (r.fd >= 0) close(r.fd);
    left.nremoved = r.n;
    left.removed_bytes = r.nbytes;
    if (st == KILN_OK) report_to(report, &left);
    return st;
}
