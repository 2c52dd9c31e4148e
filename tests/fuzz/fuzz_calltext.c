/* fuzz_calltext.c - any bytes as the text of a call or, after NumPy's magic, as a .npy file: parsed or refused.
 *
 * Tensors are kept small and files are out of reach; every element of what was made is read.  The command's
 * sources are compiled in here, since they are no part of the library; cli/ alone would be found beside this
 * folder. */
#include "cli/../../cli/calltext.c"
#include "cli/../../cli/element.c"
#include "cli/../../cli/npy.c"
#include "cli/../../cli/tensorfill.c"

#include <sys/mman.h>
#include <unistd.h>

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
    if (npy_load(path, 4096, &t, err)) {
        kiln_value v = kiln_v_tensor(t);
        touch(&v, 1);
        kiln_tensor_release(t);
    } else if (!*err) {
        abort();
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const calltext_limits limits = {4096, true, false};
    char err[CALLTEXT_ERROR_MAX] = "";
    calltext call;
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) as_file(data, size);
    if (!calltext_parse((const char *)data, size, &limits, &call, err)) {
        if (strncmp(err, "call:", 5) != 0) abort();
        return 0;
    }
    touch(call.args, call.nargs);
    calltext_free(&call);
    return 0;
}
