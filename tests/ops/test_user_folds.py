"""The folds that docs/OPS.md shows, loaded from its text and compared with NumPy, on both tiers."""
from pathlib import Path

import numpy as np
import pytest
import torch

from kilnlib import Kiln

ROOT = Path(__file__).parents[2]


def documented_folds():
    section = (ROOT / "docs" / "OPS.md").read_text().split("## Folds of your own")[1].split("\n## ")[0]
    return section.split("```ops\n")[1].split("```")[0]


SHAPES = [((7,), 0), ((5000,), 0), ((60, 70), 0), ((60, 70), 1), ((3, 130, 9), 1), ((2, 3), 1)]


def folded(name, *args):
    """The call's results, which are the same interpreted and compiled."""
    seen = []
    for mode in ("interp", "sync"):
        with Kiln(mode) as kiln:
            kiln.load(documented_folds())
            result = kiln.op(name)(*(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args))
            seen.append([r.numpy() for r in (result if isinstance(result, tuple) else (result,))])
    for a, b in zip(*seen, strict=True):
        assert a.tobytes() == b.tobytes()
    return seen[0]


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_the_weighted_fold(shape, dim):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal(shape), rng.random(shape)
    mean, var = folded("my::weighted", x, w, [dim])
    want = np.average(x, dim, w)
    np.testing.assert_allclose(mean, want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(var, np.average((x - np.expand_dims(want, dim)) ** 2, dim, w), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_the_soft_maximum(shape, dim):
    x = np.random.default_rng(2).standard_normal(shape) * 800
    [got] = folded("my::soft_max", x, 2.5, [dim])
    top = x.max(dim, keepdims=True)
    np.testing.assert_allclose(got, np.log(np.exp(2.5 * (x - top)).sum(dim)) / 2.5 + top.squeeze(dim), rtol=1e-12)


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_the_nearest_label(shape, dim):
    rng = np.random.default_rng(3)
    distance, label = rng.integers(0, 40, shape).astype(np.float64), rng.integers(0, 1000, shape)
    distance[rng.random(shape) < 0.1] = np.inf
    least, which, at = folded("my::nearest", distance, label, dim)
    want = distance.argmin(dim)
    np.testing.assert_array_equal(at, want)
    np.testing.assert_array_equal(least, distance.min(dim))
    np.testing.assert_array_equal(which, np.take_along_axis(label, np.expand_dims(want, dim), dim).squeeze(dim))
