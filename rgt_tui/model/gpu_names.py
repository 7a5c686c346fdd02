"""The GPUs that can be rented: one name for each, its memory, and Vast.ai's spelling.

Names and memory: https://github.com/dstackai/gpuhunt (0.1.34, verified 2026-11),
https://docs.runpod.io/references/gpu-types and https://www.nvidia.com/en-us/data-center/ (verified
2026-11). Vast.ai's spelling: gpuhunt's mapping and its rules (2026-11), which also apply to models
not in it. Memory is the vendor's figure in GB; a driver reports up to 7 % less.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rgt_tui.model.plain import FrozenStruct

VARIANTS = frozenset(
    ("ti", "super", "d", "laptop", "mobile", "max", "maxq", "pro", "sff", "ada", "blackwell")
)
"""Words that make it another model: an RTX 3080 is not an RTX 3080 Ti, which costs more and has
other memory."""
MAKES = frozenset(("nvidia", "geforce", "quadro", "tesla", "rtx", "gtx", "amd", "instinct"))
"""Maker and product line, which people and platforms may leave out."""
NOISE = frozenset(
    (
        "nvidia",
        "geforce",
        "quadro",
        "q",
        "tesla",
        "amd",
        "instinct",
        "tensor",
        "core",
        "gpu",
        "gpus",
        "graphics",
    )
) | frozenset(
    (
        "generation",
        "blackwell",
        "edition",
        "server",
        "workstation",
        "ws",
        "oam",
        "vf",
        "ac",
        "pc",
        "hgx",
    )
)
"""Words for a maker, a product line, a board or an edition, which do not change the model."""
SLICE = re.compile(r"(?<![a-z])mig(?![a-z])|\b[0-9]+g\.[0-9]+gb|-[0-9]+(-[0-9]+)?[abcq]\b")
"""A part of a GPU (NVIDIA's MIG and vGPU, as in ``A16-8Q``): it never matches a requested GPU."""
MEMORY_TOLERANCE = 0.07
"""How much a driver's memory may differ from the vendor's figure; the same as in gpuhunt."""

_MEMORY = re.compile(r"\b([0-9]+)\s*gi?b?(?![a-z0-9.])\s*(\+?)")
_FORM = re.compile(r"\b(sxm|pcie|nvl)[0-9]?\b")
_STACK = re.compile(r"\bhbm[0-9][a-z]?\b")
_COUNT = re.compile(r"\b[0-9]{1,3}x\b")
_WORDS = re.compile(r"[a-z]+[0-9]+[a-z]*|[0-9]+[a-z]*|[a-z]+")
_JOINED = re.compile(r"\b(rtx|gtx)(?=[a-z]?[0-9])")


class GpuModel(FrozenStruct):
    """A GPU model, its memory sizes, and its names."""

    name: str
    memory_gb: tuple[int, ...]
    """Every size that it is sold with."""
    vast: tuple[str, ...] = ()
    """Vast.ai's names, if they differ from `name`: its search compares the full name."""


GPUS = (
    # Data center, NVIDIA
    GpuModel("A10", (24,)),
    GpuModel("A10G", (24,)),
    GpuModel("A16", (16,)),
    GpuModel("A30", (24,)),
    GpuModel("A40", (48,)),
    GpuModel("A100", (40, 80), ("A100 PCIE", "A100 SXM4")),
    GpuModel("A100X", (80,)),
    GpuModel("A800", (40, 80), ("A800 PCIE", "A800 SXM4")),
    GpuModel("H100", (80,), ("H100 PCIE", "H100 SXM")),
    GpuModel("H100 NVL", (94,)),
    GpuModel("H200", (141,)),
    GpuModel("H200 NVL", (141,)),
    GpuModel("GH200", (96,), ("GH200 SXM", "GH200")),
    GpuModel("B200", (180,)),
    GpuModel("GB200", (186,)),
    GpuModel("B300", (270,), ("B300", "B300 PC")),
    GpuModel("GB300", (270,)),
    GpuModel("L4", (24,)),
    GpuModel("L40", (48,)),
    GpuModel("L40S", (48,)),
    GpuModel("M40", (12, 24), ("Tesla M40",)),
    GpuModel("P4", (8,), ("Tesla P4",)),
    GpuModel("P40", (24,), ("Tesla P40",)),
    GpuModel("P100", (12, 16), ("Tesla P100",)),
    GpuModel("T4", (16,), ("Tesla T4",)),
    GpuModel("V100", (16, 32), ("Tesla V100",)),
    # Workstation, NVIDIA
    GpuModel("A2000", (6, 12), ("RTX A2000",)),
    GpuModel("A4000", (16,), ("RTX A4000",)),
    GpuModel("A4500", (20,), ("RTX A4500",)),
    GpuModel("A5000", (24,), ("RTX A5000",)),
    GpuModel("A5500", (24,), ("RTX A5500",)),
    GpuModel("A6000", (48,), ("RTX A6000",)),
    GpuModel("M4000", (8,), ("Quadro M4000",)),
    GpuModel("P4000", (8,), ("Quadro P4000", "Q P4000")),
    GpuModel("P5000", (16,), ("Quadro P5000", "Q P5000")),
    GpuModel("P6000", (24,), ("Quadro P6000", "Q P6000")),
    GpuModel("RTX 4000", (8,), ("Q RTX 4000",)),
    GpuModel("RTX 5000", (16,), ("Q RTX 5000",)),
    GpuModel("RTX 6000", (24,), ("Q RTX 6000",)),
    GpuModel("RTX 8000", (48,), ("Q RTX 8000",)),
    GpuModel("RTX 2000 Ada", (16,), ("RTX 2000Ada",)),
    GpuModel("RTX 4000 Ada", (20,), ("RTX 4000Ada",)),
    GpuModel("RTX 4000 SFF Ada", (20,)),
    GpuModel("RTX 4500 Ada", (24,), ("RTX 4500Ada",)),
    GpuModel("RTX 5000 Ada", (32,), ("RTX 5000Ada",)),
    GpuModel("RTX 5880 Ada", (48,), ("RTX 5880Ada",)),
    GpuModel("RTX 6000 Ada", (48,), ("RTX 6000Ada",)),
    GpuModel("RTX PRO 4000", (24,)),
    GpuModel("RTX PRO 4500", (32,)),
    GpuModel("RTX PRO 5000", (48, 72)),
    GpuModel("RTX PRO 6000", (96,), ("RTX PRO 6000 WS", "RTX PRO 6000 S", "RTX PRO 6000")),
    GpuModel("RTX PRO 6000 Max-Q", (96,), ("RTX PRO 6000 MaxQ", "RTX PRO 6000 Max-Q")),
    # GeForce and Titan
    GpuModel("GTX 1070", (8,)),
    GpuModel("GTX 1080", (8,)),
    GpuModel("GTX 1080 Ti", (11,)),
    GpuModel("GTX 1660 SUPER", (6,), ("GTX 1660 S",)),
    GpuModel("GTX 1660 Ti", (6,)),
    GpuModel("RTX 2060", (6, 12)),
    GpuModel("RTX 2060 SUPER", (8,), ("RTX 2060S",)),
    GpuModel("RTX 2070", (8,)),
    GpuModel("RTX 2070 SUPER", (8,), ("RTX 2070S",)),
    GpuModel("RTX 2080", (8,)),
    GpuModel("RTX 2080 SUPER", (8,), ("RTX 2080S",)),
    GpuModel("RTX 2080 Ti", (11,)),
    GpuModel("RTX 3050", (6, 8)),
    GpuModel("RTX 3060", (8, 12)),
    GpuModel("RTX 3060 Ti", (8,)),
    GpuModel("RTX 3070", (8,)),
    GpuModel("RTX 3070 Ti", (8,)),
    GpuModel("RTX 3080", (10, 12)),
    GpuModel("RTX 3080 Ti", (12,)),
    GpuModel("RTX 3090", (24,)),
    GpuModel("RTX 3090 Ti", (24,)),
    GpuModel("RTX 4060", (8,)),
    GpuModel("RTX 4060 Ti", (8, 16)),
    GpuModel("RTX 4070", (12,)),
    GpuModel("RTX 4070 SUPER", (12,), ("RTX 4070S",)),
    GpuModel("RTX 4070 Ti", (12,)),
    GpuModel("RTX 4070 Ti SUPER", (16,), ("RTX 4070S Ti",)),
    GpuModel("RTX 4080", (16,)),
    GpuModel("RTX 4080 SUPER", (16,), ("RTX 4080S",)),
    GpuModel("RTX 4090", (24,)),
    GpuModel("RTX 4090 D", (24, 48), ("RTX 4090D",)),
    GpuModel("RTX 5060", (8,)),
    GpuModel("RTX 5060 Ti", (8, 16)),
    GpuModel("RTX 5070", (12,)),
    GpuModel("RTX 5070 Ti", (16,)),
    GpuModel("RTX 5080", (16,)),
    GpuModel("RTX 5090", (32,)),
    GpuModel("TITAN RTX", (24,), ("Titan RTX",)),
    GpuModel("TITAN V", (12,), ("Titan V",)),
    GpuModel("TITAN Xp", (12,), ("Titan Xp",)),
    # AMD
    GpuModel("MI100", (32,)),
    GpuModel("MI210", (64,)),
    GpuModel("MI250", (128,)),
    GpuModel("MI250X", (128,)),
    GpuModel("MI300A", (128,)),
    GpuModel("MI300X", (192,)),
    GpuModel("MI308X", (128,)),
    GpuModel("MI325X", (256, 288)),
    GpuModel("MI350X", (288,)),
    GpuModel("MI355X", (288,)),
)


# Whether a GPU is the requested model, by the name from a platform or a driver.
#
# A request is a model, a memory size, or both: ``A100``, ``A100 80GB``, ``A100 40GB+``, ``24GB+``.
# Names come from markets, from NVML on the box and from people; the table of models
# (`rgt_tui.model.gpu_names`) decides, and for a model missing there the words of the two names are
# compared.


class GpuName(FrozenStruct):
    """The parts of a GPU's name."""

    words: frozenset[str]
    """Its words, without maker and product line."""
    model: GpuModel | None
    """The row of the table; None = no such row, or no model in the name."""
    form: str | None
    """``sxm`` or ``pcie``; None = unspecified."""
    memory_gb: int | None
    at_least: bool
    """Whether the memory may be larger: ``24GB+``."""
    is_slice: bool


def read_gpu_name(name: str) -> GpuName:
    """Parse a GPU's name as written by people, markets and drivers."""
    text = re.sub(r"[_\-,:()]+", " ", name.lower()).replace("max q", "maxq")
    sizes = _MEMORY.findall(text)
    bare = _STACK.sub(" ", _COUNT.sub(" ", _MEMORY.sub(" ", text)))
    form = next((found for found in _FORM.findall(text) if found != "nvl"), None)
    if form is None and _STACK.search(text) and "h100" in text:
        form = "sxm"  # NVML's name of the SXM board: NVIDIA H100 80GB HBM3
    named = re.sub(r"\b(sxm|pcie)[0-9]?\b", " ", bare)
    return GpuName(
        words=frozenset(_WORDS.findall(_JOINED.sub(r"\1 ", named))) - MAKES,
        model=_BY_KEY.get(_normalize_model_name(named)),
        form=form,
        memory_gb=int(sizes[0][0]) if sizes else None,
        at_least=bool(sizes and sizes[0][1]),
        is_slice=bool(SLICE.search(name.lower())),
    )


def _normalize_model_name(text: str) -> str:
    """Return the table's key for a model's name: without maker, line, board and spaces."""
    words = text.split()
    # "RTX PRO 6000 S" is the server edition; elsewhere a separate S means SUPER.
    if "pro" in words:
        dropped = NOISE | {"s"}
    else:
        dropped = NOISE
    key = "".join(word for word in words if word not in dropped)
    key = re.sub(r"^rtxa(?=[0-9])", "a", key)
    key = re.sub(r"^(rtx|gtx)?([0-9]{4})s(ti)?$", r"\1\2\3super", key)
    if key[:1].isdigit():
        return next((f"{line}{key}" for line in ("rtx", "gtx") if f"{line}{key}" in _BY_KEY), key)
    return key


_BY_KEY: dict[str, GpuModel] = {}
_BY_KEY.update(
    {_normalize_model_name(row.name.lower().replace("max-q", "maxq")): row for row in GPUS}
)


def same_gpu(wished: str, native: str, memory_gb: float | None = None) -> bool:
    """Return whether a platform's GPU name is the model that a person requested.

    ``A100`` matches any A100, ``A100 80GB`` only those, ``24GB+`` any GPU with as much; ``RTX
    3080`` does not match an RTX 3080 Ti, nor ``L40`` an L40S. A part of a GPU (MIG) never matches.

    Args:
        wished: e.g. ``RTX 4090``; case, spaces, hyphens and underscores do not matter.
        native: e.g. ``NVIDIA GeForce RTX 4090``, ``nvidia_h100``, ``A100-SXM4-80GB``.
        memory_gb: Of one GPU, if the platform reports it in addition to the name.
    """
    asked, has = read_gpu_name(wished), read_gpu_name(native)
    if has.is_slice or not native.strip():
        return False
    if not asked.words:
        named = asked.memory_gb is not None
    elif asked.model is not None and has.model is not None:
        named = asked.model is has.model
    else:
        named = asked.words <= has.words and not (has.words - asked.words) & VARIANTS
    if not named or asked.form not in (None, has.form):
        return False
    return _has_memory(asked, has, memory_gb)


def _has_memory(asked: GpuName, has: GpuName, reported_gb: float | None) -> bool:
    """Return whether a GPU has the requested memory; False if its memory is unknown."""
    if asked.memory_gb is None:
        return True
    memory = gpu_memory(has, reported_gb)
    if memory is None:
        return False
    if asked.at_least:
        return memory >= asked.memory_gb * (1 - MEMORY_TOLERANCE)
    return abs(memory - asked.memory_gb) <= MEMORY_TOLERANCE * asked.memory_gb


def gpu_memory(name: GpuName, reported_gb: float | None = None) -> float | None:
    """Return the memory of a GPU in GB: from its name, as reported, or a single size in the table.

    A name may contain another memory size: NVIDIA's GH200 480GB has 480 GB of main memory.
    """
    if name.model is not None:
        sizes = name.model.memory_gb
    else:
        sizes = ()
    for found in (name.memory_gb, reported_gb):
        near = [
            size
            for size in sizes
            if found is not None and abs(found - size) <= MEMORY_TOLERANCE * size
        ]
        if near and found is not None:
            return min(near, key=lambda size: abs(found - size))
    if reported_gb is not None:
        return reported_gb
    if len(sizes) == 1:
        return sizes[0]
    return name.memory_gb


def describe_gpu_mismatch(
    model: str | None, count: int | None, gpus: Sequence[tuple[str, int | None]]
) -> str | None:
    """Return how GPUs differ from those that a box was rented with, as text.

    None = they do not differ, or no model was specified.

    Args:
        model: A model's common name; None = unspecified.
        count: The required number; None = at least one.
        gpus: Name and bytes of memory (None = unknown) of each GPU.
    """
    if model is None:
        return None
    wanted = count or 1
    others = [
        name
        for name, total in gpus
        if not same_gpu(model, name, None if total is None else total / 2**30)
    ]
    if not others and len(gpus) >= wanted:
        return None
    names = ", ".join(dict.fromkeys(name for name, _ in gpus))
    if names:
        found = f"{len(gpus)} × {names}"
    else:
        found = "no GPU"
    return f"{found}, asked for {wanted} × {model}"
