export const Terminal: any;
export const FitAddon: any;
