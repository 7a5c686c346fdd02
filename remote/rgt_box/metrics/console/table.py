"""Every line format, in the order in which a line is offered to them."""

from __future__ import annotations

from rgt_box.metrics.console.bars import LIGHTNING, TQDM
from rgt_box.metrics.console.formats_epochs import METERS, MMENGINE, MNIST, ULTRALYTICS
from rgt_box.metrics.console.formats_pairs import DEEPSPEED, FAIRSEQ, OPENRLHF, RGT, VERL
from rgt_box.metrics.console.formats_plain import DETECTRON2, MEGATRON, NANOCHAT, NANOGPT, TITAN, TORCHTUNE
from rgt_box.metrics.console.formats_screens import KERAS, RICH
from rgt_box.metrics.console.generic import GENERIC_LINE
from rgt_box.metrics.console.huggingface import HF, LLAMAFACTORY

FORMATS = (
    RGT,
    NANOGPT,
    NANOCHAT,
    MEGATRON,
    TITAN,
    TORCHTUNE,
    DETECTRON2,
    FAIRSEQ,
    VERL,
    OPENRLHF,
    DEEPSPEED,
    MMENGINE,
    ULTRALYTICS,
    MNIST,
    METERS,
    KERAS,
    RICH,
    LLAMAFACTORY,
    HF,
    LIGHTNING,
    TQDM,
    GENERIC_LINE,
)

BY_NAME = {each.name: each for each in FORMATS}
