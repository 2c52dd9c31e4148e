/* obtain.c - a class without a kernel -> its kernel: from a store, or by a build that no other process is making.
 *
 * Asks the stores, the cheapest first, and each store for the best level of the class's target and then for each lower one before it asks the
 * next store.  kiln_stores_get has checked an entry that a store gives.  Here its kernel is loaded, and compared with the interpreter unless the
 * entry says that a machine of its level has done so.  Whatever goes wrong
 * with a store costs speed only.  Must not know how a store keeps kernels, or when a class is worth a build (tiers.c). */
#include <string.h>
#include <time.h>

#include "api/ctx.h"

/* In mode frozen nothing is built, so a store that takes no longer than this is asked by the call itself. */
#define FROZEN_AT_ONCE_PS UINT64_C(1000000000)
#define POLL_NS 2000000L /* how often a caller looks whether another process has built the kernel */
#define WAIT_NS \
    INT64_C(60000000000) /* twice as long as a compiler may take: a process that builds for longer is stuck */

/* -- digests --------------------------------------------------------------------------------------------- */

/* What a kernel computes, in 128 bits: the target, what its emitter and math are made of, and IR without names. */
static kiln_status digest_ir(kiln_class *c) {
    kiln_sb text;
    if (c->digest.lo | c->digest.hi) return KILN_OK;
    kiln_sb_init(&text);
    kiln_sb_printf(&text, "abi %d target %s build %s\n", KILN_ABI_VERSION, c->target->name, c->target->stamp);
    kiln_ir_print_nameless(&text, c->program->ir);
    bool failed = text.failed;
    if (!failed) c->digest = kiln_hash128(text.p, text.len);
    kiln_sb_fini(&text);
    return failed ? KILN_NOMEM() : KILN_OK;
}

static kiln_digest at_level(const kiln_class *c, int level) {
    struct {
        kiln_digest ir;
        uint64_t level;
    } all = {c->digest, (uint64_t)level};
    return kiln_hash128(&all, sizeof all);
}

kiln_status kiln_class_digest(kiln_class *c, int level, kiln_digest *out) {
    KILN_TRY(digest_ir(c));
    *out = at_level(c, level);
    return KILN_OK;
}

/* -- what a store gives ------------------------------------------------------------------------------------ */

static kiln_status check_home(const kiln_class *c, int level, const kiln_stored *says) {
    const kiln_target *t = c->target;
    if (strcmp(says->target, t->name) == 0 && strcmp(says->stamp, t->stamp) == 0 &&
        says->level == (uint32_t)level)
        return KILN_OK;
    return KILN_FAIL(KILN_E_IO, "it is for target %.20s, level %u", says->target, says->level);
}

/* Not in the environment of a caller: results of a self-test depend on rounding. */
static kiln_status test(const kiln_class *c, const kiln_blob *b) {
    fenv_t own;
    kiln_env_default(&own);
    kiln_status st = c->target->test(c->target, c->program->ir, c->program->interp, b->code, b->work);
    fesetenv(&own);
    return st;
}

/* Loads an entry's kernel.  *cause: the counter of the check that is under way. */
static kiln_status load(const kiln_class *c, int level, kiln_blob *b, kiln_counter *cause) {
    kiln_object image = {.bytes = (void *)(uintptr_t)b->says.image, .n = b->says.nimage}; /* only read */
    if (b->resident) return KILN_OK;
    *cause = KILN_COUNTER_foreign_entries;
    KILN_TRY(check_home(c, level, &b->says));
    *cause = KILN_COUNTER_load_failures;
    KILN_TRY(c->target->load_image(c->target, &image, &b->code));
    *cause = KILN_COUNTER_selftest_failures;
    return b->says.tested ? KILN_OK : test(c, b);
}

/* One question to one store. */
typedef struct question {
    kiln_class *c;
    kiln_store *store;
    bool may_test; /* there is time to compare a kernel with the interpreter */
    bool untested; /* set where the store has the kernel, and it must be compared first */
    bool found;
} question;

