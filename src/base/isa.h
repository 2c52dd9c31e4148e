/* isa.h - the instruction-set levels code is built for, and which of them this CPU runs.
 *
 * Levels are explicit (never "native"), so that a kernel's key says where it may run. */
#ifndef KILN_ISA_H
#define KILN_ISA_H
#include "base/base.h"

typedef enum kiln_isa {
#define L(NAME, text, march, vector_bytes) KILN_ISA_##NAME,
#include "base/isa.def"
#undef L
    KILN_ISA_COUNT
} kiln_isa;

const char *kiln_isa_name(kiln_isa isa);  /* "x86-64-v3" */
const char *kiln_isa_march(kiln_isa isa); /* what -march takes, or "" for the compiler's default */
int kiln_isa_vector_bytes(kiln_isa isa);  /* width of one native vector */
kiln_isa kiln_isa_detect(void);           /* the best level that this CPU and its operating system run */
bool kiln_isa_runs(kiln_isa isa);
kiln_status kiln_isa_parse(const char *name, kiln_isa *out) KILN_MUST_CHECK;
#endif
