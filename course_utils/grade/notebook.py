"""A notebook as the grader reads it: statements with the names that they bind, use and change.

Nothing is run here. Outputs that are stored in the notebook are not looked at.
"""

from __future__ import annotations

import ast
import difflib
import json
import linecache
import symtable
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from course_utils.checks import variants

# Cell magics whose body runs as if they were not there.
_TRANSPARENT = ("%%time", "%%capture", "%%prun")
_ALIKE = 0.75  # of difflib's ratio, from which on two names may be one misspelt


class GradeError(Exception):
    """What cannot be graded; the message says why in one line."""


@dataclass(frozen=True)
class Statement:
    """One statement at the top level of a cell.

    Attributes:
        cell: number of its code cell, from 1.
        node: its syntax tree, with the lines of its cell.
        binds: names that it gives a value.
        uses: names that it looks up, in functions that it defines too.
        changes: names of what it changes in part: `name.x = ...`, `name[i] = ...`, `name.f(...)`.
    """

    cell: int
    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    changes: frozenset[str]

    @property
    def file(self) -> str:
        """The name that its lines go by in tracebacks and for `inspect.getsource`."""
        return file_of(self.cell)

    @property
    def text(self) -> str:
        """Its first line."""
        return linecache.getline(self.file, self.node.lineno).strip()


