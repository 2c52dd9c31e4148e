"""define(): a text that may be wrong -> operators of PyTorch's that are right, or an error and everything as it was.

A change is planned first: the rows are drafted by Kiln, which loads nothing, and what PyTorch may refuse is tried out under
another name.  Then it is applied as a whole; each step knows how it is undone.  An operator whose schema stays is not registered
anew: it gets another definition (_operator.py), so that threads may call it meanwhile.  PyTorch cannot give an operator another
schema, so that one is ended and made anew, and so are its gradients.  A gradient whose schema changes while its operator's stays
gets another overload: the old one is kept and refuses calls, and comes back when its schema does.
"""
import contextlib
import itertools
import textwrap
import threading
from typing import NamedTuple

import torch

from .. import _kiln
from . import _LEFT_ALONE
from ._operator import Definition, Operator, lock

_operators = {}  # by name: all that PyTorch has of ours
_SIZES, _CLAUSE = 1, 2  # ORDER: kiln_untraced


class _Draft(NamedTuple):
    """What Kiln says of a row that is not loaded."""
    name: str
    schema: str
    family: str
    fit: int  # kiln_bridge_fit
    gradients: list | None  # a row for each argument, "" where there is none
    untraced: int  # kiln_untraced
    word: str | None  # the function or the clause that cannot be traced


class _Plan(NamedTuple):
    """What an operator is to become."""
    name: str
    schema: str  # without the namespace
    definition: Definition
    parent: str | None  # the operator that this one is a gradient of


def define(name, row, *, differentiable=True, replace=False):
    """kiln.torch.define, once the bridge is loaded."""
    if not isinstance(name, str) or not isinstance(row, str):
        raise TypeError("an operator is defined by its name and its row, as str")
    row = textwrap.dedent(row).strip("\n") + "\n"
    with lock:
        old = _operators.get(name)
        defined = old is not None and old.parent is None
        if defined and (old.now.row, old.now.differentiable) == (row, differentiable):
            return old.op
        _check(name, row)
        if defined and not replace:
            raise ValueError(f"{name} is defined already, by another row; replace=True replaces it")
        if old is None and _exists(name) or old is not None and not defined and old.now is not None:
            raise ValueError(f"PyTorch has an operator {name} already")
        plan, rows = _planned(name, row, differentiable)
        ended = [old, *_offspring(name)] if old and old.schema != plan.schema else []
        gradients = _planned_gradients(name, rows, ended)
        idle = [] if ended else [operator for operator in _offspring(name) if operator.now]
        _apply([plan, *gradients.values()], ended, idle)
        plan.definition.gradients = _operators_of(gradients) if differentiable else None
        return _operators[name].op


def derive(operator):
    """Defines the gradients of an operator's definition.  NotImplementedError names what has no derivative."""
    rows = [_kiln.op_grad(operator.name, place) for place in range(len(operator.parameters))]
    gradients = _planned_gradients(operator.name, rows, [])
    _apply(list(gradients.values()), [], [])
    operator.now.gradients = _operators_of(gradients)


def _operators_of(plans):
    return {place: _operators[plan.name] for place, plan in plans.items()}


def _offspring(name):
    """The operators that are gradients of that one, gradients of these, and so on."""
    found = [operator for operator in _operators.values() if operator.parent == name]
    return found + [further for operator in found for further in _offspring(operator.name)]


# -- what is refused ------------------------------------------------------------------------------------------------------

def _check(name, row):
    """Raises unless the text is one row, of that name, that may be traced.  A row that Kiln cannot read is left to _drafts."""
    draft = _only_draft(name, row)
    if draft and draft.name != name:
        raise ValueError(f"the row is of {draft.name}, and not of {name}")
    namespace = name.partition("::")[0]
    if "::" not in name or namespace in ("aten", "prim", "prims"):
        raise ValueError(f"{name}: an operator of your own is in a namespace of its own, as my::{name.rpartition('::')[2]}")
    if draft and draft.untraced == _SIZES:
        raise NotImplementedError(f"{name}: a condition on sizes (size, span, numel, single, alike, covers) cannot be traced, so PyTorch cannot have the row")
    if draft and draft.untraced == _CLAUSE:
        raise NotImplementedError(f"{name}: the clause {draft.word!r} cannot be traced, so PyTorch cannot have the row")


def _only_draft(name, row):
    """The draft of the text's only row, or None if Kiln cannot read the row.  An alias, or a rule for complex numbers, is no row."""
    found = [line for line in row.split("\n") if line[:1] not in ("", " ", "\t", "\r", "#")]  # what a row, an alias or a rule starts with
    if len(found) == 1:
        try:
            drafts = [_Draft(*draft) for draft in _kiln.draft_ops(row, False)]
        except RuntimeError:
            return None
        found = [draft for draft in drafts if found[0].startswith(draft.family)]
    if len(found) != 1:
        raise ValueError(f"{name}: one row is wanted, as in 'map {name}(Tensor x) -> Tensor : takes float = x * x'; "
                         f"found {len(found)}")
    return found[0]


