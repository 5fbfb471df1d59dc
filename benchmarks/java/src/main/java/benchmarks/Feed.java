package benchmarks;

/** The generated input, as in feed.py: everything follows from the row's number. */
final class Feed {
    static final long MICROSECONDS = 1_000_000;

    private Feed() {}

    static long key(long row, long keys) {
        return (row * 7919) % keys;
    }

    /** Microseconds of event time. */
    static long time(long row, long density) {
        return row * MICROSECONDS / density;
    }

    static double price(long row) {
        return (row % 1000) / 8.0;
    }
}
