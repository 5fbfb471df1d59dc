"""Sources whose broker keeps a message until it is acknowledged: queues, which have no offsets to go back to."""
