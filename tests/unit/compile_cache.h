/* compile_cache.h - what compilers made of texts in earlier runs, in a folder of the build tree.
 *
 * A result is kept under the hash of the text, the command and the compiler's version, so that a text that did not
 * change is not compiled again.  What a run did not ask for is removed at its end.  Each helper fails the running test by
 * itself. */
#ifndef KILN_TEST_COMPILE_CACHE_H
#define KILN_TEST_COMPILE_CACHE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

#define CACHE_NEW KILN_BUILD_DIR "/compiled"     /* asked for in this run */
#define CACHE_OLD KILN_BUILD_DIR "/compiled.old" /* not yet */

static inline int cache_open(void **state) {
    (void)state;
    if (access(CACHE_OLD, F_OK) != 0)
        (void)rename(CACHE_NEW, CACHE_OLD); /* a run that ended early left both */
    (void)mkdir(CACHE_NEW, 0777);
    return access(CACHE_NEW, W_OK);
}

static inline int cache_close(void **state) {
    (void)state;
    return system("rm -rf " CACHE_OLD);
}

/* What `cc --version` prints. */
static inline const char *version_of(const char *cc) {
    static char name[16], text[2000];
    char command[64];
    if (strcmp(name, cc) == 0) return text;
    snprintf(name, sizeof name, "%s", cc);
    snprintf(command, sizeof command, "%s --version", cc);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, sizeof text - 1, pipe);
    text[n] = 0;
    assert_int_equal(pclose(pipe), 0);
    return text;
}

/* The path of what `command` makes of the text; *known: it is there. */
static inline const char *cache_path(const char *cc, const char *command, const char *text, size_t n,
                                     bool *known) {
    static char path[600];
    char old[600];
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_sb_printf(&sb, "%s\n%s\n", version_of(cc), command);
    kiln_sb_putn(&sb, text, n);
    assert_false(sb.failed);
    kiln_digest key = kiln_hash128(sb.p, sb.len);
    kiln_sb_fini(&sb);
    unsigned long long part[2];
    memcpy(part, &key, sizeof part);
    snprintf(path, sizeof path, CACHE_NEW "/%016llx%016llx", part[0], part[1]);
    snprintf(old, sizeof old, CACHE_OLD "/%016llx%016llx", part[0], part[1]);
    *known = access(path, F_OK) == 0 || rename(old, path) == 0;
    return path;
}

/* Runs `command -o RESULT -` with the text as its input, and names the result when it is whole.  what: for the message. */
static inline void compile_into(const char *path, const char *command, const char *text, size_t n,
                                const char *what) {
    char all[2000], temporary[700];
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    snprintf(all, sizeof all, "%s -o %s - && touch %s", command, temporary, temporary);
    FILE *pipe = popen(all, "w");
    assert_non_null(pipe);
    size_t written = fwrite(text, 1, n, pipe);
    if (pclose(pipe) != 0 || written != n) fail_msg("%s: failed: %s", what, command);
    assert_int_equal(rename(temporary, path), 0);
}

/* The command must accept the text; true if it was known to. */
static inline bool cached_check(const char *cc, const char *command, const char *text, size_t n,
                                const char *what) {
    bool known;
    const char *path = cache_path(cc, command, text, n, &known);
    if (!known) compile_into(path, command, text, n, what);
    return known;
}

/* The file that the command makes of the text. */
static inline const char *cached_object(const char *cc, const char *command, const char *text, size_t n) {
    bool known;
    const char *path = cache_path(cc, command, text, n, &known);
    if (!known) compile_into(path, command, text, n, "all entries");
    return path;
}
#endif
