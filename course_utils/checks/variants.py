"""Other versions of a right answer: wrong ones that people write, and right ones in another style.

A version is the right answer's source text with some of it exchanged, which keeps it short, and
true to an answer that changes; or functions of its own.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Edit = tuple[str, str]
"""A piece of the source, which must stand there exactly once, and what replaces it."""

_numbers = itertools.count()
_ALIKE = 0.6  # of difflib's ratio, from which on a line is shown as the likely one


@dataclass(frozen=True)
class Variant:
    """Another version of a task's right answer.

    Attributes:
        name: a name in snake_case, one of a kind within the task.
        edits: what is exchanged in the right answer's source.
        functions: or functions of its own, the answer itself last.
    """

    name: str
    edits: Sequence[Edit] = ()
    functions: Sequence[Any] = ()

    def build(self, solution: Sequence[Any], **globals_: Any) -> Callable[..., Any]:
        """Return this version of the answer.

        Args:
            solution: the right answer's functions, the answer itself last.
            globals_: values of global names, such as BLOCK, in place of the module's.

        Raises:
            ValueError: if an edit's text does not stand in the source exactly once.
        """
        parts = self.functions or solution
        name = _name_of(parts[-1])
        return rebuilt(edited(source_of(parts), self.edits, self.name), parts, name, **globals_)

    def source(self, solution: Sequence[Any]) -> str:
        """Return this version's source text."""
        return edited(source_of(self.functions or solution), self.edits, self.name)


@dataclass(frozen=True)
class Mistake(Variant):
    """A wrong version that people really write.

    Attributes:
        says: what is wrong, in one sentence to the reader.
        hint: what to think about; the task's own first hint if empty.
        refused: for what the interpreter takes and a compiler refuses: a pattern in its message.
    """

    says: str = ""
    hint: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Alternative(Variant):
    """A right version in another style."""


def source_of(functions: Sequence[Any]) -> str:
    """Return the source text of functions, decorators included, in their order."""
    parts = [inspect.getsource(getattr(function, "fn", function)) for function in functions]
    return "\n\n".join(textwrap.dedent(part).strip("\n") for part in parts) + "\n"


def edited(source: str, edits: Sequence[Edit], name: str) -> str:
    """Exchange pieces of a text, each of which must stand there exactly once."""
    for old, new in edits:
        count = source.count(old)
        if count != 1:
            raise ValueError(f"{name}: {old!r} stands in the source {count} times, not once")
        source = source.replace(old, new)
    return source


def rebuilt(
    source: str, functions: Sequence[Any], name: str, **globals_: Any
) -> Callable[..., Any]:
    """Define functions from a text, with the names that the given functions see."""
    first = getattr(functions[-1], "fn", functions[-1])
    namespace = {**first.__globals__, **globals_}
    file = f"<{name} {next(_numbers)}>"
    # Triton reads the source of what it interprets, and tracebacks show it.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def changed_lines(right: str, edits: Sequence[Edit]) -> list[str]:
    """Return the lines that edits bring in, without indentation; empty where they only remove."""
    before = {line.strip() for line in right.splitlines()}
    after = edited(right, edits, "")
    return [line.strip() for line in after.splitlines() if line.strip() not in before]


def line_like(solution: Sequence[Any], mistake: Mistake, functions: Iterable[Any]) -> str | None:
    """Return the line of some functions that looks most like a mistake's wrong line, if any."""
    if mistake.functions:
        return None
    wanted = changed_lines(source_of(solution), mistake.edits)
    best, found = _ALIKE, None
    for function in functions:
        try:
            lines, _ = inspect.getsourcelines(getattr(function, "fn", function))
        except (OSError, TypeError):
            continue
        start = next((i for i, text in enumerate(lines) if text.lstrip().startswith("def ")), 0)
        for number, text in enumerate(lines[start:], start=1):
            for pattern in wanted:
                ratio = difflib.SequenceMatcher(None, pattern, text.strip()).ratio()
                if ratio > best:
                    best, found = ratio, f"{_name_of(function)}, line {number}: {text.strip()}"
    return found


def same_code(one: str, other: str) -> bool:
    """Tell whether two texts are the same program, whatever their comments and layout."""
    try:
        trees = [_without_docstrings(ast.parse(textwrap.dedent(text))) for text in (one, other)]
    except SyntaxError:
        return False
    return ast.dump(trees[0]) == ast.dump(trees[1])


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            node.name = ""
            if _is_docstring(node.body[0]) and len(node.body) > 1:
                del node.body[0]
    return tree


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def has_hole(function: Any) -> bool:
    """Tell whether a function's body still holds the `pass` that the exercise came with."""
    definition = definition_of(function)
    return definition is not None and any(
        isinstance(node, ast.Pass) for node in ast.walk(definition)
    )


def is_empty(function: Any) -> bool:
    """Tell whether a function does nothing: `pass`, `...`, `return None`, NotImplementedError."""
    definition = definition_of(function)
    return definition is not None and all(_does_nothing(node) for node in definition.body)


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass) or _is_docstring(statement):
        return True
    if isinstance(statement, ast.Return):
        value = statement.value
        return value is None or (isinstance(value, ast.Constant) and value.value is None)
    return isinstance(statement, ast.Raise) and "NotImplementedError" in ast.dump(statement)


def definition_of(function: Any) -> ast.FunctionDef | None:
    """Return a function's syntax tree; None where its source cannot be found."""
    try:
        function = plain(function)
        source = textwrap.dedent(inspect.getsource(getattr(function, "fn", function)))
        body = ast.parse(source).body
    except (OSError, TypeError, SyntaxError):
        return None
    return body[0] if body and isinstance(body[0], ast.FunctionDef) else None


def plain(function: Any) -> Any:
    """Return the function behind a partial, a method, or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.ismethod(function):
        return function.__func__
    if hasattr(function, "__code__") or is_kernel(function):
        return function
    call = vars(type(function)).get("__call__")
    return call if hasattr(call, "__code__") else function


def kernels_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the functions under ``@triton.jit`` that a function names, by name."""
    function = plain(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    scope = dict(function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    names = [*code.co_names, *code.co_freevars]
    return {name: scope[name] for name in names if is_kernel(scope.get(name))}


def called_without_grid(function: Callable[..., Any]) -> str | None:
    """Return the name of a kernel that a function calls as if it were a function itself."""
    definition = definition_of(function)
    if definition is None:
        return None
    kernels = kernels_of(function)
    for node in ast.walk(definition):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in kernels:
            return node.func.id
    return None


def numbers_of(function: Any) -> dict[str, Any]:
    """Return the global values that a function or a kernel uses, beside functions and modules."""
    function = getattr(function, "fn", function)
    code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = code.co_names if code is not None else ()
    values = {name: scope[name] for name in names if name in scope}
    return {n: v for n, v in values.items() if not callable(v) and not inspect.ismodule(v)}


def is_kernel(value: Any) -> bool:
    """Tell a function under ``@triton.jit``, interpreted or compiled, from everything else."""
    return type(value).__module__.startswith("triton.") and hasattr(value, "fn")


def _name_of(function: Any) -> str:
    return getattr(function, "fn", function).__name__
