/* classes.c - kiln_classes_list: the classes of calls that a context has in memory -> what a program may know of each.
 *
 * Reads the cache's table without a lock, as calls do, so that calls and builds go on meanwhile.  A class keeps the name of its operator
 * and its key in words from when it was made, since rows may be gone by now.  Must not know what a kernel computes. */
#include "api/memo.h"

/* kiln_last_tier's words where a call of the class itself runs something, else the kind of the class. */
static const char *tier_of(const kiln_class *c, bool has_code) {
    static const char *const kinds[] = KILN_CLASS_KIND_NAMES;
    if (c->kind != KILN_CLASS_KERNEL) return kinds[c->kind];
    return has_code ? kiln_tier_compiled : kiln_tier_interp;
}

static kiln_class_info describe(const kiln_class *c) {
    bool has_code = c->kind == KILN_CLASS_KERNEL && atomic_load_explicit(&c->fn, memory_order_acquire);
    return (kiln_class_info){.op = c->name,
                             .words = c->words,
                             .tier = tier_of(c, has_code),
                             .interp_calls = atomic_load_explicit(&c->interp_calls, memory_order_relaxed),
                             .build_ns = atomic_load_explicit(&c->build_ns, memory_order_relaxed),
                             .code_bytes = has_code ? kiln_code_nbytes(kiln_resident_code(c->kernel))
                                                    : 0, /* written before fn was */
                             .failed_builds = atomic_load_explicit(&c->nfailed, memory_order_relaxed)};
}

typedef struct visiting {
    kiln_class_fn visit;
    void *user;
} visiting;

static kiln_status visit_class(void *user, kiln_entry *e) {
    const visiting *v = user;
    kiln_class_info info = describe((kiln_class *)e); /* its first member */
    return v->visit(v->user, &info);
}

kiln_status kiln_classes_list(kiln_ctx *ctx, kiln_class_fn visit, void *user) {
    KILN_NEED(ctx, visit);
    visiting v = {visit, user};
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->epochs, t);
    kiln_status st = kiln_cache_each(ctx->cache, visit_class, &v);
    kiln_thread_leave(t);
    return st;
}
