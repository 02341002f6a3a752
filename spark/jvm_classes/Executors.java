package strandline.jvm;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.JobArtifactSet;
import org.apache.spark.SparkContext;

/** Sends our classes to executors, which take them before the next task that needs one. */
final class Executors {
  private static final Set KNOWING = new HashSet();

  private Executors() {}

  /** Once per application, and once more for each session that keeps its jars to itself. */
  static void know(SparkContext context) {
    if (context.isLocal()) {
      return; // tasks run here
    }
    String who = context.applicationId() + JobArtifactSet.getCurrentJobArtifactState();
    synchronized (KNOWING) {
      if (KNOWING.add(who)) {
        String jar = Executors.class.getProtectionDomain().getCodeSource().getLocation().toString();
        context.addJar(jar);
      }
    }
  }
}
