/* test_graph.c - graphs: values, the .kg text and back, editing, the verifier, dead code, limits, failing
 * allocations. */
#include <math.h>

#include "unit/graph_cases.h"

/* -- text --------------------------------------------------------------------------------------------- */

static const char every_kind[] =
    "x = placeholder x\n"
    "\"a b\" : torch:Tensor = placeholder y(1.5)\n"
    "args = placeholder *args\n"
    "w = get_attr layer.0.weight\n"
    "odd = get_attr \"la\\\"yer\"\n"
    "numbers = call_function operator:add(0, -1, 254, 255, 9223372036854775807, -9223372036854775808, "
    "9223372036854775808, -9223372036854775809, 0xffffffffffffffffff)\n"
    "floats = call_function torch:f(0.0, -0.0, 1.0, -2.5, 0.1, 1e-05, 1e+300, 5e-324, 123456789.123, inf, -inf, nan, -nan)\n"
    "others = call_function torch:f(None, True, False, ..., complex(-0.0, nan), complex(1.0, -inf))\n"
    "texts = call_function torch:f(\"\", \"a\\\"b\\\\\\n\\t\\r\\x00\\x7f\\xe9\\u20ac\\U0001f600\\ud800\", b\"\", b\"a\\xff\\\"\")\n"
    "torches = call_function torch:f(dtype(float32), device(cpu), device(\"cuda:0\"), layout(strided), "
    "memory_format(channels_last))\n"
    "items = call_function torch:f((), (1,), (1, 2), [], [[1], (2,)], {}, {\"a\": 1, (2, 3): {4: 5}}, set(), set(1), "
    "frozenset(), frozenset(1), size(2, 3), slice(None, 1, None), range(0, 5, 2))\n"
    "named = call_function torch:f(namedtuple(m:P, x=1, \"y z\"=%x), namedtuple(const(Q)), "
    "structseq(torch:return_types.max, %x, 1), enum(m:E, \"class\"))\n"
    "functions = call_function torch:f(aten::add.Tensor, aten::add, torch.nn.functional:relu, func(\"torch:\"), "
    "func(\"m:a b\"), const(c0), const(\"c 1\"))\n"
    "method = call_method view(%x, -1, %\"a b\", from=1, \"a b\"=[%x])\n"
    "module = call_module layers.0(%method, %args)\n"
    "known = call_function const(f)(%module) {val=\"f32[2, 3]\", \"a key\"=\"text\"}\n"
    "output : torch:Tensor = output((%known, {\"r\": %w}))\n";

static void every_value_survives_printing(void **state) {
    (void)state;
    kiln_graph *g = graph_of(every_kind);
    assert_lines(g, every_kind);
    OK(kiln_graph_verify(g));
    kiln_graph_free(g);
}

static void spacing_and_comments_are_free(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        "\n# first\n  x=placeholder x # the input\r\n\n y\t= call_method\tneg( %x )\noutput=output(%y)");
    assert_lines(g, "x = placeholder x\ny = call_method neg(%x)\noutput = output(%y)\n");
    kiln_graph_free(g);
}

static void numbers_keep_their_bits(void **state) {
    (void)state;
    kiln_graph *g = graph_of("a = call_function m:f(-0.0, -nan, nan, 0x10, 00.5)\n");
    const kiln_node *a = node_of(g, "a");
    assert_true(signbit(a->args[0]->u.f) && a->args[0]->u.f == 0);
    assert_true(isnan(a->args[1]->u.f) && signbit(a->args[1]->u.f));
    assert_true(isnan(a->args[2]->u.f) && !signbit(a->args[2]->u.f));
    assert_int_equal(a->args[3]->kind, KILN_G_INT);
    assert_int_equal(a->args[3]->u.i, 16);
    assert_true(a->args[4]->u.f == 0.5);
    assert_false(kiln_gval_equal(a->args[1], a->args[2]));
    kiln_graph_free(g);
}

