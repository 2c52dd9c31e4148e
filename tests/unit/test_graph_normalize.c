/* test_graph_normalize.c - calls bound to schemas and signatures: Python's errors, the choice of an
 * overload, defaults, what stays positional, every overload PyTorch ships, failing allocations. */
#include "base/text_entry.h"
#include "graph/overloads.h"
#include "unit/graph_cases.h"

static kiln_schemas *schemas;

static int open_schemas(void **state) {
    (void)state;
    return kiln_schemas_new(&schemas) == KILN_OK ? 0 : -1;
}

static int close_schemas(void **state) {
    (void)state;
    kiln_schemas_free(schemas);
    return 0;
}

#define NODES "a = placeholder a\nb = placeholder b\n"

/* The one call after NODES, normalised, without its name. */
static void becomes(const char *call, unsigned flags, const char *want) {
    char lines[1024], line[1024];
    snprintf(lines, sizeof lines, NODES "r = %s\n", call);
    kiln_graph *g = graph_of(lines);
    if (kiln_graph_normalize(schemas, g, flags, NULL) != KILN_OK) fail_msg("%s: %s", call, kiln_last_error());
    snprintf(line, sizeof line, NODES "r = %s\n", want);
    assert_lines(g, line);
    kiln_graph_free(g);
}

static void fits_not(const char *call, kiln_status status, const char *why) {
    char lines[1024];
    kiln_bound_args bound;
    snprintf(lines, sizeof lines, NODES "r = %s\n", call);
    kiln_graph *g = graph_of(lines);
    REFUSED(status, why, kiln_node_normalized(schemas, node_of(g, "r"), 0, &bound));
    kiln_graph_free(g);
}

static void chooses(const char *call, const char *overload) {
    char lines[1024];
    kiln_bound_args bound;
    snprintf(lines, sizeof lines, NODES "r = %s\n", call);
    kiln_graph *g = graph_of(lines);
    if (kiln_node_normalized(schemas, node_of(g, "r"), 0, &bound) != KILN_OK)
        fail_msg("%s: %s", call, kiln_last_error());
    assert_string_equal(bound.overload, overload);
    kiln_graph_free(g);
}

#define KW KILN_KWARGS_ONLY

static void defaults_are_filled_in(void **state) {
    (void)state;
    becomes("call_function aten::add.Tensor(%a, %b)", 0, "call_function aten::add.Tensor(%a, %b, alpha=1)");
    becomes("call_function aten::add.Tensor(%a, %b)", KILN_NO_DEFAULTS,
            "call_function aten::add.Tensor(%a, %b)");
    becomes("call_function aten::add.Tensor(%a, alpha=2, other=%b)", 0,
            "call_function aten::add.Tensor(%a, other=%b, alpha=2)");
    becomes(
        "call_function aten::avg_pool1d.default(%a, [2])", KW,
        "call_function aten::avg_pool1d.default(self=%a, kernel_size=[2], stride=[], padding=[0], ceil_mode=False, "
        "count_include_pad=True)");
}

static void self_is_named_as_the_target_takes_it(void **state) {
    (void)state;
    becomes("call_function aten::add.Tensor(%a, %b)", KW,
            "call_function aten::add.Tensor(self=%a, other=%b, alpha=1)");
    becomes("call_function torch:add(%a, %b)", KW, "call_function torch:add(input=%a, other=%b, alpha=1)");
    becomes("call_method add(%a, %b)", KW, "call_method add(%a, other=%b, alpha=1)");
    becomes("call_function torch:Tensor.add(%a, %b)", KW,
            "call_function torch:Tensor.add(%a, other=%b, alpha=1)");
    becomes("call_function aten::conv_tbc_backward.default(%a, %a, %a, %b, 3)", KW,
            "call_function aten::conv_tbc_backward.default(self=%a, input=%a, weight=%a, bias=%b, pad=3)");
    becomes("call_function torch:_foreach_add([%a], 2)", KW,
            "call_function torch:_foreach_add(self=[%a], scalar=2)");
    becomes("call_function torch:pow(2, %a)", KW, "call_function torch:pow(self=2, exponent=%a)");
}

static void keyword_names_stay_positional(void **state) {
    (void)state;
    becomes("call_function aten::uniform_.default(%a)", KW,
            "call_function aten::uniform_.default(%a, 0.0, to=1.0, generator=None)");
    becomes("call_function aten::uniform_.default(%a, from=2.0, to=3.0)", KW,
            "call_function aten::uniform_.default(%a, 2.0, to=3.0, generator=None)");
    becomes("call_function aten::uniform_.default(to=3.0, from=2.0, self=%a)", 0,
            "call_function aten::uniform_.default(%a, 2.0, to=3.0, generator=None)");
    becomes("call_function aten::random_.from(%a, 1, 2)", KW,
            "call_function aten::random_.from(%a, 1, to=2, generator=None)");
    becomes("call_method uniform_(%a, to=3.0)", KW, "call_method uniform_(%a, 0.0, to=3.0, generator=None)");
    becomes("call_function aten::uniform_.default(%a, to=3.0)", KILN_NO_DEFAULTS | KW,
            "call_function aten::uniform_.default(%a, to=3.0)");
}

