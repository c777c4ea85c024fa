"""`bcos-sdk predict`: classify images, explain the classes, and keep a record of what is finished.

Other commands share its search for images and its report page.
"""

from bcos_sdk.cli.predict._choices import choose_model, target_of
from bcos_sdk.cli.predict._drawings import output_error
from bcos_sdk.cli.predict._image_files import find_images
from bcos_sdk.cli.predict._predict_command import predict
from bcos_sdk.cli.predict._report import drawn_entry, image_entry, write_report

__all__ = [
    "choose_model",
    "drawn_entry",
    "find_images",
    "image_entry",
    "output_error",
    "predict",
    "target_of",
    "write_report",
]
