/* fuzz_pack.c - any bytes given to the reader of packs give a status, and entries lie within the pack.
 *
 * The first byte of an input says what is repaired, so that magic numbers, lengths and the checksum do not keep the fuzzer out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/packfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 64, PLACE = 32, CHECK_AT = 16, COUNT_AT = 32, INDEX_AT = 40, LENGTH_AT = 48 };
enum { REPAIR_START = 1, REPAIR_LENGTH = 2, REPAIR_CHECK = 4 };

static void must(bool right) {
    if (!right) abort();
}

static uint64_t get(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void put(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }

static void repair(uint8_t *p, size_t n, unsigned what) {
    static const uint32_t start[2] = {1, HEAD};
    if (n < HEAD) return;
    if (what & REPAIR_START) {
        memcpy(p, "KILNPACK", 8);
        memcpy(p + 8, start, sizeof start);
    }
    if (what & REPAIR_LENGTH) {
        uint64_t count = get(p + COUNT_AT) % ((n - HEAD) / PLACE + 1);
        put(p + COUNT_AT, count);
        put(p + INDEX_AT, n - count * PLACE);
        put(p + LENGTH_AT, n);
    }
    uint64_t count = get(p + COUNT_AT);
    if ((what & REPAIR_CHECK) && count <= (n - HEAD) / PLACE) {
        kiln_digest both[2] = {kiln_hash128(p + COUNT_AT, HEAD - COUNT_AT),
                               kiln_hash128(p + n - count * PLACE, count * PLACE)};
        kiln_digest check = kiln_hash128(both, sizeof both);
        memcpy(p + CHECK_AT, &check, sizeof check);
    }
}

static void read_all(const kiln_packfile *p, size_t n) {
    for (size_t k = 0; k < kiln_packfile_count(p); k++) {
        kiln_digest d;
        void *entry, *again;
        size_t nentry, nagain;
        bool found;
        if (kiln_packfile_at(p, k, &d, &entry, &nentry) != KILN_OK) continue;
        must(nentry <= n);
        must(kiln_packfile_find(p, &d, &again, &nagain, &found) == KILN_OK && found && nagain == nentry);
        must(nentry == 0 || memcmp(entry, again, nentry) == 0);
        kiln_free(entry);
        kiln_free(again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char path[40];
    kiln_packfile *p;
    if (n < 1) return 0;
    uint8_t *bytes = malloc(n);
    int fd = memfd_create("pack", MFD_CLOEXEC);
    must(bytes && fd >= 0 && fchmod(fd, 0600) == 0);
    memcpy(bytes, data + 1, n - 1);
    repair(bytes, n - 1, data[0]);
    must(write(fd, bytes, n - 1) == (ssize_t)(n - 1));
    free(bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    kiln_status st = kiln_packfile_open(path, &p);
    must(st == KILN_OK || st == KILN_E_IO || st == KILN_E_NOMEM);
    if (st == KILN_OK) read_all(p, n - 1);
    if (st == KILN_OK) kiln_packfile_close(p);
    close(fd);
    return 0;
}
