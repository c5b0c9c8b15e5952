"""One real Kafka per test run, a mosquitto, topics of their own, brokers to ill-treat, and the command line."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import hypothesis
import pytest
import raykit
import sparkkit
from drawn import browser
from faultymqtt import FaultyMqtt, Window
from kafkatopics import QUICK_GROUPS
from mqttbrokers import MqttUnderTest, StartMosquitto, StartMqtt
from quickjava import ClassesOfKafka, use_classes_of_kafka
from rewriting import rewrite_together
from stamina.instrumentation import get_on_retry_hooks, set_on_retry_hooks

from pipelines import hotpath
from pipelines.data import sparsecolumn
from pipelines.errors import MissingPackageError
from pipelines.hotpath import HotPath
from streamer.cli.app import invoke
from streamer.devbroker import Broker, BrokerError, KafkaJars, LocalKafka, MockKafka, create_topics, open_broker
from streamer.devbroker.mqtt import LocalMosquitto, MqttBroker, find_mosquitto, open_mqtt_broker
from streamer.devbroker.settings import SLOW_LOSS

_SLOW = (
    *("connectors/camera", "connectors/file", "connectors/http/endpoint", "connectors/models"),
    *("connectors/mqtt/endpoint", "connectors/mqtt/session", "connectors/mqtt/sink", "connectors/outbox"),
    *("connectors/view", "drawn/test_camera_page.py", "services", "streamer/agent", "streamer/cli", "streamer/demo"),
    *("streamer/devbroker", "streamer/faust", "streamer/models/repository", "streamer/observe"),
    *("test_bench_tracking.py", "test_docs.py", "test_extras.py", "test_release.py"),
)
"""Where most tests connect, wait, start programs or read everything."""
_FOLDER = Path(__file__).parent
# Not as paths: comparing those takes seconds for so many tests, in each worker.
_SLOW_PATHS = tuple(str(_FOLDER / name) for name in _SLOW)
_REAL = {"kafka", "start_kafka"}
_REAL_MQTT = {"mqtt_broker", "start_mosquitto", "start_mqtt"}

# jsonschema imports it if it is there, for the format "iri" only, which no schema here has: it builds 38 grammars, and
# takes three seconds of each worker.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# Programs that tests start would ignore hangups, too, where the tests run in the background of a closed terminal.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long an example takes says nothing on a machine that does other things too.
_PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
for _profile, _count in {"fast": 10, "patient": 50, "thorough": 1000}.items():
    hypothesis.settings.register_profile(_profile, _PATIENT, max_examples=_count)
hypothesis.settings.load_profile("patient")


class Topics(Protocol):
    """`topics(3)` creates a topic with three partitions on the shared broker and returns its name."""

    def __call__(self, partitions: int = 1, prefix: str = "test", **config: str) -> str: ...


class TopicName(Protocol):
    """`topic_name()` is a name that no other test uses; the topic is not created."""

    def __call__(self, prefix: str = "test") -> str: ...


class StartKafka(Protocol):
    """`start_kafka(nodes=3, message_max_bytes="2000")` starts a cluster; underscores stand for dots."""

    def __call__(
        self, nodes: int = 1, data: Path | None = None, *, port: int | None = None, **settings: str
    ) -> LocalKafka: ...


class _BrokerOfTheRun:
    """The broker belongs to the process that runs pytest; xdist's workers ask it over a local socket.

    So it starts when the first test wants it, does not end with the worker that happened to be first (finished or
    crashed), and is stopped once, when every worker is done.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._answer: Broker | str | None = None
        self._listener: Listener | None = None
        self._key = secrets.token_bytes(16)
        self._classes = ClassesOfKafka()

    def get(self) -> Broker | str:
        """The broker, started now if this is the first call; or the reason why there is none."""
        with self._lock:
            if self._answer is None:
                try:
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr("streamer.devbroker.choose.SLOW_LOSS", SLOW_LOSS | QUICK_GROUPS)
                        self._answer = self._stack.enter_context(open_broker("the test suite"))
                    # Many more are started in a run with several workers.
                    if self._listener is not None and self._answer.kind == "jars":
                        self._classes.make()
                except (BrokerError, MissingPackageError) as error:
                    self._answer = str(error)
            return self._answer

    def listen(self) -> dict[str, Any]:
        """Answer workers from now on; returns what a worker needs for `ask`."""
        if self._listener is None:
            self._listener = Listener(("127.0.0.1", 0), backlog=64, authkey=self._key)
            threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()
        return {"address": list(self._listener.address), "key": self._key.hex()}

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._classes.close()
        self._stack.close()

    def _serve(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except (AuthenticationError, EOFError):
                continue
            except OSError:
                return
            # A thread each: nobody waits behind a worker that went away while the broker was starting.
            threading.Thread(target=self._reply, args=(connection,), daemon=True).start()

    def _reply(self, connection: Connection[Any, Any]) -> None:
        with connection:
            try:
                connection.send(self.get())
            except OSError:
                return


def _ask(contact: dict[str, Any]) -> Broker | str:
    host, port = contact["address"]
    with Client((host, port), authkey=bytes.fromhex(contact["key"])) as connection:
        answer: Broker | str = connection.recv() if connection.poll(900) else "a Kafka did not start in 15 minutes"
        return answer


_broker_of_the_run = pytest.StashKey[_BrokerOfTheRun]()


def pytest_configure(config: pytest.Config) -> None:
    # While tests are not captured.
    _watch.stderr = os.dup(2)
    config.pluginmanager.register(_watch)
    use_classes_of_kafka()
    config.stash[_broker_of_the_run] = _BrokerOfTheRun()
    rewrite_together(config, _FOLDER)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_broker_of_the_run].close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["kafka"] = node.config.stash[_broker_of_the_run].listen()


