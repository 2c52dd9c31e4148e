/* code.h - what a target makes of source text: an object (bytes that stores may keep), and code that can be called. */
#ifndef KILN_TARGET_CODE_H
#define KILN_TARGET_CODE_H
#include "base/base.h"
#include "kiln/kiln_abi.h"

typedef struct kiln_object {
    void *bytes; /* heap; for the target `cpu` a relocatable ELF object */
    size_t n;
    int64_t cpu_ns; /* processor time that the compilers took; 0: not known */
} kiln_object;
void kiln_object_fini(kiln_object *o);

/* A kernel that can be called.  A target puts this first in a larger struct of its own. */
typedef struct kiln_code kiln_code;
struct kiln_code {
    kiln_kernel_fn entry;
    size_t nbytes; /* bytes of memory for code; of kernels of one object, each one's share */
    void (*drop)(kiln_code *c);
};
static inline kiln_kernel_fn kiln_code_entry(const kiln_code *c) { return c->entry; }
static inline size_t kiln_code_nbytes(const kiln_code *c) { return c->nbytes; }
void kiln_code_free(kiln_code *c); /* c may be NULL */
#endif
