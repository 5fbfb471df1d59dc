"""Crashed queries that write the same rows into a table and into files, by which the table is judged."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from sparkjet import EpochPhase
from tests.crash.farm import FAULTS, SERVER, Crash, Suite
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, difference
from tests.crash.outputs import KEYS
from tests.crash.readers import arrow_rows, listed, published, result_rows
from tests.crash.replay import RESULTS, Row, Rules
from tests.servers.fixtures import available
from tests.servers.programs import NoProgramError

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.crash.drivers import Query
    from tests.crash.jobs import Place

FILES = 4


def every_crash(jobs: Sequence[str]) -> list[Crash]:
    """Each phase of each job, and all faults but those of servers."""
    faults = [fault for fault in FAULTS if fault != SERVER]
    return [Crash(step, fault, job) for step, fault, job in product(EpochPhase, faults, jobs)]


def newest(place: Place, rules: Rules) -> Counter[Row]:
    """The last row of each key: of its last epoch, the one with the greatest other columns."""
    names = rules.outputs[RESULTS]
    keys = [names.index(key) for key in KEYS]
    others = [number for number in range(len(names)) if number not in keys]
    left: dict[Row, Row] = {}
    for _, files in sorted(published(place.out).items()):
        for row in sorted(result_rows(files, rules), key=lambda row: [row[each] for each in others]):
            left[tuple(row[each] for each in keys)] = row
    return Counter(left.values())


class Tables(Suite):
    """Each query has its own table."""

    name: ClassVar[str]
    """Of its directory in a query's place."""
    seed: ClassVar[int]
    jars: ClassVar[Callable[[], list[Path]]]
    """Loads what the drivers need."""
    marks: ClassVar[str]
    """Directory in the table of what says which files are prepared."""

    @abstractmethod
    def read(self, table: Path) -> pa.Table:
        """The rows of a table."""

    def prepare(self) -> None:
        """See :meth:`Suite.prepare`."""
        jars = [str(jar) for jar in available(type(self).jars, NoProgramError)]
        for each in self.crashes:
            place = each.query(self.root).place
            place.root.mkdir()
            (place.root / "jars.json").write_text(json.dumps(jars))
        write_skewed(self.root / "feed", self.seed, 0, FILES)

    def judge(self, name: str, query: Query) -> None:
        """See :meth:`Suite.judge`."""
        place, rules = query.place, query.rules.rules
        check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
        rows = newest(place, rules) if query.job.startswith("upserts") else result_rows(listed(place.out), rules)
        found = arrow_rows(self.read(place.root / self.name), rules)
        assert found == rows, difference("the table", found, rows)
        left = [*(place.root / self.name / self.marks).glob("*/*/prepared/*")]
        assert left == [], f"prepared files are left: {left}"
