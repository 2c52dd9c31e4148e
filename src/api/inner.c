/* inner.c - a call that makes other calls -> the counters of one call.
 *
 * A composition calls operators, a row with a `rest` calls one more, and a list is walked by groups and single items.  Each of these
 * inner calls counts itself, as calls of a user do, since looking at who called would cost every call instructions.  The call around
 * them takes their counts back and counts once.  Another thread that reads the counters meanwhile sees the inner calls for that
 * long.  Must not know what inner calls compute. */
#include "api/ctx.h"

/* Counters that count calls, and so must not count inner ones. */
static const kiln_counter of_calls[] = {KILN_COUNTER_calls, KILN_COUNTER_slot_hits, KILN_COUNTER_table_hits,
                                        KILN_COUNTER_interp_calls, KILN_COUNTER_fallbacks};
enum { CALLS, SLOT_HITS, INTERP_CALLS = 3 }; /* places in of_calls */
_Static_assert(sizeof of_calls / sizeof *of_calls == KILN_INNER_COUNTS, "kiln_inner has room for each");

void kiln_inner_begin(const kiln_thread *t, kiln_inner *in) {
    for (int k = 0; k < KILN_INNER_COUNTS; k++) in->before[k] = kiln_thread_counted(t, of_calls[k]);
}

bool kiln_inner_end(kiln_thread *t, const kiln_inner *in) {
    uint64_t more[KILN_INNER_COUNTS];
    for (int k = 0; k < KILN_INNER_COUNTS; k++) {
        more[k] = kiln_thread_counted(t, of_calls[k]) - in->before[k];
        kiln_thread_count(t, of_calls[k], -more[k]);
    }
    kiln_thread_count(t, KILN_COUNTER_inner_calls, more[CALLS] + more[SLOT_HITS]);
    return more[INTERP_CALLS] != 0;
}
