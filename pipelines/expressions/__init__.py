"""SQL expressions over the values of records, evaluated for whole columns with Polars (extra `map`)."""
