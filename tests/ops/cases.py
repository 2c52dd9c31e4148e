"""Calls to compare with PyTorch, made from the operator registry alone.

An operator's schema says what its arguments are, its row says where values are drawn from (`domain`) and which
strings it knows.  A call is a Case: plain data that prints as the CLI writes calls, and that `Case.build` turns into
tensors.  Its axes are dtypes, layouts, values, numbers, strings and absent optionals, each with each; covering.py makes
fewer calls of them.  A case is the same in every run.
"""
import itertools
import re
from dataclasses import dataclass, field, replace

import torch

from kilnlib import DTYPES, Owned, reach
from values import MEMORY, SPECIAL, memory, seeded
from whole import WHOLE

# Numbers for Scalar arguments.  2**40 does not fit most types, 1e40 not f32; from 2**63 up they are unsigned; -0.0 and nan must
# stay themselves.
NUMBERS = (1, 2, -1, 0, 3, True, False, 2.5, 0.5, -1.5, 0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-3,
           200, 2**40, -(2**40), 2**63 - 1, -(2**63), 2**63 + 1025, 2**64 - 1, 1e40, 2j, -0.5 + 1j)
EDGES = (128, -128, 1e-40, 2 + 0j)  # only one of the first two fits i8; the third has no reciprocal in f32; the last is real


# -- calls -------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class View:
    """A tensor argument: a view of memory.  Views with the same memory number share it.  A list of tensors is a tuple of views."""
    dtype: str
    sizes: tuple
    strides: tuple
    offset: int = 0
    memory: int = 0
    owned: bool = False  # in memory of Kiln's own, so that it can be resized

    def __str__(self):
        text = f"{self.dtype}[{','.join(map(str, self.sizes))}]"
        if self.strides != row_major(self.sizes):
            text += f":strides=({','.join(map(str, self.strides))})"
        return text


@dataclass(frozen=True)
class Case:
    op: str
    args: tuple
    kwargs: tuple = ()  # of (name, value)
    fill: str = "random"
    domain: tuple = (-10, 10)
    avoid: tuple = ()  # values left out, see AVOID
    note: str = field(default="", compare=False)

    def values(self):
        return self.args + tuple(v for _, v in self.kwargs)

    def views(self):
        flat = (item for v in self.values() for item in (v if isinstance(v, tuple) else (v,)))
        return [v for v in flat if isinstance(v, View)]

    def __str__(self):
        def text(v):
            if isinstance(v, str):
                return f'"{v}"'
            if isinstance(v, tuple):
                return f"[{', '.join(map(text, v))}]"
            return str(v).lower() if isinstance(v, bool) else str(v)
        words = [text(v) for v in self.args] + [f"{n}={text(v)}" for n, v in self.kwargs]
        shared = [v.memory for v in self.views()]
        notes = [f"fill={self.fill}"] + ([self.note] if self.note else [])
        if len(set(shared)) < len(shared):
            notes.append("memory=" + ",".join(f"{v.memory}+{v.offset}" for v in self.views()))
        return f"{self.op.removeprefix('aten::')}({', '.join(words)})   # {'; '.join(notes)}"

    def build(self, private, for_kiln):
        """Arguments, named arguments and the memories they look at.  private: memories are copies."""
        memories = {}
        for v in self.views():
            if v.memory not in memories:
                m = memory(v.dtype, self.fill, v.memory, self.domain, self.avoid)
                memories[v.memory] = m.clone() if private else m
        made = {}

        def value(v):
            if isinstance(v, tuple):
                return [value(item) for item in v]
            if not isinstance(v, View):
                return v
            if v not in made:  # an argument given twice is one tensor
                made[v] = memories[v.memory].as_strided(v.sizes, v.strides, v.offset)
                if v.owned:
                    own = torch.empty_strided(v.sizes, v.strides, dtype=DTYPES[v.dtype]).copy_(made[v])
                    made[v] = Owned(own) if for_kiln else own
            return made[v]
        return [value(v) for v in self.args], {n: value(v) for n, v in self.kwargs}, memories


