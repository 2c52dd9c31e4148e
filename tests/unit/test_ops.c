/* test_ops.c - rows to a registry: the rows that ship, derived forms, finding by name, rows of a user's,
 * the place and text of every refusal, all-or-nothing loading, and failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op/op.h"

static kiln_registry *shipped;
enum { NTEXTS = 16 };
static char *schemas, *texts[NTEXTS];
static kiln_schema_list list;
static kiln_arena list_arena;

static int load_shipped(void **state) {
    (void)state;
    static const char *const names[] = {
        "activation", "arithmetic", "batch_norm", "choice", "complex", "compose",       "distance", "fold",
        "functions",  "index",      "lists",      "logic",  "loss",    "normalization", "scan",     "select"};
    char path[256], label[NTEXTS][24];
    kiln_row_text rows[NTEXTS];
    size_t n;
    if (kiln_file_read(KILN_SOURCE_DIR "/ops/aten-schemas-2.13.txt", &schemas, &n) != KILN_OK ||
        kiln_schema_list_make(&list_arena, schemas, n, &list) != KILN_OK)
        return 1;
    for (int k = 0; k < NTEXTS; k++) {
        snprintf(path, sizeof path, "%s/ops/%s.ops", KILN_SOURCE_DIR, names[k]);
        snprintf(label[k], sizeof label[k], "%s.ops", names[k]);
        if (kiln_file_read(path, &texts[k], &rows[k].n) != KILN_OK) return 1;
        rows[k].text = texts[k];
        rows[k].source = label[k];
        rows[k].served = false;
    }
    if (kiln_registry_new(NULL, rows, NTEXTS, &list, false, &shipped) == KILN_OK) return 0;
    print_error("%s\n", kiln_last_error());
    return 1;
}

static int free_shipped(void **state) {
    (void)state;
    kiln_registry_free(shipped);
    for (int k = 0; k < NTEXTS; k++) kiln_free(texts[k]);
    kiln_arena_free(&list_arena);
    kiln_free(schemas);
    return 0;
}

static kiln_status load_n(const kiln_registry *base, const char *text, size_t n, kiln_registry **out) {
    kiln_row_text rows = {"r", text, n, false};
    return kiln_registry_new(base, &rows, 1, &list, false, out);
}

static kiln_registry *load(const char *text) {
    kiln_registry *r = NULL;
    if (load_n(shipped, text, strlen(text), &r) != KILN_OK) fail_msg("%s: %s", text, kiln_last_error());
    return r;
}

#define TO_FLOAT "; write ': takes float' behind the schema, or ': to_float' to convert integers"
#define TO_REAL "; write ': takes real' behind the schema, or ': takes float'"
#define REPLACE "; replace=True in Python, and kiln_ops_replace in C, replace it"
static void refuses_n(const char *text, size_t n, kiln_status want, const char *message) {
    kiln_registry *r = (kiln_registry *)1;
    kiln_clear_error();
    kiln_status st = load_n(shipped, text, n, &r);
    assert_string_equal(kiln_last_error(), message);
    assert_int_equal(st, want);
    assert_ptr_equal(r, (kiln_registry *)1);
}

static void refuses(kiln_status want, const char *text, const char *message) {
    refuses_n(text, strlen(text), want, message);
}

static void takes(const char *text) { kiln_registry_free(load(text)); }

static const kiln_op *find_in(const kiln_registry *r, const char *name) {
    const kiln_op *op = NULL;
    if (kiln_registry_find_row(r, name, &op) != KILN_OK) fail_msg("%s", kiln_last_error());
    return op;
}

/* -- the rows that ship -------------------------------------------------------------------------------- */

static void the_hard_operators_type(void **state) {
    (void)state;
    static const struct {
        const char *name, *family;
        int at_least; /* combinations of dtypes typed */
    } hard[] = {
        {"aten::silu", "map", 4},
        {"aten::add.Tensor", "map", 10},
        {"aten::div.Tensor_mode", "map", 10},
        {"aten::where.self", "map", 20},
        {"aten::clamp", "map", 9},
        {"aten::clamp.Tensor", "map", 9},
        {"aten::pow.Tensor_Tensor", "map", 9},
        {"aten::pow.Tensor_Scalar", "map", 9},
        {"aten::pow.Scalar", "map", 9},
        {"aten::gelu", "map", 8},
        {"aten::max.dim", "fold", 10},
        {"aten::argmax", "fold", 9},
        {"aten::logsumexp", "fold", 10},
        {"aten::var_mean.correction", "fold", 4},
        {"aten::aminmax", "fold", 10},
        {"aten::cumsum", "scan", 10},
        {"aten::gather", "index", 10},
        {"aten::index_put", "index", 10},
        {"aten::max_pool2d_with_indices", "index", 9},
        {"aten::upsample_bilinear2d", "index", 4},
        {"aten::native_layer_norm", "fold", 4},
        {"aten::_foreach_add_.List", "compose", 1},
    };
    for (size_t k = 0; k < sizeof hard / sizeof *hard; k++) {
        const kiln_op *op = find_in(shipped, hard[k].name);
        int ntyped = 0;
        kiln_budget steps = kiln_budget_for(strlen(op->row->text));
        assert_string_equal(op->name, hard[k].name);
        assert_string_equal(kiln_family_name(op->row->family), hard[k].family);
        assert_int_equal(kiln_row_check(shipped, op->row, &steps, &ntyped), KILN_OK);
        assert_true(ntyped >= hard[k].at_least);
    }
}

static void operators_are_sorted_and_whole(void **state) {
    (void)state;
    size_t n = kiln_registry_count(shipped);
    assert_true(n > 190);
    for (size_t k = 0; k < n; k++) {
        const kiln_op *op = NULL;
        assert_int_equal(kiln_registry_get(shipped, k, &op), KILN_OK);
        assert_string_equal(kiln_registry_name(shipped, k), op->name);
        if (k) assert_true(strcmp(kiln_registry_name(shipped, k - 1), op->name) < 0);
        assert_ptr_equal(find_in(shipped, op->name), op);
        assert_true(op->form == KILN_FORM_FUNCTIONAL || op->row->listed ? op->nout == 0
                                                                        : op->nout == op->row->schema->nrets);
        if (strncmp(op->name, "kiln::", 6) == 0) continue; /* a part of others */
        char line[1024];
        int len = snprintf(line, sizeof line, "%s\n", op->schema_text);
        assert_true(len < (int)sizeof line && strstr(schemas, line)); /* each is a line of PyTorch's list */
    }
}

