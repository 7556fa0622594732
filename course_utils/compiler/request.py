"""Say as plain data what is to be compiled: a kernel, all it refers to, and how it is called.

A kernel is compiled in another process, which knows nothing of the notebook's cells. So the source
text of the kernel and of the helpers that it calls is taken along, and of the other global names
that they use their values: constants, constexprs, modules. What cannot travel (a tensor, an object
of one's own) goes as a placeholder, since Triton refuses such globals anyway and says so better.

It makes no difference whether a kernel was made to be compiled or to be interpreted.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

# A value that travels, as (kind, what it needs). Tuples, so that they have a stable repr.
Value = tuple

FLOAT_TYPES = ("fp16", "bf16", "fp32", "fp64")
# What a tensor of each of Triton's element types is in PyTorch, for signatures such as "*fp32".
TORCH_DTYPES = {
    "i1": "bool",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
}
# An integer that Triton would give this type, neither 1 nor a multiple of 16.
_INTEGERS = {"i32": 3, "i64": 2**33 + 3, "u64": 2**63 + 3}
ALIGNMENT = 16  # bytes, or the divisor of an integer: what Triton specialises a kernel on


@dataclass(frozen=True)
class Function:
    """One function of the source.

    Attributes:
        name: its name.
        source: its text from ``def`` on.
        kind: "jit" for ``@triton.jit``, "constexpr" for ``@triton.constexpr_function``.
        options: what ``@triton.jit`` was given, by name.
        names: the values of the global names that it uses.
        future_annotations: whether its annotations are kept as text.
    """

    name: str
    source: str
    kind: str
    options: tuple[tuple[str, Any], ...]
    names: tuple[tuple[str, Value], ...]
    future_annotations: bool


@dataclass(frozen=True)
class Request:
    """One compilation.

    Attributes:
        functions: the kernel first, then the helpers that it calls, directly or not.
        arguments: the value of each parameter.
        constexprs: the names of the parameters that are ``tl.constexpr``.
        options: num_warps and the like.
        capability: the target's compute capability as one number, such as 90.
    """

    functions: tuple[Function, ...]
    arguments: tuple[tuple[str, Value], ...]
    constexprs: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]
    capability: int

    @property
    def constants(self) -> dict[str, Any]:
        """The constexpr parameters that are plain numbers or texts, such as tile sizes."""
        return {
            name: value[1]
            for name, value in self.arguments
            if name in self.constexprs and value[0] == "constant"
        }

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.functions[0].name


def describe(
    kernel: Any,
    args: Sequence[Any] | Mapping[str, Any],
    capability: tuple[int, int],
    meta: Mapping[str, Any],
) -> Request:
    """Return the compilation that launching ``kernel`` with these arguments would ask for.

    Args:
        kernel: a ``@triton.jit`` function, made to be compiled or interpreted; autotuned and
            heuristics' kernels too.
        args: as in a launch, in order or by name; see `course_utils.compiler.compile_for`.
        capability: the target's compute capability.
        meta: further parameters (``BLOCK=1024``) and options (``num_warps=4``) by name.

    Raises:
        TypeError: ``kernel`` is no Triton kernel, or an argument is missing, unknown, or of a
            type that no kernel takes.
        ValueError: a type's text is none, or the source cannot be found.
    """
    jit, wrappers = _unwrap(kernel)
    shipment = _Shipment()
    shipment.add(jit)
    parameters = inspect.signature(jit.fn).parameters
    name = jit.fn.__name__
    values, options = _bind(name, parameters, args, meta, wrappers)
    arguments = []
    for parameter, value in values.items():
        if _is_constexpr(parameters[parameter]):
            described = shipment.value(value)
        elif isinstance(value, str):
            described = _typed(name, parameter, value)
        else:
            described = shipment.argument(name, parameter, value)
        arguments.append((parameter, described))
    return Request(
        tuple(shipment.functions),
        tuple(arguments),
        tuple(name for name in values if _is_constexpr(parameters[name])),
        tuple(sorted(options.items())),
        10 * capability[0] + capability[1],
    )


# ---------------------------------------------------------------------------------------------
# The kernel
# ---------------------------------------------------------------------------------------------


def is_jit(value: Any) -> bool:
    """Whether a value is what ``@triton.jit`` makes, in either mode."""
    return type(value).__name__ in ("JITFunction", "InterpretedFunction")


def _is_constexpr_function(value: Any) -> bool:
    return type(value).__name__ == "ConstexprFunction"


def _unwrap(kernel: Any) -> tuple[Any, list[Any]]:
    """Return the ``@triton.jit`` function, and what is wrapped around it, outermost first."""
    wrappers, inner = [], kernel
    while not is_jit(inner) and type(inner).__name__ in ("Autotuner", "Heuristics"):
        wrappers.append(inner)
        inner = inner.fn
    if not is_jit(inner):
        hint = ""
        if callable(kernel):
            hint = " If it is a function that launches a kernel, give the kernel itself."
        raise TypeError(
            f"compile_for() needs a kernel, a function under @triton.jit, but got "
            f"{_in_words(kernel)}.{hint}"
        )
    return inner, wrappers


def _is_constexpr(parameter: inspect.Parameter) -> bool:
    """Triton's own rule: the word is in the annotation, however it is written."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return "constexpr" in text


