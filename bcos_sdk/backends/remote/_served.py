"""The model behind an address: its manifest, its limits, and inference that notices another model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bcos_sdk._logs import log
from bcos_sdk._open_inference import (
    DATATYPES,
    DIGEST_PARAMETER,
    LARGEST_BATCH_PARAMETER,
    LARGEST_BODY_PARAMETER,
    PRECISION_PARAMETER,
)
from bcos_sdk.backends._graph import Arrays, TensorSpec
from bcos_sdk.backends.remote._address import Address
from bcos_sdk.backends.remote._transport import ModelMetadata, Transport
from bcos_sdk.bundle import Bundle, Manifest, parse_manifest
from bcos_sdk.contract import (
    EXPLAIN_SUFFIX,
    IMAGE,
    LOGITS,
    MANIFEST_PARAMETER,
    MOST_TARGETS_PARAMETER,
    PIXELS_INPUT,
    TOLERANCES,
    Precision,
)
from bcos_sdk.errors import BundleError, HashMismatchError, InputError, ServerAnswerError, ServerRefusedError, shown

__all__ = ["ServedModel"]

_JSON_OF_A_REQUEST = 4096


@dataclass
class ServedModel:
    """One model of a server, at the size of its input that the server runs. Threads may share it."""

    address: Address
    transport: Transport
    bundle: Bundle
    """Its manifest, without graphs and weights. With a golden record, if it could be obtained."""
    exported: Manifest
    """The manifest as it was exported, with all sizes of the input."""
    digest: str | None
    """The SHA-256 of the manifest that the server states; None if it states none."""
    image: str
    """The name of the input that gets the images."""
    metadata: dict[str, ModelMetadata]
    max_batch: int
    precision: Precision
    from_config: bool
    """Whether the manifest is in the configuration of the model, as on Triton."""
    _checked: int = 0
    """For how many connections the model was checked."""

    @classmethod
    def find(
        cls,
        address: Address,
        transport: Transport,
        local: Bundle | None,
        *,
        sha256: str | None = None,
        size: tuple[int, int] | None = None,
    ) -> ServedModel:
        """Ask the server for the model, and compare it with what the caller expects."""
        described = transport.metadata(address.model)
        parameters, largest = _with_config(address, transport, described)
        text = parameters.get(MANIFEST_PARAMETER)
        manifest = _manifest(address, text, local)
        digest = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        if digest is not None and sha256 not in (None, digest):
            raise _another(address, digest, str(sha256))
        image, served = _image_input(address, described, manifest)
        if size is not None and size != served:
            raise InputError(
                f"{address} serves the model for an input of {served[0]}x{served[1]}, not {size[0]}x{size[1]}",
                source="input_size",
                hint="Leave input_size out, or let the server serve another size.",
            )
        exported, manifest = manifest, manifest.at_size(served)
        _check_logits(address, described, manifest)
        found = cls(
            address,
            transport,
            Bundle(Path(address.model), manifest, _golden(address, transport, manifest, local)),
            exported,
            digest,
            image,
            {address.model: described},
            min([manifest.max_batch, *largest, *_most_images(parameters, manifest, image)]),
            _precision(parameters, manifest),
            MANIFEST_PARAMETER not in described.parameters,
        )
        found._checked = transport.connections_made
        return found

    @cached_property
    def most_targets(self) -> int:
        """The most targets of one image in a request."""
        config = self.transport.config(self.explain_model) if self.from_config else None
        stated = "" if config is None else config.parameters.get(MOST_TARGETS_PARAMETER, "")
        return max(1, min(self.max_batch, int(stated[:9]))) if stated.isdecimal() else self.max_batch

    @property
    def takes_pixels(self) -> bool:
        return self.image == PIXELS_INPUT

    def outputs_of(self, model: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The outputs of one of the models NAME and NAME_explain."""
        if model not in self.metadata:
            self.metadata[model] = self.transport.metadata(model)
        return self.metadata[model].outputs

    @property
    def explain_model(self) -> str:
        return self.address.model + EXPLAIN_SUFFIX

    def infer(self, model: str, inputs: Arrays, outputs: Mapping[str, TensorSpec]) -> Arrays:
        """The outputs, exactly as specified. Another model, shape or type is an error."""
        arrays, parameters = self.transport.infer(model, inputs, outputs)
        self._check_model(parameters.get(DIGEST_PARAMETER))
        for name, spec in outputs.items():
            found = arrays.get(name)
            if found is None:
                raise self._invalid(f"{model} sent no output {name}")
            if found.shape != spec.shape or found.dtype != spec.dtype:
                expected = f"{spec.dtype} {list(spec.shape)}"
                raise self._invalid(f"{model} sent {name} as {found.dtype} {list(found.shape)}, expected {expected}")
        return arrays

    def _check_model(self, stated: str | None) -> None:
        """Check that the server still has the model. If its answers do not say so, ask after each new connection."""
        if self.digest is None:
            return
        if stated is None:
            made = self.transport.connections_made
            if made == self._checked:
                return
            parameters, _ = _with_config(self.address, self.transport, self.transport.metadata(self.address.model))
            stated = hashlib.sha256(parameters.get(MANIFEST_PARAMETER, "").encode()).hexdigest()
            self._checked = made
        if stated != self.digest:
            raise _another(self.address, stated, self.digest)

    def _invalid(self, message: str) -> ServerAnswerError:
        return ServerAnswerError(f"{self.address}: {message}", source=str(self.address))


