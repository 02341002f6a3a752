package strandline.jvm;

import java.util.ArrayList;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.FileSourceConstantMetadataStructField;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Parquet, with two more constants per file in the `_metadata` column: what sequence numbers count
 * from, and the start of the time window. Lives on the driver; executors get Spark's own reader,
 * behind a look at each file's footer.
 */
public class TableFormat extends ParquetFileFormat {
  static final String BASE = "_strandline_base";
  static final String WINDOW = "_strandline_window";

  public Seq metadataSchemaFields() {
    ArrayList fields = new ArrayList(Scala.list(super.metadataSchemaFields()));
    fields.add(FileSourceConstantMetadataStructField.apply(BASE, DataTypes.LongType, false));
    fields.add(FileSourceConstantMetadataStructField.apply(WINDOW, DataTypes.LongType, false));
    return Scala.seq(fields);
  }

  public Function1 buildReaderWithPartitionValues(
      SparkSession session,
      StructType dataSchema,
      StructType partitionSchema,
      StructType requiredSchema,
      Seq filters,
      Map options,
      Configuration conf) {
    if (!options.contains(ScanRule.PLANNED)) {
      throw new IllegalStateException(
          "strandline: this plan was not prepared for reading. Something replaced Spark's"
              + " experimental.extraOptimizations; call strandline.spark.enable(spark) again.");
    }
    Executors.know(session.sparkContext());
    Function1 reader =
        new ParquetFileFormat()
            .buildReaderWithPartitionValues(
                session, dataSchema, partitionSchema, requiredSchema, filters, options, conf);
    boolean isLocal = ((String) options.apply(ScanRule.PLANNED)).equals("file");
    return new CheckedReader(session, reader, conf, isLocal);
  }

  public OutputWriterFactory prepareWrite(
      SparkSession session, Job job, Map options, StructType schema) {
    throw new UnsupportedOperationException(
        "strandline: Spark must not write files into a table by itself, no version would list them;"
            + " nothing was written. Write with format(\"strandline\").");
  }

  public String toString() {
    return "Strandline";
  }

  public int hashCode() {
    return TableFormat.class.hashCode();
  }

  public boolean equals(Object other) {
    return other instanceof TableFormat;
  }
}
