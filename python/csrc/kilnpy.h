/* kilnpy.h - what the files of the extension module share.
 *
 * The module is built against CPython's limited API (3.10) and Kiln's public headers, nothing else.
 * Everything that is written here is written with the GIL held; what runs without it (kiln_call, and
 * deleters of foreign memory) touches no Python object. */
#ifndef KILNPY_H
#define KILNPY_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dlpack_abi.h"
#include "kiln/kiln.h"

/* -- module state ---------------------------------------------------------------------------------- */

/* An open context.  Calls hold it while they run, so kiln.configure can replace it at any time. */
typedef struct kp_box {
    kiln_ctx *ctx;
    long refs;                /* changed with the GIL held */
    struct kp_box *next_lent; /* py_bridge.c: of the contexts that the bridge was given */
    kiln_stats before;        /* what the counters were when the mode was changed last */
} kp_box;

/* What an argument's type means. */
typedef enum kp_kind {
    KP_OTHER, /* dtypes of other libraries: asked one by one */
    KP_NONE,
    KP_BOOL,
    KP_INT,
    KP_FLOAT,
    KP_COMPLEX,
    KP_STR,
    KP_LIST,
    KP_TUPLE,
    KP_DTYPE,        /* kiln.dtype */
    KP_INDEX,        /* a type with __index__ */
    KP_NUMPY_SCALAR, /* a number of NumPy's: an array without dimensions where a tensor is wanted */
    /* tensors from here on */
    KP_KILN,     /* kiln.Tensor */
    KP_EXCHANGE, /* a type with DLPack's exchange table: torch.Tensor */
    KP_NUMPY,    /* numpy.ndarray */
    KP_DLPACK,   /* a type with __dlpack__ */
    KP_REFUSED   /* an ndarray whose class adds a meaning to its elements: a mask, a unit */
} kp_kind;

typedef struct kp_type {
    PyTypeObject *type; /* strong, so that its address is not reused */
    kp_kind kind;
    const dl_exchange *exchange; /* KP_EXCHANGE */
    char name[40];               /* KP_OTHER: as messages call it */
    bool lazy;                   /* has is_neg or is_conj: views may be negated or conjugated when read */
    bool torch;                  /* torch.Tensor or derived from it */
    bool scripted;               /* reading its sizes may run Python code: it has a __torch_dispatch__ */
} kp_type;

/* An at::Tensor that a function returns, and a std::function that is given to one.  C++ returns and takes such classes by
 * address, as C does with a struct of more than two words; so these have room to spare. */
typedef struct kp_torch_made {
    void *impl, *spare[3];
} kp_torch_made;
typedef struct kp_torch_function {
    void *words[8]; /* all NULL: it is empty */
} kp_torch_function;

enum { KP_TORCH_DTYPES = 64 }; /* more than PyTorch has */

/* PyTorch's functions over the at::Tensor of a Python object, which is a pointer to an impl.  None of them fails but bump,
 * for a tensor that is_inference outside inference mode. */
typedef struct kp_torch {
    size_t place; /* of the at::Tensor in the object; 0: not known, and the rest is not either */
    bool (*is_neg)(const void *tensor);
    bool (*is_conj)(const void *tensor);
    bool (*is_inference)(const void *tensor);
    void (*bump)(const void *tensor);      /* counts a write */
    const void *(*meta)(const void *impl); /* what autograd keeps of it; NULL: nothing, as of most */
    bool (*requires_grad)(const void *impl);
    bool (*grad_mode)(void); /* whether gradients are recorded at all */
    /* of forward mode, an at::Tensor */
    const void *(*tangent)(const void *impl, uint64_t level, const void *tensor);
    const void *undefined; /* the impl of an at::Tensor that is none */
    /* what torch.set_default_dtype said, as a c10::ScalarType */
    int8_t (*default_type)(void);
    /* The address that the impl of an ordinary tensor begins with, which is its class's; NULL: the following up to the
     * bridge's are not used, since one is missing or did not do as it should. */
    const void *plain_class;
    /* PyTorch's functions for C, over the at::Tensor: 0, or 1, which none gives for an ordinary tensor */
    int32_t (*get_data)(const void *tensor, void **out);
    int32_t (*get_sizes)(const void *tensor, int64_t **out);
    int32_t (*get_strides)(const void *tensor, int64_t **out);
    int32_t (*get_rank)(const void *tensor, int64_t *out);
    int32_t (*get_dtype)(const void *tensor, int32_t *out);
    int32_t (*get_device)(const void *tensor, int32_t *out);
    /* 1 + the kiln_dtype by the number that get_dtype has for it; 0: there is none */
    uint8_t dtypes[KP_TORCH_DTYPES];
    /* at::fromDLPackVersioned, and the Python object of what it makes, which is moved out of */
    kp_torch_made (*from_dlpack)(dl_managed *stolen, kp_torch_function *empty);
    PyObject *(*wrap)(kp_torch_made *tensor);
    /* of the bridge (torch_bridge.h); NULL before there is one */
    int (*borrow)(const void *tensor, int written, kiln_tensor_header *header, kiln_tensor **out);
    void *(*object)(kiln_tensor *stolen);
} kp_torch;

