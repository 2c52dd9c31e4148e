/* bench_ulp.c - `kiln bench ulp`: the worst error of each function of ulp.def on seeded points, per
 * dtype.
 *
 * In units of the last place of the exact result, against a reference in long double.  Points and figures
 * are the same in every run; errors of a reference (eleven bits finer than f64) count as the function's. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "cli/element.h"
#include "ulp_refs.h"

typedef long double wide;

enum { NEAR_POINTS = 1 << 15, SPECIAL_POINTS = 1 << 11, TRIES = 64 };

typedef struct bounds {
    double low, high;   /* where anything happens */
    double least, most; /* where points may be */
    bool whole;
} bounds;
#define ANY(r) \
    { -(r), (r), -INFINITY, INFINITY, false }
#define POSITIVE(r) \
    { 0, (r), 0, INFINITY, false }
#define FROM(low, r) \
    { (low), (r), (low), INFINITY, false }
#define WITHIN(low, high) \
    { (low), (high), (low), (high), false }
#define WHOLE(low, high) \
    { (low), (high), (low), (high), true }

static const struct function {
    const char *name;
    int points;
    wide (*one)(wide);
    wide (*two)(wide, wide);
    bounds x, y;
    double size;
} functions[] = {
#define ULP1(kind, id, ref, xs, unit) \
    {.name = #id, .points = kind##_POINTS, .one = (ref), .x = xs, .size = (unit)},
#define ULP2(kind, id, ref, xs, ys, unit) \
    {.name = #id, .points = kind##_POINTS, .two = (ref), .x = xs, .y = ys, .size = (unit)},
#include "ulp.def"
#undef ULP1
#undef ULP2
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const struct type {
    kiln_dtype dtype;
    int digits, least; /* of the fraction; the exponent of the smallest normal number, as frexp gives it */
    int most;          /* numbers are below 2^most */
} types[] = {{KILN_F32, 24, -125, 128},
             {KILN_F64, 53, -1021, 1024},
             {KILN_F16, 11, -13, 16},
             {KILN_BF16, 8, -125, 128}};
enum { TYPES = sizeof types / sizeof *types };

/* -- points ------------------------------------------------------------------------------------------ */

static uint64_t next_bits(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double next_unit(uint64_t *seed) { return (double)(next_bits(seed) >> 11) * 0x1p-53; }

/* Spread evenly, of any exponent of the type, or near where the bounds begin and near 1. */
static double draw(const bounds *b, const struct type *t, int k, uint64_t *seed) {
    double even = b->low + (b->high - b->low) * next_unit(seed), sign = next_bits(seed) & 1 ? 1 : -1;
    if (b->whole) return floor(even);
    switch (k % 3) {
    case 0: return even;
    case 1: {
        int span = t->most - t->least + t->digits;
        int e = t->least - t->digits + (int)(next_bits(seed) % (unsigned)span);
        return sign * ldexp(1 + next_unit(seed), e);
    }
    default: break;
    }
    double centre = k % 2 == 0 ? sign : b->least > -INFINITY ? b->least : 0;
    return centre + sign * ldexp(next_unit(seed), -(int)(next_bits(seed) % 20));
}

/* Element k of the argument; one that is out of bounds or of the type's range is drawn again. */
static void put_point(const bounds *b, const struct type *t, int k, uint64_t *seed, char *out) {
    for (int tries = 0; tries < TRIES; tries++) {
        double v = draw(b, t, tries < TRIES - 1 ? k : 0, seed);
        if (v < b->least || v > b->most || !element_store_real(t->dtype, v, out)) continue;
        v = element_real(t->dtype, out);
        if (v >= b->least && v <= b->most) return;
    }
    (void)element_store_real(t->dtype, b->high, out);
}

/* -- errors ------------------------------------------------------------------------------------------ */

/* From got to want in last places of type t; infinity where one is no number and the other is. */
static double distance(double got, wide want, double size, const struct type *t) {
    wide top = ldexpl(1, t->most), a = got, b = want;
    int e = t->least;
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (fabsl(a) > top) a = copysignl(top, a); /* infinity is one step past the largest number */
    if (fabsl(b) > top) b = copysignl(top, b);
    if (b != 0 || size != 0) frexpl(fmaxl(fabsl(b), size), &e);
    e = e < t->least ? t->least : e > t->most ? t->most : e;
    return (double)(fabsl(a - b) / ldexpl(1, e - t->digits));
}

typedef struct worst {
    double ulp, x, y;
} worst;

static worst find_worst(const struct function *f, const struct type *t, const char *x, const char *y,
                        const char *got) {
    size_t size = kiln_dtype_size(t->dtype);
    worst w = {-1, 0, 0};
    for (int k = 0; k < f->points; k++, x += size, y += size, got += size) {
        double a = element_real(t->dtype, x), b = element_real(t->dtype, y);
        wide want = f->one ? f->one(a) : f->two(a, b);
        double ulp = distance(element_real(t->dtype, got), want, f->size, t);
        if (ulp > w.ulp) w = (worst){ulp, a, b};
    }
    return w;
}

/* -- running ----------------------------------------------------------------------------------------- */

static bool load_rows(kiln_ctx *ctx) {
    for (int i = 0; i < FUNCTIONS; i++) {
        const char *name = functions[i].name;
        char row[256];
        if (functions[i].one)
            snprintf(row, sizeof row, "map ulp::%s(Tensor self) -> Tensor : takes float = %s(self)", name,
                     name);
        else
            snprintf(row, sizeof row,
                     "map ulp::%s(Tensor self, Tensor other) -> Tensor : promote(self, other) takes float = "
                     "%s(self, other)",
                     name, name);
        kiln_status st = kiln_ops_load(ctx, row, strlen(row));
        if (st == KILN_OK) continue;
        cli_kiln_error(st);
        return false;
    }
    return true;
}

static kiln_status measure(kiln_ctx *ctx, const struct function *f, const struct type *t, worst *out) {
    kiln_tensor *in[2] = {NULL, NULL}, *result = NULL;
    int64_t n = f->points;
    uint64_t seed = 1;
    char name[64];
    const kiln_op *op;
    snprintf(name, sizeof name, "ulp::%s", f->name);
    kiln_status st = kiln_op_find(ctx, name, &op);
    for (int k = 0; k < 2 && st == KILN_OK; k++) {
        st = kiln_tensor_new(t->dtype, 1, &n, NULL, &in[k]);
        if (st != KILN_OK) break;
        char *p = kiln_tensor_data(in[k]);
        for (int i = 0; i < f->points; i++, p += kiln_dtype_size(t->dtype))
            put_point(k ? &f->y : &f->x, t, k ? i / 3 : i, &seed, p);
    }
    if (st == KILN_OK) {
        kiln_value args[2] = {kiln_v_tensor(in[0]), kiln_v_tensor(in[1])};
        st = kiln_call(ctx, op, args, f->one ? 1 : 2, &result, 1);
    }
    if (st == KILN_OK)
        *out = find_worst(f, t, kiln_tensor_data(in[0]), kiln_tensor_data(in[1]), kiln_tensor_data(result));
    kiln_tensor_release(result);
    kiln_tensor_release(in[0]);
    kiln_tensor_release(in[1]);
    return st;
}

static void print_json(const struct function *f, const struct type *t, const worst *w) {
    json_t *at = f->one ? json_pack("[f]", w->x) : json_pack("[ff]", w->x, w->y);
    json_t *ulp = isfinite(w->ulp) ? json_real(w->ulp) : json_string("inf");
    out_json(json_pack("{s:s, s:s, s:s, s:i, s:o, s:o}", "bench", "ulp", "function", f->name, "dtype",
                       kiln_dtype_name(t->dtype), "points", f->points, "ulp", ulp, "at", at));
}

int bench_ulp(const cli_args *args) {
    kiln_ctx *ctx = cli_open(args);
    kiln_status st = KILN_OK;
    if (!ctx || !load_rows(ctx)) {
        kiln_close(ctx);
        return CLI_FAILED;
    }
    if (!args->json)
        out_text("Worst error in units of the last place, seeded points of the whole domain.\n\n");
    if (!args->json) out_printf("%-28s %8s %8s %8s %8s\n", "", "f32", "f64", "f16", "bf16");
    for (int i = 0; i < FUNCTIONS && st == KILN_OK && out_flush(); i++) {
        if (!args->json) out_printf("%-28s", functions[i].name);
        for (int t = 0; t < TYPES && st == KILN_OK; t++) {
            worst w = {0, 0, 0};
            st = measure(ctx, &functions[i], &types[t], &w);
            if (st != KILN_OK) break;
            if (args->json)
                print_json(&functions[i], &types[t], &w);
            else
                out_printf(" %8.3f", w.ulp);
        }
        if (!args->json) out_text("\n");
    }
    if (st != KILN_OK) cli_kiln_error(st);
    kiln_close(ctx);
    return st == KILN_OK ? CLI_OK : CLI_FAILED;
}
