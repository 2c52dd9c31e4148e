/* test_infer.c - bind, infer, plan and key, against PyTorch's recorded answers and by hand.
 *
 * With a file as argument, checks the calls in it instead of infer_cases.txt. */
#include "base/isa.h"
#include "family/compose_rules.h"
#include "infer_fixture.h"

static const char *cases_path = KILN_SOURCE_DIR "/tests/unit/infer_cases.txt";

/* -- PyTorch's answers --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15u + (h >> 29); }

/* Where buffer o is in the end: of a result computed aside, the tensor it is copied to. */
static int place(const kiln_plan *p, int o) {
    return p->buffer[o].kind == KILN_BUFFER_TMP ? p->axes.nbuffers + o : o;
}

/* The byte offset of buffer o at a point of the broadcast shape. */
static int64_t offset_at(const kiln_plan *p, int o, const int64_t *at) {
    const kiln_buffer *op = &p->buffer[place(p, o)];
    const kiln_tensor *t = kiln_plan_tensor(p, place(p, o));
    bool fresh = op->kind == KILN_BUFFER_RESULT && (!t || p->result[op->which].resized);
    int64_t sum = 0, size = (int64_t)kiln_dtype_size((kiln_dtype)op->dtype);
    for (int d = 0; d < p->shape->rank; d++) {
        int own = fresh ? d : d - (p->shape->rank - t->rank);
        if (own < 0) continue;
        if (fresh)
            sum += at[d] * p->shape->strides[d] * size;
        else if (t->sizes[own] != 1)
            sum += at[d] * t->strides[own] * size;
    }
    return sum;
}

static bool advance(int64_t *at, const int64_t *n, int ndim) {
    for (int d = ndim - 1; d >= 0; d--) {
        if (++at[d] < n[d]) return true;
        at[d] = 0;
    }
    return false;
}

/* Both walks visit the same tuples of elements, in whatever order. */
static void check_walk(const kiln_plan *p) {
    uint64_t logical = 0, planned = 0;
    int64_t at[KILN_MAX_RANK] = {0};
    if (p->shape->nelem == 0) {
        assert_true(p->axes.ndim == 1 && p->n[0] == 0);
        return;
    }
    do {
        uint64_t h = 1;
        for (int o = 0; o < p->axes.nbuffers; o++) h = mix(h, (uint64_t)offset_at(p, o, at));
        logical += h;
    } while (advance(at, p->shape->sizes, p->shape->rank));
    memset(at, 0, sizeof at);
    do {
        uint64_t h = 1;
        for (int o = 0; o < p->axes.nbuffers; o++) {
            int64_t sum = 0;
            for (int d = 0; d < p->axes.ndim; d++) sum += at[d] * p->stride[place(p, o)][d];
            h = mix(h, (uint64_t)sum);
        }
        planned += h;
    } while (advance(at, p->n, p->axes.ndim));
    assert_int_equal(logical, planned);
}

static void check_steps(const kiln_plan *p) {
    for (int o = 0; o < p->axes.nbuffers; o++) {
        int64_t inner = p->stride[place(p, o)][0],
                size = (int64_t)kiln_dtype_size((kiln_dtype)p->buffer[o].dtype);
        assert_int_equal(p->buffer[o].stride, p->axes.strided ? 0 : inner == size ? 1 : 2);
        assert_true(p->axes.strided || inner == size || (inner == 0 && p->buffer[o].kind == KILN_BUFFER_ARG));
    }
}

static bool same_list(const int64_t *a, const int64_t *b, int n) {
    return n == 0 || memcmp(a, b, (size_t)n * 8) == 0;
}

static int nquick; /* conditions that the quick way answered */

static void check_condition(const kiln_call_env *env, const kiln_expr *e) {
    kiln_hval quick, whole;
    if (!e || !kiln_expr_quick(&env->env, e, &quick)) return;
    nquick++;
    kiln_call_env without = *env;
    without.env.look = NULL;
    assert_int_equal(kiln_expr_eval(&without.env, e, &whole), KILN_OK);
    assert_int_equal(quick.kind, whole.kind);
    assert_int_equal(quick.dtype, whole.dtype);
    assert_int_equal(quick.i, whole.i);
    assert_true(quick.f == whole.f || (quick.f != quick.f && whole.f != whole.f));
}

/* Conditions of the row that are answered the quick way are answered so by the whole language. */
static void check_conditions(const kiln_bound *b) {
    const kiln_row *row = b->op->row;
    for (int t = 0; t < 3; t++) {
        kiln_call_env env;
        kiln_call_env_init(&env, b, (kiln_dtype[]){KILN_F32, KILN_I64, KILN_BOOL}[t]);
        for (int k = 0; k < row->nchecks; k++)
            if (!row->checks[k].each && !row->checks[k].counts) check_condition(&env, row->checks[k].cond);
        for (int k = 0; k < row->nbranches; k++) check_condition(&env, row->branches[k].when);
        bool composes = row->family == KILN_FAMILY_COMPOSE;
        for (int k = 0; composes && k < kiln_compose_of(row)->nways; k++)
            check_condition(&env, kiln_compose_of(row)->ways[k].when);
    }
}

