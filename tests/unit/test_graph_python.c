/* test_graph_python.c - graphs as Python: names, precedence, odd attributes and arguments, frees, lines,
 * failing allocations.  That the source means what the graph means is shown by running it, in tests/graph. */
#include "unit/graph_cases.h"

/* The body, without the header and the four blanks each line starts with. */
static void body_is(const char *lines, const char *want) {
    kiln_graph *g = graph_of(lines);
    kiln_python p;
    kiln_sb got;
    OK(kiln_graph_python(g, NULL, &p));
    kiln_sb_init(&got);
    for (const char *at = strchr(p.source, '\n') + 1; *at;) {
        size_t n = strcspn(at, "\n");
        assert_memory_equal(at, "    ", 4);
        kiln_sb_putn(&got, at + 4, n - 4 + 1);
        at += n + 1;
    }
    assert_string_equal(got.p, want);
    kiln_sb_fini(&got);
    kiln_python_free(&p);
    kiln_graph_free(g);
}

static void header_is(const char *lines, const char *want) {
    kiln_graph *g = graph_of(lines);
    kiln_python p;
    OK(kiln_graph_python(g, NULL, &p));
    *strchr(p.source, '\n') = 0;
    assert_string_equal(p.source, want);
    kiln_python_free(&p);
    kiln_graph_free(g);
}

/* name=what, in the order they came up */
static void globals_are(const char *lines, const char *want) {
    kiln_graph *g = graph_of(lines);
    kiln_python p;
    kiln_sb got;
    OK(kiln_graph_python(g, NULL, &p));
    kiln_sb_init(&got);
    kiln_sb_puts(&got, "");
    for (size_t i = 0; i < p.nglobals; i++) {
        char *v;
        OK(kiln_gval_text(p.globals[i].value, &v));
        kiln_sb_printf(&got, "%s%s=%s", i ? " " : "", p.globals[i].name, v);
        kiln_free(v);
    }
    assert_string_equal(got.p, want);
    kiln_sb_fini(&got);
    kiln_python_free(&p);
    kiln_graph_free(g);
}

#define X "x = placeholder x\n"

static void operators_are_spelled(void **state) {
    (void)state;
    body_is(X "a = call_function operator:add(%x, 1)\noutput = output(%a)\n",
            "a = x + 1;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:pow(-2, %x)\noutput = output(%a)\n",
            "a = (-2) ** x;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:pow(%x, -2)\noutput = output(%a)\n",
            "a = x ** -2;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:pow(-inf, %x)\noutput = output(%a)\n",
            "a = (-inf) ** x;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:neg(-1)\noutput = output(%a)\n", "a = -(-1)\nreturn a\n");
    body_is(X "a = call_function operator:not_(%x)\noutput = output(%a)\n",
            "a = not x;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:contains(%x, 1)\noutput = output(%a)\n",
            "a = 1 in x;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:is_(%x, None)\noutput = output(%a)\n",
            "a = x is None;  x = None\nreturn a\n");
    body_is(X "a = call_function operator:is_(%x, 1)\noutput = output(%a)\n",
            "a = operator_is_(x, 1);  x = None\nreturn a\n");
    body_is(X "a = call_function operator:add(%x)\noutput = output(%a)\n",
            "a = operator_add(x);  x = None\nreturn a\n");
    body_is(X "a = call_function operator:add(%x, 1, k=2)\noutput = output(%a)\n",
            "a = operator_add(x, 1, k=2);  x = None\nreturn a\n");
}

static void subscripts_are_spelled(void **state) {
    (void)state;
    body_is(
        X
        "a = call_function operator:getitem(%x, (0, slice(None, 3, None), slice(1, None, -1), ..., None))\noutput = output(%a)\n",
        "a = x[0, :3, 1::-1, ..., None];  x = None\nreturn a\n");
    body_is(X "a = call_function operator:getitem(%x, ())\noutput = output(%a)\n",
            "a = x[()];  x = None\nreturn a\n");
    body_is(X "a = call_function operator:getitem(%x, (1,))\noutput = output(%a)\n",
            "a = x[1,];  x = None\nreturn a\n");
    body_is(X "a = call_function operator:getitem(%x, [slice(None, None, None)])\noutput = output(%a)\n",
            "a = x[[slice(None, None, None)]];  x = None\nreturn a\n");
    body_is(X "a = call_function operator:getitem((1, 2), %x)\noutput = output(%a)\n",
            "a = operator_getitem((1, 2), x);  x = None\nreturn a\n");
    body_is(X "a = call_function operator:setitem(%x, slice(0, 1, None), 2)\noutput = output((%x, %a))\n",
            "x[0:1] = 2;  a = None\nreturn (x, a)\n");
}

