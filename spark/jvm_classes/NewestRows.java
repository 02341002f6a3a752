package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.NullsLast$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.RowNumber;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WindowGroupLimit;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import scala.runtime.AbstractFunction1;

/**
 * Of a keyed table, the row of each key with the greatest `_ts` and, of equal ones, `_seq`. Filters
 * are about these rows, so most of them must wait until they are found.
 */
final class NewestRows {
  /** Columns that are read for finding winners, by their name in the files. */
  final Map columns = new LinkedHashMap();

  private final JsonNode info;
  private final List table;
  private final ArrayList keys = new ArrayList();
  private final Set keyNames = new HashSet();

  /** `table`: the columns that Spark knows. */
  NewestRows(JsonNode info, List table) {
    this.info = info;
    this.table = table;
    for (Iterator each = info.get("key").iterator(); each.hasNext(); ) {
      JsonNode column = (JsonNode) each.next();
      String name = column.get("physical").asText();
      DataType type = DataType.fromJson(column.get("type").toString());
      keyNames.add(name);
      keys.add(made(name, type));
    }
    made("_ts", DataTypes.LongType);
    made("_seq", DataTypes.LongType);
    made("_deleted", DataTypes.BooleanType);
  }

  private AttributeReference made(String name, DataType type) {
    AttributeReference column =
        new AttributeReference(
            name, type, true, Metadata.empty(), NamedExpression.newExprId(), Scala.nothing());
    columns.put(name, column);
    return column;
  }

  /** Whether a column is only there to find winners, whatever has become of its nullability. */
  boolean isOwn(Attribute column) {
    for (Iterator each = columns.values().iterator(); each.hasNext(); ) {
      if (((Attribute) each.next()).exprId().equals(column.exprId())) {
        return true;
      }
    }
    return false;
  }

  /** Of all stored rows, those that count, if a condition holds for them; it may be null. */
  LogicalPlan over(LogicalPlan stored, Expression condition) {
    List order = Arrays.asList(new Object[] {descending("_ts"), descending("_seq")});
    LogicalPlan newest =
        new WindowGroupLimit(Scala.seq(keys), Scala.seq(order), new RowNumber(), 1, stored);
    Expression test = new Not((Expression) columns.get("_deleted"));
    List asked = afterwards();
    if (condition != null) {
      asked.add(condition);
    }
    for (Iterator each = asked.iterator(); each.hasNext(); ) {
      test = new And(test, (Expression) each.next());
    }
    return new Filter(test, newest);
  }

  private SortOrder descending(String name) {
    return new SortOrder(
        (Expression) columns.get(name), Descending$.MODULE$, NullsLast$.MODULE$, Scala.nothing());
  }

  /** Bounds that a reader asked for are about winners, like filters; the trim point is not. */
  private List afterwards() {
    ArrayList tests = new ArrayList();
    JsonNode bounds = info.get("state").get("winners");
    Expression seq = (Expression) columns.get("_seq");
    Expression ts = (Expression) columns.get("_ts");
    if (!bounds.get("start_seq").isNull()) {
      tests.add(new GreaterThanOrEqual(seq, literal(bounds.get("start_seq"))));
    }
    if (!bounds.get("end_seq").isNull()) {
      tests.add(new LessThan(seq, literal(bounds.get("end_seq"))));
    }
    if (!bounds.get("end_ts").isNull()) {
      tests.add(new LessThanOrEqual(ts, literal(bounds.get("end_ts"))));
    }
    return tests;
  }

  private static Literal literal(JsonNode value) {
    return new Literal(Long.valueOf(value.asLong()), DataTypes.LongType);
  }

  /**
   * What a condition says about the key and the least `_ts`, or null. The rows of a key have the same
   * key columns, and its winner has the greatest `_ts`: a winner passes wherever a loser does.
   */
  Expression before(Expression condition) {
    if (condition == null) {
      return null;
    }
    if (condition instanceof And) {
      Expression left = before(((And) condition).left());
      Expression right = before(((And) condition).right());
      return left == null ? right : right == null ? left : new And(left, right);
    }
    if (condition instanceof Or) {
      Expression left = before(((Or) condition).left());
      Expression right = before(((Or) condition).right());
      return left == null || right == null ? null : new Or(left, right);
    }
    return condition.deterministic() && (isLeastTime(condition) || isAboutKey(condition))
        ? condition
        : null;
  }

  private boolean isLeastTime(Expression e) {
    if (e instanceof GreaterThan) {
      return isTime(((GreaterThan) e).left()) && isLiteral(((GreaterThan) e).right());
    }
    if (e instanceof GreaterThanOrEqual) {
      GreaterThanOrEqual least = (GreaterThanOrEqual) e;
      return isTime(least.left()) && isLiteral(least.right());
    }
    if (e instanceof LessThan) {
      return isLiteral(((LessThan) e).left()) && isTime(((LessThan) e).right());
    }
    if (e instanceof LessThanOrEqual) {
      LessThanOrEqual least = (LessThanOrEqual) e;
      return isLiteral(least.left()) && isTime(least.right());
    }
    return false;
  }

  private static boolean isLiteral(Object e) {
    return e instanceof Literal;
  }

  private static boolean isTime(Object e) {
    // Users' columns never have such a name.
    return e instanceof AttributeReference && ((AttributeReference) e).name().equals("_ts");
  }

  private boolean isAboutKey(Expression e) {
    // Subqueries would run twice: below and above.
    if (e.references().isEmpty() || e.exists(new IsSubquery())) {
      return false;
    }
    for (Iterator each = table.iterator(); each.hasNext(); ) {
      AttributeReference column = (AttributeReference) each.next();
      if (e.references().contains(column)) {
        JsonNode physical = info.get("columns").get(column.name());
        if (physical == null || !keyNames.contains(physical.asText())) {
          return false;
        }
      }
    }
    return true;
  }

  private static final class IsSubquery extends AbstractFunction1 {
    public Object apply(Object e) {
      return Boolean.valueOf(e instanceof SubqueryExpression);
    }
  }
}
