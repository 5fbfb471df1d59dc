"""The Kafka sink (extra ``kafka``): transactions that executors fill and that any process can commit."""
