"""Stream tables: short-lived rows of many users, in logs that expire with their time window."""
