"""Train the autoencoder on healthy machines and write `autoencoder.onnx`.

    python examples/sensors/train.py

The machines are simulated (`streamer/demo/machines/simulation.py`), so there are as many as one likes; replace
`healthy` by what your own machines published while they were well. An autoencoder squeezes a window through a few
numbers and gives back what it can: of what it was trained on nearly everything, of anything else less. What is missing,
as a part of what is usual, is the score. All of it (spectrum, autoencoder, error) is in the model's graph, so that the
service needs no code.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from streamer.demo.machines.simulation import FAULTS, SAMPLES, Machine, windows

HERE = Path(__file__).parent
MACHINES = 200
WINDOWS = 100
BANDS = 21
"""Bands of three frequencies each, 47 Hz wide, that the spectrum is summed up in."""
WIDTHS = (BANDS + 1, 32, 4, 32, BANDS + 1)
"""Neurons of the layers: 21 bands and the temperature, through four numbers, and back."""
FLOOR = 3e-4
"""Power, in (mm/s)², added to that of each band: below the noise of any machine nothing is of interest."""
EPOCHS = 60
BATCH = 256
MARGIN = 1.15
"""How far above the highest of the usual errors the limit is, at which the score is 1."""


def main() -> None:
    """Train, say how good it is, write the model."""
    vibration, temperature = healthy(range(MACHINES))
    features = spectrum(vibration, temperature)
    mean, spread = features.mean(0), features.std(0)
    inputs = (features - mean) / spread
    layers = trained(inputs)
    errors = error(layers, inputs)
    limit = MARGIN * float(np.quantile(errors, 0.9995))
    onnx.save(as_onnx(mean, spread, layers, limit), HERE / "autoencoder.onnx")

    def scores(vibration: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        return error(layers, (spectrum(vibration, temperature) - mean) / spread) / limit

    found = scores(*healthy(range(10_000, 10_100)))
    print(f"healthy machines that it has not seen: {np.mean(found > 1):.2%} of {len(found)} windows above the limit")
    for fault in FAULTS:
        shares = [f"{np.mean(scores(*faulty(fault, severity)) > 1):.0%} at {severity}" for severity in (0.25, 0.5, 1)]
        print(f"{fault}: found in {', '.join(shares)} of its severity")


def healthy(seeds: range) -> tuple[np.ndarray, np.ndarray]:
    """Vibration `(N, 128)` and temperature `(N,)` of machines that are well."""
    parts = [windows(Machine(seed), WINDOWS) for seed in seeds]
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])


def faulty(fault: str, severity: float) -> tuple[np.ndarray, np.ndarray]:
    """The same of machines with a fault."""
    parts = []
    for seed in range(20_000, 20_040):
        machine = Machine(seed)
        machine.fault, machine.severity = fault, severity
        parts.append(windows(machine, WINDOWS))
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])


def bases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cosines and sines `(128, 63)` under a Hann window, and which frequencies are of which band `(63, 21)`."""
    frequencies = np.arange(1, 3 * BANDS + 1)
    turns = 2.0 * np.pi * np.outer(np.arange(SAMPLES), frequencies) / SAMPLES
    hann = np.hanning(SAMPLES)[:, None] * 4.0 / SAMPLES
    return hann * np.cos(turns), hann * np.sin(turns), np.repeat(np.eye(BANDS), 3, axis=0)


