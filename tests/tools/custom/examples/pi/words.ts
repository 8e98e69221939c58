// Beside the entry point: imported, but no tool itself.
type Block = { type: "text"; text: string };

export const text = (words: string): Block[] => [{ type: "text", text: words }];
