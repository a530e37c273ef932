import "http://127.0.0.1:4747/-/worker.js";
