/** How wide the window is, as classes: which columns and menus fit. */
import { signal } from "../../vendor/preact.js";

const BOUNDS = { md: 760, lg: 1100, xl: 1500 };
const read = () => /** @type {string[]} */ (Object.entries(BOUNDS).flatMap(([name, bound]) => (innerWidth >= bound ? [name] : [])));
/** The classes that fit: some of "md", "lg", "xl". */
export const width = signal(read());

export const startWidth = () =>
  addEventListener("resize", () => {
    const now = read();
    if (now.length !== width.value.length) width.value = now;
  });
