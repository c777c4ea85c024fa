"""For tests of programs that use a client: `FakeClient`, which needs no model and no runtime."""

from bcos_sdk.testing._client import FakeClient

__all__ = ["FakeClient"]
