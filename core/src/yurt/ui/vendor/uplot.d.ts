declare const Plot: any;
export default Plot;
