"""The rules for lessons: each accepts what is good and names the cell where something is not."""

import nbformat
import pytest

from course_utils.authoring import notebooks, rules

SETUP = "import course_utils\n\nmachine = course_utils.setup()"
WORDS = "word " * 30


def code(source, outputs=(), cell_id="bad-cell", tags=(), count=1):
    cell = nbformat.v4.new_code_cell(source, id=cell_id, execution_count=count)
    cell.metadata.tags = list(tags)
    cell.outputs = [nbformat.from_dict(output) for output in outputs]
    return cell


def markdown(source, cell_id="bad-cell"):
    return nbformat.v4.new_markdown_cell(source, id=cell_id)


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def display(data, **metadata):
    return {"output_type": "display_data", "data": data, "metadata": metadata}


def picture(alt, **data):
    return display({"image/png": "iVBORw0KGgo=", **data}, **{"image/png": {"alt": alt}})


def check(rule, *cells, path="notebooks/01_x.ipynb", **metadata):
    notebook = nbformat.v4.new_notebook(cells=list(cells), metadata=metadata)
    return list(rule(notebook, path))


def lesson():
    """A lesson that keeps every rule."""
    counted = [
        code(f"print({i})", [stream(f"{i}\n")], f"count-{i}", ["nbval-check-output"])
        for i in range(5)
    ]
    cells = [markdown("# Title", "title"), code(SETUP, [], "setup")]
    for cell in counted:
        cells += [markdown(WORDS, f"{cell.id}-text"), cell]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata.course = {"executed_source": notebooks.source_hash(made)}
    return made


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_a_good_lesson_keeps_every_rule(rule, tmp_path):
    assert list(rule(lesson(), tmp_path / "01_x.ipynb")) == []


def test_rules_for_lessons_and_for_exercises(tmp_path):
    assert rules.claims_checked in rules.rules_for(tmp_path / "notebooks" / "01_x.ipynb")
    few = rules.rules_for(tmp_path / "exercises" / "04_x" / "04_x.ipynb")
    assert rules.no_machine_paths in few and rules.executed not in few


BAD = {
    "path in an output": (rules.no_machine_paths, code("1", [stream("in /home/ann/course\n")])),
    "path in a source": (rules.no_machine_paths, code('open("/root/x.json")')),
    "path in prose": (rules.no_machine_paths, markdown("Look at /Users/ann/x.")),
    "temporary path": (rules.no_machine_paths, code("1", [stream("/tmp/ipykernel_12/34.py:1: x")])),
    "package path": (rules.no_machine_paths, code("1", [stream("lib/site-packages/torch")])),
    "windows path": (rules.no_machine_paths, code("1", [stream(r"C:\Users\ann")])),
    "address in a repr": (rules.no_addresses, code("1", [stream("<f at 0x7f12ab34cd56>")])),
    "bare address": (rules.no_addresses, code("1", [display({"text/html": "0x55d0c0ffee00"})])),
    "syntax error": (rules.code_parses, code("def f(:")),
    "%%capture": (rules.nothing_hidden, code("%%capture\n!pip install x")),
    "trailing semicolon": (rules.nothing_hidden, code("plt.plot(x);\n")),
    "ignored output": (rules.nothing_hidden, code("1", tags=["nbval-ignore-output"])),
    "ignored by comment": (rules.nothing_hidden, code("# NBVAL_IGNORE_OUTPUT\n1")),
    "timing magic": (rules.no_timing_magics, code("%timeit f(x)")),
    "timing cell magic": (rules.no_timing_magics, code("%%time\nf(x)")),
    "dead link": (rules.links_resolve, markdown("See [this](01_gone.ipynb#part).")),
    "dead picture": (rules.links_resolve, markdown('<img src="gone.png">')),
    "never executed": (rules.executed, code("1", count=None)),
    "changed since": (rules.executed, code("1")),
    "failed": (
        rules.no_errors,
        code("1", [{"output_type": "error", "ename": "E", "evalue": "v", "traceback": []}]),
    ),
    "warned": (rules.no_errors, code("1", [stream("UserWarning: x", "stderr")])),
    "no alt text": (rules.pictures_described, code("1", [picture("")])),
    "no caption": (rules.pictures_described, code("1", [picture("What to see.")])),
    "long cells": (rules.cells_are_short, code("\n".join(["x = 1"] * 26))),
    "few checked": (rules.claims_checked, code("1", [stream("1")], tags=["nbval-check-output"])),
    "silent gpu cell": (rules.gpu_cells_stand_alone, code("x = 1", tags=["gpu"])),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "-"))
