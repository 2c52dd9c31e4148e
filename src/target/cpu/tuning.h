/* tuning.h - the numbers of tuning.def as constants, for the CPU's own code: KILN_CPU_<NAME>. */
#ifndef KILN_CPU_TUNING_H
#define KILN_CPU_TUNING_H

enum {
#define T(NAME, value, unit, decides, measured) KILN_CPU_##NAME = (value),
#include "target/cpu/tuning.def"
#undef T
};
#endif
