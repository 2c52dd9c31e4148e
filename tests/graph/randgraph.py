"""Random torch.fx graphs: every kind of node and value, names chosen to hurt, and inputs they can be run with."""
import collections
import enum
import keyword
import math
import operator
import random
import typing

import torch
import torch.fx as fx

Point = collections.namedtuple("Point", "x y")


class Shade(enum.Enum):
    LIGHT = 1
    DARK = "d"


class Level(enum.IntFlag):
    A = 1
    B = 2


NAMES = [*keyword.kwlist, *keyword.softkwlist, "torch", "inf", "nan", "device", "self", "forward", "getattr", "slice", "complex",
         "set", "frozenset", "range", "print", "None", "__debug__", "_", "a b", "a.b", "a-b", "é", "ﬁ", "x\ny", "'", '"', "\\", "0",
         "0a", "x", "x_1", "x_1_1", "y", "add", "operator_add", "NoneType", "fx_pytree", "pytree", "math", "K", "𝔘", "__class__"]
NUMBERS = [0, 1, -1, 2, -2, 3, 255, -256, 2 ** 31, -2 ** 63, 2 ** 64, 10 ** 25, True, False, 0.0, -0.0, 1.5, -2.5, 1e-300, 1e22, 0.1,
           math.inf, -math.inf, math.nan, 2j, complex(-0.0, 1), complex(math.nan, -math.inf)]
PLAIN = [None, ..., "", "text", 'q"\'\\\n\t\0', "\u2028é\ud800", b"", b"\0\xff'\"", torch.float32, torch.bool, torch.complex64,
         torch.strided, torch.sparse_coo, torch.channels_last, torch.preserve_format, torch.device("cpu"), torch.device("meta", 1),
         Shade.LIGHT, Shade.DARK, Level.A, Level.A | Level.B, int, torch.Tensor, Point, torch.nn.Linear, math, torch,
         torch.ops.aten.add.Tensor, torch.ops.aten.mul, getattr(torch.ops.aten.random, "from"), operator.add, torch.add,
         torch.nn.functional.gelu, len, range(0), range(5, -3, -2), torch.arange(2), lambda x: x]
TYPES = [int, torch.Tensor, list[int], typing.Optional[torch.Tensor], "Tensor", typing.List[int], tuple[int, ...], Point]


def probe(*args, **kwargs):
    return (args, kwargs)


def join(values):
    return tuple(values)


class Echo(torch.nn.Module):
    def forward(self, *args, **kwargs):
        return ("echo", args, kwargs)


class Box:
    """Has methods and attributes of every name."""

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__") and name != "__debug__":
            raise AttributeError(name)
        return lambda *args, **kwargs: (name, args, kwargs)


def make_root():
    root = torch.nn.Module()
    root.inner = torch.nn.Module()
    for k, name in enumerate(name for name in NAMES if "." not in name):
        for owner in (root, root.inner):
            if not hasattr(owner, name):
                owner.add_module(name, Echo()) if k % 2 else owner.register_buffer(name, torch.full((2, 3), float(k)))
    root.linear = torch.nn.Linear(3, 3).eval().requires_grad_(False)
    root.box = Box()
    return root


ROOT = make_root()
MODULES = [name for name, module in ROOT.named_modules() if isinstance(module, Echo)]
BUFFERS = [name for name, _ in ROOT.named_buffers()]

BINARY = [torch.add, torch.sub, torch.mul, torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor, torch.ops.aten.maximum.default,
          torch.maximum, operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.eq, torch.Tensor.add]
WITH_NUMBER = [operator.add, operator.sub, operator.mul, operator.pow, operator.truediv, operator.ge, operator.ne, torch.add, torch.mul,
               torch.pow, torch.Tensor.mul]
UNARY = [torch.neg, torch.relu, operator.neg, operator.pos, torch.nn.functional.relu, torch.ops.aten.abs.default, torch.clone,
         torch.nn.functional.hardtanh, torch.ops.aten.sign]