/* Random doubles: what is printed reads back to the same bits. */
static void every_float_reads_back(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double f, back;
        uint64_t bits = i % 2 ? seed : 0x3f00000000000000u | seed >> 12;
        memcpy(&f, &bits, sizeof f);
        if (i % 3 == 0) f = (double)(int64_t)(seed >> 40) / 1000.0;
        if (!isfinite(f)) continue;
        kiln_sb text;
        kiln_sb_init(&text);
        kiln_gtext_float(&text, f);
        assert_true(kiln_f64_parse(text.p, text.len, &back));
        assert_memory_equal(&f, &back, sizeof f);
        assert_non_null(strpbrk(text.p, ".e"));
        kiln_sb_fini(&text);
    }
}

static void refuses(const char *text, const char *message) {
    kiln_graph *g = NULL;
    kiln_clear_error();
    kiln_status st = kiln_graph_parse(text, strlen(text), &g);
    assert_string_equal(kiln_last_error(), message);
    assert_int_not_equal(st, KILN_OK);
    assert_null(g);
}

static void malformed_text_is_pointed_at(void **state) {
    (void)state;
    refuses("", "graph:1:1: expected the first line to be 'kg 1'");
    refuses("kg 2\n", "graph:1:1: expected the first line to be 'kg 1'");
    refuses("kg 1\nx", "graph:2:2: expected ':' or '=', found the end of the text");
    refuses("kg 1\nx = call y()\n", "graph:2:5: expected placeholder, get_attr, call_function, call_method, "
                                    "call_module or output, found 'c'");
    refuses("kg 1\nx = call_function m:f(%y)\n", "graph:2:23: no node named 'y' before this line");
    refuses("kg 1\nx = call_function m:f(%x)\n", "graph:2:23: no node named 'x' before this line");
    refuses("kg 1\nx = placeholder x\nx = placeholder y\n", "graph:3:1: a node named 'x' is defined already");
    refuses("kg 1\nx = call_function m:f(1 2)\n", "graph:2:25: expected ',' or ')', found '2'");
    refuses("kg 1\nx = call_function m:f(a=1, 2)\n",
            "graph:2:28: expected a keyword argument, since one came before, found '2'");
    refuses("kg 1\nx = call_function m:f(a=1, a=2)\n", "graph:2:1: keyword argument 'a' is given twice");
    refuses(
        "kg 1\nx = call_function m:f(a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1, j=1, k=1, l=1, m=1, n=1, o=1, "
        "p=1, q=1, r=1, b=2)\n",
        "graph:2:1: keyword argument 'b' is given twice");
    refuses("kg 1\nx = call_function m:f(\"a)\n",
            "graph:2:26: expected '\"' to end the string, found the end of the line");
    refuses("kg 1\nx = call_function m:f(\"\\q\")\n",
            "graph:2:25: expected one of n t r \\ \" x u U after '\\', found 'q'");
    refuses("kg 1\nx = call_function m:f(1e999)\n", "graph:2:23: expected a number that fits a double");
    refuses("kg 1\nx = call_function m:f(12ab)\n",
            "graph:2:23: '12ab' is not an integer such as -12 or 0x1f");
    refuses("kg 1\nx = call_function m:f(what)\n", "graph:2:23: expected a value, found 'what'");
    refuses("kg 1\nx = call_function 3()\n",
            "graph:2:1: the target of call_function must be an operator, function or constant");
    refuses("kg 1\nx = call_method m()\n", "graph:2:1: call_method has 0 arguments and 0 by keyword");
    refuses("kg 1\nx = get_attr m(1)\n", "graph:2:1: get_attr has 1 arguments and 0 by keyword");
    refuses("kg 1\no = output(1)\nx = placeholder x\n", "graph: node o is an output, but x follows it");
    refuses("kg 1\nx = placeholder x {a=\"1\", a=\"2\"}\n", "graph:2:27: a key is given twice");
    refuses("kg 1\nx = call_function m:f(slice(1))\n",
            "graph:2:23: the 1 items of a value do not fit its kind 23");
    refuses("kg 1\nx = call_function m:f(\xff)\n", "graph:2:23: expected a value, found byte 0xff");
    refuses("kg 1\nx = call_function m:f(\"\xff\")\n", "graph:2:23: a text is not UTF-8");
}