@dataclass
class Notebook:
    """The code of a notebook.

    Attributes:
        path: its file.
        statements: of all cells that are Python, in order.
        broken: code cell's number -> its text and what is wrong with its syntax.
        notes: what was left out, a sentence each.
    """

    path: Path
    statements: list[Statement] = field(default_factory=list)
    broken: dict[int, tuple[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def imported(self) -> set[str]:
        """The names that are imported: modules, and what is in them."""
        imports = (s for s in self.statements if isinstance(s.node, ast.Import | ast.ImportFrom))
        return {name for statement in imports for name in statement.binds}

    def binders(self, name: str) -> list[Statement]:
        """Return the statements that give a name its value."""
        return [statement for statement in self.statements if name in statement.binds]

    def broken_cells(self, name: str) -> list[int]:
        """Return the cells with an error of syntax that seem to define a name."""
        forms = (f"def {name}(", f"{name} =", f"{name}=")
        return [n for n, (text, _) in self.broken.items() if any(form in text for form in forms)]

    def near(self, name: str, parameters: Sequence[str], code: str, taken: Iterable[str]) -> str:
        """Return the name under which an answer seems to stand here by mistake; "" if none does.

        Args:
            name: what the answer should be called.
            parameters: of the right answer, where it is a function.
            code: the right answer's own definition; "" where it is no function.
            taken: names that mean something else.
        """
        taken = {name, *taken}
        defined: dict[str, ast.stmt] = {}
        for statement in self.statements:
            if isinstance(statement.node, ast.FunctionDef | ast.Assign) and not _is_kernel(
                statement.node
            ):
                defined |= dict.fromkeys(statement.binds - taken, statement.node)
        spelt = difflib.get_close_matches(name, defined, 1, _ALIKE)
        if spelt or not code:
            return spelt[0] if spelt else ""
        alike = {
            other: difflib.SequenceMatcher(None, code, ast.unparse(node), False).ratio()
            for other, node in defined.items()
            if isinstance(node, ast.FunctionDef)
            and [argument.arg for argument in node.args.args] == list(parameters)
        }
        best = max(alike, key=alike.__getitem__, default="")
        return best if alike.get(best, 0) >= _ALIKE else ""

    def needed_for(self, name: str) -> list[Statement]:
        """Return the statements that an answer is made of, in order.

        These are the ones that bind it or change it, and those that bind or change what these
        use, and so on. What changes a module is never among them, so that `torch.equal = ...`
        does not reach the judge.
        """
        imported = self.imported
        filled = any(_is_dict(statement.node) for statement in self.binders(name)[-1:])
        needed, chosen, grown = {name}, set(), True
        while grown:
            grown = False
            for index, statement in enumerate(self.statements):
                if index not in chosen and (
                    "*" in statement.binds
                    or statement.binds & needed
                    or statement.changes & (needed - imported)
                    or (filled and name in statement.uses)
                ):
                    chosen.add(index)
                    needed |= statement.uses
                    grown = True
        return [self.statements[index] for index in sorted(chosen)]


def read(path: Path) -> Notebook:
    """Read a notebook.

    Raises:
        GradeError: there is no such file, or it is no notebook that can be read.
    """
    notebook = Notebook(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of "\\d" and its like: the reader's, not the grader's
        for number, text in enumerate(_code_cells(path), start=1):
            _read_cell(notebook, number, text)
    notebook.notes += [
        f"code cell {statement.cell} sets `{ast.unparse(part)}`, which the checks do not see"
        for statement in notebook.statements
        for part in _changed(statement.node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and _root(part) in notebook.imported
    ]
    return notebook


def file_of(cell: int) -> str:
    """Return the name under which Python knows a code cell."""
    return f"<code cell {cell}>"


def _code_cells(path: Path) -> list[str]:
    """Return the texts of a notebook's code cells."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise GradeError(f"there is no file {path}") from None
    except OSError as error:
        raise GradeError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise GradeError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it in Jupyter"
        ) from None
    except (ValueError, RecursionError) as error:
        raise GradeError(f"{path} is no notebook, for it is not JSON: {error}") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        old = isinstance(content, dict) and "worksheets" in content
        words = "of an old format: open it in Jupyter and save it" if old else "without cells"
        raise GradeError(f"{path} is JSON, but {'a notebook' if old else 'no notebook:'} {words}")
    sources = [cell.get("source", "") for cell in cells if cell.get("cell_type") == "code"]
    if not sources:
        raise GradeError(f"{path} is a notebook without a code cell")
    return ["".join(map(str, s)) if isinstance(s, list) else str(s) for s in sources]


def _read_cell(notebook: Notebook, number: int, text: str) -> None:
    """Add a cell's statements to a notebook, or say why there are none."""
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith(_TRANSPARENT):
        text = rest
    elif first.startswith("%%"):
        notebook.notes.append(f"code cell {number} is not run, for it begins with `{first}`")
        return
    file, magics = file_of(number), _Magics()
    try:
        code = TransformerManager().transform_cell(text)
        tree = magics.visit(ast.parse(code))
        compile(tree, file, "exec", dont_inherit=True)  # finds more errors, `return` for one
        statements = [
            Statement(number, node, *_names(node)) for node in tree.body if not _only_checks(node)
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        words = error.msg if isinstance(error, SyntaxError) else str(error)
        notebook.broken[number] = (text, f"it has a syntax error{line}: {words}")
        notebook.notes.append(f"code cell {number} is left out: {notebook.broken[number][1]}")
        return
    # Triton and the checks read the source of what they are given.
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    notebook.statements += statements
    notebook.notes += [f"code cell {number}: `{line}` is not run" for line in magics.dropped]


class _Magics(ast.NodeTransformer):
    """Takes magics and shell commands out of a cell; `%time` and `%timeit` leave their code."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        """Replace a simple statement that asks for IPython's shell."""
        call = next(_shell_calls(node), None) if isinstance(node, ast.Expr | ast.Assign) else None
        if call is None:
            return self.generic_visit(node)
        words = [str(a.value) for a in call.args if isinstance(a, ast.Constant)]
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "run_line_magic" and words[0] in ("time", "timeit"):
            inner = ast.parse(words[1])
            for statement in inner.body:
                ast.increment_lineno(statement, node.lineno - 1)
            return inner.body or ast.copy_location(ast.Pass(), node)
        sign = "%" if method == "run_line_magic" else "!"
        self.dropped.append(f"{sign}{' '.join(words)}" if words else ast.unparse(node))
        return ast.copy_location(ast.Pass(), node)


def _shell_calls(node: ast.AST) -> Iterator[ast.Call]:
    """Give the calls of methods of `get_ipython()`."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and "get_ipython" in {
            inner.id for inner in ast.walk(call.func) if isinstance(inner, ast.Name)
        }:
            yield call


def _only_checks(node: ast.stmt) -> bool:
    """Whether a statement only calls a check, which the grader does itself."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr.startswith(("check_", "grade_"))
    )


def _names(node: ast.stmt) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the global names that a statement binds, uses, and changes in part."""
    table = symtable.symtable(ast.unparse(node), "<statement>", "exec")
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        for symbol in scope.get_symbols():
            if symbol.is_global() and symbol.is_referenced():
                uses.add(symbol.get_name())
            if symbol.is_declared_global() and symbol.is_assigned():
                binds.add(symbol.get_name())
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        binds.add("*")
    changes = {root for part in _changed(node) if (root := _root(part))}
    return frozenset(binds), frozenset(uses), frozenset(changes)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Give a statement's nodes without those of the functions in it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _outside_functions(child)


def _changed(node: ast.stmt) -> Iterator[ast.AST]:
    for part in _outside_functions(node):
        stored = isinstance(part, ast.Attribute | ast.Subscript)
        if stored and isinstance(part.ctx, ast.Store | ast.Del):  # type: ignore[union-attr]
            yield part
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            if isinstance(part.value.func, ast.Attribute):
                yield part.value.func


def _root(node: ast.AST) -> str:
    """Return the name at the beginning of `name.x[i].y`; "" where there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_kernel(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any("jit" in ast.unparse(decorator) for decorator in decorators)


def _is_dict(node: ast.stmt) -> bool:
    """Whether a statement binds a name to a dict that later statements may fill."""
    value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "dict"
    return isinstance(value, ast.Dict | ast.DictComp)


def definition(function: Any) -> tuple[list[str], str]:
    """Return a function's parameters, and its definition without comments."""
    tree = variants.definition_of(function)
    return ([a.arg for a in tree.args.args], ast.unparse(tree)) if tree else ([], "")
