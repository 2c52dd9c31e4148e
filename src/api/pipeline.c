/* pipeline.c - the life of a class: an inferred call -> IR -> source -> object -> code -> published kernel.
 *
 * The file to read first.  kiln_class_of finds the class of a call.  kiln_class_new is the front half, run when a
 * class is first seen: it gives the interpreter all it needs.  kiln_class_build is the back half, run once per
 * class by whoever tiers.c sends.  Each line is one stage; `kiln explain --stage=NAME` prints what each made.
 * Knows the stages, not their insides. */
#include <string.h>

#include "api/ctx.h"
#include "build/proc.h"
#include "emit/emit.h"
#include "run/selftest.h"

/* -- front: what the call means --------------------------------------------------------------------------- */

static void free_program(kiln_program *program) {
    if (!program) return;
    kiln_interp_free(program->interp);
    kiln_interp_free(atomic_load(&program->along));
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
    kiln_ir_nests(low->ir, &low->nests);
    return kiln_interp_new(program->ir, ctx->isa, &program->interp);
}

kiln_status kiln_program_along(const kiln_ctx *ctx, kiln_program *program, const kiln_interp **out) {
    kiln_interp *made = NULL, *there = atomic_load_explicit(&program->along, memory_order_acquire);
    if (!there) {
        KILN_TRY(kiln_interp_new_along(program->ir, ctx->isa, &made));
        if (!atomic_compare_exchange_strong(&program->along, &there, made))
            kiln_interp_free(made); /* another thread has made one */
        else
            there = made;
    }
    *out = there;
    return KILN_OK;
}

/* One block holds the class, its scalars, traps, their texts and its key: all that outlives the program. */
static kiln_class *assemble(kiln_ctx *ctx, const kiln_key *key, kiln_class_kind kind,
                            const kiln_lowered *low) {
    size_t ntext = 0, nscalars = (size_t)low->nscalars, ntraps = low->nests.ntraps;
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
    kiln_class *c = st == KILN_OK ? assemble(ctx, key, plan->kind, &low) : NULL;
    if (!c) {
        free_program(program);
        return st == KILN_OK ? KILN_NOMEM() : st;
    }
    c->program = program;
    kiln_class_estimate(c);
    *out = c;
    return KILN_OK;
}

void kiln_class_free(kiln_class *c) {
    if (c->code) {
        kiln_count(&c->ctx->epochs, KILN_COUNTER_kernels, (uint64_t)-1);
        kiln_count(&c->ctx->epochs, KILN_COUNTER_bytes_cached, -(uint64_t)kiln_code_nbytes(c->code));
        kiln_code_free(c->code);
    } else {
        free_program(c->program);
    }
    kiln_free(c);
}

/* -- the class of a call ------------------------------------------------------------------------------------ */

static kiln_status make_class(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key, kiln_class **out) {
    kiln_class *c;
    kiln_entry *winner;
    KILN_COUNT(ctx, misses);
    KILN_TRY(kiln_class_new(ctx, plan, key, &c));
    kiln_status st = kiln_cache_put(ctx->cache, &c->entry, &winner);
    if (st != KILN_OK || winner != &c->entry) kiln_class_free(c);
    KILN_TRY(st);
    *out = (kiln_class *)winner; /* its first member */
    if (ctx->mode == KILN_MODE_FROZEN && *out == c && c->kind == KILN_CLASS_KERNEL) {
        KILN_COUNT(ctx, frozen_misses);
        kiln_ctx_log(ctx, 1, "frozen", "%s: not in the cache, interpreted", c->program->ir->name);
    }
    return KILN_OK;
}

kiln_status kiln_class_of(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) {
    kiln_key key;
    kiln_plan_key(plan, ctx->isa, &key);
    kiln_entry *e = kiln_cache_get(ctx->cache, kiln_hash64(key.bytes, key.n), key.bytes, key.n);
    if (!e) return make_class(ctx, plan, &key, out);
    KILN_COUNT(ctx, table_hits);
    *out = (kiln_class *)e;
    return KILN_OK;
}

/* -- back: machine code ------------------------------------------------------------------------------------- */

