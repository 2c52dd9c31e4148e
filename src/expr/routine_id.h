/* routine_id.h - the numbers of the library's routines, by the names that rows give them (routine.def). */
#ifndef KILN_ROUTINE_ID_H
#define KILN_ROUTINE_ID_H

typedef enum kiln_routine_id {
#define PICK(NAME, FIND, numbers, results) KILN_ROUTINE_##NAME,
#include "expr/routine.def"
#undef PICK
    KILN_ROUTINE_COUNT
} kiln_routine_id;
#endif
