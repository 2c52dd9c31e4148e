/* cost.h - what an input costs, counted and never timed, so that a fuzz target can hold it to a budget.
 *
 *   cost_start();                            steps and memory count from zero
 *   ... what the budget is for ...
 *   cost_check(&budget, n);                  ends the run if the input of n bytes cost more
 *
 * Steps are branches taken in Kiln's code, and 16-byte pieces that libc compares, copies or searches for it;
 * memory is the most that was taken from kiln_alloc at once.  A budget is a multiple of the input's bytes and a
 * fixed part for the tables that every input pays for. */
#ifndef KILN_FUZZ_COST_H
#define KILN_FUZZ_COST_H
#include <stddef.h>

typedef struct cost_budget {
    const char *what;
    size_t steps_per_byte, steps;
    size_t bytes_per_byte, bytes;
} cost_budget;

void cost_start(void);
void cost_check(const cost_budget *budget, size_t n);
#endif
