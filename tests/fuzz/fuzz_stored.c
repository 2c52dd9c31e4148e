/* fuzz_stored.c - any bytes given to the readers of entries, sources and images give a status.
 *
 * The first byte of an input says what is repaired before the bytes are read, so that checksums and magic numbers do not keep the fuzzer out.
 * What an entry says must lie within it.  Loaded code is never run. */
#include <stdlib.h>
#include <string.h>

#include "store/stored.h"
#include "target/cpu/codemem.h"
#include "target/cpu/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* ORDER: as in the head of an entry (src/store/stored.c). */
enum { CHECK_AT = 16, DIGEST_AT = 32, LENGTHS_AT = 128, IMAGE_LENGTH_AT = 112, NTEXTS = 7 };
enum { REPAIR_CHECK = 1, REPAIR_START = 2, REPAIR_LENGTH = 4, IS_IMAGE = 8, IS_SOURCE = 16 };

static void must(bool right) {
    if (!right) abort();
}

/* -- images -------------------------------------------------------------------------------------------------- */

/* The start of an image of this machine. */
static void repair_image(uint8_t *p, size_t n) {
    static const uint8_t start[6] = {'K', 'I', 'M', 'G', 1, 0};
    static const uint16_t machine =
#if defined(__aarch64__)
        183;
#else
        62;
#endif
    if (n < 24) return;
    memcpy(p, start, sizeof start);
    memcpy(p + 6, &machine, sizeof machine);
}

static void load_image(const void *p, size_t n) {
    kiln_codemem m = {0};
    void *entry = NULL;
    kiln_status st = kiln_image_load(p, n, &m, &entry);
    must(st == KILN_OK || st == KILN_E_BUILD);
    if (st != KILN_OK) return;
    must((uint8_t *)entry >= m.exec && (uint8_t *)entry < m.exec + m.n);
    kiln_codemem_put(&m);
}

/* -- entries ------------------------------------------------------------------------------------------------- */

/* Makes the image as long as what the texts leave, if they leave anything. */
static void repair_length(uint8_t *p, size_t n) {
    uint64_t rest = n - KILN_STORED_HEAD;
    for (int k = 0; k < NTEXTS; k++) {
        uint32_t length;
        memcpy(&length, p + LENGTHS_AT + 4 * k, sizeof length);
        if (length > rest) return;
        rest -= length;
    }
    memcpy(p + IMAGE_LENGTH_AT, &rest, sizeof rest);
}

static void repair_entry(uint8_t *p, size_t n, unsigned what) {
    static const uint32_t start[2] = {KILN_STORED_FORMAT, KILN_STORED_HEAD};
    if (n < KILN_STORED_HEAD) return;
    if (what & REPAIR_START) {
        memcpy(p, "KILNKERN", 8);
        memcpy(p + 8, start, sizeof start);
    }
    if (what & REPAIR_LENGTH) repair_length(p, n);
    if (what & REPAIR_CHECK) {
        kiln_digest check = kiln_hash128(p + DIGEST_AT, n - DIGEST_AT);
        memcpy(p + CHECK_AT, &check, sizeof check);
    }
}

static void check_text(const uint8_t *p, size_t n, const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    must(at >= p && at < p + n && strnlen(text, (size_t)(p + n - at)) < (size_t)(p + n - at));
}

static void read_entry(const uint8_t *p, size_t n) {
    kiln_stored s;
    size_t says = kiln_stored_nbytes(p, n);
    must(says == 0 || (says >= KILN_STORED_HEAD && says <= KILN_STORED_MAX));
    kiln_stored_fault fault = kiln_stored_read(p, n, NULL, NULL, &s);
    if (fault != KILN_STORED_FINE) return;
    must(says == n);
    const char *const texts[] = {s.target, s.stamp, s.isa, s.op, s.words, s.compiler, s.ir};
    for (int k = 0; k < NTEXTS; k++) check_text(p, n, texts[k]);
    must((const uint8_t *)s.image + s.nimage == p + n);
    must(kiln_stored_read(p, n, &s.digest, NULL, &s) == KILN_STORED_FINE);
    s.digest.hi ^= 1;
    must(kiln_stored_read(p, n, &s.digest, NULL, &s) == KILN_STORED_CORRUPT);
    load_image(s.image, s.nimage);
}

/* What is read is written again, with the same bytes in all that is told of. */
static void write_again(const uint8_t *p, size_t n) {
    kiln_stored s, t;
    void *again = NULL;
    size_t nagain = 0;
    if (kiln_stored_read(p, n, NULL, NULL, &s) != KILN_STORED_FINE) return;
    must(kiln_stored_write(&s, NULL, &again, &nagain) == KILN_OK && nagain == n);
    must(kiln_stored_read(again, nagain, &s.digest, NULL, &t) == KILN_STORED_FINE);
    must(memcmp(p + KILN_STORED_HEAD, (char *)again + KILN_STORED_HEAD, n - KILN_STORED_HEAD) == 0);
    must(t.work == s.work && t.level == s.level && t.tested == s.tested && t.built_at == s.built_at);
    kiln_free(again);
}

static void read_source(uint8_t *p, size_t n, unsigned what) {
    size_t nsource = 0;
    if (n >= 24 && (what & REPAIR_START)) {
        uint64_t words[2] = {n - 24, kiln_hash64(p + 24, n - 24)};
        memcpy(p, "KILNSRC1", 8);
        memcpy(p + 8, words, sizeof words);
    }
    const char *source = kiln_stored_source_in(p, n, &nsource);
    must(!source || ((const uint8_t *)source == p + 24 && nsource == n - 24));
    must(source || n < 24 || !(what & REPAIR_START));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    unsigned what = data[0];
    size_t rest = n - 1;
    uint8_t *p = malloc(rest ? rest : 1); /* exactly as long as the input, so that any overrun is seen */
    if (!p) return 0;
    memcpy(p, data + 1, rest);
    if (what & IS_IMAGE) {
        if (what & REPAIR_START) repair_image(p, rest);
        load_image(p, rest);
    } else if (what & IS_SOURCE) {
        read_source(p, rest, what);
    } else {
        repair_entry(p, rest, what);
        read_entry(p, rest);
        write_again(p, rest);
    }
    free(p);
    kiln_clear_error();
    return 0;
}