def test_a_breach_is_named(case, tmp_path):
    rule, cell = BAD[case]
    found = check(rule, cell, path=tmp_path / "01_x.ipynb")
    assert found
    if case not in ("long cells", "few checked", "changed since"):
        assert "bad-cell" in found[0]


GOOD = {
    "a web address": (
        rules.no_machine_paths,
        markdown("https://example.org/home/page and notebooks/tmp/x and ~/tmp/x"),
    ),
    "colab's folder": (rules.no_machine_paths, code('!git clone x "/content/course"')),
    "a PTX constant": (rules.no_addresses, code("1", [stream("mov.b32 %r1, 0x3f800000;")])),
    "a magic": (rules.code_parses, code("!ls\n%matplotlib inline\nx = 1")),
    "a link to a page": (rules.links_resolve, markdown("[a](https://example.org) [b](#part)")),
    "a link in code": (rules.links_resolve, markdown("`[a](b)`\n\n```\n[a](b)\n```")),
    "meant to fail": (
        rules.no_errors,
        code(
            "1",
            [{"output_type": "error", "ename": "E", "evalue": "v", "traceback": []}],
            tags=["raises-exception"],
        ),
    ),
    "caption below": (
        rules.pictures_described,
        code("1", [picture("Ten *trips*."), display({"text/markdown": "_Ten trips._"})]),
    ),
    "caption in the bundle": (
        rules.pictures_described,
        code("1", [picture("A < B & C", **{"text/html": "<p>A &lt; B &amp; C</p>"})]),
    ),
}


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.replace(" ", "-"))
def test_what_is_good_passes(case, tmp_path):
    rule, cell = GOOD[case]
    assert check(rule, cell, path=tmp_path / "01_x.ipynb") == []


def test_a_link_to_a_file_that_is_there_resolves(tmp_path):
    (tmp_path / "02_roofline.ipynb").write_text("")
    cell = markdown("[next](02_roofline.ipynb) and [section](02_roofline.ipynb#ridge)")
    assert check(rules.links_resolve, cell, path=tmp_path / "01_x.ipynb") == []


def test_a_lesson_whose_tasks_have_solutions_ends_with_a_link_to_its_exercises(course):
    path = course / "notebooks" / "04_x.ipynb"
    linked = markdown("Do [them](../exercises/04_x/04_x.ipynb).", "linked")
    other = markdown("Do [them](../exercises/04_x/04_y.ipynb).", "other")
    assert check(rules.exercises_linked, other, path=path) == []
    solution = course / "solutions" / "04_x" / "04_x.ipynb"
    solution.parent.mkdir()
    solution.touch()
    assert check(rules.exercises_linked, other, linked, path=path) == []
    for last in (other, markdown("```\n[a](../exercises/04_x/04_x.ipynb)\n```", "other")):
        (found,) = check(rules.exercises_linked, linked, last, path=path)
        assert "'other'" in found and "../exercises/04_x/04_x.ipynb" in found


@pytest.mark.parametrize(
    ("sources", "good"),
    [
        (["# A", "## B", "### C", "## D"], True),
        (["# A\n\n```python\n# no heading\n### nor this\n```"], True),
        (["# A", "### C"], False),
        (["# A", "# B"], False),
        (["## B", "# A"], False),
        (["text"], False),
    ],
)
def test_headings(sources, good):
    cells = [markdown(source, f"cell-{i}") for i, source in enumerate(sources)]
    assert (check(rules.headings_in_order, *cells) == []) == good


@pytest.mark.parametrize(
    ("sources", "good"),
    [([SETUP, "1"], True), (["1", SETUP], False), ([SETUP, SETUP], False), (["1"], False)],
)
def test_set_up_comes_first(sources, good):
    cells = [code(source, cell_id=f"cell-{i}") for i, source in enumerate(sources)]
    assert (check(rules.set_up_first, *cells) == []) == good


def test_cell_sizes_at_the_limits():
    def cells(*lengths):
        return [code("\n".join(["x = 1"] * n), cell_id=f"cell-{i}") for i, n in enumerate(lengths)]

    assert check(rules.cells_are_short, *cells(*[10] * 10)) == []
    assert check(rules.cells_are_short, *cells(*[11] * 10)) != []
    assert check(rules.cells_are_short, *cells(*[5] * 9, 26)) == []
    found = check(rules.cells_are_short, *cells(*[5] * 8, 26, 30))
    assert "cell-8" in found[0] and "cell-9" in found[0]


