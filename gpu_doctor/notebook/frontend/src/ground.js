// What is really behind the panel. Front ends name their themes in many ways, and a name may be wrong: VS Code puts widgets
// on white in its dark themes too. So the panel reads the colour behind it, and its own colours follow.

/** @typedef {[number, number, number, number]} Rgba red, green and blue from 0 to 255; how opaque it is, from 0 to 1 */

/** A front end may paint its theme a moment after it has named it. */
const LATER_MS = 400;
const THEME = ["class", "style", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-theme"];
const [PAPER, SLATE] = ["rgb(255, 255, 255)", "rgb(30, 30, 30)"];

/**
 * A colour as `getComputedStyle` writes it.
 * @param {string} text
 * @returns {Rgba}
 */
export function rgba(text) {
  const numbers = (text.match(/-?[\d.]+(e-?\d+)?/g) ?? []).map(Number);
  const scale = text.startsWith("color(") ? 255 : 1;
  const [red = 0, green = 0, blue = 0, alpha = numbers.length ? 1 : 0] = numbers;
  return [red * scale, green * scale, blue * scale, alpha];
}

/**
 * Relative luminance, as WCAG 2 defines it.
 * @param {Rgba} colour
 */
export function luminance([red, green, blue]) {
  const [r = 0, g = 0, b = 0] = [red, green, blue].map((one) => {
    const share = one / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * White reads better than black on it.
 * @param {string} colour
 */
export function isDark(colour) { return luminance(rgba(colour)) < 0.179; }

/**
 * The colour behind an element: the nearest ancestor's that is opaque. Where none is, as in a frame that lets the page
 * behind it through, the text around the panel tells what it is made for, and the panel brings a ground of its own.
 * @param {Element} element
 */
export function groundOf(element) {
  for (let one = element.parentElement; one; one = one.parentElement) {
    const { backgroundColor } = getComputedStyle(one);
    if (rgba(backgroundColor)[3] === 1) return backgroundColor;
  }
  return isDark(getComputedStyle(element.parentElement ?? element).color) ? PAPER : SLATE;
}

/**
 * Keeps the panel in the colours of what is behind it; `changed` is called after each change. Returns what ends it.
 * @param {HTMLElement} root
 * @param {() => void} changed
 */
export function followGround(root, changed) {
  let ground = "";
  const look = () => {
    const now = root.isConnected ? groundOf(root) : ground;
    if (now === ground) return;
    ground = now;
    root.style.setProperty("--gd-ground", ground);
    root.classList.toggle("gd-dark", isDark(ground));
    changed();
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let later;
  const twice = () => {
    look();
    clearTimeout(later);
    later = setTimeout(look, LATER_MS);
  };
  const named = new MutationObserver(twice);
  for (const one of [document.documentElement, document.body]) named.observe(one, { attributes: true, attributeFilter: THEME });
  const sheets = new MutationObserver(twice);
  sheets.observe(document.head, { childList: true });
  document.head.addEventListener("load", twice, true); // a style sheet has come
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", twice);
  twice();
  return () => {
    clearTimeout(later);
    named.disconnect();
    sheets.disconnect();
    document.head.removeEventListener("load", twice, true);
    system.removeEventListener("change", twice);
  };
}