# -- layouts -----------------------------------------------------------------------------------------------

def row_major(sizes):
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def channels_last(n, c, h, w):
    return (n, c, h, w), (h * w * c, 1, w * c, c)


# Name, then one (sizes, strides, offset) per tensor argument, repeated where there are more arguments than entries.
# Strides left out are row-major.
LAYOUTS = [
    ("0-d", [()]),
    ("0-d and one", [(), (1,)]),
    ("one", [(1,)]),
    ("ones", [(1, 1, 1), (1,)]),
    ("empty", [(0,)]),
    ("empty 3-d", [(2, 0, 3)]),
    ("empty by broadcast", [(0,), (1,), ()]),
    ("empty transposed", [((0, 3), (1, 5))]),
    ("plain", [(37,)]),
    ("long", [(1100,)]),
    ("2-d", [(5, 7)]),
    ("offset", [((5, 7), None, 3), ((5, 7), None, 1)]),
    ("row", [(5, 7), (7,)]),
    ("row first", [(7,), (5, 7)]),
    ("column", [(5, 7), (5, 1)]),
    ("outer", [(21, 1), (1, 23)]),
    ("0-d second", [(5, 7), ()]),
    ("0-d first", [(), (5, 7)]),
    ("0-d second, large", [(5, 7), ((), (), 7 * SPECIAL)]),  # the largest of the special values
    ("0-d first, large", [((), (), 7), (5, 7)]),
    ("one second", [(5, 7), (1,)]),
    ("batch", [(3, 1, 5), (2, 1, 4, 1)]),
    ("transposed", [((19, 18), (1, 19))]),
    ("transposed and plain", [((19, 18), (1, 19)), (19, 18)]),
    ("plain and transposed", [(19, 18), ((19, 18), (1, 19))]),
    ("sliced", [((50,), (3,), 1)]),
    ("sliced and plain", [((6, 5), (22, 2)), (6, 5)]),
    ("transposed slice", [((5, 6), (2, 22)), ((5, 6), (3, 20))]),
    ("inner slice", [((6, 5), (7, 1)), ((6, 5), (9, 1))]),
    ("expanded", [((5, 7), (0, 1)), ((5, 7), (1, 0))]),
    ("expanded and plain", [((5, 7), (0, 0)), (5, 7)]),
    ("channels_last", [channels_last(2, 3, 4, 5)]),
    ("channels_last and plain", [channels_last(2, 3, 4, 5), (2, 3, 4, 5)]),
    ("channels_last and channel", [channels_last(2, 3, 4, 5), (3, 1, 1)]),
    ("channel and channels_last", [(3, 1, 1), channels_last(2, 3, 4, 5)]),
    ("row and transposed", [(18,), ((19, 18), (1, 19))]),
    ("channels_last and 0-d", [channels_last(2, 3, 4, 5), ()]),
    ("permuted", [((2, 3, 2, 3, 2), (18, 1, 3, 6, 36)), ((2, 3, 2, 3, 2), (1, 24, 12, 4, 2))]),
    ("odd strides of ones", [((3, 1, 4), (4, 99, 1)), ((3, 1, 4), (1, 1, 3))]),
    ("0-d third", [(5, 7), (7,), ()]),
    ("0-d third, large", [((19, 18), (1, 19)), (19, 18), ((), (), 49)]),  # the largest of the special values
    ("sizes do not fit", [(5, 7), (5,)]),
]


LONG, PLAIN = (next(layout for layout in LAYOUTS if layout[0] == name) for name in ("long", "2-d"))


def views(layout, dtypes):
    """The tensor arguments of one layout, each with memory of its own."""
    made = []
    for k, dtype in enumerate(dtypes):
        entry = layout[1][k % len(layout[1])]
        if not entry or not isinstance(entry[0], tuple):
            entry = (entry,)
        sizes, strides, offset = (*entry, None, None)[:3]
        strides = row_major(sizes) if strides is None else strides
        made.append(View(dtype, sizes, strides, offset or 0, k))
        assert made[-1].offset + reach(sizes, strides) <= MEMORY
    return made


