// A small virtual DOM: every message describes the whole panel again, and only changed parts of the page are touched, so
// that focus, open details and a click in progress survive. Data becomes text nodes and attributes, never HTML.

/** @typedef {Record<string, any>} Attributes */
/** @typedef {{ tag: string, attributes: Attributes, children: Tree[] }} Drawn The description of an element. */
/** @typedef {Drawn | string} Tree */
/** @typedef {Tree | null | undefined | false | Offered[]} Offered A possible child; null, undefined and false are skipped. */
/** @typedef {ChildNode & { gpuDoctorTag?: string, gpuDoctorKey?: string, gpuDoctorAttributes?: Attributes }} Made */

/**
 * Describes one element: its tag, attributes (`on...` are listeners, `key` identifies it among its siblings), children.
 * @param {string} tag
 * @param {Attributes} attributes
 * @param {...Offered} children
 * @returns {Drawn}
 */
export function h(tag, attributes, ...children) {
  return { tag, attributes, children: flattened(children) };
}

/**
 * Flattens lists of children and drops null, undefined and false.
 * @param {Offered[]} offered
 * @returns {Tree[]}
 */
function flattened(offered) {
  return offered.flatMap((child) => (Array.isArray(child) ? flattened(child) : child === null || child === undefined || child === false ? [] : [child]));
}

/**
 * Changes the children of `parent` into what `offered` describes.
 * @param {Node} parent
 * @param {Offered[]} offered
 */
export function patch(parent, offered) {
  const wanted = flattened(offered);
  const keys = new Set(wanted.map((child) => (typeof child === "string" ? undefined : child.attributes.key)).filter((key) => key !== undefined));
  wanted.forEach((child, index) => {
    const there = /** @type {Made | undefined} */ (parent.childNodes[index]);
    if (typeof child === "string") patchText(parent, there, child, keys);
    else patchElement(parent, moved(parent, there, child), child, keys);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild?.remove();
}

/**
 * Returns the node at this place, or moves the element with the wanted key here, so that its open details stay open.
 * @param {Node} parent
 * @param {Made | undefined} there
 * @param {Drawn} wanted
 * @returns {Made | undefined}
 */
function moved(parent, there, wanted) {
  const { key } = wanted.attributes;
  if (key === undefined || !there || (there.gpuDoctorTag === wanted.tag && there.gpuDoctorKey === key)) return there;
  for (let sibling = /** @type {Made | null} */ (there.nextSibling); sibling; sibling = /** @type {Made | null} */ (sibling.nextSibling)) {
    if (sibling.gpuDoctorTag === wanted.tag && sibling.gpuDoctorKey === key) return parent.insertBefore(sibling, there);
  }
  return there;
}

/**
 * Inserts a new node at a place. It replaces the node there, unless that node's key is still wanted.
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
 * Makes the node at a place a text node with this text.
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
 * Makes the node at a place the wanted element, with its attributes and children.
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
 * Sets the attributes that changed since the last drawing; the user's own changes (open details, typed text) stay.
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
 * Sets or removes one attribute, listener or property.
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