enum { KP_TORCH_FLOAT = 6 }; /* c10::ScalarType::Float: the default dtype that Kiln's rows mean */

static inline const void *kp_torch_tensor(const kp_torch *torch, PyObject *o) {
    return (const char *)o + torch->place;
}

enum { KP_TYPES = 24 };

enum { KP_NAMED = 80 };

typedef struct kp_state {
    PyTypeObject *tensor_type, *op_type, *dtype_type, *formula_type;
    PyObject *dtypes[KILN_DTYPE_COUNT]; /* kiln.float32, ... */
    PyObject *helpers;                  /* module kiln._helpers; NULL until first needed */
    PyObject *ops;                      /* dict: name -> Op */
    PyObject *formulas;                 /* dict: text of kiln.evaluate -> Formula; see py_evaluate.c */
    PyObject *out_keyword;              /* ("out",) */
    size_t nformulas;                   /* combinations of a text and kinds of arguments that are kept */
    uint64_t formula_clock;             /* calls of kiln.evaluate, to tell which was used last */
    PyObject *rows;                     /* list: what a new context loads again; py_rows.c says what */
    PyObject *texts;                    /* set: the texts in rows, which are never taken out of it */
    PyObject *settings;                 /* dict: what configure was given */
    void *const *numpy_table;           /* NumPy's functions; NULL before they are asked for, or unknown */
    kp_torch torch;                     /* PyTorch's, in the same way */
    bool numpy_asked, torch_asked;
    kp_box *box;        /* NULL before the first use and after the module is cleared */
    uint64_t epoch;     /* changes when operators must be looked up again */
    uint64_t foreign;   /* how often code that is not ours may have run: kp_foreign */
    bool spares;        /* counted as a user of kp_tensor_spares */
    bool closed;        /* the module was cleared: the interpreter is ending */
    int ntypes, nfixed; /* the first nfixed never leave */
    int replace;        /* which of the others the next new type replaces */
    int recent;         /* the tensor type that was met last */
    int nnamed;
    struct {
        const char *name; /* a literal: compared by address */
        PyObject *op;
    } named[KP_NAMED]; /* Ops behind Python's operators */
    kp_type types[KP_TYPES];
} kp_state;

kp_state *kp_state_of(PyObject *module);
kp_state *kp_state_of_type(PyTypeObject *type);
bool kp_in_main_interpreter(void); /* whether this thread runs in the process's first interpreter */

int kp_reopen(kp_state *st); /* replaces the context by one made of st->settings and st->rows */
void kp_box_close(kp_box *box);

/* NULL with an exception set on failure.  The caller owns a reference: kp_box_drop. */
static inline kp_box *kp_box_take(kp_state *st) {
    if (!st->box && kp_reopen(st) < 0) return NULL;
    st->box->refs++;
    return st->box;
}
static inline void kp_box_drop(kp_box *box) {
    if (box && --box->refs == 0) kp_box_close(box);
}

/* -- errors ---------------------------------------------------------------------------------------- */

void kp_blame(const char *op, const char *arg); /* says so before the exception's text; arg may be NULL */
PyObject *kp_text_or_raise(kiln_status status, char *text); /* a text of the library's, which is freed */
void kp_raise(kiln_status status); /* kiln_last_error() as the exception for its status */
void kp_raise_value(
    kiln_status status); /* the same where a text or a setting is at fault, if anything given is */
PyObject *kp_helper(kp_state *st, const char *name); /* new reference to kiln._helpers.<name> */
int kp_help(kp_state *st, const char *name, PyObject *a,
            PyObject *b); /* calls it for its effect; b may be NULL */

