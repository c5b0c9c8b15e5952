"""Programs that do the same work, each to be run in a process of its own: `python -m benchmarks.programs.NAME JOB`."""
