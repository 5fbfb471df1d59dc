"""Queries of Nexmark, written in PySpark after the SQL of github.com/nexmark/nexmark (queries/q3.sql and others)."""
# Laid out like the SQL that they follow, with its names.
# fmt: off

from collections import defaultdict

import pandas as pd
from pyspark.sql.functions import (
    avg,
    col,
    count,
    date_format,
    expr,
    max,
    max_by,
    min,
    min_by,
    struct,
    sum,
    window,
)
from pyspark.sql.streaming import StatefulProcessor

from tests.ported.nexmark import AUCTION, BID, LAG, PERSON, Nexmark, arriving
from tests.ported.stateful_port import Input, StatefulPort, Table

FOLLOWS = "after Nexmark's {}.sql"


# q3, local item suggestion: who is selling in OR, ID or CA in category 10, and for what auction ids?
def local_item_suggestion(auction, person):
    return (
        auction.alias("A").join(person.alias("P"), expr("A.seller = P.id"), "inner")
        .where("A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')")
        .select("P.name", "P.city", "P.state", "A.id")
    )


# q4, average price for a category: of the winning bids
def average_price_for_a_category(auction, bid):
    Q = (
        auction.alias("A")
        .join(bid.alias("B"), expr("A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"))
        .groupBy("A.id", "A.category")
        .agg(max("B.price").alias("final"))
    )
    return Q.groupBy("category").agg(avg("final"))


# q6, average selling price by seller: of the last auctions of each
class LastAuctions(StatefulProcessor):
    def init(self, handle):
        self.winning = handle.getMapState("winning", "id long", "price long, dateTime timestamp")

    def handleInputRows(self, key, rows, timerValues):
        for bids in rows:
            for bid in bids.itertuples():
                highest = self.winning.getValue((bid.id,))
                if highest is None or bid.price > highest[0]:
                    self.winning.updateValue((bid.id,), (bid.price, bid.dateTime))
        last = sorted(self.winning.values(), key=lambda value: value[1])[-11:]
        yield pd.DataFrame({"seller": [key[0]], "avg_price": [pd.Series([price for price, _ in last]).mean()]})

    def close(self):
        pass


def average_selling_price_by_seller(auction, bid):
    return (
        auction.alias("A")
        .join(bid.alias("B"), expr("A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"))
        .select("A.id", "A.seller", "B.price", "B.dateTime")
        .groupBy("seller")
        .transformWithStateInPandas(
            statefulProcessor=LastAuctions(),
            outputStructType="seller long, avg_price double",
            outputMode="Update",
            timeMode="None",
        )
    )


# q8, monitor new users: who has entered the system and created auctions in the last period?
def monitor_new_users(person, auction):
    P = person.groupBy("id", "name", window("dateTime", "10 seconds").alias("period")).count()
    A = auction.groupBy("seller", window("dateTime", "10 seconds").alias("period")).count()
    return (
        P.alias("P").join(A.alias("A"), expr("P.id = A.seller AND P.period = A.period"))
        .select("P.id", "P.name", col("P.period.start").alias("starttime"))
    )


# q9, winning bids: of each auction. ROW_NUMBER() = 1 is the least by its ORDER BY
def winning_bids(auction, bid):
    bids = (
        auction.alias("A")
        .join(bid.alias("B"), expr("A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"))
        .select(
            "A.id", "A.itemName", "A.description", "A.initialBid", "A.reserve", "A.dateTime", "A.expires", "A.seller",
            "A.category", "A.extra", "B.auction", "B.bidder", "B.price", col("B.dateTime").alias("bid_dateTime"),
            col("B.extra").alias("bid_extra"),
        )
    )
    row = struct(*bids.columns)
    return bids.groupBy("id").agg(min_by(row, struct(-col("price"), "bid_dateTime")).alias("row")).select("row.*")


# q13, bounded side input join
def side_input_join(bid, side_input):
    return (
        bid.alias("B").join(side_input.alias("S"), expr("mod(B.auction, 10) = S.key"))
        .select("B.auction", "B.bidder", "B.price", "B.dateTime", "S.value")
    )


