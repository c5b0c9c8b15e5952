"""The loop that one writes by hand with FastAPI: a request, a call of the model. Arguments: model, port."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])


class Tensor(BaseModel):
    """An input."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class Request(BaseModel):
    """The body of a request."""

    inputs: list[Tensor]


@app.post("/v2/models/model/infer")
async def infer(request: Request) -> dict[str, Any]:
    """Run the model in the loop's thread, which is cheaper than in one of the pool."""
    tensor = request.inputs[0]
    (y,) = session.run(None, {tensor.name: np.array(tensor.data, np.float32).reshape(tensor.shape)})
    return {"outputs": [{"name": "y", "shape": list(y.shape), "datatype": "FP32", "data": y.ravel().tolist()}]}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), access_log=False, log_level="error")
