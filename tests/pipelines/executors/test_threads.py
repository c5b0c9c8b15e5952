"""One executor that several threads use at the same time."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines import Data, GraphBuilder, Pipeline, PipelineStep, Sequence


class Remembering:
    """A step that is wrong if a second record comes before it has finished the first."""

    def __call__(self, data: Data) -> dict[str, int]:
        self.number = data["number"]
        time.sleep(0.001)
        return {"number": self.number}


def graph() -> Pipeline:
    builder = GraphBuilder()
    return builder.build(builder.input.then("remembering", Remembering()))


@pytest.mark.parametrize(
    "pipeline", [Sequence([Remembering()]), graph(), Sequence([PipelineStep(pipeline=Sequence([Remembering()]))])]
)
def test_each_thread_gets_the_results_of_its_own_records(pipeline: Pipeline) -> None:
    with pipeline.open() as executor, ThreadPoolExecutor(4) as threads:

        def numbers(first: int) -> list[int]:
            found = executor.run_many([Data({"number": first}), Data({"number": first + 1})])
            return [one["number"] for one in found if isinstance(one, Data)]

        found = list(threads.map(numbers, range(40)))
        assert found == [[first, first + 1] for first in range(40)]
