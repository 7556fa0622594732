"""The designs that were tried out on a GPU: the committed file, its loader, its refusals."""

import pytest

from course_utils.records import NoRecordError, RecordError, tuning


def test_the_committed_file_says_where_it_is_from():
    tried = tuning.load()
    assert "NVIDIA H200" in tried.label
    row = tried.rows("softmax", "ours", columns=256)[0]
    assert row.share == pytest.approx(row.copy_milliseconds / row.milliseconds)


def test_a_backward_pass_is_held_to_three_trips():
    row = tuning.load().rows("layernorm_backward", "ours", columns=1024)[0]
    assert row.share == pytest.approx(1.5 * row.copy_milliseconds / row.milliseconds)


def test_what_was_not_tried_is_said():
    with pytest.raises(RecordError, match="nothing was tried for softmax by hand"):
        tuning.load().rows("softmax", "by hand")
    with pytest.raises(NoRecordError, match="nothing was tuned on 'abacus'"):
        tuning.load("abacus")


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "h200.json").write_text("{}")
    with pytest.raises(RecordError):
        tuning.load("h200", tmp_path)
