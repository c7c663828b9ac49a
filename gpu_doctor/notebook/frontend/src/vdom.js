// A small virtual tree: the panel is described anew with every message, and only what changed is touched in the page, so
// that focus, open details and a click under way survive. Data goes in as text nodes and attributes, never as HTML.

/** @typedef {Record<string, any>} Attributes */
/** @typedef {{ tag: string, attributes: Attributes, children: Tree[] }} Drawn An element as it is described. */
/** @typedef {Drawn | string} Tree */
/** @typedef {Tree | null | undefined | false | Offered[]} Offered What may stand among children; nothing is left out. */
/** @typedef {ChildNode & { gpuDoctorTag?: string, gpuDoctorKey?: string, gpuDoctorAttributes?: Attributes }} Made */

/**
 * One element: its tag, attributes (`on...` are listeners, `key` tells siblings apart), children.
 * @param {string} tag
 * @param {Attributes} attributes
 * @param {...Offered} children
 * @returns {Drawn}
 */
export function h(tag, attributes, ...children) {
  return { tag, attributes, children: kept(children) };
}

/**
 * @param {Offered[]} offered
 * @returns {Tree[]}
 */
function kept(offered) {
  return offered.flatMap((one) => (Array.isArray(one) ? kept(one) : one === null || one === undefined || one === false ? [] : [one]));
}

/**
 * Makes the children of `parent` what `wanted` describes.
 * @param {Node} parent
 * @param {Offered[]} offered
 */
export function patch(parent, offered) {
  const wanted = kept(offered);
  const keys = new Set(wanted.map((one) => (typeof one === "string" ? undefined : one.attributes.key)).filter((key) => key !== undefined));
  wanted.forEach((one, index) => {
    const there = /** @type {Made | undefined} */ (parent.childNodes[index]);
    if (typeof one === "string") patchText(parent, there, one, keys);
    else patchElement(parent, moved(parent, there, one), one, keys);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild?.remove();
}

/**
 * What stands at this place, or the element of the wanted key, brought here from further down: it keeps what is open.
 * @param {Node} parent
 * @param {Made | undefined} there
 * @param {Drawn} wanted
 * @returns {Made | undefined}
 */
function moved(parent, there, wanted) {
  const { key } = wanted.attributes;
  if (key === undefined || !there || (there.gpuDoctorTag === wanted.tag && there.gpuDoctorKey === key)) return there;
  for (let one = /** @type {Made | null} */ (there.nextSibling); one; one = /** @type {Made | null} */ (one.nextSibling)) {
    if (one.gpuDoctorTag === wanted.tag && one.gpuDoctorKey === key) return parent.insertBefore(one, there);
  }
  return there;
}

/**
 * Puts a new node in a place; what stands there with a key that is still wanted moves on.
 * @template {ChildNode} T
 * @param {Node} parent
 * @param {Made | undefined} there
 * @param {T} made
 * @param {Set<string>} keys
 */
function put(parent, there, made, keys) {
  if (there && !(there.gpuDoctorKey !== undefined && keys.has(there.gpuDoctorKey))) there.replaceWith(made);
  else parent.insertBefore(made, there ?? null);
  return made;
}

/**
 * @param {Node} parent
 * @param {Made | undefined} there
 * @param {string} text
 * @param {Set<string>} keys
 */
function patchText(parent, there, text, keys) {
  if (!(there instanceof Text)) put(parent, there, document.createTextNode(text), keys);
  else if (there.data !== text) there.data = text;
}

/**
 * @param {Node} parent
 * @param {Made | undefined} there
 * @param {Drawn} wanted
 * @param {Set<string>} keys
 */
function patchElement(parent, there, wanted, keys) {
  const { tag, attributes, children } = wanted;
  const same = there?.gpuDoctorTag === tag && there.gpuDoctorKey === attributes.key;
  const node = /** @type {HTMLElement & Made} */ (same ? there : put(parent, there, document.createElement(tag), keys));
  if (!same) Object.assign(node, { gpuDoctorTag: tag, gpuDoctorKey: attributes.key, gpuDoctorAttributes: {} });
  patch(node, children);
  dress(node, attributes);
}

/**
 * Sets what differs from the last time; a person's own doing (open details, text being typed) is left alone.
 * @param {HTMLElement & Made} node
 * @param {Attributes} attributes
 */
function dress(node, attributes) {
  const before = node.gpuDoctorAttributes ?? {};
  for (const name of Object.keys(before)) {
    if (!(name in attributes)) set(node, name, name.startsWith("on") ? null : name === "checked" ? false : undefined);
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (before[name] !== value || (name === "value" && /** @type {any} */ (node).value !== value)) set(node, name, value);
  }
  node.gpuDoctorAttributes = attributes;
}

/**
 * @param {any} node
 * @param {string} name
 * @param {any} value
 */
function set(node, name, value) {
  if (name === "key") return;
  if (name.startsWith("on") || name === "checked") node[name] = value;
  else if (name === "value") node.value = value ?? "";
  else if (name === "style") node.style.cssText = value ?? "";
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}
