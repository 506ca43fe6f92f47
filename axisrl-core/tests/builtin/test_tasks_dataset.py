import pytest

from axisrl.builtin.config import TasksConfig
from axisrl.builtin.tasks_dataset import TasksDataset
from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.types import BuildContext


def load(path):
    return TasksDataset(TasksConfig(path=str(path)), BuildContext(run_dir="."))


def write(tmp_path, text):
    path = tmp_path / "sums.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_each_line_is_a_task_with_its_fields_as_data(tmp_path):
    tasks = load(write(tmp_path, '{"id": "a", "question": "1+1", "answer": 2}\n{"q": "é"}\n'))
    assert len(tasks) == 2
    assert tasks[0].id == "a" and tasks[0].data == {"question": "1+1", "answer": 2}
    assert tasks[1].id == "sums-2" and tasks[1].data == {"q": "é"}


def test_blank_lines_are_skipped_and_ids_keep_their_line_number(tmp_path):
    tasks = load(write(tmp_path, '{"q": 1}\n\n  \n{"q": 2}'))
    assert [tasks[at].id for at in range(len(tasks))] == ["sums-1", "sums-4"]


def test_a_whole_number_is_an_id(tmp_path):
    assert load(write(tmp_path, '{"id": 7}'))[0].id == "7"


def test_a_missing_file_is_named_with_its_reason(tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"nothing\.jsonl: No such file"):
        load(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("{broken", "not JSON"),
        ("[1, 2]", "a task is an object, not list"),
        ('{"id": null}', "id None is neither"),
        ('{"id": true}', "id True is neither"),
        ('{"id": "a"}', "id 'a' is taken by line 1"),
        (b'{"q": "\xff"}', "not JSON"),
    ],
)
def test_a_wrong_line_is_named_with_file_and_number(tmp_path, second, message):
    second = second if isinstance(second, bytes) else second.encode()
    path = write(tmp_path, b'{"id": "a"}\n' + second + b"\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"{path}:2" in str(caught.value) and message in str(caught.value)


def test_a_file_without_tasks_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="has no tasks"):
        load(write(tmp_path, "\n\n"))


def test_a_separator_inside_a_string_does_not_split_the_line(tmp_path):
    assert load(write(tmp_path, '{"q": "a\u2028b\u0085c"}\n'))[0].data == {"q": "a\u2028b\x85c"}


def test_an_index_past_the_end_raises(tmp_path):
    with pytest.raises(IndexError):
        load(write(tmp_path, '{"q": 1}'))[1]
