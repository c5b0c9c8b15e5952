"""The packages of the wheel: all that are there, and the examples of demos; pyproject.toml has the rest."""

from setuptools import find_packages, setup

OURS = ("connectors", "pipelines", "protos", "streamer", "streamer_native")
EXAMPLES = ("cameras", "digits", "sensors")

setup(
    packages=[
        *find_packages(include=[pattern for name in OURS for pattern in (name, f"{name}.*")]),
        *(f"streamer.demo.{name}" for name in EXAMPLES),
    ]
)
