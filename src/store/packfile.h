/* packfile.h - many entries in one file, found by digest: what `kiln cache export` writes and KILN_PACK names.
 *
 * docs/CACHE.md has the format.  A pack's index is read once; an entry is read when a class asks for it.  Packs hold no sources. */
#ifndef KILN_PACKFILE_H
#define KILN_PACKFILE_H
#include "store/stored.h"

/* -- reading ------------------------------------------------------------------------------------------------ */

typedef struct kiln_packfile kiln_packfile;

/* Opens a pack and checks owner, mode, lengths and the checksum of its index.  KILN_E_NOTFOUND: there is no such file.  KILN_E_ARG: another
 * user's, writable by others, or no plain file.  KILN_E_IO: damaged, cut short, or it cannot be read. */
kiln_status kiln_packfile_open(const char *path, kiln_packfile **out) KILN_MUST_CHECK;
void kiln_packfile_close(kiln_packfile *p); /* NULL is fine */
size_t kiln_packfile_count(const kiln_packfile *p);
uint64_t kiln_packfile_nbytes(const kiln_packfile *p);
const char *kiln_packfile_path(const kiln_packfile *p);

/* Reads the entry of a digest: *entry is heap, unchecked.  *found: whether the pack has it.  Any thread, several at once. */
kiln_status kiln_packfile_find(const kiln_packfile *p, const kiln_digest *d, void **entry, size_t *n,
                               bool *found) KILN_MUST_CHECK;
/* The same for the k-th entry, in the order of digests. */
kiln_status kiln_packfile_at(const kiln_packfile *p, size_t k, kiln_digest *d, void **entry,
                             size_t *n) KILN_MUST_CHECK;

/* -- writing ------------------------------------------------------------------------------------------------ */

/* A pack in the making: entries go to a temporary file beside `path`, which takes the name when it is whole. */
typedef struct kiln_packing kiln_packing;
kiln_status kiln_packing_begin(const char *path, kiln_packing **out) KILN_MUST_CHECK;
/* Appends an entry.  If two entries have one digest, the index names the first.  One thread at a time. */
kiln_status kiln_packing_add(kiln_packing *p, const kiln_digest *d, const void *entry,
                             size_t n) KILN_MUST_CHECK;
/* Writes the index and renames the file, or removes it if keep is false.  Frees p in any case. */
kiln_status kiln_packing_end(kiln_packing *p, bool keep, size_t *count, uint64_t *nbytes) KILN_MUST_CHECK;
#endif
