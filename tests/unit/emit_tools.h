/* emit_tools.h - the toolchain with which tests of emitted kernels build, in a scratch folder of its own.
 *
 * open_tools and close_tools are a cmocka group's set-up and teardown. */
#ifndef KILN_TEST_EMIT_TOOLS_H
#define KILN_TEST_EMIT_TOOLS_H
#include <stdlib.h>
#include <unistd.h>

#include "target/cpu/build.h"

static kiln_toolchain *tools;
static char scratch[] = "/tmp/kiln-test-emit-XXXXXX";

static int open_tools(void **state) {
    (void)state;
    if (!mkdtemp(scratch)) return -1;
    return kiln_toolchain_open(NULL, scratch, &tools) == KILN_OK ? 0 : -1;
}

static int close_tools(void **state) {
    (void)state;
    kiln_toolchain_close(tools);
    return rmdir(scratch);
}
#endif
