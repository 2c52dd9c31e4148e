/* cost.c - counts what cost.h speaks of; linked into every fuzz target.
 *
 * Clang calls __sanitizer_cov_trace_pc at every branch where it is told to (-fsanitize-coverage=trace-pc), and the
 * linker's --wrap leads those calls, and Kiln's calls of libc's memory functions, here.  COST=1 in the
 * environment prints what each check saw and ends nothing, for choosing budgets. */
#include "fuzz/cost.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define UNCOUNTED __attribute__((no_sanitize("coverage", "address", "undefined")))
enum { PIECE = 16 };

static size_t steps;

void __wrap___sanitizer_cov_trace_pc(void);
UNCOUNTED void __wrap___sanitizer_cov_trace_pc(void) { steps++; }

#define COUNTED(result, name, parameters, given, nbytes) \
    result __real_##name parameters;                     \
    result __wrap_##name parameters;                     \
    UNCOUNTED result __wrap_##name parameters {          \
        steps += (nbytes) / PIECE;                       \
        return __real_##name given;                      \
    }
COUNTED(void *, __asan_memcpy, (void *to, const void *from, size_t n), (to, from, n), n)
COUNTED(void *, __asan_memmove, (void *to, const void *from, size_t n), (to, from, n), n)
COUNTED(void *, __asan_memset, (void *to, int byte, size_t n), (to, byte, n), n)
COUNTED(int, memcmp, (const void *a, const void *b, size_t n), (a, b, n), n)

size_t __real_strlen(const char *s);
size_t __wrap_strlen(const char *s);
UNCOUNTED size_t __wrap_strlen(const char *s) {
    size_t n = __real_strlen(s);
    steps += n / PIECE;
    return n;
}

UNCOUNTED void cost_start(void) {
    steps = 0;
    kiln_alloc_peak_reset();
}

UNCOUNTED void cost_check(const cost_budget *b, size_t n) {
    size_t made = steps, taken = kiln_alloc_peak();
    size_t most_steps = b->steps + n * b->steps_per_byte, most_bytes = b->bytes + n * b->bytes_per_byte;
    bool over = made == 0 || made > most_steps || taken > most_bytes; /* 0: nothing is counted */
    if (over || getenv("COST"))
        fprintf(stderr, "%s: %zu bytes of text: %zu steps of %zu, %zu bytes of memory of %zu\n", b->what, n,
                made, most_steps, taken, most_bytes);
    if (over && !getenv("COST")) __builtin_trap();
}
