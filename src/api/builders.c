/* builders.c - the threads that get classes their kernels: those in the background, and callers that wait.
 *
 * In sync mode the caller builds.  Otherwise classes that ask for a kernel wait in a queue for the context's builders, threads that are
 * started when they are first needed.  The class with the most heat for its price is taken first, and light ones are built together in
 * one run of the compiler.  One builder at a time works on urgent classes, at the process's own priority.  All other builds have a
 * lower priority, so that they take what cores have to spare, and there are as many at once as a quarter of the cores, or one.
 * One further thread asks slow stores, so that a store that waits for a disk or a network holds up no build.
 * A class is worked on by one thread at a time, and no lock is held meanwhile.  tiers.c says when a class asks. */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "api/ctx.h"
#include "run/cpus.h"

enum {
    QUEUE_MAX = 256,
    CORES_PER_BUILDER = 4,
    SPARE_NICE = 5 /* of compilers for all but one urgent class, at least */
};
#define ASK_NS INT64_C(20000000) /* how often a wait asks whether it is called off */
#define NS_PER_S INT64_C(1000000000)

static _Thread_local bool is_background; /* nobody waits for it, so it is not asked whether to go on */

/* -- one build at a time, all under ctx->builds.lock -------------------------------------------------- */

static void unlink_class(kiln_class **link, kiln_class *c) {
    while (*link && *link != c) link = &(*link)->next;
    if (*link) *link = c->next;
}

static void leave_queue(kiln_builds *b, kiln_class *c) {
    unlink_class(&b->queue, c);
    atomic_fetch_sub_explicit(&b->nqueued, 1, memory_order_relaxed);
    c->state = KILN_BUILD_IDLE;
}

/* After this, a thread that is not inside the epochs must not touch c: another thread may evict and free it at any time. */
static void unpin(kiln_class *c) {
    bool pinned = c->pinned;
    c->pinned = false;
    if (pinned) kiln_cache_unpin(c->ctx->cache, &c->entry);
}

static void drop_queued(kiln_builds *b, kiln_class *c) {
    leave_queue(b, c);
    kiln_class_ask_at(c, 0);
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
    atomic_fetch_add_explicit(&b->nrunning, 1, memory_order_relaxed);
}

static void end(kiln_class *c, kiln_status st, int64_t took_ns) {
    kiln_builds *b = &c->ctx->builds;
    unlink_class(&b->running, c);
    atomic_fetch_sub_explicit(&b->nrunning, 1, memory_order_relaxed);
    c->state = KILN_BUILD_IDLE;
    atomic_fetch_add_explicit(&c->build_ns, (uint64_t)took_ns, memory_order_relaxed);
    if (st == KILN_E_NOMEM || st == KILN_E_INTERRUPTED) {
        kiln_class_ask_at(c, 0); /* neither says anything of the class */
    } else if (st != KILN_OK && !c->ctx->closing) {
        c->nfailed++;
        kiln_class_put_off(c, took_ns);
        snprintf(b->last_failure, sizeof b->last_failure, "%s", kiln_last_error());
    }
    unpin(c);
    pthread_cond_broadcast(&b->changed);
}

/* Takes the processor time that compilers took for c, alone or as its share of a batch, into the running mean; 0: it is not known. */
static void learn(const kiln_class *c, int64_t cpu_ns) {
    _Atomic uint64_t *price = &c->target->price[c->has_loops];
    uint64_t old = atomic_load_explicit(price, memory_order_relaxed), now = (uint64_t)cpu_ns * KILN_PS_PER_NS;
    if (cpu_ns > 0) atomic_store_explicit(price, (3 * old + now) / 4, memory_order_relaxed);
}

static void log_built(const kiln_class *c, int64_t took_ns) {
    kiln_ctx_log(c->ctx, 2, "compile", "%s: %s: built in %.1f ms", c->name, c->words, (double)took_ns / 1e6);
}

