"""Configuration of steps, one file a family.

`STEPS` lists the types of steps that this project has, `PARTS` the types of graph steps, functions and triggers.
"""

from __future__ import annotations

from pipelines.steps.base import Step, Typed
from pipelines.steps.boxes.boxes import BoundingBoxFilter, BoundingBoxToPoint, SsdToBoundingBox, YoloToBoundingBox
from pipelines.steps.boxes.extract import CropFixedGrid, CropGrid, ExtractBoundingBox
from pipelines.steps.code.function import Function
from pipelines.steps.code.logging import Logging
from pipelines.steps.code.pipeline import PipelineStep
from pipelines.steps.code.python import Python, PythonConfig, PythonIO
from pipelines.steps.config import EXTENSION, Config, Int, Spelling
from pipelines.steps.documents.documentparser import DocumentParser
from pipelines.steps.draw.draw import DrawBoundingBox, DrawFaceKeyPoints, DrawHeatmap, DrawPoints, DrawSegmentation
from pipelines.steps.draw.drawgrid import DrawFixedGrid, DrawGrid
from pipelines.steps.flow.combine import (
    AlignedCombine,
    ArgMax,
    Combine,
    CombineFunction,
    Ensemble,
    First,
    FunctionCombine,
)
from pipelines.steps.flow.graph import AnyOf, GraphStep, Merge
from pipelines.steps.flow.switch import FunctionSwitch, IntSwitch, StringSwitch, Switch, SwitchFunction, SwitchOutput
from pipelines.steps.flow.trigger import CachingTrigger, SimpleLoopTrigger, TimeLoopTrigger, Trigger
from pipelines.steps.images.capture import FrameCapture, VideoCapture
from pipelines.steps.images.geometry import PerspectiveTransform, RelativeToAbsolute
from pipelines.steps.images.images import GrayScale, ImageCrop, ImageResize, ShowImage
from pipelines.steps.images.imagetondarray import ImageNormalization, ImageToNDArray, ImageToNDArrayConfig
from pipelines.steps.models.classifier import ClassifierOutput
from pipelines.steps.models.features import Feature, Features
from pipelines.steps.models.java import DeepLearning4j, SameDiff, SameDiffTraining
from pipelines.steps.models.onnx import Onnx, SessionOptions
from pipelines.steps.models.regression import RegressionOutput
from pipelines.steps.models.tensorflow import Keras, Nd4jTensorFlow, TensorFlow
from pipelines.steps.models.tensorrt import NamedDimension, TensorRt
from pipelines.steps.models.tvm import Tvm
from pipelines.steps.video.blur import Blur
from pipelines.steps.video.motion import Motion
from pipelines.steps.video.track import Track
from pipelines.steps.video.zones import Line, Zone, Zones

STEPS: tuple[type[Step], ...] = (
    Logging,
    ImageToNDArray,
    Features,
    ImageResize,
    ImageCrop,
    GrayScale,
    FrameCapture,
    VideoCapture,
    ShowImage,
    ClassifierOutput,
    RegressionOutput,
    SsdToBoundingBox,
    YoloToBoundingBox,
    BoundingBoxFilter,
    BoundingBoxToPoint,
    RelativeToAbsolute,
    PerspectiveTransform,
    ExtractBoundingBox,
    CropGrid,
    CropFixedGrid,
    DrawBoundingBox,
    DrawPoints,
    DrawHeatmap,
    DrawGrid,
    DrawFixedGrid,
    DrawSegmentation,
    DrawFaceKeyPoints,
    Motion,
    Track,
    Zones,
    Blur,
    Onnx,
    TensorFlow,
    Nd4jTensorFlow,
    Keras,
    TensorRt,
    Tvm,
    DeepLearning4j,
    SameDiff,
    SameDiffTraining,
    Python,
    DocumentParser,
    Function,
    PipelineStep,
)

PARTS: tuple[type[Typed], ...] = (
    Merge,
    AnyOf,
    Switch,
    SwitchOutput,
    Combine,
    IntSwitch,
    StringSwitch,
    FunctionSwitch,
    Ensemble,
    ArgMax,
    First,
    FunctionCombine,
    SimpleLoopTrigger,
    TimeLoopTrigger,
    CachingTrigger,
)

__all__ = [
    "EXTENSION",
    "PARTS",
    "STEPS",
    "AlignedCombine",
    "AnyOf",
    "ArgMax",
    "Blur",
    "BoundingBoxFilter",
    "BoundingBoxToPoint",
    "CachingTrigger",
    "ClassifierOutput",
    "Combine",
    "CombineFunction",
    "Config",
    "CropFixedGrid",
    "CropGrid",
    "DeepLearning4j",
    "DocumentParser",
    "DrawBoundingBox",
    "DrawFaceKeyPoints",
    "DrawFixedGrid",
    "DrawGrid",
    "DrawHeatmap",
    "DrawPoints",
    "DrawSegmentation",
    "Ensemble",
    "ExtractBoundingBox",
    "Feature",
    "Features",
    "First",
    "FrameCapture",
    "Function",
    "FunctionCombine",
    "FunctionSwitch",
    "GraphStep",
    "GrayScale",
    "ImageCrop",
    "ImageNormalization",
    "ImageResize",
    "ImageToNDArray",
    "ImageToNDArrayConfig",
    "Int",
    "IntSwitch",
    "Keras",
    "Line",
    "Logging",
    "Merge",
    "Motion",
    "NamedDimension",
    "Nd4jTensorFlow",
    "Onnx",
    "PerspectiveTransform",
    "PipelineStep",
    "Python",
    "PythonConfig",
    "PythonIO",
    "RegressionOutput",
    "RelativeToAbsolute",
    "SameDiff",
    "SameDiffTraining",
    "SessionOptions",
    "ShowImage",
    "SimpleLoopTrigger",
    "Spelling",
    "SsdToBoundingBox",
    "Step",
    "StringSwitch",
    "Switch",
    "SwitchFunction",
    "SwitchOutput",
    "TensorFlow",
    "TensorRt",
    "TimeLoopTrigger",
    "Track",
    "Trigger",
    "Tvm",
    "Typed",
    "VideoCapture",
    "YoloToBoundingBox",
    "Zone",
    "Zones",
]
