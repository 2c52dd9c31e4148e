/* dtype.c - facts about element types, promotion between two of them, and half conversions.
 *
 * Everything here is read from dtype.def.  Promotion of whole calls (0-d tensors, Python numbers)
 * is infer's business; this is only the lattice of torch.promote_types. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/base.h"

static const struct {
    const char *name, *torch;
    uint8_t kind;
} facts[KILN_DTYPE_COUNT] = {
#define D(NAME, value, name, bytes, kind, torch) [KILN_##NAME] = {name, torch, KILN_KIND_##kind},
#include "kiln/dtype.def"
#undef D
};

static bool valid(kiln_dtype t) { return (unsigned)t < KILN_DTYPE_COUNT; }

const uint8_t kiln_elem_bytes[KILN_DTYPE_COUNT] = {
#define D(NAME, value, name, bytes, kind, torch) [KILN_##NAME] = bytes,
#include "kiln/dtype.def"
#undef D
};

const char *kiln_dtype_name(kiln_dtype t) { return valid(t) ? facts[t].name : "?"; }
const char *kiln_dtype_torch_name(kiln_dtype t) { return valid(t) ? facts[t].torch : "?"; }
size_t kiln_dtype_size(kiln_dtype t) { return valid(t) ? kiln_elem_bytes[t] : 0; }
kiln_dkind kiln_dtype_kind(kiln_dtype t) { return (kiln_dkind)facts[t].kind; }
bool kiln_dtype_is_int(kiln_dtype t) { return facts[t].kind == KILN_KIND_INT; }
bool kiln_dtype_is_float(kiln_dtype t) { return facts[t].kind == KILN_KIND_FLOAT; }
bool kiln_dtype_is_complex(kiln_dtype t) { return facts[t].kind == KILN_KIND_COMPLEX; }
int kiln_dtype_is_limited(kiln_dtype t) { return t == KILN_U16 || t == KILN_U32 || t == KILN_U64; }
bool kiln_dtype_is_signed(kiln_dtype t) {
    return t != KILN_BOOL && t != KILN_U8 && !kiln_dtype_is_limited(t);
}
kiln_dtype kiln_dtype_compute(kiln_dtype t) { return t == KILN_F16 || t == KILN_BF16 ? KILN_F32 : t; }

kiln_dtype kiln_dtype_real(kiln_dtype t) { return t == KILN_C64 ? KILN_F32 : t == KILN_C128 ? KILN_F64 : t; }

kiln_dtype kiln_dtype_complex(kiln_dtype t) {
    if (kiln_dtype_is_complex(t)) return t;
    if (t == KILN_F64) return KILN_C128;
    return t == KILN_F32 || t == KILN_BF16 ? KILN_C64 : KILN_DTYPE_COUNT;
}

bool kiln_dtype_named(const char *name, kiln_dtype *out) {
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        if (strcmp(name, facts[t].name) != 0 && strcmp(name, facts[t].torch) != 0) continue;
        *out = (kiln_dtype)t;
        return true;
    }
    return false;
}

kiln_status kiln_dtype_parse(const char *name, kiln_dtype *out) {
    KILN_NEED(name, out);
    if (kiln_dtype_named(name, out)) return KILN_OK;
    return KILN_FAIL(KILN_E_PARSE, "unknown dtype '%.40s'", name);
}

kiln_dtype kiln_dtype_promote(kiln_dtype a, kiln_dtype b) {
    if (a == b) return a;
    if (!valid(a) || !valid(b)) return KILN_DTYPE_COUNT;
    if (kiln_dtype_is_limited(a) || kiln_dtype_is_limited(b)) {
        kiln_dtype other = kiln_dtype_is_limited(a) ? b : a;
        return kiln_dtype_is_float(other) ? other : KILN_DTYPE_COUNT;
    }
    if (kiln_dtype_is_complex(a) || kiln_dtype_is_complex(b))
        return kiln_elem_bytes[a] == 16 || kiln_elem_bytes[b] == 16 || a == KILN_F64 || b == KILN_F64
                   ? KILN_C128
                   : KILN_C64;
    if (facts[a].kind != facts[b].kind) return facts[a].kind > facts[b].kind ? a : b;
    if (facts[a].kind == KILN_KIND_FLOAT) {
        if (kiln_elem_bytes[a] == kiln_elem_bytes[b]) return KILN_F32; /* f16 with bf16 */
        return kiln_elem_bytes[a] > kiln_elem_bytes[b] ? a : b;
    }
    if (kiln_elem_bytes[a] == kiln_elem_bytes[b]) return KILN_I16; /* u8 with i8 */
    return kiln_elem_bytes[a] > kiln_elem_bytes[b] ? a : b;
}

