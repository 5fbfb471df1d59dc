package benchmarks;

import static com.hazelcast.jet.aggregate.AggregateOperations.averagingDouble;
import static com.hazelcast.jet.aggregate.AggregateOperations.counting;
import static com.hazelcast.jet.aggregate.AggregateOperations.maxBy;
import static com.hazelcast.jet.aggregate.AggregateOperations.summingLong;

import com.hazelcast.config.Config;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.function.ComparatorEx;
import com.hazelcast.jet.Job;
import com.hazelcast.jet.Traverser;
import com.hazelcast.jet.aggregate.AggregateOperation1;
import com.hazelcast.jet.aggregate.AggregateOperations;
import com.hazelcast.jet.config.JobConfig;
import com.hazelcast.jet.config.ProcessingGuarantee;
import com.hazelcast.jet.core.AbstractProcessor;
import com.hazelcast.jet.core.BroadcastKey;
import com.hazelcast.jet.core.EventTimeMapper;
import com.hazelcast.jet.core.EventTimePolicy;
import com.hazelcast.jet.core.ProcessorMetaSupplier;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.Sink;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.Sources;
import com.hazelcast.jet.pipeline.StreamSource;
import com.hazelcast.jet.pipeline.WindowDefinition;
import com.hazelcast.jet.datamodel.KeyedWindowResult;
import java.io.Serializable;
import java.util.List;

/** Hazelcast Jet in this process: two cooperative threads, snapshots in memory every second. */
public final class Jet {
    static final int THREADS = 2;
    static final int CHUNK = 4096;

    private Jet() {}

    /** One row; never leaves the process. */
    record Event(long key, long value, double price) implements Serializable {}

    /** Every second row of the input, as fast as back-pressure lets, on the cooperative threads. */
    static final class Rows extends AbstractProcessor {
        final String[] arguments;
        final EventTimeMapper<Event> times;
        Work work;
        Traverser<Object> traverser;
        long index;
        long next;
        int step;

        Rows(String[] arguments, EventTimePolicy<? super Event> policy) {
            this.arguments = arguments;
            this.times = new EventTimeMapper<>(policy);
        }

        @Override
        protected void init(Context context) {
            work = Work.of(arguments);
            index = context.globalProcessorIndex();
            step = context.totalParallelism();
            next = index;
            times.addPartitions(1);
            traverser = times.flatMapIdle();
        }

        @Override
        public boolean complete() {
            for (int count = 0; count < CHUNK; count++) {
                if (!emitFromTraverser(traverser)) {
                    return false;
                }
                Event event = new Event(Feed.key(next, work.keys()), next, Feed.price(next));
                traverser = times.flatMapEvent(event, 0, Feed.time(next, work));
                next += step;
            }
            return false;
        }

        @Override
        public boolean saveToSnapshot() {
            return emitFromTraverser(traverser)
                    && tryEmitToSnapshot(BroadcastKey.broadcastKey(index), new long[] {next, times.getWatermark(0)});
        }

        @Override
        protected void restoreFromSnapshot(Object key, Object value) {
            if (((BroadcastKey<?>) key).key().equals(index)) {
                next = ((long[]) value)[0];
                times.restoreWatermark(0, ((long[]) value)[1]);
            }
        }
    }

    static StreamSource<Event> source(String[] arguments) {
        return Sources.streamFromProcessorWithWatermarks(
                "rows",
                true,
                policy -> ProcessorMetaSupplier.of(THREADS, () -> new Rows(arguments, policy)));
    }

    static AggregateOperation1<Event, ?, ?> aggregate(String name) {
        return switch (name) {
            case "count" -> counting();
            case "sum" -> summingLong(Event::value);
            case "avg" -> averagingDouble(Event::price);
            case "max" -> AggregateOperations.mapping(Event::value, maxBy(ComparatorEx.<Long>naturalOrder()));
            default -> throw new IllegalArgumentException("Jet has no aggregate " + name);
        };
    }

    @SuppressWarnings("unchecked")
    static AggregateOperation1<Event, ?, Object[]> aggregates(List<String> names) {
        var builder = AggregateOperations.<Event>allOfBuilder();
        var tags = names.stream()
                .map(name -> builder.add((AggregateOperation1<Event, ?, Object>) aggregate(name)))
                .toList();
        var list = new java.util.ArrayList<>(tags);
        return builder.build(items -> list.stream().map(items::get).toArray());
    }

    static void add(KeyedWindowResult<Long, Object[]> row) {
        Object[] values = row.result();
        int wholes = 0;
        double real = 0;
        long[] whole = new long[values.length];
        for (Object value : values) {
            if (value instanceof Double number) {
                real += number;
            } else {
                whole[wholes++] = (Long) value;
            }
        }
        Results.ALL.add(row.end() / Feed.MICROSECONDS, row.key(), java.util.Arrays.copyOf(whole, wholes), real);
    }

    static Sink<KeyedWindowResult<Long, Object[]>> sink() {
        return SinkBuilder.sinkBuilder("checksum", context -> Results.ALL)
                .<KeyedWindowResult<Long, Object[]>>receiveFn((results, row) -> add(row))
                .preferredLocalParallelism(1)
                .build();
    }

    public static void main(String[] arguments) throws InterruptedException {
        Work work = Work.of(arguments);
        if (!work.shape().equals("windows")) {
            throw new IllegalArgumentException("Jet is not asked for " + work.shape());
        }
        System.setProperty("hazelcast.phone.home.enabled", "false");
        System.setProperty("hazelcast.logging.type", "none");
        Config config = new Config();
        config.getJetConfig().setEnabled(true).setResourceUploadEnabled(true).setCooperativeThreadCount(THREADS);
        var join = config.getNetworkConfig().setPublicAddress("127.0.0.1").getJoin();
        join.getAutoDetectionConfig().setEnabled(false);
        join.getMulticastConfig().setEnabled(false);
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        config.setProperty("hazelcast.socket.bind.any", "false");
        // The benchmark suspends this process for minutes, after which no operation shall have timed out.
        config.setProperty("hazelcast.operation.call.timeout.millis", "3600000");

        Pipeline pipeline = Pipeline.create();
        pipeline.readFrom(source(arguments))
                .withNativeTimestamps(0)
                .groupingKey(Event::key)
                .window(WindowDefinition.sliding(work.steps() * Feed.MICROSECONDS, Feed.MICROSECONDS))
                .aggregate(aggregates(work.aggregates()))
                .writeTo(sink());
        JobConfig job = new JobConfig()
                .setProcessingGuarantee(
                        work.exactlyOnce() ? ProcessingGuarantee.EXACTLY_ONCE : ProcessingGuarantee.NONE)
                .setSnapshotIntervalMillis(1000);
        HazelcastInstance member = Hazelcast.newHazelcastInstance(config);
        try {
            Job running = member.getJet().newJob(pipeline, job);
            running.getFuture().whenComplete((nothing, failure) -> Results.ALL.end(failure));
            Results.ALL.serve(work);
            running.cancel();
        } finally {
            member.shutdown();
        }
    }
}
