/* row_scope.c - what a name means in each part of a row, and which arguments a row uses.
 *
 * Tensor arguments are elements, numbers are scalars known on the host, clauses add states, positions
 * and lets.  An argument that appears nowhere is an error: a forgotten argument is a wrong operator. */
#include <string.h>

#include "op/row.h"

bool kiln_row_is_tensor(const kiln_row *row, int arg) {
    bool optional;
    return kiln_type_strip(row->schema->args[arg].type, &optional)->kind == KILN_T_TENSOR;
}

bool kiln_row_served(const kiln_row *row) { return kiln_family_served(row->family); }

const kiln_view *kiln_row_view(const kiln_row *row, int arg) {
    for (int k = 0; k < row->nviews; k++)
        if (row->views[k].arg == arg) return &row->views[k];
    return NULL;
}

bool kiln_row_optional(const kiln_row *row, int arg) {
    bool optional;
    (void)kiln_type_strip(row->schema->args[arg].type, &optional);
    return optional;
}

const kiln_named *kiln_named_of(const kiln_nameds *list, const char *name) {
    for (int k = 0; list && k < list->n; k++)
        if (strcmp(list->at[k].name, name) == 0) return &list->at[k];
    return NULL;
}

const kiln_expr *kiln_row_host(const kiln_row *row, const char *name) {
    const kiln_named *v = kiln_named_of(&row->hosts, name);
    return v ? v->expr : NULL;
}

/* -- environment ------------------------------------------------------------------------------------------ */

static kiln_dtype tensor_dtype(const kiln_row_env *re, int arg) {
    bool promoted = re->branch->typing.args >> arg & 1;
    return kiln_dtype_compute(promoted ? re->common : re->dtypes[arg]);
}

static bool find_arg(const kiln_row_env *re, const char *name, kiln_sym *out) {
    int arg = kiln_schema_arg(re->row->schema, name);
    if (arg < 0) return false;
    bool optional;
    const kiln_type *type = kiln_type_strip(re->row->schema->args[arg].type, &optional);
    out->id = arg;
    out->optional = optional;
    out->absent = re->absent >> arg & 1;
    out->may_be_absent = optional && !out->absent && !((re->present | re->branch->knows) >> arg & 1);
    out->kind = KILN_SYM_SCALAR;
    out->dtype = kiln_dtype_compute(re->common);
    switch (type->kind) {
    case KILN_T_TENSOR:
        out->kind = KILN_SYM_ELEM;
        if (!out->absent) out->dtype = tensor_dtype(re, arg);
        return true;
    case KILN_T_SCALAR: return true;
    case KILN_T_INT:
    case KILN_T_SYMINT:
        out->dtype = KILN_I64;
        out->weak = true;
        return true;
    case KILN_T_FLOAT:
        out->dtype = KILN_F64;
        out->weak = true;
        return true;
    case KILN_T_BOOL: out->dtype = KILN_BOOL; return true;
    case KILN_T_LIST:
        out->kind = type->elem->kind == KILN_T_INT || type->elem->kind == KILN_T_SYMINT ? KILN_SYM_LIST
                                                                                        : KILN_SYM_HOST;
        out->dtype = KILN_I64;
        return true;
    case KILN_T_STR:
    case KILN_T_DTYPE:
    case KILN_T_OTHER:
    case KILN_T_OPTIONAL:
    case KILN_T_TUPLE:
    case KILN_T_APPLY: break;
    }
    out->kind = KILN_SYM_HOST;
    return true;
}

/* A number the host computes: an integer unless it says f64. */
static bool find_host(const kiln_row_env *re, const char *name, kiln_sym *out) {
    const kiln_named *v = kiln_named_of(&re->row->hosts, name);
    if (!v) return false;
    out->kind = KILN_SYM_SCALAR;
    out->id = KILN_HOST_ID + (int)(v - re->row->hosts.at);
    out->dtype = v->dtype == KILN_DTYPE_COUNT ? KILN_I64 : v->dtype;
    out->weak = out->dtype == KILN_I64 || out->dtype == KILN_F64;
    return true;
}

static bool find(const kiln_env *env, const char *name, bool rhs, kiln_sym *out) {
    const kiln_row_env *re = (const kiln_row_env *)env;
    memset(out, 0, sizeof *out);
    bool (*own)(const kiln_row_env *re, const char *name, bool rhs,
                kiln_sym *out) = kiln_rules(re->row)->find;
    if (rhs) return own && own(re, name, true, out);
    const kiln_named *let = kiln_named_of(re->scope, name);
    if (!let) let = kiln_named_of(&re->row->lets, name);
    if (let) {
        out->kind = KILN_SYM_LET;
        out->let = let->expr;
        return true;
    }
    return (own && own(re, name, false, out)) || find_host(re, name, out) || find_arg(re, name, out);
}

