package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

/** A table as Spark's analysis sees it: current names; ScanRule makes a scan of it. */
public final class TableRelation extends HadoopFsRelation implements InsertableRelation {
  private final JsonNode info;
  private final Map given;

  TableRelation(JsonNode info, Map given, SparkSession session) {
    super(
        new TableIndex(info, TableIndex.UNPLANNED),
        new StructType(),
        (StructType) DataType.fromJson(info.get("schema").toString()),
        Scala.none(),
        new TableFormat(),
        given,
        session);
    this.info = info;
    this.given = given;
  }

  /** SQL's INSERT: Python writes and commits, never Spark by itself. */
  public void insert(Dataset rows, boolean overwrite) {
    Tables.save(rows, overwrite ? "overwrite" : "append", given, info);
  }
}
