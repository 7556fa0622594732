"""Compile Triton kernels for any NVIDIA GPU of the table, and see what the compiler made of them.

    from course_utils.compiler import compile_for

    compiled = compile_for(gelu_kernel, [x, out, n], "h200", BLOCK=1024)
    compiled.registers, compiled.spills, compiled.shared_memory, compiled.load_bits
    compiled.ttgir, compiled.ptx, compiled.sass
    compiled.occupancy(), compiled.fits("t4")
    compiled.access("load", "x_ptr").layout.owner(5)      # warp, lane, register

No GPU is needed, and it works in interpreter mode: the compiler runs in a process of its own
(`child`), started and watched by `process`. What is to be compiled is described by `request`;
`compile` puts both together and keeps results on disk (`cache`). `compiled`, `assembly` and `ttgir`
read what came out, `layouts` are its thread mappings; `errors` says what is wrong and what to do.
`shelf` lists what the course's own kernels are compiled with.
"""

from course_utils.compiler.assembly import Instructions, read_ptx, read_sass
from course_utils.compiler.compile import compile_all, compile_for
from course_utils.compiler.compiled import Compilations, Compiled, Fit
from course_utils.compiler.errors import CompileError
from course_utils.compiler.layouts import Layout, Owner
from course_utils.compiler.ttgir import Access, read_accesses, read_layout

__all__ = [
    "Access",
    "Compilations",
    "CompileError",
    "Compiled",
    "Fit",
    "Instructions",
    "Layout",
    "Owner",
    "compile_all",
    "compile_for",
    "read_accesses",
    "read_layout",
    "read_ptx",
    "read_sass",
]
