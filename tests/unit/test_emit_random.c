/* test_emit_random.c - random kernels of fuzz/ir_random.h, compiled, write what the interpreter writes.
 *
 * Loops of every kind inside each other, in ways that no sample has.  Each costs a compile: a sampled run takes a few
 * dozen, each at one ISA level of this machine.  Not under sanitizers: nothing watches a kernel there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "target/cpu/emit.h"
#include "emit_tools.h"
#include "fuzz/ir_random.h"
#include "run/interp.h"
#include "whole.h"

enum { KERNELS = 32, ALL_KERNELS = 1500 };

static uint64_t strips; /* kernels that had some */

static void run(const maker *m, char *memory, const kiln_interp *interp, kiln_kernel_fn fn, char *work) {
    char *ptr[MAX_BUFS];
    int64_t stride[MAX_BUFS * AXES], origin[AXES] = {0};
    uint64_t par[2];
    int32_t trap;
    assert_true(lay_out(m, memory, ptr, stride));
    fill_memory(memory, par);
    for (int nest = 0; nest < m->ir->nnests; nest++) {
        kiln_launch l = {nest, AXES, m->extent, ptr, stride, origin, par, work, 0};
        if (fn)
            assert_int_equal(fn(&l), 0);
        else
            assert_int_equal(kiln_interp_run(interp, &l, &trap), KILN_OK);
    }
}

/* Runs both tiers, each on memory of its own. */
static bool agree(const maker *m, kiln_isa isa, char *memory[2]) {
    kiln_sb source;
    kiln_object object;
    kiln_code *code;
    kiln_interp *interp;
    size_t nwork;
    kiln_sb_init(&source);
    if (kiln_emit_c(m->ir, isa, &source) != KILN_OK) fail_msg("%s", kiln_last_error());
    if (kiln_build(tools, isa, source.p, source.len, &object) != KILN_OK) fail_msg("%s", kiln_last_error());
    assert_int_equal(kiln_code_load(NULL, &object, KILN_KERNEL_SYMBOL, &code), KILN_OK);
    assert_int_equal(kiln_interp_new(m->ir, isa, &interp), KILN_OK);
    assert_int_equal(kiln_emit_work(m->ir, isa, &nwork), KILN_OK);
    strips += nwork > 0;
    char *work = aligned_alloc(64, nwork + 64);
    assert_non_null(work);
    memset(work, 0xff, nwork);
    run(m, memory[0], interp, NULL, NULL);
    run(m, memory[1], NULL, kiln_code_entry(code), work);
    free(work);
    kiln_interp_free(interp);
    kiln_code_free(code);
    kiln_object_fini(&object);
    kiln_sb_fini(&source);
    return same_numbers(m, memory[0], memory[1]);
}

static bool try_kernel(uint64_t seed, kiln_isa isa, char *memory[2]) {
    kiln_arena arena;
    kiln_arena_init(&arena);
    maker m = {.seed = seed * 0x9e3779b97f4a7c15u + 1, .ir = kiln_ir_new(&arena, "random")};
    char *ptr[MAX_BUFS];
    int64_t stride[MAX_BUFS * AXES];
    make_kernel(&m);
    assert_int_equal(kiln_ir_simplify(m.ir), KILN_OK);
    bool fits = lay_out(&m, memory[0], ptr, stride);
    if (fits && !agree(&m, isa, memory)) {
        show(&m, seed);
        fail_msg("seed %d at %s: the kernel and the interpreter differ", (int)seed, kiln_isa_name(isa));
    }
    kiln_arena_free(&arena);
    return fits;
}

static void random_kernels_agree(void **state) {
    (void)state;
    char *memory[2];
    kiln_isa levels[KILN_ISA_COUNT];
    uint64_t nlevels = 0, kernels = whole_run() ? ALL_KERNELS : KERNELS;
    uint64_t ran = 0;
    for (kiln_isa isa = (kiln_isa)0; isa < KILN_ISA_COUNT; isa = (kiln_isa)(isa + 1))
        if (kiln_isa_runs(isa)) levels[nlevels++] = isa;
    for (int k = 0; k < 2; k++) assert_non_null(memory[k] = aligned_alloc(64, MEMORY));
    for (uint64_t seed = 1; seed <= kernels; seed++) ran += try_kernel(seed, levels[seed % nlevels], memory);
    assert_true(ran > kernels / 2 && strips > kernels / 16);
    for (int k = 0; k < 2; k++) free(memory[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_kernels_agree)};
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