static void rows_say_what_they_say(void **state) {
    (void)state;
    const kiln_row *silu = find_in(shipped, "silu")->row, *where = find_in(shipped, "where.self")->row;
    kiln_dtypes floats = KILN_DT(KILN_F16) | KILN_DT(KILN_BF16) | KILN_DT(KILN_F32) | KILN_DT(KILN_F64);
    assert_int_equal(silu->takes, floats | KILN_DT(KILN_C64) | KILN_DT(KILN_C128));
    assert_int_equal(where->typing.args, 6); /* the condition stays out of promotion */
    assert_int_equal(where->arg_takes[0], KILN_DT(KILN_BOOL) | KILN_DT(KILN_U8));
    assert_int_equal(find_in(shipped, "add.Tensor")->row->typing.args, 3); /* so does alpha */
    const kiln_row *maxdim = find_in(shipped, "max.dim")->row,
                   *div = find_in(shipped, "div.Tensor_mode")->row;
    assert_int_equal(maxdim->typing.ret[0], KILN_RET_COMMON);
    assert_int_equal(maxdim->typing.ret[1], KILN_I64);
    assert_int_equal(div->nbranches, 5);
    assert_int_equal(div->branches[0].typing.promo, KILN_PROMO_FLOAT);
    assert_int_equal(div->branches[1].typing.promo, KILN_PROMO_PROMOTE);
    assert_int_equal(div->branches[0].knows, 0);
    assert_int_equal(div->branches[1].knows, 4);
    const kiln_row *clamp = find_in(shipped, "clamp.Tensor")->row;
    assert_int_equal(clamp->branches[1].uses, 3);
    assert_int_equal(clamp->branches[2].uses, 5);
    assert_int_equal(find_in(shipped, "argmax")->row->checks[2].status, KILN_E_INDEX);
    assert_true(find_in(shipped, "log")->row->domain_lo == 0 &&
                find_in(shipped, "exp")->row->domain_lo == -10);
    assert_string_equal(find_in(shipped, "neg")->row->doc, "the negative of each element; integers wrap");
}

/* -- derived forms -------------------------------------------------------------------------------------- */

static void forms_follow_signatures(void **state) {
    (void)state;
    static const struct {
        const char *row, *derived;
        kiln_form form;
        int first_out; /* argument that receives the first result */
    } forms[] = {
        {"add.Tensor", "add_.Tensor", KILN_FORM_INPLACE, 0},
        {"add.Tensor", "add.out", KILN_FORM_OUT, 3},
        {"add.Scalar", "add.Scalar_out", KILN_FORM_OUT, 3},
        {"div.Tensor_mode", "div.out_mode", KILN_FORM_OUT, 3}, /* names the rule would not give */
        {"where.self", "where.self_out", KILN_FORM_OUT, 3},
        {"clamp", "clamp_", KILN_FORM_INPLACE, 0},
        {"clamp", "clamp.out", KILN_FORM_OUT, 3},
        {"clamp.Tensor", "clamp.Tensor_out", KILN_FORM_OUT, 3},
        {"pow.Tensor_Tensor", "pow_.Tensor", KILN_FORM_INPLACE, 0},
        {"pow.Tensor_Scalar", "pow_.Scalar", KILN_FORM_INPLACE, 0},
        {"pow.Scalar", "pow.Scalar_out", KILN_FORM_OUT, 2},
        {"max.dim", "max.dim_max", KILN_FORM_OUT, 3},
        {"logsumexp", "logsumexp.out", KILN_FORM_OUT, 3},
        {"max_pool2d_with_indices", "max_pool2d_with_indices.out", KILN_FORM_OUT, 6},
        {"index_put", "index_put_", KILN_FORM_INPLACE, 0},
        {"cumsum", "cumsum_", KILN_FORM_INPLACE, 0},
        {"gelu", "gelu.out", KILN_FORM_OUT, 2},
        {"silu", "silu_", KILN_FORM_INPLACE, 0},
        {"frexp.Tensor", "frexp.Tensor_out", KILN_FORM_OUT, 1},
    };
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const kiln_op *op = find_in(shipped, forms[k].derived);
        assert_ptr_equal(op->row, find_in(shipped, forms[k].row)->row);
        assert_int_equal(op->form, forms[k].form);
        assert_int_equal(kiln_op_out_arg(op, 0), forms[k].first_out);
    }
    const kiln_op *two = find_in(shipped, "max.dim_max");
    assert_int_equal(two->nout, 2);
    assert_int_equal(kiln_op_out_arg(two, 1), 4);
    assert_int_equal(kiln_op_arg(two, 2), 2);
    assert_int_equal(kiln_op_arg(two, 3), -1);
}

static void forms_of_another_operator_are_not_taken(void **state) {
    (void)state;
    const kiln_op *op;
    assert_int_equal(kiln_registry_find_row(shipped, "where_", &op), KILN_E_NOTFOUND);
    assert_string_equal(find_in(shipped, "max.out")->row->name, "aten::max.other");
    assert_ptr_equal(find_in(shipped, "add_.Scalar")->row, find_in(shipped, "add.Scalar")->row);
    kiln_registry *r = load("map my::relu(Tensor self) -> Tensor : takes real = max(self, 0)\n");
    assert_int_equal(kiln_registry_count(r), kiln_registry_count(shipped) + 1); /* none outside aten:: */
    kiln_registry_free(r);
}

/* -- finding ----------------------------------------------------------------------------------------------- */

static void finds(const char *name, const char *want) {
    assert_string_equal(find_in(shipped, name)->name, want);
}

static void finds_none(const char *name, const char *message) {
    const kiln_op *op = (const kiln_op *)1;
    kiln_clear_error();
    assert_int_equal(kiln_registry_find_row(shipped, name, &op), KILN_E_NOTFOUND);
    assert_string_equal(kiln_last_error(), message);
    assert_ptr_equal(op, (const kiln_op *)1);
}

/* More rows may bring more that is near, after the nearest. */
static void suggests(const char *name, const char *start) {
    const kiln_op *op;
    assert_int_equal(kiln_registry_find_row(shipped, name, &op), KILN_E_NOTFOUND);
    assert_memory_equal(kiln_last_error(), start, strlen(start));
}

static void serves_none(const char *name, const char *want) {
    const kiln_op *op = (const kiln_op *)1;
    char message[200];
    snprintf(message, sizeof message, "%s is a PyTorch operator that Kiln does not serve", want);
    assert_int_equal(kiln_registry_find(shipped, name, &op), KILN_E_UNSUP);
    assert_string_equal(kiln_last_error(), message);
    assert_ptr_equal(op, (const kiln_op *)1);
}

/* What PyTorch has and Kiln does not serve is no misspelling of something else. */
static void what_is_not_served_is_said(void **state) {
    (void)state;
    serves_none("multinomial", "aten::multinomial");
    serves_none("aten::multinomial.out", "aten::multinomial.out");
    serves_none("multinomial.default", "aten::multinomial.default");
    serves_none("unbind", "aten::unbind"); /* has unbind.int only */
    serves_none("linalg_svd", "aten::linalg_svd");
    serves_none("prims::sin", "prims::sin");
    serves_none("add.default", "aten::add.default"); /* of two numbers */
    serves_none("gather.out", "aten::gather.out");   /* rows that are only checked */
    serves_none("gather", "aten::gather");
    serves_none("_foreach_mm", "aten::_foreach_mm");
    const kiln_op *op;
    assert_int_equal(kiln_registry_find(shipped, "summ", &op), KILN_E_NOTFOUND);
    assert_int_equal(kiln_registry_find(shipped, "prod.nonsense", &op), KILN_E_NOTFOUND);
    assert_int_equal(kiln_registry_find(shipped, "aten::su", &op), KILN_E_NOTFOUND);
}

