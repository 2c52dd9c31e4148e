/* remote.c - the fleet store: kernels in a Redis server that many machines share.
 *
 * An entry is one key of the server.  A lease, a key that expires, says which process builds a kernel.  A server that fails three times in
 * a row is left alone for a while, and Kiln goes on without it.  No machine removes what others use: an entry that was refused is
 * replaced when its kernel was built anew.  Must not know what is in an entry, nor sockets or hiredis. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "store/redis_link.h"
#include "store/store.h"

#define READ_PS \
    UINT64_C(1500000000) /* about a millisecond to the server and back, and loading; no call waits for that */
#define NS_PER_S INT64_C(1000000000)
#define REST_MAX_NS (300 * NS_PER_S)
#define BUSY_NS \
    INT64_C(20000000)    /* a build elsewhere takes longer, so that callers who wait ask no more often */
#define LEASE_MS "30000" /* longer than builds take; the lease of a machine that died ends then */
enum {
    LINKS_MAX = 16, /* commands under way at once */
    BUSY_MAX = 64,
    FAILURES_IN_A_ROW = 3,
    TOKEN_BYTES = 16
};

static const char release_script[] =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

typedef struct busy {
    kiln_digest digest;
    int64_t
        until; /* by kiln_clock_ns: another machine was building the kernel, and is not asked for before */
} busy;

typedef struct remote {
    kiln_store store;
    kiln_redis_url url;
    char *place;                     /* the URL without secrets, for messages */
    char token[2 * TOKEN_BYTES + 1]; /* tells this process's leases from others' */
    atomic_int_fast64_t rest_until;  /* by kiln_clock_ns: nothing is tried before; INT64_MAX: never */
    atomic_int failures;             /* in a row */
    atomic_int rests;                /* in a row */
    pthread_mutex_t lock;            /* guards the rest, but for links in use */
    kiln_redis_link link[LINKS_MAX];
    bool in_use[LINKS_MAX];
    busy busy[BUSY_MAX];
} remote;

/* -- who may be asked now ------------------------------------------------------------------------------------- */

static bool is_resting(remote *r) { return kiln_clock_ns() < atomic_load(&r->rest_until); }

static bool is_off_now(remote *r) { return is_resting(r) || atomic_load(r->store.host->stop); }

static void say(const remote *r, const char *text) {
    r->store.host->log(r->store.host->user, 1, "store", text);
}

/* Rests twice as long after each rest that was followed by a failure.  Of commands that fail at the same time the first one begins the rest. */
static void rest(remote *r) {
    char text[120];
    int64_t now = kiln_clock_ns(), before = atomic_load(&r->rest_until);
    int n = atomic_load(&r->rests);
    int64_t ns = (int64_t)r->url.rest_s * NS_PER_S << (n < 8 ? n : 8);
    if (ns > REST_MAX_NS) ns = REST_MAX_NS;
    if (now < before || !atomic_compare_exchange_strong(&r->rest_until, &before, now + ns)) return;
    atomic_fetch_add(&r->rests, 1);
    snprintf(text, sizeof text, "remote: the server is left alone for %d s", (int)(ns / NS_PER_S));
    say(r, text);
}

static void note_success(remote *r) {
    atomic_store(&r->failures, 0);
    atomic_store(&r->rests, 0);
}

static void note_failure(remote *r, kiln_status st) {
    if (atomic_load(r->store.host->stop)) return; /* it was called off */
    kiln_store_count(&r->store, KILN_COUNTER_store_errors);
    if (st == KILN_E_UNSUP) atomic_store(&r->rest_until, INT64_MAX); /* a library is missing */
    if (atomic_fetch_add(&r->failures, 1) + 1 >= FAILURES_IN_A_ROW && st != KILN_E_UNSUP) rest(r);
}

/* -- commands --------------------------------------------------------------------------------------------------- */

/* stop: ends commands on the link when it is set. */
static kiln_redis_link *take_link(remote *r, const atomic_bool *stop) {
    kiln_redis_link *l = NULL;
    pthread_mutex_lock(&r->lock);
    for (int k = 0; k < LINKS_MAX && !l; k++) {
        if (r->in_use[k]) continue;
        r->in_use[k] = true;
        l = &r->link[k];
        l->stop = stop;
    }
    pthread_mutex_unlock(&r->lock);
    return l;
}

