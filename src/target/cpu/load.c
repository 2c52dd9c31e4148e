/* load.c - object -> callable entry point, by our own loader or, failing that, the system's.
 *
 * The system's way (link a shared library, dlopen it) costs ten times as much and a handful of
 * mappings a kernel; it is there for hardened systems and for objects that need a real linker. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target/cpu/elf_load.h"
#include "target/cpu/image.h"
#include "target/cpu/proc.h"
#include "target/cpu/tools.h"

/* One object in memory.  Its kernels share it, and the last one that is freed takes it along. */
typedef struct image {
    atomic_int users;
    kiln_codemem mem; /* ours, if library is NULL */
    void *library;
} image;

typedef struct loaded {
    kiln_code code; /* first: what others see */
    image *image;
} loaded;

enum { LINK_ARGS_MAX = 540 };

static void drop_image(image *i) {
    if (!i || atomic_fetch_sub(&i->users, 1) > 1) return;
    if (i->library)
        dlclose(i->library);
    else
        kiln_codemem_put(&i->mem);
    kiln_free(i);
}

/* Takes over mem or library, also on failure. */
static image *new_image(kiln_codemem *mem, void *library) {
    image *i = kiln_calloc(1, sizeof *i);
    if (i) {
        atomic_init(&i->users, 1);
        if (mem) i->mem = *mem;
        i->library = library;
    } else if (library) {
        dlclose(library);
    } else {
        kiln_codemem_put(mem);
    }
    return i;
}

static void drop_code(kiln_code *c) {
    drop_image(((loaded *)c)->image);
    kiln_free(c);
}

/* Makes a kernel that uses the image; NULL: there was no memory, or i is NULL. */
static kiln_code *new_code(image *i, void *entry, size_t nbytes) {
    loaded *c = i ? kiln_calloc(1, sizeof *c) : NULL;
    if (!c) return NULL;
    memcpy(&c->code.entry, &entry, sizeof entry); /* data to function pointer, which a cast may not do */
    c->code.nbytes = nbytes;
    c->code.drop = drop_code;
    c->image = i;
    atomic_fetch_add(&i->users, 1);
    return &c->code;
}

/* -- our loader ---------------------------------------------------------------------------------------- */

/* The first kernel counts the bytes that cannot be shared out evenly. */
static kiln_status load_own(const kiln_object *o, const char *const *symbols, int n, bool *linkable,
                            kiln_code **out) {
    kiln_codemem mem;
    void *entries[KILN_CODE_MAX];
    kiln_code *made[KILN_CODE_MAX];
    KILN_TRY(kiln_elf_load(o, symbols, n, &mem, entries, linkable));
    size_t all = mem.n, each = all / (size_t)n;
    image *i = new_image(&mem, NULL);
    int got = 0;
    for (; got < n; got++) {
        made[got] = new_code(i, entries[got], got ? each : all - each * ((size_t)n - 1));
        if (!made[got]) break;
    }
    drop_image(i); /* it belongs to its kernels from here on */
    if (got == n) memcpy(out, made, (size_t)n * sizeof *made);
    while (got < n && got > 0) kiln_code_free(made[--got]);
    return got == n ? KILN_OK : KILN_NOMEM();
}

kiln_status kiln_code_load_image(const kiln_object *bytes, kiln_code **out) {
    kiln_codemem mem;
    void *entry;
    KILN_TRY(kiln_image_load(bytes->bytes, bytes->n, &mem, &entry));
    image *i = new_image(&mem, NULL);
    kiln_code *c = new_code(i, entry, mem.n);
    drop_image(i); /* it belongs to its kernel from here on */
    if (!c) return KILN_NOMEM();
    *out = c;
    return KILN_OK;
}

/* -- the system's ---------------------------------------------------------------------------------- */

/* Two files of one name in dir: the object and the library. */
typedef struct paths {
    char object[1100], library[1100];
} paths;

static kiln_status name_files(const char *dir, paths *p) {
    snprintf(p->object, sizeof p->object, "%.1024s/kiln-XXXXXX.o", dir);
    int fd = mkostemps(p->object, 2, O_CLOEXEC);
    if (fd < 0) return KILN_FAIL(KILN_E_BUILD, "cannot make a file in %s to link", dir);
    close(fd);
    snprintf(p->library, sizeof p->library, "%.*sso", (int)strlen(p->object) - 1, p->object);
    return KILN_OK;
}

/* Only libc, which the host has anyway, may be asked for anything: an object that wants more fails to link, rather
 * than bring, say, a sanitizer's runtime into the host. */
static kiln_status link_library(const kiln_tools_request *rq, const kiln_tools *t, int64_t deadline,
                                paths *p) {
    char *args[LINK_ARGS_MAX], *text = NULL;
    int n = 0;
    for (char **w = t->driver; *w && n < LINK_ARGS_MAX - 10; w++) args[n++] = *w;
    args[n++] = "-shared";
    args[n++] = "-nostdlib";
    args[n++] = "-Wl,-z,defs";
    args[n++] = "-o";
    args[n++] = p->library;
    args[n++] = p->object;
    args[n++] = "-lc";
    args[n] = NULL;
    kiln_status st = kiln_tools_ask(rq, args, deadline, &text);
    if (st == KILN_E_BUILD) st = kiln_tools_quote(st, text);
    kiln_free(text);
    return kiln_note(st, "linking");
}

