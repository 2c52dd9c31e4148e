"""PyTorch's own samples of operators (torch.testing._internal), the same as its `sample_inputs` gives.

That looks for the running test on the stack before each sample, and seeds devices that are not there, each of which formats
a traceback: more than nine tenths of the time that samples take.  Here the numbers are seeded and nothing else is done.
"""
import random

import numpy as np
import torch

SEED = 1234  # what PyTorch's iterator seeds with before each sample


def seed(n):
    """torch.manual_seed, and those of Python and NumPy, for what runs on the CPU."""
    torch.default_generator.manual_seed(n)
    random.seed(n)
    np.random.seed(n)


def seeded(items):
    items = iter(items)
    while True:
        seed(SEED)
        try:
            yield next(items)
        except StopIteration:
            return


def samples(op, dtype):
    """SampleInputs of the description op."""
    return seeded(op.sample_inputs_func(op, "cpu", dtype, False))


def wrong_samples(op):
    """SampleInputs that PyTorch refuses."""
    if op.error_inputs_func is not None:
        for wrong in seeded(op.error_inputs_func(op, "cpu")):
            yield wrong.sample_input
