"""A folder of models, as clients of Triton load, unload and ask them."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from grpc import insecure_channel
from repositoryserving import BEGAN, ENDS, free, model, served
from tritonclient.utils import InferenceServerException
from waiting import until

from connectors.http.endpoint.repository.models import Outcome
from pipelines import Onnx, Sequence
from streamer.definition.nocode import NoCode
from streamer.models.files import ModelFiles
from streamer.models.marks import Marks
from streamer.models.repository.commands import Command, Commands
from streamer.models.repository.endpoints import Endpoints, LoadedModel
from streamer.models.repository.parameters import Parameters
from streamer.models.repository.repository import ModelRepository

TOKEN = MappingProxyType({"authorization": "Bearer sesame"})

MORE = {"batch": {"max_records": 4}}


class Triton:
    """Triton's client over HTTP, with the token."""

    def __init__(self, repository: ModelRepository) -> None:
        self.url = "{}:{}".format(*repository.address)
        self.client = http.InferenceServerClient(self.url, network_timeout=20.0)

    def load(self, name: str, **named: Any) -> None:
        self.client.load_model(name, headers=dict(TOKEN), **named)

    def unload(self, name: str) -> None:
        self.client.unload_model(name, headers=dict(TOKEN))

    def index(self) -> dict[str, tuple[str, str]]:
        entries = self.client.get_model_repository_index(headers=dict(TOKEN))
        return {entry["name"]: (entry["state"], entry["reason"]) for entry in entries}

    def infer(self, name: str) -> tuple[list[float], str]:
        x = http.InferInput("x", [1, 2], "FP32")
        x.set_data_from_numpy(np.array([[1, 2]], np.float32))
        answer = self.client.infer(name, [x], headers=dict(TOKEN))
        return answer.as_numpy("y")[0].tolist(), answer.get_response()["model_version"]

    def post(self, path: str, body: object = None) -> httpx2.Response:
        content = b"" if body is None else json.dumps(body).encode()
        return httpx2.post(f"http://{self.url}/v2/repository/{path}", content=content, headers=dict(TOKEN), timeout=20)

    def name(self, **parameters: Any) -> str:
        """The endpoint of the answer to a load of `adds`."""
        answer = self.post("models/adds/load", {"parameters": parameters})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["name"])

    def status(self, path: str) -> int:
        return httpx2.get(f"http://{self.url}/v2/{path}", headers=dict(TOKEN)).status_code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    model(folder / "adds" / "1" / "model.onnx", 1)
    model(folder / "plain.onnx")
    (folder / "broken.onnx").write_text("no model")
    (folder / "own").mkdir()
    (folder / "own" / "service.yaml").write_text(
        "{source: {type: http, codec: json}, pipeline: [], sink: {type: http}}"
    )
    return folder


@pytest.fixture(scope="module")
def repository(folder: Path) -> Iterator[ModelRepository]:
    with served(folder, grpc=free()) as repository:
        yield repository


@pytest.fixture(scope="module")
def triton(repository: ModelRepository) -> Triton:
    return Triton(repository)


def test_all_models_that_can_be_opened_are_and_the_index_says_why_another_is_not(triton: Triton) -> None:
    index = triton.index()
    assert {name: state for name, (state, _) in index.items()} == {
        "adds": "READY",
        "broken": "UNAVAILABLE",
        "own": "READY",
        "plain": "READY",
    }
    assert "not an ONNX model" in index["broken"][1]
    ready = triton.post("index", {"ready": True}).json()
    assert [entry["name"] for entry in ready] == ["adds", "own", "plain"]
    assert "model_repository" in triton.client.get_server_metadata(headers=dict(TOKEN))["extensions"]
    assert triton.infer("plain")[0] == [1, 2]
    assert httpx2.post(f"http://{triton.url}/v1/own", content=b'{"a": 1}', headers=dict(TOKEN)).json() == {"a": 1}