/* -- code that is not ours -------------------------------------------------------------------------- */

/* Python code may free the memory of any torch tensor or NumPy array, give it another shape, or call Kiln again.  So this
 * goes before whatever may run some, a garbage collection included, and what was read of tensors before is read again
 * (kp_settle).  -1 with RecursionError if the thread's stack is about to end, else 0. */
int kp_foreign(kp_state *st);

/* -- waiting ---------------------------------------------------------------------------------------- */

/* Around a function of the library that may wait for a compiler: the GIL is given up.  Such a wait ends with
 * KILN_E_INTERRUPTED by a Ctrl-C, and at once where the GIL was kept, since others may need it to finish what is waited
 * for.  kp_wait_again then lets the handlers of signals run, and says whether to call the function again, now with the GIL
 * given up; if not, there is an exception or the status is another. */
void kp_wait_begin(void);
void kp_wait_end(void);
void kp_patient(bool on); /* whether this thread's waits are never left */
bool kp_wait_again(kp_state *st, kiln_status status);
int kp_interrupted(void *unused); /* for kiln_config */

/* -- element types and single elements ------------------------------------------------------------- */

/* ORDER DTYPE: the kinds of dtype.def, in the order in which they win a promotion. */
typedef enum kp_num_kind { NUM_BOOL, NUM_INT, NUM_FLOAT, NUM_COMPLEX } kp_num_kind;

typedef struct kp_number {
    kp_num_kind kind;
    int64_t i;    /* NUM_BOOL, NUM_INT */
    double f, im; /* NUM_FLOAT, and both parts of NUM_COMPLEX */
    bool wide;    /* i holds the bits of a u64 */
    bool huge;    /* an int beyond 64 bits: f is the double next to it, and i is unused */
} kp_number;

PyObject *kp_int_object(kp_number n); /* of a loaded integer or bool */
kp_num_kind kp_dtype_kind(kiln_dtype t);

extern PyType_Spec kp_dtype_spec;
int kp_dtypes_init(kp_state *st, PyObject *module);
int kp_dtype_from(kp_state *st, PyObject *o, kiln_dtype *out); /* 0, or -1 with TypeError */
int kp_dtype_parse(const char *text, kiln_dtype *out);         /* "float32", "f32", "torch.float32" */
kiln_dtype kp_dtype_value(PyObject *dtype);                    /* of a kiln.dtype */
const char *kp_dtype_text(kiln_dtype t);                       /* "float32" */
/* The dtype of elements of both, as PyTorch has it; -1 with RuntimeError where there is none. */
int kp_dtype_promote(kiln_dtype a, kiln_dtype b, kiln_dtype *out);
bool kp_dtype_of_dl(uint8_t code, uint8_t bits, kiln_dtype *out);
void kp_dl_of_dtype(kiln_dtype t, dl_tensor *out); /* sets code, bits and lanes */

bool kp_number_of(const kiln_value *v, kp_number *out); /* false: it is none */
kiln_value kp_value_of(kp_number n);                    /* a float if it is huge */
kp_number kp_load(kiln_dtype t, const char *at);
/* -1 with an exception that names `shown`, the object n is of, if n does not fit. */
int kp_store(kiln_dtype t, char *at, kp_number n, PyObject *shown);
void kp_cast(kiln_dtype to, char *at, kp_number n); /* like C's conversions: wraps, never fails */
PyObject *kp_number_object(kp_number n);
double kp_as_double(kp_number n);
/* 1 found, 0 not a number, -1 exception.  An int may be wide or huge. */
int kp_number_from(kp_state *st, PyObject *o, kp_number *out);

/* -- tensors --------------------------------------------------------------------------------------- */

/* A tensor's memory as it was when it was looked at. */
typedef struct kp_view {
    kiln_dtype dtype;
    int rank;
    void *data;
    bool readonly;
    bool copy; /* of a NumPy array: its layout cannot be said in whole elements of native order */
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
} kp_view;
/* A kiln.Tensor may be resized by an out= in code that runs meanwhile; memory it had is kept as long as it lives. */
void kp_look_at(const kiln_tensor *t, kp_view *out);

typedef struct kp_tensor {
    PyObject_HEAD kiln_tensor *t;
    kiln_tensor *root; /* of a view: the tensor whose memory it shows, which t holds; else NULL */
    bool readonly;
} kp_tensor;

