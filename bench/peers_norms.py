"""Softmax, norms and losses, and their gradients, beside PyTorch: results are ready on both sides where the overload takes out=.

Each row of CASES is an overload, what it is called with for a tensor, and its cells: over what, the shape, and the goal as times
PyTorch's speed.  Kiln's results are compared with PyTorch's before anything is timed, but for shapes from memory, whose kernels
smaller shapes have shown.

PyTorch has no kernel for some out= overloads: what its generator made of them calls the form without out= and copies.  Their goals are
of out= on both sides as well, and the line says how Kiln fares beside the form that does not copy, which is what PyTorch's modules call.
Losses are called without out= but for nll_loss: PyTorch's overloads take it for room for all elements, so that a ready result of one
element is resized with a warning at each call, and binary_cross_entropy answers with the loss of the first element.
rms_norm is `_fused_rms_norm`, which torch.rms_norm calls too; on a CPU PyTorch composes it of other operators, and has no
`_fused_rms_norm_backward`.  There is no l1_loss_backward anywhere: autograd multiplies by the sign.

Each line is measured beside the quickest plain operator of either side that reads and writes as many whole tensors, once each:
setting them to 0, negating one, adding two, or summing one (one column of it, as nll_loss reads).  Where a goal asks for less time than that, peers_folds.reachable() says
what is asked for instead.
"""
import json
import math

import torch

import kiln
from peers_folds import asked, goal, measure, reachable

IN_CACHE, NEAR, MEMORY, NARROW, IMAGES = [64, 1000], [4096, 768], [1024, 16384], [65536, 10], [32, 64, 56, 56]
IN_A_ROW = {tuple(NEAR): 5}  # its tensors fit the last cache, from which the other side's have driven them at the first call
EPS, MEAN = 1e-5, 1  # MEAN: the reduction of a loss
ALL = [True, True, True]  # gradients that are wanted


def over(what, goals, shapes=(IN_CACHE, NEAR, MEMORY, NARROW)):
    return [(what, shape, want) for shape, want in zip(shapes, goals)]


def softmax(x, dim):
    return x, dim, False


def softmax_gradient(function):
    return lambda x, dim: (torch.rand_like(x), function(x, dim), dim, x.dtype)


def layer_norm(x, _):
    return x, x.shape[-1:], torch.rand(x.shape[-1]), torch.rand(x.shape[-1]), EPS


def layer_norm_gradient(x, dim):
    _, shape, weight, bias, _ = args = layer_norm(x, dim)
    _, mean, rstd = torch.native_layer_norm(*args)
    return torch.rand_like(x), x, shape, mean, rstd, weight, bias, ALL


def rms_norm(x, _):
    return x, x.shape[-1:], torch.rand(x.shape[-1]), EPS


def batch_norm(train):
    return lambda x, _: (x, *(torch.rand(x.shape[1]) + 0.5 for _ in range(4)), train, 0.1, EPS)


def batch_norm_gradient(train):
    def arguments(x, dim):
        _, weight, _, mean, variance, *_ = args = batch_norm(train)(x, dim)
        saved = torch.native_batch_norm(*args)[1:]
        return torch.rand_like(x), x, weight, mean, variance, *saved, train, EPS, ALL
    return arguments


def group_norm(groups):
    return lambda x, _: (x, torch.rand(x.shape[1]), torch.rand(x.shape[1]), *x.shape[:2], math.prod(x.shape[2:]), groups, EPS)


def group_norm_gradient(groups):
    def arguments(x, dim):
        _, weight, _, *sizes, _ = args = group_norm(groups)(x, dim)
        _, mean, rstd = torch.native_group_norm(*args)
        return torch.rand_like(x), x, mean, rstd, weight, *sizes, ALL
    return arguments


def loss(*more):
    return lambda x, _: (x, torch.rand_like(x), *more)


def loss_gradient(*more):
    return lambda x, _: (torch.tensor(0.5), x, torch.rand_like(x), *more)


def nll_loss(x, _):
    return x, torch.randint(x.shape[1], x.shape[:1]), None, MEAN, -100


