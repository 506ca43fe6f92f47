import http.client
import json
import threading

import pytest

from axisrl.runfolder import RunFolder
from axisrl.view.server import ViewServer


@pytest.fixture
def server(run_dir):
    with ViewServer(RunFolder(run_dir), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, path, **headers):
    connection = http.client.HTTPConnection(*server.server_address, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_the_page_its_scripts_and_its_data_are_served(server):
    for path in ("/", "/static/app.js", "/static/style.css", "/api/run", "/api/rollouts/eval/3"):
        assert get(server, path)[0] == 200, path


def test_rollouts_are_the_rows_of_the_file(server):
    rows = json.loads(get(server, "/api/rollouts/eval/3")[1])
    assert [row["summary"]["task_id"] for row in rows] == ["a", "b", "a"]


def test_an_unchanged_run_answers_304(server):
    tag = get(server, "/api/run")[2]["ETag"]
    status, body, _ = get(server, "/api/run", **{"If-None-Match": tag})
    assert (status, body) == (304, "")


def test_a_run_that_went_on_answers_anew(server, run_dir):
    tag = get(server, "/api/run")[2]["ETag"]
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "reward/mean": 0.8}\n')
    status, body, _ = get(server, "/api/run", **{"If-None-Match": tag})
    assert status == 200
    assert json.loads(body)["metrics"][-1]["step"] == 4


def test_another_host_name_is_refused(server):
    assert get(server, "/api/run", Host="evil.example")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/static/../data.py",
        "/static/../../../../etc/passwd",
        "/manifest.json",
        "/api/rollouts/eval/../../manifest",
        "/api/rollouts/other/1",
    ],
)
def test_a_path_never_becomes_a_file_name(server, path):
    assert get(server, path)[0] == 404


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"
