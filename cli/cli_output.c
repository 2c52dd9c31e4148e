/* cli_output.c - standard output with an exact account of what failed, and error lines on standard error.
 *
 * Writes go straight to the descriptor: stdio forgets why a write failed, and here a reader that went away
 * (fine) and a full disk (an error) must be told apart. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static char buffer[1 << 16];
static size_t used;
static int failure; /* errno of the first write that failed, or 0 */

/* -- standard output --------------------------------------------------------------------------- */

bool out_flush(void) {
    size_t done = 0;
    while (done < used && !failure) {
        ssize_t n = write(STDOUT_FILENO, buffer + done, used - done);
        struct pollfd ready = {STDOUT_FILENO, POLLOUT, 0};
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            (void)poll(&ready, 1, -1);
        else if (errno != EINTR)
            failure = errno;
    }
    used = 0;
    return !failure;
}

void out_write(const char *data, size_t n) {
    while (n > 0 && !failure) {
        if (used == sizeof buffer) (void)out_flush();
        size_t part = n < sizeof buffer - used ? n : sizeof buffer - used;
        memcpy(buffer + used, data, part);
        used += part;
        data += part;
        n -= part;
    }
}

void out_text(const char *text) { out_write(text, strlen(text)); }

void out_printf(const char *fmt, ...) {
    char small[512], *text = small;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof small) {
        va_start(ap, fmt);
        if (vasprintf(&text, fmt, ap) < 0) text = NULL;
        va_end(ap);
    }
    if (n < 0 || !text) {
        failure = ENOMEM;
        return;
    }
    out_write(text, (size_t)n);
    if (text != small) free(text);
}

int out_finish(int status) {
    (void)out_flush();
    if (!failure || failure == EPIPE) return status;
    cli_error("cannot write standard output: %s", strerror(failure));
    return status ? status : CLI_FAILED;
}

/* -- colour ------------------------------------------------------------------------------------ */

static bool wants_colour(int fd) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no && *no) return false;
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

static const char *colour_code(cli_colour c) {
    switch (c) {
    case COLOUR_OFF: return "\033[0m";
    case COLOUR_GOOD: return "\033[32m";
    case COLOUR_BAD: return "\033[1;31m";
    case COLOUR_WARN: return "\033[33m";
    case COLOUR_HEAD: return "\033[1m";
    }
    return "";
}

const char *out_colour(cli_colour c) { return wants_colour(STDOUT_FILENO) ? colour_code(c) : ""; }

/* -- errors ------------------------------------------------------------------------------------ */

/* Text from calls and files may hold escape codes; they must not reach the terminal. */
static void put_visible(const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        if (*s == 127 || (*s < 32 && *s != '\n' && *s != '\t'))
            fprintf(stderr, "\\x%02x", *s);
        else
            fputc(*s, stderr);
    }
}

void cli_error(const char *fmt, ...) {
    char text[8192];
    bool colour = wants_colour(STDERR_FILENO);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)out_flush(); /* keeps data and errors in order on a terminal */
    fprintf(stderr, "kiln: %serror:%s ", colour ? colour_code(COLOUR_BAD) : "",
            colour ? colour_code(COLOUR_OFF) : "");
    put_visible(text);
    fputc('\n', stderr);
}

void cli_kiln_error(kiln_status st) {
    const char *text = kiln_last_error();
    cli_error("%s", *text ? text : kiln_status_text(st));
}

/* -- JSON -------------------------------------------------------------------------------------- */

static int write_json(const char *data, size_t n, void *unused) {
    (void)unused;
    out_write(data, n);
    return 0;
}

void out_json(json_t *value) {
    if (!value || json_dump_callback(value, write_json, NULL, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        failure = failure ? failure : ENOMEM;
    json_decref(value);
    out_write("\n", 1);
}

json_t *cli_json_text(const char *text) {
    json_t *value = json_string(text);
    if (value) return value;
    char *copy = strdup(text);
    if (!copy) return NULL;
    for (char *s = copy; *s; s++)
        if ((unsigned char)*s > 127) *s = '?';
    value = json_string(copy);
    free(copy);
    return value;
}
