/* fuzz_elf.c - any bytes given to the object loader give a status.
 *
 * No crash, no leak, nothing mapped after the code is freed.  Loaded code is never run. */
#include <stdlib.h>
#include <string.h>

#include "build/build.h"
#include "build/elf_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kiln_object o = {malloc(n ? n : 1), n}; /* exactly as long as the input, so that any overrun is seen */
    kiln_code *code = NULL;
    if (!o.bytes) return 0;
    memcpy(o.bytes, data, n);
    kiln_status st = kiln_code_load(NULL, &o, KILN_KERNEL_SYMBOL, &code);
    if (st != KILN_OK && st != KILN_E_BUILD) abort();
    if ((st == KILN_OK) != (code != NULL)) abort();
    kiln_code_free(code);
    kiln_elf_export(&o, KILN_KERNEL_SYMBOL);
    (void)kiln_elf_has_section(&o, ".note.GNU-stack");
    free(o.bytes);
    return 0;
}