def nll_loss_gradient(x, dim):
    return torch.tensor(0.5), *nll_loss(x, dim), torch.tensor(float(len(x)))


SOFTMAX = over("last", (1.8, 1.8, 1.25, 1)) + over("first", (2.8, 3.5, 3.5, 1))
SOFTMAX_BACK = over("last", (1.5, 1.5, 1.5, 1)) + over("first", (1.5, 1.5, 1.5, 1))
LOSS, SCORES = over("all", (1.5, 1.5, 1.5)), over("rows", (1.5, 1.5, 1.5), (IN_CACHE, NEAR, NARROW))
BATCH, BATCH_BACK = (over("batch", (want,), (IMAGES,)) for want in (1.2, 1.5))
GROUPS, GROUPS_BACK = (over("groups", (want,), (IMAGES,)) for want in (1.2, 1.5))
# Name -> (overload, its arguments for a tensor and a dimension, cells).
CASES = {
    "softmax": ("_softmax.out", softmax, SOFTMAX),
    "log_softmax": ("_log_softmax.out", softmax, SOFTMAX),
    "softmax backward": ("_softmax_backward_data.out", softmax_gradient(torch.softmax), SOFTMAX_BACK),
    "log_softmax backward": ("_log_softmax_backward_data.out", softmax_gradient(torch.log_softmax), SOFTMAX_BACK),
    "layer_norm": ("native_layer_norm.out", layer_norm, over("last", (1.7, 1.25, 1.25, 1))),
    "layer_norm backward": ("native_layer_norm_backward.out", layer_norm_gradient, over("last", (1.5, 1.5, 1.5, 1))),
    "rms_norm": ("_fused_rms_norm.default", rms_norm, over("last", (4, 4, 4, 1))),
    "batch_norm train": ("native_batch_norm.out", batch_norm(True), BATCH),
    "batch_norm eval": ("native_batch_norm.out", batch_norm(False), BATCH),
    "batch_norm backward": ("native_batch_norm_backward.out", batch_norm_gradient(True), BATCH_BACK),
    "group_norm 32": ("native_group_norm.out", group_norm(32), GROUPS),
    "group_norm 8": ("native_group_norm.out", group_norm(8), GROUPS),
    "group_norm 32 backward": ("native_group_norm_backward.out", group_norm_gradient(32), GROUPS_BACK),
    "group_norm 8 backward": ("native_group_norm_backward.out", group_norm_gradient(8), GROUPS_BACK),
    "mse_loss": ("mse_loss.default", loss(MEAN), LOSS),
    "l1_loss": ("l1_loss.default", loss(MEAN), LOSS),
    "smooth_l1_loss": ("smooth_l1_loss.default", loss(MEAN, 0.5), LOSS),
    "huber_loss": ("huber_loss.default", loss(MEAN, 0.5), LOSS),
    "bce": ("binary_cross_entropy.default", loss(None, MEAN), LOSS),
    "bce_with_logits": ("binary_cross_entropy_with_logits.default", loss(None, None, MEAN), LOSS),
    "kl_div": ("kl_div.default", loss(MEAN), LOSS),
    "soft_margin_loss": ("soft_margin_loss.default", loss(MEAN), LOSS),
    "nll_loss": ("nll_loss_forward.output", nll_loss, SCORES),
    "mse_loss backward": ("mse_loss_backward.grad_input", loss_gradient(MEAN), LOSS),
    "smooth_l1_loss backward": ("smooth_l1_loss_backward.grad_input", loss_gradient(MEAN, 0.5), LOSS),
    "huber_loss backward": ("huber_loss_backward.out", loss_gradient(MEAN, 0.5), LOSS),
    "bce backward": ("binary_cross_entropy_backward.grad_input", loss_gradient(None, MEAN), LOSS),
    "soft_margin backward": ("soft_margin_loss_backward.grad_input", loss_gradient(MEAN), LOSS),
    "nll_loss backward": ("nll_loss_backward.grad_input", nll_loss_gradient, SCORES),
}


def copied(args):
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


