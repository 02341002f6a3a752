"""The pure core: records, rules, planning, bytes to records and back."""