static void types_choose_the_overload(void **state) {
    (void)state;
    chooses("call_function torch:add(%a, %b, alpha=2)", "aten::add.Tensor");
    chooses("call_function torch:add(%a, 2)", "aten::add.Scalar");
    chooses("call_function aten::add(%a, 2)", "aten::add.Scalar");
    chooses("call_function aten::add(1, 2)", "aten::add"); /* of two that fit alike, the first */
    chooses("call_function aten::add(\"a\", \"b\")", "aten::add.str");
    chooses("call_function torch:clamp(%a, max=1)", "aten::clamp");
    chooses("call_function torch:clamp(%a, max=%b)", "aten::clamp.Tensor");
    chooses("call_function torch:max(%a)", "aten::max");
    chooses("call_function torch:max(%a, 1)", "aten::max.dim");
    chooses("call_function torch:max(%a, %b)", "aten::max.other");
    chooses("call_function torch:sum(%a)", "aten::sum");
    chooses("call_function torch:sum(%a, [0, 1])", "aten::sum.dim_IntList");
    chooses("call_function torch:full([2], 1.5)", "aten::full");
    chooses("call_method to(%a, dtype(float64))", "aten::to.dtype");
    chooses("call_method to(%a, device(cpu))", "aten::to.prim_Device");
    chooses("call_method hsplit(%a, 2)", "aten::hsplit.int");
    chooses("call_method hsplit(%a, [2])", "aten::hsplit.array");
    chooses("call_method transpose(%a, 0, 1)", "aten::transpose.int");
    chooses("call_function torch:where(%a, 1.0, %b)", "aten::where.ScalarSelf");
}

static void metadata_counts(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        "a = placeholder a {val=\"f32[2, 3]\"}\nn = placeholder n {val=\"int\"}\nr = call_function torch:max(%a, %n)\n");
    kiln_bound_args bound;
    OK(kiln_node_normalized(schemas, node_of(g, "r"), 0, &bound));
    assert_string_equal(bound.overload, "aten::max.dim");
    kiln_graph_free(g);
}

static void torch_takes_more_than_the_schema(void **state) {
    (void)state;
    becomes("call_function torch:sum(%a, axis=1, keepdims=True)", 0,
            "call_function torch:sum(%a, dim=1, keepdim=True, dtype=None)");
    becomes("call_function torch:max(%a, 1, out=(%a, %b))", KW,
            "call_function torch:max(input=%a, dim=1, keepdim=False, out=(%a, %b))");
    becomes("call_function torch:add(%a, %b, out=%a)", KW,
            "call_function torch:add(input=%a, other=%b, alpha=1, out=%a)");
    becomes("call_function torch:add(%a, %b, out=None)", KW,
            "call_function torch:add(input=%a, other=%b, alpha=1, out=None)");
    becomes("call_method view(%a, 2, 3)", 0, "call_method view(%a, [2, 3])");
    becomes("call_method view(%a, 2, 3)", KW, "call_method view(%a, size=[2, 3])");
    becomes("call_method view(%a, [2, 3])", KW, "call_method view(%a, size=[2, 3])");
    becomes("call_method view(%a, %b)", KW, "call_method view(%a, %b)"); /* a list or a number: who knows */
    becomes("call_method view(%a, dtype(int32))", KW, "call_method view(%a, dtype=dtype(int32))");
    becomes(
        "call_function torch:zeros(2, 3, dtype=builtins:float, requires_grad=True)", KW,
        "call_function torch:zeros(size=[2, 3], dtype=builtins:float, layout=None, device=None, pin_memory=None, requires_grad=True)");
    becomes("call_method contiguous(%a)", KW,
            "call_method contiguous(%a, memory_format=memory_format(contiguous_format))");
    becomes("call_function aten::contiguous.default(%a)", 0,
            "call_function aten::contiguous.default(%a, memory_format=0)");
    becomes("call_function operator:add(%a, %b)", KW, "call_function operator:add(%a, %b)");
    becomes("call_module m(%a)", KW, "call_module m(%a)");
    becomes("call_method numpy(%a)", KW, "call_method numpy(%a)");
}

