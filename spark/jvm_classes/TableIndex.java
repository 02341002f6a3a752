package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map.Map4;
import scala.collection.immutable.Seq;

/** The files of one version of a table, chosen by Python's planner for each scan anew. */
public final class TableIndex implements FileIndex {
  /** Not read itself: stands in analysed plans until ScanRule prepares it. */
  static final String UNPLANNED = "unplanned";
  /** Files of which every row is visible. */
  static final String WHOLE = "whole";
  /** Files of which some rows are not. */
  static final String CUT = "cut";
  private static final long BLOCK_BYTES = 128L << 20;

  /** What Python said of the table when it was opened. */
  final JsonNode info;
  final String part;
  /** What rows are read, as text: the table, its version, and bounds. Never a secret. */
  private final String state;
  /**
   * Whether each query moves on to the newest version. Then it stands for other rows than a DataFrame
   * of the version that was first seen, and Spark's cache must not give the one for the other.
   */
  private final boolean moves;

  TableIndex(JsonNode info, String part) {
    this.info = info;
    this.part = part;
    this.state = info.get("state").toString();
    this.moves =
        part.equals(UNPLANNED) && info.get("live").asBoolean() && info.has("inCatalog");
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    return Scala.seq(new PartitionDirectory(InternalRow.empty(), Scala.seq(files(dataFilters))));
  }

  private List files(Seq filters) {
    ObjectNode request = Bridge.request("plan");
    request.set("state", info.get("state"));
    request.put("part", part);
    request.set("filters", FilterJson.of(filters));
    ByteBuffer answer = ByteBuffer.wrap(Bridge.call(request, null));
    answer.get();
    int count = answer.getInt();
    long[] sizes = longs(answer, count);
    long[] times = longs(answer, count);
    long[] bases = longs(answer, count);
    long[] windows = longs(answer, count);
    long[] footerBytes = longs(answer, count);
    long[] footerHashes = longs(answer, count);
    byte[] names = new byte[answer.remaining()];
    answer.get(names);
    String[] paths = new String(names, StandardCharsets.UTF_8).split("\n");
    JsonNode root = info.get("root");
    String authority = root.get("authority").isNull() ? null : root.get("authority").asText();
    String folder = root.get("path").asText() + "/";
    String scheme = root.get("scheme").asText();
    ArrayList made = new ArrayList(count);
    for (int i = 0; i < count; i++) {
      Path path = new Path(scheme, authority, folder + paths[i]);
      FileStatus status = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, times[i], path);
      Map4 constants =
          new Map4(
              TableFormat.BASE,
              Long.valueOf(bases[i]),
              TableFormat.WINDOW,
              Long.valueOf(windows[i]),
              CheckedReader.FOOTER_BYTES,
              Long.valueOf(footerBytes[i]),
              CheckedReader.FOOTER_HASH,
              Long.valueOf(footerHashes[i]));
      made.add(new FileStatusWithMetadata(status, constants));
    }
    return made;
  }

  private static long[] longs(ByteBuffer answer, int count) {
    long[] values = new long[count];
    answer.asLongBuffer().get(values);
    answer.position(answer.position() + 8 * count);
    return values;
  }

  public String[] inputFiles() {
    List found = files(Scala.nothing());
    String[] names = new String[found.size()];
    int next = 0;
    for (Iterator each = found.iterator(); each.hasNext(); ) {
      FileStatusWithMetadata file = (FileStatusWithMetadata) each.next();
      names[next++] = file.fileStatus().getPath().toUri().toString();
    }
    return names;
  }

  /** None: Spark refuses to insert into a relation without one path, so no file is left unlisted. */
  public Seq rootPaths() {
    return Scala.nothing();
  }

  public void refresh() {}

  public long sizeInBytes() {
    return info.get("size").asLong();
  }

  public StructType partitionSchema() {
    return new StructType();
  }

  public String toString() {
    return "Strandline(" + state + ", " + part + ")";
  }

  public int hashCode() {
    return (state.hashCode() * 31 + part.hashCode()) * 31 + Boolean.hashCode(moves);
  }

  public boolean equals(Object other) {
    if (!(other instanceof TableIndex)) {
      return false;
    }
    TableIndex index = (TableIndex) other;
    return state.equals(index.state) && part.equals(index.part) && moves == index.moves;
  }
}
