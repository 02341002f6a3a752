"""The tests mirror the packages; this file keeps `tests/spark` from hiding `spark`."""
