"""What a number's name says about it: its role, and whether more is better.

Data, not rules: a framework's name for a number is one word in one of these tables.
"""

from __future__ import annotations

import re
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

LOSS, ERROR, SCORE, REWARD, RATE, NORM, SPEED, COUNT, TIME, SETTING, OTHER = (
    "loss", "error", "score", "reward", "rate", "norm", "speed", "count", "time", "setting", "",
)  # fmt: skip
_ROLES = {
    LOSS: (
        "loss losses verlust perte pérdida nll cost xent xentropy crossentropy entropyloss "
        "logloss mlogloss elbo"
    ),
    ERROR: "ppl perplexity bpb bpc bpd err error mse rmse mae mape msle wer cer ter per eer fid "
    "kid lpips l1 l2 merror quantile deviance",
    SCORE: "genauigkeit précision precisión "
    "acc accuracy accuracies acc1 acc5 top1 top5 f1 precision recall map map50 ap ap50 ap75 ar "
    "miou iou giou dice bleu sacrebleu chrf rouge meteor cider spice auc aucpr roc_auc auroc psnr "
    "ssim elo mrr ndcg hits pearson spearman spearmanr cosine r2 mcc kappa fscore score scores "
    "metric core success win winrate pass sensitivity specificity jaccard likelihood stoi pesq "
    "sisdr mos learn",
    REWARD: "reward rewards rew return returns ret episode_reward maxrew meanrew eprewmean "
    "averageepret margins margin advantage advantages kl approxkl entropy clipfrac",
    RATE: "lr learningrate l.r.",
    NORM: "norm gnorm gradnorm grdn",
    SPEED: "tps wps ips ups fps qps throughput mfu tflops tflop gflops flops sps wpb",
    COUNT: "step steps iter iters iteration iterations update updates num_updates batch batches "
    "epoch epochs timestep timesteps samples smpl tokens sentences episodes episode images "
    "kimg tick tokensseen",
    TIME: "time timing seconds sec secs s ms dt duration eta elapsed latency timestamp ts date "
    "hours minutes took btime updt_s data_s dur created asctime clock cost_time batch_cost "
    "data_cost reader_cost remaining wall",
    SETTING: "scale size seed port pid rank gpu gpus world version num workers mem memory cpumem "
    "gpumem gb mb gib mib params parameters device devices node nodes line lineno level "
    "threads warmup max min every layers heads vocab utilization util temp temperature "
    "power cached reserved allocated peak_mem beta1 beta2 momentum mom weight_decay gas "
    "accumulation weights instances",
}
_ROLE_OF = {word: role for role, words in _ROLES.items() for word in words.split()}
_ENDINGS = (
    ("loss", LOSS),
    ("accuracy", SCORE),
    ("reward", REWARD),
    ("return", REWARD),
    ("error", ERROR),
)
_PARTS = re.compile(r"[A-Za-z]+[\d.]*[a-z.]*|\d+")
_SPEED = re.compile(r"/ ?s(?:ec)?(?:ond)?(?![A-Za-z])|per[_ -]sec(?:ond)?(?![A-Za-z])", re.I)
_CAMEL = re.compile(r"(?<=[a-z\d])(?=[A-Z][a-z])")
_UNIT = re.compile(r"\s?\([^()]{1,12}\)$")
LOWER_IS_BETTER, HIGHER_IS_BETTER = frozenset((LOSS, ERROR)), frozenset((SCORE, REWARD))
MEASURES = frozenset((LOSS, ERROR, SCORE, REWARD))
"""Roles of numbers by which a training is judged: a row with one of them is a row of a curve."""
_LEAST = (TIME, SETTING, COUNT)
EVALUATION = frozenset(
    (
        "val vali valid validation validate validating eval evaluation evaluating test testing dev "
        "devtest"
    ).split()
)


_QUALIFIER = frozenset(
    (
        "train training global learning current optimizer optim env environment completed start "
        "end total num n the trainer time update model finished global_step learner actor agent "
        "policy"
    ).split()
)
_POSITIONS = {
    word: (kind, rank)
    for rank, kind, words in (
        (
            0,
            "step",
            (
                "global_step global_steps globalstep num_updates current_steps acc_iter "
                "total_train_updates"
            ),
        ),
        (
            2,
            "step",
            (
                "total_timesteps totalenvinteracts totalenvsteps t_env env_steps envsteps "
                "environment_steps num_env_steps"
            ),
        ),
        (
            3,
            "step",
            (
                "step steps ite iter iters iteration iterations itr update updates up. upd "
                "num_update minibatch"
            ),
        ),
        (4, "step", "timestep timesteps total_steps"),
        (5, "step", "it itn batch batches batch_idx round tick"),
        (6, "epoch", "epoch epochs epch epoche época époque"),
        (7, "epoch", "ep ep."),
        (7, "step", "episode episodes frame frames"),
        (4, "samples", "kimg"),
        (8, "samples", "samples smpl examples sen. consumed_samples seen"),
    )
    for word in words.split()
}
"""Word → (kind of a position, how reliable it is: 0 is best)."""


