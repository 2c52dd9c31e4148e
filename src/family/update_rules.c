/* update_rules.c - compose rows that update tensors of lists: `for` and `update` -> a map of one item for each way.
 *
 * What is said of lists is meant of their items: in the map a list of tensors is a tensor, and an item (a tensor used as
 * the number in it) a number.  The map has a result for each argument that is updated, which is where it goes.  Arguments keep
 * their places and names, so that conditions and bodies are the row's own.  Must not know how lists are walked. */
#include <string.h>

#include "family/compose_rules.h"

/* -- reading -------------------------------------------------------------------------------------------------- */

/* for ARG, ... */
static kiln_status clause_for(kiln_lex *lx, kiln_row *row) {
    kiln_compose *c;
    KILN_TRY(kiln_compose_keep(lx, row, &c));
    return kiln_row_args(lx, row, &c->each);
}

/* update [ARG = EXPR, ...] */
static kiln_status clause_update(kiln_lex *lx, kiln_row *row) {
    kiln_way *w = NULL;
    KILN_TRY(kiln_compose_this_way(lx, row, &w));
    w->updates = row->listed = true;
    if (lx->first_on_line || lx->tok == KILN_TOK_END) return KILN_OK;
    return kiln_row_nameds(lx, &w->update, KILN_UNTYPED, "=");
}

const kiln_clause kiln_clause_for = {.word = "for", .parse = clause_for};
const kiln_clause kiln_clause_update = {.word = "update", .parse = clause_update, .each = true};

/* -- the map of an item ------------------------------------------------------------------------------------------ */

static const kiln_type tensor = {.kind = KILN_T_TENSOR}, number = {.kind = KILN_T_FLOAT};
static const kiln_type maybe_tensor = {.kind = KILN_T_OPTIONAL, .elem = &tensor};
static const kiln_type maybe_number = {.kind = KILN_T_OPTIONAL, .elem = &number};

static kiln_status update_fail(const kiln_row *row, const kiln_named *v, const char *why) {
    return KILN_FAIL_LINE(KILN_E_PARSE, row->source, v->line, v->col, "'%s' %s", v->name, why);
}

static kiln_status check_update(const kiln_row *row, const kiln_way *w) {
    for (int k = 0; k < w->update.n; k++) {
        const kiln_named *v = &w->update.at[k];
        kiln_nameds before = {w->update.at, k};
        int a = kiln_schema_arg(row->schema, v->name);
        if (a < 0 || !(kiln_compose_of(row)->each >> a & 1) || (row->items >> a & 1))
            return update_fail(row, v, "is no list of tensors after 'for'");
        if (!kiln_param_writes(&row->schema->args[a]))
            return update_fail(row, v, "is not written to, as the schema has it");
        if (kiln_named_of(&before, v->name)) return update_fail(row, v, "is updated twice");
    }
    return KILN_OK;
}

/* The type of argument a in the map; a list of tensors that it does not use may be empty. */
static const kiln_type *type_in_map(const kiln_row *row, int a, bool used) {
    const kiln_type *t = row->schema->args[a].type;
    bool optional;
    if (row->items >> a & 1) {
        (void)kiln_type_strip(t, &optional);
        return optional ? &maybe_number : &number;
    }
    if (!(kiln_compose_of(row)->each >> a & 1)) return t;
    return used ? &tensor : &maybe_tensor;
}

static kiln_status map_schema(kiln_arena *arena, const kiln_row *row, const kiln_way *w, uint64_t used,
                              kiln_row *map) {
    const kiln_schema *from = row->schema;
    kiln_schema *s = kiln_arena_alloc(arena, sizeof *s);
    kiln_param *args = kiln_arena_alloc(arena, (size_t)from->nargs * sizeof *args);
    kiln_param *rets = kiln_arena_alloc(arena, (size_t)w->update.n * sizeof *rets);
    map->arg_takes = kiln_arena_alloc(arena, (size_t)from->nargs * sizeof *map->arg_takes);
    if (!s || !args || !rets || !map->arg_takes) return KILN_NOMEM();
    *s = *from;
    for (int a = 0; a < from->nargs; a++)
        args[a] = (kiln_param){.type = type_in_map(row, a, used >> a & 1), .name = from->args[a].name};
    for (int k = 0; k < w->update.n; k++) {
        rets[k] = (kiln_param){.type = &tensor, .name = ""};
        map->goes_to[k] = (int8_t)kiln_schema_arg(from, w->update.at[k].name);
    }
    s->args = args;
    s->rets = rets;
    s->nrets = w->update.n;
    map->schema = map->declared = s;
    return KILN_OK;
}