static void nesting_is_limited(void **state) {
    (void)state;
    enum { DEEP = 10000 };
    char *text = kiln_alloc(2 * DEEP + 64);
    for (int depth = 1; depth <= DEEP; depth = depth < 200 ? depth + 1 : depth * 5) {
        char *at = text + sprintf(text, "kg 1\nx = call_function m:f(");
        memset(at, '[', (size_t)depth);
        memset(at + depth, ']', (size_t)depth);
        strcpy(at + 2 * depth, ")\n");
        kiln_graph *g = NULL;
        kiln_status st = kiln_graph_parse(text, strlen(text), &g);
        assert_int_equal(st, depth <= KILN_GRAPH_MAX_NEST ? KILN_OK : KILN_E_LIMIT);
        kiln_graph_free(g);
    }
    kiln_free(text);
}

static void long_names_are_refused(void **state) {
    (void)state;
    enum { MEGABYTE = 1 << 20 };
    char *name = kiln_alloc(MEGABYTE);
    memset(name, 'a', MEGABYTE);
    kiln_graph *g;
    kiln_node *node;
    const kiln_gval *v;
    OK(kiln_graph_new(&g));
    OK(kiln_graph_placeholder(g, name, KILN_GRAPH_MAX_NAME, NULL, &node));
    REFUSED(KILN_E_LIMIT, "a name of 1048576 bytes; at most 65535 are allowed",
            kiln_graph_placeholder(g, name, MEGABYTE, NULL, &node));
    REFUSED(KILN_E_LIMIT, "a name of 1048576 bytes; at most 65535 are allowed",
            kiln_graph_str(g, KILN_G_CONST, name, MEGABYTE, &v));
    OK(kiln_graph_str(g, KILN_G_STR, name, MEGABYTE, &v));
    REFUSED(KILN_E_ARG, "a name is empty or holds a NUL byte",
            kiln_graph_placeholder(g, "a\0b", 3, NULL, &node));
    REFUSED(KILN_E_ARG, "a text is not UTF-8", kiln_graph_placeholder(g, "\xc0\x80", 2, NULL, &node));
    kiln_graph_free(g);
    kiln_free(name);
}

/* -- nodes -------------------------------------------------------------------------------------------- */

static void names_are_made_unique(void **state) {
    (void)state;
    kiln_graph *g = graph_of("x_1 = placeholder a\nx = placeholder x\n");
    kiln_node *node;
    OK(kiln_graph_placeholder(g, "x", 1, NULL, &node));
    assert_string_equal(node->name, "x_2");
    OK(kiln_graph_placeholder(g, "x", 1, NULL, &node));
    assert_string_equal(node->name, "x_3");
    kiln_graph_free(g);
}

static void nodes_of_another_graph_are_refused(void **state) {
    (void)state;
    kiln_graph *a = graph_of("x = placeholder x\n"), *b = graph_of("y = placeholder y\n");
    const kiln_gval *args[] = {kiln_graph_ref(node_of(a, "x"))};
    kiln_node *made;
    kiln_node_spec spec = {.op = KILN_CALL_METHOD, .args = args, .nargs = 1};
    OK(kiln_graph_str(b, KILN_G_STR, "neg", 3, &spec.target));
    REFUSED(KILN_E_ARG, "node x is of another graph", kiln_graph_add(b, NULL, &spec, &made));
    REFUSED(KILN_E_ARG, "node x is not in the graph", kiln_graph_add(b, node_of(a, "x"), &spec, &made));
    assert_int_equal(kiln_graph_count(b), 1);
    kiln_graph_free(a);
    kiln_graph_free(b);
}

static const char chain[] =
    "x = placeholder x\na = call_method neg(%x)\nb = call_function m:f([%a, (%a, %x)], k=%a)\n"
    "output = output(%b)\n";

static void users_are_counted_once(void **state) {
    (void)state;
    kiln_graph *g = graph_of(chain);
    assert_int_equal(node_of(g, "a")->nusers, 1);
    assert_int_equal(node_of(g, "x")->nusers, 2);
    assert_ptr_equal(node_of(g, "x")->first_user->user, node_of(g, "a"));
    kiln_graph_free(g);
}

