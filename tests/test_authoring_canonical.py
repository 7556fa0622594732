"""The canonical form: what is kept, what goes, and that it is one fixed point, byte for byte."""

import json

import nbformat
import pytest

from course_utils.authoring import canonical, notebooks

PNG = "iVBORw0KGgo="
SETUP = "import course_utils\n\nmachine = course_utils.setup()"


def code(source, outputs=(), count=1, cell_id="some-cell", **metadata):
    return {
        "cell_type": "code",
        "id": cell_id,
        "source": source,
        "outputs": list(outputs),
        "execution_count": count,
        "metadata": metadata,
    }


def markdown(source, cell_id="", **metadata):
    return {"cell_type": "markdown", "id": cell_id, "source": source, "metadata": metadata}


def notebook(*cells, **metadata):
    return nbformat.from_dict(
        {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    )


def form(*cells, outputs=True, **metadata):
    return canonical.canonical(notebook(*cells, **metadata), outputs=outputs)


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def display(data, **metadata):
    return {"output_type": "display_data", "data": data, "metadata": metadata}


def test_it_is_a_fixed_point(course, write_notebook):
    path = write_notebook(
        course / "notebooks" / "01_x.ipynb",
        "# Title\n\nText with trailing blanks.   \n",
        SETUP,
        "x = { 'a':1 }\nx",
        widgets={"state": {}},
    )
    assert not canonical.is_canonical(path)
    assert canonical.fix(path)
    assert canonical.is_canonical(path)
    before = path.read_bytes()
    assert not canonical.fix(path)
    assert path.read_bytes() == before


def test_bytes_are_laid_out_in_one_way():
    text = canonical.text(form(markdown("# Größe × 2"), code("1", count=None)))
    assert text.endswith("}\n") and not text.endswith("\n\n")
    assert '\n "cells": [\n  {\n' in text
    assert "Größe × 2" in text
    keys = list(json.loads(text))
    assert keys == sorted(keys)


def test_notebook_metadata_is_fixed_and_free_of_versions():
    made = form(
        code("1"),
        kernelspec={"name": "my-env", "display_name": "My env", "language": "python"},
        language_info={"name": "python", "version": "3.11.7", "codemirror_mode": {"version": 3}},
        widgets={"application/vnd.jupyter.widget-state+json": {"state": {}}},
        vscode={"interpreter": {"hash": "1"}},
    )
    assert made.metadata == {
        "accelerator": "GPU",
        "colab": {"gpuType": "T4"},
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    assert (made.nbformat, made.nbformat_minor) == (4, 5)


def test_notebooks_of_older_minor_versions_are_brought_up_to_date(course):
    path = course / "notebooks" / "01_x.ipynb"
    old = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# The title\n", "b"]}]}
    path.write_text(json.dumps(old | {"metadata": {}, "nbformat": 4, "nbformat_minor": 2}))
    canonical.fix(path)
    made = notebooks.read(path)
    assert made.nbformat_minor == 5
    assert (made.cells[0].id, made.cells[0].source) == ("the-title", "# The title\nb")


def test_cell_metadata_keeps_what_an_author_says_and_drops_what_an_editor_remembers():
    made = form(
        code(
            "1",
            tags=["nbval-check-output", "gpu", "gpu"],
            nbgrader={"grade": True},
            collapsed=True,
            execution={"iopub.status.busy": "2026-01-01"},
            executionInfo={"elapsed": 3},
            jupyter={"source_hidden": True, "outputs_hidden": True},
        ),
        code("2", tags=[], cell_id="other-cell"),
    )
    assert made.cells[0].metadata == {
        "tags": ["nbval-check-output", "gpu"],
        "nbgrader": {"grade": True},
        "jupyter": {"source_hidden": True},
    }
    assert made.cells[1].metadata == {}


def test_streams_are_merged_but_not_across_other_outputs():
    outputs = [stream("a\n"), stream("b\n"), display({"text/plain": "x"}), stream("c\n")]
    made = form(code("1", [*outputs, stream("d\n", "stderr"), stream("e\n", "stderr")]))
    assert [o.get("text") for o in made.cells[0].outputs] == ["a\nb\n", None, "c\n", "d\ne\n"]


def test_widget_views_go_and_pictures_and_text_stay():
    view = {canonical.WIDGET_VIEW: {"model_id": "abc"}}
    both = display(
        {**view, "image/png": PNG + "\n", "text/plain": "Explorer"},
        **{"image/png": {"alt": "What to see."}, "isolated": True},
    )
    made = form(code("1", [both, display(view)]))
    assert made.cells[0].outputs == [
        {
            "output_type": "display_data",
            "data": {"image/png": PNG, "text/plain": "Explorer"},
            "metadata": {"image/png": {"alt": "What to see."}},
        }
    ]


def test_execution_counts_are_sequential_where_everything_was_run():
    result = {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}}
    made = form(
        code("a", count=7, cell_id="first-cell"),
        markdown("Text", cell_id="some-text"),
        code("b", [{**result, "execution_count": 12}], count=12, cell_id="second-cell"),
    )
    cells = notebooks.code_cells(made)
    assert [cell.execution_count for cell in cells] == [1, 2]
    assert cells[1].outputs[0].execution_count == 2


def test_counts_are_not_made_up_where_a_cell_was_not_run():
    made = form(code("a", count=7), code("b", count=None, cell_id="second-cell"))
    assert [cell.execution_count for cell in made.cells] == [7, None]


def test_exercises_carry_no_outputs(course, write_notebook):
    ran = code("print(1)", [stream("1\n")])
    for folder, kept in (("notebooks", 1), ("solutions/04_x", 0), ("exercises/04_x", 0)):
        path = write_notebook(course / folder / "04_x.ipynb", "# Title", ran)
        canonical.fix(path)
        cell = notebooks.code_cells(notebooks.read(path))[0]
        assert len(cell.outputs) == kept, folder
        assert (cell.execution_count is not None) == bool(kept), folder


def test_the_folder_above_the_course_does_not_matter(tmp_path):
    assert notebooks.keeps_outputs(tmp_path / "exercises" / "notebooks" / "01_x.ipynb")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (markdown("## What you’ll see: 10 trips"), "what-youll-see-10-trips"),
        (markdown("Read [this page](https://example.org/page) first."), "read-this-page-first"),
        (markdown("**!**"), "markdown-cell"),
        (code("@triton.jit\ndef gelu_kernel(x):\n    pass"), "gelu-kernel"),
        (code("#| export\nx = torch.ones(3)"), "x-torch-ones-3"),
        (code(SETUP), "setup"),
        (code("1"), "code-cell"),
        (markdown("# " + "long " * 40), "long-long-long-long-long-long-long"),
    ],
)
def test_identifiers_are_made_of_what_the_cell_is_about(cell, expected):
    assert form({**cell, "id": ""}).cells[0].id == expected