/* A user's rows are served or refused; those that ship may only be checked. */
static void families_that_are_not_served(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"index my::f(Tensor self, Tensor index) -> Tensor : promote(self) takes index: i64 = self[0: index]\n    out like index",
         "r:1:7: my::f: rows of the family 'index' are not served yet"},
        {"map my::g(Tensor self) -> Tensor = self\nindex my::f(Tensor self) -> Tensor = self[x]\n    out like self",
         "r:2:7: my::f: rows of the family 'index' are not served yet"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        kiln_row_text text = {"r", rows[k].text, strlen(rows[k].text), true};
        kiln_registry *r = (kiln_registry *)1;
        assert_int_equal(kiln_registry_new(shipped, &text, 1, &list, false, &r), KILN_E_UNSUP);
        assert_string_equal(kiln_last_error(), rows[k].message);
        assert_ptr_equal(r, (kiln_registry *)1);
    }
}

static void names_find_operators(void **state) {
    (void)state;
    finds("aten::add.Tensor", "aten::add.Tensor");
    finds("add.Tensor", "aten::add.Tensor");
    finds("aten::silu", "aten::silu");
    finds("clamp", "aten::clamp");        /* the default overload, though there are others */
    finds("frexp", "aten::frexp.Tensor"); /* the only overload */
    finds("aten::frexp", "aten::frexp.Tensor");
    finds("aten::relu.default", "aten::relu");
    finds("relu.default", "aten::relu");
    finds_none("add", "'add' has several overloads, name one: aten::add.Scalar, aten::add.Tensor");
    suggests("lerp.default", "no operator 'lerp.default'; did you mean aten::lerp"); /* each has a name */
    suggests("sillu", "no operator 'sillu'; did you mean aten::silu?");
    suggests("aten::add.Tensr", "no operator 'aten::add.Tensr'; did you mean aten::add.Tensor");
    finds_none("nothinglikeit", "no operator 'nothinglikeit'");
    finds_none("mine::silu", "no operator 'mine::silu'");
    finds_none("", "no operator ''");
    char name[400];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    finds_none(name, "no operator 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...': the name is too long");
}

/* -- rows of a user's ------------------------------------------------------------------------------------- */

#define TWICE "map my::twice(Tensor self) -> Tensor : takes real = self + self\n"

static void one_line_is_one_operator(void **state) {
    (void)state;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_INTERP};
    kiln_ctx *ctx;
    const kiln_op *op;
    kiln_tensor *in, *out;
    int64_t sizes[] = {3};
    float values[] = {1, -2.5f, 4};
    assert_int_equal(kiln_open(&config, &ctx), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_E_NOTFOUND);
    size_t before = kiln_op_count(ctx);
    assert_int_equal(kiln_ops_load(ctx, TWICE, strlen(TWICE)), KILN_OK);
    assert_int_equal(kiln_op_count(ctx), before + 1);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_OK);
    assert_string_equal(kiln_op_schema(op), "my::twice(Tensor self) -> Tensor");
    assert_string_equal(kiln_op_row(op), TWICE);
    assert_int_equal(kiln_tensor_wrap(values, KILN_F32, 1, sizes, NULL, NULL, NULL, &in), KILN_OK);
    kiln_value arg = kiln_v_tensor(in);
    assert_int_equal(kiln_call(ctx, op, &arg, 1, &out, 1), KILN_OK);
    const float *got = kiln_tensor_data(out);
    assert_true(got[0] == 2 && got[1] == -5 && got[2] == 8);
    kiln_tensor_release(out);
    kiln_tensor_release(in);
    kiln_close(ctx);
}

static void loading_is_all_or_nothing(void **state) {
    (void)state;
    static const char text[] = TWICE "map my::wrong(Tensor self) -> Tensor = self + nosuch\n";
    kiln_ctx *ctx;
    const kiln_op *op;
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    size_t before = kiln_op_count(ctx);
    assert_int_equal(kiln_ops_load(ctx, text, sizeof text - 1), KILN_E_PARSE);
    assert_non_null(strstr(kiln_last_error(), "my::wrong: rows:2:47: unknown name 'nosuch'\n  map my::w"));
    assert_int_equal(kiln_op_count(ctx), before);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_E_NOTFOUND);
    assert_int_equal(kiln_ops_load(ctx, TWICE, strlen(TWICE)), KILN_OK);
    assert_int_equal(kiln_ops_load(ctx, TWICE TWICE, 2 * strlen(TWICE)), KILN_OK); /* it is there already */
    assert_int_equal(kiln_ops_load(ctx, "", 0), KILN_OK);
    assert_int_equal(kiln_op_count(ctx), before + 1);
    kiln_close(ctx);
}

static void layout_of_text_does_not_matter(void **state) {
    (void)state;
    kiln_registry *a = load("map my::f(Tensor self) -> Tensor : takes float = self * 2 # twice\n");
    kiln_registry *b = load(
        "\n# mine\r\nmap my::f(Tensor self) -> Tensor :\r\n\ttakes float\n      =   self\n  * 2");
    kiln_registry *c = load("map my::f(Tensor self) -> Tensor : takes float = self * 3\n");
    kiln_digest da = find_in(a, "my::f")->row->digest, dc = find_in(c, "my::f")->row->digest;
    assert_memory_equal(&da, &find_in(b, "my::f")->row->digest, sizeof da);
    assert_memory_not_equal(&da, &dc, sizeof da);
    kiln_registry_free(c);
    kiln_registry_free(b);
    kiln_registry_free(a);
}

static void quoted_text_is_part_of_the_digest(void **state) {
    (void)state;
#define ROW(doc) "map my::f(Tensor self) -> Tensor = self\n    doc \"a \\\" # " doc "\"\n"
    kiln_registry *a = load(ROW("one")), *b = load(ROW("two"));
    kiln_digest da = find_in(a, "my::f")->row->digest;
    assert_memory_not_equal(&da, &find_in(b, "my::f")->row->digest, sizeof da);
    kiln_registry_free(b);
    kiln_registry_free(a);
#undef ROW
}

static void text_needs_no_nul_at_its_end(void **state) {
    (void)state;
    static const char *const cases[] = {"  ", "#", "\t\r", TWICE "   "};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        size_t n = strlen(cases[k]);
        char *exact = malloc(n);
        memcpy(exact, cases[k], n);
        kiln_registry *r = NULL;
        assert_int_equal(load_n(shipped, exact, n, &r), KILN_OK);
        kiln_registry_free(r);
        free(exact);
    }
}

/* -- refusals: heads ----------------------------------------------------------------------------------------- */

