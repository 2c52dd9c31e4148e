"""A row as an operator of PyTorch's: schema, kernel, shapes for tracing, gradients, batching.

All of it follows from the row.  The kernel is the bridge's; dtypes, shapes and strides of traced calls are Kiln's own
inference, asked with small stand-ins; gradients are rows that Kiln derives (kiln_op_grad), defined as operators in the same way, whose own
gradients are made when somebody first asks for them.  Nothing here knows an operator.

An Operator is what PyTorch has: a name and a schema.  A Definition is what a row says of it.  A new row of the same schema
gives the Operator another Definition, so that PyTorch, and threads that call, notice nothing; _define.py makes such changes.
"""
import re
import threading

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd.function import _SingleLevelFunction
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.fx.operator_schemas import _SCHEMA_TO_SIGNATURE_CACHE
from torch.utils._python_dispatch import _disable_current_modes

from .. import _kiln
from .._lock import lock


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


class Definition:
    """What a row says of an operator.  Nothing changes but gradients, which are made once."""

    def __init__(self, row, family, differentiable):
        self.row, self.differentiable, self.is_fold = row, differentiable, family == "fold"
        # Whether the values of numbers may decide anything but numbers.
        self.asks = family != "map" or re.search(r"^\s+(when|check|static|host)\b", row, re.M) is not None
        self.is_stated = re.search(r"^\s+grad\b", row, re.M) is not None
        self.ignored = set(re.findall(r"\w+", " ".join(re.findall(r"^\s+ignore\b([^#\n]*)", row, re.M))))
        self.gradients = None  # argument's place -> its gradient's Operator


class _Gone:
    """Stands for the C++ side of an operator that was ended, in what programs still hold of it."""

    def __init__(self, name, was):
        self.name, self.hash = name, hash(was)

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.name} is not defined any more, or has another schema now: take it from torch.ops again")

    redispatch_boxed = __call__

    def __hash__(self):  # operators of torch.ops hash as this does
        return self.hash


def _end(library):
    """Ends a torch.library.Library, whose finalizer then finds nothing to do: it may run when the names have other operators."""
    library._destroy()
    torch.library._defs.difference_update(library._op_defs)
    for name in library._op_defs:
        base, _, overload = name.partition(".")
        _SCHEMA_TO_SIGNATURE_CACHE.pop((base, overload), None)
    library._op_defs.clear()
    library._op_impls.clear()


