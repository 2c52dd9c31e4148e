/* torch_bridge.cpp - Kiln's operators as CPU kernels of PyTorch's dispatcher.
 *
 * Turns a dispatched call into a kiln_call and its results into at::Tensors over Kiln's memory.  What is registered
 * comes from the operators that kiln._kiln hands over: nothing here knows one.  A call that Kiln does not answer goes,
 * untouched, to the kernel that PyTorch had, so that results and errors are PyTorch's own.  C++ because PyTorch's C
 * functions pass neither Scalar nor whether a tensor stands for a number.  Includes no header of Python's, takes no GIL
 * and lets no exception into a frame of Kiln's.  docs/PYTORCH.md says how calls get here. */
#include "torch_bridge.h"
#include "torch_reasons.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

const kiln_bridge_api *api;

enum {
    MAX_ARGS = 32,
    MAX_TENSORS = 24,
    MAX_ITEMS = 64, /* of all lists of a call */
    MAX_RETS = 8
};

/* -- element types --------------------------------------------------------------------------------------------- */

constexpr uint8_t NO_DTYPE = 255;

/* Both ways, by the names that dtype.def and PyTorch have for them. */
struct Dtypes {
    uint8_t to_kiln[static_cast<int>(c10::ScalarType::NumOptions)];
    c10::ScalarType to_torch[KILN_DTYPE_COUNT];
    Dtypes() {
        static const char *const names[] = {
#define D(NAME, value, name, bytes, kind, torch) [value] = torch,
#include "kiln/dtype.def"
#undef D
        };
        std::memset(to_kiln, NO_DTYPE, sizeof to_kiln);
        for (int t = 0; t < static_cast<int>(c10::ScalarType::NumOptions); t++)
            for (int k = 0; k < KILN_DTYPE_COUNT; k++)
                if (name_of(static_cast<c10::ScalarType>(t)) == names[k]) {
                    to_kiln[t] = static_cast<uint8_t>(k);
                    to_torch[k] = static_cast<c10::ScalarType>(t);
                }
    }
    static std::string name_of(c10::ScalarType t) {
        try {
            return std::string(c10::getDtypeNames(t).first);
        } catch (const std::exception &) {
            return ""; /* one that has no tensors */
        }
    }
};
const Dtypes dtypes;

/* -- memory ------------------------------------------------------------------------------------------------------ */

void release(void *t) { api->release(static_cast<kiln_tensor *>(t)); }

void release_reported(void *t) {
    kiln_bridge_view v;
    api->look(static_cast<kiln_tensor *>(t), &v);
    c10::profiledCPUMemoryReporter().Delete(v.data);
    release(t);
}

/* A DataPtr to n bytes at `data`, which takes over the reference to t.  PyTorch's memory profiler is told of the
 * bytes if it is running. */
c10::DataPtr memory_of(kiln_tensor *t, void *data, size_t n) {
    c10::DeleterFnPtr end = release;
    if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && n) {
        c10::profiledCPUMemoryReporter().New(data, n);
        end = release_reported;
    }
    return {data, t, end, c10::Device(c10::kCPU)};
}

/* PyTorch takes memory from here when it resizes or clones a result.  It gets Kiln's recycled blocks, as the
 * result itself did. */
struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override {
        int64_t size = static_cast<int64_t>(n);
        kiln_tensor *t = nullptr;
        TORCH_CHECK_WITH(OutOfMemoryError, api->new_tensor(KILN_U8, 1, &size, nullptr, &t) == KILN_OK,
                         "Kiln has no memory for ", n, " bytes");
        kiln_bridge_view v;
        api->look(t, &v);
        return memory_of(t, v.data, n);
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void *to, const void *from, size_t n) const override { default_copy_data(to, from, n); }
};
Allocator allocator;

/* Strides that follow from the sizes are left to PyTorch, which is quicker then. */
void set_shape(c10::TensorImpl *to, c10::IntArrayRef sizes, const int64_t *strides) {
    int64_t next = 1;
    size_t d = sizes.size();
    while (d > 0 && strides[d - 1] == next) next *= std::max<int64_t>(sizes[--d], 1);
    if (d == 0)
        to->set_sizes_contiguous(sizes);
    else
        to->set_sizes_and_strides(sizes, {strides, sizes.size()});
}

/* Takes over the reference to t. */
at::Tensor wrap(kiln_tensor *t) {
    kiln_bridge_view v;
    if (!t) return at::Tensor(); /* a result that is not given */
    api->look(t, &v);
    c10::ScalarType type = dtypes.to_torch[v.dtype];
    int64_t nbytes = v.nelem * static_cast<int64_t>(c10::elementSize(type));
    c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes,
                         memory_of(t, v.data, static_cast<size_t>(nbytes)), &allocator, /*resizable=*/true);
    at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
    set_shape(out.unsafeGetTensorImpl(), {v.sizes, static_cast<size_t>(v.rank)}, v.strides);
    return out;
}

