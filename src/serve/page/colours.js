// Colours of code, line by line: comments, strings, numbers, and words that are keywords in most
// languages. No language is parsed, so what spans several lines takes no colour; that is better than
// a wrong one, and enough to read by.

const LONGEST_COLOURED = 1000;  // characters of a line

const COMMENTS = {
  '#': 'bash cmake console dockerfile julia make makefile nix perl py python r rb ruby sh shell toml yaml yml zsh',
  '//': 'c cc cpp cs csharp c++ cuda cu dart go h hpp java javascript js jsx kotlin kt php proto rs rust scala scss swift ts tsx typescript zig',
  '--': 'ada elm haskell hs lua sql',
};
const KEYWORDS = `abstract and as assert async await auto bool boolean break case catch char class const constexpr continue
  def default del delete do done double elif else end enum esac except export extends extern false False fi final finally
  float fn for foreach from func function if impl implements import in include int interface is lambda let local long loop
  match module mut namespace new nil None not null nullptr or package pass private protected pub public raise return self
  short signed sizeof static string struct super switch template then this throw throws trait true True try type typedef
  typename union unsigned use using var virtual void volatile where while with yield`;
const SQL = `select insert update delete create table join left inner on group order by having limit values into set`;

// By the name behind a fence; undefined for languages without colours.
const CODE_PARTS = Object.fromEntries(Object.entries(COMMENTS).flatMap(([mark, names]) => {
  const sql = mark === '--' ? ` ${SQL} ${SQL.toUpperCase()} FROM WHERE AND OR NOT NULL AS` : '';
  const keywords = (KEYWORDS + sql).split(/\s+/).join('|');
  const comment = mark === '#' ? '(?<![\\w$&])#' : mark;
  const parts = new RegExp(`(?<comment>${comment}.*)|(?<string>"(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*'|\`[^\`]*\`)|` +
    `(?<number>\\b\\d[\\w.]*\\b)|(?<keyword>\\b(?:${keywords})\\b)`, 'g');
  return names.split(' ').map((name) => [name, parts]);
}));

// A line as nodes: texts, and spans whose class is what they are.
function coloured(line, language) {
  const name = language.toLowerCase();
  const parts = Object.hasOwn(CODE_PARTS, name) && line.length <= LONGEST_COLOURED ? CODE_PARTS[name] : null;
  if (!parts) return [line];
  const nodes = [];
  let at = 0;
  for (const found of line.matchAll(parts)) {
    const kind = Object.keys(found.groups).find((key) => found.groups[key] !== undefined);
    nodes.push(line.slice(at, found.index), el('span', { class: kind, text: found[0] }));
    at = found.index + found[0].length;
  }
  nodes.push(line.slice(at));
  return nodes.filter((node) => node !== '');
}
