"""Archives that are not trusted."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from transfer.datasets.expected import DataError
from transfer.getting.unpack import unpack


def write_tar(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    mode = "w:gz" if file.name.endswith("gz") else "w"
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def plain(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


BAD_MEMBERS = {
    "path with two dots": (plain("a/../../x"), "outside"),
    "link to an absolute path": (special("a", tarfile.SYMTYPE, "/etc/passwd"), "absolute"),
    "link out": (special("a/b", tarfile.SYMTYPE, "../../x"), "outside"),
    "hard link out": (special("a", tarfile.LNKTYPE, "../x"), "outside"),
    "device": (special("a", tarfile.CHRTYPE), "special file"),
    "fifo": (special("a", tarfile.FIFOTYPE), "special file"),
}


@pytest.mark.parametrize("name", BAD_MEMBERS)
@pytest.mark.parametrize("file", ["x.tar", "x.tar.gz"])
def test_a_malicious_tar_file_writes_nothing_outside(file: str, name: str, tmp_path: Path) -> None:
    member, reason = BAD_MEMBERS[name]
    archive = write_tar(tmp_path / file, plain("first"), member)
    with pytest.raises(DataError, match=reason):
        unpack(archive, tmp_path / "deep" / "out")
    assert {path.name for path in tmp_path.rglob("*")} == {file, "deep", "out", "first"}


def test_absolute_paths_and_links_inside_do_not_lead_out(tmp_path: Path) -> None:
    members = (plain("/d/y"), special("a", tarfile.SYMTYPE, "b"), plain("a/x", b"inside"))
    unpack(write_tar(tmp_path / "x.tar", *members), tmp_path / "out")
    assert not (tmp_path / "out" / "a").is_symlink()
    assert (tmp_path / "out" / "a" / "x").read_bytes() == b"inside"
    assert (tmp_path / "out" / "d" / "y").exists()


@pytest.mark.parametrize("name", ["../x", "a/../../x"])
def test_a_malicious_zip_file_writes_nothing_outside(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(DataError, match="outside"):
        unpack(tmp_path / "x.zip", tmp_path / "out")
    assert {path.name for path in tmp_path.rglob("*")} == {"x.zip", "out"}


def test_a_link_in_a_zip_file_is_a_plain_file(tmp_path: Path) -> None:
    member = zipfile.ZipInfo("a")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(member, b"../../etc/passwd")
    unpack(tmp_path / "x.zip", tmp_path / "out")
    assert not (tmp_path / "out" / "a").is_symlink()
    assert (tmp_path / "out" / "a").read_bytes() == b"../../etc/passwd"


def test_a_zip_file_with_a_password_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x")
    content = bytearray(file.read_bytes())
    for start in (content.index(b"PK\3\4") + 6, content.index(b"PK\1\2") + 8):
        content[start] |= 1  # the flag of encryption, in both headers
    file.write_bytes(content)
    with pytest.raises(DataError, match="unzip -P PASSWORD"):
        unpack(file, tmp_path / "out")


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_a_cut_archive_is_damaged(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"x.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a", bytes(5_000))
    else:
        write_tar(file, plain("a", bytes(range(256)) * 100))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(DataError, match="damaged or truncated"):
        unpack(file, tmp_path / "out")


def test_archives_inside_are_unpacked_to_folders_of_their_names(tmp_path: Path) -> None:
    inner = {n: write_tar(tmp_path / f"{n}.tar", plain(f"{n}.JPEG")).read_bytes() for n in "abc"}
    file = write_tar(tmp_path / "x.tar", *(plain(f"{n}.tar", c) for n, c in inner.items()))
    unpack(file, tmp_path / "out", "*.tar")
    files = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.*")}
    assert files == {"a/a.JPEG", "b/b.JPEG", "c/c.JPEG"}


def test_a_nested_archive_that_breaks_off_leaves_no_folder_of_its_name(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "a.tar", plain("a.JPEG", bytes(5_000))).read_bytes()
    file = write_tar(tmp_path / "x.tar", plain("a.tar", whole[:2_000]))
    with pytest.raises(DataError, match="damaged"):
        unpack(file, tmp_path / "out", "*.tar")
    assert not (tmp_path / "out" / "a").exists()
