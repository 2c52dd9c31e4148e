/* spent.h - what an input costs in memory: bytes held at once and bytes asked for, from start to now.
 *
 * The address sanitizer, which every fuzzer is built with, tells of each allocation.  Only those between
 * spent_start and spent_stop count, and freeing what was there before does not.  No clock: bytes asked for grow with
 * what is done, since each node of a tree is allocated. */
#ifndef KILN_SPENT_H
#define KILN_SPENT_H
#include <sanitizer/allocator_interface.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct spent {
    size_t now, most, total; /* bytes held, held at once at most, asked for */
} spent;

static struct {
    bool on, installed;
    spent so_far;
} spent_state;

static void spent_note(const volatile void *p, size_t n) {
    spent *s = &spent_state.so_far;
    (void)p;
    if (!spent_state.on) return;
    s->now += n;
    s->total += n;
    if (s->now > s->most) s->most = s->now;
}

static void spent_forget(const volatile void *p) {
    spent *s = &spent_state.so_far;
    if (!spent_state.on || !p) return;
    size_t n = __sanitizer_get_allocated_size(p);
    s->now -= n < s->now ? n : s->now;
}

static void spent_start(void) {
    if (!spent_state.installed)
        spent_state.installed = __sanitizer_install_malloc_and_free_hooks(spent_note, spent_forget);
    if (!spent_state.installed) __builtin_trap();
    spent_state.so_far = (spent){0, 0, 0};
    spent_state.on = true;
}

static spent spent_stop(void) {
    spent_state.on = false;
    return spent_state.so_far;
}
#endif