/* True if Kiln says what PyTorch said. */
static bool agrees(const call_text *c) {
    kiln_bound bound;
    kiln_plan *p = malloc(sizeof *p);
    kiln_status st = kiln_bind(c->op, c->args, c->nargs, &bound);
    if (st == KILN_OK) check_conditions(&bound);
    if (st == KILN_OK) st = kiln_infer(&bound, p);
    bool ok = (st != KILN_OK) == c->fails;
    if (ok && st == KILN_OK) {
        const kiln_tensor *out = bound.nout && !p->result[0].resized ? bound.out[0] : NULL;
        kiln_dtype dtype = bound.nout ? (kiln_dtype)bound.out[0]->dtype : p->typed.ret_dtype[0];
        ok = dtype == c->dtype && p->shape->rank == c->rank &&
             same_list(p->shape->sizes, c->sizes, c->rank) &&
             same_list(out ? out->strides : p->shape->strides, c->strides, c->rank);
        check_walk(p);
        check_steps(p);
    }
    if (!ok && st == KILN_OK) {
        kiln_sb s;
        kiln_sb_init(&s);
        kiln_plan_print(&s, p);
        print_error("%s", s.p);
        kiln_sb_fini(&s);
    } else if (!ok) {
        print_error("%s\n", kiln_last_error());
    }
    free(p);
    return ok;
}

static void agrees_with_pytorch(void **state) {
    (void)state;
    size_t n;
    char *text = slurp(cases_path, &n), *save = NULL;
    int wrong = 0, count = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save), count++) {
        call_text c;
        char *copy = strdup(line);
        read_call(&c, copy);
        if (!agrees(&c) && wrong++ < 20) print_error("differs: %s\n\n", line);
        free_call(&c);
        free(copy);
    }
    kiln_free(text);
    print_message("%d calls\n", count);
    assert_true(count > 1000);
    assert_true(nquick > 1000);
    assert_int_equal(wrong, 0);
}

/* -- helpers for calls by hand ------------------------------------------------------------------------- */

typedef struct inferred {
    call_text c;
    kiln_bound bound;
    kiln_plan plan;
} inferred;

/* Reads "op args" and infers it.  Release with done(). */
static kiln_status infer(const char *text, inferred *f) {
    char line[512];
    snprintf(line, sizeof line, "%s = E", text);
    memset(&f->c, 0, sizeof f->c);
    read_call(&f->c, line);
    kiln_status st = kiln_bind(f->c.op, f->c.args, f->c.nargs, &f->bound);
    return st == KILN_OK ? kiln_infer(&f->bound, &f->plan) : st;
}

static void infer_ok(const char *text, inferred *f) {
    if (infer(text, f) != KILN_OK) fail_msg("%s: %s", text, kiln_last_error());
}

static void done(inferred *f) { free_call(&f->c); }

static void assert_error(kiln_status got, kiln_status want, const char *text) {
    assert_int_equal(got, want);
    if (!strstr(kiln_last_error(), text)) fail_msg("'%s' is not in '%s'", text, kiln_last_error());
}

static void fails(const char *text, kiln_status want, const char *message) {
    inferred f;
    assert_error(infer(text, &f), want, message);
    done(&f);
}

static kiln_key key_of(const char *text) {
    inferred f;
    kiln_key k = {0};
    infer_ok(text, &f);
    kiln_plan_key(&f.plan, KILN_ISA_GENERIC, &k);
    done(&f);
    return k;
}

static bool same_class(const char *a, const char *b) {
    kiln_key ka = key_of(a), kb = key_of(b);
    return ka.n == kb.n && memcmp(&ka, &kb, sizeof ka) == 0;
}

/* -- bind ---------------------------------------------------------------------------------------------- */

static kiln_status bind(const char *name, const kiln_value *args, size_t n, kiln_bound *b) {
    return kiln_bind(op_of(name), args, n, b);
}

static void bind_refuses(void **state) {
    (void)state;
    kiln_bound b;
    kiln_tensor *x = read_tensor("f32[2](1)@0+0");
    kiln_value t = kiln_v_tensor(x), two = kiln_v_int(2);
    kiln_value c = {.kind = KILN_COMPLEX_V};
    assert_error(bind("add.Tensor", (kiln_value[]){t}, 1, &b), KILN_E_TYPE,
                 "aten::add.Tensor: argument 'other' (Tensor) is missing");
    assert_error(bind("add.Tensor", (kiln_value[]){t, t, two}, 3, &b), KILN_E_TYPE,
                 "'alpha' must be given by name");
    assert_error(bind("neg", (kiln_value[]){t, t}, 2, &b), KILN_E_TYPE,
                 "takes 1 positional argument, but 2 were given");
    assert_error(bind("add.Tensor", (kiln_value[]){t, two}, 2, &b), KILN_E_TYPE,
                 "argument 'other' must be Tensor, not int");
    assert_error(bind("add.Tensor", (kiln_value[]){t, kiln_v_none()}, 2, &b), KILN_E_TYPE,
                 "must be Tensor, not None");
    assert_error(bind("add.Tensor", (kiln_value[]){t, t, kiln_v_named("beta", two)}, 3, &b), KILN_E_TYPE,
                 "no argument 'beta'");
    assert_error(bind("add.Tensor", (kiln_value[]){t, t, kiln_v_named("self", t)}, 3, &b), KILN_E_TYPE,
                 "'self' was given twice");
    assert_error(bind("add.Tensor", (kiln_value[]){kiln_v_named("self", t), t}, 2, &b), KILN_E_TYPE,
                 "follows a named one");
    assert_error(bind("add.Tensor", (kiln_value[]){t, t, kiln_v_named("alpha", t)}, 3, &b), KILN_E_TYPE,
                 "'alpha' must be Scalar, not Tensor");
    assert_int_equal(bind("add.Tensor", (kiln_value[]){t, t, kiln_v_named("alpha", c)}, 3, &b), KILN_OK);
    assert_error(bind("gelu", (kiln_value[]){t, kiln_v_named("approximate", two)}, 2, &b), KILN_E_TYPE,
                 "must be str, not int");
    assert_error(bind("add.out", (kiln_value[]){t, t}, 2, &b), KILN_E_TYPE, "argument 'out'");
    kiln_value mixed[] = {two, t};
    assert_error(bind("test::picky", (kiln_value[]){t, kiln_v_named("pads", kiln_v_list(mixed, 2))}, 2, &b),
                 KILN_E_TYPE, "argument 'pads' must be int[2], but item 1 is Tensor");
    assert_error(bind("test::picky", (kiln_value[]){t, kiln_v_named("flag", two)}, 2, &b), KILN_E_TYPE,
                 "must be bool, not int");
    assert_error(bind("test::picky", (kiln_value[]){t, kiln_v_named("k", kiln_v_float(1))}, 2, &b),
                 KILN_E_TYPE, "must be int, not float");
    kiln_tensor_release(x);
}