#define F "map my::f(Tensor self) -> Tensor "
#define G "map my::f(Tensor self, Tensor other) -> Tensor "

static void bad_heads(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, "\n\n  map my::f(Tensor self) -> Tensor = self",
            "r:3:1: an indented line before any row");
    refuses(KILN_E_PARSE, "map my::f(Tensor self -> Tensor = self",
            "r:1:23: expected '=', ',' or ')', found '-'");
    refuses(KILN_E_PARSE, "map", "r:1:4: expected an operator name, found the end of the text");
    refuses(KILN_E_UNSUP, "map my::f(...) -> Tensor = 1", "r:1:5: a row cannot take or return '...'");
    refuses(
        KILN_E_PARSE, F "takes float = self",
        "r:1:40: expected ':' and what the row takes, or '=' and a body, behind the schema, found 'float'");
    refuses(
        KILN_E_PARSE, F ": tkes float = self",
        "r:1:36: expected takes, promote, to, to_float, to_double, sum_dtype, out, strides, item, '->' or '=', found 'tkes'");
    refuses(KILN_E_PARSE, F ": out sideways = self",
            "r:1:40: expected converts, exact, copied or decides, found 'sideways'");
    refuses(KILN_E_PARSE, F ": promote(number) = self",
            "r:1:50: expected the name of an argument, found ')'");
    refuses(KILN_E_TYPE, F ": takes real\n    check rank(common) == 0 : \"no\"\n    when true = self",
            "my::f, typed for u8: r:2:11: rank takes a tensor");
    refuses(KILN_E_TYPE, F ": takes real\n    check fits(self) : \"no\"\n    when true = self",
            "my::f, typed for u8: r:2:11: fits takes a number");
    refuses(KILN_E_PARSE, F ": takes int = self + largest", "my::f: r:1:55: unknown name 'largest'");
    refuses(KILN_E_PARSE, F ": takes int = self + twice\n    host twice = 2 * slef",
            "r:2:22: 'slef' is not an argument or a host number defined before");
    refuses(KILN_E_PARSE, F ": takes flaot = self",
            "r:1:42: expected a dtype or one of bool int unsigned float real complex all, found 'flaot'");
    refuses(KILN_E_TYPE, F ": takes complex = max(self, self)",
            "my::f, typed for c64: r:1:52: 'max' does not take c64");
    refuses(KILN_E_PARSE, "complex f(a, a) = a",
            "r:1:15: expected another name: this one is taken, found ')'");
    refuses(KILN_E_PARSE, "complex f(a) = a\n  lt b = a", "r:2:3: expected 'let', found 'lt'");
    refuses(KILN_E_ARG, "complex f(a) = a\ncomplex f(b) = b",
            "r:2:9: the rule for f is defined already, at r:1:9");
    refuses(KILN_E_TYPE, "complex loop(a) = loop(a)\n" F ": takes complex = loop(self)",
            "my::f, typed for c64: r:1:19: the rule for 'loop' needs itself");
    refuses(KILN_E_PARSE, F ": promote(slf) = self", "r:1:44: expected the name of an argument, found 'slf'");
    refuses(KILN_E_PARSE, F ": -> f33 = self",
            "r:1:39: expected a dtype, 'same', 'real' or an argument, found 'f33'");
    refuses(KILN_E_PARSE, F "= self self",
            "r:1:41: expected a clause on a line of its own, or the end of the row, found 'self'");
    refuses(KILN_E_PARSE, F "= self +", "r:1:42: expected an expression, found the end of the row");
}

static void schemas_are_pytorchs(void **state) {
    (void)state;
    refuses(
        KILN_E_PARSE, "map erfinv(Tensor x) -> Tensor : to_float = x",
        "r:1:5: the schema of aten::erfinv is not PyTorch's, which is: aten::erfinv(Tensor self) -> Tensor");
    refuses(KILN_E_NOTFOUND, "map\tnosuch(Tensor self) -> Tensor = self",
            "r:1:5: PyTorch has no operator aten::nosuch; use a namespace of your own");
    static const char right[] = "map erfinv(Tensor self) -> Tensor : to_float = erfinv(self)";
    kiln_registry *r = NULL;
    assert_int_equal(load_n(NULL, right, sizeof right - 1, &r), KILN_OK);
    assert_int_equal(kiln_registry_count(r), 3); /* with erfinv_ and erfinv.out */
    kiln_registry_free(r);
}

static void names_are_defined_once(void **state) {
    (void)state;
    refuses(KILN_E_ARG, TWICE "\n" TWICE, "r:3:5: my::twice is defined already, at r:1:5" REPLACE);
    kiln_registry *r = NULL;
    static const char again[] = "map silu(Tensor self) -> Tensor : takes float = self";
    assert_int_equal(load_n(shipped, again, sizeof again - 1, &r), KILN_E_ARG);
    assert_non_null(strstr(kiln_last_error(), "r:1:5: aten::silu is defined already, at activation.ops:"));
}

static void schemas_are_functional(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, "map my::f_(Tensor(a!) self) -> Tensor(a!) = self + 1",
            "r:1:5: argument 'self' is written to or viewed; a map row states the functional form");
    refuses(KILN_E_PARSE, "map my::f(Tensor self) -> int = self", "r:1:5: result 0 is not a new tensor");
    refuses(KILN_E_PARSE, "map my::f(Tensor self) -> Tensor[] = self", "r:1:5: result 0 is not a new tensor");
    refuses(KILN_E_PARSE, "map my::f(Tensor self) -> ()\n    ignore self", "r:1:5: a map row needs a result");
}

static void bodies_match_results(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, "map my::f(Tensor self) -> (Tensor, Tensor) = self",
            "r:1:46: 2 results but 1 bodies");
    refuses(KILN_E_PARSE, F "= self, self",
            "r:1:42: expected as many bodies as the schema has results, found 'self'");
    refuses(KILN_E_PARSE, "map my::f(Tensor self) -> (Tensor, Tensor) : -> i64 = self, self",
            "r:1:49: expected '(' and a dtype for each result, found 'i64'");
    refuses(KILN_E_PARSE, "map my::f(Tensor self) -> (Tensor, Tensor) : -> (i64) = self, self",
            "r:1:53: expected a dtype for each result, found ')'");
    refuses(KILN_E_PARSE, F "\n    ignore self", "r:1:5: no body computes the result");
    refuses(KILN_E_PARSE, F "= max(acc, self) from lowest", "r:1:36: a map row has no accumulator");
}

/* -- refusals: names and types ------------------------------------------------------------------------------ */

