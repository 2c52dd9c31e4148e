/* targets.c - the rows of target.def -> the targets of a context.
 *
 * Owns the targets that it opened or was given.  Must not know what any of them does. */
#include "target/target.h"

static kiln_status (*const openers[])(const kiln_target_host *host, kiln_target **out) = {
#define TARGET(name, DEVICE) kiln_target_open_##name,
#include "target/target.def"
#undef TARGET
};

enum { NOPENERS = sizeof openers / sizeof *openers };

kiln_status kiln_targets_add(kiln_targets *targets, kiln_target *t) {
    if (targets->n == KILN_TARGETS_MAX) return KILN_BUG("more than %d targets", KILN_TARGETS_MAX);
    targets->at[targets->n++] = t;
    targets->of[t->device] = t;
    return KILN_OK;
}

kiln_status kiln_targets_open(kiln_targets *targets, const kiln_target_host *host) {
    _Static_assert((int)NOPENERS <= (int)KILN_TARGETS_MAX,
                   "target.def has more rows than a context has places");
    for (int k = 0; k < NOPENERS; k++) {
        kiln_target *t = NULL;
        kiln_status st = openers[k](host, &t);
        if (st == KILN_OK) st = kiln_targets_add(targets, t);
        if (st != KILN_OK) {
            kiln_targets_close(targets);
            return st;
        }
    }
    return KILN_OK;
}

void kiln_targets_nice(const kiln_targets *targets, int by) {
    for (int k = 0; k < targets->n; k++) targets->at[k]->nice(by);
}

void kiln_targets_stop(const kiln_targets *targets) {
    for (int k = 0; k < targets->n; k++) targets->at[k]->stop(targets->at[k]);
}

void kiln_targets_lock(const kiln_targets *targets, bool on) {
    for (int k = 0; k < targets->n; k++) {
        kiln_target *t = targets->at[on ? k : targets->n - 1 - k];
        t->lock(t, on);
    }
}

void kiln_targets_close(kiln_targets *targets) {
    for (int k = 0; k < targets->n; k++) targets->at[k]->close(targets->at[k]);
    *targets = (kiln_targets){.n = 0};
}

/* -- what targets make ---------------------------------------------------------------------------------------- */

void kiln_unit_fini(kiln_unit *u) {
    kiln_sb_fini(&u->source);
    kiln_object_fini(&u->object);
}

void kiln_object_fini(kiln_object *o) {
    kiln_free(o->bytes);
    o->bytes = NULL;
    o->n = 0;
}

void kiln_code_free(kiln_code *c) {
    if (c) c->drop(c);
}
