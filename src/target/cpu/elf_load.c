/* elf_load.c - an ELF64 relocatable object -> code that can be called.
 *
 * Takes what a kernel is made of (text, constants, local symbols) and refuses the rest by name:
 * writable data, undefined symbols, unknown relocations.  A fault in the file's structure is told
 * apart from a feature we lack, since only for the latter is asking a linker worth it.
 * The sections of one kernel lie together, so 32-bit distances always reach. */
#include <elf.h>
#include <string.h>

#include "target/cpu/elf_load.h"

#if defined(__aarch64__)
enum { HOST_MACHINE = EM_AARCH64 };
#else
enum { HOST_MACHINE = EM_X86_64 };
#endif

enum { MAX_SECTIONS = 4096, MAX_SYMBOLS = 1 << 16, MAX_BYTES = 16 << 20, MAX_ALIGN = 4096, GOT_ENTRY = 8 };
#define UNPLACED SIZE_MAX

typedef struct object {
    const uint8_t *p; /* the file, at any alignment */
    size_t n;
    Elf64_Ehdr head;
    Elf64_Shdr names;   /* section names */
    Elf64_Shdr symbols; /* sh_size 0: none */
    Elf64_Shdr strings; /* symbol names */
    size_t symtab;      /* section index of symbols */
    size_t nsymbols;
    size_t *offset; /* per section: where it goes in the piece, or UNPLACED */
    size_t got;     /* offset of the table of addresses, one per symbol, or UNPLACED */
    size_t nbytes;  /* of the piece */
    size_t align;
    bool linkable; /* well formed so far */
    bool *reached; /* per section: whether the kernel that is linked uses it; NULL: all sections are placed */
    kiln_linked *linked; /* what is linked for address 0, or NULL */
} object;

#define MALFORMED(o, ...) ((o)->linkable = false, KILN_FAIL(KILN_E_BUILD, "damaged object: " __VA_ARGS__))

/* -- reading the file ------------------------------------------------------------------------------ */

static bool in_file(const object *o, uint64_t offset, uint64_t size) {
    return offset <= o->n && size <= o->n - offset;
}

static Elf64_Shdr section(const object *o, size_t i) {
    Elf64_Shdr s;
    memcpy(&s, o->p + o->head.e_shoff + i * sizeof s, sizeof s);
    return s;
}

static Elf64_Sym symbol_at(const object *o, size_t i) {
    Elf64_Sym s;
    memcpy(&s, o->p + o->symbols.sh_offset + i * sizeof s, sizeof s);
    return s;
}

/* "" for an offset outside the table; tables are checked to end in NUL. */
static const char *text_at(const object *o, const Elf64_Shdr *table, uint64_t offset) {
    return offset < table->sh_size ? (const char *)o->p + table->sh_offset + offset : "";
}

static const char *section_name(const object *o, const Elf64_Shdr *s) {
    return text_at(o, &o->names, s->sh_name);
}

static kiln_status check_text(object *o, const Elf64_Shdr *t, const char *what) {
    if (t->sh_type != SHT_STRTAB || t->sh_size == 0 || o->p[t->sh_offset + t->sh_size - 1] != 0)
        return MALFORMED(o, "the table of %s names is not one", what);
    return KILN_OK;
}

static kiln_status read_head(object *o) {
    o->linkable = true;
    if (!o->p || o->n < sizeof o->head) return MALFORMED(o, "%zu bytes are too few for an ELF header", o->n);
    memcpy(&o->head, o->p, sizeof o->head);
    const Elf64_Ehdr *h = &o->head;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) return MALFORMED(o, "not an ELF file");
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_type != ET_REL)
        return MALFORMED(o, "expected a 64-bit little-endian relocatable file");
    if (h->e_machine != HOST_MACHINE)
        return MALFORMED(o, "for machine %u, expected %d", (unsigned)h->e_machine, (int)HOST_MACHINE);
    if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shnum == 0 || h->e_shnum > MAX_SECTIONS ||
        !in_file(o, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
        return MALFORMED(o, "its section table does not fit");
    if (h->e_shstrndx >= h->e_shnum)
        return MALFORMED(o, "section names are in section %u of %u", h->e_shstrndx, h->e_shnum);
    return KILN_OK;
}

