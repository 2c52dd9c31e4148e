/* sign.c - a key file -> signatures, by HMAC of libcrypto, a library that is opened at run time.
 *
 * A key is a file of the user, of 16 to 4,096 bytes, that nobody else may read or write.  Its id is the start of a signature of a fixed text.  Owns the key's
 * bytes and clears them.  Must not know what is signed. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sign.h"

struct kiln_key_file {
    size_t n;
    uint8_t id[KILN_KEY_ID_BYTES];
    uint8_t bytes[KILN_KEY_MAX_BYTES];
};

/* -- libcrypto -------------------------------------------------------------------------------------------- */

typedef unsigned char *hmac_fn(const void *type, const void *key, int nkey, const unsigned char *data,
                               size_t n, unsigned char *mac, unsigned int *nmac);
typedef const void *sha256_fn(void);

static struct {
    hmac_fn *hmac;
    sha256_fn *sha256;
} crypto;

static bool look_in(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
    void *hmac = dlsym(handle, "HMAC"), *sha256 = dlsym(handle, "EVP_sha256");
    if (!hmac || !sha256) {
        dlclose(handle);
        return false;
    }
    memcpy(&crypto.sha256, &sha256, sizeof sha256); /* data to function pointer, which a cast may not do */
    memcpy(&crypto.hmac, &hmac, sizeof hmac);
    return true;
}

static void look(void) {
    static const char *const libraries[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"};
    for (size_t k = 0; k < sizeof libraries / sizeof *libraries; k++)
        if (look_in(libraries[k])) return;
}

static kiln_status open_crypto(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    if (crypto.hmac) return KILN_OK;
    return KILN_FAIL(KILN_E_UNSUP, "signatures need libcrypto (Debian: libssl3), which is not there");
}

/* -- signatures --------------------------------------------------------------------------------------------- */

static kiln_status sign_one(const kiln_key_file *key, const void *p, size_t n, uint8_t *mac) {
    unsigned int nmac = 0;
    if (!crypto.hmac(crypto.sha256(), key->bytes, (int)key->n, p, n, mac, &nmac) || nmac != KILN_MAC_BYTES)
        return KILN_FAIL(KILN_E_IO, "libcrypto makes no HMAC-SHA-256");
    return KILN_OK;
}

/* The second piece is signed by way of its own signature, so that no piece has to be copied beside the other. */
kiln_status kiln_key_sign(const kiln_key_file *key, const void *a, size_t na, const void *b, size_t nb,
                          uint8_t mac[KILN_MAC_BYTES]) {
    uint8_t both[2 * KILN_MAC_BYTES];
    KILN_TRY(sign_one(key, a, na, both));
    KILN_TRY(sign_one(key, b, nb, both + KILN_MAC_BYTES));
    return sign_one(key, both, sizeof both, mac);
}

bool kiln_macs_equal(const uint8_t *a, const uint8_t *b) {
    uint8_t differ = 0;
    for (int k = 0; k < KILN_MAC_BYTES; k++) differ |= (uint8_t)(a[k] ^ b[k]);
    return differ == 0;
}

const uint8_t *kiln_key_id(const kiln_key_file *key) { return key->id; }

/* -- keys ------------------------------------------------------------------------------------------------------ */

static kiln_status check_owner(const char *path, const struct stat *info) {
    if (!S_ISREG(info->st_mode)) return KILN_FAIL(KILN_E_ARG, "key file %s: not a plain file", path);
    if (info->st_uid != geteuid())
        return KILN_FAIL(KILN_E_ARG, "key file %s: it belongs to another user", path);
    if (info->st_mode & 077)
        return KILN_FAIL(KILN_E_ARG,
                         "key file %s: its mode is %03o, and others must have no access: chmod 600 %s", path,
                         (unsigned)info->st_mode & 0777, path);
    return KILN_OK;
}

static kiln_status read_key(int fd, const char *path, kiln_key_file *key) {
    struct stat info;
    if (fstat(fd, &info) != 0) return KILN_FAIL(KILN_E_IO, "key file %s: %s", path, strerror(errno));
    KILN_TRY(check_owner(path, &info));
    while (key->n < sizeof key->bytes) {
        ssize_t n = read(fd, key->bytes + key->n, sizeof key->bytes - key->n);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return KILN_FAIL(KILN_E_IO, "key file %s: %s", path, strerror(errno));
        if (n == 0) break;
        key->n += (size_t)n;
    }
    if (key->n < KILN_KEY_MIN || info.st_size > KILN_KEY_MAX_BYTES)
        return KILN_FAIL(KILN_E_ARG, "key file %s: it has %lld bytes, expected %d to %d", path,
                         (long long)info.st_size, (int)KILN_KEY_MIN, (int)KILN_KEY_MAX_BYTES);
    return KILN_OK;
}

static kiln_status name_key(kiln_key_file *key) {
    static const char text[] = "kiln key id";
    uint8_t mac[KILN_MAC_BYTES];
    KILN_TRY(sign_one(key, text, sizeof text, mac));
    memcpy(key->id, mac, sizeof key->id);
    return KILN_OK;
}

kiln_status kiln_key_open(const char *path, kiln_key_file **out) {
    KILN_TRY(open_crypto());
    kiln_key_file *key = kiln_calloc(1, sizeof *key);
    if (!key) return KILN_NOMEM();
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    kiln_status st = fd < 0 ? KILN_FAIL(KILN_E_IO, "key file %s: %s", path, strerror(errno)) : KILN_OK;
    if (st == KILN_OK) st = read_key(fd, path, key);
    if (st == KILN_OK) st = name_key(key);
    if (fd >= 0) close(fd);
    if (st == KILN_OK)
        *out = key;
    else
        kiln_key_close(key);
    return st;
}

void kiln_key_close(kiln_key_file *key) {
    if (!key) return;
    explicit_bzero(key, sizeof *key);
    kiln_free(key);
}