/* A tensor that stands for a number promotes as the number does, and not as a tensor of its dtype. */
static void numbers_as_tensors_promote_as_numbers(void **state) {
    (void)state;
    static const struct {
        const char *op, *tensor;
        kiln_value number;
        kiln_dtype promoted, common;
    } rows[] = {
        {"add.Tensor", "u8[]()@0+0", {.kind = KILN_INT_V, .u.i = 300}, KILN_U8, KILN_U8},
        {"div.Tensor", "u8[]()@0+0", {.kind = KILN_INT_V, .u.i = 300}, KILN_U8, KILN_F32},
        {"mul.Tensor", "f16[]()@0+0", {.kind = KILN_FLOAT_V, .u.f = 1e6}, KILN_F16, KILN_F16},
        {"mul.Tensor", "i32[2](1)@0+0", {.kind = KILN_FLOAT_V, .u.f = 0.5}, KILN_F32, KILN_F32},
        {"mul.Tensor", "f64[2](1)@0+0", {.kind = KILN_COMPLEX_V}, KILN_C128, KILN_C128},
        {"mul.Tensor", "u64[2](1)@0+0", {.kind = KILN_UINT_V, .u.i = -1}, KILN_U64, KILN_U64},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        kiln_tensor *x = read_tensor(rows[k].tensor), *n = NULL;
        kiln_bound b;
        kiln_plan p;
        assert_int_equal(kiln_tensor_number(&rows[k].number, &n), KILN_OK);
        kiln_tensor_header header; /* the same in memory of the caller's */
        kiln_tensor *lent;
        assert_int_equal(kiln_tensor_borrow(&header, n->data, (kiln_dtype)n->dtype, 0, NULL, NULL,
                                            KILN_BORROW_NUMBER | KILN_BORROW_READONLY, &lent),
                         KILN_OK);
        kiln_tensor *const numbers[] = {n, lent};
        for (int i = 0; i < 2; i++) {
            kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(numbers[i])};
            assert_int_equal(bind(rows[k].op, args, 2, &b), KILN_OK);
            if (kiln_infer(&b, &p) != KILN_OK) fail_msg("%s", kiln_last_error());
            assert_int_equal(p.typed.promoted, rows[k].promoted);
            assert_int_equal(p.typed.common, rows[k].common);
        }
        kiln_tensor_release(n);
        kiln_tensor_release(x);
    }
}

static void bind_fills_in(void **state) {
    (void)state;
    kiln_bound b;
    kiln_tensor *x = read_tensor("f32[2](1)@0+0"), *y = read_tensor("f32[2](1)@1+0");
    kiln_value t = kiln_v_tensor(x);
    assert_int_equal(bind("add.Tensor", (kiln_value[]){t, kiln_v_named("other", kiln_v_tensor(y))}, 2, &b),
                     KILN_OK);
    assert_ptr_equal(b.arg[1].u.tensor, y);
    assert_null(b.arg[1].name);
    assert_int_equal(b.arg[2].kind, KILN_INT_V);
    assert_int_equal(b.arg[2].u.i, 1);
    assert_int_equal(b.nout, 0);
    assert_int_equal(bind("clamp", (kiln_value[]){t, kiln_v_named("max", kiln_v_int(3))}, 2, &b), KILN_OK);
    assert_int_equal(b.arg[1].kind, KILN_NONE);
    assert_int_equal(b.arg[2].u.i, 3);
    assert_int_equal(bind("add_.Tensor", (kiln_value[]){t, kiln_v_tensor(y)}, 2, &b), KILN_OK);
    assert_ptr_equal(b.arg[0].u.tensor, x);
    assert_ptr_equal(b.out[0], x);
    assert_int_equal(bind("add.out", (kiln_value[]){t, t, kiln_v_named("out", kiln_v_tensor(y))}, 3, &b),
                     KILN_OK);
    assert_ptr_equal(b.out[0], y);
    assert_int_equal(bind("test::picky", &t, 1, &b), KILN_OK); /* str="a", int[2]=0, float=1, bool, int=3 */
    assert_string_equal(b.arg[1].u.s, "a");
    assert_int_equal(b.arg[2].n, 2);
    assert_int_equal(b.arg[2].u.list[1].u.i, 0);
    assert_int_equal(b.arg[3].kind, KILN_FLOAT_V);
    assert_true(b.arg[3].u.f == 1.0);
    assert_int_equal(b.arg[4].kind, KILN_BOOL_V);
    kiln_value pads = kiln_v_named("pads", kiln_v_int(7)), eps = kiln_v_named("eps", kiln_v_int(2));
    assert_int_equal(bind("test::picky", (kiln_value[]){t, pads, eps}, 3, &b), KILN_OK);
    assert_int_equal(b.arg[2].u.list[1].u.i, 7);
    assert_true(b.arg[3].kind == KILN_FLOAT_V && b.arg[3].u.f == 2.0);
    kiln_value truth[] = {kiln_v_bool(1), kiln_v_int(5)}; /* a converted list lives in the bound call */
    pads = kiln_v_named("pads", kiln_v_list(truth, 2));
    assert_int_equal(bind("test::picky", (kiln_value[]){t, pads, kiln_v_named("k", kiln_v_bool(1))}, 3, &b),
                     KILN_OK);
    assert_true(b.arg[2].u.list != truth && b.arg[2].u.list[0].kind == KILN_INT_V &&
                b.arg[2].u.list[0].u.i == 1);
    assert_true(b.arg[5].kind == KILN_INT_V && b.arg[5].u.i == 1);
    kiln_tensor_release(x);
    kiln_tensor_release(y);
}