static kiln_status read_symbol_table(object *o, size_t i, const Elf64_Shdr *s) {
    if (o->symbols.sh_size) return MALFORMED(o, "it has two symbol tables");
    o->nsymbols = s->sh_size / sizeof(Elf64_Sym);
    if (s->sh_entsize != sizeof(Elf64_Sym) || o->nsymbols == 0 || o->nsymbols > MAX_SYMBOLS)
        return MALFORMED(o, "its symbol table has %llu bytes", (unsigned long long)s->sh_size);
    if (s->sh_link >= o->head.e_shnum) return MALFORMED(o, "symbol names are in section %u", s->sh_link);
    o->symbols = *s;
    o->symtab = i;
    o->strings = section(o, s->sh_link);
    return check_text(o, &o->strings, "symbol");
}

/* After this, every section's bytes are in the file and the tables are usable. */
static kiln_status read_tables(object *o) {
    for (size_t i = 0; i < o->head.e_shnum; i++) {
        Elf64_Shdr s = section(o, i);
        bool has_bytes = s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS;
        if (has_bytes && !in_file(o, s.sh_offset, s.sh_size))
            return MALFORMED(o, "section %zu ends past the file", i);
    }
    o->names = section(o, o->head.e_shstrndx);
    KILN_TRY(check_text(o, &o->names, "section"));
    for (size_t i = 0; i < o->head.e_shnum; i++) {
        Elf64_Shdr s = section(o, i);
        if (s.sh_type == SHT_SYMTAB) KILN_TRY(read_symbol_table(o, i, &s));
    }
    return KILN_OK;
}

static kiln_status read_object(object *o, const kiln_object *file) {
    *o = (object){.p = file->bytes, .n = file->n, .got = UNPLACED, .align = KILN_CODEMEM_ALIGN};
    KILN_TRY(read_head(o));
    return read_tables(o);
}

/* -- placing sections ------------------------------------------------------------------------------- */

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Constants that hold addresses: writable for a dynamic linker's sake only. */
static bool is_const_with_addresses(const char *name) { return starts_with(name, ".data.rel.ro"); }

static bool is_wanted(const Elf64_Shdr *s, const char *name) {
    return (s->sh_flags & SHF_ALLOC) && s->sh_size > 0 && s->sh_type != SHT_NOTE &&
           strcmp(name, ".eh_frame") != 0;
}

static kiln_status place(object *o, size_t i, const Elf64_Shdr *s, const char *name) {
    if ((s->sh_flags & SHF_WRITE) && !is_const_with_addresses(name))
        return KILN_FAIL(KILN_E_BUILD, "the object has writable data: section %.60s of %llu bytes", name,
                         (unsigned long long)s->sh_size);
    if (s->sh_type != SHT_PROGBITS || (s->sh_flags & (SHF_TLS | SHF_COMPRESSED)))
        return KILN_FAIL(KILN_E_BUILD, "the object has a section %.60s of type %u, flags 0x%llx", name,
                         s->sh_type, (unsigned long long)s->sh_flags);
    uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
    if ((align & (align - 1)) != 0 || align > MAX_ALIGN)
        return MALFORMED(o, "section %zu is aligned to %llu", i, (unsigned long long)align);
    size_t at = (o->nbytes + align - 1) & ~(size_t)(align - 1);
    if (s->sh_size > MAX_BYTES || at + s->sh_size > MAX_BYTES)
        return KILN_FAIL(KILN_E_BUILD, "the object's code and constants take more than %d bytes",
                         (int)MAX_BYTES);
    o->offset[i] = at;
    o->nbytes = at + s->sh_size;
    if (align > o->align) o->align = align;
    return KILN_OK;
}

static kiln_status place_sections(object *o) {
    o->offset = kiln_alloc(o->head.e_shnum * sizeof *o->offset);
    if (!o->offset) return KILN_NOMEM();
    for (size_t i = 0; i < o->head.e_shnum; i++) o->offset[i] = UNPLACED;
    for (size_t i = 0; i < o->head.e_shnum; i++) {
        Elf64_Shdr s = section(o, i);
        const char *name = section_name(o, &s);
        bool used = !o->reached || o->reached[i];
        if (used && is_wanted(&s, name)) KILN_TRY(place(o, i, &s, name));
    }
    if (o->nbytes == 0) return KILN_FAIL(KILN_E_BUILD, "the object holds no code");
    return KILN_OK;
}

/* -- symbols --------------------------------------------------------------------------------------- */

