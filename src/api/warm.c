/* warm.c - calls that are not made -> kernels for their classes in the stores that keep bytes, built by several threads.
 *
 * kiln_warm_add finds the classes of a call and drops those that were noted before; classes with equal IR are one.  kiln_warm_run builds
 * what the stores lack, several kernels in one run of the compiler, for each level that was asked for.  A kernel of a level that this
 * machine does not run is stored untested: each process that loads it tests it before its first call.  Owns the classes it notes, which are in no cache. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/ctx.h"

enum { LEVELS_MAX = 8, JOBS_MAX = 64, FIRST_SEEN = 1024 };

typedef struct seen {
    kiln_digest *at; /* a table with open places; zeros: empty */
    size_t n, room;
} seen;

struct kiln_warm {
    kiln_ctx *ctx;
    int level[LEVELS_MAX], nlevels;
    seen keys, digests;
    kiln_class **c;
    size_t n, room;
    /* of a run, under lock */
    pthread_mutex_t lock;
    size_t next; /* of the classes, times the levels */
    kiln_warm_report report;
    kiln_warm_fn progress;
    void *user;
    bool stop;         /* progress asked for that, or there is no memory */
    char failure[400]; /* the last */
};

/* -- what was seen ------------------------------------------------------------------------------------------- */

static bool insert(const seen *s, kiln_digest d) {
    size_t k = (size_t)d.lo & (s->room - 1);
    for (; s->at[k].lo | s->at[k].hi; k = (k + 1) & (s->room - 1))
        if (s->at[k].lo == d.lo && s->at[k].hi == d.hi) return false;
    s->at[k] = d;
    return true;
}

static kiln_status grow(seen *s) {
    seen larger = {.room = s->room ? 2 * s->room : FIRST_SEEN, .n = s->n};
    larger.at = kiln_calloc(larger.room, sizeof *larger.at);
    if (!larger.at) return KILN_NOMEM();
    for (size_t k = 0; k < s->room; k++)
        if (s->at[k].lo | s->at[k].hi) (void)insert(&larger, s->at[k]);
    kiln_free(s->at);
    *s = larger;
    return KILN_OK;
}

/* *is_new: the digest was not noted before. */
static kiln_status note(seen *s, kiln_digest d, bool *is_new) {
    if (2 * s->n >= s->room) KILN_TRY(grow(s));
    *is_new = insert(s, d);
    s->n += *is_new;
    return KILN_OK;
}

/* -- adding calls ----------------------------------------------------------------------------------------------- */

static kiln_status keep_class(kiln_warm *w, kiln_class *c, bool *kept) {
    kiln_digest d;
    *kept = false;
    if (c->kind != KILN_CLASS_KERNEL) return KILN_OK;
    KILN_TRY(kiln_class_digest(c, 0, &d));
    bool is_new;
    KILN_TRY(note(&w->digests, d, &is_new));
    if (!is_new) return KILN_OK;
    if (w->n == w->room) {
        size_t room = w->room ? 2 * w->room : 64;
        kiln_class **more = kiln_realloc(w->c, room * sizeof *more);
        if (!more) return KILN_NOMEM();
        w->c = more;
        w->room = room;
    }
    w->c[w->n++] = c;
    *kept = true;
    return KILN_OK;
}

/* *parts: the class has a sister for folds that several threads share. */
static kiln_status add_class(kiln_warm *w, const kiln_plan *plan, bool *parts) {
    kiln_key key;
    kiln_class *c;
    bool is_new, kept;
    kiln_plan_key(plan, kiln_ctx_target(w->ctx, plan)->level, &key);
    KILN_TRY(note(&w->keys, kiln_hash128(key.bytes, key.n), &is_new));
    if (!is_new) return KILN_OK;
    KILN_TRY(kiln_class_new(w->ctx, plan, &key, &c));
    *parts = c->nests.partial.unit != 0;
    kiln_status st = keep_class(w, c, &kept);
    if (!kept) kiln_class_free(c);
    return st;
}

static kiln_status add_plan(void *user, kiln_plan *plan) {
    kiln_warm *w = user;
    bool parts = false;
    if (plan->kind == KILN_CLASS_COMPOSITION) return KILN_OK;
    KILN_TRY(add_class(w, plan, &parts));
    if (!parts) return KILN_OK;
    plan->work.parts = true;
    kiln_status st = add_class(w, plan, &parts);
    plan->work.parts = false;
    return st;
}

kiln_status kiln_warm_add(kiln_warm *w, const kiln_op *op, const kiln_value *args, size_t nargs) {
    KILN_NEED(w, op);
    KILN_NEED_ITEMS(args, nargs);
    kiln_thread *t = kiln_thread_of(&w->ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&w->ctx->epochs, t);
    kiln_status st = kiln_call_show(w->ctx, op, args, nargs, add_plan, w);
    kiln_thread_leave(t);
    return kiln_note(st, "%s", op->name);
}

size_t kiln_warm_waiting(const kiln_warm *w) { return w ? w->n * (size_t)w->nlevels : 0; }

/* -- building ---------------------------------------------------------------------------------------------------- */

