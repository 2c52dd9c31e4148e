/* py_call.c - one call of an operator: Python arguments in, kiln_call, Python results out.
 *
 * Results are of the kind of the first tensor argument; a written argument is returned itself.  The GIL is given up
 * where the call may take long.  Everything that must live until the call is over is in its frame. */
#include <string.h>

#include "kilnpy.h"

/* Elements from which a call takes longer than giving up the GIL and taking it back. */
enum { GIL_ELEMENTS = 4096 };

/* -- arguments ------------------------------------------------------------------------------------- */

/* Whether v is a number, and which. */
static bool read_number(const kiln_value *v, kp_number *out) {
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V: *out = (kp_number){.kind = NUM_BOOL, .i = v->u.i}; return true;
    case KILN_INT_V: *out = (kp_number){.kind = NUM_INT, .i = v->u.i}; return true;
    case KILN_FLOAT_V: *out = (kp_number){.kind = NUM_FLOAT, .f = v->u.f}; return true;
    case KILN_COMPLEX_V:
        *out = (kp_number){.kind = NUM_COMPLEX, .f = v->u.c.re, .im = v->u.c.im};
        return true;
    default: return false;
    }
}

/* The dtype of the tensor that a number for a Tensor argument becomes: one that takes part in promotion as
 * PyTorch's numbers do, that is below every tensor of its kind or a higher one. */
static kiln_dtype number_dtype(const kp_frame *f, kp_num_kind kind) {
    static const kiln_dtype widest[] = {KILN_BOOL, KILN_I64, KILN_F64, KILN_C128};
    kiln_dtype alone[] = {KILN_BOOL, KILN_I64, KILN_F32, KILN_C64}; /* beside tensors of lower kinds */
    bool found = false;
    for (int k = 0; k < f->nheld; k++) {
        kiln_dtype t = kiln_tensor_dtype(f->held[k].t);
        if (f->held[k].kind < KP_KILN) continue;
        if (t == KILN_F64) alone[NUM_COMPLEX] = KILN_C128; /* a complex number is of the tensors' precision */
        if (kp_dtype_kind(t) < kind) continue;
        if (kiln_tensor_rank(f->held[k].t) > 0) return widest[kind];
        if (!found) alone[kind] = t;
        found = true;
    }
    return alone[kind];
}

/* Makes *v a tensor of rank 0 that holds n. */
static int hold_number(kp_frame *f, kiln_dtype dtype, kp_number n, kiln_value *v) {
    kp_held h = {.kind = KP_NONE, .release = true};
    kiln_status status = kiln_tensor_new(dtype, 0, NULL, NULL, &h.t);
    if (status != KILN_OK) return kp_raise(status), -1;
    kp_cast(dtype, kiln_tensor_data(h.t), n);
    kp_held *room = kp_hold(f);
    if (!room) return kiln_tensor_release(h.t), -1;
    *room = h;
    f->owns = true;
    v->kind = KILN_TENSOR;
    v->u.tensor = h.t;
    return 0;
}

static bool is_written(const kp_frame *f, const kiln_tensor *t) {
    for (int k = 0; k < f->nheld; k++)
        if (f->held[k].t == t && f->held[k].written) return true;
    return false;
}

/* PyTorch promotes uint16, uint32 and uint64 beside a complex number but not beside a complex tensor, which the number is
 * about to become: those of rank 0 are read as complex ones. */
static int lift_unsigned(kp_frame *f, kiln_dtype to) {
    for (size_t k = 0; k < f->nargs; k++) {
        kiln_value *v = &f->args[k];
        if (v->kind != KILN_TENSOR || kiln_tensor_rank(v->u.tensor) > 0) continue;
        kiln_dtype t = kiln_tensor_dtype(v->u.tensor);
        if ((t != KILN_U16 && t != KILN_U32 && t != KILN_U64) || is_written(f, v->u.tensor)) continue;
        kp_number n = kp_load(t, kiln_tensor_data(v->u.tensor));
        n.f = n.wide ? (double)(uint64_t)n.i : (double)n.i;
        n.kind = NUM_FLOAT;
        if (hold_number(f, to, n, v) < 0) return -1;
    }
    return 0;
}

