/* loglines.c - KILN_LOG of the environment -> which messages are written and where; a message -> its line.
 *
 * A line is one write to a file that is opened for appending, so that lines of threads and processes do not mix.  The level is set last,
 * when the file is there, and never changes after that.  Must not know who asks. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loglines.h"

static const char *const names[] = {"error", "warning", "info", "debug"};
enum { NLEVELS = sizeof names / sizeof *names, UNREAD = -2, LINE_MAX_BYTES = 2048 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around reading KILN_LOG */
static atomic_int most = UNREAD;                         /* the last level that is written; -1: none */
static int file = STDERR_FILENO;

/* The level that the first n bytes of text name, or -1. */
static int level_of(const char *text, size_t n) {
    for (int k = 0; k < NLEVELS; k++)
        if (strlen(names[k]) == n && memcmp(names[k], text, n) == 0) return k;
    return -1;
}

static bool read_setting(const char *text, int *level, char why[LOGLINES_WHY_MAX]) {
    const char *colon = strchr(text, ':');
    *level = level_of(text, colon ? (size_t)(colon - text) : strlen(text));
    if (*level < 0 || (colon && !colon[1])) {
        snprintf(
            why, LOGLINES_WHY_MAX,
            "KILN_LOG is '%.40s': expected error, warning, info or debug, or one of these, ':' and a file",
            text);
        return false;
    }
    if (!colon) return true;
    int opened = open(colon + 1, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (opened < 0) {
        snprintf(why, LOGLINES_WHY_MAX, "KILN_LOG: cannot open %.160s: %s", colon + 1, strerror(errno));
        return false;
    }
    file = opened;
    return true;
}

bool loglines_open(int otherwise, char why[LOGLINES_WHY_MAX]) {
    bool good = true;
    pthread_mutex_lock(&lock);
    if (atomic_load(&most) == UNREAD) {
        const char *text = getenv("KILN_LOG");
        int level = otherwise;
        if (text && text[0]) good = read_setting(text, &level, why);
        if (good) atomic_store(&most, level);
    }
    pthread_mutex_unlock(&lock);
    return good;
}

void loglines_write(int level, const char *topic, const char *text) {
    char line[LINE_MAX_BYTES];
    if (level > atomic_load(&most) || level < 0 || level >= NLEVELS) return;
    int n = snprintf(line, sizeof line, "kiln: %s: %s: %s\n", names[level], topic, text);
    if (n < 0) return;
    if ((size_t)n >= sizeof line) line[(n = (int)sizeof line - 1) - 1] = '\n';
    ssize_t written = write(file, line, (size_t)n);
    (void)written; /* a message that cannot be written is lost */
}
