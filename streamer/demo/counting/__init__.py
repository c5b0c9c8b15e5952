"""`streamer demo objects`: people and cups in a film are found and counted where they pass its middle."""
