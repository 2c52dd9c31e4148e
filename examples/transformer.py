"""A pre-norm transformer block whose norms, softmax, gelu and residual adds are Kiln's, on NumPy arrays.

Matrix products are NumPy's, as Kiln has none.  Where PyTorch is installed the result is compared with the same block made of
torch.nn's modules; the script fails if they are far apart.

    .venv/bin/python examples/transformer.py      # after make python
"""
import sys

import numpy as np

import kiln

TOKENS, WIDTH, HEADS, HIDDEN = 24, 32, 4, 128

# What PyTorch has no operator for is a row: scores that are scaled and masked on their way into softmax's one pass over them.
kiln.load_ops("""
fold my::attend(Tensor scores, Tensor mask, float scale) -> Tensor : takes float
     over   last(1)
     let    x = scores * scale + mask
     state  m = lowest, s = 0
     block  m = max(x), s = sum(exp(x - m))
     finish each exp(x - m) / s
""")


def heads(x):
    return x.reshape(TOKENS, HEADS, -1).swapaxes(0, 1)


def block(x, w):
    h = kiln.call("layer_norm", x, [WIDTH], w["norm1"], w["bias1"])
    q, k, v = (heads(part) for part in np.split(h @ w["qkv"].T, 3, axis=1))
    mask = np.triu(np.full((TOKENS, TOKENS), -np.inf, dtype=x.dtype), 1)  # no token looks at later ones; the same for all heads
    p = kiln.call("my::attend", q @ k.swapaxes(1, 2), mask, (WIDTH // HEADS) ** -0.5)
    x = kiln.call("add", x, (p @ v).swapaxes(0, 1).reshape(TOKENS, WIDTH) @ w["out"].T)
    h = kiln.call("layer_norm", x, [WIDTH], w["norm2"], w["bias2"])
    m = kiln.call("gelu", h @ w["up"].T, approximate="tanh")
    return kiln.call("add", x, m @ w["down"].T)


def weights(rng):
    shapes = {"norm1": (WIDTH,), "bias1": (WIDTH,), "qkv": (3 * WIDTH, WIDTH), "out": (WIDTH, WIDTH), "norm2": (WIDTH,), "bias2": (WIDTH,),
              "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
    return {name: rng.uniform(-0.3, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def by_torch(torch, x, w):
    """The same, as PyTorch users write it."""
    f = torch.nn.functional
    x, w = torch.from_numpy(x), {name: torch.from_numpy(a) for name, a in w.items()}
    q, k, v = (heads(part).unsqueeze(0) for part in f.linear(f.layer_norm(x, [WIDTH], w["norm1"], w["bias1"]), w["qkv"]).chunk(3, 1))
    a = f.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
    x = x + f.linear(a.swapaxes(0, 1).reshape(TOKENS, WIDTH), w["out"])
    h = f.gelu(f.linear(f.layer_norm(x, [WIDTH], w["norm2"], w["bias2"]), w["up"]), approximate="tanh")
    return (x + f.linear(h, w["down"])).numpy()


def main():
    rng = np.random.default_rng(1)
    x, w = rng.uniform(-2, 2, (TOKENS, WIDTH)).astype(np.float32), weights(rng)
    y = block(x, w)
    print(f"a block of {TOKENS} tokens, {WIDTH} wide: largest number {np.abs(y).max():.4f}")
    try:
        import torch
    except ImportError:
        return 0
    want = by_torch(torch, x, w)
    near = bool(np.allclose(y, want, rtol=1.3e-6, atol=1e-5))  # torch.testing.assert_close's tolerances of f32
    print("as PyTorch's" if near else f"NOT as PyTorch's: {np.abs(y - want).max()} apart")
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main())
