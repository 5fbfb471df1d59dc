"""Queries of a freight exchange over its companies, loads and offers: joins, reports, and who wins."""

from collections import defaultdict

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from tests.ported.freight import COMPANY, LAG, LOAD, OFFER, Exchange, arriving
from tests.ported.stateful_port import Input, StatefulPort, Table

IN_TIME = "loads.id = offers.load AND offers.made BETWEEN loads.posted AND loads.closes"


def valid_offers(loads, offers):
    """Each load with the offers that were made while it was open."""
    return loads.alias("loads").join(offers.alias("offers"), F.expr(IN_TIME))


def alpine_cold_loads(loads, companies):
    """An inner join without a bound: both sides are kept forever."""
    together = loads.alias("loads").join(companies.alias("companies"), F.expr("loads.company = companies.id"), "inner")
    alpine = F.col("companies.country").isin("CH", "AT", "IT")
    found = together.where((F.col("loads.kind") == 1) & alpine)
    return found.select("companies.name", "companies.town", "companies.country", "loads.id")


def average_of_the_lowest(loads, offers):
    """An aggregate of an aggregate behind a join: the lowest offers still change."""
    lowest = valid_offers(loads, offers).groupBy("loads.id", "loads.kind").agg(F.min("offers.cents").alias("lowest"))
    return lowest.groupBy("kind").agg(F.avg("lowest"))


class RecentPrices(StatefulProcessor):
    """A map of the lowest offers of a company's loads, and the average of its newest."""

    def init(self, handle):
        self.lowest = handle.getMapState("lowest", "id long", "cents long, made timestamp")

    def handleInputRows(self, key, rows, timerValues):
        for frame in rows:
            for offer in frame.itertuples():
                known = self.lowest.getValue((offer.id,))
                if known is None or offer.cents < known[0]:
                    self.lowest.updateValue((offer.id,), (offer.cents, offer.made))
        newest = sorted(self.lowest.values(), key=lambda value: value[1])[-NEWEST:]
        yield pd.DataFrame({"company": [key[0]], "cents": [pd.Series([cents for cents, _ in newest]).mean()]})

    def close(self):
        pass


NEWEST = 3


def recent_prices(loads, offers):
    """A function with state behind a join."""
    rows = valid_offers(loads, offers).select("loads.id", "loads.company", "offers.cents", "offers.made")
    return rows.groupBy("company").transformWithStateInPandas(
        statefulProcessor=RecentPrices(),
        outputStructType="company long, cents double",
        outputMode="Update",
        timeMode="None",
    )


def new_and_busy(companies, loads):
    """Two results of windows, joined by window and key: who has joined and posted loads within the same ten seconds."""
    joined = companies.groupBy("id", "name", F.window("joined", "10 seconds").alias("slot")).count()
    posted = loads.groupBy("company", F.window("posted", "10 seconds").alias("slot")).count()
    same = F.expr("joined.id = posted.company AND joined.slot = posted.slot")
    both = joined.alias("joined").join(posted.alias("posted"), same)
    return both.select("joined.id", "joined.name", F.col("joined.slot.start").alias("since"))


def winners(loads, offers):
    """The whole row of each load's best offer: the cheapest, and of those the first."""
    named = valid_offers(loads, offers).select(
        *(f"loads.{name}" for name in ("id", "company", "kind", "goods", "tons", "posted", "closes", "note")),
        *(f"offers.{name}" for name in ("carrier", "cents", "truck", "made")),
    )
    best = F.min_by(F.struct(*named.columns), F.struct("cents", "made"))
    return named.groupBy("id").agg(best.alias("best")).select("best.*")


def with_gates(offers, gates):
    """A join with a table by an expression."""
    together = offers.alias("offers").join(gates.alias("gates"), F.expr("offers.load % 7 = gates.number"))
    return together.select("offers.load", "offers.carrier", "offers.cents", "offers.made", "gates.name")


