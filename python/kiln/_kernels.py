"""kiln.kernels(): classes of calls as named tuples, in a list whose text is a table."""
import collections

_TIERS = ["compiled", "interp", "routine", "view"]  # in the order of the list


class Kernel(collections.namedtuple("Kernel", ["operator", "key", "tier", "interp_calls", "build_ms", "code_bytes", "failed_builds"])):
    """A class of calls."""

    __slots__ = ()

    def order(self):
        """What the list is sorted by."""
        return _TIERS.index(self.tier), -self.build_ms, -self.interp_calls, self.operator, self.key


class Kernels(list):
    """A list of Kernel."""

    def __str__(self):
        lines = [f"{'operator':32} {'tier':11} {'interp calls':>12} {'build ms':>9} {'bytes':>8} {'failed':>6}  key"]
        lines += [f"{k.operator.removeprefix('aten::'):32} {k.tier:11} {k.interp_calls:12} {k.build_ms:9.1f} {k.code_bytes:8} {k.failed_builds:6}  {k.key}"
                  for k in self]
        return "\n".join(lines)
