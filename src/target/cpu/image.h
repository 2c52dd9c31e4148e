/* image.h - one kernel as bytes that can be kept in a store and loaded at any address. */
#ifndef KILN_CPU_IMAGE_H
#define KILN_CPU_IMAGE_H
#include "target/cpu/build.h"
#include "target/cpu/codemem.h"

/* Makes the image of one kernel of an object: *out is heap.  Fails where code cannot be moved, and stores then keep nothing. */
kiln_status kiln_image_make(const kiln_object *o, const char *symbol, kiln_object *out) KILN_MUST_CHECK;

/* Places an image in code memory.  Every field is checked: images come from files that may be damaged.  KILN_E_BUILD: the image is
 * damaged.  KILN_E_NOMEM: the system gives no memory for code. */
kiln_status kiln_image_load(const void *bytes, size_t n, kiln_codemem *out, void **entry) KILN_MUST_CHECK;
#endif