static kiln_status use(question *q, int level, const kiln_digest *d, kiln_blob *b) {
    kiln_counter cause = KILN_COUNTER_load_failures;
    kiln_status st = load(q->c, level, b, &cause);
    if (st != KILN_OK) {
        if (st == KILN_E_NOMEM) return st;
        kiln_count(&q->c->ctx->epochs, cause, 1);
        if (q->store->drop) q->store->drop(q->store, d);
        return st;
    }
    KILN_TRY(kiln_class_take(q->c, level, b, q->store));
    q->found = true;
    return KILN_OK;
}

static kiln_status ask_at_level(question *q, int level) {
    kiln_blob b = {0};
    kiln_digest d = at_level(q->c, level);
    bool found;
    KILN_TRY(kiln_stores_get(&q->c->ctx->stores, q->store, &d, &b, &found));
    kiln_status st = KILN_OK;
    if (found && !b.resident && !b.says.tested && !q->may_test)
        q->untested = true;
    else if (found)
        st = use(q, level, &d, &b);
    kiln_blob_fini(&b);
    return st;
}

/* A store that fails at one level is asked for the others, too: it may have refused one entry.  The last failure is the answer. */
static kiln_status ask_levels(question *q) {
    const kiln_class *c = q->c;
    kiln_status st = KILN_OK;
    KILN_TRY(digest_ir(q->c));
    for (int level = c->target->level; level >= 0 && !q->found && !q->untested && !c->ctx->closing; level--) {
        kiln_status st_level = c->target->runs(level) ? ask_at_level(q, level) : KILN_OK;
        if (st_level != KILN_OK) st = st_level;
    }
    return q->found ? KILN_OK : st;
}

static bool ask(question *q) {
    const kiln_class *c = q->c;
    if (kiln_store_is_empty(q->store)) return false;
    int quiet = kiln_quiet(0); /* what goes wrong is logged */
    kiln_status st = ask_levels(q);
    if (st != KILN_OK) {
        kiln_ctx_log(c->ctx, 1, "store", "%s: %s: %s", q->store->name, c->name, kiln_last_error());
        kiln_clear_error();
    }
    (void)kiln_quiet(quiet);
    return q->found;
}

static const kiln_store *ask_quick(kiln_class *c, bool may_test) {
    const kiln_stores *stores = &c->ctx->stores;
    for (int k = 0; k < stores->nquick; k++) {
        question q = {.c = c, .store = stores->at[k], .may_test = may_test};
        if (ask(&q)) return stores->at[k];
        if (q.untested)
            atomic_store_explicit(&c->nasked, (uint8_t)k,
                                  memory_order_relaxed); /* again, in the background */
        if (q.untested) return NULL;
    }
    return NULL;
}

/* Counts a class that got its kernel from the store, if any.  Whether there is one. */
static bool count_hit(const kiln_class *c, const kiln_store *s) {
    if (s) kiln_count(&c->ctx->epochs, s->counter, 1);
    return s != NULL;
}

bool kiln_class_ask_quick(kiln_class *c) { return count_hit(c, ask_quick(c, true)); }

/* The next store of those that were not asked, if its price allows that. */
static const kiln_store *ask_next_below(kiln_class *c, uint64_t price_ps) {
    kiln_store *s = kiln_class_next_store(c);
    question q = {.c = c, .store = s, .may_test = true};
    if (!s || atomic_load_explicit(&s->price, memory_order_relaxed) > price_ps) return NULL;
    bool found = ask(&q);
    /* A child of a fork during `ask` asks anew. */
    atomic_fetch_add_explicit(&c->nasked, 1, memory_order_relaxed);
    return found ? s : NULL;
}

const kiln_store *kiln_class_ask_at_once(kiln_class *c) {
    const kiln_store *from = ask_quick(c, false);
    if (c->ctx->mode != KILN_MODE_FROZEN) return from;
    for (int k = 0; !from && k < c->ctx->stores.n; k++) from = ask_next_below(c, FROZEN_AT_ONCE_PS);
    return from;
}

bool kiln_class_ask_next(kiln_class *c) { return count_hit(c, ask_next_below(c, UINT64_MAX)); }

/* -- who builds ------------------------------------------------------------------------------------------------ */