/* operator.iadd gives a value and leaves the name as it was. */
static void in_place_operators_keep_the_operand(void **state) {
    (void)state;
    body_is(X "a = call_function operator:iadd(%x, 1)\noutput = output((%x, %a))\n",
            "a = x;  a += 1\nreturn (x, a)\n");
    body_is(X "a = call_function operator:imatmul(%x, %x)\noutput = output(%a)\n",
            "a = x;  a @= x;  x = None\nreturn a\n");
}

static void attributes_and_methods(void **state) {
    (void)state;
    body_is("w = get_attr layers.0.class.weight\noutput = output(%w)\n",
            "w = getattr(getattr(self.layers, \"0\"), \"class\").weight\nreturn w\n");
    body_is("w = get_attr \"a\\\"b\"\noutput = output(%w)\n", "w = getattr(self, \"a\\\"b\")\nreturn w\n");
    body_is(X "m = call_module layers.0(%x, k=1)\noutput = output(%m)\n",
            "m = getattr(self.layers, \"0\")(x, k=1);  x = None\nreturn m\n");
    body_is(X "m = call_method add(%x, 1, alpha=2)\noutput = output(%m)\n",
            "m = x.add(1, alpha=2);  x = None\nreturn m\n");
    body_is(X "m = call_method from(%x, 1)\noutput = output(%m)\n",
            "m = getattr(x, \"from\")(1);  x = None\nreturn m\n");
    body_is("m = call_method bit_length(5)\noutput = output(%m)\n", "m = (5).bit_length()\nreturn m\n");
    body_is("m = call_method hex(-2.5)\noutput = output(%m)\n", "m = (-2.5).hex()\nreturn m\n");
    body_is(X "m = call_function builtins:getattr(%x, \"shape\")\noutput = output(%m)\n",
            "m = x.shape;  x = None\nreturn m\n");
    body_is(X "m = call_function builtins:getattr(%x, \"class\")\noutput = output(%m)\n",
            "m = getattr(x, \"class\");  x = None\nreturn m\n");
    body_is("a = call_function aten::random_.from(1)\noutput = output(%a)\n",
            "a = getattr(torch.ops.aten.random_, \"from\")(1)\nreturn a\n");
}

static void odd_keywords(void **state) {
    (void)state;
    body_is(
        X
        "a = call_function m:f(%x, from=1, to=2, \"a b\"=3, \"\xc3\xa9\"=4, __debug__=5)\noutput = output(%a)\n",
        "a = m_f(x, **{\"from\": 1}, to=2, **{\"a b\": 3}, **{\"\\xe9\": 4}, **{\"__debug__\": 5});  x = None\nreturn a\n");
}

static void constants_are_executable(void **state) {
    (void)state;
    body_is(
        "a = call_function m:f(inf, -inf, nan, -nan, complex(nan, -0.0), set(), frozenset(1), size(2), range(0, 3, 1), "
        "dtype(float32), device(\"cuda:0\"), enum(m:E, \"A\"), enum(m:E, \"class\"), namedtuple(m:P, x=1, y=inf), "
        "structseq(torch:return_types.max, 1), const(t0), torch:Tensor, builtins:int, ..., b\"\\x00\")\noutput = output(%a)\n",
        "a = m_f(inf, -inf, nan, -nan, complex(nan, -0.0), set(), frozenset({1}), torch.Size([2]), range(0, 3, 1), "
        "torch.float32, torch.device(\"cuda:0\"), m_E.A, m_E[\"class\"], m_P(1, inf), torch.return_types.max((1,)), t0, "
        "torch.Tensor, int, ..., b\"\\x00\")\nreturn a\n");
    globals_are("a = call_function m:f(inf, -nan, const(t0), m:f, torch:add, builtins:int)\n",
                "m_f=m:f inf=inf nan=nan t0=const(t0) torch=func(\"torch:\")");
}

