package benchmarks;

import java.util.Scanner;
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
    private static final long LATER = 2;

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
     * Waits for the first row of a window end, or of a later one, and returns that.
     *
     * @throws IllegalStateException if the job ends before
     */
    private synchronized long await(long end) throws InterruptedException {
        while (ends.ceilingKey(end) == null) {
            if (ended) {
                throw new IllegalStateException("The job ended before the window that ends at " + end, failure);
            }
            wait();
        }
        return ends.ceilingKey(end);
    }

    /** The first row of the window that ends so many rows after another. */
    private long await(long end, long rows, Work work) throws InterruptedException {
        return await(Math.max(end + 1, Feed.time(Feed.before(end, work) + rows, work) / Feed.MICROSECONDS));
    }

    /**
     * Prints a stretch for each line of standard input, and then the results.
     *
     * <p>A stretch is timed from the first row of one window end to the first row of another. If none of the input is
     * for settling, it begins at the end at which the one before was over: its time is that since the process goes on.
     */
    void serve(Work work) throws InterruptedException {
        var lines = new Scanner(System.in);
        long first = 0;
        long last = 0;
        while (lines.hasNextLine()) {
            lines.nextLine();
            boolean goesOn = last > 0 && work.settling() == 0;
            long began = System.nanoTime();
            if (last == 0) {
                first = await(0, work.warmUp(), work);
            } else {
                // When it goes on after a pause, its data is not in the caches any more.
                first = goesOn ? last : await(newest(), work.settling(), work);
            }
            last = await(first, work.measured(), work);
            long rows = Feed.before(last, work) - Feed.before(first, work);
            double seconds = (seen(last) - (goesOn ? began : seen(first))) / 1e9;
            System.out.println("{\"rows\":" + rows + ",\"seconds\":" + seconds + "}");
        }
        // A stream has no end: the first rows of later windows say that all of this one have come.
        await(last + LATER);
        System.out.println(results(last));
    }

    private synchronized long newest() {
        return ends.lastKey();
    }

    private synchronized long seen(long end) {
        return ends.get(end).seen;
    }

    private synchronized String results(long complete) {
        String totals = ends.headMap(complete, true).entrySet().stream()
                .map(entry -> {
                    Totals all = entry.getValue();
                    return "\"" + entry.getKey() + "\":[" + all.rows + "," + all.checksum + "," + all.real + "]";
                })
                .collect(Collectors.joining(","));
        return "{\"complete\":" + complete + ",\"ends\":{" + totals + "}}";
    }
}
