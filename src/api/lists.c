/* lists.c - a call for each item of lists -> one pass over them, in few launches.
 *
 * Items whose tensors have the same dtypes, lie row-major and agree in shape among themselves are of one group, which is one
 * launch (list_groups.c).  Any other item is a call of its own.  All items are checked before the first is written.  Where
 * tensors of different items share memory, all calls are made one after the other.  Owns the results of a call until
 * it has succeeded.  Knows no operator. */
#include "api/lists.h"

#include "api/list_call.h"

/* Item k by a call of its own. */
static kiln_status call_item(kiln_listing *l, uint32_t k) {
    kiln_tensor *outs[KILN_MAX_RETS];
    int nrets = l->item->schema->nrets;
    kiln_list_enter(l, k);
    KILN_TRY(kiln_call(l->ctx, l->item, l->args, (size_t)l->nargs, outs, (size_t)nrets));
    for (int i = l->made ? 1 : 0; i < nrets; i++) kiln_tensor_release(outs[i]);
    if (l->made) l->made[k] = kiln_v_tensor(outs[0]);
    return KILN_OK;
}

/* ordered: in the order of the items; shared: each by itself, too, since they share memory. */
static kiln_status run_all(kiln_listing *l, bool ordered, bool shared) {
    for (int i = 0; i < l->ngroups && !shared; i++) KILN_TRY(kiln_list_run_group(l, l->group[i], ordered));
    for (uint32_t k = 0; k < l->n && (shared || l->nalone); k++)
        if (shared || l->of[k] == KILN_LIST_GROUPS) KILN_TRY(call_item(l, k));
    return KILN_OK;
}

/* Whether it matters if items share memory: more than one thing is done at a time, or not in the order of the items. */
static bool may_disorder(const kiln_listing *l) {
    return l->ngroups > 1 || (l->ngroups && l->nalone) || (l->ngroups && kiln_list_may_share(l->group[0]));
}

/* Once an item is written, nothing but a lack of memory may end the call: an interrupted call is made again by its caller, and
 * would write that item twice. */
static kiln_status go(kiln_listing *l) {
    bool shared = false;
    for (uint32_t k = 0; k < l->n; k++) KILN_TRY(kiln_list_place(l, k));
    bool disordered = may_disorder(l);
    if (disordered) KILN_TRY(kiln_list_find_shared(l, &shared));
    kiln_hold_interrupts(true);
    kiln_status st = run_all(l, !disordered, shared);
    kiln_hold_interrupts(false);
    return st;
}

static void end(kiln_listing *l, void *room) {
    for (int i = 0; i < l->ngroups; i++) kiln_block_give(l->group[i], l->group[i]->home);
    kiln_block_give(room, l->home);
}

/* Numbers of items, and which group each is of. */
static void *take_room(kiln_listing *l) {
    size_t npar = (size_t)(l->n + KILN_LIST_GROUPS) * KILN_LIST_PARS;
    char *room = kiln_block_take_any(npar * sizeof *l->par + l->n, &l->home);
    l->par = l->par_end = (uint64_t *)room;
    l->of = room ? (uint8_t *)(l->par + npar) : NULL;
    return room;
}

static kiln_status call_items(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                              kiln_value *out) {
    kiln_listing l;
    l.ctx = ctx;
    l.made = NULL;
    l.ngroups = 0;
    l.nalone = 0;
    KILN_TRY(kiln_list_begin(&l, op, args, nargs));
    if (!l.n) return KILN_OK;
    void *room = take_room(&l);
    if (!room) return KILN_NOMEM();
    if (op->schema->nrets && !(l.made = kiln_calloc(l.n, sizeof *l.made))) {
        end(&l, room);
        return KILN_NOMEM();
    }
    kiln_status st = kiln_note(go(&l), "%s", op->name);
    kiln_value list = kiln_v_list(l.made, l.n);
    if (st == KILN_OK && l.made)
        *out = list;
    else if (l.made)
        kiln_values_release(&list, 1);
    end(&l, room);
    return st;
}

/* Each group, and each item that is a call of its own, has counted itself.  kiln_inner_end takes these counts back.  The
 * list counts as one call. */
kiln_status kiln_lists_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                            kiln_value *out) {
    kiln_thread *t = kiln_thread_of(&ctx->epochs); /* which has entered */
    kiln_inner in;
    uint64_t misses = kiln_thread_counted(t, KILN_COUNTER_misses);
    kiln_inner_begin(t, &in);
    kiln_status st = call_items(ctx, op, args, nargs, out);
    bool interpreted = kiln_inner_end(t, &in);
    if (st != KILN_OK) return st;
    KILN_COUNT_IN(t, calls);
    if (kiln_thread_counted(t, KILN_COUNTER_misses) == misses) KILN_COUNT_IN(t, table_hits);
    if (interpreted) kiln_count_interpreted(ctx, t);
    return KILN_OK;
}

kiln_status kiln_lists_show(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                            kiln_plan_fn *show, void *user) {
    kiln_listing l;
    l.ctx = ctx;
    KILN_TRY(kiln_list_begin(&l, op, args, nargs));
    for (uint32_t k = 0; k < l.n; k++) {
        kiln_list_enter(&l, k);
        KILN_TRY(kiln_note(kiln_call_show(ctx, l.item, l.args, (size_t)l.nargs, show, user), "%s", op->name));
    }
    return KILN_OK;
}
