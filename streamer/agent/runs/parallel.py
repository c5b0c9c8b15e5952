"""Which pipelines may be opened several times, so that batches run at the same time: `limits.parallel` above 1."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import DefinitionError


def check_parallel(parallel: int, sequential_steps: Sequence[str]) -> None:
    """Raise `DefinitionError` if there is a step that has to see all records, in order, and `parallel` is above 1."""
    if parallel > 1 and sequential_steps:
        raise DefinitionError(
            f'limits: parallel: {parallel}: the step "{sequential_steps[0]}" has to see all records, in order, '
            "and another one beside it would get some of them; remove parallel, or use --workers, which share the "
            "partitions"
        )
