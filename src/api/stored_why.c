/* stored_why.c - kiln_cache_why: a call -> the kernel of a store that the call would use, or what differs from the nearest one on disk.
 *
 * Asks the stores in the order and at the levels in which a call asks them, and checks what they give.  Loads no kernel, and removes no
 * entry.  Entries on disk of the same operator are compared with the call by target, stamp, level and the lines of the IR.  Must not know
 * how stores keep entries. */
#include <stdio.h>
#include <string.h>

#include "api/ctx.h"
#include "store/folder.h"

enum { FAULT_MAX = 600 };

/* What the call comes to, and what was found. */
enum { WORDS_MAX = 300 };

typedef struct search {
    kiln_ctx *ctx;
    kiln_bound call;
    kiln_plan plan;
    kiln_key key;
    kiln_class *c; /* not the cache's */
    kiln_sb ir;    /* without names */
    kiln_sb *out;
    bool found;
    char
        refused[FAULT_MAX + 80]; /* why the last entry that was looked at is not used; "" if there was none */
    char nearest[KILN_DIGEST_TEXT];
    size_t distance;               /* of `nearest`: fields and lines that differ */
    char nearest_words[WORDS_MAX]; /* the beginning of its class in words */
} search;

/* -- the stores --------------------------------------------------------------------------------------------- */

static void refuse(search *s, const kiln_store *store, const char *id, const char *why) {
    snprintf(s->refused, sizeof s->refused, "%s, store %s: %s", id, store->name, why);
}

static kiln_status check(const search *s, const kiln_store *store, const kiln_digest *d, int level,
                         kiln_blob *b) {
    const kiln_target *t = s->c->target;
    const kiln_key_file *key = NULL;
    if (b->resident) return KILN_OK;
    if (store->needs_key) KILN_TRY(kiln_stores_key(&s->ctx->stores, &key));
    if (store->needs_key && !key)
        return KILN_FAIL(KILN_E_ARG, "the folder is shared, and KILN_KEY_FILE names no key");
    if (kiln_stored_read(b->entry, b->nentry, d, key, &b->says) != KILN_STORED_FINE) return KILN_E_IO;
    if (strcmp(b->says.target, t->name) == 0 && strcmp(b->says.stamp, t->stamp) == 0 &&
        b->says.level == (uint32_t)level)
        return KILN_OK;
    return KILN_FAIL(KILN_E_IO, "it is for target %.20s, level %u", b->says.target, b->says.level);
}

static void ask(search *s, kiln_store *store, int level) {
    kiln_digest d;
    kiln_blob b = {0};
    bool found = false;
    char id[KILN_DIGEST_TEXT] = "";
    kiln_status st = kiln_class_digest(s->c, level, &d);
    if (st == KILN_OK) kiln_digest_print(&d, id);
    if (st == KILN_OK) st = (store->peek ? store->peek : store->get)(store, &d, &b, &found);
    if (st == KILN_OK && found) st = check(s, store, &d, level, &b);
    if (st != KILN_OK) {
        refuse(s, store, id, kiln_last_error());
        kiln_clear_error();
    } else if (found) {
        kiln_sb_printf(s->out, "verdict: a call uses this entry\nentry: %s\nlevel: %s\n", id,
                       s->c->target->level_name(level));
        kiln_sb_printf(s->out, "store: %s\n", store->name);
        if (store->place) store->place(store, &d, s->out);
        s->found = true;
    }
    if (b.resident) (void)kiln_resident_release(b.resident);
    kiln_blob_fini(&b);
}

static void ask_all(search *s) {
    const kiln_stores *stores = &s->ctx->stores;
    const kiln_target *t = s->c->target;
    for (int k = 0; k < stores->n && !s->found; k++)
        for (int level = t->level; level >= 0 && !s->found; level--)
            if (t->runs(level) && !kiln_store_is_empty(stores->at[k])) ask(s, stores->at[k], level);
}

/* -- the nearest entry ------------------------------------------------------------------------------------------ */

/* Lines that neither text has at its beginning or end as the other one.  *first: the first of these, counted from 1. */
static size_t lines_apart(const char *a, const char *b, size_t *first) {
    size_t line = 1, na = 0, nb = 0;
    const char *p = a, *q = b;
    for (; *p && *p == *q; p++, q++)
        if (*p == '\n') line++, a = p + 1, b = q + 1;
    *first = line;
    if (*p == *q) return 0;
    const char *end_a = a + strlen(a), *end_b = b + strlen(b);
    while (end_a > a && end_b > b && end_a[-1] == end_b[-1]) end_a--, end_b--;
    for (p = a; p < end_a; p++) na += *p == '\n';
    for (q = b; q < end_b; q++) nb += *q == '\n';
    return 1 + (na > nb ? na : nb);
}

static bool is_of_operator(const search *s, const kiln_kept_info *info) {
    return !info->cause && strcmp(info->op, s->c->name) == 0;
}

