/* redis_url.c - the text of KILN_REDIS_URL -> a kiln_redis_url.
 *
 *   redis://[user][:password]@host[:port][/db][?parameters]     rediss://...     unix:///path[?parameters]
 *
 * %XX stands for a byte everywhere but in numbers.  The last '@' ends the password, so that a password may hold others.  Messages repeat no
 * part of the text.  Must not know who uses the result. */
#include <stddef.h>
#include <string.h>

#include "store/redis_url.h"

#define EXPECTED \
    "expected redis://[user][:password]@host[:port][/db][?ttl=SECONDS&prefix=TEXT], rediss://... or unix:///path"
#define WRONG(...) KILN_FAIL(KILN_E_ARG, "KILN_REDIS_URL (kiln_config.redis_url): " __VA_ARGS__)
#define DAY UINT64_C(86400)

typedef struct piece {
    const char *p, *end;
} piece;

/* -- pieces --------------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes %XX.  what: names the piece in messages. */
static kiln_status copy_text(piece from, const char *what, char *to, size_t room) {
    size_t n = 0;
    for (const char *p = from.p; p < from.end; p++) {
        int c = (unsigned char)*p;
        if (c == '%') {
            int high = from.end - p > 2 ? hex_digit(p[1]) : -1, low = high < 0 ? -1 : hex_digit(p[2]);
            if (low < 0) return WRONG("in its %s a %% is not followed by two hexadecimal digits", what);
            c = 16 * high + low;
            p += 2;
        }
        if (c == 0) return WRONG("its %s holds a zero byte", what);
        if (n + 1 >= room) return WRONG("its %s has more than %zu bytes", what, room - 1);
        to[n++] = (char)c;
    }
    to[n] = 0;
    return KILN_OK;
}

static kiln_status copy_number(piece from, const char *what, uint64_t least, uint64_t most, uint64_t *out) {
    uint64_t n = 0;
    bool is_number = from.p < from.end;
    for (const char *p = from.p; p < from.end && is_number; p++) {
        is_number = *p >= '0' && *p <= '9' && n <= most;
        n = 10 * n + (uint64_t)(*p - '0');
    }
    if (!is_number || n < least || n > most)
        return WRONG("its %s is not a number from %llu to %llu", what, (unsigned long long)least,
                     (unsigned long long)most);
    *out = n;
    return KILN_OK;
}

static const char *find(piece in, char c) {
    const char *at = memchr(in.p, c, (size_t)(in.end - in.p));
    return at ? at : in.end;
}

/* -- parameters ------------------------------------------------------------------------------------------------- */

static const struct parameter {
    const char *name;
    size_t at, room; /* room 0: a number from `least` to `most` */
    uint64_t least, most;
} parameters[] = {
    {"db", offsetof(kiln_redis_url, database), 0, 0, 1 << 20},
    {"ttl", offsetof(kiln_redis_url, ttl_s), 0, 0, 36500 * DAY},
    {"timeout", offsetof(kiln_redis_url, timeout_ms), 0, 1, 10000},
    {"rest", offsetof(kiln_redis_url, rest_s), 0, 1, 300},
    {"user", offsetof(kiln_redis_url, user), KILN_REDIS_USER_MAX, 0, 0},
    {"password", offsetof(kiln_redis_url, password), KILN_REDIS_PASSWORD_MAX, 0, 0},
    {"prefix", offsetof(kiln_redis_url, prefix), KILN_REDIS_PREFIX_MAX, 0, 0},
    {"ca", offsetof(kiln_redis_url, ca), KILN_REDIS_CA_MAX, 0, 0},
};

static kiln_status set_parameter(piece name, piece value, kiln_redis_url *u) {
    size_t n = (size_t)(name.end - name.p);
    if (n == strlen("unsigned") && memcmp(name.p, "unsigned", n) == 0) {
        uint64_t allowed = 0;
        KILN_TRY(copy_number(value, "unsigned", 0, 1, &allowed));
        u->allows_unsigned = allowed != 0;
        return KILN_OK;
    }
    for (size_t k = 0; k < sizeof parameters / sizeof *parameters; k++) {
        const struct parameter *p = &parameters[k];
        char *to = (char *)u + p->at;
        if (strlen(p->name) != n || memcmp(p->name, name.p, n) != 0) continue;
        if (p->room) return copy_text(value, p->name, to, p->room);
        uint64_t number = 0;
        KILN_TRY(copy_number(value, p->name, p->least, p->most, &number));
        memcpy(to, &number, sizeof number);
        return KILN_OK;
    }
    return WRONG(
        "it has an unknown parameter: expected ttl, prefix, unsigned, db, user, password, timeout, rest or ca");
}

