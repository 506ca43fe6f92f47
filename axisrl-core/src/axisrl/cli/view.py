"""``axisrl view``: a local page over a run's folder, or the same page as one file."""

from __future__ import annotations

from pathlib import Path

import click

from axisrl.cli.paths import output_root
from axisrl.errors import EnvironmentProblem, UsageError
from axisrl.runfolder import RunFolder, find_run


@click.command()
@click.argument("run", required=False)
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one self-contained HTML file instead of serving.",
)
@click.option("--port", default=0, show_default="a free one", type=click.IntRange(0, 65535))
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
def view(run: str | None, export: Path | None, port: int, browser: bool) -> None:
    """Show curves and rollouts of RUN: a name, a folder, or the newest run."""
    folder = find_run(output_root(), run)
    if export is None:
        _serve(folder, port, browser)
    else:
        _export(folder, export)


def _export(folder: RunFolder, target: Path) -> None:
    from axisrl.view.page import exported_page

    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", fix=f"mkdir -p {target.parent}")
    target.write_text(exported_page(folder), encoding="utf-8", errors="replace")
    click.echo(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB)")


def _serve(folder: RunFolder, port: int, browser: bool) -> None:
    from axisrl.view.server import ViewServer

    try:
        server = ViewServer(folder, port)
    except OSError as problem:
        raise EnvironmentProblem(
            f"cannot listen on port {port}: {problem.strerror}", fix="leave out --port"
        ) from problem
    click.echo(f"{folder.name}: {server.url}  (Ctrl-C ends it)")
    if browser:
        import webbrowser

        webbrowser.open(server.url)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("")