static void uses_are_replaced_everywhere(void **state) {
    (void)state;
    kiln_graph *g = graph_of(chain);
    kiln_node *a = node_of(g, "a"), *x = node_of(g, "x");
    const kiln_gval *pair, *items[] = {kiln_graph_ref(a), kiln_graph_none(g)};
    OK(kiln_graph_items(g, KILN_G_TUPLE, items, 2, &pair));
    OK(kiln_graph_replace_uses(a, pair, NULL)); /* holds `a` itself */
    assert_lines(
        g,
        "x = placeholder x\na = call_method neg(%x)\nb = call_function m:f([(%a, None), ((%a, None), %x)], "
        "k=(%a, None))\noutput = output(%b)\n");
    OK(kiln_graph_replace_uses(a, kiln_graph_ref(x), NULL));
    assert_int_equal(a->nusers, 0);
    OK(kiln_graph_erase(a));
    assert_lines(
        g,
        "x = placeholder x\nb = call_function m:f([(%x, None), ((%x, None), %x)], k=(%x, None))\noutput = output(%b)\n");
    OK(kiln_graph_verify(g));
    REFUSED(KILN_E_ARG, "node x is still used by b", kiln_graph_erase(x));
    REFUSED(KILN_E_ARG, "node a is erased already", kiln_graph_erase(a));
    kiln_graph_free(g);
}

static void nodes_are_inserted_and_moved(void **state) {
    (void)state;
    kiln_graph *g = graph_of(chain);
    kiln_node *b = node_of(g, "b"), *made;
    const kiln_gval *args[] = {kiln_graph_ref(node_of(g, "x"))};
    kiln_node_spec spec = {.op = KILN_CALL_METHOD, .args = args, .nargs = 1};
    OK(kiln_graph_str(g, KILN_G_STR, "abs", 3, &spec.target));
    OK(kiln_graph_add(g, b, &spec, &made));
    assert_ptr_equal(made->next, b);
    assert_string_equal(made->name, "abs");
    OK(kiln_graph_replace_uses(node_of(g, "a"), kiln_graph_ref(made), NULL));
    OK(kiln_graph_verify(g));
    kiln_node_move(made, node_of(g, "x"));
    REFUSED(KILN_E_VERIFY, "node abs uses x, which comes later", kiln_graph_verify(g));
    kiln_node_move(made, NULL);
    REFUSED(KILN_E_VERIFY, "node b uses abs, which comes later", kiln_graph_verify(g));
    kiln_node_move(made, b);
    OK(kiln_graph_verify(g));
    kiln_graph_free(g);
}

static void cycles_do_not_verify(void **state) {
    (void)state;
    kiln_graph *g = graph_of(chain);
    kiln_node *a = node_of(g, "a");
    const kiln_gval *args[] = {kiln_graph_ref(node_of(g, "b"))};
    OK(kiln_node_set_args(a, args, 1, NULL, 0));
    REFUSED(KILN_E_VERIFY, "node a uses b, which comes later", kiln_graph_verify(g));
    args[0] = kiln_graph_ref(a);
    OK(kiln_node_set_args(a, args, 1, NULL, 0));
    REFUSED(KILN_E_VERIFY, "node a uses a, which comes later", kiln_graph_verify(g));
    kiln_graph_free(g);
}

static void metadata_is_replaced_and_limited(void **state) {
    (void)state;
    kiln_graph *g = graph_of("x = placeholder x\n");
    kiln_node *x = node_of(g, "x");
    OK(kiln_node_set_meta(x, "val", "f32[2]", 6));
    OK(kiln_node_set_meta(x, "val", "f32[3]", 6));
    assert_string_equal(kiln_node_get_meta(x, "val"), "f32[3]");
    assert_null(kiln_node_get_meta(x, "other"));
    for (int i = 1; i < KILN_GRAPH_MAX_META; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        OK(kiln_node_set_meta(x, key, "", 0));
    }
    REFUSED(KILN_E_LIMIT, "node x has 32 metadata already", kiln_node_set_meta(x, "more", "", 0));
    kiln_graph_free(g);
}

/* -- dead code ---------------------------------------------------------------------------------------- */

static int keep_gone(void *user, const kiln_node *node) { return strcmp(node->name, user) == 0; }

