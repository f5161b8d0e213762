// The inline part of Markdown, written into an element while it arrives: code, strong, emphasis,
// strikethrough, links, line breaks. What cannot be decided yet is shown as it is and looked at
// again; a mark whose end is further away than LOOKAHEAD is text. So the work is linear in the text.

const LOOKAHEAD = 2000;
const MAX_NESTING = 6;
const SPECIAL = /[\\`*_~[<]|!\[|https?:\/\//g;
const HALF_SPECIAL = /(?:!|(?<![A-Za-z0-9])h(?:t(?:t(?:p(?:s?(?::\/?)?)?)?)?)?)$/;
const WAIT = Symbol('more text is needed');
const isWord = (char) => /[\p{L}\p{N}]/u.test(char);
const isBlank = (char) => char === undefined || /\s/.test(char);

// http and https only; everything else, relative addresses too, stays text.
function webAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}

function linkTo(address) {
  return el('a', { href: address, rel: 'noopener noreferrer', target: '_blank', title: address });
}

class InlineWriter {
  constructor(parent, nesting = 0) {
    this.parent = parent;
    this.nesting = nesting;
    this.pending = '';   // not decided yet; shown by `tail`
    this.tail = null;
    this.last = null;    // the text node at the end, if text is the end
    this.before = '';    // the character before `pending`
  }

  push(text) {
    this.pending += text;
    this.advance(false);
  }

  end() {
    this.advance(true);
  }

  advance(final) {
    const text = this.pending;
    let start = 0;  // text from here to `at` means itself
    let at = 0;
    this.tail?.remove();
    this.tail = null;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const found = SPECIAL.exec(text);
      if (!found) {
        at = final ? text.length : text.length - (HALF_SPECIAL.exec(text)?.[0].length ?? 0);
        at = Math.max(at, start);
        break;
      }
      at = found.index;
      const open = !final && text.length - at < LOOKAHEAD;
      const part = this.parse(text, at, open);
      if (part === WAIT) break;
      if (part.node) {
        this.write(text.slice(start, at));
        this.parent.append(part.node);
        this.last = null;
        start = at + part.length;
      }
      at += part.length;
    }
    this.write(text.slice(start, at));
    if (at > 0) this.before = text[at - 1];
    this.pending = text.slice(at);
    if (this.pending) this.parent.append(this.tail = document.createTextNode(this.pending));
  }

  write(text) {
    if (!text) return;
    if (this.last) this.last.appendData(text);
    else this.parent.append(this.last = document.createTextNode(text));
  }

  // What stands at `at`: {node, length}, {length} of what is plain text, or WAIT if `open`.
  parse(text, at, open) {
    const ahead = text.slice(at, at + LOOKAHEAD);
    const before = at > 0 ? text[at - 1] : this.before;
    switch (ahead[0]) {
      case '\\': return this.escape(ahead, open);
      case '`': return this.code(ahead, open);
      case '[': return this.link(ahead, 0, open);
      case '!': return this.link(ahead, 1, open);
      case '<': return this.angle(ahead, open);
      case 'h': return isWord(before) ? { length: 4 } : this.address(ahead, open);
      default: return this.emphasis(ahead, before, open);
    }
  }

  escape(ahead, open) {
    if (ahead.length < 2) return open ? WAIT : { length: 1 };
    if (ahead[1] === '\n') return { node: el('br'), length: 2 };
    if (!/[!-/:-@[-`{-~]/.test(ahead[1])) return { length: 1 };
    return { node: document.createTextNode(ahead[1]), length: 2 };
  }

  code(ahead, open) {
    const mark = /^`+/.exec(ahead)[0];
    const length = mark.length;
    let end = ahead.indexOf(mark, length);
    while (end >= 0 && (ahead[end + length] === '`' || ahead[end - 1] === '`')) {
      while (ahead[end] === '`') ++end;
      end = ahead.indexOf(mark, end);
    }
    if (end < 0 || (open && end + length === ahead.length)) return open ? WAIT : { length };
    const text = ahead.slice(length, end).replace(/\n/g, ' ').replace(/^ (.*[^ ].*) $/, '$1');
    return { node: el('code', { text }), length: end + length };
  }

  emphasis(ahead, before, open) {
    const char = ahead[0];
    const run = /^(\*+|_+|~+)/.exec(ahead)[0].length;
    if (run === ahead.length) return open ? WAIT : { length: run };
    const tilde = char === '~';
    if (run > 3 || (tilde && run !== 2) || isBlank(ahead[run]) || (char === '_' && isWord(before)))
      return { length: run };
    const end = this.closing(ahead, char, run, open);
    if (end < 0) return open ? WAIT : { length: run };
    const node = el(tilde ? 'del' : run === 1 ? 'em' : 'strong');
    const inner = run === 3 ? node.appendChild(el('em')) : node;
    this.inside(inner, ahead.slice(run, end));
    return { node, length: end + run };
  }

  // Where a run of `run` marks ends the emphasis that begins `ahead`; -1 if nowhere.
  closing(ahead, char, run, open) {
    for (let at = ahead.indexOf(char, run); at >= 0; at = ahead.indexOf(char, at)) {
      let length = 0;
      while (ahead[at + length] === char) ++length;
      const after = at + length;
      const atEnd = after === ahead.length;
      if (atEnd && open) return -1;
      const closes = length >= run && (length === run || run !== 1) && !isBlank(ahead[at - 1]);
      if (closes && !(char === '_' && !atEnd && isWord(ahead[after]))) return after - run;
      at = after;
    }
    return -1;
  }

  inside(node, text) {
    if (this.nesting >= MAX_NESTING) return node.append(text);
    const writer = new InlineWriter(node, this.nesting + 1);
    writer.push(text);
    writer.end();
  }

  // [text](address) and, with one character before it, ![text](address). An image is never loaded,
  // because its address could carry away what was said here.
  link(ahead, from, open) {
    const close = this.bracketEnd(ahead, from);
    if (close < 0) return open ? WAIT : { length: from + 1 };
    if (close + 1 === ahead.length && open) return WAIT;
    if (ahead[close + 1] !== '(') return { length: from + 1 };
    const target = /^\(\s*<?((?:[^\s()<>]|\([^\s()]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(ahead.slice(close + 1));
    if (!target) return open && !ahead.includes('\n', close) ? WAIT : { length: from + 1 };
    const length = close + 1 + target[0].length;
    const address = webAddress(target[1]);
    const text = ahead.slice(from + 1, close);
    if (!address) return { node: document.createTextNode(ahead.slice(0, length)), length };
    const node = linkTo(address);
    if (from === 1) node.textContent = t('imageOf', text || address);
    else if (/https?:/.test(text)) node.textContent = text;
    else this.inside(node, text || address);
    return { node, length };
  }

  bracketEnd(ahead, from) {
    let depth = 0;
    for (let at = from; at < ahead.length; ++at) {
      if (ahead[at] === '\\') ++at;
      else if (ahead[at] === '[') ++depth;
      else if (ahead[at] === ']' && --depth === 0) return at;
    }
    return -1;
  }

  angle(ahead, open) {
    const tag = /^<(?:(br\s*\/?)|(https?:\/\/[^\s<>]+))>/i.exec(ahead);
    if (tag?.[1]) return { node: el('br'), length: tag[0].length };
    const address = tag && webAddress(tag[2]);
    if (!address) return open && /^<(b|br\s*\/?|h[^\s<>]*)?$/i.test(ahead) ? WAIT : { length: 1 };
    const node = linkTo(address);
    node.textContent = tag[2];
    return { node, length: tag[0].length };
  }

  address(ahead, open) {
    const whole = /^https?:\/\/[^\s<>"'`|。，、；：？！（）《》「」【】]*/.exec(ahead)[0];
    if (whole.length === ahead.length && open) return WAIT;
    const text = whole.replace(/[.,;:!?)\]*_~]+$/, '');
    const address = webAddress(text);
    if (!address) return { length: whole.length };
    const node = linkTo(address);
    node.textContent = text;
    return { node, length: text.length };
  }
}
