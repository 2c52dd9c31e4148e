/* pipeline.c - the life of a class: an inferred call -> IR -> source -> object -> code -> published kernel.
 *
 * The file to read first.  kiln_class_new is the front half, run when a class is first seen: it gives
 * the interpreter all it needs.  kiln_class_compile is the back half, run once per class.  Each line
 * is one stage; `kiln explain --stage=NAME` prints what each made.  Knows the stages, not their insides. */
#include "api/ctx.h"
#include "build/proc.h"
#include "emit/emit.h"
#include "run/selftest.h"

/* -- front: what the call means --------------------------------------------------------------------------- */

/* Nests before the first one that stores: they can refuse a call while nothing is written yet. */
static int count_guards(const kiln_ir *ir) {
    int nest = 0;
    for (int r = 0; r < ir->nins && nest < ir->nnests; r++) {
        if (ir->ins[r].op == KILN_IR_STORE) return nest;
        if (ir->ins[r].op == KILN_IR_END && r == kiln_ir_region_end(ir, kiln_ir_nest_begin(ir, nest))) nest++;
    }
    return nest;
}

static kiln_status front(kiln_class *c, const kiln_plan *plan) {
    KILN_TRY(kiln_lower(&c->arena, plan, &c->low));
    KILN_TRY(kiln_note(kiln_ir_verify(c->low.ir), "after lowering"));
    KILN_TRY(kiln_ir_simplify(c->low.ir));
    KILN_TRY(kiln_note(kiln_ir_verify(c->low.ir), "after simplification"));
    c->nguards = count_guards(c->low.ir);
    return kiln_interp_new(c->low.ir, c->ctx->isa, &c->interp);
}

kiln_status kiln_class_new(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key, kiln_class **out) {
    kiln_class *c = kiln_calloc(1, sizeof *c);
    if (!c) return KILN_NOMEM();
    kiln_arena_init(&c->arena);
    pthread_mutex_init(&c->lock, NULL);
    c->ctx = ctx;
    c->key = *key;
    kiln_status st = front(c, plan);
    if (st == KILN_OK)
        *out = c;
    else
        kiln_class_free(c);
    return st;
}

void kiln_class_free(void *object) {
    kiln_class *c = object;
    if (c->code) {
        atomic_fetch_sub(&c->ctx->count.kernels, 1);
        atomic_fetch_sub(&c->ctx->count.bytes_cached, kiln_code_nbytes(c->code));
        kiln_code_free(c->code);
    }
    kiln_interp_free(c->interp);
    kiln_arena_free(&c->arena);
    pthread_mutex_destroy(&c->lock);
    kiln_free(c);
}

/* -- back: machine code ------------------------------------------------------------------------------------- */

static kiln_status write_dump(const kiln_class *c, const kiln_sb *source) {
    const char *dir = c->ctx->dump_dir;
    char *path;
    kiln_sb name;
    kiln_sb_init(&name);
    kiln_sb_printf(&name, "%s/", dir);
    for (const char *p = c->low.ir->name; *p; p++) kiln_sb_putc(&name, *p == ':' || *p == '/' ? '_' : *p);
    kiln_sb_printf(&name, "-%016llx.c", (unsigned long long)kiln_hash64(c->key.bytes, c->key.n));
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

static void publish(kiln_class *c, kiln_code *code) {
    c->code = code;
    KILN_COUNT(c->ctx, compiles);
    KILN_COUNT(c->ctx, kernels);
    atomic_fetch_add(&c->ctx->count.bytes_cached, kiln_code_nbytes(code));
    atomic_store_explicit(&c->fn, kiln_code_entry(code), memory_order_release);
}

static kiln_status back(kiln_class *c, kiln_sb *source, kiln_object *object, kiln_code **code) {
    kiln_toolchain *tc;
    KILN_TRY(kiln_ctx_toolchain(c->ctx, &tc));
    KILN_TRY(kiln_emit_c(c->low.ir, c->ctx->isa, source));
    dump(c, source);
    KILN_TRY(kiln_build(tc, c->ctx->isa, source->p, source->len, object));
    KILN_TRY(kiln_code_load(tc, object, KILN_KERNEL_SYMBOL, code));
    kiln_status st = kiln_selftest(c->low.ir, c->interp, kiln_code_entry(*code));
    if (st == KILN_E_BUG) KILN_COUNT(c->ctx, selftest_failures);
    return st;
}

static kiln_status compile_locked(kiln_class *c) {
    kiln_sb source;
    kiln_object object = {0};
    kiln_code *code = NULL;
    kiln_sb_init(&source);
    kiln_status st = kiln_note(back(c, &source, &object, &code), "compiling %s", c->low.ir->name);
    if (st == KILN_OK) {
        publish(c, code);
    } else {
        KILN_COUNT(c->ctx, compile_failures);
        kiln_ctx_log(c->ctx, 1, "compile", "%s", kiln_last_error());
        if (code) kiln_code_free(code);
    }
    kiln_object_fini(&object);
    kiln_sb_fini(&source);
    return st;
}

/* One thread builds, the others wait for it; a failure is remembered and not tried again, except for want of
 * memory, which says nothing of the class. */
kiln_status kiln_class_compile(kiln_class *c) {
    kiln_status st = KILN_OK;
    pthread_mutex_lock(&c->lock);
    if (!c->tried) {
        st = compile_locked(c);
        c->tried = st != KILN_E_NOMEM;
    } else if (!c->code) {
        st = KILN_FAIL(KILN_E_BUILD, "compiling %s failed before", c->low.ir->name);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}