def test_the_document_of_the_server_has_its_requests_for_loading(triton: Triton) -> None:
    paths = httpx2.get(f"http://{triton.url}/openapi.json", headers=dict(TOKEN)).json()["paths"]
    commands = ["index", "models/{name}/load", "models/{name}/unload"]
    assert [path for path in paths if "repository" in path] == [f"/v2/repository/{command}" for command in commands]
    assert paths["/v2/repository/models/{name}/load"]["post"]["parameters"][0]["name"] == "name"
    assert triton.post("index", {"ready": "no"}).status_code == 400


def test_readiness_is_true_of_each_model_and_of_the_server(triton: Triton) -> None:
    assert [triton.status(f"models/{name}/ready") for name in ("plain", "broken", "gone")] == [200, 503, 404]
    assert triton.status("health/ready") == 503
    triton.unload("broken")
    assert triton.index()["broken"] == ("UNAVAILABLE", "unloaded")
    assert (triton.status("health/ready"), triton.status("models/broken/ready")) == (200, 404)
    with pytest.raises(InferenceServerException, match="not an ONNX model"):
        triton.load("broken")
    assert triton.status("health/ready") == 503


def test_loads_and_unloads_of_tritons_http_client_may_be_repeated(triton: Triton) -> None:
    for _ in range(2):
        triton.unload("plain")
    assert triton.index()["plain"] == ("UNAVAILABLE", "unloaded")
    with pytest.raises(InferenceServerException, match="is not loaded"):
        triton.infer("plain")
    for _ in range(2):
        triton.load("plain")
    assert triton.infer("plain")[0] == [1, 2]
    with pytest.raises(InferenceServerException, match='no model "plane" in the repository; did you mean "plain"'):
        triton.load("plane")


def test_loads_and_unloads_of_tritons_grpc_client_do_the_same(repository: ModelRepository) -> None:
    with grpc.InferenceServerClient(str(repository._loader.address.grpc)) as client:
        client.unload_model("plain", headers=dict(TOKEN))
        client.load_model("plain", headers=dict(TOKEN), config=json.dumps(MORE))
        index = client.get_model_repository_index(headers=dict(TOKEN))
        assert [entry.state for entry in index.models if entry.name == "plain"] == ["READY"]
        assert client.is_model_ready("plain", headers=dict(TOKEN))
        with pytest.raises(InferenceServerException, match="there is no model"):
            client.load_model("gone", headers=dict(TOKEN))
        with pytest.raises(InferenceServerException, match="token is missing"):
            client.load_model("plain")
        client.unload_model("plain", headers=dict(TOKEN))
        client.load_model("plain", headers=dict(TOKEN))
    with insecure_channel(str(repository._loader.address.grpc)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        _, done = call.with_call(b"\x12\x05plain", metadata=[("authorization", TOKEN["authorization"])])
        assert ("streamer-endpoint", "plain") in [tuple(item) for item in done.trailing_metadata()]


def test_a_model_with_other_parameters_gets_an_endpoint_of_its_own(triton: Triton) -> None:
    other = {"model.maxBatch": 8}
    triton.unload("adds")
    assert triton.name(config=json.dumps(MORE)) == "adds"
    assert triton.name(**other) == "adds-0"
    assert triton.name() == "adds-1"
    assert triton.name(**other) == "adds-0"
    assert triton.name(config=MORE) == "adds"
    assert triton.infer("adds-0")[0] == [2, 3]
    # By its own name it is looked for new files.
    assert triton.post("models/adds-0/load").json() == {"name": "adds-0"}
    triton.unload("adds-0")
    assert triton.name(**{"model.maxBatch": 9}) == "adds-0"
    for name in ("adds", "adds-0", "adds-1"):
        triton.unload(name)
    assert [name for name in triton.index() if name.startswith("adds")] == ["adds"]
    assert triton.name() == "adds"


def test_a_load_that_does_not_share_adds_a_worker_and_the_last_unload_ends_the_endpoint(
    triton: Triton, repository: ModelRepository
) -> None:
    def workers() -> int:
        agent = repository._endpoints["adds"].agent
        assert agent is not None
        return agent.service.limits.parallel

    assert [triton.name(share=False), workers()] == ["adds", 2]
    triton.unload("adds")
    assert (workers(), triton.infer("adds")[0]) == (1, [2, 3])
    triton.unload("adds")
    assert triton.index()["adds"] == ("UNAVAILABLE", "unloaded")
    triton.load("adds")


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("..", {}, "there is no model"),
        ("../models", {}, "there is no model"),
        ("/etc", {}, "there is no model"),
        ("adds", {"model.modelUri": "/etc/passwd"}, "is no file of adds/"),
        ("adds", {"model.modelUri": "../plain.onnx"}, "is no file of adds/"),
        ("adds", {"model.modelUri": "http://127.0.0.1:1/model.onnx"}, "is no file of adds/"),
        ("adds", {"model.modelUrl": "x"}, 'did you mean "modelUri"'),
        ("adds", {"model.sessionOptions.config": {"ep.context_file_path": "x"}}, "parameters cannot set it"),
        ("adds", {"shares": True}, 'did you mean "share"'),
        ("adds", {"share": "no"}, "true or false is needed"),
        ("adds", {"config": "{"}, "config is no JSON"),
        ("adds", {"config": {"sink": {}}}, '"sink" cannot be overridden'),
        ("adds", {"config": {"limits": {"parallel": 0}}}, "limits.parallel"),
        ("adds", {"file:1/model.onnx": "AA=="}, "not sent with a request"),
    ],
)
def test_what_a_load_may_not_ask_for_is_told(
    name: str, parameters: dict[str, Any], said: str, triton: Triton, repository: ModelRepository
) -> None:
    outcome = repository.command("load", name, parameters).result(20)
    assert outcome.status == 400
    assert said in str(outcome.error)


