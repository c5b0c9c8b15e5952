"""The same model as a runtime of MLServer."""

from __future__ import annotations

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):
    """A call of the model for each request."""

    async def load(self) -> bool:
        """Open the model at the URI of the settings."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        uri = self.settings.parameters.uri
        self._session = onnxruntime.InferenceSession(uri, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request."""
        (y,) = self._session.run(None, {"x": NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
