"""Imported by test modules that need the environment of `make test-ray`: without it their tests are skipped."""

import pytest

for _module in ("ray.data", "psutil", "moto", "boto3", "duckdb"):
    pytest.importorskip(_module)
