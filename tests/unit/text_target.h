/* text_target.h - a target that is nothing like the CPU's, for tests: it has no compiler, no ELF objects and no ISA levels.
 *
 * Its source language is the text of IR.  `build` scrambles the text, `load` parses it again, and a kernel is a function
 * that has the interpreter run what was parsed.  A kernel of a real device looks no different to those who launch it. */
#ifndef KILN_TEST_TEXT_TARGET_H
#define KILN_TEST_TEXT_TARGET_H
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "run/interp.h"
#include "run/selftest.h"
#include "target/target.h"
#include "tensor/tensor.h"

enum {
    TEXT_BEST_LEVEL = 9, /* more than there are ISA levels */
    TEXT_LEVEL = 7,      /* the best level that the "compiler" has */
    TEXT_WORK = 192,     /* bytes of work that a launch must be given */
    TEXT_SLOTS = 256,
    TEXT_MARK = '\f', /* between kernels of a unit */
    TEXT_SCRAMBLE = 0x55
};

typedef struct text_target {
    kiln_target target;
    atomic_int units, kernels, launches, stops, closes;
    atomic_bool held;           /* `build` waits while this is set */
    kiln_status fails;          /* what `build` returns, */
    kiln_build_failure failure; /* and why */
    bool garbles, lies;         /* objects cannot be loaded; kernels compute nothing */
} text_target;

/* -- code --------------------------------------------------------------------------------------------------- */

/* A function has no closure, so each kernel that is alive has a function of its own, and a slot. */
typedef struct text_slot {
    kiln_code code; /* first: what others see */
    bool used;
    kiln_arena arena;
    kiln_interp *interp;
    text_target *home;
    bool lies;
} text_slot;

static text_slot text_slots[TEXT_SLOTS];
static pthread_mutex_t text_lock = PTHREAD_MUTEX_INITIALIZER;

static int32_t text_run(int k, const kiln_launch *l) {
    int32_t trap;
    text_slot *s = &text_slots[k];
    atomic_fetch_add(&s->home->launches, 1);
    if (!l->work || (uintptr_t)l->work % 64) return -1;
    memset(l->work, k, TEXT_WORK); /* all of it may be written */
    if (s->lies) return 0;
    return kiln_interp_run(s->interp, l, &trap) == KILN_OK ? trap : -1;
}

#define TEXT_ENTRY(k) \
    static int32_t text_run_##k(const kiln_launch *l) { return text_run(0x##k, l); }
#define TEXT_NAME(k) text_run_##k,
/* clang-format off */
#define TEXT_4(X, h, a, b, c, d) X(h##a) X(h##b) X(h##c) X(h##d)
#define TEXT_16(X, h) \
    TEXT_4(X, h, 0, 1, 2, 3) TEXT_4(X, h, 4, 5, 6, 7) TEXT_4(X, h, 8, 9, a, b) TEXT_4(X, h, c, d, e, f)
#define TEXT_256(X) \
    TEXT_16(X, 0) TEXT_16(X, 1) TEXT_16(X, 2) TEXT_16(X, 3) TEXT_16(X, 4) TEXT_16(X, 5) TEXT_16(X, 6) TEXT_16(X, 7) \
    TEXT_16(X, 8) TEXT_16(X, 9) TEXT_16(X, a) TEXT_16(X, b) TEXT_16(X, c) TEXT_16(X, d) TEXT_16(X, e) TEXT_16(X, f)
/* clang-format on */
TEXT_256(TEXT_ENTRY)
static const kiln_kernel_fn text_entries[TEXT_SLOTS] = {TEXT_256(TEXT_NAME)};

static inline void text_drop(kiln_code *c) {
    text_slot *s = (text_slot *)c;
    kiln_interp_free(s->interp);
    kiln_arena_free(&s->arena);
    pthread_mutex_lock(&text_lock);
    s->used = false;
    pthread_mutex_unlock(&text_lock);
}