/* Results that no at::Tensor has taken over yet, should making one throw. */
struct Untaken {
    kiln_tensor **all;
    size_t next, count;
    ~Untaken() {
        for (; next < count; next++) api->release(all[next]);
    }
};

/* -- a call on its way ------------------------------------------------------------------------------------------- */

constexpr c10::DispatchKeySet plain_keys({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                          c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastCPU});

inline bool is_plain(const c10::TensorImpl *impl) {
    return !(impl->key_set().raw_repr() & ~plain_keys.raw_repr());
}

inline uint8_t kiln_dtype_of(const c10::TensorImpl *impl) {
    return dtypes.to_kiln[static_cast<int>(c10::typeMetaToScalarType(impl->dtype()))];
}

/* Memory that a thread's calls take from in turn, each giving back all that it took.  It grows to what a call has needed. */
struct Spare {
    std::unique_ptr<char[]> memory;
    size_t size = 0, used = 0;
};
thread_local Spare spare;

/* What one call took; it is freed with it. */
class Lent {
  public:
    ~Lent() {
        spare.used = mark;
        if (!blocks.empty() && mark == 0) { /* the next call like this one needs no block of its own */
            spare.memory.reset(new (std::nothrow) char[2 * total]);
            spare.size = spare.memory ? 2 * total : 0;
        }
    }

    /* At a multiple of 16. */
    void *take(size_t nbytes) {
        nbytes = (nbytes + 15) & ~static_cast<size_t>(15);
        total += nbytes;
        if (nbytes <= spare.size - spare.used) {
            spare.used += nbytes;
            return spare.memory.get() + spare.used - nbytes;
        }
        blocks.emplace_back(new char[nbytes]);
        return blocks.back().get();
    }

  private:
    size_t mark = spare.used, total = 0;
    std::vector<std::unique_ptr<char[]>> blocks;
};

/* The arguments of one call as Kiln's values.  Each function gives SERVED, or a `why`: the call is not for Kiln. */
class Arguments {
  public:
    kiln_value value[MAX_ARGS];
    size_t count = 0;

    kiln_value *next() { return &value[count++]; }

    static int dtype(int64_t scalar_type, kiln_value *to) {
        if (scalar_type < 0 || scalar_type >= static_cast<int64_t>(sizeof dtypes.to_kiln) ||
            dtypes.to_kiln[scalar_type] == NO_DTYPE)
            return WHY_DTYPE;
        return *to = kiln_v_dtype(static_cast<kiln_dtype>(dtypes.to_kiln[scalar_type])), SERVED;
    }

    template <class List, class One> int list(const List &all, One one) {
        kiln_value *first = take_items(all.size()), *to = first;
        for (const auto &x : all) {
            int why = one(x, to++);
            if (why != SERVED) return why;
        }
        return *next() = kiln_v_list(first, static_cast<uint32_t>(all.size())), SERVED;
    }

    int tensor(const at::Tensor &t, bool written, kiln_value *to) {
        return t.defined() ? borrow(t, written, to) : (*to = kiln_v_none(), SERVED);
    }

    /* PyTorch's default dtype decides where no tensor has floats, or no other than a number has. */
    bool needs_default() const {
        return has_other && !has_floats && c10::get_default_dtype_as_scalartype() != c10::ScalarType::Float;
    }

  private:
    kiln_tensor_header header[MAX_TENSORS];
    kiln_value item[MAX_ITEMS];
    size_t nheaders = 0, nitems = 0;
    Lent lent;                                  /* what lists of many tensors need beyond these */
    bool has_other = false, has_floats = false; /* a tensor of integers, or a number; any other */

    kiln_value *take_items(size_t n) {
        if (n > MAX_ITEMS - nitems) return static_cast<kiln_value *>(lent.take(n * sizeof(kiln_value)));
        nitems += n;
        return item + nitems - n;
    }

    /* Borrowing writes strides into a header only where none are given, so that room for its first words is enough. */
    kiln_tensor_header *take_header(size_t rank) {
        constexpr size_t words = sizeof(kiln_tensor_header) / sizeof(uint64_t) - KILN_MAX_RANK;
        if (nheaders < MAX_TENSORS) return &header[nheaders++];
        return static_cast<kiln_tensor_header *>(lent.take((words + rank) * sizeof(uint64_t)));
    }

