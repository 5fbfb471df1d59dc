"""The examples that PySpark brings, read from the installed package."""

from tests.ported.installed import example
from tests.ported.port import Port

SESSIONS = example("structured_sessionization")
WORDS = example("structured_network_wordcount")
WINDOWED_WORDS = example("structured_network_wordcount_windowed")
BLOCKS = example("structured_blockchain_admission_control")


def sessions(lines):
    return SESSIONS.run("events =", "windowedCounts =", lines=lines)


def print_sessions(sessions, place):
    return SESSIONS.run("query =", windowedCounts=sessions)


def words(lines):
    return WORDS.run("words =", "wordCounts =", lines=lines)


def print_words(counts, place):
    return WORDS.run("query =", wordCounts=counts)


def windowed_words(lines):
    lengths = {"windowDuration": "10 seconds", "slideDuration": "5 seconds"}
    return WINDOWED_WORDS.run("words =", "windowedCounts =", lines=lines, **lengths)


def print_blocks(blocks, place):
    return BLOCKS.run("query =", df=blocks)


LINES = "timestamp timestamp, value string"
SPOKEN = [
    [("2026-01-01 12:00:01", "left or right or left"), ("2026-01-01 12:00:15", "left and left again")],
    [("2026-01-01 12:00:12", "or straight on"), ("2026-01-01 12:00:31", "left on"), ("2026-01-01 12:00:26", "here")],
]

PORTS = {
    "sessionization": Port(sessions, LINES, SPOKEN, watermark=("timestamp", "10 seconds")),
    "word-count": Port(words, LINES, SPOKEN, mode="complete"),
    "windowed-word-count": Port(windowed_words, LINES, SPOKEN, mode="complete"),
    "blockchain": Port(
        query=lambda df: df,
        schema="height int, digest string, sealed timestamp, entries int",
        batches=[[(0, "0f3c", "2026-01-01 12:00:00", 4)], [(1, "a9d2", "2026-01-01 12:00:15", 2)]],
        write=print_blocks,
    ),
}
