/* ir_text.h - kernels of the IR as text: reading and printing them in tests, and a head with buffers of many kinds. */
#ifndef KILN_IR_TEXT_H
#define KILN_IR_TEXT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "ir/ir.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void print_to(char *out, size_t n, const kiln_ir *ir) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_ir_print(&sb, ir);
    assert_false(sb.failed);
    assert_true(sb.len < n);
    memcpy(out, sb.p, sb.len + 1);
    kiln_sb_fini(&sb);
}

static kiln_ir *parse(kiln_arena *a, const char *text) {
    kiln_ir *ir = NULL;
    if (kiln_ir_parse(a, text, strlen(text), &ir) != KILN_OK) fail_msg("%s\n%s", kiln_last_error(), text);
    return ir;
}

#define HEAD                                                                                                    \
    "kernel \"k\" { axis p grid axis r axis q axis z "                                                          \
    "buf x in f32 (r) buf y out f32 (r) buf g in f32 (p) buf h in f16 (r) buf hy out f16 (r) buf t tmp f32 () " \
    "buf b in bool (r) buf o inout f32 (r, q) par a f32 "
#endif
