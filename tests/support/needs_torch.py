"""Skip a test module where torch is not installed: import this before anything that needs torch."""

import pytest

pytest.importorskip("torch", reason="pip install 'bcos-sdk[export]'")
