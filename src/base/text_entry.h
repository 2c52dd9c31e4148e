/* text_entry.h - texts embedded into the library at build time.
 *
 * tools/embed writes the arrays; src/math/embed.cmake says from which files.  The index of a family ends
 * with an entry whose name is NULL, so it may be empty. */
#ifndef KILN_TEXT_ENTRY_H
#define KILN_TEXT_ENTRY_H
#include <stddef.h>

typedef struct kiln_text_entry {
    const char *name; /* the file's name without folder and extension */
    const char *text; /* NUL-terminated */
    size_t len;       /* without the NUL */
} kiln_text_entry;

extern const kiln_text_entry kiln_text_ops[]; /* ops/ *.ops, by name */
extern const size_t kiln_text_ops_count;
extern const char kiln_text_schemas[]; /* PyTorch's schema list */
extern const size_t kiln_text_schemas_len;
#endif
