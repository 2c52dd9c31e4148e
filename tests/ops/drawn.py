"""Calls drawn at random from an operator's schema: the name and type of each argument say what is drawn for it.

Most calls are ones that PyTorch takes: tensors broadcast, dtypes are ones that PyTorch has for the operator, dimensions exist.
Some calls are not.  Operators whose arguments belong together (a weight with as many elements as there are channels) have a
function in shaped.py that draws them together.  A Call is a Case of cases.py and the way in which the call is spelled: which
arguments are given by position, which by name, and which are left to their defaults.

A call follows from the seed, the operator and its number.  Nothing is known here of how results are compared.
"""
from dataclasses import dataclass, field, replace

import torch

import shaped
from cases import NAMED, Case, Subject, View, drawn_strides, reach, row_major
from kilnlib import DTYPES, SHORT
from values import MEMORY, seeded

SIZES, LONG = (1, 2, 3, 4, 5, 7), (17, 33, 64)  # LONG: vectors of any machine, and a rest
MOST = 700  # elements of a tensor
REDUCTIONS = (0, 1, 2) * 4 + (3, -1, 7)  # the last three are no reductions
USUAL = (2, 0.5, 1, 3, -1.5, 0.25)  # numbers
MOSTLY = ("f32", "f32", "f64", "bf16", "f16")  # dtypes that are drawn more often than others


def drawn_shape(rng, empty=False):
    shape = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]
    if shape and rng.random() < 0.15:
        shape[rng.randrange(len(shape))] = rng.choice(LONG)
    if shape and empty:
        shape[rng.randrange(len(shape))] = 0
    while reach(shape, row_major(shape)) > MOST:
        shape.pop()
    return tuple(shape)


def draw_dtype(rng, dtypes):
    """One of dtypes, most often a usual one."""
    usual = [t for t in MOSTLY if t in dtypes]
    return rng.choice(usual if usual and rng.random() < 0.5 else dtypes)


# What may be wrong with a call, one thing at a time: of a call that is wrong in two ways PyTorch reports either.
FAULTS = ("none",) * 10 + ("empty", "dtype", "mixed", "shape", "dim", "number", "number", "out")


class Draw:
    """What one call is drawn from: a generator, what may be wrong, and the shape, the dtype and the kind of layout that most of
    its tensors have.  alike: all have that dtype."""

    def __init__(self, s, rng, taken):
        self.s, self.rng, self.taken = s, rng, taken
        self.fault = rng.choice(FAULTS)
        self.dtype = draw_dtype(rng, taken if taken and self.fault != "dtype" else s.dtypes)
        self.alike = self.fault not in ("none", "mixed") or not s.each_element and self.fault != "mixed" or rng.random() < 0.5
        self.layout = rng.choice(("dense", "dense", "dense", "any", "any", "turned"))
        self.shape, self.domain, self.fill, self.memory = drawn_shape(rng, self.fault == "empty"), s.domain, None, 0
        self.order, self.whole = rng.random(), False

    @classmethod
    def plain(cls, s, dtype, n):
        """Nothing unusual: tensors of one dtype, whole."""
        d = cls(s, seeded("plain", s.name, dtype, n), [dtype])
        d.dtype, d.alike, d.fault, d.layout, d.shape, d.fill, d.whole = dtype, True, "none", "dense", (2, 2), "random", True
        return d

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *choices):
        return self.rng.choice(choices)

    def strides(self, sizes):
        if self.layout == "dense":
            return row_major(sizes)
        if self.layout == "turned":  # all tensors of a call in one order of dimensions, such as channels last
            order = sorted(range(len(sizes)), key=lambda d: (d * 0.37 + self.order) % 1)
            strides = row_major([sizes[d] for d in order])
            return tuple(strides[order.index(d)] for d in range(len(sizes)))
        return drawn_strides(sizes, self.rng)

    def view(self, sizes, dtype=None, owned=False, strides=None):
        """A tensor of these sizes in memory of its own."""
        sizes = tuple(sizes)
        dtype = dtype or (self.dtype if self.alike or self.chance(0.5) else draw_dtype(self.rng, self.taken or self.s.dtypes))
        strides = strides or (row_major(sizes) if owned else self.strides(sizes))
        room = MEMORY - reach(sizes, strides)
        assert room >= 0, (sizes, strides)
        self.memory += 1
        return View(dtype, sizes, strides, self.rng.randint(0, room) if not owned else 0, self.memory - 1, owned)

    def broadcast(self, whole=0.6):
        """A tensor that broadcasts to the call's shape, or, seldom, does not."""
        if self.chance(whole):
            return self.view(self.shape)
        if self.fault == "shape" and self.chance(0.5):
            return self.view(drawn_shape(self.rng))
        if self.chance(0.3):
            return self.view(())
        return self.view([n if self.chance(0.7) else 1 for n in self.shape[self.pick(0, 0, 1):]])

    def dim(self, shape=None):
        rank = max(len(self.shape if shape is None else shape), 1)
        return self.rng.randrange(-rank, rank) if self.fault != "dim" else self.pick(rank, -rank - 1, 9)

    def dims(self):
        rank = len(self.shape)
        some = self.rng.sample(range(rank), self.rng.randint(0, rank))
        return tuple(d - rank if self.chance(0.3) else d for d in some) if self.fault != "dim" else (self.dim(), self.dim())