IN_PLACE = [operator.iadd, operator.isub, operator.imul, torch.ops.aten.add_.Tensor, torch.Tensor.mul_]
NUMERIC = [operator.add, operator.sub, operator.mul, operator.pow, operator.floordiv, operator.mod, operator.neg, operator.invert,
           operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt, operator.ne, operator.not_,
           operator.truth, operator.abs, operator.iadd, operator.ipow, operator.ilshift, operator.is_, operator.is_not, operator.index]


class Maker:
    """One graph, and the inputs it takes."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.graph = fx.Graph()
        self.inputs = []
        self.tensors, self.numbers, self.others = [], [], []
        self.generate()

    def chance(self, p):
        return self.random.random() < p

    def pick(self, items):
        return items[self.random.randrange(len(items))]

    # -- values --

    def node(self):
        return self.pick([*self.tensors, *self.numbers, *self.others])

    def value(self, depth=0):
        kind = self.random.randrange(16 if depth < 3 else 8)
        if kind < 3:
            return self.pick(NUMBERS)
        if kind < 5:
            return self.pick(PLAIN)
        if kind < 8:
            return self.node()
        items = [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        if kind == 8:
            return {self.key(): item for item in items}
        if kind == 9:
            return slice(*(items + [None] * 3)[:3])
        if kind == 10:
            return Point(*(items + [None] * 2)[:2])
        if kind == 11:
            return self.pick([set, frozenset])(self.pick(NUMBERS[:20]) for _ in range(self.random.randrange(3)))
        return items if kind < 14 else tuple(items)

    def key(self):
        return self.pick([*NAMES, *NUMBERS, None, Shade.DARK, b"k", torch.float16, (1, "a"), Point(1, -0.0)])

    def arguments(self, most=4):
        return (tuple(self.value() for _ in range(self.random.randrange(most))),
                {self.pick(NAMES): self.value() for _ in range(self.random.randrange(3))})

    # -- nodes --

    def add(self, pool, op, target, args=(), kwargs=None):
        kind = self.pick(TYPES) if self.chance(0.05) and op != "output" else None
        node = self.graph.create_node(op, target, args, kwargs or {}, type_expr=kind)
        if self.chance(0.3):
            node.name = self.pick(NAMES)
        pool.append(node)

    def placeholders(self):
        names = self.random.sample(NAMES, 4) if self.chance(0.5) else ["a", "b", "c", "d"]
        for name, pool, value in zip(names, (self.tensors, self.tensors, self.numbers, self.others),
                                     (torch.tensor([[1.0, -2.0, 0.0], [3.0, math.nan, -0.5]]), torch.ones(2, 3), self.pick(NUMBERS[:8]),
                                      self.pick(["s", (1, 2), None]))):
            self.add(pool, "placeholder", name)
            self.inputs.append(value)
        if self.chance(0.3):
            self.add(self.others, "placeholder", "with_default", (self.pick([*NUMBERS, *PLAIN]),))
            if self.chance(0.5):
                self.inputs.append("given")
        elif self.chance(0.2):
            star = self.graph.create_node("placeholder", "*" + self.pick(["rest", "torch", "nan"]))
            self.add(self.others, "call_function", join, (star,))
            self.inputs += [1, 2][:self.random.randrange(3)]

    def tensor_call(self):
        x, which = self.pick(self.tensors), self.random.randrange(9)
        number = self.pick([n for n in NUMBERS if isinstance(n, (int, float)) and abs(n) < 2 ** 60 or n != n])
        into, add = self.tensors, self.add
        if which == 0:
            add(into, "call_function", self.pick(BINARY), (x, self.pick(self.tensors)))
        elif which == 1:
            function = self.pick(WITH_NUMBER)
            swap = function not in (torch.add, torch.mul, torch.Tensor.mul) and self.chance(0.5)
            add(into, "call_function", function, (number, x) if swap else (x, number))
        elif which == 2:
            add(into, "call_function", self.pick(UNARY), (x,))
        elif which == 3:
            copy = self.graph.call_function(torch.mul, (x, 1.0))
            add(into, "call_function", self.pick(IN_PLACE), (copy, self.pick(self.tensors)))
            into.append(copy)
        elif which == 4:
            index = self.pick([slice(None), (slice(None), slice(0, 3)), (..., slice(None)), (slice(0, None, 1),), ...])
            add(into, "call_function", operator.getitem, (x, index))
        elif which == 5:
            method, args, kwargs = self.pick([
                ("add", (number,), {}), ("add", (1,), {"alpha": 2}), ("clamp", (), {"max": 1}), ("reshape", (2, 3), {}), ("mul", (number,), {}),
                ("view", ((2, 3),), {}), ("expand", (2, 3), {}), ("float", (), {}), ("to", (torch.float32,), {}), ("clamp", (-1.0,), {"max": 1.5}),
                ("contiguous", (), {"memory_format": torch.contiguous_format}), ("abs", (), {})])
            add(into, "call_method", method, (x, *args), kwargs)
        elif which == 6:
            add(into, "get_attr", self.pick(BUFFERS))
        elif which == 7:
            by_name = self.chance(0.5)
            add(into, "call_module", "linear", () if by_name else (x,), {"input": x} if by_name else {})
        else:
            add(into, "call_function", torch.clamp, (x,), self.pick([{"min": -1, "max": 1}, {"max": 2.0}, {"min": 0}]))

    def number_call(self):
        function = self.pick(NUMERIC)
        count = 1 if function in (operator.neg, operator.invert, operator.not_, operator.truth, operator.abs, operator.index) else 2
        small = [n for n in NUMBERS if isinstance(n, int) and abs(n) < 100]
        args = tuple(self.pick([*self.numbers, *small]) for _ in range(count))
        if function in (operator.pow, operator.ipow, operator.lshift, operator.rshift, operator.ilshift):
            args = (self.pick([-2, -1, 2, 3, True]), self.pick([0, 1, 2, 3]))
        if function in (operator.is_, operator.is_not):
            args = (self.node(), self.pick([None, True, ...]))
        self.add(self.others if function in (operator.is_, operator.is_not) else self.numbers, "call_function", function, args)

    def other_call(self):
        which = self.random.randrange(6)
        args, kwargs = self.arguments()
        if which < 2:
            self.add(self.others, "call_function", probe, args, kwargs)
        elif which == 2:
            self.add(self.others, "call_module", self.pick(MODULES), args, kwargs)
        elif which == 3:
            box = self.graph.create_node("get_attr", "box")
            name = self.pick([name for name in NAMES if not (name.startswith("__") and name != "__debug__")])
            self.add(self.others, "call_method", name, (box, *args), kwargs)
        elif which == 4:
            receiver, method, given = self.pick([
                (-5, "bit_length", ()), (-2.5, "__abs__", ()), (True, "bit_count", ()), (3, "__rsub__", (10,)), ("a,b", "split", (",",)),
                ({"k": 1}, "get", ("k", 2)), ((1, 2, 1), "count", (1,)), (2j, "conjugate", ()), (b"ab", "hex", ()), (-math.inf, "__neg__", ()),
                (-0.0, "hex", ()), (10 ** 25, "bit_length", ()), (..., "__reduce__", ()), (None, "__bool__", ())])
            self.add(self.others, "call_method", method, (receiver, *given))
        else:
            name = self.pick(["shape", "dtype", "ndim", "not a name", "device"])
            args = (self.pick(self.tensors), name) + ((self.pick([None, -1]),) if name == "not a name" or self.chance(0.3) else ())
            self.add(self.others, "call_function", getattr, args)

    def generate(self):
        self.placeholders()
        for _ in range(self.random.randrange(2, 14)):
            self.pick([self.tensor_call, self.tensor_call, self.number_call, self.other_call])()
        result = [self.value(1) for _ in range(self.random.randrange(3))]
        self.add([], "output", "output", ((*self.tensors[-2:], *self.numbers[-2:], *self.others[-2:], *result),))
