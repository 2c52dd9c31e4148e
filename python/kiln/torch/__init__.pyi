"""Types of module kiln.torch, which needs PyTorch."""
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

class Row(NamedTuple):
    operator: str
    taken: bool
    served: int
    handed_back: dict[str, int]

class Work(NamedTuple):
    """How far calls run by kernels: of this process, since the last kiln.configure, kiln.call included."""

    compiled: int
    interpreted: int
    built: int
    waiting: int
    failed: int
    problem: str | None

class Status(NamedTuple):
    """What is taken and what became of the calls; print() shows a table."""

    rows: list[Row]
    left_alone: dict[str, str]
    work: Work
    threads: tuple[str, int]

def enable(which: Literal["default", "all"] | Iterable[str] = "default") -> None: ...
def disable() -> None: ...
def enabled(which: Literal["default", "all"] | Iterable[str] = "default") -> AbstractContextManager[None]: ...
def status() -> Status: ...
