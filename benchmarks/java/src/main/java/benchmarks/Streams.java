package benchmarks;

import java.io.File;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/**
 * Kafka Streams in this process: two threads, state in RocksDB and its changelog, a commit every second, results when
 * a window closes. The broker is another process; the input is written to it as it is read.
 */
public final class Streams {
    static final int PARTITIONS = 2;
    static final long AHEAD = 100_000;
    static final AtomicLong READ = new AtomicLong();
    /** Milliseconds; Kafka Streams has no windows that begin before 1970. */
    private static final long SHIFT = 3_600_000;

    private static final Duration SECOND = Duration.ofSeconds(1);

    private Streams() {}

    /** What a window has of a key. */
    record Sums(long count, long sum, double price, long max) {
        static final Sums NONE = new Sums(0, 0, 0, Long.MIN_VALUE);

        Sums add(byte[] row) {
            long number = ByteBuffer.wrap(row).getLong();
            return new Sums(count + 1, sum + number, price + Feed.price(number), Math.max(max, number));
        }

        Sums plus(Sums other) {
            return new Sums(
                    count + other.count, sum + other.sum, price + other.price, Math.max(max, other.max));
        }

        static Serde<Sums> serde() {
            return Serdes.serdeFrom(
                    (topic, sums) -> sums == null
                            ? null
                            : ByteBuffer.allocate(32)
                                    .putLong(sums.count)
                                    .putLong(sums.sum)
                                    .putDouble(sums.price)
                                    .putLong(sums.max)
                                    .array(),
                    (topic, bytes) -> {
                        if (bytes == null) {
                            return null;
                        }
                        var buffer = ByteBuffer.wrap(bytes);
                        return new Sums(buffer.getLong(), buffer.getLong(), buffer.getDouble(), buffer.getLong());
                    });
        }
    }

    /** Passes the rows of a window end on when every partition has come to a later one: each has a clock. */
    static final class Gate {
        private final Map<Integer, Long> newest = new HashMap<>();
        private final TreeMap<Long, List<Runnable>> waiting = new TreeMap<>();

        synchronized void add(int partition, long end, Runnable row) {
            waiting.computeIfAbsent(end, none -> new java.util.ArrayList<>()).add(row);
            newest.merge(partition, end, Math::max);
            if (newest.size() == PARTITIONS) {
                var complete = waiting.headMap(java.util.Collections.min(newest.values()));
                complete.values().forEach(rows -> rows.forEach(Runnable::run));
                complete.clear();
            }
        }
    }

    static final class Add extends ContextualProcessor<Windowed<Long>, Sums, Void, Void> {
        private final Work work;
        private final Gate gate;

        Add(Work work, Gate gate) {
            this.work = work;
            this.gate = gate;
        }

        @Override
        public void process(Record<Windowed<Long>, Sums> row) {
            Windowed<Long> key = row.key();
            // A session's window ends with its last row there.
            long gap = work.sessions() ? SECOND.toMillis() : 0;
            long end = Math.floorDiv(key.window().end() + gap - SHIFT, 1000L);
            gate.add(context().taskId().partition(), end, () -> pass(end, key.key(), row.value()));
        }

        private void pass(long end, long key, Sums sums) {
            long[] whole = new long[work.aggregates().size()];
            int wholes = 0;
            double real = 0;
            for (String aggregate : work.aggregates()) {
                switch (aggregate) {
                    case "count" -> whole[wholes++] = sums.count();
                    case "sum" -> whole[wholes++] = sums.sum();
                    case "max" -> whole[wholes++] = sums.max();
                    case "avg" -> real += sums.price() / sums.count();
                    default -> throw new IllegalArgumentException("Kafka Streams is not asked for " + aggregate);
                }
            }
            Results.ALL.add(end, key, Arrays.copyOf(whole, wholes), real);
        }
    }