extern PyType_Spec kp_tensor_spec;
PyObject *kp_tensor_object(kp_state *st, kiln_tensor *stolen, bool readonly);
void kp_tensor_spares(int users); /* memory of dead Tensors is kept while there are users: so many more */

/* Memory that a tensor will show. */
typedef struct kp_memory {
    void *data;
    kiln_dtype dtype;
    int rank;
    const int64_t *sizes, *strides; /* in elements; strides NULL: row-major */
    bool readonly;
} kp_memory;
/* kiln_tensor_wrap, or the same of memory that must not be written. */
kiln_status kp_wrap(const kp_memory *m, void (*deleter)(void *), void *owner,
                    kiln_tensor **out) KILN_MUST_CHECK;

/* Python objects whose memory no tensor shows any more, of all interpreters: those of this one are dropped. */
extern _Atomic(struct kp_kept *) kp_left;
void kp_drop_left(void);

/* A tensor that shares o's memory and keeps it alive; 0, or -1 with an exception. */
int kp_import(kp_state *st, const kp_type *type, PyObject *o, kiln_tensor **out, bool *readonly);
PyObject *kp_numpy(kp_state *st, kp_tensor *self);                  /* an ndarray over self's memory */
PyObject *kp_nested(kp_state *st, PyObject *o, PyObject *dtype);    /* a Tensor from numbers in lists */
PyObject *kp_recast(kp_state *st, PyObject *tensor, kiln_dtype to); /* a copy as another dtype */
bool kp_row_major(const kiln_tensor *t);
PyObject *kp_tolist(const kiln_tensor *t);
PyObject *kp_subscript(PyObject *self, PyObject *key);
PyObject *kp_dlpack(PyObject *self, PyObject *args, PyObject *kwargs); /* Tensor.__dlpack__ */

/* Tensor under Python's general functions. */
PyObject *kp_reduce(PyObject *self, PyObject *unused);  /* __reduce__: kp_restore and its arguments */
PyObject *kp_restore(PyObject *module, PyObject *args); /* restore(dtype's name, shape, bytes) */
PyObject *kp_copy(PyObject *self, PyObject *unused);    /* row-major, in memory of its own */
PyObject *kp_format(PyObject *self, PyObject *spec);
PyObject *kp_round(PyObject *self, PyObject *args);
int kp_contains(PyObject *self, PyObject *o);

/* -- arguments ------------------------------------------------------------------------------------- */

typedef kiln_op_arg_info kp_param; /* one parameter of an operator's schema */

static inline bool kp_takes_number(const kp_param *p) { /* and so a tensor without dimensions */
    return p->kind == KILN_NUMBER_V || p->kind == KILN_INT_V || p->kind == KILN_FLOAT_V;
}

enum { KP_HELD = 16, KP_HEADERS = 8, KP_SMALL_RANK = 4 };

/* An aligned, row-major NumPy array in the machine's byte order. */
typedef struct kp_array {
    kiln_dtype dtype;
    int rank;
    void *data;
    bool readonly;
    int64_t sizes[KP_SMALL_RANK];
} kp_array;

bool kp_numpy_plain(kp_state *st, PyObject *o,
                    kp_array *out); /* false: o, an ndarray, is another, or of another dtype */

bool kp_numpy_fields(kp_state *st, PyObject *o,
                     kp_view *out); /* false: not known, or of a dtype not served */

/* The dtype object of o, an ndarray, borrowed, and whether o has no dimensions; NULL: not known, and no exception. */
PyObject *kp_numpy_dtype(kp_state *st, PyObject *o, bool *single);

/* A tensor that takes part in a call. */
typedef struct kp_held {
    kiln_tensor *t;
    PyObject *object;            /* borrowed: what the caller passed */
    const char *name;            /* of the parameter it was given for; NULL: not known */
    const dl_exchange *exchange; /* KP_EXCHANGE */
    PyObject *copy; /* kept by the frame, or NULL: t is over it; a write is copied back to the object */
    kp_kind kind;
    bool torch;    /* object is a torch.Tensor */
    bool plain;    /* and the bridge has lent it */
    bool bare;     /* plain: autograd keeps nothing of it */
    bool counted;  /* plain: it counts writes */
    bool scripted; /* see kp_type */
    bool release;  /* t is to be released after the call */
    bool readonly;
    bool written;
    bool scalar; /* made of a NumPy scalar: any other tensor decides the kind of results before it */
    bool resize; /* t stands in for the object, which has no elements and takes the result's shape */
} kp_held;

