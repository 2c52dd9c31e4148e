/* py_call.c - one call of an operator: Python arguments in, kiln_call, Python results out.
 *
 * Results are of the kind of the first tensor argument; a written argument is returned itself.  The GIL is given up
 * where the call may take long.  Everything that must live until the call is over is in its frame. */
#include "kilnpy.h"
#include "torch_bridge.h"

/* Elements from which a call takes longer than giving up the GIL and taking it back. */
enum { GIL_ELEMENTS = 4096 };

/* -- arguments ------------------------------------------------------------------------------------- */

/* Makes *v, a number for a Tensor argument, a tensor that stands for it. */
static int number_to_tensor(kp_frame *f, kiln_value *v) {
    kp_held h = {.kind = KP_NONE, .release = true};
    kp_number n;
    if (!kp_number_of(v, &n)) return 0;
    kiln_status status = kiln_tensor_number(v, &h.t);
    if (status != KILN_OK) return kp_raise(status), -1;
    kp_held *room = kp_hold(f);
    if (!room) return kiln_tensor_release(h.t), -1;
    *room = h;
    f->owns = true;
    v->kind = KILN_TENSOR;
    v->u.tensor = h.t;
    return 0;
}

/* -- filling the frame ----------------------------------------------------------------------------- */

static int too_many(const kp_op *op, Py_ssize_t n) {
    PyErr_Format(PyExc_TypeError, "%s: takes at most %d arguments, but %zd were given", op->name, op->nparams,
                 n);
    return -1;
}

/* The place of one of the first keywords among op's parameters, -1 if it is not there. */
static int keyword_place(kp_op *op, PyObject *kwnames, Py_ssize_t n, Py_ssize_t which) {
    if (op->kwnames == kwnames) return op->kwparams[which];
    for (Py_ssize_t k = 0; k < n && k < (Py_ssize_t)sizeof op->kwparams; k++) {
        op->kwparams[k] = (int8_t)kp_param_index(op, PyTuple_GetItem(kwnames, k));
    }
    int place = op->kwparams[which];
    PyObject *old = op->kwnames;
    op->kwnames = Py_NewRef(kwnames);
    Py_XDECREF(old); /* last: freeing a str subclass may run code that calls op again */
    return place;
}

/* Raises the library's own error for a keyword that op does not have.  To get the error, it calls op with this
 * argument alone, which fails at the name. */
static void unknown_keyword(const kp_op *op, PyObject *name) {
    kiln_tensor *outs[KILN_MAX_RETS];
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    kiln_value v = kiln_v_named(text, kiln_v_none());
    kiln_status st = text ? kiln_call(op->st->box->ctx, op->op, &v, 1, outs, op->nrets) : KILN_E_BUG;
    if (st == KILN_E_TYPE) return kp_raise(st);
    PyErr_Clear(); /* a name that is no UTF-8 */
    PyErr_Format(PyExc_TypeError, "%s: has no argument %.200R", op->name, name);
}

/* One keyword argument: its parameter, or NULL with an exception. */
static const kp_param *keyword(kp_op *op, PyObject *kwnames, Py_ssize_t n, Py_ssize_t k) {
    PyObject *name = PyTuple_GetItem(kwnames, k);
    int place = -1;
    if (k < (Py_ssize_t)sizeof op->kwparams)
        place = keyword_place(op, kwnames, n, k);
    else
        place = kp_param_index(op, name);
    if (place >= 0) return &op->params[place];
    unknown_keyword(op, name);
    return NULL;
}

/* Most arguments: a kiln.Tensor for a Tensor, without a look at what else it could be. */
static inline bool fill_tensor(kp_frame *f, const kp_param *param, PyObject *o, kiln_value *v) {
    if (Py_TYPE(o) != f->st->tensor_type || !param || param->kind != KILN_TENSOR || f->nheld == f->held_cap)
        return false;
    if (param->written && ((kp_tensor *)o)->readonly) return false; /* refused by kp_value */
    kp_held *h = &f->held[f->nheld++];
    *h = (kp_held){.t = ((kp_tensor *)o)->t, .object = o, .kind = KP_KILN, .written = param->written};
    f->writes = f->writes || param->written;
    *v = kiln_v_tensor(h->t);
    return true;
}

