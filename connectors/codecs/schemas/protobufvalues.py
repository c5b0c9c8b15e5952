"""Messages of protobuf as dictionaries of plain values, and back.

A field is a key. Enums are the names of their values, maps and messages dictionaries, a 64-bit integer is an integer.
Of protobuf's own types a Timestamp is INT64 milliseconds since 1970, a Duration INT64 milliseconds, a wrapper its
value, a Struct, a Value or a ListValue its content. A field with presence that is not set is no key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict

from connectors.codecs.onevalue import described, only_element
from connectors.codecs.schemas import float32
from pipelines.data.data import check_key
from pipelines.errors import WireError, nearest

Read = Callable[[Any], Any]
Write = Callable[[Any, Any], None]

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DYNAMIC: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_MOST_TYPES: Final = 5000
_TYPES: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
"""The names of types of fields, `double`, by their numbers."""
_INTEGERS: Final = {
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT32,
            FieldDescriptor.TYPE_SINT32,
            FieldDescriptor.TYPE_SFIXED32,
            FieldDescriptor.TYPE_ENUM,
        ),
        (-(1 << 31), (1 << 31) - 1),
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), (0, (1 << 32) - 1)),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64),
        (-(1 << 63), (1 << 63) - 1),
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), (0, (1 << 64) - 1)),
}
"""The least and the largest of the integers that a type holds."""


class Field(NamedTuple):
    """Reads and writes one field of a message."""

    name: str
    presence: bool
    """Whether the field has presence: a message tells whether it is set."""
    read: Read | None
    """Converts the field's value to a plain one; `None` if it is plain already."""
    write: Write
    """Puts a plain value into a message."""
    oneof: str | None