/* Kernels stand alone: whatever they call is in them. */
static kiln_status check_defined(object *o) {
    for (size_t i = 1; i < o->nsymbols; i++) {
        Elf64_Sym s = symbol_at(o, i);
        const char *name = text_at(o, &o->strings, s.st_name);
        if (s.st_shndx == SHN_UNDEF && *name && strcmp(name, "_GLOBAL_OFFSET_TABLE_") != 0)
            return KILN_FAIL(KILN_E_BUILD, "the object refers to the undefined symbol '%.100s'", name);
        if (s.st_shndx == SHN_COMMON)
            return KILN_FAIL(KILN_E_BUILD, "the object has writable data: '%.100s'", name);
    }
    return KILN_OK;
}

/* The offset in the piece of a symbol that lies in a placed section. */
static kiln_status resolve(object *o, size_t i, size_t *out) {
    if (i >= o->nsymbols) return MALFORMED(o, "a relocation names symbol %zu of %zu", i, o->nsymbols);
    Elf64_Sym s = symbol_at(o, i);
    if (s.st_shndx >= o->head.e_shnum || o->offset[s.st_shndx] == UNPLACED)
        return KILN_FAIL(KILN_E_BUILD, "a relocation refers to '%.100s', which lies in no code or constants",
                         text_at(o, &o->strings, s.st_name));
    Elf64_Shdr in = section(o, s.st_shndx);
    if (s.st_value > in.sh_size) return MALFORMED(o, "symbol %zu lies past its section", i);
    *out = o->offset[s.st_shndx] + s.st_value;
    return KILN_OK;
}

static kiln_status find_entry(object *o, const char *wanted, size_t *out) {
    for (size_t i = 1; i < o->nsymbols; i++) {
        Elf64_Sym s = symbol_at(o, i);
        if (s.st_shndx >= o->head.e_shnum || strcmp(text_at(o, &o->strings, s.st_name), wanted) != 0)
            continue;
        if (s.st_shndx == SHN_UNDEF || o->offset[s.st_shndx] == UNPLACED) continue;
        Elf64_Shdr in = section(o, s.st_shndx);
        if (!(in.sh_flags & SHF_EXECINSTR) || s.st_value >= in.sh_size) continue;
        *out = o->offset[s.st_shndx] + s.st_value;
        return KILN_OK;
    }
    return KILN_FAIL(KILN_E_BUILD, "the object has no function '%.100s'", wanted);
}

/* -- relocations ----------------------------------------------------------------------------------- */

typedef kiln_status (*visit_fn)(object *o, const Elf64_Shdr *target, size_t target_index, const Elf64_Rela *r,
                                kiln_codemem *mem);

static kiln_status each_in(object *o, const Elf64_Shdr *s, visit_fn visit, kiln_codemem *mem) {
    if (s->sh_entsize != sizeof(Elf64_Rela) || s->sh_link != o->symtab || !o->symbols.sh_size)
        return MALFORMED(o, "a relocation table has entries of %llu bytes",
                         (unsigned long long)s->sh_entsize);
    Elf64_Shdr target = section(o, s->sh_info);
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= s->sh_size; at += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, o->p + s->sh_offset + at, sizeof r);
        KILN_TRY(visit(o, &target, s->sh_info, &r, mem));
    }
    return KILN_OK;
}

static kiln_status each_relocation(object *o, visit_fn visit, kiln_codemem *mem) {
    for (size_t i = 0; i < o->head.e_shnum; i++) {
        Elf64_Shdr s = section(o, i);
        if (s.sh_type != SHT_RELA && s.sh_type != SHT_REL) continue;
        if (s.sh_info >= o->head.e_shnum) return MALFORMED(o, "relocations for section %u", s.sh_info);
        if (o->offset[s.sh_info] == UNPLACED) continue;
        if (s.sh_type == SHT_REL)
            return KILN_FAIL(KILN_E_BUILD, "the object has relocations without addends");
        KILN_TRY(each_in(o, &s, visit, mem));
    }
    return KILN_OK;
}

static kiln_status check_relocation(object *o, const Elf64_Shdr *target, size_t target_index,
                                    const Elf64_Rela *r, kiln_codemem *mem) {
    (void)mem;
    (void)target_index;
    size_t nbytes, value;
    uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
    kiln_reloc_kind kind = kiln_reloc_classify(o->head.e_machine, type, &nbytes);
    if (kind == KILN_RELOC_NONE) return KILN_OK;
    if (kind == KILN_RELOC_UNKNOWN)
        return KILN_FAIL(KILN_E_BUILD, "the object has a relocation of unknown type %u", type);
    if (r->r_offset > target->sh_size || nbytes > target->sh_size - r->r_offset)
        return MALFORMED(o, "a relocation lies past its section");
    KILN_TRY(resolve(o, ELF64_R_SYM(r->r_info), &value));
    if (kind == KILN_RELOC_VIA_GOT && o->got == UNPLACED) {
        o->got = (o->nbytes + GOT_ENTRY - 1) & ~(size_t)(GOT_ENTRY - 1);
        o->nbytes = o->got + o->nsymbols * GOT_ENTRY;
    }
    return KILN_OK;
}