# A worker takes a file as a whole. Those that take twenty seconds and more come before all others, the longest first,
# so that no worker is left with one of them at the end.
_LONGEST = (
    # They build programs or get them, while others wait for brokers.
    "test_native_crate.py",
    "faults/test_workers.py",
    "test_docs.py",
    "faults/test_exactly_once.py",
    "test_wheel.py",
    "test_install.py",
    "streamer/spark/test_spark_queries.py",
    "streamer/build/test_build.py",
    "test_site.py",
    "test_plugin.py",
    "deploy/test_live_board.py",
    "deploy/test_compose_watching.py",
    "streamer/cli/test_cli_run.py",
    "drawn/test_fans.py",
    "connectors/kafka/test_kafka_contract.py",
    "streamer/cli/test_cli_topics.py",
    "faults/test_kill.py",
    "streamer/workers/test_run_workers.py",
    "faults/test_state.py",
    "faults/test_file_crash.py",
    "faults/test_requests_kill.py",
    "faults/test_mqtt_kill.py",
    "services/test_cameras_demo.py",
    "connectors/kafka/test_kafka_transactions.py",
    "deploy/test_helm_chart.py",
    "connectors/kafka/test_kafka_transaction_contract.py",
    "connectors/kafka/test_kafka_group.py",
    "connectors/mqtt/test_mqtt_contract.py",
    "connectors/camera/test_camera_contract.py",
    "streamer/agent/test_agent_transactions.py",
    "services/test_mqtt_kafka.py",
    "connectors/view/test_clip.py",
    "faults/test_faust.py",
    "streamer/devbroker/test_broker.py",
    "faults/test_mqtt_faults.py",
    "connectors/camera/test_camera_faults.py",
    "faults/test_camera_faults.py",
    "faults/test_rebalance.py",
    "connectors/mqtt/test_mqtt_source.py",
    "streamer/cli/test_cli_broker.py",
    "connectors/mqtt/sink/test_mqtt_sink_contract.py",
    "streamer/agent/test_agent_drain.py",
    "connectors/outbox/test_outbox.py",
    "connectors/view/test_view_browser.py",
    "connectors/camera/test_camera_memory.py",
    "deploy/test_helm_pod.py",
    "faults/test_bad_input.py",
    "drawn/test_camera_page.py",
    "drawn/test_demo_screen.py",
    "streamer/cli/test_cli_doctor.py",
    "faults/test_mqtt_both.py",
    "connectors/kafka/test_kafka_source.py",
    "pipelines/executors/test_alone_and_among_others.py",
    "faults/test_missing_topic.py",
    "streamer/cli/test_cli_replay.py",
    "streamer/definition/test_no_code.py",
    "faults/test_large_records.py",
    "connectors/kafka/test_kafka_sink.py",
    "pipelines/data/test_rare_keys.py",
    "streamer/agent/test_agent_chaos.py",
    "pipelines/wire/test_wire_columns.py",
    "connectors/kafka/test_kafka_bridge.py",
    "services/test_demo.py",
    "services/test_sensors_demo.py",
    "pipelines/wire/test_protobuf_versions.py",
    "test_notebook.py",
    "test_release.py",
    "test_capacity_page.py",
    "faults/test_outbox_crash.py",
    "faults/test_state_topic.py",
    "test_bench_mqtt.py",
    "connectors/kafka/test_kafka_memory.py",
)
_TURNS = {_FOLDER / name: turn for turn, name in enumerate(_LONGEST)}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The garbage collector looks at modules and tests once, and not each time that a test or Python calls it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where `-m` leaves slow tests out, files that have no others are not even imported."""
    wanted: str = config.option.markexpr
    if "not slow" in wanted.split(" and ") and " or " not in wanted and str(collection_path).startswith(_SLOW_PATHS):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _TURNS.get(item.path, len(_TURNS)))
    for item in items:
        if str(item.path).startswith(_SLOW_PATHS):
            item.add_marker(pytest.mark.slow)
        if _REAL & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
        if _REAL_MQTT & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.mqtt)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_report_to_serializable(report: Any) -> None:
    """Workers send three reports of each test; the longest part of them nobody reads."""
    if isinstance(report, pytest.TestReport):
        report.keywords = {}


_HOPELESS = 300.0
"""Seconds that a test may go on after its limit, before its process ends."""


class _Watch:
    """Ends the process, with the stacks of all threads, where pytest-timeout cannot interrupt a test that hangs: in a
    call of a library, or in a fixture that ends after the test was interrupted."""

    def __init__(self) -> None:
        self.stderr = 2
        self._limit = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        marker = item.get_closest_marker("timeout")
        self._limit = float(marker.args[0] if marker else item.config.getini("timeout"))
        self.begin()
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        # pytest has cancelled it.
        self.begin()

    def begin(self) -> None:
        """The time begins anew."""
        faulthandler.dump_traceback_later(self._limit + _HOPELESS, exit=True, file=self.stderr)


_watch = _Watch()


@contextmanager
def off_the_clock() -> Iterator[None]:
    """What a test waits for because of others is no time of its own: the clock of its limit stands still."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()
    try:
        yield
    finally:
        _watch.begin()
        signal.setitimer(signal.ITIMER_REAL, left)