static int fill_one(kp_frame *f, const kp_op *op, const kp_param *param, PyObject *o, size_t k) {
    kiln_value *v = &f->args[k];
    if (fill_tensor(f, param, o, v)) return 0;
    if (kp_value(f, param, o, v) < 0) return kp_blame(op->name, param ? param->name : NULL), -1;
    v->name = NULL;
    if (!param || param->kind != KILN_TENSOR || param->written || v->kind == KILN_TENSOR) return 0;
    return number_to_tensor(f, v) < 0 ? (kp_blame(op->name, param->name), -1) : 0;
}

int kp_frame_fill(kp_frame *f, kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t nnamed = kwnames ? PyTuple_Size(kwnames) : 0;
    if (nargs + nnamed > KILN_MAX_ARGS) return too_many(op, nargs + nnamed);
    for (Py_ssize_t k = 0; k < nargs; k++) {
        const kp_param *param = k < op->nparams ? &op->params[k] : NULL;
        if (fill_one(f, op, param, args[k], (size_t)k) < 0) return -1;
    }
    for (Py_ssize_t k = nargs; k < nargs + nnamed; k++) {
        const kp_param *param = keyword(op, kwnames, nnamed, k - nargs);
        if (!param || fill_one(f, op, param, args[k], (size_t)k) < 0) return -1;
        f->args[k].name = param->name;
    }
    f->nargs = (size_t)(nargs + nnamed);
    if (kp_settle(f) < 0) return kp_blame(op->name, NULL), -1;
    return 0;
}

/* -- running --------------------------------------------------------------------------------------- */

static bool is_large(const kiln_tensor *t) { return kiln_tensor_nelem(t) >= GIL_ELEMENTS; }

/* The GIL is given up for work over a few microseconds, and where a first attempt would have waited for a compiler. */
static kiln_status run(kiln_ctx *ctx, const kiln_op *what, kp_frame *f, kiln_tensor **outs) {
    bool give_up = false;
    kiln_status status;
    for (int k = 0; k < f->nheld; k++) give_up = give_up || is_large(f->held[k].t);
    do {
        if (give_up) kp_wait_begin();
        status = kiln_call(ctx, what, f->args, f->nargs, outs, KILN_MAX_RETS);
        if (give_up) kp_wait_end();
        give_up = true;
    } while (kp_wait_again(f->st, status) && kp_settle(f) == 0);
    return status;
}

/* -- results --------------------------------------------------------------------------------------- */

static PyObject *result_object(kp_frame *f, kiln_tensor *stolen) {
    const kp_held *first = NULL;
    if (!stolen) return Py_NewRef(Py_None); /* a result that is not given */
    for (int k = 0; k < f->nheld; k++) {
        const kp_held *h = &f->held[k];
        if (h->t == stolen && h->object) { /* written in place: the very object */
            kiln_tensor_release(stolen);
            return Py_NewRef(h->object);
        }
        if (h->kind >= KP_KILN && (!first || (first->scalar && !h->scalar))) first = h;
    }
    if (first && first->kind == KP_EXCHANGE)
        return kp_exchange_object(first->torch ? &f->st->torch : NULL, first->exchange, stolen);
    PyObject *tensor = kp_tensor_object(f->st, stolen, false);
    if (!tensor || !first || first->kind != KP_NUMPY) return tensor;
    PyObject *array = kp_numpy(f->st, (kp_tensor *)tensor);
    Py_DECREF(tensor);
    return array;
}

/* The one element of a result that is no tensor. */
static PyObject *truth_object(kiln_tensor *stolen) {
    kiln_value v = kiln_element_get(KILN_BOOL, kiln_tensor_data(stolen));
    kiln_tensor_release(stolen);
    return PyBool_FromLong(v.u.i != 0);
}