/* Another process may have built the kernel between the last question and the claim, so stores that know claims are asked once more. */
static bool was_built_meanwhile(kiln_class *c) {
    const kiln_stores *stores = &c->ctx->stores;
    for (int k = 0; k < stores->n; k++) {
        question q = {.c = c, .store = stores->at[k], .may_test = true};
        if (stores->at[k]->claim && ask(&q)) return count_hit(c, stores->at[k]);
    }
    return false;
}

/* Whether the process that builds the kernel has done so for too long.  It keeps its claim, and this process builds without one. */
static bool is_stuck(kiln_class *c) {
    int64_t now = kiln_clock_ns();
    if (!c->elsewhere_since) c->elsewhere_since = now;
    return now - c->elsewhere_since > WAIT_NS;
}

kiln_turn kiln_class_take_turn(kiln_class *c) {
    kiln_digest d;
    if (kiln_class_digest(c, c->target->level, &d) != KILN_OK) {
        kiln_clear_error();
        return KILN_TURN_OURS; /* the build will say that there is no memory */
    }
    if (kiln_stores_claim(&c->ctx->stores, &d) == KILN_CLAIM_BUSY)
        return is_stuck(c) ? KILN_TURN_OURS : KILN_TURN_ELSEWHERE;
    c->elsewhere_since = 0;
    if (!was_built_meanwhile(c)) return KILN_TURN_OURS;
    kiln_stores_unclaim(&c->ctx->stores, &d);
    return KILN_TURN_SERVED;
}

void kiln_class_end_turn(kiln_class *c) {
    kiln_digest d = at_level(c, c->target->level);
    kiln_stores_unclaim(&c->ctx->stores, &d);
}

void kiln_class_leave_turn(kiln_class *c) {
    enum { PART = 64 };
    uint64_t heat = atomic_load_explicit(&c->heat, memory_order_relaxed);
    KILN_COUNT(c->ctx, builds_elsewhere);
    kiln_class_ask_at(c, heat + kiln_class_price(c) /
                                    PART); /* by the price of a build: the stores' is put back now */
    atomic_store_explicit(&c->nasked, (uint8_t)c->ctx->stores.nquick, memory_order_relaxed);
}

/* Waits until it is this process's turn, or the kernel is there. */
static kiln_status wait_for_turn(kiln_class *c, kiln_turn *turn) {
    const struct timespec nap = {0, POLL_NS};
    KILN_COUNT(c->ctx, builds_elsewhere);
    while (*turn == KILN_TURN_ELSEWHERE && !c->ctx->closing) {
        if (kiln_ctx_interrupted(c->ctx))
            return KILN_FAIL(KILN_E_INTERRUPTED, "interrupted while another process compiled");
        nanosleep(&nap, NULL);
        *turn = kiln_class_take_turn(c);
    }
    return KILN_OK;
}

static kiln_status build(kiln_class *c, int64_t *cpu_ns, bool *built) {
    fenv_t own;
    kiln_env_default(&own);
    kiln_status st = kiln_class_make_code(c, cpu_ns);
    fesetenv(&own);
    *built = true;
    return st;
}

kiln_status kiln_class_obtain(kiln_class *c, bool may_wait, int64_t *cpu_ns, bool *built) {
    bool found = kiln_class_ask_quick(c);
    *built = false;
    while (!found && kiln_class_next_store(c)) {
        if (kiln_ctx_interrupted(c->ctx))
            return KILN_FAIL(KILN_E_INTERRUPTED, "interrupted while stores were asked");
        found = kiln_class_ask_next(c);
    }
    if (found) return KILN_OK;
    kiln_turn turn = kiln_class_take_turn(c);
    if (turn == KILN_TURN_ELSEWHERE && may_wait) KILN_TRY(wait_for_turn(c, &turn));
    if (turn == KILN_TURN_SERVED) return KILN_OK;
    if (turn == KILN_TURN_ELSEWHERE && !may_wait) {
        kiln_class_leave_turn(c);
        return KILN_OK;
    }
    kiln_status st = build(c, cpu_ns, built);
    if (turn == KILN_TURN_OURS) kiln_class_end_turn(c);
    return st;
}