def ready(function, args):
    """Results to write to, by their names in the schema; none if the overload takes none."""
    names = [a.name for a in function._schema.arguments if a.is_out]
    results = function._overloadpacket.default(*args) if names else ()
    return dict(zip(names, [results] if isinstance(results, torch.Tensor) else results))


def tensors(*given):
    return [t for t in given if isinstance(t, torch.Tensor) and t.numel()]


def compare(ours, function, args, out):
    """Results, and arguments that the call may have written, are PyTorch's but for rounding: sums have it of their largest terms."""
    one, other = copied(args), copied(args)
    found = ours(*one, **{name: result.clone().fill_(math.nan) for name, result in out.items()})
    expected = function(*other, **out)
    found, expected = ([t] if isinstance(t, torch.Tensor) else t for t in (found, expected))
    for mine, theirs in zip(tensors(*found, *one), tensors(*expected, *other), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item(),
                                   msg=lambda text: f"{function}: {text}")


def sides(overload, args, checked):
    """(Kiln, PyTorch, PyTorch without out= if its out= copies, else None), functions without arguments."""
    packet, form = overload.split(".")
    function, ours = getattr(getattr(torch.ops.aten, packet), form), kiln.op(f"aten::{overload.removesuffix('.default')}")
    out = ready(function, args)
    if checked:
        compare(ours, function, args, out)
    copies = torch.Tag.generated in function.tags
    return (lambda: ours(*args, **out)), (lambda: function(*args, **out)), (lambda: function._overloadpacket.default(*args)) if copies else None


def plain(name, shape):
    """Best time of an operator that does next to nothing with the tensors that the named one must read and write."""
    x, y, out = torch.rand(shape), torch.rand(shape), torch.rand(shape)
    if name == "nll_loss":  # it reads one element of each row
        x = x[:, 0]
        calls = (lambda: kiln.op("aten::sum")(x)), (lambda: torch.sum(x))
    elif name == "nll_loss backward":
        calls = out.zero_, out.zero_  # Kiln has no zero_
    elif "backward" in name:
        calls = (lambda: kiln.op("aten::add.out")(x, y, out=out)), (lambda: torch.add(x, y, out=out))
    else:
        calls = (lambda: kiln.op("aten::neg.out")(x, out=out)), (lambda: torch.neg(x, out=out))
    return min(measure(calls, IN_A_ROW.get(tuple(shape), 1))[0].values())


def rows():
    for name, (overload, arguments, cells) in CASES.items():
        for what, shape, want in cells:
            args = arguments(torch.rand(shape) * 0.98 + 0.01, 0 if what == "first" else -1)
            ns, spread = measure(sides(overload, args, shape != MEMORY), IN_A_ROW.get(tuple(shape), 1))
            if "numpy" in ns:
                ns["torch without out"] = ns.pop("numpy")  # the third side is not NumPy here
            ns["plain"] = plain(name, shape)
            within = reachable(want, ns["torch"], ns["plain"])
            yield {"bench": "norms", "name": name, "over": what, "shape": shape, "asked": want, "goal": within, "ns": ns, "spread": spread,
                   "met": ns["torch"] / ns["kiln"] * spread >= within}


def shown(r):
    ns, size = r["ns"], math.prod(r["shape"])
    each = ns["kiln"] / size
    beside = f", {ns['torch without out'] / ns['kiln']:.2f} without out= there" if "torch without out" in ns else ""
    beside += f"; goal {ns['torch'] / r['goal'] / size:.3f}, plain {ns['plain'] / size:.3f}"
    return (f"{r['name']:23} {r['over']:6} {str(r['shape']):16} {ns['torch'] / ns['kiln']:6.2f}  goal {asked(r['asked'], r['goal'])}"
            f"  {each:.3f} ns an element, PyTorch beside itself {r['spread']:.2f}{beside}")


def run(as_json, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    met = []
    for r in rows():
        met.append(r["met"])
        if as_json:
            print(json.dumps(r))
        else:
            goal(r["met"], shown(r))
    if not as_json:
        print(f"{sum(met)} of {len(met)} goals of softmax, norms and losses are met with {threads} thread{'s' * (threads > 1)}")
    return len(met) - sum(met)