def layouts(k):
    """The layouts that differ for k tensors."""
    seen = {}
    for layout in LAYOUTS:
        seen.setdefault(tuple(views(layout, ["f32"] * k)), layout)
    return list(seen.values())


def drawn_strides(sizes, rng):
    """Strides of a view: dimensions in any order in memory, with gaps or repeated, and strides of dimensions of one that mean nothing."""
    order, strides, step = list(reversed(range(len(sizes)))), [0] * len(sizes), rng.choice([1, 1, 1, 2])
    if rng.random() < 0.5:
        rng.shuffle(order)
    for d in order:
        strides[d] = step
        if sizes[d] == 1 and rng.random() < 0.5:
            strides[d] = rng.choice([0, 1, 2, 99])
        elif sizes[d] > 1 and rng.random() < 0.1:
            strides[d] = 0
        elif sizes[d] > 1:
            step *= sizes[d] + (rng.random() < 0.1)
    return tuple(strides)


def drawn_view(shape, rng):
    """(sizes, strides, offset) of a tensor that broadcasts to shape: dimensions left out or of one, and drawn strides."""
    sizes = tuple(n if rng.random() < 0.75 else 1 for n in shape[rng.choice([0, 0, 0, 1]):])
    return sizes, drawn_strides(sizes, rng), rng.choice([0, 0, 1])


def drawn_layouts(k, count, rng):
    """Layouts in which the tensors have little to do with each other."""
    for _ in range(count):
        shape = [rng.choice([1, 2, 3, 5, 0 if rng.random() < 0.2 else 4]) for _ in range(rng.randint(1, 4))]
        yield "drawn", [drawn_view(shape, rng) for _ in range(k)]


# -- dtypes ------------------------------------------------------------------------------------------------

def dtype_tuples(names, k, limit, rng):
    """Equal dtypes first, always; then others: all of them, or `limit` drawn at random."""
    equal = [(t,) * k for t in names]
    if k < 2:
        return equal if k else [()]
    if len(names) ** k <= limit:
        return equal + [t for t in itertools.product(names, repeat=k) if len(set(t)) > 1]
    mixed = set()
    while len(mixed) < limit - len(equal):
        t = tuple(rng.choice(names) for _ in range(k))
        if len(set(t)) > 1:
            mixed.add(t)
    return equal + sorted(mixed)


# -- operators ---------------------------------------------------------------------------------------------

# Where PyTorch itself cannot be asked: operator -> (values left out of the test, why).
SIGFPE = ((-2**7, -2**15, -2**31, -2**63), "PyTorch dies of SIGFPE where it divides MIN by -1")
AVOID = {"div.Tensor_mode": SIGFPE, "div.Scalar_mode": SIGFPE, "lcm": SIGFPE}
# The same with dtypes: of integers PyTorch dies of SIGFPE where it divides by beta, which is an integer then, and 0.
AVOID_DTYPES = {"smooth_l1_loss_backward": ("u8", "i8", "i16", "i32", "i64")}

# What is asked of arguments that are no tensors, numbers or texts, by name.
NAMED = {"memory_format": [None, torch.preserve_format, torch.contiguous_format, torch.channels_last, torch.channels_last_3d],
         "layout": [None, torch.strided], "device": [None, torch.device("cpu")], "pin_memory": [None], "non_blocking": [False],
         "dtype": [None, *DTYPES.values()]}

# Operators asked for values of their domain alone, and small numbers.
TAME = re.compile(r"special_\w*polynomial|special_zeta|(special_)?polygamma")
TAME_WHY = "PyTorch's loops need not end for a huge degree, and give what they happen to past overflow"


def kind_of(argument):
    """Tensor, number, float, int, bool or str; and whether None will do."""
    kind = str(argument.type)
    return kind.removeprefix("Optional[").removesuffix("]"), kind.startswith("Optional")


def is_number(argument):
    return kind_of(argument)[0] in ("number", "float", "int")


INTS = (0, 1, 2, 3, -1, -2, 7)  # for int arguments: degrees and decimals