/* -- infer by hand: messages, and what PyTorch cannot say ---------------------------------------------- */

static void infer_refuses(void **state) {
    (void)state;
    fails("add.Tensor f32[2,3](3,1)@0+0 f32[4](1)@1+0", KILN_E_ARG,
          "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1");
    fails("silu i64[2](1)@0+0", KILN_E_UNSUP,
          "\"silu\" not implemented for 'i64'; it takes f16, bf16, f32, f64, c64, c128");
    fails("where.self f32[2](1)@0+0 f32[2](1)@1+0 f32[2](1)@2+0", KILN_E_ARG,
          "expected argument 'condition' to have dtype bool, u8, but got f32");
    fails("add_.Tensor i64[2](1)@0+0 f32[2](1)@1+0", KILN_E_ARG,
          "result type f32 can't be cast to the desired output type i64");
    fails("add_.Tensor f32[3](1)@0+0 f32[2,3](3,1)@1+0", KILN_E_ARG,
          "argument 'self': output with shape [3] doesn't match the broadcast shape [2, 3]");
    fails("neg.out f32[3](1)@0+0 f64[3](1)@1+0", KILN_E_ARG, "found dtype f64 but expected f32");
    fails("add.out f32[3](1)@0+0 f32[3](1)@1+0 f32[2](1)@2+0", KILN_E_ARG, "its memory is not Kiln's own");
    fails("add.out f32[3](1)@0+0 f32[3](1)@1+0 f32[3](0)@2+0", KILN_E_ARG, "more than one element");
    fails("add.out f32[3](1)@0+0 f32[3](1)@1+0 f32[3](1)@0+1", KILN_E_ARG,
          "some elements of the input tensor");
    fails("clamp f32[3](1)@0+0 - -", KILN_E_ARG, "At least one of 'min' or 'max' must not be None");
    fails("frexp.Tensor_out f32[3](1)@0+0 f32[3](1)@1+0 i32[3](1)@1+0", KILN_E_TYPE, "positional");
    fails("add.Tensor f64[2147483648,1](0,0)@0+0 f64[1,2147483648](0,0)@1+0", KILN_E_LIMIT, "2^62");
    fails("add.Tensor f64[4294967297,1](0,0)@0+0 f64[1,4294967297](0,0)@1+0", KILN_E_LIMIT,
          "2^62"); /* 2^33 + 1 in 64 bits */
}

static void no_case_of_the_row(void **state) {
    (void)state;
    kiln_bound b;
    kiln_plan *p = malloc(sizeof *p);
    kiln_tensor *x = read_tensor("f32[2](1)@0+0");
    kiln_value args[] = {kiln_v_tensor(x), kiln_v_str("zz")};
    assert_int_equal(bind("test::picky", args, 2, &b), KILN_OK);
    assert_error(kiln_infer(&b, p), KILN_E_ARG,
                 "test::picky: argument 'mode': unexpected \"zz\"; expected one of: ");
    kiln_tensor_release(x);
    free(p);
}

static void read_only_is_not_written(void **state) {
    (void)state;
    kiln_bound b;
    kiln_plan *p = malloc(sizeof *p);
    kiln_tensor *x = read_tensor("f32[2](1)@0+0");
    kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(x)};
    kiln_tensor_set_readonly(x);
    assert_int_equal(bind("add_.Tensor", args, 2, &b), KILN_OK);
    assert_error(kiln_infer(&b, p), KILN_E_ARG, "argument 'self': the tensor is read-only");
    assert_int_equal(bind("add.Tensor", args, 2, &b), KILN_OK);
    assert_int_equal(kiln_infer(&b, p), KILN_OK);
    kiln_tensor_release(x);
    free(p);
}

static void two_outputs_may_not_share(void **state) {
    (void)state;
    kiln_bound b;
    kiln_plan *p = malloc(sizeof *p);
    kiln_tensor *x = read_tensor("f32[2](1)@0+0"), *m = read_tensor("f32[2](1)@1+0"),
                *e = read_tensor("i32[2](1)@1+1"), *ok = read_tensor("i32[2](1)@2+0"),
                *wide = read_tensor("i64[2](1)@2+0");
    kiln_value args[] = {kiln_v_tensor(x), kiln_v_named("mantissa", kiln_v_tensor(m)),
                         kiln_v_named("exponent", kiln_v_tensor(e))};
    assert_int_equal(bind("frexp.Tensor_out", args, 3, &b), KILN_OK);
    assert_error(kiln_infer(&b, p), KILN_E_ARG,
                 "argument 'exponent': unsupported operation: two outputs share memory");
    args[2].u.tensor = wide;
    assert_int_equal(bind("frexp.Tensor_out", args, 3, &b), KILN_OK);
    assert_error(kiln_infer(&b, p), KILN_E_ARG, "argument 'exponent': found dtype i64 but expected i32");
    args[2].u.tensor = ok;
    assert_int_equal(bind("frexp.Tensor_out", args, 3, &b), KILN_OK);
    assert_int_equal(kiln_infer(&b, p), KILN_OK);
    assert_int_equal(p->axes.nbuffers, 3);
    assert_int_equal(p->buffer[1].dtype, KILN_I32);
    for (kiln_tensor **t = (kiln_tensor *[]){x, m, e, ok, wide, NULL}; *t; t++) kiln_tensor_release(*t);
    free(p);
}

