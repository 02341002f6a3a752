package strandline.jvm;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/** What a write answers: the columns that were written. Spark asks for no more, and reads nothing. */
public final class SavedRows extends BaseRelation {
  private final SQLContext context;
  private final StructType columns;

  SavedRows(SQLContext context, StructType columns) {
    this.context = context;
    this.columns = columns;
  }

  public SQLContext sqlContext() {
    return context;
  }

  public StructType schema() {
    return columns;
  }
}
