/* tiers.c - when a class is compiled, and by which thread.
 *
 * A class starts interpreted and gathers heat: what a kernel would have saved so far, by an estimate, since
 * a clock would cost more than many calls; large calls were timed.  When that exceeds the price of a build the class is
 * queued for the context's one background thread (as when renting skis: never worse than twice the best in hindsight).
 * A build that failed is due again when the heat since has reached twice the last price.  In sync mode the
 * caller builds.  One build at a time per class, no lock held meanwhile. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "api/ctx.h"
#include "build/proc.h"

enum { QUEUE_MAX = 256, LOW_PRIORITY = 10 };
#define ASK_NS INT64_C(20000000) /* how often a wait asks whether it is called off */
#define NS_PER_S INT64_C(1000000000)
#define PS_PER_NS UINT64_C(1000)
#define BUILD_PRICE (UINT64_C(30000000) * PS_PER_NS) /* 30 ms, in picoseconds */
#define PRICE_MAX (UINT64_MAX / 8)

/* -- heat ------------------------------------------------------------------------------------------- */

/* What a function of one value costs beside a plain operation. */
static uint32_t value_ps(const kiln_ir_ins *in) {
    enum { PLAIN = 15, FUNCTION = 300, SPECIAL = 3000 };
    if (in->op != KILN_IR_PRIM) return PLAIN;
    kiln_trait trait = kiln_prim_trait((kiln_prim)in->prim);
    return trait == KILN_TRAIT_SPECIAL ? SPECIAL : trait == KILN_TRAIT_NEAR ? FUNCTION : PLAIN;
}

/* Whether instruction k is run for each element: it stands in a loop without loops inside, and in no merge.  What stands outside is run
 * for each row or column. */
static bool is_of_elements(const kiln_ir *ir, int k) {
    int begin = kiln_ir_region_around(ir, k);
    if (begin < 0) return false;
    for (int r = begin + 1, end = kiln_ir_region_end(ir, begin); r < end; r++)
        if (kiln_ir_opens(&ir->ins[r]) || (ir->ins[r].op == KILN_IR_MERGE && r < k)) return false;
    return true;
}

/* A kernel saves the walk over the instructions, once for each row and block of it, and their passes through memory; and its
 * calls are remembered, which saves finding the class.  Of a routine nothing is known. */
void kiln_class_estimate(kiln_class *c) {
    enum { CALL_PS = 300000, ROW_INS_PS = 20000, ELEMENT_INS_PS = 40, BYTE_PS = 8, ROUTINE_PS = 1000 };
    uint32_t n = 0, kernel = 0;
    kiln_cost_guess(&c->cost, ROUTINE_PS, ROUTINE_PS);
    if (c->kind != KILN_CLASS_KERNEL) return;
    const kiln_ir *ir = c->program->ir;
    for (int k = 0; k < ir->nins; k++) {
        if (!kiln_ir_op_makes(ir->ins[k].op)) continue;
        n++;
        if (is_of_elements(ir, k)) kernel += value_ps(&ir->ins[k]);
    }
    c->gain_call = CALL_PS;
    c->gain_row = n * ROW_INS_PS;
    for (int k = 0; k < ir->nbufs; k++) kernel += (uint32_t)kiln_dtype_size(ir->bufs[k].dtype) * BYTE_PS;
    kiln_cost_guess(&c->cost, kernel + n * ELEMENT_INS_PS, kernel);
    atomic_store_explicit(&c->hot_at, c->ctx->mode == KILN_MODE_SYNC ? 0 : BUILD_PRICE, memory_order_relaxed);
}

static bool is_due(const kiln_class *c) {
    return atomic_load_explicit(&c->heat, memory_order_relaxed) >=
           atomic_load_explicit(&c->hot_at, memory_order_relaxed);
}

/* Once a build is queued nobody need ask for one. */
static void set_due(kiln_class *c, bool due) {
    atomic_store_explicit(&c->hot_at, due ? 0 : UINT64_MAX, memory_order_relaxed);
}

static void enqueue(kiln_class *c);

KILN_HOT void kiln_class_heat(kiln_class *c, int64_t nelem, int64_t rows) {
    uint64_t interp, kernel, now = atomic_load_explicit(&c->heat, memory_order_relaxed);
    (void)kiln_cost_of(&c->cost, KILN_BY_INTERP, nelem, &interp);
    (void)kiln_cost_of(&c->cost, KILN_BY_KERNEL, nelem, &kernel);
    uint64_t gain = c->gain_call + (uint64_t)rows * c->gain_row + (interp > kernel ? interp - kernel : 0);
    if (now > UINT64_MAX / 2) return; /* hot enough for ever */
    if (gain > UINT64_MAX / 4) gain = UINT64_MAX / 4;
    atomic_fetch_add_explicit(&c->heat, gain, memory_order_relaxed);
    if (c->ctx->mode == KILN_MODE_TIERED && is_due(c)) enqueue(c);
}