static void bad_names(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, F "= self + othr", "my::f: r:1:43: unknown name 'othr'");
    refuses(KILN_E_PARSE, F ": takes float = frob(self)", "my::f: r:1:50: unknown function 'frob'");
    refuses(KILN_E_PARSE, F ": takes float = exp(self, 1)", "r:1:50: 'exp' takes 1 argument, found 2");
    refuses(KILN_E_PARSE, G "= self",
            "r:1:5: my::f: argument 'other' is not used; if it is not misspelt, write 'ignore other'");
    refuses(KILN_E_PARSE, G "= self + other\n  ignore other",
            "r:1:5: my::f: argument 'other' is ignored but used");
    refuses(KILN_E_PARSE, F "= self\n    let a = nosuch", "r:2:9: 'a' is not used");
    refuses(KILN_E_PARSE, F "= a\n    let a = self, a = self", "r:2:19: 'a' has a meaning already");
    refuses(KILN_E_PARSE, F "= self\n    let self = 1", "r:2:9: 'self' is the name of an argument");
    refuses(KILN_E_TYPE, F "= a\n    let a = b, b = a | self",
            "my::f, typed for bool: r:2:20: 'a' is defined by itself");
    takes(G "= self\n    ignore other\n");
}

static void types_wrong_for_one_dtype(void **state) {
    (void)state;
    refuses(KILN_E_TYPE, F "= self - 1", "my::f, typed for bool: r:1:36: 'sub' does not take bool" TO_REAL);
    takes(F ": takes real = self - 1");
    refuses(KILN_E_TYPE, F ": takes real = max(self, -1)",
            "my::f, typed for u8: r:1:59: the number -1 does not fit the type u8" TO_FLOAT);
    refuses(KILN_E_TYPE, F ": takes real = exp(self)",
            "my::f, typed for u8: r:1:49: 'exp' does not take u8" TO_FLOAT);
    refuses(KILN_E_TYPE, F ": takes float -> i64 = self",
            "my::f, typed for f16: r:1:57: the expression is f32 but the result is i64");
    refuses(KILN_E_TYPE, F "= self < 1",
            "my::f, typed for u8: r:1:36: the expression is bool but the result is u8; "
            "write '-> bool' before '=', or 'condition ? 1 : 0'");
    refuses(KILN_E_TYPE, F "= size(self, 0)",
            "my::f, typed for bool: r:1:36: the expression is i64 but the result is bool");
    refuses(KILN_E_TYPE, F ": -> i64 = size(self, 0)",
            "my::f, typed for bool: r:1:45: a map sees one element of each argument and no other place");
    refuses(KILN_E_TYPE, "map my::f(Tensor self, Tensor? w) -> Tensor : takes int = self * or_else(w, 0.5)",
            "my::f, typed for u8: r:1:59: a floating number meets the type u8; does the row need to_float?");
}

static void every_tensor_has_its_dtypes(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, G ": promote(self) = self + other",
            "r:1:5: tensor 'other' is outside promotion: write 'takes other: ...'");
    refuses(KILN_E_PARSE, G ": promote(self, other) takes other: int = self + other",
            "r:1:5: 'other' is promoted, so its dtypes are the row's: write 'takes'");
    refuses(KILN_E_PARSE, "map my::f(Tensor self, Scalar k) -> Tensor : -> k = self",
            "r:1:5: result 0 follows 'k', no tensor");
    takes(G ": takes real -> other = self + other");
    refuses(
        KILN_E_PARSE, F ": strides up = self",
        "r:1:44: expected rows, like, format, without, channels_last, channels_last_3d or '(', found 'up'");
    refuses(KILN_E_PARSE, F ": strides like other = self",
            "r:1:49: expected the name of a tensor that is always given, found 'other'");
    refuses(KILN_E_PARSE, "map my::f(Tensor self, int k) -> Tensor : item k = self",
            "r:1:48: expected the name of a tensor, at the head of the row, found 'k'");
    takes(G ": item other takes real = self + compute(other)");
    refuses(KILN_E_PARSE, F ": strides without = self", "r:1:52: expected 'numbers', found '='");
    takes(
        F
        "\n    when is_bool(common) strides rows = self\n    when is_int(common) strides (rows self) = self\n"
        "    when true strides like self = self");
    takes(
        G
        ": promote(self) takes real takes other: real\n    when is_int(common) promote(self, other) = self\n"
        "    when true = self + compute(other)");
    refuses(KILN_E_PARSE, "map my::f(Tensor self, int k) -> Tensor : promote(self, k) = self + k",
            "r:1:5: 'k' is no tensor or Scalar to promote");
    refuses(KILN_E_PARSE, "map my::f(Tensor self, int k) -> Tensor : takes real takes k: int = self + k",
            "r:1:5: 'takes k:' but 'k' is no tensor");
    takes(G ": promote(self) takes real takes other: int -> other = self > 0 ? other : 0");
}

static void strides_of_several_iterators(void **state) {
    (void)state;
    takes(G ": strides (((i64 self, number)), (part other, (rows self, number))) = self + other");
    refuses(KILN_E_PARSE, F ": strides () = self",
            "r:1:45: expected the name of a tensor that is always given, found ')'");
    refuses(KILN_E_PARSE, "map my::f(Tensor self, Tensor? w) -> Tensor : strides (self, w) = self",
            "r:1:62: expected the name of a tensor that is always given, found 'w'");
    refuses(KILN_E_PARSE, F ": strides (self, number, self, (self, number)) = self",
            "r:1:78: expected at most 16 names and brackets, 4 layouts at a time, found ')'");
    refuses(KILN_E_PARSE, F ": strides ((((((((((((((((((self)))))))))))))))))) = self",
            "r:1:61: expected at most 16 brackets, found '('");
}

/* -- refusals: clauses ------------------------------------------------------------------------------------- */

#define M "map my::f(Tensor self, str mode, Scalar? s=None) -> Tensor : takes real\n"

static void bad_clauses(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, F "= self\n    whn self = self",
            "r:2:5: expected a clause word such as when, check, let, state or doc, found 'whn'");
    refuses(KILN_E_PARSE, F "= self\n  over self", "r:2:3: a map row has no 'over' clause");
    refuses(KILN_E_PARSE, F "= self\n    doc \"a\"\n    doc \"b\"", "r:3:5: a second 'doc' clause");
    refuses(KILN_E_PARSE, F "= self\n    doc a", "r:2:9: expected text in quotes, found 'a'");
    refuses(KILN_E_PARSE, F "= self\n    check true \"a\"", "r:2:16: expected ':', found '\"a\"'");
    refuses(KILN_E_PARSE, F "= self\n    check true index type : \"a\"",
            "r:2:22: expected ':', found 'type'");
    refuses(KILN_E_PARSE, F "= self\n    domain 2 1", "r:2:14: expected a number above the first, found '1'");
    refuses(KILN_E_PARSE, F "= self\n    tol 1e-3 0",
            "r:2:15: expected the reason for the tolerance in quotes, found the end of the row");
    refuses(KILN_E_PARSE, F "= self\n    ignore it", "r:2:12: expected the name of an argument, found 'it'");
    refuses(KILN_E_PARSE, M "    when mode == \"a\" takes int = self",
            "r:2:22: expected takes only at the head of the row, found 'takes'");
    refuses(KILN_E_PARSE, F "= self\n    when true = self",
            "r:2:10: expected no 'when' after a body that always holds, found 'true'");
}

