"""Options: found whatever their case, refused with the nearest name."""

from __future__ import annotations

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.options import Options, file_writer_options


def test_names_ignore_case() -> None:
    assert Options({"CHECKPOINTLOCATION": "/x"}).get("checkpointLocation") == "/x"


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(AnalysisError, match=r'"closeWindowAtEnd".*did you mean "closeWindowsAtEnd"'):
        Options({"closeWindowAtEnd": "true"}).check("files")


def test_an_option_of_another_sink_is_refused() -> None:
    with pytest.raises(AnalysisError, match='"numRows" is no option of format\\("files"\\)'):
        Options({"numRows": "3"}).check("files")


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_flag_is_true_or_false(text: str) -> None:
    with pytest.raises(AnalysisError, match="closeWindowsAtEnd must be true or false"):
        Options({"closeWindowsAtEnd": text}).flag("closeWindowsAtEnd")


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many"])
def test_a_number_is_positive_and_whole(text: str) -> None:
    with pytest.raises(AnalysisError, match="statePartitions must be a positive whole number"):
        Options({"statePartitions": text}).number("statePartitions", default=1)


def test_a_choice_names_the_choices() -> None:
    with pytest.raises(AnalysisError, match='did you mean "exactly-once"'):
        Options({"processingGuarantee": "exactly_once"}).choice(
            "processingGuarantee", ("exactly-once", "at-least-once", "none"), "exactly-once"
        )


def test_only_writer_options_reach_sparks_writer() -> None:
    given = {"path": "/out", "HEADER": "true", "fileFormat": "csv", "checkpointLocation": "/ck"}
    assert file_writer_options(Options(given)) == {"header": "true"}
