"""The compiled extension: see `src/lib.rs`."""

VERSION: str
"""Version of the extension; the one that belongs to this source tree is `pipelines.hotpath.EXPECTED`."""
