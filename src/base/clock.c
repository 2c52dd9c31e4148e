/* clock.c - the time, for deadlines and for what calls take.  Monotonic: it knows nothing of dates. */
#include <time.h>

#include "base/base.h"

int64_t kiln_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
