package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PreciseTimestampConversion;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.runtime.AbstractPartialFunction;

/** One table in one query: a scan by physical names, and current names and hidden columns on top. */
final class TableScan {
  private static final String[] OURS = {"row_index", TableFormat.BASE, TableFormat.WINDOW};
  private final LogicalRelation table;
  private final HadoopFsRelation relation;
  private final JsonNode info;
  /** What is read, and which rows of it. */
  private Expression condition;
  private Set needed;
  /** Of a keyed table, else null. */
  private NewestRows newest;

  /** `condition`: a filter right above the table, or null. */
  TableScan(LogicalRelation table, Expression condition, Set needed) {
    this.table = table;
    this.relation = (HadoopFsRelation) table.relation();
    this.condition = condition;
    this.needed = needed;
    this.info = Versions.current(table, ((TableIndex) relation.location()).info);
  }

  LogicalPlan plan() {
    return info.get("key").isNull() ? stored() : newest();
  }

  /** The newest row of each key; then the condition, and the columns that are wanted above it. */
  private LogicalPlan newest() {
    Expression asked = condition;
    Set wanted = needed;
    newest = new NewestRows(info, Scala.list(table.output()));
    condition = newest.before(asked);
    if (needed != null && asked != null) {
      needed = new HashSet(needed);
      scala.collection.Iterator each = asked.references().iterator();
      while (each.hasNext()) {
        needed.add(((Attribute) each.next()).exprId());
      }
    }
    LogicalPlan rows = newest.over(stored(), asked);
    ArrayList shown = new ArrayList();
    for (Iterator each = Scala.list(rows.output()).iterator(); each.hasNext(); ) {
      Attribute column = (Attribute) each.next();
      if (!newest.isOwn(column)
          && (wanted == null || wanted.contains(column.exprId()))) {
        shown.add(column);
      }
    }
    return new Project(Scala.seq(shown), rows);
  }

  /** All stored rows that are visible, and for which the condition holds. */
  private LogicalPlan stored() {
    LogicalPlan whole = new Part(TableIndex.WHOLE).plan();
    if (!info.get("cut").asBoolean()) {
      return whole;
    }
    ArrayList both = new ArrayList();
    both.add(whole);
    both.add(new Part(TableIndex.CUT).plan());
    return new Union(Scala.seq(both), false, false);
  }

  /** Files that are read in the same way. */
  private final class Part {
    private final String name;
    /** The columns of the files, by physical name. */
    private final LinkedHashMap files = new LinkedHashMap();
    private AttributeReference metadata;

    Part(String name) {
      this.name = name;
    }

    LogicalPlan plan() {
      HashMap columns = new HashMap();
      ArrayList shown = new ArrayList();
      for (Iterator each = Scala.list(table.output()).iterator(); each.hasNext(); ) {
        AttributeReference column = (AttributeReference) each.next();
        if (column.dataType() instanceof StructType && column.name().equals("_metadata")) {
          metadata = withOurFields(column);
        }
      }
      Expression test = condition;
      for (Iterator each = Scala.list(table.output()).iterator(); each.hasNext(); ) {
        AttributeReference column = (AttributeReference) each.next();
        boolean isShown = needed == null || needed.contains(column.exprId());
        if (isShown || (test != null && test.references().contains(column))) {
          Expression source = source(column);
          columns.put(column.exprId(), source);
          if (isShown) {
            boolean isItself = source == metadata && name.equals(TableIndex.WHOLE);
            shown.add(isItself ? (NamedExpression) metadata : alias(source, column));
          }
        }
      }
      if (newest != null) {
        for (Iterator each = newest.columns.values().iterator(); each.hasNext(); ) {
          AttributeReference column = (AttributeReference) each.next();
          shown.add(alias(stored(column.name(), column.dataType()), column));
        }
      }
      ArrayList tests = new ArrayList();
      if (name.equals(TableIndex.CUT)) {
        visible(tests);
      }
      if (test != null) {
        tests.add((Expression) test.transform(new Replace(columns)));
      }
      LogicalPlan made = scan();
      for (Iterator each = tests.iterator(); each.hasNext(); ) {
        Expression one = (Expression) each.next();
        made = made instanceof Filter
            ? new Filter(new And(((Filter) made).condition(), one), ((Filter) made).child())
            : new Filter(one, made);
      }
      return new Project(Scala.seq(shown), made);
    }

    private Alias alias(Expression source, AttributeReference column) {
      ExprId id = name.equals(TableIndex.CUT) ? NamedExpression.newExprId() : column.exprId();
      return new Alias(
          source, column.name(), id, Scala.nothing(), Scala.none(), Scala.nothing());
    }

    private LogicalPlan scan() {
      StructType schema = new StructType();
      ArrayList output = new ArrayList(files.values());
      for (Iterator each = output.iterator(); each.hasNext(); ) {
        AttributeReference column = (AttributeReference) each.next();
        schema = schema.add(column.name(), column.dataType(), true);
      }
      if (metadata != null) {
        output.add(metadata);
      }
      HadoopFsRelation read =
          new HadoopFsRelation(
              new TableIndex(info, name),
              new StructType(),
              schema,
              Scala.none(),
              relation.fileFormat(),
              Tables.scanOptions(info.get("root").get("scheme").asText()),
              relation.sparkSession());
      return new LogicalRelation(
          read, Scala.seq(output), Scala.none(), table.isStreaming(), table.stream());
    }