/* Lists, sets and sizes have methods of their own, called as an operator is. */
static void methods_of_other_objects_are_left_alone(void **state) {
    (void)state;
    kiln_graph *g;
    static const char lines[] = NODES
        "l = placeholder l {val=\"Tensor[]\"}\na1 = call_method sort(%l)\na2 = call_method add(set(1), 2)\n"
        "s = call_method size(%a)\na3 = call_method count_nonzero(%s)\n"
        "h = call_function builtins:getattr(%a, \"shape\")\na4 = call_method sum(%h)\n"
        "m = call_function torch:max(%a, 1)\n";
    g = graph_of(lines);
    size_t changed;
    OK(kiln_graph_normalize(schemas, g, KILN_NO_DEFAULTS | KW, &changed));
    assert_int_equal(changed, 1); /* torch:max */
    kiln_graph_free(g);
    becomes("call_function builtins:getattr(%a, \"T\")", KW, "call_function builtins:getattr(%a, \"T\")");
    g = graph_of(NODES "t = call_function builtins:getattr(%a, \"T\")\nr = call_method sum(%t)\n");
    OK(kiln_graph_normalize(schemas, g, KW, &changed));
    assert_int_equal(changed, 1);
    kiln_graph_free(g);
}

static void misfits_are_told_as_python_does(void **state) {
    (void)state;
    fits_not("call_function aten::relu.default(%a, %b)", KILN_E_TYPE,
             "node r: aten::relu: too many positional arguments");
    fits_not("call_function aten::relu.default()", KILN_E_TYPE,
             "node r: aten::relu: missing a required argument: 'self'");
    fits_not("call_function aten::relu.default(%a, self=%b)", KILN_E_TYPE,
             "node r: aten::relu: multiple values for argument 'self'");
    fits_not("call_function aten::relu.default(%a, x=1)", KILN_E_TYPE,
             "node r: aten::relu: got an unexpected keyword argument 'x'");
    fits_not("call_function aten::relu.default(input=%a)", KILN_E_TYPE,
             "node r: aten::relu: missing a required argument: 'self'");
    fits_not(
        "call_function torch:relu(self=%a)", KILN_E_TYPE,
        "node r: aten::relu: missing a required argument: 'input'; aten::relu.out: missing a required argument: 'input'");
    fits_not(
        "call_function torch:relu(\"text\")", KILN_E_TYPE,
        "node r: aten::relu: argument 'input' is of another type; aten::relu.out: missing a required argument: 'out'");
    fits_not("call_function aten::nosuch.default(%a)", KILN_E_NOTFOUND,
             "node r: no schema is known for its target 'aten::nosuch.default'");
    fits_not("call_function aten::add.nosuch(%a)", KILN_E_NOTFOUND,
             "node r: no schema is known for its target 'aten::add.nosuch'");
    kiln_graph *g = graph_of(NODES "r = call_function torch:add(%a, %b)\ns = call_function torch:relu()\n");
    assert_int_equal(kiln_graph_normalize(schemas, g, KW, NULL), KILN_E_TYPE);
    assert_lines(g, NODES "r = call_function torch:add(%a, %b)\ns = call_function torch:relu()\n");
    kiln_graph_free(g);
}

/* -- signatures --------------------------------------------------------------------------------------- */

/* def f(a, b=1, /, c=2, *rest, d, **more) */
static void signatures_bind_as_in_python(void **state) {
    (void)state;
    kiln_graph *g = graph_of("r = call_function m:f(10, 11, 12, 13, 14, e=1, d=2, b=3)\n");
    const kiln_node *r = node_of(g, "r");
    const kiln_gval *one, *two;
    kiln_bound_args out;
    OK(kiln_graph_int(g, 1, &one));
    OK(kiln_graph_int(g, 2, &two));
    const kiln_sig_param sig[] = {
        {"a", KILN_POSITIONAL_ONLY, NULL, 0},      {"b", KILN_POSITIONAL_ONLY, one, 0},
        {"c", KILN_POSITIONAL_OR_KEYWORD, two, 0}, {"rest", KILN_VAR_POSITIONAL, NULL, 0},
        {"d", KILN_KEYWORD_ONLY, NULL, 0},         {"more", KILN_VAR_KEYWORD, NULL, 0}};
    OK(kiln_graph_bind(g, sig, 6, r->args, 5, r->kwargs, 3, KW, &out));
    assert_int_equal(out.nargs, 5); /* *rest keeps what is before it positional */
    assert_int_equal(out.nkwargs, 3);
    assert_string_equal(out.kwargs[0].name, "d");
    assert_string_equal(out.kwargs[1].name, "e");
    OK(kiln_graph_bind(g, sig, 6, r->args, 3, r->kwargs, 3, KW, &out));
    assert_int_equal(out.nargs, 2);
    assert_string_equal(out.kwargs[0].name, "c");
    OK(kiln_graph_bind(g, sig, 6, r->args, 1, r->kwargs, 2, 0, &out));
    assert_int_equal(out.nargs, 2); /* b's default */
    REFUSED(KILN_E_TYPE, "missing a required argument: 'd'",
            kiln_graph_bind(g, sig, 6, r->args, 1, r->kwargs, 1, 0, &out));
    REFUSED(KILN_E_TYPE, "'b' parameter is positional only, but was passed as a keyword",
            kiln_graph_bind(g, sig, 5, r->args, 1, r->kwargs, 3, 0, &out));
    REFUSED(KILN_E_TYPE, "got an unexpected keyword argument 'e'",
            kiln_graph_bind(g, sig, 5, r->args, 1, r->kwargs, 2, 0, &out));
    REFUSED(KILN_E_TYPE, "too many positional arguments",
            kiln_graph_bind(g, sig, 3, r->args, 4, NULL, 0, 0, &out));
    kiln_graph_free(g);
}

