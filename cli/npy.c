/* npy.c - a .npy file -> a tensor that owns a copy of its data.
 *
 * The file is foreign: lengths are checked against the file before memory is asked for, and the header
 * (a Python dictionary literal) is read by a small strict parser.  Must not know the call's syntax. */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tensorfill.h"

enum { NPY_HEADER_MAX = 65536 };

/* -- the header's dictionary ---------------------------------------------------------------------- */

typedef struct npy_header {
    tensor_spec spec;
    bool fortran, has_descr, has_order, has_shape;
} npy_header;

static void npy_space(const char **at) { *at += strspn(*at, " \t\r\n"); }

static bool npy_eat(const char **at, const char *text) {
    npy_space(at);
    size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

/* A quoted string without escapes into text (size bytes). */
static bool npy_string(const char **at, char *text, size_t size) {
    npy_space(at);
    char quote = **at;
    if (quote != '\'' && quote != '"') return false;
    const char *close = strchr(*at + 1, quote);
    if (!close || (size_t)(close - *at) > size) return false;
    size_t n = (size_t)(close - *at) - 1;
    memcpy(text, *at + 1, n);
    text[n] = 0;
    *at = close + 1;
    return true;
}

static bool npy_descr(const char **at, npy_header *h, char *err) {
    static const struct {
        char code[4];
        kiln_dtype dtype;
    } codes[] = {{"?", KILN_BOOL}, {"b1", KILN_BOOL},  {"u1", KILN_U8},  {"i1", KILN_I8},  {"i2", KILN_I16},
                 {"i4", KILN_I32}, {"i8", KILN_I64},   {"u2", KILN_U16}, {"u4", KILN_U32}, {"u8", KILN_U64},
                 {"c8", KILN_C64}, {"c16", KILN_C128}, {"f2", KILN_F16}, {"f4", KILN_F32}, {"f8", KILN_F64}};
    char text[16];
    if (!npy_string(at, text, sizeof text)) return tensor_error(err, "its dtype is not a simple one");
    const char *code = text + (text[0] && strchr("<|=>", text[0]) ? 1 : 0);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(code, codes[i].code) != 0) continue;
        h->spec.dtype = codes[i].dtype;
        h->has_descr = true;
        if (text[0] == '>' && kiln_dtype_size(codes[i].dtype) > 1)
            return tensor_error(err, "its dtype '%s' is big endian; only little endian is read", text);
        return true;
    }
    return tensor_error(err, "its dtype '%.16s' is not one that Kiln has", text);
}

static bool npy_shape(const char **at, npy_header *h, char *err) {
    if (!npy_eat(at, "(")) return tensor_error(err, "its header has no shape tuple");
    while (!npy_eat(at, ")")) {
        char *end;
        if (h->spec.rank == KILN_MAX_RANK)
            return tensor_error(err, "its array has more than %d dimensions", KILN_MAX_RANK);
        npy_space(at);
        if (**at < '0' || **at > '9')
            return tensor_error(err, "its shape holds something that is not a size");
        errno = 0;
        h->spec.sizes[h->spec.rank++] = strtoll(*at, &end, 10);
        if (errno) return tensor_error(err, "its shape holds a size that is out of range");
        *at = end;
        if (!npy_eat(at, ",") && (npy_space(at), **at != ')'))
            return tensor_error(err, "its shape tuple is malformed");
    }
    h->has_shape = true;
    return true;
}

static bool npy_order(const char **at, npy_header *h, char *err) {
    h->fortran = npy_eat(at, "True");
    if (!h->fortran && !npy_eat(at, "False"))
        return tensor_error(err, "its fortran_order is neither True nor False");
    h->has_order = true;
    return true;
}

