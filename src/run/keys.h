/* keys.h - private to src/run: elements of a row as unsigned numbers in the same order.
 *
 * Selecting and sorting then know four sizes of keys and no dtypes.  A key has as many bytes as its element; both zeros
 * have one key; NaNs have one, the highest, above infinity. */
#ifndef KILN_KEYS_H
#define KILN_KEYS_H
#include "work/routine.h"

typedef struct kiln_keys {
    const void *at; /* of each element, in the order of the row */
    void *room;     /* memory for as many keys, twice */
    int64_t n;
    int64_t nnan; /* how many are NaNs' */
    int bytes;    /* of a key: 1, 2, 4 or 8 */
} kiln_keys;
enum { KILN_KEYS_COPIES = 3 }; /* rows of keys that a launch has room for */

/* Stores keys of n elements that lie `stride` bytes apart; how many are NaNs'.  NULL: a dtype without keys. */
typedef int64_t (*kiln_keys_fn)(void *to, const char *from, int64_t stride, int64_t n);
extern const kiln_keys_fn kiln_keys_load[KILN_DTYPE_COUNT];

/* Where the first, or last, of these keys is; it is one of them. */
int64_t kiln_keys_first(const kiln_keys *keys, uint64_t key);
int64_t kiln_keys_last(const kiln_keys *keys, uint64_t key);

/* pick.c: which element a routine gives of a row that has at least one; -1: its integers, par, fit no row of that length. */
typedef int64_t (*kiln_find_fn)(const kiln_keys *keys, const uint64_t *par);
/* Runs a launch of a routine that picks an element of each row: stores it, and with two results its place. */
int32_t kiln_pick_rows(const kiln_launch *l, kiln_dtype dtype, int nresults, kiln_find_fn find);

/* What routines pick: select.c, most_frequent.c. */
#define PICK(NAME, FIND, numbers, results) \
    int64_t kiln_find_##FIND(const kiln_keys *keys, const uint64_t *par);
#include "expr/routine.def"
#undef PICK
#endif
