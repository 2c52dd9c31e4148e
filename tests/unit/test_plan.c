/* test_plan.c - works made by hand: steps and axes that no family makes yet print and run.
 *
 * A gather, whose places are computed and may be refused before anything is written, and a work of two launches with a
 * temporary between them.  What runs them knows axes, buffers and steps alone. */
#include "call_cases.h"
#include "infer/infer_parts.h"
#include "ir/ir.h"
#include "run/steps.h"

typedef struct made {
    kiln_arena arena;
    kiln_ir *ir;
    kiln_interp *interp;
    kiln_bound call;
    kiln_plan plan;
    kiln_nests nests;
    kiln_runner run;
} made;

static void begin(made *m, const char *text, const char *op) {
    memset(m, 0, sizeof *m);
    kiln_arena_init(&m->arena);
    MUST_OK(kiln_ir_parse(&m->arena, text, strlen(text), &m->ir));
    MUST_OK(kiln_interp_new(m->ir, KILN_ISA_GENERIC, &m->interp));
    MUST_OK(kiln_registry_find_row(kiln_registry_shipped(), op, &m->call.op));
    m->plan.call = &m->call;
    m->nests = (kiln_nests){
        .n = (uint16_t)m->ir->nnests, .ntraps = (uint16_t)m->ir->ntraps, .traps = m->ir->traps};
    m->run = (kiln_runner){.interp = m->interp};
}

static void end(made *m) {
    kiln_interp_free(m->interp);
    kiln_arena_free(&m->arena);
}

/* The tables of a work of one result of one dimension, whose axes have these extents. */
static void begin_work(made *m, int ndim, const int64_t *n, int nbuffers, int nsteps) {
    kiln_plan *p = &m->plan;
    kiln_work *w = &p->work;
    p->typed = (kiln_typed){.nrets = 1, .common = KILN_F32, .ret_dtype = {KILN_F32}};
    kiln_plan_begin(p, 1);
    kiln_plan_shape(p, &p->shape[0], 1);
    p->shape[0].nelem = p->shape[0].sizes[0] = n[0];
    p->shape[0].strides[0] = 1;
    p->result[0] = (kiln_result){.shape = 0};
    p->buffer = kiln_work_take(w, kiln_work_words_of((unsigned)nbuffers, sizeof *p->buffer), &w->buffer);
    p->step = kiln_work_take(w, kiln_work_words_of((unsigned)nsteps, sizeof *p->step), &w->step);
    p->n = kiln_work_take(w, (unsigned)ndim, &w->n);
    for (int d = 0; d < ndim; d++) {
        p->n[d] = n[d];
        p->role[d] = d ? KILN_ROLE_COMPUTED : KILN_ROLE_GRID;
    }
    (void)kiln_work_take(w, (unsigned)(ndim * nbuffers), &w->stride);
    w->nbuffers = (uint8_t)nbuffers;
    p->axes = (kiln_axes_counts){.ndim = ndim,
                                 .ngrid = 1,
                                 .nbuffers = nbuffers,
                                 .nwritten = 1,
                                 .pitch = ndim,
                                 .npoints = n[0],
                                 .nelem = n[0]};
}

static void set_buffer(made *m, int b, kiln_buffer buffer, const int64_t *stride) {
    kiln_plan *p = &m->plan;
    p->buffer[b] = buffer;
    p->bytes[b] = (uint8_t)kiln_dtype_size((kiln_dtype)buffer.dtype);
    memcpy(p->words + p->work.stride + b * p->axes.pitch, stride, (size_t)p->axes.ndim * sizeof *stride);
}

static kiln_status run(made *m, kiln_tensor *x, kiln_tensor *index, kiln_tensor **out) {
    const kiln_value args[] = {TEN(x), INT(0), TEN(index)};
    const kiln_given given = {m->call.op->name, args, NULL, NULL};
    return kiln_steps_run(&m->plan.work, &m->nests, &m->run, &given, out);
}

static void assert_prints(const made *m, const char *want) {
    kiln_sb s;
    kiln_sb_init(&s);
    kiln_plan_print(&s, &m->plan);
    assert_string_equal(s.p, want);
    kiln_sb_fini(&s);
}

/* -- a gather ------------------------------------------------------------------------------------------------- */

static const char gather_ir[] =
    "kernel \"gather\" {\n"
    "  axis p grid\n  axis g\n"
    "  buf out out f32 (p) any\n  buf self in f32 (g) any\n  buf index in i64 (p) any\n"
    "  for p vec {\n"
    "    %0 = load index\n    %1 = extent g\n    %2 = ge %0, %1\n"
    "    trap %2, E_INDEX \"index out of range\"\n"
    "  }\n"
    "  for p vec {\n"
    "    %3 = load index\n    %4 = load self [g = %3]\n    store out, %4\n"
    "  }\n"
    "}\n";

static void make_gather(made *m, const kiln_tensor *x, const kiln_tensor *index) {
    kiln_plan *p = &m->plan;
    begin(m, gather_ir, "gather");
    m->nests.nguards = 1;
    begin_work(m, 2, (int64_t[]){index->nelem, x->nelem}, 3, 1);
    set_buffer(m, 0, (kiln_buffer){.kind = KILN_BUFFER_RESULT, .dtype = KILN_F32}, (int64_t[]){4, 0});
    set_buffer(m, 1, (kiln_buffer){.kind = KILN_BUFFER_ARG, .which = 0, .dtype = KILN_F32},
               (int64_t[]){0, 4});
    set_buffer(m, 2, (kiln_buffer){.kind = KILN_BUFFER_ARG, .which = 2, .dtype = KILN_I64},
               (int64_t[]){8, 0});
    (void)kiln_plan_step(p, KILN_STEP_LAUNCH);
    kiln_plan_end(p);
}

