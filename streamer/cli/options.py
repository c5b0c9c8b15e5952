"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from connectors.browser import Browser
    from streamer.definition.nocode import NoCode

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        help="Kafka brokers as host:port, separated by commas; others by their URL, as mqtt://host. By default "
        "those of the environment variable KAFKA_BOOTSTRAP_SERVERS, else localhost:9092.",
        show_default=False,
    ),
]
Client = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        "-X",
        help="A property of the client as NAME=VALUE: for Kafka those of librdkafka, for MQTT fields of a source, as "
        "username and tls.ca; may be repeated. NAME=@FILE takes the value from a file, so that no list of processes "
        "shows a password; @@ begins a value with @.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON on standard output.")]
CodecName = Annotated[
    str | None,
    typer.Option(
        "--codec",
        help="The format of payloads: a codec's name, or its fields, '{type: NAME, ...}'. By default protodata, or "
        "with FILE the codec of the service.",
        show_default=False,
    ),
]
TopicName = Annotated[
    str | None,
    typer.Option(
        "--topic", help="With FILE: which topic, if the service has several or makes their names from values."
    ),
]


WithoutCode = Annotated[
    bool,
    typer.Option(
        "--no-code",
        help="For service files that you do not trust: refuse code that they contain or name (PYTHON and FUNCTION "
        "steps, functions of switches and combine steps, `oauth_cb`, native libraries, models of TensorFlow "
        "and TVM), and environment variables and files that --env and --files do not list. STREAMER_NO_CODE=1 does "
        "the same.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="NAME", help="With --no-code: a variable that may be used, ${NAME}; may be repeated."
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--files",
        metavar="PATH",
        help="With --no-code: the service may read and write this file, or all in this folder; may be repeated.",
    ),
]
Runners = Annotated[
    list[str] | None,
    typer.Option(
        "--runner", help="Which runner runs a type of step, TYPE=NAME; may be repeated. `streamer steps` lists runners."
    ),
]


def runners_given(given: list[str] | None) -> dict[str, str]:
    """`["ONNX=onnxruntime"]` as a mapping. Raises `typer.BadParameter` for an entry without a name,
    `DefinitionError` for an unknown type or name.
    """
    runners = {}
    for text in given or ():
        kind, _, name = text.partition("=")
        if not kind or not name:
            raise typer.BadParameter(f"--runner takes TYPE=NAME, like ONNX=onnxruntime, not {text!r}")
        runners[kind] = name
    if runners:
        from pipelines.plugins.registry import default_registry

        default_registry().check_runners(runners)
    return runners


def no_code_given(no_code: bool, env: list[str] | None, files: list[Path] | None) -> NoCode | None:
    """The variables and files that a service without code may use; `None` where it may run code.

    Raises `typer.BadParameter` for lists without `--no-code`, and for an invalid name of a variable.
    """
    from streamer.definition.nocode import NoCode

    if not no_code:
        if env or files:
            raise typer.BadParameter(f"{'--env' if env else '--files'} lists exceptions of --no-code; add --no-code")
        return None
    for name in env or ():
        if not name.isidentifier():
            raise typer.BadParameter(f"--env takes the name of a variable, not {name!r}")
    return NoCode.of(env or (), files or ())


def client_properties(given: list[str] | None) -> dict[str, str]:
    """`["security.protocol=SSL", "sasl.password=@password.txt"]` as a mapping. Raises `typer.BadParameter` for an
    entry without a name, and for a file that cannot be read."""
    properties = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"--client takes NAME=VALUE, not {text!r}")
        properties[name] = _value_of(name, value)
    return properties


def _value_of(name: str, value: str) -> str:
    if not value.startswith("@") or value.startswith("@@"):
        return value.removeprefix("@")
    try:
        return Path(value[1:]).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8 text"
        raise typer.BadParameter(
            f"--client {name}: the file {value[1:]} cannot be read: {why}; a value that begins with @ is written @@"
        ) from None


def token_of(file: Path, option: str = "--token-file") -> str:
    """The token in the file of an option, which is not shown from now on. Raises `typer.BadParameter`."""
    from streamer.observe.shown import remember

    try:
        token = file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8 text"
        raise typer.BadParameter(f"{option} {file} cannot be read: {why}") from None
    if not token:
        raise typer.BadParameter(f"{option} {file} is empty, so everybody could send requests")
    remember([token])
    return token


_TYPES = {"mqtts": "mqtt", "ws": "mqtt", "wss": "mqtt"}
"""Types of sources by the schemes of URLs that differ from the type's name."""


def bus(address: str | None, client: list[str] | None) -> Browser:
    """The bus at `address`: Kafka brokers, or `TYPE://...` for a source of another type, such as `mqtt://host:1883`;
    `None`: the Kafka of services that name none.

    Raises `DefinitionError`.
    """
    from connectors.kafka.config import KafkaSourceConfig
    from connectors.registry import SOURCES

    scheme, separator, rest = (address or "").partition("://")
    properties = client_properties(client)
    if not separator or scheme == "kafka":
        return KafkaSourceConfig.browser_at(rest or address, properties)
    return SOURCES.get(_TYPES.get(scheme, scheme)).browser_at(str(address), properties)


def codec_setting(given: str) -> str | dict[str, object]:
    """The value of `codec` as in a service file. Raises `typer.BadParameter` for an invalid mapping."""
    if not given.lstrip().startswith("{"):
        return given
    import yaml

    try:
        setting = yaml.safe_load(given)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise typer.BadParameter(f"--codec {given!r} is not a mapping as service files have it: {reason}") from None
    return dict(setting)


def position(given: str) -> Literal["earliest", "latest"] | int:
    """Where to begin: earliest, latest, or milliseconds since 1970 from a time. Raises `typer.BadParameter`."""
    from pydantic import TypeAdapter, ValidationError

    from connectors.units import Position

    try:
        validated: Literal["earliest", "latest"] | int = TypeAdapter(Position).validate_python(given)
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    return validated


LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option("--log-level", help="Lowest level that is logged to stderr; by default warning, with JSON info."),
]
LogJson = Annotated[
    bool | None,
    typer.Option(
        "--log-json/--no-log-json",
        help="The form of stderr: JSON lines only, or text. By default the log is text on a terminal, else JSON.",
    ),
]