static void conditions_are_checked_before_any_call(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, F "= self\n    check is_int(comon) : \"a\"", "my::f: r:2:18: unknown name 'comon'");
    refuses(KILN_E_PARSE, F "= self\n    check false or comon : \"a\"",
            "my::f: r:2:20: unknown name 'comon'");
    refuses(KILN_E_PARSE, M "    when s > comon = self\n    ignore mode",
            "my::f: r:2:14: unknown name 'comon'");
    refuses(KILN_E_PARSE, M "    when prsent(s) = self\n    ignore mode",
            "my::f: r:2:10: unknown function 'prsent'");
    refuses(KILN_E_TYPE, M "    when exp(s) > 0 and mode == \"a\" = self",
            "my::f, typed for u8: r:2:10: 'exp' cannot be computed before the call");
    refuses(KILN_E_TYPE, F "= self\n    check self > 0 : \"a\"",
            "my::f, typed for bool: r:2:11: cannot order these values");
}

/* unknown operands stay unknown: what a tensor's values are, no condition can ask */
static void branches_are_all_reached(void **state) {
    (void)state;
    refuses(KILN_E_TYPE, F "\n    when is_float(common) = self",
            "my::f, typed for bool: r:1:5: no branch covers bool; say what the row takes" TO_FLOAT);
    refuses(KILN_E_TYPE, F ": takes real\n    when true = self\n    when is_int(common) = self",
            "my::f: r:3:10: this branch is never taken, whatever the dtypes");
    refuses(KILN_E_TYPE,
            F ": takes real\n    when is_bool(common) = self\n    when not is_bool(common) = self",
            "my::f: r:2:10: this branch is never taken, whatever the dtypes");
    refuses(KILN_E_TYPE, F ": to_float\n    when is_int(common) = self\n    when is_float(common) = self",
            "my::f: r:2:10: this branch is never taken, whatever the dtypes");
    refuses(
        KILN_E_TYPE, M "    when mode == \"a\" = self * s\n    when mode != \"a\" = self",
        "my::f, typed for u8: r:2:31: optional argument 's' is used where it may be absent; use or_else or a when");
    takes(M "    when mode == \"a\" and present(s) = self * s\n    when true = self");
}

#define FOLD "fold my::f(Tensor self, int dim) -> Tensor : takes float\n    over dim\n"

static void bad_folds(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, FOLD "    state a = 0\n    step a = a + self\n    finish a",
            "my::f: r:1:6: a fold needs a merge");
    refuses(KILN_E_PARSE,
            FOLD "    state a = 0\n    step b = a + self\n    merge a = a + rhs.a\n    finish a",
            "my::f: r:4:10: 'b' in step is not a state");
    refuses(KILN_E_PARSE, FOLD "    state a = 0, b = 0\n    step a = a + self\n    merge a = a\n    finish a",
            "my::f: r:4:10: step gives 1 of 2 states");
    refuses(KILN_E_PARSE, FOLD "    state a = 0\n    step a = self + rhs.a\n    merge a = a\n    finish a",
            "my::f: r:4:21: unknown name 'rhs.a'");
    refuses(KILN_E_TYPE, FOLD "    state a = 0\n    step a = a + self\n    merge a = a + self\n    finish a",
            "my::f, typed for f16: r:5:19: a merge cannot see this");
    refuses(KILN_E_TYPE,
            FOLD "    state a = self\n    step a = a + self\n    merge a = a + rhs.a\n    finish a",
            "my::f, typed for f16: r:3:15: a state cannot see this");
    refuses(KILN_E_TYPE,
            FOLD "    state a = 0\n    step a = a + self\n    merge a = a + rhs.a\n    finish a * self",
            "my::f, typed for f16: r:6:16: a finish sees elements only with 'each'");
    refuses(KILN_E_PARSE, FOLD "    state a = 0\n    step a = a + self\n    merge a = a + rhs.a",
            "my::f: r:1:6: result 0 has no finish");
}

static void bad_shorthands_and_parts(void **state) {
    (void)state;
    refuses(KILN_E_PARSE,
            "fold my::f(Tensor self, int dim) -> Tensor : takes float = acc - self from 0\n    over dim",
            "r:1:60: two accumulators do not merge by 'sub'; write a fold in full");
    refuses(KILN_E_PARSE,
            "fold my::f(Tensor self, int dim) -> Tensor : takes float = self + acc from 0\n    over dim",
            "r:1:60: expected prim(acc, value) before 'from'");
    refuses(KILN_E_PARSE,
            "fold my::f(Tensor self, float dim) -> Tensor : takes float = acc + self from 0\n    over dim",
            "r:1:6: 'dim' is not a dimension or a list of them: see 'over'");
    refuses(KILN_E_PARSE,
            "index my::f(Tensor self, Tensor i) -> Tensor : promote(self) takes i: i64 = self[0: i]",
            "r:1:7: an index row needs one 'out' or 'into'");
    refuses(KILN_E_PARSE, "index my::f(Tensor self) -> Tensor = self[b]\n    host a = b\n    out [x: a]",
            "r:2:14: 'b' is not an argument or a host number defined before");
    refuses(KILN_E_PARSE, "index my::f(Tensor self) -> Tensor = self[x]\n    host a: f16 = 1\n    out [x: a]",
            "r:2:13: expected a dtype that numbers are computed in, found 'f16'");
}

static void bad_compositions(void **state) {
    (void)state;
#define C "compose my::f(Tensor[] a, Scalar s) -> Tensor[]\n    call for a : "
    refuses(KILN_E_NOTFOUND, C "nosuchthing(a, s)", "r:2:18: no operator 'nosuchthing'");
    refuses(KILN_E_TYPE, C "mul.Scalar(a, s, s)", "r:2:35: aten::mul.Scalar has no such argument");
    refuses(KILN_E_TYPE, C "mul.Scalar(s, a)",
            "r:2:29: 's' does not have the type that aten::mul.Scalar takes for 'self'");
    refuses(KILN_E_TYPE, C "mul.Scalar(a, other=s, other=s)", "r:2:47: aten::mul.Scalar gets 'other' twice");
    refuses(KILN_E_TYPE, C "mul.Scalar(a)\n    ignore s",
            "r:2:18: aten::mul.Scalar is called without 'other'");
    refuses(KILN_E_PARSE, "compose my::f(Tensor self) -> Tensor = self",
            "r:1:9: a compose row has a call clause and no body");
    refuses(KILN_E_PARSE, "compose my::f(Tensor self) -> Tensor\n    ignore self",
            "r:1:9: a compose row needs a call clause");
    takes(C "mul.Scalar(a, s)");
#undef C
}

/* -- what a call could not bear ---------------------------------------------------------------------------- */

