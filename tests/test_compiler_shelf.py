"""Every kernel on the shelf compiles for every generation of GPU, and fits into it."""

import os
import types

import compiler_kernels as kernels
import pytest

from course_utils.compiler import CompileError, cache, compile_all, shelf

EXAMPLES = shelf.examples()
GENERATIONS = shelf.generations()
PAIRS = [(place, gpu) for place in range(len(EXAMPLES)) for gpu in GENERATIONS]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """All examples compiled for all generations, by the example's place and the GPU."""
    before = os.environ.get(cache.PATH_VARIABLE)
    os.environ[cache.PATH_VARIABLE] = str(tmp_path_factory.mktemp("compiled"))
    try:
        jobs = [(example.kernel, example.args, example.meta) for example in EXAMPLES]
        found = compile_all(jobs, GENERATIONS)
    finally:
        del os.environ[cache.PATH_VARIABLE]
        if before is not None:
            os.environ[cache.PATH_VARIABLE] = before
    return dict(zip(PAIRS, found, strict=True))


@pytest.mark.parametrize(
    ("place", "gpu"), PAIRS, ids=[f"{EXAMPLES[place].name} for {gpu.key}" for place, gpu in PAIRS]
)
def test_a_kernel_of_the_shelf_compiles_and_fits(compiled, place, gpu):
    found = compiled[place, gpu]
    if isinstance(found, CompileError):
        raise found
    assert found.shared_memory <= gpu.shared_memory_per_block
    assert found.fits(), str(found.fits())


# --- The rule itself, on a shelf of one module --------------------------------------------------

GELU = (kernels.gelu_kernel, ["*fp32", "*fp32", 2**20], {"BLOCK": 1024})


def module_of(examples=None, **members):
    """A module of the shelf, in which the members were defined."""
    module = types.ModuleType("course_utils.kernels.sample")
    for name, kernel in members.items():
        kernel.fn.__module__ = module.__name__
        setattr(module, name, kernel)
    if examples is not None:
        module.COMPILE_EXAMPLES = examples
    return module


@pytest.fixture(autouse=True)
def own_module():
    """Put back what `module_of` changes."""
    functions = [kernels.gelu_kernel.fn, kernels.gelu.fn, kernels.strided_kernel.fn]
    yield
    for function in functions:
        function.__module__ = kernels.__name__


def test_an_example_is_found():
    module = module_of([GELU], gelu_kernel=kernels.gelu_kernel)
    (example,) = shelf.of_module(module)
    assert example.name == "sample.gelu_kernel(*fp32, *fp32, 1048576, BLOCK=1024)"


def test_a_helper_needs_no_example_of_its_own():
    module = module_of([GELU], gelu_kernel=kernels.gelu_kernel, gelu=kernels.gelu)
    assert len(shelf.of_module(module)) == 1


def test_a_kernel_without_example_cannot_be_forgotten():
    members = {"gelu_kernel": kernels.gelu_kernel, "strided_kernel": kernels.strided_kernel}
    with pytest.raises(ValueError, match=r"no example for strided_kernel: add .* COMPILE_EX"):
        shelf.of_module(module_of([GELU], **members))
    with pytest.raises(ValueError, match="no example for gelu_kernel, strided_kernel"):
        shelf.of_module(module_of(**members))


def test_an_imported_kernel_is_another_modules_matter():
    module = module_of()
    module.gelu_kernel = kernels.gelu_kernel
    assert shelf.of_module(module) == []


@pytest.mark.parametrize("entry", [GELU[:2], (*GELU, 1), list(GELU), (*GELU[:2], 1024)])
def test_a_malformed_example_is_refused(entry):
    with pytest.raises(ValueError, match=r"not \(kernel, arguments, mapping of tile sizes"):
        shelf.of_module(module_of([entry]))


def test_no_shelf_has_no_examples():
    assert shelf.examples("course_utils.no_such_shelf") == []
