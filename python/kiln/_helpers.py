"""What the C side asks Python for: rare paths, above all those that need NumPy or PyTorch, and texts.

Neither library is imported for its own sake: a value of theirs means it is there already.
"""
import collections
import decimal
import math
import sys

from . import _kiln

_PYTHON_TYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}  # as PyTorch reads them
_DTYPES = {}  # dtypes of other libraries, as kiln.dtype

ResultInfo = collections.namedtuple("ResultInfo", ["dtype", "shape", "strides", "arg"])  # of kiln.infer_results


def dtype_name(value):
    """The name of the element type that `value` stands for, or None: torch.float32, numpy.float32, float, ..."""
    if value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if numpy is not None and (isinstance(value, numpy.dtype) or isinstance(value, type) and issubclass(value, numpy.generic)):
        return numpy.dtype(value).name
    return None


def plain_value(value):
    """An argument that is no number, text, list or tensor: a kiln.dtype, the text of a device or layout, a generator itself."""
    try:
        known = _DTYPES.get(value)
        name = None if known is not None else dtype_name(value)
    except TypeError:  # not hashable
        known = name = None
    if known is not None:
        return known
    if name is not None:
        found = getattr(_kiln, name, None)
        if not isinstance(found, _kiln.dtype):
            raise NotImplementedError(f"dtype {name} is not served")
        _DTYPES[value] = found
        return found
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    if torch is not None and isinstance(value, torch.Generator):
        return value  # the call is given the object as it is
    raise TypeError(f"an argument of type {type(value).__qualname__} is not taken: expected a tensor, a bool, int, float or "
                    "complex number, a text, a list or a dtype")


# -- NumPy ---------------------------------------------------------------------------------------------------

def native_array(array):
    """A copy that can be described by whole elements in the machine's byte order."""
    import numpy
    return numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)


def numpy_view(tensor):
    """An ndarray over the tensor's memory."""
    import numpy
    return numpy.from_dlpack(tensor)


def as_array(array, dtype, copy):
    """What __array__ returns for numpy.asarray(tensor, dtype) and numpy.array(tensor, copy=...)."""
    import numpy
    if dtype is not None and numpy.dtype(dtype) != array.dtype:
        if copy is False:
            raise ValueError("a copy is needed for another dtype")
        return array.astype(dtype)
    return array.copy() if copy else array


# -- PyTorch --------------------------------------------------------------------------------------------------

def torch_samples():
    """Tensors that differ in what py_torch.c asks: a plain one, a negated view, a conjugated one, one that requires grad, and
    one of the default dtype."""
    import torch
    with torch.inference_mode(False), torch.device("cpu"):
        plain = torch.zeros(1, dtype=torch.float32)
        return (plain, torch._neg_view(plain), torch.zeros(1, dtype=torch.complex64).conj(),
                torch.zeros(1, dtype=torch.float32, requires_grad=True), torch.zeros(1))


def follows_default(name):
    """Whether torch.set_default_dtype says other than float32, and PyTorch has an operator of that name that follows it."""
    torch = sys.modules["torch"]
    return torch.get_default_dtype() is not torch.float32 and torch._C._dispatch_has_kernel(name)


def is_recorded(tensor):
    """Whether PyTorch records what is done to the tensor: it requires grad, or has a tangent of forward mode."""
    torch = sys.modules["torch"]
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    return torch._C._is_fwd_grad_enabled() and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def before_write(tensor):
    """Refuses a write that autograd would not notice."""
    torch = sys.modules["torch"]
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError("an inference tensor is written outside InferenceMode, where writes to it are not counted; "
                           "write to a clone of it")


def write_back(target, copy):
    """The elements of a copy that was written in the place of `target`."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(target, torch.Tensor):
        import numpy
        numpy.copyto(target, copy)
        return
    with torch.no_grad():
        target.copy_(copy)


def resize_to(tensor, result):
    """An output without elements takes the result's shape, strides and elements."""
    torch = sys.modules["torch"]
    source = torch.from_dlpack(result)
    with torch.no_grad():
        tensor.resize_(source.shape).as_strided_(source.shape, source.stride()).copy_(source)


