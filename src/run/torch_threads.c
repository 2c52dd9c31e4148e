/* torch_threads.c - finds PyTorch in the running process and runs loops on its threads.
 *
 * Nothing is loaded here.  The dynamic linker counts the libraries that it has loaded; a look at its counter costs some 30 ns and
 * says whether PyTorch may have been loaded since the last look.  What is used of PyTorch are two functions of its stable C
 * interface (torch/csrc/stable/c/shim.h, since PyTorch 2.10), and one of C++ that can be done without.  In a child that was forked from
 * a process with PyTorch, OpenMP would wait forever for threads that the child does not have: forks are watched, too.  Knows
 * nothing of Kiln's own threads, or of what a loop does. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "run/torch_threads.h"

#define LIBRARY "libtorch_cpu.so" /* a version may follow */

enum {
    PATH_BYTES = 4096,
    TORCH_OK = 0,
    FORKED_WITHOUT_EXEC = 0x40 /* PF_FORKNOEXEC of the kernel, among the flags that proc_pid_stat(5) shows */
};

typedef enum torch_state {
    NOT_LOADED, /* when it was last looked for */
    USABLE,
    UNUSABLE /* loaded, without the functions */
} torch_state;

/* Written once, before `state` is USABLE. */
static struct {
    int32_t (*parallel_for)(int64_t begin, int64_t end, int64_t grain,
                            void (*body)(int64_t begin, int64_t end, void *user), void *user);
    int32_t (*num_threads)(uint32_t *out);
    bool (*in_parallel_region)(
        void); /* NULL: PyTorch does not say; its loops inside loops run on their callers anyway */
} torch;

static _Atomic(torch_state) state;
static _Atomic uint64_t looked_at; /* the linker's counter at the last look */
static atomic_bool looking;        /* a thread is looking for PyTorch */
static atomic_bool forked;
static bool loaded_first;              /* PyTorch was loaded before this library */
static atomic_bool loaded_before_fork; /* what a fork tells its child */

/* -- the libraries of this process --------------------------------------------------------------------- */

static int read_counter(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    *(uint64_t *)user = info->dlpi_adds;
    return 1; /* no other library */
}

/* How many libraries have been loaded since the process began. */
static uint64_t libraries_loaded(void) {
    uint64_t n = 0;
    (void)dl_iterate_phdr(read_counter, &n);
    return n;
}

/* Copies the library's path to user, which has PATH_BYTES. */
static int is_torch(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    const char *path = info->dlpi_name, *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    if (!name || strncmp(name, LIBRARY, strlen(LIBRARY)) != 0 || strlen(path) >= PATH_BYTES) return 0;
    const char end = name[strlen(LIBRARY)];
    if (end && end != '.') return 0;
    strcpy(user, path);
    return 1;
}

/* -- forks ------------------------------------------------------------------------------------------------- */

/* The process that this one was forked from; 0: exec has been called since, or the system does not say. */
static int forked_from(void) {
    char line[1024];
    int parent = 0;
    unsigned flags = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f) return 0;
    const char *name_end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    if (!name_end || sscanf(name_end, ") %*c %d %*d %*d %*d %*d %u", &parent, &flags) != 2) return 0;
    return flags & FORKED_WITHOUT_EXEC ? parent : 0;
}

/* Whether this process has PyTorch from a fork that happened before this library was loaded.  The test: the parent
 * process has PyTorch loaded, too. */
static bool is_fork_with_torch(void) {
    char line[PATH_BYTES + 100];
    int parent = forked_from();
    bool has = false;
    if (!parent) return false;
    snprintf(line, sizeof line, "/proc/%d/maps", parent);
    FILE *f = fopen(line, "re");
    while (f && !has && fgets(line, sizeof line, f)) has = strstr(line, "/" LIBRARY) != NULL;
    if (f) fclose(f);
    return has;
}

static void before_fork(void) {
    char path[PATH_BYTES];
    bool loaded = atomic_load(&state) != NOT_LOADED || dl_iterate_phdr(is_torch, path);
    atomic_store(&loaded_before_fork, loaded);
}

static void after_fork_child(void) {
    if (atomic_load(&loaded_before_fork)) atomic_store(&forked, true);
    atomic_store(&looking, false);
}

/* Runs when this library is loaded: a process may fork before it opens a context, and open one in the child. */
__attribute__((constructor)) static void watch_forks(void) {
    char path[PATH_BYTES];
    loaded_first = dl_iterate_phdr(is_torch, path) != 0;
    (void)pthread_atfork(before_fork, NULL, after_fork_child);
}

/* -- finding PyTorch ------------------------------------------------------------------------------------- */

static void find_function(void *library, const char *name, void *out) {
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
}

/* The handle is never closed, so that the functions stay. */
static torch_state find_functions(const char *path) {
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    if (!library) return NOT_LOADED; /* unloaded again */
    find_function(library, "torch_parallel_for", &torch.parallel_for);
    find_function(library, "torch_get_num_threads", &torch.num_threads);
    find_function(library, "_ZN2at18in_parallel_regionEv", &torch.in_parallel_region);
    return torch.parallel_for && torch.num_threads ? USABLE : UNUSABLE;
}

/* Looks for PyTorch if libraries have been loaded since the last look.  Threads that come meanwhile go on as if there were none. */
static torch_state look(void) {
    char path[PATH_BYTES];
    uint64_t counter = libraries_loaded();
    if (counter == atomic_load_explicit(&looked_at, memory_order_relaxed)) return NOT_LOADED;
    if (atomic_exchange(&looking, true)) return NOT_LOADED;
    torch_state now = atomic_load(&state);
    if (now == NOT_LOADED && dl_iterate_phdr(is_torch, path)) now = find_functions(path);
    if (now == USABLE && loaded_first && is_fork_with_torch()) atomic_store(&forked, true);
    atomic_store_explicit(&state, now, memory_order_release);
    atomic_store_explicit(&looked_at, counter, memory_order_relaxed);
    atomic_store(&looking, false);
    return now;
}

/* -- what pool.c asks --------------------------------------------------------------------------------------- */

bool kiln_torch_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

int kiln_torch_threads(void) {
    torch_state now = atomic_load_explicit(&state, memory_order_acquire);
    uint32_t n = 1;
    if (now == NOT_LOADED) now = look();
    if (now != USABLE) return 0;
    if (kiln_torch_forked() || (torch.in_parallel_region && torch.in_parallel_region())) return 1;
    if (torch.num_threads(&n) != TORCH_OK || n < 1) return 1;
    return n < INT_MAX ? (int)n : INT_MAX;
}

typedef struct torch_loop {
    void (*body)(void *user, int64_t k);
    void *user;
} torch_loop;

static void run_between(int64_t begin, int64_t end, void *user) {
    const torch_loop *l = user;
    for (int64_t k = begin; k < end; k++) l->body(l->user, k);
}

void kiln_torch_run(int n, void (*body)(void *user, int64_t k), void *user) {
    torch_loop l = {body, user};
    (void)torch.parallel_for(0, n, 1, run_between, &l);
}
