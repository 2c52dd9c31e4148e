/* fuzz_schema.c - any bytes either fail to parse with a message, or print to text that parses to the
 * same schema and prints the same.  A prefix parse must agree with the whole parse of what it used.  A parse asks for
 * no more memory than docs/OPS.md says, which bounds what it does too. */
#include <string.h>

#include "schema/schema.h"
#include "spent.h"

enum { HELD_FIRST = 16 << 10, HELD_PER_BYTE = 256 }; /* bytes, for a text of n bytes: see docs/OPS.md */

static void require(bool ok) {
    if (!ok) __builtin_trap();
}

static char *print(const kiln_schema *s) {
    kiln_sb sb;
    char *text = NULL;
    kiln_sb_init(&sb);
    kiln_schema_print(&sb, s);
    require(kiln_sb_take(&sb, &text) == KILN_OK);
    return text;
}

static void same_types(const kiln_param *a, int na, const kiln_param *b, int nb) {
    require(na == nb);
    for (int i = 0; i < na; i++) {
        require(kiln_type_eq(a[i].type, b[i].type) && kiln_str_eq(a[i].name, b[i].name));
        require(a[i].def.kind == b[i].def.kind && a[i].kwarg_only == b[i].kwarg_only);
    }
}

static void round_trip(kiln_arena *arena, const kiln_schema *first) {
    char *text = print(first);
    kiln_schema *second;
    /* Normal spacing may make an allowed text longer than the limit. */
    if (strlen(text) <= KILN_SCHEMA_MAX_TEXT) {
        require(kiln_schema_parse(arena, text, strlen(text), &second) == KILN_OK);
        same_types(first->args, first->nargs, second->args, second->nargs);
        same_types(first->rets, first->nrets, second->rets, second->nrets);
        char *again = print(second);
        require(strcmp(text, again) == 0);
        kiln_free(again);
    }
    kiln_free(text);
}

static void refused(kiln_status st) {
    require(st == KILN_E_PARSE || st == KILN_E_LIMIT);
    require(strncmp(kiln_last_error(), "schema:", 7) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *text = (const char *)data;
    kiln_arena arena;
    kiln_arena_init(&arena);
    kiln_schema *whole = NULL, *prefix = NULL, *exact = NULL;
    size_t used = 0;
    spent_start();
    kiln_status st = kiln_schema_parse(&arena, text, n, &whole);
    spent cost = spent_stop();
    require(cost.total <= HELD_FIRST + n * HELD_PER_BYTE);
    if (st == KILN_OK)
        round_trip(&arena, whole);
    else
        refused(st);
    kiln_source within = {"schema", text, text + n, 0};
    st = kiln_schema_parse_prefix(&arena, &within, text, &used, &prefix);
    if (st == KILN_OK) {
        require(used <= n);
        require(kiln_schema_parse(&arena, text, used, &exact) == KILN_OK);
        round_trip(&arena, prefix);
    } else {
        refused(st);
    }
    kiln_arena_free(&arena);
    return 0;
}