/* As PyTorch has them where it runs several iterators, or ones of another order. */
static void strides_come_from_several_iterators(void **state) {
    (void)state;
    static const char *const calls[] = {
        "test::finite c64[1,5,1,1](10,2,10,10)@0+0 = bool[1,5,1,1](5,1,1,1)", /* isfinite */
        "test::scaled c128[2,0,1](1,1,99)@0+0 f32[2,0,1](1,1,99)@1+0 f2 = c128[2,0,1](0,1,0)",
        "test::power f64[2,3](1,2)@0+0 f64[3](1)@1+0 = f64[2,3](1,2)",
        "test::power f64[3](1)@0+0 f64[2,3](1,2)@1+0 = f64[2,3](3,1)", /* a row-major copy of other */
        "test::power f32[2,3](3,1)@0+0 f32[2,3](1,2)@1+0 = f32[2,3](1,2)",
        "where.self u8[5,7](0,1)@0+0 f32[5,7](1,5)@1+0 f32[5,7](7,1)@2+0 = f32[5,7](7,1)",
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        call_text c;
        char *copy = strdup(calls[i]);
        read_call(&c, copy);
        if (!agrees(&c)) fail_msg("%s", calls[i]);
        free_call(&c);
        free(copy);
    }
}

static void negative_strides_are_walked(void **state) {
    (void)state;
    static const char *const calls[] = {
        "add.Tensor f32[4](-1)@0+50 f32[4](1)@1+0",
        "add.Tensor f32[4,3](-3,1)@0+50 f32[4,3](3,-1)@1+50",
        "add.Tensor f32[4,3](-1,-4)@0+50 f32[3](-2)@1+50",
        "add_.Tensor f32[4,3](-3,-1)@0+50 f32[4,1](-1,5)@1+50",
        "where.self bool[2,3,4](-12,4,-1)@0+50 f32[3,1](-1,7)@1+50 f64[4](2)@2+0",
        "neg f32[2,3,4](-1,2,-6)@0+50",
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        inferred f;
        infer_ok(calls[i], &f);
        check_walk(&f.plan);
        check_steps(&f.plan);
        for (int d = 0; d < f.plan.shape->rank; d++) assert_true(f.plan.shape->strides[d] > 0);
        done(&f);
    }
}

static void plans(void **state) {
    (void)state;
    inferred f;
    infer_ok("add.Tensor f32[4,5,6](30,6,1)@0+0 f32[5,6](6,1)@1+0", &f);
    assert_int_equal(f.plan.axes.ndim, 2);
    assert_true(f.plan.n[0] == 30 && f.plan.n[1] == 4 && !f.plan.axes.strided);
    assert_true(f.plan.stride[2][0] == 4 && f.plan.stride[2][1] == 0 && f.plan.stride[0][1] == 120);
    assert_int_equal(f.plan.buffer[2].stride, 1);
    done(&f);
    infer_ok("add.Tensor f32[4,5](5,1)@0+0 f64[4,1](1,1)@1+0", &f);
    assert_int_equal(f.plan.typed.common, KILN_F64);
    assert_int_equal(f.plan.buffer[2].stride, 2);
    assert_true(f.plan.stride[2][0] == 0 && f.plan.stride[2][1] == 8);
    done(&f);
    infer_ok("add.Tensor f32[4](1)@0+0 f64[]()@1+0", &f);
    assert_int_equal(f.plan.typed.common, KILN_F32);
    assert_int_equal(f.plan.buffer[2].dtype, KILN_F64);
    done(&f);
    infer_ok("add.out f32[4](1)@0+0 f32[4](1)@1+0 f64[7,7](7,1)!", &f);
    assert_true(f.plan.result[0].resized);
    assert_int_equal(f.plan.buffer[0].dtype, KILN_F64);
    assert_int_equal(f.plan.typed.ret_dtype[0], KILN_F32);
    assert_int_equal(f.plan.stride[0][0], 8);
    assert_int_equal(f.bound.out[0]->rank, 2); /* infer changes no tensor */
    done(&f);
    infer_ok("clamp.Tensor f32[4](1)@0+0 - f32[4](1)@1+0", &f);
    assert_int_equal(f.plan.axes.nbuffers, 3);
    assert_int_equal(f.plan.buffer[2].which, 2);
    done(&f);
}

/* -- keys ---------------------------------------------------------------------------------------------- */

