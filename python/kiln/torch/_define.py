"""A row as an operator of PyTorch's: schema, kernel, shapes for tracing, gradients, batching.

All of it follows from the row.  The kernel is the bridge's; dtypes, shapes and strides of traced calls are Kiln's own
inference, asked with small stand-ins; gradients are rows that Kiln derives (kiln_op_grad), defined as operators in the same way, whose own
gradients are made when somebody first asks for them.  Nothing here knows an operator.
"""
import re
import textwrap
import threading

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd.function import _SingleLevelFunction
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.utils._python_dispatch import _disable_current_modes

from .. import _kiln

_lock = threading.RLock()
_defined = {}  # by name
_loaded = set()  # names whose rows were given to Kiln here
_HEAD = re.compile(r"\s*(\w+)\s+([\w:]+(?:\.\w+)?)\s*\(")
_SIZES = re.compile(r"\b(size|span|single|alike|numel|covers)\s*\(")
_BEYOND = re.compile(r"^\s+(view|writes|gives|rest)\b", re.MULTILINE)  # clauses that dtypes and shapes of traced calls know nothing of


class _Layout:
    """A tensor of a traced call, and stand-ins for it: Kiln is asked what it would make of them."""

    def __init__(self, tensor, first):
        """first: the dimension of the whole, to which all tensors broadcast, that is the tensor's first one."""
        self.dtype, self.first = tensor.dtype, first
        self.sizes = [1 if _is_one(size) else 2 for size in tensor.shape]
        strides = tensor.stride()
        dims = range(tensor.dim())
        if not tensor.is_contiguous():
            dims = sorted(dims, key=lambda dim: -strides[dim])
        self.strides, inner = [0] * tensor.dim(), 1
        for dim in reversed(dims):
            if self.sizes[dim] == 1 or not guard_or_false(strides[dim] == 0):
                self.strides[dim] = inner
                inner *= self.sizes[dim]

    def marked(self):
        """Sizes that name the dimensions of the whole: 2 is the first, 3 the second."""
        return torch.zeros((), dtype=self.dtype).expand([2 + self.first + dim for dim in range(len(self.sizes))])

    def placed(self):
        """Dimensions of one element, order in memory and repeated ones as they are."""
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype).zero_()


def _is_one(size):
    return size == 1 if isinstance(size, int) else guard_or_false(size == 1)


