"""Boat trips on a lake and their receipts: filters, two streams that wait for each other, windows, timers, timeouts."""

from datetime import datetime, timedelta

import pandas as pd
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

from tests.ported.stateful_port import Input, StatefulPort

ALLOWED = timedelta(minutes=90)


def inside(lake, x, y):
    """Whether a place is within a box."""
    west, east, south, north = lake
    return x.between(west, east) & y.between(south, north)


def trips_on_the_lake(trips):
    """A filter made of functions of columns."""
    lake = (2.0, 9.0, 1.0, 6.0)
    return trips.filter(inside(lake, trips.fromX, trips.fromY) & inside(lake, trips.toX, trips.toY))


def departures(trips):
    return trips.where("leaves").select("trip", "people", "leftAt")


def trips_with_receipts(trips, receipts):
    """Two streams, joined by a key alone."""
    return departures(trips).join(receipts.select("trip", "skipper", "tip"), "trip")


class Pairing(StatefulProcessor):
    """Whichever of a departure and its receipt comes first waits in its own variable."""

    def init(self, handle):
        self.departure = handle.getValueState("departure", "people int, leftAt timestamp")
        self.receipt = handle.getValueState("receipt", "skipper long, tip double")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            if row.people is None:
                own, other, values = self.receipt, self.departure, (row.skipper, row.tip)
            else:
                own, other, values = self.departure, self.receipt, (row.people, row.leftAt)
            if not other.exists():
                own.update(values)
                continue
            waiting = tuple(other.get())
            other.clear()
            people, left, skipper, tip = (waiting + values) if row.people is None else (values + waiting)
            yield Row(trip=key[0], people=people, leftAt=left, skipper=skipper, tip=tip)


def trips_with_receipts_by_state(trips, receipts):
    """A union of two streams into one function with state."""
    either = departures(trips).unionByName(receipts.select("trip", "skipper", "tip"), allowMissingColumns=True)
    return either.groupBy("trip").transformWithState(
        statefulProcessor=Pairing(),
        outputStructType="trip long, people int, leftAt timestamp, skipper long, tip double",
        outputMode="Append",
        timeMode="None",
    )


def best_tipped(receipts):
    """A window of the results of windows: the skipper with the highest tips of each half hour."""
    tips = receipts.groupBy("skipper", F.window("leftAt", "30 minutes")).agg(F.sum("tip").alias("tips"))
    best = F.max_by(F.struct("skipper", "tips"), "tips").alias("best")
    halves = tips.groupBy(F.window("window", "30 minutes").alias("half")).agg(best)
    return halves.select("best.skipper", "best.tips", "half.end")


class Overdue(StatefulProcessor):
    """Tells of a trip as soon as it has taken too long, by a timer; a return may come before its departure."""

    def init(self, handle):
        self.handle = handle
        self.seen = handle.getValueState("seen", "leaves boolean, at timestamp")

    def handleInputRows(self, key, rows, timerValues):
        late = [self.took_too_long(event) for frame in rows for event in frame.itertuples()]
        if any(late):
            yield pd.DataFrame({"trip": [key[0]]})

    def took_too_long(self, event):
        """Whether it is known now that the trip took too long."""
        if not self.seen.exists():
            self.seen.update((event.leaves, event.at))
            if event.leaves:
                self.handle.registerTimer(deadline(event.at))
            return False
        _, first = self.seen.get()
        self.seen.clear()
        if event.leaves:
            return first - event.at > ALLOWED
        self.handle.deleteTimer(deadline(first))
        return event.at - first > ALLOWED

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        self.seen.clear()
        yield pd.DataFrame({"trip": [key[0]]})

    def close(self):
        pass


def deadline(left):
    """When a trip has taken too long, in milliseconds."""
    return int((pd.Timestamp(left) + ALLOWED).timestamp() * 1000)


def overdue(trips):
    """A processor with timers in event time."""
    return trips.groupBy("trip").transformWithStateInPandas(
        statefulProcessor=Overdue(), outputStructType="trip long", outputMode="Append", timeMode="EventTime"
    )


def overdue_by_timeout(trips):
    """The same with a timeout in event time."""

    def watch(key, frames, state):
        late = state.hasTimedOut
        events = [event for frame in frames for event in frame.itertuples()] if not late else []
        for event in events:
            if state.exists:
                at, seen = event.at, pd.Timestamp(state.get[1])
                late = late or (seen - at if event.leaves else at - seen) > ALLOWED
                state.remove()
            else:
                state.update((event.leaves, event.at.to_pydatetime()))
        if state.hasTimedOut:
            state.remove()
        elif state.exists and state.get[0]:
            state.setTimeoutTimestamp(deadline(state.get[1]))
        if late:
            yield pd.DataFrame({"trip": [key[0]]})

    return trips.groupBy("trip").applyInPandasWithState(
        watch, "trip long", "leaves boolean, at timestamp", "append", GroupStateTimeout.EventTimeTimeout
    )


