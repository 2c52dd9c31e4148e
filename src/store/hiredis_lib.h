/* hiredis_lib.h - the functions of libhiredis, and the parts of its structs that Kiln reads.
 *
 * The library is opened when it is first needed, so that building Kiln takes no header of it.  Its versions 0.14 and 1.x lay out
 * redisContext and redisReply differently; every read goes by the layout of the version that was opened. */
#ifndef KILN_HIREDIS_LIB_H
#define KILN_HIREDIS_LIB_H
#include "base/base.h"

typedef struct kiln_hiredis_context kiln_hiredis_context; /* a redisContext */
typedef struct kiln_hiredis_layout kiln_hiredis_layout;

typedef struct kiln_hiredis {
    const char *name; /* "libhiredis.so.0.14" */
    const kiln_hiredis_layout *layout;
    kiln_hiredis_context *(*connect_fd)(int fd); /* the context closes the descriptor when it is freed */
    void (*free)(kiln_hiredis_context *c);
    int (*append)(kiln_hiredis_context *c, int nwords, const char **words, const size_t *nbytes);
    int (*write)(kiln_hiredis_context *c, int *done);
    int (*read)(kiln_hiredis_context *c);                /* at most 16 KiB */
    int (*parse)(kiln_hiredis_context *c, void **reply); /* NULL in *reply: it is not all there yet */
    void (*free_reply)(void *reply);
} kiln_hiredis;

/* KILN_E_UNSUP: no version of the library is installed. */
kiln_status kiln_hiredis_open(const kiln_hiredis **out) KILN_MUST_CHECK;

/* libhiredis_ssl of the same version. */
typedef struct kiln_hiredis_tls {
    void *library; /* from dlopen; dlsym finds the functions of its OpenSSL in it, too */
    int (*start)(kiln_hiredis_context *c, void *session);
} kiln_hiredis_tls;
/* KILN_E_UNSUP: the version is too old, or the library is not installed. */
kiln_status kiln_hiredis_open_tls(const kiln_hiredis_tls **out) KILN_MUST_CHECK;

/* "" if nothing went wrong. */
const char *kiln_hiredis_error(const kiln_hiredis *lib, const kiln_hiredis_context *c);
void kiln_hiredis_set_nonblocking(const kiln_hiredis *lib, kiln_hiredis_context *c);
/* The bytes that were read and not parsed yet. */
const char *kiln_hiredis_unparsed(const kiln_hiredis *lib, const kiln_hiredis_context *c, size_t *n);

typedef enum kiln_redis_kind {
    KILN_REDIS_NIL,
    KILN_REDIS_STATUS, /* a short text, as OK */
    KILN_REDIS_BYTES,
    KILN_REDIS_NUMBER,
    KILN_REDIS_ERROR, /* the server's message */
    KILN_REDIS_OTHER
} kiln_redis_kind;

typedef struct kiln_redis_reply {
    kiln_redis_kind kind;
    long long number;
    const char *p; /* of STATUS, BYTES and ERROR; belongs to `held` */
    size_t n;
    void *held; /* kiln_hiredis.free_reply */
} kiln_redis_reply;
kiln_redis_reply kiln_hiredis_reply(const kiln_hiredis *lib, void *reply);
#endif
