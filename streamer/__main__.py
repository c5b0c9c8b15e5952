"""`python -m streamer`: the same as the command `streamer`."""

from streamer.cli import main

if __name__ == "__main__":
    main()
