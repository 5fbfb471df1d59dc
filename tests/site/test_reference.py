"""The reference of the site: nothing public lacks its entry, and each place that is to be filled is."""

from __future__ import annotations

import importlib
import re
from collections import Counter

import pytest

import sparkjet as sj
from scripts.reference import (
    DOCS,
    GENERATED,
    MARKER,
    MODULES,
    NAMES,
    alerts,
    commands,
    conditions,
    filled,
    format_options,
    value_doc,
)
from sparkjet.connectors import formats
from sparkjet.monitoring.metrics import HISTOGRAM, METRICS
from sparkjet.options import OUTPUT_OPTIONS, QUERY_OPTIONS

PAGES = {str(page.relative_to(DOCS)): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return {name: filled(text) for name, text in PAGES.items() if MARKER.search(text)}


def test_every_public_name_has_an_entry(reference: dict[str, str]) -> None:
    sections = Counter(name for names in NAMES.values() for name in names)
    assert sections == Counter(sj.__all__)
    entries = set(
        re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: (\S+)$", "\n".join(reference.values()), re.MULTILINE)
    )
    assert {f"sparkjet.{name}" for name in sj.__all__} <= entries
    listed = {f"{name}.{each}" for name in MODULES for each in importlib.import_module(name).__all__}
    assert {each for each in listed - entries if each.rpartition(".")[2] not in sj.__all__} == set()


def test_what_has_no_docstring_has_no_entry() -> None:
    assert value_doc("sparkjet.time.MIN") == "Smallest time; as a watermark: there is none yet."
    assert value_doc("sparkjet.time.coalescing.Final") == ""


@pytest.mark.parametrize("format", sorted({*formats.SINKS, *formats.SOURCES}))
def test_every_option_has_an_entry_below_its_format(format: str, reference: dict[str, str]) -> None:
    options = format_options().get(format, ())
    _, _, below = reference["reference/options.md"].partition(f'### format("{format}")\n')
    named = re.findall(r"^\| `([^`]+)` \| [^|\s]", below.partition("\n##")[0], re.MULTILINE)
    assert named == [each.name for each in options]


@pytest.mark.parametrize("page", ["../README.md", "guarantees.md", "guide/sinks.md"])
def test_every_sink_stands_in_the_tables_of_sinks(page: str) -> None:
    cells = " ".join(re.findall(r"^\| ([^|]+) \|", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE))
    named = {name.strip("`") for name in re.findall(r"`[^`]+`", cells)} | set(re.findall(r'format\("([^"]+)"\)', cells))
    calls = {re.sub(r"\(.*", "", name) for name in named}
    missing = [name for name, each in formats.SINKS.items() if not {name, each.method or name} & (named | calls)]
    assert missing == []


@pytest.mark.parametrize(
    "page",
    [f"guide/{name}.md" for name in ("where-rows-fail", "state", "home", "restarting", "cluster")]
    + ["design/006-outbox.md"],
)
def test_pages_on_which_sinks_differ_name_every_sink(page: str) -> None:
    """In the text or in a table, as code: what a page says of a sink can be found by the name of its format."""
    text = (DOCS / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w-]+)`", text)) | set(re.findall(r'format\("([^"]+)"\)', text))
    missing = [name for name, each in formats.SINKS.items() if not {name, each.method or name} & named]
    assert missing == []


def test_every_option_of_queries_and_outputs_has_an_entry(reference: dict[str, str]) -> None:
    named = set(
        re.findall(r"^\| `([^`]+)` \| [^|\s]", reference["reference/options.md"].partition("### ")[0], re.MULTILINE)
    )
    assert named == {each.name for each in (*QUERY_OPTIONS, *OUTPUT_OPTIONS)}


def test_every_metric_has_an_entry(reference: dict[str, str]) -> None:
    named = re.findall(r"^\| `(\w+)(?:\{\w+\})*` \| \S", reference["reference/metrics.md"], re.MULTILINE)
    assert named == [*(metric.name for metric in METRICS), HISTOGRAM]


@pytest.mark.parametrize("page", ["reference/errors.md", "operations/runbook.md"])
def test_every_condition_has_an_entry_and_a_way_out(page: str, reference: dict[str, str]) -> None:
    text = reference.get(page) or PAGES[page]
    named = re.findall(r"^\| `(SPARKJET_[\w.]+)` \| `[\w.]+` \| [^|\s][^|]+", text, re.MULTILINE)
    assert sorted(named) == sorted(conditions())


def test_every_command_has_an_entry(reference: dict[str, str]) -> None:
    text = reference["reference/command-line.md"]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(commands())
    for words, command in commands().items():
        _, _, below = text.partition(f"## {words}\n")
        below = below.partition("\n## ")[0]
        options = [option for each in command.params if each.name != "help" for option in each.opts if "-" in option]
        assert [each for each in options if each not in below] == [], words


def test_every_alert_has_an_entry(reference: dict[str, str]) -> None:
    assert len(alerts()) == 11
    for name, rule in alerts().items():
        assert f"## {name}\n\n```text\n{rule['expr']}\n```" in reference["operations/alerts.md"]


def test_every_place_is_filled_and_everything_has_its_place(reference: dict[str, str]) -> None:
    places = Counter(name for text in PAGES.values() for name in MARKER.findall(text))
    assert places == Counter(GENERATED.keys())
    assert not any(MARKER.search(text) for text in reference.values())