def _exists(name):
    base, _, overload = name.partition(".")
    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True


# -- plans ----------------------------------------------------------------------------------------------------------------

def _drafts(text):
    try:
        drafts = [_Draft(*draft) for draft in _kiln.draft_ops(text, False)]
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    for draft in drafts:
        try:
            torch._C.parse_schema(draft.schema)
        except RuntimeError as error:
            raise ValueError(f"PyTorch cannot read the schema of {draft.name}: {error}") from error
        if draft.fit:
            raise NotImplementedError(f"{draft.name} cannot be an operator of PyTorch's: {_LEFT_ALONE[draft.fit]}")
    return drafts


def _planned(name, row, differentiable):
    """The plan of an operator, and the rows of its gradients by place."""
    draft, = _drafts(row)
    rows = _Draft(*_kiln.draft_ops(row, True)[0]).gradients if differentiable else []
    return _Plan(name, draft.schema.partition("::")[2], Definition(row, draft.family, differentiable), None), rows


def _planned_gradients(parent, rows, ended):
    """Plans by the argument's place.  ended: operators whose names are about to be free."""
    given = {place: row for place, row in enumerate(rows) if row}
    drafts = _drafts("".join(given.values()))
    return {place: _planned_gradient(parent, draft, row, ended) for (place, row), draft in zip(given.items(), drafts)}


def _planned_gradient(parent, draft, row, ended):
    """The plan of one gradient.

    Tries the names NAME, NAME.v2, NAME.v3 and so on (NAME_v2 where NAME has an overload), and uses the first one that is free or belongs to an
    operator with the gradient's schema.  ValueError if a name that is tried belongs to PyTorch or to another operator's gradient.
    """
    for version in itertools.count(1):
        suffix = "" if version == 1 else f"_v{version}" if "." in draft.name else f".v{version}"
        name = draft.name + suffix
        schema = (name + draft.schema.removeprefix(draft.name)).partition("::")[2]
        there = _operators.get(name)
        if there is None and _exists(name) or there and there.now and there.parent != parent:
            raise ValueError(f"PyTorch has an operator {name} already")
        if there is None or there in ended or there.schema == schema:
            at = row.index("(")  # the end of the row's name
            return _Plan(name, schema, Definition(row[:at] + suffix + row[at:], draft.family, True), parent)


# -- changes --------------------------------------------------------------------------------------------------------------

def _apply(plans, ended, idle):
    """Makes operators what they are planned to be, ends some, and lets others refuse calls; or raises and changes nothing."""
    kept = [_operators[plan.name] for plan in plans if plan.name in _operators]
    changed = list({id(operator): operator for operator in (*kept, *ended, *idle)}.values())
    if ended:
        for plan in plans:
            _try_out(plan)
    for operator in changed:
        operator.changer = threading.get_ident()
    try:
        with contextlib.ExitStack() as undo:
            undo.callback(_restore, dict(_operators), [(operator, operator.now, operator.parent) for operator in changed])
            _apply_or_raise(plans, ended, idle, changed, undo)
            undo.pop_all()
    finally:
        for operator in changed:
            operator.changer = None


def _apply_or_raise(plans, ended, idle, changed, undo):
    """undo: gets what undoes each step."""
    names = {plan.name for plan in plans}
    idle = [operator for operator in idle if operator.name not in names]
    rows = {operator.name: operator.now.row for operator in changed if operator.now}
    undo.callback(_kiln.define_rows, list(rows.items()), [name for name in names if name not in rows])
    _kiln.define_rows([(plan.name, plan.definition.row) for plan in plans],
                      [operator.name for operator in (*ended, *idle) if operator.name not in names])
    for operator in ended:
        operator.close()
        del _operators[operator.name]
    for plan in plans:
        operator = _operators.get(plan.name)
        if operator is None:
            operator = _operators[plan.name] = Operator(plan.name, plan.schema)
            undo.callback(operator.close)
            operator.open()
        operator.serve()
    for plan in plans:
        _operators[plan.name].now, _operators[plan.name].parent = plan.definition, plan.parent
    for operator in idle:
        operator.now = None
        _kiln.bridge_drop(operator.name)


def _restore(operators, states):
    """Undoes a change, once the rows are as they were."""
    _operators.clear()
    _operators.update(operators)
    for operator, now, parent in states:
        operator.now, operator.parent = now, parent
        operator.open_again()
        if now:
            operator.serve()
        else:
            _kiln.bridge_drop(operator.name)


def _try_out(plan):
    """Registers an operator of the plan's schema under another name, so that what PyTorch refuses is refused while the old
    operator is there."""
    namespace = plan.name.partition("::")[0]
    trial = Operator(f"{namespace}::_kiln_trial", "_kiln_trial" + plan.schema[plan.schema.index("("):])
    try:
        trial.open()
    finally:
        trial.close()