void kiln_row_env_init(kiln_row_env *re, const kiln_row *row, const kiln_branch *branch, kiln_dtype common,
                       const kiln_dtype *dtypes, kiln_arena *arena) {
    memset(re, 0, sizeof *re);
    re->env.find = find;
    re->env.compute = kiln_dtype_compute(common);
    re->env.common = common;
    re->env.source = row->source;
    re->env.arena = arena;
    re->env.complex = row->rules;
    re->row = row;
    re->branch = branch;
    re->common = common;
    re->dtypes = dtypes;
}

/* -- which arguments a row uses ------------------------------------------------------------------------- */

typedef kiln_usage usage;

/* A tensor is read at its place, or at one that is computed: always in the same way. */
static kiln_status note_arg(usage *u, const kiln_expr *e, int arg) {
    uint64_t self = 1ull << arg;
    bool tensor = kiln_row_is_tensor(u->row, arg), access = tensor && e->kind == KILN_X_ACCESS;
    if (u->hosting) return u->hosted |= self, KILN_OK;
    u->set |= self;
    if (!tensor) return KILN_OK;
    *(access ? &u->accessed : &u->elements) |= self;
    if (access && u->access[arg] && !kiln_same_place(u->access[arg], e))
        return kiln_expr_fail(u->row->source, e, KILN_E_PARSE, "'%s' is read along another dimension, too",
                              e->name);
    if (access) u->access[arg] = e;
    return KILN_OK;
}

static kiln_status note_use(void *user, const kiln_expr *e) {
    usage *u = user;
    const kiln_named *let = kiln_named_of(&u->row->lets, e->name),
                     *host = kiln_named_of(&u->row->hosts, e->name);
    uint32_t *met = let ? &u->lets : &u->hosts;
    uint32_t self = let ? 1u << (let - u->row->lets.at) : host ? 1u << (host - u->row->hosts.at) : 0;
    if (self & *met) return KILN_OK;
    *met |= self;
    if (self) {
        bool hosting = u->hosting;
        u->hosting = hosting || !let;
        KILN_TRY(kiln_expr_names((let ? let : host)->expr, note_use, u));
        u->hosting = hosting;
        return KILN_OK;
    }
    int arg = kiln_schema_arg(u->row->schema, e->name);
    if (arg >= 0) KILN_TRY(note_arg(u, e, arg));
    u->place = u->place || (arg < 0 && strcmp(e->name, "i") == 0);
    u->count = u->count || (arg < 0 && strcmp(e->name, "n") == 0);
    return KILN_OK;
}

static kiln_status use(usage *u, const kiln_expr *e) { return e ? kiln_expr_names(e, note_use, u) : KILN_OK; }

kiln_status kiln_row_use(kiln_usage *u, const kiln_expr *e) {
    KILN_TRY(use(u, e));
    u->set |= u->hosted;
    return KILN_OK;
}

static kiln_status use_all(usage *u, const kiln_nameds *list) {
    for (int k = 0; k < list->n; k++) KILN_TRY(use(u, list->at[k].expr));
    return KILN_OK;
}

kiln_status kiln_row_use_all(kiln_usage *u, const kiln_nameds *list) {
    KILN_TRY(use_all(u, list));
    u->set |= u->hosted;
    return KILN_OK;
}

/* Optionals that must be present for `when` to hold: present(x), or x compared with a text. */
static uint64_t knows(const kiln_row *row, const kiln_expr *when) {
    if (!when) return 0;
    if (when->kind == KILN_X_LOGIC && when->prim == KILN_P_AND)
        return knows(row, when->args[0]) | knows(row, when->args[1]);
    bool present = when->kind == KILN_X_CALL && strcmp(when->name, "present") == 0;
    bool equals = when->kind == KILN_X_PRIM && when->prim == KILN_P_EQ && when->args[1]->kind == KILN_X_STR;
    if ((!present && !equals) || when->nargs < 1 || when->args[0]->kind != KILN_X_NAME) return 0;
    int arg = kiln_schema_arg(row->schema, when->args[0]->name);
    return arg < 0 ? 0 : 1ull << arg;
}

