"""What every lesson's notebook must be like, one rule a function.

    python -m course_utils.authoring.rules [NOTEBOOK ...]

Each rule yields one sentence per breach, which names the cell. `RULES` hold for lessons, `COMMON`
for exercises and solutions too.
"""

import ast
import builtins
import itertools
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat

from course_utils.authoring import canonical, notebooks
from course_utils.authoring.notebooks import code_cells, tags

MACHINE_PATH = re.compile(
    r"(?<![\w./:~-])/(?:home|Users|root|tmp|work|workspace|mnt|opt|private|var/folders"
    r"|usr/lib/python[\d.]*|usr/local/lib/python[\d.]*)/[\w.+-]+"
    r"|\b[A-Z]:\\\\?Users\b|\bsite-packages\b"
)
# A heap or stack address of a process, not the hexadecimal constants of PTX and SASS.
ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,16}\b|\b0x[57][0-9a-f]{11}\b")
TIMING_MAGIC = re.compile(r"^\s*%{1,2}(?:time|timeit|prun)\b", re.MULTILINE)

LARGEST_FILE = 1_500_000
MEDIAN_LINES, MOST_LINES, SHARE_OF_CELLS = 10, 25, 0.9
FEWEST_WORDS, MOST_WORDS, SHARE_OF_GAPS = 15, 60, 0.7
FEWEST_CHECKED = 5


