/* emit_map.h - what the two files that print element-wise nests share: emit_map.c and emit_columns.c. */
#ifndef KILN_EMIT_MAP_H
#define KILN_EMIT_MAP_H
#include "target/cpu/emit_impl.h"

/* What a nest touches. */
typedef struct kiln_em_used {
    bool reads[KILN_IR_MAX_BUFS], writes[KILN_IR_MAX_BUFS], pars[KILN_IR_MAX_PARS];
} kiln_em_used;

static inline bool kiln_em_touched(const kiln_em_used *u, int b) { return u->reads[b] || u->writes[b]; }

/* How results that lie in a row are stored: into the caches, past them, or as the variable `bypass` says. */
typedef enum kiln_em_way { KILN_EM_STORE, KILN_EM_STREAM, KILN_EM_ASK } kiln_em_way;

/* emit_map.c */
extern const char *const kiln_em_part_names[]; /* of parts of an element.  ORDER: kiln_ir_part */
bool kiln_em_streams(const kiln_emitter *em,
                     int buf); /* results in buf may bypass the caches, if they lie on vectors' borders */
bool kiln_em_nest_streams(const kiln_emitter *em, const kiln_em_used *u);
/* A vector's instructions: k of its lanes are elements.  Then the pointers p<buffer> go on by a vector. */
void kiln_em_one_vector(kiln_emitter *em, int begin, int end, kiln_em_way way);
void kiln_em_advance(kiln_emitter *em, const kiln_em_used *u);

/* emit_columns.c */
bool kiln_em_has_columns(const kiln_emitter *em, const kiln_em_used *u, int begin, int end);
/* A loop over the first rows of a launch with columns, and the variable r, which says how many that were. */
void kiln_em_columns(kiln_emitter *em, const kiln_em_used *u, int begin, int end);
#endif