/* Those of a list whose bits are set. */
static kiln_status keep_used(kiln_arena *arena, const kiln_nameds *from, uint32_t set, kiln_nameds *out) {
    *out = (kiln_nameds){kiln_arena_alloc(arena, (size_t)from->n * sizeof *out->at), 0};
    if (!out->at && from->n) return KILN_NOMEM();
    for (int k = 0; k < from->n; k++)
        if (set >> k & 1) out->at[out->n++] = from->at[k];
    return KILN_OK;
}

static kiln_status map_branch(kiln_arena *arena, const kiln_way *w, kiln_row *map) {
    kiln_branch *b = kiln_arena_alloc(arena, sizeof *b);
    const kiln_expr **body = kiln_arena_alloc(arena, (size_t)w->update.n * sizeof *body);
    if (!b || !body) return KILN_NOMEM();
    *b = (kiln_branch){.family = KILN_FAMILY_MAP,
                       .when = w->when,
                       .typing = map->typing,
                       .body = body,
                       .nbody = w->update.n};
    for (int k = 0; k < w->update.n; k++) body[k] = w->update.at[k].expr;
    map->branches = b;
    map->nbranches = 1;
    return KILN_OK;
}

static kiln_status make_map(kiln_arena *arena, const kiln_row *row, const kiln_way *w, kiln_row *map) {
    kiln_usage u = {.row = row}, asked = {.row = row};
    for (int k = 0; k < w->update.n; k++) KILN_TRY(kiln_row_use(&u, w->update.at[k].expr));
    KILN_TRY(kiln_row_use(&asked, w->when));
    *map = *row;
    map->family = KILN_FAMILY_MAP;
    map->items = 0;
    map->nchecks = 0;
    map->statics &= u.set;
    map->own = NULL;
    map->makes_calls = map->listed = false;
    kiln_digest pair[2] = {row->digest, {(uint64_t)(w - kiln_compose_of(row)->ways), 0}};
    map->digest = kiln_hash128(pair, sizeof pair);
    uint64_t used = u.set;
    for (int k = 0; k < w->update.n; k++) used |= 1ull << kiln_schema_arg(row->schema, w->update.at[k].name);
    KILN_TRY(map_schema(arena, row, w, used, map));
    map->ignored = 0;
    for (int a = 0; a < row->schema->nargs; a++)
        if (!((u.set | asked.set) >> a & 1)) map->ignored |= 1ull << a;
    KILN_TRY(keep_used(arena, &row->lets, u.lets | asked.lets, &map->lets));
    KILN_TRY(keep_used(arena, &row->hosts, u.hosts | asked.hosts, &map->hosts));
    KILN_TRY(map_branch(arena, w, map));
    kiln_row_default_promotion(map);
    KILN_TRY(kiln_row_rules(map));
    KILN_TRY(kiln_row_resolve(map));
    KILN_TRY(kiln_row_find_asked(map));
    kiln_row_find_twins(map);
    return KILN_OK;
}

/* The one call of the way: all arguments by their places. */
static kiln_status call_map(kiln_arena *arena, const kiln_row *row, kiln_way *w, const kiln_op *op) {
    int n = row->schema->nargs;
    kiln_called *c = kiln_arena_alloc(arena, sizeof *c);
    kiln_named *args = kiln_arena_alloc(arena, (size_t)n * sizeof *args);
    kiln_expr *names = kiln_arena_alloc(arena, (size_t)n * sizeof *names);
    if (!c || !args || !names) return KILN_NOMEM();
    for (int a = 0; a < n; a++) {
        names[a] = (kiln_expr){.kind = KILN_X_NAME, .name = row->schema->args[a].name, .arg = a};
        args[a] = (kiln_named){.name = "", .expr = &names[a]};
    }
    c->each = kiln_compose_of(row)->each;
    c->line = row->line;
    c->col = row->col;
    c->args = (kiln_nameds){args, n};
    atomic_init(&c->op[KILN_FORM_FUNCTIONAL], op);
    w->calls = c;
    w->ncalls = 1;
    return KILN_OK;
}

kiln_status kiln_update_make(kiln_arena *arena, kiln_row *row) {
    const kiln_compose *c = kiln_compose_of(row);
    for (int k = 0; k < c->nways && row->listed; k++) {
        kiln_way *w = &c->ways[k];
        if (!w->updates) continue;
        KILN_TRY(check_update(row, w));
        if (!w->update.n) continue; /* nothing is done */
        kiln_row *map = kiln_arena_alloc(arena, sizeof *map);
        kiln_op *op = kiln_arena_alloc(arena, sizeof *op);
        if (!map || !op) return KILN_NOMEM();
        KILN_TRY(make_map(arena, row, w, map));
        *op = (kiln_op){.name = row->name,
                        .schema_text = row->name,
                        .schema = map->schema,
                        .row = map,
                        .form = KILN_FORM_INPLACE,
                        .nout = w->update.n};
        w->map = map;
        KILN_TRY(call_map(arena, row, w, op));
    }
    return KILN_OK;
}
