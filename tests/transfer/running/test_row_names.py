"""Names of rows: what cannot be a folder below the results is refused with what to do."""

import pytest

from transfer.running.row_names import MOST_BYTES, RESERVED, check_row_name

WRONG = {
    "../outside": "holds a slash",
    "..": "starts with '.'",
    "/tmp/outside": "holds a slash",
    "a/b": "holds a slash",
    "a|b": "a bar",
    "": "is empty",
    "  ": "is empty",
    ".hidden": "starts with '.'",
    "-x": "starts with '-'",
    "a\nb": "cannot be seen",
    "a\0b": "cannot be seen",
    "caf\udce9": "not UTF-8",
    "x" * (MOST_BYTES + 1): "bytes, of which",
    "ü" * (MOST_BYTES // 2 + 1): "bytes, of which",
    "Tables": "means something else below the results",
    **dict.fromkeys(RESERVED, "means something else below the results"),
}


def test_a_name_that_can_be_no_folder_is_refused_with_what_to_do(subtests: pytest.Subtests) -> None:
    for name, why in WRONG.items():
        with subtests.test(name=name, why=why):
            with pytest.raises(
                ValueError, match=rf"^--name '.*{why}.*; choose another$"
            ) as refusal:
                check_row_name(name, "jcl")
            assert len(str(refusal.value).encode()) < 300
            with pytest.raises(ValueError, match=rf"^the name .*{why}.*; give the row a --name$"):
                check_row_name(name, name)


def test_other_names_are_accepted(subtests: pytest.Subtests) -> None:
    for name in ["jcl", "MoCo v2+ (800)", "épreuve", "x" * MOST_BYTES, "a.b@1"]:
        with subtests.test(name=name):
            check_row_name(name, "jcl")
