"""Where Kiln is known to differ from PyTorch 2.13: operators, the call with what the comparison says of it, and why.

A difference that is not here fails the test; so does an entry that is no longer met, which is then to be deleted.
"""
import re

# Out forms that PyTorch generates: they compute a new tensor and copy it.
BITS = " ".join(f"bitwise_{name}.Scalar_Tensor_out" for name in "and or xor left_shift right_shift".split())
GENERATED = ("add.Scalar_out mul.Scalar_out div.Scalar_out isnan.out isinf.out sub.Scalar_out rsub.Scalar_out "
             "div.Scalar_mode_out remainder.Scalar_Tensor_out floor_divide.Scalar_out hardswish_backward.out " + BITS)

KNOWN = [
    ("pow.Tensor_Scalar pow_.Scalar pow.Tensor_Scalar_out",
     r"returned, but PyTorch raised RuntimeError: value cannot be converted to type [\w:]+ without overflow",
     "a number that fits the type the kernel computes in is not refused for not fitting the tensor's"),
    ("clamp clip hardtanh",
     r"value cannot be converted to type \w+ without overflow; PyTorch returned",
     "a bound of NaN makes PyTorch ignore that the other bound does not fit"),
    ("div.Tensor_mode",
     r'"trunc".*0-d second.*result 0: b?f16 at',
     "PyTorch rounds the quotient of halves before truncating it, except where the divisor is 0-d"),
    ("pow.Tensor_Scalar",
     r", 0\.5\).*result 0: f16 at .* from -inf: nan, PyTorch's inf",
     "PyTorch takes no square root for f16 ** 0.5, as it does for every other dtype: -inf ** 0.5 is inf"),
    ("pow.Scalar pow.Tensor_Scalar frexp.Tensor",
     r"result \d: is \S+\[.*\] strides=.*, PyTorch's is",
     "strides: PyTorch's pow with a number first is always row-major; without elements, three of its operators differ"),
    ("div.Tensor_mode div_.Tensor_mode div.out_mode clamp.Tensor clamp_.Tensor clamp.Tensor_out clip_.Tensor "
     "clip.Tensor clip.Tensor_out",
     r"raised NotImplementedError: .*not implemented for 'Bool'; PyTorch raised RuntimeError",
     "a call wrong in two ways: an unsupported dtype is reported before shapes and overlap"),
    (GENERATED,
     r"returned, but PyTorch raised RuntimeError: Expected out tensor to have dtype",
     "out= may be of another dtype for every operator, in PyTorch not for those whose out form is generated"),
    (GENERATED + " relu.out where.self_out celu.out masked_fill_.Scalar masked_fill.Scalar_out",
     r"raised RuntimeError: .*written-to tensor .*PyTorch returned",
     "out= may never overlap an input, in PyTorch it may where the out form is generated"),
    (BITS + " remainder.Scalar_Tensor_out softshrink.out celu.out "
     "hardswish_backward.out threshold.out threshold_ threshold_backward.grad_input",
     r"raised RuntimeError: .*; PyTorch raised NotImplementedError",
     "a call wrong in two ways: PyTorch looks at what is written to last where the out form is generated"),
    ("sub.Tensor sub_.Tensor sub.out sub.Scalar sub_.Scalar sub.Scalar_out rsub.Scalar "
     "rsub.Scalar_out",
     r"(alpha=|, )-9223372036854775808\b.*result 0",
     "PyTorch negates alpha as an integer, and the smallest one has no negative"),
    ("pow.Scalar_out",
     r"Scalar_out\((1|true), .*result type \w+ can't be cast.*PyTorch returned",
     "PyTorch fills out= with ones for 1 ** x, whatever its dtype"),
    ("isposinf.out isneginf.out signbit.out heaviside.out",
     r"returned, but PyTorch raised RuntimeError: (\w+ does not support non-boolean|heaviside is not yet)",
     "out= may be of another dtype, which PyTorch refuses for these"),
    ("relu6 hardtanh deg2rad rad2deg isinf isfinite",
     r"(odd strides of ones|empty transposed).*result 0: is \S+\[.*\] strides=.*, PyTorch's is",
     "strides of dimensions with at most one element, where PyTorch composes the operator of others"),
    ("fmax fmin",
     r"fill=wide.*result 0: \w+ at .*PyTorch's nan",
     "PyTorch's fmax and fmin of a number and a signalling NaN is NaN, in C as the library takes it"),
    ("nextafter nextafter_ nextafter.out",
     r"not implemented for 'b?f16'; PyTorch returned",
     "the number next to a half cannot be told from the f32 it is computed in"),
    ("lerp.Tensor",
     r"expected the dtype of 'self' for 'end' and 'weight'; PyTorch ",
     "a weight without dimensions must be of self's dtype too, as a row cannot ask for dimensions"),
    ("hardtanh hardtanh_ hardtanh.out",
     r"not implemented for 'u8'",
     "limits may be negative by default, so u8 is not taken; PyTorch looks at their values"),
    ("threshold_ threshold.out threshold_backward threshold_backward.grad_input",
     r"(found dtype|written-to tensor) .*; PyTorch returned|strides=.*PyTorch's is",
     "PyTorch's threshold is a comparison of two tensors that may overlap, and the second decides the strides"),
    ("silu_backward gelu_backward",
     r"fill=(wide|special).*result 0: f32 at",
     "few digits are left near a zero of the derivative, or far to its left"),
    ("masked_fill.Scalar",
     r"result 0: is \S+\[.*\] strides=.*, PyTorch's is",
     "the mask has no say in the strides of PyTorch's result, which is a copy of self written to"),
    ("lerp.Tensor_out",
     r"PyTorch raised RuntimeError: Found dtype",
     "out= may be of another dtype, as for other operators of several tensors"),
    ("logit_ logit logit.out logit_backward logit_backward.grad_input",
     r"returned, but PyTorch raised RuntimeError: value cannot be converted to type c10::Half",
     "eps may be out of the range of f16"),
    ("special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_airy_ai",
     r"result 0: f64 at|(i16|i32|f32)\[.*fill=(wide|special).*result 0: f32 at",
     "PyTorch is off by 2e-7 in f64, and by much where the argument is large: its phase is not reduced"),
    ("special_bessel_j0.out special_bessel_y0.out special_bessel_y1.out special_airy_ai.out",
     r"result 0: f64 at",
     "PyTorch is off by 2e-7 in f64"),
    ("special_erfcx special_erfcx.out",
     r"result 0: f(32|64) at",
     "PyTorch squares an f32 before exp: it is off by 2e-6 at -7.3"),
    ("igamma igammac",
     r"fill=(wide|special).*result 0: \w+ at",
     "PyTorch gives NaN, or the limit of another order, where both arguments are huge or the first is subnormal"),
    ("where.self_out",
     r"returned, but PyTorch raised RuntimeError: Expected out type to be",
     "out= may be of another dtype, which PyTorch refuses for where"),
    ("square.out",
     r"raised RuntimeError: .*found dtype \w+ but expected \w+; PyTorch returned",
     "out= of another dtype: PyTorch's square is a power, which converts; a row cannot say so"),
]


def entries(name):
    return [(re.compile(pattern), why) for names, pattern, why in KNOWN if name.removeprefix("aten::") in names.split()]
