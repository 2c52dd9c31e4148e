"""Types of module kiln.torch, which needs PyTorch."""
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

class Row(NamedTuple):
    operator: str
    taken: bool
    served: int
    handed_back: dict[str, int]

class Status(NamedTuple):
    """What is taken and what became of the calls; print() shows a table."""

    rows: list[Row]
    left_alone: dict[str, str]

def enable(which: Literal["default", "all"] | Iterable[str] = "default") -> None: ...
def disable() -> None: ...
def enabled(which: Literal["default", "all"] | Iterable[str] = "default") -> AbstractContextManager[None]: ...
def status() -> Status: ...
