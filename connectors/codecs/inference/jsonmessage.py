"""Reads the JSON of requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from connectors.codecs.inference.jsondata import MOST_DEPTH
from connectors.codecs.inference.message import Ask, Message, Parameters, check_tensor_parameters, without_unoffered
from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError

_decode: Final = msgspec.json.Decoder().decode
_NOT_JSON: Final = (b"NaN", b"Infinity", b"nan", b"inf")
_PARAMETER: Final = (str, bool, int, float)
_SIZE: Final = "binary_data_size"


def read_request(text: bytes | memoryview, *, counted: bool = False) -> Message:
    """The request, checked as far as it can be without the pipeline and the binary part. Raises `WireError`.

    If `counted`, the `data` of an input may be the number of its elements, which were read before.

    An answer, which names its model and has outputs instead of inputs, is read as a request with these.
    """
    document = _document(text)
    if "inputs" not in document and "model_name" in document and "outputs" in document:
        return _answer(document)
    parameters = _parameters(document, "the request")
    all_binary = _flag(parameters, "binary_data_output", "the request")
    outputs, binary = _outputs(document.get("outputs"))
    ask = Ask(
        id=_id(document.get("id")),
        outputs=outputs,
        binary=binary,
        all_binary=bool(all_binary),
    )
    left = {key: value for key, value in parameters.items() if key != "binary_data_output"}
    inputs = document.get("inputs")
    if inputs is None:
        raise WireError('the request has no "inputs"')
    return Message(_tensors(inputs, "input", counted=counted), without_unoffered(left), ask)


def read_answer(text: bytes | memoryview) -> Message:
    """The answer, checked as a request is. Raises `WireError`."""
    return _answer(_document(text))


def _answer(document: dict[str, Any]) -> Message:
    if "outputs" not in document:
        error = document.get("error")
        raise WireError(str(error) if error else 'the answer has no "outputs"')
    ask = Ask(
        id=_id(document.get("id")),
        model=str(document.get("model_name") or ""),
        version=str(document.get("model_version") or ""),
    )
    return Message(_tensors(document["outputs"], "output"), _parameters(document, "the answer"), ask)


def _document(text: bytes | memoryview) -> dict[str, Any]:
    try:
        document = _decode(text)
    except RecursionError:
        raise WireError(f"the request is nested more than {MOST_DEPTH} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raw = bytes(text)
        hint = "; numbers that JSON does not have, NaN and Infinity, can be sent as a binary tensor"
        raise WireError(
            f"the request is not valid JSON: {error}{hint if any(word in raw for word in _NOT_JSON) else ''}"
        ) from None
    if not isinstance(document, dict):
        raise WireError("the request is not a JSON object")
    for key, value in document.items():
        if key not in ("inputs", "outputs") and _deeper(value, MOST_DEPTH - 1):
            raise WireError(f"the request is nested more than {MOST_DEPTH} levels deep")
    return document


def _deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects in `value` are nested deeper than so many levels."""
    level = [value]
    while level:
        level = [item for item in level if isinstance(item, (list, dict))]
        if level and levels == 0:
            return True
        levels -= 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return False


def _tensors(entries: Any, kind: str, *, counted: bool = False) -> tuple[Tensor, ...]:
    if not isinstance(entries, list):
        raise WireError(f'"{kind}s" is not a list of tensors')
    tensors: list[Tensor] = []
    names: set[str] = set()
    for entry in entries:
        tensor = _tensor(entry, kind, counted)
        if tensor.name in names:
            raise WireError(f"{tensor.named} is there more than once")
        names.add(tensor.name)
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(entry: Any, kind: str, counted: bool) -> Tensor:
    name = _name(entry, kind)
    named = f'{kind} "{name}"'
    parameters = _parameters(entry, named)
    check_tensor_parameters(named, parameters)
    data, size = entry.get("data"), parameters.get(_SIZE)
    if data is not None and size is not None:
        raise WireError(f"{named} has both data and {_SIZE}; send one of them")
    if size is not None:
        if type(size) is not int or size < 0:
            raise WireError(f"{named}: {_SIZE} is no number of bytes")
    elif data is None:
        raise WireError(f"{named} has neither data nor {_SIZE}")
    elif not isinstance(data, list) and not (counted and type(data) is int):
        raise WireError(f"{named}: its data are not a list")
    for key in ("shape", "datatype"):
        if key not in entry:
            raise WireError(f"{named} has no {key}")
    if not isinstance(data, int):
        return Tensor.checked(kind, name, entry["datatype"], entry["shape"], size, data)
    tensor = Tensor.checked(kind, name, entry["datatype"], entry["shape"])
    if tensor.count != data:
        raise WireError(f"{named} has {tensor.count} values by its shape, and its data hold {data}")
    return tensor


def _outputs(entries: Any) -> tuple[tuple[str, ...] | None, Mapping[str, bool]]:
    """The names of the outputs asked for; and by name whether it is to be binary, where the request says it."""
    if entries is None or entries == []:
        return None, {}
    if not isinstance(entries, list):
        raise WireError('"outputs" is not a list of outputs')
    names: dict[str, None] = {}
    binary: dict[str, bool] = {}
    for entry in entries:
        name = _name(entry, "output")
        named = f'output "{name}"'
        if name in names:
            raise WireError(f"{named} is asked for more than once")
        names[name] = None
        parameters = _parameters(entry, named)
        check_tensor_parameters(named, parameters)
        wanted = _flag(parameters, "binary_data", named)
        if wanted is not None:
            binary[name] = wanted
    return tuple(names), binary


def _name(entry: Any, kind: str) -> str:
    if not isinstance(entry, dict):
        raise WireError(f'"{kind}s" holds something other than an object')
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise WireError(f"an {kind} has no name")
    return name


def _id(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError('the "id" is no text')
    return value


def _parameters(entry: Mapping[str, Any], named: str) -> Parameters:
    parameters = entry.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise WireError(f"the parameters of {named} are no object")
    # Some programs write null for what they do not say.
    said = {key: value for key, value in parameters.items() if value is not None}
    for key, value in said.items():
        if not isinstance(value, _PARAMETER):
            raise WireError(f'the parameter "{key}" of {named} is no text, number or boolean')
    return said


def _flag(parameters: Parameters, key: str, named: str) -> bool | None:
    value = parameters.get(key)
    if value is not None and not isinstance(value, bool):
        raise WireError(f'the parameter "{key}" of {named} is neither true nor false')
    return value