/* All results, as one object; releases outs. */
static PyObject *result(kp_frame *f, const kp_op *op, kiln_tensor **outs) {
    size_t n = op->nrets;
    if (n == 1) return op->ret == KILN_BOOL_V ? truth_object(outs[0]) : result_object(f, outs[0]);
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

/* Names the argument that t came by. */
static void blame_tensor(const kp_op *op, const kp_frame *f, const kiln_tensor *t) {
    int k = 0;
    while (k < f->nheld && f->held[k].t != t) k++;
    kp_blame(op->name, k < f->nheld ? f->held[k].name : NULL);
}

static void refuse_recorded(const kp_op *op, const kp_frame *f) {
    kp_refuse_recorded();
    blame_tensor(op, f, f->recorded);
}

/* Only results of floats or complex numbers have gradients: a comparison of recorded tensors loses none. */
static bool has_gradient(const kiln_tensor *t) { return kp_dtype_kind(kiln_tensor_dtype(t)) >= NUM_FLOAT; }

/* Before the call: refuses what autograd would get wrong. */
static __attribute__((noinline)) int check_autograd(const kp_op *op, kp_frame *f) {
    const kiln_tensor *refused = NULL;
    for (int k = 0; f->recorded && k < f->nheld; k++)
        if (f->held[k].written && has_gradient(f->held[k].t)) return refuse_recorded(op, f), -1;
    if (f->writes && kp_before_write(f, &refused) < 0) return blame_tensor(op, f, refused), -1;
    return kp_settle(f) < 0 ? (kp_blame(op->name, NULL), -1) : 0;
}

/* Whether torch.set_default_dtype decides what a call gives: 1, 0, or -1 with an exception.  Not where a tensor of
 * floats does. */
static int follows_default(const kp_op *op, const kp_frame *f) {
    const kp_torch *torch = &f->st->torch;
    if (torch->place && torch->default_type() == KP_TORCH_FLOAT) return 0;
    for (int k = 0; k < f->nheld; k++)
        if (f->held[k].torch && kp_dtype_kind(kiln_tensor_dtype(f->held[k].t)) >= NUM_FLOAT) return 0;
    PyObject *call = kp_helper(f->st, "follows_default");
    PyObject *answer = call ? PyObject_CallFunction(call, "s", op->name) : NULL;
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    Py_XDECREF(call);
    return yes;
}

/* Whether a call is made by PyTorch: 1, 0, or -1 with an exception.  One whose gradients it records, if it comes back to
 * Kiln, so that they are right; and one that its default dtype decides.  All arrays of the call must be PyTorch's. */
static int is_for_torch(const kp_op *op, kp_frame *f) {
    if (!f->torch) return 0;
    if (kp_find_recorded(f) < 0) return kp_blame(op->name, NULL), -1;
    for (int k = 0; k < f->nheld; k++)
        if (f->held[k].kind >= KP_KILN && !f->held[k].torch) return 0;
    return f->recorded && kp_bridge_takes(op->name) ? 1 : follows_default(op, f);
}

static PyObject *call_torch(kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t nnamed = kwnames ? PyTuple_Size(kwnames) : 0;
    PyObject *call = kp_helper(op->st, "through_torch"), *plain = PyTuple_New(nargs), *named = PyDict_New(),
             *out = NULL;
    bool bad = !call || !plain || !named;
    for (Py_ssize_t k = 0; !bad && k < nargs; k++) bad = PyTuple_SetItem(plain, k, Py_NewRef(args[k])) < 0;
    for (Py_ssize_t k = 0; !bad && k < nnamed; k++)
        bad = PyDict_SetItem(named, PyTuple_GetItem(kwnames, k), args[nargs + k]) < 0;
    if (!bad) out = PyObject_CallFunction(call, "sOO", op->name, plain, named);
    Py_XDECREF(call);
    Py_XDECREF(plain);
    Py_XDECREF(named);
    return out;
}

/* After the call: whether gradients are lost, which is then the exception. */
static __attribute__((noinline)) bool lost_gradients(const kp_op *op, const kp_frame *f,
                                                     kiln_tensor *const *outs, size_t n) {
    while (n > 0 && !has_gradient(outs[n - 1])) n--;
    if (n > 0) refuse_recorded(op, f);
    return n > 0;
}

/* A list of tensors as a list of objects; ends the values. */
static PyObject *list_object(kp_frame *f, kiln_value *all) {
    PyObject *list = PyList_New((Py_ssize_t)all->n);
    for (uint32_t k = 0; list && k < all->n; k++) {
        kiln_tensor *t = kiln_tensor_retain(all->u.list[k].u.tensor);
        PyObject *item = result_object(f, t);
        if (!item || PyList_SetItem(list, (Py_ssize_t)k, item) < 0) Py_CLEAR(list);
    }
    kiln_values_release(all, 1);
    return list;
}

/* An operator whose result is a list. */
static PyObject *call_for_list(kp_op *op, const kiln_op *what, kp_box *box, kp_frame *f) {
    kiln_value all = kiln_v_none();
    bool give_up = false;
    kiln_status status;
    do {
        if (give_up) kp_wait_begin();
        status = kiln_call_values(box->ctx, what, f->args, f->nargs, &all, 1);
        if (give_up) kp_wait_end();
        give_up = true;
    } while (kp_wait_again(f->st, status) && kp_settle(f) == 0);
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (f->recorded) {
        for (uint32_t k = 0; k < all.n; k++)
            if (has_gradient(all.u.list[k].u.tensor)) {
                kiln_values_release(&all, 1);
                return refuse_recorded(op, f), NULL;
            }
    }
    PyObject *list = list_object(f, &all);
    if (!list) kp_blame(op->name, NULL);
    return list;
}

static PyObject *call_filled(kp_op *op, const kiln_op *what, kp_box *box, kp_frame *f) {
    kiln_tensor *outs[KILN_MAX_RETS];
    if (f->torch && check_autograd(op, f) < 0) return NULL;
    size_t nouts = op->nrets;
    if (op->ret == KILN_LIST_V) return call_for_list(op, what, box, f);
    kiln_status status = run(box->ctx, what, f, outs);
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (!(f->recorded && lost_gradients(op, f, outs, nouts)) && (!f->writes || kp_after_write(f) == 0)) {
        PyObject *all = result(f, op, outs);
        if (!all) kp_blame(op->name, NULL);
        return all;
    }
    for (size_t k = 0; k < nouts; k++) kiln_tensor_release(outs[k]);
    return NULL;
}

/* A torch tensor as most are: of the very type met last, with nothing that autograd keeps of it, to be looked into
 * through the bridge or PyTorch's library.  Nothing of that runs Python code. */
static bool plain_tensor(kp_state *st, PyObject *o, kiln_tensor_header *header, kiln_tensor **out) {
    const kp_torch *torch = &st->torch;
    const kp_type *type = &st->types[st->recent];
    if (type->type != Py_TYPE(o) || !type->torch || type->scripted) return false;
    if (!torch->place || !(torch->borrow || torch->plain_class)) return false;
    const void *tensor = kp_torch_tensor(torch, o);
    if (torch->borrow) return torch->borrow(tensor, 0, header, out) & KILN_LENT_BARE;
    return !torch->meta(*(const void *const *)tensor) && kp_torch_lend(torch, tensor, header, out);
}

/* A number of Python's own types that fits. */
static bool plain_number(PyObject *o, kiln_value *v) {
    int overflow = 0;
    v->name = NULL;
    v->n = 0;
    v->kind = PyFloat_CheckExact(o) ? KILN_FLOAT_V : PyLong_CheckExact(o) ? KILN_INT_V : KILN_BOOL_V;
    if (v->kind == KILN_FLOAT_V)
        v->u.f = PyFloat_AsDouble(o);
    else if (v->kind == KILN_INT_V)
        v->u.i = PyLong_AsLongLongAndOverflow(o, &overflow);
    else
        v->u.i = o == Py_True;
    return !overflow && (v->kind != KILN_BOOL_V || PyBool_Check(o));
}

/* Most calls: on tensors, all of Kiln's own or all of PyTorch's, and on numbers, by position, only read, and small; the
 * first is a tensor.  Nothing but the arguments must live until such a call is over, and no Python code runs in it.
 * false: this is none, and nothing was done. */
static bool call_plain(kp_op *op, PyObject *const *args, Py_ssize_t nargs, PyObject **out) {
    enum { MOST = 4 };
    kiln_value values[MOST];
    kiln_tensor_header headers[MOST];
    kp_state *st = op->st;
    bool large = false, floats = false;
    if (nargs > op->nsimple || nargs > MOST || nargs == 0 || !st->box || op->epoch != st->epoch) return false;
    bool own = Py_TYPE(args[0]) == st->tensor_type;
    for (Py_ssize_t k = 0; k < nargs; k++) {
        kiln_value *v =
            &values[k]; /* filled in place: a copied one would be read before its stores are done */
        if (op->params[k].kind != KILN_TENSOR) {
            if (!plain_number(args[k], v)) return false;
            continue;
        }
        if (own ? Py_TYPE(args[k]) != st->tensor_type : !plain_tensor(st, args[k], &headers[k], &v->u.tensor))
            return false;
        if (own) v->u.tensor = ((kp_tensor *)args[k])->t;
        v->name = NULL;
        v->kind = KILN_TENSOR;
        v->n = 0;
        large = large || is_large(v->u.tensor);
        floats = floats || kp_dtype_kind(kiln_tensor_dtype(v->u.tensor)) >= NUM_FLOAT;
    }
    if (large || (!own && !floats && st->torch.default_type() != KP_TORCH_FLOAT)) return false;
    kiln_tensor *result;
    kiln_status status = kiln_call(st->box->ctx, op->op, values, (size_t)nargs, &result, 1);
    if (status == KILN_E_INTERRUPTED) return false; /* it would have waited for a compiler */
    if (status != KILN_OK)
        kp_raise(status);
    else if (!result)
        *out = Py_NewRef(Py_None);
    else
        *out = own ? kp_tensor_object(st, result, false)
                   : kp_exchange_object(&st->torch, st->types[st->recent].exchange, result);
    return true;
}

/* Any call.  A function of its own, so that a short name's two calls of kp_op_call have one frame. */
static __attribute__((noinline)) PyObject *call_framed(kp_op *op, PyObject *const *args, Py_ssize_t nargs,
                                                       PyObject *kwnames) {
    kp_frame frame;
    PyObject *out = NULL;
    kp_box *box = kp_box_take(op->st);
    if (!box) return NULL;
    Py_INCREF((PyObject *)op); /* code run by an argument may call kiln.load_ops, which makes a set anew */
    kp_frame_init(&frame, op->st);
    if (kp_op_fresh(op, box) == 0) {
        const kiln_op *what = op->op; /* of box's context; code run by an argument may call kiln.configure */
        int elsewhere = kp_frame_fill(&frame, op, args, nargs, kwnames);
        if (elsewhere == 0) elsewhere = is_for_torch(op, &frame);
        if (elsewhere >= 0)
            out = elsewhere ? call_torch(op, args, nargs, kwnames) : call_filled(op, what, box, &frame);
    }
    kp_frame_fini(&frame);
    kp_box_drop(box);
    Py_DECREF((PyObject *)op);
    return out;
}

/* A call of a short name: by the overload its arguments mean. */
static PyObject *call_picked(kp_op *set, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    PyObject *out = NULL;
    kp_given given;
    kp_given_init(&given, args, nargs, kwnames);
    PyObject *op = (PyObject *)kp_pick(set, &given);
    if (op) out = kp_op_call(op, given.args, given.nargs, given.kwnames);
    kp_given_fini(&given);
    return out;
}

/* The default overload of a short name, where it is given tensors alone and not too many; or NULL. */
static kp_op *usual_of(const kp_op *set, PyObject *const *args, Py_ssize_t nargs) {
    kp_op *usual = set->usual;
    kp_state *st = set->st;
    if (!usual || nargs < usual->nneeded || nargs > usual->nplain || set->epoch != st->epoch) return NULL;
    for (Py_ssize_t k = 0; k < nargs; k++) {
        const kp_type *type = kp_type_of(st, args[k]);
        if (!type) PyErr_Clear(); /* met again by kp_pick */
        if (!type || type->kind < KP_KILN) return NULL;
    }
    return set->usual == usual ? usual : NULL; /* a look at a type may have run anything */
}

PyObject *kp_op_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    kp_op *op = (kp_op *)self;
    PyObject *out = NULL;
    kp_op *one = op->overloads ? op->usual : op;
    /* If a short name has a default overload (not every name has one), no other overload fits a call of tensors alone better. */
    int most = !one || kwnames ? 0 : op->overloads ? one->nplain : one->nsimple;
    if (one && nargs <= most && nargs >= one->nneeded && call_plain(one, args, nargs, &out)) return out;
    if (!op->overloads) return call_framed(op, args, nargs, kwnames);
    one = kp_remembered(op, args, nargs, kwnames);
    if (!one && !kwnames) one = usual_of(op, args, nargs);
    if (!one) return call_picked(op, args, nargs, kwnames);
    if (!kwnames && nargs <= one->nsimple && call_plain(one, args, nargs, &out)) return out;
    return call_framed(one, args, nargs, kwnames);
}
