/* list_call.h - private to src/api: a call for each item of lists while it is under way.
 *
 * lists.c makes the call; list_items.c says what the values of an item are, list_groups.c which items one launch serves,
 * list_shared.c whether items share memory.  Everything lives in storage of the call's. */
#ifndef KILN_LIST_CALL_H
#define KILN_LIST_CALL_H
#include "api/asked.h"
#include "api/ctx.h"
#include "family/listed.h"

enum {
    KILN_LIST_GROUPS = 4,
    KILN_LIST_PARS = 16, /* numbers of an item, as its kernel takes them */
    KILN_LIST_LANES = 16,
    KILN_LIST_PAIRS = 64
};

/* A tensor of each item of a group: those of a list, or the same one for all. */
typedef struct kiln_lane {
    const kiln_value *at; /* the first item's */
    size_t step;          /* values from one item's to the next one's: 1, or 0 */
    kiln_bits bits;       /* of signatures, which all have alike */
    uint32_t bytes;       /* of an element */
    bool single;          /* they have no dimensions, and one element for all of the item */
    bool written;
} kiln_lane;

/* Two lanes, one of which is written, that must not share memory; or share all of it, element by element. */
typedef struct kiln_lane_pair {
    uint8_t written, other;
    bool aligned;
} kiln_lane_pair;

/* A number of each item of a group, from a list of numbers, or of tensors that hold them. */
typedef struct kiln_lane_number {
    const kiln_value *at;
    kiln_value first;
    bool item, asked; /* it is what the tensor holds; conditions depend on it, so all are like the first */
    int8_t to;        /* the argument that it is bound to */
} kiln_lane_number;

/* Items that one launch serves. */
typedef struct kiln_list_group {
    kiln_bound call; /* of its first item; its numbers are those of the last one that was looked at */
    kiln_plan plan;
    kiln_class *c;
    kiln_runner run;
    kiln_lane lane[KILN_LIST_LANES];
    kiln_lane_number number[KILN_LIST_LANES];
    int nlanes, nnumbers, npairs;
    int like; /* a lane whose tensors have the shape of the item */
    kiln_lane_pair pair[KILN_LIST_PAIRS];
    int8_t from[KILN_SEGMENT_BUFFERS]; /* the lane that a buffer is; -1: a new result */
    int64_t stride[KILN_SEGMENT_BUFFERS];
    kiln_segment *segment; /* room for one of each item */
    size_t nsegments;
    int64_t nelem;
    const uint64_t *par; /* of the last item */
    kiln_home home;
} kiln_list_group;

typedef struct kiln_listing {
    kiln_ctx *ctx;
    const kiln_op *op, *item; /* what was called; what is called for each item */
    kiln_listed how;          /* how an item's call follows from the lists */
    kiln_bound call;
    uint32_t n;                     /* items */
    kiln_value args[KILN_MAX_ARGS]; /* of the item that is looked at */
    const kiln_value
        *walked[KILN_MAX_ARGS]; /* items of the list that a value comes from; NULL: all have the same */
    uint64_t items;             /* bit i: value i is the number in the tensor that is walked */
    const kiln_value *outs;     /* OUT: the tensors that results go to */
    int nargs;
    kiln_list_group *group[KILN_LIST_GROUPS];
    int ngroups;
    uint8_t *of;             /* of each item its group; KILN_LIST_GROUPS: none */
    uint64_t *par, *par_end; /* numbers of items */
    kiln_value *made;        /* results; NULL: nothing new is made */
    uint32_t nalone;         /* items of no group */
    kiln_home home;
} kiln_listing;

/* list_items.c: binds a call, and finds what is called for how many items (none: n is 0). */
kiln_status kiln_list_begin(kiln_listing *l, const kiln_op *op, const kiln_value *args,
                            size_t nargs) KILN_MUST_CHECK;
/* Sets args to those of item k. */
void kiln_list_enter(kiln_listing *l, uint32_t k);
/* The number that a tensor of one element holds, as a float. */
kiln_value kiln_list_number(const kiln_tensor *t);

/* list_groups.c: checks item k and puts it into the group that it is of, if there is one, whose launch it joins. */
kiln_status kiln_list_place(kiln_listing *l, uint32_t k) KILN_MUST_CHECK;
/* Whether several threads may run a group. */
bool kiln_list_may_share(const kiln_list_group *g);
/* Runs it; ordered: by one thread, in the order of the items. */
kiln_status kiln_list_run_group(const kiln_listing *l, const kiln_list_group *g,
                                bool ordered) KILN_MUST_CHECK;

/* list_shared.c: whether a tensor that one item writes shares memory with a tensor of another. */
kiln_status kiln_list_find_shared(const kiln_listing *l, bool *shared) KILN_MUST_CHECK;
#endif