/* -- every overload ----------------------------------------------------------------------------------- */

/* One placeholder per parameter, all by keyword, then all by position: the same binding both times. */
static void every_overload_binds(void **state) {
    (void)state;
    int seen = 0;
    for (const char *at = kiln_text_schemas; *at; at += strcspn(at, "\n") + 1) {
        kiln_arena arena;
        kiln_schema *s;
        kiln_arena_init(&arena);
        OK(kiln_schema_parse(&arena, at, strcspn(at, "\n"), &s));
        kiln_graph *g;
        kiln_node *x, *call;
        kiln_bound_args out;
        char target[512];
        const kiln_gval *args[KILN_MAX_ARGS + 1];
        OK(kiln_graph_new(&g));
        OK(kiln_graph_placeholder(g, "x", 1, NULL, &x));
        int npos = 0;
        kiln_kwarg kwargs[KILN_MAX_ARGS + 1];
        size_t nkw = 0;
        for (int k = 0; k < s->nargs; k++) {
            if (s->args[k].kwarg_only)
                kwargs[nkw++] = (kiln_kwarg){s->args[k].name, kiln_graph_ref(x)};
            else
                args[npos++] = kiln_graph_ref(x);
        }
        kiln_node_spec spec = {
            .op = KILN_CALL_FUNCTION, .args = args, .nargs = (size_t)npos, .kwargs = kwargs, .nkwargs = nkw};
        int n = snprintf(target, sizeof target, "%s::%s.%s", s->ns, s->name,
                         s->overload[0] ? s->overload : "default");
        OK(kiln_graph_str(g, KILN_G_OP, target, (size_t)n, &spec.target));
        OK(kiln_graph_add(g, NULL, &spec, &call));
        OK(kiln_node_normalized(schemas, call, KW, &out));
        assert_int_equal(out.nargs + out.nkwargs, s->nargs);
        for (size_t k = 0; k < out.nkwargs; k++) {
            assert_string_equal(out.kwargs[k].name, s->args[out.nargs + k].name);
            assert_false(kiln_gtext_is_keyword(out.kwargs[k].name, strlen(out.kwargs[k].name)));
        }
        seen++;
        kiln_graph_free(g);
        kiln_arena_free(&arena);
    }
    assert_int_equal(seen, 4374);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kiln_status st = KILN_E_NOMEM;
    int failures = 0;
    for (long nth = 1; st != KILN_OK; nth++) {
        kiln_graph *g = graph_of(NODES
                                 "r = call_function torch:add(%a, %b)\ns = call_method view(%a, 2, 3)\n");
        kiln_schemas *mine = NULL;
        kiln_alloc_fail_after(nth);
        st = kiln_schemas_new(&mine);
        if (st == KILN_OK) st = kiln_graph_normalize(mine, g, KW, NULL);
        kiln_alloc_fail_after(0);
        assert_true(st == KILN_OK || st == KILN_E_NOMEM);
        failures += st != KILN_OK;
        OK(kiln_graph_verify(g));
        kiln_schemas_free(mine);
        kiln_graph_free(g);
    }
    assert_true(failures > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(self_is_named_as_the_target_takes_it),
        cmocka_unit_test(keyword_names_stay_positional),
        cmocka_unit_test(types_choose_the_overload),
        cmocka_unit_test(metadata_counts),
        cmocka_unit_test(torch_takes_more_than_the_schema),
        cmocka_unit_test(methods_of_other_objects_are_left_alone),
        cmocka_unit_test(misfits_are_told_as_python_does),
        cmocka_unit_test(signatures_bind_as_in_python),
        cmocka_unit_test(every_overload_binds),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("graph_normalize", tests, open_schemas, close_schemas);
}
