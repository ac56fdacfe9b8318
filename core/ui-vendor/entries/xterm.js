export { Terminal } from "@xterm/xterm";
export { FitAddon } from "@xterm/addon-fit";
export { SearchAddon } from "@xterm/addon-search";
