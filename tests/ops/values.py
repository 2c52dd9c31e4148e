"""What stands in tensors: special values of each dtype, random ones of a domain, and any bits ("wide").

Everything random is seeded by the name of what it is for, so it is the same in every run.  Nothing is known here of
operators or of layouts.
"""
import functools
import random
import zlib

import torch

from kilnlib import DTYPES

MEMORY = 4096  # elements behind each tensor argument


def seeded(*what):
    return random.Random(zlib.crc32(repr(what).encode()))


SPECIAL = 32  # at least as many as there are special values of any type


def special_values(dtype):
    if dtype == torch.bool:
        return [False, True]
    if dtype.is_complex:
        inf, nan = float("inf"), float("nan")
        return [complex(x, y) for x, y in (
            (0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 0.5), (0.5, -2), (3, 4), (-3, 4), (1e-3, 2), (2, 1e-3), (-2.5, -1.5),
            (7, -3), (1e4, 1), (1, -1e4), (-0.0, 0), (0, -0.0), (-1, -0.0), (inf, 0), (-inf, 0), (0, inf), (0, -inf), (inf, 2), (-inf, -1),
            (1, inf), (inf, inf), (nan, 0), (0, nan), (nan, nan), (inf, nan), (nan, -inf))]
    if not dtype.is_floating_point:
        i = torch.iinfo(dtype)
        return [v for v in (0, 1, -1, 2, 3, -7, 100, i.min, i.max, i.min + 1, i.max - 1, 63, 64) if i.min <= v <= i.max]
    f = torch.finfo(dtype)
    return [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), f.max, f.min, f.tiny,
            f.smallest_normal * f.eps, -f.tiny, 0.5, -0.5, 1.5, 2.5, -3.0, 100.0, f.eps, 1e-3]


def numbers_from(what):
    """A source of random tensors that is the same in every run."""
    return torch.Generator().manual_seed(zlib.crc32(repr(what).encode()))


def uniform(low, high, source):
    return low + (high - low) * torch.rand(MEMORY, generator=source, dtype=torch.float64)


def random_values(dtype, domain, source):
    low, high = domain
    whole = torch.randint(int(low), int(high) + 1, (MEMORY,), generator=source)
    if dtype == torch.bool:
        return whole % 2 == 1
    if dtype.is_floating_point:  # a few whole numbers, for ties
        return torch.where(uniform(0, 1, source) < 0.9, uniform(low, high, source), whole.to(torch.float64)).to(dtype)
    if dtype.is_complex:
        return torch.complex(uniform(low, high, source), uniform(low, high, source)).to(dtype)
    i = torch.iinfo(dtype)
    return torch.randint(max(int(low), i.min), min(int(high), i.max) + 1, (MEMORY,), generator=source).to(dtype)


def wide_values(dtype, source):
    """Any bits: every exponent, every integer."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (MEMORY,), generator=source) == 1
    if dtype.is_complex:  # parts of like size, none so large that a square overflows
        parts = [uniform(-1, 1, source) * 10.0 ** torch.randint(-9, 10, (MEMORY,), generator=source) for _ in range(2)]
        return torch.complex(*parts).to(dtype)
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, 256, (MEMORY * size,), generator=source, dtype=torch.uint8).view(dtype)


def mixed_values(dtype, values, source):
    """The values, and among floats here and there NaN, infinities, both zeros and equal numbers."""
    if not dtype.is_floating_point:
        return values
    some = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.5, 0.5], dtype=torch.float64).to(dtype)
    place = torch.randint(0, 12 * len(some), (MEMORY,), generator=source)
    return torch.where(place < len(some), some[place.clamp(max=len(some) - 1)], values)


def without(values, avoid):
    """The values but for those to avoid, in their order, again from the start where some are missing."""
    kept = [v for v in values.tolist() if v not in avoid]
    return torch.tensor((2 * kept)[:MEMORY], dtype=values.dtype)


@functools.lru_cache(maxsize=None)
def memory(dtype, fill, position, domain, avoid=()):
    """What stands behind the argument at `position`.  Read only: written arguments get a copy.  Special values are
    laid out so that any two arguments meet in every combination within SPECIAL squared elements."""
    t = DTYPES[dtype]
    if fill == "mixed":
        return mixed_values(t, memory(dtype, "random", position, domain, avoid), numbers_from(("mixed", dtype, position, domain)))
    if fill != "special":
        source = numbers_from(("memory", dtype, fill, position, domain))
        values = wide_values(t, source) if fill == "wide" else random_values(t, domain, source)
        return without(values, avoid) if avoid else values
    values = [v for v in special_values(t) if v not in avoid]
    step = (1, SPECIAL, 7)[position % 3]
    values = [values[p // step % len(values)] for p in range(MEMORY)]
    return torch.tensor(values, dtype=torch.float64 if t.is_floating_point else t).to(t)
