/* torch_reasons.h - why calls of one operator went to PyTorch's own kernel, in words, and how often.
 *
 * A reason is made when it first occurs and lives as long as the process, so that readers need no lock.  The bridge owns
 * the lists; nothing here knows the dispatcher. */
#ifndef KILN_TORCH_REASONS_H
#define KILN_TORCH_REASONS_H
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <mutex>
#include <string>

/* Causes before WHY_GIVEN_BACK concern one argument.  WHY_GIVEN_BACK and the causes after it concern the whole call.
 * SERVED: Kiln answered the call. */
enum why {
    SERVED = -1,
    WHY_SUBCLASS,
    WHY_LAZY_VIEW,
    WHY_NOT_DENSE,
    WHY_DTYPE,
    WHY_VALUE,
    WHY_GIVEN_BACK,
    WHY_DEFAULT_DTYPE,
    WHY_INFERENCE,
    WHY_REFUSED
};

/* The text that follows "argument 'NAME' ", or the whole text if the cause concerns the whole call. */
inline const char *why_text(int why) {
    static const char *const texts[] = {
        "is of a subclass with __torch_dispatch__",
        "is a conjugate or negative view",
        "is not a dense tensor in the memory of the CPU",
        "names or holds a dtype that Kiln does not have",
        "has a value that Kiln does not know",
        "the operator was given back while the call was under way",
        "torch.set_default_dtype is not float32, and no floating tensor decides the result's dtype",
        "a tensor made in inference mode would be written outside of it, which PyTorch refuses",
        "Kiln does not serve this combination: ", /* Kiln's text of the first such call follows */
    };                                            /* ORDER: why */
    return texts[why];
}

/* What keeps a tensor from being lent to Kiln. */
inline why why_not_plain(const c10::TensorImpl *t) {
    c10::DispatchKeySet keys = t->key_set();
    if (t->is_python_dispatch()) return WHY_SUBCLASS;
    constexpr c10::DispatchKeySet lazy(
        {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
    return keys.has_any(lazy) ? WHY_LAZY_VIEW : WHY_NOT_DENSE;
}

/* The reasons of one operator. */
class Reasons {
  public:
    struct Reason {
        int why;
        size_t argument; /* that `why` concerns; 0 if it concerns the call */
        std::string text;
        std::atomic<uint64_t> calls;
        Reason *next;
    };

    /* Whether the text of a refusal is kept.  If not, Kiln has to write the text of the next refusal. */
    bool has_refusal() const { return refusal_kept.load(std::memory_order_relaxed); }

    /* name: of the argument; refusal: what Kiln said, for WHY_REFUSED alone. */
    void count(int why, size_t argument, const char *name, const char *refusal) {
        if (why >= WHY_GIVEN_BACK) argument = 0;
        Reason *r = find(why, argument);
        if (!r) r = add(why, argument, name, refusal);
        r->calls.fetch_add(1, std::memory_order_relaxed);
    }

    /* The newest reason, which leads to the others. */
    const Reason *first() const { return newest.load(std::memory_order_acquire); }

  private:
    std::atomic<Reason *> newest{nullptr};
    std::atomic<bool> refusal_kept{false};
    std::mutex adding;

    Reason *find(int why, size_t argument) const {
        Reason *r = newest.load(std::memory_order_acquire);
        while (r && (r->why != why || r->argument != argument)) r = r->next;
        return r;
    }

    Reason *add(int why, size_t argument, const char *name, const char *refusal) {
        std::lock_guard<std::mutex> lock(adding);
        Reason *r = find(why, argument);
        if (r) return r; /* another thread was first */
        std::string text = why_text(why);
        if (why < WHY_GIVEN_BACK) text = std::string("argument '") + name + "' " + text;
        if (why == WHY_REFUSED) text += refusal;
        r = new Reason{why, argument, text, {0}, newest.load(std::memory_order_relaxed)};
        newest.store(r, std::memory_order_release);
        if (why == WHY_REFUSED) refusal_kept.store(true, std::memory_order_relaxed);
        return r;
    }
};
#endif
