from __future__ import annotations

from pathlib import Path

import pytest

from scripts.minutes import LIMIT, REST, Row, file_of, report, row_of, rows

TABLE = [
    Row(REST, 3),
    Row("sinks", 2, ("tests/sinks",)),
    Row("Kafka", 1, ("tests/connectors/kafka",)),
    Row("pages", 1, ("docs",)),
]
JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" tests="3" time="{time}">
{cases}</testsuite></testsuites>"""


def junit(path: Path, seconds: float, **cases: float) -> None:
    lines = (f'<testcase classname="{name}" name="test_it" time="{time}" />\n' for name, time in cases.items())
    path.write_text(JUNIT.format(time=seconds, cases="".join(lines)))


def test_the_table_is_within_the_limit_and_has_a_row_for_every_folder_of_tests() -> None:
    table = rows()
    assert sum(row.minutes for row in table) <= LIMIT
    assert REST in {row.name for row in table}
    tests = Path(__file__).resolve().parents[1]
    for path in tests.rglob("test_*.py"):
        assert not row_of(f"tests/{path.relative_to(tests)}", table).startswith("not in the table"), path


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("tests/sinks/test_files.py", "sinks"),
        ("tests/connectors/kafka/test_pool.py", "Kafka"),
        ("tests/sinks_of_others/test_x.py", "not in the table: tests/sinks_of_others/test_x.py"),
        ("docs", "pages"),
    ],
)
def test_the_longest_path_decides(path: str, row: str) -> None:
    assert row_of(path, TABLE) == row


def test_a_test_of_a_class_is_found_in_its_file() -> None:
    assert file_of("tests.scripts.test_minutes.TestSome") == "tests/scripts/test_minutes.py"


def test_a_page_keeps_its_ending_and_is_found_in_the_table() -> None:
    assert file_of("docs.guide.state.md") == "docs/guide/state.md"
    assert row_of(file_of("README.md"), rows()) == "oldest Spark"


def test_the_minutes_of_a_step_are_shared_in_proportion(tmp_path: Path) -> None:
    # Two processes: 600 seconds of tests in 300.
    junit(tmp_path / "test.xml", 300, **{"tests.scripts.test_minutes": 200, "tests.scripts.test_setup": 400})
    junit(tmp_path / "docs.xml", 60, **{"src.sparkjet.clock": 10})
    lines = report(tmp_path, 600, [Row(REST, 3), Row("scripts", 5, ("tests/scripts",)), Row("pages", 1, ("docs",))])
    assert lines == [
        "CI took 10.0 minutes; 40 is the limit, 9.0 are given away.",
        "  3.3 minutes  tests/scripts/test_setup.py",
        "  1.7 minutes  tests/scripts/test_minutes.py",
        "  1.0 minutes  docs",
        "  1.0 of  1.0  pages",
        "  5.0 of  5.0  scripts",
        "  4.0 of  3.0 EXCEEDED  set-up and checks",
    ]