# -- arguments -------------------------------------------------------------------------------------------------------

def type_of(argument):
    """The type without Optional, and whether None will do."""
    kind = str(argument.type)
    optional = kind.startswith("Optional[")
    return kind[len("Optional["):-1] if optional else kind, optional


def an_int(d, a):
    if a.name == "reduction":
        return d.rng.choice(REDUCTIONS)  # PyTorch takes the last three for others
    if a.name == "dim":
        return d.dim()
    if a.name in ("compute_mode", "mask_type"):
        return d.pick(0, 1, 2)
    if a.name == "k":
        return d.rng.randint(1, max((1, *d.shape)))
    return d.rng.choice(d.s.numbers_for(a)) if d.fault == "number" or d.s.each_element else d.pick(1, 2, 3)


def number(d, a):
    if a.has_default_value() and a.default_value is not None and d.chance(0.3):
        return a.default_value
    some = d.s.numbers_for(a) if d.fault == "number" else USUAL
    value = d.rng.choice(some)
    return value if "number" in str(a.type) else float(value)


def tensors(d, a):
    """A list; its lists of one call are equally long, and their tensors of equal shapes."""
    if not hasattr(d, "shapes"):
        d.shapes = [d.shape if d.chance(0.5) else drawn_shape(d.rng) for _ in range(d.pick(1, 2, 3, 3, 5))]
    return tuple(d.view(shape) if d.fault != "shape" or d.chance(0.7) else d.view([1] * len(shape)) for shape in d.shapes)


def scalars(d, a):
    tensors_first = getattr(d, "shapes", None) or [()]
    return tuple(d.rng.choice(USUAL if d.fault != "number" else d.s.numbers) for _ in tensors_first)


def named(d, a):
    if a.name in NAMED:
        some = [v for v in NAMED[a.name] if v is not None or type_of(a)[1]]
        usual = [None] if type_of(a)[1] else some
        return d.rng.choice(some if d.fault == "mixed" or a.name != "dtype" and d.chance(0.3) else usual)
    return DTYPES[d.dtype]  # input_dtype


DRAWN = {
    "Tensor": lambda d, a: d.broadcast(), "List[Tensor]": tensors, "List[number]": scalars,
    "number": number, "float": number, "int": an_int, "SymInt": an_int, "bool": lambda d, a: d.chance(0.5),
    "str": lambda d, a: d.rng.choice(d.s.strings(a)), "List[int]": lambda d, a: d.dims(), "List[bool]": lambda d, a: tuple(d.chance(0.7) for _ in range(3)),
}


def draw_argument(d, a, whole):
    kind, optional = type_of(a)
    if optional and a.name not in NAMED and d.chance(0.3):
        return None
    if a.name in NAMED or a.name == "input_dtype":
        return named(d, a)
    first = a is d.s.inputs[0] and not d.s.each_element  # dimensions are its
    if kind == "Tensor" and (whole or first or a.alias_info is not None and a.alias_info.is_write):
        return d.view(d.shape)
    return DRAWN[kind](d, a)


def fill_of(d):
    """What memory holds.  Sums of any bits say little, as their order decides, and so it is with NaN and infinities in norms."""
    if d.s.tame or d.fill:
        return d.fill or "random"
    if d.s.shaped and not d.s.each_element and d.s.shaped is not shaped.lists:
        return "random"
    return d.rng.choice(("random", "random", "special", "wide") if d.s.each_element else ("random", "random", "mixed"))


# -- out= ------------------------------------------------------------------------------------------------------------