_TRANSLATED = {
    word: f"\0{english}\0"
    for english, words in (
        ("epoch", "轮次 轮 エポック 에포크 Эпоха эпоха"),
        ("step", "步数 步 ステップ 스텝 Шаг шаг"),
        ("iteration", "迭代"),
        ("loss", "损失值 损失 損失 손실 Потери потери"),
        ("accuracy", "准确率 精度 정확도 Точность точность"),
        ("lr", "学习率 学習率 학습률"),
        ("reward", "奖励 報酬 보상"),
        ("train", "训练 訓練 학습"),
        ("val", "验证 検証 검증"),
        ("test", "测试 テスト 테스트"),
        ("avg", "平均"),
    )
    for word in words.split()
}
"""Words of Chinese, Japanese, Korean and Russian logs → the English word."""
_FOREIGN = re.compile("|".join(sorted(_TRANSLATED, key=len, reverse=True)))
_MAYBE = re.compile(
    "[│┃║｜：，（）［］＝第%s]" % "".join(sorted({word[0] for word in _TRANSLATED}))
)
"""Signs, and the first letters of the words: most lines have none of them."""
_ORDINAL = re.compile(r"第\s?(\d{1,12}(?:\s?/\s?\d{1,12})?)\s?(?:个|次)?(轮次|轮|步|迭代|epoch)")
_SIGNS = [(pair[0], pair[1]) for pair in "│| ┃| ║| ｜| ：: ，, （( ）) ［[ ］] ＝=".split()]
"""Borders of tables, and the full-width signs of Chinese and Japanese texts."""


def in_english(line: str) -> str:
    """Return a line with its full-width signs, borders and known words of a training in English."""
    if _MAYBE.search(line) is None:
        return line
    for sign, plain in _SIGNS:  # str.translate takes four times as long
        line = line.replace(sign, plain)
    if "第" in line:
        line = _ORDINAL.sub(r" \2 \1 ", line)
    line = _FOREIGN.sub(lambda found: _TRANSLATED[found.group()], line)
    return line.replace("\0\0", " ").replace("\0", " ")


@lru_cache(maxsize=8192)
def position_of(name: str) -> "tuple[str, int] | None":
    """Return (kind, rank) if a name is that of a position, such as ``Learning iteration``."""
    before_slash, _, lower = name.lower().rpartition("/")
    if before_slash in ("sec", "s", "ms"):
        return None  # "sec/kimg"
    found = _POSITIONS.get(lower.replace(" ", "_"))
    if found is not None:
        return found
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.rpartition("/")[2]).lower().replace(" ", "_")
    *before, last = words.split("_")
    if before and last in ("num", "number", "idx", "index"):
        last = before.pop()  # "epoch_num"
    if before and last == "epochs":
        return None  # "num_epochs": planned, in a configuration that is printed
    if all(word in _QUALIFIER or word in EVALUATION for word in before):
        return _POSITIONS.get(last)
    return None


FILLER = frozenset(
    (
        "the a an and with is was of at in on for to has after then now done finished finish "
        "completed start starting started begin end ended this that info average: result results "
        "set * - > --> ==> => > | s ms sec secs % it images seconds"
    ).split()
)
"""Words around a name that do not belong to it."""
NO_VALUES = frozenset(
    (
        "eta timestamp ts asctime created rank pid port seed version line lineno gpu gpus device "
        "cuda date level local_rank python torch node time_elapsed elapsed"
    ).split()
)
"""Names of numbers that say where and when, not how well."""
PLAIN = EVALUATION.union(
    (
        "loss train training total overall all sum avg average mean reduced lm current step batch"
    ).split()
)
"""Words that do not make a loss one of several parts."""


@lru_cache(maxsize=8192)
def role_of(name: str) -> str:
    """Return the role of a number: one of the constants of this module; "" for an unknown name.

    The last word that has a role decides, except that a time or a setting needs the very last one:
    `step_time` is a time, `loss_scale` a setting, `val/Acc@1` a score.
    """
    plain = _UNIT.sub("", name.strip())
    if plain.lower() in _ROLE_OF:
        return _ROLE_OF[plain.lower()]
    if _SPEED.search(plain):
        return SPEED
    if plain.startswith("l_"):
        return LOSS
    words = [word.lower() for word in _PARTS.findall(_CAMEL.sub(" ", plain).replace("_", " "))]
    while words and words[-1].isdigit():
        words.pop()
    if len(words) > 1 and words[-1] in ("step", "epoch") and "per" not in words:
        # Lightning's "train_loss_step" is a loss.
        role = role_of(" ".join(words[:-1]))
        if role in MEASURES:
            return role
    for pair, role in ((["learning", "rate"], RATE), (["cross", "entropy"], LOSS)):
        if words[-2:] == pair:
            return role
    for place, word in enumerate(reversed(words)):
        role = _ROLE_OF.get(word, _ROLE_OF.get(word.rstrip("0123456789"), ""))
        role = role or next((known for ending, known in _ENDINGS if word.endswith(ending)), "")
        if role and (role not in _LEAST or place == 0):
            return role
        if place and role in (TIME, SETTING):
            return role
    return OTHER


def is_evaluation(name: str) -> bool:
    """Return whether a name contains the word of an evaluation, such as ``val`` or ``test``."""
    return not EVALUATION.isdisjoint(re.findall(r"[a-z]+", _CAMEL.sub(" ", name).lower()))


_OF_POLICIES = frozenset("kl approxkl entropy clipfrac margin margins advantage advantages".split())
"""Words of figures that have the role of a reward, but only describe the policy."""


def display_rank(name: str) -> int:
    """Return how early a figure is shown: 0 a reward, 1 a loss, 2 another measure, 3 others."""
    role = role_of(name)
    if role == REWARD and _OF_POLICIES.isdisjoint(re.split(r"[^a-z]+", name.lower())):
        return 0
    if role == LOSS:
        return 1
    if role in MEASURES:
        return 2
    return 3


def best_is_highest(name: str) -> "bool | None":
    """Return whether a higher value is better; None if the name does not say."""
    role = role_of(name)
    if role in LOWER_IS_BETTER:
        return False
    if role in HIGHER_IS_BETTER:
        return True
    return None
