package strandline.jvm;

import java.util.Locale;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Map;

/** `format("strandline")` and `USING strandline`. */
public final class TableSource
    implements DataSourceRegister,
        RelationProvider,
        SchemaRelationProvider,
        CreatableRelationProvider,
        StreamSourceProvider,
        StreamSinkProvider {
  public String shortName() {
    return "strandline";
  }

  public BaseRelation createRelation(SQLContext context, Map options) {
    return Tables.open((SparkSession) context.sparkSession(), options, false);
  }

  /** Spark's catalog keeps the columns of the day a table was made; the table itself knows better. */
  public BaseRelation createRelation(SQLContext context, Map options, StructType schema) {
    return Tables.open((SparkSession) context.sparkSession(), options, true);
  }

  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, Map options, Dataset rows) {
    Tables.save(rows, mode.name().toLowerCase(Locale.ROOT), options, null);
    // The rows are committed. Opening the table for a scan may fail all the same, where the JVM does
    // not reach the store; that would look like a failed write, and rows would be written again.
    return new SavedRows(context, rows.schema());
  }

  public Tuple2 sourceSchema(SQLContext context, Option schema, String name, Map options) {
    // A stream of a keyed table is that of its changes, which may tell deletes apart.
    Map all = (Map) options.updated("allRows", "true");
    SparkSession session = (SparkSession) context.sparkSession();
    return new Tuple2(shortName(), Tables.open(session, all, false).schema());
  }

  public Source createSource(
      SQLContext context, String metadataPath, Option schema, String name, Map options) {
    return new TableStream((SparkSession) context.sparkSession(), options);
  }

  public Sink createSink(SQLContext context, Map options, Seq partitions, OutputMode mode) {
    boolean replaces = mode.equals(OutputMode.Complete());
    if (!replaces && !mode.equals(OutputMode.Append())) {
      throw new IllegalArgumentException(
          "strandline: a stream writes to a table in output mode append or complete, not "
              + mode.toString().toLowerCase(Locale.ROOT)
              + "; use foreachBatch for others. Nothing was written.");
    }
    return new TableSink(options, replaces ? "overwrite" : "append");
  }
}
