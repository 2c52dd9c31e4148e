/* fuzz_calltext.c - any bytes as the text of a call or, after NumPy's magic, as a .npy file: parsed or refused,
 * within the budget that cli/calltext.h states.
 *
 * Tensors are kept small and files are out of reach; every element of what was made is read.  The command's
 * sources are compiled in here, since they are no part of the library, and take their memory where it is
 * counted; cli/ alone would be found beside this folder. */
#include <stdlib.h>

#include "base/base.h"
#define malloc kiln_alloc
#define realloc kiln_realloc
#define free kiln_free
#include "cli/../../cli/calltext.c"
#include "cli/../../cli/element.c"
#include "cli/../../cli/npy.c"
#include "cli/../../cli/tensorfill.c"
#undef malloc
#undef realloc
#undef free

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/cost.h"
#include "fuzz/repeat.h"

enum { TENSOR_BYTES = 4096, PER_ELEMENT = 100 }; /* steps to fill an element with a random number */
static const cost_budget to_parse = {"call", 64, 2000 + TENSOR_BYTES *PER_ELEMENT, 64,
                                     20000 + 16 * TENSOR_BYTES};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const kiln_value *values, size_t n) {
    char text[ELEMENT_TEXT_MAX];
    for (size_t i = 0; values && i < n; i++) {
        const kiln_value *v = &values[i];
        if (v->kind == KILN_LIST_V) touch(v->u.list, v->n);
        if (v->kind != KILN_TENSOR) continue;
        for (walk w = walk_start(v->u.tensor); w.left > 0; walk_next(&w))
            element_text(kiln_tensor_dtype(v->u.tensor), w.p, text);
    }
}

static void as_file(const uint8_t *data, size_t size) {
    char path[64], err[TENSOR_ERROR_MAX] = "";
    kiln_tensor *t;
    int fd = memfd_create("npy", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (npy_load(path, TENSOR_BYTES, &t, err)) {
        kiln_value v = kiln_v_tensor(t);
        touch(&v, 1);
        kiln_tensor_release(t);
    } else if (!*err) {
        abort();
    }
    close(fd);
}

static void as_call(const char *text, size_t n) {
    static const calltext_limits limits = {TENSOR_BYTES, true, false};
    char err[CALLTEXT_ERROR_MAX] = "";
    calltext call;
    cost_start();
    bool made = calltext_parse(text, n, &limits, &call, err);
    cost_check(&to_parse, n);
    if (!made) {
        if (strncmp(err, "call:", 5) != 0) abort();
        return;
    }
    touch(call.args, call.nargs);
    calltext_free(&call);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) as_file(data, size);
    repeated text = repeat_expand(data, size);
    as_call(text.text, text.n);
    free(text.text);
    return 0;
}
