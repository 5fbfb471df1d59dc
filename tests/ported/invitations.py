"""Invitations and their answers, and tickets that are read at a gate: joins in time, joins with a table, duplicates."""

from datetime import datetime

from pyspark.sql import functions as F

from tests.ported.stateful_port import Input, StatefulPort, Table

IN_TIME = "answered = invitation AND answeredAt BETWEEN sentAt AND sentAt + INTERVAL 1 HOUR"


def in_time(sent, answers):
    return sent.withWatermark("sentAt", "100 minutes"), answers.withWatermark("answeredAt", "150 minutes")


def answered(sent, answers, how="inner"):
    """A join with a bound of time."""
    sent, answers = in_time(sent, answers)
    return sent.join(answers, F.expr(IN_TIME), how)


def answered_or_not(sent, answers):
    return answered(sent, answers, "leftOuter")


def with_an_answer(sent, answers):
    return answered(sent, answers, "leftSemi")


def all_of_both(sent, answers):
    return answered(sent, answers, "fullOuter")


def hours_of_both(sent, answers):
    """Windows of two streams, joined by the window."""
    sent, answers = in_time(sent, answers)
    of_sent = sent.groupBy(sent.invitation, F.window(sent.sentAt, "1 hour")).count()
    of_answers = answers.groupBy(answers.answered, F.window(answers.answeredAt, "1 hour")).count()
    return of_answers.withColumnRenamed("count", "answers").join(
        of_sent.withColumnRenamed("count", "sent"), "window", "inner"
    )


def hours_of_answered(sent, answers):
    """Windows behind an outer join."""
    return answered_or_not(sent, answers).groupBy("answered", F.window("answeredAt", "1 hour")).count()


def known_kinds(tickets, kinds):
    return tickets.join(kinds, "kind")


def kinds_known_or_not(tickets, kinds):
    return tickets.join(kinds, "kind", "left_outer")


def once_for_ever(tickets):
    return tickets.select("code").dropDuplicates(["code"])


def once_a_time(tickets):
    return tickets.withWatermark("readAt", "10 seconds").dropDuplicates(["code", "readAt"])


def once_in_six_hours(tickets):
    return tickets.withWatermark("readAt", "6 hours").dropDuplicatesWithinWatermark(["code"])


def at(minute):
    return f"2026-01-{1 + minute // 1440:02} {minute // 60 % 24:02}:{minute % 60:02}:00"


SENT = Input(
    "invitation long, sentAt timestamp",
    [
        [(1, at(0)), (2, at(10)), (3, at(20))],
        [(4, at(90)), (1, at(15))],
        [(5, at(300))],
        [(6, at(1300))],
        [(7, at(1310))],
    ],
)
ANSWERS = Input(
    "answered long, answeredAt timestamp",
    [
        [(1, at(5)), (3, at(90))],
        [(2, at(70)), (1, at(60)), (4, at(80))],
        [(9, at(290))],
        [(6, at(1310))],
        [(6, at(1361))],
    ],
)
# Each of them once more, and one long after.
TICKETS = Input(
    "code string, readAt timestamp, kind string",
    [
        [("a", at(0), "x"), ("b", at(1), "y"), ("a", at(0), "x")],
        [("b", at(1), "y"), ("c", at(2), "z"), ("a", at(3), "x")],
        [("d", at(4), None), ("c", at(2), "z")],
    ],
)
KINDS = Table("kind string, meaning string", [("x", "adult"), ("y", "child"), ("y", "school")])


def joined(query, **options):
    return StatefulPort(query, (SENT, ANSWERS), **options)


PORTS = {
    "join-inner": joined(answered, spark="same"),
    "join-left": joined(answered_or_not, closing=True, spark="closed"),
    "join-semi": joined(with_an_answer),
    "join-full": joined(all_of_both, closing=True, spark="closed"),
    "join-windows": joined(hours_of_both, closing=True),
    "join-then-window": joined(hours_of_answered, closing=True, spark="closed"),
    "static-inner": StatefulPort(known_kinds, (TICKETS,), (KINDS,)),
    "static-left": StatefulPort(kinds_known_or_not, (TICKETS,), (KINDS,)),
    "dedup": StatefulPort(once_for_ever, (TICKETS,)),
    "dedup-time": StatefulPort(once_a_time, (TICKETS,), spark="same"),
    # None comes more than the lag after the first one.
    "dedup-within-watermark": StatefulPort(
        once_in_six_hours,
        (TICKETS,),
        expected=lambda rows: [
            (code, datetime(2026, 1, 1, 0, minute), kind)
            for code, minute, kind in (("a", 0, "x"), ("b", 1, "y"), ("c", 2, "z"), ("d", 4, None))
        ],
    ),
}
