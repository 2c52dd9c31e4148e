/* dlpack.h - DLPack 1.x as memory: the structs that cross library borders.
 *
 * Layout and values are DLPack's and never change within major version 1; the names are our own, so
 * that DLPack's header can be included beside this one. */
#ifndef KILN_DLPACK_H
#define KILN_DLPACK_H
#include <stdint.h>

enum { KILN_DL_MAJOR = 1, KILN_DL_MINOR = 0 };
enum { KILN_DL_CPU = 1 };       /* device type */
enum { KILN_DL_READ_ONLY = 1 }; /* flags */

typedef enum kiln_dl_code {
    KILN_DL_INT = 0,
    KILN_DL_UINT = 1,
    KILN_DL_FLOAT = 2,
    KILN_DL_BFLOAT = 4,
    KILN_DL_COMPLEX = 5,
    KILN_DL_BOOL = 6
} kiln_dl_code;

typedef struct kiln_dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code; /* kiln_dl_code */
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} kiln_dl_tensor;

typedef struct kiln_dl_managed {
    uint32_t major, minor;
    void *context; /* the producer's */
    void (*deleter)(struct kiln_dl_managed *self);
    uint64_t flags;
    kiln_dl_tensor tensor;
} kiln_dl_managed;
#endif
