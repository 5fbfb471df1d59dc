package benchmarks;

/** The generated input, as in feed.py: everything follows from the row's number. */
final class Feed {
    static final long MICROSECONDS = 1_000_000;
    static final long SESSION = 20;
    static final long PAUSE = 2 * MICROSECONDS;

    private Feed() {}

    static long key(long row, long keys) {
        return (row * 7919) % keys;
    }

    /** Microseconds of event time; for sessions it pauses after every 20 rows of each key. */
    static long time(long row, Work work) {
        long pauses = work.sessions() ? row / (SESSION * work.keys()) * PAUSE : 0;
        return row * MICROSECONDS / work.density() + pauses;
    }

    /** The number of rows before a second of event time. */
    static long before(long second, Work work) {
        long low = 0;
        long high = second * work.density();
        while (low < high) {
            long middle = (low + high) / 2;
            if (time(middle, work) < second * MICROSECONDS) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    static double price(long row) {
        return (row % 1000) / 8.0;
    }
}
