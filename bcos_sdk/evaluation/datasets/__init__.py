"""Labelled images in the layouts in which people keep them."""

from bcos_sdk.evaluation.datasets._dataset import Dataset, Sample
from bcos_sdk.evaluation.datasets._masks import read_mask
from bcos_sdk.evaluation.datasets._open import LAYOUTS, open_dataset

__all__ = ["LAYOUTS", "Dataset", "Sample", "open_dataset", "read_mask"]
