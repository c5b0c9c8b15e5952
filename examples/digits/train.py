"""Train the digits classifier and write `digits.onnx` and `digits.npz`.

    python examples/digits/train.py

The data are scikit-learn's copy of the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0): 1797 images of 8 x 8 pixels, 0 to 16. Half of them
train the model; the other half, which it has never seen, goes to `digits.npz` for the demo.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).parent


def main() -> None:
    """Train, say how good it is, write both files."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    seen, unseen, seen_labels, labels = train_test_split(
        images, digits.target, test_size=0.5, random_state=7, stratify=digits.target
    )
    network = MLPClassifier(hidden_layer_sizes=(64,), max_iter=400, random_state=7)
    network.fit(scaled(seen), seen_labels)
    print(f"accuracy on {len(unseen)} unseen images: {network.score(scaled(unseen), labels):.3f}")
    onnx.save(as_onnx(network), HERE / "digits.onnx")
    np.savez_compressed(HERE / "digits.npz", images=unseen, labels=labels.astype(np.uint8))


def scaled(images: np.ndarray) -> np.ndarray:
    """Pixels as the network takes them: float32 `(N, 64)` from 0 to 1."""
    return images.reshape(len(images), 64).astype(np.float32) / 16.0


def as_onnx(network: MLPClassifier) -> onnx.ModelProto:
    """The network with its scaling: `image` uint8 `(N, 8, 8)` in, `probabilities` float32 `(N, 10)` out."""
    weights = {
        "w0": network.coefs_[0],
        "b0": network.intercepts_[0],
        "w1": network.coefs_[1],
        "b1": network.intercepts_[1],
        "sixteen": np.array(16.0),
    }
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["pixels"], ["flat"], axis=1),
        helper.make_node("Div", ["flat", "sixteen"], ["scaled"]),
        helper.make_node("Gemm", ["scaled", "w0", "b0"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "w1", "b1"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["N", 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    main()
