/* pipeline.c - the life of a class: an inferred call -> IR -> a kernel from a store or a build -> published.
 *
 * The file to read first.  kiln_class_of finds the class of a call.  kiln_class_new is the front half, run when a
 * class is first seen: it gives the interpreter all it needs.  kiln_class_obtain (obtain.c) is the back half: a builder's thread
 * runs it, and in mode sync the caller does.  It asks the stores, the cheapest first, then builds (make_code.c).  kiln_class_take puts the
 * kernel into the stores that lack it, and publishes it.  `kiln explain --stage=NAME` prints what a stage made.  Knows the stages, not their insides. */
#include <string.h>

#include "api/ctx.h"

/* -- front: what the call means --------------------------------------------------------------------------- */

static void free_program(kiln_program *program) {
    if (!program) return;
    kiln_interp_free(program->interp);
    kiln_interp_free(atomic_load(&program->along));
    kiln_interp_free(atomic_load(&program->across));
    kiln_arena_free(&program->arena);
    kiln_free(program);
}

static void drop_program(kiln_retired *r) { free_program((kiln_program *)r); /* its first member */ }

static kiln_status front(const kiln_ctx *ctx, const kiln_family_fns *family, const kiln_plan *plan,
                         kiln_program *program, kiln_lowered *low) {
    KILN_TRY(family->lower(&program->arena, plan, low));
    KILN_TRY(kiln_note(kiln_ir_verify(low->ir), "after lowering"));
    KILN_TRY(kiln_ir_simplify(low->ir));
    KILN_TRY(kiln_note(kiln_ir_verify(low->ir), "after simplification"));
    program->ir = low->ir;
    program->can_turn = kiln_interp_can_turn(low->ir);
    kiln_ir_nests(low->ir, &low->nests);
    return kiln_interp_new(program->ir, ctx->isa, &program->interp);
}

/* Gives the interpreter that is kept at `at`.  The first caller makes it, by `make`, of the program's IR. */
static kiln_status variant(const kiln_ctx *ctx, const kiln_program *program, _Atomic(kiln_interp *) *at,
                           kiln_status (*make)(const kiln_ir *, kiln_isa, kiln_interp **),
                           const kiln_interp **out) {
    kiln_interp *made = NULL, *there = atomic_load_explicit(at, memory_order_acquire);
    if (!there) {
        KILN_TRY(make(program->ir, ctx->isa, &made));
        if (!atomic_compare_exchange_strong(at, &there, made))
            kiln_interp_free(made); /* another thread has made one */
        else
            there = made;
    }
    *out = there;
    return KILN_OK;
}

kiln_status kiln_program_along(const kiln_ctx *ctx, kiln_program *program, const kiln_interp **out) {
    return variant(ctx, program, &program->along, kiln_interp_new_along, out);
}

kiln_status kiln_program_across(const kiln_ctx *ctx, kiln_program *program, const kiln_interp **out) {
    return variant(ctx, program, &program->across, kiln_interp_new_across, out);
}

/* One block holds the class, its scalars, traps, their texts, its key, its name and its words: all that outlives the program. */
static kiln_class *assemble(kiln_ctx *ctx, const kiln_key *key, kiln_class_kind kind, const kiln_lowered *low,
                            const kiln_sb *words) {
    size_t ntext = words->len + 1, nscalars = (size_t)low->nscalars, ntraps = low->nests.ntraps;
    for (size_t k = 0; k < ntraps; k++) ntext += strlen(low->nests.traps[k].text) + 1;
    kiln_class *c = kiln_calloc(1, sizeof *c + ntraps * sizeof *c->nests.traps +
                                       nscalars * sizeof *c->scalars + ntext + key->n);
    if (!c) return NULL;
    kiln_ir_trap *traps = (kiln_ir_trap *)(c + 1);
    kiln_scalar_source *scalars = (kiln_scalar_source *)(traps + ntraps);
    char *text = (char *)(scalars + nscalars);
    for (size_t k = 0; k < ntraps; k++) {
        traps[k] = (kiln_ir_trap){low->nests.traps[k].status, text};
        text = stpcpy(text, low->nests.traps[k].text) + 1;
    }
    memcpy(scalars, low->scalars, nscalars * sizeof *scalars);
    memcpy(text, words->p, words->len);
    c->name = text;
    c->words = text + strlen(text) + 1;
    text += words->len + 1; /* the block is zeros: the last text ends */
    memcpy(text, key->bytes, key->n);
    c->entry = (kiln_entry){.hash = kiln_hash64(key->bytes, key->n), .key = text, .n = key->n};
    c->ctx = ctx;
    c->kind = kind;
    atomic_init(&c->fn, low->fn);
    c->nests = low->nests;
    c->nests.traps = traps;
    c->nscalars = (uint16_t)nscalars;
    c->scalars = scalars;
    return c;
}

/* *program: of a kernel; it stays NULL for any other kind. */
static kiln_status lower(kiln_ctx *ctx, const kiln_plan *plan, kiln_program **program, kiln_lowered *low) {
    const kiln_family_fns *family = kiln_families[kiln_plan_family(plan)];
    fenv_t own;
    if (plan->kind > KILN_CLASS_ROUTINE) return KILN_OK; /* it runs nothing of its own */
    if (plan->kind == KILN_CLASS_ROUTINE) return family->lower(NULL, plan, low);
    *program = kiln_calloc(1, sizeof **program);
    if (!*program) return KILN_NOMEM();
    kiln_arena_init(&(*program)->arena);
    kiln_env_default(&own);
    kiln_status st = front(ctx, family, plan, *program, low);
    fesetenv(&own);
    return st;
}