class Subject:
    """An operator under test: Kiln's name of it, PyTorch's schema, and what its row says of its inputs."""

    def __init__(self, name, row, torch_op):
        self.name, self.row, self.torch_op = name, row, torch_op
        self.arguments = torch_op._schema.arguments
        self.out = [a for a in self.arguments if a.is_out]
        self.inputs = [a for a in self.arguments if not a.is_out]
        self.tensors = [a for a in self.inputs if "Tensor" in str(a.type)]
        numbers = re.search(r"^\s+domain\s+(\S+)\s+(\S+)", row, flags=re.M)
        self.domain = tuple(float(n) for n in numbers.groups()) if numbers else (-10.0, 10.0)
        functional = re.match(r"\w+\s+([\w:.]+)", row).group(1)
        self.avoid, self.avoid_why = AVOID.get(functional, ((), ""))
        self.tame = bool(TAME.match(functional))
        self.dtypes = [t for t in DTYPES if t not in AVOID_DTYPES.get(functional, ())]
        self.numbers = [n for n in NUMBERS if not self.tame or abs(n) <= 3]

    def strings(self, argument):
        """What the row compares the argument with, and something it cannot know."""
        known = re.findall(rf'\b{argument.name} == "(\w+)"', self.row)
        return sorted(set(known)) + ["no such"]

    def structures(self):
        """Every choice of strings and of present optionals: name -> value, or Ellipsis for "something"."""
        axes = []
        for a in self.inputs:
            kind, optional = kind_of(a)
            optional = [None] if optional else []
            if a.name in NAMED:
                axes.append(NAMED[a.name])
            elif kind == "str":
                axes.append(optional + self.strings(a))
            elif kind == "bool":
                axes.append(optional + [False, True])
            elif kind == "Tensor" or is_number(a):
                axes.append([...] + optional)
            else:
                raise AssertionError(f"{self.name}: no cases for an argument of type {kind}")
        every = [dict(zip([a.name for a in self.inputs], choice)) for choice in itertools.product(*axes)]
        return [s for s in every if sum(bool(s.get(name)) for name in NAMED) < 2]  # one thing at a time

    def numbers_for(self, argument):
        """Those the schema's type takes: a float argument no complex one, an int argument none but ints."""
        kind = kind_of(argument)[0]
        return INTS if kind == "int" else [n for n in self.numbers if kind == "number" or not isinstance(n, complex)]

    def present(self, structure):
        return [a for a in self.tensors if structure[a.name] is ...]

    def case(self, structure, tensors, numbers, **more):
        """tensors, numbers: one per present argument, in order."""
        tensors, numbers = iter(tensors), iter(numbers)
        args, kwargs = [], []
        for a in self.inputs:
            value = structure[a.name]
            if value is ...:
                value = next(tensors) if "Tensor" in str(a.type) else next(numbers)
                if value is DEFAULT:
                    value = a.default_value
            if a.kwarg_only:
                kwargs.append((a.name, value))
            else:
                args.append(value)
        return Case(self.name, tuple(args), tuple(kwargs), domain=self.domain, avoid=self.avoid, **more)

    def answers(self, case):
        """Whether PyTorch takes the call."""
        args, kwargs, _ = case.build(True, False)
        try:
            self.torch_op(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError, ValueError):
            return False
        return True

    def number_arguments(self, structure):
        return [a for a in self.inputs if is_number(a) and structure[a.name] is ...]

    def usual_numbers(self, structure):
        """Numbers that every dtype takes."""
        return [DEFAULT if a.has_default_value() and a.default_value is not None else 2 for a in self.number_arguments(structure)]

    def draw_numbers(self, structure, rng):
        """Mostly ordinary numbers, so that most calls are not refused."""
        drawn = []
        for a in self.number_arguments(structure):
            usual = DEFAULT if a.has_default_value() and a.default_value is not None else rng.choice([2, 0.5])
            if kind_of(a)[0] == "int":
                usual = 2
            drawn.append(usual if rng.random() < 0.6 else rng.choice(self.numbers_for(a)))
        return drawn


