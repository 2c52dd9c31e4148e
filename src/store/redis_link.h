/* redis_link.h - one connection to a Redis server: commands and their replies, each within a time limit that covers all of it.
 *
 * One thread uses a connection at a time, and no lock is held meanwhile.  After any failure the connection is closed. */
#ifndef KILN_REDIS_LINK_H
#define KILN_REDIS_LINK_H
#include <stdatomic.h>

#include "store/hiredis_lib.h"
#include "store/redis_url.h"

typedef struct kiln_redis_link {
    atomic_int fd; /* -1: not connected.  Set before the descriptor is used, cleared before it is closed. */
    kiln_hiredis_context *context;
    const kiln_redis_url *url;
    const atomic_bool *stop; /* whoever waits gives up when this is set */
} kiln_redis_link;

/* A word of a command: any bytes. */
typedef struct kiln_redis_word {
    const void *p;
    size_t n;
} kiln_redis_word;
enum { KILN_REDIS_WORDS_MAX = 6 };

void kiln_redis_link_init(kiln_redis_link *l, const kiln_redis_url *url, const atomic_bool *stop);

/* Connects, makes the connection secret if the URL says so, names the user and selects the database.  Takes four time limits at most (connecting, TLS, user, database), and what
 * the system takes to look up the host's name.  KILN_E_UNSUP: a library is missing. */
kiln_status kiln_redis_connect(kiln_redis_link *l) KILN_MUST_CHECK;
/* Whether the link is connected and the server has not closed it since. */
bool kiln_redis_is_connected(const kiln_redis_link *l);

/* Sends a command and takes the reply, which may be an error of the server.  Free it with kiln_redis_reply_fini. */
kiln_status kiln_redis_ask(kiln_redis_link *l, const kiln_redis_word *words, int nwords,
                           kiln_redis_reply *out) KILN_MUST_CHECK;
void kiln_redis_reply_fini(kiln_redis_reply *r);

void kiln_redis_close(kiln_redis_link *l);
/* In the child of a fork: closes the child's descriptor.  was_busy: a thread of the parent was using the link, so that what hiredis keeps of the
 * link may be half changed, and is not freed. */
void kiln_redis_forked(kiln_redis_link *l, bool was_busy);

/* When a step that begins now must have ended, by kiln_clock_ns. */
int64_t kiln_redis_deadline(const kiln_redis_link *l);
/* Waits until the descriptor is ready for `events` of poll.  A failure: the time is up, or the context closes. */
kiln_status kiln_redis_wait(const kiln_redis_link *l, short events, int64_t until_ns) KILN_MUST_CHECK;
#endif
