/* text.h - the .inc files of this folder as embedded text.
 *
 * tools/embed writes the array at build time; only frags.c reads it. */
#ifndef KILN_MATH_TEXT_H
#define KILN_MATH_TEXT_H
#include "base/text_entry.h"

extern const kiln_text_entry kiln_text_math[];
extern const size_t kiln_text_math_count;
#endif
