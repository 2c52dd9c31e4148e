"""Where Kiln is known to differ from PyTorch 2.13: operators, the call with what the comparison says of it, and why.

These are PyTorch's own quirks, and calls that are wrong in two ways.  A difference that is not here fails the test.  So does
an operator of an entry that does not meet it any more: in a whole run each must, in a sampled one each without a `*` that is
tested in every combination.  (A whole run makes every call of a sampled one, see cases.py.)  What PyTorch gets wrong by
mpmath needs no entry: see exact.py.
"""
import re

import torch

POWERS = ("pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor float_power.Scalar float_power.Tensor_Tensor float_power.Tensor_Scalar "
          "ldexp.Tensor")


def out_of_range(said):
    """_to_copy: whether the float at the first place that differs cannot be an element of the result."""
    found = re.search(r"result 0: (\w+) at .*, from \(?([^:,)]+)", said)
    low, high = torch.iinfo(INTEGERS[found[1]]).min, torch.iinfo(INTEGERS[found[1]]).max
    value = complex(found[2]).real
    return not low <= value <= high


INTEGERS = {f"{kind}{bits}": getattr(torch, f"{name}{bits}") for kind, name in (("i", "int"), ("u", "uint"))
            for bits in (8, 16, 32, 64)}

# Names, pattern, reason; and a function that must agree too, where a pattern cannot tell.
KNOWN = [
    ("kthvalue kthvalue.values median.dim median.dim_values nanmedian.dim nanmedian.dim_values mode mode.values",
     r"result 1: i64 at",
     "of several equal elements PyTorch picks any; test_select.py looks at the element there"),
    (POWERS,
     r"result 0: c(64|128) at .*from [^:]*(inf|nan)|[(, ](-?inf|nan)[,)].*result 0: c(64|128) at",
     "powers with infinities or NaN in them: C99 leaves them open, and PyTorch's vectors and its single elements differ"),
    ("addcdiv",
     r"result 0: c(64|128) at .*from [^:]*(inf|nan).*PyTorch's .*nan",
     "PyTorch divides by a subnormal complex number through its reciprocal, which is infinite"),
    ("threshold_ threshold.out threshold_backward.grad_input",
     r"written-to tensor .*; PyTorch (returned|raised NotImplementedError)",
     "PyTorch's threshold does not look whether memory is shared"),
    ("masked_fill_.Scalar fill_.Scalar nan_to_num_",
     r"more than one element of the written-to tensor .*PyTorch returned",
     "PyTorch fills an expanded tensor in place, and warns that it will not do so for ever"),
    ("where.self_out",
     r"\(u8\[.*written-to tensor .*PyTorch returned",
     "PyTorch makes a condition of u8 bool first, by a copy that overlaps nothing"),
    ("_to_copy",
     r"\((f|bf|c)\d+\[.*fill=wide.*result 0: (i|u)\d+ at",
     "a float out of the range of an integer type becomes any number, as in C", out_of_range),
    ("ldexp.Tensor ldexp_ ldexp.out*",
     r"ldexp is not implemented for .*; PyTorch raised RuntimeError: (The size|output with shape|unsupported operation|ldexp can't be cast)",
     "a call wrong in two ways: an unsupported dtype is reported before shapes, overlap and out= (ldexp)"),
    ("ldexp_ special_ndtr.out",
     r"some elements of the input tensor and the written-to tensor .*; PyTorch returned",
     "PyTorch computes it from other operators, the first of which makes a new tensor"),
    ("softshrink.out log_sigmoid_forward.output",
     r"raised RuntimeError: .*; PyTorch raised NotImplementedError",
     "a call wrong in two ways: PyTorch looks at what is written to last"),
    ("log_sigmoid_forward.output",
     r"written-to tensor .*; PyTorch returned|result 1: is \S+\[6, 6\] strides=.*, PyTorch's is \S+\[6, 6\] strides=\(6, 1\)",
     "PyTorch does not look whether memory is shared, and makes the buffer row-major"),
    ("binary_cross_entropy_backward",
     r"of tensors of different sizes; PyTorch",
     "PyTorch drops dimensions of one position before it broadcasts, and Kiln leaves such calls to it"),
    ("binary_cross_entropy_backward.grad_input",
     r"grad_input=\w+\[(0|2,3|4,9|7,6)\].*(returned, but PyTorch raised|PyTorch's is \w+\[(0|2, 3|4, 9|7, 6)\])|of tensors of different sizes; PyTorch",
     "PyTorch resizes a view of grad_input, not itself; and it drops dimensions of one position before it broadcasts: Kiln leaves such calls to it"),
    ("binary_cross_entropy_backward",
     r"not implemented for .*PyTorch raised RuntimeError: The size|weight's shape does not broadcast .*PyTorch raised NotImplementedError",
     "a call wrong in two ways: dtypes and shapes"),
    ("smooth_l1_loss_backward huber_loss_backward huber_loss_backward.out*",
     r"^[\w.]+\(.*, -(inf|[\d.e+]+)(\)|, grad_input).*result 0: ",
     "of a negative width, which the loss refuses, PyTorch's vectors and its single elements make different things"),
    ("smooth_l1_loss_backward*",
     r", (9223372036854776833|1e\+40)\).*result 0: .*PyTorch's -?inf",
     "PyTorch multiplies single elements before it divides them by a huge beta"),
    ("mse_loss_backward.grad_input* smooth_l1_loss_backward.grad_input*",
     r"Promotion for uint16.*; PyTorch returned",
     "PyTorch meets the dtypes in another order: a float between two that do not promote with each other"),
    ("mse_loss_backward.grad_input smooth_l1_loss_backward.grad_input*",
     r"can't be cast to the desired output type, self's; PyTorch returned",
     "where a result is given, PyTorch looks at its dtype and not at that of self"),
    ("soft_margin_loss_backward*",
     r"result 0: is \w+\[(\d+, )*[01](, \d+)*\] strides=",
     "strides along dimensions of one position, or of no elements, mean nothing, and PyTorch's last operator makes others"),
    ("soft_margin_loss_backward.grad_input",
     r"^soft_margin_loss_backward.grad_input\((bf16|f32|f64)\[.*grad_input=b?f16\[.*result 0: b?f16 at",
     "PyTorch rounds to the dtype of what is written to after each operation"),
    ("soft_margin_loss_backward soft_margin_loss_backward.grad_input*",
     r"of tensors of different dtypes; PyTorch",
     "PyTorch rounds to the dtype of self after each operation, and Kiln leaves such calls to it"),
    ("soft_margin_loss_backward.grad_input",
     r"result type Float can't be cast to the desired output type, self's; PyTorch returned",
     "PyTorch takes integers where a float is written to"),
    ("soft_margin_loss_backward*",
     r"\(c64\[.*fill=wide.*result 0: c64 at",
     "e to the power of a large number: a last place of the exponent, which rounding leaves open, is many of the result"),
    ("fill.Scalar fill_.Scalar full_like",
     r"^\w+(\.Scalar)?\(\w+\[(1(,1)*)?\](:strides=\S+)?, .*value cannot be converted to type b?f16 without overflow; PyTorch returned",
     "beside a half of one element PyTorch converts the number without a check"),
    ("conj_physical",
     r"result 0: is ([^c]\w+)\[.*\] strides=.*, PyTorch's is \1",
     "of real numbers PyTorch returns the argument itself, with its strides"),
    ("conj_physical_ conj_physical.out",
     r"conj_physical.*(refers? to a single memory.*PyTorch returned|returned, but PyTorch raised NotImplementedError)",
     "the in-place form of PyTorch does nothing for real numbers, and its out form takes fewer dtypes"),
    ("logical_not.out",
     r"returned, but PyTorch raised NotImplementedError: .*UInt",
     "out= may be of any dtype, in PyTorch not of u16, u32 and u64"),
    ("pow.Scalar_out",
     r"\(1, .*(refers? to a single|result type \w+ can't be cast).*; PyTorch returned",
     "PyTorch fills out= with ones for 1 ** x without looking at x, whatever its dtype"),
    ("clamp clip hardtanh clamp.out*",
     r"[(, ]nan[,)].*value cannot be converted to type \w+ without overflow; PyTorch returned",
     "a bound of NaN makes PyTorch ignore that the other bound does not fit"),
    ("div.Tensor_mode div_.Tensor_mode div.out_mode clamp.Tensor clamp_.Tensor clamp.Tensor_out clip_.Tensor "
     "clip.Tensor clip.Tensor_out",
     r"raised NotImplementedError: .*not implemented for 'Bool'; PyTorch raised RuntimeError",
     "a call wrong in two ways: an unsupported dtype is reported before shapes and overlap"),
    ("abs.out absolute.out angle.out nan_to_num.out special_ndtr.out",
     r"out empty, of transposed ones.*result 0: is (\S+\[6, 6\]) strides=.*, PyTorch's is \1 strides=",
     "the strides of an empty out=, where PyTorch takes a way of its own for some dtypes"),
    ("fmax fmin",
     r"fill=wide.*result 0: \w+ at .*from [^:]*nan.*PyTorch's nan",
     "PyTorch's fmax and fmin of a number and a signalling NaN is NaN, in C as the library takes it"),
]


def names():
    """Every operator of an entry."""
    return {"aten::" + name.removesuffix("*") for entry in KNOWN for name in entry[0].split()}


class Entries:
    """The known differences of one operator, and which of them it has met."""

    def __init__(self, name, whole, more=()):
        """more: entries besides those above, which need not be met."""
        self.name = name.removeprefix("aten::")
        self.mine, self.must = [], set()
        for names, pattern, why, *holds in (*KNOWN, *more):
            for listed in names.split():
                if listed.removesuffix("*") == self.name:
                    self.mine.append((re.compile(pattern), why, *holds))
                    self.must |= {why} if (whole or not listed.endswith("*")) and not more else set()
        self.met = set()

    def why(self, said):
        """The reason for a difference that is known, or None."""
        for pattern, why, *holds in self.mine:
            if pattern.search(said) and all(h(said) for h in holds):
                self.met.add(why)
                return why
        return None

    def stale(self):
        return self.must - self.met