static void give_link(remote *r, const kiln_redis_link *l) {
    pthread_mutex_lock(&r->lock);
    r->in_use[l - r->link] = false;
    pthread_mutex_unlock(&r->lock);
}

/* An error that the server answered.  One of a single key says nothing of the server. */
static kiln_status server_error(remote *r, kiln_redis_reply *reply) {
    static const char of_key[] = "WRONGTYPE";
    char text[40]; /* the code of the error, its first word: what follows may name the user */
    size_t n = 0;
    while (n < reply->n && n < sizeof text - 1 && reply->p[n] >= 'A' && reply->p[n] <= 'Z') n++;
    memcpy(text, reply->p, n);
    text[n] = 0;
    kiln_redis_reply_fini(reply);
    if (strncmp(text, of_key, sizeof of_key - 1) == 0)
        kiln_store_count(&r->store, KILN_COUNTER_store_errors);
    else
        note_failure(r, KILN_E_IO);
    return KILN_FAIL(KILN_E_IO, "%s: the server answers: %s", r->place, text);
}

static kiln_status ask_until(remote *r, const atomic_bool *stop, const kiln_redis_word *words, int nwords,
                             kiln_redis_reply *reply) {
    kiln_redis_link *l = take_link(r, stop);
    if (!l) return KILN_FAIL(KILN_E_LIMIT, "%s: %d commands are under way", r->place, (int)LINKS_MAX);
    kiln_status st = kiln_redis_is_connected(l) ? KILN_OK : kiln_redis_connect(l);
    if (st == KILN_OK) st = kiln_redis_ask(l, words, nwords, reply);
    give_link(r, l);
    if (st != KILN_OK) {
        note_failure(r, st);
        return kiln_note(st, "%s", r->place);
    }
    if (reply->kind == KILN_REDIS_ERROR) return server_error(r, reply);
    note_success(r);
    return KILN_OK;
}

/* Asks the server, by a connection that is open or a new one, unless the context closes.  *reply is never an error. */
static kiln_status ask(remote *r, const kiln_redis_word *words, int nwords, kiln_redis_reply *reply) {
    return ask_until(r, r->store.host->stop, words, nwords, reply);
}

static kiln_redis_word word_of(const char *text) { return (kiln_redis_word){text, strlen(text)}; }

typedef struct key {
    char text[KILN_REDIS_PREFIX_MAX + KILN_DIGEST_TEXT + sizeof "lease:"];
} key;

static key key_of(const remote *r, const char *kind, const kiln_digest *d) {
    key k;
    char digits[KILN_DIGEST_TEXT];
    kiln_digest_print(d, digits);
    snprintf(k.text, sizeof k.text, "%s%s%s", r->url.prefix, kind, digits);
    return k;
}

/* -- entries ------------------------------------------------------------------------------------------------------ */

static kiln_status take_entry(const kiln_redis_reply *reply, kiln_blob *out) {
    char *p = kiln_alloc(reply->n);
    if (!p) return KILN_NOMEM();
    if (reply->n) memcpy(p, reply->p, reply->n);
    *out = (kiln_blob){.entry = p, .nentry = reply->n};
    return KILN_OK;
}

static kiln_status get_none(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    (void)s, (void)d, (void)out;
    *found = false;
    return KILN_OK;
}

static kiln_status put_none(kiln_store *s, const kiln_digest *d, kiln_blob *b) {
    (void)s, (void)d, (void)b;
    return KILN_OK;
}