static void defaults_are_of_their_type(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"int k", "\"a\""},       {"int k", "1.5"},          {"int k", "True"},
        {"int k", "Sum"},         {"int k", "None"},         {"bool k", "2"},
        {"float k", "long"},      {"Scalar k", "None"},      {"Scalar k", "abc"},
        {"str k", "2"},           {"str k", "abc"},          {"ScalarType k", "7"},
        {"ScalarType k", "half"}, {"int[] k", "[1, \"a\"]"}, {"int[] k", "1.5"},
        {"int[] k", "[[1]]"},     {"int[2] k", "None"},      {"Tensor k", "1"},
        {"Tensor k", "None"},     {"Tensor? k", "1"},        {"MemoryFormat k", "1"},
        {"Tensor[] k", "[1]"},
    };
    static const char *const right[][2] = {
        {"int k", "-1"},           {"int k", "Mean"},      {"int? k", "None"},       {"bool k", "True"},
        {"float k", "2"},          {"float? k", "1."},     {"Scalar k", "True"},     {"str k", "'none'"},
        {"ScalarType k", "long"},  {"ScalarType? k", "4"}, {"int[2] k", "1"},        {"int[] k", "[]"},
        {"float[] k", "[1, 2.5]"}, {"Tensor? k", "None"},  {"MemoryFormat? k", "0"}, {"int[1]? k", "None"},
    };
    char text[200], message[200];
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        snprintf(text, sizeof text, "map my::f(Tensor self, %s=%s) -> Tensor = self\n    ignore k",
                 wrong[k][0], wrong[k][1]);
        snprintf(message, sizeof message, "r:1:5: the default of 'k' is not of its type: %s", wrong[k][1]);
        refuses(KILN_E_PARSE, text, message);
    }
    for (size_t k = 0; k < sizeof right / sizeof *right; k++) {
        snprintf(text, sizeof text, "map my::f(Tensor self, %s=%s) -> Tensor = self\n    ignore k",
                 right[k][0], right[k][1]);
        takes(text);
    }
    /* What binding takes for granted when the tensor is used as the number in it. */
    refuses(KILN_E_PARSE,
            "map my::f(Tensor self, Tensor v=1) -> Tensor : takes float promote(self) item v = self + v",
            "r:1:5: the default of 'v' is not of its type: 1");
    refuses(KILN_E_LIMIT, "map my::f(Tensor self, int[60] k=1, int[5] l=2) -> Tensor = self\n    ignore k, l",
            "r:1:5: my::f has 65 items in defaults: at most 64");
}

/* What a call has no room for is refused before there is a call, with the limit. */
static void calls_have_room_for_rows(void **state) {
    (void)state;
    for (int n = 23; n < 25; n++) {
        kiln_sb sb;
        kiln_sb_init(&sb);
        kiln_sb_puts(&sb, "map my::f(Tensor t0");
        for (int k = 1; k < n; k++) kiln_sb_printf(&sb, ", Tensor t%d", k);
        kiln_sb_puts(&sb, ") -> Tensor : takes float = t0");
        for (int k = 1; k < n; k++) kiln_sb_printf(&sb, " + t%d", k);
        if (n == 23)
            takes(sb.p);
        else
            refuses(KILN_E_LIMIT, sb.p, "r:1:5: my::f has 25 tensors, results among them: at most 24");
        kiln_sb_fini(&sb);
    }
    for (int n = 64; n < 66; n++) {
        kiln_sb sb;
        kiln_sb_init(&sb);
        kiln_sb_puts(&sb, "map my::f(Tensor self, int[] k) -> Tensor : takes f32 = self");
        for (int k = 0; k < n; k++) kiln_sb_printf(&sb, " + k[%d]", k);
        if (n == 64)
            takes(sb.p);
        else
            refuses(
                KILN_E_LIMIT, sb.p,
                "my::f, typed for f32: r:1:566: the bodies read more than 64 numbers; a complex one counts "
                "twice, and one that is used in two types too");
        kiln_sb_fini(&sb);
    }
}

static void tensors_are_not_static(void **state) {
    (void)state;
    static const char *const types[] = {"Tensor", "Tensor?", "Tensor[]", "Tensor?[]"};
    char text[200];
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        snprintf(text, sizeof text,
                 "map my::f(Tensor self, %s t) -> Tensor : promote(self)%s = self\n    static t", types[k],
                 k < 2 ? " takes t: all" : "");
        refuses(
            KILN_E_PARSE, text,
            "r:1:5: 't' is a tensor or generator: only numbers, texts, dtypes and lists of them can be static");
    }
    takes("map my::f(Tensor self, Tensor v) -> Tensor : promote(self) item v = self\n    static v");
    takes(
        "map my::f(Tensor self, Scalar? a, int[] b, str c, ScalarType? d) -> Tensor = self\n    static a, b, c, d");
}

/* -- hostile text -------------------------------------------------------------------------------------------- */

static void hostile_text(void **state) {
    (void)state;
    static const char nul[] = TWICE "map my::g(Tensor\0 self) -> Tensor = self";
    refuses_n(nul, sizeof nul - 1, KILN_E_PARSE, "r:2:17: a NUL byte in the rows");
    size_t n = 1 << 20;
    char *big = malloc(n);
    kiln_registry *r = NULL;
    for (size_t k = 0, x = 1; k < n; k++) big[k] = (char)(1 + (x = x * 1103515245 + 12345) / 65536 % 255);
    assert_int_equal(load_n(shipped, big, n, &r), KILN_E_PARSE);
    for (int kind = 0; kind < 3; kind++) { /* nested twice, and a name without end */
        memset(big, "(-a"[kind], n);
        memcpy(big, F "= ", sizeof F "= " - 1);
        kiln_status st = load_n(shipped, big, n, &r);
        assert_int_equal(st, kind == 2 ? KILN_E_PARSE : KILN_E_LIMIT);
    }
    for (size_t k = 0, at = sizeof F "= " - 1; at + k < n; k++) big[at + k] = "1+"[k % 2];
    assert_int_equal(load_n(shipped, big, n, &r), KILN_E_LIMIT);
    free(big);
}

/* Names whose expansion doubles, or comes back to itself, end in a status at once. */
static void names_that_explode(void **state) {
    (void)state;
    kiln_registry *r = NULL;
    kiln_sb sb;
    for (int host = 0; host < 2; host++) {
        kiln_sb_init(&sb);
        kiln_sb_puts(
            &sb, host ? "index my::f(Tensor self) -> Tensor = self[l15]\n    out [x: l15]\n    host l0 = 1"
                      : F ": takes float = l15\n    let l0 = self");
        for (int k = 1; k < 16; k++) {
            kiln_sb_printf(&sb, ", l%d = 1", k);
            for (int j = 0; j < 12; j++) kiln_sb_printf(&sb, " + l%d", k - 1);
        }
        assert_int_equal(load_n(shipped, sb.p, sb.len, &r), KILN_E_LIMIT);
        kiln_sb_fini(&sb);
    }
    const char *knot = F ": takes float = a\n    let a = b + b + self, b = a + a\n";
    assert_int_equal(load_n(shipped, knot, strlen(knot), &r), KILN_E_TYPE);
}

