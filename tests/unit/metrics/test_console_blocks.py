"""Consoles of frameworks without a format of their own: lines, blocks, tables and columns.

Each is printed in a public thread (address beside it); `{n}` counts from 1, `{y}` falls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import ConsoleReader, choose_tags, read_all

CONSOLES: list[tuple[str, str, str, str, float, float | None]] = [
    # name and source, one repetition, metric, axis, last x after 6 repetitions, planned steps
    (
        "OLMo, https://github.com/allenai/OLMo/issues/692",
        "2024-08-06 09:59:0{n}.181 box-160750:0  olmo.train:908  INFO    [step={n}/739328,epoch=0]\n"
        "    optim/total_grad_norm=231.7\n    train/CrossEntropyLoss={y}\n    train/Perplexity=195,153\n"
        "    throughput/device/tokens_per_second=26,668\n    System/Peak GPU Memory (MB)=46,911\n",
        *("loss", "step", 6, 739328),
    ),
    (
        "rsl_rl, https://github.com/mujocolab/mjlab/pull/1021",
        "################################################################################\n"
        "                          Learning iteration {n}/30000                            \n\n"
        "                            Total steps: {n}08 \n                        Collection time: 0.183s \n"
        "                        Mean value loss: 0.4399\n                    Mean surrogate loss: -0.1204\n"
        "                            Mean reward: -{y}\n"
        "--------------------------------------------------------------------------------\n"
        "                         Iteration time: 0.24s\n                           Time elapsed: 00:00:01\n",
        *("Mean reward", "step", 6, 30000),
    ),
    (
        "rsl_rl before 5, https://github.com/leggedrobotics/rsl_rl/issues/95",
        "################################################################################\n"
        "                       Learning iteration {n}/400                       \n\n"
        "                       Computation: 159372 steps/s (collection: 0.544s, learning 1.101s)\n"
        "               Mean surrogate loss: 0.0019\n                       Mean reward: {y}\n"
        "--------------------------------------------------------------------------------\n"
        "                   Total timesteps: {n}9668480\n                    Iteration time: 1.05s\n",
        *("Mean reward", "step", 6, 400),
    ),
    (
        "PyTorch, https://pytorch.org/tutorials/beginner/transfer_learning_tutorial.html",
        "Epoch {n}/24\n----------\ntrain Loss: {y}.0000 Acc: 0.7049\nval Loss: 0.2101 Acc: 0.9216\n\n",
        *("loss", "epoch", 6, 24),
    ),
    (
        "Simple Transformers, https://github.com/ThilinaRajapakse/simpletransformers (a total after of)",
        "Epochs {n} of 90. Running Loss:    {y}.0000\n",
        *("loss", "epoch", 6, 90),
    ),
    (
        "https://keras.io/guides/training_with_built_in_methods, verbose=2",
        "Epoch {n}/90\n782/782 - 1s - 2ms/step - loss: {y} - sparse_categorical_accuracy: 0.9\n",
        *("loss", "epoch", 6, 90),
    ),
    (
        "PyTorch, https://pytorch.org/tutorials/beginner/blitz/cifar10_tutorial.html",
        "[{n},  2000] loss: 2.{n}\n[{n},  4000] loss: {y}\n",
        *("loss", "step", 24000, None),
    ),
    (
        "DeepSpeed, https://github.com/deepspeedai/DeepSpeedExamples (training/cifar)",
        "[2024-05-01 10:10:1{n},123] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}0, skipped=0, lr=[0.001], "
        "mom=[(0.8, 0.999)]\n[2024-05-01 10:10:1{n},124] [INFO] [timer.py:260:stop] epoch=0/micro_step={n}0/"
        "global_step={n}0, RunningAvgSamplesPerSec=400.1, MemAllocated=0.1GB\n[ 1,    {n}0] loss: {y}\n",
        *("loss", "step", 60, None),
    ),
    (
        "Stable-Baselines3, https://stable-baselines3.readthedocs.io/en/master/common/logger.html",
        "-----------------------------------------\n| rollout/                |             |\n"
        "|    ep_rew_mean          | -{y}        |\n| time/                   |             |\n"
        "|    fps                  | 972         |\n|    iterations           | {n}          |\n"
        "|    total_timesteps      | {n}0000       |\n| train/                  |             |\n"
        "|    loss                 | {y}       |\n|    n_updates            | {n}0         |\n"
        "-----------------------------------------\n",
        *("loss", "step", 60000, None),
    ),
    (
        "RVC, https://github.com/RVC-Project/Retrieval-based-Voice-Conversion-WebUI/issues/507",
        "INFO:voice1:Train Epoch: 1 [{n}%]\nINFO:voice1:[{n}00, 9.99e-05]\n"
        "INFO:voice1:loss_disc=3.859, loss_gen={y}, loss_kl=1.270\n",
        *("loss_gen", "step", 600, None),
    ),
    (
        "a list with two whole numbers is no step",
        "Train Epoch: {n} [7%]\n[{n}00, 8, 9.99e-05]\nloss_disc=3.859, loss_gen={y}, loss_kl=1.270\n",
        *("loss_gen", "epoch", 6, None),
    ),
    (
        "nor is a list with a name",
        "Train Epoch: {n} [7%]\nchannels [{n}00, 0.5]\nloss_disc=3.859, loss_gen={y}, loss_kl=1.270\n",
        *("loss_gen", "epoch", 6, None),
    ),
    (
        "nnU-Net 2, https://github.com/MIC-DKFZ/nnUNet/issues/2140",
        "2024-04-26 09:4{n}:10.910043: Epoch {n}\n2024-04-26 09:4{n}:10.914042: Current learning rate: 0.01\n"
        "2024-04-26 09:4{n}:39.493872: train_loss -{y}\n2024-04-26 09:4{n}:39.498914: val_loss -0.4628\n"
        "2024-04-26 09:4{n}:39.501914: Pseudo dice [0.0, 0.0, 0.0002]\n"
        "2024-04-26 09:4{n}:39.505914: Epoch time: 148.59 s\n",
        *("loss", "epoch", 6, None),
    ),
    (
        "deeprm, https://github.com/hongzimao/deeprm/issues/10",
        "-----------------\nIteration: \t {n}\nNumTimesteps: \t 32549\nLoss:     \t {y}\nMaxRew: \t -199.9\n"
        "MeanRew: \t -257.43755677655673 +- 63.18571158682983\nElapsed time\t 106.06722 seconds\n",
        *("loss", "step", 6, None),
    ),
    (
        "ESPnet, https://github.com/espnet/espnet/issues/2183",
        "[gpu01:0/2] 2020-07-19 08:49:0{n},080 (trainer:464) INFO: {n}epoch:train:1-682batch: iter_time=2.878e-04, "
        "loss={y}, loss_att=77.448, acc=0.013, lr_0=3.460e-06, train_time=1.816\n"
        "[gpu01:0/2] 2020-07-19 08:54:0{n},601 (trainer:464) INFO: {n}epoch:train:683-1364batch: iter_time=5.86e-05, "
        "loss={y}, loss_att=65.930, acc=0.125, lr_0=1.028e-05, train_time=1.790\n",
        *("loss", "step", 6 * 1364, None),
    ),
    (
        "OpenNMT-py, https://github.com/OpenNMT/OpenNMT-py/issues/1362",
        "[2019-03-21 18:31:4{n},773 INFO] Step {n}50/200000; acc:  31.18; ppl: 57.53; xent: {y}; lr: 0.00028; "
        "5092/261 tok/s;   6641 sec\n",
        *("loss", "step", 650, 200000),
    ),
    (
        "pith-train, https://github.com/mlc-ai/pith-train/pull/7",
        "2026-04-01 14:06:3{n} | INFO | step 0000000{n}/00000015 | step-time 73.352 sec | cross-entropy-loss {y} | "
        "load-balance-loss 0.001807 | learning-rate 1.000000e-06 | tokens-per-second 28,590\n",
        *("loss", "step", 6, 15),
    ),
    (
        "pytracking, https://github.com/byminji/SLTtrack/issues/5",
        "[train: {n}, 124 / 125] FPS: 21.6 (29.1)  ,  Loss/total: {y}  ,  Loss/bbox: 0.04443  ,  mIoU: 0.84359\n",
        *("loss", "step", 5 * 125 + 124, None),
    ),
    (
        "xgboost, https://xgboost.readthedocs.io",
        "[{n}]\ttrain-logloss:{y}\teval-logloss:0.21000\n",
        *("loss", "step", 6, None),
    ),
    (
        "llm.c, https://github.com/karpathy/llm.c/discussions/481",
        "step    {n}/19560 | loss {y} (+nanz)| norm 15.4 (+nanz)| lr 8.57e-07 | 3056.36 ms | 34.8% bf16 MFU | "
        "171541 tok/s\n",
        *("loss", "step", 6, 19560),
    ),
    (
        "Composer",
        "[epoch=1][batch={n}0/1000]:\n\t Train time/epoch: 0\n\t Train time/batch: 9\n\t Train loss/train/total: {y}\n",
        *("loss", "step", 60, None),
    ),
    (
        "DeiT's log.txt",
        '{{"train_lr": 0.0001, "train_loss": {y}, "test_acc1": 10.0, "epoch": {n}, "n_parameters": 86567656}}\n',
        *("loss", "epoch", 6, None),
    ),
    (
        "LeRobot, https://github.com/unitreerobotics/unitree_lerobot/issues/10",
        "INFO 2026-04-01 10:00:20 ts/train.py:232 step:{n}K smpl:245K ep:2K epch:9.5{n} loss:{y} lr:7.9e-05\n",
        *("loss", "step", 6000, None),
    ),
    (
        "Marian, https://github.com/marian-nmt/marian/issues/376",
        "[2026-07-17 12:00:33] Ep. 1 : Up. {n}000 : Sen. 965,843 : Cost {y} : Time 359.59s : 3007.81 words/s : "
        "L.r. 3.0000e-04\n[2026-07-17 13:50:36] [valid] Ep. 1 : Up. {n}000 : cross-entropy : 130.97 : new best\n",
        *("loss", "step", 6000, None),
    ),
    (
        "PaddleDetection, https://github.com/PaddlePaddle/PaddleDetection/issues/4496",
        "[11/06 15:00:0{n}] ppdet.engine INFO: Epoch: [{n}] [1800/1831] learning_rate: 0.000125 loss_xy: 1.201 "
        "loss: {y} eta: 14:20:11 batch_cost: 0.6100 ips: 13.1148 images/s\n",
        *("loss", "step", 5 * 1831 + 1800, None),
    ),
    (
        "CycleGAN, https://github.com/junyanz/pytorch-CycleGAN-and-pix2pix",
        "(epoch: {n}, iters: 400, time: 0.123, data: 0.456) D_A: 0.2 G_A: 0.3 cycle_A: {y} idt_A: 0.5\n"
        "(epoch: {n}, iters: 800, time: 0.123, data: 0.456) D_A: 0.2 G_A: 0.3 cycle_A: {y} idt_A: 0.5\n",
        *("cycle_A", "step", 6 * 800, None),
    ),
    (
        "BasicSR, https://github.com/XPixelGroup/BasicSR",
        "2021-08-01 10:00:0{n},123 INFO: [Train..][epoch:  0, iter:   {n},000, lr:(2.000e-04,)] [eta: 1 day, 2:03:04, "
        "time (data): 0.512 (0.003)] l_pix: {y}e+00 l_percep: 3.1e+00 \n",
        *("l_pix", "step", 6000, None),
    ),
    (
        "open_clip, https://github.com/mertyg/vision-language-models-are-bows/issues/27",
        "2026-06-29,15:0{n}:00 | INFO | Train Epoch: {n} [ 12864/109468 (11%)] Loss: {y} (1.067) Data (t): 0.173 "
        "LR: 0.000001 Logit Scale: 99.995 - V4\n",
        *("loss", "samples", 5 * 109468 + 12864, None),
    ),
]


def read_curves(text: str, path: Path, cut: int = 0) -> dict[str, Any]:
    """Return metric or tag → (axis, xs, ys, segment); read in two parts if `cut` is given."""
    if cut:
        path.write_text(text[:cut])
        reader = ConsoleReader(str(path), ended=True)
        ConsoleReader(str(path)).read()
    path.write_text(text)
    reader = ConsoleReader(str(path), ended=True)
    store, problems = read_all(reader, limit=7 if cut else 5000)
    assert problems == []
    tags = {tag: metric for metric, tag in choose_tags(tag for _, tag, _ in store.series).items()}
    return {
        tags.get(tag, tag): (axis, series.xs, series.ys, series.segment)
        for (_, tag, axis), series in sorted(store.series.items())
    }


@pytest.mark.parametrize(
    ("repeated", "metric", "axis", "last", "total"),
    [each[1:] for each in CONSOLES],
    ids=[each[0].partition(",")[0] for each in CONSOLES],
)
def test_the_curve_of_a_framework_without_a_format(
    repeated: str, metric: str, axis: str, last: float, total: float | None, tmp_path: Path
) -> None:
    text = "".join(repeated.format(n=n, y=9 - n) for n in range(1, 7))
    found = read_curves(text, tmp_path / "out.log")
    kind, xs, ys, segment = found[metric]
    assert (kind, xs[-1], abs(ys[-1]), segment) == (axis, last, 3, 0)
    assert len(xs) >= 6
    if total is not None:
        assert found["total_steps"][2] == [total]
    assert repr(read_curves(text, tmp_path / "parts.log", cut=len(text) // 2)) == repr(found)


def test_a_listed_number_that_stays_the_same_is_no_step(tmp_path: Path) -> None:
    lines = [
        f"Train Epoch: {n} [7%]\n[128, 0.5]\nloss_disc=3.859, loss_gen=3.{n}, loss_kl=1.270\n"
        for n in range(1, 7)
    ]
    found = read_curves("".join(lines), tmp_path / "out.log")
    assert found["loss_gen"][:2] == ("epoch", [2, 3, 4, 5, 6])


def test_columns_are_named_by_the_line_above_them(tmp_path: Path) -> None:
    head = "epoch     train_loss  valid_loss  accuracy  time    \n"
    rows = "".join(
        f"{n}         {3 - n / 10:.6f}    2.500000    0.9{n}0000  00:12     \n" for n in range(5)
    )
    found = read_curves(head + rows, tmp_path / "fastai.log")
    assert found["loss"][:2] == ("epoch", [0, 1, 2, 3, 4])
    assert found["accuracy"][2][-1] == 0.94
    assert "time" not in found


def test_the_columns_of_spacy_are_read(tmp_path: Path) -> None:
    head = "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE \n---  ------  ------------  --------  ------  ------\n"
    rows = "".join(
        f"  0     {n}00          0.00    4{n}.47   10.66    0.{n}1\n" for n in range(1, 5)
    )
    found = read_curves(head + rows, tmp_path / "spacy.log")
    assert found["SCORE"][:3] == ("step", [100, 200, 300, 400], [0.11, 0.21, 0.31, 0.41])


ONE_LINE: list[tuple[str, str, str, tuple[str, list[int], list[float]]]] = [
    # what is new about it, one repetition ({n} from 1, {y} falls), the tag, and its curve
    (
        "a step before bars, among lines with a named one, https://github.com/karpathy/llama2.c/issues/461",
        "{n}00 | loss {y}.5 | lr 4.9e-05 | 8060.78ms | mfu 0.21%\nstep {n}00: train loss 7.5, val loss 7.6\n",
        *("loss", ("step", [100, 200, 300, 400], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "names behind their numbers, https://github.com/pjreddie/darknet/issues/475",
        "16{n}: 1.679510, {y}.5 avg, 0.001000 rate, 5.543082 seconds, 51200 images\nLoaded: 0.000060 seconds\n",
        *("avg", ("step", [161, 162, 163, 164], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "rounds in brackets are no ranks, https://github.com/lightgbm-org/LightGBM/issues/3145",
        "[{n}]:    train's l2:{y}.5    valid's l2:0.100327\n",
        *("train/l2", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "the number of a rank is no step",
        "2:  step {n}0 loss {y}.5\n",
        *("loss", ("step", [10, 20, 30, 40], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a rounded step beside an exact one, https://github.com/danijar/dreamerv2/issues/52",
        "Episode has 151 steps and return 6.1.\n[58{n}] return {y}.5 / length 151 / total_steps 5.8e6\n",
        *("return", ("step", [581, 582, 583, 584], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a step behind a name and its number, https://github.com/mlaux1/rl-blox/pull/53",
        "global_step={n}99, episodic_return=-2.5\nlosses/q1_loss {y}.5 {n}99\n",
        *("losses/q1_loss", ("step", [199, 299, 399, 499], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "training and evaluation of one unknown name, https://github.com/atnikos/teach/issues/27",
        "[13/12/22 00:02:48][teach.callback.progress][INFO] -  Epoch {n}: Train_rf {y}.5e-01   Val_rf 4.8e-01\n",
        *("Train_rf", ("epoch", [1, 2, 3, 4], [0.85, 0.75, 0.65, 0.55])),
    ),
    (
        "the measure before the position, https://github.com/horovod/horovod/issues/243",
        "01:02:03,101 - brc - INFO - Average loss from batch {n}1 to {n}9 is {y}.5\n",
        *("Average loss", ("step", [11, 21, 31, 41], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "episodes, https://github.com/pat-coady/trpo/issues/21",
        "***** Episode {n}0, Mean R = {y}.5 *****\nBeta: 6.91\nKL: 0.{y}1\nPolicyLoss: -0.00512\nSteps: 672\n\n",
        *("Mean R", ("step", [10, 20, 30, 40], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a validation without a step of its own, https://github.com/karpathy/llm.c/pull/156",
        "step {n}: train loss 5.{y} (took 2141 ms)\nval loss {y}.5\n",
        *("val_loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a dotted word, https://github.com/huggingface/diffusers/issues/5461",
        "Epoch... ({n}/116 | Loss: {y}.5)                    \n",
        *("loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "ticks and thousands of images with speeds, https://github.com/NVlabs/stylegan2-ada/issues/69",
        "tick 140{n}  kimg 57{n}.6   time 1d 06h 06m   sec/tick 71.0    sec/kimg {y}.5   augment 6.5\n",
        *("sec/kimg", ("step", [1401, 1402, 1403, 1404], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a line that a logger wrapped, https://github.com/hpcaitech/FastFold/pull/138",
        "                    INFO     colossalai - INFO: Training, Epoch: 0, Step: {n}, Loss: distogram=4.15 fape=1.6\n"
        "                             lddt=3.912 loss={y}.5 lddt_ca=0.010\nsaved 2 files\n",
        *("loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a table of sets below an epoch, https://github.com/ludwig-ai/ludwig/issues/138",
        "Epoch   {n}\nTraining: 100% 3/3 [00:10<00:00,  3.46s/it]\nTook 14.6354s\n"
        "╒══════════╤════════╤════════════╕\n│ rating   │   loss │   accuracy │\n╞══════════╪════════╪════════════╡\n"
        "│ train    │ 1.1529 │     0.3988 │\n├──────────┼────────┼────────────┤\n│ vali     │ {y}.5    │     0.2708 │\n"
        "╘══════════╧════════╧════════════╛\n",
        *("vali/loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a table whose rows are ruled off, https://github.com/apple/turicreate/issues/1931",
        "| Iteration     | Training Loss   | Elapsed Time (seconds) |\n+---------------+-----------------+---------+\n"
        "| {n}           | {y}.5           | 17.959                 |\n+---------------+-----------------+------+\n",
        *("train_loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "rows of two sets, https://github.com/AnswerDotAI/minai/issues/3",
        "loss | epoch | train | time\n-- | -- | -- | --\n0.722 | {n} | True | 00:21\n{y}.5 | {n} | False | 00:01\n",
        *("val/loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a header with points, https://github.com/explosion/spaCy/issues/3166",
        "Itn.  Dep Loss  NER Loss  NER F.\n{n}     0.000     {y}.5       10.256\n",
        *("NER Loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "Chinese",
        "第 {n} 轮，训练损失：{y}.5，验证准确率：81.2%，学习率：0.001\n",
        *("train_loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "Japanese, Korean and Russian words",
        "エポック{n} 損失 {y}.5 정확도 0.5 точность 0.25\n",
        *("loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "German",
        "Epoche {n}/20 Verlust: {y}.5 Genauigkeit: 0.91\n",
        *("Verlust", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a set with a number, https://github.com/gentaiscool/end2end-asr-pytorch/issues/39",
        "01:02:03,406 - (Epoch {n}) TRAIN LOSS:0.1903 CER:6.53% LR:0.0000167\n"
        "01:02:03,962 - VALID SET 0 LOSS:{y}.5 CER:5.78%\n",
        *("VALID/loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a level that is no name, and names in brackets, https://github.com/liuslnlp/CoupletAI/issues/2",
        "SUCCESS [epoch]: 1, [batch]: {n}0, [loss]: {y}.5\n",
        *("loss", ("step", [10, 20, 30, 40], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a step over its total by name, https://github.com/luopeixiang/named_entity_recognition/issues/24",
        "Epoch 1, step/total_step: {n}5/99 1.8% Loss:{y}.5\n",
        *("loss", ("step", [15, 25, 35, 45], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "columns with a share behind the step and M for millions, https://github.com/maturk/dn-splatter/issues/110",
        "Step (% Done)       Train Iter (time)    Train Rays / Sec\n-----------\n"
        "{n}00 (0.67%)          18.1 ms              {y}.5 M\n",
        *("train rays / sec", ("step", [100, 200, 300, 400], [8.5e6, 7.5e6, 6.5e6, 5.5e6])),
    ),
    (
        "a count over all epochs, glued to a bar, https://github.com/open-mmlab/OpenPCDet/issues/1156",
        "train:   0%|          | 0/271 [00:00<?, ?it/s]2022-10-22 03:18:50,691   INFO  epoch: {n}/120, "
        "acc_iter={n}271, cur_iter=0/271, batch_size=4, loss={y}.5\n",
        *("loss", ("step", [1271, 2271, 3271, 4271], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "all updates beside those since the last line, https://github.com/facebookresearch/ParlAI/pull/2433",
        "[ time:4.0s total_exs:{n}114 epochs:{n}.23 ] {'loss': {y}.5, 'updates': 81, 'total_train_updates': {n}51}\n",
        *("loss", ("step", [151, 251, 351, 451], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a figure in a list, https://github.com/HKUDS/KGRec/issues/5",
        "+-------+------------+\n| Epoch |  time |        Loss          |    recall    |\n+-------+------------+\n"
        "|   {n}   | 993.5 | [289.81, 87.36, 1.4] | [{y}.5] |\n+-------+------------+\n",
        *("recall", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "lists between blanks, https://github.com/lululxvi/deepxde/issues/263",
        "Step      Train loss              Test metric   \n{n}000      [1.1e+00, 2.0e+00]    [{y}.50e+00]    \n",
        *("Test metric", ("step", [1000, 2000, 3000, 4000], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "where a logger was called, and a round between dashes, https://github.com/WwZzz/easyFL/issues/17",
        "2023-01-30 20:10:16,001 fedbase.py run [line:60] INFO --------------Round {n}--------------\n"
        "2023-01-30 20:10:16,250 basic_logger.py show [line:134] INFO train_loss           {y}.5\n",
        *("train_loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a heading over the figures of an evaluation, https://github.com/RUCAIBox/RecBole/issues/2169",
        "Thu 24 Apr 2025 06:41:52 INFO  epoch {n} training [time: 14.42s, train loss: 142.7]\n"
        "Thu 24 Apr 2025 08:08:55 INFO  valid result: \nrecall@5 : 0.0007    recall@10 : {y}.5    mrr@5 : 0.1\nsaved\n",
        *("valid/recall@10", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a name that begins with a digit, https://github.com/zczcwh/PoseFormer/issues/4",
        "[{n}] time 43.30 lr 0.000040 3d_train {y}.5 3d_valid 67.047745\n",
        *("3d_train", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a name with a point, https://github.com/OlaWod/PitchVC/issues/3",
        "Steps : {n}5, Gen Loss Total : 25.663, Mel-Spec. Error : {y}.5, s/b : 0.4\n",
        *("Mel-Spec. Error", ("step", [15, 25, 35, 45], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "several names before as many numbers",
        "Epoch {n}: P/R/F1: 0.5/0.25/{y}.5, loss 0.1\n",
        *("F1", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a word that all names share",
        "[{n}/12] train/val loss: 0.3000/{y}.5000\n",
        *("val_loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a tuple of names and one of numbers",
        "epoch {n}: (loss, acc) = (0.41, {y}.5)\n",
        *("acc", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "names in brackets of a group, https://github.com/FX-STAR/Optim_Hopenet/issues/3",
        "Epoch[{n}] Speed: 521.40 samples/sec, Loss:(pitch, yaw, roll)/(16.054, {y}.500, 14.000)\n",
        *("Loss/yaw", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "the set and the position among the names, https://github.com/clinfo/kGCN/pull/35",
        "L133 ::: train, round, loss, acc  ===> 00{n}, 0.1, 0.4,\n"
        "L139 ::: val, round, loss, acc ===> 00{n}, {y}.5, 0.4,\n",
        *("val/loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "commas between names and numbers",
        "('Epoch:', {n}, 'Loss:', {y}.5)\n",
        *("loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "Julia's symbols and single precision, https://github.com/denizyuret/Knet.jl/issues/73",
        "(:epoch,{n},:trn,589.100000f0,:tst,{y}.500000f0)\n",
        *("test", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a tuple whose first number counts, https://github.com/flwrlabs/flower/pull/996",
        "INFO flower 2022-01-06 09:16:07,845 | server.py:148 | fit progress: ({n}, {y}.5, {'accuracy': 0.1}, 62.1)\n",
        *("fit progress", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a JSON object at the end of a line (NVIDIA's DLLogger)",
        'DLLL {"timestamp": "15{n}.1", "type": "LOG", "step": [0, {n}0], "data": {"train_loss": {y}.5, "time": 3.1}}\n',
        *("train_loss", ("step", [10, 20, 30, 40], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a name and its value in a JSON object (MLPerf)",
        ':::MLLOG {"time_ms": 160{n}, "key": "eval_accuracy", "value": {y}.5, "metadata": {"epoch_num": {n}}}\n',
        *("eval_accuracy", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "the first of a list has no name of its own",
        "step {n} lr=[0.5, 0.1] loss {y}.5\n",
        *("loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "frames of an environment",
        "frames: {n}0,000 | fps: 312 | mean return: {y}.5\n",
        *("mean return", ("step", [10000, 20000, 30000, 40000], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "names of a table's positions may have a path: the plain one is its own (OpenAI Baselines)",
        "--------------------\n| epoch        | {n}   |\n| test/episode | {n}0.0 |\n| test/success_rate | {y}.5 |\n"
        "| train/episode | {n}00 |\n--------------------\n",
        *("test/success_rate", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a table's positions that all have a path",
        "--------------------\n| loss | {y}.5 |\n| time/iterations | {n} |\n| time/total_timesteps | {n}00 |\n"
        "--------------------\n",
        *("loss", ("step", [100, 200, 300, 400], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a block whose counters are at its end, https://github.com/ray-project/ray/issues/3908",
        "date: 2019-01-31_21-57-27\nepisode_reward_max: 3.5\nepisode_reward_mean: {y}.5\nepisodes_total: {n}7\ninfo:\n"
        "  default:\n    total_loss: 0.5\npid: 123\ntimesteps_total: {n}00\ntraining_iteration: {n}\n\n",
        *("episode_reward_mean", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
]


@pytest.mark.parametrize(("about", "text", "tag", "curve"), ONE_LINE)
def test_a_line_of_a_new_kind_is_read(
    about: str, text: str, tag: str, curve: tuple[str, list[int], list[float]], tmp_path: Path
) -> None:
    path = tmp_path / "out.log"
    lines = [text.replace("{n}", str(n)).replace("{y}", str(9 - n)) for n in range(1, 5)]
    path.write_text("".join(lines), encoding="utf-8")
    series = read_all(ConsoleReader(str(path), ended=True))[0].series
    found = {
        name.lower(): (x_kind, list(each.xs), list(each.ys))
        for (_, name, x_kind), each in series.items()
    }
    assert found.get(tag.lower()) == curve, (about, found)


def test_a_bar_gives_its_own_count_of_steps_and_keeps_evaluations_between(tmp_path: Path) -> None:
    lines = [
        f"Epoch #{n}: 501it [00:40, 1244.54it/s, env_step={n}00000, loss=0.{n}, rew=200.00]\n"
        f"Epoch #{n}: test_reward: {n}.5, best_reward: 9.5 in #1\nlatest checkpoint 7 saved\n"
        for n in range(1, 7)
    ]
    found = read_curves("".join(lines), tmp_path / "out.log")
    assert found["loss"][:2] == ("step", [n * 100000 for n in range(1, 7)])
    assert found["test_reward"][:3] == (
        "step",
        [300000, 400000, 500000, 600000],
        [3.5, 4.5, 5.5, 6.5],
    )


def test_an_evaluation_keeps_its_own_name_and_the_training_s_step(tmp_path: Path) -> None:
    lines = [
        f"iteration {n}00: loss 1.{n}\nTest set: Average loss: 0.0{n}, Accuracy: 97.{n}\n"
        for n in range(1, 6)
    ]
    found = read_curves("".join(lines), tmp_path / "out.log")
    assert found["loss"][1] == found["eval_loss"][1] == [100, 200, 300, 400, 500]
    assert found["test/Accuracy"][2][-1] == 97.5


def test_the_summary_of_an_epoch_does_not_replace_a_step(tmp_path: Path) -> None:
    lines = [
        f"step {n}0/50 loss 2.{n}\nstep {n}5/50 loss 1.{n}\nEpoch {n} done: loss 1.9, val loss 0.{n}\n"
        for n in range(1, 5)
    ]
    found = read_curves("".join(lines), tmp_path / "out.log")
    assert found["loss"][2][-1] == 1.4
    assert found["eval_loss"][:2] == ("step", [15, 25, 35, 45])


def test_abbreviated_steps_never_go_back(tmp_path: Path) -> None:
    def shortened(n: int) -> str:
        return f"{n}" if n < 1000 else f"{n / 1000:.0f}K"

    text = "".join(f"step:{shortened(n)} loss:{1 / n:.6f}\n" for n in range(200, 31001, 200))
    _, xs, ys, segment = read_curves(text, tmp_path / "out.log")["loss"]
    assert xs[:5] == [200, 400, 600, 800, 1000]
    assert (xs[-1], segment, sorted(xs) == xs) == (31000, 0, True)
    assert ys[-1] == pytest.approx(1 / 31000, abs=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        "01:02:0{n} INFO fit.reporter: Sent progress event step={n}0 loss={y}.5",
        "worker 3 has sent all of its figures step={n}0 loss={y}.5",
        "[fit] pushed to the board, run state loss={y}.5 iter={n}0",
        "Published curve step: {n}0 loss: {y}.5",
    ],
)
def test_the_words_before_a_position_are_not_its_name(line: str, tmp_path: Path) -> None:
    text = "".join(line.format(n=n, y=9 - n) + "\n" for n in range(1, 7))
    found = read_curves(text, tmp_path / "out.log")
    assert found["loss"][:3] == (
        "step", [10, 20, 30, 40, 50, 60], [8.5, 7.5, 6.5, 5.5, 4.5, 3.5]
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["seconds per step", "mean loss step", "save every step", "episode steps"]
)
def test_a_number_per_step_is_no_position(name: str, tmp_path: Path) -> None:
    text = "".join(f"{name}={n}0 loss={9 - n}.5\n" for n in range(1, 7))
    assert read_curves(text, tmp_path / "out.log")["loss"][1] == [1, 2, 3, 4, 5, 6]  # counted


def test_a_count_of_a_total_goes_before_words_with_a_position(tmp_path: Path) -> None:
    text = "".join(f"{n}0/90: game steps: {7 + n}, loss: {9 - n}.5\n" for n in range(1, 7))
    assert read_curves(text, tmp_path / "out.log")["loss"][1] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("joint", [" ", "     ", ","])
def test_a_header_may_be_a_comment(joint: str, tmp_path: Path) -> None:
    lines = [("# step", "rmse_val", "lr")]
    lines += [(f"{n}00", f"{9 - n}.5e-01", "1e-3") for n in range(1, 7)]
    text = "".join(joint.join(cells) + "\n" for cells in lines)
    found = read_curves(text, tmp_path / "out.log")
    assert found["rmse_val"][:2] == ("step", [100, 200, 300, 400, 500, 600])
    assert found["rmse_val"][2][-1] == 0.35
    assert found["lr"][2][-1] == 1e-3


def test_an_object_over_several_lines_is_one_row(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"loss": 9.0 - n, "sizes": [n, 2], "box": {"iteration": 7}, "iteration": 10 * n, "lr": 0.5}
        for n in range(1, 7)
    ]
    rows[-1]["val/loss"] = 0.25
    text = json.dumps(rows, indent=4)
    found = read_curves(text + "\n", tmp_path / "log.json")
    assert found["loss"][:3] == ("step", [10, 20, 30, 40, 50, 60], [8, 7, 6, 5, 4, 3])
    assert found["lr"][1] == found["loss"][1]
    assert found["eval_loss"][1:3] == ([60], [0.25])
    parts = read_curves(text + "\n", tmp_path / "parts.json", cut=len(text) // 2)
    assert repr(parts) == repr(found)


@pytest.mark.parametrize(
    "odd", ['"epoch": -1', '"step": NaN', '"version": 1.2.3', '"step": 1e999', "]", "}", "[", "{"]
)
def test_odd_lines_of_objects_do_no_harm(odd: str, tmp_path: Path) -> None:
    block = '{{\n  "loss": {y}.5,\n  "step": {n}0\n}}\n'
    good = "".join(block.format(n=n, y=9 - n) for n in range(1, 7))
    found = read_curves("{\n" + f'  "loss": 3.0,\n  {odd}\n}}\n}}\n' + good, tmp_path / "out.log")
    assert found["loss"][1][-5:] == [20, 30, 40, 50, 60]
    unfinished = read_curves(good + '{\n  "loss": 7.5,\n', tmp_path / "cut.log")
    assert unfinished["loss"][1:3] == ([10, 20, 30, 40, 50, 60], [8.5, 7.5, 6.5, 5.5, 4.5, 3.5])


@pytest.mark.parametrize(
    "line",
    ["step {n}0: loss {y}.5", "[{n}0/60] loss {y}.5", '{{"step": {n}0, "loss": {y}.5}}'],
)
def test_an_object_that_never_ends_does_not_hide_the_lines_below(line: str, tmp_path: Path) -> None:
    lines = [line.format(n=n, y=9 - n) + "\n" for n in range(1, 7)]
    found = read_curves("{\n" + '    "name": 3,\n' + "".join(lines), tmp_path / "out.log")
    assert found["loss"][1] == [10, 20, 30, 40, 50, 60]


TEXT = [
    "GET /health 200 1.2 ms", "worker 3: fetched shard 17 in 0.5 s", "Downloading model 40.2 MB of 1.2 GB",
    "step 3 of the tutorial: install version 2.0", "score 5 of 10 for this answer", "Processed 100 files, 3 errors",
    "| id | name | 5 |", "  File \"train.py\", line 100, in step", "accuracy threshold: 0.9", "------------------",
    "Processed {n} files, 3 errors", "fetched shard {n} in 0.5 s", "eval sample {n}/500", "Map {n} of 40 written",
    "step {n}: compiling took 3.2 s", "epoch {n} begins", "[{n}] 172.16.0.4 connected", "pass {n}: ok",
    "GPU 0: 81 C, 700 W, util 99%", "epoch,loss", "max_steps: 500", "gradient accumulation steps: 8",
]  # fmt: skip


@pytest.mark.parametrize("line", TEXT)
def test_text_with_numbers_is_no_curve(line: str, tmp_path: Path) -> None:
    assert (
        read_curves(
            "".join(line.replace("{n}", str(n)) + "\n" for n in range(1, 31)), tmp_path / "out.log"
        )
        == {}
    )


def test_a_line_of_another_logger_is_a_line_of_its_own(tmp_path: Path) -> None:
    rows = [
        {
            "event": "step",
            "step": n,
            "loss": 3 - n / 10,
            "msg": "train",
            "timestamp": "2026-04-01T10:00:01Z",
        }
        for n in range(1, 6)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert read_curves(text, tmp_path / "out.log")["loss"][1] == [1, 2, 3, 4, 5]


def test_the_names_of_columns_may_have_one_blank_between_them(tmp_path: Path) -> None:
    text = "epoch train_loss val_acc lr\n" + "".join(
        f"{n} {9 - n}.5 0.7 0.01\n" for n in range(1, 5)
    )
    assert read_curves(text, tmp_path / "log.txt")["loss"][:3] == (
        "epoch",
        [1, 2, 3, 4],
        [8.5, 7.5, 6.5, 5.5],
    )
    text = text.replace("epoch train_loss", "epoch has this")
    assert read_curves(text, tmp_path / "prose.txt") == {}


def test_a_list_below_a_loss_is_its_sum_and_below_another_name_nothing(tmp_path: Path) -> None:
    # DeepXDE, https://github.com/lululxvi/deepxde/issues/263
    text = "Step      Train loss              Test metric   \n" + "".join(
        f"{n}000      [2.0e+00, {9 - n}.5e+00]    [1.1e+00, 1.0e-01]    \n" for n in range(1, 5)
    )
    found = read_curves(text, tmp_path / "out.log")
    assert found["loss"][:3] == ("step", [1000, 2000, 3000, 4000], [10.5, 9.5, 8.5, 7.5])
    assert "Test metric" not in found


def test_a_more_reliable_format_keeps_its_first_lines_when_a_general_one_is_chosen(
    tmp_path: Path,
) -> None:
    # https://github.com/deepspeedai/DeepSpeed/issues/3742
    text = "".join(
        f"epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=7.8, MemAllocated=59.65GB\n"
        f" samples/sec: 7.799 | iteration        {n}/   10000 | elapsed time per iteration (ms): 4103.1 | "
        f"learning rate: 2.111E-06 | lm_loss: {9 - n}.5E+00 | number of skipped iterations:   0 |\n"
        for n in range(1, 7)
    )
    assert read_curves(text, tmp_path / "out.log")["loss"][:3] == (
        "step",
        [1, 2, 3, 4, 5, 6],
        [8.5, 7.5, 6.5, 5.5, 4.5, 3.5],
    )


def test_pairs_that_do_not_repeat_are_settings(tmp_path: Path) -> None:
    text = "loss_weight: 0.5\nseed: 7\nlearning_rate: 0.1\nepochs: 100\n" + "".join(
        f"Epoch {n}: loss {9 - n}.5\n" for n in range(1, 5)
    )
    assert read_curves(text, tmp_path / "out.log")["loss"][:2] == ("epoch", [1, 2, 3, 4])


@pytest.mark.parametrize(
    "line",
    [
        'saved {"step": {n}, "path": "a.pt"}',
        'config {"epoch": {n}, "lr": 0.1}',
        'cut {"epoch": {n}, "loss": 0.5',
        'text {"loss": 0.5, "name": "a"}',
        'list {"step": [], "loss": 0.5}',
    ],
)
def test_an_object_without_a_measure_or_a_position_is_no_row(line: str, tmp_path: Path) -> None:
    text = "".join(line.replace("{n}", str(n)) + "\n" for n in range(1, 6))
    if line.startswith("cut"):
        text = text.replace('"loss"', '"name')
    assert "loss" not in read_curves(text, tmp_path / "out.log")


def test_names_before_fewer_numbers_name_none_of_them(tmp_path: Path) -> None:
    text = "".join(f"epoch {n}: test, loss, acc: 0.5, 0.{n} done\n" for n in range(1, 5))
    assert "test/loss" not in read_curves(text, tmp_path / "out.log")
    assert "loss" not in read_curves(text, tmp_path / "again.log")


def test_numbers_of_training_and_evaluation_need_an_epoch_to_be_a_row(tmp_path: Path) -> None:
    line = "epoch {n} train 0.{n} test 0.5\n"
    text = "".join(line.format(n=n) for n in range(1, 5))
    assert read_curves(text, tmp_path / "out.log")["train"][:2] == ("epoch", [1, 2, 3, 4])
    for other in ("file {n} train 0.{n} test 0.5\n", "epoch {n} train 0.{n} files 0.5\n"):
        text = "".join(other.format(n=n) for n in range(1, 5))
        assert read_curves(text, tmp_path / "other.log") == {}


GREETINGS = [
    "wandb: Syncing run [Training][batch:256][input:128]\nwandb: View run at https://w.example/%5Bcifar10%5D\n",
    "3 | reconstruction_loss_fn | SmoothL1Loss      | 0     \n4 | latent_loss_fn   | SmoothL1Loss  | 0     \n",
    "Batch: 64\n",
]


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_number_that_only_a_greeting_prints_is_no_position(greeting: str, tmp_path: Path) -> None:
    text = greeting + "".join(f"[epoch:{n}/90] [loss:{9 - n}.5] [lr:0.01]\n" for n in range(1, 6))
    assert read_curves(text, tmp_path / "out.log")["loss"][:3] == (
        "epoch",
        [1, 2, 3, 4, 5],
        [8.5, 7.5, 6.5, 5.5, 4.5],
    )


def test_the_summary_of_an_epoch_keeps_the_step_of_lines_that_count_them(tmp_path: Path) -> None:
    lines = "".join(f"step {n}0 loss {9 - n}.5\n" for n in range(1, 4))
    found = read_curves(f"{lines}epoch 1 mean loss 7.5\n", tmp_path / "out.log")
    assert found["loss"][:2] == ("step", [10, 20, 30])


def test_the_title_of_a_bar_without_a_total_is_not_that_of_the_text_after_it(
    tmp_path: Path,
) -> None:
    text = "".join(
        f"\rValidation: |   | 0/? [00:00<?, ?it/s][12/09/24 14:03:3{n}] INFO   Epoch {n}: v_loss 4.5  loss {9 - n}.5\n"
        for n in range(5)
    )
    found = read_curves(text, tmp_path / "out.log")
    assert found["loss"][:3] == ("epoch", [0, 1, 2, 3, 4], [9.5, 8.5, 7.5, 6.5, 5.5])


def test_the_batches_of_an_evaluation_are_no_steps_of_the_training(tmp_path: Path) -> None:
    text = "".join(
        f"step {n}00 loss {9 - n}.5\nval batch 5 loss {9 - n}.25\nval batch 900 loss {9 - n}.125\n"
        for n in range(1, 5)
    )
    found = read_curves(text, tmp_path / "out.log")
    assert found["loss"][:3] == ("step", [100, 200, 300, 400], [8.5, 7.5, 6.5, 5.5])
    assert found["eval_loss"][:3] == ("step", [100, 200, 300, 400], [8.125, 7.125, 6.125, 5.125])


def test_axes_are_never_mixed_in_one_curve(tmp_path: Path) -> None:
    text = "".join(
        f"step {n}00 loss {9 - n}.5\nsamples: {n}5000 loss: {9 - n}.25\n" for n in range(1, 5)
    )
    assert read_curves(text, tmp_path / "out.log")["loss"][:3] == (
        "step",
        [100, 200, 300, 400],
        [8.5, 7.5, 6.5, 5.5],
    )


def test_progress_after_a_score_is_a_position_and_hits_are_none(tmp_path: Path) -> None:
    progress = "".join(
        f"epoch 1 accuracy: 0.9{n} ({64 * n}/60000) loss 0.{9 - n}\n" for n in range(1, 8)
    )
    found = read_curves(progress, tmp_path / "out.log")
    assert found["loss"][:2] == ("step", [64 * n for n in range(1, 8)])
    hits = "".join(
        f"Epoch {n} accuracy: {90 + n}.5%, ({900 + 10 * n + 5}/1000) loss 0.{9 - n}\n"
        for n in range(1, 8)
    )
    found = read_curves(hits, tmp_path / "hits.log")
    assert found["loss"][:2] == ("epoch", [1, 2, 3, 4, 5, 6, 7])


def test_a_counted_line_before_blocks_with_their_position_at_the_end(tmp_path: Path) -> None:
    blocks = "".join(
        f"episode_len_mean: 2{n}.5\nepisode_reward_mean: {n}.25\nepisodes_total: {n}0\n"
        f"info:\n  learner:\n    vf_loss: 0.{n}3\ntraining_iteration: {n}\n\n"
        for n in range(1, 9)
    )
    for before in ("", "random policy reward: 12.5\n"):
        found = read_curves(before + blocks, tmp_path / f"{len(before)}.log")
        assert found["episode_reward_mean"][:2] == ("step", [1, 2, 3, 4, 5, 6, 7, 8])


def test_a_name_right_before_a_number_is_not_that_of_the_number_before_it(tmp_path: Path) -> None:
    text = "".join(f"E00{n} {n}0 loss {9 - n}.500\n" for n in range(1, 8))
    found = read_curves(text, tmp_path / "out.log")
    assert list(found) == ["loss"]
    assert found["loss"][:3] == ("epoch", [1, 2, 3, 4, 5, 6, 7], [9.5 - n for n in range(1, 8)])


@pytest.mark.parametrize("title", ["", "Statistics: "])
def test_a_bar_with_figures_before_the_training_is_no_curve_of_it(
    tmp_path: Path, title: str
) -> None:
    bar = "{}{}%|#| {}/{} [00:01<00:02, 1.2it/s, {}]\r"
    text = "".join(
        bar.format(title, n, n, 100, f"mean=1.{n}, std=2.{n}") for n in range(10, 100, 10)
    ) + "".join(bar.format("", 2 * n, n, 50, f"loss=1.{n}") for n in range(10, 51, 10))
    only_figures = read_curves(text.partition("loss")[0].rpartition("\r")[0], tmp_path / "a.log")
    assert {"mean", "std"} <= set(only_figures)
    found = read_curves(text + "\n", tmp_path / "out.log")
    assert found["loss"][:2] == ("step", [10, 20, 30, 40, 50])
    assert not found["mean"][1] and not found["std"][1], "they are taken back"
