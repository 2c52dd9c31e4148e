/* redis_tls.h - makes the connection to a Redis server secret, by libhiredis_ssl and OpenSSL. */
#ifndef KILN_REDIS_TLS_H
#define KILN_REDIS_TLS_H
#include "store/redis_link.h"

/* Checks the server's certificate and its name.  KILN_E_UNSUP: the libraries cannot do that. */
kiln_status kiln_redis_start_tls(kiln_redis_link *l, const kiln_hiredis *lib) KILN_MUST_CHECK;
#endif
