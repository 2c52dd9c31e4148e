/* interp_mem.c - the interpreter's memory accesses that are not runs of elements.
 *
 * Computed coordinates, guards and stores of many elements to one place: each element has its own
 * address, in element order, and one whose guard is false is not touched. */
#include <string.h>

#include "run/interp_impl.h"

static int64_t element_offset(const ctx *c, const access *m, size_t i) {
    const int64_t *stride = c->launch->stride + (ptrdiff_t)m->buf * c->prog->ndim;
    int64_t off = m->vec_dim < 0 ? 0 : (int64_t)i * stride[m->vec_dim];
    for (int k = 0; k < m->ncoord; k++) {
        const int64_t *at = (const int64_t *)(const void *)c->ptr[m->coord[k]];
        off += at[i * m->coord_step[k]] * stride[m->coord_dim[k]];
    }
    return off;
}

static bool allowed(const ctx *c, const access *m, size_t i) {
    return !m->guarded || c->ptr[m->guard][i * m->guard_step];
}

void kiln_interp_gather(ctx *c, const node *n) {
    const access *m = n->x.mem;
    const char *base = kiln_interp_address(c, m);
    char *out = c->ptr[n->out];
    size_t len = elems_of(c, n);
    for (size_t i = 0; i < len; i++) {
        const char *src = allowed(c, m, i) ? base + element_offset(c, m, i)
                                           : c->ptr[m->other] + i * m->other_step * m->size;
        memcpy(out + i * m->size, src, m->size);
        if (n->dtype == KILN_BOOL) out[i] = out[i] != 0;
    }
}

void kiln_interp_scatter(ctx *c, const node *n) {
    const access *m = n->x.mem;
    char *base = kiln_interp_address(c, m);
    const char *value = c->ptr[n->a];
    size_t len = elems_of(c, n);
    for (size_t i = 0; i < len; i++)
        if (allowed(c, m, i))
            memcpy(base + element_offset(c, m, i), value + i * m->value_step * m->size, m->size);
}
