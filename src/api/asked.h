/* asked.h - private to src/api: what a remembered call asks of the values of a later one, and whether they are so.
 *
 * asked.c keeps what is asked.  Memos, recipes and groups of list items compare by the functions here and by no others.
 * They are inline, as a slot hit does little else. */
#ifndef KILN_ASKED_H
#define KILN_ASKED_H
#include <string.h>

#include "infer/infer.h"
#include "tensor/tensor.h"

enum {
    KILN_MEMO_ARGS = 24, /* values of a call */
    KILN_MEMO_ITEMS = 8  /* of all its lists */
};

/* The bits of a word that are compared, and what they must be. */
typedef struct kiln_bits {
    uint64_t mask, want;
} kiln_bits;

static inline __attribute__((always_inline)) bool kiln_bits_match(const kiln_bits *b, uint64_t word) {
    return (word & b->mask) == b->want;
}

/* What one value of the call must be. */
typedef struct kiln_memo_arg {
    uint64_t kind;
    const char *name; /* the schema's; NULL: given by position */
    union {
        kiln_bits bits; /* of a tensor's signature, of any other's payload */
        struct {
            uint64_t n, first; /* how many items; which of those kept is the first */
        } list;
    };
    char **data;   /* of a tensor: where the launch wants its address, */
    uint64_t elem; /* and the bytes of an element; of a list: the kind of its items */
} kiln_memo_arg;

/* Whether t has the signature that `bits` says, and the shape of `like`. */
static inline __attribute__((always_inline)) bool kiln_tensor_match(const kiln_bits *bits,
                                                                    const kiln_tensor *t,
                                                                    const kiln_tensor *like) {
    return kiln_bits_match(bits, t->sig) && kiln_has_shape(t, like->rank, like->sizes);
}

#define KILN_ANY_LIST UINT64_MAX /* list.n of a list of any items of the kind */

/* What all values must be. */
typedef struct kiln_asked {
    kiln_memo_arg arg[KILN_MEMO_ARGS];
    char *unused; /* where the address of a tensor goes that the kernel does not read */
    bool has_text;
    char text[15]; /* the one text among the values, with its end */
    bool has_list;
    int nitems;
    int64_t items[KILN_MEMO_ITEMS]; /* of lists */
} kiln_asked;

/* How values are compared. */
typedef enum kiln_look {
    KILN_LOOK_NUMBERS, /* names by their addresses alone; no value asked for is a tensor, a list or a text */
    KILN_LOOK_ALL,     /* names as texts; lists by their items, texts by their characters */
    KILN_LOOK_TENSORS  /* only signatures: all else is known to match */
} kiln_look;

static inline __attribute__((always_inline)) bool kiln_list_match(const kiln_asked *asked,
                                                                  const kiln_memo_arg *a,
                                                                  const kiln_value *v) {
    bool any = a->list.n == KILN_ANY_LIST;
    if ((!any && v->n != a->list.n) || (v->n && !v->u.list)) return false;
    const int64_t *want = asked->items + a->list.first;
    for (const kiln_value *x = v->u.list, *end = x + v->n; x != end; x++)
        if (x->kind != a->elem || (!any && x->u.i != *want++)) return false;
    return true;
}

/* Whether v is as `a`, one of those of `asked`, says.  Notes the address of a tensor. */
static inline __attribute__((always_inline)) bool kiln_value_match(const kiln_asked *asked,
                                                                   const kiln_memo_arg *a,
                                                                   const kiln_value *v, kiln_look look) {
    uint64_t word = (uint64_t)v->u.i;
    bool known = look == KILN_LOOK_TENSORS;
    if (!known && v->kind != a->kind) return false;
    if (!known && v->name != a->name && (look != KILN_LOOK_ALL || !kiln_str_eq(v->name, a->name)))
        return false;
    if (look != KILN_LOOK_NUMBERS && v->kind == KILN_TENSOR) {
        if (!word) return false;
        word = v->u.tensor->sig;
        *a->data = v->u.tensor->data;
    } else if (look == KILN_LOOK_ALL && v->kind >= KILN_STR_V) { /* most values need one comparison */
        if (v->kind == KILN_LIST_V) return kiln_list_match(asked, a, v);
        if (v->kind == KILN_STR_V && !kiln_str_eq(v->u.s, asked->text)) return false;
    }
    return kiln_bits_match(&a->bits, word);
}

/* Whether the values from v on are as those of `asked` from `a` to `end` say.  layout: sizes and strides of the tensors
 * among them, one tensor after the other; NULL: any. */
static inline __attribute__((always_inline)) bool kiln_values_match(const kiln_asked *asked,
                                                                    const kiln_memo_arg *a,
                                                                    const kiln_memo_arg *end,
                                                                    const int64_t *layout,
                                                                    const kiln_value *v, kiln_look look) {
    for (; a != end; a++, v++) {
        if (look == KILN_LOOK_TENSORS && a->kind != KILN_TENSOR) continue;
        if (!kiln_value_match(asked, a, v, look)) return false;
        if (!layout || v->kind != KILN_TENSOR) continue;
        const kiln_tensor *t = v->u.tensor; /* its signature, which has the rank, matches */
        if (!kiln_same_sizes(t->rank, t->sizes, layout)) return false;
        if (!kiln_same_sizes(t->rank, t->strides, layout + t->rank)) return false;
        layout += 2 * t->rank;
    }
    return true;
}

/* Whether a and b, which are no tensors, are of one kind and have the same bits: 0.0 is another number than -0.0. */
static inline bool kiln_same_number(const kiln_value *a, const kiln_value *b) {
    if (a->kind != b->kind || a->u.i != b->u.i) return false;
    return a->kind != KILN_COMPLEX_V || memcmp(&a->u.c.im, &b->u.c.im, sizeof a->u.c.im) == 0;
}

/* Collects what later calls are asked, from a call that was inferred. */
typedef struct kiln_asking {
    kiln_asked *asked;
    const kiln_plan *plan;
    uint64_t values; /* arguments whose payload is asked, a tensor's being its sizes, */
    bool sized;      /* which are asked of some tensor */
} kiln_asking;

/* Keeps what is asked of value i, which is v and was bound to argument a of the row (-1: it only receives a result): all but
 * its name that bind, the row's conditions and promotion looked at, and nothing else.  sig: bits of a signature that are
 * asked.  False: no word can tell. */
bool kiln_ask(kiln_asking *to, const kiln_value *v, unsigned i, int a, uint64_t sig);

/* Whether n values are as asked. */
bool kiln_asked_match(const kiln_asked *asked, size_t n, const kiln_value *args);
#endif
