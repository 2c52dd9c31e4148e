/* blocks.c - what blocks.h does when a thread's list is empty or full: depot, large blocks, thread exit.
 *
 * One lock guards all that threads share.  It is held for a few instructions, and across fork, so that a
 * child finds it free.  Must not know what blocks hold. */
#include "tensor/blocks.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#ifdef KILN_ASAN
#include <sanitizer/asan_interface.h>
#endif

enum {
    CHAIN_BYTES = 64 << 10, /* of blocks that move between a list and the depot at once ... */
    CHAIN_MAX = 32,         /* ... and how many; a list holds two chains */
    LARGE_MAX = 64,         /* large blocks kept */
    PAGE = 4096,
    APART = 512 /* bytes of a page between where a block begins and where the next one does */
};
#define DEPOT_BYTES ((size_t)32 << 20)
#define LARGE_BYTES ((size_t)256 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct large {
    char *block;
    size_t size;
} large;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *depot[KILN_BLOCK_CLASSES]; /* the first block of the first chain */
static size_t depot_bytes;
static large kept[LARGE_MAX]; /* oldest first */
static int nkept;
static size_t kept_bytes;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

static kiln_block_lists none; /* never written */
KILN_TLS_FAST kiln_block_lists *kiln_blocks_here = &none;

/* A kept block's links: the next of its chain and, in a chain's first block, the next chain. */
static char **next_of(char *block) { return (char **)(block + KILN_BLOCK_LINK); }
static char **chain_of(char *block) { return (char **)(block + KILN_BLOCK_LINK) + 1; }

#ifdef KILN_ASAN
void kiln_block_poison(void *block, size_t size) {
    size_t links = KILN_BLOCK_LINK + 2 * sizeof(char *); /* the leak check follows these */
    ASAN_POISON_MEMORY_REGION(block, KILN_BLOCK_LINK);
    ASAN_POISON_MEMORY_REGION((char *)block + links, size - links);
}

void kiln_block_unpoison(void *block, size_t used, size_t size) {
    ASAN_UNPOISON_MEMORY_REGION(block, size);
    ASAN_POISON_MEMORY_REGION((char *)block + used, size - used);
}
#endif

static void to_system(char *block, size_t size) {
    kiln_block_unpoison(block, size, size);
    kiln_free(block);
}

static void chain_to_system(char *block, size_t size) {
    while (block) {
        char *next = *next_of(block);
        to_system(block, size);
        block = next;
    }
}

static int32_t chain_length(unsigned c) {
    size_t n = CHAIN_BYTES / kiln_block_class_size(c);
    return n < 1 ? 1 : n > CHAIN_MAX ? CHAIN_MAX : (int32_t)n;
}

/* -- the depot ------------------------------------------------------------------------------------------- */

