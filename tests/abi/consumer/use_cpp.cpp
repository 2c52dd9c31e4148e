/* use_cpp.cpp - a C++ program outside the tree, built against an installed Kiln.
 *
 * Multiplies two scalars' worth of tensors and prints the version and the product. */
#include <cstdio>

#include <kiln/kiln.h>
#include <kiln/kiln_abi.h>

static bool check(kiln_status st) {
    if (st != KILN_OK) std::fprintf(stderr, "%s: %s\n", kiln_status_name(st), kiln_last_error());
    return st == KILN_OK;
}

int main() {
    double six = 6, seven = 7;
    kiln_ctx *ctx = nullptr;
    const kiln_op *op = nullptr;
    kiln_tensor *a = nullptr, *b = nullptr, *out = nullptr;
    bool ok = check(kiln_open(nullptr, &ctx)) && check(kiln_op_find(ctx, "mul.Tensor", &op)) &&
              check(kiln_tensor_wrap(&six, KILN_F64, 0, nullptr, nullptr, nullptr, nullptr, &a)) &&
              check(kiln_tensor_wrap(&seven, KILN_F64, 0, nullptr, nullptr, nullptr, nullptr, &b));
    if (ok) {
        const kiln_value args[] = {kiln_v_tensor(a), kiln_v_tensor(b)};
        ok = check(kiln_call(ctx, op, args, 2, &out, 1));
    }
    if (ok) std::printf("%s %g\n", kiln_version(), *static_cast<const double *>(kiln_tensor_data(out)));
    kiln_tensor_release(out);
    kiln_tensor_release(b);
    kiln_tensor_release(a);
    kiln_close(ctx);
    return ok ? 0 : 1;
}
