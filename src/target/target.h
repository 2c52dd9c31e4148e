/* target.h - a target: how the kernels of one kind of device are emitted, built, loaded and tested.
 *
 * A target is a struct of data and functions, opened once per context.  Each target is a row of target.def and a folder of
 * this one.  src/api reaches emitters, compilers and loaders through this struct alone.  A target is given IR and gives
 * code that has the kernel ABI (kiln/kiln_abi.h); src/run launches that code.  The form of a call is chosen before its class is
 * known, by the target's chooser (infer/chooser.h).  A target must not know operators, families or classes. */
#ifndef KILN_TARGET_H
#define KILN_TARGET_H
#include <stdatomic.h>

#include "base/isa.h"
#include "ir/ir.h"
#include "target/code.h"
#include "tensor/tensor.h"

struct kiln_interp;

/* What a target may ask of the context that opened it. */
typedef struct kiln_target_host {
    kiln_isa isa;   /* the best level that code for this machine's processors may have */
    const char *cc; /* the configured compiler, or NULL */
    /* *dir: an existing folder for scratch files and logs, made on first use.  The text lives as long as the context. */
    kiln_status (*scratch)(void *user, const char **dir);
    /* Whether the calling thread, which waits for a compiler, is to stop waiting. */
    kiln_interrupted_fn interrupted;
    void *user; /* of scratch and interrupted */
} kiln_target_host;

/* Why `build` made no object for a unit. */
typedef enum kiln_build_failure {
    KILN_BUILD_NO_COMPILER,
    KILN_BUILD_REFUSED, /* the compiler refused the source, or broke down */
    KILN_BUILD_TIMEOUT
} kiln_build_failure;

/* Kernels that are emitted and built together, and what became of them. */
enum { KILN_UNIT_MAX = 16 };
typedef struct kiln_unit {
    int n;
    int level;                        /* the code may use what machines of this level of the target have */
    const kiln_ir *ir[KILN_UNIT_MAX]; /* verified */
    kiln_sb source;
    char symbol[KILN_UNIT_MAX][32]; /* of each kernel in the source */
    /* Bytes of memory, at a multiple of 64, that a launch of each kernel needs beside its buffers; 0: none. */
    size_t work[KILN_UNIT_MAX];
    kiln_object object;
    kiln_build_failure failure; /* valid if `build` failed with KILN_E_BUILD */
} kiln_unit;

/* A number in a target's code that a measurement set. */
typedef struct kiln_tuning {
    const char *name;
    long long value;
    const char *unit, *decides, *measured; /* measured: "" where nobody wrote the measurement down */
} kiln_tuning;

/* What a kernel is guessed to take for an element, in picoseconds, until calls have been timed. */
typedef struct kiln_target_cost {
    uint32_t plain;    /* for each plain operation */
    uint32_t function; /* for each elementary function, as exp */
    uint32_t special;  /* for each special function, as digamma */
    uint32_t byte;     /* for each byte that is read or written */
} kiln_target_cost;

typedef struct kiln_target kiln_target;
struct kiln_target {
    /* Name and stamp are part of the digest by which stores find kernels.  The stamp is a hash of all that decides a kernel's
     * code, besides its IR and level. */
    const char *name, *stamp;
    const char *suffix;        /* of files that hold sources: ".c" */
    uint8_t device;            /* KILN_DEVICE_*: where the tensors are that kernels read and write */
    uint8_t level;             /* the best level for kernels of this context; part of the key of each class */
    int nlevels;               /* levels are numbers below this one */
    const kiln_tuning *tuning; /* of all of the target's code */
    int ntuning;
    kiln_target_cost cost;
    /* Processor time of a build of one kernel, in picoseconds: a mean over builds, at first a guess.  [1]: of kernels with
     * loops inside their loop; [0]: of other kernels.  Written under the lock of src/api/builders.c, read without it. */
    _Atomic uint64_t price[2];

    const char *(*level_name)(int level);
    bool (*runs)(int level); /* whether this machine runs code of a level, from 0 to `level` */