static kiln_status measure(void *user, const kiln_kept_info *info) {
    search *s = user;
    const kiln_target *t = s->c->target;
    size_t first, away = lines_apart(info->ir, s->ir.p, &first);
    away += (strcmp(info->target, t->name) != 0) + (strcmp(info->stamp, t->stamp) != 0) +
            (strcmp(info->isa, t->level_name(t->level)) != 0);
    if (!is_of_operator(s, info)) return KILN_OK;
    /* If several entries are equally near, the first by name counts, whatever order the folder lists them in. */
    bool nearer = away < s->distance || (away == s->distance && strcmp(info->words, s->nearest_words) < 0);
    if (s->nearest[0] && !nearer) return KILN_OK;
    memcpy(s->nearest, info->id, sizeof s->nearest);
    snprintf(s->nearest_words, sizeof s->nearest_words, "%s", info->words);
    s->distance = away;
    return KILN_OK;
}

static bool print_difference(const search *s, const char *field, const char *there, const char *here) {
    if (strcmp(there, here) == 0) return false;
    kiln_sb_printf(s->out, "differs in %s: %s, here %s\n", field, there, here);
    return true;
}

/* The line of this number, without the blanks before it; *n: its bytes. */
static const char *line_of(const char *text, size_t number, size_t *n) {
    while (--number && *text) text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n');
    text += strspn(text, " ");
    *n = strcspn(text, "\n");
    if (*n) return text;
    *n = strlen("no line");
    return "no line";
}

static bool print_line(const search *s, const char *ir) {
    size_t number, na, nb;
    if (!lines_apart(ir, s->ir.p, &number)) return false;
    const char *a = line_of(ir, number, &na), *b = line_of(s->ir.p, number, &nb);
    kiln_sb_printf(s->out, "differs in IR line %zu: %.*s, here %.*s\n", number, (int)na, a, (int)nb, b);
    return true;
}

static kiln_status print_nearest(void *user, const kiln_kept_info *info) {
    const search *s = user;
    const kiln_target *t = s->c->target;
    kiln_sb_printf(s->out, "nearest: %s\nnearest class: %s\n", info->id, info->words);
    bool differs = print_difference(s, "target", info->target, t->name);
    differs |= print_difference(s, "stamp", info->stamp, t->stamp);
    differs |= print_difference(s, "level", info->isa, t->level_name(t->level));
    differs |= print_line(s, info->ir);
    if (!differs) kiln_sb_puts(s->out, "differs in ABI: the kernel ABI is another one\n");
    return KILN_OK;
}

/* No store has a kernel for the call. */
static kiln_status print_missing(search *s) {
    kiln_digest d;
    char id[KILN_DIGEST_TEXT];
    KILN_TRY(kiln_class_digest(s->c, s->c->target->level, &d));
    kiln_digest_print(&d, id);
    kiln_sb_printf(s->out, "verdict: no store has a kernel for this call\nwanted: %s\nlevel: %s\n", id,
                   s->c->target->level_name(s->c->target->level));
    if (s->refused[0]) kiln_sb_printf(s->out, "refused: %s\n", s->refused);
    KILN_TRY(kiln_cache_list(s->ctx, NULL, 0, measure, s));
    if (s->nearest[0]) return kiln_cache_list(s->ctx, s->nearest, 0, print_nearest, s);
    kiln_sb_printf(s->out, "nearest: none: no entry on disk is of %s\n", s->c->name);
    return KILN_OK;
}

/* -- the call ----------------------------------------------------------------------------------------------------- */

static kiln_status find_class(search *s, const kiln_op *op, const kiln_value *args, size_t nargs) {
    KILN_TRY(kiln_bind(op, args, nargs, &s->call));
    KILN_TRY(kiln_infer(&s->call, &s->plan));
    if (s->plan.kind != KILN_CLASS_KERNEL)
        return KILN_FAIL(KILN_E_UNSUP, "%s: a %s has no kernel of its own", op->name,
                         (const char *[])KILN_CLASS_KIND_NAMES[s->plan.kind]);
    kiln_plan_key(&s->plan, kiln_ctx_target(s->ctx, &s->plan)->level, &s->key);
    KILN_TRY(kiln_class_new(s->ctx, &s->plan, &s->key, &s->c));
    kiln_ir_print_nameless(&s->ir, s->c->program->ir);
    return s->ir.failed ? KILN_NOMEM() : KILN_OK;
}

static kiln_status answer(search *s) {
    kiln_sb_printf(s->out, "operator: %s\nclass: %s\n", s->c->name, s->c->words);
    ask_all(s);
    return s->found ? KILN_OK : print_missing(s);
}

kiln_status kiln_cache_why(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                           char **out) {
    KILN_NEED(ctx, op, out);
    KILN_NEED_ITEMS(args, nargs);
    search *s = kiln_calloc(1, sizeof *s); /* a plan is large for a stack that may be small */
    kiln_sb text;
    if (!s) return KILN_NOMEM();
    kiln_sb_init(&text);
    kiln_sb_init(&s->ir);
    s->ctx = ctx;
    s->out = &text;
    int quiet = kiln_quiet(0); /* what is wrong with an entry is part of the answer */
    kiln_status st = find_class(s, op, args, nargs);
    if (st == KILN_OK) st = answer(s);
    (void)kiln_quiet(quiet);
    if (s->c) kiln_class_free(s->c);
    kiln_sb_fini(&s->ir);
    kiln_free(s);
    return kiln_sb_end(&text, st, out);
}