static void a_gather(void **state) {
    (void)state;
    static made m;
    kiln_tensor *x = F32(SIZES(4), 10, 20, 30, 40), *index = new_tensor(KILN_I64, SIZES(3), NULL),
                *out = NULL;
    int64_t *at = kiln_tensor_data(index);
    at[0] = 3, at[1] = 0, at[2] = 3;
    make_gather(&m, x, index);
    assert_prints(&m, "operator: aten::gather\nbranch: 0\nkind: kernel\ncommon: f32\nshape: [3]\n"
                      "result 0: f32[3] strides (1), new\naxes: grid 3, computed 4\nbuffers:\n"
                      "  result 0: f32 any, byte strides [4, 0]\n  self: f32 any, byte strides [0, 4]\n"
                      "  index: i64 any, byte strides [8, 0]\nsteps:\n  launch\n");
    MUST_OK(run(&m, x, index, &out));
    const float *y = kiln_tensor_data(out);
    assert_true(y[0] == 40 && y[1] == 10 && y[2] == 40);
    kiln_tensor_release(out);
    out = NULL;
    at[1] = 4;
    assert_int_equal(run(&m, x, index, &out), KILN_E_INDEX);
    assert_non_null(strstr(kiln_last_error(), "aten::gather: index out of range"));
    assert_null(out); /* refused before there was a result */
    end(&m);
    drop_args(ARGS(TEN(x), TEN(index)));
}

/* -- two launches --------------------------------------------------------------------------------------------- */

/* t = 2 x, then y[i] = t[n - 1 - i]: the second nest needs all of the first. */
static const char two_ir[] =
    "kernel \"two\" {\n"
    "  axis p grid\n  axis g\n"
    "  buf y out f32 (p) any\n  buf x in f32 (p) any\n  buf t tmp f32 (p) any\n"
    "  buf u tmp f32 (g) any\n  buf back in i64 (p) any\n"
    "  for p vec {\n    %0 = load x\n    %1 = add %0, %0\n    store t, %1\n  }\n"
    "  for p vec {\n    %2 = load back\n    %3 = load u [g = %2]\n    store y, %3\n  }\n"
    "}\n";

static void two_launches(void **state) {
    (void)state;
    enum { N = 5 };
    static made m;
    kiln_plan *p = &m.plan;
    kiln_tensor *x = F32(SIZES(N), 1, 2, 3, 4, 5), *back = new_tensor(KILN_I64, SIZES(N), NULL), *out = NULL;
    for (int k = 0; k < N; k++) ((int64_t *)kiln_tensor_data(back))[k] = N - 1 - k;
    begin(&m, two_ir, "gather");
    begin_work(&m, 2, (int64_t[]){N, N}, 5, 3);
    kiln_buffer tmp = {.kind = KILN_BUFFER_TMP, .which = 0, .dtype = KILN_F32, .nbytes = N * 4};
    set_buffer(&m, 0, (kiln_buffer){.kind = KILN_BUFFER_RESULT, .dtype = KILN_F32}, (int64_t[]){4, 0});
    set_buffer(&m, 1, (kiln_buffer){.kind = KILN_BUFFER_ARG, .which = 0, .dtype = KILN_F32},
               (int64_t[]){4, 0});
    set_buffer(&m, 2, tmp, (int64_t[]){4, 0});
    set_buffer(&m, 3, tmp, (int64_t[]){0, 4});
    set_buffer(&m, 4, (kiln_buffer){.kind = KILN_BUFFER_ARG, .which = 2, .dtype = KILN_I64},
               (int64_t[]){8, 0});
    *kiln_plan_step(p, KILN_STEP_LAUNCH) = (kiln_step){.kind = KILN_STEP_LAUNCH, .u.launch = {0, 1}};
    kiln_plan_copy(p, 3, 2, 1, p->n, true);
    p->step[1].u.copy.dense = KILN_DENSE_TO;
    *kiln_plan_step(p, KILN_STEP_LAUNCH) = (kiln_step){.kind = KILN_STEP_LAUNCH, .u.launch = {1, 2}};
    kiln_plan_end(p);
    assert_prints(&m, "operator: aten::gather\nbranch: 0\nkind: kernel\ncommon: f32\nshape: [5]\n"
                      "result 0: f32[5] strides (1), new\naxes: grid 5, computed 5\nbuffers:\n"
                      "  result 0: f32 any, byte strides [4, 0]\n  self: f32 any, byte strides [4, 0]\n"
                      "  temporary for self: f32 any, byte strides [4, 0], 20 bytes\n"
                      "  temporary for self: f32 any, byte strides [0, 4], 20 bytes\n"
                      "  index: i64 any, byte strides [8, 0]\nsteps:\n  launch nests 0 to 0\n"
                      "  copy temporary for self to temporary for self, [5]\n  launch nests 1 to 1\n");
    MUST_OK(run(&m, x, back, &out));
    for (int k = 0; k < N; k++) assert_true(((float *)kiln_tensor_data(out))[k] == (float)(2 * (N - k)));
    end(&m);
    drop_args(ARGS(TEN(x), TEN(back), TEN(out)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gather),
        cmocka_unit_test(two_launches),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