static void parameters_keep_their_names(void **state) {
    (void)state;
    header_is(
        "a = placeholder x\nb : torch:Tensor = placeholder input(1.5)\nc = placeholder *args\nd = placeholder **kw\n"
        "output : torch:Tensor = output(%a)\n",
        "def forward(self, x, input : torch.Tensor = 1.5, *args, **kw) -> torch.Tensor:");
    header_is(
        "a = placeholder from\nb = placeholder self\nc = placeholder a\nd = placeholder \"1x\"\ne = placeholder x\nf = placeholder x\n",
        "def forward(self, from_1, self_1, a, _1x, x, x_1):");
    header_is("a = placeholder x(1)\nb = placeholder y\n",
              "def forward(self, x, y):"); /* the default cannot be used */
}

static void nothing_shadows_what_is_used(void **state) {
    (void)state;
    /* A parameter keeps `torch`, `nan` and `getattr`; what the code needs is called otherwise. */
    body_is(
        "a = placeholder torch\nb = placeholder nan\nc = placeholder getattr\nd = call_function torch:add(%a, nan)\n"
        "e = call_method from(%c)\noutput = output((%b, %d, %e))\n",
        "d = torch_1.add(torch, nan_1);  torch = None\ne = getattr_1(getattr, \"from\")();  getattr = None\nreturn (nan, d, e)\n");
    globals_are(
        "a = placeholder torch\nb = placeholder len\nd = call_function torch:add(%a, 1)\ne = call_function builtins:len(%b)\n",
        "torch_1=func(\"torch:\") len_1=builtins:len");
    /* A node gives way. */
    body_is(
        X
        "torch = call_function torch:add(%x, 1)\nlen = call_function builtins:len(%torch)\nmatch = call_method neg(%x)\n"
        "class = call_method neg(%x)\nself = call_method neg(%x)\n\"a b\" = call_method neg(%x)\na_b = call_method neg(%x)\n"
        "m_f = call_function m:f(%x)\noutput = output([%torch, %len, %match, %class, %self, %\"a b\", %a_b, %m_f])\n",
        "torch_1 = torch.add(x, 1)\nlen_1 = len(torch_1)\nmatch_1 = x.neg()\nclass_1 = x.neg()\nself_1 = x.neg()\n"
        "a_b_1 = x.neg()\na_b = x.neg()\nm_f = m_f_1(x);  x = None\n"
        "return [torch_1, len_1, match_1, class_1, self_1, a_b_1, a_b, m_f]\n");
}

static void values_are_let_go(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        X
        "a = call_method neg(%x)\nb = call_method neg(%a)\nc = call_function m:f(%a, %x)\noutput = output(%b)\n");
    kiln_python p;
    kiln_python_options keep = {.size = sizeof keep, .keep_values = 1, .function = "run", .self = ""};
    OK(kiln_graph_python(g, NULL, &p));
    assert_string_equal(
        p.source,
        "def forward(self, x):\n    a = x.neg()\n    b = a.neg()\n    c = m_f(a, x);  a = x = c = None\n"
        "    return b\n");
    kiln_python_free(&p);
    OK(kiln_graph_python(g, &keep, &p));
    assert_string_equal(p.source,
                        "def run(x):\n    a = x.neg()\n    b = a.neg()\n    c = m_f(a, x)\n    return b\n");
    kiln_python_free(&p);
    kiln_graph_free(g);
}

static void lines_lead_to_nodes(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        X
        "a = call_method neg(%x) {val=\"f32[2]\", comment=\"from here\\nand \\x0cthere\"}\noutput = output(%a)\n");
    kiln_python p;
    kiln_python_options verbose = {.size = sizeof verbose, .verbose = 1};
    OK(kiln_graph_python(g, &verbose, &p));
    assert_string_equal(p.source, "def forward(self, x):\n    # from here\n    # and  there\n"
                                  "    a : \"f32[2]\" = x.neg();  x = None\n    return a\n");
    assert_int_equal(p.nlines, 2);
    assert_int_equal(p.lines[0].line, 4);
    assert_int_equal(p.lines[0].node, node_of(g, "a")->id);
    assert_int_equal(p.lines[1].line, 5);
    kiln_python_free(&p);
    kiln_graph_free(g);
}