typedef struct kp_block {
    struct kp_block *next;
    kiln_value items[];
} kp_block;

/* Of a header that is given strides: its words but for those. */
enum { KP_HEADER_BYTES = sizeof(kiln_tensor_header) - KILN_MAX_RANK * sizeof(int64_t) };

/* What a borrowed tensor refers to where the frame itself has no room for it. */
typedef struct kp_loan {
    struct kp_loan *next;
    kiln_tensor_header header;
    kp_view view;
} kp_loan;

/* The arguments of one call as Kiln sees them, and what must live until it is over. */
typedef struct kp_frame {
    kp_state *st;
    size_t nargs;
    int nheld, held_cap;
    kp_held *held;
    kp_block *blocks; /* items of lists */
    kp_loan *loans;
    uint64_t foreign;            /* the state's when addresses and sizes in here were read */
    PyObject *keep;              /* list of objects, or NULL */
    const kiln_tensor *recorded; /* the first whose gradients PyTorch records at this moment, or NULL */
    bool torch;                  /* an argument is a torch.Tensor */
    bool writes;                 /* an argument is written */
    bool owns;                   /* something is to be released at the end */
    int nheaders;                /* headers in use */
    char *spare;                 /* memory for headers of a list, */
    size_t nspare;               /* so many bytes of it, in one of the blocks */
    kiln_value args[KILN_MAX_ARGS];
    kp_held first_held[KP_HELD];
    kiln_tensor_header headers[KP_HEADERS]; /* of tensors borrowed for this call */
    kp_array arrays[KP_HEADERS];            /* and what a header refers to where the tensor is an array */
} kp_frame;

void kp_frame_init(kp_frame *f, kp_state *st);
void kp_frame_release(kp_frame *f);
static inline void kp_frame_fini(kp_frame *f) {
    if (f->owns) kp_frame_release(f);
}
int kp_keep(kp_frame *f, PyObject *stolen); /* -1 if stolen is NULL or there is no memory */

const kp_type *kp_classify(kp_state *st, PyObject *o); /* by its type; NULL with an exception */
static inline const kp_type *kp_type_of(kp_state *st, PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    if (st->types[st->recent].type == type) return &st->types[st->recent];
    for (int k = 0; k < st->ntypes; k++) {
        if (st->types[k].type != type) continue;
        if (st->types[k].kind >= KP_KILN) st->recent = k;
        return &st->types[k];
    }
    return kp_classify(st, o);
}
void kp_types_drop(kp_state *st);
int kp_types_init(kp_state *st);
int kp_hold_more(kp_frame *f, size_t n); /* room for n more; -1 with an exception */
static inline kp_held *kp_hold(kp_frame *f) {
    if (f->nheld == f->held_cap && kp_hold_more(f, 1) < 0) return NULL;
    return &f->held[f->nheld++];
}
kp_loan *kp_loan_new(kp_frame *f);    /* NULL with an exception */
int kp_expect(kp_frame *f, size_t n); /* so many tensors are in a list; -1 with an exception */
int kp_settle_again(kp_frame *f);
/* Reads addresses and sizes again if code that is not ours may have run since they were read: in the end of all, so that
 * none runs between here and the call.  0, or -1 with an exception. */
static inline int kp_settle(kp_frame *f) { return f->foreign == f->st->foreign ? 0 : kp_settle_again(f); }
int kp_borrow(kp_frame *f, const kp_type *type, PyObject *o, const kp_param *param, kiln_value *out);
/* 0, or -1 with an exception that says what is not served.  o: whose tensor it is. */
int kp_accept(const dl_tensor *t, PyObject *o, kiln_dtype *dtype);
bool kp_has_elements(const dl_tensor *t);

void kp_torch_find(kp_state *st, const dl_exchange *table); /* sets st->torch, once */
/* Lends what the at::Tensor of a type that is not scripted holds: KILN_LENT, or 0 if it is no ordinary tensor. */
int kp_torch_lend(const kp_torch *torch, const void *tensor, kiln_tensor_header *header, kiln_tensor **out);
/* The same by the bridge, where there is one, which tells scripted ones from others itself and has more bits to say. */
static inline int kp_torch_borrow(const kp_torch *torch, const void *tensor, bool written,
                                  kiln_tensor_header *header, kiln_tensor **out) {
    return torch->borrow ? torch->borrow(tensor, written, header, out)
                         : kp_torch_lend(torch, tensor, header, out);
}