static void dead_code_keeps_what_may_do_more(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        "x = placeholder x\nunused = placeholder unused\nw = get_attr w\n"
        "a = call_function aten::neg.default(%x)\nb = call_function torch:add(%a, %w)\n"
        "c = call_method add_(%x, 1)\nd = call_function aten::rand_like.default(%x)\n"
        "e = call_function torch:dropout(%x, 0.5, True)\nf = call_module m(%x)\n"
        "h = call_function m:unknown(%x)\ni = call_function operator:iadd(%x, 1)\n"
        "j = call_function operator:getitem(%x, 0)\nk = call_method neg(%j)\n"
        "l = call_function torch:add(%x, 1, out=%x)\nm = call_function aten::add.out(%x, %x, out=%x)\n"
        "n = call_function aten::neg.default(%x)\noutput = output(%x)\n");
    kiln_schemas *s;
    size_t erased;
    OK(kiln_schemas_new(&s));
    OK(kiln_graph_dead_code(s, g, keep_gone, "n", &erased));
    assert_int_equal(erased, 5); /* b, then a and w; k, then j */
    assert_lines(
        g, "x = placeholder x\nunused = placeholder unused\nc = call_method add_(%x, 1)\n"
           "d = call_function aten::rand_like.default(%x)\ne = call_function torch:dropout(%x, 0.5, True)\n"
           "f = call_module m(%x)\nh = call_function m:unknown(%x)\ni = call_function operator:iadd(%x, 1)\n"
           "l = call_function torch:add(%x, 1, out=%x)\nm = call_function aten::add.out(%x, %x, out=%x)\n"
           "n = call_function aten::neg.default(%x)\noutput = output(%x)\n");
    OK(kiln_graph_verify(g));
    kiln_schemas_free(s);
    kiln_graph_free(g);
}

/* -- faults ------------------------------------------------------------------------------------------- */

static kiln_status parse_edit_print(char **out) {
    char text[4096];
    snprintf(text, sizeof text, "kg 1\n%s", every_kind);
    kiln_graph *g = NULL;
    kiln_status st = kiln_graph_parse(text, strlen(text), &g);
    if (st == KILN_OK) {
        kiln_node *x = node_of(g, "x"), *w = node_of(g, "w");
        kiln_node_move(w, g->first->next);
        st = kiln_graph_replace_uses(x, kiln_graph_ref(w), NULL);
        kiln_status verified = kiln_graph_verify(g);
        if (st == KILN_OK && verified != KILN_E_NOMEM) assert_int_equal(verified, KILN_OK);
    }
    if (st == KILN_OK) st = kiln_graph_text(g, out);
    kiln_graph_free(g);
    return st;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    char *want, *got = NULL;
    int failures = 0;
    OK(parse_edit_print(&want));
    for (long nth = 1; !got; nth++) {
        kiln_alloc_fail_after(nth);
        kiln_status st = parse_edit_print(&got);
        kiln_alloc_fail_after(0);
        assert_true(st == KILN_OK || st == KILN_E_NOMEM);
        failures += st != KILN_OK;
    }
    assert_string_equal(got, want);
    assert_true(failures > 5);
    kiln_free(want);
    kiln_free(got);
}

static void pictures_show_every_node(void **state) {
    (void)state;
    kiln_graph *g = graph_of(chain);
    char *dot, *svg;
    OK(kiln_graph_dot(g, &dot));
    OK(kiln_graph_svg(g, &svg));
    assert_non_null(strstr(dot, "n1 -> n2;"));
    size_t boxes = 0;
    for (const char *at = svg; (at = strstr(at, "<rect ")); at++) boxes++;
    assert_int_equal(boxes, 4);
    kiln_free(dot);
    kiln_free(svg);
    kiln_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_survives_printing),
        cmocka_unit_test(spacing_and_comments_are_free),
        cmocka_unit_test(numbers_keep_their_bits),
        cmocka_unit_test(every_float_reads_back),
        cmocka_unit_test(malformed_text_is_pointed_at),
        cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(names_are_made_unique),
        cmocka_unit_test(nodes_of_another_graph_are_refused),
        cmocka_unit_test(users_are_counted_once),
        cmocka_unit_test(uses_are_replaced_everywhere),
        cmocka_unit_test(nodes_are_inserted_and_moved),
        cmocka_unit_test(cycles_do_not_verify),
        cmocka_unit_test(metadata_is_replaced_and_limited),
        cmocka_unit_test(dead_code_keeps_what_may_do_more),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(pictures_show_every_node),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
