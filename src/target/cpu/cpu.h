/* cpu.h - the target `cpu` seen from within: for its own files, tests and benchmarks. */
#ifndef KILN_TARGET_CPU_H
#define KILN_TARGET_CPU_H
#include "target/cpu/build.h"
#include "target/target.h"

/* The toolchain of t, which is a target `cpu`.  Opened on first use; never NULL on success, but it may have found no compiler. */
kiln_status kiln_cpu_toolchain(kiln_target *t, kiln_toolchain **out) KILN_MUST_CHECK;
#endif