class DEFAULT:
    """Stands for the schema's default value."""


def fills(s, layout):
    if s.tame:
        return ("random",)
    return ("random", "special", "wide") if layout[0] in ("long", "transposed and plain") else ("random", "special")


def drawn(s, form, some, most):
    """(structure, count of tensors, tuples of dtypes, rng): `some` tuples each; in a whole run then `most`, where there are
    as many.  So a whole run makes every call of a sampled one."""
    for limit in (some, most) if WHOLE else (some,):
        rng = seeded(form, s.name) if limit == some else seeded(form, s.name, limit)
        for structure in s.structures():
            k = len(s.present(structure))
            if limit == some or len(s.dtypes) ** k > some:
                yield structure, k, dtype_tuples(s.dtypes, k, limit, rng), rng


def plain(s, structure, dtypes):
    """A call in which nothing is special but the dtypes."""
    return s.case(structure, views(PLAIN, dtypes), s.usual_numbers(structure), note=PLAIN[0])


REFUSED = 6  # of a call that PyTorch refuses for its dtypes, one layout in so many, and the last one, which is refused too


def combined(s, structure, k, tuples, rng):
    """(call, layout, place): dtypes x layouts, with numbers that are drawn.  place: of the call among the others."""
    for n, dtypes in enumerate(tuples):
        every = WHOLE or s.answers(plain(s, structure, dtypes))
        for place, layout in enumerate(layouts(k), n):
            numbers = s.draw_numbers(structure, rng)
            if every or place % REFUSED == 0 or layout is LAYOUTS[-1]:
                yield s.case(structure, views(layout, dtypes), numbers, note=layout[0]), layout, place


def functional(s):
    """Every structure x dtypes x layouts, then every number x dtypes.  Values do not decide what is inferred: they are taken
    in turn where there are many calls, and each with each in a whole run."""
    for structure, k, tuples, rng in drawn(s, "functional", 100, 1000):
        for case, layout, place in combined(s, structure, k, tuples, rng):
            every = fills(s, layout)
            for fill in every if WHOLE or k < 2 else [every[place % len(every)]]:
                yield replace(case, fill=fill)
        yield from number_cases(s, structure, rng)
        yield from edge_cases(s, structure)
        yield from layout_cases(s, structure, tuples)


def edge_cases(s, structure):
    """Each number argument at each edge, the others as usual, for each dtype."""
    arguments, k = s.number_arguments(structure), len(s.present(structure))
    for at, edge in itertools.product(range(len(arguments)), () if s.tame else EDGES):
        if kind_of(arguments[at])[0] == "number":
            numbers = [DEFAULT if a.has_default_value() and a.default_value is not None else 2 for a in arguments]
            numbers[at] = edge
            for t in s.dtypes:
                yield s.case(structure, views(("row", [(5, 7), (7,)]), [t] * k), numbers, note="edge")


def layout_cases(s, structure, tuples):
    """A few layouts for each tuple of dtypes: what PyTorch makes of strides depends on both."""
    k, rng = len(s.present(structure)), seeded("layouts", s.name, str(structure), len(tuples))
    for dtypes in tuples if k else ():
        for layout in drawn_layouts(k, 3, rng):
            yield s.case(structure, views(layout, dtypes), s.draw_numbers(structure, rng), note=layout[0])


def number_cases(s, structure, rng):
    arguments, k = s.number_arguments(structure), len(s.present(structure))
    if not arguments:
        return
    choices = list(itertools.product(*[(*s.numbers_for(a), DEFAULT) for a in arguments]))
    if len(choices) > 100:
        choices = rng.sample(choices, 100)
    some = [layout for layout in LAYOUTS if layout[0] in ("0-d", "long", "0-d second", "empty")]
    for numbers in choices:
        if any(v is DEFAULT and not a.has_default_value() for v, a in zip(numbers, arguments)):
            continue
        for dtypes in dtype_tuples(s.dtypes, k, 30, rng):
            layout = rng.choice(some)
            fill = rng.choice(["random", "special"])
            yield s.case(structure, views(layout, dtypes), numbers, fill="random" if s.tame else fill, note=layout[0])


