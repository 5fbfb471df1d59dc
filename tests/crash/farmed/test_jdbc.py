"""Queries into MariaDB and files at once through Spark: drivers and the server killed at the phases of an epoch."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.farm import FAULTS, SERVER, Crash, Farm, Suite
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, difference
from tests.crash.readers import listed, result_rows
from tests.servers.jdbc import drivers

if TYPE_CHECKING:
    from tests.crash.drivers import Query
    from tests.servers.jdbc import MariaServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 2038
FILES = 4
JOBS = ("jdbc", "rows-jdbc")
SERVERS = ("mariadb",)


def some_crashes() -> list[Crash]:
    """At the decision, and between the transaction and the end of its table.

    Without Spark, `connectors/jdbc/test_faults.py` has drivers that publish one epoch at once, and lost answers.
    """
    return [
        Crash(EpochPhase.DECIDE, SERVER, "rows-jdbc"),
        Crash(EpochPhase.COMMITTING, "both", "rows-jdbc"),
    ]


def every_crash() -> list[Crash]:
    return [Crash(step, fault, job) for step, fault, job in product(EpochPhase, FAULTS, JOBS)]


class MariaTables(Suite):
    """Each query has its own database."""

    def __init__(self, root: Path, server: MariaServer, crashes: list[Crash]) -> None:
        super().__init__(root, crashes)
        self._server = server
        self._names: dict[str, str] = {}

    def prepare(self) -> None:
        jars = [str(jar) for jar in drivers()]
        for each in self.crashes:
            place = each.query(self.root).place
            place.root.mkdir()
            name = self._names[each.name] = f"q{uuid.uuid4().hex[:12]}"
            self._server.sql(f"CREATE DATABASE {name}")
            options = {**self._server.options(name), "dbtable": "results"}
            (place.root / "jdbc.json").write_text(json.dumps({"jars": jars, "options": options}))
        write_skewed(self.root / "feed", SEED, 0, FILES)

    def restart(self) -> None:
        self._server.restart()

    def judge(self, name: str, query: Query) -> None:
        place, rules = query.place, query.rules.rules
        check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
        rows = result_rows(listed(place.out), rules)
        bodies = self._server.sql("SELECT body FROM results", self._names[name])
        found = Counter(tuple(json.loads(body).values()) for (body,) in bodies)
        assert found == rows, difference("the table", found, rows)
        left = self._server.sql("SHOW TABLES LIKE 'sparkjet\\_%'", self._names[name])
        assert left == [["sparkjet_epochs"]], f"tables are left: {left}"


def suite(root: Path, server: MariaServer) -> MariaTables:
    return MariaTables(root, server, some_crashes())


@pytest.mark.parametrize("name", [each.name for each in some_crashes()])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.long
def test_every_crash_loses_and_repeats_nothing(mariadb: MariaServer, tmp_path: Path) -> None:
    tables = MariaTables(tmp_path / "tables", mariadb, every_crash())
    Farm(tmp_path, [tables]).crash()
    assert tables.verdicts == dict.fromkeys(tables.verdicts, "")