class _Unwritten(WireError):
    """The error of a value that cannot be written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f'the value of "{path}" cannot be written: {reason}')
        self.path = path
        self.reason = reason


def _within(place: str, error: Exception) -> _Unwritten:
    """The error of the value at `place`, a key or `[index]`; `error` is its own, or that of a value inside it."""
    if not isinstance(error, _Unwritten):
        return _Unwritten(place, str(error))
    return _Unwritten(f"{place}{'' if error.path.startswith('[') else '.'}{error.path}", error.reason)


class MessageForm:
    """Reads and writes messages of one type. Forms of nested messages are made when first needed."""

    def __init__(self, descriptor: Any, known: dict[str, MessageForm] | None = None) -> None:
        self._known = {} if known is None else known
        self._known[descriptor.full_name] = self
        if len(self._known) > _MOST_TYPES:
            raise WireError(f"the schema has more than {_MOST_TYPES} types of messages")
        for field in descriptor.fields:
            check_key(field.name)
        self._fields = [self._field(field) for field in descriptor.fields]
        self._by_name = {field.name: field for field in self._fields}

    def read(self, message: Any) -> dict[str, Any]:
        """The values of a message."""
        values: dict[str, Any] = {}
        for name, presence, read, _, _ in self._fields:
            if presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            values[name] = value if read is None else read(value)
        return values

    def write(self, row: Mapping[str, Any], message: Any) -> None:
        """Set the fields of a message. Raises `WireError` for a value without a field, or of another type."""
        chosen: dict[str, str] = {}
        for key, value in row.items():
            field = self._by_name.get(key)
            if field is None:
                raise WireError(
                    f'the message has no field "{key}"{nearest(key, self._by_name)}; choose what the sink writes '
                    "(keys: [NAME], drop: [NAME]), or add the field"
                )
            if value is None:
                continue
            if field.oneof is not None and chosen.setdefault(field.oneof, key) != key:
                raise WireError(f'"{chosen[field.oneof]}" and "{key}" exclude each other (oneof {field.oneof})')
            try:
                field.write(message, value)
            except (TypeError, ValueError, OverflowError, AttributeError) as error:
                raise _within(key, error) from None

    def _field(self, field: Any) -> Field:
        name = field.name
        oneof = None if field.containing_oneof is None else field.containing_oneof.name
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            return Field(name, False, *self._map(field), None)
        read, made = self._single(field)
        if field.is_repeated:
            return Field(name, False, _list(read), _put_all(name, made), None)
        if made is None:
            return Field(name, field.has_presence, read, _put(name, field), oneof)
        return Field(name, field.has_presence, read, _fill(name, made), oneof)

    def _single(self, field: Any) -> tuple[Read | None, Write | None]:
        """Functions that read a single value of a field and, for messages, fill one."""
        if field.enum_type is not None:
            return _enum(field.enum_type), None
        kind = field.message_type
        if kind is None:
            return None, None
        name = kind.full_name
        if name == "google.protobuf.Timestamp":
            return _milliseconds, _fill_milliseconds
        if name == "google.protobuf.Duration":
            return _milliseconds, _fill_milliseconds
        if name in _WRAPPERS:
            return (lambda message: message.value), _fill_wrapper
        if name in _DYNAMIC:
            return _dynamic, _fill_dynamic

        def form() -> MessageForm:
            return self._known.get(name) or MessageForm(kind, self._known)

        return (lambda message: form().read(message)), (lambda message, value: form().write(_mapping(value), message))

    def _map(self, field: Any) -> tuple[Read, Write]:
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        read, made = self._single(value)
        name, key_of = field.name, _key_reader(key)

        def reading(mapping: Any) -> dict[str, Any]:
            return {_key_text(key): inner if read is None else read(inner) for key, inner in mapping.items()}

        def writing(message: Any, given: Any) -> None:
            target = getattr(message, name)
            for text, inner in _mapping(given).items():
                key = key_of(text)
                try:
                    if made is not None:
                        made(target[key], inner)
                    else:
                        target[key] = _scalar(_without_point(inner, value), value)
                except (TypeError, ValueError, OverflowError) as error:
                    raise _within(text, error if made is not None else _refusal(inner, value, error)) from None

        return reading, writing


def _list(read: Read | None) -> Read:
    if read is None:
        return list
    return lambda values: [read(item) for item in values]


def _put(name: str, field: Any) -> Write:
    def write(message: Any, value: Any) -> None:
        try:
            setattr(message, name, _scalar(value, field))
            return
        except TypeError:
            scalar = _without_point(only_element(value), field)
        except (ValueError, OverflowError) as error:
            raise _refusal(value, field, error) from None
        try:
            setattr(message, name, _scalar(scalar, field))
        except TypeError:
            raise TypeError(_unfit(value, field)) from None
        except (ValueError, OverflowError) as error:
            raise _refusal(scalar, field, error) from None

    return write


def _fill(name: str, made: Write) -> Write:
    def write(message: Any, value: Any) -> None:
        inner = getattr(message, name)
        # The message is present even if none of its fields is set.
        inner.SetInParent()
        made(inner, value)

    return write


def _put_all(name: str, made: Write | None) -> Write:
    def write(message: Any, values: Any) -> None:
        if not isinstance(values, list):
            raise TypeError(f"the field is repeated, which is a list, and the value is {described(values)}")
        target = getattr(message, name)
        if made is None:
            field = message.DESCRIPTOR.fields_by_name[name]
            try:
                target.extend(_scalars(values, field))
            except (TypeError, ValueError, OverflowError):
                # protobuf may have taken the first of them.
                del target[:]
                values = [_without_point(item, field) for item in values]
                refused = _refused_element(values, field, message)
                if refused is not None:
                    raise refused from None
                target.extend(_scalars(values, field))
        else:
            for at, item in enumerate(values):
                try:
                    made(target.add(), item)
                except (TypeError, ValueError, OverflowError) as error:
                    raise _within(f"[{at}]", error) from None

    return write


def _scalars(values: list[Any], field: Any) -> list[Any]:
    if field.type == FieldDescriptor.TYPE_FLOAT and set(map(type, values)) == {float} and float32.all_fit(values):
        return values
    return [_scalar(item, field) for item in values]


def _scalar(value: Any, field: Any) -> Any:
    if field.enum_type is None:
        # protobuf takes true for 1.
        if isinstance(value, bool) != (field.type == FieldDescriptor.TYPE_BOOL):
            raise TypeError(_unfit(value, field))
        # And it makes numbers infinite that are too large.
        if field.type == FieldDescriptor.TYPE_FLOAT and isinstance(value, float) and not float32.fits(value):
            raise ValueError(_unfit(value, field))
        return value
    if isinstance(value, str):
        member = field.enum_type.values_by_name.get(value)
        if member is not None:
            return member.number
        try:
            return int(value)
        except ValueError:
            known = field.enum_type.values_by_name
            raise ValueError(f'{field.enum_type.name} has no "{value[:60]}"{nearest(value, known)}') from None
    return value


def _refused_element(values: list[Any], field: Any, message: Any) -> Exception | None:
    """The error of the first of these values that such a message cannot have in this repeated field."""
    for at, item in enumerate(values):
        try:
            getattr(type(message)(), field.name).append(_scalar(item, field))
        except (TypeError, ValueError, OverflowError) as error:
            return _within(f"[{at}]", _refusal(item, field, error))
    return None


def _without_point(value: Any, field: Any) -> Any:
    """The integer that a float without a fraction is, where the field holds integers: 2 of 2.0."""
    if value.__class__ is float and field.type in _INTEGERS and value.is_integer():
        return int(value)
    return value


def _refusal(value: Any, field: Any, error: Exception) -> Exception:
    """The error for a value that protobuf refuses; `error` is used as it is for names in an enum."""
    if field.enum_type is not None and isinstance(value, str):
        return error
    return TypeError(_unfit(value, field))


def _unfit(value: Any, field: Any) -> str:
    kind = f"enum {field.enum_type.name}" if field.enum_type is not None else _TYPES[field.type]
    if isinstance(value, list) and not field.is_repeated:
        advice = "make the field repeated, or take one element in a step before the sink (REGRESSION_OUTPUT)"
    else:
        advice = "change the type in the schema, or the value in a step before the sink"
    bounds = ""
    if type(value) is float and field.type == FieldDescriptor.TYPE_FLOAT:
        bounds = f" (float holds {float32.RANGE})"
    elif type(value) is int and field.type in _INTEGERS:
        least, most = _INTEGERS[field.type]
        bounds = f" ({kind} holds {least} to {most})"
    return f"its type is {kind}, and the value is {described(value)}; {advice}{bounds}"


def _enum(kind: Any) -> Read:
    names = {value.number: value.name for value in reversed(kind.values)}
    return lambda number: names.get(number) or str(number)


def _milliseconds(message: Any) -> int:
    return int(message.seconds) * 1000 + int(message.nanos) // 1_000_000


def _fill_milliseconds(message: Any, value: Any) -> None:
    value = only_element(value)
    if value.__class__ is float and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a time is an integer, in milliseconds, and the value is {described(value)}")
    negative = message.DESCRIPTOR.name == "Duration" and value < 0
    seconds, rest = divmod(-value if negative else value, 1000)
    sign = -1 if negative else 1
    message.seconds, message.nanos = sign * seconds, sign * rest * 1_000_000


def _fill_wrapper(message: Any, value: Any) -> None:
    _put("value", message.DESCRIPTOR.fields_by_name["value"])(message, value)


def _dynamic(message: Any) -> Any:
    return MessageToDict(message)


def _fill_dynamic(message: Any, value: Any) -> None:
    ParseDict(value, message)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"a message is a nested Data (an object), and the value is {described(value)}")
    return value


def _key_text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _key_reader(key: Any) -> Callable[[str], Any]:
    if key.type == FieldDescriptor.TYPE_STRING:
        return str
    of = {"true": True, "false": False}.get if key.type == FieldDescriptor.TYPE_BOOL else partial(_whole, key.type)

    def read(text: str) -> Any:
        parsed = of(text)
        if parsed is None:
            raise ValueError(f'keys of the map are {_TYPES[key.type]}, and "{text[:60]}" is none')
        return parsed

    return read


def _whole(type: int, text: str) -> int | None:
    """The text as an integer of this type; `None` if it is not one."""
    try:
        number = int(text)
    except ValueError:
        return None
    least, most = _INTEGERS[type]
    return number if least <= number <= most else None
