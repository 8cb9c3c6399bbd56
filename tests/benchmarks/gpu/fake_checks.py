"""A command that checks as pretrain.checks and transfer.checks do; its checks end in all ways."""

import json
import os
import sys
import time

CHECKS = ("sound", "wrong", "measured", "absent", "deadly", "after death", "late", "after late")
EXPECTED_S = 0.0


def say(entry: dict[str, object]) -> None:
    print(json.dumps(entry), flush=True)


def check(name: str) -> None:
    say({"begin": name})
    answer = {"check": name, "group": "group", "seconds": 0.5, "reason": "", "facts": {}}
    if name == "wrong":
        answer |= {"status": "failed", "reason": "1.5 differs from 1"}
    elif name == "absent":
        answer |= {"status": "skipped", "reason": "needs CUDA"}
    elif name == "measured":
        answer |= {"status": "measured", "facts": {"images_per_s": 123.456, "ms": {"loss": 2.0}}}
    elif name == "deadly":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "late":
        time.sleep(60)
    else:
        answer |= {"status": "passed", "facts": {"difference": 1e-7, "bound": 1e-6}}
    say(answer)


def main(words: list[str]) -> None:
    if "--list" in words:
        for name in CHECKS:
            say({"check": name, "group": "group", "seconds": EXPECTED_S})
        return
    print("a line that is no answer")
    for place, word in enumerate(words):
        if word == "--only":
            check(words[place + 1])


if __name__ == "__main__":
    main(sys.argv[1:])
