// Draws the points of a sweep in parallel coordinates: a line per point, over an axis per key and one for the accuracy.
(() => {
  const holder = document.getElementById("parallel-data"), figure = document.getElementById("parallel");
  if (!holder || !figure || typeof Plotly === "undefined") return;
  const { axes, points } = JSON.parse(holder.textContent), plot = figure.querySelector(".plot"), chosen = axes.map(() => "");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const results = points.map(([, result]) => result), low = Math.min(...results), high = Math.max(...results), span = high - low || 1;
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const place = (axis, value) => (value + 0.5) / axes[axis].values.length;
  // Equal lines would hide each other: each is moved a little, by its rank.
  const moved = (rank) => (rank / Math.max(1, points.length - 1) - 0.5) * 0.05;
  const mixed = (share) => {
    const [a, b] = [colour("--edge"), colour("--accent")].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    return `rgb(${a.map((part, i) => Math.round(part + share * (b[i] - part))).join(",")})`;
  };
  // A name breaks after dots and underscores, so that the names of neighbouring axes do not touch.
  const LINE = 18, PAD = 0.06;  // characters; space beside the outer axes, as a part of the distance between axes
  const lines = (name) => (name.match(/[^._]*[._]?/g) ?? []).filter(Boolean).reduce((made, part) => {
    if (made.length && (made.at(-1) + part).length <= LINE) made[made.length - 1] += part;
    else made.push(...part.match(new RegExp(`[^]{1,${LINE}}`, "gu")));
    return made;
  }, []);
  const names = [...axes.map(({ name }) => lines(name || "–")), [translate("accuracy after")]]
    .map((each) => each.length > 3 ? [`…${each.at(-3).slice(1)}`, ...each.slice(-2)] : each);
  const family = getComputedStyle(document.body).fontFamily, pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${family}`;
  const width = (texts) => Math.max(...texts.map((text) => pen.measureText(text).width));
  const distance = Math.ceil(Math.max(
    ...axes.map((axis) => width(axis.values) + 28), ...names.slice(1).map((each, i) => (width(each) + width(names[i])) / 2 + 12), 110,
  ));
  const left = Math.ceil(Math.max(20, width(names[0]) / 2 + 4)), right = Math.ceil(Math.max(72, width(names.at(-1)) / 2 + 4));
  const top = 16 * Math.max(...names.map((each) => each.length)) + 18;
  const fits = (point) => chosen.every((value, axis) => value === "" || point[axis + 2] === Number(value));
  const status = document.createElement("span");
  status.setAttribute("role", "status");

  const draw = () => {
    const muted = colour("--muted"), shown = points.filter(fits);
    const counts = { shown: shown.length, count: points.length }, found = shown.map(([, result]) => result);
    status.textContent = !shown.length ? translate("{shown} of {count} points", counts)
      : translate("{shown} of {count} points, accuracy {low} to {high}", { ...counts, low: percent(Math.min(...found)), high: percent(Math.max(...found)) });
    const traces = points.map((point, rank) => {
      const [number, result, ...values] = point, share = (result - low) / span, drawn = fits(point);
      const text = [translate("point {number}", { number }), ...axes.map((axis, i) => `${plain(axis.name)}=${plain(axis.values[values[i]])}`), `${translate("accuracy")} ${percent(result)}`].join("<br>");
      return {
        x: [...axes.keys(), axes.length], y: [...values.map((value, i) => place(i, value) + moved(rank)), share],
        mode: "lines+markers", line: { color: mixed(share), width: drawn ? 2 : 1 }, marker: { size: drawn ? 5 : 3 },
        opacity: drawn ? 0.45 + 0.55 * share : 0.08, hoverinfo: drawn ? "text" : "skip", text, showlegend: false,
      };
    }).reverse();
    const ticks = axes.flatMap((axis, i) => axis.values.map((value, j) => [i, place(i, j), value])
      .filter((_, j, all) => all.length <= 8 || j === 0 || j === all.length - 1 || j === all.length >> 1));
    const labels = [...ticks, [axes.length, 0, percent(low)], [axes.length, 1, percent(high)]].map(([x, y, text]) => ({
      x, y, text: plain(text), showarrow: false, xanchor: "left", xshift: 8, font: { color: colour("--ink"), size: 12 }, bgcolor: colour("--card"), opacity: 0.9,
    }));
    return Plotly.react(plot, traces, {
      height: 282 + top + 14, margin: { l: left, r: right, t: top, b: 14 }, hovermode: "closest", annotations: labels, dragmode: false, autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, size: 12, color: muted },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: muted, font: { color: colour("--ink") }, align: "left" },
      xaxis: { side: "top", tickvals: [...axes.keys(), axes.length], ticktext: names.map((each) => each.map(plain).join("<br>")), tickangle: 0, automargin: false, gridcolor: colour("--edge"), zeroline: false, fixedrange: true, range: [-PAD, axes.length + PAD] },
      yaxis: { visible: false, fixedrange: true, range: [-0.06, 1.06] },
    }, { displayModeBar: false, responsive: true, plotlyServerURL: "" });
  };

  const bar = figure.querySelector(".browse");
  axes.forEach((axis, i) => {
    const select = document.createElement("select"), label = document.createElement("label");
    select.add(new Option(translate("any"), ""));
    axis.values.slice(0, 200).forEach((value, j) => select.add(new Option(value, j)));
    select.addEventListener("change", () => { chosen[i] = select.value; draw(); });
    label.append(`${axis.name} `, select);
    bar.append(label);
  });
  bar.append(status);
  figure.hidden = false;
  plot.style.minWidth = `${left + distance * (axes.length + 2 * PAD) + right}px`;
  plot.style.height = `${282 + top + 14}px`;
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
