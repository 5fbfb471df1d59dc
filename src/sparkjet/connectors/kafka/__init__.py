"""Apache Kafka (extra ``kafka``): topics as a stream, and a sink with transactions or with rows that are staged."""
