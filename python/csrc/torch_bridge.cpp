/* torch_bridge.cpp - Kiln's operators as CPU kernels of PyTorch's dispatcher.
 *
 * Turns a dispatched call into a kiln_call and its results into at::Tensors over Kiln's memory.  What is registered
 * comes from the operators that kiln._kiln hands over: nothing here knows one.  A call that Kiln does not answer goes,
 * untouched, to the kernel that PyTorch had, so that results and errors are PyTorch's own.  C++ because PyTorch's C
 * functions pass neither Scalar nor whether a tensor stands for a number.  Includes no header of Python's, takes no GIL
 * and lets no exception into a frame of Kiln's.  docs/PYTORCH.md says how calls get here. */
#include "torch_bridge.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
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
    MAX_ITEMS = 64,     /* of all lists of a call */
    MAX_KERNELS = 4096, /* operators */
    MAX_RETS = 8,
    LARGE = 16384 /* elements from which a call may use several threads */
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

/* Where results are resized or cloned by PyTorch: Kiln's recycled blocks, like the results themselves. */
struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override {
        int64_t size = static_cast<int64_t>(n);
        kiln_tensor *t = nullptr;
        TORCH_CHECK_WITH(OutOfMemoryError, api->new_tensor(KILN_U8, 1, &size, nullptr, &t) == KILN_OK,
                         "Kiln has no memory for ", n, " bytes");
        kiln_bridge_view v;
        api->look(t, &v);
        return {v.data, t, release, c10::Device(c10::kCPU)};
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
    c10::DataPtr data(v.data, t, release, c10::Device(c10::kCPU));
    c10::ScalarType type = dtypes.to_torch[v.dtype];
    int64_t nbytes = v.nelem * static_cast<int64_t>(c10::elementSize(type));
    c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes, std::move(data), &allocator,
                         /*resizable=*/true);
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

constexpr int SERVED = -1; /* else a kiln_bridge_why */

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

/* The arguments of one call as Kiln's values.  Each function gives SERVED, or why the call is not for Kiln. */
class Arguments {
  public:
    kiln_value value[MAX_ARGS];
    size_t count = 0;
    int64_t nelem = 0; /* no fewer than any result of the call has */

    kiln_value *next() { return &value[count++]; }

    static int dtype(int64_t scalar_type, kiln_value *to) {
        if (scalar_type < 0 || scalar_type >= static_cast<int64_t>(sizeof dtypes.to_kiln) ||
            dtypes.to_kiln[scalar_type] == NO_DTYPE)
            return KILN_WHY_DTYPE;
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
    c10::IntArrayRef widest;                    /* sizes of the first tensor of several elements */

    /* Tensors of several sizes broadcast, to no more elements than their product. */
    void reach(c10::IntArrayRef sizes, int64_t n) {
        if (n <= 1 || nelem <= 1 || sizes.equals(widest)) {
            if (n > nelem) nelem = n, widest = sizes;
        } else if (__builtin_mul_overflow(nelem, n, &nelem)) {
            nelem = INT64_MAX;
        }
    }

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
        if (!is_plain(impl)) return KILN_WHY_TENSOR;
        uint8_t type = kiln_dtype_of(impl);
        if (type == NO_DTYPE) return KILN_WHY_DTYPE;
        void *data = written ? impl->mutable_data() : const_cast<void *>(impl->data());
        c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
        int how = written ? 0 : KILN_BORROW_READONLY;
        if (impl->is_wrapped_number()) how |= KILN_BORROW_NUMBER;
        if (c10::isIntegralType(c10::typeMetaToScalarType(impl->dtype()), true) || impl->is_wrapped_number())
            has_other = true;
        else
            has_floats = true;
        reach(sizes, impl->numel());
        kiln_tensor *made;
        kiln_status st = api->borrow(take_header(sizes.size()), data, static_cast<kiln_dtype>(type),
                                     static_cast<int>(sizes.size()), sizes.data(), strides.data(), how,
                                     &made);
        if (st != KILN_OK) return KILN_WHY_TENSOR;
        *to = kiln_v_tensor(made);
        return SERVED;
    }
};

/* -- counters ------------------------------------------------------------------------------------------------------ */

/* Calls served, by kernel, of one thread: written by it alone.  Lives as long as the process; when the thread ends,
 * another goes on with it. */
