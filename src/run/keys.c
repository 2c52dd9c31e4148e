/* keys.c - elements of a row -> unsigned keys in the same order, and where a key is.
 *
 * Signed integers get their sign bit flipped; so do floating-point numbers, of which negative ones have all bits flipped.
 * Elements are read as bits, so that neither rounding modes nor what subnormal numbers count as matter.  Knows how
 * dtypes lie in memory and nothing of what is done with keys. */
#include <string.h>

#include "run/keys.h"

/* One loader for each dtype, of which the usual stride has a loop of its own, for compilers to see. */
#define LOADER(T, U, KEY)                                                                              \
    static inline __attribute__((always_inline))                                                       \
    int64_t walk_##T(U *to, const char *from, int64_t stride, int64_t n) {                             \
        int64_t nnan = 0;                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                              \
            U bits;                                                                                    \
            bool nan = false;                                                                          \
            memcpy(&bits, from + i * stride, sizeof bits);                                             \
            to[i] = KEY;                                                                               \
            nnan += nan;                                                                               \
        }                                                                                              \
        return nnan;                                                                                   \
    }                                                                                                  \
    static int64_t load_##T(void *to, const char *from, int64_t stride, int64_t n) {                   \
        return stride == sizeof(U) ? walk_##T(to, from, sizeof(U), n) : walk_##T(to, from, stride, n); \
    }

#define SIGN(U) ((U)((U)1 << (8 * sizeof(U) - 1)))
/* inf: the bits of infinity. */
#define FLOATS(U, inf)                                                               \
    (nan = (U)(bits & (U)~SIGN(U)) > (U)(inf), bits = bits == SIGN(U) ? (U)0 : bits, \
     (U)(nan              ? (U) ~(U)0                                                \
         : bits & SIGN(U) ? (U)~bits                                                 \
                          : (U)(bits | SIGN(U))))

LOADER(BOOL, uint8_t, bits != 0)
LOADER(U8, uint8_t, bits)
LOADER(I8, uint8_t, bits ^ SIGN(uint8_t))
LOADER(I16, uint16_t, bits ^ SIGN(uint16_t))
LOADER(I32, uint32_t, bits ^ SIGN(uint32_t))
LOADER(I64, uint64_t, bits ^ SIGN(uint64_t))
LOADER(F16, uint16_t, FLOATS(uint16_t, 0x7c00))
LOADER(BF16, uint16_t, FLOATS(uint16_t, 0x7f80))
LOADER(F32, uint32_t, FLOATS(uint32_t, 0x7f800000))
LOADER(F64, uint64_t, FLOATS(uint64_t, 0x7ff0000000000000))

const kiln_keys_fn kiln_keys_load[KILN_DTYPE_COUNT] = {
    [KILN_BOOL] = load_BOOL, [KILN_U8] = load_U8,   [KILN_I8] = load_I8,   [KILN_I16] = load_I16,
    [KILN_I32] = load_I32,   [KILN_I64] = load_I64, [KILN_F16] = load_F16, [KILN_BF16] = load_BF16,
    [KILN_F32] = load_F32,   [KILN_F64] = load_F64,
};

/* -- where a key is ------------------------------------------------------------------------------------------- */

enum { BLOCK = 32 }; /* keys compared without a branch */

#define FINDERS(U)                                                       \
    static int64_t first_##U(const U *a, int64_t n, U key) {             \
        int64_t i = 0;                                                   \
        for (; i + BLOCK <= n; i += BLOCK) {                             \
            U any = 0;                                                   \
            for (int k = 0; k < BLOCK; k++) any |= (U)(a[i + k] == key); \
            if (any) break;                                              \
        }                                                                \
        while (i < n && a[i] != key) i++;                                \
        return i;                                                        \
    }                                                                    \
    static int64_t last_##U(const U *a, int64_t n, U key) {              \
        int64_t i = n - 1;                                               \
        while (i > 0 && a[i] != key) i--;                                \
        return i;                                                        \
    }
FINDERS(uint8_t)
FINDERS(uint16_t)
FINDERS(uint32_t)
FINDERS(uint64_t)

int64_t kiln_keys_first(const kiln_keys *keys, uint64_t key) {
    switch (keys->bytes) {
    case 1: return first_uint8_t(keys->at, keys->n, (uint8_t)key);
    case 2: return first_uint16_t(keys->at, keys->n, (uint16_t)key);
    case 4: return first_uint32_t(keys->at, keys->n, (uint32_t)key);
    default: return first_uint64_t(keys->at, keys->n, key);
    }
}

int64_t kiln_keys_last(const kiln_keys *keys, uint64_t key) {
    switch (keys->bytes) {
    case 1: return last_uint8_t(keys->at, keys->n, (uint8_t)key);
    case 2: return last_uint16_t(keys->at, keys->n, (uint16_t)key);
    case 4: return last_uint32_t(keys->at, keys->n, (uint32_t)key);
    default: return last_uint64_t(keys->at, keys->n, key);
    }
}
