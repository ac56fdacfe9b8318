// The types of what the UI uses of preact, its hooks, signals and htm; the props inside `html` templates are not checked.
export type VNode = { type: unknown; props: Record<string, any>; key: unknown };
export type Child = VNode | string | number | boolean | null | undefined | Child[];
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
export function h(type: unknown, props?: Record<string, any> | null, ...children: unknown[]): VNode;
export const Fragment: unknown;
export function render(tree: Child, parent: Element): void;
export function createContext<T>(initial: T): { Provider: unknown };
export function cloneElement(node: VNode, props?: Record<string, any>): VNode;
type Setter<T> = (next: T | ((before: T) => T)) => void;
export function useState<T = any>(initial: T | (() => T)): [T, Setter<T>];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T = any>(initial?: T): { current: T };
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<T extends (...args: any[]) => any>(callback: T, inputs: unknown[]): T;
export function useContext<T>(context: unknown): T;
export function useErrorBoundary(onError?: (error: any) => void): [any, () => void];
export function useId(): string;
export interface Signal<T = any> { value: T; peek(): T; subscribe(listener: (value: T) => void): () => void }
export interface ReadonlySignal<T = any> { readonly value: T; peek(): T }
export function signal<T>(initial: T): Signal<T>;
export function computed<T>(derive: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
export function useSignal<T>(initial: T): Signal<T>;
export function useComputed<T>(derive: () => T): ReadonlySignal<T>;
export function useSignalEffect(run: () => void | (() => void)): void;
