// Draws the charts of a page with Plotly, from the numbers in #chart-data; the tables below them are in the page.
// Each chart has its own tools: logarithmic axis, zoom, PNG, CSV. The page's controls set the x axis and the smoothing of all.
(() => {
  const holder = document.getElementById("chart-data");
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  if (!holder || !figures.length) return;
  if (typeof Plotly === "undefined") {
    for (const note of document.querySelectorAll(".no-plotly")) note.hidden = false;
    return;
  }
  const { sources, charts, shared } = JSON.parse(holder.textContent);
  const DASHES = ["solid", "dash", "dot"], MARKS = ["circle", "square", "diamond"];
  const AXES = { step: translate("step"), tokens: translate("tokens sampled"), seconds: translate("time") };
  const MANY = 40;  // lines with fewer points are smoothed only if the reader asks for it
  const longest = Math.max(...sources.map((source) => source.step.length));
  const kept = (() => {  // a live page reloads itself
    try { return JSON.parse(sessionStorage.getItem("charts" + location.pathname)) ?? {}; } catch { return {}; }
  })();
  const state = { axis: kept.axis ?? "step", smoothing: kept.smoothing ?? (longest < MANY ? 0 : 0.6), chosen: kept.chosen ?? false, hidden: new Set(kept.hidden) };
  const keep = () => {
    try { sessionStorage.setItem("charts" + location.pathname, JSON.stringify({ ...state, hidden: [...state.hidden] })); } catch { /* private mode */ }
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
  // Plotly reads a few tags and entities in names.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const button = (text, label, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    if (label) made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };

  // The exponential moving average of TensorBoard, without the pull towards its start; gaps stay gaps.
  const smooth = (values) => {
    const weight = state.smoothing;
    if (!weight || (!state.chosen && values.filter((value) => value !== null).length < MANY)) return values;
    let last = 0, total = 0;
    return values.map((value) => {
      if (value === null) return null;
      last = weight * last + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return last / total;
    });
  };
  const units = () => {
    const most = Math.max(0, ...sources.map((source) => source.seconds?.at(-1) ?? 0));
    return most > 7200 ? [3600, translate("hours")] : most > 120 ? [60, translate("minutes")] : [1, translate("seconds")];
  };
  const positions = (source) => {
    const along = source[state.axis];
    if (!along) return source.step;
    return state.axis === "seconds" ? along.map((second) => second / units()[0]) : along;
  };
  const axisName = (chart) => {
    const known = chart.series.every((line) => sources[line.source][state.axis]);
    if (!known) return AXES.step;
    return state.axis === "seconds" ? units()[1] : AXES[state.axis];
  };
  const keyOf = (chart, line) => shared ? line.name : `${chart.title}: ${line.name}`;
  const points = (xs, ys) => {  // without gaps, so that lines connect points of sparse metrics
    const there = ys.flatMap((y, i) => y === null ? [] : [i]);
    return { x: there.map((i) => xs[i]), y: there.map((i) => ys[i]) };
  };

  const traces = (chart) => {
    const made = [];
    let number = 0;
    for (const line of chart.series) {
      const xs = positions(sources[line.source]);
      if (line.faint) {
        made.push({ ...points(xs, smooth(line.y)), mode: "lines", hoverinfo: "skip", showlegend: false, line: { color: faded(colour("--muted"), 0.35), width: 1 } });
        continue;
      }
      const hue = colour(`--k${number % 6 + 1}`), style = (number + Math.floor(number / 6)) % 3;
      const visible = !state.hidden.has(keyOf(chart, line));
      number += 1;
      if (line.low) {
        const low = points(xs, smooth(line.low)), high = points(xs, smooth(line.high));
        const edge = { mode: "lines", hoverinfo: "skip", showlegend: false, visible, line: { width: 0, color: hue } };
        made.push({ ...edge, ...low }, { ...edge, ...high, fill: "tonexty", fillcolor: faded(hue, 0.14) });
      }
      const raw = points(xs, line.y), few = raw.x.length < 30;
      if (state.smoothing && !shared) {
        made.push({ ...raw, mode: "lines", hoverinfo: "skip", showlegend: false, visible, line: { color: faded(hue, 0.35), width: 1 } });
      }
      made.push({
        ...points(xs, smooth(line.y)), name: plain(line.name), visible, mode: few ? "lines+markers" : "lines",
        line: { color: hue, width: 2, dash: DASHES[style] }, marker: { size: 6, symbol: MARKS[style] },
        hovertemplate: `%{y:${chart.share ? ".1%" : ".4~g"}}<extra>${plain(line.name.slice(0, 24))}</extra>`, meta: line.name,
      });
    }
    return made;
  };

  const range = (chart) => {  // of a share: from 0, and to 100 % unless all is far below
    const values = chart.series.flatMap((line) => [...line.y, ...(line.high ?? [])]).filter((value) => value !== null);
    const highest = values.reduce((most, value) => Math.max(most, value), 0);
    return [-0.02, highest < 0.5 ? Math.max(1.05 * highest, 0.1) : 1.02];
  };
  const layout = (figure, chart) => {
    const muted = colour("--muted"), line = colour("--line"), log = figure.dataset.log === "true";
    const common = { gridcolor: line, zeroline: false, linecolor: muted, tickcolor: line, automargin: true, fixedrange: false, exponentformat: "e" };
    const few = axisName(chart) === AXES.step && longest <= 8 ? { dtick: 1 } : {};
    const y = { ...common, tickformat: chart.share ? ".3~%" : "", type: log ? "log" : "linear", nticks: 5, uirevision: log };
    if (chart.share && !log) y.range = range(chart);
    return {
      autosize: true, height: 250, margin: { l: 50, r: 14, t: 8, b: 40 }, showlegend: false, hovermode: "x unified",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",  // fingers scroll the page
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", uirevision: state.axis,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: muted },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: muted, font: { color: colour("--ink"), size: 12.5 }, namelength: -1 },
      xaxis: { ...common, nticks: 7, ...few, title: { text: axisName(chart), standoff: 4, font: { size: 12 } }, unifiedhovertitle: { text: `${axisName(chart)} %{x:,.6~g}` } },
      yaxis: y,
    };
  };
  const config = { displayModeBar: false, responsive: true, doubleClick: "reset+autosize", showTips: false, plotlyServerURL: "" };

  const draw = (figure) => {
    const chart = charts[figure.dataset.chart], plot = figure.querySelector(".plot");
    figure.dataset.drawn = "true";
    return Plotly.react(plot, traces(chart), layout(figure, chart), config);
  };
  const redraw = () => figures.filter((figure) => figure.dataset.drawn).forEach(draw);

  const zoom = (plot, factor, shift = 0) => {
    const [low, high] = plot._fullLayout.xaxis.range, half = (high - low) / 2, middle = low + half + shift * half;
    return Plotly.relayout(plot, { "xaxis.range": [middle - half * factor, middle + half * factor] });
  };
  const unzoom = (figure) => {
    const chart = charts[figure.dataset.chart], fixed = chart.share && figure.dataset.log !== "true";
    const y = fixed ? { "yaxis.range": range(chart) } : { "yaxis.autorange": true };
    return Plotly.relayout(figure.querySelector(".plot"), { "xaxis.autorange": true, ...y });
  };
  const save = (blobOrUrl, name) => {
    const link = document.createElement("a");
    link.download = name;
    link.href = typeof blobOrUrl === "string" ? blobOrUrl : URL.createObjectURL(blobOrUrl);
    link.click();
  };
  const png = async (figure) => {
    const chart = charts[figure.dataset.chart], several = chart.series.length > 1;
    const shown = layout(figure, chart), now = figure.querySelector(".plot").layout;
    for (const axis of ["xaxis", "yaxis"]) Object.assign(shown[axis], { range: now[axis].range, autorange: now[axis].autorange });
    Object.assign(shown, { paper_bgcolor: colour("--card"), showlegend: several, title: { text: plain(chart.title) }, height: 500, width: 900 });
    shown.margin = { l: 70, r: 30, t: 60, b: 60 };
    save(await Plotly.toImage({ data: traces(chart), layout: shown }, { format: "png", width: 900, height: 500, scale: 2 }), `${figure.dataset.chart}.png`);
  };
  // Names begin with the title, so that no text of a user begins a cell, which a spreadsheet could take for a formula.
  const csv = (chart) => {
    const quoted = (text) => /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    const blocks = chart.series.filter((line) => !line.faint).map((line) => {
      const source = sources[line.source], columns = { ...source, [`${chart.title}: ${line.name}`]: line.y };
      if (line.low) Object.assign(columns, { [`${chart.title}: ${line.name}, ${translate("lower edge")}`]: line.low, [`${chart.title}: ${line.name}, ${translate("upper edge")}`]: line.high });
      return columns;
    });
    const names = [...new Set(blocks.flatMap(Object.keys))], sameSource = new Set(chart.series.map((line) => line.source)).size === 1;
    const merged = sameSource ? [Object.assign({}, ...blocks)] : blocks;
    const rows = merged.flatMap((columns) => columns.step.map((_, i) => names.map((name) => columns[name]?.[i] ?? "").join(",")));
    return [names.map(quoted).join(","), ...rows].join("\n") + "\n";
  };

  // The keyboard reads points one by one: ← →, zooms with + and -, and returns with 0.
  const readout = (figure, move) => {
    const plot = figure.querySelector(".plot"), lines = plot._fullData.filter((trace) => trace.meta && trace.visible === true && trace.x.length);
    if (!lines.length) return;
    const xs = [...new Set(lines.flatMap((trace) => trace.x))].sort((a, b) => a - b);
    const at = figure.reading === undefined ? -1 : xs.indexOf(figure.reading);
    const i = move === "first" ? 0 : move === "last" ? xs.length - 1 : Math.min(xs.length - 1, Math.max(0, at + move));
    figure.reading = xs[i];
    const shown = lines.map((trace) => [trace, trace.x.indexOf(xs[i])]).filter(([, point]) => point >= 0);
    Plotly.Fx.hover(plot, shown.map(([trace, point]) => ({ curveNumber: trace.index, pointNumber: point })));
    const chart = charts[figure.dataset.chart];
    const text = (value) => chart.share ? `${(100 * value).toFixed(1)} %` : `${Number(value.toPrecision(4))}`;
    figure.querySelector(".readout").textContent = `${axisName(chart)} ${Number(xs[i].toPrecision(6))}: ` +
      shown.map(([trace, point]) => `${lines.length > 1 ? `${trace.meta} ` : ""}${text(trace.y[point])}`).join(", ");
  };
  const KEYS = {
    ArrowRight: (figure) => readout(figure, 1), ArrowLeft: (figure) => readout(figure, -1),
    PageDown: (figure) => readout(figure, 10), PageUp: (figure) => readout(figure, -10),
    Home: (figure) => readout(figure, "first"), End: (figure) => readout(figure, "last"),
    "+": (figure) => zoom(figure.querySelector(".plot"), 0.5), "=": (figure) => zoom(figure.querySelector(".plot"), 0.5),
    "-": (figure) => zoom(figure.querySelector(".plot"), 2), "0": unzoom,
  };

  const prepare = (figure) => {
    const chart = charts[figure.dataset.chart], plot = figure.querySelector(".plot");
    figure.querySelector("details.numbers").open = false;
    plot.hidden = false;
    plot.tabIndex = 0;
    plot.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight + - 0");
    plot.addEventListener("keydown", (event) => {
      const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
      if (!act) return;
      event.preventDefault();
      act(figure);
    });
    const status = document.createElement("p");
    status.className = "readout";
    status.setAttribute("aria-live", "polite");
    plot.after(status);

    const tools = document.createElement("div");
    tools.className = "tools";
    tools.setAttribute("role", "group");
    tools.setAttribute("aria-label", translate("{chart}: tools", { chart: chart.title }));
    const log = button(translate("Log"), translate("Log y axis"), () => {
      figure.dataset.log = figure.dataset.log !== "true";
      log.setAttribute("aria-pressed", figure.dataset.log);
      unzoomed();
    });
    const unzoomed = () => draw(figure).then(() => unzoom(figure));
    log.setAttribute("aria-pressed", "false");
    log.disabled = !chart.series.some((line) => line.y.some((value) => value > 0));
    log.title = translate("Logarithmic y axis; values of 0 and below are left out");
    tools.append(
      log, button("+", translate("Zoom in"), () => zoom(plot, 0.5)), button("−", translate("Zoom out"), () => zoom(plot, 2)),
      button(translate("Reset"), translate("Reset the zoom"), () => unzoom(figure)), button("PNG", translate("Download as PNG"), () => png(figure)),
      button("CSV", translate("Download the numbers as CSV"), () => save(new Blob([csv(chart)], { type: "text/csv" }), `${figure.dataset.chart}.csv`)),
    );
    plot.before(tools);

    const lines = chart.series.filter((line) => !line.faint);
    figure.querySelectorAll(".legend li").forEach((item) => {
      const key = keyOf(chart, lines[item.dataset.line]), toggle = button("", "", () => {
        if (!state.hidden.delete(key)) state.hidden.add(key);
        keep();
        for (const each of document.querySelectorAll(".legend button")) {
          if (each.dataset.key === key) each.setAttribute("aria-pressed", !state.hidden.has(key));
        }
        redraw();
      });
      toggle.dataset.key = key;
      toggle.title = translate("Show or hide this line");
      toggle.setAttribute("aria-pressed", !state.hidden.has(key));
      toggle.append(...item.childNodes);
      item.append(toggle);
    });
  };

  const controls = (holder) => {
    const axis = document.createElement("select"), slider = document.createElement("input"), value = document.createElement("output");
    for (const name of Object.keys(AXES).filter((name) => sources.some((source) => source[name]))) {
      axis.add(new Option(AXES[name], name));
    }
    axis.value = state.axis;
    axis.addEventListener("change", () => { state.axis = axis.value; keep(); redraw(); });
    Object.assign(slider, { type: "range", min: 0, max: 0.99, step: 0.01, value: state.smoothing });
    const someRaw = sources.some((source) => source.step.length < MANY);
    const tell = () => {
      const strength = state.smoothing.toFixed(2);
      if (!state.smoothing) value.textContent = translate("off");
      else if (state.chosen || !someRaw) value.textContent = strength;
      else value.textContent = translate("{strength} for lines of {count} points or more", { strength, count: MANY });
    };
    slider.addEventListener("input", () => { state.smoothing = Number(slider.value); state.chosen = true; tell(); keep(); redraw(); });
    tell();
    const labelled = (text, ...parts) => {
      const label = document.createElement("label");
      label.append(text, ...parts);
      return label;
    };
    const hint = document.createElement("span");
    hint.textContent = translate("Drag to zoom, double-click to return; with the keyboard: ← → read, + − zoom, 0 returns.");
    holder.append(labelled(`${translate("x axis")} `, axis), labelled(`${translate("Smoothing")} `, slider, value), hint);
    holder.hidden = false;
  };

  document.querySelectorAll(".chart-controls").forEach(controls);
  figures.forEach(prepare);
  // Charts are drawn when they come near the window, and the others when the browser has time.
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting && !target.dataset.drawn) draw(target);
  }, { rootMargin: "200px" });
  figures.forEach((figure) => seen.observe(figure));
  const idle = window.requestIdleCallback ?? ((act) => setTimeout(act, 50));
  const rest = () => {
    const next = figures.find((figure) => !figure.dataset.drawn);
    if (next) Promise.resolve(draw(next)).then(() => idle(rest));
  };
  addEventListener("load", () => idle(rest));
  addEventListener("beforeprint", () => figures.filter((figure) => !figure.dataset.drawn).forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