struct Tally {
    std::atomic<uint64_t> served[MAX_KERNELS];
    std::atomic<bool> used;
    Tally *next;
};
std::atomic<Tally *> tallies;
thread_local Tally *tally;

struct Leave {
    ~Leave() {
        if (tally) tally->used.store(false, std::memory_order_release);
        tally = nullptr;
    }
};

__attribute__((noinline)) Tally *new_tally() {
    static thread_local Leave leave;
    (void)leave;
    for (Tally *t = tallies.load(); t; t = t->next)
        if (!t->used.exchange(true, std::memory_order_acquire)) return tally = t;
    tally = new Tally();
    tally->used = true;
    tally->next = tallies.load();
    while (!tallies.compare_exchange_weak(tally->next, tally)) {}
    return tally;
}

inline void count_served(size_t kernel) {
    Tally *t = tally ? tally : new_tally();
    t->served[kernel].store(t->served[kernel].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/* -- kernels ------------------------------------------------------------------------------------------------------- */

/* What a taken operator runs.  Never freed: a thread may still be inside when the operator is given back. */
struct Target {
    kiln_ctx *ctx;
    const kiln_op *op;
};

struct Arg {
    const char *name; /* NULL: by position */
    const char *title;
    uint8_t kind; /* kiln_kind; KILN_NUMBER_V: a Scalar */
    bool written;
};

struct Kernel {
    size_t index = 0;
    std::string name;
    const c10::FunctionSchema *schema = nullptr;
    std::atomic<const Target *> target{nullptr}; /* NULL: PyTorch's own runs */
    const Target *last = nullptr;                /* as target, and stays when the operator is given back */
    std::shared_ptr<const c10::SafeKernelFunction> native; /* PyTorch's; taking again replaces it */
    std::mutex native_lock;
    std::unique_ptr<c10::RegistrationHandleRAII> registration; /* given up by reset, not by assignment */
    std::vector<Arg> args;
    bool own = false; /* nothing but Kiln serves it: what it refuses is raised */
    uint8_t nrets = 0, nwritten = 0;
    bool listed = false;            /* its one result is a list of tensors */
    uint8_t written[MAX_RETS] = {}; /* arguments that are the results, in order; none: results are new */
    std::atomic<uint64_t> handed_back[KILN_WHY_COUNT] = {};

    int serve(torch::jit::Stack *stack);
    int convert(const c10::IValue &v, const Arg &as, Arguments *to);
    int run(Arguments *a, kiln_tensor **outs, kiln_value *list);
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
    if (why == KILN_WHY_DTYPE) raise(KILN_E_TYPE, text + "has a dtype that Kiln does not have");
    if (why == KILN_WHY_TENSOR) raise(KILN_E_UNSUP, text + "is not a dense tensor in the memory of the CPU");
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
    if (!v.isComplexDouble()) return KILN_WHY_VALUE;
    c10::complex<double> c = v.toComplexDouble();
    return *out = kiln_v_complex(c.real(), c.imag()), SERVED;
}

int Kernel::convert(const c10::IValue &v, const Arg &as, Arguments *to) {
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

int Kernel::run(Arguments *a, kiln_tensor **outs, kiln_value *list) {
    const Target *t = target.load(std::memory_order_acquire);
    if (!t) return KILN_WHY_REFUSED; /* given back since the call began */
    if (!own && a->needs_default()) return KILN_WHY_DEFAULT;
    int quiet = api->quiet(!own);
    int limit = a->nelem < LARGE ? -1
                                 : api->threads_limit(at::in_parallel_region() ? 1 : at::get_num_threads());
    kiln_status st = listed ? api->call_values(t->ctx, t->op, a->value, a->count, list, 0)
                            : api->call(t->ctx, t->op, a->value, a->count, outs, nrets);
    if (st == KILN_E_INTERRUPTED)
        st = listed ? api->call_values(t->ctx, t->op, a->value, a->count, list, 1)
                    : api->call_patiently(t->ctx, t->op, a->value, a->count, outs, nrets);
    if (limit >= 0) api->threads_limit(limit);
    api->quiet(quiet);
    if (own && st != KILN_OK) raise(st, api->last_error());
    return st == KILN_OK ? SERVED : KILN_WHY_REFUSED;
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

int Kernel::serve(torch::jit::Stack *stack) {
    Arguments a;
    kiln_tensor *outs[MAX_RETS];
    size_t n = args.size();
    c10::IValue *in = stack->data() + (stack->size() - n);
    for (size_t i = 0; i < n; i++) {
        int why = convert(in[i], args[i], &a);
        if (why != SERVED && own) raise_argument(name, args[i].title, why);
        if (why != SERVED) return why;
        a.value[i].name = args[i].name;
    }
    kiln_value list;
    int why = run(&a, outs, &list);
    if (why != SERVED) return why;
    if (listed) {
        c10::List<at::Tensor> all = wrap_list(&list);
        torch::jit::drop(*stack, n);
        stack->emplace_back(std::move(all));
        return SERVED;
    }
    if (nwritten) {
        c10::IValue given[MAX_RETS];
        for (size_t k = 0; k < nrets; k++) {
            api->release(outs[k]);
            given[k] = std::move(in[written[k]]);
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

/* Every operator ever taken.  Never freed: a thread may be inside a call while the process ends. */
std::vector<Kernel *> &kernels = *new std::vector<Kernel *>;
std::unordered_map<std::string, Kernel *> by_name;
std::mutex kernels_lock;

/* Kernels by where PyTorch keeps their schema, which does not move: what the dispatcher's one function finds them by.  It
 * has no object of its own that giving an operator back would free while another thread is about to use it. */
std::atomic<Kernel *> by_schema[2 * MAX_KERNELS];

inline size_t place_of(const c10::FunctionSchema *schema) {
    return (reinterpret_cast<uintptr_t>(schema) >> 4) * 0x9E3779B97F4A7C15u >> 40 & (2 * MAX_KERNELS - 1);
}

Kernel *kernel_of(const c10::FunctionSchema *schema) {
    for (size_t at = place_of(schema);; at = (at + 1) & (2 * MAX_KERNELS - 1)) {
        Kernel *k = by_schema[at].load(std::memory_order_acquire);
        if (!k || k->schema == schema) return k;
    }
}

/* Under kernels_lock; there is always room.  A schema of Kiln's own that was ended may have left its address. */
void remember(Kernel *k) {
    size_t at = place_of(k->schema);
    for (Kernel *old; (old = by_schema[at].load(std::memory_order_relaxed)) && old->schema != k->schema;)
        at = (at + 1) & (2 * MAX_KERNELS - 1);
    by_schema[at].store(k, std::memory_order_release);
}

void dispatched(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    Kernel *k = kernel_of(&op.schema());
    int why = k->serve(stack);
    if (why == SERVED) return count_served(k->index);
    if (k->own) raise(KILN_E_UNSUP, k->name + " is not defined any more"); /* since the call began */
    k->handed_back[why].fetch_add(1, std::memory_order_relaxed);
    k->native_now()->callBoxed(op, keys, stack);
}

/* -- what the module asks -------------------------------------------------------------------------------------------- */

std::optional<c10::OperatorHandle> handle_of(const kiln_op *op) {
    std::string name = api->op_name(op);
    size_t dot = name.find('.');
    c10::OperatorName full(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
    return c10::Dispatcher::singleton().findSchema(full);
}

bool is_tensor_list(const c10::Argument &a) { return a.type()->isSubtypeOf(*c10::ListType::ofTensors()); }

kiln_bridge_fit fit_of(const kiln_op *op, const std::optional<c10::OperatorHandle> &handle, bool own) {
    if (!handle) return KILN_FIT_ABSENT;
    if (torch::jit::parseSchema(api->op_schema(op)) != handle->schema()) return KILN_FIT_SCHEMA;
    if (!own && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
        return KILN_FIT_COMPOSITE;
    if (!own && !handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return KILN_FIT_NONE;
    if (handle->schema().arguments().size() > MAX_ARGS || api->op_nrets(op) > MAX_RETS)
        return KILN_FIT_ARGUMENTS;
    bool listed = handle->schema().returns().size() == 1 && is_tensor_list(handle->schema().returns()[0]);
    for (const c10::Argument &result : handle->schema().returns())
        if (!listed && result.type()->kind() != c10::TypeKind::TensorType) return KILN_FIT_RESULTS;
    return KILN_FIT_OK;
}

kiln_bridge_fit fit(const kiln_op *op) {
    try {
        return fit_of(op, handle_of(op), false);
    } catch (const std::exception &) {
        return KILN_FIT_SCHEMA; /* PyTorch cannot even read it */
    }
}

void describe(Kernel *k, const kiln_op *op) {
    kiln_op_arg_info info;
    bool given = std::strcmp(api->op_form(op), "functional") != 0,
         out = std::strcmp(api->op_form(op), "out") == 0;
    k->nrets = static_cast<uint8_t>(api->op_nrets(op));
    k->listed = k->nrets == 1 && api->op_ret_kind(op, 0) == KILN_LIST_V;
    for (size_t i = 0; api->op_arg_at(op, i, &info); i++) {
        k->args.push_back({info.by_name ? info.name : nullptr, info.name, info.kind, info.written != 0});
        bool result = given && info.written &&
                      (info.by_name || !out); /* else it is written beside the results */
        if (result && k->nwritten < MAX_RETS) k->written[k->nwritten++] = static_cast<uint8_t>(i);
    }
}

/* Says nothing of an operator that is overridden: that is what was asked for. */
struct Silence final : c10::WarningHandler {
    void process(const c10::Warning &) override {}
};

void Kernel::set(kiln_ctx *ctx, const kiln_op *op) {
    if (!last || last->ctx != ctx || last->op != op) last = new Target{ctx, op};
    target.store(last, std::memory_order_release);
}

void take_new(kiln_ctx *ctx, const kiln_op *op, const c10::OperatorHandle &handle, Kernel *k) {
    Silence silence;
    c10::WarningUtils::WarningHandlerGuard guard(&silence);
    if (!k->own) {
        auto native = std::make_shared<const c10::SafeKernelFunction>(
            handle.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
        std::lock_guard<std::mutex> lock(k->native_lock);
        k->native.swap(native);
    }
    k->set(ctx, op);
    k->registration = std::make_unique<c10::RegistrationHandleRAII>(c10::Dispatcher::singleton().registerImpl(
        handle.operator_name(), c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromBoxedFunction<&dispatched>(), std::nullopt, nullptr, "kiln"));
}

/* The newest of that name: one of Kiln's own that was defined anew has another. */
Kernel *find(const char *name) {
    auto at = by_name.find(name);
    return at == by_name.end() ? nullptr : at->second;
}

kiln_bridge_fit take(kiln_ctx *ctx, const kiln_op *op, int own) {
    try {
        std::lock_guard<std::mutex> lock(kernels_lock);
        auto handle = handle_of(op);
        Kernel *k = find(api->op_name(op));
        if (k && k->own && !k->target.load()) k = nullptr; /* its schema may have been another */
        kiln_bridge_fit fits = fit_of(op, handle, own || (k && k->own));
        if (fits != KILN_FIT_OK) return fits;
        if (k && k->target.load()) return k->set(ctx, op), KILN_FIT_OK;
        if (!k) {
            if (kernels.size() == MAX_KERNELS) return KILN_FIT_ARGUMENTS;
            auto made = std::make_unique<Kernel>();
            made->index = kernels.size();
            made->name = api->op_name(op);
            made->own = own;
            describe(made.get(), op);
            k = made.release();
            k->schema = &handle->schema();
            by_name[k->name] = k;
            remember(k);
            kernels.push_back(k);
        }
        take_new(ctx, op, *handle, k);
        return KILN_FIT_OK;
    } catch (const std::exception &) {
        return KILN_FIT_NONE;
    }
}

void drop(const char *name) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    Kernel *k = find(name);
    if (k && k->target.exchange(nullptr)) k->registration.reset();
}

int takes(const char *name) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    Kernel *k = find(name);
    return k && k->target.load();
}

int counts(size_t which, kiln_bridge_counts *out) {
    std::lock_guard<std::mutex> lock(kernels_lock);
    if (which >= kernels.size()) return 0;
    const Kernel &k = *kernels[which];
    *out = {k.name.c_str(), k.target.load() != nullptr, k.own, 0, {}};
    for (Tally *t = tallies.load(); t; t = t->next)
        out->served += t->served[which].load(std::memory_order_relaxed);
    for (int w = 0; w < KILN_WHY_COUNT; w++)
        out->handed_back[w] = k.handed_back[w].load(std::memory_order_relaxed);
    return 1;
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

kiln_bridge bridge = {KILN_BRIDGE_VERSION, TORCH_VERSION, fit, take, drop, takes, borrow, nullptr, counts};

} // namespace

extern "C" __attribute__((visibility("default"))) const kiln_bridge *kiln_torch_bridge(
    const kiln_bridge_api *given) {
    api = given;
    find_wrap_object();
    bridge.object = wrap_object ? object : nullptr;
    return &bridge;
}
