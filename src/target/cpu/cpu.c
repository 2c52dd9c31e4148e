/* cpu.c - the target `cpu`: header-free C for the processors of this machine, by the system's compiler.
 *
 * Ties together what the other files of this folder do: the emitter, the compiler and the loader.  Owns the toolchain of a
 * context, which is opened on first use.  Must not know classes, stores, or when a kernel is worth a build. */
#include "target/cpu/cpu.h"

#include <pthread.h>
#include <string.h>

#include "run/selftest.h"
#include "target/cpu/emit.h"
#include "target/cpu/image.h"
#include "target/cpu/tuning.h"
#include "tensor/tensor.h"

typedef struct cpu {
    kiln_target target; /* first: what others see */
    const kiln_target_host *host;
    pthread_mutex_t lock;      /* guards the rest */
    kiln_toolchain *toolchain; /* NULL until the first use */
    bool stopped;              /* no compiler may be started */
} cpu;

/* -- levels --------------------------------------------------------------------------------------------------- */

static const char *level_name(int level) { return kiln_isa_name((kiln_isa)level); }
static bool runs(int level) { return kiln_isa_runs((kiln_isa)level); }

/* Kernels of one unit share the vector functions of src/math, which have one number of lanes. */
static int group(const kiln_ir *ir, int level) { return kiln_emit_lanes(ir, (kiln_isa)level); }

/* -- the compiler ----------------------------------------------------------------------------------------------- */

static kiln_status open_toolchain(cpu *p) {
    const char *dir;
    KILN_TRY(p->host->scratch(p->host->user, &dir));
    KILN_TRY(kiln_toolchain_open(p->host->cc, dir, &p->toolchain));
    kiln_toolchain_set_interrupted(p->toolchain, p->host->interrupted, p->host->user);
    if (p->stopped) kiln_toolchain_stop(p->toolchain);
    return KILN_OK;
}

kiln_status kiln_cpu_toolchain(kiln_target *t, kiln_toolchain **out) {
    cpu *p = (cpu *)t;
    kiln_status st = KILN_OK;
    pthread_mutex_lock(&p->lock);
    if (!p->toolchain) st = open_toolchain(p);
    *out = p->toolchain;
    pthread_mutex_unlock(&p->lock);
    return st;
}

static kiln_status find_level(kiln_target *t, int *level) {
    kiln_toolchain *tc;
    kiln_isa isa;
    *level = t->level;
    KILN_TRY(kiln_cpu_toolchain(t, &tc));
    KILN_TRY(kiln_toolchain_isa(tc, (kiln_isa)t->level, &isa));
    *level = (int)isa;
    return KILN_OK;
}

static bool can_build(kiln_target *t) {
    kiln_toolchain *tc;
    return kiln_cpu_toolchain(t, &tc) == KILN_OK && kiln_toolchain_in_sight(tc);
}

/* Fails only if the search for a compiler was interrupted. */
static kiln_status doctor(kiln_target *t, kiln_sb *out) {
    kiln_toolchain *tc;
    kiln_status st = kiln_cpu_toolchain(t, &tc);
    if (st == KILN_OK) st = kiln_toolchain_find(tc);
    if (st == KILN_E_INTERRUPTED) return st;
    if (st != KILN_OK) {
        kiln_sb_printf(out, "!compiler: %s\n", kiln_last_error());
        return KILN_OK;
    }
    bool found = kiln_toolchain_route(tc) != KILN_CC_NONE;
    const char *why = kiln_toolchain_why(tc);
    if (found)
        kiln_sb_printf(out, "compiler: %s\n", kiln_toolchain_id(tc));
    else
        kiln_sb_printf(out, "!compiler: none: %s; calls without a kernel are interpreted\n", why);
    if (found && why[0]) kiln_sb_printf(out, "!compiler route: %s\n", why);
    return KILN_OK;
}

static void stop(kiln_target *t) {
    cpu *p = (cpu *)t;
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    if (p->toolchain) kiln_toolchain_stop(p->toolchain);
    pthread_mutex_unlock(&p->lock);
}

/* -- IR -> source -> object -> code ------------------------------------------------------------------------------- */

static kiln_status emit(kiln_target *t, kiln_unit *u) {
    (void)t;
    for (int k = 0; k < u->n; k++) {
        kiln_emit_name name = kiln_emit_symbol(k);
        _Static_assert(sizeof name.text <= sizeof u->symbol[k], "a unit has room for names");
        memcpy(u->symbol[k], name.text, sizeof name.text);
        KILN_TRY(kiln_emit_work(u->ir[k], (kiln_isa)u->level, &u->work[k]));
    }
    return kiln_emit_unit(u->ir, u->n, (kiln_isa)u->level, &u->source);
}