/* Tensors with an exchange table.  0, or -1 with an exception. */
int kp_exchange_borrow(kp_frame *f, const kp_type *type, PyObject *o, kp_held *h);
int kp_exchange_settle(const kp_torch *torch, kp_held *h);
/* Item o of a list given for param, if it is what most are: a torch tensor of the type met last that the bridge can look
 * into.  kp_expect has been told of it.  false: it is none, and nothing was done. */
bool kp_exchange_lend(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out);
int kp_exchange_import(kp_state *st, const kp_type *type, PyObject *o, kiln_tensor **out);
/* A new object over the tensor, by the quickest way there is.  torch: NULL where the table is another library's. */
PyObject *kp_exchange_object(const kp_torch *torch, const dl_exchange *table, kiln_tensor *stolen);
int kp_find_recorded(kp_frame *f);                             /* sets f->recorded */
void kp_refuse_recorded(void);                                 /* the exception for such a tensor */
int kp_before_write(kp_frame *f, const kiln_tensor **refused); /* which one is refused, with an exception */
int kp_after_write(kp_frame *f);

const char *kp_text(PyObject *o); /* UTF-8, borrowed from the str; NULL with an exception */

/* o, given for param (NULL: unknown), as a value.  0, or -1 with an exception. */
int kp_value(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *out);

/* -- operators and calls --------------------------------------------------------------------------- */

typedef struct kp_op {
    PyObject_HEAD kp_state *st; /* lives as long as the type, which this object holds */
    const kiln_op *op;          /* of the context of `epoch` */
    uint64_t epoch;
    char *name; /* as asked for: looked up again after configure or load_ops */
    PyObject *
        overloads; /* of a short name: the Ops to choose from, default first; op and params are then unused */
    struct kp_op *usual; /* the default one of overloads, or NULL */
    const kiln_op **ops; /* overloads: as the library has them, of the context of `epoch` */
    bool tuple_out;      /* overloads: several outputs, none called out */
    uint8_t last_which;  /* overloads: which one kinds of arguments meant last; see py_pick.c */
    uint32_t last_kinds;
    int nparams;
    int nplain; /* how many of the first are tensors that are only read; 0 unless there is one result, a tensor */
    int nsimple; /* the same of tensors and numbers, if the first is a tensor */
    int nneeded; /* so many of the first must be given */
    kp_param *params;
    char *doc;
    size_t nrets;
    kiln_kind ret; /* the first one's kind; KILN_NONE: there is none */
    /* Of the last call with keywords, or of last_kinds: a call site passes the same tuple each time. */
    PyObject *kwnames;
    int8_t kwparams[8];
    PyMethodDef method;
    kp_box *lone;   /* of an operator of kiln_op_new: its context, held; else NULL */
    PyObject *base; /* of the out form of such an operator: the Op that owns it */
} kp_op;

