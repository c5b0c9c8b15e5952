"""`streamer demo`: the digits service on a local broker, fed, watched and summed up."""
