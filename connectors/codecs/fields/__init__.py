"""Fields that the configurations of several codecs share."""