static void what_cannot_be_printed_is_refused(void **state) {
    (void)state;
    kiln_python p;
    kiln_graph *g = graph_of("a = placeholder **k\nb = placeholder x\n");
    REFUSED(KILN_E_ARG, "placeholder 'x' cannot stand after '**k'", kiln_graph_python(g, NULL, &p));
    kiln_graph_free(g);
    g = graph_of("a = placeholder *k(1)\n");
    REFUSED(KILN_E_ARG, "placeholder '*k' cannot have a default", kiln_graph_python(g, NULL, &p));
    kiln_graph_free(g);
    kiln_python_options bare = {.size = sizeof bare, .self = ""},
                        odd = {.size = sizeof odd, .function = "class"};
    g = graph_of("a = get_attr w\n");
    REFUSED(KILN_E_ARG, "node a: attribute 'w' cannot be reached", kiln_graph_python(g, &bare, &p));
    REFUSED(KILN_E_ARG, "'class' or 'self' is no Python name", kiln_graph_python(g, &odd, &p));
    kiln_graph_free(g);
    g = graph_of("");
    OK(kiln_graph_python(g, NULL, &p));
    assert_string_equal(p.source, "def forward(self):\n    pass\n");
    kiln_python_free(&p);
    kiln_graph_free(g);
}

/* Three nodes whose names are all underscores in ASCII, and nodes that have the first numbers already. */
static void names_that_become_alike_are_numbered(void **state) {
    (void)state;
    body_is(
        "\"\\u00e9\" = get_attr a\n\"\\u00e8\" = get_attr b\n___1 = get_attr c\n\"\\u00ea\" = get_attr d\n",
        "__ = self.a;  __ = None\n___2 = self.b;  ___2 = None\n___1 = self.c;  ___1 = None\n"
        "___3 = self.d;  ___3 = None\n");
    header_is("a = placeholder torch\nb = placeholder torch\nc = placeholder torch\n",
              "def forward(self, torch, torch_1, torch_2):");
}

static void printing_takes_no_memory_of_the_graph(void **state) {
    (void)state;
    kiln_graph *g = graph_of("x = call_function m:f(inf, slice(1, 2, 3), const(c), nan, torch:add)\n");
    size_t before = g->arena.nbytes;
    for (int i = 0; i < 500; i++) {
        kiln_python p;
        OK(kiln_graph_python(g, NULL, &p));
        kiln_python_free(&p);
    }
    assert_int_equal(g->arena.nbytes, before);
    kiln_graph_free(g);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        "from = placeholder from\na = call_function m:f(nan, %from, builtins:int, const(c))\noutput = output(%a)\n");
    kiln_python p;
    kiln_status st = KILN_E_NOMEM;
    int failures = 0;
    for (long nth = 1; st != KILN_OK; nth++) {
        kiln_alloc_fail_after(nth);
        st = kiln_graph_python(g, NULL, &p);
        kiln_alloc_fail_after(0);
        assert_true(st == KILN_OK || st == KILN_E_NOMEM);
        failures += st != KILN_OK;
    }
    assert_true(failures > 5);
    assert_string_equal(
        p.source,
        "def forward(self, from_1):\n    a = m_f(nan, from_1, int, c);  from_1 = None\n    return a\n");
    kiln_python_free(&p);
    kiln_graph_free(g);
}

/* python_op.c finds them by bisection. */
static void operators_are_sorted(void **state) {
    (void)state;
    static const char *const names[] = {
#define S(name, form, text) name,
#define O(name, form, text, slot, op, overload, number_first) name,
#include "kiln/operator.def"
#undef O
#undef S
    };
    for (size_t k = 1; k < sizeof names / sizeof *names; k++) assert_true(strcmp(names[k - 1], names[k]) < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_are_sorted),
        cmocka_unit_test(operators_are_spelled),
        cmocka_unit_test(subscripts_are_spelled),
        cmocka_unit_test(in_place_operators_keep_the_operand),
        cmocka_unit_test(attributes_and_methods),
        cmocka_unit_test(odd_keywords),
        cmocka_unit_test(constants_are_executable),
        cmocka_unit_test(parameters_keep_their_names),
        cmocka_unit_test(nothing_shadows_what_is_used),
        cmocka_unit_test(values_are_let_go),
        cmocka_unit_test(lines_lead_to_nodes),
        cmocka_unit_test(what_cannot_be_printed_is_refused),
        cmocka_unit_test(names_that_become_alike_are_numbered),
        cmocka_unit_test(printing_takes_no_memory_of_the_graph),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("graph_python", tests, NULL, NULL);
}
