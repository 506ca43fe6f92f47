"""The page's files, served one by one or put into one file that needs no server.

The scripts are plain files that share one object, ``axisrl``, and are loaded in ``SCRIPTS``' order.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from axisrl.runfolder import RolloutKind, RunFolder
from axisrl.view.data import overview, to_json

STYLE = "style.css"
SCRIPTS = (
    "dom.js",
    "data.js",
    "chart.js",
    "phases.js",
    "curves.js",
    "rollouts.js",
    "answers.js",
    "app.js",
)
EXPORT_BYTES = 24 << 20
"""Most bytes of rollouts in an exported file; evaluations first, then the newest steps."""

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>axisrl</title>
<link rel="icon" href="data:,">
{style}
</head>
<body>
<noscript>This page draws a run with JavaScript; it loads nothing from outside.</noscript>
<div id="app"></div>
{scripts}
</body>
</html>
"""
_SERVED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
)


def asset(name: str) -> str:
    """Text of one of the page's own files."""
    return (files("axisrl.view") / "static" / name).read_text(encoding="utf-8")


def served_page() -> str:
    """The page that asks its server for data."""
    return _TEMPLATE.format(
        policy=_SERVED_POLICY,
        style=f'<link rel="stylesheet" href="/static/{STYLE}">',
        scripts="\n".join(f'<script src="/static/{name}" defer></script>' for name in SCRIPTS),
    )


def exported_page(run: RunFolder) -> str:
    """The page with its data inside; the policy allows these very scripts and no connection."""
    style = asset(STYLE)
    scripts = [asset(name) for name in SCRIPTS]
    hashes = " ".join(map(_source_hash, scripts))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src {_source_hash(style)}; img-src data:"
    )
    data = to_json(_export_data(run)).replace("<", "\\u003c")
    blocks = [f'<script type="application/json" id="data">{data}</script>']
    blocks += [f"<script>{script}</script>" for script in scripts]
    return _TEMPLATE.format(
        policy=policy, style=f"<style>{style}</style>", scripts="\n".join(blocks)
    )


def _export_data(run: RunFolder) -> dict[str, object]:
    facts = overview(run)
    wanted: list[tuple[RolloutKind, int]] = [("eval", step) for step in _ends_first(facts["evals"])]
    wanted += [("step", step) for step in reversed(facts["steps"])]
    kept, room = {}, EXPORT_BYTES
    for kind, step in wanted:
        rows = run.rollouts(kind, step)
        room -= len(to_json(rows))
        if room >= 0:
            kept[f"{kind}/{step}"] = rows
    facts["left_out"] = len(wanted) - len(kept)
    facts["steps"] = [step for step in facts["steps"] if f"step/{step}" in kept]
    facts["evals"] = [step for step in facts["evals"] if f"eval/{step}" in kept]
    return {"run": facts, "rollouts": kept}


def _ends_first(steps: list[int]) -> list[int]:
    return [*steps[:1], *steps[1:][::-1]]


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
