/* clock.c - the time in nanoseconds, for deadlines and for what calls take.
 *
 * Monotonic: it goes on evenly whatever the machine's date is set to, and its zero means nothing. */
#include <time.h>

#include "base/base.h"

int64_t kiln_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
