"""The GPUs that can be rented: one name for each, its memory, and how Vast.ai spells it.

Names and memory: https://github.com/dstackai/gpuhunt (0.1.34, verified 2026-11),
https://docs.runpod.io/references/gpu-types and https://www.nvidia.com/en-us/data-center/ (verified 2026-11). Vast.ai's
spelling: gpuhunt's mapping and its rules (2026-11), which are followed for models that it does not name. Memory is the
vendor's figure in GB; a driver reports up to 7 % less.
"""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """A GPU model, its memory sizes, and its names."""

    name: str
    memory_gb: tuple[int, ...]
    """Every size that it is sold with."""
    vast: tuple[str, ...] = ()
    """Vast.ai's names, where they differ from `name`: its search compares the whole name."""


GPUS = (
    # Data center, NVIDIA
    Gpu("A10", (24,)),
    Gpu("A10G", (24,)),
    Gpu("A16", (16,)),
    Gpu("A30", (24,)),
    Gpu("A40", (48,)),
    Gpu("A100", (40, 80), ("A100 PCIE", "A100 SXM4")),
    Gpu("A100X", (80,)),
    Gpu("A800", (40, 80), ("A800 PCIE", "A800 SXM4")),
    Gpu("H100", (80,), ("H100 PCIE", "H100 SXM")),
    Gpu("H100 NVL", (94,)),
    Gpu("H200", (141,)),
    Gpu("H200 NVL", (141,)),
    Gpu("GH200", (96,), ("GH200 SXM", "GH200")),
    Gpu("B200", (180,)),
    Gpu("GB200", (186,)),
    Gpu("B300", (270,), ("B300", "B300 PC")),
    Gpu("GB300", (270,)),
    Gpu("L4", (24,)),
    Gpu("L40", (48,)),
    Gpu("L40S", (48,)),
    Gpu("M40", (12, 24), ("Tesla M40",)),
    Gpu("P4", (8,), ("Tesla P4",)),
    Gpu("P40", (24,), ("Tesla P40",)),
    Gpu("P100", (12, 16), ("Tesla P100",)),
    Gpu("T4", (16,), ("Tesla T4",)),
    Gpu("V100", (16, 32), ("Tesla V100",)),
    # Workstation, NVIDIA
    Gpu("A2000", (6, 12), ("RTX A2000",)),
    Gpu("A4000", (16,), ("RTX A4000",)),
    Gpu("A4500", (20,), ("RTX A4500",)),
    Gpu("A5000", (24,), ("RTX A5000",)),
    Gpu("A5500", (24,), ("RTX A5500",)),
    Gpu("A6000", (48,), ("RTX A6000",)),
    Gpu("M4000", (8,), ("Quadro M4000",)),
    Gpu("P4000", (8,), ("Quadro P4000", "Q P4000")),
    Gpu("P5000", (16,), ("Quadro P5000", "Q P5000")),
    Gpu("P6000", (24,), ("Quadro P6000", "Q P6000")),
    Gpu("RTX 4000", (8,), ("Q RTX 4000",)),
    Gpu("RTX 5000", (16,), ("Q RTX 5000",)),
    Gpu("RTX 6000", (24,), ("Q RTX 6000",)),
    Gpu("RTX 8000", (48,), ("Q RTX 8000",)),
    Gpu("RTX 2000 Ada", (16,), ("RTX 2000Ada",)),
    Gpu("RTX 4000 Ada", (20,), ("RTX 4000Ada",)),
    Gpu("RTX 4000 SFF Ada", (20,)),
    Gpu("RTX 4500 Ada", (24,), ("RTX 4500Ada",)),
    Gpu("RTX 5000 Ada", (32,), ("RTX 5000Ada",)),
    Gpu("RTX 5880 Ada", (48,), ("RTX 5880Ada",)),
    Gpu("RTX 6000 Ada", (48,), ("RTX 6000Ada",)),
    Gpu("RTX PRO 4000", (24,)),
    Gpu("RTX PRO 4500", (32,)),
    Gpu("RTX PRO 5000", (48, 72)),
    Gpu("RTX PRO 6000", (96,), ("RTX PRO 6000 WS", "RTX PRO 6000 S", "RTX PRO 6000")),
    Gpu("RTX PRO 6000 Max-Q", (96,), ("RTX PRO 6000 MaxQ", "RTX PRO 6000 Max-Q")),
    # GeForce and Titan
    Gpu("GTX 1070", (8,)),
    Gpu("GTX 1080", (8,)),
    Gpu("GTX 1080 Ti", (11,)),
    Gpu("GTX 1660 SUPER", (6,), ("GTX 1660 S",)),
    Gpu("GTX 1660 Ti", (6,)),
    Gpu("RTX 2060", (6, 12)),
    Gpu("RTX 2060 SUPER", (8,), ("RTX 2060S",)),
    Gpu("RTX 2070", (8,)),
    Gpu("RTX 2070 SUPER", (8,), ("RTX 2070S",)),
    Gpu("RTX 2080", (8,)),
    Gpu("RTX 2080 SUPER", (8,), ("RTX 2080S",)),
    Gpu("RTX 2080 Ti", (11,)),
    Gpu("RTX 3050", (6, 8)),
    Gpu("RTX 3060", (8, 12)),
    Gpu("RTX 3060 Ti", (8,)),
    Gpu("RTX 3070", (8,)),
    Gpu("RTX 3070 Ti", (8,)),
    Gpu("RTX 3080", (10, 12)),
    Gpu("RTX 3080 Ti", (12,)),
    Gpu("RTX 3090", (24,)),
    Gpu("RTX 3090 Ti", (24,)),
    Gpu("RTX 4060", (8,)),
    Gpu("RTX 4060 Ti", (8, 16)),
    Gpu("RTX 4070", (12,)),
    Gpu("RTX 4070 SUPER", (12,), ("RTX 4070S",)),
    Gpu("RTX 4070 Ti", (12,)),
    Gpu("RTX 4070 Ti SUPER", (16,), ("RTX 4070S Ti",)),
    Gpu("RTX 4080", (16,)),
    Gpu("RTX 4080 SUPER", (16,), ("RTX 4080S",)),
    Gpu("RTX 4090", (24,)),
    Gpu("RTX 4090 D", (24, 48), ("RTX 4090D",)),
    Gpu("RTX 5060", (8,)),
    Gpu("RTX 5060 Ti", (8, 16)),
    Gpu("RTX 5070", (12,)),
    Gpu("RTX 5070 Ti", (16,)),
    Gpu("RTX 5080", (16,)),
    Gpu("RTX 5090", (32,)),
    Gpu("TITAN RTX", (24,), ("Titan RTX",)),
    Gpu("TITAN V", (12,), ("Titan V",)),
    Gpu("TITAN Xp", (12,), ("Titan Xp",)),
    # AMD
    Gpu("MI100", (32,)),
    Gpu("MI210", (64,)),
    Gpu("MI250", (128,)),
    Gpu("MI250X", (128,)),
    Gpu("MI300A", (128,)),
    Gpu("MI300X", (192,)),
    Gpu("MI308X", (128,)),
    Gpu("MI325X", (256, 288)),
    Gpu("MI350X", (288,)),
    Gpu("MI355X", (288,)),
)