/* Of code that is linked for address 0: keeps that the 8 bytes at `at` hold the address of the byte at `to`. */
static kiln_status note_address(object *o, size_t at, uint64_t to) {
    kiln_linked *l = o->linked;
    if (!l) return KILN_OK;
    if (to > o->nbytes) return KILN_FAIL(KILN_E_BUILD, "an address lies outside the code and its constants");
    for (size_t k = 0; k < l->nfixups; k++) /* several relocations may share an entry of the table */
        if (l->fixups[k].at == at) return KILN_OK;
    if ((l->nfixups & (l->nfixups - 1)) == 0) { /* 0 or a power of two: full */
        size_t room = l->nfixups ? 2 * l->nfixups : 1;
        struct kiln_fixup *more = kiln_realloc(l->fixups, room * sizeof *more);
        if (!more) return KILN_NOMEM();
        l->fixups = more;
    }
    l->fixups[l->nfixups++] = (struct kiln_fixup){(uint32_t)at, (uint32_t)to};
    return KILN_OK;
}

static kiln_status apply_relocation(object *o, const Elf64_Shdr *target, size_t target_index,
                                    const Elf64_Rela *r, kiln_codemem *mem) {
    (void)target;
    size_t nbytes, symbol = ELF64_R_SYM(r->r_info), value;
    kiln_reloc todo = {.type = (uint32_t)ELF64_R_TYPE(r->r_info)};
    kiln_reloc_kind kind = kiln_reloc_classify(o->head.e_machine, todo.type, &nbytes);
    if (kind == KILN_RELOC_NONE) return KILN_OK;
    KILN_TRY(resolve(o, symbol, &value));
    uint64_t base = (uint64_t)(uintptr_t)mem->exec;
    if (kind == KILN_RELOC_VIA_GOT) {
        uint64_t address = base + value;
        size_t in_table = o->got + symbol * GOT_ENTRY;
        KILN_TRY(note_address(o, in_table, address));
        memcpy(mem->write + in_table, &address, sizeof address);
        value = in_table;
    }
    size_t at = o->offset[target_index] + r->r_offset;
    kiln_reloc_move moves = kiln_reloc_moves(o->head.e_machine, todo.type);
    if (o->linked && moves == KILN_MOVE_NEVER)
        return KILN_FAIL(KILN_E_BUILD, "a relocation of type %u ties the code to one address", todo.type);
    if (moves == KILN_MOVE_ADDRESS) KILN_TRY(note_address(o, at, value + (uint64_t)r->r_addend));
    todo.place = base + at;
    todo.value = base + value + (uint64_t)r->r_addend;
    if (!kiln_reloc_apply(o->head.e_machine, &todo, mem->write + at))
        return KILN_FAIL(KILN_E_BUILD, "a relocation of type %u does not reach its target", todo.type);
    return KILN_OK;
}

/* -- loading ------------------------------------------------------------------------------------------ */

static void copy_sections(const object *o, uint8_t *to) {
    memset(to, 0, o->nbytes);
    for (size_t i = 0; i < o->head.e_shnum; i++) {
        Elf64_Shdr s = section(o, i);
        if (o->offset[i] != UNPLACED) memcpy(to + o->offset[i], o->p + s.sh_offset, s.sh_size);
    }
}

static kiln_status fill(object *o, kiln_codemem *mem) {
    copy_sections(o, mem->write);
    KILN_TRY(each_relocation(o, apply_relocation, mem));
    return kiln_codemem_seal(mem);
}

