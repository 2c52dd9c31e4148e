/* error.c - statuses and the thread's last error text.
 *
 * Turns a failure into one line of text with its chain of context.  Owns one fixed buffer per
 * thread, so that reporting out-of-memory needs no memory.  Must not know any other module. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { ERROR_MAX = 4096 };

static _Thread_local char last_error[ERROR_MAX];

const char *kiln_last_error(void) { return last_error; }

void kiln_clear_error(void) { last_error[0] = 0; }

void kiln_set_error(const char *file, int line, kiln_status st, const char *fmt, ...) {
    const char *slash = strrchr(file, '/');
    char text[ERROR_MAX - 128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (st == KILN_E_BUG)
        snprintf(last_error, sizeof last_error, "%s [%s:%d]", text, slash ? slash + 1 : file, line);
    else
        snprintf(last_error, sizeof last_error, "%s", text);
}

kiln_status kiln_note(kiln_status st, const char *fmt, ...) {
    if (st == KILN_OK) return st;
    char old[ERROR_MAX], context[512];
    memcpy(old, last_error, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    snprintf(last_error, sizeof last_error, "%.500s: %.3500s", context, old);
    return st;
}

const char *kiln_status_name(kiln_status st) {
    switch (st) {
#define S(name, value, text) \
    case KILN_##name:        \
        return "KILN_" #name;
#include "kiln/status.def"
#undef S
    }
    return "KILN_E_UNKNOWN";
}

const char *kiln_status_text(kiln_status st) {
    switch (st) {
#define S(name, value, text) \
    case KILN_##name:        \
        return text;
#include "kiln/status.def"
#undef S
    }
    return "not a status of this version";
}
