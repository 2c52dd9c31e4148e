"""Arguments that belong together: for operators whose tensors have sizes that follow from each other.

Each function draws values for names of arguments from a Draw (drawn.py), which has other names drawn as their types say; names that
an operator does not have mean nothing.  A function is found by the operator's name.  PyTorch does not check the sizes of some of
these arguments and would read beyond them, so they always fit here.
"""
import re


def maybe(d, value):
    return None if d.chance(0.3) else value


def mask(d, n):
    return tuple(d.chance(0.7) for _ in range(n))


def over_last(d):
    d.shape = d.shape or (3,)
    n = d.rng.randint(1, len(d.shape))
    head, tail = d.shape[:-n], d.shape[-n:]
    stats = head + (1,) * n
    wrong = d.fault == "shape" and "native" not in d.s.name and "fused" not in d.s.name
    return {"input": d.view(d.shape), "grad_out": d.view(d.shape), "normalized_shape": (*tail[:-1], tail[-1] + 1) if wrong else tail,
            "weight": maybe(d, d.view(tail)), "bias": maybe(d, d.view(tail)), "mean": d.view(stats), "rstd": d.view(stats),
            "eps": d.pick(1e-5, 1e-3, 0.1), "output_mask": mask(d, 2 if "rms" in d.s.name else 3)}


def over_channels(d):
    d.domain = (0.125, 4.0)
    d.shape = (d.pick(1, 2, 3), d.pick(1, 4, 6), *((0,) if d.fault == "empty" else d.rng.choice(((), (5,), (1,), (3, 4), (2, 3, 2)))))
    channels = (d.shape[1],)
    statistics = not d.chance(0.3)

    def parameter():  # some are written to
        return d.view(channels, strides=(d.pick(1, 1, 2),))
    together = {"input": d.view(d.shape), "grad_out": d.view(d.shape), "weight": maybe(d, parameter()), "bias": maybe(d, parameter()),
                "running_mean": parameter() if statistics else None, "running_var": parameter() if statistics else None,
                "save_mean": parameter(), "save_invstd": parameter(), "save_var": parameter(), "reserve": d.view((0,), "u8"),
                "training": not statistics or d.chance(0.6), "train": not statistics or d.chance(0.6), "update": not statistics or d.chance(0.6),
                "momentum": d.pick(0.1, 0.5, 0.0, 1.0), "eps": d.pick(1e-5, 1e-3, 0.1), "output_mask": mask(d, 3), "cudnn_enabled": d.chance(0.5)}
    if not re.search(r"::(native_batch_norm|batch_norm|instance_norm|native_batch_norm_backward)(\.out)?$", d.s.name):
        together["running_mean"], together["running_var"] = parameter(), parameter()
        together["training"] = "no_stats" in d.s.name or d.chance(0.6)
    if d.s.name == "aten::batch_norm_backward":
        together["weight"] = parameter()
    return together


def over_groups(d):
    """PyTorch's gradient reads tensors as if they were row-major, and so beyond them."""
    d.layout = "dense" if "backward" in d.s.name else d.layout
    together = over_channels(d)
    d.shape = d.shape if d.shape[1] > 1 or d.chance(0.5) else (2, 6, 5)
    n, channels, *rest = d.shape
    groups = d.rng.choice([g for g in (1, 2, 3, 6) if channels % g == 0])
    size = 1
    for extent in rest:
        size *= extent
    together |= {"input": d.view(d.shape), "grad_out": d.view(d.shape), "N": n, "C": channels, "HxW": size, "group": groups, "num_groups": groups,
                 "mean": d.view((n, groups)), "rstd": d.view((n, groups)), "weight": maybe(d, d.view((channels,))), "bias": maybe(d, d.view((channels,)))}
    return together


def of_classes(d):
    classes = d.pick(1, 3, 5, 10)
    d.domain = (0, classes - 1)
    d.fill = "random"
    rest = (d.pick(2, 3), d.pick(1, 4)) if "2d" in d.s.name else ()
    if re.search("_nd|cross", d.s.name):
        rest = d.rng.choice(((), (), (4,), (2, 3), (2, 1, 3)))
    batch = (0 if d.fault == "empty" else d.pick(1, 2, 5, 5 if rest else 17),)
    batch = batch if rest or d.chance(0.8) else ()
    reduction = d.rng.choice((0, 1, 2))
    target = (*batch, *rest)
    likely = "cross" in d.s.name and d.chance(0.3)
    return {"self": d.view((*batch, classes, *rest)), "target": d.view((*batch, classes, *rest)) if likely else d.view(target, "i64"),
            "weight": maybe(d, d.view((classes,))), "reduction": reduction, "ignore_index": d.pick(-100, 0, 1), "label_smoothing": d.pick(0.0, 0.25, 1.0),
            "grad_output": d.view(target if reduction == 0 else ()), "total_weight": d.view(())}


def probabilities(d):
    d.domain = (0, 1)
    d.fill = "random"
    return {"self": d.view(d.shape), "target": d.view(d.shape), "weight": maybe(d, d.broadcast())}


