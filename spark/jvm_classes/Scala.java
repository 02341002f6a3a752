package strandline.jvm;

import java.util.Arrays;
import java.util.List;
import scala.jdk.javaapi.CollectionConverters;

/** Between Java's collections and Scala's. */
final class Scala {
  private Scala() {}

  static scala.collection.immutable.Seq seq(List values) {
    return (scala.collection.immutable.Seq) CollectionConverters.asScala(values).toSeq();
  }

  static scala.collection.immutable.Seq seq(Object one) {
    return seq(Arrays.asList(new Object[] {one}));
  }

  static scala.collection.immutable.Seq nothing() {
    return seq(new java.util.ArrayList());
  }

  static List list(scala.collection.Seq values) {
    return CollectionConverters.asJava(values);
  }

  static java.util.Map map(scala.collection.Map values) {
    return CollectionConverters.asJava(values);
  }

  static scala.Option none() {
    return scala.Option.empty();
  }
}
