package benchmarks;

import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;

/** Flink SQL's HOP in a cluster in this process: two slots, state on the heap, checkpoints every second. */
public final class Flink {
    static final int PARALLELISM = 2;
    static final long ROWS = 1L << 40;
    static final Map<String, String> AGGREGATES = Map.of(
            "count", "COUNT(*)", "sum", "SUM(number)", "avg", "AVG(price)", "max", "MAX(number)");

    private Flink() {}

    static RowData row(Work work, long keys, long index) {
        // The two readers get a half of the indexes each, in order; they shall take turns in the numbers of rows.
        long half = ROWS / PARALLELISM;
        long number = index < half ? PARALLELISM * index : PARALLELISM * (index - half) + 1;
        TimestampData time = TimestampData.fromEpochMillis(Feed.time(number, work) / 1000);
        return GenericRowData.of(Feed.key(number, keys), number, Feed.price(number), time);
    }

    static void feed(
            StreamExecutionEnvironment environment,
            StreamTableEnvironment tables,
            String name,
            Work work,
            long keys) {
        var type = (RowType) DataTypes.ROW(
                        DataTypes.FIELD("key", DataTypes.BIGINT()),
                        DataTypes.FIELD("number", DataTypes.BIGINT()),
                        DataTypes.FIELD("price", DataTypes.DOUBLE()),
                        DataTypes.FIELD("ts", DataTypes.TIMESTAMP(3)))
                .getLogicalType();
        var source = new DataGeneratorSource<RowData>(
                index -> row(work, keys, index), ROWS, InternalTypeInfo.of(type));
        var rows = environment.fromSource(source, WatermarkStrategy.noWatermarks(), name);
        // A millisecond behind: rows of the same millisecond follow the first.
        var schema = Schema.newBuilder().watermark("ts", "ts - INTERVAL '0.001' SECOND").build();
        tables.createTemporaryView(name, rows, schema);
    }

    static String query(Work work) {
        String aggregates = work.aggregates().stream().map(AGGREGATES::get).collect(Collectors.joining(", "));
        String hop = "HOP(TABLE feed, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '" + work.steps() + "' SECOND(4))";
        String session = "SESSION(TABLE feed PARTITION BY `key`, DESCRIPTOR(ts), INTERVAL '1' SECOND)";
        String by = ") GROUP BY window_start, window_end, `key`";
        return switch (work.shape()) {
            case "windows" -> "SELECT window_end, `key`, " + aggregates + " FROM TABLE(" + hop + by;
            case "sessions" -> "SELECT window_end, `key`, " + aggregates + " FROM TABLE(" + session + by;
            case "busiest" -> "SELECT window_end, CAST(0 AS BIGINT), MAX(c) FROM (SELECT window_start, window_end, "
                    + "`key`, COUNT(*) AS c FROM TABLE(" + hop + by + ") GROUP BY window_start, window_end";
            case "both" -> "WITH sides AS (SELECT ts, `key`, 1 AS entry, 0 AS opening FROM feed UNION ALL "
                    + "SELECT ts, `key`, 0 AS entry, 1 AS opening FROM openings) "
                    + "SELECT window_end, `key`, CAST(SUM(entry) AS BIGINT), CAST(SUM(opening) AS BIGINT) "
                    + "FROM TABLE(TUMBLE(TABLE sides, DESCRIPTOR(ts), INTERVAL '1' SECOND)" + by
                    + " HAVING SUM(entry) > 0 AND SUM(opening) > 0";
            default -> throw new IllegalArgumentException("Flink is not asked for " + work.shape());
        };
    }

    static int add(Row row) {
        long[] whole = new long[row.getArity() - 2];
        int wholes = 0;
        double real = 0;
        for (int place = 2; place < row.getArity(); place++) {
            if (row.getField(place) instanceof Double number) {
                real += number;
            } else {
                whole[wholes++] = (Long) row.getField(place);
            }
        }
        long end = ((LocalDateTime) row.getField(0)).toEpochSecond(ZoneOffset.UTC);
        Results.ALL.add(end, (Long) row.getField(1), java.util.Arrays.copyOf(whole, wholes), real);
        return 0;
    }

    public static void main(String[] arguments) throws Exception {
        Work work = Work.of(arguments);
        try (var cluster = new LocalCluster(PARALLELISM)) {
            var environment = cluster.environment;
            environment.getConfig().enableObjectReuse();
            if (work.exactlyOnce()) {
                environment.enableCheckpointing(1000, CheckpointingMode.EXACTLY_ONCE);
            }
            var tables = StreamTableEnvironment.create(environment);
            feed(environment, tables, "feed", work, work.keys());
            if (work.shape().equals("both")) {
                feed(environment, tables, "openings", work, 2 * work.keys());
            }
            var results = tables.sqlQuery(query(work));
            tables.toDataStream(results)
                    .map(Flink::add)
                    .returns(Integer.class)
                    .setParallelism(1)
                    .sinkTo(new DiscardingSink<>())
                    .setParallelism(1);
            var job = environment.executeAsync();
            job.getJobExecutionResult().whenComplete((nothing, failure) -> Results.ALL.end(failure));
            Results.ALL.serve(work);
            job.cancel().get();
        }
    }
}