/* -- ranges -------------------------------------------------------------------------------------- */

double kiln_dtype_largest(kiln_dtype t) {
    if (t == KILN_F16) return 65504.0;
    if (t == KILN_BF16) return 0x1.fep127;
    return kiln_dtype_real(t) == KILN_F32 ? FLT_MAX : DBL_MAX;
}

/* Of u64, the part that an int64 argument can reach. */
static void int_range(kiln_dtype t, int64_t *lo, int64_t *hi) {
    bool has_sign = kiln_dtype_is_signed(t) || t == KILN_U64;
    *hi = (int64_t)(UINT64_MAX >> ((has_sign ? 65 : 64) - (int)kiln_dtype_size(t) * 8));
    *lo = kiln_dtype_is_signed(t) ? -*hi - 1 : 0;
}

bool kiln_dtype_fits(kiln_dtype t, bool is_float, bool is_bool, int64_t i, double f) {
    if (t == KILN_BOOL) return true;
    double v = is_float ? f : (double)i;
    if (facts[t].kind >= KILN_KIND_FLOAT) return isnan(v) || isinf(v) || fabs(v) <= kiln_dtype_largest(t);
    int64_t lo, hi;
    int_range(t, &lo, &hi);
    if (!is_float && !kiln_dtype_is_signed(t)) lo = is_bool ? 0 : t == KILN_U64 ? INT64_MIN : -hi;
    if (!is_float) return i >= lo && i <= hi;
    return !isnan(v) && v >= (double)lo && (t == KILN_U64 ? v < 0x1p64 : v <= (double)hi);
}

bool kiln_dtype_fits_uint(kiln_dtype t, uint64_t u) {
    if (facts[t].kind == KILN_KIND_INT) return t == KILN_U64;
    return kiln_dtype_fits(t, true, false, 0, (double)u);
}

/* -- half precision ------------------------------------------------------------------------------ */

static float f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float kiln_half_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) return f32_of_bits(sign | 0x7f800000 | (mag & 0x3ff) << 13 | (mag > 0x7c00) << 22);
    if (mag >= 0x0400) return f32_of_bits(sign | ((mag << 13) + (112u << 23)));
    float tiny = (float)mag * 0x1p-24f; /* subnormal halves are exact in f32 */
    return sign ? -tiny : tiny;
}

/* To nearest even by integers, whatever the rounding mode. */
uint16_t kiln_f32_to_half(float f) {
    uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (mag <= 0x33000000) return (uint16_t)sign;            /* half of the smallest, or less */
    if (mag < 0x38800000) {                                  /* subnormal: a multiple of 2^-24 */
        uint32_t shift = 126 - (mag >> 23), whole = (mag & 0x7fffff) | 0x800000, r = whole >> shift;
        uint32_t rest = whole - (r << shift), half = 1u << (shift - 1);
        return (uint16_t)(sign | (r + (rest > half || (rest == half && (r & 1)))));
    }
    uint32_t odd = mag >> 13 & 1;
    return (uint16_t)(sign | ((mag - (112u << 23) + 0xfff + odd) >> 13));
}

float kiln_bf16_to_f32(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }

uint16_t kiln_f32_to_bf16(float f) {
    uint32_t u = bits_of_f32(f);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0; /* PyTorch's NaN */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