typedef struct batch {
    int n, level;
    kiln_class *c[KILN_BATCH_MAX];
    kiln_digest digest[KILN_BATCH_MAX];
    bool done[KILN_BATCH_MAX];
} batch;

static kiln_status put(const kiln_class *c, const kiln_digest *d, kiln_blob *b, const bool *has) {
    const kiln_stores *stores = &c->ctx->stores;
    if (!b->entry) return KILN_FAIL(KILN_E_BUILD, "%s: its code cannot be stored", c->name);
    for (int k = 0; k < stores->n; k++)
        if (stores->at[k]->keeps_bytes && !has[k]) KILN_TRY(stores->at[k]->put(stores->at[k], d, b));
    return KILN_OK;
}

/* Whether a store has the kernel.  The stores that lack the kernel get it from that store. */
static bool is_stored(const kiln_class *c, const kiln_digest *d) {
    kiln_stores *stores = &c->ctx->stores;
    kiln_blob first = {0};
    bool has[KILN_STORES_MAX] = {false}, any = false;
    for (int k = 0; k < stores->n; k++) {
        kiln_blob b = {0};
        if (!stores->at[k]->keeps_bytes) continue;
        if (kiln_stores_get(stores, stores->at[k], d, &b, &has[k]) != KILN_OK) has[k] = false;
        if (has[k] && !any)
            first = b;
        else
            kiln_blob_fini(&b);
        any |= has[k];
    }
    if (any && put(c, d, &first, has) != KILN_OK) kiln_clear_error();
    kiln_blob_fini(&first);
    return any;
}

/* Takes the next classes that may share a unit and are in no store.  False: nothing is left. */
static bool take(kiln_warm *w, batch *b) {
    b->n = 0;
    pthread_mutex_lock(&w->lock);
    int group = 0, most = 1;
    while (w->next < kiln_warm_waiting(w) && !w->stop && b->n < most) {
        kiln_class *c = w->c[w->next % w->n];
        int level = w->level[w->next / w->n];
        kiln_digest d;
        int has = c->target->group(c->program->ir, level);
        if (b->n && (level != b->level || has != group || c->has_loops)) break;
        w->next++;
        if (kiln_class_digest(c, level, &d) != KILN_OK || is_stored(c, &d)) {
            w->report.present++;
            continue;
        }
        b->level = level;
        group = has;
        most = c->has_loops ? 1 : KILN_BATCH_MAX;
        b->digest[b->n] = d;
        b->done[b->n] = false;
        b->c[b->n++] = c;
    }
    pthread_mutex_unlock(&w->lock);
    return b->n > 0;
}

static kiln_status load_and_test(const batch *b, const kiln_unit *u, int k, kiln_blob *blob) {
    kiln_target *t = b->c[k]->target;
    const char *symbol = u->symbol[k];
    blob->work = u->work[k];
    if (!t->runs(b->level)) return KILN_OK;
    KILN_TRY(t->load(t, &u->object, &symbol, 1, false, &blob->code));
    return t->test(t, b->c[k]->program->ir, b->c[k]->program->interp, blob->code, blob->work);
}

static kiln_status store_one(const batch *b, const kiln_unit *u, int k) {
    static const bool in_none[KILN_STORES_MAX];
    kiln_blob blob = {0};
    kiln_status st = load_and_test(b, u, k, &blob);
    if (st == KILN_OK) st = kiln_class_make_entry(b->c[k], u, k, &blob);
    if (st == KILN_OK) st = put(b->c[k], &b->digest[k], &blob, in_none);
    kiln_blob_fini(&blob);
    return st;
}

/* Builds the classes first to first + n - 1 of the batch in one unit. */
static kiln_status build_unit(batch *b, int first, int n, int64_t *cpu_ns) {
    kiln_unit u = {.n = n, .level = b->level};
    kiln_target *t = b->c[first]->target;
    batch part = {.n = n, .level = b->level};
    for (int k = 0; k < n; k++) {
        part.c[k] = b->c[first + k];
        part.digest[k] = b->digest[first + k];
        u.ir[k] = part.c[k]->program->ir;
    }
    kiln_sb_init(&u.source);
    kiln_status st = t->emit(t, &u);
    if (st == KILN_OK) st = t->build(t, &u);
    *cpu_ns += u.object.cpu_ns;
    for (int k = 0; k < n && st == KILN_OK; k++) {
        kiln_status one = store_one(&part, &u, k);
        b->done[first + k] = one == KILN_OK;
        if (n == 1) st = one;
    }
    kiln_unit_fini(&u);
    return st;
}

static void report(kiln_warm *w, const batch *b, int64_t cpu_ns, const char *failure) {
    pthread_mutex_lock(&w->lock);
    for (int k = 0; k < b->n; k++) {
        if (b->done[k])
            w->report.built++;
        else
            w->report.failed++;
    }
    w->report.cpu_ns += cpu_ns;
    if (failure) {
        strncpy(w->failure, failure, sizeof w->failure - 1);
        kiln_ctx_log(w->ctx, 1, "compile", "%s", w->failure);
    }
    w->report.done = w->next < kiln_warm_waiting(w) ? w->next : kiln_warm_waiting(w);
    if (w->progress && w->progress(w->user, &w->report)) w->stop = true;
    pthread_mutex_unlock(&w->lock);
}