class _Operator:
    """One row as an operator.  What it registers lives as long as its library."""

    def __init__(self, name, row, differentiable):
        self.name, self.row, self.differentiable = name, row, differentiable
        self.kiln = _kiln.op(name if "." in name else f"{name}.default").__self__
        # Whether the values of numbers may decide anything but numbers.
        self.asks = self.kiln.family != "map" or re.search(r"^\s+(when|check|static|host)\b", row, re.M) is not None
        self.namespace, _, rest = name.partition("::")
        self.library = torch.library.Library(self.namespace, "FRAGMENT")
        self.library.define(self.kiln.schema.partition("::")[2], tags=(torch.Tag.pt2_compliant_tag,))
        packet, _, overload = rest.partition(".")
        self.op = getattr(getattr(getattr(torch.ops, self.namespace), packet), overload or "default")
        self.parameters = self.op._schema.arguments
        self.gradients = None  # argument's place -> its gradient's _Operator
        self.is_stated = re.search(r"^\s+grad\b", row, re.M) is not None
        self.ignored = set(re.findall(r"\w+", " ".join(re.findall(r"^\s+ignore\b([^#\n]*)", row, re.M))))

    def register(self):
        fit = _kiln.bridge_own(self.name)
        if fit:
            raise RuntimeError(f"{self.name} cannot be registered with PyTorch's dispatcher (bridge: {fit})")
        torch.library.register_fake(self.op, self.fake, lib=self.library)
        self.library.impl(self.op, self.recorder(), "Autograd", with_keyset=True)
        torch.library.register_vmap(self.op, self.batched, lib=self.library)

    def close(self):
        _kiln.bridge_drop(self.name)
        self.library._destroy()
        for gradient in (self.gradients or {}).values():
            gradient.close()

    # -- shapes and dtypes -----------------------------------------------------------------------------------------------

    def arguments(self, args, kwargs):
        """All arguments in the order of the schema, with defaults."""
        given = list(args)
        for parameter in self.parameters[len(args):]:
            given.append(kwargs[parameter.name] if parameter.name in kwargs else parameter.default_value)
        return given

    def sorted(self, given):
        """The same by position and by name."""
        return ([value for value, p in zip(given, self.parameters) if not p.kwarg_only],
                {p.name: value for value, p in zip(given, self.parameters) if p.kwarg_only})

    def infer(self, given):
        positional, named = self.sorted(given)
        return _kiln.infer_results(self.name, *positional, **named)

    def call(self, given):
        positional, named = self.sorted(given)
        return self.op(*positional, **named)

    def number(self, value):
        """A traced number is traced on, unless conditions of the row may ask for it."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
            return kind(value) if self.asks or kind is bool else kind(2)
        return [self.number(item) for item in value] if isinstance(value, (list, tuple)) else value

    def whole(self, given):
        """The shape to which all tensors broadcast."""
        return torch.broadcast_shapes(*(value.shape for value, p in zip(given, self.parameters)
                                        if isinstance(value, torch.Tensor) and p.name not in self.ignored))

    def ask(self, given, whole):
        """What Kiln says of the results, by stand-ins that name dimensions and by some that lie as the tensors do."""
        layouts = [_Layout(value, max(len(whole) - value.dim(), 0)) if isinstance(value, torch.Tensor) else None
                   for value in given]
        numbers = [None if isinstance(value, torch.Tensor) else self.number(value) for value in given]
        with _disable_current_modes(), torch._C._DisableFuncTorch():
            return tuple(self.infer([value if layout is None else getattr(layout, how)() for value, layout in zip(numbers, layouts)])
                         for how in ("marked", "placed"))

    def fake(self, *args, **kwargs):
        given = self.arguments(args, kwargs)
        device = next(value.device for value in given if isinstance(value, torch.Tensor))
        whole = self.whole(given)
        results = []
        for (dtype, marks, _, _), (_, _, places, _) in zip(*self.ask(given, whole)):
            sizes = [whole[mark - 2] if mark > 1 else 1 for mark in marks]
            strides, inner = [1] * len(sizes), 1
            for dim in sorted(range(len(sizes)), key=lambda dim: (places[dim], -dim)):
                strides[dim] = inner
                inner = inner * torch.sym_max(sizes[dim], 1)
            results.append(torch.empty_strided(sizes, strides, dtype=getattr(torch, dtype.name), device=device))
        return results[0] if len(results) == 1 else tuple(results)

    # -- gradients ----------------------------------------------------------------------------------------------------------

    def derive(self):
        """Defines the gradients, once.  The rows are Kiln's; NotImplementedError names what has no derivative."""
        with _lock:
            if self.gradients is not None:
                return
            rows = {place: _kiln.op_grad(self.name, place) for place in range(len(self.parameters))}
            made = {}
            try:
                for place, row in rows.items():
                    if row:
                        name = _HEAD.match(row).group(2)
                        _load(name, row, False)
                        made[place] = _make(name, row, True)
            except BaseException:
                for gradient in made.values():
                    gradient.close()
                raise
            self.gradients = made

    def recorder(self):
        """The kernel that records calls for gradients.  torch.library.register_autograd makes one that torch.func.grad refuses:
        this one is of the level of torch.func's that is being run, as those of PyTorch's own operators are."""
        def below(keys, given):
            with torch._C._AutoDispatchBelowAutograd():
                positional, named = self.sorted(given)
                return self.op.redispatch(keys & torch._C._after_autograd_keyset, *positional, **named)

        class Recorded(_SingleLevelFunction):
            @staticmethod
            def forward(ctx, keys, *given):
                with torch.enable_grad():  # an outer level may record, too
                    results = below(keys, given)
                self.save(ctx, given, results if isinstance(results, tuple) else (results,))
                return results

            @staticmethod
            def backward(ctx, *grads):
                return None, *self.backward(ctx, ctx.needs_input_grad[1:], grads)

        def kernel(keys, *args, **kwargs):
            given = self.arguments(args, kwargs)
            if not torch.is_grad_enabled() or not torch._C._any_requires_grad(*given):
                return below(keys, given)
            with enable_single_level_autograd_function():
                return Recorded.apply(keys, *unwrap_dead_wrappers(tuple(given)))

        Recorded.__name__ = Recorded.__qualname__ = re.sub(r"\W+", "_", self.name)
        return kernel

    def save(self, ctx, given, results):
        if any(isinstance(v, torch.Tensor) and v.is_complex() for v in (*given, *results)):
            raise NotImplementedError(f"{self.name}: gradients of complex tensors are not served")
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in given]
        ctx.places = [place for place, value in enumerate(given) if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(given[place] for place in ctx.places), *(results if self.is_stated else ()))

    def backward(self, ctx, needs, grads):
        if not self.differentiable:
            raise RuntimeError(f"{self.name} was defined with differentiable=False: it has no gradient")
        self.derive()
        values = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            values[place] = tensor
        results = ctx.saved_tensors[len(ctx.places):]
        words = {"grad": [self.spread(grad, values) for grad in grads],
                 "result": [self.spread(result, values) for result in results]}
        return [self.gradient(place, values, words) if needed else None for place, needed in enumerate(needs)]

    def gradient(self, place, values, words):
        made = self.gradients.get(place)
        if made is None:
            return None
        known = {p.name: value for p, value in zip(self.parameters, values)}
        for parameter in made.parameters:  # kiln_row_grad_name
            if parameter.name not in known:
                word, *which = parameter.name.split("_")
                known[parameter.name] = words[word][int(which[0]) if len(words[word]) > 1 else 0]
        out = made.op(*(known[p.name] for p in made.parameters)).to(values[place].dtype)
        return out if out.shape == values[place].shape else out.sum_to_size(values[place].shape)

    def spread(self, result, values):
        """A fold's result, or its gradient, broadcast to what was folded."""
        if self.kiln.family != "fold":
            return result
        whole = self.whole(values)
        marked, _ = self.ask(values, whole)
        kept = {mark - 2 for mark in marked[0][1] if mark > 1}
        if len(marked[0][1]) < len(whole):
            for dim in range(len(whole)):
                result = result if dim in kept else result.unsqueeze(dim)
        return result.expand(whole)

    # -- batches --------------------------------------------------------------------------------------------------------------

    def batched(self, info, in_dims, *args, **kwargs):
        given = self.arguments(args, kwargs)
        dims = [dim if isinstance(value, torch.Tensor) else None for value, dim in zip(args, in_dims)]
        dims += [None] * (len(given) - len(dims))
        ranks = [value.dim() - (dim is not None) for value, dim in zip(given, dims) if isinstance(value, torch.Tensor)]
        batched = [dim is not None for value, dim in zip(given, dims) if isinstance(value, torch.Tensor)]
        alike = min(ranks) > 0 or (max(ranks) == 0 and all(batched))  # else the batch dimension would decide dtypes
        if self.asks or not alike:
            return self.one_by_one(info.batch_size, dims, given)
        moved = []
        for value, dim in zip(given, dims):
            if dim is not None:
                value = value.movedim(dim, 0)
                value = value.reshape(value.shape[0], *[1] * (max(ranks) - value.dim() + 1), *value.shape[1:])
            moved.append(value)
        out = self.call(moved)
        return out, (0,) * len(out) if isinstance(out, tuple) else 0

    def one_by_one(self, size, dims, given):
        """Where a batch dimension would change what the operator sees: ranks, dtypes of numbers, dimensions by number."""
        def at(k):
            return [value if dim is None else value.select(dim, k) for value, dim in zip(given, dims)]
        if size == 0:
            empty = self.call([value if dim is None else value.new_zeros([n for d, n in enumerate(value.shape) if d != dim])
                               for value, dim in zip(given, dims)])
            outs = [empty if isinstance(empty, tuple) else (empty,)]
            stacked = tuple(torch.stack(parts)[:0] for parts in zip(*outs))
        else:
            outs = [self.call(at(k)) for k in range(size)]
            outs = [out if isinstance(out, tuple) else (out,) for out in outs]
            stacked = tuple(torch.stack(parts) for parts in zip(*outs))
        return (stacked, (0,) * len(stacked)) if len(stacked) > 1 else (stacked[0], 0)