@pytest.fixture(scope="module")
def chromium_browser() -> Iterator[Any]:
    """Playwright's browser; only one can be open in a process. Without Chromium the test is skipped; in CI it fails."""
    if browser.chromium() is None:
        missing = "chromium is not on the PATH: `make programs` installs it where apt-get can"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with browser.browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Broker:
    """The real Kafka of this run, shared by all tests and workers: use topics and groups of your own on it.

    Without one the test is skipped, saying why; in CI it fails.
    """
    worker = getattr(request.config, "workerinput", None)
    # The first test of a fresh machine downloads it.
    with off_the_clock():
        answer = _ask(worker["kafka"]) if worker else request.config.stash[_broker_of_the_run].get()
    if isinstance(answer, Broker):
        return answer
    if os.environ.get("CI"):
        pytest.fail(answer)
    pytest.skip(answer)


@pytest.fixture(scope="module", params=["python", "native"])
def hot_path(request: pytest.FixtureRequest) -> Iterator[HotPath]:
    """Both hot paths in turn, chosen as a user would choose one for a whole process: by STREAMER_NATIVE."""
    if request.param == "native" and (reason := hotpath.why_not()):
        pytest.skip(f"the compiled hot path: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(hotpath.VARIABLE, request.param)
        yield request.param


@pytest.fixture(scope="module", params=[8, 1], ids=["usual", "every gap"])
def rarity(request: pytest.FixtureRequest) -> Iterator[int]:
    """Keys are kept as columns and as sparse columns in turn: by the usual rule, and wherever one row lacks the key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparsecolumn, "RARE", request.param)
        yield request.param


def _dotted(settings: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in settings.items()}


@pytest.fixture
def topic_name() -> TopicName:
    """A factory of unused topic names, for topics that nobody creates beforehand and for consumer groups."""
    return lambda prefix="test": f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """Environment variables of programs that use Spark, and of this process if it imports PySpark.

    Without Spark the test is skipped, saying why; in CI it fails.
    """
    # The first test of a fresh machine downloads it.
    with off_the_clock():
        return sparkkit.environment()


@pytest.fixture(scope="session")
def ray_environment() -> dict[str, str]:
    """Environment variables of programs that use Ray. Without Ray the test is skipped, saying why; in CI it fails."""
    with off_the_clock():
        return raykit.environment()


@pytest.fixture(scope="module")
def ray(ray_environment: dict[str, str]) -> Iterator[Any]:
    """The module `ray`, connected to a cluster of two CPUs that the tests of a file share."""
    with pytest.MonkeyPatch.context() as patch, raykit.cluster(patch, ray_environment) as connected:
        yield connected


@pytest.fixture
def topics(kafka: Broker, topic_name: TopicName) -> Topics:
    """A factory of topics on the shared broker: `topics(partitions=3)` returns a new topic's name."""

    def create(partitions: int = 1, prefix: str = "test", **config: str) -> str:
        name = topic_name(prefix)
        create_topics(kafka.bootstrap, {name: partitions}, config=_dotted(config))
        return name

    return create


@pytest.fixture(scope="session")
def mock_kafka() -> Iterator[MockKafka]:
    """librdkafka's mock cluster in this process: instant, no proof of a guarantee. Topics appear on first use."""
    with MockKafka() as cluster:
        yield cluster


# Not by xdist's groups: pytest 9.2 with xdist 3.8 takes no notice of them.
@contextmanager
def _turn(shared: Path) -> Iterator[None]:
    slots = max(1, (os.cpu_count() or 1) // 2)
    with ExitStack() as stack:
        files = [stack.enter_context((shared / f"kafka-turn-{slot}").open("w")) for slot in range(slots)]
        while True:
            for file in files:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield
                return
            time.sleep(0.1)


@pytest.fixture
def start_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartKafka]:
    """A factory of real Kafkas for this test alone: `start_kafka(nodes=3)`. All are stopped at the test's end.

    Workers take turns, so that few such tests run at a time (one on two cores).
    """
    try:
        with off_the_clock():
            KafkaJars.resolve()
    except (BrokerError, MissingPackageError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with ExitStack() as stack:
        if hasattr(request.config, "workerinput"):
            with off_the_clock():
                stack.enter_context(_turn(tmp_path_factory.getbasetemp().parent))

        def start(nodes: int = 1, data: Path | None = None, *, port: int | None = None, **settings: str) -> LocalKafka:
            cluster = LocalKafka(nodes, data, port=port, settings=_dotted(settings))
            # Registered first, so that a start that is cut short by a time limit is cleaned up as well.
            stack.callback(cluster.stop)
            return cluster.start()

        yield start


@pytest.fixture
def private_kafka(start_kafka: StartKafka) -> LocalKafka:
    """A real Kafka of one node for this test alone, to be frozen, killed and restarted."""
    return start_kafka()


@pytest.fixture(scope="session")
def mqtt_broker() -> Iterator[MqttBroker]:
    """A real MQTT broker, shared by the tests of a worker: use topics and client ids of your own on it.

    That of `MQTT_BROKER`, else mosquitto as installed, else a container. Without one the test is skipped, saying why;
    in CI it fails.
    """
    with ExitStack() as stack:
        try:
            with off_the_clock():
                broker = stack.enter_context(open_mqtt_broker("the test suite"))
        except BrokerError as error:
            _no_broker(str(error))
        yield broker


@pytest.fixture
def start_mosquitto() -> Iterator[StartMosquitto]:
    """A factory of mosquittos for this test alone, to be frozen, killed and restarted; all are stopped at its end."""
    if find_mosquitto() is None:
        _no_broker("mosquitto is not installed: apt-get install mosquitto (Debian, Ubuntu)")
    with ExitStack() as stack:

        def start(data: Path | None = None, **settings: str | list[str]) -> LocalMosquitto:
            broker = LocalMosquitto(data, settings=settings)
            stack.callback(broker.stop)
            return broker.start()

        yield start


@pytest.fixture(params=["mosquitto", "our broker"])
def start_mqtt(request: pytest.FixtureRequest) -> Iterator[StartMqtt]:
    """A factory of brokers: the test runs once with mosquittos, and once with our own, which can be told to fail."""
    with ExitStack() as stack:

        def start(*, window: int | None = None, **settings: str) -> MqttUnderTest:
            if request.param == "mosquitto":
                ahead = {} if window is None else {"max_inflight_messages": str(window)}
                started: LocalMosquitto = request.getfixturevalue("start_mosquitto")(**ahead, **settings)
                return started
            ours = stack.enter_context(FaultyMqtt())
            if window is not None:
                ours.faults.window = lambda connect: Window(window)
            return ours

        yield start


def _no_broker(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Cli(Protocol):
    """`cli("steps", "--json")` runs a command in this process."""

    def __call__(self, *arguments: str | os.PathLike[str]) -> Ended: ...


class Started(Protocol):
    """`start("run", path)` starts a command in a process of its own, with pipes for stdout and stderr."""

    def __call__(self, *arguments: str | os.PathLike[str], **options: Any) -> subprocess.Popen[str]: ...


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs commands; what they change in the process is put back at the end."""
    path, root, clients = list(sys.path), logging.getLogger(), logging.getLogger("connectors.kafka.client")
    handlers, level, client_level = list(root.handlers), root.level, clients.level
    hooks = get_on_retry_hooks()

    def run(*arguments: str | os.PathLike[str]) -> Ended:
        capsys.readouterr()
        code = invoke([os.fspath(one) for one in arguments])
        return Ended(code, *capsys.readouterr())

    yield run
    sys.path[:] = path
    root.handlers[:] = handlers
    root.setLevel(level)
    clients.setLevel(client_level)
    set_on_retry_hooks(hooks)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Starts commands in `tmp_path`; those that still run at the end are killed."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str | os.PathLike[str], **options: Any) -> subprocess.Popen[str]:
        # As the installed command does it, but with the checkout's packages and this interpreter.
        command = [sys.executable, "-c", "from streamer.cli import main; main()", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
        process = subprocess.Popen(command, **{**pipes, **options})
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
