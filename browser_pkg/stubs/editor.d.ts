// Types of the bundled editor: browser_pkg/runtime/editor.mjs.

export interface Editor {
  readonly text: string;
  /** Replace the text, and choose the language. */
  load(text: string, language: "python" | "javascript"): void;
  /** Mark a line, and from a column on if that is known. Both count from 1; column 0: the whole line. */
  showError(message: string, line: number, column: number): void;
  clearError(): void;
  focus(): void;
}

/** An editor in a shadow root of `parent`. `onRun`: Ctrl-Enter or ⌘-Enter. */
export declare function createEditor(options: {
  parent: HTMLElement;
  label: string;
  /** Characters. A change that makes the text longer is not made. */
  maxLength: number;
  onRun: () => void;
  onChange: () => void;
}): Editor;
