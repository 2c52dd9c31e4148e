/* fuzz_rows.c - any bytes as rows: a registry, or a status and a message that names a place.
 *
 * Every body of an accepted row must print to text that reads back and prints the same.  What an input costs is
 * held to the limits that docs/OPS.md states.  PyTorch's list of schemas is left out, for speed. */
#include <string.h>

#include "op/op.h"
#include "spent.h"

/* Bytes: held at once for a text of n bytes, and asked for in each step of checking it. */
enum { HELD_FIRST = 8 << 20, HELD_PER_BYTE = 512, ASKED_PER_STEP = 512 };

static void require(bool ok) {
    if (!ok) __builtin_trap();
}

static char *print(const kiln_expr *e) {
    kiln_sb sb;
    char *text = NULL;
    kiln_sb_init(&sb);
    kiln_expr_print(&sb, e);
    require(kiln_sb_take(&sb, &text) == KILN_OK);
    return text;
}

/* Printed calls nest deeper than the operators they were written with, so a limit may refuse them. */
static void round_trip(const kiln_expr *e) {
    kiln_arena arena;
    kiln_lex lx;
    const kiln_expr *again;
    char *text = print(e);
    kiln_arena_init(&arena);
    kiln_lex_init(&lx, &arena, "printed", text, strlen(text), 1);
    require(kiln_lex_next(&lx) == KILN_OK);
    kiln_status st = kiln_expr_parse(&lx, &again);
    require(st == KILN_OK || st == KILN_E_LIMIT);
    if (st == KILN_OK) {
        char *second = print(again);
        require(lx.tok == KILN_TOK_END && strcmp(text, second) == 0);
        kiln_free(second);
    }
    kiln_free(text);
    kiln_arena_free(&arena);
}

/* A gradient's row, or why there is none; */
static void derive(const kiln_row *row) {
    for (int a = 0; a < row->schema->nargs; a++) {
        kiln_sb sb;
        kiln_sb_init(&sb);
        kiln_status st = kiln_row_grad(row, a, &sb);
        require(st == KILN_OK || st == KILN_E_UNSUP || st == KILN_E_LIMIT || st == KILN_E_TYPE);
        kiln_sb_fini(&sb);
    }
}

static void walk(const kiln_registry *r, kiln_budget steps) {
    const kiln_op *op;
    int ntyped;
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        require(kiln_registry_get(r, k, &op) == KILN_OK);
        const kiln_op *found;
        require(strlen(op->name) > 240 || kiln_registry_find_row(r, op->name, &found) == KILN_OK);
        require(op->row->family == KILN_FAMILY_COMPOSE || op->row->nbranches > 0);
        require(kiln_row_check(r, op->row, &steps, &ntyped) == KILN_OK);
        if (op->form == KILN_FORM_FUNCTIONAL) derive(op->row);
        for (int b = 0; b < op->row->nbranches; b++) {
            const kiln_branch *br = &op->row->branches[b];
            if (br->when) round_trip(br->when);
            require(op->row->family != KILN_FAMILY_MAP || br->nbody == op->schema->nrets);
            for (int i = 0; i < br->nbody; i++) round_trip(br->body[i]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kiln_row_text text = {"rows", (const char *)data, n, false};
    kiln_registry *r = NULL;
    spent_start();
    kiln_status st = kiln_registry_new(NULL, &text, 1, NULL, false, &r);
    spent cost = spent_stop();
    require(cost.most <= HELD_FIRST + n * HELD_PER_BYTE);
    require(cost.total <= (size_t)kiln_budget_for(n).most * ASKED_PER_STEP);
    if (st == KILN_OK) {
        walk(r, kiln_budget_for(n));
        kiln_registry_free(r);
        return 0;
    }
    require(!r && st != KILN_E_BUG && st != KILN_E_NOMEM);
    const char *place = strstr(kiln_last_error(), "rows:");
    require(place && place[5] >= '1' && place[5] <= '9');
    return 0;
}