/* Due again when the class has gained twice what this attempt was worth, for each failure so far. */
static void put_off(kiln_class *c, int64_t took_ns) {
    uint64_t price = took_ns > 0 ? (uint64_t)took_ns * PS_PER_NS : 0;
    if (price < BUILD_PRICE) price = BUILD_PRICE;
    for (uint32_t k = 0; k < c->nfailed && price < PRICE_MAX; k++) price *= 2;
    uint64_t heat = atomic_load_explicit(&c->heat, memory_order_relaxed);
    atomic_store_explicit(&c->hot_at, heat + (price < PRICE_MAX ? price : PRICE_MAX), memory_order_relaxed);
}

/* -- one build at a time, all under ctx->builds.lock -------------------------------------------------- */

static void unlink_class(kiln_class **link, kiln_class *c) {
    while (*link && *link != c) link = &(*link)->next;
    if (*link) *link = c->next;
}

static void leave_queue(kiln_builds *b, kiln_class *c) {
    unlink_class(&b->queue, c);
    b->nqueued--;
    c->state = KILN_BUILD_IDLE;
}

/* The last that may be done with c by who is not inside the epochs: it may be evicted and dropped at once. */
static void unpin(kiln_class *c) {
    bool pinned = c->pinned;
    c->pinned = false;
    if (pinned) kiln_cache_unpin(c->ctx->cache, &c->entry);
}

static void drop_queued(kiln_builds *b, kiln_class *c) {
    leave_queue(b, c);
    set_due(c, true);
    unpin(c);
    pthread_cond_broadcast(&b->changed);
}

static void begin(kiln_class *c) {
    kiln_builds *b = &c->ctx->builds;
    if (c->state == KILN_BUILD_QUEUED) leave_queue(b, c);
    if (!c->pinned) c->pinned = kiln_cache_pin(c->ctx->cache, &c->entry);
    c->state = KILN_BUILD_RUNNING;
    c->next = b->running;
    b->running = c;
}

static void end(kiln_class *c, kiln_status st, int64_t took_ns) {
    kiln_builds *b = &c->ctx->builds;
    unlink_class(&b->running, c);
    c->state = KILN_BUILD_IDLE;
    if (st == KILN_E_NOMEM || st == KILN_E_INTERRUPTED) {
        set_due(c, true); /* neither says anything of the class */
    } else if (st != KILN_OK && !c->ctx->closing) {
        c->nfailed++;
        put_off(c, took_ns);
        snprintf(b->last_failure, sizeof b->last_failure, "%s", kiln_last_error());
    }
    unpin(c);
    pthread_cond_broadcast(&b->changed);
}

/* Begins, builds without the lock, ends.  The lock is held on both sides. */
static kiln_status build_now(kiln_class *c) {
    begin(c);
    pthread_mutex_unlock(&c->ctx->builds.lock);
    int64_t from = kiln_clock_ns();
    int quiet = kiln_quiet(0); /* why a build fails is kept for kiln_doctor and the log */
    kiln_status st = kiln_class_build(c);
    (void)kiln_quiet(quiet);
    int64_t took = kiln_clock_ns() - from;
    pthread_mutex_lock(&c->ctx->builds.lock);
    end(c, st, took);
    return st;
}

/* Or needs none. */
static bool has_kernel(const kiln_class *c) {
    return c->kind != KILN_CLASS_KERNEL || atomic_load_explicit(&c->fn, memory_order_acquire) != NULL;
}

/* -- callers, who may be interrupted ------------------------------------------------------------------ */

static _Thread_local bool is_background; /* nobody waits for it, so it is not asked */
static _Thread_local bool is_writing;    /* see kiln_hold_interrupts */

void kiln_hold_interrupts(bool hold) { is_writing = hold; }

int kiln_ctx_interrupted(void *user) {
    const kiln_config *given = &((const kiln_ctx *)user)->config;
    return given->interrupted && !is_background && !is_writing && given->interrupted(given->interrupted_user);
}

/* Waits until a build was queued or ended, or for a moment.  The lock is held on both sides. */
static kiln_status wait_for_builds(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    int64_t ns = kiln_clock_ns() + ASK_NS;
    struct timespec until = {ns / NS_PER_S, ns % NS_PER_S};
    pthread_cond_timedwait(&b->changed, &b->lock, &until);
    pthread_mutex_unlock(&b->lock);
    bool stop = kiln_ctx_interrupted(ctx);
    pthread_mutex_lock(&b->lock);
    return stop ? KILN_FAIL(KILN_E_INTERRUPTED, "interrupted while another thread compiled") : KILN_OK;
}

