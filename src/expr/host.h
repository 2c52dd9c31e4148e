/* host.h - private to src/expr: what files share that evaluate expressions on the host. */
#ifndef KILN_HOST_H
#define KILN_HOST_H
#include "expr/expr.h"

typedef struct host {
    const kiln_henv *env;
    bool every; /* evaluate what the result does not depend on as well */
    int height; /* of the tree above, with names expanded */
    int nodes;  /* evaluated so far: names that use names twice could grow without end */
} host;

/* The comma operator shows static analysers that the value is never KILN_OK. */
#define HOST_FAIL(h, e, ...) (kiln_expr_fail((h)->env->source, (e), KILN_E_TYPE, __VA_ARGS__), KILN_E_TYPE)
/* For an unknown name or function.  It is a parse error, not a type error: no types would make it right. */
#define UNKNOWN(h, e, ...) (kiln_expr_fail((h)->env->source, (e), KILN_E_PARSE, __VA_ARGS__), KILN_E_PARSE)

static inline kiln_hval unknown(void) {
    return (kiln_hval){.kind = KILN_H_UNKNOWN, .dtype = KILN_DTYPE_COUNT};
}
static inline kiln_hval from_bool(bool b) {
    return (kiln_hval){.kind = KILN_H_BOOL, .i = b, .f = b, .dtype = KILN_BOOL};
}
static inline kiln_hval from_int(int64_t i) {
    return (kiln_hval){.kind = KILN_H_INT, .i = i, .f = (double)i, .dtype = KILN_I64};
}
static inline kiln_hval from_float(double f) {
    return (kiln_hval){.kind = KILN_H_FLOAT, .f = f, .dtype = KILN_F64};
}

static inline bool is_number(kiln_hval v) {
    return v.kind == KILN_H_BOOL || v.kind == KILN_H_INT || v.kind == KILN_H_FLOAT;
}
static inline bool is_any_number(kiln_hval v) { return is_number(v) || v.kind == KILN_H_COMPLEX; }
static inline bool is_many(kiln_hval v) { return v.kind == KILN_H_TENSOR || v.kind == KILN_H_LIST; }
static inline bool is_true(kiln_hval v) { return v.kind == KILN_H_FLOAT ? v.f != 0 : v.i != 0; }

kiln_status kiln_host_eval(host *h, const kiln_expr *e, kiln_hval *out) KILN_MUST_CHECK;
/* e is a call of a function (expr_host_ask.c). */
kiln_status kiln_host_call(host *h, const kiln_expr *e, kiln_hval *out) KILN_MUST_CHECK;
#endif
