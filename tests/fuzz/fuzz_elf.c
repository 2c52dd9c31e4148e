/* fuzz_elf.c - any bytes given to the object loader, and to the linker that makes images of kernels, give a status.
 *
 * An image that was made can be loaded.  No crash, no leak, nothing mapped after the code is freed.  Loaded code is never run. */
#include <stdlib.h>
#include <string.h>

#include "target/cpu/build.h"
#include "target/cpu/elf_load.h"
#include "target/cpu/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void make_image(const kiln_object *o) {
    kiln_object image = {0};
    kiln_code *code = NULL;
    kiln_status st = kiln_image_make(o, KILN_KERNEL_SYMBOL, &image);
    if (st != KILN_OK && st != KILN_E_BUILD) abort();
    if (st == KILN_OK && kiln_code_load_image(&image, &code) != KILN_OK) abort();
    kiln_code_free(code);
    kiln_object_fini(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kiln_object o = {.bytes = malloc(n ? n : 1),
                     .n = n}; /* exactly as long as the input, so that any overrun is seen */
    kiln_code *code = NULL;
    if (!o.bytes) return 0;
    memcpy(o.bytes, data, n);
    kiln_status st = kiln_code_load(NULL, &o, KILN_KERNEL_SYMBOL, &code);
    if (st != KILN_OK && st != KILN_E_BUILD) abort();
    if ((st == KILN_OK) != (code != NULL)) abort();
    kiln_code_free(code);
    make_image(&o);
    kiln_elf_export(&o, KILN_KERNEL_SYMBOL);
    free(o.bytes);
    return 0;
}