static kiln_status read_parameters(piece all, kiln_redis_url *u) {
    while (all.p < all.end) {
        const char *end = find(all, '&');
        piece name = {all.p, find((piece){all.p, end}, '=')};
        if (name.end == end) return WRONG("it has a parameter without a value");
        KILN_TRY(set_parameter(name, (piece){name.end + 1, end}, u));
        all.p = end < all.end ? end + 1 : end;
    }
    return KILN_OK;
}

/* -- who and where ------------------------------------------------------------------------------------------------ */

static kiln_status read_user(piece who, kiln_redis_url *u) {
    const char *colon = find(who, ':');
    KILN_TRY(copy_text((piece){who.p, colon}, "user", u->user, sizeof u->user));
    if (colon == who.end) return KILN_OK;
    return copy_text((piece){colon + 1, who.end}, "password", u->password, sizeof u->password);
}

/* host, host:port, [address] or [address]:port */
static kiln_status read_host(piece where, kiln_redis_url *u) {
    uint64_t port;
    piece host = where;
    const char *behind = NULL;
    if (where.p < where.end && *where.p == '[') {
        host = (piece){where.p + 1, find(where, ']')};
        if (host.end == where.end) return WRONG("its host has no closing bracket");
        behind = host.end + 1;
    } else {
        behind = host.end = find(where, ':');
    }
    if (host.p == host.end) return WRONG("it names no host: " EXPECTED);
    KILN_TRY(copy_text(host, "host", u->host, sizeof u->host));
    if (behind == where.end) return KILN_OK;
    if (*behind != ':') return WRONG("its host is not followed by a port: " EXPECTED);
    piece digits = {behind + 1, where.end};
    KILN_TRY(copy_number(digits, "port", 1, 65535, &port));
    if (digits.end - digits.p >= KILN_REDIS_PORT_MAX) return WRONG("its port has too many digits");
    return copy_text(digits, "port", u->port, sizeof u->port);
}

static kiln_status read_place(piece all, kiln_redis_url *u) {
    const char *slash = find(all, '/'), *at = NULL;
    for (const char *p = all.p; p < all.end; p++)
        if (*p == '@') at = p;
    if (at && at > slash) slash = find((piece){at, all.end}, '/'); /* the password holds a slash */
    if (at) KILN_TRY(read_user((piece){all.p, at}, u));
    KILN_TRY(read_host((piece){at ? at + 1 : all.p, slash}, u));
    if (all.end - slash <= 1) return KILN_OK;
    return copy_number((piece){slash + 1, all.end}, "database", 0, 1 << 20, &u->database);
}

static kiln_status read_socket(piece all, kiln_redis_url *u) {
    if (all.p == all.end || *all.p != '/') return WRONG("its socket has no absolute path: " EXPECTED);
    return copy_text(all, "socket's path", u->path, sizeof u->path);
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

kiln_status kiln_redis_url_parse(const char *text, kiln_redis_url *out) {
    kiln_redis_url u = {
        .ttl_s = 30 * DAY, .timeout_ms = 200, .rest_s = 10, .port = "6379", .prefix = "kiln:"};
    u.is_unix = begins(text, "unix://");
    u.is_tls = begins(text, "rediss://");
    if (!u.is_unix && !u.is_tls && !begins(text, "redis://"))
        return WRONG("it has another scheme: " EXPECTED);
    const char *start = strstr(text, "://") + 3, *end = text + strlen(text);
    const char *question = find((piece){start, end}, '?');
    piece place = {start, question};
    kiln_status st = u.is_unix ? read_socket(place, &u) : read_place(place, &u);
    if (st == KILN_OK && question < end) st = read_parameters((piece){question + 1, end}, &u);
    if (st == KILN_OK && u.user[0] && !u.password[0]) st = WRONG("it has a user and no password");
    if (st == KILN_OK) *out = u;
    explicit_bzero(&u, sizeof u);
    return st;
}

void kiln_redis_url_print(const kiln_redis_url *u, kiln_sb *out) {
    if (u->is_unix) {
        kiln_sb_printf(out, "unix://%s, database %llu", u->path, (unsigned long long)u->database);
        return;
    }
    bool is_v6 = strchr(u->host, ':') != NULL;
    kiln_sb_printf(out, "%s://%s%s%s:%s/%llu", u->is_tls ? "rediss" : "redis", is_v6 ? "[" : "", u->host,
                   is_v6 ? "]" : "", u->port, (unsigned long long)u->database);
}