/* A chain of n blocks for whoever needs it next, or for the system if the depot is full. */
static void leave_chain(unsigned c, char *chain, int32_t n) {
    size_t bytes = kiln_block_class_size(c) * (size_t)n;
    pthread_mutex_lock(&lock);
    bool fits = depot_bytes + bytes <= DEPOT_BYTES;
    if (fits) {
        *chain_of(chain) = depot[c];
        depot[c] = chain;
        depot_bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
    if (!fits) chain_to_system(chain, kiln_block_class_size(c));
}

static char *fetch_chain(unsigned c, int32_t *n) {
    pthread_mutex_lock(&lock);
    char *chain = depot[c];
    *n = 0;
    if (chain) depot[c] = *chain_of(chain);
    for (char *b = chain; b; b = *next_of(b)) ++*n;
    depot_bytes -= kiln_block_class_size(c) * (size_t)*n;
    pthread_mutex_unlock(&lock);
    return chain;
}

/* -- a thread's lists ------------------------------------------------------------------------------------- */

static void end_thread(void *user) {
    kiln_block_lists *lists = user;
    kiln_blocks_here = &none;
    for (unsigned c = 0; c < KILN_BLOCK_CLASSES; c++) {
        int32_t n = 2 * chain_length(c) - (int32_t)lists->of[c].room;
        if (n > 0) leave_chain(c, lists->of[c].head, n);
    }
    kiln_free(lists);
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

static void start(void) {
    have_key = pthread_key_create(&at_exit, end_thread) == 0 &&
               pthread_atfork(before_fork, after_fork, after_fork) == 0;
}

/* This thread's lists, made on first use.  NULL, and nothing is kept, if that fails. */
static kiln_block_lists *lists_here(void) {
    if (kiln_blocks_here != &none) return kiln_blocks_here;
    pthread_once(&once, start);
    kiln_block_lists *lists = have_key ? kiln_calloc_apart(sizeof *lists) : NULL;
    if (!lists) return NULL;
    if (pthread_setspecific(at_exit, lists) != 0) {
        kiln_free(lists);
        return NULL;
    }
    for (unsigned c = 0; c < KILN_BLOCK_CLASSES; c++) lists->of[c].room = 2 * chain_length(c);
    kiln_blocks_here = lists;
    return lists;
}

/* -- large blocks ------------------------------------------------------------------------------------------ */

static large drop_kept(int k) {
    large l = kept[k];
    nkept--;
    memmove(kept + k, kept + k + 1, (size_t)(nkept - k) * sizeof *kept);
    kept_bytes -= l.size;
    return l;
}

/* Takes the smallest kept block that holds nbytes and is at most a quarter larger than nbytes.  Of several blocks of that
 * size it takes the one that was given back last, which the caches may still hold. */
static large fetch_large(size_t nbytes) {
    large best = {NULL, 0};
    int at = -1;
    pthread_mutex_lock(&lock);
    for (int k = 0; k < nkept; k++)
        if (kept[k].size >= nbytes && kept[k].size - nbytes <= nbytes / 4 &&
            (at < 0 || kept[k].size <= kept[at].size))
            at = k;
    if (at >= 0) best = drop_kept(at);
    pthread_mutex_unlock(&lock);
    return best;
}

/* Keeps the block; older ones go for it. */
static void keep_large(char *block, size_t size) {
    large gone[LARGE_MAX];
    int ngone = 0;
    if (size > LARGE_BYTES) {
        to_system(block, size);
        return;
    }
    pthread_mutex_lock(&lock);
    while (nkept == LARGE_MAX || kept_bytes + size > LARGE_BYTES) gone[ngone++] = drop_kept(0);
    kept[nkept++] = (large){block, size};
    kept_bytes += size;
    pthread_mutex_unlock(&lock);
    for (int k = 0; k < ngone; k++) to_system(gone[k].block, gone[k].size);
}

/* -- what blocks.h calls ------------------------------------------------------------------------------------ */

/* Memory for a block.  Blocks that are made one after the other often lie one behind the other, and are then read and written
 * together.  Processors compare a read with earlier writes by its place in a page: where a result lies just behind an input in
 * that sense, each read waits for a write that it has nothing to do with, and a sum takes up to three times as long.  So what
 * follows a block begins APART bytes later in a page. */
static char *from_system(size_t align, size_t size) {
    size_t over = size % PAGE;
    return kiln_alloc_aligned(align, size >= PAGE && over < APART ? size - over + APART : size);
}

/* Memory for a large block.  Of several huge pages it asks to be made of such: walking through it then misses the
 * table of pages 512 times less often.  A system that has none, or will not, leaves it as it was. */
static char *large_from_system(size_t size) {
    bool huge = size >= 2 * HUGE_PAGE;
    char *block = from_system(huge ? HUGE_PAGE : KILN_BLOCK_ALIGN, size);
#ifdef MADV_HUGEPAGE
    if (block && huge) (void)madvise(block, size & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
#endif
    return block;
}

static void *take_large(size_t nbytes, kiln_home *home) {
    large l = fetch_large(nbytes);
    if (!l.block) {
        l.size = (nbytes + KILN_BLOCK_ALIGN - 1) & ~(size_t)(KILN_BLOCK_ALIGN - 1);
        l.block = large_from_system(l.size);
        if (!l.block) return NULL;
    }
    *home = l.size;
    kiln_block_unpoison(l.block, nbytes, l.size);
    return l.block;
}

void *kiln_block_take_slow(size_t nbytes, kiln_home *home) {
    unsigned c = kiln_block_class(nbytes);
    if (c >= KILN_BLOCK_CLASSES) return take_large(nbytes, home);
    size_t size = kiln_block_class_size(c);
    kiln_block_lists *lists = lists_here();
    int32_t n = 0;
    char *block = lists ? fetch_chain(c, &n) : NULL;
    if (block) {
        lists->of[c].head = *next_of(block);
        lists->of[c].room -= n - 1;
    } else {
        block = from_system(KILN_BLOCK_ALIGN, size);
        if (!block) return NULL;
    }
    *home = c;
    kiln_block_unpoison(block, nbytes, size);
    return block;
}

/* Moves the older half of a full list to the depot: what was used last stays near. */
static void spill(kiln_block_list *list, unsigned c) {
    int32_t n = chain_length(c);
    char *last = list->head;
    for (int32_t k = 1; k < n; k++) last = *next_of(last);
    char *chain = *next_of(last);
    *next_of(last) = NULL;
    list->room += n;
    leave_chain(c, chain, n);
}

void kiln_block_give_slow(void *block, kiln_home home) {
    bool is_large = home >= KILN_BLOCK_CLASSES;
    size_t size = is_large ? home : kiln_block_class_size((unsigned)home);
    kiln_block_lists *lists = is_large ? NULL : lists_here();
    kiln_block_poison(block, size);
    if (is_large) {
        keep_large(block, size);
    } else if (!lists) {
        to_system(block, size);
    } else {
        if (lists->of[home].room == 0) spill(&lists->of[home], (unsigned)home);
        (void)kiln_block_keep(block, home); /* there is room now */
    }
}

void kiln_blocks_trim(void) {
    kiln_block_lists *lists = kiln_blocks_here;
    char *chains[KILN_BLOCK_CLASSES];
    large gone[LARGE_MAX];
    for (unsigned c = 0; lists != &none && c < KILN_BLOCK_CLASSES; c++) {
        chain_to_system(lists->of[c].head, kiln_block_class_size(c));
        lists->of[c] = (kiln_block_list){NULL, 2 * chain_length(c)};
    }
    pthread_mutex_lock(&lock);
    int ngone = nkept;
    memcpy(chains, depot, sizeof chains);
    memset(depot, 0, sizeof depot);
    memcpy(gone, kept, sizeof gone);
    nkept = 0;
    depot_bytes = kept_bytes = 0;
    pthread_mutex_unlock(&lock);
    for (unsigned c = 0; c < KILN_BLOCK_CLASSES; c++)
        while (chains[c]) {
            char *chain = chains[c];
            chains[c] = *chain_of(chain);
            chain_to_system(chain, kiln_block_class_size(c));
        }
    for (int k = 0; k < ngone; k++) to_system(gone[k].block, gone[k].size);
}
