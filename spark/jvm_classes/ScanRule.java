package strandline.jvm;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** The last step of Spark's optimizer: each table in a query becomes a scan of its Parquet files. */
public final class ScanRule extends Rule {
  /** The option that marks a relation as prepared; its value is the scheme of its files. */
  static final String PLANNED = "strandlinePlanned";

  /** Nodes that change tables of sources other than ours, and what users write for them. */
  private static final String[] CHANGES = {"DeleteFromTable", "UpdateTable", "MergeIntoTable"};
  private static final String[] STATEMENTS = {"DELETE FROM", "UPDATE", "MERGE INTO"};

  /** Added to the session's own rules, once, with the rule for tables that Spark's catalog makes. */
  static void install(SparkSession session) {
    List rules = Scala.list(session.experimental().extraOptimizations());
    for (Iterator each = rules.iterator(); each.hasNext(); ) {
      if (each.next() instanceof ScanRule) {
        return;
      }
    }
    ArrayList more = new ArrayList(rules);
    more.add(new ScanRule());
    more.add(new CreateRule());
    session.experimental().extraOptimizations_$eq(Scala.seq(more));
  }

  public TreeNode apply(TreeNode plan) {
    return prepared((LogicalPlan) plan, null);
  }

  /** `needed`: ids of the columns that are looked at above; null: all of them. */
  private static LogicalPlan prepared(LogicalPlan given, Set needed) {
    checkReads(given);
    LogicalPlan node = given.subqueries().isEmpty() ? given : withPreparedSubqueries(given);
    if (isTable(node)) {
      return new TableScan((LogicalRelation) node, null, needed).plan();
    }
    if (node instanceof Filter && isTable(((Filter) node).child())) {
      Filter filter = (Filter) node;
      return new TableScan((LogicalRelation) filter.child(), filter.condition(), needed).plan();
    }
    Set below = null;
    if (node instanceof Project || node instanceof Aggregate) {
      below = ids(node);
    } else if (node instanceof Filter && needed != null) {
      below = ids(node);
      below.addAll(needed);
    }
    ArrayList children = new ArrayList();
    boolean changed = false;
    for (Iterator each = Scala.list(node.children()).iterator(); each.hasNext(); ) {
      LogicalPlan child = (LogicalPlan) each.next();
      LogicalPlan made = prepared(child, below);
      changed |= made != child;
      children.add(made);
    }
    return changed ? (LogicalPlan) node.withNewChildren(Scala.seq(children)) : node;
  }

  /** Spark would say that it has met an unexpected plan. */
  private static void checkReads(LogicalPlan node) {
    int change = Arrays.asList(CHANGES).indexOf(node.nodeName());
    if (change >= 0 && node.exists(new IsTable())) {
      throw new UnsupportedOperationException(
          "strandline: " + STATEMENTS[change] + " is not possible in Spark SQL; nothing was changed."
              + " In Python, strandline.open_table(url) has delete(filter=…), upsert(rows) and"
              + " overwrite(rows).");
    }
  }

  private static final class IsTable extends AbstractFunction1 {
    public Object apply(Object node) {
      return Boolean.valueOf(isTable((LogicalPlan) node));
    }
  }

  private static Set ids(LogicalPlan node) {
    HashSet found = new HashSet();
    scala.collection.Iterator each = node.references().iterator();
    while (each.hasNext()) {
      found.add(((Attribute) each.next()).exprId());
    }
    return found;
  }

  private static boolean isTable(LogicalPlan node) {
    if (!(node instanceof LogicalRelation)) {
      return false;
    }
    Object relation = ((LogicalRelation) node).relation();
    if (!(relation instanceof HadoopFsRelation)) {
      return false;
    }
    Object index = ((HadoopFsRelation) relation).location();
    return index instanceof TableIndex && ((TableIndex) index).part.equals(TableIndex.UNPLANNED);
  }

  private static LogicalPlan withPreparedSubqueries(LogicalPlan node) {
    return (LogicalPlan) node.mapExpressions(new PrepareExpression());
  }

  private static final class PrepareExpression extends AbstractFunction1 {
    public Object apply(Object expression) {
      return ((Expression) expression).transform(new PrepareSubquery());
    }
  }

  private static final class PrepareSubquery extends AbstractPartialFunction {
    public boolean isDefinedAt(Object expression) {
      return expression instanceof SubqueryExpression;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
      if (!isDefinedAt(expression)) {
        return otherwise.apply(expression);
      }
      PlanExpression subquery = (PlanExpression) expression;
      return subquery.withNewPlan(prepared((LogicalPlan) subquery.plan(), null));
    }
  }
}
