"""Results for others: a report in one file, and archives that make their figures again."""
