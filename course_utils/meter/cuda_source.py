"""Let a Python function report its branches, its loops and its arithmetic while it runs.

A meter sees what happens to arrays, not what happens between: which way an ``if`` went, which
iteration of a loop is running, how many products were summed. So the function's source is compiled
again with calls in these places. Nothing else changes; line numbers stay as they are.

This file knows Python's syntax; it knows neither Numba nor what becomes of the reports.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import itertools
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any, Protocol

HOOKS = "__meter__"  # the name under which the compiled code finds its hooks
_SCRATCH = "__meter_index__"


class Hooks(Protocol):
    """Who is told. Each value is handed back, so that the function goes on as before."""

    def branch(self, outcome: Any) -> Any:
        """An ``if`` was decided."""

    def each(self, items: Any) -> Any:
        """A ``for`` begins; returns what to loop over."""

    def loop(self) -> Any:
        """A ``while`` begins; a context manager whose value is told of each outcome."""

    def flops(self, count: int, value: Any) -> Any:
        """``count`` operations gave ``value``; they are FLOPs if it is a float."""


def with_hooks(function: Callable, hooks: Hooks, names: Mapping[int, Any]) -> Callable:
    """Return a copy of a function that reports to ``hooks``.

    A function whose source cannot be found is copied as it is, and reports nothing; see `is_found`.

    Args:
        function: a plain Python function.
        hooks: who is told.
        names: what to put in place of objects among its globals and in its closure, by `id`.
    """
    return with_names(function, names, _recompiled(function) or function.__code__, hooks)


def with_names(
    function: Callable, names: Mapping[int, Any], code: types.CodeType | None = None, hooks=None
) -> Callable:
    """Return a copy of a function to which some of its globals look different.

    Args:
        function: a plain Python function.
        names: what to put in place of objects among its globals and in its closure, by `id`.
        code: the copy's code, with the same free variables; by default the function's own.
        hooks: what the code finds under `HOOKS`.
    """
    code = code or function.__code__
    scope = {name: names.get(id(value), value) for name, value in function.__globals__.items()}
    scope[HOOKS] = hooks
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(_cell(cells[name], names) for name in code.co_freevars)
    copy = types.FunctionType(
        code, scope, function.__name__, function.__defaults__, closure or None
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _cell(cell: types.CellType, names: Mapping[int, Any]) -> types.CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return cell
    return types.CellType(names[id(value)]) if id(value) in names else cell


def is_found(function: Callable) -> bool:
    """Whether a function's source can be found, so that its copy reports."""
    return _recompiled(function) is not None


@functools.lru_cache(maxsize=256)
def _recompiled(function: Callable) -> types.CodeType | None:
    """Return a function's code with the calls put in; None where there is no source."""
    definition = _parsed(function)
    if definition is None:
        return None
    definition.decorator_list = []
    # A file that was edited after it was imported holds another function by now.
    if not _same(_compiled(definition, function), function.__code__):
        return None
    return _compiled(_PutCalls(function).visit(definition), function)


def _compiled(definition: ast.FunctionDef, function: Callable) -> types.CodeType | None:
    """Compile a definition that stands where a function does; None if it is not of that name."""
    # Its free variables must be some function's locals, for the compiler to see them as such.
    free = function.__code__.co_freevars
    around = ast.parse(f"def {HOOKS}({', '.join(free)}): pass")
    around.body[0].body = [definition]
    filename = function.__code__.co_filename
    code = compile(ast.fix_missing_locations(around), filename, "exec", dont_inherit=True)
    for name in (HOOKS, function.__code__.co_name):
        inside = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name]
        if not inside:
            return None
        code = inside[0]
    return code


def _same(code: types.CodeType | None, other: types.CodeType) -> bool:
    """Whether two pieces of code do the same with the same names."""
    return code is not None and _operations(code) == _operations(other)


def _operations(code: types.CodeType) -> list[tuple[str, str]]:
    """List what code does; how it calls a method depends on what else its module holds."""
    return [
        (i.opname.replace("METHOD", "ATTR"), "" if _is_place(i) else repr(i.argval))
        for i in dis.get_instructions(code)
        if i.opname not in ("PUSH_NULL", "PRECALL")
    ]