    int borrow(const at::Tensor &t, bool written, kiln_value *to) {
        c10::TensorImpl *impl = t.unsafeGetTensorImpl();
        if (!is_plain(impl)) return why_not_plain(impl);
        uint8_t type = kiln_dtype_of(impl);
        if (type == NO_DTYPE) return WHY_DTYPE;
        void *data = written ? impl->mutable_data() : const_cast<void *>(impl->data());
        c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
        int how = written ? 0 : KILN_BORROW_READONLY;
        if (impl->is_wrapped_number()) how |= KILN_BORROW_NUMBER;
        if (c10::isIntegralType(c10::typeMetaToScalarType(impl->dtype()), true) || impl->is_wrapped_number())
            has_other = true;
        else
            has_floats = true;
        kiln_tensor *made;
        kiln_status st = api->borrow(take_header(sizes.size()), data, static_cast<kiln_dtype>(type),
                                     static_cast<int>(sizes.size()), sizes.data(), strides.data(), how,
                                     &made);
        if (st != KILN_OK) return WHY_NOT_DENSE;
        *to = kiln_v_tensor(made);
        return SERVED;
    }
};

/* -- counters ------------------------------------------------------------------------------------------------------ */

/* Calls served, by Kernel::index, of one thread: written by that thread alone.  A tally lives as long as the process; when
 * its thread ends, another thread may go on with it.  A tally never grows, since other threads read it: a thread that meets
 * an index beyond its tally leaves that tally to others and takes or makes a larger one. */
struct Tally {
    explicit Tally(size_t n) : size(n), served(new std::atomic<uint64_t>[n]()) {}
    const size_t size;
    std::atomic<uint64_t> *const served;
    std::atomic<bool> used{true};
    Tally *next = nullptr;
};
std::atomic<Tally *> tallies;
std::atomic<size_t> nkernels; /* kernels ever made; every index is less */
thread_local Tally *tally;

struct Leave {
    ~Leave() {
        if (tally) tally->used.store(false, std::memory_order_release);
        tally = nullptr;
    }
};

/* A tally of this thread's that has room for the index. */
__attribute__((noinline)) Tally *new_tally(size_t index) {
    static thread_local Leave leave;
    (void)leave;
    if (tally) tally->used.store(false, std::memory_order_release);
    tally = nullptr;
    for (Tally *t = tallies.load(); t; t = t->next)
        if (t->size > index && !t->used.exchange(true, std::memory_order_acquire)) return tally = t;
    size_t size = 1024;
    while (size <= std::max(index, nkernels.load())) size *= 2;
    tally = new Tally(size);
    tally->next = tallies.load();
    while (!tallies.compare_exchange_weak(tally->next, tally)) {}
    return tally;
}