@pytest.mark.parametrize(
    "made_up",
    ["", "a3f9c0d1", "0c1a7b52-1f2e-4d3c-8b9a-123456789abc", "vXkA3_9-bQqZ", "x" * 65, "12"],
)
def test_identifiers_that_tools_make_up_are_replaced(made_up):
    assert form(markdown("# The question", made_up)).cells[0].id == "the-question"


def test_readable_identifiers_stay_and_all_are_unique():
    made = form(
        markdown("# New heading", "kept-name"),
        markdown("## Again", "kept-name"),
        markdown("## Again"),
        markdown("## Again"),
    )
    assert [cell.id for cell in made.cells] == ["kept-name", "again", "again-2", "again-3"]
    again = canonical.canonical(made, outputs=True)
    assert [cell.id for cell in again.cells] == [cell.id for cell in made.cells]


def test_an_identifier_may_hold_the_name_of_a_task():
    assert form(markdown("Text", "task-scale_add")).cells[0].id == "task-scale_add"


def test_empty_cells_go_and_code_is_formatted():
    made = form(code("x = {'a':1}\n\n"), code("   ", cell_id="empty"), markdown("\n", "blank"))
    assert [cell.source for cell in made.cells] == ['x = {"a": 1}']


def test_magics_survive_formatting():
    source = "if True:\n    !git  status\n%matplotlib inline\nx = [1,2]"
    assert form(code(source)).cells[0].source.splitlines() == [
        "if True:",
        "    !git  status",
        "%matplotlib inline",
        "x = [1, 2]",
    ]


def test_the_machine_is_named_in_general():
    said = (
        "Interpreter mode on Intel(R) Xeon(R) CPU @ 2.20GHz (CUDA_VISIBLE_DEVICES hides every "
        "GPU): kernels run correctly but slowly; torch 2.13.0+cpu, triton 3.7.1, numpy 2.4.6, "
        "Python 3.11.7\n"
    )
    made = form(code(SETUP, [stream(said)]))
    assert made.cells[0].outputs[0].text == (
        "Interpreter mode on CPU (no GPU found): kernels run correctly but slowly; "
        "torch 2.13.0, triton 3.7.1, numpy 2.4.6, Python 3.11\n"
    )


def test_formatting_keeps_a_notebook_executed_and_editing_does_not():
    made = notebook(code("x = {'a':1}"))
    made.metadata.course = {"executed_source": notebooks.source_hash(made)}
    formatted = canonical.canonical(made, outputs=True)
    assert formatted.cells[0].source == 'x = {"a": 1}'
    assert notebooks.executed_source(formatted) == notebooks.source_hash(formatted)
    made.cells[0].source = "x = {'a':2}"
    edited = canonical.canonical(made, outputs=True)
    assert notebooks.executed_source(edited) != notebooks.source_hash(edited)


def test_a_cell_that_does_not_parse_is_named(course, write_notebook, capsys):
    path = write_notebook(course / "notebooks" / "01_x.ipynb", "# Title", "def f(:\n    pass")
    before = path.read_bytes()
    assert canonical.main(["--fix", str(path)]) == 1
    assert "01_x.ipynb" in capsys.readouterr().out
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nbformat": 3, "worksheets": []}'])
def test_what_is_no_notebook_is_refused_in_one_line(course, text, capsys):
    path = course / "notebooks" / "01_x.ipynb"
    path.write_text(text)
    assert canonical.main(["--check", str(path)]) == 1
    said = capsys.readouterr().out
    assert "01_x.ipynb" in said and len(said.splitlines()) == 1


def test_check_names_the_repair(course, write_notebook, capsys):
    path = write_notebook(course / "notebooks" / "01_x.ipynb", "# Title", "1")
    before = path.read_bytes()
    assert canonical.main(["--check", str(path)]) == 1
    assert "make fix" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert canonical.main(["--fix", str(path)]) == 0
    assert canonical.main(["--check", str(path)]) == 0