TRIP = (
    "trip long, leaves boolean, at timestamp, leftAt timestamp, fromX double, fromY double, toX double, toY double, "
    "people int, boat long"
)
RECEIPT = "trip long, skipper long, leftAt timestamp, paid string, tip double, total double"


def at(minute):
    return (datetime(2026, 6, 1, 10) + timedelta(minutes=minute)).isoformat(sep=" ")


def trip(number, left, returned=None):
    """A departure, or a return; 5 and 10 go down the river."""
    places = (3.0, 2.5, 11.0 if number % 5 == 0 else 8.5, 4.0)
    when = at(left if returned is None else returned)
    return (number, returned is None, when, at(left), *places, 1 + number % 3, number)


def receipt(number, left):
    return (number, number % 4, at(left), "card", 0.25 * (3 + number * number), 18.0)


TRIPS = Input(
    TRIP,
    [
        [trip(1, 0), trip(2, 3), trip(3, 1), trip(1, 0, 30)],
        # 4 returns before it leaves, 5 takes too long, and nobody has seen 6 leave.
        [trip(4, 40, 60), trip(4, 40), trip(5, 45), trip(6, 20, 61), trip(2, 3, 62)],
        [trip(7, 120), trip(8, 125), trip(5, 45, 170)],
        # 3 has been overdue for a while.
        [trip(7, 120, 200), trip(3, 1, 201), trip(9, 202)],
        # 8 and 9 never return.
        [trip(10, 400)],
    ],
    watermark=("at", "60 seconds"),
)
RECEIPTS = Input(
    RECEIPT,
    [
        [receipt(2, 3), receipt(1, 0)],
        [receipt(7, 120), receipt(5, 45), receipt(6, 20)],
        [receipt(4, 40), receipt(3, 1)],
        [],
        [receipt(9, 202), receipt(10, 400)],
    ],
)
# Without a lag that matters: it is about what comes first.
WAITED_FOR_TRIPS, WAITED_FOR_RECEIPTS = (
    Input(each.schema, each.batches, watermark=("leftAt", "1 day")) for each in (TRIPS, RECEIPTS)
)
STARTS = [(1, 0), (3, 1), (2, 3), (11, 5), (4, 40), (5, 45), (12, 50), (13, 55), (7, 120), (8, 125), (14, 130)]
IN_ORDER = [receipt(*each) for each in [*STARTS, (15, 131), (16, 150), (9, 202), (10, 400)]]
ORDERED = Input(
    RECEIPT, [IN_ORDER[place : place + 4] for place in range(0, len(IN_ORDER), 4)], watermark=("leftAt", "0 seconds")
)


def overdue_by_hand(trips):
    """Trips that end after more than is allowed, or never, as far as events are there."""
    events = {}
    for row in trips:
        events.setdefault(row["trip"], {})[row["leaves"]] = datetime.fromisoformat(row["at"])
    last = max(time for each in events.values() for time in each.values()) - timedelta(seconds=60)
    return [
        (number,) for number, each in events.items() if True in each and each.get(False, last) - each[True] > ALLOWED
    ]


def pairs_by_hand(trips, receipts):
    """Each departure with its receipt."""
    of_trips = {row["trip"]: (row["skipper"], row["tip"]) for row in receipts}
    return [
        (row["trip"], row["people"], datetime.fromisoformat(row["leftAt"]), *of_trips[row["trip"]])
        for row in trips
        if row["leaves"] and row["trip"] in of_trips
    ]


def without_watermark(source):
    return Input(source.schema, source.batches)


PORTS = {
    "on-the-lake": StatefulPort(trips_on_the_lake, (without_watermark(TRIPS),)),
    "receipts": StatefulPort(trips_with_receipts, (WAITED_FOR_TRIPS, WAITED_FOR_RECEIPTS)),
    "receipts-by-state": StatefulPort(
        trips_with_receipts_by_state,
        (without_watermark(TRIPS), without_watermark(RECEIPTS)),
        expected=pairs_by_hand,
    ),
    "best-tipped": StatefulPort(best_tipped, (ORDERED,), closing=True, spark="closed"),
    "overdue": StatefulPort(overdue, (TRIPS,), expected=overdue_by_hand, spark="same"),
    "overdue-by-timeout": StatefulPort(overdue_by_timeout, (TRIPS,), expected=overdue_by_hand, spark="same"),
}