inline void count_served(size_t index) {
    Tally *t = tally && index < tally->size ? tally : new_tally(index);
    t->served[index].store(t->served[index].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

uint64_t sum_served(size_t index) {
    uint64_t sum = 0;
    for (Tally *t = tallies.load(); t; t = t->next)
        if (index < t->size) sum += t->served[index].load(std::memory_order_relaxed);
    return sum;
}

/* -- kernels ------------------------------------------------------------------------------------------------------- */

struct Arg {
    const char *name; /* NULL: by position */
    const char *title;
    uint8_t kind; /* kiln_kind; KILN_NUMBER_V: a Scalar */
    bool written;
};

/* What a taken operator runs, and what the operator says of its arguments and results.  A target does not change and is never
 * freed: a thread may still be inside when the operator is given back. */
struct Target {
    Target(kiln_ctx *ctx, const kiln_op *op);
    kiln_ctx *const ctx;
    const kiln_op
        *const op; /* NULL: Kiln has not been asked for the operator yet, and nothing below is known */
    std::vector<Arg> args;
    uint8_t nrets = 0, nwritten = 0;
    bool listed = false;            /* its one result is a list of tensors */
    uint8_t written[MAX_RETS] = {}; /* arguments that are the results, in order; none: results are new */
};

struct Kernel {
    size_t index = 0;
    std::string name;
    std::atomic<const Target *> target{nullptr}; /* NULL: PyTorch's own runs */
    const Target *last = nullptr;                /* as target, and stays when the operator is given back */
    std::shared_ptr<const c10::SafeKernelFunction> native; /* PyTorch's; taking again replaces it */
    std::mutex native_lock;
    std::unique_ptr<c10::RegistrationHandleRAII> registration; /* given up by reset, not by assignment */
    bool own = false; /* nothing but Kiln serves it: what it refuses is raised */
    bool counts_writes =
        false;       /* the kernel that Kiln replaces counts writes itself: see replaces_counting */
    Reasons reasons; /* for which calls were handed back */

    /* The target, with its operator.  NULL, and *why: there is none. */
    const Target *ready(int *why);
    const Target *find_operator(const Target *without, int *why);
    /* *at and *title: the argument that a `why` concerns. */
    int serve(torch::jit::Stack *stack, size_t *at, const char **title);
    int run(const Target *t, Arguments *a, kiln_tensor **outs, kiln_value *list);
    bool may_write(const Target *t, const c10::IValue *in);
    void count_writes(const Target *t, const c10::IValue *in);
    void set(kiln_ctx *ctx, const kiln_op *op);
    std::shared_ptr<const c10::SafeKernelFunction> native_now() {
        std::lock_guard<std::mutex> lock(native_lock);
        return native;
    }
};

/* -- errors of operators that nothing else serves ---------------------------------------------------------------------- */

[[noreturn]] void raise(kiln_status st, const std::string &text) {
    TORCH_CHECK_TYPE(st != KILN_E_TYPE, text);
    TORCH_CHECK_INDEX(st != KILN_E_INDEX, text);
    TORCH_CHECK_VALUE(st != KILN_E_VALUE, text);
    TORCH_CHECK_NOT_IMPLEMENTED(st != KILN_E_UNSUP, text);
    TORCH_CHECK_WITH(OutOfMemoryError, st != KILN_E_NOMEM, text);
    TORCH_CHECK(false, text);
    __builtin_unreachable();
}

/* An argument that has no counterpart in Kiln. */
[[noreturn]] void raise_argument(const std::string &op, const char *name, int why) {
    std::string text = op + ": argument '" + name + "' ";
    if (why == WHY_DTYPE) raise(KILN_E_TYPE, text + "has a dtype that Kiln does not have");
    if (why < WHY_DTYPE) raise(KILN_E_UNSUP, text + "is not a dense tensor in the memory of the CPU");
    raise(KILN_E_TYPE, text + "cannot be passed on");
}

/* What is no list: an argument, or an item of one. */
int convert_one(const c10::IValue &v, const Arg &as, Arguments *to, kiln_value *out) {
    if (v.isTensor()) return to->tensor(v.toTensor(), as.written, out);
    if (v.isInt() && as.kind == KILN_DTYPE_V) return Arguments::dtype(v.toInt(), out);
    if (v.isNone()) return *out = kiln_v_none(), SERVED;
    if (v.isBool()) return *out = kiln_v_bool(v.toBool()), SERVED;
    if (v.isInt()) return *out = kiln_v_int(v.toInt()), SERVED;
    if (v.isDouble()) return *out = kiln_v_float(v.toDouble()), SERVED;
    if (v.isString()) return *out = kiln_v_str(v.toStringRef().c_str()), SERVED;
    if (!v.isComplexDouble()) return WHY_VALUE;
    c10::complex<double> c = v.toComplexDouble();
    return *out = kiln_v_complex(c.real(), c.imag()), SERVED;
}

int convert(const c10::IValue &v, const Arg &as, Arguments *to) {
    if (!v.isList()) return convert_one(v, as, to, to->next());
    if (v.isIntList())
        return to->list(v.toIntList(), [](int64_t x, kiln_value *i) { return *i = kiln_v_int(x), SERVED; });
    if (v.isDoubleList())
        return to->list(v.toDoubleList(),
                        [](double x, kiln_value *i) { return *i = kiln_v_float(x), SERVED; });
    if (v.isBoolList())
        return to->list(v.toBoolList(), [](bool x, kiln_value *i) { return *i = kiln_v_bool(x), SERVED; });
    return to->list(v.toListRef(),
                    [&](const c10::IValue &x, kiln_value *i) { return convert_one(x, as, to, i); });
}

int Kernel::run(const Target *t, Arguments *a, kiln_tensor **outs, kiln_value *list) {
    if (!own && a->needs_default()) return WHY_DEFAULT_DTYPE;
    int quiet = api->quiet(!own && reasons.has_refusal());
    kiln_status st = t->listed ? api->call_values(t->ctx, t->op, a->value, a->count, list, 0)
                               : api->call(t->ctx, t->op, a->value, a->count, outs, t->nrets);
    if (st == KILN_E_INTERRUPTED)
        st = t->listed ? api->call_values(t->ctx, t->op, a->value, a->count, list, 1)
                       : api->call_patiently(t->ctx, t->op, a->value, a->count, outs, t->nrets);
    api->quiet(quiet);
    if (own && st != KILN_OK) raise(st, api->last_error());
    return st == KILN_OK ? SERVED : WHY_REFUSED;
}

/* Tensors over what a list holds, which is ended. */
c10::List<at::Tensor> wrap_list(kiln_value *list) {
    struct Ended {
        kiln_value *list;
        ~Ended() { api->values_release(list, 1); }
    } ended{list};
    c10::List<at::Tensor> all;
    all.reserve(list->n);
    for (uint32_t k = 0; k < list->n; k++) {
        kiln_value *v = const_cast<kiln_value *>(&list->u.list[k]); /* the value's own */
        kiln_tensor *t = v->u.tensor;
        *v = kiln_v_none(); /* wrap takes it over */
        all.push_back(wrap(t));
    }
    return all;
}

/* -- writes that PyTorch counts ------------------------------------------------------------------------------------ */

/* PyTorch counts the writes to a tensor, so that autograd notices that a saved tensor changed, and refuses to write to a tensor of
 * inference mode outside that mode.  Both happen at the dispatch key ADInplaceOrView, which most operators pass above their CPU
 * kernel.  An operator on lists has no kernel at that key: its kernel calls another operator for each item, and these
 * operators pass the key.  A kernel of Kiln's calls no operator, so the bridge does what passing the key would do. */
bool replaces_counting(const c10::OperatorHandle &handle) {
    return !handle.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView) &&
           handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

/* Whether an operator that writes to t would pass ADInplaceOrView in the calling thread now. */
inline bool passes_counting(const at::Tensor &t) {
    c10::impl::LocalDispatchKeySet here = c10::impl::tls_local_dispatch_key_set();
    return t.defined() &&
           ((t.key_set() | here.included_) - here.excluded_).has(c10::DispatchKey::ADInplaceOrView);
}

template <class Do> void each_tensor(const c10::IValue &v, Do what) {
    if (v.isTensor()) return what(v.toTensor());
    if (v.isTensorList())
        for (const c10::IValue &item : v.toListRef()) what(item.toTensor());
}

/* false: PyTorch's own kernel must answer, since it raises an error for one of the written tensors. */
bool Kernel::may_write(const Target *t, const c10::IValue *in) {
    bool may = true;
    for (size_t i = 0; counts_writes && i < t->args.size(); i++)
        if (t->args[i].written)
            each_tensor(in[i], [&](const at::Tensor &x) {
                if (x.defined() && x.is_inference() && passes_counting(x)) may = false;
            });
    return may;
}

void Kernel::count_writes(const Target *t, const c10::IValue *in) {
    for (size_t i = 0; counts_writes && i < t->args.size(); i++)
        if (t->args[i].written)
            each_tensor(in[i], [](const at::Tensor &x) {
                if (passes_counting(x)) x.unsafeGetTensorImpl()->bump_version();
            });
}

/* The row of an operator is parsed for its first call.  No lock of the bridge's is held, since another thread may fork meanwhile. */
__attribute__((noinline)) const Target *Kernel::find_operator(const Target *without, int *why) {
    if (!without) return *why = WHY_GIVEN_BACK, nullptr; /* since the call began */
    const kiln_op *op = api->find(without->ctx, name.c_str());
    if (!op) return *why = WHY_REFUSED, nullptr;
    auto made = std::make_unique<const Target>(without->ctx, op);
    if (target.compare_exchange_strong(without, made.get())) return made.release();
    return ready(why); /* another thread was faster, or has given the operator back */
}

inline const Target *Kernel::ready(int *why) {
    const Target *t = target.load(std::memory_order_acquire);
    return C10_LIKELY(t && t->op) ? t : find_operator(t, why);
}

int Kernel::serve(torch::jit::Stack *stack, size_t *at, const char **title) {
    Arguments a;
    kiln_tensor *outs[MAX_RETS];
    int why = SERVED;
    const Target *t = ready(&why);
    if (!t) return why;
    size_t n = t->args.size(), nrets = t->nrets;
    c10::IValue *in = stack->data() + (stack->size() - n);
    for (size_t i = 0; i < n; i++) {
        why = convert(in[i], t->args[i], &a);
        if (why != SERVED && own) raise_argument(name, t->args[i].title, why);
        if (why != SERVED) return *at = i, *title = t->args[i].title, why;
        a.value[i].name = t->args[i].name;
    }
    if (!may_write(t, in)) return WHY_INFERENCE;
    kiln_value list;
    why = run(t, &a, outs, &list);
    if (why != SERVED) return why;
    count_writes(t, in);
    if (t->listed) {
        c10::List<at::Tensor> all = wrap_list(&list);
        torch::jit::drop(*stack, n);
        stack->emplace_back(std::move(all));
        return SERVED;
    }
    if (t->nwritten) {
        c10::IValue given[MAX_RETS];
        for (size_t k = 0; k < nrets; k++) {
            api->release(outs[k]);
            given[k] = std::move(in[t->written[k]]);
        }
        torch::jit::drop(*stack, n);
        for (size_t k = 0; k < nrets; k++) stack->emplace_back(std::move(given[k]));
        return SERVED;
    }
    at::Tensor made[MAX_RETS];
    Untaken rest{outs, 0, nrets};
    while (rest.next < nrets) {
        size_t k = rest.next++;
        made[k] = wrap(outs[k]);
    }
    torch::jit::drop(*stack, n);
    for (size_t k = 0; k < nrets; k++) stack->emplace_back(std::move(made[k]));
    return SERVED;
}

/* Every kernel ever made.  Never freed: a thread may be inside a call while the process ends. */
std::vector<Kernel *> &kernels = *new std::vector<Kernel *>;
std::unordered_map<std::string, Kernel *> by_name; /* the newest kernel of each name */
/* Kernels of operators that Kiln defined, by schema.  An operator that is defined again with the same schema gets
 * the kernel that it had. */
std::unordered_map<std::string, Kernel *> own_kernels;
std::mutex kernels_lock;

/* Kernels by the address of PyTorch's schema, which does not move.  The dispatcher calls one plain function for all
 * of Kiln's kernels: dispatched(), which finds the kernel here.  An object for each kernel would be freed when its
 * operator is given back, while another thread may be about to use it.  Readers take no lock: a table that is half
 * full is replaced by one twice as large, and is never freed. */
struct SchemaTable {
    explicit SchemaTable(size_t n) : mask(n - 1), slots(new Slot[n]) {}
    struct Slot {
        /* NULL: the slot is free.  `schema` is set after `kernel` and then never changes. */
        std::atomic<const c10::FunctionSchema *> schema{nullptr};
        std::atomic<Kernel *> kernel{nullptr};
    };
    const size_t mask;
    size_t used = 0; /* under kernels_lock */
    Slot *const slots;

    /* The slot of that schema, or the free slot where it belongs. */
    Slot *find(const c10::FunctionSchema *schema) {
        size_t at = (reinterpret_cast<uintptr_t>(schema) >> 4) * 0x9E3779B97F4A7C15u >> 32 & mask;
        for (;; at = (at + 1) & mask) {
            const c10::FunctionSchema *there = slots[at].schema.load(std::memory_order_acquire);
            if (there == schema || !there) return &slots[at];
        }
    }

    void put(const c10::FunctionSchema *schema, Kernel *k) {
        Slot *slot = find(schema);
        used += !slot->schema.load(std::memory_order_relaxed);
        slot->kernel.store(k, std::memory_order_release);
        slot->schema.store(schema, std::memory_order_release);
    }
};
std::atomic<SchemaTable *> by_schema{new SchemaTable(4096)};

Kernel *kernel_of(const c10::FunctionSchema *schema) {
    return by_schema.load(std::memory_order_acquire)->find(schema)->kernel.load(std::memory_order_acquire);
}

/* Called under kernels_lock.  If the schema of an ended operator was at this address, k replaces that operator's
 * kernel. */
void remember(const c10::FunctionSchema *schema, Kernel *k) {
    SchemaTable *table = by_schema.load(std::memory_order_relaxed);
    if (2 * table->used > table->mask) {
        auto *larger = new SchemaTable(2 * (table->mask + 1));
        for (size_t at = 0; at <= table->mask; at++) {
            SchemaTable::Slot &slot = table->slots[at];
            const c10::FunctionSchema *there = slot.schema.load(std::memory_order_relaxed);
            if (there) larger->put(there, slot.kernel.load(std::memory_order_relaxed));
        }
        by_schema.store(table = larger, std::memory_order_release);
    }
    table->put(schema, k);
}

void dispatched(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    Kernel *k = kernel_of(&op.schema());
    size_t at = 0;
    const char *title = "";
    int why = k->serve(stack, &at, &title);
    if (why == SERVED) return count_served(k->index);
    if (k->own) raise(KILN_E_UNSUP, k->name + " is not defined any more"); /* since the call began */
    k->reasons.count(why, at, title, api->last_error());
    k->native_now()->callBoxed(op, keys, stack);
}

/* -- what kiln._kiln calls -------------------------------------------------------------------------------- */

std::optional<c10::OperatorHandle> handle_of(const std::string &name) {
    size_t dot = name.find('.');
    c10::OperatorName full(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
    return c10::Dispatcher::singleton().findSchema(full);
}

bool is_tensor_list(const c10::Argument &a) { return a.type()->isSubtypeOf(*c10::ListType::ofTensors()); }

/* Whether calls of that schema can be passed on. */
kiln_bridge_fit fit_of_schema(const c10::FunctionSchema &schema) {
    if (schema.arguments().size() > MAX_ARGS || schema.returns().size() > MAX_RETS) return KILN_FIT_ARGUMENTS;
    bool listed = schema.returns().size() == 1 && is_tensor_list(schema.returns()[0]);
    for (const c10::Argument &result : schema.returns())
        if (!listed && result.type()->kind() != c10::TypeKind::TensorType) return KILN_FIT_RESULTS;
    return KILN_FIT_OK;
}

std::string schema_of(const kiln_op_entry *entry) { return {entry->schema, entry->nschema}; }

kiln_bridge_fit fit_of(const kiln_op_entry *entry, const std::optional<c10::OperatorHandle> &handle,
                       bool own) {
    if (!handle) return KILN_FIT_ABSENT;
    if (torch::jit::parseSchema(schema_of(entry)) != handle->schema()) return KILN_FIT_SCHEMA;
    if (!own && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
        return KILN_FIT_COMPOSITE;
    if (!own && !handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return KILN_FIT_NONE;
    return fit_of_schema(handle->schema());
}

kiln_bridge_fit fit(const kiln_op_entry *entry, int own) {
    try {
        return own ? fit_of_schema(torch::jit::parseSchema(schema_of(entry)))
                   : fit_of(entry, handle_of(entry->name), false);
    } catch (const std::exception &) {
        return KILN_FIT_SCHEMA; /* PyTorch cannot even read it */
    }
}

Target::Target(kiln_ctx *of_ctx, const kiln_op *of_op) : ctx(of_ctx), op(of_op) {
    if (!op) return;
    kiln_op_arg_info info;
    bool given = std::strcmp(api->op_form(op), "functional") != 0,
         out = std::strcmp(api->op_form(op), "out") == 0;
    nrets = static_cast<uint8_t>(api->op_nrets(op));
    listed = nrets == 1 && api->op_ret_kind(op, 0) == KILN_LIST_V;
    for (size_t i = 0; api->op_arg_at(op, i, &info); i++) {
        args.push_back({info.by_name ? info.name : nullptr, info.name, info.kind, info.written != 0});
        bool result = given && info.written &&
                      (info.by_name || !out); /* else it is written beside the results */
        if (result && nwritten < MAX_RETS) written[nwritten++] = static_cast<uint8_t>(i);
    }
}

/* Says nothing of an operator that is overridden: that is what was asked for. */
struct Silence final : c10::WarningHandler {
    void process(const c10::Warning &) override {}
};

void Kernel::set(kiln_ctx *ctx, const kiln_op *op) {
    if (!last || last->ctx != ctx || last->op != op) last = new Target(ctx, op);
    target.store(last, std::memory_order_release);
}

void register_kernel(const c10::OperatorHandle &handle, Kernel *k) {
    Silence silence;
    c10::WarningUtils::WarningHandlerGuard guard(&silence);
    if (!k->own) {
        auto native = std::make_shared<const c10::SafeKernelFunction>(
            handle.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
        std::lock_guard<std::mutex> lock(k->native_lock);
        k->native.swap(native);
    }
    k->registration = std::make_unique<c10::RegistrationHandleRAII>(c10::Dispatcher::singleton().registerImpl(
        handle.operator_name(), c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromBoxedFunction<&dispatched>(), std::nullopt, nullptr, "kiln"));
}

Kernel *find(const char *name) {
    auto at = by_name.find(name);
    return at == by_name.end() ? nullptr : at->second;
}

Kernel *new_kernel(const char *name, const c10::OperatorHandle &handle, bool own) {
    auto made = std::make_unique<Kernel>();
    made->index = kernels.size();
    made->name = name;
    made->own = own;
    made->counts_writes = replaces_counting(handle);
    kernels.push_back(made.get());
    nkernels.store(kernels.size());
    return made.release();
}

/* The kernel for an operator of Kiln's own that PyTorch has just got: the one that operators of its schema had before. */
Kernel *own_kernel(const kiln_op_entry *entry, const c10::OperatorHandle &handle) {
    Kernel *&k = own_kernels[schema_of(entry)];
    if (!k) k = new_kernel(entry->name, handle, true);
    return k;
}

/* Calls may come as soon as the kernel is registered, so it has its target before. */
void take_new(kiln_ctx *ctx, const kiln_op *op, const c10::OperatorHandle &handle, Kernel *k) {
    k->set(ctx, op);
    try {
        register_kernel(handle, k);
    } catch (...) {
        k->target.store(nullptr);
        throw;
    }
}

/* An operator that is registered keeps its registration, and calls that have begun go on: they see one target or the
 * other. */
kiln_bridge_fit take_locked(kiln_ctx *ctx, const kiln_op_entry *entry, bool own) {
    Kernel *k = find(entry->name);
    const kiln_op *op = entry->op;
    if (k && k->target.load() && k->last->ctx == ctx && k->last->op == op) return KILN_FIT_OK;
    if (k && k->own && !k->registration && !own) return KILN_FIT_ABSENT; /* it was ended */
    auto handle = handle_of(entry->name);
    kiln_bridge_fit fits = fit_of(entry, handle, own || (k && k->own));
    if (fits != KILN_FIT_OK) return fits;
    if (k && k->registration) return k->set(ctx, op), KILN_FIT_OK;
    if (own)
        k = own_kernel(entry, *handle);
    else if (!k)
        k = new_kernel(entry->name, *handle, false);
    by_name[k->name] = k;
    remember(&handle->schema(), k);
    take_new(ctx, op, *handle, k);
    return KILN_FIT_OK;
}

kiln_bridge_fit take(kiln_ctx *ctx, const kiln_op_entry *entry, int own) {
    try {
        std::lock_guard<std::mutex> lock(kernels_lock);
        return take_locked(ctx, entry, own);
    } catch (const std::exception &) {
        return KILN_FIT_NONE;
    }
}

/* One of Kiln's own stays registered, so that it can be taken again while other threads call it. */
void drop(const char *name) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    Kernel *k = find(name);
    if (k && k->target.exchange(nullptr) && !k->own) k->registration.reset();
}

void forget(const char *name) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    Kernel *k = find(name);
    if (!k || !k->own) return;
    k->target.store(nullptr);
    k->registration.reset();
}

int takes(const char *name) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    Kernel *k = find(name);
    return !k || !k->target.load() ? 0 : k->own ? 2 : 1;
}

const char *taken_at(size_t which) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    if (which >= kernels.size()) return nullptr;
    return kernels[which]->target.load() ? kernels[which]->name.c_str() : "";
}

int counts(size_t which, kiln_bridge_counts *out) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    if (which >= kernels.size()) return 0;
    const Kernel &k = *kernels[which];
    *out = {k.name.c_str(), k.target.load() != nullptr, k.own, sum_served(which)};
    return 1;
}

int reason(size_t which, size_t n, kiln_bridge_reason *out) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    const Reasons::Reason *r = which < kernels.size() ? kernels[which]->reasons.first() : nullptr;
    while (r && n--) r = r->next;
    if (r) *out = {r->text.c_str(), r->calls.load(std::memory_order_relaxed)};
    return r != nullptr;
}

