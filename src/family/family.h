/* family.h - the families that are served: what each does to shapes, axes and IR is in a file of its own. */
#ifndef KILN_FAMILY_H
#define KILN_FAMILY_H
#include "infer/infer.h"

extern const kiln_family_fns kiln_family_map, kiln_family_fold, kiln_family_scan, kiln_family_extern,
    kiln_family_compose;
#endif