kiln_status kiln_class_new(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key, kiln_class **out) {
    kiln_lowered low = {.ir = NULL};
    kiln_program *program = NULL;
    kiln_status st = lower(ctx, plan, &program, &low);
    kiln_sb words; /* two texts */
    kiln_sb_init(&words);
    kiln_row_name_print(&words, plan->call->op->row);
    kiln_sb_putc(&words, '\0');
    kiln_key_words(&words, plan, key);
    kiln_class *c = st == KILN_OK && !words.failed ? assemble(ctx, key, plan->kind, &low, &words) : NULL;
    kiln_sb_fini(&words);
    if (!c) {
        free_program(program);
        return st == KILN_OK ? KILN_NOMEM() : st;
    }
    c->program = program;
    c->target = kiln_ctx_target(ctx, plan);
    c->nasked = (uint8_t)ctx->stores
                    .nquick; /* these cost so little that they are asked here, and again before a build */
    kiln_class_estimate(c);
    *out = c;
    return KILN_OK;
}

void kiln_class_free(kiln_class *c) {
    if (c->kernel) {
        size_t nbytes = kiln_resident_release(c->kernel);
        if (nbytes) kiln_count(&c->ctx->epochs, KILN_COUNTER_kernels, (uint64_t)-1);
        kiln_count(&c->ctx->epochs, KILN_COUNTER_bytes_cached, -(uint64_t)nbytes);
    } else {
        free_program(c->program);
    }
    kiln_free(c);
}

/* -- back: the kernel of a class -------------------------------------------------------------------------------- */

/* Calls that began before still interpret: the program goes when they have left. */
static void publish(kiln_class *c, const kiln_blob *b) {
    kiln_program *program = c->program;
    c->kernel = b->resident;
    c->nests.work = b->work;
    if (b->nbytes) KILN_COUNT(c->ctx, kernels); /* else it is another class's kernel, too */
    kiln_count(&c->ctx->epochs, KILN_COUNTER_bytes_cached, b->nbytes);
    atomic_store_explicit(&c->fn, kiln_code_entry(kiln_resident_code(b->resident)), memory_order_release);
    if (c->is_listed)
        kiln_retire(&c->ctx->epochs, &program->retired, drop_program);
    else
        free_program(program); /* no call has seen the class */
}

/* Puts a kernel into the stores that lack it: those before `from`, which had it, or all. */
static kiln_status keep(kiln_class *c, const kiln_digest *d, kiln_blob *b, const kiln_store *from) {
    const kiln_stores *stores = &c->ctx->stores;
    for (int k = 0; k < stores->n && stores->at[k] != from; k++) {
        kiln_status st = stores->at[k]->put(stores->at[k], d, b);
        if (st == KILN_OK) continue;
        if (!b->resident) return st; /* the first store is `memory`, which a kernel needs */
        kiln_ctx_log(c->ctx, 1, "store", "%s: %s", stores->at[k]->name, kiln_last_error());
        kiln_clear_error();
    }
    return KILN_OK;
}

kiln_status kiln_class_take(kiln_class *c, int level, kiln_blob *b, const kiln_store *from) {
    kiln_digest d;
    KILN_TRY(kiln_class_digest(c, level, &d));
    KILN_TRY(keep(c, &d, b, from));
    publish(c, b);
    if (!from) KILN_COUNT(c->ctx, compiles);
    return KILN_OK;
}

/* -- the class of a call ------------------------------------------------------------------------------------ */

static void log_miss(kiln_ctx *ctx, const kiln_plan *plan) {
    char *line;
    KILN_COUNT(ctx, frozen_misses);
    if (kiln_plan_line(ctx, plan, &line) != KILN_OK) {
        kiln_clear_error();
        return;
    }
    kiln_ctx_log(ctx, 1, "frozen", "no store has the kernel, interpreted: %s", line);
    kiln_free(line);
}

static kiln_status make_class(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key, kiln_class **out) {
    kiln_class *c;
    kiln_entry *winner;
    KILN_COUNT(ctx, misses);
    KILN_TRY(kiln_class_new(ctx, plan, key, &c));
    bool asks = c->kind == KILN_CLASS_KERNEL && ctx->mode != KILN_MODE_INTERP;
    const kiln_store *from = asks ? kiln_class_ask_at_once(c) : NULL;
    c->is_listed = true;
    kiln_status st = kiln_cache_put(ctx->cache, &c->entry, &winner);
    if (st != KILN_OK || winner != &c->entry) kiln_class_free(c);
    KILN_TRY(st);
    *out = (kiln_class *)winner; /* its first member */
    if (*out == c && from) kiln_count(&ctx->epochs, from->counter, 1);
    if (*out == c) kiln_ctx_log(ctx, 3, "class", "%s: %s", c->name, c->words);
    if (*out == c && c->kind == KILN_CLASS_KERNEL) kiln_record(ctx, plan);
    if (ctx->mode == KILN_MODE_FROZEN && *out == c && c->kind == KILN_CLASS_KERNEL && !from)
        log_miss(ctx, plan);
    return KILN_OK;
}

kiln_status kiln_class_of(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) {
    kiln_key key;
    kiln_plan_key(plan, kiln_ctx_target(ctx, plan)->level, &key);
    kiln_entry *e = kiln_cache_get(ctx->cache, kiln_hash64(key.bytes, key.n), key.bytes, key.n);
    if (!e) return make_class(ctx, plan, &key, out);
    KILN_COUNT(ctx, table_hits);
    *out = (kiln_class *)e;
    return KILN_OK;
}
