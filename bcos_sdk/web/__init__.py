"""A model as static files for any web server: the page, the graphs, and ONNX Runtime Web, which runs them."""

from bcos_sdk.web._site import check_site, write_site

__all__ = ["check_site", "write_site"]
