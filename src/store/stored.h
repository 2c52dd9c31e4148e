/* stored.h - a kernel as bytes that outlive the process: what stores keep, and the checks before the bytes of an entry become code.
 *
 * docs/CACHE.md has the format byte by byte.  Knows bytes, digests and keys.  Must not know files, servers or classes. */
#ifndef KILN_STORED_H
#define KILN_STORED_H
#include "store/sign.h"

enum {
    KILN_STORED_FORMAT = 1,
    KILN_STORED_HEAD = 256,     /* bytes of the head */
    KILN_STORED_MAX = 16 << 20, /* bytes of one entry, without its source */
    KILN_STORED_SOURCE_MAX = 4 << 20
};

/* What an entry says of its kernel.  Texts are NUL-terminated; "" where nothing is known. */
typedef struct kiln_stored {
    kiln_digest digest; /* what the kernel computes: the name under which stores keep it */
    uint64_t work;      /* bytes of work that a launch needs */
    uint32_t level;     /* of its target: the machine must run this level */
    uint32_t tested;    /* 1: the self-test passed on a machine that runs the level */
    uint64_t built_at;  /* seconds since 1970 */
    uint64_t build_ns;  /* processor time of the compiler; 0: not known */
    bool is_signed;     /* by some key; set by kiln_stored_read */
    const char *target; /* "cpu" */
    const char *stamp;  /* of the target's emitter */
    const char *isa;    /* the name of the level: "x86-64-v3" */
    const char *op;     /* "aten::add.Tensor" */
    const char *words;  /* the class in words */
    const char *compiler;
    const char *ir;    /* without names: what the digest was made of */
    const void *image; /* what kiln_target.load_image takes */
    size_t nimage;
} kiln_stored;

/* Why bytes are not used. */
typedef enum kiln_stored_fault {
    KILN_STORED_FINE,
    KILN_STORED_CORRUPT,  /* damaged, cut short, or of another digest */
    KILN_STORED_STALE,    /* of another format */
    KILN_STORED_UNSIGNED, /* not signed by the key that is asked for */
    KILN_STORED_FOREIGN   /* for a machine that this one is not; found by the caller */
} kiln_stored_fault;

/* Makes the entry of s, signed if `key` is not NULL: *out is heap, *n its bytes. */
kiln_status kiln_stored_write(const kiln_stored *s, const kiln_key_file *key, void **out,
                              size_t *n) KILN_MUST_CHECK;

/* The bytes of the entry that begins at p, of which n bytes are at hand; 0: its head is damaged, or not all there. */
size_t kiln_stored_nbytes(const void *p, size_t n);

/* Checks the entry of exactly n bytes and fills in *out, whose texts and image point into p.  want: the digest it must have; NULL: any.
 * key: what must have signed it; NULL: nothing.  Whatever is not FINE leaves a message in kiln_last_error. */
kiln_stored_fault kiln_stored_read(const void *p, size_t n, const kiln_digest *want, const kiln_key_file *key,
                                   kiln_stored *out);

/* The source of a kernel stands behind its entry and is for people alone, so it has a checksum and no signature. */
kiln_status kiln_stored_source(const char *source, size_t nsource, void **out, size_t *n) KILN_MUST_CHECK;
/* The source that stands in p, or NULL; *n: its bytes. */
const char *kiln_stored_source_in(const void *p, size_t nbytes, size_t *n);

/* The digest as 32 hexadecimal digits, and back. */
enum { KILN_DIGEST_TEXT = 33 };
void kiln_digest_print(const kiln_digest *d, char out[KILN_DIGEST_TEXT]);
bool kiln_digest_parse(const char *text, kiln_digest *out);
#endif
