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

/* What the type of a parameter that is no list starts with; the first that fits counts. */
static const struct {
    const char *start;
    int kind;
} type_names[] = {
    {"Tensor", PARAM_TENSOR}, {"ScalarType", PARAM_DTYPE}, {"Scalar", PARAM_SCALAR}, {"SymInt", PARAM_INT},
    {"int", PARAM_INT},       {"float", PARAM_FLOAT},      {"bool", PARAM_BOOL},     {"str", PARAM_STR},
};

/* "Tensor(a!)? self=None" between at and end as name "self" and type "Tensor?". */
static int copy_texts(const char *at, const char *type_end, const char *name, const char *name_end,
                      kp_param *out) {
    size_t n = (size_t)(name_end - name);
    out->name = PyMem_Malloc(n + (size_t)(type_end - at) + 2);
    if (!out->name) return PyErr_NoMemory(), -1;
    memcpy(out->name, name, n);
    out->name[n] = 0;
    char *to = out->name + n + 1;
    out->type = to;
    for (int depth = 0; at < type_end; at++) {
        depth += *at == '(';
        if (depth == 0) *to++ = *at;
        depth -= *at == ')';
    }
    *to = 0;
    return 0;
}

static int read_param(const char *at, const char *end, kp_param *out) {
    const char *name = at;
    int depth = 0;
    for (; name < end && !(*name == ' ' && depth == 0); name++) depth += (*name == '(') - (*name == ')');
    const char *type_end = name;
    while (name < end && *name == ' ') name++;
    const char *name_end = name;
    while (name_end < end && *name_end != '=' && *name_end != ' ') name_end++;
    if (copy_texts(at, type_end, name, name_end, out) < 0) return -1;
    out->written = memchr(at, '!', (size_t)(type_end - at)) != NULL;
    out->optional = type_end > at && type_end[-1] == '?';
    out->defaulted = name_end < end;
    out->kind = PARAM_OTHER;
    if (memchr(at, '[', (size_t)(type_end - at))) out->kind = PARAM_LIST;
    for (size_t k = 0; k < sizeof type_names / sizeof *type_names && out->kind == PARAM_OTHER; k++)
        if (starts(at, type_end, type_names[k].start)) out->kind = type_names[k].kind;
    return 0;
}

int kp_params_parse(const char *schema, int *n, kp_param **out) {
    kp_param *params = PyMem_Calloc(KILN_MAX_ARGS, sizeof *params);
    const char *at = strchr(schema, '(');
    int count = 0;
    bool named = false;
    if (!params) return PyErr_NoMemory(), -1;
    at = at ? at + 1 : schema + strlen(schema);
    while (*at && *at != ')' && count < KILN_MAX_ARGS) {
        while (*at == ' ') at++;
        const char *end = param_end(at);
        bool star = end - at == 1 && *at == '*';
        named = named || star;
        if (!star && end > at) {
            if (read_param(at, end, &params[count]) < 0) return kp_params_free(count, params), -1;
            params[count++].named = named;
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
