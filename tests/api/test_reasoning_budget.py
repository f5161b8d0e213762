"""A reply whose budget of reasoning is spent goes on as one reply."""
import threading

# The demo model thinks on and on: the token that ends its reasoning is made unlikely.
END_OF_REASONING = 6
THINKING = {"continue_final_message": True, "add_generation_prompt": False, "ignore_eos": True}
HISTORY = [{"role": "user", "content": "What is 17 + 25?"}, {"role": "assistant", "content": "<think>\n"}]


def think(server, tokens, budget):
    return server.client().chat.completions.create(
        model="demo", messages=HISTORY, temperature=0, max_completion_tokens=tokens,
        logit_bias={str(END_OF_REASONING): -100}, extra_body={**THINKING, "thinking_token_budget": budget})


def test_it_does_not_wait_behind_others(start_server):
    server = start_server("--reasoning-parser", "deepseek_r1", "--threads", "1", "--max-num-seqs", "1")
    client, ended = server.client(), []

    def chat():
        client.chat.completions.create(
            model="demo", messages=HISTORY[:1], max_completion_tokens=300, extra_body={"ignore_eos": True})
        ended.append("other")

    def first():
        reply = think(server, 200, 150)
        assert reply.usage.completion_tokens == 200
        ended.append("first")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert server.seconds_until(lambda: server.load() == 1) is not None
    for _ in range(3):
        threads.append(threading.Thread(target=chat))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert ended[0] == "first" and len(ended) == 4


def test_a_full_cache_ends_it_as_ever(start_server):
    server = start_server("--reasoning-parser", "deepseek_r1", "--num-gpu-blocks-override", "1", "--block-size", "32")
    free = think(server, 400, -1)
    assert free.choices[0].finish_reason == "length"
    for left in range(4):
        reply = think(server, 400, free.usage.completion_tokens - left)
        assert reply.choices[0].finish_reason == "length", left
