/* torch_python.c - questions to torch_python.def.
 *
 * The lists are short and asked once per call that is normalised, so they are walked.  Knows texts, neither nodes
 * nor schemas. */
#include "graph/torch_python.h"

#include <string.h>

static const char *const modules[] = {
#define MODULE(name) name,
#define FUNCTION(name)
#define METHOD(name)
#define EXTRA(op, parameter)
#define ALIAS(name, parameter)
#define RANDOM(word)
#include "graph/torch_python.def"
#undef MODULE
#define MODULE(name)
};

static const char *const functions[] = {
#undef FUNCTION
#define FUNCTION(name) name,
#include "graph/torch_python.def"
#undef FUNCTION
#define FUNCTION(name)
};

static const char *const methods[] = {
#undef METHOD
#define METHOD(name) name,
#include "graph/torch_python.def"
#undef METHOD
#define METHOD(name)
};

static const char *const extras[][2] = {
#undef EXTRA
#define EXTRA(op, parameter) {op, parameter},
#include "graph/torch_python.def"
#undef EXTRA
#define EXTRA(op, parameter)
};

static const char *const aliases[][2] = {
#undef ALIAS
#define ALIAS(name, parameter) {name, parameter},
#include "graph/torch_python.def"
#undef ALIAS
#define ALIAS(name, parameter)
};

static const char *const random_words[] = {
#undef RANDOM
#define RANDOM(word) word,
#include "graph/torch_python.def"
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool listed(const char *const *list, size_t count, const char *name, size_t n) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == n && memcmp(list[i], name, n) == 0) return true;
    return false;
}

bool kiln_torch_wraps(const char *module, size_t n) { return listed(modules, COUNT(modules), module, n); }
bool kiln_torch_is_function(const char *name, size_t n) {
    return listed(functions, COUNT(functions), name, n);
}
bool kiln_torch_is_method(const char *name, size_t n) { return listed(methods, COUNT(methods), name, n); }

bool kiln_torch_takes(const char *op, const char *parameter) {
    for (size_t i = 0; i < COUNT(extras); i++)
        if (strcmp(extras[i][0], op) == 0 && strcmp(extras[i][1], parameter) == 0) return true;
    return false;
}

const char *kiln_torch_alias(const char *name, size_t which) {
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (strcmp(aliases[i][0], name) == 0 && which-- == 0) return aliases[i][1];
    return NULL;
}

bool kiln_torch_is_random(const char *schema, size_t n) {
    for (size_t i = 0; i < COUNT(random_words); i++)
        if (memmem(schema, n, random_words[i], strlen(random_words[i]))) return true;
    return false;
}
