package strandline.jvm;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.Sink;
import scala.collection.immutable.Map;

/** Where a stream writes to: one commit per batch, known by query and batch, so never twice. */
public final class TableSink implements Sink {
  private final Map options;
  /** The save mode of each batch: in output mode complete, a batch is the whole result. */
  private final String mode;

  TableSink(Map options, String mode) {
    this.options = options;
    this.mode = mode;
  }

  public void addBatch(long batch, Dataset given) {
    org.apache.spark.sql.classic.Dataset data = (org.apache.spark.sql.classic.Dataset) given;
    SparkSession session = (SparkSession) data.sparkSession();
    // The plan of a batch keeps state; planned anew it would be another query. Its rows are not.
    Dataset rows =
        session.internalCreateDataFrame(data.queryExecution().toRdd(), data.schema(), false);
    String query = session.sparkContext().getLocalProperty("sql.streaming.queryId");
    // As the data source says it: a query that goes on with the other road is the same query.
    Map marked = (Map) options.updated("txnAppId", "spark-query:" + query);
    Tables.save(rows, mode, (Map) marked.updated("txnVersion", Long.toString(batch)), null);
  }

  public String toString() {
    return "Strandline";
  }
}
