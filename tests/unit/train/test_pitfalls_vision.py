"""What goes wrong silently in training on images, one test each, by the numbers V1 to V7 of the checklist.

V4 (anchors, suppression of boxes) has no test: nothing here detects boxes.
"""

from __future__ import annotations

import pytest
import torch
from rgt_train import UsageError, tasks
from rgt_train.config import merge_config
from rgt_train.data.sampler import mix_bits
from rgt_train.tasks.image_classifier import SHAPES, ImageClassifier, ShapeNet, draw_shapes

CPU = torch.device("cpu")
torch.set_num_threads(1)  # small tensors: more threads only wait for each other


def classifier(**values: object) -> ImageClassifier:
    made = tasks.make_task(
        merge_config([], {"task": "image_classifier", **{k: str(v) for k, v in values.items()}})
    )
    assert isinstance(made, ImageClassifier)
    return made


class Spy(torch.nn.Module):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []
        self.head = torch.nn.Linear(1, len(SHAPES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen.append(images.detach().clone())
        result: torch.Tensor = self.head(images.mean(dim=(2, 3)))
        return result


def shown(task: ImageClassifier, *, train: bool, shift: int = 0) -> torch.Tensor:
    spy = Spy()
    if train:
        task.loss(spy, list(range(256)), lambda index: index + shift, CPU)
    else:
        list(task.validation(spy, CPU))
    return torch.cat(spy.seen)


def test_V1_training_and_validation_are_normalised_alike() -> None:  # noqa: N802
    for noise in (0.1, 0.8):
        task = classifier(noise=noise)
        for images in (shown(task, train=True), shown(task, train=False)):
            assert float(images.mean()) == pytest.approx(0.0, abs=0.1)
            assert float(images.std()) == pytest.approx(1.0, abs=0.1)
    raw, _ = draw_shapes(task._train_seeds(range(256)), 16, 0.8)
    assert task.mean == pytest.approx(
        float(raw.mean())
    )  # measured on training images, and on nothing else


def test_V2_only_training_images_are_augmented() -> None:  # noqa: N802
    task = classifier()
    assert torch.equal(shown(task, train=False), shown(task, train=False))
    assert torch.equal(
        shown(task, train=True), shown(task, train=True)
    )  # the same seeds, the same images
    assert not torch.equal(
        shown(task, train=True), shown(task, train=True, shift=1)
    )  # the next epoch's seeds
    held_out = draw_shapes([mix_bits(0, 2, i) for i in range(256)], 16, 0.3)[0]
    assert torch.equal(shown(task, train=False), task.normalize(held_out))
    flips = task.flip_images(held_out[:4], [0, 1, 2, 3])
    assert torch.equal(flips[0], held_out[0])
    assert torch.equal(flips[3], held_out[3].flip((-1, -2)))


def test_V2_validation_is_in_evaluation_mode() -> None:  # noqa: N802
    """With the loop's own `evaluating` the running statistics are used and not changed."""
    from rgt_train.loop import TrainingSetup

    values = merge_config([], {"task": "image_classifier"})
    setup = TrainingSetup(values, tasks.make_task(values), 10)
    before = {name: buffer.clone() for name, buffer in setup.model.named_buffers()}
    setup.model.eval()
    with torch.no_grad():
        alone = [loss for loss, _ in setup.task.validation(setup.model, CPU)]
    assert all(torch.equal(buffer, before[name]) for name, buffer in setup.model.named_buffers())
    assert len(set(alone)) == len(alone)


def test_V3_labels_and_outputs_count_the_same_classes() -> None:  # noqa: N802
    task = classifier()
    _, labels = draw_shapes(task._train_seeds(range(400)), 16, 0.3)
    assert sorted(set(labels.tolist())) == list(range(len(SHAPES)))  # from 0, without a gap
    assert task.model().eval()(torch.zeros(1, 1, 16, 16)).shape == (1, len(SHAPES))


def test_V3_a_perfect_model_scores_one() -> None:  # noqa: N802
    """Zero for a good model would be the metric's fault: give it one that cannot be wrong."""
    task = classifier()

    class Oracle(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            wanted = {tuple(image.flatten().tolist()[:9]): label for image, label in known}
            keys = [tuple(image.flatten().tolist()[:9]) for image in images]
            return torch.nn.functional.one_hot(
                torch.tensor([wanted[k] for k in keys]), len(SHAPES)
            ).float()

    images, labels = task._draw_images([mix_bits(0, 2, i) for i in range(256)])
    known = list(zip(task.normalize(images), labels.tolist(), strict=True))
    assert task.scores(Oracle(), CPU) == {"val_accuracy": 1.0, "val_macro_recall": 1.0}


def test_V5_loss_and_scores_see_the_same_labels() -> None:  # noqa: N802
    """No void label here: every label is below the number of classes, in the loss and in the scores."""
    task = classifier(imbalance=0.6)
    counted = sum(count for _, count in task.validation(Spy(), CPU))
    assert counted == 256
    for seeds in (task._train_seeds(range(300)), range(300)):
        _, labels = task._draw_images(list(seeds))
        assert int(labels.min()) >= 0 and int(labels.max()) < len(SHAPES)


def test_V6_rare_classes_weigh_as_much_and_are_reported() -> None:  # noqa: N802
    task = classifier(imbalance=0.6)
    _, labels = task._draw_images(task._train_seeds(range(256)))
    counts = torch.bincount(labels, minlength=len(SHAPES)).float()
    assert counts[0] > 5 * counts[3]
    shares = counts * task.class_weights
    assert torch.allclose(shares, shares[0].expand(4))
    assert torch.equal(classifier(imbalance=0.6, balance="false").class_weights, torch.ones(4))

    class Majority(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.tensor([[1.0, 0, 0, 0]]).expand(len(images), 4)

    scores = task.scores(Majority(), CPU)
    assert scores["val_accuracy"] > 0.5
    assert scores["val_macro_recall"] == 0.25  # what the accuracy hides
    with pytest.raises(UsageError, match="imbalance must be below 1"):
        classifier(imbalance=1)


def test_V7_a_tiny_batch_takes_group_norm() -> None:  # noqa: N802
    assert (classifier(batch=32).norm_kind, classifier(batch=4).norm_kind) == ("batch", "group")
    assert classifier(batch=4, norm="batch").norm_kind == "batch"
    net = ShapeNet(8, 0.0, "group").train()
    images = torch.randn(6, 1, 16, 16)
    torch.testing.assert_close(
        net(images)[:1], net(images[:1])
    )  # a sample does not depend on its neighbours
    batched = ShapeNet(8, 0.0, "batch").train()
    assert not torch.allclose(batched(images)[:1], batched(images[:1]))


def test_label_smoothing_is_for_training_only() -> None:
    torch.manual_seed(0)
    hard, soft = classifier(), classifier(label_smoothing=0.3)
    net = hard.model().eval()
    with torch.no_grad():
        assert list(hard.validation(net, CPU)) == list(soft.validation(net, CPU))
        assert float(hard.loss(net, [0, 1], int, CPU)) != float(soft.loss(net, [0, 1], int, CPU))
