/* folder.h - a folder of entries on disk: one file per kernel, named by its digest.
 *
 * Readers need no lock: a file appears whole, by a rename, and is never changed afterwards.  Unless the folder is shared, owner and mode
 * of a file are checked before it is read: whoever may write a file of this folder could run code as the user. */
#ifndef KILN_FOLDER_H
#define KILN_FOLDER_H
#include <sys/stat.h>

#include "store/stored.h"

#define KILN_FOLDER_NAME \
    "kernels" /* within the cache folder, which also holds logs and the bridge to PyTorch */

/* Opens the folder of entries within `path`, after checking that `path` and the folder belong to the user or to root and cannot be
 * written by others.  is_shared: others may own or write them.  create: makes what is missing.  KILN_E_NOTFOUND: something is missing.
 * KILN_E_ARG: a check failed. */
kiln_status kiln_folder_open(const char *path, bool create, bool is_shared, int *fd) KILN_MUST_CHECK;
bool kiln_folder_is_gone(int fd); /* somebody removed it */

/* What became of a file that was looked for. */
typedef enum kiln_found {
    KILN_FOUND,
    KILN_FOUND_NOT,
    KILN_FOUND_FOREIGN, /* another user's, writable by others, or no plain file; a message is set */
    KILN_FOUND_CORRUPT, /* too short or too long; a message is set */
    KILN_FOUND_ERROR    /* the system failed; a message is set */
} kiln_found;

typedef struct kiln_file_bytes {
    void *entry, *source; /* heap; source is NULL where there is none or it was not asked for */
    size_t nentry, nsource;
} kiln_file_bytes;
/* Entries are unchecked.  A read without the source counts as a use of the entry. */
kiln_found kiln_folder_read(int fd, const kiln_digest *d, bool is_shared, bool with_source,
                            kiln_file_bytes *out);

/* Writes a temporary file and renames it.  source may be NULL.  KILN_E_NOTFOUND: somebody removed the folder. */
kiln_status kiln_folder_write(int fd, const kiln_digest *d, bool is_shared,
                              const kiln_file_bytes *bytes) KILN_MUST_CHECK;
bool kiln_folder_remove(int fd, const kiln_digest *d); /* whether there was something to remove */

/* Calls visit for the name of every entry, in no order, with what lstat says of it.  Ends with the first status that is not KILN_OK. */
typedef kiln_status kiln_folder_visit(void *user, const kiln_digest *d, const struct stat *info);
kiln_status kiln_folder_walk(int fd, kiln_folder_visit *visit, void *user) KILN_MUST_CHECK;

/* Counts the entries.  If they have more than `most` bytes, removes those that were not used for longest until `down_to` bytes are left.
 * Removes temporary files that were left behind, too. */
typedef struct kiln_prune_report {
    uint64_t nremoved, removed_bytes, nleft, left_bytes;
} kiln_prune_report;
kiln_status kiln_folder_prune(int fd, uint64_t most, uint64_t down_to,
                              kiln_prune_report *out) KILN_MUST_CHECK;

/* The byte of the folder's lock file that stands for a digest is locked while a process builds that kernel.  *lock_fd is -1 at first, and
 * the caller closes it.  True: the caller has the lock, or the file system has no locks. */
bool kiln_folder_try_lock(int fd, int *lock_fd, const kiln_digest *d);
void kiln_folder_unlock(int lock_fd, const kiln_digest *d);
#endif
