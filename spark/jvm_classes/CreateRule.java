package strandline.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;

/**
 * Before Spark makes a table in its catalog out of rows. Whatever save mode was asked for, it then
 * hands the rows over to replace what is at the location; only here is it known what was asked for.
 */
public final class CreateRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    if (plan instanceof CreateDataSourceTableAsSelectCommand) {
      check((CreateDataSourceTableAsSelectCommand) plan);
    }
    return plan;
  }

  private static void check(CreateDataSourceTableAsSelectCommand command) {
    CatalogTable table = command.table();
    TableIdentifier name = table.identifier();
    if (table.provider().isEmpty()
        || !"strandline".equalsIgnoreCase((String) table.provider().get())) {
      return;
    }
    if (table.bucketSpec().isDefined()) {
      throw new IllegalArgumentException(
          "InvalidInput: bucketBy and CLUSTERED BY mean nothing to a Strandline table; nothing was"
              + " written. Leave it out, or create the table with shard_by.");
    }
    if (command.mode().equals(SaveMode.Overwrite)
        || table.storage().locationUri().isEmpty()
        || SparkSession.active().sessionState().catalog().tableExists(name)) {
      return;
    }
    ObjectNode request = Bridge.request("check_unused");
    request.put("name", name.table());
    request.put("path", CatalogUtils.URIToString((URI) table.storage().locationUri().get()));
    Bridge.call(request, null);
  }
}
