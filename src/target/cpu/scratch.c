/* scratch.c - unnamed files, through which sources, objects and messages go to compilers and back.
 *
 * A file is in memory, or in a folder where the system has no files in memory.  Nothing is left behind when its
 * descriptor is closed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target/cpu/proc.h"

/* Moves a descriptor to KILN_FD_FLOOR or above. */
static int lift(int fd) {
    if (fd < 0 || fd >= KILN_FD_FLOOR) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, KILN_FD_FLOOR);
    int why = errno;
    (void)close(fd);
    errno = why;
    return high;
}

int kiln_scratch_new(const char *dir) {
    int fd = memfd_create("kiln-build", MFD_CLOEXEC);
    if (fd < 0) fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return lift(fd);
}

kiln_status kiln_scratch_fill(int fd, const void *data, size_t n) {
    if (!kiln_fsize_allows(n))
        return KILN_FAIL(KILN_E_BUILD, "the source has %zu bytes, more than this process may write to a file",
                         n);
    const char *p = data;
    for (size_t at = 0; at < n;) {
        ssize_t k = pwrite(fd, p + at, n - at, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return KILN_FAIL(KILN_E_BUILD, "cannot write the source: %s", strerror(k < 0 ? errno : ENOSPC));
        at += (size_t)k;
    }
    return KILN_OK;
}

kiln_status kiln_scratch_read(int fd, size_t most, char **out, size_t *out_n) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return KILN_FAIL(KILN_E_BUILD, "cannot read a scratch file: %s", strerror(errno));
    size_t n = (size_t)info.st_size < most ? (size_t)info.st_size : most;
    char *p = kiln_alloc(n + 1);
    if (!p) return KILN_NOMEM();
    size_t at = 0;
    while (at < n) {
        ssize_t k = pread(fd, p + at, n - at, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        at += (size_t)k;
    }
    p[at] = 0;
    *out = p;
    *out_n = at;
    return KILN_OK;
}
