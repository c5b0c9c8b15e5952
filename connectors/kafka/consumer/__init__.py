"""From a consumer to blocks of records, and positions back."""
