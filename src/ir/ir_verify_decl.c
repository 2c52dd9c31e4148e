/* ir_verify_decl.c - says whether the declarations of a kernel follow the rules of docs/IR.md.
 *
 * Names of axes, buffers and scalars are unique among their kind; types, roles and statuses exist; buffers have declared
 * axes only.  ir_verify.c checks the instructions after that.  Changes nothing. */
#include <ctype.h>
#include <string.h>

#include "ir/ir_verify.h"

static bool is_name(const char *s) {
    if (!s || (!isalpha((unsigned char)*s) && *s != '_')) return false;
    while (isalnum((unsigned char)*s) || *s == '_' || *s == '.') s++;
    return *s == 0;
}

/* `x.re` must mean the part of the complex buffer x alone. */
static bool names_part(const kiln_ir_buf *of, const char *name) {
    size_t n = strlen(of->name);
    if (!kiln_dtype_is_complex(of->dtype) || strncmp(name, of->name, n) != 0) return false;
    return strcmp(name + n, ".re") == 0 || strcmp(name + n, ".im") == 0;
}

static kiln_status check_names(const kiln_ir *ir) {
    for (int i = 0; i < ir->naxes; i++) {
        if (!is_name(ir->axes[i].name)) return BAD_KERNEL(ir, "axis %d needs a name", i);
        for (int j = 0; j < i; j++)
            if (strcmp(ir->axes[i].name, ir->axes[j].name) == 0)
                return BAD_KERNEL(ir, "two axes named %s", ir->axes[i].name);
    }
    for (int i = 0; i < ir->nbufs; i++) {
        if (!is_name(ir->bufs[i].name)) return BAD_KERNEL(ir, "buffer %d needs a name", i);
        for (int j = 0; j < i; j++)
            if (strcmp(ir->bufs[i].name, ir->bufs[j].name) == 0)
                return BAD_KERNEL(ir, "two buffers named %s", ir->bufs[i].name);
        for (int j = 0; j < ir->nbufs; j++)
            if ((unsigned)ir->bufs[j].dtype < KILN_DTYPE_COUNT && names_part(&ir->bufs[j], ir->bufs[i].name))
                return BAD_KERNEL(ir, "buffer %s has the name of a part of %s", ir->bufs[i].name,
                                  ir->bufs[j].name);
    }
    for (int i = 0; i < ir->npars; i++) {
        if (!is_name(ir->pars[i].name)) return BAD_KERNEL(ir, "scalar %d needs a name", i);
        for (int j = 0; j < i; j++)
            if (strcmp(ir->pars[i].name, ir->pars[j].name) == 0)
                return BAD_KERNEL(ir, "two scalars named %s", ir->pars[i].name);
    }
    return KILN_OK;
}

kiln_status kiln_ir_verify_declarations(const kiln_ir *ir) {
    KILN_TRY(check_names(ir));
    for (int i = 0; i < ir->nbufs; i++) {
        const kiln_ir_buf *b = &ir->bufs[i];
        if ((unsigned)b->dtype >= KILN_DTYPE_COUNT || (unsigned)b->role > KILN_BUF_TMP ||
            (unsigned)b->stride >= KILN_STRIDE_COUNT)
            return BAD_KERNEL(ir, "buffer %s has no such type, role or stride", b->name);
        if (b->axes >> ir->naxes)
            return BAD_KERNEL(ir, "buffer %s has an axis that is not declared", b->name);
    }
    for (int i = 0; i < ir->npars; i++)
        if ((unsigned)ir->pars[i].dtype >= KILN_DTYPE_COUNT || !kiln_ir_is_compute((int)ir->pars[i].dtype))
            return BAD_KERNEL(ir, "scalar %s must have a compute type", ir->pars[i].name);
    for (int i = 0; i < ir->ntraps; i++)
        if (ir->traps[i].status == KILN_OK ||
            !strcmp(kiln_status_name(ir->traps[i].status), "KILN_E_UNKNOWN"))
            return BAD_KERNEL(ir, "trap %d needs the status of a failure", i);
    return KILN_OK;
}
