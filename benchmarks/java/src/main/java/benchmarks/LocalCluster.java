package benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A cluster of Flink in this process, on loopback: state on the heap, checkpoints in a directory that goes with it. */
final class LocalCluster implements AutoCloseable {
    private final Path directory = Files.createTempDirectory("flink-benchmark-");
    final StreamExecutionEnvironment environment;

    LocalCluster(int slots) throws IOException {
        Configuration configuration = new Configuration();
        configuration.setString("rest.address", "127.0.0.1");
        configuration.setString("rest.bind-address", "127.0.0.1");
        configuration.setString("rest.bind-port", "0");
        configuration.setString("table.local-time-zone", "UTC");
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("taskmanager.numberOfTaskSlots", String.valueOf(slots));
        // A benchmark suspends this process for minutes, after which nothing shall have timed out.
        for (String timeout : List.of("heartbeat.timeout", "pekko.ask.timeout", "execution.checkpointing.timeout")) {
            configuration.setString(timeout, "1 h");
        }
        configuration.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, directory.toUri().toString());
        environment = StreamExecutionEnvironment.createLocalEnvironment(slots, configuration);
    }

    @Override
    public void close() throws IOException {
        try (var files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }
}
