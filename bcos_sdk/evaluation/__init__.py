"""Measure a model and its explanations on labelled images: one measure, one file.

with Client("resnet50") as client:
    data = open_dataset(Path("imagenet/val"), client.labels)
    run = Run(Subject(client), data, Settings(measures=("accuracy", "bias")))
    run.finish()
    print(run.figures()["accuracy"].values)
"""

from bcos_sdk.evaluation._grid_maps import GridMaps, NetworkMaps, WindowMaps
from bcos_sdk.evaluation._items import Figures, Item, Spread, spread
from bcos_sdk.evaluation._report import Evaluated, Evaluation, evaluation_of
from bcos_sdk.evaluation._run import Memory, Record, Run, check_masks
from bcos_sdk.evaluation._settings import MEASURES, GridMode, MeasureName, Settings
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.against import METHOD_NAMES, compare_methods, open_network
from bcos_sdk.evaluation.comparison import Difference
from bcos_sdk.evaluation.datasets import LAYOUTS, Dataset, Sample, open_dataset
from bcos_sdk.evaluation.own_network import WeightsChoice, open_own_network

__all__ = [
    "LAYOUTS",
    "MEASURES",
    "METHOD_NAMES",
    "Dataset",
    "Difference",
    "Evaluated",
    "Evaluation",
    "Figures",
    "GridMaps",
    "GridMode",
    "Item",
    "MeasureName",
    "Memory",
    "NetworkMaps",
    "Record",
    "Run",
    "Sample",
    "Settings",
    "Spread",
    "Subject",
    "WeightsChoice",
    "WindowMaps",
    "check_masks",
    "compare_methods",
    "evaluation_of",
    "open_dataset",
    "open_network",
    "open_own_network",
    "spread",
]
