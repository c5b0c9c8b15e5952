"""The programs that are compared: their names, and how each is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from benchmarks.environments import PEERS, python_of
from benchmarks.environments import TITLES as PEER_TITLES
from benchmarks.programs.job import Job
from pipelines.hotpath import VARIABLE, why_not

TITLES = {
    "relay-c": "relay in C (the floor)",
    "model": "the model alone",
    "relay": "relay in Python",
    "ours": "streamer",
    "ours-native": "streamer, native",
    "ours-python": "streamer, python",
    "ours-native-once": "streamer, native, exactly once",
    "ours-python-once": "streamer, python, exactly once",
    "handwritten": "hand-written (the baseline)",
    **PEER_TITLES,
    "ours-faust": "streamer in Faust",
}
"""How the tables call them."""

FRAMEWORKS = frozenset({*PEERS, "ours-faust"})
"""Programs in other frameworks, which run the rows with `peers` only: theirs, and the service inside Faust."""

SHARES = {"bytewax": 0.25, "quix": 0.07, "faststream": 0.07, "faust": 0.03, "ours-faust": 0.05}
"""How much of a row's messages the slower programs get."""

_SOURCE = Path(__file__).parent / "programs" / "relay.c"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A program under measurement."""

    name: str
    """A key of `TITLES`."""
    command: Callable[[Job], list[str]]
    """The command line for a job."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additions to the environment."""
    relays: bool = False
    """Whether its results are the records as they came."""
    ours: bool = False
    alone: bool = False
    """Whether it needs no bus, and prints its cost itself."""
    exactly_once: bool = False
    """Whether it sends in transactions: it runs the rows for these."""

    @property
    def share(self) -> float:
        """How much of a row's messages it gets."""
        return SHARES.get(self.name, 1.0)


class CannotRun(Exception):
    """Why a program cannot be measured here."""


def python_program(
    name: str, module: str | None = None, python: Path | None = None, environment: Mapping[str, str] | None = None
) -> Contestant:
    """One of `benchmarks.programs`."""
    interpreter, target = str(python or sys.executable), f"benchmarks.programs.{module or name}"
    return Contestant(
        name,
        lambda job: [interpreter, "-m", target, job.to_json()],
        environment or {},
        relays=name == "relay",
        ours=target.endswith(".ours"),
        alone=name == "model",
    )


def ours(hot_path: str = "auto") -> Contestant:
    """The service itself on one of its hot paths. Raises `CannotRun` if `native` was not built."""
    reason = why_not()
    if hot_path == "native" and reason is not None:
        raise CannotRun(reason)
    name = "ours" if hot_path == "auto" else f"ours-{hot_path}"
    return python_program(name, "ours", environment={VARIABLE: hot_path})


def ours_exactly_once(hot_path: str) -> Contestant:
    """The same with `delivery: exactly_once`. Raises `CannotRun` as `ours` does."""
    found = ours(hot_path)
    return replace(
        found,
        name=f"{found.name}-once",
        command=lambda job: found.command(replace(job, exactly_once=True)),
        exactly_once=True,
    )


def compiled_relay(folder: Path) -> Contestant:
    """The relay in C, compiled into `folder`. Raises `CannotRun` without a compiler, or a librdkafka to load."""
    library, binary = _librdkafka(), folder / "relay"
    compiler = which("cc")
    if compiler is None:
        raise CannotRun("there is no C compiler (cc) on the PATH")
    made = subprocess.run(
        [compiler, "-O2", "-o", str(binary), str(_SOURCE), "-ldl"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise CannotRun(f"{_SOURCE.name} could not be compiled: {made.stderr.strip()[:500]}")

    def command(job: Job) -> list[str]:
        waits = [f"{seconds * 1000:.0f}" for seconds in (job.max_wait, job.linger)]
        ends = [job.bootstrap, job.source, job.sink, job.group]
        return [str(binary), str(library), *ends, str(job.batch), *waits, str(int(job.headers))]

    return Contestant("relay-c", command, relays=True)


def contestants(
    folder: Path, progress: Callable[[str], None], *, peers: bool
) -> tuple[list[Contestant], dict[str, str]]:
    """All that can run here, in the order of the table, and why others cannot, by name.

    Environments of other frameworks are installed first, half a minute each, where that has not been done.
    """
    found: list[Contestant] = []
    left_out: dict[str, str] = {}
    makers: dict[str, Callable[[], Contestant]] = {
        "relay-c": lambda: compiled_relay(folder),
        "model": lambda: python_program("model"),
        "ours-native": lambda: ours("native"),
        "ours-python": lambda: ours("python"),
        "ours-native-once": lambda: ours_exactly_once("native"),
        "ours-python-once": lambda: ours_exactly_once("python"),
        "handwritten": lambda: python_program("handwritten"),
    }
    for name, make in makers.items():
        try:
            found.append(make())
        except CannotRun as error:
            left_out[name] = str(error)
    for peer in PEERS if peers else ():
        found.append(python_program(peer, PEERS[peer], python_of(peer, progress)))
    if peers and find_spec("faust") is None:
        left_out["ours-faust"] = "faust-streaming is not installed"
    elif peers:
        found.append(python_program("ours-faust", "faust_streamer"))
    return found, left_out


def _librdkafka() -> Path:
    spec = find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise CannotRun("confluent-kafka is not installed")
    package = Path(spec.origin).parent
    folders = [package.with_name("confluent_kafka.libs"), package / ".dylibs"]
    found = [path for folder in folders for path in folder.glob("librdkafka*")]
    if not found:
        raise CannotRun(f"confluent-kafka brings no librdkafka of its own beside {package}")
    return found[0]