def two_lists(d):
    d.fill = "random"
    batch = d.rng.choice(((), (), (2,), (3, 1)))
    p, r, m = 0 if d.fault == "empty" else d.pick(1, 3, 5), d.pick(1, 4), d.pick(1, 2, 7)
    return {"x1": d.view((*batch, p, m)), "x2": d.view((*batch, r, m)), "grad": d.view((*batch, p, r)), "cdist": d.view((*batch, p, r)),
            "p": d.pick(0.0, 1.0, 2.0, 3.0, 0.5, float("inf")), "compute_mode": d.pick(None, 0, 1, 2)}


def one_list(d):
    d.layout = "dense"
    return {"self": d.view((d.pick(0, 1, 2) if d.fault == "empty" else d.pick(2, 3, 5), 0 if d.fault == "empty" else d.pick(1, 3, 17))), "p": -1.0 if d.fault == "number" else d.pick(0.0, 1.0, 2.0, 3.0, 0.5, float("inf"))}


def square(d):
    return {"self": d.view((0 if d.fault == "empty" else d.pick(1, 3, 5), d.pick(1, 4, 7)) if d.fault != "shape" else d.shape)}


def gated(d):
    d.shape = tuple(d.pick(2, 4, 6) for _ in range(d.pick(1, 2, 3)))
    dim = d.rng.randrange(-len(d.shape), len(d.shape))
    half = list(d.shape)
    half[dim] //= 2
    whole = ("self", "x", "dx", "grad_x") if d.s.name != "aten::glu_jvp" else ("x", "dx")
    return {**{n: d.view(d.shape) for n in whole}, **{n: d.view(half) for n in ("grad_output", "glu", "grad_glu", "dgrad_glu")}, "dim": dim}


def along(d):
    """One sizes for all."""
    return {n: d.view(d.shape) for n in ("self", "grad_output", "output")} | {"dim": d.dim(), "half_to_float": d.fault == "number"}


def masked(d):
    return {n: d.view(d.shape) for n in ("self", "grad_output", "output")} | {"mask": d.view(d.shape, "bool" if d.fault != "dtype" else None)}


def by_length(d):
    """PyTorch divides by the number of elements of a row, and reads beyond rows that lie apart."""
    d.layout, d.domain = "dense", (1, 4)  # lengths are positive
    d.shape = d.shape if len(d.shape) > 1 and 0 not in d.shape else (3, 5)
    dim = d.pick(0, len(d.shape) - 1)
    kept = [n if k == dim else 1 for k, n in enumerate(d.shape)]
    return {n: d.view(d.shape) for n in ("v", "grad_w", "saved_v")} | {n: d.view(kept) for n in ("g", "saved_g", "saved_norms")} | {"dim": dim}


def picked(d):
    """PyTorch's medians read beyond a dimension that is expanded."""
    d.layout = "turned" if d.layout == "any" else d.layout
    return {"self": d.view(d.shape)}


def steps(d):
    d.domain, d.fill, d.layout = (1, 3), "random", "dense"
    shapes = [d.shape if d.chance(0.3) else (d.pick(1, 5, 33),) for _ in range(d.pick(1, 2, 4))]
    amsgrad, momentum, first = d.chance(0.3), d.pick(0.0, 0.9), d.chance(0.3)

    def like(present=True):
        return tuple(d.view(s) for s in shapes) if present else ()
    scale = d.view((), "f32")
    return {"self": like(), "grads": like(), "exp_avgs": like(), "exp_avg_sqs": like(), "max_exp_avg_sqs": like(amsgrad), "momentum_buffer_list": like(momentum != 0),
            "state_steps": tuple(d.view((), "f32") for _ in shapes), "lr": d.view((), "f32") if "tensor_lr" in d.s.name else d.pick(0.1, 0.01),
            "beta1": 0.9, "beta2": 0.99, "weight_decay": d.pick(0.0, 0.1), "eps": 1e-8, "momentum": momentum, "dampening": 0.0, "is_first_step": first,
            "nesterov": momentum != 0 and d.chance(0.3), "amsgrad": amsgrad, "grad_scale": maybe(d, scale) if d.chance(0.4) else None, "found_inf": None}


def lists(d):
    """One tensor beside a list has no dimensions."""
    return {"other": d.view(() if d.fault != "shape" else (3,))} if d.s.name.endswith(".Tensor") or d.s.name.endswith(".Tensor_out") else {}


def chosen(d):
    return {n: d.view(d.shape if d.chance(0.7) else (), "bool") for n in ("mask", "condition") if d.fault != "dtype"}


FUNCTIONS = [
    (r"layer_norm|rms_norm", over_last), (r"group_norm", over_groups), (r"batch_norm|instance_norm", over_channels),
    (r"^nll_loss|cross_entropy_loss", of_classes), (r"^binary_cross_entropy(_backward)?$", probabilities), (r"cdist", two_lists), (r"pdist", one_list),
    (r"^trace$", square), (r"^glu", gated), (r"^_masked_softmax", masked), (r"softmax", along), (r"^_weight_norm", by_length),
    (r"median|^mode$|^kthvalue$", picked), (r"^_fused_(adam|sgd)", steps), (r"^_foreach", lists), (r"^where|^masked_fill|^native_dropout_backward", chosen),
]


def function(name):
    """What draws arguments of the operator together, or None."""
    packet = name.removeprefix("aten::").partition(".")[0].removesuffix("_")
    return next((f for pattern, f in FUNCTIONS if re.search(pattern, packet)), None)
