package benchmarks;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A piece of work, as the command line names it: {@code shape=windows keys=1000 steps=60 …}. */
record Work(
        String shape,
        long keys,
        long steps,
        List<String> aggregates,
        long density,
        boolean exactlyOnce,
        long warmUp,
        long measured,
        long settling)
        implements java.io.Serializable {
    static Work of(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            given.put(pair[0], pair[1]);
        }
        return new Work(
                given.get("shape"),
                Long.parseLong(given.get("keys")),
                Long.parseLong(given.get("steps")),
                Arrays.asList(given.get("aggregates").split(",")),
                Long.parseLong(given.get("density")),
                given.get("guarantee").equals("exactly-once"),
                Long.parseLong(given.get("warmUp")),
                Long.parseLong(given.get("measured")),
                Long.parseLong(given.get("settling")));
    }

    boolean sessions() {
        return shape.equals("sessions");
    }
}
