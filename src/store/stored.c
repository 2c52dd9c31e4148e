/* stored.c - a kernel and what is known of it <-> the bytes of an entry, with checksum and signature.
 *
 * When bytes are read, every field that says where something is gets checked, and the checksum covers the rest: bytes may come from a
 * damaged file, another version or a stranger.  Numbers are little
 * endian.  Must not know where entries are kept. */
#include <stddef.h>
#include <string.h>

#include "store/stored.h"

static const char magic[8] = "KILNKERN", source_magic[8] = "KILNSRC1";

enum { NTEXTS = 7 };

/* The head.  No padding.  `check` is of all that follows it, and `mac` of the whole entry with `check` and `mac` zero. */
typedef struct head {
    char magic[8];
    uint32_t format, nhead;
    kiln_digest check; /* XXH3-128 from `digest` to the end of the entry */
    kiln_digest digest;
    uint8_t mac[KILN_MAC_BYTES], key_id[KILN_KEY_ID_BYTES]; /* zeros: the entry is not signed */
    uint64_t work, built_at, build_ns, nimage;
    uint32_t level, tested, ntext[NTEXTS]; /* bytes of each text, with its NUL */
    uint32_t reserved[25];                 /* zeros */
} head;
_Static_assert(sizeof(head) == KILN_STORED_HEAD, "a head has no padding");
#define CHECKED offsetof(head, digest) /* from here on `check` covers */

/* ORDER TEXTS: as written. */
static void texts_of(const kiln_stored *s, const char *text[NTEXTS]) {
    const char *all[NTEXTS] = {s->target, s->stamp, s->isa, s->op, s->words, s->compiler, s->ir};
    for (int k = 0; k < NTEXTS; k++) text[k] = all[k] ? all[k] : "";
}

static kiln_status sign(head *h, const char *behind, size_t n, const kiln_key_file *key, uint8_t *mac) {
    head bare = *h;
    memset(&bare.check, 0, sizeof bare.check);
    memset(bare.mac, 0, sizeof bare.mac);
    return kiln_key_sign(key, &bare, sizeof bare, behind, n, mac);
}

/* -- writing ------------------------------------------------------------------------------------------------- */

static head describe(const kiln_stored *s, const char *const text[NTEXTS]) {
    head h = {.format = KILN_STORED_FORMAT,
              .nhead = KILN_STORED_HEAD,
              .digest = s->digest,
              .work = s->work,
              .built_at = s->built_at,
              .build_ns = s->build_ns,
              .nimage = s->nimage,
              .level = s->level,
              .tested = s->tested};
    memcpy(h.magic, magic, sizeof magic);
    for (int k = 0; k < NTEXTS; k++) h.ntext[k] = (uint32_t)strlen(text[k]) + 1;
    return h;
}

static kiln_status finish(char *p, head *h, size_t n, const kiln_key_file *key) {
    char *behind = p + sizeof *h;
    if (key) {
        uint8_t mac[KILN_MAC_BYTES];
        memcpy(h->key_id, kiln_key_id(key), sizeof h->key_id);
        KILN_TRY(sign(h, behind, n - sizeof *h, key, mac));
        memcpy(h->mac, mac, sizeof mac);
    }
    memcpy(p, h, sizeof *h);
    h->check = kiln_hash128(p + CHECKED, n - CHECKED);
    memcpy(p, h, sizeof *h);
    return KILN_OK;
}

kiln_status kiln_stored_write(const kiln_stored *s, const kiln_key_file *key, void **out, size_t *n) {
    const char *text[NTEXTS];
    texts_of(s, text);
    head h = describe(s, text);
    size_t all = sizeof h + s->nimage;
    for (int k = 0; k < NTEXTS; k++) all += h.ntext[k];
    if (all > KILN_STORED_MAX)
        return KILN_FAIL(KILN_E_LIMIT, "a kernel of %zu bytes is too large to be stored", all);
    char *p = kiln_alloc(all), *to = p + sizeof h;
    if (!p) return KILN_NOMEM();
    for (int k = 0; k < NTEXTS; to += h.ntext[k], k++) memcpy(to, text[k], h.ntext[k]);
    if (s->nimage) memcpy(to, s->image, s->nimage);
    kiln_status st = finish(p, &h, all, key);
    if (st != KILN_OK) {
        kiln_free(p);
        return st;
    }
    *out = p;
    *n = all;
    return KILN_OK;
}

/* -- reading --------------------------------------------------------------------------------------------------- */

/* Bytes that the head announces; 0: more than an entry may have. */
static size_t announced(const head *h) {
    uint64_t all = sizeof *h;
    if (h->nimage > KILN_STORED_MAX) return 0;
    all += h->nimage;
    for (int k = 0; k < NTEXTS; k++) all += h->ntext[k];
    return all <= KILN_STORED_MAX ? (size_t)all : 0;
}

size_t kiln_stored_nbytes(const void *p, size_t n) {
    head h;
    if (n < sizeof h) return 0;
    memcpy(&h, p, sizeof h);
    bool ours = memcmp(h.magic, magic, sizeof magic) == 0 && h.format == KILN_STORED_FORMAT &&
                h.nhead == sizeof h;
    return ours ? announced(&h) : 0;
}

#define FAULT(fault, ...) ((void)KILN_FAIL(KILN_E_IO, __VA_ARGS__), (fault))

