// Filters by the metadata of documents: a field for each facet of the index, and the expression that they make.

import { count, h, many } from "./dom.js";

/** A text as a literal of the expression. */
export function quoted(text) {
  return `"${text.replace(/[\\"]/g, "\\$&")}"`;
}

/** The condition of one facet: `chosen` is {values: [], from: "", to: ""}; empty where nothing is chosen. */
export function condition(facet, chosen) {
  const literal = (value) => (typeof value === "string" ? quoted(value) : String(value));
  if (facet.type === "date" || facet.type === "number") {
    return [chosen.from && `${facet.name} >= ${chosen.from}`, chosen.to && `${facet.name} <= ${chosen.to}`].filter(Boolean).join(" and ");
  }
  if (!chosen.values.length) return "";
  const [first, ...rest] = chosen.values;
  if (!rest.length) return `${facet.name} ${facet.list ? "has" : "="} ${literal(first)}`;
  return `${facet.name} ${facet.list ? "has any" : "in"} (${chosen.values.map(literal).join(", ")})`;
}

/** Facets of the description of an index, in one form whichever way they came. */
export function facetsOf(info) {
  const value = (one) => (one !== null && typeof one === "object" ? (one.text ?? one.number ?? one.integer ?? one.flag) : one);
  return (info.facets ?? []).map((facet) => ({
    name: facet.name,
    type: String(facet.type).toLowerCase().replace("field_type_", ""),
    list: Boolean(facet.list),
    documents: facet.documents ?? 0,
    min: value(facet.min) ?? null,
    max: value(facet.max) ?? null,
    distinct: facet.distinct ?? 0,
    values: (facet.values ?? []).map((one) => (Array.isArray(one) ? { value: one[0], documents: one[1] } : { value: value(one.value), documents: one.documents })),
  }));
}

/** The fields in a box; `changed(expression)` is called when the expression is another. */
export class Filters {
  constructor(box, text, changed) {
    this.box = box;
    this.text = text;
    this.changed = changed;
    this.chosen = new Map();
    text.addEventListener("input", () => this.set(text.value)); // the fields no longer say what is written
  }

  /** Draws the facets of an index; what was chosen of those that are still there stays. */
  show(info) {
    this.facets = facetsOf(info);
    const known = new Set(this.facets.map((facet) => facet.name));
    for (const name of this.chosen.keys()) if (!known.has(name)) this.chosen.delete(name);
    this.box.replaceChildren(...this.facets.map((facet) => this.field(facet)));
    return this.facets.length > 0;
  }

  expression() {
    return this.text.value.trim();
  }

  /** Writes the expression that the fields make. */
  write() {
    const parts = this.facets.map((facet) => condition(facet, this.of(facet))).filter(Boolean);
    this.text.value = parts.join(" and ");
    this.changed(this.expression());
  }

  /** Sets the expression, and empties the fields. */
  set(text) {
    this.chosen.clear();
    this.box.replaceChildren(...(this.facets ?? []).map((facet) => this.field(facet)));
    if (this.text.value !== text) this.text.value = text;
    this.changed(this.expression());
  }

  of(facet) {
    if (!this.chosen.has(facet.name)) this.chosen.set(facet.name, { values: [], from: "", to: "" });
    return this.chosen.get(facet.name);
  }

  field(facet) {
    const about = h("legend", {}, h("b", { dir: "auto" }, facet.name), h("small", {}, ` ${many(facet.documents, "document")}`));
    const inputs = facet.type === "date" || facet.type === "number" ? this.range(facet) : this.values(facet);
    return h("fieldset", { class: `facet ${facet.type}` }, about, inputs);
  }

  range(facet) {
    const day = (value) => (facet.type === "date" && typeof value === "string" ? value.slice(0, 10) : value);
    const input = (end, label) => h("label", {}, label, h("input", { type: facet.type === "date" ? "date" : "number", step: "any", min: day(facet.min), max: day(facet.max), value: this.of(facet)[end], "aria-label": `${facet.name} ${label}`, onchange: (event) => {
      this.of(facet)[end] = event.currentTarget.value;
      this.write();
    } }));
    const known = facet.min === null ? null : h("small", { class: "soft" }, `${day(facet.min)} – ${day(facet.max)}`);
    return [h("div", { class: "range" }, input("from", "from"), input("to", "to")), known];
  }

  values(facet) {
    const chosen = this.of(facet);
    const one = ({ value, documents }) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: chosen.values.includes(value), onchange: (event) => {
      chosen.values = event.currentTarget.checked ? [...chosen.values, value] : chosen.values.filter((kept) => kept !== value);
      this.write();
    } }), h("span", { dir: "auto" }, String(value)), h("small", {}, count(documents)));
    const rest = facet.distinct - facet.values.length;
    return [h("div", { class: "values" }, facet.values.map(one)), rest > 0 ? h("small", { class: "soft" }, `and ${count(rest)} more: write them below`) : null];
  }
}
