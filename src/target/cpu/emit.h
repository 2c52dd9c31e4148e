/* emit.h - IR -> source text for a compiler.
 *
 * A backend sees IR and the math source, never operators, so it cannot grow an operator switch. */
#ifndef KILN_EMIT_H
#define KILN_EMIT_H
#include "base/isa.h"
#include "ir/ir.h"

/* Writes C without includes that defines KILN_KERNEL_SYMBOL for ir.  The caller has verified ir. */
kiln_status kiln_emit_c(const kiln_ir *ir, kiln_isa isa, kiln_sb *out) KILN_MUST_CHECK;
/* How many lanes ir's vectors have in kiln_emit_c's text.  Kernels of one unit have the same number of lanes. */
int kiln_emit_lanes(const kiln_ir *ir, kiln_isa isa);
/* Writes one unit that holds n kernels (n > 0, all with the same number of lanes).  Kernel k has the symbol
 * kiln_emit_symbol(k).  A unit of one kernel is the text of kiln_emit_c. */
kiln_status kiln_emit_unit(const kiln_ir *const *ir, int n, kiln_isa isa, kiln_sb *out) KILN_MUST_CHECK;
typedef struct kiln_emit_name {
    char text[32];
} kiln_emit_name;
kiln_emit_name kiln_emit_symbol(int k); /* k is 0: KILN_KERNEL_SYMBOL; else KILN_KERNEL_SYMBOL, "_" and k */
/* The build stamp, 32 hexadecimal digits: a digest of the files that decide a kernel's code, besides its IR and ISA level
 * (stamped.txt).  The stamp is part of the digest by which stores find kernels. */
extern const char kiln_emit_stamp[];
/* *nbytes: how many bytes of `work` a launch of ir's kernel needs, whatever the nest; 0: none.  `work` is at an
 * address divisible by 64. */
kiln_status kiln_emit_work(const kiln_ir *ir, kiln_isa isa, size_t *nbytes) KILN_MUST_CHECK;
#endif
