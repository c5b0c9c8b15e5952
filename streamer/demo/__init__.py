"""`streamer demo`: examples on a local broker, fed, watched and summed up. `images/` is digits, `machines/` sensors,
`films/` cameras, `counting/` objects."""
