/* calltext.h - the text of a call -> an operator name and argument values.
 *
 *   call    = NAME "(" [ arg { "," arg } ] ")"               NAME: letters, digits, "_" "." ":"
 *   arg     = [ NAME "=" ] value                             named ones last
 *   value   = "None" | "true" | "false" | number | string | dtype | list | tensor | "generator"
 *   number  = 1 (up to 2^64 - 1) | -2.5 | 1e-3 | inf | -inf | nan | 2j | 1+2j
 *   string  = "text" or 'text', with \n \t \r \\ \" \' \xHH
 *   list    = "[" [ value { "," value } ] "]"
 *   tensor  = dtype "[" sizes "]" { ":strides=(" strides ")" | ":fill=" ( "randn" | "arange" | number ) }
 *           | [ dtype "[" sizes "]" ] "@" ( path | string )     a .npy file
 *
 * A tensor without a fill holds standard normal numbers (small integers, random bools) from a seed fixed
 * by its position among the call's tensors.
 *
 * What a text may cost: at most CALLTEXT_MAX bytes are read; per byte, 64 branches and 64 bytes of memory; and
 * its tensors, which are counted before any memory is asked for.  tests/fuzz/fuzz_calltext.c holds it to that. */
#ifndef KILN_CLI_CALLTEXT_H
#define KILN_CLI_CALLTEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kiln/kiln.h"

enum { CALLTEXT_MAX = 65536, CALLTEXT_DEPTH = 64, CALLTEXT_ERROR_MAX = 640 };
#define CALLTEXT_BYTES (UINT64_C(1) << 34)

typedef struct calltext_limits {
    uint64_t max_bytes; /* of all tensors of the call together, by extent or by elements, whichever is more */
    bool no_files;      /* refuse @file */
    bool no_data;       /* leave tensors uninitialised: for callers that look at shapes only */
} calltext_limits;

typedef struct calltext {
    const char *op; /* as written */
    const kiln_value *args;
    size_t nargs;
    struct calltext_block *blocks; /* everything above points into these */
} calltext;

/* Parses n bytes.  limits: NULL for CALLTEXT_BYTES, or half of the machine's memory if that is less, and no
 * refusals.  *out: freed with calltext_free.
 * On failure *out is untouched and err (CALLTEXT_ERROR_MAX bytes) reads "call:COLUMN: expected ..."; a call of one short line
 * follows with a mark below the place. */
bool calltext_parse(const char *text, size_t n, const calltext_limits *limits, calltext *out, char *err);
void calltext_free(calltext *call);
#endif