def results_of(s, case):
    """Sizes and dtypes of what PyTorch gives for a call without out=, for each result a list; None, if it refuses the call."""
    args, kwargs, _ = case.build(True, False)
    try:
        results = s.functional(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None
    results = [results] if isinstance(results, list) else [[r] for r in (results if isinstance(results, tuple) else (results,))]
    return [[(None, case.views()[0].dtype) if t is None else (tuple(t.shape), SHORT.get(t.dtype, "c64")) for t in each] for each in results]


def fitting(s, case, d):
    """The sizes and dtypes of out= tensors; of a call that PyTorch refuses, those of one that it takes, without sizes."""
    found = results_of(s, case)
    if found:
        return found
    length = next((len(v) for v in case.values() if isinstance(v, tuple) and v and isinstance(v[0], View)), 1)
    plain = results_of(s, s.inputs_of(Draw.plain(s, d.dtype, 0))) or [[((), d.dtype)]] * len(s.out)
    return [[(None, each[0][1])] * (length if "List" in str(a.type) else 1) for a, each in zip(s.out, plain)]


def out_view(d, case, sizes, dtype, only):
    """only: there is no other out= tensor, which could share the same memory."""
    wrong = ("dtype", "shape", *(("shared", "shared") if only else ()), *(("expanded",) if d.s.each_element else ()))
    how = d.rng.choice(wrong if d.fault == "out" else ("fits", "fits", "fits", "empty"))
    how = "empty" if sizes is None else how
    dtype = d.rng.choice(d.s.dtypes) if how == "dtype" else dtype
    first = case.views()[0] if case.views() else None
    if how == "shared" and first and first.sizes == sizes and (d.s.each_element or not overlaps(first)):
        return replace(first, offset=first.offset if d.chance(0.7) else 0)
    if how in ("empty", "shape") or reach(sizes, row_major(sizes)) > 2 * MOST:
        return d.view(drawn_shape(d.rng) if how == "shape" else (0,), dtype, owned=True)
    view = d.view(sizes, dtype)
    return view if how == "expanded" or not overlaps(view) else replace(view, strides=row_major(sizes), offset=0)


def overlaps(view):
    return any(n > 1 and stride == 0 for n, stride in zip(view.sizes, view.strides))


def with_out(s, d, case):
    if not s.out:
        return case
    outs = []
    for a, each in zip(s.out, fitting(s, case, d), strict=True):
        made = tuple(out_view(d, case, sizes, dtype, "List" not in str(a.type) and len(s.out) == 1) for sizes, dtype in each)
        outs.append((a.name, made if "List" in str(a.type) else made[0]))
    return replace(case, kwargs=case.kwargs + tuple(outs))


# -- calls -----------------------------------------------------------------------------------------------------------

def written(s):
    """Names of arguments that a call writes to and does not return; running statistics are such, whatever the schema says."""
    returned = {alias for r in s.torch_op._schema.returns if r.alias_info for alias in r.alias_info.before_set}
    return [a.name for a in s.inputs if a.name.startswith("running_") or (a.alias_info and a.alias_info.is_write and not returned & a.alias_info.before_set)]


class Drawn(Subject):
    """An operator whose calls are drawn.  each_element: an element of a result follows from one element of each argument;
    functional: PyTorch's operator of the row, which gives new results."""

    def __init__(self, name, row, torch_op, functional, family):
        super().__init__(name, row, torch_op)
        self.each_element = family == "map"
        self.shaped = shaped.function(name)
        self.written = written(self)
        self.functional = functional
        self._taken = None

    @property
    def taken(self):
        """The dtypes that PyTorch takes in calls with nothing unusual, of a few that are drawn for each."""
        if self._taken is None:
            self._taken = [t for t in self.dtypes if any(self.answers(self.plain(t, n)) for n in range(3))]
        return self._taken

    def plain(self, dtype, n):
        d = Draw.plain(self, dtype, n)
        return with_out(self, d, self.inputs_of(d))

    def inputs_of(self, d):
        """A call without its out= arguments."""
        together = self.shaped(d) if self.shaped else {}
        values = {a.name: together[a.name] if a.name in together else draw_argument(d, a, d.whole or bool(self.shaped)) for a in self.inputs}
        values = shared(self, d, values)
        args = tuple(values[a.name] for a in self.inputs if not a.kwarg_only)
        kwargs = tuple((a.name, values[a.name]) for a in self.inputs if a.kwarg_only)
        return Case(self.name, args, kwargs, fill=fill_of(d), domain=d.domain, avoid=self.avoid)


def shared(s, d, values):
    """Seldom two arguments are one tensor, or one is another's memory in another order."""
    views = [n for n, v in values.items() if isinstance(v, View)]
    if len(views) > 1 and d.fault == "out" and not s.shaped:
        one, other = d.rng.sample(views, 2)
        values = values | {other: values[one]}
    return values


@dataclass(frozen=True)
class Call:
    case: Case
    names: tuple  # of the arguments that may be given by position
    given: int  # how many of them are
    left_out: frozenset = field(default=frozenset())

    def __str__(self):
        left = f"; left out: {', '.join(sorted(self.left_out))}" if self.left_out else ""
        return f"{self.case}; {self.given} by position{left}"


def spelled(s, case, rng):
    """By position, by names alone, or both; arguments that have their default value may be left out."""
    names = tuple(a.name for a in s.inputs if not a.kwarg_only)
    given = rng.choice((len(names), len(names), 0, rng.randint(0, len(names))))
    values = dict(zip(names, case.args)) | dict(case.kwargs)
    default = [a.name for a in s.inputs if a.has_default_value() and same(values[a.name], a.default_value)]
    after = {*names[given:], *(a.name for a in s.inputs if a.kwarg_only)}
    return Call(case, names, given, frozenset(n for n in default if n in after and rng.random() < 0.5))


def same(a, b):
    return type(a) is type(b) and a == b


def call(s, seed, n):
    """The n-th call of an operator."""
    rng = seeded("sweep", seed, s.name, n)
    d = Draw(s, rng, s.taken)
    return spelled(s, with_out(s, d, s.inputs_of(d)), rng)