static void equal_code_equal_key(void **state) {
    (void)state;
    const char *add = "add.Tensor f32[8](1)@0+0 f32[8](1)@1+0";
    assert_true(same_class(add, "add.Tensor f32[4,5](5,1)@0+1 f32[4,5](5,1)@1+3")); /* size, rank, address */
    assert_true(same_class(add, "add.Tensor f32[4,5](1,4)@0+0 f32[4,5](1,4)@1+0")); /* transposed alike */
    assert_true(
        same_class(add, "add.Tensor f32[4,5,6](30,6,1)@0+0 f32[5,6](6,1)@1+0")); /* broadcast outside only */
    assert_true(same_class(add, "add_.Tensor f32[8](1)@0+0 f32[8](1)@1+0"));     /* the form */
    assert_true(same_class(add, "add.out f32[8](1)@0+0 f32[8](1)@1+0 f32[8](1)@2+0"));
    assert_true(same_class("add.Scalar f32[8](1)@0+0 i2", "add.Scalar f32[3](1)@0+0 i7")); /* values */
    assert_true(
        same_class("add.Scalar f32[8](1)@0+0 i2", "add.Scalar f32[8](1)@0+0 f2.5")); /* kinds: all is f32 */
    assert_true(same_class("add.Tensor f32[4,5](5,2)@0+0 f32[4,5](5,1)@1+0",
                           "add.Tensor f32[4,5](5,1)@0+0 f32[4,5](9,3)@1+0")); /* all strided calls are one */
}

static void other_code_other_key(void **state) {
    (void)state;
    const char *add = "add.Tensor f32[8](1)@0+0 f32[8](1)@1+0";
    assert_false(same_class(add, "mul.Tensor f32[8](1)@0+0 f32[8](1)@1+0"));
    assert_false(same_class(add, "add.Tensor f64[8](1)@0+0 f32[8](1)@1+0"));
    assert_false(same_class(add, "add.Tensor f32[8](1)@0+0 f64[8](1)@1+0"));
    assert_false(same_class(add, "add.Tensor f32[8](1)@0+0 f32[1](1)@1+0"));
    assert_false(same_class(add, "add.Tensor f32[8](2)@0+0 f32[8](1)@1+0"));
    assert_false(same_class(add, "add.out f32[8](1)@0+0 f32[8](1)@1+0 f64[8](1)@2+0")); /* stored as f64 */
    /* equal dtypes, other promotion */
    assert_false(
        same_class("add.Tensor f32[8](1)@0+0 f64[]()@1+0", "add.Tensor f32[8](1)@0+0 f64[1](1)@1+0"));
    assert_false(same_class("add.Scalar i32[8](1)@0+0 i2", "add.Scalar i32[8](1)@0+0 f2.5"));
    /* optionals by position, not by count */
    assert_false(same_class("clamp.Tensor f32[8](1)@0+0 - f32[8](1)@1+0",
                            "clamp.Tensor f32[8](1)@0+0 f32[8](1)@1+0 -"));
    assert_false(same_class("clamp f32[8](1)@0+0 - i1", "clamp f32[8](1)@0+0 i1 -"));
    kiln_key a = {0}, b = {0};
    inferred f;
    infer_ok(add, &f);
    kiln_plan_key(&f.plan, KILN_ISA_GENERIC, &a);
    kiln_plan_key(&f.plan, (kiln_isa)(KILN_ISA_GENERIC + 1), &b);
    assert_memory_not_equal(&a, &b, sizeof a);
    done(&f);
}

static void static_values_are_in_the_key(void **state) {
    (void)state;
    kiln_tensor *x = read_tensor("f32[2](1)@0+0");
    kiln_plan *p = malloc(sizeof *p);
    kiln_key keys[5];
    memset(keys, 0, sizeof keys);
    kiln_value many[300];
    for (int i = 0; i < 300; i++) many[i] = kiln_v_int(i);
    for (int i = 0; i < 5; i++) {
        kiln_bound b;
        kiln_value args[] = {kiln_v_tensor(x), kiln_v_named("k", kiln_v_int(3 + (i == 1))),
                             kiln_v_named("eps", kiln_v_float(i)), /* not static */
                             kiln_v_named("pads", i >= 3 ? kiln_v_list(many, 300) : kiln_v_int(0))};
        if (i == 4) many[299] = kiln_v_int(7); /* too long to be kept whole, still told apart */
        assert_int_equal(bind("test::picky", args, 4, &b), KILN_OK);
        assert_int_equal(kiln_infer(&b, p), KILN_OK);
        kiln_plan_key(p, KILN_ISA_GENERIC, &keys[i]);
    }
    assert_memory_not_equal(&keys[0], &keys[1], sizeof(kiln_key));
    assert_memory_equal(&keys[0], &keys[2], sizeof(kiln_key));
    assert_memory_not_equal(&keys[2], &keys[3], sizeof(kiln_key));
    assert_memory_not_equal(&keys[3], &keys[4], sizeof(kiln_key));
    kiln_tensor_release(x);
    free(p);
}

/* Items that may be absent count one by one and by their place; other tensors, and the length, do not. */
static void given_items_are_in_the_key(void **state) {
    (void)state;
    enum { FIRST = 1, SECOND = 2, LAST = 4, OTHER = 8, SHORT = 16, LONG = 32, WHICH = FIRST | SECOND | LAST };
    static const int cases[] = {0,    FIRST,         SECOND,        FIRST | SECOND,
                                LAST, FIRST | OTHER, FIRST | SHORT, FIRST | LONG};
    enum { NCASES = sizeof cases / sizeof *cases };
    kiln_tensor *x = read_tensor("f32[2](1)@0+0"), *y = read_tensor("f64[5](1)@1+0");
    kiln_plan *p = malloc(sizeof *p);
    kiln_key keys[NCASES + 1];
    memset(keys, 0, sizeof keys);
    for (int i = 0; i <= NCASES; i++) {
        int c = i < NCASES ? cases[i] : LAST | LONG;
        kiln_value items[200] = {0}, t = kiln_v_tensor(c & OTHER ? y : x);
        kiln_bound b;
        if (c & FIRST) items[0] = t;
        if (c & SECOND) items[1] = t;
        if (c & LAST) items[c & LONG ? 130 : 2] = t;
        kiln_value args[] = {kiln_v_tensor(x), kiln_v_list(items, c & SHORT ? 1 : c & LONG ? 200 : 3)};
        assert_int_equal(bind("test::pick", args, 2, &b), KILN_OK);
        assert_int_equal(kiln_infer(&b, p), KILN_OK);
        kiln_plan_key(p, KILN_ISA_GENERIC, &keys[i]);
        for (int j = 0; j < i; j++) {
            bool same = i < NCASES && (c & WHICH) == (cases[j] & WHICH);
            if (same != (memcmp(&keys[i], &keys[j], sizeof *keys) == 0)) fail_msg("calls %d and %d", i, j);
        }
    }
    kiln_tensor_release(x);
    kiln_tensor_release(y);
    free(p);
}

