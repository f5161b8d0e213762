// What the server tells about itself: its load over time from /metrics, and how it was started. It
// is asked only while the panel is open and the page is in view.

const ASK_MS = 2000;

// Sums over labels, by name, of the metrics that are shown.
function readMetrics(text) {
  const sums = {};
  for (const [, name, value] of text.matchAll(/^fastdeploy:(\w+)(?:\{[^}]*\})? (\S+)$/gm))
    sums[name] = (sums[name] ?? 0) + Number(value);
  return sums;
}

class ServerPanel {
  constructor(root) {
    this.root = root;
    this.build();
  }

  build() {
    const percent = (value) => formatNumber(100 * value, 1) + ' %';
    this.before = null;
    this.speed = new Plot(t('generated'), [''], { format: (value) => formatNumber(value, value < 10 ? 1 : 0), top: 10 });
    this.queue = new Plot(t('queue'), [t('running'), t('waiting')], { top: 4 });
    this.cache = new Plot(t('cache'), [''], { format: percent, top: 0.01 });
    this.facts = el('dl', { class: 'facts' });
    this.about = el('dl', { class: 'facts' });
    this.problem = el('p', { class: 'problem', role: 'status' });
    this.root.replaceChildren(panelHead(t('server')), this.problem, this.speed.element, this.queue.element, this.cache.element,
      this.facts, el('h3', { text: t('about') }), this.about,
      el('p', { class: 'note', text: t('lastMinutes', Math.round(PLOT.samples * ASK_MS / 60000)) }));
    this.showAbout();
  }

  get visible() { return !this.root.hidden && document.visibilityState === 'visible'; }

  start() {
    clearTimeout(this.timer);
    if (this.visible) this.ask();
  }

  async ask() {
    if (this.asking) return;
    this.asking = true;
    try {
      this.take(readMetrics(await (await call('metrics')).text()));
      this.problem.textContent = '';
    } catch (error) {
      this.before = null;
      this.problem.textContent = error.message;
    }
    this.asking = false;
    clearTimeout(this.timer);
    if (this.visible) this.timer = setTimeout(() => this.ask(), ASK_MS);
  }

  take(sums) {
    const now = { sums, at: performance.now() };
    const seconds = this.before ? (now.at - this.before.at) / 1000 : 0;
    const counted = (at) => at.sums.generation_tokens_total ?? 0;
    // A server that was started again counts from zero.
    const rate = seconds > 0 ? Math.max(0, counted(now) - counted(this.before)) / seconds : null;
    if (rate !== null) this.speed.add(rate);
    this.queue.add(sums.num_requests_running ?? null, sums.num_requests_waiting ?? null);
    this.cache.add(sums.gpu_cache_usage_perc ?? null);
    this.before = now;
    this.showFacts(sums);
  }

  showFacts(sums) {
    const mean = sums.time_to_first_token_seconds_sum / sums.time_to_first_token_seconds_count;
    const hits = sums.prefix_cache_hits_total / sums.prefix_cache_queries_total;
    this.facts.replaceChildren(...factRows([
      ['meanFirst', Number.isFinite(mean) ? formatTime(1000 * mean) : '–'],
      ['prefixHits', Number.isFinite(hits) ? formatNumber(100 * hits) + ' %' : '–'],
      ['requests', formatNumber(sums.requests_number ?? 0)],
      ['totalTokens', formatNumber(sums.generation_tokens_total ?? 0)]]));
  }

  setAbout(info) {
    this.info = info;
    serverDefaults = Object.fromEntries(Object.entries(info.sampling_defaults ?? {}).filter(([, value]) => value !== null));
    this.showAbout();
  }

  showAbout() {
    const info = this.info ?? {};
    const rows = [['model', info.model], ['version_', info.version], ['architecture', info.architecture], ['device', info.device],
      ['dtype', info.dtype], ['maxLength', info.max_model_len && formatNumber(info.max_model_len)], ['maxSeqs', info.max_num_seqs]];
    this.about.replaceChildren(...factRows(rows.filter(([, value]) => value !== undefined)));
  }
}

function factRows(rows) {
  return rows.flatMap(([name, value]) => [el('dt', { text: t(name) }), el('dd', { text: String(value) })]);
}

// Whether the server can be used: says in the banner what is in the way, and asks again until it is
// gone. A server that loads its model serves this page already.
const health = {
  async connect() {
    clearTimeout(this.timer);
    try {
      await call('health', { key: '' });
      app.models = (await (await call('v1/models')).json()).data ?? [];
      serverPanel.setAbout(await (await call('config-info')).json());
    } catch (error) {
      return this.showTrouble(error);
    }
    $('banner').replaceChildren();
    modelChoice.show();
    settingsPanel.show(conversation.chat);
    if (!conversation.chat.nodes.length) conversation.show(conversation.chat);
    serverPanel.start();
  },

  // After a break: the banner appears only if it lasts.
  watch() { this.timer = setTimeout(() => this.connect(), ASK_MS / 2); },

  showTrouble(error) {
    if (error.status === 401) return this.askForKey(error.message);
    const text = error.kind === 'network' ? t('unreachable') : t('notReady', error.message);
    if ($('banner').textContent !== text) $('banner').replaceChildren(el('p', { text }));
    this.timer = setTimeout(() => this.connect(), ASK_MS);
  },

  askForKey(text) {
    const field = el('input', { type: 'password', 'aria-label': t('key'), placeholder: t('key'), autocomplete: 'off' });
    const use = () => { setApiKey(field.value); this.connect(); };
    field.addEventListener('keydown', (event) => { if (event.key === 'Enter') use(); });
    $('banner').replaceChildren(el('p', { text }), el('div', { class: 'row' }, field, textButton(t('use'), use, 'primary')),
      el('p', { class: 'note', text: t('keyNote') }));
    field.focus();
  },
};