    /* How kernels are grouped: those of one unit have the same number. */
    int (*group)(const kiln_ir *ir, int level);
    /* *level: the level at which kernels can be built now, at most t->level.  Finds the compiler if need be, which may be
     * interrupted.  Where there is no compiler, the level is t->level. */
    kiln_status (*find_level)(kiln_target *t, int *level);
    /* Fills in u->source, which is empty, u->symbol and u->work. */
    kiln_status (*emit)(kiln_target *t, kiln_unit *u);
    /* Fills in u->object, or u->failure.  For a unit of several kernels a failure leaves no log: the caller builds each
     * kernel by itself then. */
    kiln_status (*build)(kiln_target *t, kiln_unit *u);
    /* u->source in the target's assembly language, heap text. */
    kiln_status (*assembly)(kiln_target *t, const kiln_unit *u, char **out);
    /* code[k]: the kernel symbols[k] of an object, n of them (1 to KILN_UNIT_MAX).  All or nothing.  slow: a way that starts
     * processes may be taken, if n is 1 and the quick way failed. */
    kiln_status (*load)(kiln_target *t, const kiln_object *o, const char *const *symbols, int n, bool slow,
                        kiln_code **code);
    /* One kernel of an object, with what it uses and nothing else, as bytes that stores keep: *out is heap. */
    kiln_status (*make_image)(kiln_target *t, const kiln_object *o, const char *symbol, kiln_object *out);
    kiln_status (*load_image)(kiln_target *t, const kiln_object *image, kiln_code **code);
    /* The compiler in words, after a build; "" where there is none. */
    const char *(*compiler)(kiln_target *t);
    /* Runs new code and the interpreter on the same made input.  KILN_E_BUG: the results differ; the message says where. */
    kiln_status (*test)(kiln_target *t, const kiln_ir *ir, const struct kiln_interp *interp,
                        const kiln_code *code, size_t work);

    /* Whether the target can build kernels, as far as is known without starting a process. */
    bool (*can_build)(kiln_target *t);
    /* Appends lines "name: value" for kiln_doctor, after looking for the compiler; '!' begins a line that tells of a fault. */
    kiln_status (*doctor)(kiln_target *t, kiln_sb *out);
    /* Compilers that this thread starts from now on have a niceness higher by `by` than the thread's (nice(2)). */
    void (*nice)(int by);
    void (*stop)(kiln_target *t);          /* ends the compilers that run; from now on builds fail at once */
    void (*lock)(kiln_target *t, bool on); /* takes or gives the target's own lock, around a fork */
    void (*close)(kiln_target *t);
};

/* -- the targets of a context (targets.c) ------------------------------------------------------------------- */

enum { KILN_TARGETS_MAX = 8 };
typedef struct kiln_targets {
    kiln_target *at[KILN_TARGETS_MAX];
    int n;
    kiln_target *of[KILN_DEVICE_COUNT]; /* by device: the last one added; NULL: none */
} kiln_targets;

/* Opens the targets of target.def.  host: lives as long as the targets.  On failure none stays open. */
kiln_status kiln_targets_open(kiln_targets *targets, const kiln_target_host *host) KILN_MUST_CHECK;
/* Adds a target, to be closed with the others.  Before the first call only. */
kiln_status kiln_targets_add(kiln_targets *targets, kiln_target *t) KILN_MUST_CHECK;
void kiln_targets_nice(const kiln_targets *targets, int by);
void kiln_targets_stop(const kiln_targets *targets);
void kiln_targets_lock(const kiln_targets *targets, bool on); /* around a fork */
void kiln_targets_close(kiln_targets *targets);

void kiln_unit_fini(kiln_unit *u); /* source and object */

#define TARGET(name, DEVICE) \
    kiln_status kiln_target_open_##name(const kiln_target_host *host, kiln_target **out) KILN_MUST_CHECK;
#include "target/target.def"
#undef TARGET
#endif
