// Reads the colour behind the panel. Front ends name their themes in many ways, and a name may be wrong: VS Code puts
// widgets on white even in its dark themes. So the panel reads the colour behind it and adapts its own colours.

/** @typedef {[number, number, number, number]} Rgba red, green and blue from 0 to 255, opacity from 0 to 1 */

/** Delay of a second look: a front end may apply a theme's colours a moment after its name. */
const LATER_MS = 400;
const THEME = ["class", "style", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-theme"];
const [PAPER, SLATE] = ["rgb(255, 255, 255)", "rgb(30, 30, 30)"];

/**
 * Parses a colour as `getComputedStyle` writes it.
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
 * Returns the relative luminance of a colour, as WCAG 2 defines it.
 * @param {Rgba} colour
 */
export function luminance([red, green, blue]) {
  const [r = 0, g = 0, b = 0] = [red, green, blue].map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Returns true if white text reads better than black on a colour.
 * @param {string} colour
 */
export function isDark(colour) { return luminance(rgba(colour)) < 0.179; }

/**
 * Returns the colour behind an element: that of its nearest opaque ancestor. If there is none, as in a transparent frame,
 * the text colour around the panel decides between a white and a dark background, which the panel then paints itself.
 * @param {Element} element
 */
export function groundOf(element) {
  for (let ancestor = element.parentElement; ancestor; ancestor = ancestor.parentElement) {
    const { backgroundColor } = getComputedStyle(ancestor);
    if (rgba(backgroundColor)[3] === 1) return backgroundColor;
  }
  return isDark(getComputedStyle(element.parentElement ?? element).color) ? PAPER : SLATE;
}

/**
 * Adapts the panel's colours to the background and calls `changed` after each change. Returns a function that ends this.
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
  for (const element of [document.documentElement, document.body]) named.observe(element, { attributes: true, attributeFilter: THEME });
  const sheets = new MutationObserver(twice);
  sheets.observe(document.head, { childList: true });
  document.head.addEventListener("load", twice, true); // a style sheet was loaded
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
