/* dlpack.c - DLPack tensors <-> Kiln tensors, without copying elements.
 *
 * An imported tensor calls the producer's deleter when its last reference goes; an exported one holds a
 * reference to the tensor and its own copy of sizes and strides. */
#include "tensor/dlpack.h"

#include <string.h>

#include "tensor/tensor.h"

_Static_assert(sizeof(kiln_dl_managed) == 80 && offsetof(kiln_dl_managed, tensor) == 32 &&
                   offsetof(kiln_dl_tensor, shape) == 24,
               "DLPack's layout on 64-bit machines");

static kiln_dl_code code_of(kiln_dtype t) {
    if (t == KILN_BOOL) return KILN_DL_BOOL;
    if (t == KILN_BF16) return KILN_DL_BFLOAT;
    if (kiln_dtype_is_float(t)) return KILN_DL_FLOAT;
    if (kiln_dtype_is_complex(t)) return KILN_DL_COMPLEX;
    return kiln_dtype_is_signed(t) ? KILN_DL_INT : KILN_DL_UINT;
}

static kiln_status dtype_of(const kiln_dl_tensor *dl, kiln_dtype *out) {
    for (int t = 0; t < KILN_DTYPE_COUNT && dl->lanes == 1; t++) {
        if (code_of((kiln_dtype)t) != dl->code || kiln_dtype_size((kiln_dtype)t) * 8 != dl->bits) continue;
        *out = (kiln_dtype)t;
        return KILN_OK;
    }
    return KILN_FAIL(KILN_E_UNSUP, "DLPack type (code %d, %d bits, %d lanes) is not served", dl->code,
                     dl->bits, dl->lanes);
}

static void delete_import(void *owner) {
    kiln_dl_managed *m = owner;
    if (m->deleter) m->deleter(m);
}

kiln_status kiln_tensor_from_dlpack(void *managed, kiln_tensor **out) {
    kiln_dl_managed *m = managed;
    kiln_dtype dtype;
    kiln_tensor *t;
    KILN_NEED(managed, out);
    /* Of another major version only the deleter's place is known, and it stays the caller's to call. */
    if (m->major != KILN_DL_MAJOR)
        return KILN_FAIL(KILN_E_UNSUP, "DLPack version %u.%u is not served; %d.x is", m->major, m->minor,
                         KILN_DL_MAJOR);
    const kiln_dl_tensor *dl = &m->tensor;
    if (dl->device_type != KILN_DL_CPU)
        return KILN_FAIL(KILN_E_UNSUP, "DLPack device type %d is not served; only the CPU (%d) is",
                         dl->device_type, KILN_DL_CPU);
    KILN_TRY(dtype_of(dl, &dtype));
    char *data = dl->data ? (char *)dl->data + dl->byte_offset : NULL;
    KILN_TRY(kiln_note(kiln_tensor_wrap(data, dtype, dl->ndim, dl->shape, dl->strides, delete_import, m, &t),
                       "DLPack import"));
    if (m->flags & KILN_DL_READ_ONLY) kiln_tensor_set_readonly(t);
    *out = t;
    return KILN_OK;
}

static void delete_export(kiln_dl_managed *m) {
    kiln_tensor_release(m->context);
    kiln_free(m);
}

kiln_status kiln_tensor_to_dlpack(kiln_tensor *t, void **out_managed) {
    KILN_NEED(t, out_managed);
    size_t dims = (size_t)t->rank * sizeof(int64_t);
    if (t->flags & KILN_TF_BORROWED)
        return KILN_FAIL(KILN_E_ARG, "a tensor with a borrowed header cannot be exported: it may end first");
    kiln_dl_managed *m = kiln_calloc(1, sizeof *m + 2 * dims);
    if (!m) return KILN_NOMEM();
    m->major = KILN_DL_MAJOR;
    m->minor = KILN_DL_MINOR;
    m->deleter = delete_export;
    if (t->flags & KILN_TF_READONLY) m->flags |= KILN_DL_READ_ONLY;
    kiln_dl_tensor *dl = &m->tensor;
    dl->data = t->data;
    dl->device_type = KILN_DL_CPU;
    dl->ndim = t->rank;
    dl->code = (uint8_t)code_of((kiln_dtype)t->dtype);
    dl->bits = (uint8_t)(kiln_dtype_size((kiln_dtype)t->dtype) * 8);
    dl->lanes = 1;
    dl->shape = (int64_t *)(m + 1);
    dl->strides = dl->shape + t->rank;
    if (dims) memcpy(dl->shape, t->sizes, dims);
    if (dims) memcpy(dl->strides, t->strides, dims);
    m->context = kiln_tensor_retain(t);
    *out_managed = m;
    return KILN_OK;
}