def test_new_files_are_used_after_a_load_and_broken_ones_leave_the_model_ready(tmp_path: Path) -> None:
    model(tmp_path / "adds" / "1" / "model.onnx", 1)
    with served(tmp_path) as repository:
        triton = Triton(repository)
        assert triton.infer("adds") == ([2, 3], "1")
        model(tmp_path / "adds" / "2" / "model.onnx", 2)
        results = []
        ends = threading.Event()

        def ask() -> None:
            client = Triton(repository)
            while not ends.is_set():
                results.append(client.infer("adds"))

        asking = threading.Thread(target=ask)
        asking.start()
        triton.load("adds")
        ends.set()
        asking.join()
        assert {tuple(values) for values, _ in results} <= {(2, 3), (3, 4)}
        agent = repository._endpoints["adds"].agent
        assert agent is not None
        # It was warmed up on what the version before had run on.
        assert agent.ran["current"].of("model").last is not None
        assert triton.infer("adds") == ([3, 4], "2")
        (tmp_path / "adds" / "3").mkdir()
        (tmp_path / "adds" / "3" / "model.onnx").write_text("half a model")
        with pytest.raises(InferenceServerException, match="not an ONNX model"):
            triton.load("adds")
        assert (triton.infer("adds"), triton.status("health/ready")) == (([3, 4], "2"), 200)
        shutil.rmtree(tmp_path / "adds")
        with pytest.raises(InferenceServerException, match="there is no model"):
            triton.load("adds")
        triton.unload("adds")
        assert triton.index() == {}