static kiln_status get(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    remote *r = (remote *)s;
    key k = key_of(r, "", d);
    const kiln_redis_word words[] = {word_of("GET"), word_of(k.text)};
    kiln_redis_reply reply;
    if (is_off_now(r)) return KILN_OK;
    KILN_TRY(ask(r, words, 2, &reply));
    kiln_status st = KILN_OK;
    if (reply.kind == KILN_REDIS_BYTES) st = take_entry(&reply, out);
    if (reply.kind != KILN_REDIS_BYTES && reply.kind != KILN_REDIS_NIL) {
        kiln_store_count(s, KILN_COUNTER_store_errors);
        st = KILN_FAIL(KILN_E_IO, "%s: GET is answered with something else", r->place);
    }
    *found = st == KILN_OK && reply.kind == KILN_REDIS_BYTES;
    kiln_redis_reply_fini(&reply);
    return st;
}

static kiln_status put(kiln_store *s, const kiln_digest *d, kiln_blob *b) {
    remote *r = (remote *)s;
    key k = key_of(r, "", d);
    char ttl[24];
    snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)r->url.ttl_s);
    const kiln_redis_word words[] = {
        word_of("SET"), word_of(k.text), {b->entry, b->nentry}, word_of("EX"), word_of(ttl)};
    kiln_redis_reply reply;
    if (!b->entry || is_off_now(r)) return KILN_OK;
    KILN_TRY(ask(r, words, r->url.ttl_s ? 5 : 3, &reply));
    kiln_redis_reply_fini(&reply);
    kiln_store_count(s, KILN_COUNTER_remote_stored);
    return KILN_OK;
}

/* -- who builds ------------------------------------------------------------------------------------------------------ */

/* Whether another machine had the lease a moment ago. */
static bool was_busy(remote *r, const kiln_digest *d) {
    pthread_mutex_lock(&r->lock);
    const busy *b = &r->busy[d->lo % BUSY_MAX];
    bool was = b->digest.lo == d->lo && b->digest.hi == d->hi && kiln_clock_ns() < b->until;
    pthread_mutex_unlock(&r->lock);
    return was;
}

static void note_busy(remote *r, const kiln_digest *d) {
    pthread_mutex_lock(&r->lock);
    r->busy[d->lo % BUSY_MAX] = (busy){*d, kiln_clock_ns() + BUSY_NS};
    pthread_mutex_unlock(&r->lock);
}

static void log_error(const remote *r) {
    char text[400];
    snprintf(text, sizeof text, "remote: %s", kiln_last_error());
    say(r, text);
    kiln_clear_error();
}

/* A server that fails keeps nobody from building. */
static kiln_claim claim(kiln_store *s, const kiln_digest *d) {
    remote *r = (remote *)s;
    key k = key_of(r, "lease:", d);
    const kiln_redis_word words[] = {word_of("SET"), word_of(k.text), word_of(r->token),
                                     word_of("NX"),  word_of("PX"),   word_of(LEASE_MS)};
    kiln_redis_reply reply;
    if (is_off_now(r)) return KILN_CLAIM_OURS;
    if (was_busy(r, d)) return KILN_CLAIM_BUSY;
    if (ask(r, words, 6, &reply) != KILN_OK) {
        log_error(r);
        return KILN_CLAIM_OURS;
    }
    bool taken = reply.kind == KILN_REDIS_NIL;
    kiln_redis_reply_fini(&reply);
    if (taken) note_busy(r, d);
    return taken ? KILN_CLAIM_BUSY : KILN_CLAIM_OURS;
}

/* Removes the lease if it is still this process's; also while the context closes, so that no machine waits for a build that was stopped. */
static void unclaim(kiln_store *s, const kiln_digest *d) {
    static atomic_bool never;
    remote *r = (remote *)s;
    key k = key_of(r, "lease:", d);
    const kiln_redis_word words[] = {word_of("EVAL"), word_of(release_script), word_of("1"), word_of(k.text),
                                     word_of(r->token)};
    kiln_redis_reply reply;
    if (is_resting(r)) return;
    if (ask_until(r, &never, words, 5, &reply) == KILN_OK)
        kiln_redis_reply_fini(&reply);
    else
        log_error(r);
}

/* -- forks, and the end ------------------------------------------------------------------------------------------------ */

