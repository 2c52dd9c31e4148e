/* make_code.c - the IR of classes -> kernels that agree with the interpreter, made by the target of each class.
 *
 * One class is emitted, built, loaded and self-tested; or several classes in one unit.  Each kernel goes to
 * kiln_class_take (pipeline.c) as a blob, with the entry that stores keep.  Must not know what stores or targets do, or when a class is worth a build. */
#include <string.h>
#include <time.h>

#include "api/ctx.h"

/* -- sources that are kept ------------------------------------------------------------------------------------ */

static kiln_status write_dump(const kiln_class *c, const kiln_sb *source) {
    const char *dir = c->ctx->dump_dir;
    char *path;
    kiln_sb name;
    kiln_sb_init(&name);
    kiln_sb_printf(&name, "%s/", dir);
    for (const char *p = c->program->ir->name; *p; p++)
        kiln_sb_putc(&name, *p == ':' || *p == '/' ? '_' : *p);
    kiln_sb_printf(&name, "-%016llx%s", (unsigned long long)c->entry.hash, c->target->suffix);
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

/* -- entries for stores -------------------------------------------------------------------------------------- */

/* The source of the unit's kernel k by itself. */
static kiln_status source_of(const kiln_class *c, const kiln_unit *u, kiln_blob *b) {
    if (u->n == 1) return kiln_stored_source(u->source.p, u->source.len, &b->source, &b->nsource);
    kiln_unit alone = {.n = 1, .level = u->level, .ir = {c->program->ir}};
    kiln_sb_init(&alone.source);
    kiln_status st = c->target->emit(c->target, &alone);
    if (st == KILN_OK) st = kiln_stored_source(alone.source.p, alone.source.len, &b->source, &b->nsource);
    kiln_unit_fini(&alone);
    return st;
}

static kiln_status write_entry(kiln_class *c, const kiln_unit *u, int k, const kiln_sb *ir, kiln_blob *b) {
    kiln_target *t = c->target;
    kiln_stored says = {.work = u->work[k],
                        .level = (uint32_t)u->level,
                        .tested = t->runs(u->level),
                        .built_at = (uint64_t)time(NULL),
                        .build_ns = (uint64_t)(u->object.cpu_ns / u->n),
                        .target = t->name,
                        .stamp = t->stamp,
                        .isa = t->level_name(u->level),
                        .op = c->name,
                        .words = c->words,
                        .compiler = t->compiler(t),
                        .ir = ir->p};
    const kiln_key_file *key;
    kiln_object image = {0};
    KILN_TRY(kiln_class_digest(c, u->level, &says.digest));
    KILN_TRY(kiln_stores_key(&c->ctx->stores, &key));
    KILN_TRY(t->make_image(t, &u->object, u->symbol[k], &image));
    says.image = image.bytes;
    says.nimage = image.n;
    kiln_status st = kiln_stored_write(&says, key, &b->entry, &b->nentry);
    kiln_object_fini(&image);
    return st;
}

kiln_status kiln_class_make_entry(kiln_class *c, const kiln_unit *u, int k, kiln_blob *b) {
    kiln_sb ir;
    kiln_sb_init(&ir);
    kiln_ir_print_nameless(&ir, c->program->ir);
    kiln_status st = ir.failed ? KILN_NOMEM() : write_entry(c, u, k, &ir, b);
    kiln_sb_fini(&ir);
    return st;
}

/* Makes entry and source of the unit's kernel k, if a store wants them.  Without an entry the kernel serves this process alone. */
static void make_entry(kiln_class *c, const kiln_unit *u, int k, kiln_blob *b) {
    if (!c->ctx->stores.keep_bytes) return;
    kiln_status st = kiln_class_make_entry(c, u, k, b);
    if (st == KILN_OK) st = source_of(c, u, b);
    if (st == KILN_OK) return;
    kiln_ctx_log(c->ctx, 1, "store", "%s: it cannot be stored: %s", c->name, kiln_last_error());
    kiln_clear_error();
}

/* -- one class ------------------------------------------------------------------------------------------------ */

static kiln_counter cause_of(kiln_build_failure failure) {
    switch (failure) {
    case KILN_BUILD_NO_COMPILER: break;
    case KILN_BUILD_REFUSED: return KILN_COUNTER_compiler_errors;
    case KILN_BUILD_TIMEOUT: return KILN_COUNTER_compiler_timeouts;
    }
    return KILN_COUNTER_no_compiler;
}

/* *cause: the counter of the stage that is under way, so that a failure has a name. */
static kiln_status build_one(const kiln_class *c, kiln_unit *u, kiln_blob *out, kiln_counter *cause) {
    kiln_target *t = c->target;
    *cause = KILN_COUNTER_no_compiler;
    u->ir[0] = c->program->ir;
    KILN_TRY(t->find_level(t, &u->level));
    KILN_TRY(t->emit(t, u));
    dump(c, &u->source);
    kiln_status st = t->build(t, u);
    if (st == KILN_E_BUILD) *cause = cause_of(u->failure);
    KILN_TRY(st);
    const char *symbol = u->symbol[0];
    out->work = u->work[0];
    *cause = KILN_COUNTER_load_failures;
    KILN_TRY(t->load(t, &u->object, &symbol, 1, true, &out->code));
    *cause = KILN_COUNTER_selftest_failures;
    return t->test(t, c->program->ir, c->program->interp, out->code, out->work);
}

kiln_status kiln_class_make_code(kiln_class *c, int64_t *cpu_ns) {
    kiln_unit u = {.n = 1};
    kiln_blob blob = {0};
    kiln_counter cause;
    kiln_sb_init(&u.source);
    kiln_status st = build_one(c, &u, &blob, &cause);
    if (st == KILN_OK) make_entry(c, &u, 0, &blob);
    if (st == KILN_OK) st = kiln_class_take(c, u.level, &blob, NULL);
    st = kiln_note(st, "compiling %s", c->name);
    if (st != KILN_OK && st != KILN_E_INTERRUPTED && !c->ctx->closing) { /* else it was stopped */
        KILN_COUNT(c->ctx, compile_failures);
        kiln_count(&c->ctx->epochs, st == KILN_E_NOMEM ? KILN_COUNTER_memory_failures : cause, 1);
        kiln_ctx_log(c->ctx, 1, "compile", "%s", kiln_last_error());
    }
    kiln_blob_fini(&blob);
    *cpu_ns += u.object.cpu_ns;
    kiln_unit_fini(&u);
    return st;
}

/* -- several classes in one unit ----------------------------------------------------------------------------------- */

typedef struct batch {
    kiln_target *target; /* of all classes */
    int n;
    kiln_class *c[KILN_BATCH_MAX];
} batch;

static kiln_status build_unit(const batch *b, kiln_unit *u, kiln_code **code) {
    kiln_target *t = b->target;
    const char *symbols[KILN_BATCH_MAX];
    _Static_assert((int)KILN_BATCH_MAX <= (int)KILN_UNIT_MAX, "a batch is one unit");
    for (int k = 0; k < b->n; k++) {
        u->ir[k] = b->c[k]->program->ir;
        symbols[k] = u->symbol[k];
    }
    KILN_TRY(t->emit(t, u));
    KILN_TRY(t->build(t, u));
    return t->load(t, &u->object, symbols, u->n, false, code);
}

/* Gives the classes those of the unit's kernels that agree with the interpreter.  A class that gets none is built by itself later,
 * which says why. */
static void hand_out(const batch *b, const kiln_unit *u, kiln_code *const *code) {
    for (int k = 0; k < b->n; k++) {
        kiln_class *c = b->c[k];
        kiln_blob blob = {.work = u->work[k], .code = code[k]};
        kiln_status st = b->target->test(b->target, c->program->ir, c->program->interp, blob.code, blob.work);
        if (st == KILN_OK) make_entry(c, u, k, &blob);
        if (st == KILN_OK) st = kiln_class_take(c, u->level, &blob, NULL);
        if (st != KILN_OK) kiln_clear_error();
        kiln_blob_fini(&blob);
    }
}

/* Takes the first of n classes, and those after it that the target lets share a unit with the first; taken[k] says which. */
static void take_alike(batch *b, kiln_class *const *c, int n, int level, bool *taken) {
    int group = 0;
    b->n = 0;
    for (int k = 0; k < n; k++) {
        if (taken[k]) continue;
        int has = b->target->group(c[k]->program->ir, level);
        if (!b->n) group = has;
        if (has != group) continue;
        taken[k] = true;
        b->c[b->n++] = c[k];
    }
}

static void build_alike(const batch *b, int level, int64_t *cpu_ns) {
    kiln_code *code[KILN_BATCH_MAX];
    kiln_unit u = {.n = b->n, .level = level};
    kiln_sb_init(&u.source);
    if (build_unit(b, &u, code) == KILN_OK) hand_out(b, &u, code);
    *cpu_ns += u.object.cpu_ns;
    kiln_unit_fini(&u);
}

void kiln_classes_make_code(kiln_class *const *c, int n, int64_t *cpu_ns) {
    bool taken[KILN_BATCH_MAX] = {false};
    batch b = {.target = c[0]->target};
    int level;
    fenv_t own;
    if (c[0]->ctx->dump_dir) return; /* the sources that are kept are those that were compiled */
    if (b.target->find_level(b.target, &level) != KILN_OK || !b.target->can_build(b.target)) return;
    /* Classes of other targets are built one by one. */
    for (int k = 0; k < n; k++) taken[k] = c[k]->target != b.target;
    kiln_env_default(&own);
    for (;;) {
        take_alike(&b, c, n, level, taken);
        if (!b.n) break;
        if (b.n > 1) build_alike(&b, level, cpu_ns);
    }
    fesetenv(&own);
}
