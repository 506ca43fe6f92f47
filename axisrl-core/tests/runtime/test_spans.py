"""The trace of a run: what viewers open, whatever became of the run that wrote it."""

import json

import pytest

from axisrl.runtime.spans import DRIVER, Span, SpanLog, Track, read_events


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def write(path, *names, track=DRIVER):
    log = SpanLog(path)
    for at, name in enumerate(names):
        log.add(track, Span(name, 100.0 + at, 0.5), step=at)
    log.close()


def spans(path):
    return [event for event in read_events(path) if event["ph"] == "X"]


def as_viewers_read(path):
    """The array format: what is missing is the bracket that they add."""
    return json.loads(path.read_text().rstrip().rstrip(",") + "]")


def test_a_file_is_a_json_array_but_for_the_closing_bracket(path):
    write(path, "rollout", "train")
    assert as_viewers_read(path) == read_events(path)
    assert [event["name"] for event in spans(path)] == ["rollout", "train"]


def test_a_span_is_a_complete_event_in_microseconds(path):
    write(path, "rollout")
    (event,) = spans(path)
    assert (event["ph"], event["ts"], event["dur"]) == ("X", 100_000_000, 500_000)
    assert event["args"] == {"step": 0}
    assert isinstance(event["pid"], int) and isinstance(event["tid"], int)


def test_tracks_are_named_by_metadata_and_threads_share_their_process(path):
    log = SpanLog(path)
    for track in (DRIVER, Track("trainer", "policy"), Track("trainer", "value"), DRIVER):
        log.add(track, Span("x", 1.0, 1.0))
    log.close()
    named = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in read_events(path)
        if event["ph"] == "M"
    }
    threads = {name: key for key, name in named.items() if key[0] == "thread_name"}
    assert set(threads) == {"phases", "policy", "value"}
    assert threads["policy"][1] == threads["value"][1] != threads["phases"][1]
    assert len({key[2] for key in threads.values()}) == 3
    assert len(spans(path)) == 4


def test_a_resumed_run_appends_and_keeps_its_tracks(path):
    write(path, "rollout")
    write(path, "rollout")
    write(path, "step", track=Track("trainer", "policy"))
    first, second, third = spans(as_list(path))
    assert (first["pid"], first["tid"]) == (second["pid"], second["tid"])
    assert third["pid"] != first["pid"]
    assert path.read_text().count("[\n") == 1
    names = [event["name"] for event in as_viewers_read(path)]
    assert names.count("thread_name") == 2


def as_list(path):
    assert as_viewers_read(path) == read_events(path)
    return path


@pytest.mark.parametrize("cut", [1, 2, 20, 90])
def test_what_a_kill_left_half_written_is_ignored_and_cut_off_on_resume(path, cut):
    write(path, "rollout", "train")
    path.write_bytes(path.read_bytes()[:-cut])
    assert [event["name"] for event in spans(path)] == ["rollout"]
    write(path, "sync")
    assert [event["name"] for event in spans(as_list(path))] == ["rollout", "sync"]


def test_a_kill_before_the_first_line_was_whole_leaves_an_empty_trace(path):
    path.write_text("[")
    assert read_events(path) == []
    write(path, "rollout")
    assert len(spans(as_list(path))) == 1


def test_another_kind_of_file_is_refused(path):
    path.write_text('{"name": "x"}\n')
    with pytest.raises(ValueError, match="does not begin as a trace"):
        read_events(path)


def test_a_phase_is_logged_however_it_ends_and_adds_up(path):
    log = SpanLog(path)
    with pytest.raises(KeyError), log.span("train", step=3):
        raise KeyError
    first = log.last["train"]
    with log.span("train", step=4):
        pass
    assert log.total["train"] == first + log.last["train"]
    log.close()
    assert [event["args"]["step"] for event in spans(path)] == [3, 4]


def test_borders_of_a_phase_are_heard_and_the_later_one_only_when_no_error_ended_it(path):
    heard = []
    log = SpanLog(path, lambda *border: heard.append(border))
    with log.span("train", step=3):
        heard.append("inside")
    with pytest.raises(KeyError), log.span("sync", step=3):
        raise KeyError
    log.close()
    assert heard == [("before", "train", 3), "inside", ("after", "train", 3), ("before", "sync", 3)]


def test_a_phase_is_in_the_file_when_its_end_is_heard(path):
    names = []
    log = SpanLog(path, lambda *_: names.append([event["name"] for event in spans(path)]))
    with log.span("train", step=1):
        pass
    log.close()
    assert names == [[], ["train"]]