/* Builds a class that was begun, without the lock, and ends that.  The lock is held on both sides. */
static kiln_status build_begun(kiln_class *c) {
    pthread_mutex_unlock(&c->ctx->builds.lock);
    int64_t from = kiln_clock_ns(), cpu_ns = 0;
    int quiet = kiln_quiet(0); /* why a build fails is kept for kiln_doctor and the log */
    bool built = false;
    kiln_status st = kiln_class_obtain(c, !is_background, &cpu_ns, &built);
    (void)kiln_quiet(quiet);
    int64_t took = kiln_clock_ns() - from;
    learn(c, cpu_ns);
    if (st == KILN_OK && built) log_built(c, took);
    pthread_mutex_lock(&c->ctx->builds.lock);
    end(c, st, took);
    return st;
}

static kiln_status build_now(kiln_class *c) {
    begin(c);
    return build_begun(c);
}

/* Also true of classes that need none. */
static bool has_kernel(const kiln_class *c) {
    return c->kind != KILN_CLASS_KERNEL || atomic_load_explicit(&c->fn, memory_order_acquire) != NULL;
}

/* -- callers, who may be interrupted ------------------------------------------------------------------ */

static _Thread_local bool is_writing; /* see kiln_hold_interrupts */

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

/* In sync mode: whether c did not fail lately. */
static bool is_due(const kiln_class *c) {
    return !atomic_load_explicit(&c->nfailed, memory_order_relaxed) || kiln_class_asks(c);
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

/* How much hotter a is than b, for what their builds cost. */
static bool is_hotter(const kiln_class *a, const kiln_class *b) {
    double heat_a = (double)atomic_load_explicit(&a->heat, memory_order_relaxed);
    double heat_b = (double)atomic_load_explicit(&b->heat, memory_order_relaxed);
    return heat_a * (double)kiln_class_price(b) > heat_b * (double)kiln_class_price(a);
}

/* Which classes of the queue are looked at. */
typedef enum choice { TO_ASK, TO_BUILD, URGENT, LIGHT, LIGHT_URGENT } choice;

static bool is_of(const kiln_class *c, choice which) {
    bool asks = kiln_class_next_store(c) != NULL;
    switch (which) {
    case TO_ASK: return asks;
    case TO_BUILD: return !asks;
    case URGENT: return !asks && kiln_class_is_urgent(c);
    case LIGHT: return !asks && !c->has_loops;
    case LIGHT_URGENT: return !asks && !c->has_loops && kiln_class_is_urgent(c);
    }
    return false;
}

/* The hottest of these in the queue. */
static kiln_class *hottest(const kiln_builds *b, choice which) {
    kiln_class *best = NULL;
    for (kiln_class *c = b->queue; c; c = c->next)
        if (is_of(c, which) && (!best || is_hotter(c, best))) best = c;
    return best;
}

/* Classes that a builder has begun. */
typedef struct batch {
    kiln_class *c[KILN_BATCH_MAX];
    int n;
    bool urgent;
    int nice; /* of its compilers */
} batch;

/* Begins what a builder may do now: an urgent class if no builder has one, else any class if a further builder is allowed.  Light
 * classes are taken together. */
static bool take_batch(kiln_builds *b, batch *w) {
    w->n = 0;
    w->urgent = !b->nurgent && hottest(b, URGENT);
    if (!w->urgent && b->nurgent + b->npatient >= b->most) return false;
    kiln_class *c = hottest(b, w->urgent ? URGENT : TO_BUILD);
    int nice = c ? kiln_class_nice(c) : 0;
    w->nice = w->urgent ? 0 : nice < SPARE_NICE ? SPARE_NICE : nice;
    while (c) {
        begin(c);
        w->c[w->n++] = c;
        bool more = !w->c[0]->has_loops && w->n < b->batch;
        c = more ? hottest(b, w->urgent ? LIGHT_URGENT : LIGHT) : NULL;
    }
    return w->n > 0;
}

/* Ends those of the batch that have a kernel, and keeps the others.  The lock is held. */
static void end_built(kiln_builds *b, batch *w, int64_t cpu_ns, int64_t took_ns) {
    int n = w->n;
    w->n = 0;
    for (int k = 0; k < n; k++) {
        if (has_kernel(w->c[k])) {
            learn(w->c[k], cpu_ns / n);
            end(w->c[k], KILN_OK, took_ns / n);
        } else {
            w->c[w->n++] = w->c[k];
        }
    }
    /* Where a compiler cannot build some classes together, fewer are tried next time. */
    if (w->n)
        b->batch = b->batch > 1 ? b->batch / 2 : 1;
    else if (b->batch < KILN_BATCH_MAX)
        b->batch++;
}

/* Ends those of the batch whose kernel a store has by now or another process is building, and keeps the others, whose turns it takes.  The
 * lock is held on both sides. */
static void end_served(kiln_builds *b, batch *w) {
    kiln_turn turn[KILN_BATCH_MAX];
    int n = w->n;
    pthread_mutex_unlock(&b->lock);
    for (int k = 0; k < n; k++)
        turn[k] = kiln_class_ask_quick(w->c[k]) ? KILN_TURN_SERVED : kiln_class_take_turn(w->c[k]);
    pthread_mutex_lock(&b->lock);
    w->n = 0;
    for (int k = 0; k < n; k++) {
        if (turn[k] == KILN_TURN_ELSEWHERE) kiln_class_leave_turn(w->c[k]);
        if (turn[k] == KILN_TURN_OURS)
            w->c[w->n++] = w->c[k];
        else
            end(w->c[k], KILN_OK, 0);
    }
}

static void end_turns(const batch *w) {
    for (int k = 0; k < w->n; k++) kiln_class_end_turn(w->c[k]);
}

/* All together, and then each that has no kernel yet by itself: only that tells which class is at fault, and why.  The lock is held on
 * both sides. */
static void build_batch(kiln_builds *b, batch *w) {
    if (w->n > 1) end_served(b, w);
    if (w->n > 1) {
        int64_t from = kiln_clock_ns(), cpu_ns = 0;
        pthread_mutex_unlock(&b->lock);
        kiln_classes_make_code(w->c, w->n, &cpu_ns);
        end_turns(w);
        int64_t took = kiln_clock_ns() - from;
        for (int k = 0; k < w->n; k++)
            if (has_kernel(w->c[k])) log_built(w->c[k], took / w->n);
        pthread_mutex_lock(&b->lock);
        end_built(b, w, cpu_ns, took);
    }
    if (w->n == 1) end_turns(w); /* a class of a batch whose others were served may still hold its turn */
    for (int k = 0; k < w->n; k++) (void)build_begun(w->c[k]);
}

/* Builds what may be built now.  False: nothing.  The lock is held on both sides, here and below. */
static bool build_some(kiln_builds *b) {
    batch w;
    if (!take_batch(b, &w)) return false;
    int *working = w.urgent ? &b->nurgent : &b->npatient;
    ++*working;
    kiln_targets_nice(&w.c[0]->ctx->targets, w.nice);
    build_batch(b, &w);
    --*working;
    return true;
}

static bool has_builder(kiln_ctx *ctx);

/* Asks one store for the kernel of one class.  If the store has none, the class asks again when its heat is worth the next step. */
static bool ask_a_store(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    kiln_class *c = b->is_asking ? NULL : hottest(b, TO_ASK);
    if (!c) return false;
    begin(c);
    if (hottest(b, TO_BUILD)) (void)has_builder(ctx); /* this thread will not build it soon */
    b->is_asking = true;
    pthread_mutex_unlock(&b->lock);
    int64_t from = kiln_clock_ns();
    bool found = kiln_class_ask_next(c);
    int64_t took = kiln_clock_ns() - from;
    pthread_mutex_lock(&b->lock);
    b->is_asking = false;
    if (!found) kiln_class_ask_next_at(c);
    end(c, KILN_OK, found ? took : 0);
    return true;
}

static void *work(void *user) {
    kiln_ctx *ctx = user;
    kiln_builds *b = &ctx->builds;
    int most = kiln_cpus_allowed() / CORES_PER_BUILDER; /* this may read files */
    is_background = true;
    pthread_mutex_lock(&b->lock);
    b->most = most < 1 ? 1 : most <= KILN_BUILDERS_MAX ? most : KILN_BUILDERS_MAX;
    while (!ctx->closing) {
        if (ask_a_store(ctx) || build_some(b)) continue;
        b->nwaiting++;
        pthread_cond_wait(&b->changed, &b->lock);
        b->nwaiting--;
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* A small stack would do, but logs are the host's code.  The host's signals are not for this thread. */
static bool start_builder(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&b->builder[b->nbuilders], NULL, work, ctx) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    b->nbuilders += started;
    return started;
}

/* Starts a builder if none waits for work and one more is allowed.  There may be one more than `most`, so that an urgent class need
 * not wait for other builds, and another one where there are slow stores to ask.  False: there is no builder at all. */
static bool has_builder(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    int allowed = b->most + 1 + (ctx->stores.n > ctx->stores.nquick);
    if (!b->nwaiting && b->nbuilders < allowed) (void)start_builder(ctx);
    return b->nbuilders > 0;
}

static bool queue_up(kiln_class *c) {
    kiln_builds *b = &c->ctx->builds;
    c->pinned = kiln_cache_pin(c->ctx->cache, &c->entry);
    if (!c->pinned) return false;
    c->state = KILN_BUILD_QUEUED;
    kiln_class **end = &b->queue;
    while (*end) end = &(*end)->next;
    *end = c;
    c->next = NULL;
    atomic_fetch_add_explicit(&b->nqueued, 1, memory_order_relaxed);
    return true;
}

void kiln_class_ask(kiln_class *c) {
    kiln_builds *b = &c->ctx->builds;
    bool full = false, started = true;
    pthread_mutex_lock(&b->lock);
    bool wanted = !c->ctx->closing && c->ctx->mode == KILN_MODE_TIERED && kiln_class_asks(c);
    if (wanted && !has_kernel(c) && c->state != KILN_BUILD_RUNNING) {
        full = c->state == KILN_BUILD_IDLE &&
               atomic_load_explicit(&b->nqueued, memory_order_relaxed) >= QUEUE_MAX;
        started = full || has_builder(c->ctx);
        if (full || !started)
            kiln_class_put_off(c, 0);
        else if (c->state == KILN_BUILD_QUEUED || queue_up(c))
            /* A class that waits asks once more, when it becomes urgent. */
            kiln_class_ask_at(c, kiln_class_is_urgent(c) ? UINT64_MAX : kiln_class_price(c));
        pthread_cond_broadcast(&b->changed);
    } else if (wanted && c->state == KILN_BUILD_RUNNING) {
        kiln_class_ask_at(
            c, UINT64_MAX); /* Until this build ends, calls need not come here and take the lock. */
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

size_t kiln_builds_waiting(kiln_ctx *ctx) {
    const kiln_builds *b = &ctx->builds;
    return atomic_load_explicit(&b->nqueued, memory_order_relaxed) +
           atomic_load_explicit(&b->nrunning, memory_order_relaxed);
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
    b->most = 1; /* until a builder has counted the cores */
    b->batch = KILN_BATCH_MAX;
}

void kiln_builds_drop_queue(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    pthread_mutex_lock(&b->lock);
    while (b->queue) drop_queued(b, b->queue);
    pthread_mutex_unlock(&b->lock);
}

void kiln_builds_stop(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    pthread_mutex_lock(&b->lock);
    ctx->closing = true;
    while (b->queue) drop_queued(b, b->queue);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    kiln_targets_stop(&ctx->targets);
    for (int k = 0; k < b->nbuilders; k++) pthread_join(b->builder[k], NULL);
    b->nbuilders = 0;
}

void kiln_builds_fini(kiln_builds *b) {
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
}

/* The builder threads do not exist in a forked child.  All builds that ran or waited are dropped, as if their classes had never been
 * queued. */
void kiln_builds_after_fork(kiln_ctx *ctx) {
    kiln_builds *b = &ctx->builds;
    init_changed(b); /* it may have had waiters */
    while (b->running) {
        kiln_class *c = b->running;
        b->running = c->next;
        atomic_fetch_sub_explicit(&b->nrunning, 1, memory_order_relaxed);
        c->state = KILN_BUILD_IDLE;
        kiln_class_ask_at(c, 0);
        unpin(c);
    }
    while (b->queue) drop_queued(b, b->queue);
    b->nbuilders = b->nwaiting = b->nurgent = b->npatient = 0;
    b->is_asking = false;
}
