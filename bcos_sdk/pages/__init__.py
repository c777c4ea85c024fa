"""What the pages for people share: components in JavaScript and CSS, and photographs to try a model with."""

from bcos_sdk.pages._components import component, index_page, media_type, page_files
from bcos_sdk.pages._samples import MOST_SAMPLES, PICTURE_TYPES, sample_files

__all__ = [
    "MOST_SAMPLES",
    "PICTURE_TYPES",
    "component",
    "index_page",
    "media_type",
    "page_files",
    "sample_files",
]
