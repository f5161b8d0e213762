"""LLM in this process: what it gives, what it refuses, and that nothing of it leaks."""
import concurrent.futures
import json

import pytest

import skiff
from skiff import LLM, SamplingParams, StructuredOutputsParams

from .conftest import DEMO

GREEDY = SamplingParams(temperature=0, max_tokens=24)
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def expected():
    return json.loads((DEMO / "expected_greedy.json").read_text())


def test_tokens_are_those_that_the_model_is_known_for(llm):
    cases = expected()
    params = [SamplingParams(temperature=0, max_tokens=len(case["output_ids"])) for case in cases]
    outputs = llm.generate([case["prompt_ids"] for case in cases], params, use_tqdm=False)
    for case, output in zip(cases, outputs):
        assert output.outputs.token_ids == case["output_ids"]
        assert output.prompt_token_ids == case["prompt_ids"]
        assert output.finished and output.error_code is None


def test_repeats_are_equal(llm):
    prompts = [f"Item {i} of the list is" for i in range(12)]
    params = SamplingParams(temperature=1, seed=5, max_tokens=16, n=2)
    first, second = (llm.generate(prompts, params, use_tqdm=False) for _ in range(2))
    assert [[one.token_ids for one in output.outputs] for output in first] == \
        [[one.token_ids for one in output.outputs] for output in second]
    assert [output.prompt for output in first] == prompts
    assert all(output.outputs[0].token_ids != output.outputs[1].token_ids for output in first)


def test_outputs_have_the_names_of_both_interfaces(llm):
    output = llm.generate("The capital of France is",
                          SamplingParams(temperature=0, max_tokens=8, logprobs=2,
                                         prompt_logprobs=1), use_tqdm=False)[0]
    one = output.outputs[0]
    assert output.outputs.text == one.text and "Paris" in one.text
    assert output.outputs.token_ids is one.token_ids and len(output.outputs) == 1
    assert output.outputs.reasoning_content is None
    assert one.finish_reason == "length" and one.stop_reason is None
    assert len(one.logprobs) == len(one.token_ids) == 8
    assert one.cumulative_logprob == pytest.approx(
        sum(entries[token].logprob for token, entries in zip(one.token_ids, one.logprobs)))
    assert one.logprobs[0][one.token_ids[0]].rank == 1
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert 0 < output.metrics.arrival_time <= output.metrics.first_token_time
    assert output.metrics.first_token_time <= output.metrics.finished_time
    with pytest.raises(AttributeError):
        output.outputs.no_such_field


def test_prompts_in_every_form(llm):
    ids = llm.tokenize("The capital of France is")
    forms = ["The capital of France is", ids, {"prompt": "The capital of France is"},
             {"prompt_token_ids": ids}]
    outputs = llm.generate(forms, GREEDY, use_tqdm=False)
    assert len({tuple(output.outputs.token_ids) for output in outputs}) == 1
    assert len(llm.generate(ids, GREEDY, use_tqdm=False)) == 1
    assert llm.generate([], use_tqdm=False) == []
    assert llm.detokenize(ids) == "The capital of France is"
    for wrong in (7, {"multimodal_data": {}}, [[]], [None]):
        with pytest.raises((TypeError, ValueError)):
            llm.generate(wrong, GREEDY, use_tqdm=False)


def test_parameters_are_one_for_all_or_one_for_each(llm):
    lengths = [3, 5]
    outputs = llm.generate(["A", "B"], [SamplingParams(max_tokens=n, ignore_eos=True)
                                        for n in lengths], use_tqdm=False)
    assert [len(output.outputs.token_ids) for output in outputs] == lengths
    with pytest.raises(ValueError, match="1 SamplingParams for 2 prompts"):
        llm.generate(["A", "B"], [GREEDY], use_tqdm=False)


def test_a_stream_adds_up_to_the_whole(llm):
    whole = llm.generate(["Once upon a time", "Item 3 is"], GREEDY, use_tqdm=False)
    texts, tokens = {}, {}
    for output in llm.stream(["Once upon a time", "Item 3 is"], GREEDY):
        texts[output.prompt] = texts.get(output.prompt, "") + output.outputs.delta
        assert output.outputs.text == texts[output.prompt]
        tokens[output.prompt] = output.outputs.token_ids
    for output in whole:
        assert texts[output.prompt] == output.outputs.text
        assert tokens[output.prompt] == output.outputs.token_ids


def test_chat_streamed_or_not(llm):
    whole = llm.chat(QUESTION, GREEDY, use_tqdm=False)[0].outputs
    assert "Paris" in whole.text and whole.finish_reason == "stop"
    last = None
    for last in llm.chat(QUESTION, GREEDY, stream=True):
        pass
    assert last.finished and last.outputs.text == whole.text
    two = llm.chat([QUESTION, QUESTION], GREEDY, use_tqdm=False)
    assert [output.outputs.text for output in two] == [whole.text] * 2


def test_calls_are_taken_out_of_the_text(llm):
    tool = {"type": "function", "function": {
        "name": "get_current_weather", "description": "Get the current weather",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}}
    asked = [{"role": "user", "content": "What's the weather like in Boston?"}]
    params = SamplingParams(temperature=0)
    whole = llm.chat(asked, params, tools=[tool], use_tqdm=False)[0].outputs
    *_, last = llm.chat(asked, params, tools=[tool], stream=True)
    for one in (whole, last.outputs):
        assert one.text == "" and one.finish_reason == "tool_calls" and len(one.tool_calls) == 1
        function = one.tool_calls[0]["function"]
        assert function["name"] == "get_current_weather"
        assert json.loads(function["arguments"]) == {"location": "Boston"}


