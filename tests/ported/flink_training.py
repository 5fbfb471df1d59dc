"""The exercises of Flink's training, written in PySpark after the Java of github.com/apache/flink-training."""
# With the names of the solutions that they follow.
# fmt: off

from datetime import datetime, timedelta

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.functions import max_by, struct, sum, window
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

from tests.ported.stateful_port import Input, StatefulPort

FOLLOWS = "after {} of Flink's training"


# RideCleansingSolution: rides that start and end in New York City
def ride_cleansing(rides):
    LON_EAST, LON_WEST, LAT_NORTH, LAT_SOUTH = -73.7, -74.05, 41.0, 40.5

    def isInNYC(lon, lat):
        return ~((lon > LON_EAST) | (lon < LON_WEST)) & ~((lat > LAT_NORTH) | (lat < LAT_SOUTH))

    return rides.filter(isInNYC(rides.startLon, rides.startLat) & isInNYC(rides.endLon, rides.endLat))


# RidesAndFaresSolution: rides enriched with fares, as a join
def rides_and_fares(rides, fares):
    return (
        rides.filter(rides.isStart).select("rideId", "passengerCnt", "startTime")
        .join(fares.select("rideId", "driverId", "tip"), "rideId")
    )


# RidesAndFaresSolution: the same as its EnrichmentFunction, which keeps whichever comes first
def rides_and_fares_with_state(rides, fares):
    class EnrichmentFunction(StatefulProcessor):
        def init(self, handle):
            self.rideState = handle.getValueState("saved ride", "passengerCnt int, startTime timestamp")
            self.fareState = handle.getValueState("saved fare", "driverId long, tip double")

        def handleInputRows(self, key, rows, timerValues):
            for row in rows:
                if row.passengerCnt is not None:
                    ride = (row.passengerCnt, row.startTime)
                    if self.fareState.exists():
                        fare = self.fareState.get()
                        self.fareState.clear()
                        yield self.rideAndFare(key, ride, fare)
                    else:
                        self.rideState.update(ride)
                else:
                    fare = (row.driverId, row.tip)
                    if self.rideState.exists():
                        ride = self.rideState.get()
                        self.rideState.clear()
                        yield self.rideAndFare(key, ride, fare)
                    else:
                        self.fareState.update(fare)

        def rideAndFare(self, key, ride, fare):
            return Row(rideId=key[0], passengerCnt=ride[0], startTime=ride[1], driverId=fare[0], tip=fare[1])

    return (
        rides.filter(rides.isStart).select("rideId", "passengerCnt", "startTime")
        .unionByName(fares.select("rideId", "driverId", "tip"), allowMissingColumns=True)
        .groupBy("rideId")
        .transformWithState(
            statefulProcessor=EnrichmentFunction(),
            outputStructType="rideId long, passengerCnt int, startTime timestamp, driverId long, tip double",
            outputMode="Append",
            timeMode="None",
        )
    )


# HourlyTipsSolution: the driver with the highest sum of tips for each hour
def hourly_tips(fares):
    hourlyTips = fares.groupBy("driverId", window("startTime", "1 hour")).agg(sum("tip").alias("sumOfTips"))
    hourlyMax = (
        hourlyTips.groupBy(window("window", "1 hour").alias("hour"))
        .agg(max_by(struct("driverId", "sumOfTips"), "sumOfTips").alias("highest"))
    )
    return hourlyMax.select("hour.end", "highest.driverId", "highest.sumOfTips")


# LongRidesSolution: rides of more than two hours, with timers in event time
def long_rides(rides):  # noqa: C901 - a class
    class AlertFunction(StatefulProcessor):
        def init(self, handle):
            self.handle = handle
            self.rideState = handle.getValueState("ride event", "isStart boolean, eventTime timestamp")

        def handleInputRows(self, key, rows, timerValues):
            for pdf in rows:
                for ride in pdf.itertuples():
                    if not self.rideState.exists():
                        self.rideState.update((ride.isStart, ride.eventTime))
                        if ride.isStart:
                            self.handle.registerTimer(self.timerTime(ride.eventTime))
                    else:
                        _, firstTime = self.rideState.get()
                        if ride.isStart:
                            if self.rideTooLong(ride.eventTime, firstTime):
                                yield pd.DataFrame({"rideId": [key[0]]})
                        else:
                            self.handle.deleteTimer(self.timerTime(firstTime))
                            if self.rideTooLong(firstTime, ride.eventTime):
                                yield pd.DataFrame({"rideId": [key[0]]})
                        self.rideState.clear()

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            # The timer only fires if the ride was too long.
            self.rideState.clear()
            yield pd.DataFrame({"rideId": [key[0]]})

        def rideTooLong(self, start, end):
            return end - start > timedelta(hours=2)

        def timerTime(self, start):
            return int(pd.Timestamp(start).timestamp() * 1000) + 2 * 60 * 60 * 1000

        def close(self):
            pass

    return rides.groupBy("rideId").transformWithStateInPandas(
        statefulProcessor=AlertFunction(),
        outputStructType="rideId long",
        outputMode="Append",
        timeMode="EventTime",
    )


