"""Queries from public libraries that run on Spark, as their Python packages have them (Apache-2.0 and MIT)."""
# Texts of others stay as they are: neither formatted nor linted. `self` stands for the object whose method it was.
# fmt: off

from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql.functions import col, from_json, lit

from tests.ported.port import Port

SOURCES = "pyspark-data-sources 0.1.11, pyspark_datasources/{}, Apache-2.0"


# pyspark_datasources/opensky.py
def commercial_flights(df):
    commercial_flights = df.filter(df.callsign.isNotNull() & (df.geo_altitude > 10000))
    return commercial_flights


# pyspark_datasources/weather.py
def print_weather(weather_df, place):
    query = weather_df.writeStream.format("console").trigger(availableNow=True).start()
    return query


# pyspark_datasources/fake.py
def print_people(df, place):
    stream = df.writeStream.format("console").start()
    return stream


# pyspark_datasources/salesforce.py
def accounts(streaming_df):
    account_data = streaming_df.select(
        col("value").cast("string").alias("Name"),
        lit("Technology").alias("Industry"),
        (col("value") * 100000).cast("double").alias("AnnualRevenue")
    )
    return account_data


def contacts(streaming_df):
    contact_data = streaming_df.select(
        col("value").cast("string").alias("FirstName"),
        lit("Doe").alias("LastName"),
        lit("contact@example.com").alias("Email")
    )
    return contact_data


# feast 0.67.0, feast/infra/contrib/spark_kafka_processor.py, _ingest_stream_data
def driver_features(df):
    self = SimpleNamespace(data_source=SimpleNamespace(kafka_options=SimpleNamespace(message_format=SimpleNamespace(
        schema_json="driver_id bigint, event_timestamp timestamp, conv_rate double"
    ))))
    stream_df = (
        df
        .selectExpr("CAST(value AS STRING)")
        .select(
            from_json(
                col("value"),
                self.data_source.kafka_options.message_format.schema_json,
            ).alias("table")
        )
        .select("table.*")
    )
    return stream_df


# koheesio 0.11.1, koheesio/spark/writers/stream.py, StreamWriter.stream_writer
def stream_writer(df, place):
    self = SimpleNamespace(
        df=df, format="parquet", output_mode="append", checkpoint_location=str(place / "cp"),
        batch_function=appending(place), _trigger={"availableNow": True},
    )
    write_stream = self.df.writeStream.format(self.format).outputMode(self.output_mode)

    if self.checkpoint_location:
        write_stream = write_stream.option("checkpointLocation", self.checkpoint_location)

    if self.batch_function:
        write_stream = write_stream.foreachBatch(self.batch_function)

    # set trigger
    write_stream = write_stream.trigger(**self._trigger)

    return write_stream.start()


# laktory 0.13.1, laktory/narwhals_ext/dataframe/display.py, display
def display(df, place):
    # Start the streaming query
    query = (
        df.writeStream.outputMode("append")
        .format("memory")  # Store the results in-memory table
        .queryName("_laktory_tmp_view")
        .trigger(availableNow=True)
        .start()
    )
    return query


# laktory 0.13.1, laktory/models/datasinks/basedatasink.py, write
def custom_writer(df_native, place):
    _context = None
    self = SimpleNamespace(
        checkpoint_path=str(place / "cp"),
        custom_writer=SimpleNamespace(execute=lambda batch_df, context: appending(place)(batch_df)),
    )
    query = (
        df_native.writeStream.foreachBatch(
            lambda batch_df, _: self.custom_writer.execute(
                batch_df, context=_context
            )
        )
        .trigger(availableNow=True)
        .options(checkpointLocation=self.checkpoint_path)
        .start()
    )
    query.awaitTermination()
    return query


# butterfree 1.8.0, butterfree/clients/spark_client.py, SparkClient.write_stream
def write_stream(dataframe, place):
    processing_time, output_mode, checkpoint_path = "0 seconds", "append", str(place / "cp")
    format_, mode, options = "parquet", "append", {}
    self = SimpleNamespace(write_dataframe=lambda batch_df, format_, mode: appending(place, format_, mode)(batch_df))
    if not dataframe.isStreaming:
        raise ValueError("A stream df is needed to start a streaming job.")

    return (
        dataframe.writeStream.trigger(processingTime=processing_time)
        .outputMode(output_mode)
        .option("checkpointLocation", checkpoint_path)
        .foreachBatch(
            lambda batch_df, _: self.write_dataframe(
                batch_df, format_, mode, **options
            )
        )
        .start()
    )


