/* family.h - the families that are served: what each does to shapes, axes and IR is in kiln_family_NAME, in NAME.c. */
#ifndef KILN_FAMILY_H
#define KILN_FAMILY_H
#include "infer/infer.h"

/* IF_SERVED_1 keeps what it is given, IF_SERVED_0 drops it. */
#define KILN_IF_SERVED_0(...)
#define KILN_IF_SERVED_1(...) __VA_ARGS__

#define F(NAME, name, served) KILN_IF_SERVED_##served(extern const kiln_family_fns kiln_family_##name;)
#include "op/family.def"
#undef F
#endif
