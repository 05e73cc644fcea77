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
    const names = [...axes.map((axis) => axis.name.length > 22 ? `…${axis.name.slice(-21)}` : axis.name), translate("accuracy after")].map(plain);
    return Plotly.react(plot, traces, {
      height: 330, margin: { l: 60, r: 90, t: 34, b: 14 }, hovermode: "closest", annotations: labels, dragmode: false, autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: muted },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: muted, font: { color: colour("--ink") }, align: "left" },
      xaxis: { side: "top", tickvals: [...axes.keys(), axes.length], ticktext: names, gridcolor: colour("--edge"), zeroline: false, fixedrange: true, range: [-0.1, axes.length + 0.1] },
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
  plot.style.minWidth = `${130 * (axes.length + 1)}px`;
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