static void make_token(remote *r) {
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[TOKEN_BYTES];
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes) { /* long before any user */
        struct {
            int64_t now;
            int64_t process;
        } seed = {kiln_clock_ns(), getpid()};
        kiln_digest d = kiln_hash128(&seed, sizeof seed);
        _Static_assert(sizeof d == sizeof bytes, "a digest is as long as a token");
        memcpy(bytes, &d, sizeof bytes);
    }
    for (int k = 0; k < TOKEN_BYTES; k++) {
        r->token[2 * k] = digits[bytes[k] >> 4];
        r->token[2 * k + 1] = digits[bytes[k] & 15];
    }
}

static void lock(kiln_store *s, bool on) {
    remote *r = (remote *)s;
    if (on)
        pthread_mutex_lock(&r->lock);
    else
        pthread_mutex_unlock(&r->lock);
}

/* Connections and leases are the parent's. */
static void forked(kiln_store *s) {
    remote *r = (remote *)s;
    for (int k = 0; k < LINKS_MAX; k++) {
        kiln_redis_forked(&r->link[k], r->in_use[k]);
        r->in_use[k] = false;
    }
    make_token(r);
}

static void doctor(kiln_store *s, kiln_sb *out) {
    remote *r = (remote *)s;
    const char *trust = s->needs_key ? "entries signed by the key of KILN_KEY_FILE" : "unsigned entries";
    const kiln_redis_word words[] = {word_of("PING")};
    kiln_redis_reply reply;
    if (s->get == get_none) {
        kiln_sb_printf(
            out,
            "!kernels in the fleet store: %s is not used: entries must be signed, and there is no key: set "
            "KILN_KEY_FILE, or add unsigned=1 to KILN_REDIS_URL if all who may write there may run code as "
            "you\n",
            r->place);
        return;
    }
    int64_t from = kiln_clock_ns();
    if (ask(r, words, 1, &reply) == KILN_OK) {
        kiln_redis_reply_fini(&reply);
        kiln_sb_printf(out, "kernels in the fleet store: %s answers in %.1f ms; %s\n", r->place,
                       (double)(kiln_clock_ns() - from) / 1e6, trust);
    } else {
        kiln_sb_printf(out, "!kernels in the fleet store: not used now: %s\n", kiln_last_error());
    }
    kiln_clear_error();
}

static void close_remote(kiln_store *s) {
    remote *r = (remote *)s;
    for (int k = 0; k < LINKS_MAX; k++) kiln_redis_close(&r->link[k]);
    pthread_mutex_destroy(&r->lock);
    explicit_bzero(&r->url, sizeof r->url);
    kiln_free(r->place);
    kiln_free(r);
}

static kiln_status make_place(remote *r) {
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_redis_url_print(&r->url, &text);
    return kiln_sb_take(&text, &r->place);
}

static kiln_store functions(const kiln_store_host *host, bool is_off) {
    kiln_store s = {.name = "remote",
                    .host = host,
                    .needs_key = host->key_path != NULL,
                    .get = get_none,
                    .put = put_none,
                    .lock = lock,
                    .forked = forked,
                    .doctor = doctor,
                    .close = close_remote};
    if (is_off) return s;
    s.keeps_bytes = true;
    s.get = get;
    s.put = put;
    s.claim = claim;
    s.unclaim = unclaim;
    return s;
}

kiln_status kiln_store_open_remote(const kiln_store_host *host, kiln_store **out) {
    if (!host->remote_url) return KILN_OK;
    remote *r = kiln_calloc(1, sizeof *r);
    if (!r) return KILN_NOMEM();
    kiln_status st = kiln_redis_url_parse(host->remote_url, &r->url);
    if (st == KILN_OK && !host->in_memory) st = make_place(r);
    if (st != KILN_OK || host->in_memory) {
        explicit_bzero(&r->url, sizeof r->url);
        kiln_free(r);
        return st;
    }
    bool is_off = !host->key_path && !r->url.allows_unsigned;
    r->store = functions(host, is_off);
    atomic_init(&r->store.price, READ_PS);
    atomic_init(&r->store.empty, is_off);
    for (int k = 0; k < LINKS_MAX; k++) kiln_redis_link_init(&r->link[k], &r->url, host->stop);
    pthread_mutex_init(&r->lock, NULL);
    make_token(r);
    *out = &r->store;
    return KILN_OK;
}
