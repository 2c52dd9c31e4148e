/* infer_fixture.h - calls for the tests of bind and infer: a registry, tensors, and a reader of the lines
 * that tests/ops/infer_oracle.py writes. */
#ifndef KILN_TEST_INFER_FIXTURE_H
#define KILN_TEST_INFER_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "infer/infer.h"

static kiln_registry *registry;

static char *slurp(const char *path, size_t *n) {
    char *text;
    if (kiln_file_read(path, &text, n) != KILN_OK) fail_msg("%s", kiln_last_error());
    return text;
}

/* The rows that ship and those given here. */
static int open_registry(void **state) {
    (void)state;
    static const char extra[] =
        "map test::picky(Tensor self, str mode=\"a\", int[2] pads=0, float eps=1, bool flag=False, int k=3)"
        " -> Tensor"
        " : takes float\n"
        "    static mode, k, pads\n"
        "    ignore pads, flag, eps, k\n"
        "    when mode == \"a\" = self\n"
        "    when mode == \"b\" = self + 1\n"
        "map test::pick(Tensor self, Tensor?[] others) -> Tensor : takes float = self\n"
        "    check present(others[0]) or absent(others[0]) : \"one of the two\"\n"
        "map test::finite(Tensor self) -> Tensor : takes complex -> bool\n"
        "    when true strides ((part self, part self), ((part self), number)) = im(self) == 0\n"
        "map test::scaled(Tensor self, Tensor mask, float k) -> Tensor : takes float complex\n"
        "    when true strides ((self, mask), number) = self * mask * compute(f64(k))\n"
        "map test::power(Tensor self, Tensor other) -> Tensor : takes float\n"
        "    when common == f64 strides (self, rows other) = self * other\n"
        "    when true promote(other, self) = self * other\n"
        "index test::rows(Tensor self, int[2] k) -> Tensor : takes float = self[.., y, 0]\n"
        "    host h = size(self, -2), twice = k[1] * 2\n"
        "    out [.., y: h - twice]\n";
    kiln_row_text rows = {"test.ops", extra, sizeof extra - 1, false};
    kiln_status st = kiln_registry_new(kiln_registry_shipped(), &rows, 1, &kiln_torch_schemas, false,
                                       &registry);
    if (st != KILN_OK) fprintf(stderr, "%s\n", kiln_last_error());
    return st == KILN_OK ? 0 : -1;
}

static int close_registry(void **state) {
    (void)state;
    kiln_registry_free(registry);
    return 0;
}

static const kiln_op *op_of(const char *name) {
    const kiln_op *op;
    if (kiln_registry_find_row(registry, name, &op) != KILN_OK) fail_msg("%s: %s", name, kiln_last_error());
    return op;
}

/* -- calls as text ------------------------------------------------------------------------------------- */

enum { MEMORY_BYTES = 1 << 17, MAX_MEMORIES = 4, CALL_MAX_ARGS = 8 };

/* A parsed line: the call and, after '=', what is expected. */
typedef struct call_text {
    const kiln_op *op;
    kiln_value args[CALL_MAX_ARGS];
    size_t nargs;
    bool fails;
    kiln_dtype dtype;
    int rank;
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
} call_text;

static _Alignas(64) char memories[MAX_MEMORIES][MEMORY_BYTES];

static int read_list(const char **p, char open, char close, int64_t *out) {
    int n = 0;
    if (*(*p)++ != open) fail_msg("expected %c", open);
    while (**p != close) {
        char *end;
        out[n++] = strtoll(*p, &end, 10);
        *p = *end == ',' ? end + 1 : end;
    }
    (*p)++;
    return n;
}

static kiln_dtype read_shape(const char **p, int *rank, int64_t *sizes, int64_t *strides) {
    char name[8] = {0};
    size_t n = strcspn(*p, "[");
    assert_true(n < sizeof name);
    memcpy(name, *p, n);
    *p += n;
    kiln_dtype t;
    assert_int_equal(kiln_dtype_parse(name, &t), KILN_OK);
    *rank = read_list(p, '[', ']', sizes);
    assert_int_equal(read_list(p, '(', ')', strides), *rank);
    return t;
}

/* f32[2,3](3,1)@0+5 or f32[2,3](3,1)! */
static kiln_tensor *read_tensor(const char *p) {
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
    int rank;
    kiln_tensor *t;
    kiln_dtype dtype = read_shape(&p, &rank, sizes, strides);
    kiln_status st;
    if (*p == '!') {
        st = kiln_tensor_new(dtype, rank, sizes, strides, &t);
    } else {
        char *end;
        long memory = strtol(p + 1, &end, 10), offset = strtol(end, NULL, 10);
        char *data = memories[memory] + (size_t)offset * kiln_dtype_size(dtype);
        st = kiln_tensor_wrap(data, dtype, rank, sizes, strides, NULL, NULL, &t);
    }
    if (st != KILN_OK) fail_msg("%s", kiln_last_error());
    return t;
}

static kiln_value read_value(const char *word) {
    switch (word[0]) {
    case '-': return kiln_v_none();
    case 'i':
        if (word[1] == '-' || strspn(word + 1, "0123456789") == strlen(word + 1))
            return kiln_v_int(atoll(word + 1));
        break;
    case 'b':
        if (word[2] == 0) return kiln_v_bool(word[1] == '1');
        break;
    case 'f':
        if (!strchr(word, '[')) return kiln_v_float(atof(word + 1));
        break;
    default: break;
    }
    return kiln_v_tensor(read_tensor(word));
}

/* Equal words are one tensor, as one Python object would be. */
static void read_args(call_text *c, char **words, int nwords) {
    const kiln_schema *s = c->op->schema;
    for (int i = 0; i < nwords; i++) {
        int same = 0;
        while (same < i && strcmp(words[same], words[i]) != 0) same++;
        c->args[i] = read_value(words[i]);
        if (same < i && c->args[i].kind == KILN_TENSOR && strchr(words[i], '@')) {
            kiln_tensor_release(c->args[i].u.tensor);
            c->args[i].u.tensor = kiln_tensor_retain(c->args[same].u.tensor);
        }
    }
    c->nargs = (size_t)nwords;
    if (c->op->form == KILN_FORM_OUT) c->args[nwords - 1].name = s->args[s->nargs - 1].name;
}

/* Reads line, which it changes. */
static void read_call(call_text *c, char *line) {
    char *words[CALL_MAX_ARGS + 1] = {NULL}, *save = NULL, *expected = strstr(line, " = ");
    int n = 0;
    assert_non_null(expected);
    *expected = 0;
    expected += 3;
    for (char *w = strtok_r(line, " ", &save); w && n <= CALL_MAX_ARGS; w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    assert_non_null(words[0]);
    c->op = op_of(words[0]);
    read_args(c, words + 1, n - 1);
    c->fails = expected[0] == 'E';
    const char *p = expected;
    if (!c->fails) c->dtype = read_shape(&p, &c->rank, c->sizes, c->strides);
}

static void free_call(call_text *c) {
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].kind == KILN_TENSOR) kiln_tensor_release(c->args[i].u.tensor);
}
#endif
