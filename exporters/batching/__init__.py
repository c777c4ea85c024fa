"""Batching: a program for one image → the same program for a batch of images."""

from bcos_sdk.exporters.batching._batching import Batching, BatchRule, repeat_for_batch

__all__ = ["BatchRule", "Batching", "repeat_for_batch"]
