"""From blocks of messages to a producer, and what became of them."""