def _bind(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    args: Sequence[Any] | Mapping[str, Any],
    meta: Mapping[str, Any],
    wrappers: list[Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give each parameter its value, as a launch would; return the values and the options."""
    if isinstance(args, Mapping):
        given = dict(args)
        unknown = [key for key in given if key not in parameters]
        if unknown:
            raise TypeError(
                f"{name} has no parameter {unknown[0]!r}; it has {', '.join(parameters)}."
            )
    elif isinstance(args, Sequence) and not isinstance(args, str):
        if len(args) > len(parameters):
            raise TypeError(
                f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}), but "
                f"compile_for() got {len(args)}."
            )
        given = dict(zip(parameters, args, strict=False))
    else:
        raise TypeError(
            f"compile_for() takes the arguments of {name} as one list, or as a mapping by name, "
            f"not {_in_words(args)}."
        )
    twice = [key for key in meta if key in given]
    if twice:
        raise TypeError(f"{name} got {twice[0]} twice: among the arguments and by name.")
    options = {key: value for key, value in meta.items() if key not in parameters}
    given.update({key: value for key, value in meta.items() if key in parameters})
    for wrapper in wrappers:
        _add_wrappers_choice(name, parameters, wrapper, given, options)
    for key, parameter in parameters.items():
        if key not in given and parameter.default is not inspect.Parameter.empty:
            given[key] = parameter.default
    missing = [key for key in parameters if key not in given]
    if missing:
        example = f"{missing[0]}=1024" if _is_constexpr(parameters[missing[0]]) else "its value"
        raise TypeError(
            f"{name} needs a value for {', '.join(missing)}. Give {example} as in a launch."
        )
    return {key: given[key] for key in parameters}, options


def _add_wrappers_choice(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    wrapper: Any,
    given: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Fill in what ``@triton.heuristics`` computes or the only ``triton.Config`` says."""
    if type(wrapper).__name__ == "Heuristics":
        for key, rule in wrapper.values.items():
            if key not in given:
                given[key] = rule({**given, **options})
        return
    wanted = {key for config in wrapper.configs for key in config.kwargs} - given.keys()
    if not wanted:
        return
    if len(wrapper.configs) > 1:
        choices = "; ".join(str(config) for config in wrapper.configs)
        raise TypeError(
            f"{name} is autotuned over {len(wrapper.configs)} configurations. Choose one by giving "
            f"{', '.join(sorted(wanted))} by name. There are: {choices}."
        )
    config = wrapper.configs[0]
    for key, value in config.all_kwargs().items():
        target = given if key in parameters else options
        target.setdefault(key, value)


# ---------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------


def _typed(kernel: str, parameter: str, text: str) -> Value:
    """Read a type such as "*fp32", "i32" or "i32:16" as the value of that type that stands for it.

    Pointers are aligned unless they say otherwise ("*fp32:4"), as fresh tensors are.
    """
    type_name, _, hint = text.replace(" ", "").partition(":")
    if hint and not hint.isdigit():
        raise _bad_type(kernel, parameter, text)
    divisor = int(hint) if hint else None
    if type_name.startswith("*") and type_name[1:] in TORCH_DTYPES:
        aligned = divisor is None or divisor % ALIGNMENT == 0
        return ("pointer", TORCH_DTYPES[type_name[1:]], aligned)
    if type_name in FLOAT_TYPES and divisor is None:
        if type_name != "fp32":
            raise ValueError(
                f"{kernel}: {parameter} is given as {type_name!r}, but a Python float arrives in a "
                "kernel as fp32. Give 'fp32'."
            )
        return ("constant", 0.5)
    if type_name in ("i1", "u1") and divisor is None:
        return ("constant", True)
    if type_name in _INTEGERS:
        if divisor == 1:
            return ("constant", 1)
        # Rounded down to a multiple, and still of the same type.
        if divisor is not None and divisor % ALIGNMENT == 0:
            return ("constant", _INTEGERS[type_name] // ALIGNMENT * ALIGNMENT or ALIGNMENT)
        return ("constant", _INTEGERS[type_name])
    raise _bad_type(kernel, parameter, text)


def _bad_type(kernel: str, parameter: str, text: str) -> ValueError:
    return ValueError(
        f"{kernel}: {parameter} is given as {text!r}, which is no type that compile_for() knows. "
        f"Pointers are '*fp32' ({', '.join(TORCH_DTYPES)}); numbers are 'i32', 'i64', 'fp32', "
        "'i1'; 'i32:16' is divisible by 16, 'i32:1' equal to 1."
    )


def _aligned(tensor: Any) -> bool:
    if tensor.device.type == "meta":  # it has no address, but would begin at an aligned one
        return tensor.storage_offset() * tensor.element_size() % ALIGNMENT == 0
    return tensor.data_ptr() % ALIGNMENT == 0


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "dtype") and hasattr(value, "device")


# ---------------------------------------------------------------------------------------------
# Source and names
# ---------------------------------------------------------------------------------------------


class _Shipment:
    """Collects functions, each once, and describes values."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self._indices: dict[Callable, int] = {}

    def add(self, jit: Any) -> int:
        """Add a function and all it refers to; return its place in `functions`."""
        function = jit.fn
        if function in self._indices:
            return self._indices[function]
        index = self._indices[function] = len(self.functions)
        self.functions.append(None)  # type: ignore[arg-type]  (its place, while others follow)
        source = _source(jit)
        names = []
        scope = _scope(function)
        for name, chains in _names(source).items():
            if name in scope and name != function.__name__:
                names.append((name, self.value(scope[name], chains)))
        self.functions[index] = Function(
            function.__name__,
            source,
            "jit" if is_jit(jit) else "constexpr",
            _jit_options(jit),
            tuple(names),
            bool(function.__code__.co_flags & __future__.annotations.compiler_flag),
        )
        return index

    def argument(self, kernel: str, parameter: str, value: Any) -> Value:
        """Describe the value of a parameter that is not a constexpr."""
        if _is_tensor(value):
            return ("pointer", str(value.dtype).removeprefix("torch."), _aligned(value))
        if hasattr(value, "base") and hasattr(value, "block_shape"):  # a host tensor descriptor
            base = self.argument(kernel, parameter, value.base)
            lists = (tuple(value.shape), tuple(value.strides), tuple(value.block_shape))
            return ("descriptor", base, value.base.element_size(), *lists)
        if isinstance(value, tuple):
            return ("tuple", tuple(self.argument(kernel, parameter, item) for item in value))
        if value is None or type(value) in (bool, int, float):
            return ("constant", value)
        if is_jit(value) or _has_value(value, "constexpr"):
            return self.value(value)
        raise TypeError(
            f"{kernel}: {parameter} is {_in_words(value)}. A kernel takes tensors, int, float, "
            "bool, None, and functions under @triton.jit; compile_for() also types as text, such "
            "as '*fp32' or 'i32'."
        )

    def value(self, value: Any, chains: tuple[tuple[str, ...], ...] = ()) -> Value:
        """Describe any value; of a module that cannot be imported there, the attributes used."""
        if is_jit(value) or _is_constexpr_function(value):
            function = value.fn
            if _belongs_to_triton(function.__module__):
                return ("member", function.__module__, function.__qualname__)
            return ("function", self.add(value))
        if isinstance(value, ModuleType):
            return self._module(value, chains)
        if _has_value(value, "constexpr"):
            return ("constexpr", self.value(value.value))
        if type(value).__name__ == "dtype" and _belongs_to_triton(type(value).__module__):
            return ("dtype", value.name)
        if type(value) is tuple:
            return ("tuple", tuple(self.value(item) for item in value))
        if type(value) is float or _is_literal(value):
            return ("constant", value)
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str) and _belongs_to_triton(module):
            return ("member", module, name)
        kind = "class" if isinstance(value, type) else "call" if callable(value) else "object"
        return ("placeholder", kind, _in_words(value))

    def _module(self, module: ModuleType, chains: tuple[tuple[str, ...], ...]) -> Value:
        name = module.__name__
        if _belongs_to_triton(name) or name.partition(".")[0] in sys.stdlib_module_names:
            return ("module", name)
        attributes: dict[str, list[tuple[str, ...]]] = {}
        for first, *rest in (chain for chain in chains if chain):
            attributes.setdefault(first, []).append(tuple(rest))
        members = [
            (key, self.value(getattr(module, key), tuple(rests)))
            for key, rests in attributes.items()
            if hasattr(module, key)
        ]
        return ("namespace", name, tuple(members))


def _source(jit: Any) -> str:
    """Return a function's text from ``def`` on, without decorators and indentation."""
    function = jit.fn
    try:
        lines, _ = inspect.getsourcelines(function)
    except (OSError, TypeError):
        # A compiled kernel has kept its text since it was made.
        text = getattr(jit, "src", None)
        if text is None:
            raise ValueError(
                f"The source of {function.__name__} cannot be found. Define it in a notebook cell "
                "or in a file, not in text given to exec() or python -c."
            ) from None
        return text
    text = textwrap.dedent("".join(lines))
    definition = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[definition.lineno - 1 :])


def _scope(function: Callable) -> dict[str, Any]:
    """Return the values of the names that a function sees outside itself."""
    scope = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return scope


def _names(source: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Find the names in a function's text, each with the chains of attributes that follow it.

    Names of its own variables are among them; to take along a global of the same name is useless,
    but harmless.
    """
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.setdefault(node.id, {})
        chain: list[str] = []
        while isinstance(node, ast.Attribute):
            chain.append(node.attr)
            node = node.value
        if chain and isinstance(node, ast.Name):
            found.setdefault(node.id, {})[tuple(reversed(chain))] = None
    return {name: tuple(chains) for name, chains in found.items()}


def _jit_options(jit: Any) -> tuple[tuple[str, Any], ...]:
    """Return what ``@triton.jit`` was given that changes how the function is compiled."""
    kept = getattr(jit, "kwargs", None)  # an interpreted function's
    if not isinstance(kept, Mapping):
        kept = {name: getattr(jit, name, None) for name in _JIT_OPTIONS}
    return tuple((name, kept[name]) for name in _JIT_OPTIONS if kept.get(name))


_JIT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")


def _belongs_to_triton(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "triton"


def _has_value(value: Any, class_name: str) -> bool:
    cls = type(value)
    return cls.__name__ == class_name and _belongs_to_triton(cls.__module__)


def _is_literal(value: Any) -> bool:
    """Whether a value is made of Python's literals only, so that it can be sent as it is."""
    try:
        return type(ast.literal_eval(repr(value))) is type(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _in_words(value: Any) -> str:
    """Describe a value without its address, which would be another in every process."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the Python function {value.__name__}"
    cls = type(value)
    prefix = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"a {prefix}{cls.__qualname__}"


def load_member(module: str, qualified_name: str) -> Any:
    """Return what a ("member", module, name) value stands for."""
    value: Any = importlib.import_module(module)
    for part in qualified_name.split("."):
        value = getattr(value, part)
    return value
