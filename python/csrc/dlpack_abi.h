/* dlpack_abi.h - DLPack as memory: the structs and the exchange table that cross library borders.
 *
 * Layouts, values and capsule names are DLPack's (1.x, and the older unversioned one that some producers
 * still give); the C names are our own. */
#ifndef KILNPY_DLPACK_ABI_H
#define KILNPY_DLPACK_ABI_H
#include <stdint.h>

enum { DL_MAJOR = 1, DL_MINOR = 0 };
enum { DL_CPU = 1 };                                                                        /* device type */
enum { DL_READ_ONLY = 1 };                                                                  /* flags */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 }; /* code */

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    uint32_t major, minor;
    void *context; /* the producer's */
    void (*deleter)(struct dl_managed *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed; /* in a capsule named "dltensor_versioned" */

typedef struct dl_managed_old {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed_old *self);
} dl_managed_old; /* in a capsule named "dltensor" */

/* What a tensor type offers to C: the capsule "dlpack_exchange_api" in its __dlpack_c_exchange_api__.
 * Functions return 0, or -1 with a Python exception set. */
typedef struct dl_exchange {
    uint32_t major, minor;
    const struct dl_exchange *older; /* the same table for an earlier major version, or NULL */
    int (*allocate)(dl_tensor *prototype, dl_managed **out, void *user,
                    void (*fail)(void *user, const char *kind, const char *text));
    int (*managed_from_object)(void *object, dl_managed **out);
    int (*object_from_managed)(dl_managed *stolen, void **out_object);
    int (*borrow_from_object)(void *object, dl_tensor *out); /* may be NULL; valid while the object is */
    int (*work_stream)(int32_t device_type, int32_t device_id, void **out);
} dl_exchange;
#endif