static bool npy_parse_header(const char *text, npy_header *h, char *err) {
    const char *at = text;
    char key[32];
    if (!npy_eat(&at, "{")) return tensor_error(err, "its header is not a dictionary");
    while (!npy_eat(&at, "}")) {
        if (!npy_string(&at, key, sizeof key) || !npy_eat(&at, ":"))
            return tensor_error(err, "its header is malformed");
        bool known = true, ok = true;
        if (strcmp(key, "descr") == 0 && !h->has_descr)
            ok = npy_descr(&at, h, err);
        else if (strcmp(key, "fortran_order") == 0 && !h->has_order)
            ok = npy_order(&at, h, err);
        else if (strcmp(key, "shape") == 0 && !h->has_shape)
            ok = npy_shape(&at, h, err);
        else
            known = false;
        if (!ok) return false;
        if (!known) return tensor_error(err, "its header has a second or unknown key '%s'", key);
        if (!npy_eat(&at, ",") && (npy_space(&at), *at != '}'))
            return tensor_error(err, "its header is malformed");
    }
    npy_space(&at);
    if (*at) return tensor_error(err, "its header goes on after the dictionary");
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return tensor_error(err, "its header lacks descr, fortran_order or shape");
    return true;
}

/* -- the file --------------------------------------------------------------------------------- */

static bool npy_read(FILE *f, void *out, size_t n, char *err) {
    if (fread(out, 1, n, f) == n) return true;
    if (ferror(f)) return tensor_error(err, "%s", strerror(errno));
    return tensor_error(err, "the file ends too early");
}

static bool npy_read_header(FILE *f, npy_header *h, char *err) {
    unsigned char start[8], len[4] = {0};
    if (!npy_read(f, start, sizeof start, err)) return false;
    if (memcmp(start, "\x93NUMPY", 6) != 0) return tensor_error(err, "it is not a .npy file");
    if (start[6] < 1 || start[6] > 3) return tensor_error(err, "its format version is %d", start[6]);
    if (!npy_read(f, len, start[6] == 1 ? 2 : 4, err)) return false;
    uint32_t n = len[0] | (uint32_t)len[1] << 8 | (uint32_t)len[2] << 16 | (uint32_t)len[3] << 24;
    if (n > NPY_HEADER_MAX) return tensor_error(err, "its header is longer than %d bytes", NPY_HEADER_MAX);
    char *text = malloc((size_t)n + 1);
    if (!text) return tensor_error(err, "out of memory");
    bool ok = npy_read(f, text, n, err);
    if (ok) {
        text[n] = 0;
        ok = strlen(text) == n ? npy_parse_header(text, h, err)
                               : tensor_error(err, "its header holds a NUL byte");
    }
    free(text);
    return ok;
}

/* Column-major strides; the caller has checked that they do not overflow. */
static void npy_fortran_strides(tensor_spec *spec) {
    int64_t stride = 1;
    spec->has_strides = true;
    for (int d = 0; d < spec->rank; d++) {
        spec->strides[d] = stride;
        if (spec->sizes[d] > 0) stride *= spec->sizes[d];
    }
}

static bool npy_read_data(FILE *f, const tensor_spec *spec, uint64_t nbytes, kiln_tensor **out, char *err) {
    struct stat st;
    long at = ftell(f);
    if (at >= 0 && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)(st.st_size - at) < nbytes)
        return tensor_error(err, "its data is %lld bytes short of its shape",
                            (long long)(nbytes - (uint64_t)(st.st_size - at)));
    kiln_tensor *t;
    if (!tensor_spec_make(spec, nbytes, &t, err)) return false;
    unsigned char *data = kiln_tensor_data(t);
    bool ok = npy_read(f, data, nbytes, err);
    if (ok && fgetc(f) != EOF) ok = tensor_error(err, "it has more data than its shape says");
    if (ok && spec->dtype == KILN_BOOL)
        for (uint64_t i = 0; i < nbytes; i++) data[i] = data[i] != 0;
    if (ok)
        *out = t;
    else
        kiln_tensor_release(t);
    return ok;
}

bool npy_load(const char *path, uint64_t max_bytes, kiln_tensor **out, char *err) {
    npy_header h = {0};
    uint64_t nbytes;
    FILE *f = fopen(path, "rb");
    if (!f) return tensor_error(err, "%s", strerror(errno));
    bool ok = npy_read_header(f, &h, err) && tensor_spec_bytes(&h.spec, max_bytes, &nbytes, err);
    if (ok && h.fortran) npy_fortran_strides(&h.spec);
    ok = ok && npy_read_data(f, &h.spec, nbytes, out, err);
    fclose(f);
    return ok;
}
