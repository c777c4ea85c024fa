"""`import support.needs_torch`, before the imports that need torch, skips a test module where torch is not installed."""

import pytest

pytest.importorskip("torch", reason="pip install 'bcos-sdk[export]'")
