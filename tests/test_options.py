"""Options: found whatever their case, read as what they are, refused with the nearest name."""

from __future__ import annotations

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.options import (
    CHECKPOINT_LOCATION,
    CLOSE_WINDOWS_AT_END,
    KEY_COLUMNS,
    OUTPUT_OPTIONS,
    PATH,
    PROCESSING_GUARANTEE,
    QUERY_OPTIONS,
    SNAPSHOT_BACKUP_EVERY,
    STATE_PARTITIONS,
    Options,
    family,
    interval,
    number,
    text,
)

RETENTION = interval("retention", "How long.")
KNOWN = [*QUERY_OPTIONS, *OUTPUT_OPTIONS, PATH]


def test_names_ignore_case() -> None:
    assert Options({"CHECKPOINTLOCATION": "/x"})[CHECKPOINT_LOCATION] == "/x"


def test_without_an_option_its_default_holds() -> None:
    given = Options({})
    wanted = [None, False, "exactly-once", 100, None, ()]
    read = [CHECKPOINT_LOCATION, CLOSE_WINDOWS_AT_END, PROCESSING_GUARANTEE, SNAPSHOT_BACKUP_EVERY, STATE_PARTITIONS]
    assert [*(given[option] for option in read), given[KEY_COLUMNS]] == wanted
    assert CHECKPOINT_LOCATION not in given


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(AnalysisError, match=r'"closeWindowAtEnd".*did you mean "closeWindowsAtEnd"'):
        Options({"closeWindowAtEnd": "true"}).only(KNOWN, "files")


def test_an_option_of_another_sink_is_refused() -> None:
    with pytest.raises(AnalysisError, match='"numRows" is not an option of format\\("files"\\)'):
        Options({"numRows": "3"}).only(KNOWN, "files")


def test_a_value_is_refused_before_anybody_reads_it() -> None:
    with pytest.raises(AnalysisError, match="statePartitions must be a positive whole number"):
        Options({"StatePartitions": "many"}).only(KNOWN, "files")


def test_a_family_takes_any_name_with_its_prefix() -> None:
    known = [family("kafka.", "Properties.")]
    Options({"Kafka.Linger.ms": "5"}).only(known, "kafka")
    with pytest.raises(AnalysisError, match='"kafkaLinger" is not an option'):
        Options({"kafkaLinger": "5"}).only(known, "kafka")


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_flag_is_true_or_false(text: str) -> None:
    with pytest.raises(AnalysisError, match="closeWindowsAtEnd must be true or false"):
        Options({"closeWindowsAtEnd": text})[CLOSE_WINDOWS_AT_END]


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many"])
def test_a_number_is_positive_and_whole(text: str) -> None:
    with pytest.raises(AnalysisError, match="statePartitions must be a positive whole number"):
        Options({"statePartitions": text})[STATE_PARTITIONS]


def test_a_number_may_begin_lower_and_end() -> None:
    ports = number("port", "A port.", least=0, most=65_535)
    assert [Options({"port": text})[ports] for text in ("0", "65535")] == [0, 65_535]
    with pytest.raises(AnalysisError, match='port must be a whole number, 0 or more, not "-1"'):
        Options({"port": "-1"})[ports]
    with pytest.raises(AnalysisError, match="port must be 65535 at most"):
        Options({"port": "65536"})[ports]


def test_a_choice_names_the_choices() -> None:
    with pytest.raises(AnalysisError, match='did you mean "exactly-once"'):
        Options({"processingGuarantee": "exactly_once"})[PROCESSING_GUARANTEE]
    assert Options({"processingGuarantee": "None"})[PROCESSING_GUARANTEE] == "none"


def test_names_are_separated_by_commas() -> None:
    assert Options({"keyColumns": " a, b,,"})[KEY_COLUMNS] == ("a", "b")


def test_some_options_are_taken_by_their_names() -> None:
    given = {"path": "/out", "HEADER": "true", "fileFormat": "csv", "retention": "7d", "checkpointLocation": "/ck"}
    assert Options(given).among([text("header", "Names."), text("sep", "Separator.")]) == {"header": "true"}


@pytest.mark.parametrize(
    ("text", "hours"), [("12h", 12), ("7d", 168), ("7 days", 168), ("60m", 1), ("60 min", 1), ("3600s", 1)]
)
def test_an_interval_is_written_as_for_sparks_file_sink_or_in_words(text: str, hours: int) -> None:
    assert Options({"retention": text})[RETENTION] == hours * 3_600_000_000


@pytest.mark.parametrize("text", ["12", "h", "-1h", "0d", "1 month", ""])
def test_a_wrong_interval_is_refused_by_name(text: str) -> None:
    with pytest.raises(AnalysisError, match="retention"):
        Options({"retention": text})[RETENTION]


def test_an_option_of_something_that_another_one_names_has_its_prefix() -> None:
    option = RETENTION.below("journal.", "journal")
    assert (option.name, option.meaning) == ("journal.retention", "journal: how long.")
    assert Options({"journal.retention": "1s"})[option] == 1_000_000