def no_machine_paths(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Nothing names a folder of the machine on which the notebook was made."""
    for cell in notebook.cells:
        for text in (cell.source, *notebooks.text_outputs(cell)):
            for found in MACHINE_PATH.findall(text):
                yield f"cell {cell.id!r} holds the machine path {found!r}"


def no_addresses(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """No output holds a memory address, which is another one in every run."""
    for cell in notebook.cells:
        for text in notebooks.text_outputs(cell):
            for found in ADDRESS.findall(text):
                yield f"cell {cell.id!r} prints the memory address {found!r}: show something else"


def code_parses(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Every code cell is Python (with IPython's `%` and `!` lines)."""
    for cell in code_cells(notebook):
        try:
            notebooks.syntax_tree(cell)
        except SyntaxError as error:
            yield f"cell {cell.id!r}, line {error.lineno}: {error.msg}"


def set_up_first(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """The first code cell, and no other, is the set-up cell."""
    where = [index for index, cell in enumerate(code_cells(notebook)) if notebooks.is_setup(cell)]
    if where != [0]:
        yield f"exactly the first code cell must call {notebooks.SETUP_CALL}; found at {where}"


def nothing_hidden(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """No output is silenced: no `%%capture`, no trailing `;`, no `nbval-ignore-output`."""
    for cell in code_cells(notebook):
        if "%%capture" in cell.source:
            yield f"cell {cell.id!r} uses %%capture: let the reader see what happens"
        if cell.source.rstrip().endswith(";"):
            yield f"cell {cell.id!r} ends in `;`: end it with plt.show() or plots.show(...)"
        if "nbval-ignore-output" in tags(cell) or "NBVAL_IGNORE_OUTPUT" in cell.source:
            yield f"cell {cell.id!r} is marked nbval-ignore-output, which is never needed here"


def no_timing_magics(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Times come from course_utils.bench: those of the interpreter are never shown."""
    for cell in code_cells(notebook):
        for magic in TIMING_MAGIC.findall(cell.source):
            yield f"cell {cell.id!r} uses {magic.strip()}: use course_utils.bench"


def headings_in_order(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """One title at the top, and no level skipped below it."""
    levels = list(notebooks.headings(notebook))
    titles = [text for level, text, _ in levels if level == 1]
    if len(titles) != 1 or levels[0][0] != 1:
        yield f"there must be exactly one title (#), before all other headings; found {titles}"
    for (before, _, _), (level, text, cell) in itertools.pairwise(levels):
        if level > before + 1:
            yield f"cell {cell!r}: heading {text!r} skips from level {before} to {level}"


def links_resolve(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Every link to a local file leads to one."""
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        text = re.sub(r"`[^`]*`", "", notebooks.prose(cell.source))
        for link in re.findall(r"\]\(\s*<?([^)\s>]+)|(?:href|src)=[\"']([^\"']+)", text):
            target = (link[0] or link[1]).split("#")[0]
            if not target or re.match(r"[a-z]+:", target):
                continue
            if not (Path(path).parent / target).exists():
                yield f"cell {cell.id!r} links to {target}, which does not exist"


def exercises_linked(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """The last cell of a lesson whose tasks have solutions links to its exercises."""
    slug = Path(path).stem
    if not (Path(path).parent / ".." / "solutions" / slug / f"{slug}.ipynb").exists():
        return
    link, last = f"../exercises/{slug}/{slug}.ipynb", notebook.cells[-1]
    if f"]({link})" not in notebooks.prose(last.source):
        yield f"cell {last.id!r} is the last and must link to the lesson's exercises, {link}"


def executed(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """The outputs are those of this code, and each code cell was run."""
    unrun = [cell.id for cell in code_cells(notebook) if cell.execution_count is None]
    if unrun:
        yield f"not executed: cell {unrun[0]!r} and {len(unrun) - 1} more"
    elif notebooks.executed_source(notebook) != notebooks.source_hash(notebook):
        yield "the code was changed after it was executed"
    elif any(
        "GPU mode on" in text for c in code_cells(notebook) for text in notebooks.text_outputs(c)
    ):
        yield "executed on a GPU: the committed outputs are those of a machine without one"


def no_errors(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """No cell failed or warned, but for those tagged `raises-exception`."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in tags(cell):
                yield f"cell {cell.id!r} failed: {output.ename}: {output.evalue}"
            if output.output_type == "stream" and output.name == "stderr":
                yield f"cell {cell.id!r} wrote to stderr: {output.text.strip()[:80]!r}"


def pictures_described(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Every picture has an alt text, and the same sentence as a caption that can be seen."""
    for cell in code_cells(notebook):
        shown = _plain(" ".join(notebooks.text_outputs(cell)))
        for output in cell.outputs:
            for kind in output.get("data", {}):
                if not kind.startswith("image/"):
                    continue
                alt = output.metadata.get(kind, {}).get("alt", "").strip()
                if not alt:
                    yield f"cell {cell.id!r}: {kind} has no alt text (show it with plots.show)"
                elif _plain(alt) not in shown:
                    yield f"cell {cell.id!r}: the alt text {alt[:50]!r} is no visible caption"


def cells_are_short(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Code cells: half of them at most 10 lines long, nine in ten at most 25."""
    lines = {
        cell.id: len(cell.source.splitlines())
        for cell in code_cells(notebook)
        if not notebooks.is_setup(cell)
    }
    if not lines:
        return
    if statistics.median(lines.values()) > MEDIAN_LINES:
        yield f"the median code cell has more than {MEDIAN_LINES} lines: split the longest"
    long = [f"{cell!r} ({count})" for cell, count in lines.items() if count > MOST_LINES]
    if len(long) > (1 - SHARE_OF_CELLS) * len(lines) + 1e-9:
        yield (
            f"more than one code cell in ten is longer than {MOST_LINES} lines: {', '.join(long)}"
        )


def prose_between_code(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """Between two code cells stand 15 to 60 words of prose, in at least 7 cases of 10."""
    gaps, words = [], None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if words is not None:
                gaps.append((cell.id, words))
            words = 0
        elif words is not None:
            words += count_words(cell.source)
    outside = [gap for gap in gaps if not FEWEST_WORDS <= gap[1] <= MOST_WORDS]
    if len(outside) > (1 - SHARE_OF_GAPS) * len(gaps) + 1e-9:
        listed = ", ".join(f"{cell!r} ({count})" for cell, count in outside)
        yield (
            f"{len(outside)} of {len(gaps)} gaps between code cells have fewer than {FEWEST_WORDS} "
            f"or more than {MOST_WORDS} words of prose; before cell (words): {listed}"
        )


def claims_checked(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """At least five cells have their output checked, and each of them has one."""
    cells = [cell for cell in code_cells(notebook) if "nbval-check-output" in tags(cell)]
    if len(cells) < FEWEST_CHECKED:
        yield (
            f"only {len(cells)} cells are tagged nbval-check-output, at least {FEWEST_CHECKED} "
            "are needed: tag those that print a counted claim"
        )
    for cell in cells:
        if not any(text.strip() for text in notebooks.text_outputs(cell)):
            yield f"cell {cell.id!r} is tagged nbval-check-output but prints nothing"
        if "gpu" in tags(cell):
            yield f"cell {cell.id!r} is tagged both gpu and nbval-check-output"


def gpu_cells_stand_alone(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """No later cell needs a name that only a `gpu` cell gives, and each says so without a GPU."""
    only_gpu: dict[str, str] = {}
    for cell in code_cells(notebook):
        try:
            bound, used = names(notebooks.syntax_tree(cell))
        except SyntaxError:
            continue
        if "gpu" in tags(cell):
            only_gpu |= dict.fromkeys(bound, cell.id)
            if not cell.outputs:
                yield f"cell {cell.id!r} is tagged gpu: without a GPU it must say what it would do"
            continue
        for found in sorted(used & set(only_gpu)):
            yield f"cell {cell.id!r} uses {found!r}, which the gpu cell {only_gpu[found]!r} binds"
        for found in bound:
            only_gpu.pop(found, None)


def small_enough(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """The file is small enough for GitHub to show it."""
    size = len(canonical.text(notebook).encode())
    if size > LARGEST_FILE:
        yield f"{size / 1e6:.1f} MB, at most {LARGEST_FILE / 1e6:.1f} MB: draw fewer pictures"


COMMON = (code_parses, set_up_first, nothing_hidden, no_machine_paths, headings_in_order)
COMMON = (*COMMON, links_resolve, no_timing_magics)
RULES = (
    *COMMON,
    exercises_linked,
    executed,
    no_errors,
    no_addresses,
    pictures_described,
    cells_are_short,
    prose_between_code,
    claims_checked,
    gpu_cells_stand_alone,
    small_enough,
)


def rules_for(path: Path) -> tuple:
    """The rules that hold for this notebook."""
    return RULES if notebooks.keeps_outputs(path) else COMMON


def breaches(path: Path) -> list[str]:
    """One sentence per breach of a rule. Raises `NotebookError` for what is no notebook."""
    notebook = notebooks.read(path)
    return [sentence for rule in rules_for(path) for sentence in rule(notebook, path)]


def count_words(markdown: str) -> int:
    """How many words of prose a person reads; a formula or a piece of code is one.

    Code blocks, headings, tags and the targets of links do not count.
    """
    text = notebooks.prose(markdown)
    text = re.sub(r"^#{1,6}[ \t].*$|^\s*\|?[\s|:-]+\|?\s*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", text)
    text = re.sub(r"\$\$.+?\$\$|\$[^$\n]+\$|`[^`\n]+`", " formula ", text, flags=re.DOTALL)
    return len(re.findall(r"\w[\w'’.,×/-]*", text))


def names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The names that a cell binds at its top level, and those that it uses before binding them.

    Names used inside a function count as used: it may be called in the same cell.
    """
    bound, used = set(), set()
    for statement in tree.body:
        loaded = {
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del)
        }
        loaded |= {
            node.target.id
            for node in ast.walk(statement)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
        used |= loaded - bound - _own_names(statement)
        bound |= _bound(statement)
    return bound, used - set(dir(builtins))


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds; those inside functions and classes are their own."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    found, todo = set(), [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(
            node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        ):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        todo.extend(ast.iter_child_nodes(node))
    return found


def _own_names(statement: ast.stmt) -> set[str]:
    """Parameters and local names inside functions, comprehensions and lambdas of a statement."""
    own = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.arg):
            own.add(node.arg)
        if isinstance(node, ast.comprehension):
            own |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own |= {
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return own


def _plain(text: str) -> str:
    """Text without Markdown's and HTML's marks, for comparing what is read."""
    text = re.sub(r"<[^>]*>", " ", text)
    text = re.sub(r"&(?:amp|lt|gt|quot|#x27|#39);", _entity, text)
    return re.sub(r"[\s*_`\\]+", "", text)


def _entity(match: re.Match) -> str:
    return {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"'}.get(match[0], "'")


def main(arguments: list[str] | None = None) -> int:
    """Print every breach; the exit status is 1 where there is one."""
    paths = [Path(a) for a in (sys.argv[1:] if arguments is None else arguments)]
    wrong = 0
    for path in paths or notebooks.find():
        try:
            found = breaches(path)
        except notebooks.NotebookError as error:
            found = [str(error)]
        wrong += len(found)
        for sentence in found:
            print(f"{notebooks.name(path)}: {sentence}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