static void take_rules(kiln_sb *sb, int rules, int calls) {
    kiln_sb_init(sb);
    for (int k = 0; k < rules; k++) {
        kiln_sb_printf(sb, "complex f%d(a) = ", k);
        for (int j = 0; j < calls; j++)
            kiln_sb_printf(sb, k ? "%sf%d(a)" : "%sconj(a)", j ? " + " : "", k - 1);
        kiln_sb_puts(sb, "\n");
    }
    kiln_sb_printf(sb, F ": takes c64 = 1 + f%d(self)", rules - 1);
}

/* Rules are expanded too, so what they come to has the limits of names.  A long chain is no knot. */
static void rules_that_explode(void **state) {
    (void)state;
    static const struct {
        int rules, calls;
        const char *message; /* NULL: it is taken */
    } cases[] = {
        {7, 30,
         "my::f, typed for c64: r:8:52: the rule for 'f6' brings the expression to more than 16384 nodes"},
        {15, 2,
         "my::f, typed for c64: r:16:52: the rule for 'f14' brings the expression to more than 16384 nodes"},
        {9, 1, NULL},
        {200, 1, NULL},
        {300, 1,
         "my::f, typed for c64: r:301:52: the rule for 'f299' brings the expression to more than 256 levels"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kiln_sb sb;
        take_rules(&sb, cases[k].rules, cases[k].calls);
        if (cases[k].message)
            refuses(KILN_E_LIMIT, sb.p, cases[k].message);
        else
            takes(sb.p);
        kiln_sb_fini(&sb);
    }
    refuses(KILN_E_TYPE, "complex f(a) = g(a)\ncomplex g(a) = conj(a) + f(a)\n" F ": takes c64 = g(self)",
            "my::f, typed for c64: r:1:16: the rule for 'g' needs itself");
    kiln_sb sb;
    kiln_sb_init(&sb);
    for (int k = 0; k < 1024; k++) kiln_sb_printf(&sb, "complex f%d(a) = a\n", k);
    kiln_registry *r = (kiln_registry *)1;
    assert_int_equal(load_n(shipped, sb.p, sb.len, &r), KILN_E_LIMIT);
    assert_non_null(strstr(kiln_last_error(), ": at most 1024 rules"));
    kiln_sb_fini(&sb);
}

/* Dtypes of arguments outside promotion multiply, as do the nodes of many results. */
static void products_that_explode(void **state) {
    (void)state;
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_sb_puts(&sb, "map my::f(Tensor self");
    for (int k = 0; k < 20; k++) kiln_sb_printf(&sb, ", Tensor t%d", k);
    kiln_sb_puts(&sb, ") -> Tensor : promote(self) takes f64");
    for (int k = 0; k < 20; k++) kiln_sb_printf(&sb, " takes t%d: all", k);
    kiln_sb_puts(&sb, " = self");
    for (int k = 0; k < 20; k++) kiln_sb_printf(&sb, " + t%d", k);
    kiln_registry *r = NULL;
    assert_int_equal(load_n(shipped, sb.p, sb.len, &r), KILN_E_LIMIT);
    assert_non_null(strstr(kiln_last_error(), "my::f, typed for f64: r:1:"));
    assert_non_null(strstr(kiln_last_error(), "checking the rows takes more than"));
    kiln_sb_fini(&sb);
    kiln_sb_init(&sb);
    kiln_sb_puts(
        &sb,
        "map my::f(Tensor self) -> (Tensor, Tensor, Tensor) : takes f32 = l12, l12, l12\n    let l0 = self");
    for (int k = 1; k < 13; k++) kiln_sb_printf(&sb, ", l%d = l%d + l%d", k, k - 1, k - 1);
    refuses(
        KILN_E_LIMIT, sb.p,
        "my::f, typed for f32: r:1:66: the bodies have together more than 16384 nodes, with names and rules "
        "expanded");
    kiln_sb_fini(&sb);
}

/* -- failing allocations -------------------------------------------------------------------------------------- */

static void any_allocation_may_fail(void **state) {
    (void)state;
    static const char text[] =
        "map silu(Tensor self) -> Tensor : takes float = self / (1 + exp(-self))\n"
        "fold amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor = max(acc, self) from lowest\n"
        "     over dim keep keepdim\n"
        "map div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor : promote(self, other)\n"
        "    when absent(rounding_mode) to_float = self / other\n"
        "    when rounding_mode == \"floor\" and not is_bool(common) = floordiv(self, other)\n"
        "    when true to_float = self / other\n    doc \"division\"\n";
    static const char lines[] =
        "aten::silu(Tensor self) -> Tensor\naten::silu_(Tensor(a!) self) -> Tensor(a!)\n"
        "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor\n"
        "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor\n"
        "aten::div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out) -> Tensor(a!)\n";
    kiln_row_text rows = {"r", text, sizeof text - 1, false};
    long n = 1;
    for (;; n++) {
        kiln_registry *r = NULL;
        kiln_arena arena = {0};
        kiln_schema_list five;
        kiln_alloc_fail_after(n);
        kiln_status st = kiln_schema_list_make(&arena, lines, sizeof lines - 1, &five);
        if (st == KILN_OK) st = kiln_registry_new(NULL, &rows, 1, &five, false, &r);
        kiln_alloc_fail_after(0);
        kiln_arena_free(&arena);
        if (st == KILN_OK) {
            assert_int_equal(kiln_registry_count(r), 5);
            kiln_registry_free(r);
            break;
        }
        assert_int_equal(st, KILN_E_NOMEM);
        assert_null(r);
        assert_non_null(strstr(kiln_last_error(), "out of memory"));
    }
    assert_true(n > 20);
}

int main(void) {
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(the_hard_operators_type),
        T(operators_are_sorted_and_whole),
        T(rows_say_what_they_say),
        T(forms_follow_signatures),
        T(forms_of_another_operator_are_not_taken),
        T(names_find_operators),
        T(what_is_not_served_is_said),
        T(families_that_are_not_served),
        T(one_line_is_one_operator),
        T(loading_is_all_or_nothing),
        T(layout_of_text_does_not_matter),
        T(quoted_text_is_part_of_the_digest),
        T(text_needs_no_nul_at_its_end),
        T(bad_heads),
        T(schemas_are_pytorchs),
        T(names_are_defined_once),
        T(schemas_are_functional),
        T(bodies_match_results),
        T(bad_names),
        T(types_wrong_for_one_dtype),
        T(every_tensor_has_its_dtypes),
        T(strides_of_several_iterators),
        T(bad_clauses),
        T(conditions_are_checked_before_any_call),
        T(branches_are_all_reached),
        T(bad_folds),
        T(bad_shorthands_and_parts),
        T(bad_compositions),
        T(defaults_are_of_their_type),
        T(calls_have_room_for_rows),
        T(tensors_are_not_static),
        T(hostile_text),
        T(names_that_explode),
        T(rules_that_explode),
        T(products_that_explode),
        T(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, load_shipped, free_shipped);
}
