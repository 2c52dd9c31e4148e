"""PyTorch's samples as calls of methods, of objects nothing is known of: normalised, they give what they gave.

The first three samples of each operator that is a method written in C, or with KILN_TEST_ALL all of them.
"""
import itertools
import warnings

import descriptions
import fxlib
import pytest
import torch
import torch.fx as fx
from test_opdb import check, split
from torch.testing._internal.common_methods_invocations import op_db
from whole import WHOLE


def is_binding(op):
    method = op.method_variant
    return method is not None and getattr(torch.Tensor, getattr(method, "__name__", ""), None) is method


def samples(op):
    dtype = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
    return itertools.islice(descriptions.samples(op, dtype), None if WHOLE else 3)


def called(op, tensors, join):
    graph = fx.Graph()
    args, kwargs = join([graph.placeholder(f"t{k}") for k in range(len(tensors))])
    graph.output(graph.call_method(op.method_variant.__name__, args, kwargs))
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.filterwarnings("ignore")
def test_methods():
    failures, done, refused = [], 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in filter(is_binding, op_db):
            for number, sample in enumerate(samples(op)):
                tensors, join = split(sample)
                wrong = check(op, called(op, tensors, join), tensors)
                done += 1
                if wrong and wrong.startswith("the interpreter raises"):
                    refused += 1
                elif wrong:
                    failures.append(f"{op.name} {number}: {wrong}")
    fxlib.counts.append(f"methods: {done - refused - len(failures)} of {done - refused} samples give the same")
    assert not failures, f"{len(failures)} differ:\n" + "\n".join(failures[:40])
    assert done > 500 and refused < 0.02 * done
