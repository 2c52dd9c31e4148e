/* codemem.c - sizes -> pieces of executable memory.
 *
 * An arena is one memory file mapped twice, writable at one address and executable at another; pieces
 * of 64-byte units are marked in a bitmap.  Where that is refused a piece is an anonymous mapping of
 * its own, written first and made executable after.
 *
 * Forking: parent and child share an arena's bytes, so a piece that was live at a fork is never handed
 * out again by the parent (the child may still run it), and the child hands out nothing from arenas it
 * inherited.  Such space comes back when the whole arena is empty and is unmapped. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target/cpu/codemem.h"
#include "target/cpu/proc.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

enum { UNIT = KILN_CODEMEM_ALIGN, ARENA_MIN = 1 << 20, PIECE_MAX = 64 << 20, PAGE_MAX_ALIGN = 4096 };

typedef struct kiln_code_arena {
    struct kiln_code_arena *next;
    uint8_t *exec, *write; /* the same bytes */
    size_t nunits;
    size_t nlive;    /* pieces out */
    size_t hint;     /* no free unit below this one */
    bool inherited;  /* made by a process we were forked from */
    uint64_t used[]; /* one bit per unit */
} arena;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static arena *arenas;       /* under lock */
static uint64_t fork_count; /* under lock */
static atomic_int allowed = KILN_CODEMEM_ANY;

void kiln_codemem_allow(int ways) { atomic_store(&allowed, ways); }

/* -- forking --------------------------------------------------------------------------------------- */

static void before_fork(void) { pthread_mutex_lock(&lock); }

static void after_fork_parent(void) {
    fork_count++;
    pthread_mutex_unlock(&lock);
}

static void after_fork_child(void) {
    fork_count++;
    for (arena *a = arenas; a; a = a->next) a->inherited = true;
    pthread_mutex_unlock(&lock);
}

static int atfork_rc = -1;
static void watch_forks(void) {
    atfork_rc = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static bool forks_are_watched(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return atfork_rc == 0;
}

/* -- arenas ------------------------------------------------------------------------------------------ */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) & ~(to - 1); }