static kiln_status write_dump(const kiln_class *c, const kiln_sb *source) {
    const char *dir = c->ctx->dump_dir;
    char *path;
    kiln_sb name;
    kiln_sb_init(&name);
    kiln_sb_printf(&name, "%s/", dir);
    for (const char *p = c->program->ir->name; *p; p++)
        kiln_sb_putc(&name, *p == ':' || *p == '/' ? '_' : *p);
    kiln_sb_printf(&name, "-%016llx.c", (unsigned long long)c->entry.hash);
    KILN_TRY(kiln_sb_take(&name, &path));
    kiln_status st = kiln_mkdirs(dir);
    if (st == KILN_OK && !kiln_fsize_allows(source->len)) /* writing on would be a deadly signal */
        st = KILN_FAIL(KILN_E_IO, "cannot write %s: it has %zu bytes, more than this process may write", path,
                       source->len);
    if (st == KILN_OK) st = kiln_file_write_atomic(path, source->p, source->len);
    kiln_free(path);
    return st;
}

static void dump(const kiln_class *c, const kiln_sb *source) {
    if (!c->ctx->dump_dir || write_dump(c, source) == KILN_OK) return;
    kiln_ctx_log(c->ctx, 1, "dump", "%s", kiln_last_error());
    kiln_clear_error();
}

/* Calls that began before still interpret: the program goes when they have left. */
static void publish(kiln_class *c, kiln_code *code) {
    c->code = code;
    KILN_COUNT(c->ctx, compiles);
    KILN_COUNT(c->ctx, kernels);
    kiln_count(&c->ctx->epochs, KILN_COUNTER_bytes_cached, kiln_code_nbytes(code));
    atomic_store_explicit(&c->fn, kiln_code_entry(code), memory_order_release);
    kiln_retire(&c->ctx->epochs, &c->program->retired, drop_program);
}

/* *cause: the counter of the stage that is under way, so that a failure has a name. */
static kiln_status back(kiln_class *c, kiln_sb *source, kiln_object *object, kiln_code **code,
                        kiln_counter *cause) {
    kiln_toolchain *tc;
    *cause = KILN_COUNTER_no_compiler;
    KILN_TRY(kiln_ctx_toolchain(c->ctx, &tc));
    kiln_isa isa;
    KILN_TRY(kiln_toolchain_isa(tc, c->ctx->isa, &isa));
    KILN_TRY(kiln_emit_c(c->program->ir, isa, source));
    KILN_TRY(kiln_emit_work(c->program->ir, isa, &c->nests.work));
    dump(c, source);
    int64_t deadline = kiln_toolchain_deadline(tc);
    kiln_status st = kiln_build(tc, isa, source->p, source->len, object);
    if (st == KILN_E_BUILD && kiln_clock_ns() >= deadline)
        *cause = KILN_COUNTER_compiler_timeouts;
    else if (st == KILN_E_BUILD && kiln_toolchain_route(tc) != KILN_CC_NONE)
        *cause = KILN_COUNTER_compiler_errors;
    KILN_TRY(st);
    *cause = KILN_COUNTER_load_failures;
    KILN_TRY(kiln_code_load(tc, object, KILN_KERNEL_SYMBOL, code));
    *cause = KILN_COUNTER_selftest_failures;
    return kiln_selftest(c->program->ir, c->program->interp, kiln_code_entry(*code), c->nests.work);
}

kiln_status kiln_class_build(kiln_class *c) {
    kiln_sb source;
    kiln_object object = {0};
    kiln_code *code = NULL;
    kiln_counter cause;
    fenv_t own;
    kiln_sb_init(&source);
    kiln_env_default(&own);
    kiln_status st = kiln_note(back(c, &source, &object, &code, &cause), "compiling %s",
                               c->program->ir->name);
    fesetenv(&own);
    if (st == KILN_OK) {
        publish(c, code);
    } else if (st != KILN_E_INTERRUPTED && !c->ctx->closing) { /* else it was stopped */
        KILN_COUNT(c->ctx, compile_failures);
        kiln_count(&c->ctx->epochs, st == KILN_E_NOMEM ? KILN_COUNTER_memory_failures : cause, 1);
        kiln_ctx_log(c->ctx, 1, "compile", "%s", kiln_last_error());
    }
    if (st != KILN_OK && code) kiln_code_free(code);
    kiln_object_fini(&object);
    kiln_sb_fini(&source);
    return st;
}
