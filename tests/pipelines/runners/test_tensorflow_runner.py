"""TENSORFLOW, ND4JTENSORFLOW and KERAS, on small models that TensorFlow and Keras make here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from pipelines import Data, Keras, MissingPackageError, Nd4jTensorFlow, Sequence, StepError, StreamerError, TensorFlow

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="tensorflow is not installed: pip install 'streamer-inference[tensorflow]'",
)
needs_keras_2 = pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None,
    reason="tf-keras is not installed: pip install 'streamer-inference[tensorflow]'",
)

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`run(step, *records)`: what becomes of the records, in a pipeline whose folder is `tmp_path`."""

    def go(step: Any, *datas: Data) -> list[Any]:
        text = json.dumps({"steps": [step.to_dict()]})
        with pipelines.loads(text, base=tmp_path).open() as executor:
            return executor.run_many(list(datas))

    return go


def frozen(path: Path, shape: tuple[int | None, ...] = (None, 3)) -> None:
    """y = relu(x) + 1, its parts in a scope `net`; `top` has two outputs: the greatest value and its place."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, shape, name="x")
        with tf.name_scope("net"):
            y = tf.add(tf.nn.relu(x), 1.0, name="y")
        tf.math.top_k(y, 1, name="top")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def saved(folder: Path) -> None:
    """y = x @ w with a variable w, and z = 2 x; the signature calls x "features"."""
    import tensorflow as tf

    def forward(features: Any) -> dict[str, Any]:
        return {"y": features @ net.w, "z": features * 2.0}

    net = tf.Module()
    net.w = tf.Variable(np.array([[1, 0], [0, 1], [1, 1]], "f4"))
    net.forward = tf.function(forward, input_signature=[tf.TensorSpec([None, 3], tf.float32, name="features")])
    tf.saved_model.save(net, str(folder), signatures=net.forward)


def f4(*values: Any) -> Any:
    return np.array(values, np.float32)


@needs_tensorflow
def test_a_frozen_graph_runs_by_the_names_of_its_operations(run: Run, tmp_path: Path) -> None:
    frozen(tmp_path / "m.pb")
    step = TensorFlow("m.pb", input_names=["x"], output_names=["net/y", "top:1"])

    found = run(step, Data({"x": f4(-1, 2, 0)}), Data({"x": f4([1, 2, 3], [9, 0, 0])}), Data({"x": f4([0, 0, 4])}))

    assert [set(data.keys()) for data in found] == [{"net/y", "top:1"}] * 3
    assert [data["net/y"].tolist() for data in found] == [[1, 3, 1], [[2, 3, 4], [10, 1, 1]], [[1, 1, 5]]]
    # A rank less goes in, a rank less comes out.
    assert [data["top:1"].tolist() for data in found] == [[1], [[2], [0]], [[2]]]


@needs_tensorflow
def test_without_names_placeholders_are_inputs_and_unread_tensors_are_outputs(run: Run, tmp_path: Path) -> None:
    frozen(tmp_path / "m.pb")
    (found,) = run(Nd4jTensorFlow("m.pb"), Data({"anything": f4(0, 0, 7)}))
    assert {key: found[key].tolist() for key in found} == {"top": [8.0], "top:1": [2]}


@needs_tensorflow
def test_mappings_rename_inputs_and_outputs(run: Run, tmp_path: Path) -> None:
    frozen(tmp_path / "m.pb")
    step = TensorFlow("m.pb", input_names={"x": "photo"}, output_names={"net/y": "scores"})
    (found,) = run(step, Data({"other": f4(1), "photo": f4(1, 1, 1)}))
    assert {key: found[key].tolist() for key in found} == {"scores": [2, 2, 2]}


@needs_tensorflow
def test_a_record_that_the_graph_does_not_take_fails_alone(run: Run, tmp_path: Path) -> None:
    frozen(tmp_path / "m.pb")
    step = TensorFlow("m.pb", output_names=["net/y"])
    good, short, text = run(step, Data({"x": f4(1, 1, 1)}), Data({"x": f4(1, 1)}), Data({"x": "hello"}))
    assert good["net/y"].tolist() == [2, 2, 2]
    assert isinstance(short, StepError)
    assert 'input "x" takes float32 [?, 3], but key "x" holds float32 [2]' in str(short)
    assert isinstance(text, StepError)


@needs_tensorflow
def test_a_graph_of_one_fixed_sample_runs_records_one_by_one(run: Run, tmp_path: Path) -> None:
    frozen(tmp_path / "m.pb", (1, 3))
    found = run(TensorFlow("m.pb", output_names=["net/y"]), *(Data({"x": f4(n, n, n)}) for n in range(3)))
    assert [data["net/y"].tolist() for data in found] == [[n + 1] * 3 for n in range(3)]


@needs_tensorflow
def test_a_saved_model_runs_by_the_names_of_its_signature_with_its_variables(run: Run, tmp_path: Path) -> None:
    saved(tmp_path / "net")
    records = [Data({"features": f4(1, 2, 3)}), Data({"features": f4(0, 0, 1)})]
    found = run(TensorFlow("net"), *records)
    assert [{key: data[key].tolist() for key in data} for data in found] == [
        {"y": [4, 5], "z": [2, 4, 6]},
        {"y": [1, 1], "z": [0, 0, 2]},
    ]
    # Its file stands for the folder, and names of the graph are understood too.
    step = TensorFlow("net/saved_model.pb", input_names=["serving_default_features"], output_names=["y"])
    (found,) = run(step, Data({"serving_default_features": f4(1, 1, 1)}))
    assert found["y"].tolist() == [2, 2]


@needs_tensorflow
def test_a_saved_models_file_alone_runs_if_it_needs_no_variables(run: Run, tmp_path: Path) -> None:
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        word = tf1.placeholder(tf.string, [None], name="word")
        tf1.saved_model.simple_save(session, str(tmp_path / "net"), {"word": word}, {"upper": tf.strings.upper(word)})
    (tmp_path / "net" / "saved_model.pb").rename(tmp_path / "upper.pb")
    found = run(TensorFlow("upper.pb"), Data({"word": "ab"}), Data({"word": "zürich"}), Data({"word": ["c", "d"]}))
    assert [data["upper"] for data in found] == ["AB", "ZüRICH", ["C", "D"]]

    saved(tmp_path / "other")
    (tmp_path / "other" / "saved_model.pb").rename(tmp_path / "other.pb")
    with pytest.raises(StreamerError, match=r"other\.pb cannot be loaded by itself.* set \"modelUri\" to that folder"):
        Sequence([TensorFlow("other.pb")], base=tmp_path).open()


@needs_tensorflow
def test_a_missing_or_broken_graph_and_wrong_tensor_names_are_told_when_it_opens(tmp_path: Path) -> None:
    frozen(tmp_path / "m.pb")
    (tmp_path / "no.pb").write_bytes(b"no graph")
    (tmp_path / "empty").mkdir()
    for step, text in (
        (
            TensorFlow("m.pb", output_names=["net/z"]),
            'the model has no output "net/z"; it has top, top:1, and what els',
        ),
        (TensorFlow("m.pb", input_names=["X"]), 'the model has no input "X"'),
        (TensorFlow("no.pb"), "no.pb cannot be loaded"),
        (TensorFlow("empty"), "empty cannot be loaded"),
        (TensorFlow("nope.pb"), "nope.pb is not there"),
    ):
        with pytest.raises(StreamerError) as caught:
            Sequence([step], base=tmp_path).open()
        assert text in str(caught.value)


@needs_tensorflow
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_a_keras_model_runs_with_the_steps_names(run: Run, tmp_path: Path, ending: str) -> None:
    import keras

    net = keras.Sequential([keras.Input((3,), name="pixels"), keras.layers.Dense(2, name="out")])
    net.layers[0].set_weights([np.array([[1, 0], [0, 1], [1, 1]], "f4"), np.array([0, 10], "f4")])
    net.save(tmp_path / f"m.{ending}")

    records = [Data({"photo": f4(1, 2, 3)}), Data({"photo": f4([0, 0, 1], [1, 0, 0])})]
    found = run(Keras(f"m.{ending}", input_names=["photo"], output_names=["scores"]), *records)
    assert [data["scores"].tolist() for data in found] == [[4, 15], [[1, 11], [1, 10]]]

    # Konduit's rules: the only array goes in, whatever its key, and a result without a name is "default".
    (found,) = run(Keras(f"m.{ending}"), Data({"anything": f4(0, 0, 0), "id": 7}))
    assert {key: found[key].tolist() for key in found} == {"default": [0, 10]}


@needs_tensorflow
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_a_keras_model_of_several_inputs_and_outputs_takes_names_in_its_order(
    run: Run, tmp_path: Path, ending: str
) -> None:
    import keras

    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    added, less = keras.layers.Add(name="added")([a, b]), keras.layers.Subtract(name="less")([a, b])
    keras.Model([a, b], [added, less]).save(tmp_path / f"m.{ending}")
    place = f"m.{ending}"

    (own,) = run(Keras(place), Data({"a": f4(3, 4), "b": f4(1, 1)}))
    assert {key: own[key].tolist() for key in own} == {"added": [4, 5], "less": [2, 3]}
    step = Keras(place, input_names=["left", "right"], output_names=["s", "d"])
    (named,) = run(step, Data({"left": f4(3, 4), "right": f4(1, 1)}))
    assert {key: named[key].tolist() for key in named} == {"s": [4, 5], "d": [2, 3]}
    # All its own names in another order are no other order of its inputs.
    (turned,) = run(Keras(place, input_names=["b", "a"]), Data({"a": f4(3, 4), "b": f4(1, 1)}))
    assert turned["less"].tolist() == [2, 3]
    (mapped,) = run(Keras(place, input_names={"b": "right"}), Data({"a": f4(3, 4), "right": f4(1, 1)}))
    assert mapped["less"].tolist() == [2, 3]
    for field, wanted in (("input_names", "inputNames has 1 names, but the model has 2: a, b"), ("output_names", "2")):
        with pytest.raises(StreamerError, match=wanted):
            Sequence([Keras(place, **{field: ["x"]})], base=tmp_path).open()
    with pytest.raises(StreamerError, match='the model has no "c"'):
        Sequence([Keras(place, input_names={"c": "x"})], base=tmp_path).open()


@needs_tensorflow
def test_keras_models_with_mappings_go_by_their_keys(run: Run, tmp_path: Path) -> None:
    import keras

    first, second = keras.Input((2,), name="first"), keras.Input((2,), name="second")
    net = keras.Model({"b": first, "a": second}, {"minus": first - second, "both": first + second})
    net.save(tmp_path / "m.keras")
    given = Data({"b": f4(10, 20), "a": f4(1, 2)})
    (found,) = run(Keras("m.keras"), given)
    assert {key: value.tolist() for key, value in found.items()} == {"both": [11, 22], "minus": [9, 18]}
    (found,) = run(Keras("m.keras", input_names={"b": "a", "a": "b"}, output_names={"minus": "y"}), given)
    assert found["y"].tolist() == [-9, -18]


@needs_tensorflow
def test_a_keras_model_with_lists_inside_mappings_says_what_to_do(tmp_path: Path) -> None:
    import keras

    given = keras.Input((2,))
    keras.Model(given, {"r": {"p": given + 1.0, "q": given}}).save(tmp_path / "m.keras")
    with pytest.raises(StreamerError, match=r"inside those of its inputs or outputs; save one"):
        Sequence([Keras("m.keras")], base=tmp_path).open()


@needs_tensorflow
def test_an_error_of_keras_is_told_without_its_traceback(run: Run, tmp_path: Path) -> None:
    import keras

    ids = keras.Input((None,), dtype="int32", name="ids")
    keras.Model(ids, keras.layers.Embedding(5, 2)(ids)).save(tmp_path / "m.keras")
    good, bad = run(Keras("m.keras"), Data({"ids": np.array([1, 2])}), Data({"ids": np.array([9, 9])}))
    assert good["default"].shape == (2, 2)
    assert "9 is not in [0, 5)" in str(bad)
    assert "File " not in str(bad)


@needs_tensorflow
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_a_keras_model_with_python_code_inside_is_refused(tmp_path: Path, ending: str) -> None:
    import keras

    net = keras.Sequential([keras.Input((1,)), keras.layers.Lambda(lambda x: x)])
    net.save(tmp_path / f"m.{ending}")
    with pytest.raises(StreamerError, match=r"cannot be loaded: .*[Ll]ambda"):
        Sequence([Keras(f"m.{ending}")], base=tmp_path).open()


@needs_keras_2
def test_a_file_of_keras_2_that_keras_3_cannot_read_runs(run: Run, tmp_path: Path) -> None:
    import tf_keras
    from tf_keras import layers

    ids, more = layers.Input((5,), name="ids", dtype="int32"), layers.Input((2,), name="more")
    # Keras 3 does not know all arguments of this layer.
    last = layers.LSTM(3)(layers.Embedding(7, 4)(ids))
    net = tf_keras.Model([ids, more], layers.Dense(1)(layers.concatenate([last, more])))
    net.save(tmp_path / "m.h5")
    given = [np.array([[1, 2, 3, 4, 5], [0, 0, 0, 0, 6]], "i4"), f4([0.5, 1], [2, 3])]
    wanted = net.predict_on_batch(given)

    step = Keras("m.h5", input_names=["words", "numbers"], output_names=["y"])
    found = run(step, *(Data({"words": words, "numbers": numbers}) for words, numbers in zip(*given, strict=True)))

    np.testing.assert_allclose([data["y"] for data in found], wanted, rtol=1e-5)


@needs_keras_2
def test_python_code_in_a_file_of_keras_2_is_not_run_either(tmp_path: Path) -> None:
    import tf_keras

    net = tf_keras.Sequential([tf_keras.Input((2, 1)), tf_keras.layers.LSTM(2), tf_keras.layers.Lambda(lambda x: x)])
    net.save(tmp_path / "m.h5")
    with pytest.raises(StreamerError, match="a Lambda layer is its author's Python code, which is not run"):
        Sequence([Keras("m.h5")], base=tmp_path).open()


@needs_keras_2
def test_a_file_that_only_keras_2_reads_is_refused_where_code_is_not_allowed(tmp_path: Path) -> None:
    import tensorflow as tf
    import tf_keras

    given = tf_keras.Input((2, 1))
    # An operation of TensorFlow as a layer; others write files.
    tf_keras.Model(given, tf.math.add(tf_keras.layers.LSTM(2)(given), 1.0)).save(tmp_path / "m.h5")
    pipeline = Sequence([Keras("m.h5")], base=tmp_path)
    with pipeline.open():
        pass
    with pytest.raises(StreamerError, match=r"tf-keras .* is not used where code is not allowed"):
        pipeline.open(allow_code=False)


def test_a_graph_of_tensorflow_is_refused_where_code_is_not_allowed(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"modelUri.*not allowed here"):
        Sequence([TensorFlow("m.pb")], base=tmp_path).open(allow_code=False)


@needs_tensorflow
def test_a_file_that_is_no_keras_model_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"no model")
    with pytest.raises(StreamerError, match=r"m\.keras cannot be loaded"):
        Sequence([Keras("m.keras")], base=tmp_path).open()


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="tensorflow is installed")
@pytest.mark.parametrize("step", [TensorFlow("m.pb"), Nd4jTensorFlow("m.pb"), Keras("m.keras")])
def test_without_tensorflow_the_error_names_the_extra(step: Any, tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"pip install 'streamer-inference\[tensorflow\]'") as caught:
        Sequence([step], base=tmp_path).open()
    assert isinstance(caught.value.__cause__, MissingPackageError)