    private Expression source(AttributeReference column) {
      if (metadata != null && column.exprId().equals(metadata.exprId())) {
        return metadata;
      }
      if (column.name().equals("_window")) {
        return constant(TableFormat.WINDOW);
      }
      boolean isHidden = column.name().startsWith("_");
      return stored(
          isHidden ? column.name() : info.get("columns").get(column.name()).asText(),
          column.dataType());
    }

    /** A column by its name in the files, where hidden ones are often left out. */
    private Expression stored(String physical, DataType type) {
      if (physical.equals("_seq")) {
        return seq();
      }
      if (physical.equals("_deleted")) { // only files of deletes have it
        return new Coalesce(Scala.seq(Arrays.asList(
            new Object[] {file(physical, type), Literal.FalseLiteral()})));
      }
      return physical.equals("_ts") ? ts() : file(physical, type);
    }

    private Expression seq() {
      Expression offset = new Cast(file("_off", DataTypes.IntegerType), DataTypes.LongType, Scala.none());
      ArrayList places = new ArrayList();
      places.add(offset);
      places.add(constant("row_index"));
      Expression counted = new Add(constant(TableFormat.BASE), new Coalesce(Scala.seq(places)));
      ArrayList either = new ArrayList();
      either.add(file("_seq", DataTypes.LongType));
      either.add(counted);
      return new Coalesce(Scala.seq(either));
    }

    private Expression ts() {
      Expression stored = file("_ts", DataTypes.LongType);
      JsonNode time = info.get("time");
      if (time.isNull()) {
        return stored;
      }
      ArrayList either = new ArrayList();
      either.add(stored);
      String column = time.get("physical").asText();
      String kind = time.get("kind").asText();
      if (kind.equals("int64")) {
        either.add(file(column, DataTypes.LongType));
      } else {
        DataType type =
            kind.equals("timestamp") ? DataTypes.TimestampNTZType : DataTypes.TimestampType;
        // Microseconds as they are stored: no time zone is asked. They are never negative.
        Expression micros =
            new PreciseTimestampConversion(file(column, type), type, DataTypes.LongType);
        either.add(new IntegralDivide(micros, literal(1000L)));
      }
      return new Coalesce(Scala.seq(either));
    }

    /** What rows of a file must be to be seen: above the floor and inside of what was asked for. */
    private void visible(List tests) {
      JsonNode state = info.get("state");
      if (state.get("start_seq").asLong() > 0) {
        tests.add(new GreaterThanOrEqual(seq(), literal(state.get("start_seq").asLong())));
      }
      if (!state.get("end_seq").isNull()) {
        tests.add(new LessThan(seq(), literal(state.get("end_seq").asLong())));
      }
      if (state.get("start_ts").asLong() > 0) {
        tests.add(new GreaterThanOrEqual(ts(), literal(state.get("start_ts").asLong())));
      }
      if (!state.get("end_ts").isNull()) {
        tests.add(new LessThanOrEqual(ts(), literal(state.get("end_ts").asLong())));
      }
    }

    private Expression file(String physical, DataType type) {
      Object found = files.get(physical);
      if (found == null) {
        found =
            new AttributeReference(
                physical, type, true, Metadata.empty(), NamedExpression.newExprId(), Scala.nothing());
        files.put(physical, found);
      }
      return (Expression) found;
    }

    /** A field of the `_metadata` column. */
    private Expression constant(String field) {
      if (metadata == null) {
        AttributeReference all = relation.fileFormat().createFileMetadataCol();
        metadata = withOurFields((AttributeReference) all.withDataType(new StructType()));
      }
      int place = ((StructType) metadata.dataType()).fieldIndex(field);
      return new GetStructField(metadata, place, Scala.none());
    }

    /** What a query asks for itself stays where it is; what we need comes behind. */
    private AttributeReference withOurFields(AttributeReference given) {
      StructType fields = (StructType) given.dataType();
      StructType all = (StructType) relation.fileFormat().createFileMetadataCol().dataType();
      for (int i = 0; i < OURS.length; i++) {
        if (!Arrays.asList(fields.fieldNames()).contains(OURS[i])) {
          fields = fields.add(all.apply(OURS[i]));
        }
      }
      return (AttributeReference) given.withDataType(fields);
    }
  }

  private static Literal literal(long value) {
    return new Literal(Long.valueOf(value), DataTypes.LongType);
  }

  /** Puts the expressions of a scan into the places of a table's columns. */
  private static final class Replace extends AbstractPartialFunction {
    private final HashMap columns;

    Replace(HashMap columns) {
      this.columns = columns;
    }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof AttributeReference
          && columns.containsKey(((AttributeReference) expression).exprId());
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
      return isDefinedAt(expression)
          ? columns.get(((AttributeReference) expression).exprId())
          : otherwise.apply(expression);
    }
  }
}
