/* hiredis_lib.c - libhiredis, opened at run time -> its functions and the layout of its structs.
 *
 * The structs below repeat the beginnings of those in hiredis.h and read.h.  Only the names listed below are opened, since the structs of other versions may
 * differ.  Owns the opened library, which stays open as long as the process.  Must not know servers or commands of Kiln. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "store/hiredis_lib.h"

/* -- layouts ------------------------------------------------------------------------------------------------ */

typedef struct reader { /* alike in all versions */
    int err;
    char errstr[128], *buf;
    size_t pos, len;
} reader;

typedef struct context_0 {
    int err;
    char errstr[128];
    int fd, flags;
    char *obuf;
    reader *reader;
} context_0;

typedef struct context_1 {
    const void *functions;
    int err;
    char errstr[128];
    int fd, flags;
    char *obuf;
    reader *reader;
} context_1;

typedef struct reply_0 {
    int type;
    long long integer;
    size_t len;
    char *str;
} reply_0;

typedef struct reply_1 {
    int type;
    long long integer;
    double dval;
    size_t len;
    char *str;
} reply_1;

struct kiln_hiredis_layout {
    size_t err, errstr, flags, reader;          /* of a context */
    size_t reply_integer, reply_len, reply_str; /* its type comes first */
};

#define LAYOUT(v)                                                                                  \
    {                                                                                              \
        offsetof(context_##v, err), offsetof(context_##v, errstr), offsetof(context_##v, flags),   \
            offsetof(context_##v, reader), offsetof(reply_##v, integer), offsetof(reply_##v, len), \
            offsetof(reply_##v, str)                                                               \
    }
static const kiln_hiredis_layout layouts[] = {LAYOUT(0), LAYOUT(1)}; /* by major version */

/* -- opening -------------------------------------------------------------------------------------------------- */

static kiln_hiredis opened;
static const char *opened_tls_name; /* of the library that goes with it; NULL: there is none */

/* A pointer to data becomes one to a function, which a cast may not do. */
static bool look_up(void *library, const char *name, void *function) {
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at);
    return at != NULL;
}

static bool has_functions(void *library, kiln_hiredis *h) {
    return look_up(library, "redisConnectFd", &h->connect_fd) && look_up(library, "redisFree", &h->free) &&
           look_up(library, "redisAppendCommandArgv", &h->append) &&
           look_up(library, "redisBufferWrite", &h->write) && look_up(library, "redisBufferRead", &h->read) &&
           look_up(library, "redisGetReplyFromReader", &h->parse) &&
           look_up(library, "freeReplyObject", &h->free_reply);
}

static bool open_version(const char *name, const char *tls_name, int major) {
    kiln_hiredis h = {.name = name, .layout = &layouts[major]};
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    if (!has_functions(library, &h)) {
        dlclose(library);
        return false;
    }
    opened = h;
    opened_tls_name = tls_name;
    return true;
}

static void look(void) {
    static const struct {
        const char *name, *tls_name;
        int major;
    } versions[] = {
        {"libhiredis.so.1.3.0", "libhiredis_ssl.so.1.3.0", 1},
        {"libhiredis.so.1.1.0", "libhiredis_ssl.so.1.1.0", 1},
        {"libhiredis.so.1.0.0", "libhiredis_ssl.so.1.0.0", 1},
        {"libhiredis.so.1", "libhiredis_ssl.so.1", 1},
        {"libhiredis.so.0.14", NULL, 0},
    };
    for (size_t k = 0; k < sizeof versions / sizeof *versions; k++)
        if (open_version(versions[k].name, versions[k].tls_name, versions[k].major)) return;
}

kiln_status kiln_hiredis_open(const kiln_hiredis **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    *out = &opened;
    if (opened.name) return KILN_OK;
    return KILN_FAIL(
        KILN_E_UNSUP,
        "a Redis server is reached through libhiredis 0.14 or 1.x, which is not installed (Debian: "
        "libhiredis0.14)");
}

static kiln_hiredis_tls tls;

/* libhiredis_ssl is linked with OpenSSL and not with libhiredis, which must be visible to it. */
static void look_for_tls(void) {
    if (!opened_tls_name || !dlopen(opened.name, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)) return;
    void *library = dlopen(opened_tls_name, RTLD_NOW | RTLD_LOCAL);
    if (library && look_up(library, "redisInitiateSSL", &tls.start))
        tls.library = library;
    else if (library)
        dlclose(library);
}

kiln_status kiln_hiredis_open_tls(const kiln_hiredis_tls **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const kiln_hiredis *lib;
    KILN_TRY(kiln_hiredis_open(&lib));
    pthread_once(&once, look_for_tls);
    *out = &tls;
    if (tls.library) return KILN_OK;
    return KILN_FAIL(
        KILN_E_UNSUP,
        "rediss:// needs libhiredis 1.x with libhiredis_ssl, and %s without it is used here (Debian 13: "
        "libhiredis1.1.0)",
        lib->name);
}

/* -- structs ---------------------------------------------------------------------------------------------------- */

static const void *pointer_at(const void *p, size_t at) {
    const void *out;
    memcpy(&out, (const char *)p + at, sizeof out);
    return out;
}

const char *kiln_hiredis_error(const kiln_hiredis *lib, const kiln_hiredis_context *c) {
    int err;
    memcpy(&err, (const char *)c + lib->layout->err, sizeof err);
    return err ? (const char *)c + lib->layout->errstr : "";
}

void kiln_hiredis_set_nonblocking(const kiln_hiredis *lib, kiln_hiredis_context *c) {
    enum { REDIS_BLOCK = 1 };
    int flags;
    memcpy(&flags, (char *)c + lib->layout->flags, sizeof flags);
    flags &= ~(int)REDIS_BLOCK;
    memcpy((char *)c + lib->layout->flags, &flags, sizeof flags);
}

const char *kiln_hiredis_unparsed(const kiln_hiredis *lib, const kiln_hiredis_context *c, size_t *n) {
    const reader *r = pointer_at(c, lib->layout->reader);
    *n = r->buf && r->len > r->pos ? r->len - r->pos : 0;
    return *n ? r->buf + r->pos : NULL;
}

kiln_redis_reply kiln_hiredis_reply(const kiln_hiredis *lib, void *reply) {
    static const kiln_redis_kind kinds[] = {
        [1] = KILN_REDIS_BYTES, [2] = KILN_REDIS_OTHER,  [3] = KILN_REDIS_NUMBER,
        [4] = KILN_REDIS_NIL,   [5] = KILN_REDIS_STATUS, [6] = KILN_REDIS_ERROR}; /* ORDER REDIS_REPLY_x */
    kiln_redis_reply r = {.kind = KILN_REDIS_OTHER, .held = reply};
    int type;
    memcpy(&type, reply, sizeof type);
    if (type >= 1 && (size_t)type < sizeof kinds / sizeof *kinds) r.kind = kinds[type];
    if (r.kind == KILN_REDIS_NUMBER)
        memcpy(&r.number, (const char *)reply + lib->layout->reply_integer, sizeof r.number);
    if (r.kind == KILN_REDIS_BYTES || r.kind == KILN_REDIS_STATUS || r.kind == KILN_REDIS_ERROR) {
        memcpy(&r.n, (const char *)reply + lib->layout->reply_len, sizeof r.n);
        r.p = pointer_at(reply, lib->layout->reply_str);
    }
    return r;
}
