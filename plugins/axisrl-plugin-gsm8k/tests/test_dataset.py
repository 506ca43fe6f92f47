"""gsm8k/gsm8k: files, folders and shards, and one clear line when they are not there."""

import json

import pytest

from axisrl.errors import EnvironmentProblem
from axisrl_gsm8k.config import Gsm8kConfig
from axisrl_gsm8k.dataset import Gsm8k


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow", reason="needs axisrl-plugin-gsm8k[datasets]")
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def load(context, source, **options):
    return Gsm8k(Gsm8kConfig(source=str(source), **options), context)


def test_a_jsonl_file_gives_one_task_a_row(context, fixture_file):
    tasks = load(context, fixture_file)
    assert len(tasks) == 3
    assert [tasks[index].id for index in range(3)] == ["train-00000", "train-00001", "train-00002"]
    assert tasks[1].data["answer"].endswith("#### 1,250")


def test_a_folder_gives_the_file_of_the_split(context, fixture_file):
    assert len(load(context, fixture_file.parent, split="train")) == 3


def test_limit_keeps_the_first_rows(context, fixture_file):
    assert [task.id for task in load(context, fixture_file, limit=2)] == [
        "train-00000",
        "train-00001",
    ]


def test_loading_twice_gives_the_same_tasks(context, fixture_file):
    assert list(load(context, fixture_file)) == list(load(context, fixture_file))


def test_parquet_shards_are_read_in_order_also_from_the_hubs_folder(context, tmp_path):
    for shard in range(2):
        rows = [{"question": f"q{shard}", "answer": f"#### {shard}"}]
        write_parquet(tmp_path / "main" / f"test-0000{shard}-of-00002.parquet", rows)
    tasks = load(context, tmp_path, split="test")
    assert [task.data["question"] for task in tasks] == ["q0", "q1"]


def test_a_parquet_file_equals_the_jsonl_it_came_from(context, fixture_file, tmp_path):
    rows = [json.loads(line) for line in fixture_file.read_text().splitlines()]
    write_parquet(tmp_path / "rows.parquet", rows)
    assert list(load(context, tmp_path / "rows.parquet")) == list(load(context, fixture_file))


def test_the_whole_of_gsm8k_loads(context, gsm8k_folder):
    assert len(load(context, gsm8k_folder, split="train")) == 7473
    assert len(load(context, gsm8k_folder, split="test")) == 1319


@pytest.mark.parametrize("name", ["none.jsonl", "none.parquet", "none"])
def test_a_missing_path_is_an_environment_problem_with_a_fix(context, tmp_path, name):
    with pytest.raises(EnvironmentProblem, match=r"no file or folder .*none(.|\n)*dataset.source"):
        load(context, tmp_path / name)


def test_a_folder_without_the_split_says_what_was_looked_for(context, fixture_file):
    with pytest.raises(EnvironmentProblem, match=r"no validation.jsonl and no validation\*"):
        load(context, fixture_file.parent, split="validation")


def test_a_line_that_is_not_json_is_named(context, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n{"questi')
    with pytest.raises(EnvironmentProblem, match=r"line 2 of .*train.jsonl is not JSON"):
        load(context, tmp_path)


@pytest.mark.parametrize("row", ['{"question": "q"}', '{"question": "q", "answer": 5}', "[1]"])
def test_a_row_without_text_in_a_field_is_named(context, tmp_path, row):
    (tmp_path / "train.jsonl").write_text(row + "\n")
    with pytest.raises(EnvironmentProblem, match=r"row 0 of .* has no text in '(question|answer)'"):
        load(context, tmp_path)


def test_an_empty_file_is_an_error(context, tmp_path):
    (tmp_path / "train.jsonl").write_text("\n")
    with pytest.raises(EnvironmentProblem, match="no rows of split 'train'"):
        load(context, tmp_path)


def test_another_kind_of_file_is_refused(context, tmp_path):
    (tmp_path / "train.csv").write_text("question,answer\n")
    with pytest.raises(EnvironmentProblem, match=r"neither .jsonl nor .parquet"):
        load(context, tmp_path / "train.csv")


def test_a_damaged_parquet_file_is_named(context, tmp_path):
    pytest.importorskip("pyarrow", reason="needs axisrl-plugin-gsm8k[datasets]")
    (tmp_path / "train.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(EnvironmentProblem, match="is not a parquet file"):
        load(context, tmp_path)


def test_a_hub_id_without_the_extra_names_the_pip_command(context, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(EnvironmentProblem, match=r"axisrl-plugin-gsm8k\[datasets\]"):
        load(context, "openai/gsm8k")


def test_a_parquet_file_without_the_extra_names_the_pip_command(context, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(EnvironmentProblem, match=r"axisrl-plugin-gsm8k\[datasets\]"):
        load(context, tmp_path)


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="limit -1"):
        Gsm8kConfig(limit=-1)
