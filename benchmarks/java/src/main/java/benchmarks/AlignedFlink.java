package benchmarks;

import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * A skewed topic by Flink, with and without watermark alignment: what benchmarks/alignment.py asks of sparkjet.
 *
 * <p>Arguments: brokers, topic, number of partitions, drift in seconds (0 for none), interval of the alignment in
 * milliseconds, most records of a poll, records in all, records a second of each of the two readers (0 for as many as
 * they can), most bytes of a partition in a fetch. Prints one line. State are the windows that are open, as counted in the
 * functions of this process.
 */
public final class AlignedFlink {
    private static final AtomicLong OPEN = new AtomicLong();
    private static final AtomicLong MOST = new AtomicLong();
    private static final AtomicLong FINAL = new AtomicLong();
    private static long[] reached;
    private static volatile long levelAt;
    private static volatile long began;
    private static final AtomicLong READ = new AtomicLong();
    private static volatile long finalAtHalf = -1;
    private static long half;

    private AlignedFlink() {}

    /** An event: its partition and key. */
    static final class Read implements KafkaRecordDeserializationSchema<Tuple2<Integer, String>> {
        private final long nanos;
        private long next;

        Read(long perSecond) {
            nanos = perSecond == 0 ? 0 : 1_000_000_000 / perSecond;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<Integer, String>> out) {
            if (began == 0) {
                began = System.nanoTime();
            }
            if (nanos > 0) {
                pace();
            }
            synchronized (AlignedFlink.class) {
                reached[record.partition()] = record.timestamp();
                long least = Arrays.stream(reached).min().orElse(0);
                long most = Arrays.stream(reached).max().orElse(0);
                if (levelAt == 0 && least > 0 && most - least <= 3_600_000) {
                    levelAt = System.nanoTime();
                }
            }
            if (READ.incrementAndGet() == half) {
                finalAtHalf = FINAL.get();
            }
            out.collect(Tuple2.of(record.partition(), new String(record.key())));
        }

        private void pace() {
            next = Math.max(next + nanos, System.nanoTime() - 10_000_000);
            while (System.nanoTime() < next) {
                LockSupport.parkNanos(next - System.nanoTime());
            }
        }

        @Override
        public TypeInformation<Tuple2<Integer, String>> getProducedType() {
            return TypeInformation.of(new TypeHint<>() {});
        }
    }

    /** Counts, and how many windows are open: each has one accumulator. */
    static final class Count implements AggregateFunction<Tuple2<Integer, String>, Long, Long> {
        @Override
        public Long createAccumulator() {
            MOST.accumulateAndGet(OPEN.incrementAndGet(), Math::max);
            return 0L;
        }

        @Override
        public Long add(Tuple2<Integer, String> value, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    /** Emits a window that has closed. */
    static final class Close
            extends ProcessWindowFunction<Long, Tuple3<Long, String, Long>, Tuple2<Integer, String>, TimeWindow> {
        @Override
        public void process(
                Tuple2<Integer, String> key, Context context, Iterable<Long> counts,
                Collector<Tuple3<Long, String, Long>> out) {
            OPEN.decrementAndGet();
            FINAL.incrementAndGet();
            out.collect(Tuple3.of(context.window().getEnd(), key.f0 + "/" + key.f1, counts.iterator().next()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[2]);
        long drift = Long.parseLong(arguments[3]);
        long interval = Long.parseLong(arguments[4]);
        half = Long.parseLong(arguments[6]) / 2;
        reached = new long[partitions];
        try (var cluster = new LocalCluster(2)) {
            var environment = cluster.environment;
            environment.enableCheckpointing(1000);
            environment.getConfig().setAutoWatermarkInterval(50);
            var source = KafkaSource.<Tuple2<Integer, String>>builder()
                    .setBootstrapServers(arguments[0])
                    .setTopics(arguments[1])
                    .setStartingOffsets(OffsetsInitializer.earliest())
                    .setBounded(OffsetsInitializer.latest())
                    .setProperty("max.poll.records", arguments[5])
                    .setProperty("max.partition.fetch.bytes", arguments[8])
                    .setDeserializer(new Read(Long.parseLong(arguments[7])))
                    .build();
            var watermarks = WatermarkStrategy.<Tuple2<Integer, String>>forMonotonousTimestamps();
            if (drift > 0) {
                watermarks = watermarks.withWatermarkAlignment(
                        "topic", Duration.ofSeconds(drift), Duration.ofMillis(interval));
            }
            KeySelector<Tuple2<Integer, String>, Tuple2<Integer, String>> same = value -> value;
            environment.fromSource(source, watermarks, "topic")
                    .keyBy(same, TypeInformation.of(new TypeHint<>() {}))
                    .window(TumblingEventTimeWindows.of(Duration.ofMinutes(1)))
                    .aggregate(new Count(), new Close())
                    .sinkTo(new DiscardingSink<>());
            environment.execute();
            long ended = System.nanoTime();
            System.out.printf(
                    "state %,d at most; no partition an hour behind after %.1f s; final when half is read %,d, in the end %,d; "
                            + "read %,d; %.1f s after the first record%n",
                    MOST.get(), (levelAt - began) / 1e9, finalAtHalf, FINAL.get(), READ.get(), (ended - began) / 1e9);
        }
    }
}
