"""The name under which Spark finds the Strandline data source."""
