package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;

/** A table as a stream: Python says where batches end, and each batch is one of Spark's own scans. */
public final class TableStream implements Source, SupportsTriggerAvailableNow {
  private final SparkSession session;
  private final Map options;
  private final TableRelation first;
  private final String id;

  TableStream(SparkSession session, Map options) {
    this.session = session;
    this.options = options;
    ObjectNode request = Bridge.request("stream");
    request.set("options", Tables.json(options));
    JsonNode info = Bridge.ask(request, null);
    this.id = info.get("stream").asText();
    this.first = Tables.relation(session, info, options);
  }

  public StructType schema() {
    return first.schema();
  }

  public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
      org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
    ObjectNode request = asked("stream_latest");
    put(request, "start", start);
    JsonNode end = Bridge.ask(request, null);
    return end.isNull() ? null : new Place(end.toString());
  }

  public void prepareForTriggerAvailableNow() {
    Bridge.call(asked("stream_prepare"), null);
  }

  public Dataset getBatch(Option start, Offset end) {
    ObjectNode request = asked("stream_batch");
    put(
        request,
        "start",
        start.isEmpty()
            ? null
            : (org.apache.spark.sql.connector.read.streaming.Offset) start.get());
    put(request, "end", end);
    TableRelation batch = Tables.relation(session, Bridge.ask(request, null), options);
    return org.apache.spark.sql.classic.Dataset.ofRows(
        session, LogicalRelation$.MODULE$.apply(batch, true));
  }

  public Option getOffset() {
    throw new UnsupportedOperationException("strandline: Spark asks for the latest offset instead");
  }

  public void stop() {
    Bridge.call(asked("stream_stop"), null);
  }

  public String toString() {
    return "Strandline" + first.location();
  }

  private ObjectNode asked(String operation) {
    ObjectNode request = Bridge.request(operation);
    request.put("stream", id);
    return request;
  }

  private static void put(
      ObjectNode request,
      String name,
      org.apache.spark.sql.connector.read.streaming.Offset place) {
    try {
      request.set(name, place == null ? null : Bridge.JSON.readTree(place.json()));
    } catch (java.io.IOException error) {
      throw new IllegalArgumentException(
          "strandline: the checkpoint holds an offset that is not ours: " + place.json(), error);
    }
  }

  /** Before which row a batch ends, as text. */
  private static final class Place extends Offset {
    private final String text;

    Place(String text) {
      this.text = text;
    }

    public String json() {
      return text;
    }
  }
}