/* PyTorch's own, THPVariable_Wrap(at::TensorBase &&): the Python object of a tensor.  Found by name, since its header
 * is Python's, too. */
void *(*wrap_object)(at::TensorBase &&);

void find_wrap_object() {
    void *library = dlopen("libtorch_python.so", RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    void *found = library ? dlsym(library, "_Z16THPVariable_WrapON2at10TensorBaseE") : nullptr;
    if (library) dlclose(library); /* it stays: PyTorch cannot be unloaded */
    wrap_object = reinterpret_cast<void *(*)(at::TensorBase &&)>(found);
}

int borrow(const void *tensor, int written, kiln_tensor_header *header, kiln_tensor **out) {
    c10::TensorImpl *impl = static_cast<const at::Tensor *>(tensor)->unsafeGetTensorImpl();
    if (!is_plain(impl)) return 0;
    uint8_t type = kiln_dtype_of(impl);
    if (type == NO_DTYPE) return 0;
    c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    void *data = written ? impl->mutable_data() : const_cast<void *>(impl->data());
    if (api->borrow(header, data, static_cast<kiln_dtype>(type), static_cast<int>(sizes.size()), sizes.data(),
                    strides.data(), 0, out) != KILN_OK)
        return 0;
    return KILN_LENT | (impl->autograd_meta() ? 0 : KILN_LENT_BARE) |
           (impl->is_inference() ? 0 : KILN_LENT_COUNTED);
}

void *object(kiln_tensor *t) {
    try {
        return wrap_object(wrap(t));
    } catch (const std::exception &) {
        return nullptr;
    }
}

kiln_bridge bridge = {KILN_BRIDGE_VERSION,
                      TORCH_VERSION,
                      fit,
                      take,
                      drop,
                      forget,
                      takes,
                      borrow,
                      nullptr,
                      taken_at,
                      counts,
                      reason};

} // namespace

extern "C" __attribute__((visibility("default"))) const kiln_bridge *kiln_torch_bridge(
    const kiln_bridge_api *given) {
    api = given;
    find_wrap_object();
    bridge.object = wrap_object ? object : nullptr;
    return &bridge;
}