def report_of_loads(offers):
    """Counts under conditions beside the usual aggregates, by key and hour."""
    return offers.groupBy("load", F.date_format("made", "yyyy-MM-dd HH").alias("hour")).agg(
        F.count("*").alias("offers"),
        F.expr("count(*) FILTER (WHERE cents < 250000)").alias("low"),
        F.expr("count(*) FILTER (WHERE cents BETWEEN 250000 AND 1500000)").alias("middle"),
        F.expr("count(*) FILTER (WHERE cents > 1500000)").alias("high"),
        F.min("cents").alias("least"),
        F.max("cents").alias("most"),
        F.avg("cents").alias("average"),
        F.sum("cents").alias("total"),
    )


def last_offers(offers):
    """The newest row of each carrier and load."""
    row = F.struct("load", "carrier", "cents", "truck", "made")
    return offers.groupBy("carrier", "load").agg(F.max_by(row, "made").alias("newest")).select("newest.*")


def offers_with_loads(offers, loads):
    """Each offer with all that is known of its load, for one kind."""
    together = offers.alias("offers").join(loads.alias("loads"), F.expr("offers.load = loads.id"), "inner")
    columns = ("goods", "tons", "posted", "closes", "company", "kind", "note")
    return together.where("loads.kind = 2").select(
        "carrier", "cents", "truck", F.col("offers.made").alias("offered"), *(f"loads.{name}" for name in columns)
    )


def averages_by_hand(loads, offers):
    """The final answer of :class:`RecentPrices` for each company."""
    lowest = {}
    for load in loads:
        valid = [
            each for each in offers if each["load"] == load["id"] and load["posted"] <= each["made"] <= load["closes"]
        ]
        if valid:
            lowest[load["id"]] = min(valid, key=lambda offer: offer["cents"])
    of_company = defaultdict(list)
    for load in loads:
        if load["id"] in lowest:
            of_company[load["company"]].append(lowest[load["id"]])
    averages = []
    for company, found in of_company.items():
        prices = [offer["cents"] for offer in sorted(found, key=lambda offer: offer["made"])[-NEWEST:]]
        averages.append((company, float(pd.Series(prices).mean())))
    return averages


EXCHANGE = Exchange()
TABLES = {
    "companies": (COMPANY, EXCHANGE.companies, "joined", 4),
    "loads": (LOAD, EXCHANGE.loads, "posted", 5),
    "offers": (OFFER, EXCHANGE.offers, "made", 4),
}


def of(*names, watermark=True):
    """These streams as they arrive: with a watermark, one feed lags."""
    return tuple(
        Input(
            schema,
            arriving(rows, place, lagging=watermark),
            watermark=(time, f"{LAG} seconds") if watermark else None,
            by="feed" if watermark else "",
            on_time=arriving(rows, place),
        )
        for schema, rows, time, place in (TABLES[name] for name in names)
    )


GATES = Table("number long, name string", [(number, f"gate {number}") for number in range(7)])

PORTS = {
    "alpine-cold-loads": StatefulPort(alpine_cold_loads, of("loads", "companies"), spark="same"),
    "average-of-the-lowest": StatefulPort(average_of_the_lowest, of("loads", "offers"), mode="complete"),
    "recent-prices": StatefulPort(
        recent_prices, of("loads", "offers"), mode="update", keys=("company",), expected=averages_by_hand
    ),
    "new-and-busy": StatefulPort(new_and_busy, of("companies", "loads"), closing=True, spark="closed"),
    "winners": StatefulPort(winners, of("loads", "offers"), mode="update", keys=("id",)),
    "with-gates": StatefulPort(with_gates, of("offers", watermark=False), tables=(GATES,)),
    "report-of-loads": StatefulPort(
        report_of_loads, of("offers", watermark=False), mode="update", keys=("load", "hour")
    ),
    "last-offers": StatefulPort(last_offers, of("offers", watermark=False), mode="update", keys=("carrier", "load")),
    "offers-with-loads": StatefulPort(offers_with_loads, of("offers", "loads")),
}
