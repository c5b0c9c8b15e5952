"""The place that `connectors.secrets` had before other connectors needed it."""

from connectors.secrets import SECRET_WORDS, Scrubber, is_secret, wrapped

__all__ = ["SECRET_WORDS", "Scrubber", "is_secret", "wrapped"]