static int number_to_tensor(kp_frame *f, kiln_value *v) {
    kp_number n;
    if (!read_number(v, &n)) return 0;
    kiln_dtype dtype = number_dtype(f, n.kind);
    if (n.kind == NUM_COMPLEX && lift_unsigned(f, dtype) < 0) return -1;
    return hold_number(f, dtype, n, v);
}

static int too_many(const kp_op *op, Py_ssize_t n) {
    PyErr_Format(PyExc_TypeError, "%s: takes at most %d arguments, but %zd were given", op->name, op->nparams,
                 n);
    return -1;
}

/* The place of each of the first keywords among op's parameters, -1 for one that is not there. */
static const int8_t *keyword_places(kp_op *op, PyObject *kwnames, Py_ssize_t n) {
    if (op->kwnames == kwnames) return op->kwparams;
    for (Py_ssize_t k = 0; k < n && k < (Py_ssize_t)sizeof op->kwparams; k++) {
        op->kwparams[k] = (int8_t)kp_param_index(op, PyTuple_GetItem(kwnames, k));
    }
    PyObject *old = op->kwnames;
    op->kwnames = Py_NewRef(kwnames);
    Py_XDECREF(old);
    return op->kwparams;
}

/* One keyword argument: its parameter, or NULL with an exception. */
static const kp_param *keyword(kp_op *op, PyObject *kwnames, Py_ssize_t n, Py_ssize_t k) {
    PyObject *name = PyTuple_GetItem(kwnames, k);
    int place = -1;
    if (k < (Py_ssize_t)sizeof op->kwparams)
        place = keyword_places(op, kwnames, n)[k];
    else
        place = kp_param_index(op, name);
    if (place >= 0) return &op->params[place];
    PyErr_Format(PyExc_TypeError, "%s: has no argument %.200R", op->name, name);
    return NULL;
}

/* Most arguments: a kiln.Tensor for a Tensor, without a look at what else it could be. */
static inline bool fill_tensor(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *v) {
    if (Py_TYPE(o) != f->st->tensor_type || !param || param->kind != PARAM_TENSOR || f->nheld == f->held_cap)
        return false;
    kp_held *h = &f->held[f->nheld++];
    *h = (kp_held){.t = ((kp_tensor *)o)->t, .object = o, .kind = KP_KILN, .written = param->written};
    f->writes = f->writes || param->written;
    *v = kiln_v_tensor(h->t);
    return true;
}

static int fill_one(kp_frame *f, const kp_param *param, PyObject *o, size_t k, uint64_t *numbers) {
    kiln_value *v = &f->args[k];
    if (fill_tensor(f, param, o, v)) return 0;
    if (kp_value(f, param, o, v) < 0) return -1;
    v->name = NULL;
    if (param && param->kind == PARAM_TENSOR && !param->written && v->kind != KILN_TENSOR)
        *numbers |= (uint64_t)1 << k;
    return 0;
}

int kp_frame_fill(kp_frame *f, kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t nnamed = kwnames ? PyTuple_Size(kwnames) : 0;
    uint64_t numbers = 0;
    if (nargs + nnamed > KILN_MAX_ARGS) return too_many(op, nargs + nnamed);
    for (Py_ssize_t k = 0; k < nargs; k++)
        if (fill_one(f, k < op->nparams ? &op->params[k] : NULL, args[k], (size_t)k, &numbers) < 0) return -1;
    for (Py_ssize_t k = 0; k < nnamed; k++) {
        const kp_param *param = keyword(op, kwnames, nnamed, k);
        if (!param || fill_one(f, param, args[nargs + k], (size_t)(nargs + k), &numbers) < 0) return -1;
        f->args[nargs + k].name = param->name;
    }
    f->nargs = (size_t)(nargs + nnamed);
    if (kp_settle(f) < 0) return -1;
    /* After all tensors are known: a number's dtype follows theirs. */
    for (size_t k = 0; numbers; k++, numbers >>= 1)
        if ((numbers & 1) && number_to_tensor(f, &f->args[k]) < 0) return -1;
    return 0;
}

