export { h, Fragment, render, createContext, cloneElement } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useErrorBoundary, useId } from "preact/hooks";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
