/* image.c - a kernel of an ELF object -> bytes for a store, and such bytes -> code in memory.
 *
 * An image is a header, the list of places that hold addresses, and the kernel's code and constants, linked for address 0.  So
 * loading copies the bytes and fills those places in: most images have none.  An image of one kernel of a large object holds
 * what that kernel uses and nothing else.  Must not know stores, digests or files. */
#include <elf.h>
#include <string.h>

#include "target/cpu/elf_load.h"
#include "target/cpu/image.h"

#if defined(__aarch64__)
enum { HOST_MACHINE = EM_AARCH64 };
#else
enum { HOST_MACHINE = EM_X86_64 };
#endif

enum { MAGIC = 0x474d494b /* "KIMG" */, VERSION = 1, MAX_BYTES = 16 << 20, MAX_ALIGN = 4096, ADDRESS = 8 };

/* Little endian, without padding; then nfixups times struct kiln_fixup, then nbytes of code and constants. */
typedef struct head {
    uint32_t magic;
    uint16_t version, machine; /* machine: of ELF */
    uint32_t nbytes, align, entry, nfixups;
} head;
_Static_assert(sizeof(head) == 24 && sizeof(struct kiln_fixup) == 8, "an image has no padding");

kiln_status kiln_image_make(const kiln_object *o, const char *symbol, kiln_object *out) {
    kiln_linked l;
    KILN_TRY(kiln_elf_link(o, symbol, &l));
    head h = {.magic = MAGIC,
              .version = VERSION,
              .machine = HOST_MACHINE,
              .nbytes = (uint32_t)l.n,
              .align = (uint32_t)l.align,
              .entry = (uint32_t)l.entry,
              .nfixups = (uint32_t)l.nfixups};
    size_t nfixups = l.nfixups * sizeof *l.fixups, n = sizeof h + nfixups + l.n;
    char *p = kiln_alloc(n);
    if (p) {
        memcpy(p, &h, sizeof h);
        if (nfixups) memcpy(p + sizeof h, l.fixups, nfixups);
        memcpy(p + sizeof h + nfixups, l.bytes, l.n);
        *out = (kiln_object){.bytes = p, .n = n};
    }
    kiln_linked_fini(&l);
    return p ? KILN_OK : KILN_NOMEM();
}

#define DAMAGED(...) KILN_FAIL(KILN_E_BUILD, "damaged kernel image: " __VA_ARGS__)

static kiln_status check_head(const head *h, size_t n) {
    if (h->magic != MAGIC || h->version != VERSION)
        return DAMAGED("it begins with 0x%x, version %u", h->magic, h->version);
    if (h->machine != HOST_MACHINE)
        return DAMAGED("for machine %u, expected %d", h->machine, (int)HOST_MACHINE);
    if (h->nbytes == 0 || h->nbytes > MAX_BYTES || h->entry >= h->nbytes)
        return DAMAGED("its code has %u bytes and begins at %u", h->nbytes, h->entry);
    if (h->align == 0 || h->align > MAX_ALIGN || (h->align & (h->align - 1)))
        return DAMAGED("it is aligned to %u", h->align);
    if (h->nfixups > MAX_BYTES / sizeof(struct kiln_fixup) ||
        n != sizeof *h + h->nfixups * sizeof(struct kiln_fixup) + h->nbytes)
        return DAMAGED("it has %zu bytes", n);
    return KILN_OK;
}

static kiln_status fill(const head *h, const char *fixups, const char *code, const kiln_codemem *mem) {
    memcpy(mem->write, code, h->nbytes);
    for (uint32_t k = 0; k < h->nfixups; k++) {
        struct kiln_fixup f;
        memcpy(&f, fixups + k * sizeof f, sizeof f);
        if (f.at > h->nbytes - ADDRESS || h->nbytes < ADDRESS || f.to > h->nbytes)
            return DAMAGED("address %u stands at %u", f.to, f.at);
        uint64_t address = (uint64_t)(uintptr_t)(mem->exec + f.to);
        memcpy(mem->write + f.at, &address, sizeof address);
    }
    return KILN_OK;
}

/* A system that gives no memory for code says nothing of the image: KILN_E_BUILD stands for damage, after which stores drop an entry. */
static kiln_status of_machine(kiln_status st) { return st == KILN_E_BUILD ? KILN_E_NOMEM : st; }

kiln_status kiln_image_load(const void *bytes, size_t n, kiln_codemem *out, void **entry) {
    head h;
    if (!bytes || n < sizeof h) return DAMAGED("it has %zu bytes", n);
    memcpy(&h, bytes, sizeof h);
    KILN_TRY(check_head(&h, n));
    const char *fixups = (const char *)bytes + sizeof h;
    KILN_TRY(of_machine(kiln_codemem_get(h.nbytes, h.align, out)));
    kiln_status st = fill(&h, fixups, fixups + h.nfixups * sizeof(struct kiln_fixup), out);
    if (st == KILN_OK) st = of_machine(kiln_codemem_seal(out));
    if (st != KILN_OK) {
        kiln_codemem_put(out);
        return st;
    }
    *entry = out->exec + h.entry;
    return KILN_OK;
}