/* only_if_due: leaves a class alone that failed lately. */
static kiln_status compile(kiln_class *c, bool only_if_due) {
    kiln_builds *b = &c->ctx->builds;
    kiln_status st = KILN_OK;
    if (kiln_ctx_interrupted(c->ctx)) return KILN_FAIL(KILN_E_INTERRUPTED, "interrupted before a compile");
    pthread_mutex_lock(&b->lock);
    uint32_t nfailed = c->nfailed;
    while (c->state == KILN_BUILD_RUNNING && st == KILN_OK) st = wait_for_builds(c->ctx);
    bool refused = c->nfailed != nfailed || (only_if_due && !is_due(c));
    if (!has_kernel(c) && st == KILN_OK)
        st = refused ? KILN_FAIL(KILN_E_BUILD, "compiling failed before: %s", b->last_failure) : build_now(c);
    pthread_mutex_unlock(&b->lock);
    return st;
}

kiln_status kiln_class_compile(kiln_class *c) {
    if (has_kernel(c)) return KILN_OK;
    if (c->ctx->mode == KILN_MODE_FROZEN)
        return KILN_FAIL(KILN_E_BUILD, "mode frozen compiles nothing, and the class has no kernel");
    return compile(c, false);
}

kiln_status kiln_class_compile_if_due(kiln_class *c) {
    if (has_kernel(c) || !is_due(c)) return KILN_OK;
    kiln_status st = compile(c, true);
    if (st == KILN_E_INTERRUPTED) return st;
    if (st != KILN_OK) kiln_clear_error(); /* a failed build costs speed only */
    return KILN_OK;
}

/* -- the background --------------------------------------------------------------------------------- */

static void *work(void *user) {
    kiln_ctx *ctx = user;
    kiln_builds *b = &ctx->builds;
    /* The thread's compilers inherit its priority: on Linux niceness is a thread's own. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOW_PRIORITY);
    is_background = true;
    pthread_mutex_lock(&b->lock);
    while (!ctx->closing) {
        if (!b->queue)
            pthread_cond_wait(&b->changed, &b->lock);
        else if (has_kernel(b->queue)) /* somebody prepared it meanwhile */
            drop_queued(b, b->queue);
        else
            (void)build_now(b->queue);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* A small stack would do, but logs are the host's code.  The host's signals are not for this thread. */
static bool start_worker(kiln_ctx *ctx) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ctx->builds.has_worker = pthread_create(&ctx->builds.worker, NULL, work, ctx) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ctx->builds.has_worker;
}

static void enqueue(kiln_class *c) {
    kiln_builds *b = &c->ctx->builds;
    bool full = false, started = true;
    pthread_mutex_lock(&b->lock);
    if (c->state == KILN_BUILD_IDLE && !has_kernel(c) && !c->ctx->closing && is_due(c)) {
        full = b->nqueued >= QUEUE_MAX;
        started = full || b->has_worker || start_worker(c->ctx);
        if (full || !started) put_off(c, 0);
        if (!full && started && (c->pinned = kiln_cache_pin(c->ctx->cache, &c->entry))) {
            c->state = KILN_BUILD_QUEUED;
            set_due(c, false);
            kiln_class **end = &b->queue;
            while (*end) end = &(*end)->next;
            *end = c;
            c->next = NULL;
            b->nqueued++;
            pthread_cond_broadcast(&b->changed);
        }
    }
    pthread_mutex_unlock(&b->lock);
    if (full) KILN_COUNT(c->ctx, queue_full);
    if (!started) kiln_ctx_log(c->ctx, 1, "compile", "the thread that compiles cannot be started");
}

kiln_status kiln_wait_idle(kiln_ctx *ctx) {
    KILN_NEED(ctx);
    kiln_builds *b = &ctx->builds;
    kiln_status st = KILN_OK;
    pthread_mutex_lock(&b->lock);
    while ((b->queue || b->running) && st == KILN_OK) st = wait_for_builds(ctx);
    pthread_mutex_unlock(&b->lock);
    kiln_epochs_reclaim(&ctx->epochs); /* a good moment: what was replaced need not stay */
    return st;
}

/* -- begin, end, fork --------------------------------------------------------------------------------- */

static void init_changed(kiln_builds *b) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* as kiln_clock_ns */
    pthread_cond_init(&b->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void kiln_builds_init(kiln_builds *b) {
    pthread_mutex_init(&b->lock, NULL);
    init_changed(b);
}

void kiln_builds_stop(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    pthread_mutex_lock(&b->lock);
    ctx->closing = true;
    while (b->queue) drop_queued(b, b->queue);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    kiln_ctx_stop_compilers(ctx);
    if (b->has_worker) pthread_join(b->worker, NULL);
    b->has_worker = false;
}

void kiln_builds_fini(kiln_builds *b) {
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
}

/* Builds of threads that do not exist here are nobody's: their classes are as if never queued. */
void kiln_builds_after_fork(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    init_changed(b); /* it may have had waiters */
    while (b->running) {
        kiln_class *c = b->running;
        b->running = c->next;
        c->state = KILN_BUILD_IDLE;
        set_due(c, true);
        unpin(c);
    }
    while (b->queue) drop_queued(b, b->queue);
    b->has_worker = false;
}