# q17, auction statistics report: how many bids on an auction made a day and what is the price?
def auction_statistics_report(bid):
    return bid.groupBy("auction", date_format("dateTime", "yyyy-MM-dd").alias("day")).agg(
        count("*").alias("total_bids"),
        expr("count(*) FILTER (WHERE price < 10000)").alias("rank1_bids"),
        expr("count(*) FILTER (WHERE price >= 10000 AND price < 1000000)").alias("rank2_bids"),
        expr("count(*) FILTER (WHERE price >= 1000000)").alias("rank3_bids"),
        min("price").alias("min_price"),
        max("price").alias("max_price"),
        avg("price").alias("avg_price"),
        sum("price").alias("sum_price"),
    )


# q18, find last bid: of a bidder for an auction
def last_bid(bid):
    row = struct("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    return bid.groupBy("bidder", "auction").agg(max_by(row, "dateTime").alias("row")).select("row.*")


# q20, expand bid with auction: where the category is 10
def bids_with_auctions(bid, auction):
    return (
        bid.alias("B").join(auction.alias("A"), expr("B.auction = A.id"), "inner")
        .where("A.category = 10")
        .select(
            "auction", "bidder", "price", "channel", "url", col("B.dateTime").alias("bid_dateTime"),
            col("B.extra").alias("bid_extra"), "itemName", "description", "initialBid", "reserve",
            col("A.dateTime").alias("auction_dateTime"), "expires", "seller", "category",
            col("A.extra").alias("auction_extra"),
        )
    )


def highest(bids):
    return sorted(bids, key=lambda bid: bid["price"]).pop()


def last_averages(auctions, bids):
    """What q6 says of each seller in the end."""
    winning = {}
    for auction in auctions:
        own = [
            bid for bid in bids
            if bid["auction"] == auction["id"] and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]
        ]
        if own:
            winning[auction["id"]] = highest(own)
    sold = defaultdict(list)
    for auction in auctions:
        if auction["id"] in winning:
            sold[auction["seller"]].append(winning[auction["id"]])
    averages = []
    for seller, of_seller in sold.items():
        prices = [bid["price"] for bid in sorted(of_seller, key=lambda bid: bid["dateTime"])[-11:]]
        averages.append((seller, float(pd.Series(prices).mean())))
    return averages


EVENTS = Nexmark()
TIMES = {"person": 6, "auction": 5, "bid": 5}
SCHEMAS = {"person": PERSON, "auction": AUCTION, "bid": BID}
ROWS = {"person": EVENTS.persons, "auction": EVENTS.auctions, "bid": EVENTS.bids}


def of(*names, watermark=True):
    """These tables as they arrive: with a watermark, one partition lags."""
    return tuple(
        Input(
            SCHEMAS[name],
            arriving(ROWS[name], TIMES[name], lagging=watermark),
            watermark=("dateTime", f"{LAG} seconds") if watermark else None,
            by="partition" if watermark else "",
            on_time=arriving(ROWS[name], TIMES[name]),
        )
        for name in names
    )


SIDE_INPUT = Table("key long, value string", [(key, f"value {key}") for key in range(10)])

PORTS = {
    "q3": StatefulPort(FOLLOWS.format("q3"), local_item_suggestion, of("auction", "person"), spark="same"),
    "q4": StatefulPort(
        FOLLOWS.format("q4"), average_price_for_a_category, of("auction", "bid"), mode="complete",
    ),
    "q6": StatefulPort(
        FOLLOWS.format("q6"), average_selling_price_by_seller, of("auction", "bid"), mode="update", keys=("seller",),
        expected=last_averages,
    ),
    "q8": StatefulPort(FOLLOWS.format("q8"), monitor_new_users, of("person", "auction"), closing=True, spark="closed"),
    "q9": StatefulPort(
        FOLLOWS.format("q9"), winning_bids, of("auction", "bid"), mode="update", keys=("id",)
    ),
    "q13": StatefulPort(FOLLOWS.format("q13"), side_input_join, of("bid", watermark=False), tables=(SIDE_INPUT,)),
    "q17": StatefulPort(
        FOLLOWS.format("q17"), auction_statistics_report, of("bid", watermark=False), mode="update",
        keys=("auction", "day"),
    ),
    "q18": StatefulPort(
        FOLLOWS.format("q18"), last_bid, of("bid", watermark=False), mode="update", keys=("bidder", "auction")
    ),
    "q20": StatefulPort(FOLLOWS.format("q20"), bids_with_auctions, of("bid", "auction")),
}
