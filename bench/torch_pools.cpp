/* torch_pools.cpp - seconds that calls take with Kiln's own pool, and with PyTorch's as the host's.
 *
 * For bench/torch_eager.py pools, which builds it with libkiln.a and loads it beside PyTorch.  Results are written into
 * memory that is there, so that only the kernel and its sharing out are timed. */
#include "kiln/kiln.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace {

void parallel_for(void *, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    at::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; k++) body(arg, k);
    });
}

enum pool { NONE, KILN, TORCH };

kiln_ctx *context(int pool) {
    static kiln_ctx *made[3];
    kiln_config config = {};
    config.size = sizeof config;
    config.mode = KILN_MODE_SYNC;
    config.threads = pool == NONE ? 1 : at::get_num_threads();
    if (pool == TORCH) config.parallel_for = parallel_for;
    if (!made[pool] && kiln_open(&config, &made[pool]) != KILN_OK) return nullptr;
    return made[pool];
}

} // namespace

/* The median of a call of a unary operator's .out on n floats, in seconds; < 0: it failed, as kiln_last_error says. */
extern "C" __attribute__((visibility("default"))) double time_calls(int pool, const char *name, int64_t n,
                                                                    int calls) {
    kiln_ctx *ctx = context(pool);
    const kiln_op *op = nullptr;
    kiln_tensor *x = nullptr, *y = nullptr, *out = nullptr;
    if (!ctx || kiln_op_find(ctx, name, &op) != KILN_OK) return -1;
    if (kiln_tensor_new(KILN_F32, 1, &n, nullptr, &x) != KILN_OK ||
        kiln_tensor_new(KILN_F32, 1, &n, nullptr, &y) != KILN_OK)
        return -1;
    std::fill_n(static_cast<float *>(kiln_tensor_data(x)), n, 0.5f);
    std::fill_n(static_cast<float *>(kiln_tensor_data(y)), n, 0.f);
    kiln_value args[] = {kiln_v_tensor(x), kiln_v_named("out", kiln_v_tensor(y))};
    std::vector<double> took;
    for (int k = 0; k < calls + 3; k++) { /* the first ones compile and wake threads */
        auto start = std::chrono::steady_clock::now();
        if (kiln_call(ctx, op, args, 2, &out, 1) != KILN_OK) return -1;
        std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        kiln_tensor_release(out);
        if (k >= 3) took.push_back(seconds.count());
    }
    kiln_tensor_release(x);
    kiln_tensor_release(y);
    std::nth_element(took.begin(), took.begin() + calls / 2, took.end());
    return took[calls / 2];
}
