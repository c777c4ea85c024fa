"""Imported by test modules that need the extra `serve`: without it their tests are skipped."""

import pytest

for _module in ("fastapi", "httptools", "prometheus_client", "python_multipart", "uvicorn"):
    pytest.importorskip(_module)
