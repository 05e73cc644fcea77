// Returns a text of a script in the language of the page, with values in the places of their {names}.
const translate = (() => {
  const holder = document.getElementById("texts"), texts = holder ? JSON.parse(holder.textContent) : {};
  return (text, values = {}) => (texts[text] ?? text).replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);
})();