static inline text_slot *text_free_slot(void) {
    text_slot *s = text_slots, *end = text_slots + TEXT_SLOTS;
    pthread_mutex_lock(&text_lock);
    while (s < end && s->used) s++;
    if (s < end) *s = (text_slot){.used = true};
    pthread_mutex_unlock(&text_lock);
    return s < end ? s : NULL;
}

static inline kiln_status text_load_one(text_target *t, const char *text, size_t n, kiln_code **out) {
    kiln_ir *ir;
    text_slot *s = text_free_slot();
    if (!s) return KILN_FAIL(KILN_E_LIMIT, "more than %d kernels", TEXT_SLOTS);
    s->home = t;
    s->lies = t->lies;
    s->code = (kiln_code){text_entries[s - text_slots], n, text_drop};
    kiln_arena_init(&s->arena);
    kiln_status st = kiln_ir_parse(&s->arena, text, n, &ir);
    if (st == KILN_OK) st = kiln_interp_new(ir, kiln_isa_detect(), &s->interp);
    if (st == KILN_OK)
        *out = &s->code;
    else
        text_drop(&s->code);
    return st;
}

/* -- the struct ------------------------------------------------------------------------------------------- */

static inline const char *text_level_name(int level) { return level == TEXT_LEVEL ? "prose" : "verse"; }
static inline bool text_runs(int level) { return level == TEXT_LEVEL || level == TEXT_BEST_LEVEL; }
static inline int text_group(const kiln_ir *ir, int level) { return ir->nbufs + level; }
static inline kiln_status text_find_level(kiln_target *t, int *level) {
    (void)t;
    *level = TEXT_LEVEL;
    return KILN_OK;
}

static inline kiln_status text_emit(kiln_target *t, kiln_unit *u) {
    (void)t;
    for (int k = 0; k < u->n; k++) {
        snprintf(u->symbol[k], sizeof u->symbol[k], "text %d", k); /* no name in any language */
        u->work[k] = TEXT_WORK;
        if (k) kiln_sb_putc(&u->source, TEXT_MARK);
        kiln_ir_print(&u->source, u->ir[k]);
    }
    return u->source.failed ? KILN_NOMEM() : KILN_OK;
}

