// A small virtual tree: the panel is described anew with every message, and only what changed is touched in the page, so
// that focus, open details and a click under way survive. Data goes in as text nodes and attributes, never as HTML.

/** One element: its tag, attributes (`on...` are listeners, `key` tells siblings apart), children. */
function h(tag, attributes, ...children) {
  return { tag, attributes: attributes ?? {}, children: children.flat(Infinity).filter((one) => one != null && one !== false) };
}

/** Makes the children of `parent` what `wanted` describes. */
function patch(parent, wanted) {
  const keys = new Set(wanted.map((one) => one.attributes?.key).filter((key) => key !== undefined));
  wanted.forEach((one, index) => {
    const there = parent.childNodes[index];
    if (typeof one !== "object") patchText(parent, there, String(one));
    else patchElement(parent, moved(parent, there, one, keys), one, keys);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

/** What stands at this place, or the element of the wanted key, brought here from further down: it keeps what is open. */
function moved(parent, there, wanted, keys) {
  const { key } = wanted.attributes;
  if (key === undefined || !there || (there.gpuDoctorTag === wanted.tag && there.gpuDoctorKey === key)) return there;
  for (let one = there.nextSibling; one; one = one.nextSibling) {
    if (one.gpuDoctorTag === wanted.tag && one.gpuDoctorKey === key) return parent.insertBefore(one, there);
  }
  return there;
}

/** Puts a new node in a place; what stands there with a key that is still wanted moves on. */
function put(parent, there, made, keys) {
  if (there && !keys?.has(there.gpuDoctorKey)) there.replaceWith(made);
  else parent.insertBefore(made, there ?? null);
  return made;
}

function patchText(parent, there, text) {
  if (there?.nodeType !== Node.TEXT_NODE) put(parent, there, document.createTextNode(text));
  else if (there.data !== text) there.data = text;
}

function patchElement(parent, there, wanted, keys) {
  const { tag, attributes, children } = wanted;
  const same = there?.gpuDoctorTag === tag && there.gpuDoctorKey === attributes.key;
  const node = same ? there : put(parent, there, document.createElement(tag), keys);
  if (!same) Object.assign(node, { gpuDoctorTag: tag, gpuDoctorKey: attributes.key, gpuDoctorAttributes: {} });
  if (!attributes.opaque) patch(node, children);
  dress(node, attributes);
}

/** Sets what differs from the last time; a person's own doing (open details, text being typed) is left alone. */
function dress(node, attributes) {
  const before = node.gpuDoctorAttributes;
  for (const name of Object.keys(before)) {
    if (!(name in attributes)) set(node, name, name.startsWith("on") ? null : name === "checked" ? false : undefined);
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (before[name] !== value || (name === "value" && node.value !== value)) set(node, name, value);
  }
  node.gpuDoctorAttributes = attributes;
}

function set(node, name, value) {
  if (name === "key" || name === "opaque") return;
  if (name.startsWith("on") || name === "checked") node[name] = value;
  else if (name === "value") node.value = value ?? "";
  else if (name === "style") node.style.cssText = value ?? "";
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}