static kiln_status open_library(const paths *p, const char *symbol, size_t nbytes, kiln_code **out) {
    void *library = dlopen(p->library, RTLD_NOW | RTLD_LOCAL);
    if (!library) return KILN_FAIL(KILN_E_BUILD, "cannot load a linked kernel: %s", dlerror());
    void *entry = dlsym(library, symbol);
    image *i = new_image(NULL, library);
    kiln_code *c = entry ? new_code(i, entry, nbytes) : NULL;
    drop_image(i); /* it belongs to its kernel from here on */
    if (!entry) return KILN_FAIL(KILN_E_BUILD, "the linked kernel has no function '%.100s'", symbol);
    if (!c) return KILN_NOMEM();
    *out = c;
    return KILN_OK;
}

static kiln_status link_and_open(const kiln_tools_request *rq, const kiln_tools *t, int64_t deadline,
                                 const kiln_object *o, const char *symbol, kiln_code **out) {
    paths p;
    kiln_object copy = {.bytes = kiln_alloc(o->n), .n = o->n};
    if (!copy.bytes) return KILN_NOMEM();
    if (o->n) memcpy(copy.bytes, o->bytes, o->n);
    kiln_elf_export(&copy, symbol);
    kiln_status st = name_files(rq->dir, &p);
    if (st == KILN_OK) {
        if (!kiln_fsize_allows(copy.n))
            st = KILN_FAIL(KILN_E_BUILD, "the object has %zu bytes, more than this process may write",
                           copy.n);
        if (st == KILN_OK) st = kiln_file_write_atomic(p.object, copy.bytes, copy.n);
        if (st == KILN_OK) st = link_library(rq, t, deadline, &p);
        if (st == KILN_OK) st = open_library(&p, symbol, copy.n, out);
        unlink(p.object);
        unlink(p.library);
    }
    kiln_object_fini(&copy);
    return st;
}

/* -- both ------------------------------------------------------------------------------------------- */

/* Our loader's message is the one that tells the cause, so it leads if both ways fail. */
static kiln_status link_instead(const kiln_tools_request *rq, const kiln_tools *t, int64_t deadline,
                                const kiln_object *o, const char *symbol, kiln_code **out) {
    char cause[1024];
    snprintf(cause, sizeof cause, "%s", kiln_last_error());
    kiln_status st = link_and_open(rq, t, deadline, o, symbol, out);
    if (st == KILN_OK) kiln_clear_error();
    return kiln_note(st, "%.500s", cause);
}

kiln_status kiln_code_load_with(const kiln_tools_request *rq, const kiln_tools *t, int64_t deadline_ns,
                                const kiln_object *o, const char *symbol, kiln_code **out) {
    bool linkable;
    kiln_status st = load_own(o, &symbol, 1, &linkable, out);
    if (st != KILN_E_BUILD || !linkable || !t || !t->can_link) return st;
    return link_instead(rq, t, deadline_ns, o, symbol, out);
}

kiln_status kiln_code_load(kiln_toolchain *tc, const kiln_object *o, const char *symbol, kiln_code **out) {
    bool linkable;
    kiln_status st = load_own(o, &symbol, 1, &linkable, out);
    if (st != KILN_E_BUILD || !linkable || !tc) return st;
    const kiln_tools *t;
    int64_t deadline = kiln_toolchain_deadline(tc);
    if (kiln_toolchain_route(tc) == KILN_CC_NONE) return st;
    KILN_TRY(kiln_toolchain_tools(tc, deadline, &t));
    if (!t->can_link) return st;
    return link_instead(kiln_toolchain_request(tc), t, deadline, o, symbol, out);
}

kiln_status kiln_code_load_dlopen(kiln_toolchain *tc, const kiln_object *o, const char *symbol,
                                  kiln_code **out) {
    const kiln_tools *t;
    if (!tc) return KILN_FAIL(KILN_E_BUILD, "linking a kernel needs a toolchain");
    int64_t deadline = kiln_toolchain_deadline(tc);
    KILN_TRY(kiln_toolchain_tools(tc, deadline, &t));
    if (!t->can_link) return KILN_FAIL(KILN_E_BUILD, "no compiler driver to link with: %s", t->why);
    return link_and_open(kiln_toolchain_request(tc), t, deadline, o, symbol, out);
}

kiln_status kiln_code_load_unit(const kiln_object *o, const char *const *symbols, int n, kiln_code **out) {
    bool linkable;
    if (n < 1 || n > KILN_CODE_MAX) return KILN_BUG("%d kernels in one object", n);
    return load_own(o, symbols, n, &linkable, out);
}
