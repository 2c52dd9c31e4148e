"""Where Kiln is known to differ from PyTorch 2.13: operators, the call with what the comparison says of it, and why.

A difference that is not here fails the test; so does an entry that is no longer met, which is then to be deleted.
"""
import re

# Out forms that PyTorch generates: they compute a new tensor and copy it.
BITS = " ".join(f"bitwise_{name}.Scalar_Tensor_out" for name in "and or xor left_shift right_shift".split())
GENERATED = "add.Scalar_out mul.Scalar_out div.Scalar_out isnan.out " + BITS

KNOWN = [
    ("pow.Tensor_Scalar pow_.Scalar pow.Tensor_Scalar_out",
     r"returned, but PyTorch raised RuntimeError: value cannot be converted to type [\w:]+ without overflow",
     "a number that fits the type the kernel computes in is not refused for not fitting the tensor's"),
    ("clamp",
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
    ("div.Tensor_mode div_.Tensor_mode div.out_mode clamp.Tensor clamp_.Tensor clamp.Tensor_out",
     r"raised NotImplementedError: .*not implemented for 'Bool'; PyTorch raised RuntimeError",
     "a call wrong in two ways: an unsupported dtype is reported before shapes and overlap"),
    (GENERATED,
     r"returned, but PyTorch raised RuntimeError: Expected out tensor to have dtype",
     "out= may be of another dtype for every operator, in PyTorch not for those whose out form is generated"),
    (GENERATED + " relu.out where.self_out",
     r"raised RuntimeError: .*written-to tensor .*PyTorch returned",
     "out= may never overlap an input, in PyTorch it may where the out form is generated"),
    (BITS,
     r"raised RuntimeError: .*; PyTorch raised NotImplementedError",
     "a call wrong in two ways: PyTorch looks at out= after computing where the out form is generated"),
    ("sub.Tensor sub_.Tensor sub.out",
     r"alpha=-9223372036854775808\b.*result 0",
     "PyTorch negates alpha as an integer, and the smallest one has no negative"),
    ("pow.Scalar_out",
     r"Scalar_out\((1|true), .*result type \w+ can't be cast.*PyTorch returned",
     "PyTorch fills out= with ones for 1 ** x, whatever its dtype"),
    ("where.self_out",
     r"returned, but PyTorch raised RuntimeError: Expected out type to be",
     "out= may be of another dtype, which PyTorch refuses for where"),
    ("square.out",
     r"raised RuntimeError: .*found dtype \w+ but expected \w+; PyTorch returned",
     "out= of another dtype: PyTorch's square is a power, which converts; a row cannot say so"),
]


def entries(name):
    return [(re.compile(pattern), why) for names, pattern, why in KNOWN if name.removeprefix("aten::") in names.split()]
