/* redis_tls.c - a connected link -> one that speaks TLS with a server whose certificate was checked.
 *
 * hiredis checks no names, so the session is made here, by the functions of the OpenSSL that libhiredis_ssl was linked with.  The link's
 * context owns the session.  Must not know commands. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <string.h>

#include "store/redis_tls.h"

/* -- OpenSSL ------------------------------------------------------------------------------------------------- */

typedef struct openssl {
    const void *(*client_method)(void);
    void *(*new_settings)(const void *method);
    void (*free_settings)(void *settings);
    void (*set_verify)(void *settings, int mode, void *callback);
    int (*use_system)(void *settings);
    int (*use_file)(void *settings, const char *file, const char *folder);
    void *(*new_session)(void *settings);
    void (*free_session)(void *session);
    int (*expect_name)(void *session, const char *name);
    void *(*verify_settings)(void *session);
    int (*expect_address)(void *verify_settings, const char *address);
    long (*control)(void *session, int what, long n, void *p);
    int (*connect)(void *session);
    int (*error_of)(const void *session, int result);
    long (*verify_result)(const void *session);
    const char *(*verify_text)(long result);
} openssl;

/* *out has one function for each name, in this order: ORDER OPENSSL. */
static kiln_status look_up(const kiln_hiredis_tls *tls, openssl *out) {
    static const char *const names[] = {"TLS_client_method",
                                        "SSL_CTX_new",
                                        "SSL_CTX_free",
                                        "SSL_CTX_set_verify",
                                        "SSL_CTX_set_default_verify_paths",
                                        "SSL_CTX_load_verify_locations",
                                        "SSL_new",
                                        "SSL_free",
                                        "SSL_set1_host",
                                        "SSL_get0_param",
                                        "X509_VERIFY_PARAM_set1_ip_asc",
                                        "SSL_ctrl",
                                        "SSL_connect",
                                        "SSL_get_error",
                                        "SSL_get_verify_result",
                                        "X509_verify_cert_error_string"};
    enum { NAMES = sizeof names / sizeof *names };
    void *at[NAMES];
    _Static_assert(sizeof at == sizeof *out, "a function for each name");
    for (int k = 0; k < NAMES; k++) {
        at[k] = dlsym(tls->library, names[k]); /* looks into the libraries it was linked with, too */
        if (!at[k]) return KILN_FAIL(KILN_E_UNSUP, "rediss:// needs OpenSSL with %s", names[k]);
    }
    memcpy(out, at, sizeof at);
    return KILN_OK;
}

static kiln_status make_settings(const openssl *s, const kiln_redis_url *url, void **out) {
    enum { VERIFY_PEER = 1 };
    void *settings = s->new_settings(s->client_method());
    if (!settings) return KILN_FAIL(KILN_E_IO, "OpenSSL makes no settings");
    s->set_verify(settings, VERIFY_PEER, NULL);
    if (url->ca[0] ? s->use_file(settings, url->ca, NULL) == 1 : s->use_system(settings) == 1) {
        *out = settings;
        return KILN_OK;
    }
    s->free_settings(settings);
    return KILN_FAIL(KILN_E_IO, "the certificates of %s cannot be read", url->ca[0] ? url->ca : "the system");
}

static bool is_address(const char *host) {
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool expect_host(const openssl *s, void *session, const char *host) {
    enum { SET_SERVER_NAME = 55 }; /* SSL_CTRL_SET_TLSEXT_HOSTNAME, of a type that is 0 */
    char name[KILN_REDIS_HOST_MAX];
    if (is_address(host)) return s->expect_address(s->verify_settings(session), host) == 1;
    memcpy(name, host, strlen(host) + 1);
    return s->expect_name(session, host) == 1 && s->control(session, SET_SERVER_NAME, 0, name) == 1;
}

static kiln_status make_session(const openssl *s, const kiln_redis_url *url, void **out) {
    void *settings, *session;
    KILN_TRY(make_settings(s, url, &settings));
    session = s->new_session(settings);
    s->free_settings(settings); /* the session has a use of its own */
    if (!session) return KILN_FAIL(KILN_E_IO, "OpenSSL makes no session");
    if (expect_host(s, session, url->host)) {
        *out = session;
        return KILN_OK;
    }
    s->free_session(session);
    return KILN_FAIL(KILN_E_IO, "OpenSSL cannot check the server's name");
}

/* -- the handshake ---------------------------------------------------------------------------------------------- */

static kiln_status shake_hands(const kiln_redis_link *l, const openssl *s, void *session) {
    int64_t until_ns = kiln_redis_deadline(l);
    enum { WANT_READ = 2, WANT_WRITE = 3, VERIFIED = 0 };
    for (;;) {
        int result = s->connect(session);
        int what = result == 1 ? 0 : s->error_of(session, result);
        if (result == 1) return KILN_OK;
        if (s->verify_result(session) != VERIFIED)
            return KILN_FAIL(KILN_E_IO, "the server's certificate is refused: %s",
                             s->verify_text(s->verify_result(session)));
        if (what != WANT_READ && what != WANT_WRITE)
            return KILN_FAIL(KILN_E_IO, "the server does not speak TLS as Kiln does");
        KILN_TRY(kiln_redis_wait(l, what == WANT_READ ? POLLIN : POLLOUT, until_ns));
    }
}

kiln_status kiln_redis_start_tls(kiln_redis_link *l, const kiln_hiredis *lib) {
    openssl s = {0};
    void *session;
    const kiln_hiredis_tls *tls;
    KILN_TRY(kiln_hiredis_open_tls(&tls));
    KILN_TRY(look_up(tls, &s));
    KILN_TRY(make_session(&s, l->url, &session));
    if (tls->start(l->context, session) !=
        0) { /* it begins the handshake, and fails without owning the session */
        long verified = s.verify_result(session);
        s.free_session(session);
        return KILN_FAIL(KILN_E_IO, "TLS fails: %s",
                         verified ? s.verify_text(verified) : kiln_hiredis_error(lib, l->context));
    }
    return shake_hands(l, &s, session);
}
