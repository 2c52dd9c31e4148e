/* sign.h - the user's key, and signatures by it: HMAC-SHA-256 by libcrypto, a library that is opened when the first key is read.
 *
 * Entries are machine code.  A checksum finds accidents; only a signature tells that an entry comes from someone who has the key. */
#ifndef KILN_SIGN_H
#define KILN_SIGN_H
#include "base/base.h"

enum { KILN_KEY_MIN = 16, KILN_KEY_MAX_BYTES = 4096, KILN_MAC_BYTES = 32, KILN_KEY_ID_BYTES = 8 };

typedef struct kiln_key_file kiln_key_file;

/* Reads a key.  KILN_E_IO: the file cannot be read; KILN_E_ARG: others may read or write it, it is no plain file of the user's, or it holds
 * fewer than KILN_KEY_MIN or more than KILN_KEY_MAX_BYTES bytes; KILN_E_UNSUP: there is no libcrypto. */
kiln_status kiln_key_open(const char *path, kiln_key_file **out) KILN_MUST_CHECK;
void kiln_key_close(kiln_key_file *key); /* overwrites it; NULL is fine */

/* Tells keys apart without telling them. */
const uint8_t *kiln_key_id(const kiln_key_file *key);
/* The signature of two pieces of memory, one behind the other. */
kiln_status kiln_key_sign(const kiln_key_file *key, const void *a, size_t na, const void *b, size_t nb,
                          uint8_t mac[KILN_MAC_BYTES]) KILN_MUST_CHECK;
/* Takes the same time whether the first byte differs or the last one. */
bool kiln_macs_equal(const uint8_t *a, const uint8_t *b);
#endif