/* The same of lists that are longer than a key. */
static void given_items_of_long_lists_are_in_the_key(void **state) {
    (void)state;
    enum { N = 700, NCASES = 5 };
    static const int given[NCASES][2] = {{0, N - 1}, {0, N - 2}, {1, N - 1}, {0, 300}, {0, N - 1}};
    kiln_tensor *x = read_tensor("f32[2](1)@0+0");
    kiln_plan *p = malloc(sizeof *p);
    kiln_key keys[NCASES];
    for (int i = 0; i < NCASES; i++) {
        kiln_value items[N] = {0};
        kiln_bound b;
        for (int k = 0; k < 2; k++) items[given[i][k]] = kiln_v_tensor(x);
        kiln_value args[] = {kiln_v_tensor(x), kiln_v_list(items, N)};
        assert_int_equal(bind("test::pick", args, 2, &b), KILN_OK);
        assert_int_equal(kiln_infer(&b, p), KILN_OK);
        kiln_plan_key(p, KILN_ISA_GENERIC, &keys[i]);
        for (int j = 0; j < i; j++) {
            bool same = keys[i].n == keys[j].n && memcmp(keys[i].bytes, keys[j].bytes, keys[i].n) == 0;
            if (same != (i == NCASES - 1 && j == 0)) fail_msg("calls %d and %d", i, j);
        }
    }
    kiln_tensor_release(x);
    free(p);
}

/* -- numbers ------------------------------------------------------------------------------------------- */

/* Of a call whose types were not inferred. */
static kiln_status scalar_to(const kiln_bound *call, int arg, int index, kiln_dtype t, uint64_t *out) {
    static kiln_plan plan;
    plan.call = call;
    plan.branch = call->op->row->branches;
    plan.typed.common = KILN_DTYPE_COUNT;
    return kiln_plan_scalar(&plan, &(kiln_scalar_source){(int16_t)arg, (int16_t)index, t, t, 0}, out);
}

static kiln_status alpha_to(kiln_value alpha, kiln_dtype t, uint64_t *out) {
    kiln_bound b;
    kiln_tensor *x = read_tensor("f32[2](1)@0+0");
    kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(x), kiln_v_named("alpha", alpha)};
    assert_int_equal(bind("add.Tensor", args, 3, &b), KILN_OK);
    kiln_status st = scalar_to(&b, 2, -1, t, out);
    kiln_tensor_release(x);
    return st;
}

static void numbers_fit_or_fail(void **state) {
    (void)state;
    uint64_t bits;
    float f;
    double d;
    assert_int_equal(alpha_to(kiln_v_float(0.1), KILN_F32, &bits), KILN_OK);
    memcpy(&f, &bits, 4);
    assert_true(f == 0.1f && bits >> 32 == 0);
    assert_int_equal(alpha_to(kiln_v_float(-0.0), KILN_F64, &bits), KILN_OK);
    assert_true(bits == 1ull << 63);
    assert_int_equal(alpha_to(kiln_v_int(INT64_MIN), KILN_I64, &bits), KILN_OK);
    assert_true(bits == 1ull << 63);
    assert_int_equal(alpha_to(kiln_v_int(16777217), KILN_F32, &bits), KILN_OK);
    assert_int_equal(alpha_to(kiln_v_int((1ll << 53) + 1), KILN_F64, &bits), KILN_OK);
    memcpy(&d, &bits, 8);
    assert_true(d == 0x1p53);
    assert_int_equal(alpha_to(kiln_v_float(1e300), KILN_F64, &bits), KILN_OK);
    assert_error(alpha_to(kiln_v_float(1e300), KILN_F32, &bits), KILN_E_ARG,
                 "argument 'alpha': value cannot be converted to type f32 without overflow");
    assert_error(alpha_to(kiln_v_int(300), KILN_U8, &bits), KILN_E_ARG, "u8");
    assert_error(alpha_to(kiln_v_int(-256), KILN_U8, &bits), KILN_E_ARG, "u8");
    assert_int_equal(alpha_to(kiln_v_int(-255), KILN_U8, &bits), KILN_OK); /* as PyTorch: wraps */
    assert_int_equal(bits, 1);
    assert_int_equal(alpha_to(kiln_v_int(-128), KILN_I8, &bits), KILN_OK);
    assert_int_equal(bits, 0x80);
    assert_error(alpha_to(kiln_v_int(-129), KILN_I8, &bits), KILN_E_ARG, "i8");
    assert_int_equal(alpha_to(kiln_v_float(-1.0 / 0.0), KILN_F32, &bits), KILN_OK);
    assert_error(alpha_to(kiln_v_float(1.0 / 0.0), KILN_I64, &bits), KILN_E_ARG, "i64");
    assert_error(alpha_to(kiln_v_float(0.0 / 0.0), KILN_I32, &bits), KILN_E_ARG, "i32");
    assert_int_equal(alpha_to(kiln_v_float(0.5), KILN_BOOL, &bits), KILN_OK);
    assert_int_equal(bits, 1);
    assert_error(alpha_to(kiln_v_float(70000), KILN_F16, &bits), KILN_E_ARG, "f16");
}

