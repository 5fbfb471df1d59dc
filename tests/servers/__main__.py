"""Loads and builds the servers that tests start, as far as that is not done yet: ``python -m tests.servers``."""

from __future__ import annotations

from tests.servers import artemis, delta, hdfs, jdbc, kafka, s3


def main() -> None:
    """Download everything that the first test of each would wait for."""
    kafka.jars()
    artemis.jars()
    delta.kernel()
    jdbc.drivers()
    hdfs.jars(hdfs.POM)
    s3.client()
    s3.proxy()
    s3.versitygw()


if __name__ == "__main__":
    main()