def _is_place(instruction: dis.Instruction) -> bool:
    """Whether an instruction's argument says where to find something, not what it is."""
    jumps = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    return jumps or isinstance(instruction.argval, types.CodeType)


def _parsed(function: Callable) -> ast.FunctionDef | None:
    try:
        lines, start = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):  # a lambda
        return None
    ast.increment_lineno(tree, max(start, 1) - 1)
    return definition


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


class _PutCalls(ast.NodeTransformer):
    """Puts the calls of `Hooks` into a function's syntax tree."""

    def __init__(self, function: Callable) -> None:
        names = inspect.getclosurevars(function)
        self.names = {**names.builtins, **names.globals, **names.nonlocals}
        self.numbers = itertools.count()

    def visit_If(self, node):
        self.generic_visit(node)
        node.test = _call("branch", node.test)
        return node

    def visit_For(self, node):
        self.generic_visit(node)
        node.iter = _call("each", node.iter)
        return node

    def visit_While(self, node):
        self.generic_visit(node)
        again = f"{HOOKS}again{next(self.numbers)}"
        node.test = _at(ast.Call(_name(again), [node.test], []), node.test)
        item = ast.withitem(_at(_call("loop"), node), _name(again, ast.Store()))
        return _at(ast.With([item], [node]), node)

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return _flops(1, node) if _is_computed(node) else node

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        computed = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        return _flops(1, node) if computed else node

    def visit_AugAssign(self, node):
        """Write ``a += x`` as ``a = a + x``, whose sum can be looked at."""
        self.generic_visit(node)
        if any(isinstance(part, ast.Slice) for part in ast.walk(node.target)):
            return node
        target, loaded = node.target, _loaded(node.target)
        if isinstance(target, ast.Subscript):
            # The index is worked out once: where it is read, which is before it is stored to.
            loaded.slice = _at(ast.NamedExpr(_name(_SCRATCH, ast.Store()), target.slice), target)
            target.slice = _at(_name(_SCRATCH), target)
        total = _at(ast.BinOp(loaded, node.op, node.value), node)
        value = _flops(1, total) if isinstance(node.op, _ARITHMETIC) else total
        return _at(ast.Assign([target], value), node)

    def visit_Call(self, node):
        self.generic_visit(node)
        count = self._flops_of(node)
        return _flops(count, node) if count else node

    def _flops_of(self, node: ast.Call) -> int:
        """How many FLOPs a call is, by the course's convention: one for a function of math."""
        name = node.func
        if isinstance(name, ast.Attribute) and name.attr == "fma":
            return 2
        called = self._value(name)
        if called is min or called is max:
            return len(node.args) - 1
        return int(called is abs or getattr(called, "__module__", None) == "math")

    def _value(self, node: ast.AST) -> Any:
        """What a global name, or an attribute of one, stands for."""
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, None)
        return self.names.get(node.id) if isinstance(node, ast.Name) else None


def _is_computed(node: ast.BinOp) -> bool:
    """Whether an operation is arithmetic that is left to the kernel, not folded beforehand."""
    constant = all(isinstance(side, ast.Constant) for side in (node.left, node.right))
    return isinstance(node.op, _ARITHMETIC) and not constant


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Subscript):
        return _at(ast.Subscript(target.value, target.slice, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return _at(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return _at(_name(target.id), target)


def _flops(count: int, node: ast.expr) -> ast.expr:
    return _call("flops", ast.Constant(count), node)


def _call(hook: str, *args: ast.expr) -> ast.Call:
    call = ast.Call(ast.Attribute(_name(HOOKS), hook, ast.Load()), list(args), [])
    return _at(call, args[-1]) if args else call


def _name(text: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(text, context or ast.Load())


def _at(node, place):
    """Give a new node, and what is new inside it, the place of an old one."""
    return ast.fix_missing_locations(ast.copy_location(node, place))
