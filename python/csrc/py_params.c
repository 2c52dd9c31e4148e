/* py_params.c - an operator's schema text -> its parameters: name, type, written or not.
 *
 * Reads only what it needs of text that Kiln itself printed; anything it does not know is PARAM_OTHER. */
#include <string.h>

#include "kilnpy.h"

/* The end of the parameter that starts at `at`: a comma or parenthesis outside brackets and quotes. */
static const char *param_end(const char *at) {
    int depth = 0;
    char quote = 0;
    for (; *at; at++) {
        if (quote) {
            if (*at == '\\' && at[1])
                at++;
            else if (*at == quote)
                quote = 0;
        } else if (*at == '"' || *at == '\'') {
            quote = *at;
        } else if (*at == '(' || *at == '[') {
            depth++;
        } else if (depth == 0 && (*at == ')' || *at == ']' || *at == ',')) {
            return at;
        } else if (*at == ')' || *at == ']') {
            depth--;
        }
    }
    return at;
}

static bool starts(const char *at, const char *end, const char *word) {
    size_t n = strlen(word);
    return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

/* "Tensor(a!)? self=None" between at and end. */
static int read_param(const char *at, const char *end, kp_param *out) {
    const char *name = at;
    int depth = 0;
    for (; name < end && !(*name == ' ' && depth == 0); name++) depth += (*name == '(') - (*name == ')');
    const char *type_end = name;
    while (name < end && *name == ' ') name++;
    const char *name_end = name;
    while (name_end < end && *name_end != '=' && *name_end != ' ') name_end++;
    out->name = PyMem_Malloc((size_t)(name_end - name) + 1);
    if (!out->name) return PyErr_NoMemory(), -1;
    memcpy(out->name, name, (size_t)(name_end - name));
    out->name[name_end - name] = 0;
    bool list = memchr(at, '[', (size_t)(type_end - at)) != NULL;
    out->written = memchr(at, '!', (size_t)(type_end - at)) != NULL;
    out->kind = PARAM_OTHER;
    if (list) return 0;
    if (starts(at, type_end, "Tensor"))
        out->kind = PARAM_TENSOR;
    else if (starts(at, type_end, "ScalarType"))
        out->kind = PARAM_DTYPE;
    else if (starts(at, type_end, "Scalar"))
        out->kind = PARAM_SCALAR;
    return 0;
}

int kp_params_parse(const char *schema, int *n, kp_param **out) {
    kp_param *params = PyMem_Calloc(KILN_MAX_ARGS, sizeof *params);
    const char *at = strchr(schema, '(');
    int count = 0;
    if (!params) return PyErr_NoMemory(), -1;
    at = at ? at + 1 : schema + strlen(schema);
    while (*at && *at != ')' && count < KILN_MAX_ARGS) {
        while (*at == ' ') at++;
        const char *end = param_end(at);
        bool star = end - at == 1 && *at == '*';
        if (!star && end > at) {
            if (read_param(at, end, &params[count]) < 0) return kp_params_free(count, params), -1;
            count++;
        }
        at = *end == ',' ? end + 1 : end;
    }
    *n = count;
    *out = params;
    return 0;
}

void kp_params_free(int n, kp_param *params) {
    for (int k = 0; params && k < n; k++) PyMem_Free(params[k].name);
    PyMem_Free(params);
}