static inline kiln_status text_build(kiln_target *self, kiln_unit *u) {
    text_target *t = (text_target *)self;
    while (atomic_load(&t->held)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    u->failure = t->failure;
    if (t->fails != KILN_OK) return KILN_FAIL(t->fails, "the printer is out of ink");
    char *bytes = kiln_alloc(u->source.len);
    if (!bytes) return KILN_NOMEM();
    for (size_t k = 0; k < u->source.len; k++) bytes[k] = (char)(u->source.p[k] ^ TEXT_SCRAMBLE);
    u->object = (kiln_object){bytes, u->source.len, 1000};
    atomic_fetch_add(&t->units, 1);
    atomic_fetch_add(&t->kernels, u->n);
    return KILN_OK;
}

static inline kiln_status text_assembly(kiln_target *t, const kiln_unit *u, char **out) {
    (void)t;
    (void)u;
    *out = kiln_strdup("; nothing is assembled\n");
    return *out ? KILN_OK : KILN_NOMEM();
}

static inline kiln_status text_load(kiln_target *self, const kiln_object *o, const char *const *symbols,
                                    int n, bool slow, kiln_code **code) {
    text_target *t = (text_target *)self;
    kiln_code *made[KILN_UNIT_MAX];
    (void)slow;
    char *text = kiln_alloc(o->n + 1), *from = text;
    if (!text) return KILN_NOMEM();
    for (size_t k = 0; k < o->n; k++) text[k] = (char)(((const char *)o->bytes)[k] ^ TEXT_SCRAMBLE);
    text[o->n] = 0;
    kiln_status st = t->garbles ? KILN_FAIL(KILN_E_BUILD, "the ink has run") : KILN_OK;
    int got = 0;
    for (int k = 0; from && got < n && st == KILN_OK; k++) {
        char *end = strchr(from, TEXT_MARK);
        if (end) *end = 0;
        if (strtol(symbols[got] + strlen("text"), NULL, 10) == k) {
            st = text_load_one(t, from, strlen(from), &made[got]);
            got += st == KILN_OK;
        }
        from = end ? end + 1 : NULL;
    }
    if (st == KILN_OK && got < n) st = KILN_FAIL(KILN_E_BUILD, "no '%s'", symbols[got]);
    if (st == KILN_OK) memcpy(code, made, (size_t)n * sizeof *made);
    while (st != KILN_OK && got > 0) kiln_code_free(made[--got]);
    kiln_free(text);
    return st;
}

/* An image is the text of the one kernel. */
static inline kiln_status text_make_image(kiln_target *t, const kiln_object *o, const char *symbol,
                                          kiln_object *out) {
    (void)t;
    const char *from = o->bytes, *end = from + o->n;
    for (long skip = strtol(symbol + strlen("text"), NULL, 10); skip > 0; skip--)
        from = (const char *)memchr(from, TEXT_MARK ^ TEXT_SCRAMBLE, (size_t)(end - from)) + 1;
    const char *stop = memchr(from, TEXT_MARK ^ TEXT_SCRAMBLE, (size_t)(end - from));
    *out = (kiln_object){.n = (size_t)((stop ? stop : end) - from)};
    out->bytes = kiln_alloc(out->n);
    if (!out->bytes) return KILN_NOMEM();
    memcpy(out->bytes, from, out->n);
    return KILN_OK;
}

static inline kiln_status text_load_image(kiln_target *t, const kiln_object *image, kiln_code **code) {
    const char *first = "text 0";
    return text_load(t, image, &first, 1, false, code);
}

static inline const char *text_compiler(kiln_target *t) { return (void)t, "a printer"; }

static inline kiln_status text_test(kiln_target *t, const kiln_ir *ir, const kiln_interp *interp,
                                    const kiln_code *code, size_t work) {
    (void)t;
    assert_int_equal(work, TEXT_WORK);
    return kiln_selftest(ir, interp, kiln_code_entry(code), work);
}

static inline bool text_can_build(kiln_target *t) { return ((text_target *)t)->fails == KILN_OK; }
static inline kiln_status text_doctor(kiln_target *t, kiln_sb *out) {
    (void)t;
    kiln_sb_puts(out, "compiler: a printer\n");
    return KILN_OK;
}
static inline void text_nice(int by) { (void)by; }
static inline void text_stop(kiln_target *t) { atomic_fetch_add(&((text_target *)t)->stops, 1); }
static inline void text_hold(kiln_target *t, bool on) { (void)t, (void)on; }
static inline void text_close(kiln_target *t) { atomic_fetch_add(&((text_target *)t)->closes, 1); }

/* t outlives the context that it is added to. */
static inline void text_target_init(text_target *t) {
    memset(t, 0, sizeof *t);
    t->target = (kiln_target){.name = "text",
                              .stamp = "a stamp of its own",
                              .suffix = ".ir",
                              .device = KILN_DEVICE_CPU,
                              .level = TEXT_BEST_LEVEL,
                              .nlevels = TEXT_BEST_LEVEL + 1,
                              .cost = {15, 300, 3000, 8},
                              .level_name = text_level_name,
                              .runs = text_runs,
                              .group = text_group,
                              .find_level = text_find_level,
                              .emit = text_emit,
                              .build = text_build,
                              .assembly = text_assembly,
                              .load = text_load,
                              .make_image = text_make_image,
                              .load_image = text_load_image,
                              .compiler = text_compiler,
                              .test = text_test,
                              .can_build = text_can_build,
                              .doctor = text_doctor,
                              .nice = text_nice,
                              .stop = text_stop,
                              .lock = text_hold,
                              .close = text_close};
    for (int k = 0; k < 2; k++) atomic_init(&t->target.price[k], UINT64_C(15000000000));
}
#endif
