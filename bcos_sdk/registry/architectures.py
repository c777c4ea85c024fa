"""The parameters of a network: one validated, immutable config class per architecture family.

They are plain data and need no torch. `bcos_sdk.models` builds networks from them.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from bcos_sdk.contract import CHANNELS

__all__ = [
    "ArchitectureConfig",
    "ConvNeXtConfig",
    "DenseNetConfig",
    "NetworkConfig",
    "NormConfig",
    "PlainConfig",
    "ResNetConfig",
    "VGGConfig",
    "ViTConfig",
]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _true_is_not_a_number(cls, fields: Any) -> Any:
        """Pydantic takes true as 1. As a word it is refused where a number is expected."""
        if not isinstance(fields, dict):
            return fields
        switches = {name for name, field in cls.model_fields.items() if field.annotation is bool}
        return {key: value if key in switches else _bools_as_words(value) for key, value in fields.items()}


def _bools_as_words(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_bools_as_words(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else value


class NormConfig(_Config):
    """y = γ · (x − mean) / sqrt(var + eps) + β. Uncentred norms do not subtract the mean."""

    kind: Literal["none", "batch", "all", "group", "layer", "instance", "position"]
    centred: bool = True
    affine: bool = True
    bias: bool = True
    eps: PositiveFloat = 1e-5
    groups: PositiveInt | None = None

    @model_validator(mode="after")
    def _groups_belong_to_group_norm(self) -> NormConfig:
        if (self.kind == "group") != (self.groups is not None):
            raise ValueError("'groups' must be given for kind 'group', and for no other kind")
        return self


_UNCENTRED_BATCH_NORM = NormConfig(kind="batch", centred=False, bias=False)


class NetworkConfig(_Config):
    """The parameters of every family: B-cos exponent, MaxOut units, input channels, classes, logit layer."""

    b: float = Field(default=2.0, ge=1.0)
    max_out: PositiveInt = 1
    channels: PositiveInt = CHANNELS
    classes: PositiveInt = 1000
    logit_bias: float | None = None
    temperature: PositiveFloat = 1.0

    @property
    def resolved_logit_bias(self) -> float:
        """The logit bias; default: −ln(classes − 1), so that sigmoid(bias) = 1/classes."""
        return -math.log(max(self.classes - 1, 1)) if self.logit_bias is None else self.logit_bias

    @property
    def size_step(self) -> int:
        """Height and width of an image must be multiples of this."""
        return 1


class ResNetConfig(NetworkConfig):
    """ResNet and ResNeXt: stages of width, 2·width, 4·width, …, with `blocks` residual blocks each."""

    family: Literal["resnet"] = "resnet"
    block: Literal["basic", "bottleneck"]
    blocks: tuple[PositiveInt, ...] = Field(min_length=1)
    stem: Literal["imagenet", "cifar"] = "imagenet"
    width: PositiveInt = 64
    groups: PositiveInt = 1
    base_width: PositiveInt = 64
    norm: NormConfig = _UNCENTRED_BATCH_NORM

    @model_validator(mode="after")
    def _basic_blocks_have_no_middle(self) -> ResNetConfig:
        if self.block == "basic" and (self.groups, self.base_width) != (1, 64):
            raise ValueError("'groups' and 'base_width' need block 'bottleneck', not 'basic'")
        return self

    @model_validator(mode="after")
    def _bottlenecks_have_a_middle(self) -> ResNetConfig:
        if self.block == "bottleneck" and self.width * self.base_width < 64:
            raise ValueError(
                f"'width' {self.width} · 'base_width' {self.base_width} / 64 is less than one channel in the bottleneck"
            )
        return self


class DenseNetConfig(NetworkConfig):
    """DenseNet: each layer adds `growth` channels. The transitions between blocks halve the channels."""

    family: Literal["densenet"] = "densenet"
    growth: PositiveInt = 32
    stem_width: PositiveInt = 64
    blocks: tuple[PositiveInt, ...] = Field(min_length=1)
    bottleneck: PositiveInt = 4
    norm: NormConfig = _UNCENTRED_BATCH_NORM


class VGGConfig(NetworkConfig):
    """VGG: `stages` lists the widths of the convolutions of each stage. An average pool follows each stage."""

    family: Literal["vgg"] = "vgg"
    stages: tuple[tuple[PositiveInt, ...], ...] = Field(min_length=1)
    hidden: PositiveInt = 4096
    norm: NormConfig = _UNCENTRED_BATCH_NORM


class ConvNeXtConfig(NetworkConfig):
    """ConvNeXt: depthwise 7×7 blocks with layer scale."""

    family: Literal["convnext"] = "convnext"
    widths: tuple[PositiveInt, ...] = Field(min_length=1)
    blocks: tuple[PositiveInt, ...] = Field(min_length=1)
    norm: NormConfig

    @model_validator(mode="after")
    def _one_width_per_stage(self) -> ConvNeXtConfig:
        if len(self.widths) != len(self.blocks):
            raise ValueError(
                f"'widths' and 'blocks' need the same length, got {len(self.widths)} and {len(self.blocks)}"
            )
        return self


class ViTConfig(NetworkConfig):
    """Simple ViT (without `stem`: patches of pixels) and ViT-C (with a convolutional `stem` before the patches)."""

    family: Literal["vit"] = "vit"
    dim: PositiveInt = Field(multiple_of=4, ge=8)
    depth: PositiveInt
    heads: PositiveInt
    mlp_dim: PositiveInt
    patch: PositiveInt
    stem: tuple[PositiveInt, ...] = ()

    @property
    def stem_strides(self) -> tuple[int, ...]:
        """Stride 2 for each stem convolution that increases the number of channels, 1 for the others."""
        before = (self.channels, *self.stem)
        return tuple(2 if width > last else 1 for last, width in zip(before, self.stem, strict=False))

    @property
    def size_step(self) -> int:
        """The side of a patch, in pixels of the image."""
        return self.patch * math.prod(self.stem_strides)

    @model_validator(mode="after")
    def _heads_divide_dim(self) -> ViTConfig:
        if self.dim % self.heads:
            raise ValueError(f"'dim' {self.dim} is not a multiple of 'heads' {self.heads}")
        return self


class PlainConfig(NetworkConfig):
    """A stack of 3×3 B-cos convolutions without norms. The output of each is divided by `scale`."""

    family: Literal["plain"] = "plain"
    widths: tuple[PositiveInt, ...] = Field(min_length=1)
    strides: tuple[PositiveInt, ...] = Field(min_length=1)
    scale: PositiveFloat = 1.0

    @model_validator(mode="after")
    def _one_width_per_stride(self) -> PlainConfig:
        if len(self.widths) != len(self.strides):
            raise ValueError(
                f"'widths' and 'strides' need the same length, got {len(self.widths)} and {len(self.strides)}"
            )
        return self


ArchitectureConfig = Annotated[
    ResNetConfig | DenseNetConfig | VGGConfig | ConvNeXtConfig | ViTConfig | PlainConfig,
    Field(discriminator="family"),
]
