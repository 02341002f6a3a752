package strandline.jvm;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.SerializableConfiguration;
import scala.Function1;
import scala.collection.immutable.Map;
import scala.runtime.AbstractFunction1;

/**
 * Spark's reader of Parquet files, behind a look at the end of each: a file that does not end with
 * the footer that was committed is not read. The only one of our classes that runs in tasks.
 */
public final class CheckedReader extends AbstractFunction1 implements Serializable {
  static final String FOOTER_BYTES = "_strandline_footer_bytes";
  static final String FOOTER_HASH = "_strandline_footer_hash";
  private static final byte[] MAGIC = "PAR1".getBytes(StandardCharsets.US_ASCII);
  /** Behind the footer: its length, least byte first, and the magic. */
  private static final int TAIL_BYTES = 8;

  private final Function1 reader;
  /** Where stores are configured; null: files are local. */
  private final Broadcast configuration;

  CheckedReader(SparkSession session, Function1 reader, Configuration conf, boolean isLocal) {
    this.reader = reader;
    this.configuration =
        isLocal ? null : SerializableConfiguration.broadcast(session.sparkContext(), conf);
  }

  public Object apply(Object given) {
    PartitionedFile file = (PartitionedFile) given;
    Map promised = file.otherConstantMetadataColumnValues();
    int length = ((Number) promised.apply(FOOTER_BYTES)).intValue();
    long hash = ((Number) promised.apply(FOOTER_HASH)).longValue();
    byte[] end = new byte[length + TAIL_BYTES];
    try {
      if (configuration == null) {
        readLocal(file, end);
      } else {
        readFully(file, end);
      }
    } catch (java.io.FileNotFoundException error) {
      throw new IllegalStateException(
          "MissingFile: " + file.filePath() + " is listed by the table and is not in the store", error);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    } catch (Exception error) {
      throw new IllegalStateException("strandline: cannot open " + file.filePath(), error);
    }
    boolean isWhole = XXH64.hashUnsafeBytes(end, Platform.BYTE_ARRAY_OFFSET, length, 0) == hash;
    for (int i = 0; i < 4; i++) {
      isWhole &= end[length + i] == (byte) (length >>> 8 * i) && end[length + 4 + i] == MAGIC[i];
    }
    if (!isWhole) {
      throw damaged(file, "its footer does not have the checksum that the manifest gives");
    }
    return reader.apply(file);
  }

  private static void readLocal(PartitionedFile file, byte[] end) throws IOException {
    RandomAccessFile opened = new RandomAccessFile(file.toPath().toUri().getPath(), "r");
    try {
      if (opened.length() != file.fileSize()) {
        throw damaged(
            file,
            "it has " + opened.length() + " bytes, and the manifest says " + file.fileSize());
      }
      opened.seek(file.fileSize() - end.length);
      opened.readFully(end);
    } finally {
      opened.close();
    }
  }

  /** One request: the size is known, so that the store is not asked for it. */
  private void readFully(PartitionedFile file, byte[] end) throws Exception {
    Path path = file.toPath();
    Configuration conf = ((SerializableConfiguration) configuration.value()).value();
    FutureDataInputStreamBuilder opening = path.getFileSystem(conf).openFile(path);
    opening.opt("fs.option.openfile.length", Long.toString(file.fileSize()));
    opening.opt("fs.option.openfile.read.policy", "random");
    FSDataInputStream opened = (FSDataInputStream) opening.build().get();
    try {
      // Not by position: afterwards that goes back to where it was, which S3A's stream can refuse.
      opened.seek(file.fileSize() - end.length);
      opened.readFully(end);
    } finally {
      opened.close();
    }
  }

  private static IllegalStateException damaged(PartitionedFile file, String why) {
    return new IllegalStateException(
        "CorruptTable: " + file.filePath() + " is damaged: " + why + ". No row of it was read.");
  }
}
