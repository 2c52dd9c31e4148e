/* test_interp_random.c - random kernels of fuzz/ir_random.h: the interpreter, as written and simplified,
 * must write the same bytes as the naive walk of fuzz/ir_walk.h.
 *
 * Values are moved out of loops, splatted, and share slots in ways no hand-written kernel does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/ir_random.h"
#include "fuzz/ir_walk.h"
#include "sanitized.h"

enum { KERNELS = 1500 };

/* -- running ------------------------------------------------------------------------------------------- */

static void run(const maker *m, const kiln_ir *ir, char *memory, cell *cells) {
    char *ptr[MAX_BUFS];
    int64_t stride[MAX_BUFS * AXES], origin[AXES] = {0};
    uint64_t par[2];
    assert_true(lay_out(m, memory, ptr, stride));
    fill_memory(memory, par);
    kiln_interp *p;
    assert_int_equal(kiln_interp_new(ir, kiln_isa_detect(), &p), KILN_OK);
    for (int nest = 0; nest < ir->nnests; nest++) {
        kiln_launch l = {nest, AXES, m->extent, ptr, stride, origin, par, NULL, 0};
        int32_t trap = 0;
        if (cells)
            walk_nest(ir, kiln_isa_detect(), &l, cells);
        else
            assert_int_equal(kiln_interp_run(p, &l, &trap), KILN_OK);
    }
    kiln_interp_free(p);
}

/* How often each form was drawn. */
typedef struct drawn {
    int several, other_tree, by_block, within_block, by_block_scan, computed;
} drawn;

static void note_forms(const kiln_ir *ir, drawn *d) {
    uint32_t blocks[KILN_IR_MAX_NEST + 1] = {0}; /* axes of the blocks around */
    int depth = 0;
    for (int i = 0; i < ir->nins; i++) {
        const kiln_ir_ins *ins = &ir->ins[i];
        kiln_ir_tree t = ins->imm.tree;
        depth -= ins->op == KILN_IR_END;
        d->computed += ins->op == KILN_IR_LOAD && ins->ncoord;
        if (!kiln_ir_opens(ins)) continue;
        int axis = kiln_ir_block_axis(ins);
        d->several += ins->op == KILN_IR_FOLD && ins->ncoord;
        d->other_tree += ins->op == KILN_IR_FOLD && t.lanes && (t.lanes != 64 || t.block != 4096);
        d->by_block += axis >= 0;
        d->by_block_scan += ins->op == KILN_IR_SCAN && t.block;
        d->within_block += (kiln_ir_axes(ins) & blocks[depth]) != 0;
        blocks[depth + 1] = blocks[depth] | (axis >= 0 ? 1u << axis : 0);
        depth++;
    }
}

/* The naive walk writes what the interpreter wrote.  Sanitizers look at the interpreter. */
static void walk_agrees(const maker *m, uint64_t seed, const char *written, char *memory) {
    cell *cells = aligned_alloc(64, sizeof *cells * (size_t)m->ir->nins);
    assert_non_null(cells);
    memset(cells, 0, sizeof *cells * (size_t)m->ir->nins);
    run(m, m->ir, memory, cells);
    free(cells);
    bool same = memcmp(written, memory, MEMORY) == 0;
    if (!same) show(m, seed);
    assert_true(same);
}

static int try_kernel(uint64_t seed, char *memory[3], drawn *forms) {
    kiln_arena arena;
    kiln_arena_init(&arena);
    maker m = {.seed = seed * 0x9e3779b97f4a7c15u + 1, .ir = kiln_ir_new(&arena, "random")};
    char *ptr[MAX_BUFS];
    int64_t stride[MAX_BUFS * AXES];
    make_kernel(&m);
    if (kiln_ir_verify(m.ir) != KILN_OK) {
        show(&m, seed);
        fail_msg("%s", kiln_last_error());
    }
    note_forms(m.ir, forms);
    if (!lay_out(&m, memory[0], ptr, stride)) {
        kiln_arena_free(&arena);
        return 0;
    }
    run(&m, m.ir, memory[0], NULL);
    if (!SANITIZED) walk_agrees(&m, seed, memory[0], memory[1]);
    assert_int_equal(kiln_ir_simplify(m.ir), KILN_OK);
    assert_int_equal(kiln_ir_verify(m.ir), KILN_OK);
    run(&m, m.ir, memory[2], NULL);
    bool same = same_numbers(&m, memory[0], memory[2]);
    if (!same) show(&m, seed);
    assert_true(same);
    kiln_arena_free(&arena);
    return 1;
}

static void random_kernels_agree(void **state) {
    (void)state;
    char *memory[3];
    int ran = 0;
    for (int k = 0; k < 3; k++) assert_non_null(memory[k] = aligned_alloc(64, MEMORY));
    drawn d = {0};
    for (uint64_t seed = 1; seed <= KERNELS; seed++) ran += try_kernel(seed, memory, &d);
    assert_true(ran > KERNELS / 2);
    assert_true(d.several > 100 && d.other_tree > 100 && d.by_block > 100 && d.within_block > 100);
    assert_true(d.by_block_scan > 100 && d.computed > 100);
    for (int k = 0; k < 3; k++) free(memory[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_kernels_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
