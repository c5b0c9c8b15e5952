# Written by docs/generate.py.
from .base import RunBy, Step, Typed
from .boxes.boxes import BoundingBoxFilter, BoundingBoxToPoint, SsdToBoundingBox, YoloToBoundingBox
from .boxes.detect import Detect, Detections, DetectorInput
from .boxes.extract import CropFixedGrid, CropGrid, ExtractBoundingBox
from .code.function import Function, HasFunction
from .code.logging import Logging
from .code.map import Map
from .code.pipeline import PipelineStep
from .code.python import Python, PythonConfig, PythonIO
from .config import EXTENSION, Config, Extension, Int, Spelling
from .documents.documentparser import DocumentParser
from .draw.draw import DrawBoundingBox, DrawFaceKeyPoints, DrawHeatmap, DrawPoints, DrawSegmentation
from .draw.drawgrid import DrawFixedGrid, DrawGrid
from .flow.combine import AlignedCombine, ArgMax, Combine, CombineFunction, Ensemble, First, FunctionCombine
from .flow.graph import AnyOf, GraphStep, Merge
from .flow.switch import FunctionSwitch, IntSwitch, StringSwitch, Switch, SwitchFunction, SwitchOutput
from .flow.trigger import CachingTrigger, LoopTrigger, SimpleLoopTrigger, TimeLoopTrigger, Trigger
from .images.capture import FrameCapture, VideoCapture
from .images.geometry import PerspectiveTransform, RelativeToAbsolute
from .images.images import GrayScale, ImageCrop, ImageResize, ShowImage
from .images.imagetondarray import ImageNormalization, ImageToNDArray, ImageToNDArrayConfig
from .keyed.change import Change
from .keyed.dedup import Dedup
from .keyed.join import Join
from .keyed.window import Window
from .models.classifier import ClassifierOutput
from .models.features import Feature, Features
from .models.java import DeepLearning4j, SameDiff, SameDiffTraining
from .models.onnx import Onnx, SessionOptions
from .models.regression import RegressionOutput
from .models.tensorflow import Keras, Nd4jTensorFlow, TensorFlow
from .models.tensorrt import NamedDimension, TensorRt
from .models.tvm import Tvm
from .shapes import BoxConfig, PointConfig
from .tables.lookup import Lookup
from .timefield import TimeConfig
from .video.blur import Blur
from .video.motion import Motion
from .video.track import Track
from .video.zones import Line, Place, Zone, Zones

__all__ = [
    "EXTENSION",
    "AlignedCombine",
    "AnyOf",
    "ArgMax",
    "Blur",
    "BoundingBoxFilter",
    "BoundingBoxToPoint",
    "BoxConfig",
    "CachingTrigger",
    "Change",
    "ClassifierOutput",
    "Combine",
    "CombineFunction",
    "Config",
    "CropFixedGrid",
    "CropGrid",
    "Dedup",
    "DeepLearning4j",
    "Detect",
    "Detections",
    "DetectorInput",
    "DocumentParser",
    "DrawBoundingBox",
    "DrawFaceKeyPoints",
    "DrawFixedGrid",
    "DrawGrid",
    "DrawHeatmap",
    "DrawPoints",
    "DrawSegmentation",
    "Ensemble",
    "Extension",
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
    "HasFunction",
    "ImageCrop",
    "ImageNormalization",
    "ImageResize",
    "ImageToNDArray",
    "ImageToNDArrayConfig",
    "Int",
    "IntSwitch",
    "Join",
    "Keras",
    "Line",
    "Logging",
    "Lookup",
    "LoopTrigger",
    "Map",
    "Merge",
    "Motion",
    "NamedDimension",
    "Nd4jTensorFlow",
    "Onnx",
    "PerspectiveTransform",
    "PipelineStep",
    "Place",
    "PointConfig",
    "Python",
    "PythonConfig",
    "PythonIO",
    "RegressionOutput",
    "RelativeToAbsolute",
    "RunBy",
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
    "TimeConfig",
    "TimeLoopTrigger",
    "Track",
    "Trigger",
    "Tvm",
    "Typed",
    "VideoCapture",
    "Window",
    "YoloToBoundingBox",
    "Zone",
    "Zones",
]
