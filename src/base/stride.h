/* stride.h - how an operand moves along the inner loop: the stride classes of plans, keys and IR.
 *
 * One list, so that what inference finds, what a key holds and what a kernel is made for are the same numbers. */
#ifndef KILN_STRIDE_H
#define KILN_STRIDE_H

/* ORDER STRIDE: values are part of class keys. */
typedef enum kiln_stride {
    KILN_STRIDE_ANY,    /* the stride is read from the launch */
    KILN_STRIDE_CONTIG, /* one element */
    KILN_STRIDE_BCAST,  /* zero */
    KILN_STRIDE_COUNT
} kiln_stride;

/* As IR text, plans and keys print them. */
#define KILN_STRIDE_NAMES \
    { "any", "contig", "bcast" }
#endif
