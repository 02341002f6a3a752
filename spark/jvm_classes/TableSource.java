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
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

/** `format("strandline")` and `USING strandline`. */
public final class TableSource
    implements DataSourceRegister,
        RelationProvider,
        SchemaRelationProvider,
        CreatableRelationProvider {
  public String shortName() {
    return "strandline";
  }

  public BaseRelation createRelation(SQLContext context, Map options) {
    return Tables.open((SparkSession) context.sparkSession(), options);
  }

  /** Spark's catalog keeps the columns of the day a table was made; the table itself knows better. */
  public BaseRelation createRelation(SQLContext context, Map options, StructType schema) {
    return createRelation(context, options);
  }

  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, Map options, Dataset rows) {
    Tables.save(rows, mode.name().toLowerCase(Locale.ROOT), options);
    return createRelation(context, options);
  }
}
