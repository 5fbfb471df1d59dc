"""Deliveries to a server: the rows as an independent reader sees them, and nothing left open."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from tests.crash.invariants import difference
from tests.crash.outputs import table_of
from tests.crash.readers import listed, newest_record, result_rows
from tests.crash.replay import RESULTS
from tests.crash.stages import StagesRules
from tests.protocol.kafka.checks import committed, held_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.jobs import Place
    from tests.crash.replay import Row, Rules
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

    Compare = Callable[[PostgresServer, Place, Counter[Row]], None]


def compare_table(server: PostgresServer, place: Place, rows: Counter[Row]) -> None:
    """Assert that a query's table has these rows, as psql reads them."""
    dsn = (place.root / "dsn").read_text()
    columns = 'extract(epoch FROM start)::bigint * 1000000, extract(epoch FROM "end")::bigint * 1000000'
    table = server.psql(dsn, f'SELECT {columns}, key, rows, total, mean::text FROM "{place.root.name}"')
    expected = Counter(
        (str(start), str(end), key or "", str(count), str(total), repr(mean).removesuffix(".0"))
        for start, end, key, count, total, mean in rows.elements()
    )
    found = Counter(tuple(row) for row in table)
    assert found == expected, difference("the table", found, expected)


def compare_plain_table(server: PostgresServer, place: Place, rows: Counter[Row], output: str = RESULTS) -> None:
    """The same of an output with plain columns."""
    table = server.psql((place.root / "dsn").read_text(), f'SELECT * FROM "{table_of(place, output)}"')
    expected = Counter(tuple("" if value is None else str(value) for value in row) for row in rows.elements())
    found = Counter(tuple(row) for row in table)
    assert found == expected, difference("the table", found, expected)


def check_tables(server: PostgresServer, place: Place, rules: Rules) -> None:
    """Assert that the tables of a query have the rows of its files, and that no transaction is prepared."""
    outputs = rules.outputs if isinstance(rules, StagesRules) else [RESULTS]
    for output in outputs:
        rows = result_rows(listed(place.root / output), rules, output)
        if isinstance(rules, StagesRules):
            rows = rules.in_table(output, rows)
        compare = compare_table if rules.windowed else partial(compare_plain_table, output=output)
        check_table(server, place, rows, compare)


def check_table(server: PostgresServer, place: Place, rows: Counter[Row], compare: Compare = compare_table) -> None:
    """Assert that a query's table has these rows and that no transaction is prepared."""
    compare(server, place, rows)
    dsn = (place.root / "dsn").read_text()
    left = server.psql(dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
    assert left == [], f"prepared transactions are left: {left}"


def compare_topic(server: KafkaServer, place: Place, rows: Counter[Row]) -> None:
    """Assert that a query's topic has these rows for a read_committed reader."""
    topic = json.loads((place.root / "kafka.json").read_text())["topic"]
    found = Counter(tuple(json.loads(message.value()).values()) for message in committed(server, topic))
    assert found == rows, difference("the topic", found, rows)


def check_topic(server: KafkaServer, place: Place, rows: Counter[Row]) -> None:
    """Assert that a query's topic has these rows for a read_committed reader, and that no transaction is open."""
    compare_topic(server, place, rows)
    topic = json.loads((place.root / "kafka.json").read_text())["topic"]
    with Cluster(Access.of(server.client())) as cluster:
        left = cluster.open_transactions(f"sparkjet/{newest_record(place).query}/")
    assert left == [], f"transactions are left open: {left}"
    assert held_back(server, topic) == 0, "readers of the topic are held back"
