package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Map;

/** Opening and saving tables through Python. */
public final class Tables {
  private static final String[][] SCAN_OPTIONS = {
    {"ignoreMissingFiles", "false"},
    {"ignoreCorruptFiles", "false"},
    {"mergeSchema", "false"},
    {"datetimeRebaseMode", "CORRECTED"},
    {"parquet.page.verify-checksum.enabled", "true"},
    // No checksum covers page indexes and bloom filters, and none is compared when Parquet looks into
    // a dictionary for what to skip: a flipped bit there would lose rows in silence.
    {"parquet.filter.columnindex.enabled", "false"},
    {"parquet.filter.bloom.enabled", "false"},
    {"parquet.filter.dictionary.enabled", "false"},
  };

  private Tables() {}

  /** `scheme`: of the URLs of the files. */
  static Map scanOptions(String scheme) {
    Map options = (Map) scala.collection.immutable.Map$.MODULE$.empty();
    options = (Map) options.updated(ScanRule.PLANNED, scheme);
    for (int i = 0; i < SCAN_OPTIONS.length; i++) {
      options = (Map) options.updated(SCAN_OPTIONS[i][0], SCAN_OPTIONS[i][1]);
    }
    return options;
  }

  static ObjectNode json(Map options) {
    ObjectNode made = Bridge.JSON.createObjectNode();
    for (Iterator each = Scala.map(options).entrySet().iterator(); each.hasNext(); ) {
      java.util.Map.Entry entry = (java.util.Map.Entry) each.next();
      made.put((String) entry.getKey(), (String) entry.getValue());
    }
    return made;
  }

  /** `inCatalog`: whether Spark's catalog asks, whose tables are live. */
  static TableRelation open(SparkSession session, Map options, boolean inCatalog) {
    ObjectNode request = Bridge.request("open");
    request.set("options", json(options));
    ObjectNode info = (ObjectNode) Bridge.ask(request, session);
    if (inCatalog) {
      info.put("inCatalog", true);
    }
    return relation(session, info, options);
  }

  static TableRelation relation(SparkSession session, JsonNode info, Map options) {
    ScanRule.install(session);
    return new TableRelation(info, options, session);
  }

  /** For Python, which has opened the table already and says what it found. */
  public static Dataset frame(SparkSession session, String info) throws java.io.IOException {
    Map options = (Map) scala.collection.immutable.Map$.MODULE$.empty();
    return session.baseRelationToDataFrame(relation(session, Bridge.JSON.readTree(info), options));
  }

  /** For Python: the rule that prepares scans, in a session that has not met a table yet. */
  public static void prepare(SparkSession session) {
    ScanRule.install(session);
  }

  /** `relation`: what the names of the rows were taken from; null: the rows' own names count. */
  static void save(Dataset rows, String mode, Map options, JsonNode relation) {
    ObjectNode request = Bridge.request("save");
    request.put("mode", mode);
    request.set("options", json(options));
    request.set("relation", relation);
    Bridge.call(request, rows);
  }
}
