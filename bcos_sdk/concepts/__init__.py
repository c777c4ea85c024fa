"""Sheets of what a network has learnt: directions of inner layers that speak for a class, and images that show them."""

from bcos_sdk.concepts._drawing import DrawnDirection, DrawnExample, draw_concepts
from bcos_sdk.concepts._picture import sheet_picture
from bcos_sdk.concepts._records import Concept, Concepts, Example, LayerConcepts
from bcos_sdk.concepts._search import check_arguments, find_concepts

__all__ = [
    "Concept",
    "Concepts",
    "DrawnDirection",
    "DrawnExample",
    "Example",
    "LayerConcepts",
    "check_arguments",
    "draw_concepts",
    "find_concepts",
    "sheet_picture",
]
