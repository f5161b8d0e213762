// A small plot of one or two values over time, as SVG whose colours are those of the theme.

const PLOT = { width: 300, height: 72, samples: 150 };

class Plot {
  // `series` are the names of its lines; `format` makes a text of a value; `top` is the least upper
  // end of the scale.
  constructor(title, series, { format = (value) => formatNumber(value), top = 1 } = {}) {
    Object.assign(this, { title, format, top, values: series.map(() => []) });
    this.now = series.map((name, index) => el('span', { class: 'line' + index }, el('b', { text: '–' }), name && ' ' + name));
    this.scale = el('span', { class: 'scale' });
    this.areas = series.map((_, index) => svg('path', { class: 'area line' + index }));
    this.lines = series.map((_, index) => svg('path', { class: 'stroke line' + index }));
    this.picture = svg('svg', { class: 'plot', role: 'img', viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, preserveAspectRatio: 'none' },
      svg('path', { class: 'grid', d: `M0 ${PLOT.height / 2}H${PLOT.width}M0 1H${PLOT.width}` }), ...this.areas, ...this.lines);
    this.element = el('section', { class: 'figure' },
      el('header', {}, el('h3', { text: title }), el('span', { class: 'now' }, ...this.now)),
      el('div', { class: 'frame' }, this.picture, this.scale));
  }

  // One value for each series; null where there is none.
  add(...values) {
    this.values.forEach((list, index) => {
      list.push(values[index]);
      if (list.length > PLOT.samples) list.shift();
    });
    this.draw();
  }

  draw() {
    const highest = Math.max(this.top, ...this.values.flat().filter((value) => value !== null));
    const top = roundUp(highest);
    this.values.forEach((list, index) => {
      const line = this.path(list, top);
      const first = PLOT.width - (list.length - 1) * this.step();
      this.lines[index].setAttribute('d', line);
      this.areas[index].setAttribute('d', line && `${line}L${PLOT.width} ${PLOT.height}L${first} ${PLOT.height}Z`);
      const last = list.at(-1);
      this.now[index].firstChild.textContent = last === null || last === undefined ? '–' : this.format(last);
    });
    this.scale.textContent = this.format(top);
    this.picture.setAttribute('aria-label', this.title + ': ' + this.now.map((text) => text.textContent).join(', '));
  }

  step() { return PLOT.width / (PLOT.samples - 1); }

  path(list, top) {
    return list.map((value, index) => {
      const x = PLOT.width - (list.length - 1 - index) * this.step();
      const y = PLOT.height - 1 - (value ?? 0) / top * (PLOT.height - 3);
      return `${index === 0 ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`;
    }).join('');
  }
}

// The next of 1, 2, 5, 10, 20, ...
function roundUp(value) {
  const decade = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * decade).find((step) => step >= value * 0.999);
}
