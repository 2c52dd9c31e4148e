/* loglines.h - messages of the library -> lines of text, as far as KILN_LOG of the environment asks for them.
 *
 * KILN_LOG is LEVEL or LEVEL:FILE, where LEVEL is error, warning, info or debug: messages of that level and worse ones are written, to
 * standard error or to the end of FILE.  The command and the Python module share this; the library itself never prints. */
#ifndef KILN_CLI_LOGLINES_H
#define KILN_CLI_LOGLINES_H
#include <stdbool.h>
#include <stddef.h>

enum { LOGLINES_WHY_MAX = 300 };

/* Reads KILN_LOG, once per process: later calls do nothing, unless the first ones failed.  otherwise: the level where KILN_LOG is not set;
 * -1 for no messages at all.  False: KILN_LOG is wrong or the file cannot be opened, and `why` says so. */
bool loglines_open(int otherwise, char why[LOGLINES_WHY_MAX]);
/* Writes "kiln: warning: TOPIC: TEXT" by one write, if the level is asked for.  From any thread. */
void loglines_write(int level, const char *topic, const char *text);
#endif
