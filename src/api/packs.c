/* packs.c - kernels of the cache folder -> a pack, and a pack -> kernels of the cache folder.
 *
 * Every entry is checked on its way; what fails a check, or was made by another version of Kiln, is left out and counted.  Export
 * signs each entry with the user's key, if there is one; import copies entries as they are.  Must not know how packs and folders are laid out. */
#include <string.h>
#include <unistd.h>

#include "api/ctx.h"
#include "store/folder.h"
#include "store/packfile.h"

static const char aten[] = "aten::";

static bool is_named(const char *op, const char *name) {
    if (strcmp(op, name) == 0) return true;
    return strncmp(op, aten, strlen(aten)) == 0 && strcmp(op + strlen(aten), name) == 0;
}

static bool is_wanted(const char *op, const char *const *ops, size_t nops) {
    for (size_t k = 0; k < nops; k++)
        if (is_named(op, ops[k])) return true;
    return nops == 0;
}

/* Whether this build of Kiln could ever find the entry. */
static bool is_current(const kiln_ctx *ctx, const kiln_stored *says) {
    for (int k = 0; k < ctx->targets.n; k++) {
        const kiln_target *t = ctx->targets.at[k];
        if (strcmp(t->name, says->target) == 0 && strcmp(t->stamp, says->stamp) == 0) return true;
    }
    return false;
}

kiln_status kiln_ctx_open_kernels(const kiln_ctx *ctx, bool create, int *fd) {
    const kiln_store_host *h = &ctx->store_host;
    if (h->in_memory || !h->dir[0])
        return KILN_FAIL(
            KILN_E_ARG,
            "there is no cache folder: KILN_CACHE is not disk, or neither KILN_CACHE_DIR, XDG_CACHE_HOME nor HOME is set");
    if (h->is_shared && !h->key_path)
        return KILN_FAIL(KILN_E_ARG, "a shared cache folder needs a key: set KILN_KEY_FILE");
    kiln_status st = kiln_folder_open(h->dir, create, h->is_shared, fd);
    if (st != KILN_E_NOTFOUND) return st;
    return KILN_FAIL(KILN_E_NOTFOUND, "no kernel is kept in %s yet", h->dir);
}

/* -- which operators packs have kernels for ---------------------------------------------------------------------- */

/* Hashes of the names of rows. */
typedef struct rows {
    const kiln_target *target;
    uint64_t *at;
    size_t n, room;
} rows;

static bool has_row(const rows *r, uint64_t row) {
    for (size_t k = r->n; k-- > 0;)
        if (r->at[k] == row) return true;
    return false;
}

/* Notes the row of an entry that this machine can load. */
static kiln_status note_row(void *user, const kiln_stored *says) {
    rows *r = user;
    const kiln_target *t = r->target;
    if (strcmp(says->target, t->name) != 0 || strcmp(says->stamp, t->stamp) != 0 || says->level > t->level)
        return KILN_OK;
    uint64_t row = kiln_hash64(says->op, strlen(says->op));
    if (has_row(r, row)) return KILN_OK;
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        uint64_t *more = kiln_realloc(r->at, room * sizeof *more);
        if (!more) return KILN_NOMEM();
        r->at = more;
        r->room = room;
    }
    r->at[r->n++] = row;
    return KILN_OK;
}

static kiln_status show_if_packed(const rows *r, const kiln_op *op, kiln_name_fn visit, void *user) {
    kiln_sb name;
    kiln_sb_init(&name);
    kiln_row_name_print(&name, op->row);
    bool packed = !name.failed && has_row(r, kiln_hash64(name.p, name.len));
    kiln_sb_fini(&name);
    return packed && kiln_op_served(op) ? visit(user, op->name) : KILN_OK;
}

static kiln_status show_packed(kiln_ctx *ctx, rows *r, kiln_name_fn visit, void *user) {
    const kiln_registry *registry = atomic_load(&ctx->registry);
    for (int k = 0; k < ctx->stores.n; k++)
        if (ctx->stores.at[k]->each) KILN_TRY(ctx->stores.at[k]->each(ctx->stores.at[k], note_row, r));
    for (size_t k = 0; r->n && k < kiln_registry_count(registry); k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(registry, k, &op));
        KILN_TRY(show_if_packed(r, op, visit, user));
    }
    return KILN_OK;
}

kiln_status kiln_packed_ops(kiln_ctx *ctx, kiln_name_fn visit, void *user) {
    KILN_NEED(ctx, visit);
    rows r = {.target = kiln_ctx_host_target(ctx)};
    kiln_status st = show_packed(ctx, &r, visit, user);
    kiln_free(r.at);
    return st;
}

/* -- export ---------------------------------------------------------------------------------------------------- */

typedef struct exporting {
    kiln_ctx *ctx;
    const kiln_pack_how *how;
    const kiln_key_file *key;   /* signs; NULL: nothing is signed */
    const kiln_key_file *needs; /* must have signed what is read; NULL: nothing is asked for */
    int fd;
    kiln_packing *pack;
    uint64_t npacked, left_out;
} exporting;