def after_write(tensor):
    """Counts the write, so that autograd notices a saved tensor that changed."""
    sys.modules["torch"]._C._increment_version((tensor,))


# -- operators ------------------------------------------------------------------------------------------------

def rounded(tensor, decimals):
    """round(tensor, decimals)."""
    return _kiln.call("aten::round.decimals", tensor, decimals=decimals)


# -- texts -----------------------------------------------------------------------------------------------------

_EDGE = 3  # items shown at each end of a long dimension
_MANY = 1000  # elements from which dimensions are shortened
_WIDTH = 80  # columns that a row may take
# Decimals next to a number, by their digits: 9 name an element of any dtype but float64.  The one further from zero is
# tried too: above a power of two elements lie further apart than below, so it may name the power where the nearest does not.
_NEAR = [decimal.Context(prec=digits, rounding=how) for digits in range(1, 10)
         for how in (decimal.ROUND_HALF_EVEN, decimal.ROUND_UP)]


def _shortest(value, dtype):
    """The fewest digits that read back as the same element of `dtype`, with Python's choice of an exponent."""
    text = repr(value)
    if dtype != _kiln.float64 and math.isfinite(value):
        tries = (float(context.create_decimal_from_float(value)) for context in _NEAR)
        text = repr(next(near for near in tries if _kiln.Tensor(near, dtype).item() == value))
    return text.removesuffix("0") if text.endswith(".0") else text


def _number(value, dtype):
    if isinstance(value, complex):
        part = _kiln.float64 if dtype == _kiln.complex128 else _kiln.float32
        imaginary = _shortest(value.imag, part)
        return _shortest(value.real, part) + ("" if imaginary.startswith("-") else "+") + imaginary + "j"
    return _shortest(value, dtype) if isinstance(value, float) else str(value)


def _texts(tensor, short):
    """The elements' texts in nested lists, with "..." where a dimension is shortened."""
    if tensor.ndim == 0:
        return _number(tensor.item(), tensor.dtype)
    n = len(tensor)
    if short and n > 2 * _EDGE:
        shown = [*range(_EDGE), None, *range(n - _EDGE, n)]
        return ["..." if k is None else _texts(tensor[k], short) for k in shown]
    return [_texts(row, short) for row in tensor]


def _width(texts):
    if isinstance(texts, str):
        return 0 if texts == "..." else len(texts)
    return max(map(_width, texts), default=0)


def _row(texts, width, indent):
    """One row, in as many lines as it needs."""
    lines, line = [], ""
    for text in texts:
        text = (text if text == "..." else text.rjust(width)) + ", "
        if line and indent + len(line) + len(text) > _WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += text
    return "[" + ("\n" + " " * (indent + 1)).join([*lines, line.removesuffix(", ")]) + "]"


def _block(texts, depth, width, indent):
    """Nested lists as text: rows under each other, and an empty line more between blocks of each higher rank."""
    if depth == 1:
        return _row(texts, width, indent)
    parts = [text if text == "..." else _block(text, depth - 1, width, indent + 1) for text in texts]
    return "[" + ("," + "\n" * (depth - 1) + " " * (indent + 1)).join(parts) + "]"


def operator_name(operator):
    """The name of an operator of torch.ops."""
    torch = sys.modules.get("torch")
    if torch and isinstance(operator, torch._ops.OpOverload):
        return operator.name()
    if torch and isinstance(operator, torch._ops.OpOverloadPacket):
        return str(operator).replace(".", "::")
    raise TypeError(f"an operator's name must be str, not {operator!r}")


def through_torch(name, args, kwargs):
    """The call through PyTorch, which records its gradients, with Kiln's kernel beneath, or follows its default dtype."""
    import torch
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base), overload or "default")(*args, **kwargs)


def tensor_text(tensor):
    """repr of a kiln.Tensor."""
    name = "kiln.Tensor("
    shape = f", shape={tensor.shape}" if tensor.size == 0 or tensor.size > _MANY else ""
    texts = _texts(tensor, tensor.size > _MANY) if tensor.size > 0 else "[]"
    if isinstance(texts, list):
        texts = _block(texts, tensor.ndim, _width(texts) if tensor.ndim > 1 else 0, len(name))
    return f"{name}{texts}, dtype={tensor.dtype}{shape})"
