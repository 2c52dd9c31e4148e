/* list_shared.c - the tensors of a call over lists -> whether what one item writes is another one's, too.
 *
 * Written tensors are sorted by address; any two that overlap are neighbours then, and the others are looked up among them.
 * Tensors of one list mostly lie in its order or against it, so sorting merges the runs that are there, and a look-up begins
 * where the last one ended.  Compares the bytes from the first element of a tensor to its last: interleaved views count
 * as shared, which costs speed and nothing else. */
#include <string.h>

#include "api/list_call.h"

typedef struct span {
    uintptr_t from, to;
    uint32_t item;
} span;

static span span_of(const kiln_tensor *t, uint32_t item) {
    kiln_extent e = kiln_tensor_extent(t);
    return (span){e.low, e.low + e.nbytes, item};
}

/* -- sorting ------------------------------------------------------------------------------------------------- */

/* The end of the run that begins at s[from], which is in order afterwards. */
static size_t take_run(span *s, size_t from, size_t n) {
    size_t end = from + 1;
    if (end == n) return end;
    bool falls = s[end].from < s[from].from;
    while (end < n && (s[end].from < s[end - 1].from) == falls) end++;
    for (size_t a = from, b = end - 1; falls && a < b; a++, b--) {
        span one = s[a];
        s[a] = s[b];
        s[b] = one;
    }
    return end;
}

/* Merges s[from..mid) and s[mid..end), which are in order.  room: for as many as the first has. */
static void merge_runs(span *s, size_t from, size_t mid, size_t end, span *room) {
    if (s[mid - 1].from <= s[mid].from) return;
    size_t n = mid - from, a = 0, b = mid, to = from;
    memcpy(room, s + from, n * sizeof *s);
    while (a < n && b < end) s[to++] = s[b].from < room[a].from ? s[b++] : room[a++];
    memcpy(s + to, room + a, (n - a) * sizeof *s);
}

/* Runs are merged with their neighbours until there is one.  room: for n. */
static void sort_spans(span *s, size_t n, span *room) {
    for (size_t runs = 2; runs > 1;) {
        runs = 0;
        for (size_t from = 0; from < n; runs++) {
            size_t mid = take_run(s, from, n), end = mid < n ? take_run(s, mid, n) : mid;
            if (end > mid) merge_runs(s, from, mid, end, room);
            from = end;
        }
    }
}

/* -- meeting --------------------------------------------------------------------------------------------------- */

/* The first of n spans, in order and disjoint, that ends behind `at`.  near: what the last look-up gave. */
static size_t first_behind(const span *s, size_t n, uintptr_t at, size_t near) {
    size_t lo = 0, hi = n;
    if ((near == 0 || s[near - 1].to <= at) && (near == n || s[near].to > at)) return near;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s[mid].to <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Whether s meets one of the n written spans, which are in order and disjoint, of another item. */
static bool meets(const span *written, size_t n, span s, size_t *near) {
    *near = first_behind(written, n, s.from, *near);
    for (size_t k = *near; k < n && written[k].from < s.to; k++)
        if (written[k].item != s.item) return true;
    return false;
}

/* Whether value i is written. */
static bool writes(const kiln_listing *l, int i) {
    const kiln_schema *s = l->item->schema;
    if (!l->walked[i] || l->items >> i & 1) return false;
    int a = l->args[i].name ? kiln_schema_arg(s, l->args[i].name) : i;
    for (int k = 0; k < l->item->nout; k++)
        if (kiln_op_out_arg(l->item, k) == a) return true;
    return false;
}

/* The spans of all tensors that are written. */
static size_t find_written(const kiln_listing *l, span *out) {
    size_t n = 0;
    for (int i = 0; i < l->nargs; i++) {
        bool written = writes(l, i);
        for (uint32_t k = 0; written && k < l->n; k++) {
            const kiln_value *v = &l->walked[i][k];
            if (v->kind == KILN_TENSOR && v->u.tensor->nelem) out[n++] = span_of(v->u.tensor, k);
        }
    }
    return n;
}

/* room: for two spans of each tensor written. */
static bool items_meet(const kiln_listing *l, span *room) {
    size_t n = find_written(l, room), near = 0;
    sort_spans(room, n, room + n);
    for (size_t k = 1; k < n; k++)
        if (room[k].from < room[k - 1].to)
            return true; /* of one item, too: its own call says what that means */
    for (int i = 0; i < l->nargs; i++) {
        bool read = !writes(l, i);
        for (uint32_t k = 0; read && k < (l->walked[i] ? l->n : 1); k++) {
            const kiln_value *v = l->walked[i] ? &l->walked[i][k] : &l->args[i];
            if (v->kind != KILN_TENSOR || !v->u.tensor->nelem) continue;
            if (meets(room, n, span_of(v->u.tensor, l->walked[i] ? k : UINT32_MAX), &near)) return true;
        }
    }
    return false;
}

kiln_status kiln_list_find_shared(const kiln_listing *l, bool *shared) {
    kiln_home home;
    *shared = false;
    if (l->made) return KILN_OK;
    size_t most = 2 * (size_t)l->n * (size_t)l->item->nout;
    span *room = kiln_block_take_any(most * sizeof *room, &home);
    if (!room) return KILN_NOMEM();
    *shared = items_meet(l, room);
    kiln_block_give(room, home);
    return KILN_OK;
}
