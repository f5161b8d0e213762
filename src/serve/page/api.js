// The server, as the page sees it: requests with the key, errors with the server's own words, and
// the events of a stream. Addresses are relative, so the page works behind a proxy's prefix, too.

const CHAT_PATH = 'v1/chat/completions';

// `kind` is status (the server refused), network (no answer, or it broke off) or input (a setting of
// this page is not valid). `retry` is the number of seconds after which to come back.
class ApiError extends Error {
  constructor(kind, message, { status = 0, retry = 0 } = {}) {
    super(message);
    Object.assign(this, { kind, status, retry });
  }
}

async function call(path, { body, signal, key = apiKey() } = {}) {
  const headers = body ? { 'Content-Type': 'application/json' } : {};
  if (key) headers.Authorization = 'Bearer ' + key;
  let response;
  try {
    response = await fetch(path, { method: body ? 'POST' : 'GET', headers, signal, cache: 'no-store',
      body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('network', t('lost'));
  }
  if (!response.ok) throw await refusalOf(response);
  return response;
}

async function refusalOf(response) {
  const text = await response.text().catch(() => '');
  let message = text.slice(0, 500) || response.statusText;
  try { message = JSON.parse(text).error.message ?? message; } catch { /* not the server's JSON */ }
  const status = response.status;
  const retry = Math.min(3600, Number(response.headers.get('retry-after')) || 0);
  if (status === 401) return new ApiError('status', t(apiKey() ? 'keyWrong' : 'keyNeeded'), { status });
  const busy = status === 429 || status === 503;
  return new ApiError('status', t(busy ? 'busy' : 'status', status, message), { status, retry });
}

// The data of each server-sent event.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    while (true) {
      const { value, done: ended } = await reader.read();
      if (ended) return;
      text += value;
      let at = 0;
      for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', at)) {
        if (text.startsWith('data:', at)) yield text.slice(at + 5, end).trim();
        at = end + 1;
      }
      text = text.slice(at);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Calls `take` with each chunk of a streamed chat completion. Throws ApiError, or AbortError.
async function streamChat(body, signal, take) {
  const response = await call(CHAT_PATH, { body, signal });
  let complete = false;
  try {
    for await (const data of eventsOf(response)) {
      complete = data === '[DONE]';
      if (complete) break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError('status', chunk.error.message ?? data, { status: 200 });
      take(chunk);
    }
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof ApiError) throw error;
    throw new ApiError('network', t('lost'));
  }
  if (!complete) throw new ApiError('network', t('broken'));
}

// The body of a request for the answer at `node`. A continued answer is the last message.
function requestBody(chat, node, { stream = true, continued = false } = {}) {
  const messages = messagesBefore(chat, node);
  if (continued) messages.push(messageOf(node));
  const body = { model: chat.model || 'default', messages, ...requestFields(chat.settings) };
  if (continued) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  if (stream) Object.assign(body, { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } });
  return body;
}

// The same request for a shell. The key stays out of it: the clipboard is everybody's.
function curlOf(chat, node) {
  const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
  const key = apiKey() ? ' \\\n  -H "Authorization: Bearer $KEY"' : '';
  return `curl ${quoted(new URL(CHAT_PATH, location.href).href)}${key} \\\n  -H 'Content-Type: application/json' \\\n` +
    `  -d ${quoted(JSON.stringify(requestBody(chat, node, { stream: false }), null, 1))}`;
}