static kiln_stored_fault check_head(const head *h, const char *p, size_t n, const kiln_digest *want) {
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return FAULT(KILN_STORED_CORRUPT, "it does not begin as an entry");
    if (h->format != KILN_STORED_FORMAT || h->nhead != sizeof *h)
        return FAULT(KILN_STORED_STALE, "it has format %u, expected %d", h->format, (int)KILN_STORED_FORMAT);
    if (announced(h) != n)
        return FAULT(KILN_STORED_CORRUPT, "it has %zu bytes, expected %zu", n, announced(h));
    kiln_digest now = kiln_hash128(p + CHECKED, n - CHECKED);
    if (now.lo != h->check.lo || now.hi != h->check.hi)
        return FAULT(KILN_STORED_CORRUPT, "its checksum does not fit its bytes");
    if (want && (want->lo != h->digest.lo || want->hi != h->digest.hi))
        return FAULT(KILN_STORED_CORRUPT, "it holds another kernel");
    return KILN_STORED_FINE;
}

static bool is_signed(const head *h) {
    static const uint8_t nobody[KILN_KEY_ID_BYTES];
    return memcmp(h->key_id, nobody, sizeof nobody) != 0;
}

static kiln_stored_fault check_signature(head *h, const char *p, size_t n, const kiln_key_file *key) {
    uint8_t mac[KILN_MAC_BYTES];
    if (!is_signed(h)) return FAULT(KILN_STORED_UNSIGNED, "it is not signed, and a signature is asked for");
    if (memcmp(h->key_id, kiln_key_id(key), sizeof h->key_id) != 0)
        return FAULT(KILN_STORED_UNSIGNED, "it is signed by another key");
    if (sign(h, p + sizeof *h, n - sizeof *h, key, mac) != KILN_OK) return KILN_STORED_UNSIGNED;
    if (!kiln_macs_equal(mac, h->mac)) return FAULT(KILN_STORED_UNSIGNED, "its signature is wrong");
    return KILN_STORED_FINE;
}

/* Each text must end where the head says, and nowhere before. */
static kiln_stored_fault read_texts(const head *h, const char *p, kiln_stored *out) {
    const char **const to[NTEXTS] = {&out->target, &out->stamp,    &out->isa, &out->op,
                                     &out->words,  &out->compiler, &out->ir}; /* ORDER TEXTS */
    for (int k = 0; k < NTEXTS; p += h->ntext[k], k++) {
        if (h->ntext[k] == 0 || strnlen(p, h->ntext[k]) != h->ntext[k] - 1)
            return FAULT(KILN_STORED_CORRUPT, "its text %d does not end where it should", k);
        *to[k] = p;
    }
    out->image = p;
    return KILN_STORED_FINE;
}

kiln_stored_fault kiln_stored_read(const void *bytes, size_t n, const kiln_digest *want,
                                   const kiln_key_file *key, kiln_stored *out) {
    const char *p = bytes;
    head h;
    if (n < sizeof h) return FAULT(KILN_STORED_CORRUPT, "%zu bytes are too few for an entry", n);
    memcpy(&h, p, sizeof h);
    kiln_stored_fault fault = check_head(&h, p, n, want);
    if (fault == KILN_STORED_FINE && key) fault = check_signature(&h, p, n, key);
    if (fault != KILN_STORED_FINE) return fault;
    *out = (kiln_stored){.digest = h.digest,
                         .work = h.work,
                         .level = h.level,
                         .tested = h.tested,
                         .built_at = h.built_at,
                         .build_ns = h.build_ns,
                         .is_signed = is_signed(&h),
                         .nimage = (size_t)h.nimage};
    return read_texts(&h, p + sizeof h, out);
}

/* -- sources ----------------------------------------------------------------------------------------------------- */

typedef struct source_head {
    char magic[8];
    uint64_t n, check; /* XXH3-64 of the text */
} source_head;
_Static_assert(sizeof(source_head) == 24, "a source's head has no padding");

kiln_status kiln_stored_source(const char *source, size_t nsource, void **out, size_t *n) {
    source_head h = {.n = nsource, .check = kiln_hash64(source, nsource)};
    memcpy(h.magic, source_magic, sizeof source_magic);
    char *p = kiln_alloc(sizeof h + nsource);
    if (!p) return KILN_NOMEM();
    memcpy(p, &h, sizeof h);
    if (nsource) memcpy(p + sizeof h, source, nsource);
    *out = p;
    *n = sizeof h + nsource;
    return KILN_OK;
}

const char *kiln_stored_source_in(const void *bytes, size_t nbytes, size_t *n) {
    const char *p = bytes;
    source_head h;
    if (nbytes < sizeof h) return NULL;
    memcpy(&h, p, sizeof h);
    if (memcmp(h.magic, source_magic, sizeof source_magic) != 0 || h.n != nbytes - sizeof h) return NULL;
    if (kiln_hash64(p + sizeof h, h.n) != h.check) return NULL;
    *n = h.n;
    return p + sizeof h;
}

/* -- digests as text ------------------------------------------------------------------------------------------------ */

void kiln_digest_print(const kiln_digest *d, char out[KILN_DIGEST_TEXT]) {
    static const char digits[] = "0123456789abcdef";
    for (int k = 0; k < 32; k++) {
        uint64_t half = k < 16 ? d->hi : d->lo;
        out[k] = digits[half >> (60 - 4 * (k % 16)) & 15];
    }
    out[32] = 0;
}

bool kiln_digest_parse(const char *text, kiln_digest *out) {
    kiln_digest d = {0, 0};
    for (int k = 0; k < 32; k++) {
        char c = text[k];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        uint64_t *half = k < 16 ? &d.hi : &d.lo;
        *half = *half << 4 | (uint64_t)digit;
    }
    if (text[32]) return false;
    *out = d;
    return true;
}