def _names(row):
    """The names of the rows in a text."""
    return [match.group(2) for line in row.splitlines() if line[:1].strip() and line[0] != "#" and (match := _HEAD.match(line))]


def _check(name, row):
    if not isinstance(name, str) or not isinstance(row, str):
        raise TypeError("an operator is defined by its name and its row, as str")
    found = _names(row)
    if len(found) != 1:
        raise ValueError(f"{name}: one row is wanted, as in 'map {name}(Tensor x) -> Tensor : takes float = x * x'; "
                         f"found {len(found)}")
    if found[0] != name:
        raise ValueError(f"the row is of {found[0]}, and not of {name}")
    namespace = name.partition("::")[0]
    if "::" not in name or namespace in ("aten", "prim", "prims"):
        raise ValueError(f"{name}: an operator of your own is in a namespace of its own, as my::{name.rpartition('::')[2]}")
    if _SIZES.search(row):
        raise NotImplementedError(f"{name}: a condition on sizes (size, span, numel, single, alike, covers) cannot be traced, so PyTorch cannot have the row")
    if clause := _BEYOND.search(row):
        raise NotImplementedError(f"{name}: the clause {clause[1]!r} cannot be traced, so PyTorch cannot have the row")


def _load(name, row, replace):
    """Gives Kiln the row.  One that was not defined in the end, for want of a derivative, gives way."""
    try:
        _kiln.load_ops(row, replace=replace or name in _loaded)
        _loaded.add(name)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def define(name, row, *, differentiable=True, replace=False):
    """kiln.torch.define, once the bridge is loaded."""
    row = textwrap.dedent(row).strip("\n") + "\n" if isinstance(row, str) else row
    _check(name, row)
    with _lock:
        old = _defined.get(name)
        if old and (old.row, old.differentiable) == (row, differentiable):
            return old.op
        if old and not replace:
            raise ValueError(f"{name} is defined already, by another row; replace=True replaces it")
        _load(name, row, replace)
        if old:
            _defined.pop(name).close()
        _defined[name] = _make(name, row, differentiable, now=True)
        return _defined[name].op


def _make(name, row, differentiable, now=False):
    """The operator, registered.  now: with its gradients, so that what has none is found."""
    if _exists(*name.partition(".")[::2]):
        raise ValueError(f"PyTorch has an operator {name} already")
    made = _Operator(name, row, differentiable)
    try:
        if now and differentiable:
            made.derive()
        made.register()
    except BaseException:
        made.close()
        raise
    return made


def _exists(base, overload):
    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
