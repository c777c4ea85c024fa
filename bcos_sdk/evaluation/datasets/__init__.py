"""Labelled images in the layouts in which people keep them."""

from bcos_sdk.evaluation.datasets._dataset import Dataset, Sample
from bcos_sdk.evaluation.datasets._masks import read_mask
from bcos_sdk.evaluation.datasets._open import LAYOUTS, open_dataset
from bcos_sdk.evaluation.datasets._pets import HELD_OUT, pets_split

__all__ = ["HELD_OUT", "LAYOUTS", "Dataset", "Sample", "open_dataset", "pets_split", "read_mask"]
