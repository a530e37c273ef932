/** A plot: the canvas is in the output, and the tool returns it as an image, so the model sees it too. */

const canvas = document.createElement("canvas");
canvas.width = 640;
canvas.height = 320;
document.body.append(canvas);
const pen = canvas.getContext("2d");

offerTool({
  name: "plot_numbers",
  description: "Draw numbers as a line and return the plot as an image.",
  inputSchema: {
    type: "object",
    properties: {
      numbers: { type: "array", items: { type: "number" }, minItems: 2, maxItems: 1000, default: [1, 4, 2, 8, 5, 7] },
      color: { type: "string", description: "a CSS colour", default: "teal" },
    },
    required: ["numbers"],
  },
  async execute({ numbers, color = "teal" }) {
    const low = Math.min(...numbers);
    const range = Math.max(...numbers) - low || 1;
    pen.fillStyle = "white";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.strokeStyle = color;
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    pen.beginPath();
    numbers.forEach((number, index) => {
      const x = 30 + (index * (canvas.width - 60)) / (numbers.length - 1);
      const y = canvas.height - 30 - ((number - low) * (canvas.height - 60)) / range;
      pen.lineTo(x, y);
    });
    pen.stroke();
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  },
});
