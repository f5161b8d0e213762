// The texts of the page in its two languages, and the choice between them.

const LANGUAGES = ['en', 'zh'];

// {0}, {1} stand for what t() is given.
const STRINGS = {
  skip: ['Skip to the message box', '跳到输入框'],
  chats: ['Chats', '对话'],
  newChat: ['New chat', '新对话'],
  search: ['Search chats', '搜索对话'],
  noMatch: ['No chat has these words.', '没有包含这些字词的对话。'],
  noChats: ['Chats are kept in this browser only.', '对话只保存在本浏览器中。'],
  importChats: ['Import chats', '导入对话'],
  exportChats: ['Export all chats', '导出全部对话'],
  imported: ['{0} chats imported', '已导入 {0} 个对话'],
  notImported: ['Nothing was imported: {0}', '未导入：{0}'],
  noSuchFile: ['the file is no export of this page', '该文件不是本页面导出的'],
  language: ['中文', 'English'],
  themeAuto: ['Theme: as the system', '主题：跟随系统'],
  themeLight: ['Theme: light', '主题：浅色'],
  themeDark: ['Theme: dark', '主题：深色'],
  close: ['Close', '关闭'],
  remove: ['Delete chat', '删除对话'],
  removed: ['Chat deleted', '对话已删除'],
  undo: ['Undo', '撤销'],
  rename: ['Rename chat', '重命名对话'],
  today: ['Today', '今天'],
  yesterday: ['Yesterday', '昨天'],
  earlier: ['Earlier', '更早'],
  model: ['Model', '模型'],
  server: ['Server', '服务器'],
  settings: ['Settings', '设置'],
  conversation: ['Conversation', '对话内容'],
  toEnd: ['To the end', '到底部'],
  ask: ['Ask anything', '想问点什么？'],
  send: ['Send', '发送'],
  stop: ['Stop', '停止'],
  hint: ['Enter sends, Shift+Enter starts a line', 'Enter 发送，Shift+Enter 换行'],
  contextUse: ['{0} of {1} tokens', '{0} / {1} 词元'],
  greeting: ['What is on your mind?', '今天想聊什么？'],
  greetingNote: ['{0}, running on this server. Chats stay in this browser.',
    '{0}，运行在本服务器上。对话只保存在本浏览器中。'],
  try1: ['What is the capital of France?', '法国的首都是哪里？'],
  try2: ['What is 27 + 45?', '27 + 45 等于多少？'],
  try3: ['Explain step by step how a sailing boat moves against the wind.', '请逐步解释帆船如何逆风航行。'],
  you: ['You', '你'],
  assistant: ['Assistant', '助手'],
  toolResult: ['Result of {0}', '{0} 的结果'],
  toolResultHint: ['What the tool answered', '填写工具返回的内容'],
  sendResults: ['Send results', '发送结果'],
  thinking: ['Thinking', '思考中'],
  thought: ['Thought for {0}', '思考了 {0}'],
  calls: ['Calls {0}', '调用 {0}'],
  copy: ['Copy', '复制'],
  copied: ['Copied', '已复制'],
  notCopied: ['The browser did not allow copying', '浏览器不允许复制'],
  curl: ['Copy as curl', '复制为 curl 命令'],
  edit: ['Edit', '编辑'],
  save: ['Send again', '重新发送'],
  cancel: ['Cancel', '取消'],
  regenerate: ['Another answer', '重新生成'],
  goOn: ['Continue the answer', '继续生成'],
  previous: ['Previous version', '上一个版本'],
  next: ['Next version', '下一个版本'],
  version: ['{0} of {1}', '{0} / {1}'],
  speed: ['{0} tokens/s', '{0} 词元/秒'],
  firstToken: ['first token {0}', '首词元 {0}'],
  tokens: ['{0} tokens', '{0} 词元'],
  cutLength: ['The length limit cut this answer off.', '回答因长度上限而中断。'],
  cutStop: ['Stopped.', '已停止。'],
  generating: ['The answer is being written', '正在生成回答'],
  answered: ['Answer: {0}', '回答：{0}'],
  retry: ['Try again', '重试'],
  retryIn: ['Try again (best in {0} s)', '重试（建议 {0} 秒后）'],
  lost: ['The connection to the server was lost. What had arrived is kept.',
    '与服务器的连接已断开，已收到的内容均已保留。'],
  unreachable: ['The server does not answer. Waiting for it…', '服务器没有响应，正在等待……'],
  broken: ['The answer ended early: the server closed the connection.', '回答提前结束：服务器关闭了连接。'],
  status: ['The server answered {0}: {1}', '服务器返回 {0}：{1}'],
  busy: ['The server is busy: {1}', '服务器繁忙：{1}'],
  notReady: ['Not ready yet: {0}', '尚未就绪：{0}'],
  keyNeeded: ['This server asks for an API key.', '该服务器需要 API 密钥。'],
  keyWrong: ['The server does not take this API key.', '服务器不接受这个 API 密钥。'],
  key: ['API key', 'API 密钥'],
  keyNote: ['Kept until this tab is closed, and sent to this server only.', '仅保存到关闭此标签页为止，且只发送给本服务器。'],
  use: ['Use', '使用'],
  badTools: ['The tools are not valid: {0}', '工具定义无效：{0}'],
  badSchema: ['The JSON Schema is not valid: {0}', 'JSON Schema 无效：{0}'],
  wantList: ['a JSON list of functions', '应为函数的 JSON 列表'],
  wantObject: ['a JSON object', '应为 JSON 对象'],
  noStorage: ['The browser keeps no data for this page: chats are lost when it is closed.',
    '浏览器不为本页面保存数据：关闭后对话将丢失。'],
  imageOf: ['Image: {0}', '图片：{0}'],
  system: ['System prompt', '系统提示词'],
  systemHint: ['You are a helpful assistant.', '你是一个乐于助人的助手。'],
  sampling: ['Sampling', '采样'],
  samplingNote: ['An empty field leaves the choice to the server.', '留空则由服务器决定。'],
  temperature: ['Temperature', '温度'],
  top_p: ['Top p', 'Top p'],
  top_k: ['Top k', 'Top k'],
  max_tokens: ['Max tokens', '最大词元数'],
  repetition_penalty: ['Repetition penalty', '重复惩罚'],
  presence_penalty: ['Presence penalty', '存在惩罚'],
  frequency_penalty: ['Frequency penalty', '频率惩罚'],
  seed: ['Seed', '随机种子'],
  anySeed: ['new each time', '每次不同'],
  asFits: ['no limit', '不限'],
  stops: ['Stop strings, one on each line', '停止串，每行一个'],
  thinkingMode: ['Thinking', '思考'],
  thinkingDefault: ['As the model does', '由模型决定'],
  thinkingOn: ['On', '开启'],
  thinkingOff: ['Off', '关闭'],
  schema: ['Answer as JSON of this schema', '按此 JSON Schema 回答'],
  tools: ['Tools (JSON list)', '工具（JSON 列表）'],
  toolsNote: ['The model may call them; you write their results.', '模型可以调用，由你填写结果。'],
  access: ['Access', '访问'],
  reset: ['Back to the defaults', '恢复默认'],
  settingsNote: ['These belong to this chat; a new chat starts with the last ones.',
    '这些设置属于当前对话；新对话沿用上一次的设置。'],
  shortcuts: ['Keys', '快捷键'],
  keySearch: ['search chats', '搜索对话'],
  keyNew: ['new chat', '新对话'],
  keyStop: ['stop, close', '停止、关闭'],
  keyEdit: ['in the empty box: edit the last message', '输入框为空时：编辑上一条消息'],
  generated: ['Tokens generated per second', '每秒生成词元'],
  queue: ['Requests', '请求'],
  running: ['running', '运行中'],
  waiting: ['waiting', '等待中'],
  cache: ['KV cache in use', 'KV 缓存占用'],
  meanFirst: ['First token, mean', '首词元平均时间'],
  prefixHits: ['Prompt found in cache', '提示词缓存命中'],
  requests: ['Requests so far', '累计请求'],
  totalTokens: ['Tokens so far', '累计词元'],
  about: ['About this server', '关于本服务器'],
  version_: ['Version', '版本'],
  architecture: ['Architecture', '架构'],
  device: ['Device', '设备'],
  dtype: ['Precision', '精度'],
  maxLength: ['Context', '上下文长度'],
  maxSeqs: ['Batch', '批大小'],
  lastMinutes: ['The last {0} minutes; asked every 2 s while this is open.',
    '最近 {0} 分钟；打开时每 2 秒查询一次。'],
};

let language = 'en';

function chooseLanguage(name) {
  language = LANGUAGES.includes(name) ? name : 'en';
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
}

// navigator.languages is in the order of the user's preference.
function preferredLanguage() {
  const known = (navigator.languages ?? []).map((tag) => tag.slice(0, 2).toLowerCase());
  return known.find((tag) => LANGUAGES.includes(tag)) ?? 'en';
}

function t(key, ...values) {
  const text = STRINGS[key][LANGUAGES.indexOf(language)];
  return text.replace(/\{(\d)\}/g, (_, index) => values[index]);
}

function formatNumber(value, digits = 0) {
  return value.toLocaleString(language === 'zh' ? 'zh-CN' : 'en', { maximumFractionDigits: digits });
}

// Milliseconds as "0.21 s", "12 s" or "3 min 5 s".
function formatTime(ms) {
  const seconds = ms / 1000;
  const [min, s] = language === 'zh' ? [' 分 ', ' 秒'] : [' min ', ' s'];
  if (seconds >= 60) return Math.floor(seconds / 60) + min + Math.round(seconds % 60) + s;
  return formatNumber(seconds, seconds < 1 ? 2 : seconds < 10 ? 1 : 0) + s;
}
