"""What of a notebook is run, in forks of this process, which itself runs none of it.

One fork runs all cells, only to see which of them fail. Each answer is then built in a fork of its
own, from the statements that it needs, and judged there; an answer that is a dict comes back as
plain data, and is judged here.
"""

from __future__ import annotations

import ast
import signal
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from course_utils import checks
from course_utils.grade import process
from course_utils.grade.notebook import Statement
from course_utils.grade.process import Send

_CHECK_SECONDS = 300.0  # what a check may take beside the answer's own time, such as compiling
_LONGEST = 300  # characters of a message
_PLAIN = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Judged:
    """What came of an answer.

    Attributes:
        state: as a verdict's; None where there was nothing to judge.
        text: the card.
        problem: what is wrong.
        failures: of the statements that the answer is made of, those that failed, and how.
    """

    state: str | None
    text: str = ""
    problem: str = ""
    failures: tuple[str, ...] = ()


def run_cells(statements: Sequence[Statement], seconds: float) -> tuple[str, ...]:
    """Run a notebook's cells in order, each until something fails in it.

    Args:
        statements: of all cells.
        seconds: for all of them together.

    Returns:
        What failed, a sentence each.
    """

    def work(send: Send) -> None:
        namespace = _namespace()
        for _, cell in groupby(statements, key=lambda statement: statement.cell):
            for statement in cell:
                if not _execute(statement, namespace, send):
                    break

    return _failures(process.run(work, seconds))


def judge(name: str, called: str, statements: Sequence[Statement], seconds: float) -> Judged:
    """Build an answer and judge it, on inputs that nobody has seen before.

    Args:
        name: the task's.
        called: the answer's name in the notebook.
        statements: what the answer is made of.
        seconds: for building it, and again for running it.
    """

    def work(send: Send) -> None:
        namespace = _namespace()
        signal.setitimer(signal.ITIMER_REAL, seconds)  # ends the fork
        for statement in statements:
            _execute(statement, namespace, send)
        answer = namespace.get(called, _Nothing)
        data = _plain(answer) if isinstance(answer, Mapping) else None
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(built=answer is not _Nothing, data=data)
        if answer is not _Nothing and data is None:
            send(verdict=_verdict(name, answer, seconds))

    ended = process.run(work, 2 * seconds + _CHECK_SECONDS)
    failures = _failures(ended, seconds)
    last = ended.messages[-1] if ended.messages else {}
    if "built" in last and not last["built"]:
        return Judged(None, failures=failures)
    if last.get("data") is not None:
        last = {"verdict": _verdict(name, dict(last["data"]), seconds)}
    if "verdict" in last:
        return Judged(*last["verdict"], failures)
    problem = failures[-1] if failures else f"it {ended.cause or 'was not judged to its end'}"
    return Judged(checks.FAILED, problem=problem, failures=failures)


class _Nothing:
    """Stands for an answer that is not there."""


def _verdict(name: str, answer: Any, seconds: float) -> tuple[str, str, str]:
    """Return what the checks say: the state, the card, and what is wrong."""
    verdict = checks.run(name, answer, fresh=True, time_limit=seconds, record=False)
    return verdict.state, verdict.text, verdict.problem


def _namespace() -> dict[str, Any]:
    """Make the module that cells run in."""
    from IPython.display import display

    module = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(module)["display"] = display
    return vars(module)


def _execute(statement: Statement, namespace: dict[str, Any], send: Send) -> bool:
    """Run a statement; tell that it begins, and how it ended; return whether it ended well."""
    send(cell=statement.cell, text=statement.text)
    try:
        tree = ast.Module([statement.node], [])
        exec(compile(tree, statement.file, "exec", dont_inherit=True), namespace)
    except BaseException as error:  # SystemExit too
        lines = str(error).strip().splitlines()
        words = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        send(cell=statement.cell, text=statement.text, failed=f"raised {_short(words)}")
        return False
    send(done=True)
    return True


def _failures(ended: process.Ended, seconds: float | None = None) -> tuple[str, ...]:
    """Say which statements failed; the last one too, if it was not heard to end.

    Args:
        ended: what became of the fork that ran them.
        seconds: what an alarm in the fork was set to, if one was.
    """
    cause = ended.cause
    if seconds is not None and "SIGALRM" in cause:
        cause = process.out_of_time(seconds)
    failed = [message for message in ended.messages if "failed" in message]
    last = ended.messages[-1] if ended.messages else {}
    if cause and "text" in last and last not in failed:
        failed.append(last | {"failed": cause})
    return tuple(f"code cell {m['cell']} {m['failed']} (in `{m['text']}`)" for m in failed)


def _plain(answer: Mapping[Any, Any]) -> list[list[Any]]:
    """Copy a dict into lists that JSON knows, so that nothing of the notebook's own comes along."""
    return [[_plain_value(key), _plain_value(value)] for key, value in dict(answer).items()]


def _plain_value(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if value is ...:
        return None  # no answer yet, just the same
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain_value(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain_value(part) for key, part in value.items()}
    try:
        return float(value)  # fractions, and numbers of numpy and of torch
    except Exception:
        return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