def test_prose_between_code():
    def cells(*words):
        made = [code("1", cell_id="first")]
        for i, count in enumerate(words):
            made += [markdown("word " * count, f"text-{i}"), code("1", cell_id=f"code-{i}")]
        return made

    assert check(rules.prose_between_code, *cells(*[15, 60] * 5)) == []
    assert check(rules.prose_between_code, *cells(*[30] * 7, 0, 14, 61)) == []
    found = check(rules.prose_between_code, *cells(*[30] * 6, 0, 14, 61, 200))
    assert "'code-8' (61)" in found[0] and "4 of 10" in found[0]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("one two-part, three.", 3),
        ("## A heading\n\none two", 2),
        ("[one two](https://example.org/a/b/c) three", 3),
        ("so $a \\cdot b$ and `x = y + 1` are", 5),
        ("```python\na = 1\n```\none", 1),
        ("| a | b |\n|---|---|\n| c | d |", 4),
        ("<details><summary>Hint</summary>one</details>", 2),
    ],
)
def test_what_counts_as_a_word(text, count):
    assert rules.count_words(text) == count


GPU_CASES = [
    ("x = 1", "print(x)", "x"),
    ("import torch.profiler as prof", "prof.run()", "prof"),
    ("import torch.profiler", "torch.ones(1)", "torch"),
    ("def f():\n    pass", "g(f)", "f"),
    ("for i in y:\n    z = i", "print(z)", "z"),
    ("if (n := 3) > 2:\n    pass", "print(n)", "n"),
    ("with a() as b:\n    pass", "b.x", "b"),
    ("x = 1", "x += 1", "x"),
    ("x = 1", "def g():\n    return x", "x"),
    ("x = 1", "y = [x for i in z]", "x"),
    ("x = 1", "x = x + 1", "x"),
    ("x = 1", "x = 2\nprint(x)", None),
    ("x = 1", "def g(x):\n    return x", None),
    ("x = 1", "y = [x for x in z]", None),
    ("y = [x for x in z]", "print(x)", None),
    ("def f():\n    x = 1", "print(x)", None),
    ("print(x)", "print(x)", None),
]


@pytest.mark.parametrize(("on_gpu", "later", "name"), GPU_CASES)
def test_what_only_a_gpu_cell_binds_is_not_used_later(on_gpu, later, name):
    gpu = code(on_gpu, [stream("needs a GPU")], "on-gpu", ["gpu"])
    found = check(rules.gpu_cells_stand_alone, gpu, code(later))
    if name is None:
        assert found == []
    else:
        assert len(found) == 1 and repr(name) in found[0] and "on-gpu" in found[0]


def test_gpu_cells_may_use_each_other_and_what_is_bound_again_is_fine():
    said = [stream("needs a GPU")]
    cells = [
        code("x = 1", said, "gpu-1", ["gpu"]),
        code("y = x", said, "gpu-2", ["gpu"]),
        code("x = 2", cell_id="again"),
        code("print(x)", cell_id="use"),
    ]
    assert check(rules.gpu_cells_stand_alone, *cells) == []


def test_a_lesson_executed_on_a_gpu_is_noticed():
    notebook = lesson()
    notebook.cells[1].outputs = [nbformat.from_dict(stream("GPU mode on NVIDIA H200 (…)\n"))]
    assert "GPU" in next(rules.executed(notebook, "notebooks/01_x.ipynb"))


def test_checked_cells_have_output_and_run_everywhere():
    notebook = lesson()
    notebook.cells[3].outputs = []
    notebook.cells[5].metadata.tags.append("gpu")
    found = list(rules.claims_checked(notebook, "x"))
    assert "prints nothing" in found[0] and "both gpu" in found[1]


def test_large_files_are_noticed():
    notebook = lesson()
    notebook.cells[1].outputs = [nbformat.from_dict(stream("x" * 1_500_000))]
    assert "MB" in next(rules.small_enough(notebook, "x"))


def test_the_command_line_prints_each_breach(course, write_notebook, capsys):
    path = write_notebook(course / "notebooks" / "01_x.ipynb", "# Title", "%%time\nprint(1)")
    assert rules.main([str(path)]) == 1
    said = capsys.readouterr().out
    assert "01_x.ipynb: cell" in said and "%%time" in said
    assert "01_x.ipynb: not executed" in said
