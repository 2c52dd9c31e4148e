"""A few calls for every operator in which each thing is met, though not each with each: the covering set.

Met are every dtype as every argument, every layout, every special number, string and absent optional, every way in which
an out= tensor stands to the result and every way in which an in-place call shares memory.  Layouts are met with dtypes
that PyTorch takes, of several kinds, since a call that is refused says nothing of strides.  Values are dense: for each
dtype special ones (any two meet), wide ones and those of the row's domain.

What inference makes of combinations depends on the row's signature alone: cases.py makes those calls for one row of each.
"""
import itertools

import cases
from cases import LAYOUTS, LONG, OUTS, PLAIN, layouts, plain, square, views, with_outs
from kilnlib import DTYPES
from values import seeded

ZERO_D = [layout for layout in LAYOUTS if layout[0] in ("0-d first", "0-d second")]
KINDS = (("f32", "f64"), ("i64", "i32", "i16", "u8", "i8"), ("c64", "c128"), ("f16", "bf16"), ("bool",), ("u16", "u32", "u64"))
EACH_LAYOUT = 3  # calls with dtypes of different kinds


def taken(s, structure, k):
    """The dtypes that PyTorch takes for all k tensors."""
    return [t for t in s.dtypes if s.answers(plain(s, structure, (t,) * k))]


def by_kind(dtypes, rng):
    """Endless: dtypes such that those in a row are of different kinds."""
    kinds = [rng.sample(found, len(found)) for kind in KINDS if (found := [t for t in kind if t in dtypes])]
    turns = [itertools.cycle(kind) for kind in kinds]
    return (next(turn) for turn in itertools.cycle(turns))


def mixed(s, k, shifts):
    """Tuples of different dtypes: each dtype stands in each place, once per shift."""
    if k < 2:
        return []
    n = len(s.dtypes)
    return [tuple(s.dtypes[(i + shift * j) % n] for j in range(k)) for shift in shifts for i in range(n)]


def each_number(s, structure):
    """Every number for each argument that takes numbers, the others being usual."""
    usual = s.usual_numbers(structure)
    for place, argument in enumerate(s.number_arguments(structure)):
        for number in s.numbers_for(argument):
            yield [*usual[:place], number, *usual[place + 1:]]


def functional(s):
    for structure in s.structures():
        k, usual = len(s.present(structure)), s.usual_numbers(structure)
        rng = seeded("covering", s.name, str(structure))
        served = taken(s, structure, k)
        fills = itertools.cycle(("random",) if s.tame else ("random", "special"))
        for t in s.dtypes if k else s.dtypes[:1]:
            for fill in ("random", "special", "wide") if t in served and not s.tame else ("random",):
                yield s.case(structure, views(LONG, (t,) * k), usual, fill=fill, note="long")
        if not served:
            continue
        turn = by_kind(served, rng)
        for layout in layouts(k):
            for _ in range(EACH_LAYOUT):
                yield s.case(structure, views(layout, (next(turn),) * k), usual, fill=next(fills), note=layout[0])
        for dtypes, layout in zip(mixed(s, k, (1, 4, 7)), itertools.cycle(layouts(k))):
            yield s.case(structure, views(layout, dtypes), usual, fill=next(fills), note=layout[0])
        for dtypes, layout in itertools.product(mixed(s, k, (3,)), ZERO_D):  # which promote less, and are not rounded
            yield s.case(structure, views(layout, dtypes), usual, fill=next(fills), note=layout[0])
        some = itertools.cycle(layout for layout in LAYOUTS if layout[0] in ("0-d", "long", "0-d second", "empty"))
        for numbers in each_number(s, structure):
            for _ in range(2):
                layout = next(some)
                yield s.case(structure, views(layout, (next(turn),) * k), numbers, fill=next(fills), note=layout[0])


def inplace(s):
    for structure in s.structures():
        k, usual = len(s.present(structure)), s.usual_numbers(structure)
        rng = seeded("covering", s.name, str(structure))
        served = taken(s, structure, k)
        for dtypes in [(t,) * k for t in s.dtypes] + mixed(s, k, (1, 4)):
            yield s.case(structure, views(PLAIN, dtypes), usual, note=PLAIN[0])
        if not served:
            continue
        turn = by_kind(served, rng)
        for layout in layouts(k):
            yield s.case(structure, views(layout, (next(turn),) * k), usual, note=layout[0])
        for numbers in each_number(s, structure):
            yield s.case(structure, views(PLAIN, (next(turn),) * k), numbers, note=PLAIN[0])
        for other, how in itertools.product(range(1, k), range(3)):
            tensors = square([next(turn)] * k)
            tensors[other] = cases.shared_with(tensors[0])[how]
            yield s.case(structure, tensors, usual, note="shared memory")


def out_dtypes(s, case, t):
    """The first dtypes of out= tensors that PyTorch takes for a call of tensors of dtype t."""
    candidates = list(dict.fromkeys((t, "bool", "f32", "f64", "i32", "i64", "c64", "c128")))
    return next((dtypes for dtypes in itertools.product(candidates, repeat=len(s.out))
                 if s.answers(with_outs(s, case, dtypes, OUTS[0]))), None)


def out(s):
    for structure in s.structures():
        k, usual = len(s.present(structure)), s.usual_numbers(structure)
        rng = seeded("covering", s.name, str(structure))

        def call(t):
            return s.case(structure, square([t] * k), usual)
        right = {t: out_dtypes(s, call(t), t) for t in s.dtypes}
        served = [t for t in s.dtypes if right[t]]
        turn = by_kind(served or s.dtypes, rng)
        for t in s.dtypes:  # as the argument, and as out=
            yield with_outs(s, call(t), (t,) * len(s.out), OUTS[0])
            yield with_outs(s, call(next(turn)), (t,) * len(s.out), OUTS[0])
        for entry in OUTS if served else ():
            for _ in range(EACH_LAYOUT):
                t = next(turn)
                if case := with_outs(s, call(t), right[t], entry):
                    yield case


assert sorted(t for kind in KINDS for t in kind) == sorted(DTYPES), "every dtype is of one kind"
