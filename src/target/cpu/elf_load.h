/* elf_load.h - relocatable ELF64 object -> relocated bytes in code memory.
 *
 * Every offset, size and index of the object is checked: objects come from compilers and from files
 * that may be damaged. */
#ifndef KILN_BUILD_ELF_LOAD_H
#define KILN_BUILD_ELF_LOAD_H
#include "target/cpu/build.h"
#include "target/cpu/codemem.h"

/* Places o's code and constants, relocates and seals them.  entries[k]: address of symbols[k], of which there are n, at most
 * KILN_CODE_MAX.  *linkable tells, on failure, whether a real linker might still accept the object (it is well formed
 * but uses something this loader lacks). */
kiln_status kiln_elf_load(const kiln_object *o, const char *const *symbols, int n, kiln_codemem *out,
                          void **entries, bool *linkable) KILN_MUST_CHECK;

/* One kernel of an object, linked for address 0: its function, what that calls, and their constants.  Only the 8-byte places in
 * `fixups` depend on the address at which the bytes will lie. */
typedef struct kiln_linked {
    uint8_t *bytes; /* heap */
    size_t n, align, entry;
    struct kiln_fixup {
        uint32_t at, to; /* offsets: the place at `at` holds the address of the byte at `to` */
    } * fixups;          /* heap */
    size_t nfixups;
} kiln_linked;
kiln_status kiln_elf_link(const kiln_object *o, const char *symbol, kiln_linked *out) KILN_MUST_CHECK;
void kiln_linked_fini(kiln_linked *l);

/* Gives `symbol` default visibility in place, so that a shared library made of o exports it. */
void kiln_elf_export(kiln_object *o, const char *symbol);

/* One relocation.  place: run-time address of the bytes at `at`; value: symbol + addend. */
typedef struct kiln_reloc {
    uint32_t type;
    uint64_t place, value;
} kiln_reloc;

typedef enum kiln_reloc_kind {
    KILN_RELOC_UNKNOWN,
    KILN_RELOC_NONE, /* nothing to do */
    KILN_RELOC_PLAIN,
    KILN_RELOC_VIA_GOT /* refers to an entry of 8 bytes that holds the symbol's address */
} kiln_reloc_kind;

/* e_machine: EM_X86_64 or EM_AARCH64.  *nbytes: bytes that the relocation rewrites. */
kiln_reloc_kind kiln_reloc_classify(uint16_t machine, uint32_t type, size_t *nbytes);
/* What becomes of a relocated place when the piece of code moves. */
typedef enum kiln_reloc_move {
    KILN_MOVE_STAYS,   /* it holds a distance within the piece */
    KILN_MOVE_ADDRESS, /* it holds an address of 8 bytes */
    KILN_MOVE_NEVER    /* it holds an address that cannot be changed later */
} kiln_reloc_move;
kiln_reloc_move kiln_reloc_moves(uint16_t machine, uint32_t type);
/* False if the value does not fit its field. */
bool kiln_reloc_apply(uint16_t machine, const kiln_reloc *r, uint8_t *at);
#endif