static kiln_status load(object *o, const kiln_object *file, const char *const *symbols, int n,
                        kiln_codemem *out, void **entries) {
    size_t start[KILN_CODE_MAX];
    kiln_codemem mem;
    KILN_TRY(read_object(o, file));
    KILN_TRY(place_sections(o));
    KILN_TRY(check_defined(o));
    for (int k = 0; k < n; k++) KILN_TRY(find_entry(o, symbols[k], &start[k]));
    KILN_TRY(each_relocation(o, check_relocation, NULL));
    KILN_TRY(kiln_codemem_get(o->nbytes, o->align, &mem));
    kiln_status st = fill(o, &mem);
    if (st != KILN_OK) {
        kiln_codemem_put(&mem);
        return st;
    }
    for (int k = 0; k < n; k++) entries[k] = mem.exec + start[k];
    *out = mem;
    return KILN_OK;
}

kiln_status kiln_elf_load(const kiln_object *file, const char *const *symbols, int n, kiln_codemem *out,
                          void **entries, bool *linkable) {
    object o = {0};
    kiln_status st = load(&o, file, symbols, n, out, entries);
    kiln_free(o.offset);
    *linkable = o.linkable;
    return st;
}

/* -- one kernel, linked for address 0 ------------------------------------------------------------------- */

static kiln_status reach_in(object *o, const Elf64_Shdr *s, bool *more) {
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= s->sh_size; at += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, o->p + s->sh_offset + at, sizeof r);
        size_t symbol = ELF64_R_SYM(r.r_info);
        if (symbol >= o->nsymbols)
            return MALFORMED(o, "a relocation names symbol %zu of %zu", symbol, o->nsymbols);
        size_t in = symbol_at(o, symbol).st_shndx;
        if (in >= o->head.e_shnum || o->reached[in]) continue;
        o->reached[in] = *more = true;
    }
    return KILN_OK;
}

/* Marks the section of the kernel's function and then, step by step, every section that relocations of a marked one refer to. */
static kiln_status reach(object *o, const char *symbol) {
    o->reached = kiln_calloc(o->head.e_shnum, sizeof *o->reached);
    if (!o->reached) return KILN_NOMEM();
    for (size_t i = 1; i < o->nsymbols; i++) {
        Elf64_Sym s = symbol_at(o, i);
        if (s.st_shndx < o->head.e_shnum && strcmp(text_at(o, &o->strings, s.st_name), symbol) == 0)
            o->reached[s.st_shndx] = true;
    }
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < o->head.e_shnum; i++) {
            Elf64_Shdr s = section(o, i);
            if (s.sh_type == SHT_RELA && s.sh_info < o->head.e_shnum && o->reached[s.sh_info])
                KILN_TRY(reach_in(o, &s, &more));
        }
    }
    return KILN_OK;
}

static kiln_status link_object(object *o, const kiln_object *file, const char *symbol, kiln_linked *out) {
    kiln_codemem at_zero = {0};
    KILN_TRY(read_object(o, file));
    KILN_TRY(reach(o, symbol));
    KILN_TRY(place_sections(o));
    KILN_TRY(check_defined(o));
    KILN_TRY(find_entry(o, symbol, &out->entry));
    KILN_TRY(each_relocation(o, check_relocation, NULL));
    o->linked = out;
    out->n = o->nbytes;
    /* Code for AArch64 holds distances between pages of 4 KiB.  They stay right if the code moves by whole pages. */
    out->align = o->head.e_machine == EM_AARCH64 ? MAX_ALIGN : o->align;
    out->bytes = at_zero.write = kiln_alloc(o->nbytes);
    if (!out->bytes) return KILN_NOMEM();
    copy_sections(o, out->bytes);
    return each_relocation(o, apply_relocation, &at_zero);
}

kiln_status kiln_elf_link(const kiln_object *file, const char *symbol, kiln_linked *out) {
    object o = {0};
    *out = (kiln_linked){0};
    kiln_status st = link_object(&o, file, symbol, out);
    kiln_free(o.offset);
    kiln_free(o.reached);
    if (st != KILN_OK) kiln_linked_fini(out);
    return st;
}

void kiln_linked_fini(kiln_linked *l) {
    kiln_free(l->bytes);
    kiln_free(l->fixups);
    *l = (kiln_linked){0};
}

void kiln_elf_export(kiln_object *file, const char *symbol) {
    object o;
    if (read_object(&o, file) != KILN_OK) return;
    for (size_t i = 1; i < o.nsymbols; i++) {
        Elf64_Sym s = symbol_at(&o, i);
        if (strcmp(text_at(&o, &o.strings, s.st_name), symbol) != 0) continue;
        s.st_other = (unsigned char)((s.st_other & ~3u) | STV_DEFAULT);
        memcpy((uint8_t *)file->bytes + o.symbols.sh_offset + i * sizeof s, &s, sizeof s);
    }
}
