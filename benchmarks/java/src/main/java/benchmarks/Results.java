package benchmarks;

import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * What result rows add up to by window end, and when the first row of each end came.
 *
 * <p>One for the process: sinks are created from serialized descriptions and have no other way back. Sinks run with
 * a parallelism of one, so the lock is free of contention.
 */
final class Results {
    static final Results ALL = new Results();

    private static final class Totals {
        final long seen = System.nanoTime();
        long rows;
        long checksum;
        double real;
    }

    private final TreeMap<Long, Totals> ends = new TreeMap<>();
    private boolean ended;
    private Throwable failure;

    /**
     * Adds one result row.
     *
     * @param end window end in seconds
     * @param whole results that are whole numbers, in the order of the work's aggregates
     * @param real sum of the results in floating point
     */
    synchronized void add(long end, long key, long[] whole, double real) {
        long mixed = end * 8191 + key * 1_000_003;
        for (int place = 0; place < whole.length; place++) {
            mixed += whole[place] * (131 + place);
        }
        Totals totals = ends.get(end);
        if (totals == null) {
            totals = new Totals();
            ends.put(end, totals);
            notifyAll();
        }
        totals.rows++;
        totals.checksum += ((mixed % 2_147_483_647) * (mixed % 65_521 + 1)) % 2_147_483_647;
        totals.real += real;
    }

    /** Says that no more rows come, with what went wrong or null. */
    synchronized void end(Throwable failure) {
        ended = true;
        this.failure = failure;
        notifyAll();
    }

    /**
     * Waits for the first row of a window end, or of a later one.
     *
     * @throws IllegalStateException if the job ends before
     */
    synchronized void await(long end) throws InterruptedException {
        while (ends.ceilingKey(end) == null) {
            if (ended) {
                throw new IllegalStateException("The job ended before the window that ends at " + end, failure);
            }
            wait();
        }
    }

    /** Prints the report; the time is from the first row of one window end to the first row of another. */
    synchronized void print(Work work) {
        long first = ends.ceilingKey(Math.max(1, Feed.time(work.warmUp(), work) / Feed.MICROSECONDS));
        // Sessions end within seconds, and count as ending at the full second before.
        long complete = Feed.time(work.rows(), work) / Feed.MICROSECONDS - (work.sessions() ? 1 : 0);
        long last = ends.floorKey(complete);
        double seconds = (ends.get(last).seen - ends.get(first).seen) / 1e9;
        long rows = Feed.before(last, work) - Feed.before(first, work);
        String totals = ends.entrySet().stream()
                .filter(entry -> entry.getKey() <= last)
                .map(entry -> {
                    Totals all = entry.getValue();
                    return "\"" + entry.getKey() + "\":[" + all.rows + "," + all.checksum + "," + all.real + "]";
                })
                .collect(Collectors.joining(","));
        System.out.println("{\"rows\":" + rows + ",\"seconds\":" + seconds
                + ",\"complete\":" + complete + ",\"ends\":{" + totals + "}}");
    }
}