/* -- running --------------------------------------------------------------------------------------- */

enum { HASH_SEED = 0x811c9dc5u, HASH_STEP = 16777619u };

uint32_t kp_sort(const kiln_tensor *t) {
    int rank = kiln_tensor_rank(t);
    int64_t step = rank ? kiln_tensor_strides(t)[rank - 1] : 0;
    return 1 | (kiln_tensor_nelem(t) >= GIL_ELEMENTS ? KP_LARGE : 0) | (uint32_t)kiln_tensor_dtype(t) << 8 |
           (uint32_t)(rank > 2 ? 2 : rank) << 4 |
           (step == 1 ? 1u
            : step    ? 2u
                      : 0u)
               << 2;
}

/* Whether a call of this hash was made before; it is from now on, if it is to be noted. */
static bool was_seen(kp_op *op, uint32_t hash, bool note) {
    hash ^= hash >> 15;
    uint64_t bit = (uint64_t)1 << (hash & 63), *word = &op->seen[hash >> 6 & 3];
    bool seen = *word & bit;
    if (note) *word |= bit;
    return seen;
}

/* Whether to give up the GIL: for work over a few microseconds, and for a call that differs from all before
 * it in a way that may mean another class, since that one may wait for a compiler. */
static bool is_long(kp_op *op, const kp_frame *f) {
    uint32_t hash = HASH_SEED, any = 0;
    for (int k = 0; k < f->nheld; k++) {
        uint32_t sort = kp_sort(f->held[k].t);
        any |= sort;
        hash = (hash ^ sort) * HASH_STEP;
    }
    for (size_t k = 0; k < f->nargs; k++)
        if (f->args[k].kind != KILN_TENSOR) hash = (hash ^ (uint32_t)(k << 8 | f->args[k].kind)) * HASH_STEP;
    return !was_seen(op, hash, true) || any & KP_LARGE;
}

static kiln_status run(bool release_gil, kiln_ctx *ctx, const kiln_op *what, kp_frame *f,
                       kiln_tensor **outs) {
    if (!release_gil) return kiln_call(ctx, what, f->args, f->nargs, outs, KILN_MAX_RETS);
    kiln_status status;
    Py_BEGIN_ALLOW_THREADS status = kiln_call(ctx, what, f->args, f->nargs, outs, KILN_MAX_RETS);
    Py_END_ALLOW_THREADS return status;
}

/* -- results --------------------------------------------------------------------------------------- */

static PyObject *result_object(kp_frame *f, kiln_tensor *stolen) {
    const kp_held *first = NULL;
    for (int k = 0; k < f->nheld; k++) {
        const kp_held *h = &f->held[k];
        if (h->t == stolen && h->object) { /* written in place: the very object */
            if (h->kind == KP_KILN) ((kp_tensor *)h->object)->sort = 0; /* it may have another shape now */
            kiln_tensor_release(stolen);
            return Py_NewRef(h->object);
        }
        if (!first && h->kind >= KP_KILN) first = h;
    }
    if (first && first->kind == KP_EXCHANGE) return kp_exchange_object(first->exchange, stolen);
    PyObject *tensor = kp_tensor_object(f->st, stolen, false);
    if (!tensor || !first || first->kind != KP_NUMPY) return tensor;
    PyObject *array = kp_numpy(f->st, (kp_tensor *)tensor);
    Py_DECREF(tensor);
    return array;
}