extern PyType_Spec kp_op_spec;
PyObject *kp_op_get(kp_state *st, PyObject *name);     /* new reference to the Op */
PyObject *kp_op_alone(kp_state *st, const char *name); /* the same of a full name, never one of overloads */
/* The Op of a row that no name finds, and that of its out form in *form; NULL with an exception. */
PyObject *kp_op_lone(kp_state *st, kp_box *box, PyObject *row, PyObject **form);
PyObject *kp_op_call(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *kp_op_callable(PyObject *op); /* the builtin that calls it */
int kp_frame_fill(kp_frame *f, kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int kp_op_find(kp_op *op, kp_box *box);
static inline int kp_op_fresh(kp_op *op, kp_box *box) { /* looks op up if it is stale */
    return (op->op || op->overloads) && op->epoch == op->st->epoch ? 0 : kp_op_find(op, box);
}

int kp_param_index(const kp_op *op, PyObject *name); /* -1: op has no parameter of this name */

/* The arguments of a call: args holds nargs by position, then those that kwnames names. */
typedef struct kp_given {
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *kwnames;   /* or NULL */
    PyObject *overloads; /* those that were chosen from; or NULL */
    PyObject *own[2];    /* what was made anew: kwnames, and a tuple of outputs */
    PyObject *room[KILN_MAX_ARGS];
} kp_given;

/* The overload that a call of the short name `set` means, alive until kp_given_fini, which follows in any case; NULL with
 * an exception.  Rewrites *given where that overload has another way to say the same. */
kp_op *kp_pick(kp_op *set, kp_given *given);
/* What the last call with arguments of the same kinds by the same keywords meant, borrowed from set; or NULL. */
kp_op *kp_remembered(const kp_op *set, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
static inline void kp_given_init(kp_given *given, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
    given->args = args;
    given->nargs = nargs;
    given->kwnames = kwnames;
    given->overloads = given->own[0] = given->own[1] = NULL;
}
static inline void kp_given_fini(kp_given *given) {
    Py_XDECREF(given->overloads);
    Py_XDECREF(given->own[0]);
    Py_XDECREF(given->own[1]);
}
enum { KP_OVERLOADS = 64 }; /* most that one name may have */
/* Finds the overloads of the short name `full` for set: 1, 0 if there are not several, -1 with an exception. */
int kp_overloads_find(kp_op *set, kp_box *box, const char *full);

/* A Tensor's Python operators: one call by name with 1 or 2 arguments. */
PyObject *kp_call_named(kp_state *st, const char *name, PyObject *a, PyObject *b);

/* py_look.c: explain(name, stage, args), explain_text(call, stage), infer_results(name, args). */
PyObject *kp_explain(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *kp_explain_text(PyObject *module, PyObject *args);
PyObject *kp_op_grad(PyObject *module, PyObject *args);
PyObject *kp_prepare(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *kp_infer_results(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *kp_tuple_of(const int64_t *v, int n); /* a tuple of ints */

PyObject *kp_kernels(PyObject *module, PyObject *unused);    /* py_kernels.c: kernels(), as tuples */
PyObject *kp_packed_ops(PyObject *module, PyObject *unused); /* packed_ops(), as names */
PyObject *kp_stats_text(PyObject *module, PyObject *unused);
int kp_stats_check(void); /* -1 with an exception: KILN_STATS is wrong */

/* py_evaluate.c: formulas. */
extern PyType_Spec kp_formula_spec;
void kp_formulas_forget(kp_state *st); /* all of them, as their context is replaced */
PyObject *kp_evaluate(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* py_rows.c: rows that users define. */
PyObject *kp_load_ops(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *kp_draft_ops(PyObject *module, PyObject *args);
PyObject *kp_define_rows(PyObject *module, PyObject *args);
int kp_rows_replay(kp_state *st, kiln_ctx *ctx); /* loads into ctx what was loaded so far */

/* py_bridge.c: the bridge to PyTorch. */
PyObject *kp_bridge_open(PyObject *module, PyObject *path);
PyObject *kp_bridge_fit(PyObject *module, PyObject *name);
PyObject *kp_bridge_take(PyObject *module, PyObject *name);
PyObject *kp_bridge_own(PyObject *module, PyObject *name);
PyObject *kp_bridge_drop(PyObject *module, PyObject *name);
PyObject *kp_bridge_forget(PyObject *module, PyObject *name);
PyObject *kp_bridge_taken(PyObject *module, PyObject *unused);
PyObject *kp_bridge_counts(PyObject *module, PyObject *unused);
PyObject *kp_bridge_watch(PyObject *module, PyObject *function);
PyObject *kp_bridge_compiler(PyObject *module, PyObject *unused);
/* py_log.c: the log of every context, a kiln_log_fn. */
void kp_log(void *user, int level, const char *topic, const char *text);
int kp_log_open(void); /* reads KILN_LOG; -1 with an exception where it is wrong */
int kp_log_init(PyObject *module);
/* The part of kp_log that tells kiln.torch of builds that failed. */
void kp_bridge_log(void *user, int level, const char *topic, const char *text);
bool kp_bridge_takes(const char *name);   /* whether PyTorch calls Kiln for the operator of that full name */
bool kp_bridge_owns(const char *name);    /* whether the operator is one of kiln.torch.define's */
int kp_bridge_fit_own(const kiln_op *op); /* a kiln_bridge_fit: whether kiln.torch.define may define op */
int kp_bridge_again(
    kp_state *st); /* takes the taken operators again with the new context or rows, or gives them back */
#endif
