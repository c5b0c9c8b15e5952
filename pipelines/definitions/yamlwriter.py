"""Plain data as YAML in Konduit Serving's style: a `---`, bare keys, double-quoted strings."""

from __future__ import annotations

import re
from typing import Any

import yaml


def write_yaml(data: Any) -> str:
    """The YAML text of plain data (`dict list str int float bool None`)."""
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        explicit_start=True,
        width=10**9,
    )
    return text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        pairs = [(self._key(str(key)), self.represent_data(value)) for key, value in mapping.items()]
        return yaml.MappingNode(tag, pairs, flow_style=None if not pairs else False)

    def _key(self, key: str) -> yaml.ScalarNode:
        return self.represent_str(key) if _BARE.fullmatch(key) else _quoted(self, key)


# Other characters than printable ASCII need escapes, which only double quotes have.
_BARE = re.compile(r"[ -~]+")


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Quoted always: whether plain text is a string depends on the reader's YAML version.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Dumper.add_representer(str, _quoted)
