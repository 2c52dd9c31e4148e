/* emit.h - IR -> source text for a compiler.
 *
 * A backend sees IR and the math source, never operators, so it cannot grow an operator switch. */
#ifndef KILN_EMIT_H
#define KILN_EMIT_H
#include "base/isa.h"
#include "ir/ir.h"

/* Writes header-free C that defines KILN_KERNEL_SYMBOL for ir (verified). */
kiln_status kiln_emit_c(const kiln_ir *ir, kiln_isa isa, kiln_sb *out) KILN_MUST_CHECK;
/* The build stamp, 32 hexadecimal digits: a digest of all that decides a kernel's code beside its IR and ISA level
 * (stamped.txt).  A kernel that is kept carries it, and one with another stamp is another kernel. */
extern const char kiln_emit_stamp[];
/* Bytes, at an address divisible by 64, that a launch of any nest of that kernel needs as its `work`; 0: none. */
kiln_status kiln_emit_work(const kiln_ir *ir, kiln_isa isa, size_t *nbytes) KILN_MUST_CHECK;
#endif