class Operator:
    """An operator of PyTorch's.  What it registers with PyTorch lives from open() to close()."""

    def __init__(self, name, schema):
        """schema: without the namespace."""
        self.name, self.schema = name, schema
        self.full = name if "." in name else f"{name}.default"
        self.parent = None  # the name of the operator that this one is a gradient of
        self.now = None  # its Definition; None: nobody may call it, but PyTorch still has it
        self.changer = None  # the thread that is about to change `now`
        self.library = self.packet = self.op = None

    def open(self):
        """Registers with PyTorch all that the schema decides; calls must wait for the kernel."""
        namespace, _, rest = self.name.partition("::")
        packet, _, overload = rest.partition(".")
        self.library = torch.library.Library(namespace, "FRAGMENT")
        self.library.define(self.schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.packet = getattr(getattr(torch.ops, namespace), packet)
        self.op = getattr(self.packet, overload or "default")
        self.parameters = self.op._schema.arguments
        torch.library.register_fake(self.op, self.fake, lib=self.library)
        self.library.impl(self.op, self.recorder(), "Autograd", with_keyset=True)
        torch.library.register_vmap(self.op, self.batched, lib=self.library)

    def serve(self):
        """The kernel is the one of Kiln's row of that name from now on."""
        fit = _kiln.bridge_own(self.name)
        if fit:
            raise RuntimeError(f"{self.name} cannot be registered with PyTorch's dispatcher (bridge: {fit})")

    def close(self):
        """Ends the operator.  What programs hold of it raises from now on: PyTorch's own would use freed memory."""
        if self.library is None:
            return
        _kiln.bridge_forget(self.name)
        if self.op is not None:
            self.op._op = self.op._op_dk = self.op._handle = _Gone(self.name, self.op)
        _end(self.library)
        self.library = None
        if self.packet is not None:
            try:
                torch._ops._refresh_packet(self.packet)  # other overloads of that name live on
            except (AssertionError, RuntimeError):
                self.packet._op = _Gone(self.packet._qualified_op_name, self.packet)

    def open_again(self):
        """Undoes close(): what programs hold of the operator works again."""
        if self.library is not None:
            return
        op, packet = self.op, self.packet
        self.open()
        op._op, op._op_dk, op._handle = self.op._op, self.op._op_dk, self.op._handle
        packet._op, packet._overload_names = self.packet._op, self.packet._overload_names
        setattr(getattr(torch.ops, packet._qualified_op_name.partition("::")[0]), packet.__name__, packet)
        self.op, self.packet = op, packet

    def settled(self):
        """The definition that calls have now.  Waits while another thread changes it."""
        if self.changer not in (None, threading.get_ident()):
            with lock:
                pass
        if self.now is None:
            raise RuntimeError(f"{self.name} is not defined any more")
        return self.now

    def is_still(self, definition):
        """Whether calls had this definition until now."""
        return self.changer in (None, threading.get_ident()) and self.now is definition

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
        return _kiln.infer_results(self.full, *positional, **named)

    def call(self, given):
        positional, named = self.sorted(given)
        return self.op(*positional, **named)

    def number(self, value, asks):
        """A traced number is traced on, unless conditions of the row may ask for it."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
            return kind(value) if asks or kind is bool else kind(2)
        return [self.number(item, asks) for item in value] if isinstance(value, (list, tuple)) else value

    def whole(self, definition, given):
        """The shape to which all tensors broadcast."""
        return torch.broadcast_shapes(*(value.shape for value, p in zip(given, self.parameters)
                                        if isinstance(value, torch.Tensor) and p.name not in definition.ignored))

    def ask(self, definition, given, whole):
        """What Kiln says of the results, by stand-ins that name dimensions and by some that lie as the tensors do."""
        layouts = [_Layout(value, max(len(whole) - value.dim(), 0)) if isinstance(value, torch.Tensor) else None
                   for value in given]
        numbers = [None if isinstance(value, torch.Tensor) else self.number(value, definition.asks) for value in given]
        with _disable_current_modes(), torch._C._DisableFuncTorch():
            return tuple(self.infer([value if layout is None else getattr(layout, how)() for value, layout in zip(numbers, layouts)])
                         for how in ("marked", "placed"))

    def fake(self, *args, **kwargs):
        definition = self.settled()
        given = self.arguments(args, kwargs)
        device = next(value.device for value in given if isinstance(value, torch.Tensor))
        whole = self.whole(definition, given)
        results = []
        for (dtype, marks, _, _), (_, _, places, _) in zip(*self.ask(definition, given, whole)):
            sizes = [whole[mark - 2] if mark > 1 else 1 for mark in marks]
            strides, inner = [1] * len(sizes), 1
            for dim in sorted(range(len(sizes)), key=lambda dim: (places[dim], -dim)):
                strides[dim] = inner
                inner = inner * torch.sym_max(sizes[dim], 1)
            results.append(torch.empty_strided(sizes, strides, dtype=getattr(torch, dtype.name), device=device))
        return results[0] if len(results) == 1 else tuple(results)

    # -- gradients ----------------------------------------------------------------------------------------------------------

    def derive(self, definition):
        """Defines the gradients, once."""
        with lock:
            if definition.gradients is None and self.now is definition:
                from . import _define
                _define.derive(self)

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
                ctx.definition = None
                while not ctx.definition or not self.is_still(ctx.definition):
                    ctx.definition = self.settled()
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
        ctx.save_for_backward(*(given[place] for place in ctx.places), *(results if ctx.definition.is_stated else ()))

    def backward(self, ctx, needs, grads):
        definition = ctx.definition
        if not definition.differentiable:
            raise RuntimeError(f"{self.name} was defined with differentiable=False: it has no gradient")
        self.derive(definition)
        values = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            values[place] = tensor
        results = ctx.saved_tensors[len(ctx.places):]
        made = self.gradients(definition, needs, values, grads, results) if definition.gradients is not None else None
        if self.changer not in (None, threading.get_ident()) or self.now is not definition:
            raise RuntimeError(f"{self.name} was replaced after this call of it was recorded, and the row that its gradient "
                               "follows from is gone: make the call again")
        return made

    def gradients(self, definition, needs, values, grads, results):
        words = {"grad": [self.spread(definition, grad, values) for grad in grads],
                 "result": [self.spread(definition, result, values) for result in results]}
        return [self.gradient(definition.gradients.get(place), place, values, words) if needed else None
                for place, needed in enumerate(needs)]

    def gradient(self, made, place, values, words):
        if made is None:
            return None
        known = {p.name: value for p, value in zip(self.parameters, values)}
        for parameter in made.parameters:  # kiln_row_grad_name
            if parameter.name not in known:
                word, *which = parameter.name.split("_")
                known[parameter.name] = words[word][int(which[0]) if len(words[word]) > 1 else 0]
        out = made.op(*(known[p.name] for p in made.parameters)).to(values[place].dtype)
        return out if out.shape == values[place].shape else out.sum_to_size(values[place].shape)

    def spread(self, definition, result, values):
        """A fold's result, or its gradient, broadcast to what was folded."""
        if not definition.is_fold:
            return result
        whole = self.whole(definition, values)
        marked, _ = self.ask(definition, values, whole)
        kept = {mark - 2 for mark in marked[0][1] if mark > 1}
        if len(marked[0][1]) < len(whole):
            for dim in range(len(whole)):
                result = result if dim in kept else result.unsqueeze(dim)
        return result.expand(whole)

    # -- batches --------------------------------------------------------------------------------------------------------------

    def batched(self, info, in_dims, *args, **kwargs):
        definition = self.settled()
        given = self.arguments(args, kwargs)
        dims = [dim if isinstance(value, torch.Tensor) else None for value, dim in zip(args, in_dims)]
        dims += [None] * (len(given) - len(dims))
        ranks = [value.dim() - (dim is not None) for value, dim in zip(given, dims) if isinstance(value, torch.Tensor)]
        batched = [dim is not None for value, dim in zip(given, dims) if isinstance(value, torch.Tensor)]
        alike = min(ranks) > 0 or (max(ranks) == 0 and all(batched))  # else the batch dimension would decide dtypes
        if definition.asks or not alike:
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