def test_reasoning_is_beside_the_text(llm):
    asked = [{"role": "user", "content": "What is 17 + 25?"}]
    params = SamplingParams(temperature=0)
    thinking = dict(chat_template_kwargs={"enable_thinking": True})
    whole = llm.chat(asked, params, use_tqdm=False, **thinking)[0].outputs
    *_, last = llm.chat(asked, params, stream=True, **thinking)
    for one in (whole, last.outputs):
        assert one.text == "17 + 25 = 42." and "carry" in one.reasoning_content


@pytest.mark.parametrize("params, holds", [
    (dict(structured_outputs=StructuredOutputsParams(choice=["red", "blue"])),
     lambda text: text in ("red", "blue")),
    (dict(guided_regex="[0-9]{3}"), lambda text: text.isdigit() and len(text) == 3),
    (dict(guided_decoding=skiff.GuidedDecodingParams(
        json={"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}},
              "required": ["n"], "additionalProperties": False})),
     lambda text: json.loads(text)["n"] <= 99),
])
def test_the_form_of_a_reply(llm, params, holds):
    output = llm.generate("Answer:", SamplingParams(max_tokens=60, **params), use_tqdm=False)[0]
    assert holds(output.outputs.text)


def test_mistakes_name_the_field_and_the_way_out(llm):
    def mistake(kind, *arguments, **parameters):
        with pytest.raises(kind) as caught:
            llm.generate(*arguments, SamplingParams(**parameters), use_tqdm=False)
        return caught.value

    assert mistake(skiff.InvalidError, "A", temperature=-1).field == "temperature"
    assert mistake(ValueError, "A", temperature=float("nan"))
    assert mistake(skiff.InvalidError, "A " * 5000).field == "prompt"
    assert mistake(skiff.InvalidError, [10 ** 6]).field == "prompt"
    assert mistake(skiff.InvalidError, "A", guided_regex="(").field == "guided_regex"
    assert mistake(skiff.InvalidError, "A", extra_args={"priority": 1}).code == "unsupported"
    assert mistake(skiff.InvalidError, "A", extra_args={"best_of": 3}).field == "best_of"
    assert "unknown" in str(pytest.raises(skiff.InvalidError, LLM, DEMO, max_model_lem=3).value)
    with pytest.raises(TypeError):
        SamplingParams(temprature=1)
    with pytest.raises(skiff.InvalidError, match=r"max-num-seqs wants a whole number"):
        LLM(DEMO, max_num_seqs=0)
    with pytest.raises(skiff.LoadError, match="no such folder"):
        LLM("models/nowhere")
    assert llm.generate("A", GREEDY, use_tqdm=False)[0].finished


def test_a_request_that_runs_out_of_time_says_so(llm):
    params = SamplingParams(max_tokens=1900, ignore_eos=True, timeout=0.05)
    output = llm.generate("Once", params, use_tqdm=False)[0]
    assert (output.error_code, output.outputs.finish_reason) == ("timeout", "error")
    assert output.error_msg and output.finished


def test_threads_share_an_engine(llm):
    prompts = [f"Number {i} is" for i in range(4)]
    alone = [llm.generate(prompt, GREEDY, use_tqdm=False)[0].outputs.token_ids
             for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda prompt: llm.generate(prompt, GREEDY, use_tqdm=False),
                                 prompts * 8))
    assert [outputs[0].outputs.token_ids for outputs in together] == alone * 8


def test_more_prompts_than_may_run_and_a_second_engine(llm):
    options = dict(max_concurrency=2, max_num_seqs=1, max_model_len=256, seed=7)
    with LLM(DEMO, **options) as second:
        assert second.info["max_model_len"] == 256 and second.info["max_num_seqs"] == 1
        outputs = second.generate(["Item 3 is"] * 9, GREEDY, use_tqdm=False)
        assert len({tuple(output.outputs.token_ids) for output in outputs}) == 1
    assert outputs[0].outputs.token_ids == \
        llm.generate("Item 3 is", GREEDY, use_tqdm=False)[0].outputs.token_ids
    with pytest.raises(skiff.ClosedError):
        second.generate("A", use_tqdm=False)
    second.close()


def test_a_stream_that_is_left_frees_its_place(llm):
    endless = SamplingParams(max_tokens=1900, ignore_eos=True)
    for output in llm.stream(["Once"] * 8, endless):
        break
    del output
    assert llm.generate("A", GREEDY, use_tqdm=False)[0].finished
    assert running(llm) == 0


def test_an_exception_that_is_kept_frees_the_places_of_its_call(llm):
    """As an interpreter keeps the last one of a session, with the frames of the call."""
    endless = SamplingParams(max_tokens=1900, ignore_eos=True)
    with pytest.raises(skiff.InvalidError, match="top_p") as kept:
        llm.generate(["Once"] * 4 + ["A"], [endless] * 4 + [SamplingParams(top_p=2)],
                     use_tqdm=False)
    assert llm.generate("A", GREEDY, use_tqdm=False)[0].finished
    assert running(llm) == 0, kept.value


def running(model):
    name = 'vllm:num_requests_running{'
    return sum(float(line.rsplit(" ", 1)[1]) for line in model.metrics().splitlines()
               if line.startswith(name))
