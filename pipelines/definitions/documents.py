"""Reads JSON and YAML files and texts as documents, whose errors name file and line.

Used for pipeline definitions and service files alike. Reading is safe: no tag constructs anything, and size, depth
and the number of values (aliases counted as often as they are used) are bounded.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from pipelines.definitions.document import DEFAULT_LIMITS, TEXT, Document, FileLimits, NotJson
from pipelines.definitions.jsonreader import parse_json
from pipelines.definitions.yamlreader import parse_yaml
from pipelines.errors import DefinitionError, nearest


def read_documents(path: str | PathLike[str], limits: FileLimits = DEFAULT_LIMITS) -> list[Document]:
    """All documents of a JSON or YAML file; a JSON file holds one.

    Raises `DefinitionError` for a file that cannot be read, is neither JSON nor YAML, gives a key twice, or exceeds
    the limits.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            content = file.read(limits.bytes + 1)
    except FileNotFoundError:
        raise DefinitionError(f"{path}: no such file{nearest(place.name, _texts(place.parent))}") from None
    except IsADirectoryError:
        inside = sorted(_texts(place))[:3]
        hint = f", such as {' or '.join(str(place / name) for name in inside)}" if inside else ""
        raise DefinitionError(f"{path}: is a folder; name a file{hint}") from None
    except OSError as error:
        raise DefinitionError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_documents(content, str(path), limits)


def parse_documents(text: str | bytes, file: str = TEXT, limits: FileLimits = DEFAULT_LIMITS) -> list[Document]:
    """All documents of a JSON or YAML text; as `read_documents`."""
    text = _decoded(text, file, limits)
    if not text.lstrip().startswith(("{", "[")):
        return parse_yaml(text, file, limits)
    try:
        return [parse_json(text, file, limits)]
    except NotJson as error:
        # YAML too may begin with a brace. Text that is neither was more likely meant to be JSON.
        try:
            return parse_yaml(text, file, limits)
        except DefinitionError:
            raise error from None


def read_document(path: str | PathLike[str], limits: FileLimits = DEFAULT_LIMITS) -> Document:
    """The only document of a file; as `read_documents`, and `DefinitionError` if there are none or several."""
    return only(read_documents(path, limits), str(path))


def parse_document(text: str | bytes, file: str = TEXT, limits: FileLimits = DEFAULT_LIMITS) -> Document:
    """The only document of a text; as `read_document`."""
    return only(parse_documents(text, file, limits), file)


def only(documents: list[Document], file: str) -> Document:
    """The one document of a file. Raises `DefinitionError` if there are none or several."""
    if not documents:
        raise DefinitionError(f"{file}: is empty")
    if len(documents) > 1:
        raise DefinitionError(f"{documents[1].where()}a second YAML document (---) begins; only one is expected here")
    return documents[0]


_MODELS = (".onnx", ".h5", ".keras", ".pb", ".pt", ".pkl", ".joblib", ".tflite", ".zip")


def _decoded(text: str | bytes, file: str, limits: FileLimits) -> str:
    if len(text) > limits.bytes:
        raise DefinitionError(f"{file}: is larger than {limits.bytes} bytes")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        hint = ""
        if file.endswith(_MODELS):
            hint = "; it is a model: a step names it, as in {steps: [{'@type': ONNX, modelUri: model.onnx}]}"
        raise DefinitionError(
            f"{file}:{line}: is not UTF-8 text ({error.reason} at byte {error.start}){hint}"
        ) from None


def _texts(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir() if file.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return []
