"""Options: found whatever their case, refused with the nearest name."""

from __future__ import annotations

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.options import OUTPUT_OPTIONS, QUERY_OPTIONS, Options

KNOWN = [*QUERY_OPTIONS, *OUTPUT_OPTIONS, "path"]


def test_names_ignore_case() -> None:
    assert Options({"CHECKPOINTLOCATION": "/x"}).get("checkpointLocation") == "/x"


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(AnalysisError, match=r'"closeWindowAtEnd".*did you mean "closeWindowsAtEnd"'):
        Options({"closeWindowAtEnd": "true"}).only(KNOWN, "files")


def test_an_option_of_another_sink_is_refused() -> None:
    with pytest.raises(AnalysisError, match='"numRows" is not an option of format\\("files"\\)'):
        Options({"numRows": "3"}).only(KNOWN, "files")


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


def test_some_options_are_taken_by_the_names_that_they_are_asked_for() -> None:
    given = {"path": "/out", "HEADER": "true", "fileFormat": "csv", "retention": "7d", "checkpointLocation": "/ck"}
    assert Options(given).among(["header", "sep"]) == {"header": "true"}


@pytest.mark.parametrize(
    ("text", "hours"), [("12h", 12), ("7d", 168), ("7 days", 168), ("60m", 1), ("60 min", 1), ("3600s", 1)]
)
def test_an_age_is_written_as_for_sparks_file_sink_or_as_an_interval(text: str, hours: int) -> None:
    assert Options({"retention": text}).age("retention") == hours * 3_600_000_000


@pytest.mark.parametrize("text", ["12", "h", "-1h", "0d", "1 month", ""])
def test_a_wrong_age_is_refused_by_name(text: str) -> None:
    with pytest.raises(AnalysisError, match="retention"):
        Options({"retention": text}).age("retention")