# LongRidesSolution: the same with a timeout instead of timers
def long_rides_by_timeout(rides):
    def alert(key, pdfs, state):
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"rideId": [key[0]]})
            return
        for pdf in pdfs:
            for ride in pdf.itertuples():
                if not state.exists:
                    state.update((ride.isStart, ride.eventTime.to_pydatetime()))
                else:
                    first = pd.Timestamp(state.get[1])
                    start, end = (ride.eventTime, first) if ride.isStart else (first, ride.eventTime)
                    if end - start > timedelta(hours=2):
                        yield pd.DataFrame({"rideId": [key[0]]})
                    state.remove()
        if state.exists and state.get[0]:
            state.setTimeoutTimestamp(int(pd.Timestamp(state.get[1]).timestamp() * 1000) + 2 * 60 * 60 * 1000)

    return rides.groupBy("rideId").applyInPandasWithState(
        alert, "rideId long", "isStart boolean, eventTime timestamp", "append", GroupStateTimeout.EventTimeTimeout
    )


RIDE = (
    "rideId long, isStart boolean, eventTime timestamp, startTime timestamp, startLon double, startLat double, "
    "endLon double, endLat double, passengerCnt int, taxiId long, driverId long"
)
FARE = (
    "rideId long, taxiId long, driverId long, startTime timestamp, paymentType string, tip double, tolls double, "
    "totalFare double"
)


def at(minute):
    return (datetime(2026, 1, 1, 10) + timedelta(minutes=minute)).isoformat(sep=" ")


def ride(number, start, end=None):
    """The start of a ride, or its end; 5 and 10 go to Newark."""
    place = (-73.9, 40.7, -74.2 if number % 5 == 0 else -73.95, 40.8)
    who = (1 + number % 3, number, number % 4)
    return (number, end is None, at(start if end is None else end), at(start), *place, *who)


def fare(number, start):
    return (number, number, number % 4, at(start), "CASH", 0.5 * (1 + number * number), 0.0, 20.0)


RIDES = Input(
    RIDE,
    [
        [ride(1, 0), ride(2, 3), ride(3, 1), ride(1, 0, 30)],
        # The end of 4 comes before its start, 5 takes too long, and the start of 6 is lost.
        [ride(4, 40, 60), ride(4, 40), ride(5, 45), ride(6, 20, 61), ride(2, 3, 62)],
        [ride(7, 120), ride(8, 125), ride(5, 45, 170)],
        # Of 3, which has been too long for a while.
        [ride(7, 120, 200), ride(3, 1, 201), ride(9, 202)],
        # 8 and 9 never end.
        [ride(10, 400)],
    ],
    watermark=("eventTime", "60 seconds"),
)
STARTS = [(1, 0), (2, 3), (3, 1), (4, 40), (5, 45), (7, 120), (8, 125), (9, 202), (10, 400)]
FARES = Input(
    FARE,
    [
        [fare(2, 3), fare(1, 0)],
        [fare(7, 120), fare(5, 45), fare(6, 20)],
        [fare(4, 40), fare(3, 1)],
        [],
        [fare(9, 202), fare(10, 400)],
    ],
)
# Without a lag that matters: the exercise is about what comes first.
WAITED_FOR_RIDES, WAITED_FOR_FARES = (
    Input(each.schema, each.batches, watermark=("startTime", "1 day")) for each in (RIDES, FARES)
)
# Taxi fares are in order there.
IN_ORDER = sorted([*STARTS, (11, 5), (12, 50), (13, 55), (14, 130), (15, 131), (16, 150)], key=lambda each: each[1])
ORDERED = Input(
    FARE, [[fare(*each) for each in IN_ORDER[place : place + 4]] for place in range(0, len(IN_ORDER), 4)],
    watermark=("startTime", "0 seconds"),
)


def too_long(rides):
    """Rides that end after more than two hours, or never, as far as events are there."""
    events = {}
    for row in rides:
        events.setdefault(row["rideId"], {})[row["isStart"]] = datetime.fromisoformat(row["eventTime"])
    last = max(time for each in events.values() for time in each.values()) - timedelta(seconds=60)
    return [
        (number,) for number, each in events.items()
        if True in each and each.get(False, last) - each[True] > timedelta(hours=2)
    ]


def together(rides, fares):
    """Each ride's start with its fare."""
    of_rides = {row["rideId"]: row for row in fares}
    return [
        (
            row["rideId"], row["passengerCnt"], datetime.fromisoformat(row["startTime"]),
            of_rides[row["rideId"]]["driverId"], of_rides[row["rideId"]]["tip"],
        )
        for row in rides if row["isStart"] and row["rideId"] in of_rides
    ]


def stateful(query, source, **options):
    return StatefulPort(FOLLOWS.format(source), query, **options)


def without_watermark(source):
    return Input(source.schema, source.batches)


PORTS = {
    "ride-cleansing": stateful(ride_cleansing, "RideCleansingSolution", inputs=(without_watermark(RIDES),)),
    "rides-and-fares": stateful(
        rides_and_fares, "RidesAndFaresSolution", inputs=(WAITED_FOR_RIDES, WAITED_FOR_FARES)
    ),
    "rides-and-fares-state": stateful(
        rides_and_fares_with_state, "RidesAndFaresSolution",
        inputs=(without_watermark(RIDES), without_watermark(FARES)), expected=together,
    ),
    "hourly-tips": stateful(hourly_tips, "HourlyTipsSolution", inputs=(ORDERED,), closing=True, spark="closed"),
    "long-rides": stateful(
        long_rides, "LongRidesSolution", inputs=(RIDES,), expected=too_long, spark="same"
    ),
    "long-rides-timeout": stateful(
        long_rides_by_timeout, "LongRidesSolution", inputs=(RIDES,), expected=too_long, spark="same"
    ),
}
