from hypothesis import given
from hypothesis import strategies as st

from axisrl.runtime.chat import Conversation
from axisrl.testing.fakes import CharTokenizer
from axisrl.types import Message, Observation

TOKENIZER = CharTokenizer()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_decode_is_the_inverse_of_encode(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text), skip_special=False) == text


def test_ascii_is_one_token_a_character_within_the_vocabulary():
    ids = TOKENIZER.encode("7 + 1 = 8\n")
    assert len(ids) == 10
    assert max(TOKENIZER.encode("\u00ff🙂")) < TOKENIZER.vocab_size


def test_special_tokens_are_one_token_and_can_be_left_out():
    ids = TOKENIZER.encode("ok<|im_end|>")
    assert len(ids) == 3
    assert ids[-1] in TOKENIZER.stop_ids
    assert TOKENIZER.decode(ids) == "ok"


def test_bytes_that_are_no_text_are_replaced():
    assert TOKENIZER.decode([3 + 0xFF]) == "\ufffd"


def test_the_template_frames_each_message_and_opens_the_policys_turn():
    messages = [{"role": "user", "content": "hi"}]
    assert TOKENIZER.render(messages, [], True) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert not TOKENIZER.render(messages, [], False).endswith("assistant\n")


def test_tools_and_tool_calls_are_in_the_text():
    messages = [{"role": "assistant", "content": "", "tool_calls": [{"id": "call-1"}]}]
    text = TOKENIZER.render(messages, [{"name": "search"}], False)
    assert '"name": "search"' in text
    assert "call-1" in text


def test_it_serves_a_conversation():
    conversation = Conversation(TOKENIZER)
    conversation.observe(Observation(messages=(Message(role="user", content="Say 3."),)))
    assert TOKENIZER.decode(conversation.context.tolist(), skip_special=False).endswith(
        "<|im_start|>assistant\n"
    )
