// What this tab keeps (the token) and what the address holds (the view and what it shows, never the token).

const TOKEN = "hirag-token"; // of this tab's session storage

export function token() {
  return sessionStorage.getItem(TOKEN) ?? "";
}

/** Keeps a token for this tab; an empty one is forgotten. */
export function keepToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

/** What every request is about: the index by name, and what documents must meet. Set by the form's fields. */
export const scope = { index: "", labels: [], filter: "", asOf: "" };

/** A request with the fields of the scope that are set. */
export function scoped(request = {}) {
  return { ...request, ...(scope.index && { index: scope.index }), ...(scope.labels.length && { labels: scope.labels }), ...(scope.filter && { filter: scope.filter }), ...(scope.asOf && { as_of: scope.asOf }) };
}

/** An address within this page: fields by name, empty ones left out; the scope is added. */
export function place(fields) {
  const all = { ...fields, index: scope.index, labels: scope.labels.join(","), filter: scope.filter, as_of: scope.asOf };
  return `#${new URLSearchParams(Object.entries(all).filter(([, value]) => value !== "" && value !== null && value !== undefined))}`;
}

/** The fields of the present address. */
export function placed() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Puts fields into the address, as a new step of the browser's history or in place of the present one. */
export function go(fields, { step = false } = {}) {
  const wanted = place(fields);
  if (wanted === location.hash) return;
  if (step) history.pushState(null, "", wanted);
  else history.replaceState(null, "", wanted);
}

/** The whole address of what is shown, for a link. */
export function link(fields) {
  return `${location.origin}${location.pathname}${place(fields)}`;
}