static kiln_status build(kiln_target *t, kiln_unit *u) {
    kiln_toolchain *tc;
    u->failure = KILN_BUILD_NO_COMPILER;
    KILN_TRY(kiln_cpu_toolchain(t, &tc));
    int64_t deadline = kiln_toolchain_deadline(tc);
    kiln_status st = (u->n > 1 ? kiln_build_unit : kiln_build)(tc, (kiln_isa)u->level, u->source.p,
                                                               u->source.len, &u->object);
    if (st == KILN_E_BUILD && kiln_clock_ns() >= deadline)
        u->failure = KILN_BUILD_TIMEOUT;
    else if (st == KILN_E_BUILD && kiln_toolchain_route(tc) != KILN_CC_NONE)
        u->failure = KILN_BUILD_REFUSED;
    return st;
}

static kiln_status assembly(kiln_target *t, const kiln_unit *u, char **out) {
    kiln_toolchain *tc;
    KILN_TRY(kiln_cpu_toolchain(t, &tc));
    return kiln_build_asm(tc, (kiln_isa)u->level, u->source.p, u->source.len, out);
}

static kiln_status load(kiln_target *t, const kiln_object *o, const char *const *symbols, int n, bool slow,
                        kiln_code **code) {
    kiln_toolchain *tc;
    if (n != 1 || !slow) return kiln_code_load_unit(o, symbols, n, code);
    KILN_TRY(kiln_cpu_toolchain(t, &tc));
    return kiln_code_load(tc, o, symbols[0], code);
}

static kiln_status make_image(kiln_target *t, const kiln_object *o, const char *symbol, kiln_object *out) {
    (void)t;
    return kiln_image_make(o, symbol, out);
}

static kiln_status load_image(kiln_target *t, const kiln_object *image, kiln_code **out) {
    (void)t;
    return kiln_code_load_image(image, out);
}

static const char *compiler(kiln_target *t) {
    kiln_toolchain *tc;
    return kiln_cpu_toolchain(t, &tc) == KILN_OK ? kiln_toolchain_id(tc) : "";
}

static kiln_status test(kiln_target *t, const kiln_ir *ir, const kiln_interp *interp, const kiln_code *code,
                        size_t work) {
    (void)t;
    return kiln_selftest(ir, interp, kiln_code_entry(code), work);
}

static const kiln_tuning tuning[] = {
#define T(NAME, value, unit, decides, measured) {#NAME, value, unit, decides, measured},
#include "target/cpu/tuning.def"
#undef T
};

/* -- open and close ------------------------------------------------------------------------------------------------ */

static void lock(kiln_target *t, bool on) {
    cpu *p = (cpu *)t;
    if (on)
        pthread_mutex_lock(&p->lock);
    else
        pthread_mutex_unlock(&p->lock);
}

static void close_cpu(kiln_target *t) {
    cpu *p = (cpu *)t;
    kiln_toolchain_close(p->toolchain);
    pthread_mutex_destroy(&p->lock);
    kiln_free(p);
}

kiln_status kiln_target_open_cpu(const kiln_target_host *host, kiln_target **out) {
    cpu *p = kiln_calloc(1, sizeof *p);
    if (!p) return KILN_NOMEM();
    p->host = host;
    pthread_mutex_init(&p->lock, NULL);
    p->target = (kiln_target){
        .name = "cpu",
        .stamp = kiln_emit_stamp,
        .suffix = ".c",
        .device = KILN_DEVICE_CPU,
        .level = (uint8_t)host->isa,
        .nlevels = KILN_ISA_COUNT,
        .tuning = tuning,
        .ntuning = sizeof tuning / sizeof *tuning,
        .cost = {KILN_CPU_PLAIN_PS, KILN_CPU_FUNCTION_PS, KILN_CPU_SPECIAL_PS, KILN_CPU_BYTE_PS},
        .level_name = level_name,
        .runs = runs,
        .group = group,
        .find_level = find_level,
        .emit = emit,
        .build = build,
        .assembly = assembly,
        .load = load,
        .make_image = make_image,
        .load_image = load_image,
        .compiler = compiler,
        .test = test,
        .can_build = can_build,
        .doctor = doctor,
        .nice = kiln_build_nice,
        .stop = stop,
        .lock = lock,
        .close = close_cpu};
    atomic_init(&p->target.price[0], KILN_CPU_LIGHT_BUILD_NS * UINT64_C(1000));
    atomic_init(&p->target.price[1], KILN_CPU_HEAVY_BUILD_NS * UINT64_C(1000));
    *out = &p->target;
    return KILN_OK;
}
