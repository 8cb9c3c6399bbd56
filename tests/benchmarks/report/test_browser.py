"""The report in headless Chromium, opened from the disk.

A page of one kind is written once and loaded anew for every test.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.report import write_report
from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from tests.benchmarks.report.complete_records import HOSTILE, backbone, complete, usual
from tests.benchmarks.report.test_report import results_of_two
from transfer.outcomes import per_image

selenium = pytest.importorskip("selenium", reason="needs selenium, of the extra dev")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}, see .ci/run"),
    pytest.mark.xdist_group("browser"),
]
PHONE_PX = 360


class Browser:
    """Chromium without a display, and what happened in it."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for arg in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
            options.add_argument(f"--{arg}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
        self.driver.set_script_timeout(300)  # a busy machine

    def open(self, path: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Open a page; forget what happened before."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": "", "features": [scheme]}
        )
        self.driver.get("about:blank")
        self.errors(), self.requests()
        self.driver.get(path.as_uri())

    def errors(self) -> list[dict[str, Any]]:
        return self._log("browser")

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return list(self.driver.get_log(kind))  # type: ignore[no-untyped-call]

    def requests(self) -> list[str]:
        """Return the addresses of all requests, that of the page itself first."""
        messages = [json.loads(e["message"])["message"] for e in self._log("performance")]
        sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [item["request"]["url"] for item in sent]

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        result = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [element.text for element in result if element.is_displayed()]

    def run(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(read_contents(usual(tmp_path_factory.mktemp("usual")))).absolute()


def test_numbers_are_sorted_and_filtered(browser: Browser, page: Path) -> None:
    browser.open(page)
    values = "#all-numbers tbody td:nth-child(4)"
    head = browser.find("#all-numbers th:nth-child(4) button")
    head.click()
    down = [float(text) for text in browser.texts(values)]
    head.click()
    up = [float(text) for text in browser.texts(values)]
    assert down == sorted(down, reverse=True) != up == sorted(up)
    assert browser.find("#all-numbers th:nth-child(4)").get_attribute("aria-sort") == "ascending"
    browser.find("#filter-numbers").send_keys("mine aircraft")
    (row,) = browser.texts("#all-numbers tbody tr")
    assert len(down) == 4
    assert "aircraft" in row
    assert browser.find("#filter-count").text == "1 shown"
    browser.find("#only-ours").click()
    output = browser.run(
        "[...document.querySelectorAll('table.numbers tbody tr:not(.group)')]"
        ".filter((row) => row.offsetParent).map((row) => row.className)"
    )
    assert set(output) == {"ours"}


def test_hostile_names_are_shown_as_text(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert HOSTILE in browser.texts("#evaluated .checkpoint .name")
    browser.find("#filter-numbers").send_keys("onerror")
    browser.find("#all-numbers tbody tr:not([hidden]) a.open").click()
    assert HOSTILE in browser.find("#details-title").text
    browser.find("#details-close").click()
    browser.find("#tasks summary").click()
    assert browser.texts("#tasks td").count(HOSTILE) == 2
    assert browser.find("#tasks figure svg").size["height"] > 100
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.errors() == []  # no alert, no blocked script


def test_print_shows_only_the_answer_and_tables(browser: Browser, page: Path) -> None:
    def brightness() -> int:
        color = browser.run("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, color[4:-1].split(",")))

    browser.open(page)
    light = brightness()
    browser.open(page, dark=True)
    assert brightness() < 150 < 600 < light
    browser.open(page, width=760)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    # the page's listeners to the change run before the callbacks of the next frame
    browser.driver.execute_async_script("requestAnimationFrame(arguments[0])")
    assert browser.find(".page-head").is_displayed()
    assert browser.texts("#numbers") == browser.texts("#tasks") == browser.texts("nav") == []


def test_on_a_phone_only_tables_scroll_sideways(browser: Browser, tmp_path: Path) -> None:
    usual(tmp_path)
    for name in "ab":
        entry = backbone(name, "resnet18", made_by={"data": "photographs of rooms (900 images)"})
        complete(tmp_path, name, transfer_tasks()[0], backbone=entry)
    browser.open(write_report(read_contents(tmp_path)).absolute(), width=PHONE_PX)
    assert browser.find("#compare-first").is_displayed()
    assert browser.run("document.documentElement.scrollWidth") == PHONE_PX


def test_from_the_answer_to_everything_behind_a_number(browser: Browser, tmp_path: Path) -> None:
    results_of_two(tmp_path)
    page = write_report(read_contents(tmp_path)).absolute()
    browser.open(page)
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]
    assert browser.find("h1").text == "2 checkpoints"
    (message,) = browser.texts(".answer li")
    assert browser.find("#compare-sentence").text == message
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    axis = browser.texts("#compare-rows .scale svg text")
    assert axis == ["−20", "0", "+20"]
    rows = browser.texts("#compare-rows details .line")
    assert ["better" in rows[0], "inconclusive" in rows[1], "detects " in rows[1]] == [True] * 3
    browser.find("#filter-compare").send_keys("linear birdsnap")
    assert len(browser.texts("#compare-rows details .line")) == 1
    filtered = "good compared with random on 1 task (of 2 tasks): 0 better, 0 worse, 1 inconclusive"
    assert browser.find("#compare-sentence").text.startswith(filtered)
    browser.run("document.getElementById('filter-compare').value = ''")
    choose(browser, "random", "good")
    assert (
        "random is significantly worse than good on 1 of 2"
        in browser.find("#compare-sentence").text
    )
    browser.find("#compare-rows a.open").click()
    assert browser.find("#details").is_displayed()
    assert "Published" in browser.texts("#details h3")
    assert "python -m transfer " in browser.find("#details-body").text
    assert "#random/transfer_linear/" in browser.run("location.href")
    browser.driver.back()
    assert not browser.find("#details").is_displayed()
    browser.driver.forward()
    browser.driver.refresh()
    assert browser.find("#details").is_displayed()
    browser.find("#details-close").click()
    assert browser.run("location.hash") == ""
    assert browser.errors() == []


def choose(browser: Browser, first: str, second: str) -> None:
    """Choose two checkpoints in the menus.

    Menu entries also show facts about the checkpoints.
    """
    for location, name in (("first", first), ("second", second)):
        select = Select(browser.find(f"#compare-{location}"))
        (option,) = (item.text for item in select.options if item.text.startswith(f"{name} ("))
        select.select_by_visible_text(option)


def test_equal_numbers_are_called_equal(browser: Browser, tmp_path: Path) -> None:
    details = per_image(np.arange(1000) % 2 == 0, np.arange(1000) % 10)
    for name in ("mine", "moco"):
        for task in ("in1k_linear@co2", "in1k_linear@jcl", "in100_linear@jcl"):
            request: dict[str, Any] = {"task": task, "backbone": [], "options": [], "input": {}}
            key, reading = task.split("@")
            names = {"name": f"{reading}-2021/1", "hash": "paper", "paper_hash": "paper"}
            changes: dict[str, Any] = {"protocol": {**names, "fields": {}}, "request": request}
            complete(tmp_path, name, key, backbone=backbone(name), details=details, **changes)
    browser.open(write_report(read_contents(tmp_path)).absolute())
    sentence = browser.find("#compare-sentence")
    assert "on 0 of 3 protocol variants of 2 tasks, inconclusive on 0, equal on 3" in sentence.text
    assert browser.texts("#compare-rows .verdict") == ["equal"] * 3
    browser.find("#filter-compare").send_keys("in1k")
    counts = "on 2 protocol variants of 1 task (of 3 protocol variants of 2 tasks): "
    counts += "0 better, 0 worse, 0 inconclusive, 2 equal"
    assert counts in sentence.text


def test_three_networks_are_compared_in_one_report(browser: Browser, tmp_path: Path) -> None:
    px = {"mine": 224, "moco": 224, "vit": 384}
    for entry in (
        backbone("mine", num_parameters=23_508_032),
        backbone("moco", "resnet18"),
        backbone("vit", "timm:vit_small.dino", stem=""),
    ):
        name = str(entry["name"])
        names = {"name": "lorac-2021/1", "hash": f"{px[name]}", "paper_hash": "224"}
        protocol = {**names, "fields": {"crop_px": px[name]}}
        changes: dict[str, Any] = {"backbone": entry, "protocol": protocol}
        for task in transfer_tasks()[:2]:
            complete(tmp_path, name, task, details={"num_test": 100}, **changes)
    browser.open(write_report(read_contents(tmp_path)).absolute())
    pairs = [text.split(" differ")[0] for text in browser.texts(".answer li")]
    assert pairs == ["mine and moco", "mine and vit", "moco and vit"]
    choose(browser, "vit", "mine")
    message = "their networks differ (timm:vit_small; resnet50, imagenet stem)"
    assert message in browser.find("#compare-sentence").text
    fields = "mine: resnet50, imagenet stem, 23.5 M parameters, unknown pre-training data."
    assert fields in browser.find("#compare-facts").text
    rows = browser.texts("#compare-rows details .line")
    assert len(rows) == 2
    assert all("384 and 224 px images" in row for row in rows)
    assert all("0.0" in row and "−0.0" not in row.split("[")[0] for row in rows)
    choose(browser, "moco", "mine")
    assert "images of" not in browser.find("#compare-rows").text
    assert browser.errors() == []


COPIED = """
const copied = [];
Object.defineProperty(navigator, 'clipboard', {value: {writeText: (text) => copied.push(text)}});
const bar = document.querySelector('#chosen details[open] .copy');
for (const button of bar.querySelectorAll('button')) button.click();
return copied;
"""


def test_a_button_copies_the_table_that_the_command_prints(
    browser: Browser, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.open(page)
    copied = browser.driver.execute_script(COPIED)
    args = ["--results", str(page.parents[1]), "--tasks", transfer_tasks()[0]]
    for form, text in zip(("markdown", "latex", "csv"), copied, strict=True):
        assert tables.main([*args, "--format", form]) == 0
        assert capsys.readouterr().out.rstrip("\n") == text.rstrip("\n")
    assert browser.errors() == []


def test_a_table_is_copied_as_markdown_and_as_latex(browser: Browser, page: Path) -> None:
    browser.open(page)
    table = "document.getElementById('all-numbers')"
    assert browser.run(f"asMarkdown({table})").startswith("| checkpoint | task | metric | value |")
    latex = browser.run(f"asLatex({table})")
    assert latex.startswith("\\begin{tabular}{lllrlll}\n\\toprule\n")
    assert "transfer\\_linear/aircraft" in latex
    assert browser.run("document.querySelectorAll('table:not(.copied)').length") == 0
    rows = browser.run("asMarkdown(tableOf(document.getElementById('compare-rows')))").splitlines()
    assert rows[0] == f"| task | {HOSTILE} | mine | points | 95 % interval |"
    assert rows[2] == "| transfer_linear/aircraft | 40.0 | 47.5 | −7.5 | – |"
    papers = browser.run("asLatex(document.getElementById('papers'))")
    assert "\ntask & checkpoint & published & ours & paper & diff. &" in papers
    for section in ("numbers", "compare", "beside"):
        browser.find(f"#{section} .copy button").click()
    assert browser.errors() == []


def test_axe_finds_nothing(browser: Browser, page: Path) -> None:
    axe = pytest.importorskip("axe_core_python", reason="needs axe-core-python, of the extra dev")
    script = (Path(axe.__path__[0]) / "axe.min.js").read_text()
    for dark in (False, True):
        browser.open(page, dark=dark)
        browser.driver.execute_script(script)
        result = browser.driver.execute_async_script(
            "axe.run().then((found) => arguments[0](found.violations))"
        )
        assert [(item["id"], [n["html"][:200] for n in item["nodes"]]) for item in result] == []
