package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

/**
 * Which version a query reads. A DataFrame keeps the version it was made with. Spark keeps the plan
 * of a table in its catalog, so there each query looks for the newest version once, for all its scans.
 */
final class Versions {
  private static final Map BY_QUERY = new WeakHashMap();

  private Versions() {}

  static JsonNode current(LogicalRelation table, JsonNode opened) {
    if (table.catalogTable().isEmpty() || !opened.get("live").asBoolean()) {
      return opened;
    }
    scala.Option query = QueryPlanningTracker.get();
    if (query.isEmpty()) {
      return newest(opened);
    }
    Map known;
    synchronized (BY_QUERY) {
      known = (Map) BY_QUERY.get(query.get());
      if (known == null) {
        known = new HashMap();
        BY_QUERY.put(query.get(), known);
      }
    }
    synchronized (known) {
      String state = opened.get("state").toString();
      JsonNode found = (JsonNode) known.get(state);
      if (found == null) {
        found = newest(opened);
        known.put(state, found);
      }
      return found;
    }
  }

  private static JsonNode newest(JsonNode opened) {
    ObjectNode request = Bridge.request("newest");
    request.set("state", opened.get("state"));
    request.set("seen", opened.get("seen"));
    return Bridge.ask(request, null);
  }
}
