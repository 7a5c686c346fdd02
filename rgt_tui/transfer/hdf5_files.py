"""Checks HDF5 files: the superblock, and that the file is as long as it says. Groups and data are not examined.

The format is that of the HDF5 File Format Specification, section II.A
(https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html).
"""

from __future__ import annotations

from rgt_tui.transfer.file_stretch import Refused, Stretch

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_ADDRESSES = {0: (13, 24), 1: (13, 28), 2: (9, 12), 3: (9, 12)}
"""Version of the superblock → where it says how long an address is, and where its addresses begin.

The end of the file is the third of them, after the base and the place of free space, or of an extension.
"""
_FLAGS = 11
_OPEN_FOR_WRITING = 0x1
_LONGEST = 96


def examine(whole: Stretch) -> None:
    """Look whether the file is as long as it says of itself, and was closed.

    Raises:
        Refused: it is not, or it has no superblock.
        OSError: it cannot be read.
    """
    place = 0
    while whole.read(place, min(8, whole.length - place)) != SIGNATURE:
        place = place * 2 or 512  # a block of a person's own may stand before it
        if place >= whole.length:
            raise Refused(
                "it does not begin as an HDF5 file: its first bytes are damaged, or it is something else"
            )
    head = whole.read(place, min(_LONGEST, whole.length - place))
    if len(head) < _LONGEST // 2:
        raise Refused("it is cut off in its superblock")
    version = head[8]
    if version not in _ADDRESSES:
        raise Refused(f"its superblock has the version {version}, which the format does not have")
    width_at, begin = _ADDRESSES[version]
    width = head[width_at]
    if width not in (2, 4, 8, 16, 32) or begin + 3 * width > len(head):
        raise Refused(f"its superblock is damaged: addresses of {width} bytes")
    if version == 3 and head[_FLAGS] & _OPEN_FOR_WRITING:
        raise Refused("it was not closed: its writer has ended, or is still writing")
    end = int.from_bytes(head[begin + 2 * width : begin + 3 * width], "little")
    if end > whole.length:
        raise Refused(f"it is cut off: it ends at byte {end} by its superblock, {whole.length} are there")
