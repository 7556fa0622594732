"""records: the schema, look-ups that explain themselves, and writing in one step."""

import copy
import json

import pytest
import sample_record

from course_utils import records


@pytest.fixture
def record_document():
    return sample_record.document()


@pytest.fixture
def folder(tmp_path, record_document):
    records.write(record_document, tmp_path / "h200.json")
    other = {**record_document, "gpu": "NVIDIA L4", "gpu_key": "l4"}
    records.write(other, tmp_path / "l4.json")
    return tmp_path


def test_rates_on_known_numbers():
    assert records.gb_per_s(8e9, 2.0) == pytest.approx(4000)
    assert records.tflop_per_s(2 * 8192**3, 1.6) == pytest.approx(687.19, abs=0.01)


def test_round_trip(folder, record_document):
    record = records.load("h200", folder)
    assert (record.gpu, record.gpu_key, record.driver) == ("NVIDIA H200", "h200", "580.1")
    assert record.label == "recorded on NVIDIA H200, torch 2.11.0, triton 3.6.0, 2026-11-29"
    row = record.row("chain", "eager", n=2**28, dtype="float32")
    assert row.gb_per_s == pytest.approx(4244.0, abs=0.1)
    assert row.tflop_per_s == pytest.approx(5 * 2**28 / 2.53e-3 / 1e12)
    assert row.intensity == pytest.approx(0.125)
    assert not row.short
    assert record.launch_overhead == 0.004
    assert record.row("chain", "eager", n=2**20).short
    launch = record.row("launch", "add_8")
    assert launch.gb_per_s is None and launch.tflop_per_s is None and launch.intensity is None
    counter = record.counter("gelu")
    assert (counter.read_ratio, counter.write_ratio) == (1.001, 0.95)
    assert json.loads((folder / "h200.json").read_text()) == record_document


def test_rows_filter(folder):
    record = records.load("h200", folder)
    assert [row.parameters["n"] for row in record.rows("chain", "eager", dtype="float32")] == [
        2**20,
        2**28,
    ]
    assert record.rows("chain", n=7) == []
    assert len(record.rows("chain")) == 3


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (("nothing", "x", {}), r"no benchmark 'nothing'.*there are: chain, launch"),
        (("chain", "x", {}), r"no case 'x'; there are: eager"),
        (("chain", "eager", {"n": 3}), r"fits chain/eager\(n=3\).*n=1048576, dtype='float32'"),
        (("chain", "eager", {"n": 2**28}), r"2 recorded rows fit .*'float32'.*'bfloat16'"),
    ],
)
def test_row_says_what_there_is(folder, ask, message):
    benchmark, case, parameters = ask
    with pytest.raises(records.RecordError, match=message):
        records.load("h200", folder).row(benchmark, case, **parameters)


def test_counter_says_what_there_is(folder):
    with pytest.raises(records.RecordError, match=r"no counters for 'add'.*there are: gelu"):
        records.load("h200", folder).counter("add")


def test_which_record_is_loaded(folder, monkeypatch):
    for own, loaded in ((None, "h200"), ("l4", "l4"), ("t4", "h200")):
        monkeypatch.setattr(records, "_own_key", lambda own=own: own)
        assert records.load(folder=folder).gpu_key == loaded
    assert records.available(folder) == ["h200", "l4"]
    with pytest.raises(records.NoRecordError, match=r"no record for 't4'; there are: h200, l4"):
        records.load("t4", folder)


def test_no_record_yet(tmp_path):
    assert records.available(tmp_path) == []
    with pytest.raises(records.NoRecordError) as error:
        records.load(folder=tmp_path)
    assert str(error.value) == "no record yet; make one with `make record` on a GPU"


def test_a_changed_file_is_read_again(folder, record_document):
    assert records.load("h200", folder).driver == "580.1"
    records.write({**record_document, "driver": "580.100"}, folder / "h200.json")
    assert records.load("h200", folder).driver == "580.100"


def test_a_file_must_be_named_after_its_gpu(folder):
    (folder / "h200.json").rename(folder / "b200.json")
    with pytest.raises(records.RecordError, match=r"b200\.json.*expected h200\.json"):
        records.load("b200", folder)


