"""How definitions are shown: settings as text, graphs as Mermaid text for Markdown and SVG for notebooks."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping

from pipelines.definitions.wiring import INPUT, Node
from pipelines.steps import Function, GraphStep, PipelineStep, SwitchOutput, Typed
from pipelines.steps.base import TYPE_KEY

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 150, 36, 40, 16, 8


def mermaid(order: Mapping[str, Node], output: str) -> str:
    """A Mermaid flow chart of nodes whose inputs come before them: steps are boxes, joints are rounded."""
    ids = {name: f"n{place}" for place, name in enumerate([INPUT, *order])}
    lines = ["flowchart LR", f"  {ids[INPUT]}([input])"]
    for name, node in order.items():
        label = f"{_quoted(name)}<br/>{node.step.type_name}"
        shape = f'("{label}")' if isinstance(node.step, GraphStep) else f'["{label}"]'
        lines.append(f"  {ids[name]}{shape}")
    for name, node in order.items():
        arrow = f"-->|{node.step.output_num}|" if isinstance(node.step, SwitchOutput) else "-->"
        lines += [f"  {ids[source]} {arrow} {ids[name]}" for source in node.inputs]
    return "\n".join([*lines, f"  {ids[output]} --> out([output])"]) + "\n"


def drawn(order: Mapping[str, Node], output: str) -> str:
    """An SVG of nodes whose inputs come before them: columns by the longest way from the input."""
    columns: dict[str, int] = {INPUT: 0}
    for name, node in order.items():
        columns[name] = 1 + max(columns[source] for source in node.inputs)
    rows: dict[str, int] = {}
    for name, column in columns.items():
        rows[name] = sum(columns[other] == column for other in rows)
    places = {
        name: (_EDGE + columns[name] * (_WIDTH + _GAP_X), _EDGE + rows[name] * (_HEIGHT + _GAP_Y)) for name in columns
    }
    lines = [_line(places[source], places[name]) for name, node in order.items() for source in node.inputs]
    boxes = [_box(places[INPUT], INPUT, "", "#eef", 18)]
    for name, node in order.items():
        joint = isinstance(node.step, GraphStep)
        fill = "#efe" if name == output else "#fff"
        boxes.append(_box(places[name], name, node.step.type_name, fill, 18 if joint else 3))
    width = max(x for x, _ in places.values()) + _WIDTH + _EDGE
    height = max(y for _, y in places.values()) + _HEIGHT + _EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">{"".join(lines + boxes)}</svg>'
    )


def settings_text(step: Typed) -> str:
    """The settings of a step, in a readable line."""
    if isinstance(step, Function):
        return step.label
    if isinstance(step, PipelineStep):
        return str(step.pipeline)
    shown = {key: value for key, value in step.to_dict().items() if key not in (TYPE_KEY, "name")}
    text = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in shown.items())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0], end[1] + _HEIGHT // 2
    bend = (x2 - x1) // 2
    return f'<path d="M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}" fill="none" stroke="#888"/>'


def _box(place: tuple[int, int], name: str, kind: str, fill: str, radius: int) -> str:
    x, y = place
    shown = name if len(name) <= 22 else f"{name[:21]}…"
    middle = x + _WIDTH // 2
    text = f'<text x="{middle}" y="{y + (16 if kind else 22)}" text-anchor="middle">{html.escape(shown)}</text>'
    if kind:
        text += (
            f'<text x="{middle}" y="{y + 30}" text-anchor="middle" font-size="9" fill="#666">{html.escape(kind)}</text>'
        )
    box = f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}" fill="{fill}" stroke="#888"/>'
    return box + text


def _quoted(text: str) -> str:
    return html.escape(text).replace("\n", " ")