def test_a_service_with_variants_takes_new_files_over_itself_and_keeps_their_weights(tmp_path: Path) -> None:
    for number in (1, 2):
        model(tmp_path / "adds" / "versions" / str(number) / "model.onnx", number)
    (tmp_path / "adds" / "service.yaml").write_text(
        "{source: {type: http}, pipeline: [{'@type': ONNX, modelUri: versions}], sink: {type: http},"
        " variants: {old: {version: 1, weight: 0}}}"
    )
    with served(tmp_path) as repository:
        triton = Triton(repository)
        assert triton.infer("adds") == ([3, 4], "2")
        agent = repository._endpoints["adds"].agent
        assert agent is not None
        agent.weigh("old", 100)
        agent.weigh("current", 0)
        model(tmp_path / "adds" / "versions" / "3" / "model.onnx", 3)
        triton.load("adds")
        assert triton.infer("adds") == ([2, 3], "1")
        agent.weigh("current", 100)
        agent.weigh("old", 0)
        assert triton.infer("adds") == ([4, 5], "3")
        (tmp_path / "adds" / "versions" / "4").mkdir()
        (tmp_path / "adds" / "versions" / "4" / "model.onnx").write_text("half a model")
        with pytest.raises(InferenceServerException, match="version 4 cannot be used"):
            triton.load("adds")
        assert (triton.infer("adds"), repository._endpoints["adds"].agent) == (([4, 5], "3"), agent)


def test_parameters_choose_no_code(tmp_path: Path) -> None:
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "service.yaml").write_text(
        "{source: {type: http, codec: json}, pipeline: [{'@type': FUNCTION, function: 'repositoryserving:wait'}],"
        " sink: {type: http}}"
    )
    with served(tmp_path) as repository:
        triton = Triton(repository)
        for field in ("FUNCTION.function", "FUNCTION.args"):
            value = "os:getcwd" if field.endswith("function") else {"limit": 3}
            answer = triton.post("models/waits/load", {"parameters": {"config": json.dumps({"set": {field: value}})}})
            assert answer.status_code == 400
            assert "runs code" in answer.json()["error"]
        assert triton.index()["waits"][0] == "READY"


def test_an_unload_answers_what_was_accepted_and_refuses_what_comes_then(tmp_path: Path) -> None:
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "service.yaml").write_text(
        "{source: {type: http, codec: json}, pipeline: [{'@type': FUNCTION, function: 'repositoryserving:wait'}],"
        " sink: {type: http}}"
    )
    with served(tmp_path) as repository, ThreadPoolExecutor(1) as pool:
        triton = Triton(repository)
        url = f"http://{triton.url}/v1/waits"
        asked = pool.submit(httpx2.post, url, content=b'{"a": 1}', headers=dict(TOKEN), timeout=20)
        assert BEGAN.wait(20)
        unloaded = repository.command("unload", "waits", {})
        assert until(lambda: triton.index()["waits"][0] == "UNLOADING")
        assert triton.status("models/waits/ready") == 503
        refused = httpx2.post(url, content=b"{}", headers=dict(TOKEN))
        assert (refused.status_code, refused.headers["retry-after"], unloaded.done()) == (503, "1", False)
        ENDS.set()
        assert asked.result().json() == {"a": 1}
        assert unloaded.result(20) == Outcome("waits")
        assert triton.status("models/waits/ready") == 404


def test_files_that_make_no_model_are_told_and_code_is_refused_without_it(tmp_path: Path) -> None:
    model(tmp_path / "plain.onnx")
    files = {
        "named": "{name: elsewhere, source: {type: http}, pipeline: [], sink: {type: http}}",
        "several": "{source: {type: http}, pipeline: [], sink: {type: http}}\n---\n"
        "{source: {type: http}, pipeline: [], sink: {type: http}}",
        "coded": "{source: {type: http}, pipeline: [{'@type': FUNCTION, function: 'os:getcwd'}], sink: {type: http}}",
    }
    for name, text in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "service.yaml").write_text(text)
    with served(tmp_path, no_code=NoCode.of()) as repository:
        entries = {entry.name: entry for entry in repository.entries()}
    assert 'its name is "elsewhere", and requests name its folder, "named"' in entries["named"].reason
    assert "it defines 2 services; a model is one" in entries["several"].reason
    assert "--no-code (STREAMER_NO_CODE) refuses code" in entries["coded"].reason
    assert entries["plain"].state == "READY"


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    model(tmp_path / "outside.onnx")
    inside = model(tmp_path / "models" / "plain.onnx").parent
    (inside / "linked.onnx").symlink_to(tmp_path / "outside.onnx")
    with served(inside) as repository:
        states = {entry.name: entry for entry in repository.entries()}
    assert "leads out of the repository" in states["linked"].reason
    assert states["plain"].state == "READY"


