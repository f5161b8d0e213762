// An answer while it is generated: what arrives goes into its node, and its figures are counted.

class Run {
  constructor(chat, node) {
    this.chat = chat;
    this.node = node;
    this.controller = new AbortController();
    this.started = performance.now();
    this.tokens = 0;
    this.before = node.stats?.tokens ?? 0;  // tokens of the answer that is continued
  }

  stop() { this.controller.abort(); }

  // Fills the node until the answer ends, for whatever reason; the node says which. Never throws.
  async fill(continued, changed) {
    const { node } = this;
    delete node.error;
    delete node.finish;
    delete node.retry;
    try {
      const body = requestBody(this.chat, node, { continued });
      await streamChat(body, this.controller.signal, (chunk) => { this.take(chunk); changed(); });
    } catch (error) {
      this.fail(error);
    }
    node.finish ??= 'stop';
    if (node.reasoning) node.thinkingMs ??= performance.now() - this.started;
    node.stats = this.figures();
  }

  fail(error) {
    this.node.finish = error.name === 'AbortError' ? 'aborted' : 'error';
    if (this.node.finish === 'aborted') return;
    this.error = error;
    this.node.error = error.message;
    if (error.retry) this.node.retry = error.retry;
  }

  take(chunk) {
    const { node } = this;
    if (chunk.usage) {
      this.tokens = chunk.usage.completion_tokens;
      node.context = chunk.usage.total_tokens;
    }
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const { delta = {} } = choice;
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (reasoning || delta.content || delta.tool_calls) this.arrived();
    if (reasoning) node.reasoning = (node.reasoning ?? '') + reasoning;
    if ((delta.content || delta.tool_calls) && node.reasoning) node.thinkingMs ??= performance.now() - this.started;
    if (delta.content) node.content += delta.content;
    for (const piece of delta.tool_calls ?? []) this.takeCall(piece);
    if (choice.finish_reason) node.finish = choice.finish_reason;
  }

  arrived() {
    this.last = performance.now();
    if (this.first !== undefined) return;
    this.first = this.last;
    this.tokensAtFirst = Math.max(1, this.tokens);
  }

  takeCall(piece) {
    const calls = this.node.calls ??= [];
    const call = calls[piece.index ?? 0] ??= { id: piece.id ?? newId(), name: '', arguments: '' };
    call.name += piece.function?.name ?? '';
    call.arguments += piece.function?.arguments ?? '';
  }

  // Tokens in a second count from the first token on, so that the prompt has no part in it.
  figures() {
    if (this.first === undefined) return this.node.stats;
    const seconds = (this.last - this.first) / 1000;
    const rate = seconds > 0.05 ? (this.tokens - this.tokensAtFirst) / seconds : 0;
    return { firstMs: this.first - this.started, tokens: this.before + this.tokens, rate: Math.max(0, rate) };
  }
}
