/* npy.h - NumPy's .npy files -> tensors.
 *
 * The files are foreign: whatever they hold, the answer is a tensor or an error text. */
#ifndef KILN_CLI_NPY_H
#define KILN_CLI_NPY_H
#include <stdbool.h>
#include <stdint.h>

#include "kiln/kiln.h"

/* Loads the array in path: format versions 1 to 3, C or Fortran order (kept as strides), little endian,
 * bool, u8, i8..i64, f16, f32 and f64.  *out: owned by the caller.  err: TENSOR_ERROR_MAX bytes. */
bool npy_load(const char *path, uint64_t max_bytes, kiln_tensor **out, char *err);
#endif