def _with_config(address: Address, transport: Transport, described: ModelMetadata) -> tuple[dict[str, str], list[int]]:
    """The parameters of the metadata, or of the configuration; and the largest batch, if it is limited."""
    parameters = described.parameters
    if MANIFEST_PARAMETER in parameters:
        stated = parameters.get(LARGEST_BATCH_PARAMETER, "")
        return parameters, [int(stated)] if stated.isdecimal() and int(stated[:9]) > 0 else []
    config = transport.config(address.model)
    if config is None:
        return parameters, []
    return config.parameters | parameters, [config.max_batch] if config.max_batch > 0 else []


def _manifest(address: Address, text: str | None, local: Bundle | None) -> Manifest:
    """The manifest of the server, of the local bundle, or of both if they are equal."""
    if text is None:
        if local is None:
            raise InputError(
                f"{address} does not send the manifest of its model",
                source=str(address),
                hint="Pass Remote(bundle=…) with the folder of the bundle that it serves.",
            )
        return local.manifest
    try:
        manifest = parse_manifest(text.encode(), str(address))
    except BundleError as error:
        raise ServerAnswerError(error.message, source=str(address)) from error
    if local is not None and not _is_of(manifest, local.manifest):
        raise _another(address, manifest.digest, local.manifest.digest)
    return manifest if local is None else local.manifest


def _is_of(served: Manifest, local: Manifest) -> bool:
    """Whether the manifests are equal, or the served one is that of another size of the input."""
    return served == local or (served.input.size in local.input_sizes and served == local.at_size(served.input.size))


def _another(address: Address, found: str, expected: str) -> HashMismatchError:
    return HashMismatchError(
        f"{address} serves another model: the SHA-256 of its manifest is {found}, expected {expected}",
        source=str(address),
        hint="Create a new client, or let the server serve the model that you want.",
    )


def _image_input(address: Address, described: ModelMetadata, manifest: Manifest) -> tuple[str, tuple[int, int]]:
    """The input that takes images, and their height and width."""
    for name in (IMAGE.name, PIXELS_INPUT):
        datatype, shape = described.inputs.get(name, ("", ()))
        sides = shape[-2:] if name == IMAGE.name else shape[-3:-1]
        wanted = DATATYPES[IMAGE.dtype] if name == IMAGE.name else DATATYPES["uint8"]
        if datatype == wanted and len(shape) == 4:
            height, width = (side if side > 0 else own for side, own in zip(sides, manifest.input.size, strict=True))
            if (height, width) in manifest.input_sizes:
                return name, (height, width)
    raise ServerAnswerError(
        f"{address} takes {shown(described.inputs)}, expected {IMAGE.name} as "
        f"{[-1, *manifest.at_size(manifest.input.size).input.shape]}",
        source=str(address),
    )


def _check_logits(address: Address, described: ModelMetadata, manifest: Manifest) -> None:
    datatype, shape = described.outputs.get(LOGITS.name, ("", ()))
    if datatype != DATATYPES[LOGITS.dtype] or shape[-1:] not in [(manifest.classes,), (-1,)]:
        raise ServerAnswerError(
            f"{address} sends {shown(described.outputs)}, expected {LOGITS.name} of {manifest.classes} classes",
            source=str(address),
        )


def _most_images(parameters: Mapping[str, str], manifest: Manifest, image: str) -> list[int]:
    """The most images in a body of the size that the server accepts."""
    stated = parameters.get(LARGEST_BODY_PARAMETER, "")
    if not stated.isdecimal():
        return []
    depth, height, width = manifest.input.shape
    bytes_of_one = height * width * (depth * 4 if image == IMAGE.name else 3) + manifest.max_batch * 8
    return [max(1, (int(stated[:15]) - _JSON_OF_A_REQUEST) // bytes_of_one)]


def _precision(parameters: Mapping[str, str], manifest: Manifest) -> Precision:
    """What the server says that its device computes with. It selects the tolerance, which has a cap."""
    stated = parameters.get(PRECISION_PARAMETER)
    return next((known for known in TOLERANCES if known == stated), manifest.precision)


def _golden(address: Address, transport: Transport, manifest: Manifest, local: Bundle | None) -> dict[str, memoryview]:
    """The file of the golden record, whose hash is in the manifest."""
    name = manifest.golden
    if local is not None:
        return {name: local.contents[name]}
    record = manifest.files.get(name)
    try:
        contents = None if record is None else transport.golden(address.model, record.size)
    except ServerRefusedError:
        contents = None
    if contents is None or record is None:
        log.warning(
            "%s does not send its golden record, so that its results are not compared with those of the export; "
            "certificates are checked all the same. Remote(bundle=…) brings the record",
            address,
        )
        return {}
    if len(contents) != record.size or hashlib.sha256(contents).hexdigest() != record.sha256:
        raise ServerAnswerError(
            f"{address} sent a golden record that is not that of its manifest: its hash differs", source=str(address)
        )
    return {name: memoryview(contents)}