static kiln_status nothing_to_pack(const exporting *x) {
    const kiln_pack_how *how = x->how;
    const char *dir = x->ctx->store_host.dir;
    if (!how->nops) return KILN_FAIL(KILN_E_NOTFOUND, "%s has no kernel that could be exported", dir);
    return KILN_FAIL(KILN_E_NOTFOUND, "%s has no kernel of %s%s: 'kiln cache ls' lists the operators", dir,
                     how->ops[0], how->nops > 1 ? " or the other operators" : "");
}

static kiln_status pack_entry(exporting *x, const kiln_digest *d, const kiln_file_bytes *bytes) {
    kiln_stored says;
    void *entry;
    size_t n;
    bool fine = kiln_stored_read(bytes->entry, bytes->nentry, d, x->needs, &says) == KILN_STORED_FINE;
    if (!fine || !is_current(x->ctx, &says)) {
        kiln_clear_error();
        x->left_out++;
        return KILN_OK;
    }
    if (!is_wanted(says.op, x->how->ops, x->how->nops)) return KILN_OK;
    if (x->how->without_ir) says.ir = "";
    KILN_TRY(kiln_stored_write(&says, x->key, &entry, &n));
    kiln_status st = kiln_packing_add(x->pack, d, entry, n);
    x->npacked += st == KILN_OK;
    kiln_free(entry);
    return st;
}

static kiln_status export_one(void *user, const kiln_digest *d, const struct stat *info) {
    exporting *x = user;
    kiln_file_bytes bytes;
    (void)info;
    kiln_found found = kiln_folder_read(x->fd, d, x->ctx->store_host.is_shared, false, &bytes);
    if (found == KILN_FOUND_NOT) return KILN_OK;
    if (found != KILN_FOUND) {
        kiln_clear_error();
        x->left_out++;
        return KILN_OK;
    }
    kiln_status st = pack_entry(x, d, &bytes);
    kiln_free(bytes.entry);
    return st;
}

kiln_status kiln_pack_export(kiln_ctx *ctx, const char *path, const kiln_pack_how *how,
                             kiln_pack_report *out) {
    static const kiln_pack_how all;
    KILN_NEED(ctx, path, out);
    exporting x = {.ctx = ctx, .how = how ? how : &all};
    size_t count;
    KILN_TRY(kiln_stores_key(&ctx->stores, &x.key));
    if (ctx->store_host.is_shared) x.needs = x.key;
    KILN_TRY(kiln_ctx_open_kernels(ctx, false, &x.fd));
    kiln_status st = kiln_packing_begin(path, &x.pack);
    if (st == KILN_OK) {
        st = kiln_folder_walk(x.fd, export_one, &x);
        if (st == KILN_OK && !x.npacked) st = nothing_to_pack(&x);
        kiln_status ended = kiln_packing_end(x.pack, st == KILN_OK, &count, &out->nbytes);
        if (st == KILN_OK) st = ended;
        out->kernels = count;
        out->left_out = x.left_out;
    }
    close(x.fd);
    return st;
}

/* -- import ---------------------------------------------------------------------------------------------------- */

static kiln_status import_one(const kiln_ctx *ctx, const kiln_key_file *needs, const kiln_packfile *p,
                              size_t k, int fd, kiln_pack_report *out) {
    kiln_digest d;
    kiln_file_bytes bytes = {0};
    kiln_stored says;
    KILN_TRY(kiln_packfile_at(p, k, &d, &bytes.entry, &bytes.nentry));
    bool fine = kiln_stored_read(bytes.entry, bytes.nentry, &d, needs, &says) == KILN_STORED_FINE &&
                is_current(ctx, &says);
    kiln_status st = fine ? kiln_folder_write(fd, &d, ctx->store_host.is_shared, &bytes) : KILN_OK;
    if (!fine) kiln_clear_error();
    out->left_out += !fine;
    out->kernels += fine && st == KILN_OK;
    out->nbytes += fine ? bytes.nentry : 0;
    kiln_free(bytes.entry);
    return st;
}

kiln_status kiln_pack_import(kiln_ctx *ctx, const char *path, kiln_pack_report *out) {
    KILN_NEED(ctx, path, out);
    const kiln_key_file *key;
    kiln_packfile *p;
    int fd = -1;
    *out = (kiln_pack_report){0};
    KILN_TRY(kiln_stores_key(&ctx->stores, &key));
    KILN_TRY(kiln_packfile_open(path, &p));
    kiln_status st = kiln_ctx_open_kernels(ctx, true, &fd);
    for (size_t k = 0; st == KILN_OK && k < kiln_packfile_count(p); k++)
        st = import_one(ctx, ctx->store_host.is_shared ? key : NULL, p, k, fd, out);
    if (fd >= 0) close(fd);
    kiln_packfile_close(p);
    return st;
}
