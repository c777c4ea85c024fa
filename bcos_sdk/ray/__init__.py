"""Explain millions of images on a cluster with Ray Data. Needs the extra `ray`, on all machines."""

from bcos_sdk.ray._cluster import address_of_cluster, connected, require_ray
from bcos_sdk.ray._dataset import explain_dataset
from bcos_sdk.ray._delivery import Ship, open_model
from bcos_sdk.ray._job import Job, local_cpus
from bcos_sdk.ray._maps import Maps
from bcos_sdk.ray._parts import write_rows
from bcos_sdk.ray._places import is_url, local_path
from bcos_sdk.ray._reading import read_rows
from bcos_sdk.ray._record import Start, check_start
from bcos_sdk.ray._resources import Workers
from bcos_sdk.ray._rows import PICTURES, StoredRow, row_of
from bcos_sdk.ray._schema import COLUMNS_OF_IMAGE, Column, arrow_schema
from bcos_sdk.ray._settings import Question
from bcos_sdk.ray._shards import LARGEST_SHARD, Outcome, Plan, plan_shards
from bcos_sdk.ray._storage import Folder

__all__ = [
    "COLUMNS_OF_IMAGE",
    "LARGEST_SHARD",
    "PICTURES",
    "Column",
    "Folder",
    "Job",
    "Maps",
    "Outcome",
    "Plan",
    "Question",
    "Ship",
    "Start",
    "StoredRow",
    "Workers",
    "address_of_cluster",
    "arrow_schema",
    "check_start",
    "connected",
    "explain_dataset",
    "is_url",
    "local_cpus",
    "local_path",
    "open_model",
    "plan_shards",
    "read_rows",
    "require_ray",
    "row_of",
    "write_rows",
]