def spectrum(vibration: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    """The logarithm of the power in each band, and the temperature: `(N, 22)`."""
    cosines, sines, bands = bases()
    power = ((vibration @ cosines) ** 2 + (vibration @ sines) ** 2) @ bands
    return np.concatenate([np.log(power + FLOOR), temperature[:, None]], 1)


def trained(inputs: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of the layers, by Adam on the squared error; tanh in between."""
    random = np.random.default_rng(7)
    layers = [
        (random.normal(0.0, 1.0 / np.sqrt(wide), (wide, narrow)), np.zeros(narrow))
        for wide, narrow in itertools.pairwise(WIDTHS)
    ]
    moments = [[np.zeros_like(part) for part in layer] for layer in layers]
    squares = [[np.zeros_like(part) for part in layer] for layer in layers]
    steps = 0
    for epoch in range(EPOCHS):
        rate = 0.003 * 0.5 * (1.0 + np.cos(np.pi * epoch / EPOCHS))
        order = random.permutation(len(inputs))
        for start in range(0, len(order), BATCH):
            steps += 1
            for at, gradients in enumerate(backwards(layers, inputs[order[start : start + BATCH]])):
                for part, gradient in enumerate(gradients):
                    moments[at][part] += 0.1 * (gradient - moments[at][part])
                    squares[at][part] += 0.001 * (gradient**2 - squares[at][part])
                    first, second = moments[at][part] / (1 - 0.9**steps), squares[at][part] / (1 - 0.999**steps)
                    layers[at][part][...] -= rate * first / (np.sqrt(second) + 1e-8)
    return layers


def forwards(layers: list[tuple[np.ndarray, np.ndarray]], inputs: np.ndarray) -> list[np.ndarray]:
    """What each layer gives, the inputs first."""
    values = [inputs]
    for at, (weights, bias) in enumerate(layers):
        linear = values[-1] @ weights + bias
        values.append(linear if at == len(layers) - 1 else np.tanh(linear))
    return values


def backwards(layers: list[tuple[np.ndarray, np.ndarray]], inputs: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Gradients of the mean squared error by weights and biases, layer by layer."""
    values = forwards(layers, inputs)
    slope = 2.0 * (values[-1] - inputs) / inputs.size
    gradients = []
    for at in reversed(range(len(layers))):
        gradients.append((values[at].T @ slope, slope.sum(0)))
        if at:
            slope = (slope @ layers[at][0].T) * (1.0 - values[at] ** 2)
    return gradients[::-1]


def error(layers: list[tuple[np.ndarray, np.ndarray]], inputs: np.ndarray) -> np.ndarray:
    """The error of each window, `(N,)`: the root of the mean of fourth powers.

    So what is far off in one place, such as the temperature, counts more than a little everywhere.
    """
    return np.sqrt(np.mean((forwards(layers, inputs)[-1] - inputs) ** 4, axis=1))


def as_onnx(
    mean: np.ndarray, spread: np.ndarray, layers: list[tuple[np.ndarray, np.ndarray]], limit: float
) -> onnx.ModelProto:
    """`vibration` float32 `(N, 128)` and `temperature` float32 `(N,)` in, `score` float32 `(N, 1)` out."""
    cosines, sines, bands = bases()
    numbers = {"cosines": cosines, "sines": sines, "bands": bands, "floor": np.array(FLOOR)}
    numbers |= {"mean": mean, "spread": spread, "limit": np.array(limit)}
    make = helper.make_node
    nodes = [
        make("MatMul", ["vibration", "cosines"], ["real"]),
        make("MatMul", ["vibration", "sines"], ["imaginary"]),
        make("Mul", ["real", "real"], ["real_power"]),
        make("Mul", ["imaginary", "imaginary"], ["imaginary_power"]),
        make("Add", ["real_power", "imaginary_power"], ["power"]),
        make("MatMul", ["power", "bands"], ["band_power"]),
        make("Add", ["band_power", "floor"], ["above_floor"]),
        make("Log", ["above_floor"], ["levels"]),
        make("Unsqueeze", ["temperature", "second_axis"], ["temperature_column"]),
        make("Concat", ["levels", "temperature_column"], ["features"], axis=1),
        make("Sub", ["features", "mean"], ["centred"]),
        make("Div", ["centred", "spread"], ["inputs"]),
    ]
    value = "inputs"
    for at, (weights, bias) in enumerate(layers):
        numbers |= {f"weights{at}": weights, f"bias{at}": bias}
        last = at == len(layers) - 1
        nodes.append(make("Gemm", [value, f"weights{at}", f"bias{at}"], ["restored" if last else f"linear{at}"]))
        if not last:
            nodes.append(make("Tanh", [f"linear{at}"], [f"hidden{at}"]))
        value = f"hidden{at}"
    nodes += [
        make("Sub", ["inputs", "restored"], ["missing"]),
        make("Mul", ["missing", "missing"], ["squared"]),
        make("Mul", ["squared", "squared"], ["fourth_power"]),
        make("ReduceMean", ["fourth_power"], ["mean_power"], axes=[1], keepdims=1),
        make("Sqrt", ["mean_power"], ["error"]),
        make("Div", ["error", "limit"], ["score"]),
    ]
    graph = helper.make_graph(
        nodes,
        "autoencoder",
        [
            helper.make_tensor_value_info("vibration", TensorProto.FLOAT, ["N", SAMPLES]),
            helper.make_tensor_value_info("temperature", TensorProto.FLOAT, ["N"]),
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N", 1])],
        [
            *[numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in numbers.items()],
            numpy_helper.from_array(np.array([1], np.int64), "second_axis"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    main()
