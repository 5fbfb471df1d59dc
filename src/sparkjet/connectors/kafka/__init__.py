"""Apache Kafka (extra ``kafka``): topics as a stream, and a sink that uses transactions or stages its rows."""
