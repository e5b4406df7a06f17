// What is asked: the fields of the form as a request, and the same fields in an address.

import { by } from "./dom.js";
import { Filters } from "./filters.js";
import { scope, scoped } from "./session.js";

const NUMBERS = ["top-n", "top-m", "top-c"];

export const filters = new Filters(by("facets"), by("filter"), (expression) => {
  scope.filter = expression;
  drawState();
});

by("as-of").addEventListener("change", (event) => {
  scope.asOf = event.currentTarget.value;
  drawState();
});

function drawState() {
  by("filter-state").textContent = scope.filter || scope.asOf ? "on" : "";
}

/** Draws the filters of an index, as far as it has any. */
export function drawFilters(info) {
  const some = filters.show(info);
  by("as-of-choice").hidden = !info.as_of_field;
  by("as-of-choice").title = `Only documents that are not later, by their field ${info.as_of_field}`;
  by("filters").hidden = !(some || scope.filter);
}

/** Empties every filter. */
export function clearFilters() {
  by("as-of").value = "";
  scope.asOf = "";
  filters.set("");
}

/** The question as a request, in a mode; the default one where it is empty. */
export function request(text, mode) {
  const numbers = NUMBERS.filter((id) => by(id).value.trim()).map((id) => [id.replace("-", "_"), Number(by(id).value)]);
  return {
    question: text,
    answer: by("want-answer").checked,
    ...(mode && { mode }),
    ...Object.fromEntries(numbers),
    ...scoped(),
    ...(by("time").value && { timeout_s: Number(by("time").value) }),
  };
}

/** The fields of an address for a question. */
export function fields(view, text) {
  const numbers = Object.fromEntries(NUMBERS.map((id) => [id, by(id).value.trim()]));
  return { view, q: text, mode: by("mode").value, ...numbers, answer: by("want-answer").checked ? "" : "0" };
}

/** Puts the fields of an address into the form. Nothing is asked: a link spends nothing. */
export function take(placed) {
  scope.index = placed.index ?? "";
  setLabels(placed.labels ?? "");
  by("labels").value = scope.labels.join(", ");
  if ((placed.filter ?? "") !== filters.expression()) filters.set(placed.filter ?? "");
  scope.asOf = /^\d{4}-\d\d-\d\d$/.test(placed.as_of ?? "") ? placed.as_of : "";
  by("as-of").value = scope.asOf;
  drawState();
  if (scope.filter) by("filters").hidden = false;
  if (placed.q) {
    by("question").value = placed.q.slice(0, 8000);
    by("want-answer").checked = placed.answer !== "0";
    for (const id of NUMBERS) by(id).value = /^\d{1,5}$/.test(placed[id] ?? "") ? placed[id] : "";
  }
  if (placed.mode !== undefined) choose(by("mode"), placed.mode);
}

function choose(select, value) {
  if (Array.from(select.options).some((option) => option.value === value)) select.value = value;
}

export function setLabels(text) {
  scope.labels = text.split(",").map((label) => label.trim()).filter(Boolean);
}
