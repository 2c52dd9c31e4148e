/* reloc.c - (relocation type, place, value) -> patched bytes, for x86-64 and aarch64.
 *
 * Pure arithmetic on the few bytes at one place; both machines are compiled everywhere, so that one
 * host tests both.  Knows nothing of sections, symbols or memory. */
#include <elf.h>
#include <string.h>

#include "target/cpu/elf_load.h"

static uint32_t get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static void put64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }
static bool fits_signed(int64_t v, int bits) {
    return v >= -(INT64_C(1) << (bits - 1)) && v < INT64_C(1) << (bits - 1);
}

/* -- x86-64 -------------------------------------------------------------------------------------- */

static kiln_reloc_kind classify_x86(uint32_t type, size_t *nbytes) {
    *nbytes = 4;
    switch (type) {
    case R_X86_64_NONE: *nbytes = 0; return KILN_RELOC_NONE;
    case R_X86_64_64:
    case R_X86_64_PC64: *nbytes = 8; return KILN_RELOC_PLAIN;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_32:
    case R_X86_64_32S: return KILN_RELOC_PLAIN;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return KILN_RELOC_VIA_GOT;
    default: return KILN_RELOC_UNKNOWN;
    }
}

static bool apply_x86(const kiln_reloc *r, uint8_t *at) {
    int64_t distance = (int64_t)(r->value - r->place);
    switch (r->type) {
    case R_X86_64_64: put64(at, r->value); return true;
    case R_X86_64_PC64: put64(at, (uint64_t)distance); return true;
    case R_X86_64_32: put32(at, (uint32_t)r->value); return r->value <= UINT32_MAX;
    case R_X86_64_32S: put32(at, (uint32_t)r->value); return fits_signed((int64_t)r->value, 32);
    default: put32(at, (uint32_t)distance); return fits_signed(distance, 32);
    }
}

/* -- aarch64 ------------------------------------------------------------------------------------- */

static kiln_reloc_kind classify_a64(uint32_t type, size_t *nbytes) {
    *nbytes = 4;
    switch (type) {
    case R_AARCH64_NONE: *nbytes = 0; return KILN_RELOC_NONE;
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64: *nbytes = 8; return KILN_RELOC_PLAIN;
    case R_AARCH64_ABS32:
    case R_AARCH64_PREL32:
    case R_AARCH64_LD_PREL_LO19:
    case R_AARCH64_ADR_PREL_LO21:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_PREL_PG_HI21_NC:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC:
    case R_AARCH64_TSTBR14:
    case R_AARCH64_CONDBR19:
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26: return KILN_RELOC_PLAIN;
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_LD64_GOT_LO12_NC: return KILN_RELOC_VIA_GOT;
    default: return KILN_RELOC_UNKNOWN;
    }
}

/* Puts the low `bits` bits of v at bit `shift` of the instruction. */
static void set_field(uint8_t *at, uint64_t v, int bits, int shift) {
    uint32_t mask = ((UINT32_C(1) << bits) - 1) << shift;
    put32(at, (get32(at) & ~mask) | ((uint32_t)(v << shift) & mask));
}

/* A branch or literal load: a word distance. */
static bool set_words(uint8_t *at, int64_t distance, int bits, int shift) {
    set_field(at, (uint64_t)distance >> 2, bits, shift);
    return (distance & 3) == 0 && fits_signed(distance, bits + 2);
}

/* ADR and ADRP split their 21 bits: two low ones at 29, the rest at 5. */
static bool set_adr(uint8_t *at, int64_t v) {
    set_field(at, (uint64_t)v & 3, 2, 29);
    set_field(at, (uint64_t)v >> 2, 19, 5);
    return fits_signed(v, 21);
}

/* The offset within a page of a load or store, in units of its access size. */
static bool set_lo12(uint8_t *at, uint64_t value, int log2_size) {
    uint64_t low = value & 0xfff;
    set_field(at, low >> log2_size, 12, 10);
    return (low & ((UINT64_C(1) << log2_size) - 1)) == 0;
}

static int64_t page_distance(const kiln_reloc *r) { return (int64_t)((r->value >> 12) - (r->place >> 12)); }

static bool apply_a64(const kiln_reloc *r, uint8_t *at) {
    int64_t distance = (int64_t)(r->value - r->place);
    switch (r->type) {
    case R_AARCH64_ABS64: put64(at, r->value); return true;
    case R_AARCH64_PREL64: put64(at, (uint64_t)distance); return true;
    case R_AARCH64_ABS32: put32(at, (uint32_t)r->value); return r->value <= UINT32_MAX;
    case R_AARCH64_PREL32: put32(at, (uint32_t)distance); return fits_signed(distance, 32);
    case R_AARCH64_ADR_PREL_LO21: return set_adr(at, distance);
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_ADR_PREL_PG_HI21: return set_adr(at, page_distance(r));
    case R_AARCH64_ADR_PREL_PG_HI21_NC: (void)set_adr(at, page_distance(r)); return true;
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return set_lo12(at, r->value, 0);
    case R_AARCH64_LDST16_ABS_LO12_NC: return set_lo12(at, r->value, 1);
    case R_AARCH64_LDST32_ABS_LO12_NC: return set_lo12(at, r->value, 2);
    case R_AARCH64_LD64_GOT_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC: return set_lo12(at, r->value, 3);
    case R_AARCH64_LDST128_ABS_LO12_NC: return set_lo12(at, r->value, 4);
    case R_AARCH64_TSTBR14: return set_words(at, distance, 14, 5);
    case R_AARCH64_LD_PREL_LO19:
    case R_AARCH64_CONDBR19: return set_words(at, distance, 19, 5);
    default: return set_words(at, distance, 26, 0);
    }
}

kiln_reloc_kind kiln_reloc_classify(uint16_t machine, uint32_t type, size_t *nbytes) {
    return machine == EM_AARCH64 ? classify_a64(type, nbytes) : classify_x86(type, nbytes);
}

kiln_reloc_move kiln_reloc_moves(uint16_t machine, uint32_t type) {
    bool a64 = machine == EM_AARCH64;
    if (type == (a64 ? R_AARCH64_ABS64 : R_X86_64_64)) return KILN_MOVE_ADDRESS;
    bool is_short = a64 ? type == R_AARCH64_ABS32 : type == R_X86_64_32 || type == R_X86_64_32S;
    return is_short ? KILN_MOVE_NEVER : KILN_MOVE_STAYS;
}

bool kiln_reloc_apply(uint16_t machine, const kiln_reloc *r, uint8_t *at) {
    return machine == EM_AARCH64 ? apply_a64(r, at) : apply_x86(r, at);
}