/* Arguments that appear as compute(x), in e or the lets it names. */
static uint64_t exact_args(const kiln_row *row, const kiln_expr *e) {
    uint64_t set = 0;
    if (e->kind == KILN_X_CALL && strcmp(e->name, "compute") == 0 && e->nargs == 1 &&
        e->args[0]->kind == KILN_X_NAME) {
        int arg = kiln_schema_arg(row->schema, e->args[0]->name);
        if (arg >= 0) set |= 1ull << arg;
    }
    for (int k = 0; k < e->nargs; k++) set |= exact_args(row, e->args[k]);
    return set;
}

kiln_status kiln_visit_all(const kiln_nameds *list, kiln_expr_use use, kiln_visit_fn visit, void *user) {
    for (int k = 0; k < list->n; k++) KILN_TRY(visit(user, list->at[k].expr, use));
    return KILN_OK;
}

kiln_status kiln_visit_clauses(const kiln_row *row, kiln_visit_fn visit, void *user) {
    return kiln_rules(row)->visit ? kiln_rules(row)->visit(row, visit, user) : KILN_OK;
}

static uint64_t named_args(const kiln_row *row, bool shapes) {
    return kiln_rules(row)->names ? kiln_rules(row)->names(row, shapes) : 0;
}

static kiln_status use_shape(void *user, const kiln_expr *e, kiln_expr_use why) {
    return why == KILN_USE_SHAPE ? use(user, e) : KILN_OK;
}

static kiln_status use_body(void *user, const kiln_expr *e, kiln_expr_use why) {
    return why == KILN_USE_BODY ? use(user, e) : KILN_OK;
}

static kiln_status use_any(void *user, const kiln_expr *e, kiln_expr_use why) {
    (void)why;
    return use(user, e);
}

static kiln_status use_clauses(usage *u) {
    const kiln_row *row = u->row;
    KILN_TRY(use_all(u, &row->grads));
    KILN_TRY(kiln_visit_clauses(row, use_any, u));
    for (int k = 0; k < row->nchecks; k++) KILN_TRY(use(u, row->checks[k].cond));
    u->set |= named_args(row, false) | kiln_arg_bit(row->typing.dtype_arg);
    return KILN_OK;
}

/* What of a tensor is read at computed places. */
static kiln_status set_accesses(kiln_branch *br, const usage *u) {
    const kiln_row *row = u->row;
    const kiln_family_rules *rules = kiln_rules(row);
    if (!u->accessed || rules->accesses_all) return KILN_OK;
    for (int a = 0; a < row->schema->nargs; a++) {
        const kiln_expr *e = u->access[a];
        if (!e) continue;
        if ((u->elements | row->lacking) >> a & 1)
            return kiln_expr_fail(row->source, e, KILN_E_PARSE, "'%s' is read at its own place, too",
                                  e->name);
        if (!rules->access)
            return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                                  "only a fold or an index row reads at computed places");
        KILN_TRY(rules->access(row, e));
        br->access[a] = e;
    }
    br->accessed = u->accessed;
    if (__builtin_popcountll(u->accessed) > KILN_ROW_MAX_ACCESSED)
        return KILN_FAIL_LINE(KILN_E_LIMIT, row->source, row->line, row->col,
                              "at most %d tensors are read at computed places", KILN_ROW_MAX_ACCESSED);
    return KILN_OK;
}

static kiln_status resolve_branch(kiln_branch *br, usage *all) {
    usage u = {.row = all->row};
    br->knows = knows(all->row, br->when);
    for (int k = 0; k < br->nbody; k++) KILN_TRY(use(&u, br->body[k]));
    if (br->reduce) KILN_TRY(kiln_rules(u.row)->folding->use(&u, br->reduce));
    for (int c = 0; c < u.row->nchecks; c++)
        if (u.row->checks[c].each) KILN_TRY(use(&u, u.row->checks[c].cond));
    KILN_TRY(kiln_visit_clauses(u.row, use_body, &u));
    KILN_TRY(set_accesses(br, &u));
    br->uses = u.set;
    for (int k = 0; k < br->nbody; k++) br->exact |= exact_args(u.row, br->body[k]);
    for (int k = 0; k < u.row->lets.n; k++)
        if (u.lets >> k & 1) br->exact |= exact_args(u.row, u.row->lets.at[k].expr);
    all->set |= u.set | u.hosted;
    all->lets |= u.lets;
    all->hosts |= u.hosts;
    return use(all, br->when);
}

