"""`skiff tokenize MODEL --chat FILE`: the prompt, exactly."""
import json

import pytest

TURNS = [{"role": "user", "content": "Grüße\n"}, {"role": "assistant", "content": "Hello."}]
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}{{ extra }}{% if tools %}{{ tools | tojson }}{% endif %}")


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def conversation(tmp_path):
    def write(**fields):
        path = tmp_path / "conversation.json"
        path.write_text(json.dumps({"messages": TURNS} | fields))
        return path
    return write


def test_prompt_is_printed_as_it_is(skiff, model, conversation):
    text = "<user>Grüße\n</><assistant>Hello.</>"
    assert skiff.ok("tokenize", model, "--chat", conversation()) == text + "<assistant>"
    assert skiff.ok("tokenize", model, "--chat", conversation(), "--no-generation-prompt") == text
    assert skiff.ok("tokenize", model, "--chat", conversation(add_generation_prompt=False)) == text
    assert skiff.ok("tokenize", model, "--chat", conversation(add_generation_prompt=False),
                    "--generation-prompt") == text + "<assistant>"


def test_tools_and_variables_reach_the_template(skiff, model, conversation):
    path = conversation(tools=[{"b": 1, "a": "é"}], extra="!", add_generation_prompt=False)
    assert skiff.ok("tokenize", model, "--chat", path).endswith('</>![{"b": 1, "a": "é"}]')


def test_final_message_is_continued(skiff, model, conversation):
    path = conversation(continue_final_message=True)
    assert skiff.ok("tokenize", model, "--chat", path) == "<user>Grüße\n</><assistant>Hello."
    both = conversation(continue_final_message=True, add_generation_prompt=True)
    assert "exclude each other" in skiff.refused("tokenize", model, "--chat", both)


def test_a_template_of_ones_own(skiff, tmp_path, model, conversation):
    empty = tmp_path / "empty"
    empty.mkdir()
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages | length }}\n")
    assert skiff.ok("tokenize", empty, "--chat", conversation(), "--chat-template", own) == "2"
    assert skiff.ok("tokenize", model, "--chat", conversation(), "--chat-template", "{{ 1 }}") == "1"
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates" / "short.jinja").write_text("short")
    assert skiff.ok("tokenize", model, "--chat", conversation(), "--chat-template", "short") == "short"


def test_builtin_template_is_announced(skiff, tmp_path, conversation):
    folder = tmp_path / "Baichuan2-7B-Chat"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "baichuan", "vocab_size": 125696}')
    done = skiff("tokenize", folder, "--chat", conversation())
    assert done.stdout == "<reserved_106>Grüße\n<reserved_107>Hello.<reserved_107>"
    assert "Baichuan2" in done.stderr and "--chat-template" in done.stderr


@pytest.mark.parametrize("text, wrong", [
    ("{", "conversation.json"), ("[]", '"messages"'), ('{"messages": [], "add_generation_prompt": 1}', "true or false"),
])
def test_broken_conversations(skiff, model, tmp_path, text, wrong):
    path = tmp_path / "conversation.json"
    path.write_text(text)
    assert wrong in skiff.refused("tokenize", model, "--chat", path)


def test_what_the_template_refuses_is_one_line(skiff, tmp_path, conversation):
    (tmp_path / "t.jinja").write_text("\n{{ raise_exception('roles must alternate') }}")
    error = skiff.refused("tokenize", tmp_path, "--chat", conversation(), "--chat-template", tmp_path / "t.jinja")
    assert "line 2: roles must alternate" in error
    assert "no chat template" in skiff.refused("tokenize", tmp_path, "--chat", conversation())


def test_without_messages_or_file(skiff, model, tmp_path):
    assert "cannot be read" in skiff.refused("tokenize", model, "--chat", tmp_path / "absent.json")
