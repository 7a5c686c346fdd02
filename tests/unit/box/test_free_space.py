"""Whether a directory that does not exist yet can be written."""

from __future__ import annotations

from pathlib import Path

from rgt_box.sampling import free_space


def test_below_a_link_to_what_is_not_mounted_nothing_can_be_written(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "unmounted")
    for path in (link, link / "runs", link / "a/b"):
        assert free_space.explain_unwritable(str(path)) == f"{link}: No such file or directory"
    # Its free space is still that of where the link lies.
    space, problem = free_space.measure_free_space(str(link / "runs"))
    assert problem is None
    assert space is not None
    assert space.path == str(tmp_path)
    (tmp_path / "unmounted").mkdir()
    assert free_space.explain_unwritable(str(link / "runs")) is None
    assert free_space.explain_unwritable(str(tmp_path / "a/b/c")) is None
    assert {path.name for path in tmp_path.iterdir()} == {"link", "unmounted"}
