"""The stores that can hold a table, one module each, behind `strandline.tableformat.storage`."""
