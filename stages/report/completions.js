// Lets a reader go through completions: those of all steps that the page carries, and those before and after training.
// Every text of a model or user is set as textContent, never as HTML.
(() => {
  const element = (name, className = "", ...children) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };
  const figure = (value) => value === undefined || value === null ? "–" : `${Number(value.toPrecision(3))}`.replace("-", "−");
  const signed = (value) => (value > 0 ? "+" : "") + figure(value);
  const button = (text, act) => {
    const made = element("button", "", text);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  };
  const read = (id) => {
    const holder = document.getElementById(id);
    return holder ? JSON.parse(holder.textContent) : null;
  };

  // A text with its final answer and the words that were searched for marked.
  const shown = ({ text, answer }, words, name) => {
    const pre = element("pre");
    pre.dir = "auto";
    pre.tabIndex = 0;
    pre.setAttribute("aria-label", name);
    const marked = (part) => {
      const found = words && part.toLowerCase().length === part.length ? part.toLowerCase().indexOf(words) : -1;
      if (found < 0) return [part];
      return [part.slice(0, found), element("mark", "found", part.slice(found, found + words.length)), ...marked(part.slice(found + words.length))];
    };
    if (answer) {
      const mark = element("mark", "answer", text.slice(...answer));
      mark.title = translate("the final answer, as the reward function number reads it");
      pre.append(...marked(text.slice(0, answer[0])), mark, ...marked(text.slice(answer[1])));
    } else {
      pre.append(...marked(text));
    }
    return pre;
  };
  // `weights` is empty if a reward is no weighted sum of its parts.
  const parts = (row, weights) => Object.entries(row.parts ?? {}).map(([name, value]) => {
    const weight = Object.hasOwn(weights, name) ? translate(" (weight {weight})", { weight: figure(weights[name]) }) : "";
    return `${name.replaceAll("_", " ")} ${figure(value)}${weight}`;
  });

  // Buttons of which one is pressed, with the number of what each would show.
  const choice = (label, names, act) => {
    const group = element("div", "choice"), made = {};
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", label);
    for (const [name, text] of names) {
      made[name] = button(text, () => { choose(name); act(name); });
      group.append(made[name]);
    }
    const choose = (name) => {
      for (const [each, node] of Object.entries(made)) node.setAttribute("aria-pressed", each === name);
    };
    choose(names[0][0]);
    return { group, press: (name) => made[name]?.click(), count: (name, number) => { made[name].textContent = `${names.find(([each]) => each === name)[1]} ${number}`; } };
  };
  const searchField = (label, act) => {
    const field = element("input");
    Object.assign(field, { type: "search", placeholder: label });
    field.setAttribute("aria-label", label);
    field.addEventListener("input", () => act(field.value.trim().toLowerCase()));
    return field;
  };

  const browseSteps = (holder, { steps, weights }) => {
    const rewards = steps.flatMap((step) => step.groups.flatMap((group) => group.rows.map((row) => row.reward))).filter((value) => value !== undefined);
    const low = Math.min(...rewards), high = Math.max(...rewards);
    // Five classes of reward, from the lowest to the highest on this page; the number stands beside the colour.
    const grade = (reward) => reward === undefined || high <= low ? "" : ` r${Math.min(4, Math.floor(5 * (reward - low) / (high - low)))}`;
    const FILTERS = {
      all: () => true, right: (row) => row.right === true, wrong: (row) => row.right === false, cut: (row) => row.cut === true,
    };
    let at = steps.length - 1, filter = "all", words = "", longestFirst = false;
    const matches = (group, row) => FILTERS[filter](row) &&
      (!words || `${group.prompt}\n${row.text}`.toLowerCase().includes(words));
    const counted = (step) => step.groups.reduce((sum, group) => sum + group.rows.filter((row) => matches(group, row)).length, 0);

    const slider = element("input"), said = element("output"), list = element("div", "groups"), status = element("p", "muted");
    Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, step: 1, value: at });
    slider.setAttribute("aria-label", translate("Step"));
    status.setAttribute("role", "status");
    const label = element("label", "grow", `${translate("Step")} `, slider, said);
    const go = (place) => { at = Math.min(steps.length - 1, Math.max(0, place)); slider.value = at; show(); };
    const withMatch = (direction) => {
      let place = at + direction;
      while (place >= 0 && place < steps.length && !counted(steps[place])) place += direction;
      if (place >= 0 && place < steps.length) go(place);
    };
    slider.addEventListener("input", () => go(Number(slider.value)));
    const kinds = choice(translate("Which completions"), [["all", translate("All")], ["right", translate("Right")], ["wrong", translate("Wrong")], ["cut", translate("Cut")]], (name) => { filter = name; show(); });
    const order = button(translate("Longest first"), () => { longestFirst = !longestFirst; order.setAttribute("aria-pressed", longestFirst); show(); });
    order.setAttribute("aria-pressed", "false");
    // the mean: completions that are cut have one length, so that the longest ones of many steps are equal
    const lengthOf = (step) => {
      const lengths = step.groups.flatMap((group) => group.rows.map((row) => row.length ?? 0));
      return lengths.reduce((sum, length) => sum + length, 0) / Math.max(1, lengths.length);
    };
    const longest = button(translate("Logged step with the longest on average"), () => {
      if (!longestFirst) order.click();
      go(steps.reduce((best, step, place) => lengthOf(step) > lengthOf(steps[best]) ? place : best, 0));
    });

    const completion = (row, number) => {
      const facts = [`${translate("reward")} ${figure(row.reward)}`, ...parts(row, weights)];
      if (row.advantage !== undefined) facts.push(`${translate("advantage")} ${signed(row.advantage)}`);
      if (row.length !== undefined) facts.push(translate("{count} tokens", { count: figure(row.length) }));
      if (row.cut) facts.push(translate("cut"));
      const item = element("li", `completion${grade(row.reward)}`);
      const word = row.right === undefined ? "" : row.right ? "right" : "wrong", named = { right: translate("right"), wrong: translate("wrong") }[word];
      item.append(element("p", "facts-line", ...(word ? [element("strong", word, named)] : []), element("span", "", facts.join(" · "))));
      item.append(shown(row, words, translate("Completion {number}", { number })));
      return item;
    };
    const show = () => {
      const step = steps[at], total = step.groups.reduce((sum, group) => sum + group.rows.length, 0);
      said.textContent = `${step.step}`;
      slider.setAttribute("aria-valuetext", translate("step {number}", { number: step.step }));
      const before = filter;
      for (const name of Object.keys(FILTERS)) {
        filter = name;
        kinds.count(name, counted(step));
      }
      filter = before;
      const left = step.left_out ? ` ${translate("{count} more did not fit.", { count: step.left_out })}` : "";
      const everywhere = words || filter !== "all" ? ` ${translate("In all steps here: {count}.", { count: steps.reduce((sum, each) => sum + counted(each), 0) })}` : "";
      status.textContent = translate(step.groups.length === 1 ? "{shown} of {count} completions of step {step}, in one group." : "{shown} of {count} completions of step {step}, in {groups} groups.", { shown: counted(step), count: total, step: step.step, groups: step.groups.length }) + left + everywhere;
      const numbered = [...step.groups.entries()];
      const most = ([, group]) => Math.max(...group.rows.map((row) => row.length ?? 0));
      if (longestFirst) numbered.sort((a, b) => most(b) - most(a));
      list.replaceChildren(...numbered.flatMap(([number, group]) => {
        let rows = group.rows.filter((row) => matches(group, row));
        if (!rows.length) return [];
        if (longestFirst) rows = [...rows].sort((a, b) => (b.length ?? 0) - (a.length ?? 0));
        const known = group.rows.filter((row) => row.right !== undefined), right = known.filter((row) => row.right).length;
        const card = element("article", "panel sample");
        const sums = [known.length ? translate("{right} of {count} right", { right, count: known.length }) : "", translate("{count} completions", { count: group.rows.length })].filter(Boolean).join(" · ");
        const title = translate("Group {number}", { number: number + 1 });
        card.setAttribute("aria-label", title);
        card.append(element("header", "", element("h3", "", title), element("span", "badge", sums)));
        card.append(shown({ text: group.prompt }, words, translate("Prompt")));
        if (group.solution) card.append(element("details", "", element("summary", "", translate("Solution")), shown({ text: group.solution }, "", translate("Solution"))));
        card.append(element("ol", "completions", ...rows.map((row) => completion(row, group.rows.indexOf(row) + 1))));
        return [card];
      }));
      if (!list.childElementCount) list.append(element("p", "missing", translate("No completion of this step fits; the arrows go to the next step with one.")));
    };
    const back = button("◀", () => withMatch(-1)), on = button("▶", () => withMatch(1));
    back.setAttribute("aria-label", translate("Previous step with a match"));
    on.setAttribute("aria-label", translate("Next step with a match"));
    const bar = element("div", "browse", back, label, on, kinds.group, order, longest, searchField(translate("Search prompts and completions"), (text) => { words = text; show(); }));
    holder.replaceChildren(bar, status, list);
    show();
  };

  const browseHeldOut = (holder, { rows, weights }) => {
    const VERDICTS = { fixed: translate("fixed"), broken: translate("broken"), "both right": translate("both right"), "both wrong": translate("both wrong") }, PAGE = 10;
    const SIDES = { before: translate("Before"), after: translate("After") };
    let verdict = "all", words = "", most = PAGE;
    const list = element("div"), status = element("p", "muted");
    status.setAttribute("role", "status");
    const texts = (row) => `${row.prompt}\n${row.before.text}\n${row.after.text}`.toLowerCase();
    const names = Object.keys(VERDICTS).filter((name) => rows.some((row) => row.verdict === name));
    const kinds = choice(translate("Which prompts"), [["all", translate("All")], ...names.map((name) => [name, VERDICTS[name][0].toUpperCase() + VERDICTS[name].slice(1)])], (name) => { verdict = name; most = PAGE; show(); });
    kinds.count("all", rows.length);
    names.forEach((name) => kinds.count(name, rows.filter((row) => row.verdict === name).length));
    const more = button(translate("Show more"), () => { most += PAGE; show(); });
    const solved = ({ samples }) => samples ? [translate("{right} of {count} samples right", { right: samples[0], count: samples[1] })] : [];
    const side = (row, name) => {
      const answer = row[name], facts = [`${translate("reward")} ${figure(answer.reward)}`, ...parts(answer, weights), ...solved(answer)].join(" · ");
      return element("div", "", element("h4", "", element("span", "", SIDES[name]), element("span", "", facts)), shown(answer, words, SIDES[name]));
    };
    const show = () => {
      const found = rows.filter((row) => (verdict === "all" || row.verdict === verdict) && (!words || texts(row).includes(words)));
      status.textContent = translate("{shown} of {count} prompts", { shown: Math.min(most, found.length), count: found.length });
      more.hidden = most >= found.length;
      list.replaceChildren(...found.slice(0, most).map((row) => {
        const { number } = row, card = element("article", "panel sample"), title = translate("Prompt {number}", { number });
        card.setAttribute("aria-label", title);
        const head = element("header", "", element("h3", "", title));
        if (row.verdict) head.append(element("span", `badge ${row.verdict.replace(" ", "-")}`, VERDICTS[row.verdict]));
        card.append(head, shown({ text: row.prompt }, words, translate("Prompt")), element("div", "answers", side(row, "before"), side(row, "after")));
        card.append(element("details", "", element("summary", "", translate("Solution")), shown({ text: row.solution }, "", translate("Solution"))));
        return card;
      }));
    };
    const bar = element("div", "browse", kinds.group, searchField(translate("Search prompts and answers"), (text) => { words = text; most = PAGE; show(); }));
    holder.replaceChildren(bar, status, list, more);
    show();
    for (const link of document.querySelectorAll("a[data-verdict]")) {  // of the counts at the top of the page
      link.addEventListener("click", () => kinds.press(link.dataset.verdict));
    }
  };

  const steps = read("step-data"), heldOut = read("held-out-data");
  if (steps?.steps.length) browseSteps(document.getElementById("step-browser"), steps);
  if (heldOut?.rows.length) browseHeldOut(document.getElementById("held-out-browser"), heldOut);
})();