# butterfree 1.8.0, butterfree/clients/spark_client.py, SparkClient.create_temporary_view
def create_temporary_view(dataframe, place):
    name = "butterfree_view"
    if not dataframe.isStreaming:
        return dataframe.createOrReplaceTempView(name)
    return dataframe.writeStream.format("memory").queryName(name).start()


def appending(place: Path, format_: str = "parquet", mode: str = "append"):
    """What a library does with a batch: here it appends it to files."""
    return lambda batch_df, *_: batch_df.write.format(format_).mode(mode).save(str(place / "out"))


def appended(spark, place):
    """The rows that were appended."""
    return spark.read.parquet(str(place / "out"))


def whole(df):
    """The query is nothing but its sink."""
    return df


PEOPLE = "name string, date string, zipcode string, state string"
NAMES = [
    [("Pam Mitchell", "1988-10-20", "23788", "Tennessee"), ("Melissa Turner", "1996-06-14", "30851", "Nevada")],
    [("Brian Ramsey", "2021-08-21", "55277", "Washington")],
]
FLIGHT = "time_ingest timestamp, icao24 string, callsign string, geo_altitude double"
FLIGHTS = [
    [("2026-01-01 12:00:00", "3c6444", "DLH9LF", 11277.6), ("2026-01-01 12:00:00", "4b1817", None, 11887.2)],
    [("2026-01-01 12:00:10", "3c6444", "DLH9LF", 9982.2), ("2026-01-01 12:00:10", "a4b2c3", "UAL4", None)],
]
RATE = "timestamp timestamp, value long"
TICKS = [[("2026-01-01 12:00:01", 1), ("2026-01-01 12:00:02", 2)], [("2026-01-01 12:00:03", 3)]]
# Spark's JSON reader takes binary columns as Base64.
MESSAGES = [
    [(b64encode(b'{"driver_id": 1001, "event_timestamp": "2026-01-01 12:00:00", "conv_rate": 0.5}').decode(),)],
    [(b64encode(b'{"driver_id": 1002}').decode(),), (b64encode(b"no JSON").decode(),), (None,)],
]

PORTS = {
    "data-sources-opensky": Port(SOURCES.format("opensky.py"), commercial_flights, FLIGHT, FLIGHTS),
    "data-sources-weather": Port(SOURCES.format("weather.py"), whole, FLIGHT, FLIGHTS, write=print_weather),
    "data-sources-fake": Port(SOURCES.format("fake.py"), whole, PEOPLE, NAMES, write=print_people),
    "data-sources-accounts": Port(SOURCES.format("salesforce.py"), accounts, RATE, TICKS),
    "data-sources-contacts": Port(SOURCES.format("salesforce.py"), contacts, RATE, TICKS),
    "feast": Port(
        "feast 0.67.0, feast/infra/contrib/spark_kafka_processor.py, Apache-2.0",
        driver_features, "value binary", MESSAGES,
    ),
    "koheesio": Port(
        "koheesio 0.11.1, koheesio/spark/writers/stream.py, Apache-2.0", whole, PEOPLE, NAMES,
        write=stream_writer, delivered=appended,
    ),
    "laktory-display": Port(
        "laktory 0.13.1, laktory/narwhals_ext/dataframe/display.py, MIT", whole, PEOPLE, NAMES,
        write=display, delivered=lambda spark, place: spark.table("_laktory_tmp_view"),
    ),
    "laktory-writer": Port(
        "laktory 0.13.1, laktory/models/datasinks/basedatasink.py, MIT", whole, PEOPLE, NAMES,
        write=custom_writer, delivered=appended,
    ),
    "butterfree-write_stream": Port(
        "butterfree 1.8.0, butterfree/clients/spark_client.py, Apache-2.0", whole, PEOPLE, NAMES,
        write=write_stream, delivered=appended,
    ),
    "butterfree-view": Port(
        "butterfree 1.8.0, butterfree/clients/spark_client.py, Apache-2.0", whole, PEOPLE, NAMES,
        write=create_temporary_view, delivered=lambda spark, place: spark.table("butterfree_view"),
    ),
}