def square(dtypes, memory_of=lambda k: k):
    return [View(t, (6, 6), (6, 1), 0, memory_of(k)) for k, t in enumerate(dtypes)]


def shared_with(t):
    """An argument that looks at all of the written tensor's memory, at a part of it, and at all of it in another order."""
    return t, replace(t, offset=1), replace(t, strides=(1, 6))


def inplace(s):
    """The written tensor is the first one.  Then arguments that share its memory: all of it, or a part."""
    for structure, k, tuples, rng in drawn(s, "inplace", 40, 100):
        for case, _, _ in combined(s, structure, k, tuples, rng):
            yield case
        for t, other in itertools.product(s.dtypes if k > 1 else (), range(1, k)):
            tensors = square([t] * k)
            for shared in shared_with(tensors[0]):
                tensors[other] = shared
                yield s.case(structure, tensors, s.draw_numbers(structure, rng), note="shared memory")


# How an out= tensor stands to the result: sizes, strides, offset, whose memory, and whether it may be resized; the strides
# of the arguments.
OUTS = [
    ("fits", (6, 6), (6, 1), 0, None, False, (6, 1)),
    ("fits, transposed", (6, 6), (1, 6), 0, None, False, (6, 1)),
    ("fits, sliced", (6, 6), (14, 2), 1, None, False, (6, 1)),
    ("empty", (0,), (1,), 0, None, True, (6, 1)),
    ("empty, of transposed ones", (0,), (1,), 0, None, True, (1, 6)),
    ("wrong shape", (2, 3), (3, 1), 0, None, True, (6, 1)),
    ("wrong shape, as many elements", (4, 9), (9, 1), 0, None, True, (6, 1)),
    ("larger", (7, 6), (1, 7), 0, None, True, (6, 1)),
    ("expanded", (6, 6), (0, 1), 0, None, False, (6, 1)),
    ("is the first argument", (6, 6), (6, 1), 0, 0, False, (6, 1)),
    ("overlaps the first argument", (6, 6), (6, 1), 1, 0, False, (6, 1)),
    ("is the first argument transposed", (6, 6), (1, 6), 0, 0, False, (6, 1)),
]


def with_outs(s, case, dtypes, entry):
    """The call with out= tensors of these dtypes, which stand to the result as `entry` of OUTS says; None if they cannot."""
    note, sizes, strides, offset, shared, owned, of = entry
    if shared is not None and not case.views():
        return None
    tensors = {v: replace(v, sizes=(6, 6), strides=of) for v in case.views()}
    place = 12 if shared is None else shared
    outs = tuple((a.name, View(t, sizes, strides, offset, place + n, owned)) for n, (a, t) in enumerate(zip(s.out, dtypes)))
    return replace(case, args=tuple(tensors.get(v, v) for v in case.args), note=f"out {note}",
                   kwargs=tuple((name, tensors.get(v, v)) for name, v in case.kwargs) + outs)


TURNS = (0, 5)  # of the ways to stand to the result each dtype of out= meets those that are as far from its own place


def out(s):
    """Every structure x dtypes x dtype of out=, and of the ways in which that stands to the result two in turn, so that each
    meets every dtype; in a whole run each with each.  Where it looks at an argument's memory it is of the argument's dtype."""
    for structure, k, tuples, rng in drawn(s, "out", 16, 40):
        for n, dtypes in enumerate(tuples):
            for place, t in enumerate(s.dtypes, n):
                case = s.case(structure, square(dtypes), s.draw_numbers(structure, rng))
                apart = [entry for entry in OUTS if entry[4] is None]
                for entry in apart if WHOLE else [apart[(place + turn) % len(apart)] for turn in TURNS]:
                    yield with_outs(s, case, (t,) * len(s.out), entry)
            for entry in OUTS if k else ():
                if entry[4] is not None:
                    case = s.case(structure, square(dtypes), s.draw_numbers(structure, rng))
                    yield with_outs(s, case, dtypes[:1] * len(s.out), entry)
