"""What people look at: the live table, the last lines, the results file, the report."""