/* What nothing uses was forgotten or misspelt. */
static kiln_status check_used(const kiln_row *row, const usage *all) {
    for (int a = 0; a < row->schema->nargs; a++) {
        const char *name = row->schema->args[a].name;
        bool used = (all->set | row->written) >> a & 1, ignored = row->ignored >> a & 1,
             in_class = row->statics >> a & 1;
        if (!used && !ignored && !in_class && !row->rest) /* what `rest` takes is known when all rows are */
            return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                                  "%s: argument '%s' is not used; if it is not misspelt, write 'ignore %s'",
                                  row->name, name, name);
        if (used && ignored)
            return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                                  "%s: argument '%s' is ignored but used", row->name, name);
    }
    for (int h = 0; h < 2; h++) {
        const kiln_nameds *list = h ? &row->hosts : &row->lets;
        for (int k = 0; k < list->n; k++)
            if (!((h ? all->hosts : all->lets) >> k & 1))
                return KILN_FAIL_LINE(KILN_E_PARSE, row->source, list->at[k].line, list->at[k].col,
                                      "'%s' is not used", list->at[k].name);
    }
    return KILN_OK;
}

/* What a name in a condition means: a let or host number, or an argument. */
static int find_for_host(void *user, const char *name, const kiln_expr **means) {
    const kiln_row *row = user;
    const kiln_named *v = kiln_named_of(&row->lets, name);
    if (!v) v = kiln_named_of(&row->hosts, name);
    if (v) *means = v->expr;
    return v ? -1 : kiln_schema_arg(row->schema, name);
}

static void resolve_all(kiln_row *row, const kiln_nameds *list) {
    for (int k = 0; k < list->n; k++) kiln_expr_resolve(list->at[k].expr, find_for_host, row);
}

static kiln_status resolve_once(void *row, const kiln_expr *e, kiln_expr_use why) {
    if (e && why != KILN_USE_BODY) kiln_expr_resolve(e, find_for_host, row);
    return KILN_OK;
}

/* All that is computed once per call: conditions, host numbers, what clauses ask, and the lets that these use. */
static kiln_status resolve_conditions(kiln_row *row) {
    for (int c = 0; c < row->nchecks; c++)
        if (!row->checks[c].each) kiln_expr_resolve(row->checks[c].cond, find_for_host, row);
    for (int b = 0; b < row->nbranches; b++)
        if (row->branches[b].when) kiln_expr_resolve(row->branches[b].when, find_for_host, row);
    resolve_all(row, &row->lets);
    resolve_all(row, &row->hosts);
    return kiln_visit_clauses(row, resolve_once, row);
}

/* What lowering asks of clauses, and which checks ask for counts. */
static kiln_status find_counts(kiln_row *row) {
    for (int b = 0; b < row->nbranches && kiln_rules(row)->note; b++)
        KILN_TRY(kiln_rules(row)->note(row, &row->branches[b]));
    for (int c = 0; c < row->nchecks; c++) {
        usage check = {.row = row};
        KILN_TRY(use(&check, row->checks[c].cond));
        row->checks[c].counts = check.count && !row->checks[c].each;
    }
    return KILN_OK;
}

static bool has_optional_items(const kiln_row *row, int arg) {
    bool optional;
    const kiln_type *t = kiln_type_strip(row->schema->args[arg].type, &optional);
    return t->kind == KILN_T_LIST && t->elem->kind == KILN_T_OPTIONAL;
}

kiln_status kiln_row_resolve(kiln_row *row) {
    usage all = {.row = row}, shapes = {.row = row}, hosts = {.row = row, .hosting = true};
    KILN_TRY(find_counts(row));
    KILN_TRY(use_all(&hosts, &row->hosts));
    row->hosted = hosts.hosted;
    KILN_TRY(kiln_visit_clauses(row, use_shape, &shapes));
    for (int a = 0; a < row->schema->nargs; a++)
        if (kiln_row_is_tensor(row, a))
            shapes.set &= ~(1ull << a); /* layouts of tensors are compared anyway */
    row->shaped = named_args(row, true) | shapes.set | shapes.hosted;
    for (int a = 0; a < row->schema->nargs; a++) {
        uint64_t self = 1ull << a;
        bool counts = !(row->ignored & self);
        if (counts && kiln_row_optional(row, a)) row->optionals |= self;
        if (counts && has_optional_items(row, a)) row->optional_items |= self;
        if (row->schema->args[a].type->kind == KILN_T_SCALAR) row->scalars |= self;
        if (row->arg_takes[a]) row->own_takes |= self;
    }
    KILN_TRY(resolve_conditions(row));
    for (int b = 0; b < row->nbranches; b++) KILN_TRY(resolve_branch(&row->branches[b], &all));
    KILN_TRY(use_clauses(&all));
    all.set |= all.hosted;
    return check_used(row, &all);
}
