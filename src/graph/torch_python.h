/* torch_python.h - asks the table of what PyTorch's Python code adds to its schemas (torch_python.def). */
#ifndef KILN_TORCH_PYTHON_H
#define KILN_TORCH_PYTHON_H
#include "base/base.h"

bool kiln_torch_wraps(const char *module, size_t n);          /* its functions are bindings of operators */
bool kiln_torch_is_function(const char *name, size_t n);      /* of torch, with parameters of its own */
bool kiln_torch_is_method(const char *name, size_t n);        /* of a tensor, with parameters of its own */
bool kiln_torch_takes(const char *op, const char *parameter); /* beyond the operator's schema */
const char *kiln_torch_alias(const char *name, size_t which); /* the which-th parameter so called, or NULL */
bool kiln_torch_is_random(const char *schema, size_t n);      /* the operator draws numbers */
#endif