static void promoted_numbers_convert_like_elements(void **state) {
    (void)state;
    inferred f;
    uint64_t bits;
    infer_ok("mul.Scalar u8[2](1)@0+0 i300", &f);
    assert_int_equal(kiln_plan_scalar(&f.plan, &(kiln_scalar_source){1, -1, KILN_U8, KILN_U8, 0}, &bits),
                     KILN_OK);
    assert_int_equal(bits, 44);
    done(&f);
    infer_ok("mul.Scalar f32[2](1)@0+0 f1e300", &f);
    assert_int_equal(kiln_plan_scalar(&f.plan, &(kiln_scalar_source){1, -1, KILN_F32, KILN_F32, 0}, &bits),
                     KILN_OK);
    assert_int_equal(bits, 0x7f800000);
    done(&f);
    infer_ok("clamp u8[2](1)@0+0 - i300", &f);
    assert_error(kiln_plan_scalar(&f.plan, &(kiln_scalar_source){2, -1, KILN_U8, KILN_U8, 0}, &bits),
                 KILN_E_ARG, "argument 'max'");
    done(&f);
}

static void host_numbers(void **state) {
    (void)state;
    kiln_bound b;
    kiln_plan *p = malloc(sizeof *p);
    kiln_tensor *x = read_tensor("f32[1,9,7](63,7,1)@0+0");
    kiln_value two[] = {kiln_v_int(5), kiln_v_int(3)}, args[] = {kiln_v_tensor(x), kiln_v_list(two, 2)};
    uint64_t bits;
    assert_int_equal(bind("test::rows", args, 2, &b), KILN_OK);
    assert_int_equal(scalar_to(&b, KILN_HOST_ID, -1, KILN_I64, &bits), KILN_OK);
    assert_int_equal(bits, 9);
    assert_int_equal(scalar_to(&b, KILN_HOST_ID + 1, -1, KILN_I64, &bits), KILN_OK);
    assert_int_equal(bits, 6);
    assert_int_equal(scalar_to(&b, 1, 0, KILN_I64, &bits), KILN_OK);
    assert_int_equal(bits, 5);
    assert_error(scalar_to(&b, 1, 2, KILN_I64, &bits), KILN_E_INDEX, "argument 'k' has no item 2");
    assert_error(kiln_infer(&b, p), KILN_E_UNSUP, "family 'index'");
    kiln_tensor_release(x);
    free(p);
}

/* -- printing ------------------------------------------------------------------------------------------ */

static void assert_prints(kiln_sb *s, const char *want) {
    assert_false(s->failed);
    assert_string_equal(s->p, want);
    kiln_sb_fini(s);
    kiln_sb_init(s);
}

static void prints(void **state) {
    (void)state;
    inferred f;
    kiln_key key;
    kiln_sb s;
    kiln_sb_init(&s);
    infer_ok("clamp.Tensor f32[2,3](1,2)@0+0 - i64[]()@1+0", &f);
    kiln_bound_print(&s, &f.bound);
    assert_prints(&s, "operator: aten::clamp.Tensor\nform: functional\n"
                      "self: f32[2, 3]:strides=(1, 2)\nmin: None\nmax: i64[]\n");
    kiln_plan_print(&s, &f.plan);
    assert_prints(&s, "operator: aten::clamp.Tensor\nbranch: 2\nkind: kernel\ncommon: f32\nshape: [2, 3]\n"
                      "result 0: f32[2, 3] strides (1, 2), new\naxes: grid 6\nbuffers:\n"
                      "  result 0: f32 contig, byte strides [4]\n  self: f32 contig, byte strides [4]\n"
                      "  max: i64 bcast, byte strides [0]\nsteps:\n  launch\n");
    kiln_plan_key(&f.plan, KILN_ISA_GENERIC, &key);
    kiln_key_print(&s, &f.plan, &key, "cpu generic");
    assert_non_null(strstr(s.p, "operator: aten::clamp.Tensor\n"));
    assert_non_null(strstr(s.p,
                           "\noptionals: max\nitems: none\nexact: none\ncommon: f32\nresults: f32\n"
                           "operands: result 0 f32 contig, self f32 contig, max i64 bcast\nstatics: none\n"));
    kiln_sb_fini(&s);
    done(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_pytorch),
        cmocka_unit_test(bind_refuses),
        cmocka_unit_test(bind_fills_in),
        cmocka_unit_test(numbers_as_tensors_promote_as_numbers),
        cmocka_unit_test(infer_refuses),
        cmocka_unit_test(no_case_of_the_row),
        cmocka_unit_test(read_only_is_not_written),
        cmocka_unit_test(two_outputs_may_not_share),
        cmocka_unit_test(strides_come_from_several_iterators),
        cmocka_unit_test(negative_strides_are_walked),
        cmocka_unit_test(plans),
        cmocka_unit_test(equal_code_equal_key),
        cmocka_unit_test(other_code_other_key),
        cmocka_unit_test(static_values_are_in_the_key),
        cmocka_unit_test(given_items_are_in_the_key),
        cmocka_unit_test(given_items_of_long_lists_are_in_the_key),
        cmocka_unit_test(numbers_fit_or_fail),
        cmocka_unit_test(promoted_numbers_convert_like_elements),
        cmocka_unit_test(host_numbers),
        cmocka_unit_test(prints),
    };
    if (argc > 1) cases_path = argv[1];
    return cmocka_run_group_tests(tests, open_registry, close_registry);
}