static bool map_twice(arena *a, size_t n) {
    if (!kiln_fsize_allows(n)) return false;
    int fd = memfd_create("kiln-code", MFD_CLOEXEC | MFD_EXEC);
    if (fd < 0) fd = memfd_create("kiln-code", MFD_CLOEXEC); /* kernels before 6.3 */
    if (fd < 0) return false;
    void *write = MAP_FAILED, *exec = MAP_FAILED;
    if (ftruncate(fd, (off_t)n) == 0) {
        write = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        exec = mmap(NULL, n, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (write != MAP_FAILED && exec != MAP_FAILED) {
        a->write = write;
        a->exec = exec;
        return true;
    }
    if (write != MAP_FAILED) munmap(write, n);
    if (exec != MAP_FAILED) munmap(exec, n);
    return false;
}

/* NULL if memory of this kind cannot be had; that is no error, there is another kind. */
static arena *new_arena(size_t need) {
    size_t n = round_up(need > ARENA_MIN ? need : ARENA_MIN, (size_t)sysconf(_SC_PAGESIZE));
    size_t nunits = n / UNIT;
    arena *a = kiln_calloc(1, sizeof *a + round_up(nunits, 64) / 8);
    if (!a) return NULL;
    a->nunits = nunits;
    if (!map_twice(a, n)) {
        kiln_free(a);
        return NULL;
    }
    a->next = arenas;
    arenas = a;
    return a;
}

static void drop_arena(arena *a) {
    arena **link = &arenas;
    while (*link && *link != a) link = &(*link)->next;
    if (*link) *link = a->next;
    munmap(a->write, a->nunits * UNIT);
    munmap(a->exec, a->nunits * UNIT);
    kiln_free(a);
}

static bool is_used(const arena *a, size_t unit) { return a->used[unit / 64] >> unit % 64 & 1; }

static void mark(arena *a, size_t first, size_t count, bool used) {
    for (size_t u = first; u < first + count; u++) {
        uint64_t bit = UINT64_C(1) << u % 64;
        if (used)
            a->used[u / 64] |= bit;
        else
            a->used[u / 64] &= ~bit;
    }
}

/* First fit; nunits if there is none. */
static size_t find_run(arena *a, size_t count, size_t align_units) {
    while (a->hint < a->nunits && is_used(a, a->hint)) a->hint++;
    size_t at = round_up(a->hint, align_units);
    while (at + count <= a->nunits) {
        size_t k = 0;
        while (k < count && !is_used(a, at + k)) k++;
        if (k == count) return at;
        at = round_up(at + k + 1, align_units);
    }
    return a->nunits;
}

static bool take_shared(size_t n, size_t align, kiln_codemem *out) {
    size_t count = round_up(n, UNIT) / UNIT;
    size_t align_units = align > UNIT ? align / UNIT : 1;
    arena *a = arenas;
    size_t at = 0;
    for (; a; a = a->next) {
        if (a->inherited) continue;
        at = find_run(a, count, align_units);
        if (at < a->nunits) break;
    }
    if (!a) {
        a = new_arena(count * UNIT);
        at = 0; /* the mapping starts on a page */
    }
    if (!a) return false;
    mark(a, at, count, true);
    a->nlive++;
    *out = (kiln_codemem){a->exec + at * UNIT, a->write + at * UNIT, count * UNIT, a, fork_count};
    return true;
}

static bool is_spare(const arena *a) { return !a->inherited && a->nunits * UNIT == ARENA_MIN; }

/* One empty arena is kept, so that loading and freeing a single kernel does not map each time. */
static void put_shared(kiln_codemem *m) {
    arena *a = m->arena;
    size_t first = (size_t)(m->exec - a->exec) / UNIT;
    if (m->fork_count == fork_count && !a->inherited) {
        mark(a, first, m->n / UNIT, false);
        if (first < a->hint) a->hint = first;
    }
    if (--a->nlive > 0) return;
    bool stale = false;
    for (size_t i = 0; i < round_up(a->nunits, 64) / 64; i++) stale = stale || a->used[i];
    for (arena *b = arenas; b; b = b->next) stale = stale || (b != a && b->nlive == 0 && is_spare(b));
    if (stale || !is_spare(a)) drop_arena(a);
}

/* -- the two kinds ------------------------------------------------------------------------------- */

static kiln_status get_private(size_t n, kiln_codemem *out) {
    size_t whole = round_up(n, (size_t)sysconf(_SC_PAGESIZE));
    void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return KILN_FAIL(KILN_E_BUILD, "cannot map %zu bytes for code: %s", whole, strerror(errno));
    *out = (kiln_codemem){p, p, whole, NULL, 0};
    return KILN_OK;
}

kiln_status kiln_codemem_get(size_t n, size_t align, kiln_codemem *out) {
    if (n == 0 || n > PIECE_MAX || align > PAGE_MAX_ALIGN)
        return KILN_FAIL(KILN_E_BUILD,
                         "code of %zu bytes aligned to %zu: expected 1 to %d bytes aligned to at most %d", n,
                         align, PIECE_MAX, PAGE_MAX_ALIGN);
    int ways = atomic_load(&allowed);
    if ((ways & KILN_CODEMEM_SHARED) && forks_are_watched()) {
        pthread_mutex_lock(&lock);
        bool got = take_shared(n, align, out);
        pthread_mutex_unlock(&lock);
        if (got) return KILN_OK;
    }
    if (ways & KILN_CODEMEM_PRIVATE) return get_private(n, out);
    return KILN_FAIL(KILN_E_BUILD, "this system gives no memory for code");
}

/* Valgrind keeps its translation of code that stood here before, as it does not see writes through the other
 * mapping: its request 0x1002 drops what it has of m.  The rotations come to nothing, so that elsewhere this is a
 * handful of instructions without effect.  Other machines tell caches of new code, and Valgrind with them. */
static void forget_old_code(const kiln_codemem *m) {
#if defined(__x86_64__)
    const uint64_t request[6] = {0x1002, (uintptr_t)m->exec, m->n, 0, 0, 0};
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(request)
                     : "cc", "memory");
#else
    __builtin___clear_cache((char *)m->exec, (char *)m->exec + m->n);
#endif
}

kiln_status kiln_codemem_seal(kiln_codemem *m) {
    if (!m->arena && mprotect(m->exec, m->n, PROT_READ | PROT_EXEC) != 0)
        return KILN_FAIL(KILN_E_BUILD, "cannot make memory executable: %s", strerror(errno));
    forget_old_code(m);
    return KILN_OK;
}

void kiln_codemem_put(kiln_codemem *m) {
    if (!m->arena) {
        munmap(m->exec, m->n);
        return;
    }
    pthread_mutex_lock(&lock);
    put_shared(m);
    pthread_mutex_unlock(&lock);
}