def test_not_json(tmp_path):
    (tmp_path / "h200.json").write_text("{")
    with pytest.raises(records.RecordError, match=r"h200\.json: not JSON"):
        records.load("h200", tmp_path)


def _set(*path_and_value):
    *path, key, value = path_and_value

    def change(document):
        for step in path:
            document = document[step]
        document[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("schema", 2), "schema: expected 1, got 2"),
        (_set("driver", ""), "driver: expected a text"),
        (_set("torch", None), "torch: expected a text"),
        (_set("date", "29.11.2026"), "date: expected YYYY-MM-DD"),
        (_set("extra", 1), "unknown keys: extra"),
        (_set("rows", []), "rows: expected a list of measurements"),
        (_set("rows", 0, []), r"rows\[0\]: expected an object"),
        (_set("rows", 0, "case", ""), r"rows\[0\]\.case: expected a text"),
        (_set("rows", 1, "milliseconds", 0), r"rows\[1\]\.milliseconds: expected a positive"),
        (_set("rows", 1, "milliseconds", float("nan")), r"rows\[1\]\.milliseconds: .*got nan"),
        (_set("rows", 1, "low", 3.0), r"rows\[1\]: expected low <= milliseconds <= high"),
        (_set("rows", 0, "repeats", 0), r"rows\[0\]\.repeats: expected a positive whole"),
        (_set("rows", 0, "bytes", 1.5), r"rows\[0\]\.bytes: expected a whole number or null"),
        (_set("rows", 0, "flops", -1), r"rows\[0\]\.flops: expected a whole number or null"),
        (_set("rows", 0, "speed", 1), r"rows\[0\]: unknown keys: speed"),
        (_set("rows", 0, "parameters", {"n": [1]}), r"rows\[0\]\.parameters: expected an object"),
        (_set("rows", 0, "parameters", "n", 2**28), r"rows: 0 and 1 are the same"),
        (_set("counters", 0, "dram_read", -5), r"counters\[0\]\.dram_read: expected a number of"),
        (_set("counters", 0, "counted_read", 0), r"counters\[0\]\.counted_read: expected"),
        (_set("counters_date", "today"), "counters_date: expected YYYY-MM-DD, got 'today'"),
        (_set("skipped", [1]), "skipped: expected a list of texts"),
    ],
)
def test_validation_says_where_and_what(record_document, change, message):
    document = copy.deepcopy(record_document)
    records.validate(document)
    change(document)
    with pytest.raises(records.RecordError, match=message):
        records.validate(document)


def test_not_an_object():
    with pytest.raises(records.RecordError, match="expected a JSON object, got list"):
        records.validate([])


def test_writing_replaces_in_one_step(folder, record_document, monkeypatch):
    path = folder / "h200.json"
    before = path.read_bytes()
    with pytest.raises(records.RecordError):
        records.write({**record_document, "rows": []}, path)

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(records.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        records.write({**record_document, "driver": "1"}, path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in folder.iterdir()) == ["h200.json", "l4.json"]


def test_one_measurement_a_line(folder, record_document):
    text = (folder / "h200.json").read_text()
    assert len(text.splitlines()) < 26
    assert text.count('"benchmark"') == len(record_document["rows"])


def test_unknown_gpus_get_a_key_of_their_own():
    assert records.key_for("NVIDIA H200") == "h200"
    assert records.key_for("NVIDIA Foo-9 (X)") == "nvidia_foo_9_x"


@pytest.mark.parametrize("key", records.available())
def test_committed_records_are_valid(key):
    record = records.load(key)
    assert record.gpu_key == key
    assert record.launch_overhead


def test_generated_kernels_are_kept_and_checked(tmp_path):
    document = sample_record.document()
    document["generated"] = {"chain": "def triton_chain(): ..."}
    records.write(document, tmp_path / "h200.json")
    assert records.load("h200", tmp_path).generated["chain"].startswith("def triton_chain")
    document["generated"] = {"chain": 3}
    with pytest.raises(records.RecordError, match="generated: expected texts by program"):
        records.validate(document)
