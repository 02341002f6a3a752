package strandline.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.Seq;

/** Filters as JSON lists: an operator, then its parts. What is not known here is `["?"]`. */
final class FilterJson {
  private FilterJson() {}

  static ArrayNode of(Seq filters) {
    ArrayNode all = Bridge.JSON.createArrayNode();
    for (Iterator each = Scala.list(filters).iterator(); each.hasNext(); ) {
      all.add(node(each.next()));
    }
    return all;
  }

  private static ArrayNode list(String operator) {
    return Bridge.JSON.createArrayNode().add(operator);
  }

  private static ArrayNode node(Object part) {
    Expression e = (Expression) part; // the compiler sees some parts as mere tree nodes
    if (e instanceof And) {
      return list("and").add(node(((And) e).left())).add(node(((And) e).right()));
    }
    if (e instanceof Or) {
      return list("or").add(node(((Or) e).left())).add(node(((Or) e).right()));
    }
    if (e instanceof Not) {
      return list("not").add(node(((Not) e).child()));
    }
    if (e instanceof IsNull) {
      return list("null").add(value(((IsNull) e).child()));
    }
    if (e instanceof IsNotNull) {
      return list("not").add(list("null").add(value(((IsNotNull) e).child())));
    }
    if (e instanceof BinaryComparison) {
      BinaryComparison compare = (BinaryComparison) e;
      return list(compare.symbol()).add(value(compare.left())).add(value(compare.right()));
    }
    if (e instanceof StartsWith) {
      StartsWith starts = (StartsWith) e;
      return list("prefix").add(value(starts.left())).add(value(starts.right()));
    }
    if (e instanceof In) {
      ArrayNode made = list("in").add(value(((In) e).value()));
      for (Iterator each = Scala.list(((In) e).list()).iterator(); each.hasNext(); ) {
        made.add(value(each.next()));
      }
      return made;
    }
    if (e instanceof InSet) {
      Expression child = (Expression) ((InSet) e).child();
      ArrayNode made = list("in").add(value(child));
      scala.collection.Iterator each = ((InSet) e).hset().iterator();
      while (each.hasNext()) {
        made.add(literal(each.next(), child.dataType()));
      }
      return made;
    }
    ArrayNode plain = value(e); // a boolean column or TRUE by itself
    return plain.get(0).asText().equals("?") ? plain : list("true").add(plain);
  }

  /** A column, a field of one, or a literal. */
  private static ArrayNode value(Object part) {
    Expression e = (Expression) part;
    if (e instanceof Literal) {
      return literal(((Literal) e).value(), e.dataType());
    }
    if (e instanceof AttributeReference) {
      String name = ((AttributeReference) e).name();
      return isPlain(e.dataType())
          ? list("column").add(name.equals(TableFormat.WINDOW) ? "_window" : name)
          : list("?");
    }
    if (e instanceof GetStructField) {
      GetStructField field = (GetStructField) e;
      ArrayNode parent = path(field.child());
      return parent == null || !isPlain(e.dataType())
          ? list("?")
          : parent.add(field.extractFieldName());
    }
    if (e instanceof Coalesce) {
      return hidden((Coalesce) e);
    }
    if (e instanceof Cast) {
      Expression inner = (Expression) ((Cast) e).child();
      return isExact(inner.dataType(), e.dataType()) ? value(inner) : list("?");
    }
    return list("?");
  }

  /** The way to a struct, without asking whether it can be compared itself. */
  private static ArrayNode path(Object e) {
    if (e instanceof AttributeReference) {
      return list("column").add(((AttributeReference) e).name());
    }
    if (e instanceof GetStructField) {
      GetStructField field = (GetStructField) e;
      ArrayNode parent = path(field.child());
      return parent == null ? null : parent.add(field.extractFieldName());
    }
    return null;
  }

  /** ScanRule's own expressions for `_seq` and `_ts`; users' columns never have these names. */
  private static ArrayNode hidden(Coalesce e) {
    Expression first = (Expression) e.children().head();
    if (e.children().size() == 2 && first instanceof AttributeReference) {
      String name = ((AttributeReference) first).name();
      if (name.equals("_seq") || name.equals("_ts")) {
        return list("column").add(name);
      }
    }
    return list("?");
  }

  /** Whether a cast keeps every value and the order, so that it may be looked through. */
  private static boolean isExact(DataType from, DataType to) {
    int source = width(from);
    int target = width(to);
    if (source > 0 && target > 0) {
      return source <= target;
    }
    if (to.equals(DataTypes.DoubleType)) {
      return from.equals(DataTypes.FloatType) || (source > 0 && source <= 4);
    }
    return false;
  }

  private static int width(DataType type) {
    if (type.equals(DataTypes.ByteType)) {
      return 1;
    }
    if (type.equals(DataTypes.ShortType)) {
      return 2;
    }
    if (type.equals(DataTypes.IntegerType)) {
      return 4;
    }
    return type.equals(DataTypes.LongType) ? 8 : 0;
  }

  /** Text with a collation of its own compares in its own way. */
  private static boolean isPlain(DataType type) {
    return !type.typeName().startsWith("string") || type.equals(DataTypes.StringType);
  }

  private static ArrayNode literal(Object value, DataType type) {
    if (!isPlain(type)) {
      return list("?");
    }
    ArrayNode made = list("literal").add(type.typeName().replaceAll("\\(.*", ""));
    if (value == null) {
      return made.addNull();
    }
    if (value instanceof byte[]) {
      return made.add(java.util.Base64.getEncoder().encodeToString((byte[]) value));
    }
    if (value instanceof Float) {
      return made.add(Double.toString(((Float) value).doubleValue()));
    }
    return made.add(value.toString());
  }
}
