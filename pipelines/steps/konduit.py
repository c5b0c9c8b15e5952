"""The names that Konduit Serving's definitions use, to tell this project's own from them."""

from __future__ import annotations

from typing import Final

GRAPH_TYPES: Final = frozenset({"MERGE", "ANY", "SWITCH", "SWITCH_OUTPUT"})
"""Steps of graph pipelines only."""

STEP_TYPES: Final = frozenset(
    {
        "LOGGING",
        "IMAGE_TO_NDARRAY",
        "IMAGE_RESIZE",
        "IMAGE_CROP",
        "GRAY_SCALE",
        "FRAME_CAPTURE",
        "VIDEO_CAPTURE",
        "SHOW_IMAGE",
        "DRAW_BOUNDING_BOX",
        "DRAW_POINTS",
        "DRAW_HEATMAP",
        "DRAW_GRID",
        "DRAW_FIXED_GRID",
        "DRAW_SEGMENTATION",
        "DRAW_FACE_KEY_POINTS",
        "EXTRACT_BOUNDING_BOX",
        "CROP_GRID",
        "CROP_FIXED_GRID",
        "PERSPECTIVE_TRANSFORM",
        "RELATIVE_TO_ABSOLUTE",
        "BOUNDING_BOX_TO_POINT",
        "BOUNDING_BOX_FILTER",
        "SSD_TO_BBOX",
        "YOLO_BBOX",
        "CLASSIFIER_OUTPUT",
        "REGRESSION_OUTPUT",
        "PYTHON",
        "ONNX",
        "TENSORFLOW",
        "ND4JTENSORFLOW",
        "KERAS",
        "DEEPLEARNING4J",
        "SAMEDIFF",
        "SAMEDIFF_TRAINING",
        "TENSORRT",
        "TVM",
        "DOCUMENTPARSER",
    }
)
"""Steps of any pipeline."""
