"""The page of a run in a real browser: nothing overflows, nothing is asked for, folds open."""

import json
import os
import re
import shutil
import subprocess
import sys
from html import escape, unescape
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from view_runs import example, write_run  # noqa: E402

from qitos_min.view._model import load  # noqa: E402
from qitos_min.view._page import page  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
MEASURE = """<script>
const look = () => {
  const wide = document.documentElement.clientWidth;
  const over = [...document.querySelectorAll("main *")].filter(
    e => !e.closest("svg") && e.getBoundingClientRect().right > wide + 1);
  return {wide, scroll: document.documentElement.scrollWidth, over: over.map(e => e.tagName),
          high: document.documentElement.scrollHeight};
};
const closed = look();
for (const fold of document.querySelectorAll("details")) fold.open = true;
parent.postMessage(JSON.stringify([closed, look()]), "*");
</script>"""
FRAME = """<!DOCTYPE html><meta charset="utf-8"><script>
onmessage = e => document.documentElement.dataset.found = e.data;
</script><iframe width="%d" height="900" style="border:0" srcdoc="%s"></iframe>"""


def browse(path, tmp_path, width, *flags):
    done = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
            f"--user-data-dir={tmp_path / 'profile'}", *flags, path.as_uri(),
        ],  # fmt: skip
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    return done.stdout


def measured(path, tmp_path, width):
    """What a browser says of a copy of the page that may measure itself, folds closed and open.

    It stands in a frame, because no window of Chromium is narrower than 500 pixels.
    """
    text = re.sub(r"<meta http-equiv.*?>\n", "", path.read_text(encoding="utf-8"))
    copy = path.with_name("measured.html")
    text = text.replace("</body>", f"{MEASURE}</body>")
    copy.write_text(FRAME % (width, escape(text)), encoding="utf-8")
    dom = browse(copy, tmp_path, 1400, "--hide-scrollbars", "--dump-dom")
    (found,) = re.findall(r'<html data-found="([^"]*)"', dom)
    return json.loads(unescape(found))


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    long = {"records": [
        {"step_id": 0, "critic_outputs": [], "agent_id": "a" * 300, "decision": {"rationale": "x" * 900},
         "action_results": ["y" * 900], "state_diff": {"z" * 99: {"before": "b" * 400, "after": "c" * 400}}},
    ], "final_result": "w" * 700, "run_id": "r" * 200}  # fmt: skip
    (home / "long.json").write_text(json.dumps(long), encoding="utf-8")
    runs = [example(home / "example"), write_run(home / "steps", 405, error_at=[202]), home / "long.json"]
    made = {"example": runs[:1], "all": runs}
    for name, held in made.items():
        text = page([load(str(run)) for run in held])
        (home / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: home / f"{name}.html" for name in made}


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["example", "all"])
def test_nothing_overflows_also_when_every_fold_is_open(paths, tmp_path, name, width):
    closed, opened = measured(paths[name], tmp_path, width)
    for found in (closed, opened):
        assert found["scroll"] <= found["wide"] == width and found["over"] == []
    assert opened["high"] > closed["high"]


def test_a_page_asks_for_nothing_and_runs_nothing(paths, tmp_path):
    log = tmp_path / "net.json"
    dom = browse(paths["all"], tmp_path, 1280, f"--log-net-log={log}", "--net-log-capture-mode=Everything", "--dump-dom")
    assert "It was 21.0 °C on average." in dom
    asked = set(re.findall(r'"url":"((?:https?|file):[^"]*)"', log.read_text(encoding="utf-8")))
    home = paths["all"].parent.as_uri()
    assert [url for url in asked if url.startswith("file:") and not url.startswith(home)] == []
    own = [url for url in asked if url.startswith("file:")]
    assert set(own) <= {paths["all"].as_uri()}