def test_without_control_models_are_not_loaded_by_requests_and_the_index_is_readable(tmp_path: Path) -> None:
    model(tmp_path / "plain.onnx")
    with served(tmp_path, controlled=False, token=None) as repository:
        triton = Triton(repository)
        answer = triton.post("models/plain/unload")
        assert (answer.status_code, "--model-control" in answer.json()["error"]) == (403, True)
        assert triton.index() == {"plain": ("READY", "")}


def test_commands_of_many_threads_end_as_one_after_the_other_would(repository: ModelRepository) -> None:
    chance = random.Random(30)
    kinds: list[dict[str, Any]] = [{}, {"config": MORE}, {"model.maxBatch": 8}]
    order: list[tuple[str, str, dict[str, Any]]] = []
    guard = threading.Lock()
    futures = []

    def send(verb: str, name: str, parameters: dict[str, Any]) -> None:
        with guard:
            # What was put in first is to be carried out first.
            order.append((verb, name, parameters))
            futures.append(repository.command(verb, name, parameters))  # type: ignore[arg-type]

    wanted = [
        ("load", "adds", chance.choice(kinds))
        if chance.random() < 0.5
        else ("unload", chance.choice(["adds", "adds-0", "adds-1"]), {})
        for _ in range(200)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: send(*each), wanted))
    outcomes = [future.result(30) for future in futures]
    assert {outcome.status for outcome in outcomes} == {200, 409}
    endpoints = Endpoints({"adds": LoadedModel("adds", "adds", Parameters())})
    for verb, name, parameters in order:
        if verb == "unload":
            endpoints.pop(name, None)
        else:
            asked = Parameters.of(parameters)
            name = endpoints.named_for("adds", asked, ())
            endpoints.setdefault(name, LoadedModel(name, "adds", asked))
    left = {name: each.parameters for name, each in repository._endpoints.items() if each.model == "adds"}
    assert left == {name: each.parameters for name, each in endpoints.items()}
    for name in left:
        assert repository.command("unload", name, {}).result(20).status == 200
    assert repository.command("load", "adds", {}).result(20) == Outcome("adds")


def test_equal_loads_that_wait_are_one() -> None:
    commands = Commands(10)
    for _ in range(3):
        assert commands.put(Command("load", "a", "a"))
    assert commands.put(Command("unload", "a", "a"))
    assert commands.put(Command("load", "a", "a"))
    assert [command.verb for command in iter(lambda: commands.take(0), None)] == ["load", "unload", "load"]


def test_a_model_that_ended_the_process_does_not_end_it_again_until_somebody_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    marks = Marks("deadly")
    files = ModelFiles(Sequence([Onnx(model_uri=model(tmp_path / "models" / "deadly.onnx"))])).look()
    model(tmp_path / "models" / "other.onnx")
    with marks.opening("current", files, None):
        (mark,) = marks._open
        content = mark.read_bytes()
    mark.write_bytes(content)
    with served(tmp_path / "models") as repository:
        triton = Triton(repository)
        state, reason = triton.index()["deadly"]
        assert (state, triton.index()["other"][0]) == ("UNAVAILABLE", "READY")
        assert reason.startswith("the process ended while it opened these files")
        triton.load("deadly")
        assert triton.index()["deadly"][0] == "READY"
        assert not mark.exists()
