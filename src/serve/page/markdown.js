// The blocks of Markdown, written into an element while it arrives: paragraphs, headings, lists,
// quotes, fenced code, tables, rules. A line is held back only until its kind is known; what has
// been written is not looked at again. Items and quotes hold a writer of their own for their lines.

const MAX_BLOCKS = 8;       // lists and quotes inside each other
const MAX_HELD_LINE = 4000; // characters of a line that might be a row of a table
const CODE_CHUNK = 64;      // lines of code in one element, so that the browser lays out little anew

const MAX_COLOURED = 2000;  // lines of code in one block that take colours

// The start of a line that says nothing yet about the kind of the line.
const UNDECIDED = /^\s*(#{1,6}|[+>]|[-*_](\s*[-*_])*|\d{1,9}[.)]?|`{1,2}|~{1,2})?\s*$/;
const FENCE = /^(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const RULE = /^([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(?:([-*+])|(\d{1,9})[.)])(\s+|$)/;
const DELIMITERS = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

class Paragraph {
  constructor(root, tag = 'p') {
    this.inline = new InlineWriter(root.appendChild(el(tag)));
    this.started = false;
  }
  line(text) {
    this.inline.push((this.started ? '\n' : '') + text);
    this.started = true;
  }
  write(text) { this.inline.push(text); }
  endLine() {}
  close() { this.inline.end(); }
}

class CodeBlock {
  constructor(root, fence, indent) {
    [, this.fence, this.language] = fence;
    this.indent = indent;
    this.code = el('code');
    this.lines = 0;
    root.append(el('figure', { class: 'code' },
      el('figcaption', {}, el('span', { text: fence[2] }), copyButton(() => this.code.textContent)),
      el('pre', { tabindex: 0 }, this.code)));
  }
  ends(text) {
    const mark = text.trim();
    return mark.length >= this.fence.length && mark === this.fence[0].repeat(mark.length);
  }
  line(text) {
    if (this.lines++ % CODE_CHUNK === 0) this.chunk = this.code.appendChild(el('span'));
    let skip = 0;
    while (skip < this.indent && text[skip] === ' ') ++skip;
    this.chunk.append(this.last = document.createTextNode(text.slice(skip)));
  }
  write(text) { this.last.appendData(text); }
  // A line takes its colours when it is whole.
  endLine() {
    if (!this.last) return;
    if (this.lines <= MAX_COLOURED) this.last.replaceWith(...coloured(this.last.data, this.language));
    this.chunk.append('\n');
    this.last = null;
  }
  close() {}
}

class Table {
  constructor(root, head) {
    this.root = root;
    this.head = head;
  }
  static cells(line) {
    const cells = [''];
    let code = false;
    for (let at = 0; at < line.length; ++at) {
      if (line[at] === '`') code = !code;
      if (line[at] === '\\' && line[at + 1] === '|') cells[cells.length - 1] += line[++at];
      else if (line[at] === '|' && !code) cells.push('');
      else cells[cells.length - 1] += line[at];
    }
    if (cells[0].trim() === '') cells.shift();
    if (cells.length > 1 && cells.at(-1).trim() === '') cells.pop();
    return cells.map((cell) => cell.trim());
  }
  // The line below the head: false if it does not make the head one.
  begin(line) {
    const marks = Table.cells(line);
    if (!DELIMITERS.test(line) || marks.length !== Table.cells(this.head).length) return false;
    this.sides = marks.map((mark) => (mark.endsWith(':') ? (mark.startsWith(':') ? 'center' : 'right') : 'left'));
    this.body = el('tbody');
    this.root.append(el('div', { class: 'table', tabindex: 0 },
      el('table', {}, el('thead', {}, this.row(this.head, 'th')), this.body)));
    return true;
  }
  row(line, tag) {
    const cells = Table.cells(line);
    return el('tr', {}, ...this.sides.map((side, index) => {
      const cell = el(tag, { class: side });
      const inline = new InlineWriter(cell);
      inline.push(cells[index] ?? '');
      inline.end();
      return cell;
    }));
  }
  line(text) { this.body.append(this.row(text, 'td')); }
  write() {}
  endLine() {}
  // A head that no row of marks has followed is a paragraph.
  close() {
    if (this.body) return;
    const plain = new Paragraph(this.root);
    plain.line(this.head);
    plain.close();
  }
}

class Quote {
  constructor(root, depth) { this.inner = new Markdown(root.appendChild(el('blockquote')), depth); }
  write(text) { this.inner.part(text); }
  endLine() { this.inner.newline(); }
  close() { this.inner.end(); }
}

class List {
  constructor(root, item, depth) {
    this.depth = depth;
    this.ordered = item[2] !== undefined;
    this.list = root.appendChild(el(this.ordered ? 'ol' : 'ul', this.ordered ? { start: item[2] } : {}));
    this.blank = false;  // the last line was empty
  }
  add(indent, item) {
    this.inner?.end();
    this.least = indent + 2;
    this.content = indent + Math.min(item[0].length, item[0].trimEnd().length + 4);
    this.inner = new Markdown(this.list.appendChild(el('li')), this.depth);
  }
  holds(indent) { return indent >= Math.min(this.least, this.content); }
  write(text) { this.inner.part(text); }
  endLine() { this.inner.newline(); }
  close() { this.inner.end(); }
}

class Markdown {
  constructor(root, depth = 0) {
    this.root = root;
    this.depth = depth;
    this.block = null;
    this.held = '';       // the start of a line whose kind is not known yet
    this.inLine = false;  // the rest of the line goes to `block`
  }

  push(text) {
    let at = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', at)) {
      this.part(text.slice(at, end).replace(/\r$/, ''));
      this.newline();
      at = end + 1;
    }
    this.part(text.slice(at));
  }

  end() {
    if (!this.inLine && this.held) this.begin(this.held);
    this.held = '';
    this.open(null);
  }

  part(text) {
    if (!text) return;
    if (this.inLine) return this.block?.write(text);
    this.held += text;
    if (this.isUndecided(this.held)) return;
    const line = this.held;
    this.held = '';
    this.begin(line);
  }

  newline() {
    if (!this.inLine) this.begin(this.held);
    this.held = '';
    this.inLine = false;
    this.block?.endLine();
  }

  open(block) {
    this.block?.close();
    this.block = block;
    return block;
  }

  isUndecided(line) {
    if (this.block instanceof CodeBlock) return /^\s*(`*|~*)\s*$/.test(line);
    if (/^\s*$/.test(line)) return true;
    const indent = /^\s*/.exec(line)[0].length;
    if (this.block instanceof List && this.block.holds(indent)) return false;
    const body = line.slice(indent);
    if (/^(\||```|~~~)/.test(body)) return body.length < MAX_HELD_LINE;
    return UNDECIDED.test(body);
  }

  // Takes a line, or a start of one that is long enough to know its kind. Tabs count as four spaces.
  begin(given) {
    const line = given.replace(/^\s+/, (space) => space.replace(/\t/g, '    '));
    const indent = /^ */.exec(line)[0].length;
    const body = line.slice(indent);
    this.inLine = true;
    if (this.block instanceof CodeBlock) return this.block.ends(body) ? this.open(null) : this.block.line(line);
    if (!body) return this.beginBlank();
    if (this.block instanceof List && this.continueList(line, indent, body)) return;
    if (this.block instanceof Table && this.continueTable(body)) return;
    this.beginBlock(indent, body);
  }

  beginBlank() {
    if (this.block instanceof List) this.block.blank = true;
    else this.open(null);
  }

  continueList(line, indent, body) {
    const list = this.block;
    const blank = list.blank;
    list.blank = false;
    if (list.holds(indent)) {
      list.write(line.slice(Math.min(indent, list.content)));
      return true;
    }
    const item = !RULE.test(body) && ITEM.exec(body);
    if (item && (item[2] !== undefined) === list.ordered) {
      list.add(indent, item);
      list.write(body.slice(item[0].length));
      return true;
    }
    if (blank || item || /^(#{1,6}\s|```|~~~|>|\|)/.test(body) || RULE.test(body)) return false;
    list.write(body);
    return true;
  }

  continueTable(body) {
    const table = this.block;
    if (!body.startsWith('|')) return false;
    if (!table.body) return table.begin(body);
    table.line(body);
    return true;
  }

  beginBlock(indent, body) {
    const nested = this.depth < MAX_BLOCKS;
    const heading = /^(#{1,6})\s+/.exec(body);
    if (heading) return this.beginHeading(heading, body);
    const fence = FENCE.exec(body);
    if (fence) return this.open(new CodeBlock(this.root, fence, indent));
    if (RULE.test(body)) {
      this.open(null);
      return this.root.append(el('hr'));
    }
    const quote = nested && /^> ?/.exec(body);
    if (quote) {
      if (!(this.block instanceof Quote)) this.open(new Quote(this.root, this.depth + 1));
      return this.block.write(body.slice(quote[0].length));
    }
    const item = nested && ITEM.exec(body);
    if (item) {
      this.open(new List(this.root, item, this.depth + 1)).add(indent, item);
      return this.block.write(body.slice(item[0].length));
    }
    if (body.startsWith('|') && body.length < MAX_HELD_LINE) return this.open(new Table(this.root, body));
    if (!(this.block instanceof Paragraph)) this.open(new Paragraph(this.root));
    this.block.line(body);
  }

  beginHeading(heading, body) {
    // The page has headings of its own above these.
    this.open(new Paragraph(this.root, 'h' + Math.min(6, heading[1].length + 2))).line(body.slice(heading[0].length));
    this.block.endLine = () => this.open(null);
  }
}
