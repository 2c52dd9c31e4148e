/* redis_url.h - KILN_REDIS_URL as text -> where the fleet store's server is, and what the store may do there.
 *
 * Knows the text alone.  Must not know sockets, hiredis or entries. */
#ifndef KILN_REDIS_URL_H
#define KILN_REDIS_URL_H
#include "base/base.h"

enum {
    KILN_REDIS_HOST_MAX = 256, /* Room for texts, with the NUL. */
    KILN_REDIS_PORT_MAX = 6,
    KILN_REDIS_PATH_MAX = 108, /* as sun_path has */
    KILN_REDIS_USER_MAX = 256,
    KILN_REDIS_PASSWORD_MAX = 512,
    KILN_REDIS_PREFIX_MAX = 128,
    KILN_REDIS_CA_MAX = 256
};

typedef struct kiln_redis_url {
    bool is_unix, is_tls;
    bool allows_unsigned; /* entries without a signature may be used where no key is configured */
    uint64_t database;
    uint64_t ttl_s; /* after that the server drops an entry; 0: never */
    uint64_t timeout_ms;
    uint64_t rest_s; /* how long a server that failed is left alone at first */
    char host[KILN_REDIS_HOST_MAX], port[KILN_REDIS_PORT_MAX];
    char path[KILN_REDIS_PATH_MAX]; /* of the socket, if is_unix */
    char user[KILN_REDIS_USER_MAX], password[KILN_REDIS_PASSWORD_MAX];
    char prefix[KILN_REDIS_PREFIX_MAX]; /* of every key */
    char ca[KILN_REDIS_CA_MAX]; /* a file of certificates that vouch for the server; "": the system's */
} kiln_redis_url;

/* Reads a URL.  KILN_E_ARG: it is malformed.  The message names KILN_REDIS_URL and repeats nothing of the URL: wherever a URL is wrong, a
 * password may stand. */
kiln_status kiln_redis_url_parse(const char *text, kiln_redis_url *out) KILN_MUST_CHECK;

/* Prints the URL without user, password and parameters. */
void kiln_redis_url_print(const kiln_redis_url *u, kiln_sb *out);
#endif
