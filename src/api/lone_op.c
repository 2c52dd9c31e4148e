/* lone_op.c - kiln_op_new and kiln_op_free: an operator that only its holder knows, for as long as the holder needs it.
 *
 * The operator has a registry of its own above the context's, which is published to nobody.  Freeing it takes it out of the
 * context's list and retires the registry, so that calls which are running keep theirs, and raises the generation, so that no
 * memo of the operator answers any more; recipes know it by its serial number.  Must not know what calls do. */
#include "api/ctx.h"

typedef struct kiln_lone_op {
    kiln_retired retired; /* first */
    kiln_registry *registry;
    struct kiln_lone_op *next, *before; /* of the context's */
} lone_op;

static void drop(kiln_retired *r) {
    lone_op *o = (lone_op *)r;
    kiln_registry_free(o->registry);
    kiln_free(o);
}

static void enlist(kiln_ctx *ctx, lone_op *o) {
    pthread_mutex_lock(&ctx->load_lock);
    o->next = ctx->lone_ops;
    if (o->next) o->next->before = o;
    ctx->lone_ops = o;
    pthread_mutex_unlock(&ctx->load_lock);
}

static void delist(kiln_ctx *ctx, lone_op *o) {
    pthread_mutex_lock(&ctx->load_lock);
    if (o->before)
        o->before->next = o->next;
    else
        ctx->lone_ops = o->next;
    if (o->next) o->next->before = o->before;
    pthread_mutex_unlock(&ctx->load_lock);
}

kiln_status kiln_op_new(kiln_ctx *ctx, const char *source, const char *text, size_t nbytes,
                        const kiln_op **op, const kiln_op **out_form) {
    KILN_NEED(ctx, source, op);
    KILN_NEED_ITEMS(text, nbytes);
    const kiln_registry *base = atomic_load_explicit(&ctx->registry, memory_order_acquire);
    kiln_row_text t = {source, text ? text : "", nbytes, true};
    const kiln_op *made, *form;
    lone_op *o = kiln_calloc(1, sizeof *o);
    if (!o) return KILN_NOMEM();
    kiln_status st = kiln_registry_alone(base, &t, &made, out_form ? &form : NULL, &o->registry);
    if (st != KILN_OK) {
        kiln_free(o);
        return kiln_note_line(st, source, t.text, nbytes);
    }
    kiln_registry_set_owner(o->registry, o);
    enlist(ctx, o);
    *op = made;
    if (out_form) *out_form = form;
    return KILN_OK;
}

void kiln_op_free(kiln_ctx *ctx, const kiln_op *op) {
    if (!ctx || !op || !op->serial) return;
    lone_op *o = kiln_registry_owner(op->row->home);
    delist(ctx, o);
    kiln_retire(&ctx->epochs, &o->retired, drop);
}

void kiln_lone_ops_free(kiln_ctx *ctx) {
    while (ctx->lone_ops) {
        lone_op *o = ctx->lone_ops;
        ctx->lone_ops = o->next;
        drop(&o->retired);
    }
}