/* All results, as one object; releases outs. */
static PyObject *result(kp_frame *f, kiln_tensor **outs, size_t n) {
    if (n == 1) return result_object(f, outs[0]);
    if (n == 0) return Py_NewRef(Py_None);
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    size_t k = 0;
    for (; tuple && k < n; k++) {
        PyObject *item = result_object(f, outs[k]);
        if (!item || PyTuple_SetItem(tuple, (Py_ssize_t)k, item) < 0) Py_CLEAR(tuple);
    }
    for (; k < n; k++) kiln_tensor_release(outs[k]);
    return tuple;
}

/* -- the call -------------------------------------------------------------------------------------- */

static PyObject *call_filled(kp_op *op, const kiln_op *what, kp_box *box, kp_frame *f) {
    kiln_tensor *outs[KILN_MAX_RETS];
    if (f->writes && (kp_before_write(f) < 0 || kp_settle(f) < 0)) return NULL;
    size_t nouts = kiln_op_nrets(what);
    kiln_status status = run(is_long(op, f), box->ctx, what, f, outs);
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (!f->writes || kp_after_write(f) == 0) return result(f, outs, nouts);
    for (size_t k = 0; k < nouts; k++) kiln_tensor_release(outs[k]);
    return NULL;
}

/* Most calls on Kiln's own tensors: those alone, by position, only read, and small.  Nothing but the arguments must live
 * until such a call is over, and no Python code runs in it.  false: this is none, and nothing was done. */
static bool call_plain(kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject **out) {
    enum { MOST = 4 };
    kiln_value values[MOST];
    kp_state *st = op->st;
    uint32_t hash = HASH_SEED, any = 0;
    if (nargs > op->nplain || nargs > MOST || nargs == 0 || !st->box || op->epoch != st->epoch) return false;
    for (Py_ssize_t k = 0; k < nargs; k++) {
        kp_tensor *t = (kp_tensor *)args[k];
        if (Py_TYPE(args[k]) != st->tensor_type) return false;
        if (!t->sort) t->sort = kp_sort(t->t);
        any |= t->sort;
        hash = (hash ^ t->sort) * HASH_STEP;
        values[k] = kiln_v_tensor(t->t);
    }
    if (any & KP_LARGE || !was_seen(op, hash, false)) return false;
    kiln_tensor *result;
    kiln_status status = kiln_call(st->box->ctx, op->op, values, (size_t)nargs, &result, 1);
    *out = status == KILN_OK ? kp_tensor_object(st, result, false) : (kp_raise(status), NULL);
    return true;
}

/* Any call.  A function of its own, so that a short name's two calls of kp_op_call have one frame. */
static __attribute__((noinline)) PyObject *call_framed(kp_op *op, PyObject *const *args, Py_ssize_t nargs,
                                                       PyObject *kwnames) {
    kp_frame frame;
    PyObject *out = NULL;
    kp_box *box = kp_box_take(op->st);
    if (!box) return NULL;
    kp_frame_init(&frame, op->st);
    if (kp_op_fresh(op, box) == 0) {
        const kiln_op *what = op->op; /* of box's context; code run by an argument may call kiln.configure */
        if (kp_frame_fill(&frame, op, args, nargs, kwnames) == 0) out = call_filled(op, what, box, &frame);
    }
    kp_frame_fini(&frame);
    kp_box_drop(box);
    return out;
}

/* A call of a short name: by the overload its arguments mean. */
static PyObject *call_picked(kp_op *set, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    PyObject *op = (PyObject *)kp_pick(set, args, nargs, kwnames);
    if (!op) return NULL;
    Py_INCREF(op); /* code run by an argument may call kiln.load_ops, which makes the set anew */
    PyObject *out = kp_op_call(op, args, nargs, kwnames);
    Py_DECREF(op);
    return out;
}

PyObject *kp_op_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    kp_op *op = (kp_op *)self;
    PyObject *out = NULL;
    if (op->overloads) return call_picked(op, args, nargs, kwnames);
    if (!kwnames && call_plain(op, args, nargs, &out)) return out;
    return call_framed(op, args, nargs, kwnames);
}
