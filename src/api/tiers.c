/* tiers.c - when a class of calls is worth a build.
 *
 * A class starts interpreted and gathers heat: an estimate of what a kernel would have saved so far.  A clock would cost more than
 * most calls; only large calls are timed.  The price of a build is the processor time that compilers of the same target took for builds before, in this
 * context.  When the heat exceeds the price, the build is urgent (as when renting skis: never worse than twice the best in hindsight).
 * When the heat exceeds a small part of the price, the class may be built by a core that has nothing better to do.
 * builders.c decides which thread builds.  Must not know how a class is built. */
#include "api/ctx.h"

enum {
    PATIENT_PART = 128, /* A class is offered to idle cores when its heat is this part of the price. */
    LARGE_PART = 16     /* A build is urgent after one call that would have saved this part of the price. */
};
#define PRICE_MAX (UINT64_MAX / 8)

/* -- heat ------------------------------------------------------------------------------------------- */

/* What a function of one value costs beside a plain operation. */
static uint32_t value_ps(const kiln_target_cost *cost, const kiln_ir_ins *in) {
    if (in->op != KILN_IR_PRIM) return cost->plain;
    kiln_trait trait = kiln_prim_trait((kiln_prim)in->prim);
    return trait == KILN_TRAIT_SPECIAL ? cost->special
           : trait == KILN_TRAIT_NEAR  ? cost->function
                                       : cost->plain;
}

/* Whether instruction k is run for each element: it stands in a loop without loops inside, and in no merge.  What stands outside is run
 * for each row or column. */
static bool is_of_elements(const kiln_ir *ir, int k) {
    int begin = kiln_ir_region_around(ir, k);
    if (begin < 0) return false;
    for (int r = begin + 1, end = kiln_ir_region_end(ir, begin); r < end; r++)
        if (kiln_ir_opens(&ir->ins[r]) || (ir->ins[r].op == KILN_IR_MERGE && r < k)) return false;
    return true;
}

/* Whether a loop stands inside another one: compilers take several times as long for such a kernel. */
static bool has_loops_inside(const kiln_ir *ir) {
    for (int k = 0, depth = 0; k < ir->nins; k++) {
        if (kiln_ir_opens(&ir->ins[k]) && depth++) return true;
        if (ir->ins[k].op == KILN_IR_END) depth--;
    }
    return false;
}

/* Guesses what a kernel would save.  The interpreter walks over the instructions once for each row and each block
 * of a row, and every instruction reads and writes memory.  CALL_PS is what a call loses whatever its size.  It is
 * high, so that small calls that come often are compiled soon.  Nothing is known of a routine: it gets one cost. */
void kiln_class_estimate(kiln_class *c) {
    enum { CALL_PS = 1500000, ROW_INS_PS = 20000, ELEMENT_INS_PS = 40, ROUTINE_PS = 1000 };
    uint32_t n = 0, kernel = 0;
    kiln_cost_guess(&c->cost, ROUTINE_PS, ROUTINE_PS);
    if (c->kind != KILN_CLASS_KERNEL) return;
    const kiln_ir *ir = c->program->ir;
    for (int k = 0; k < ir->nins; k++) {
        if (!kiln_ir_op_makes(ir->ins[k].op)) continue;
        n++;
        if (is_of_elements(ir, k)) kernel += value_ps(&c->target->cost, &ir->ins[k]);
    }
    c->gain_call = CALL_PS;
    c->gain_row = n * ROW_INS_PS;
    for (int k = 0; k < ir->nbufs; k++)
        kernel += (uint32_t)kiln_dtype_size(ir->bufs[k].dtype) * c->target->cost.byte;
    kiln_cost_guess(&c->cost, kernel + n * ELEMENT_INS_PS, kernel);
    c->has_loops = has_loops_inside(ir);
    kiln_class_ask_next_at(c);
}

/* -- when ------------------------------------------------------------------------------------------- */

void kiln_class_ask_at(kiln_class *c, uint64_t heat) {
    atomic_store_explicit(&c->hot_at, heat, memory_order_relaxed);
}

void kiln_class_ask_next_at(kiln_class *c) { kiln_class_ask_at(c, kiln_class_price(c) / PATIENT_PART); }

bool kiln_class_asks(const kiln_class *c) {
    return atomic_load_explicit(&c->heat, memory_order_relaxed) >=
           atomic_load_explicit(&c->hot_at, memory_order_relaxed);
}

uint64_t kiln_class_price(const kiln_class *c) {
    const kiln_store *next = kiln_class_next_store(c);
    if (next) return atomic_load_explicit(&next->price, memory_order_relaxed);
    return atomic_load_explicit(&c->target->price[c->has_loops], memory_order_relaxed);
}

bool kiln_class_is_urgent(const kiln_class *c) { return kiln_class_nice(c) == 0; }

/* The longer a class has been called, the sooner it should have its kernel.  Measured beside PyTorch's training with two threads on two
 * cores, which leave nothing idle: nice 0, 5, 10 and 19 made the first 20 steps take 5.2, 2.2, 1.4 and 1.3 times as long as without Kiln. */
int kiln_class_nice(const kiln_class *c) {
    static const struct {
        unsigned part; /* of the price, that the heat does not exceed */
        int nice;
    } steps[] = {{16, 15}, {4, 10}, {1, 5}};
    uint64_t heat = atomic_load_explicit(&c->heat, memory_order_relaxed);
    for (size_t k = 0; k < sizeof steps / sizeof *steps && !c->nfailed; k++)
        if (heat < kiln_class_price(c) / steps[k].part) return steps[k].nice;
    return 0;
}

void kiln_class_warm(kiln_class *c, uint64_t gain) {
    if (atomic_load_explicit(&c->heat, memory_order_relaxed) > UINT64_MAX / 2)
        return; /* hot enough for ever */
    if (gain > UINT64_MAX / 4) gain = UINT64_MAX / 4;
    atomic_fetch_add_explicit(&c->heat, gain, memory_order_relaxed);
    if (c->ctx->mode == KILN_MODE_TIERED && kiln_class_asks(c)) kiln_class_ask(c);
}

KILN_HOT bool kiln_class_heat(kiln_class *c, int64_t nelem, int64_t rows) {
    uint64_t interp, kernel, price = kiln_class_price(c);
    atomic_fetch_add_explicit(&c->interp_calls, 1, memory_order_relaxed);
    (void)kiln_cost_of(&c->cost, KILN_BY_INTERP, nelem, &interp);
    (void)kiln_cost_of(&c->cost, KILN_BY_KERNEL, nelem, &kernel);
    uint64_t gain = c->gain_call + (uint64_t)rows * c->gain_row + (interp > kernel ? interp - kernel : 0);
    kiln_class_warm(c, gain >= price / LARGE_PART && gain < price ? price : gain);
    return c->ctx->mode == KILN_MODE_SYNC && kiln_class_asks(c);
}

/* Due again when the class has gained the price once more, doubled for each failure so far. */
void kiln_class_put_off(kiln_class *c, int64_t took_ns) {
    uint64_t price = took_ns > 0 ? (uint64_t)took_ns * KILN_PS_PER_NS : 0, least = kiln_class_price(c);
    if (price < least) price = least;
    for (uint32_t k = 0; k < c->nfailed && price < PRICE_MAX; k++) price *= 2;
    uint64_t heat = atomic_load_explicit(&c->heat, memory_order_relaxed);
    kiln_class_ask_at(c, heat + (price < PRICE_MAX ? price : PRICE_MAX));
}
