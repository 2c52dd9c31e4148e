/* choose.h - the functions of choose_*.c, which choose the form of a call on the CPU.  infer/chooser.h has their contracts. */
#ifndef KILN_CPU_CHOOSE_H
#define KILN_CPU_CHOOSE_H
#include "infer/chooser.h"

kiln_status kiln_cpu_choose_fold(kiln_plan *p, struct kiln_dim_strides *w) KILN_MUST_CHECK;
kiln_form_trees kiln_cpu_fold_trees(uint8_t form);
kiln_status kiln_cpu_choose_scan(kiln_plan *p, struct kiln_dim_strides *w) KILN_MUST_CHECK;
#endif