/* All together, then each that failed by itself, which says why. */
static void build(kiln_warm *w, batch *b) {
    int64_t cpu_ns = 0;
    bool failed = false;
    if (b->n > 1) (void)build_unit(b, 0, b->n, &cpu_ns);
    for (int k = 0; k < b->n; k++)
        if (!b->done[k] && build_unit(b, k, 1, &cpu_ns) != KILN_OK) failed = true;
    report(w, b, cpu_ns, failed ? kiln_last_error() : NULL);
    kiln_clear_error();
}

static void *work(void *user) {
    kiln_warm *w = user;
    fenv_t own;
    batch b;
    int quiet = kiln_quiet(0);
    kiln_env_default(&own);
    while (take(w, &b)) build(w, &b);
    fesetenv(&own);
    (void)kiln_quiet(quiet);
    return NULL;
}

static void forget_classes(kiln_warm *w) {
    for (size_t k = 0; k < w->n; k++) kiln_class_free(w->c[k]);
    w->n = 0;
}

/* Classes that may share a unit stand together, the slow ones to build first, so that cores end together. */
static int by_group(const void *a, const void *b) {
    const kiln_class *x = *(kiln_class *const *)a, *y = *(kiln_class *const *)b;
    if (x->has_loops != y->has_loops) return x->has_loops ? -1 : 1;
    int level = x->target->level;
    return x->target->group(x->program->ir, level) - y->target->group(y->program->ir, level);
}

kiln_status kiln_warm_run(kiln_warm *w, int jobs, kiln_warm_fn progress, void *user, kiln_warm_report *out) {
    pthread_t thread[JOBS_MAX];
    KILN_NEED(w, out);
    int n = jobs > 0 ? jobs : kiln_cpus_allowed(), started = 0;
    if (n > JOBS_MAX) n = JOBS_MAX;
    if (w->n) qsort(w->c, w->n, sizeof *w->c, by_group);
    w->report = (kiln_warm_report){0};
    w->next = 0;
    w->stop = false;
    w->progress = progress;
    w->user = user;
    while (started < n - 1 && pthread_create(&thread[started], NULL, work, w) == 0) started++;
    work(w);
    for (int k = 0; k < started; k++) pthread_join(thread[k], NULL);
    forget_classes(w);
    w->report.done = w->report.present + w->report.built + w->report.failed;
    *out = w->report;
    if (w->stop) return KILN_FAIL(KILN_E_INTERRUPTED, "called off");
    return KILN_OK;
}

/* -- begin and end -------------------------------------------------------------------------------------------------- */

static kiln_status add_level(kiln_warm *w, const char *name, size_t n) {
    const kiln_target *t = kiln_ctx_host_target(w->ctx);
    for (int level = 0; level < t->nlevels && w->nlevels < LEVELS_MAX; level++) {
        const char *known = t->level_name(level);
        if (strlen(known) != n || memcmp(known, name, n) != 0) continue;
        w->level[w->nlevels++] = level;
        return KILN_OK;
    }
    return KILN_FAIL(KILN_E_VALUE, "unknown level '%.*s': expected one like %s", (int)(n < 40 ? n : 40), name,
                     t->level_name(t->level));
}

/* Names with commas between them. */
static kiln_status parse_levels(kiln_warm *w, const char *levels) {
    if (!levels || !*levels) {
        w->level[w->nlevels++] = kiln_ctx_host_target(w->ctx)->level;
        return KILN_OK;
    }
    for (const char *p = levels;; p++) {
        size_t n = strcspn(p, ",");
        KILN_TRY(add_level(w, p, n));
        p += n;
        if (!*p) return KILN_OK;
    }
}

kiln_status kiln_warm_begin(kiln_ctx *ctx, const char *levels, kiln_warm **out) {
    KILN_NEED(ctx, out);
    if (!ctx->stores.keep_bytes)
        return KILN_FAIL(KILN_E_ARG,
                         "no store keeps kernels: KILN_CACHE is not disk, or there is no cache folder");
    if (!ctx->store_host.in_memory) { /* else kernels go to a store that the host has added */
        int fd;
        KILN_TRY(kiln_ctx_open_kernels(ctx, true, &fd));
        close(fd);
    }
    kiln_warm *w = kiln_calloc(1, sizeof *w);
    if (!w) return KILN_NOMEM();
    w->ctx = ctx;
    pthread_mutex_init(&w->lock, NULL);
    kiln_status st = parse_levels(w, levels);
    if (st == KILN_OK)
        *out = w;
    else
        kiln_warm_end(w);
    return st;
}

void kiln_warm_end(kiln_warm *w) {
    if (!w) return;
    forget_classes(w);
    kiln_free(w->c);
    kiln_free(w->keys.at);
    kiln_free(w->digests.at);
    pthread_mutex_destroy(&w->lock);
    kiln_free(w);
}
