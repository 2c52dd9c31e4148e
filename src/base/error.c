/* error.c - statuses and the thread's last error text.
 *
 * Turns a failure into one line of text with its chain of context.  Owns one buffer per thread, on the heap:
 * hot paths want thread-local variables at fixed places, and a library that is loaded late gets few bytes of those.
 * Where there is no memory, the beginning of the text is kept without.  Must not know any other module. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { ERROR_MAX = 4096, SHORT_MAX = 94 };
static const char quiet_text[] = "no text: kiln_quiet is on";

static _Thread_local struct {
    char *text;            /* ERROR_MAX bytes, or NULL before the first failure and without memory */
    char start[SHORT_MAX]; /* stands in for it */
    bool quiet;            /* failures keep no text */
    bool silent;           /* the last one did not */
} last;

int kiln_quiet(int on) {
    bool was = last.quiet;
    last.quiet = on != 0;
    return was;
}

bool kiln_is_quiet(void) { return last.quiet; }

/* Whether a failure is to leave no text. */
static bool keep_silent(void) {
    last.silent = last.silent || last.quiet;
    return last.quiet;
}

static pthread_key_t key; /* frees a thread's text when it ends */
static bool has_key;

static void end_thread(void *text) {
    last.text = NULL;
    last.start[0] = 0;
    kiln_free(text);
}

static void make_key(void) { has_key = pthread_key_create(&key, end_thread) == 0; }

const char *kiln_last_error(void) { return last.silent ? quiet_text : last.text ? last.text : last.start; }

void kiln_clear_error(void) {
    last.silent = false;
    last.start[0] = 0;
    if (last.text) last.text[0] = 0;
}

static void set(const char *text) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!last.text) {
        pthread_once(&once, make_key);
        char *room = has_key ? kiln_alloc(ERROR_MAX) : NULL;
        if (room && pthread_setspecific(key, room) != 0) {
            kiln_free(room);
            room = NULL;
        }
        last.text = room;
    }
    snprintf(last.text ? last.text : last.start, last.text ? ERROR_MAX : SHORT_MAX, "%s", text);
    last.silent = false;
}

void kiln_set_error(const char *file, int line, kiln_status st, const char *fmt, ...) {
    if (keep_silent()) return;
    const char *slash = strrchr(file, '/');
    char text[ERROR_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text - 128, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : strlen(text);
    if (st == KILN_E_BUG)
        snprintf(text + used, sizeof text - used, " [%.80s:%d]", slash ? slash + 1 : file, line);
    set(text);
}

void kiln_set_null_error(const char *function, const char *names, size_t k) {
    if (keep_silent()) return;
    while (k-- > 0) names = strchr(names, ',') + 2;
    (void)KILN_FAIL(KILN_E_ARG, "%s: %.*s is NULL", function, (int)strcspn(names, ","), names);
}

kiln_status kiln_note(kiln_status st, const char *fmt, ...) {
    if (st == KILN_OK || keep_silent()) return st;
    char text[ERROR_MAX], context[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    snprintf(text, sizeof text, "%.500s: %.3500s", context, kiln_last_error());
    set(text);
    return st;
}

kiln_status kiln_note_after(kiln_status st, const char *fmt, ...) {
    if (st == KILN_OK || keep_silent()) return st;
    char text[ERROR_MAX], more[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(more, sizeof more, fmt, ap);
    va_end(ap);
    snprintf(text, sizeof text, "%.3500s%s", kiln_last_error(), more);
    set(text);
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
