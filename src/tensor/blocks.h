/* blocks.h - memory of tensors, recycled: a released block serves the next tensor of its size class.
 *
 * Each thread keeps a short list per size class, taken from and given to without a lock.  A list that runs
 * over hands a chain of blocks to a depot all threads share, and an empty one takes a chain from there: so
 * memory that one thread makes and another releases comes back in batches, and a thread that ends leaves
 * its lists to the others.  Large blocks are few and their work dwarfs a lock: they are shared at once.
 * Everything kept is bounded.  Where AddressSanitizer watches, kept blocks are poisoned.  Knows bytes only. */
#ifndef KILN_BLOCKS_H
#define KILN_BLOCKS_H
#include "base/base.h"

/* Sizes are rounded up to a quarter of a power of two; above the last class a block is large. */
enum {
    KILN_BLOCK_ALIGN = 64,
    KILN_BLOCK_LOG_MIN = 6,  /* of half the least size */
    KILN_BLOCK_LOG_MAX = 20, /* 1 MiB */
    KILN_BLOCK_CLASSES = 4 * (KILN_BLOCK_LOG_MAX - KILN_BLOCK_LOG_MIN),
    KILN_BLOCK_LINK = 64 /* bytes into a kept block: two links.  All else stays as it was, but poisoned */
};

typedef struct kiln_block_list {
    char *head;
    int64_t room; /* blocks it still takes before it runs over */
} kiln_block_list;

typedef struct kiln_block_lists {
    kiln_block_list of[KILN_BLOCK_CLASSES + 1]; /* the last one, of large blocks, keeps none */
} kiln_block_lists;

#define KILN_TLS_FAST _Thread_local __attribute__((tls_model("initial-exec")))
/* Never NULL: before a thread's first use and at its end, lists that hold nothing and have no room. */
extern KILN_TLS_FAST kiln_block_lists *kiln_blocks_here;

/* n bytes, and what keeps the next ones aligned. */
static inline int64_t kiln_block_align(int64_t n) { return (n + KILN_BLOCK_ALIGN - 1) & -KILN_BLOCK_ALIGN; }

/* At least 64 bytes. */
static inline unsigned kiln_block_class(size_t nbytes) {
    unsigned log = (unsigned)__builtin_clzll((unsigned long long)nbytes - 1) ^ 63;
    return 4 * (log - KILN_BLOCK_LOG_MIN - 1) + (unsigned)((nbytes - 1) >> (log - 2)); /* which is 4 to 7 */
}
static inline size_t kiln_block_class_size(unsigned c) {
    return (size_t)(5 + c % 4) << (c / 4 + KILN_BLOCK_LOG_MIN - 2);
}

/* Where a block belongs: its class, or of a large one its size. */
typedef size_t kiln_home;

void *kiln_block_take_slow(size_t nbytes, kiln_home *home);
void kiln_block_give_slow(void *block, kiln_home home);
void kiln_blocks_trim(void); /* gives back what this thread and the depot keep */

#if defined(__SANITIZE_ADDRESS__)
#define KILN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KILN_ASAN 1
#endif
#endif
#ifdef KILN_ASAN
void kiln_block_poison(void *block, size_t size);
void kiln_block_unpoison(void *block, size_t used, size_t size); /* all but what is beyond `used` */
#else
static inline void kiln_block_poison(void *block, size_t size) { (void)block, (void)size; }
static inline void kiln_block_unpoison(void *block, size_t used, size_t size) {
    (void)block, (void)used, (void)size;
}
#endif

/* The class of a block of nbytes, of which there must be 128 or more; KILN_BLOCK_CLASSES for a large one. */
static inline unsigned kiln_block_class_or_large(size_t nbytes) {
    unsigned c = kiln_block_class(nbytes);
    return c < KILN_BLOCK_CLASSES ? c : KILN_BLOCK_CLASSES;
}

/* A block of that class for nbytes, if this thread has one; else NULL. */
static inline void *kiln_block_take_kept(unsigned class_or_large, size_t nbytes) {
    kiln_block_list *list = &kiln_blocks_here->of[class_or_large];
    char *block = list->head;
    if (!block) return NULL;
    list->head = *(char **)(block + KILN_BLOCK_LINK);
    list->room++;
    kiln_block_unpoison(block, nbytes, kiln_block_class_size(class_or_large));
    return block;
}

/* At least nbytes, 128 or more, from wherever there is memory; aligned; NULL without. */
static inline void *kiln_block_take(size_t nbytes, kiln_home *home) {
    unsigned c = kiln_block_class_or_large(nbytes);
    void *block = kiln_block_take_kept(c, nbytes);
    *home = c;
    return block ? block : kiln_block_take_slow(nbytes, home);
}

/* The same of any number of bytes. */
static inline void *kiln_block_take_any(size_t nbytes, kiln_home *home) {
    const size_t least = (size_t)2 << KILN_BLOCK_LOG_MIN;
    return kiln_block_take(nbytes < least ? least : nbytes, home);
}

/* Keeps a block for this thread if its list has room.  home: as take gave it. */
static inline bool kiln_block_keep(void *block, kiln_home home) {
    kiln_block_lists *lists = kiln_blocks_here;
    if (home >= KILN_BLOCK_CLASSES || lists->of[home].room == 0) return false;
    kiln_block_list *list = &lists->of[home];
    *(char **)((char *)block + KILN_BLOCK_LINK) = list->head;
    list->head = block;
    list->room--;
    kiln_block_poison(block, kiln_block_class_size((unsigned)home));
    return true;
}

static inline void kiln_block_give(void *block, kiln_home home) {
    if (!kiln_block_keep(block, home)) kiln_block_give_slow(block, home);
}
#endif