    static StreamsBuilder topology(Work work, String topic) {
        var builder = new StreamsBuilder();
        var grouped = builder.stream(topic, Consumed.with(Serdes.Long(), Serdes.ByteArray()))
                .peek((key, row) -> READ.incrementAndGet())
                .groupByKey(Grouped.with(Serdes.Long(), Serdes.ByteArray()));
        KTable<Windowed<Long>, Sums> results =
                switch (work.shape()) {
                    case "windows" -> grouped.windowedBy(
                                    TimeWindows.ofSizeAndGrace(SECOND.multipliedBy(work.steps()), Duration.ZERO)
                                            .advanceBy(SECOND))
                            .emitStrategy(EmitStrategy.onWindowClose())
                            .aggregate(
                                    () -> Sums.NONE,
                                    (key, row, sums) -> sums.add(row),
                                    Materialized.with(Serdes.Long(), Sums.serde()));
                    case "sessions" -> grouped.windowedBy(
                                    SessionWindows.ofInactivityGapAndGrace(SECOND, Duration.ZERO))
                            .emitStrategy(EmitStrategy.onWindowClose())
                            .aggregate(
                                    () -> Sums.NONE,
                                    (key, row, sums) -> sums.add(row),
                                    (key, one, other) -> one.plus(other),
                                    Materialized.with(Serdes.Long(), Sums.serde()));
                    default -> throw new IllegalArgumentException("Kafka Streams is not asked for " + work.shape());
                };
        var gate = new Gate();
        results.toStream().process(() -> new Add(work, gate));
        return builder;
    }

    static Properties settings(Work work, String servers) {
        var given = new Properties();
        given.put(StreamsConfig.APPLICATION_ID_CONFIG, "benchmark");
        given.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        given.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, PARTITIONS);
        given.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        given.put(StreamsConfig.STATE_DIR_CONFIG, new File(System.getProperty("java.io.tmpdir"), "state").getPath());
        given.put(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                work.exactlyOnce() ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        given.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // The benchmark suspends this process for minutes, after which nothing shall have timed out.
        int hour = 3_600_000;
        given.put(StreamsConfig.consumerPrefix("session.timeout.ms"), hour);
        given.put(StreamsConfig.consumerPrefix("max.poll.interval.ms"), hour);
        given.put(StreamsConfig.consumerPrefix("request.timeout.ms"), hour);
        given.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), hour);
        given.put(StreamsConfig.producerPrefix("delivery.timeout.ms"), hour);
        return given;
    }

    /** Writes the input in the order of event time, each key into one partition, and not far ahead of what is read. */
    static void feed(Work work, String servers, String topic) {
        Map<String, Object> given = Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                ProducerConfig.LINGER_MS_CONFIG, 20,
                ProducerConfig.BATCH_SIZE_CONFIG, 1 << 18,
                ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 3_600_000);
        try (var producer = new KafkaProducer<>(given, new LongSerializer(), new ByteArraySerializer())) {
            for (long number = 0; !Thread.currentThread().isInterrupted(); number++) {
                while (number - READ.get() > AHEAD) {
                    LockSupport.parkNanos(1_000_000);
                }
                long key = Feed.key(number, work.keys());
                long time = Feed.time(number, work) / 1000 + SHIFT;
                byte[] row = ByteBuffer.allocate(8).putLong(number).array();
                producer.send(new ProducerRecord<>(topic, (int) (key % PARTITIONS), time, key, row));
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Work work = Work.of(arguments);
        String servers = System.getProperty("servers");
        String topic = System.getProperty("topic");
        var streams = new KafkaStreams(topology(work, topic).build(), settings(work, servers));
        streams.setUncaughtExceptionHandler(failure -> {
            Results.ALL.end(failure);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        var feeding = new Thread(() -> feed(work, servers, topic), "feed");
        feeding.setDaemon(true);
        feeding.start();
        streams.start();
        Results.ALL.serve(work);
        // Its broker and its files go with it.
        Runtime.getRuntime().halt(0);
    }
}
