import json
import re
from html.parser import HTMLParser

import pytest

from axisrl.runfolder import RunFolder
from axisrl.view import page
from axisrl.view.page import SCRIPTS, STYLE, asset, exported_page, served_page


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


@pytest.fixture
def exported(run_dir):
    return exported_page(RunFolder(run_dir))


def embedded(text):
    return json.loads(Elements(text).scripts[0])


def test_an_answer_with_a_script_tag_stays_data(exported):
    elements = Elements(exported)
    assert [tag for tag, _ in elements.tags].count("script") == 1 + len(SCRIPTS)
    answer = embedded(exported)["rollouts"]["eval/0"][0]["messages"][1]["content"]
    assert answer.startswith("<script>alert(1)</script>")


def test_no_run_data_appears_as_markup(exported):
    assert "<script>alert" not in exported


def test_the_exported_page_loads_nothing(exported):
    for tag, attributes in Elements(exported).tags:
        assert "src" not in attributes, tag
        assert attributes.get("href", "data:").startswith("data:"), tag


def test_the_exported_policy_names_exactly_the_scripts_in_the_page(exported):
    policy = next(a["content"] for t, a in Elements(exported).tags if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == len(SCRIPTS) + 1


def test_the_export_holds_every_rollout_file_of_a_small_run(exported):
    data = embedded(exported)
    assert sorted(data["rollouts"]) == ["eval/0", "eval/3", "step/1"]
    assert data["run"]["left_out"] == 0


def test_a_large_run_keeps_the_first_and_last_evaluation_and_counts_the_rest(run_dir, monkeypatch):
    size = len(page.to_json(RunFolder(run_dir).rollouts("eval", 0)))
    size += len(page.to_json(RunFolder(run_dir).rollouts("eval", 3)))
    monkeypatch.setattr(page, "EXPORT_BYTES", size)
    data = embedded(exported_page(RunFolder(run_dir)))
    assert sorted(data["rollouts"]) == ["eval/0", "eval/3"]
    assert (data["run"]["left_out"], data["run"]["steps"]) == (1, [])


def test_the_served_page_takes_scripts_from_its_own_server_alone():
    sources = [a["src"] for tag, a in Elements(served_page()).tags if tag == "script"]
    assert sources == [f"/static/{name}" for name in SCRIPTS]


@pytest.mark.parametrize("name", [*SCRIPTS, STYLE])
def test_no_asset_parses_markup_or_reaches_outside(name):
    text = asset(name)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_stand_inside_a_page(name):
    assert "</script" not in asset(name)
